"""Dashboards and alerts: well-formed, complete, and based on existing metrics, checked with a real Prometheus."""

import pathlib
import re
import subprocess
import tempfile
import unittest

import yaml

from . import live, monitoring, program
from .manifests import K8S, kustomize

OPERATIONS = (program.ROOT / "docs" / "operations.md").read_text()
CASES = yaml.safe_load((K8S / "tests" / "alerts_test.yaml").read_text())


def promtool(*arguments, text=None):
    return subprocess.run(["promtool", *map(str, arguments)], input=text, capture_output=True, text=True, check=False)


def tested(spec, cases):
    """Returns promtool's report on the cases of alerts_test.yaml, with these rules."""
    with tempfile.TemporaryDirectory() as folder:
        rules, tests = pathlib.Path(folder) / "rules.yaml", pathlib.Path(folder) / "tests.yaml"
        rules.write_text(yaml.safe_dump(spec))
        tests.write_text(yaml.safe_dump(cases))
        checked = promtool("check", "rules", "--lint-fatal", rules)
        return checked if checked.returncode else promtool("test", "rules", tests)


class Dashboards(unittest.TestCase):
    maxDiff = None

    def test_the_files_are_what_the_table_makes(self):
        tables = monitoring.generator()
        self.assertEqual(set(monitoring.dashboards()), set(tables.DASHBOARDS))
        for slug in tables.DASHBOARDS:
            file = monitoring.FOLDER / "dashboards" / f"{slug}.json"
            self.assertEqual(file.read_text(), tables.text(slug), "run python3 k8s/components/monitoring/dashboards.py")

    def test_panels_can_be_read(self):
        for slug, board in monitoring.dashboards().items():
            taken = set()
            for panel in board["panels"]:
                where = f"{slug}: {panel['title']}"
                self.assertTrue(panel["title"] and len(panel["description"]) > 20 and panel["fieldConfig"]["defaults"]["unit"], where)
                self.assertEqual(panel["datasource"]["uid"], "${datasource}", where)
                place = panel["gridPos"]
                cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
                self.assertFalse(cells & taken or place["x"] + place["w"] > 24, f"{where} overlaps")
                taken |= cells
                for target in panel["targets"]:
                    self.assertIn('namespace=~"$namespace"', target["expr"], where)
                    ranges = set(re.findall(r"\[(.*?)\]", re.sub(r'"[^"]*"', "", target["expr"])))
                    self.assertLessEqual(ranges, {"$__rate_interval"}, where)
                    self.assertTrue(target["legendFormat"], where)
            numbers = [panel["id"] for panel in board["panels"]]
            self.assertEqual(len(set(numbers)), len(numbers))
            self.assertEqual([variable["name"] for variable in board["templating"]["list"]], ["datasource", "namespace"])

    def test_buckets_are_selected_in_prometheus_2_and_3(self):
        # Prometheus 2 stores the bound 10 as le="10", Prometheus 3 as le="10.0".
        exact = re.compile(r'''\ble\s*!?=~?\s*(["'`])\d+\1''')
        for planted in ('x{le="10"}', "x{a='b', le = '5'}", 'x{le=~"10"}', 'x{le!="1"}'):
            self.assertRegex(planted, exact)
        asked = [*monitoring.panel_expressions(), *((rule.get("alert") or rule["record"], rule["expr"])
                                                   for rule in [*monitoring.rules(), *monitoring.recorded()])]
        for where, expression in asked:
            self.assertNotRegex(expression, exact, where)
        bounds = {number for _, expression in asked for number in re.findall(r'\ble=~"(.*?)"', expression)}
        self.assertTrue(bounds)
        for number in bounds:
            whole = number.removesuffix("([.]0)?")
            self.assertTrue(re.fullmatch(number, whole) and re.fullmatch(number, f"{whole}.0"), number)

    def test_uids_and_titles_are_different(self):
        boards = monitoring.dashboards().values()
        self.assertEqual(len({board["uid"] for board in boards} | {board["title"] for board in boards}), 2 * len(boards))


class Alerts(unittest.TestCase):
    def test_alerts_fire_when_they_should_and_are_silent_otherwise(self):
        ran = tested(monitoring.ALERTS["spec"], CASES)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)

    def test_the_cases_notice_an_alert_that_is_wrong(self):
        for name, old, new in (("FeedfleetNoPolls", "== 0", "< 0"), ("FeedfleetOurFault", "0.33", "0.01"),
                               ("FeedfleetNoPolls", " - feedfleet_parked_feeds", ""), ("FeedfleetOurFault", "> 100", "> 0"),
                               ("FeedfleetThrottled", "> 300", "> 0"), ("FeedfleetLeasesExpiring", "> 10", "> 0"),
                               ("FeedfleetLeasesExpiring", "increase(feedfleet_leases_expired_total[10m])", "increase(feedfleet_polls_total[10m])"),
                               ("FeedfleetLagOverPromise", "> 30", "> 3000"), ("FeedfleetDeadLetters", "queue_depth", "queue_dept"),
                               ("FeedfleetNotReady", "== 0", "== 2"), ("feedfleet:workers_backlog_seconds", "(1 - max by (cluster, namespace) (feedfleet_our_fault))", "1"),
                               ("feedfleet:workers_backlog_seconds", 'max by (cluster, namespace) (feedfleet_ready{role="scheduler"})', "1")):
            spec = yaml.safe_load(yaml.safe_dump(monitoring.ALERTS["spec"]))
            rule = next(rule for group in spec["groups"] for rule in group["rules"] if name in (rule.get("alert"), rule.get("record")))
            self.assertIn(old, rule["expr"])
            rule["expr"] = rule["expr"].replace(old, new)
            ran = tested(spec, CASES | {"tests": [group for group in CASES["tests"] if name in str(group)]})
            self.assertIn(name, ran.stdout + ran.stderr)
            self.assertNotEqual(ran.returncode, 0, name)

    def test_each_alert_is_seen_firing_and_has_a_way_out(self):
        firing = {case["alertname"] for group in CASES["tests"] for case in group.get("alert_rule_test", []) if case["exp_alerts"]}
        self.assertEqual(firing, {rule["alert"] for rule in monitoring.rules()})
        for rule in monitoring.rules():
            name = rule["alert"]
            self.assertIn(f"### {name}\n", OPERATIONS)
            self.assertEqual(rule["annotations"]["runbook_url"], f"https://feedfleet.example.com/docs/operations.md#{name.lower()}")
            self.assertTrue(rule["annotations"]["summary"] and rule["labels"]["severity"] in ("critical", "warning", "info"))
        described = set(re.findall(r"^### (Feedfleet\w+)$", OPERATIONS, re.MULTILINE))
        self.assertEqual(described, firing)


class Running(unittest.TestCase):
    """Tests with a polling fleet, and a Prometheus that scrapes it."""

    @classmethod
    def setUpClass(cls):
        fleet = live.demo()
        cls.fleet = fleet.__enter__()
        cls.addClassCleanup(fleet.__exit__, None, None, None)
        # What only schedulers know is 0 there.
        worker = live.worker()
        worker_address = worker.__enter__()
        cls.addClassCleanup(worker.__exit__, None, None, None)
        server = live.prometheus(cls.fleet, worker_address)
        cls.server = server.__enter__()
        cls.addClassCleanup(server.__exit__, None, None, None)
        cls.exposition = live.answer(f"{cls.fleet}/metrics")[1]
        cls.asked = {f"{where} ({number})": expression for number, (where, expression) in enumerate(monitoring.panel_expressions())}
        cls.asked |= {rule["alert"]: rule["expr"] for rule in monitoring.rules()}
        cls.asked |= {f"scaler: {rule['record']}": rule["expr"] for rule in monitoring.recorded()}
        cls.asked |= {f"scaler: {query}": query for query in monitoring.scaler_queries(kustomize(K8S / "overlays" / "prod"))}
        cls.shown = {where: expression for where, expression in cls.asked.items() if ":" in where and not where.startswith("scaler")}

    def test_metrics_are_as_prometheus_wants_them(self):
        ran = promtool("check", "metrics", text=self.exposition)
        self.assertEqual((ran.returncode, ran.stdout + ran.stderr), (0, ""))

    def test_every_expression_of_every_panel_has_a_series(self):
        for where, expression in monitoring.panel_expressions():
            with self.subTest(panel=where):
                live.until(expression, lambda: self.server.query(expression))

    def test_a_worker_hides_nothing_that_schedulers_know(self):
        panel = next(panel for _, panel in monitoring.panels() if panel["title"] == "Able to poll")
        gate = monitoring.filled(panel["targets"][0]["expr"])
        found = live.until(gate, lambda: self.server.query(gate))
        self.assertEqual([series["value"][1] for series in found], ["1"])

    def test_scalers_get_one_number(self):
        queries = monitoring.scaler_queries(kustomize(K8S / "overlays" / "prod"))
        self.assertEqual(len(queries), 2)
        for query in queries:
            self.assertEqual(len(live.until(query, lambda: self.server.query(query))), 1, query)

    def test_alerts_are_about_series_that_exist(self):
        for rule in [*monitoring.rules(), *monitoring.recorded()]:
            for selector in re.findall(r"(?:feedfleet|process)_[a-z_]+(?:\{[^}]*\})?|\bup\{[^}]*\}", rule["expr"]):
                with self.subTest(rule=rule.get("alert") or rule["record"]):
                    live.until(selector, lambda: self.server.query(selector))

    def test_every_metric_asked_for_is_exported_and_every_metric_is_on_a_panel(self):
        self.assertEqual(monitoring.problems(self.exposition, self.asked, self.shown), [])

    def test_a_renamed_metric_is_noticed(self):
        for old in ("feedfleet_polls_total", "feedfleet_oldest_due_seconds", "feedfleet_lag_seconds", "feedfleet_dead_letters_total"):
            renamed = self.exposition.replace(old, old.replace("feedfleet_", "feedfleet_new_"))
            found = monitoring.problems(renamed, self.asked, self.shown)
            self.assertTrue(any(f"asks for {old}" in problem and problem.endswith("which is not exported") for problem in found), found)
            self.assertIn(f"{old.replace('feedfleet_', 'feedfleet_new_')} is on no panel", found)
            self.assertTrue(any(problem.startswith("Feedfleet") or old not in str(monitoring.rules()) for problem in found))
