"""The Grafana dashboards, as tables; writes dashboards/*.json: python3 k8s/components/monitoring/dashboards.py

A test holds the files against this one, asks a real Prometheus for every expression, and wants every metric on a panel. A new
metric is a new line here. In an expression `@` stands for the fleet that was chosen above the panels. What describes the whole
fleet is exported by each scheduler (and as 0 by workers): its `max` is taken. What is counted is summed.
"""

import json
import pathlib

FOLDER = pathlib.Path(__file__).parent / "dashboards"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
RATE = "[$__rate_interval]"
GRID_COLUMNS = 24


def rate(metric, *labels, more=""):
    by = f" by ({', '.join(labels)})" if labels else ""
    return f"sum{by} (rate(feedfleet_{metric}{{@{more}}}{RATE}))"


def level(metric, *labels, more=""):
    by = f" by ({', '.join(labels)})" if labels else ""
    return f"max{by} (feedfleet_{metric}{{@{more}}})"


def quantile(share, metric, more="", by=""):
    return f"histogram_quantile({share}, sum by (le{by}) (rate(feedfleet_{metric}_bucket{{@{more}}}{RATE})))"


def share(part, whole):
    return f"{part} / {whole}"


# Title, description with the warning signs, unit, [(expression, legend)], width in columns of 24, and further options
# of the panel.
FLEET = [
    ("Polls a second", "Finished polls by outcome. All at zero while feeds are due: see the alert NoPolls.", "reqps",
     [(rate("polls_total", "outcome"), "{{outcome}}")], 12, {"stack": True}),
    ("Wanted and made", "What the feeds want at the present price, beside what is polled. Wanted stays above made: the fleet is too small, "
     "and the price of a poll rises until both meet.", "reqps",
     [(level("demand_per_second"), "wanted"), (rate("polls_total"), "made")], 12),
    ("Lag of category A", "From due time to claim. The promise allows 30 s of it: interval, salt and fetch have the rest.", "s",
     [(quantile(0.5, "lag_seconds", ',category="A"'), "half"), (quantile(0.99, "lag_seconds", ',category="A"'), "99 %")], 8),
    ("Lag by category", "The slowest of a hundred claims.", "s",
     [(quantile(0.99, "lag_seconds", by=", category"), "{{category}}")], 8),
    ("Age of the oldest due feed", "By band of the schedule. The workers' scaler looks at it; `patient` (category D) may wait.", "s",
     [(level("oldest_due_seconds", "band"), "{{band}}")], 8),
    ("Due now", "Feeds whose time has passed, and those of them that wait for a busy host: more workers help the difference only.", "short",
     [(level("due_feeds"), "due"), (level("parked_feeds"), "wait for a host")], 8),
    ("Feeds by status", "Feeds in the store: active, paused by a person, gone (410), blacklisted after months of failure, quarantined, removed, merged.", "short", [(f"sum by (status) ({level('feeds', 'category', 'status')})", "{{status}}")], 8,
     {"stack": True}),
    ("Feeds by category", "Active feeds only: A under an SLA, B many readers, C some, D one, F by a host rule.", "short", [(level("feeds", "category", more=',status="active"'), "{{category}}")], 8,
     {"stack": True}),
    ("New entries a second", "Entries stored that were not stored before.", "short", [(rate("entries_total"), "entries")], 8),
    ("Promises not kept", "Feeds under an SLA that cannot be kept: a publisher's floor, a hold or a failure wins over it.", "short",
     [(level("sla_unmet"), "feeds")], 4, {"type": "stat"}),
    ("Paused", "1 while all polling is paused by a person, or slowed to a probe because our own network fails.", "short",
     [(level("paused"), "paused"), (level("our_fault"), "our fault")], 4, {"type": "stat"}),
    ("Versions", "Processes by version. Two of them for longer than an upgrade takes is an upgrade that stopped.", "short",
     [("count by (version) (feedfleet_build_info{@})", "{{version}}")], 8, {"type": "stat"}),
    ("Processor", "Cores that each process uses.", "short", [(f"rate(process_cpu_seconds_total{{@}}{RATE})", "{{pod}}")], 8),
    ("Memory", "Resident memory of each process.", "bytes", [("process_resident_memory_bytes{@}", "{{pod}}")], 8),
    ("File descriptors", "Open ones as a share of what is allowed.", "percentunit",
     [("process_open_fds{@} / process_max_fds{@}", "{{pod}}")], 8),
    ("Able to poll", "Whether the host gate is open (1), and whether a scheduler's watchdog fails (1): feeds have been due for several leases and "
     "no poll has ended.", "short", [("min (feedfleet_gate_open{@})", "gate open"), ("max (feedfleet_watchdog{@})", "watchdog")], 8),
    ("Configurations", "Different configurations in force. More than one for longer than an upgrade takes: schedulers disagree about the policy.",
     "short", [("count (count by (hash) (feedfleet_config_hash{@}))", "configurations")], 8, {"type": "stat"}),
    ("Rejected tokens", "Requests to the API with a missing or wrong token.", "reqps", [(rate("rejected_tokens_total"), "rejected")], 8),
]

HOSTS = [
    ("Hosts that want to be left alone", "Hosts with a hold: they answered 429, or 503 with Retry-After.", "short",
     [(level("hosts_held"), "hosts")], 6),
    ("Waiting for a busy host", "Feeds that are due and wait for their host's gap or parallelism. Many, all the time: a host with more feeds than "
     "its gap allows; a host rule may share it out.", "short", [(level("parked_feeds"), "feeds")], 6),
    ("Sent to wait, and called", "Feeds that had to wait for a busy host, and those whose turn came. `again`: the turn came in vain; many of them cost "
     "the schedule work for nothing.", "reqps", [(rate("parks_total", "kind"), "{{kind}}"), (rate("unparks_total"), "called")], 6),
    ("Came back unasked", "Jobs whose host could not be asked when a worker got to it. A few are normal; a poll is neither counted nor lost.", "reqps",
     [(rate("deferred_total"), "deferred"), (rate("unreadable_credentials_total"), "no key for their credentials")], 6),
    ("Throttled", "Share of polls that a server refused as too many. It should stay below 1 %.", "percentunit",
     [(share(rate("polls_total", more=',outcome="throttled"'), rate("polls_total")), "throttled")], 8),
    ("Failures", "Failed polls by kind. Those of names, connections and time-outs rising together are most likely our own network.", "reqps",
     [(rate("failures_total", "kind"), "{{kind}}")], 16, {"stack": True}),
    ("In the penalty box", "Feeds that failed so often that they wait, by kind of their last failure.", "short",
     [(level("penalised_feeds", "kind"), "{{kind}}")], 12, {"stack": True}),
    ("Duration of a poll", "From a request's start to its last byte, or to its failure.", "s",
     [(quantile(0.5, "poll_duration_seconds"), "half"), (quantile(0.9, "poll_duration_seconds"), "90 %"),
      (quantile(0.99, "poll_duration_seconds"), "99 %")], 12),
    ("Slow polls", "Share of polls that took longer than ten seconds: they hold places that others could use.", "percentunit",
     [("1 - " + share(rate("poll_duration_seconds_bucket", more=',le="10"'), rate("poll_duration_seconds_count")), "slow")], 12),
    ("Bytes", "Body bytes as received and after decoding.", "Bps", [(rate("bytes_total", "kind"), "{{kind}}")], 12),
    ("Blocked", "Polls that a challenge or block page ended, by the service that sent it.", "reqps", [(rate("blocked_total", "by"), "{{by}}")], 12),
    ("Slow parses", "Documents that took longer than 2 s to parse. The log names their feeds.", "reqps", [(rate("slow_parses_total"), "slow")], 12),
]

QUEUE = [
    ("Queue depth", "Items that wait in a queue or are not acknowledged. Reports that pile up: PostgreSQL is slow or away. Jobs that pile up: too few workers.",
     "short", [(level("queue_depth", "queue"), "{{queue}}")], 12),
    ("In flight", "Requests under way, by process. A worker with as many as worker.concurrency is full.", "short",
     [("sum by (pod) (feedfleet_in_flight{@})", "{{pod}}")], 12, {"stack": True}),
    ("Leases that ended without a report", "Feeds claimed again because nothing came back: killed or stuck workers, or a queue that is too long.", "reqps",
     [(rate("leases_expired_total"), "expired")], 8),
    ("Stale reports", "Reports of an earlier version of their feed, which changed nothing. A few with each killed process.", "reqps",
     [(rate("stale_reports_total"), "stale")], 8),
    ("Dead letters", "Messages put aside for good. Each one is worth a look.", "short",
     [(f"sum by (queue) (increase(feedfleet_dead_letters_total{{@}}{RATE}))", "{{queue}}")], 8),
    ("Lag by category, half of the claims", "From due time to claim; the usual case beside the worst on the dashboard Fleet.", "s", [(quantile(0.5, "lag_seconds", by=", category"), "{{category}}")], 12),
    ("Claims a second", "Feeds claimed, by category; more than polls, where hosts could not be asked after all.", "reqps", [(f"sum by (category) (rate(feedfleet_lag_seconds_count{{@}}{RATE}))", "{{category}}")], 12,
     {"stack": True}),
    ("Events behind the exchange", "Seconds since the oldest event was stored that the exchange does not have. It grows while RabbitMQ is away or a bound "
     "queue refuses.", "s", [(level("relay_lag_seconds"), "behind")], 12),
    ("Kept for a newer program", "Messages of a newer version that were returned to the queue, and rows of feeds that could not be read.", "reqps",
     [(rate("too_new_messages_total"), "messages"), (rate("unreadable_feeds_total"), "feeds")], 12),
    ("Over quota", "Entries that were left out because their feed used up its quota, by quota.", "reqps", [(rate("over_quota_total", "kind"), "{{kind}}")], 12),
]

POLICY = [
    ("Price of a poll", "What a poll has to be worth, in subscriber-hours of expected waiting. Above its configured value the fleet is short of capacity.",
     "short", [(level("poll_price"), "price")], 8),
    ("Answered with 304", "Share of answered polls that found nothing new at no cost to anybody.", "percentunit",
     [(share(rate("polls_total", more=',outcome="not_modified"'), rate("polls_total", more=',outcome=~"modified|not_modified"')), "304")], 8),
    ("Unconditional", "Share of requests without validators: first polls, and servers that give none.", "percentunit",
     [(share(rate("unconditional_total"), rate("polls_total")), "unconditional")], 8),
    ("What moved due times", "Decisions by the rules that moved the due time. One counts under each of its rules.", "reqps",
     [(rate("decisions_total", "reason"), "{{reason}}")], 16, {"stack": True}),
    ("Polls for an entry", "Polls made for each new entry. It rises when feeds fall silent, or are asked too often.", "short",
     [(share(rate("polls_total"), rate("entries_total")), "polls")], 8),
    ("Pings", "Pings received, known feeds' and others', by the way they came.", "reqps", [(rate("pushes_total", "kind"), "{{kind}}")], 8),
    ("Mended feeds", "Feeds that were broken and read after a repair.", "reqps", [(rate("parse_repaired_total"), "mended")], 8),
    ("Gone", "Feeds that answered 410, and are not asked again.", "reqps", [(rate("polls_total", more=',outcome="gone"'), "gone")], 8),
    ("Compression", "Bytes after decoding for each byte received.", "short",
     [(share(rate("bytes_total", more=',kind="body"'), rate("bytes_total", more=',kind="wire"')), "ratio")], 8),
]

DASHBOARDS = {
    "fleet": ("Fleet", FLEET),
    "hosts": ("Hosts", HOSTS),
    "queue-and-leases": ("Queue and leases", QUEUE),
    "policy-and-politeness": ("Policy and politeness", POLICY),
}


def panel(number, at, title, description, unit, queries, width, options=None):
    """One panel; `at` is (column, row)."""
    options = options or {}
    made = {
        "id": number,
        "type": options.get("type", "timeseries"),
        "title": title,
        "description": description,
        "datasource": SOURCE,
        "gridPos": {"x": at[0], "y": at[1], "w": width, "h": 8},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": SOURCE, "legendFormat": legend,
             "expr": expression.replace("@", 'namespace=~"$namespace"')}
            for index, (expression, legend) in enumerate(queries)
        ],
    }
    if made["type"] == "timeseries":
        stacking = {"mode": "normal" if options.get("stack") else "none"}
        made["fieldConfig"]["defaults"]["custom"] = {"fillOpacity": 20 if options.get("stack") else 0, "stacking": stacking}
        made["options"] = {"tooltip": {"mode": "multi", "sort": "desc"}, "legend": {"displayMode": "list", "placement": "bottom"}}
    return made


def dashboard(slug):
    """A dashboard as Grafana reads it."""
    title, table = DASHBOARDS[slug]
    panels, column, row = [], 0, 0
    for number, (name, description, unit, queries, width, *options) in enumerate(table, 1):
        if column + width > GRID_COLUMNS:
            column, row = 0, row + 8
        panels.append(panel(number, (column, row), name, description, unit, queries, width, *options))
        column += width
    return {
        "uid": f"feedfleet-{slug}",
        "title": f"feedfleet: {title}",
        "tags": ["feedfleet"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "utc",
        "links": [{"type": "dashboards", "title": "feedfleet", "tags": ["feedfleet"], "asDropdown": False, "keepTime": True, "includeVars": True}],
        "templating": {"list": [
            {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
            {"name": "namespace", "label": "Fleet", "type": "query", "datasource": SOURCE, "refresh": 2, "includeAll": False, "multi": False,
             "definition": "label_values(feedfleet_build_info, namespace)",
             "query": {"query": "label_values(feedfleet_build_info, namespace)", "refId": "namespace"}},
        ]},
        "panels": panels,
    }


def text(slug):
    """The file's text."""
    return json.dumps(dashboard(slug), indent=1) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in DASHBOARDS:
        (FOLDER / f"{name}.json").write_text(text(name))
