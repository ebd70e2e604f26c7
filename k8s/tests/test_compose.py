"""compose.yaml: valid, closed to the outside, consistent with the program, the manifests and the monitoring; what is planted is found."""

import copy
import json
import re
import unittest

import compose_spec
import yaml

from . import manifests, monitoring, program
from .test_monitoring import promtool

TEXT = (program.ROOT / "compose.yaml").read_text()
COMPOSE = yaml.safe_load(TEXT)
ROLES = {"feedfleet": "run", "scheduler": "scheduler", "scheduler2": "scheduler", "worker": "worker"}
ACL = (manifests.K8S / "overlays" / "dev" / "users.acl").read_text()


def filled(text):
    """Returns a text with Compose's variables at their defaults."""
    return re.sub(r"\$\{\w+(?::-([^}]*))?\}", lambda found: found.group(1) or "", text).replace("$$", "$")


def problems(compose):
    """Returns a sentence per fault."""
    found = []
    try:
        # PyYAML has merged the parts that services share.
        compose_spec.PyCompose.from_json(json.dumps(compose)).validate()
    except ValueError as error:
        found.append(f"not valid: {error}")
    for name, service in compose["services"].items():
        found += [f"{name} publishes {port} beyond loopback" for port in service.get("ports", []) if not port.startswith("127.0.0.1:")]
        if "test" not in service.get("healthcheck", {}):
            found.append(f"{name} has no health check")
        if not {"max-size", "max-file"} <= set(service.get("logging", {}).get("options", {})):
            found.append(f"{name} has a log without a limit")
        found += [f"{name}: there is no network {network}" for network in service.get("networks", []) if network not in compose["networks"]]
        for volume in service.get("volumes", []):
            source, _, rest = volume.partition(":")
            if source.startswith("./"):
                found += [] if (program.ROOT / source).exists() and rest.endswith(":ro") else [f"{name}: {source} is missing or may be written to"]
            elif source not in compose["volumes"]:
                found.append(f"{name}: there is no volume {source}")
        found += [f"{name}: there is no config {config['source']}" for config in service.get("configs", [])
                  if config["source"] not in compose["configs"]]
        image = service["image"]
        if image != "feedfleet" and (":" not in image or image.endswith(":latest")):
            found.append(f"{name}: the image {image} has no version")
    for name, role in ROLES.items():
        found += role_problems(compose, name, role)
    if "store" in compose["services"]["worker"].get("networks", []):
        found.append("a worker reaches PostgreSQL")
    worker = json.dumps(compose["services"]["worker"])
    found += [f"a worker is given {secret}" for secret in ("POSTGRES_PASSWORD", "SCHEDULER_PASSWORD", "FEEDFLEET_TOKEN") if secret in worker]
    return found


def role_problems(compose, name, role):
    service, found = compose["services"][name], []
    if service["command"][0] != role:
        found.append(f"{name} runs {service['command'][0]}")
    flags = {argument for argument in service["command"] if argument.startswith("--")}
    found += [f"{name}: `feedfleet {role}` has no flag {flag}" for flag in flags - program.flags(role)]
    known = program.configuration_of("")
    found += [f"{name}: {variable} is not a key of the configuration" for variable in service["environment"]
              if program.key_of(variable) not in known]
    if not (service.get("read_only") and service.get("cap_drop") == ["ALL"] and service.get("security_opt")):
        found.append(f"{name} is not confined")
    return found


def of(compose, name):
    return compose["services"][name]


FAULTS = {
    "a published port": (lambda c: of(c, "redis").update(ports=["6379:6379"]), "redis publishes 6379:6379 beyond loopback"),
    "no health check": (lambda c: of(c, "prometheus").pop("healthcheck"), "prometheus has no health check"),
    "an endless log": (lambda c: of(c, "redis").pop("logging"), "redis has a log without a limit"),
    "an unknown field": (lambda c: of(c, "redis").update(imagee="x"), "not valid"),
    "a missing file": (lambda c: of(c, "grafana")["volumes"].append("./compose/none.yml:/x:ro"), "./compose/none.yml is missing"),
    "an unknown key": (lambda c: of(c, "worker")["environment"].update(FEEDFLEET_GATE__URI="x"), "FEEDFLEET_GATE__URI is not a key"),
    "an unknown flag": (lambda c: of(c, "worker").update(command=["worker", "--threads"]), "no flag --threads"),
    "a worker with the scheduler's password": (lambda c: of(c, "worker")["environment"].update(
        FEEDFLEET_GATE__URL="redis://scheduler:${SCHEDULER_PASSWORD}@redis/0"), "a worker is given SCHEDULER_PASSWORD"),
    "a worker beside the database": (lambda c: of(c, "worker").update(networks=["fleet", "store"]), "a worker reaches PostgreSQL"),
    "the latest image": (lambda c: of(c, "redis").update(image="redis:latest"), "redis:latest has no version"),
    "a role that may write": (lambda c: of(c, "worker").pop("read_only"), "worker is not confined"),
}


class Compose(unittest.TestCase):
    maxDiff = None

    def test_it_fits_itself_and_the_program(self):
        self.assertEqual(problems(COMPOSE), [])

    def test_what_is_planted_is_found(self):
        for fault, (plant, words) in FAULTS.items():
            with self.subTest(fault=fault):
                planted = copy.deepcopy(COMPOSE)
                plant(planted)
                self.assertTrue(any(words in problem for problem in problems(planted)), problems(planted))

    def test_there_are_two_schedulers_and_three_workers(self):
        self.assertEqual(of(COMPOSE, "worker")["deploy"]["replicas"], 3)
        first, second = (of(COMPOSE, name) for name in ("scheduler", "scheduler2"))
        self.assertEqual({key for key in first if first[key] != second[key]}, {"ports"})

    def test_users_have_the_rights_of_the_trial_cluster(self):
        ours = filled(COMPOSE["configs"]["redis-users"]["content"]).splitlines()
        wanted = re.sub(r">\S+", ">feedfleet", ACL).splitlines()
        self.assertEqual(ours, wanted)
        definitions = json.loads(filled(COMPOSE["configs"]["rabbitmq-users"]["content"]))
        trial = json.loads((manifests.K8S / "overlays" / "dev" / "definitions.json").read_text())
        self.assertEqual(definitions["permissions"], trial["permissions"])
        operators = {doc["metadata"]["name"].removeprefix("feedfleet-"): doc["spec"]["permissions"]
                     for doc in manifests.of_kind(manifests.kustomize(manifests.K8S / "overlays" / "prod"), "Permission")}
        rights = ("configure", "write", "read")
        self.assertEqual({user["user"]: {right: user[right] for right in rights} for user in trial["permissions"]}, operators)

    def test_prometheus_takes_its_configuration_and_the_alerts_of_kubernetes(self):
        rules = program.ROOT / "compose" / "rules.yml"
        self.assertEqual(rules.read_text(), monitoring.generator().rules(), "run python3 k8s/components/monitoring/dashboards.py")
        self.assertEqual(yaml.safe_load(rules.read_text()), monitoring.ALERTS["spec"])
        text = (program.ROOT / "compose" / "prometheus.yml").read_text()
        checked = promtool("check", "config", "--syntax-only", "/dev/stdin", text=text)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        found = yaml.safe_load(text)["scrape_configs"][0]["dns_sd_configs"][0]
        self.assertEqual((set(found["names"]), found["port"]), (set(ROLES) - {"feedfleet"}, 7878))
        labels = {rule["target_label"] for rule in yaml.safe_load(text)["scrape_configs"][0]["relabel_configs"]}
        self.assertLessEqual({"namespace", "pod"}, labels)
