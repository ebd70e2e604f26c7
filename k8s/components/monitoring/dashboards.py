"""The Grafana dashboards, as tables; writes dashboards/*.json, and the rules of alerts.yaml without Kubernetes' envelope to
compose/rules.yml: python3 k8s/components/monitoring/dashboards.py

A test compares the files with this one, evaluates every expression in a real Prometheus, and requires every metric on a panel. For a
new metric, add a line here. In expressions `@` stands for the fleet selected above the panels. Values that describe the whole fleet are
exported by every scheduler (and as 0 by workers), so panels show their `max`. Counters are summed.
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


def lowest(metric):
    """The smallest value among schedulers: a worker exports 0 for what only they know."""
    return f"min ({of_schedulers(metric)})"


def of_schedulers(metric):
    return f'feedfleet_{metric}{{@}} and on (instance) feedfleet_ready{{@,role!="worker"}}'


def bound(whole_number):
    """Selects a bucket of a histogram. Prometheus 2 stores the bound `10` as it is exported, Prometheus 3 as `10.0`."""
    return f'le=~"{whole_number}([.]0)?"'


def share(part, whole):
    return f"{part} / {whole}"


# Title, description with the warning signs, unit, [(expression, legend)], width in columns of 24, and further options
# of the panel.
FLEET = [
    ("Polls per second", "Finished polls by outcome. If all are zero while feeds are due that do not wait for a host, see the alert FeedfleetNoPolls.", "reqps",
     [(rate("polls_total", "outcome"), "{{outcome}}")], 12, {"stack": True}),
    ("Demand and polls", "The demand of all feeds at the current price, actual polls, and policy.polls_per_second (0: no limit). If demand stays "
     "above polls, the fleet is too small, and the price of a poll rises until both meet.", "reqps",
     [(level("demand_per_second"), "demand"), (rate("polls_total"), "polls"), (level("polls_limit_per_second"), "limit")], 12),
    ("Lag of category A", "Time from due to claimed. At most 30 s of the promised two minutes; interval, salt and fetch use the rest.", "s",
     [(quantile(0.5, "lag_seconds", ',category="A"'), "p50"), (quantile(0.99, "lag_seconds", ',category="A"'), "p99")], 8),
    ("Lag by category", "Time from due to claimed, p99.", "s",
     [(quantile(0.99, "lag_seconds", by=", category"), "{{category}}")], 8),
    ("Age of the oldest due feed", "By band of the schedule. The autoscaler of the workers uses it; feeds in `patient` (category D) are allowed to wait.", "s",
     [(level("oldest_due_seconds", "band"), "{{band}}")], 8),
    ("Due now", "Overdue feeds, and those of them that wait for a busy host. More workers only help with the difference.", "short",
     [(level("due_feeds"), "due"), (level("parked_feeds"), "waiting for a host")], 8),
    ("Feeds by status", "Feeds in the store: active, paused by an operator, gone (410), blacklisted after months of failures, quarantined, removed, merged.", "short", [(f"sum by (status) ({level('feeds', 'category', 'status')})", "{{status}}")], 8,
     {"stack": True}),
    ("Feeds by category", "Active feeds only: A with an SLA, B many subscribers, C some, D one, F with an interval from a host rule.", "short", [(level("feeds", "category", more=',status="active"'), "{{category}}")], 8,
     {"stack": True}),
    ("New entries per second", "Entries stored for the first time.", "short", [(rate("entries_total"), "entries")], 8),
    ("Webhooks", "Requests to subscribers by outcome. Failed ones are retried.", "reqps", [(rate("deliveries_total", "outcome"), "{{outcome}}")], 8, {"stack": True}),
    ("Webhook lag", "From the commit of an event to the response that accepted it. Retries, replays and a delay that a subscription wants count.", "s",
     [(quantile(0.5, "delivery_lag_seconds"), "p50"), (quantile(0.99, "delivery_lag_seconds"), "p99")], 8),
    ("Subscriptions", "Subscriptions by state. `failing`: the last request was not accepted; `disabled`: its target failed for days or answered 410.", "short",
     [(level("subscriptions", "kind", "state"), "{{kind}} {{state}}")], 8, {"stack": True}),
    ("Push subscriptions", "Subscriptions with hubs and clouds that announce new entries; while one is verified its feed may be polled less often.",
     "short", [(level("push_subscriptions", "kind", "state"), "{{kind}} {{state}}")], 8, {"stack": True}),
    ("SLA unmet", "Feeds whose SLA cannot be met because a publisher's limit, a hold or a failure takes precedence.", "short",
     [(level("sla_unmet"), "feeds")], 4, {"type": "stat"}),
    ("Complete feeds", "Share of the polled feeds that were read and of which no entry can have been missed.", "percentunit",
     [(lowest("complete_ratio"), "complete")], 8),
    ("Overflowed", "Documents without any known entry: the feed may have posted more between two polls than a document holds.", "reqps",
     [(rate("overflowed_total"), "overflowed")], 8),
    ("Pages of archives", "Pages of older entries that were requested after an overflow or for a backfill.", "reqps",
     [(rate("archive_pages_total", "outcome"), "{{outcome}}")], 8),
    ("Silent feeds", "Feeds that have not posted for far longer than they usually pause.", "short", [(level("silent_feeds"), "silent")], 8),
    ("Paused", "1 while an operator has paused all polling, or while only probes are sent because the fleet's own network fails.", "short",
     [(level("paused"), "paused"), (level("our_fault"), "our fault")], 4, {"type": "stat"}),
    ("Versions", "Processes by version. Two versions for longer than an upgrade takes: the upgrade is stuck.", "short",
     [("count by (version) (feedfleet_build_info{@})", "{{version}}")], 8, {"type": "stat"}),
    ("CPU", "Cores used by each process.", "short", [(f"rate(process_cpu_seconds_total{{@}}{RATE})", "{{pod}}")], 8),
    ("Memory", "Resident memory of each process.", "bytes", [("process_resident_memory_bytes{@}", "{{pod}}")], 8),
    ("File descriptors", "Open file descriptors as a share of the limit.", "percentunit",
     [("process_open_fds{@} / process_max_fds{@}", "{{pod}}")], 8),
    ("Able to poll", "Whether the host gate is open (1), and whether a scheduler's watchdog fails (1): feeds have been due for several leases but "
     "no poll has finished.", "short", [(lowest("gate_open"), "gate open"), ("max (feedfleet_watchdog{@})", "watchdog")], 8),
    ("Configurations", "Number of different configurations in use. More than one for longer than an upgrade takes: schedulers use different policies.",
     "short", [("count (count by (hash) (feedfleet_config_hash{@}))", "configurations")], 8, {"type": "stat"}),
    ("Version of the policy", "Rises with each accepted change of [policy], [host] and host rules. Two versions for longer than a few seconds: a "
     "scheduler cannot use the newest.", "short", [(f"max by (pod) ({of_schedulers('policy_version')})", "{{pod}}")], 8),
    ("Reloads", "1 if the last attempt to read the configuration again succeeded, and the time since the last success, or since the last start.", "short",
     [(lowest("config_last_reload_successful"), "succeeded"),
      ('time() - max ({__name__=~"feedfleet_config_last_reload_success_timestamp_seconds|process_start_time_seconds",@} '
       'and on (instance) feedfleet_ready{@,role!="worker"})', "seconds since")], 8),
    ("Ready", "Processes that can do their work, by role, and those that cannot, because a server does not answer or their clock is off.", "short",
     [("sum by (role) (feedfleet_ready{@})", "{{role}}"), ("sum by (role) (1 - feedfleet_ready{@})", "{{role}} not ready")], 8),
    ("Last pruning", "Time since rows older than their retention were last deleted, by any scheduler: at least every ten minutes.", "s",
     [("time() - max (feedfleet_last_prune_timestamp_seconds{@})", "ago")], 8),
    ("Timeline of PostgreSQL", "1 while a scheduler may not read PostgreSQL's timeline: a promotion of a standby would not be noticed.", "short",
     [(level("timeline_unreadable"), "unreadable")], 8, {"type": "stat"}),
    ("Rejected tokens", "Requests to the API with a missing or wrong token.", "reqps", [(rate("rejected_tokens_total"), "rejected")], 8),
]

HOSTS = [
    ("Hosts on hold", "Hosts that responded with 429, or with 503 and Retry-After, and hosts that refuse most of our requests.", "short",
     [(level("hosts_held"), "hosts"), (level("hosts_refusing"), "refusing")], 6),
    ("Waiting for a busy host", "Due feeds that wait for their host's gap or parallelism. If there are always many, a host has more feeds than "
     "its gap allows; consider a host rule.", "short", [(level("parked_feeds"), "feeds")], 6),
    ("Parked and unparked", "Feeds parked because their host was busy, and feeds whose turn came. `again`: the host was still busy; many of these are "
     "unnecessary work for the schedule.", "reqps", [(rate("parks_total", "kind"), "{{kind}}"), (rate("unparks_total"), "unparked")], 6),
    ("Deferred", "Jobs whose host could not be polled when a worker received them. A few are normal; no poll is counted or lost.", "reqps",
     [(rate("deferred_total"), "deferred"), (rate("unreadable_credentials_total"), "no key for the credentials")], 6),
    ("Throttled", "Share of polls that a server rejected as too many. It should stay below 1 %.", "percentunit",
     [(share(rate("polls_total", more=',outcome="throttled"'), rate("polls_total")), "throttled")], 8),
    ("Failures", "Failed polls by kind. If DNS, connection and timeout failures rise together, the cause is probably the fleet's own network.", "reqps",
     [(rate("failures_total", "kind"), "{{kind}}")], 16, {"stack": True}),
    ("In the penalty box", "Feeds that wait after repeated failures, by the kind of the last one.", "short",
     [(level("penalised_feeds", "kind"), "{{kind}}")], 12, {"stack": True}),
    ("Poll duration", "From the start of the request to the last byte of the response, or to the failure.", "s",
     [(quantile(0.5, "poll_duration_seconds"), "p50"), (quantile(0.9, "poll_duration_seconds"), "p90"),
      (quantile(0.99, "poll_duration_seconds"), "p99")], 12),
    ("Slow polls", "Share of polls that took longer than 10 s. They occupy slots that other polls could use.", "percentunit",
     [("1 - " + share(rate("poll_duration_seconds_bucket", more=f",{bound(10)}"), rate("poll_duration_seconds_count")), "slow")], 12),
    ("Bytes", "Bytes of response bodies, as received and after decoding.", "Bps", [(rate("bytes_total", "kind"), "{{kind}}")], 12),
    ("Blocked", "Polls answered with a challenge or block page, by the service that sent it.", "reqps", [(rate("blocked_total", "by"), "{{by}}")], 12),
    ("Slow parses", "Documents that took longer than 2 s to parse. The log names their feeds.", "reqps", [(rate("slow_parses_total"), "slow")], 12),
]

QUEUE = [
    ("Queue depth", "Messages that wait in a queue or are not acknowledged. Reports pile up if PostgreSQL is slow or unavailable, jobs if there are too few workers.",
     "short", [(level("queue_depth", "queue"), "{{queue}}")], 12),
    ("In flight", "Requests in progress, by process. A worker with worker.concurrency requests is at its limit.", "short",
     [("sum by (pod) (feedfleet_in_flight{@})", "{{pod}}")], 12, {"stack": True}),
    ("Leases expired without a report", "Feeds claimed again because no report arrived: workers were killed or are stuck, or the queue is too long.", "reqps",
     [(rate("leases_expired_total"), "expired")], 8),
    ("Stale reports", "Reports for an earlier version of their feed, which changed nothing. A few after each killed process are normal.", "reqps",
     [(rate("stale_reports_total"), "stale")], 8),
    ("Dead letters", "Messages that were dead-lettered. Investigate each one.", "short",
     [(f"sum by (queue) (increase(feedfleet_dead_letters_total{{@}}{RATE}))", "{{queue}}")], 8),
    ("Median lag by category", "Time from due to claimed, p50; the dashboard Fleet shows p99.", "s", [(quantile(0.5, "lag_seconds", by=", category"), "{{category}}")], 12),
    ("Claims per second", "Claimed feeds by category. Higher than polls if hosts could not be polled after all.", "reqps", [(f"sum by (category) (rate(feedfleet_lag_seconds_count{{@}}{RATE}))", "{{category}}")], 12,
     {"stack": True}),
    ("Event relay lag", "Age of the oldest stored event that is not published to the exchange. It grows while RabbitMQ is unavailable or a bound "
     "queue rejects messages. One scheduler publishes them at a time.", "s",
     [(level("relay_lag_seconds"), "behind"), ("sum (feedfleet_relay_turn{@})", "publishing schedulers")], 12),
    ("Newer or unreadable data", "Messages of a newer version that were returned to the queue, and feed rows that could not be read.", "reqps",
     [(rate("too_new_messages_total"), "messages"), (rate("unreadable_feeds_total"), "feeds")], 12),
    ("Over quota", "Entries that were skipped because their feed exceeded a quota, by quota.", "reqps", [(rate("over_quota_total", "kind"), "{{kind}}")], 12),
    ("Blocked connections to RabbitMQ", "Connections on which RabbitMQ accepts no messages: a memory or disk alarm of any of its nodes.", "short",
     [(level("queue_blocked"), "connections")], 12),
    ("Refused reports", "Reports that answer no job of this fleet, by reason: forged, or of a worker of an earlier version. Unsigned ones are accepted "
     "for a while after an upgrade. `redirected`: holds of hosts that only a redirect names.", "reqps",
     [(rate("refused_reports_total", "reason"), "{{reason}}"), (rate("unsigned_reports_total"), "unsigned, accepted"),
      (rate("redirected_holds_total"), "redirected")], 12),
]

POLICY = [
    ("Price of a poll", "The expected waiting time, in subscriber-hours, that justifies a poll. Above the configured value, the fleet lacks capacity.",
     "short", [(level("poll_price"), "price")], 8),
    ("304 rate", "Share of successful polls with the status 304 Not Modified.", "percentunit",
     [(share(rate("polls_total", more=',outcome="not_modified"'), rate("polls_total", more=',outcome=~"modified|not_modified"')), "304")], 8),
    ("Unconditional", "Share of requests without validators: first polls, and servers that send none.", "percentunit",
     [(share(rate("unconditional_total"), rate("polls_total")), "unconditional")], 8),
    ("Decisions by rule", "Decisions by the rules that moved the due time. A decision counts under each of its rules.", "reqps",
     [(rate("decisions_total", "reason"), "{{reason}}")], 16, {"stack": True}),
    ("Polls per entry", "Polls per new entry. It rises when feeds stop posting, or are polled too often.", "short",
     [(share(rate("polls_total"), rate("entries_total")), "polls")], 8),
    ("Pings", "Received pings by endpoint, for known and unknown feeds.", "reqps", [(rate("pushes_total", "kind"), "{{kind}}")], 8),
    ("Repaired feeds", "Malformed feeds that could be parsed after a repair.", "reqps", [(rate("parse_repaired_total"), "repaired")], 8),
    ("Gone", "Feeds that responded with 410 and are not polled again.", "reqps", [(rate("polls_total", more=',outcome="gone"'), "gone")], 8),
    ("Compression", "Decoded bytes per received byte.", "short",
     [(share(rate("bytes_total", more=',kind="body"'), rate("bytes_total", more=',kind="wire"')), "ratio")], 8),
]

DASHBOARDS = {
    "fleet": ("Fleet", FLEET),
    "hosts": ("Hosts", HOSTS),
    "queue-and-leases": ("Queue and leases", QUEUE),
    "policy-and-politeness": ("Policy and politeness", POLICY),
}


def panel(number, at, title, description, unit, queries, width, options=None):
    """Returns one panel; `at` is (column, row)."""
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
    """Returns a dashboard in Grafana's format."""
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
    """Returns the text of the file."""
    return json.dumps(dashboard(slug), indent=1) + "\n"


def rules():
    """Returns the alerts and rules as a file of Prometheus itself: the part of alerts.yaml below `spec`."""
    below = (pathlib.Path(__file__).parent / "alerts.yaml").read_text().partition("\nspec:\n")[2]
    lines = "".join(line[2:] if line.startswith("  ") else line for line in below.splitlines(keepends=True))
    return "# Made of k8s/components/monitoring/alerts.yaml by dashboards.py beside it. Do not edit.\n" + lines


if __name__ == "__main__":
    (pathlib.Path(__file__).parents[3] / "compose" / "rules.yml").write_text(rules())
    FOLDER.mkdir(exist_ok=True)
    for name in DASHBOARDS:
        (FOLDER / f"{name}.json").write_text(text(name))
