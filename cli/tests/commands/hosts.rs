//! `feedfleet host`: rules and blocks that take effect in a running fleet, as the polled server sees it.

use std::time::{Duration, Instant};

use load_tests::{Feed, Origin, Record, Script, StallWatch, loopback};
use serde_json::Value;

use crate::fleet::{Fleet, PATIENCE};
use crate::program::run;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Returns the times between consecutive starts.
fn gaps(records: &[Record]) -> Vec<Duration> {
    let mut starts: Vec<Duration> = records.iter().map(|record| record.start).collect();
    starts.sort();
    starts.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// Refreshes feeds of this server, and returns the requests.
async fn refreshed(fleet: &Fleet, origin: &Origin, ids: &[&str]) -> Vec<Record> {
    let before = origin.request_count();
    for id in ids {
        fleet.refresh(id).await;
    }
    assert!(origin.wait_for_total(before + ids.len(), PATIENCE).await, "{ids:?} were not polled");
    origin.log_from(before)
}

fn with_feeds(fleet: &Fleet, paths: &[&str]) {
    for path in paths {
        fleet.origin.set(path, Script::feed(Feed::rss().initial(1)));
        fleet.done(&["feed", "add", &fleet.origin.url(path)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_takes_effect_in_a_running_fleet_and_is_taken_back() {
    let fleet = Fleet::start(&[]).await;
    let stalls = StallWatch::since(Instant::now() - fleet.origin.elapsed());
    tokio::spawn(stalls.clone().watch_runtime());
    tokio::spawn(stalls.clone().watch_process(reqwest::Client::new(), fleet.server.clone()));
    with_feeds(&fleet, &["/a", "/b", "/c"]);
    let shown = fleet.done(&["host", "show", "127.0.0.1", "--json"]);
    assert_eq!((&json(&shown)["gap"], &json(&shown)["rule"]), (&Value::from(0.0), &Value::Null));

    let printed =
        fleet.done(&["host", "set", "127.0.0.1", "gap=1500ms", "user_agent=slow reader", "reason=asked by mail"]);
    assert_eq!(printed, "set the rule of 127.0.0.1: every 1.5 s\n");
    let host = fleet.origin.address(0).to_string();
    let list = fleet.done(&["host", "list"]);
    let row: Vec<&str> = list.lines().find(|line| line.starts_with(&host)).unwrap().split_whitespace().collect();
    assert_eq!(row[1..], ["3", "-", "-", "every", "1.5", "s", "127.0.0.1:", "asked", "by", "mail"], "{list}");
    let mut polled = Vec::new();
    // The worker, which has no database access, learns the name within about a second.
    while polled.first().and_then(|record: &Record| record.header("user-agent")).as_deref() != Some("slow reader") {
        polled = refreshed(&fleet, &fleet.origin, &["1", "2", "3"]).await;
    }
    // Requests are spaced when they start; arrivals on a busy machine may be a little closer, and after a stall by more.
    let least = Duration::from_millis(750).saturating_sub(stalls.seen().longest());
    assert!(gaps(&polled).iter().all(|gap| *gap >= least), "{:?}, not {least:?}", gaps(&polled));

    // Keys that are not named stay, and one is removed.
    fleet.done(&["host", "set", "127.0.0.1", "gap=none", "soft_statuses=404,410"]);
    let rule = &json(&fleet.done(&["host", "show", "127.0.0.1", "--json"]))["rule"];
    assert_eq!(
        (&rule["gap"], &rule["user_agent"], &rule["source"]),
        (&Value::Null, &"slow reader".into(), &"operator".into())
    );
    assert_eq!(rule["soft_statuses"].to_string(), "[404,410]");
    let printed = fleet.done(&["host", "unset", "127.0.0.1"]);
    assert_eq!(printed, "removed the rule of 127.0.0.1: every 0 s\n");
    assert_eq!(fleet.run(&["host", "unset", "127.0.0.1"]).code, Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_rules_are_refused_in_words() {
    let fleet = Fleet::start(&[]).await;
    let refused = [
        (&["host", "set", "a.org", "gap=1s"][..], "reason is missing"),
        (&["host", "set", "a.org", "gap=soon", "reason=x"], "gap: it must be a duration"),
        (&["host", "set", "a.org", "gap"], "'gap' sets nothing; write KEY=VALUE"),
        (&["host", "set", "a.org", "burst=many", "reason=x"], "burst must be a whole number"),
        (&["host", "set", "a.org", "soft_statuses=4o4", "reason=x"], "soft_statuses: it must be statuses"),
        (&["host", "set", "a.org", "brust=2", "reason=x"], "unknown field brust; did you mean burst?"),
        (&["host", "set", "a.org/feed", "burst=2", "reason=x"], "host must be a name"),
        (&["host", "block", "a.org", "--for", "0s"], "for must be longer than 0 s and at most ten years"),
    ];
    for (arguments, expected) in refused {
        let ran = fleet.run(arguments);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{arguments:?}: {}", ran.err);
        assert!(ran.err.starts_with(&format!("error: {expected}")), "{arguments:?}: {}", ran.err);
    }
    assert_eq!(fleet.done(&["host", "list"]), "no hosts\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_holds_a_host_over_a_restart_until_it_is_lifted() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path().to_str().unwrap();
    let fleet = Fleet::start_at(data, "127.0.0.1:0", &[]).await;
    with_feeds(&fleet, &["/blocked"]);
    let other = Origin::listen(&loopback(2, 0)).await.unwrap();
    other.set("/free", Script::feed(Feed::rss().initial(1)));
    fleet.done(&["feed", "add", &other.url_on(1, "/free")]);
    let printed = fleet.done(&["host", "block", "127.0.0.1", "--for", "1h"]);
    assert!(printed.starts_with("blocked 127.0.0.1 until 20") && !printed.contains("no feed"), "{printed}");
    let blocked = |fleet: &Fleet| fleet.origin.requests("/blocked").len();
    assert_eq!(blocked(&fleet), 1);
    fleet.refresh("1").await;
    refreshed(&fleet, &other, &["2"]).await;
    refreshed(&fleet, &other, &["2"]).await;
    assert_eq!(blocked(&fleet), 1, "the other host's feed was polled twice meanwhile");

    let fleet = fleet.restarted(data).await;
    assert!(json(&fleet.done(&["host", "show", "127.0.0.1", "--json"]))["blocked_until"].is_string());
    refreshed(&fleet, &other, &["2"]).await;
    refreshed(&fleet, &other, &["2"]).await;
    assert_eq!(blocked(&fleet), 1, "the block is still there");
    assert_eq!(fleet.done(&["host", "unblock", "127.0.0.1"]), "unblocked 127.0.0.1\n");
    assert_eq!(fleet.origin.wait_for("/blocked", 2, PATIENCE).await.len(), 2, "the wish of before is heard");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_without_feeds_and_an_unblock_without_a_block_say_so() {
    let fleet = Fleet::start(&[]).await;
    let unblocked = || fleet.done(&["host", "unblock", "exmaple.com:443"]);
    assert_eq!(unblocked(), "exmaple.com:443 was not blocked\n");
    let printed = fleet.done(&["host", "block", "exmaple.com:443", "--for", "12h"]);
    assert!(printed.starts_with("blocked exmaple.com:443 until 20"), "{printed}");
    assert!(printed.ends_with(" (no feed of this fleet is on it)\n"), "{printed}");
    assert_eq!(unblocked(), "unblocked exmaple.com:443\n");
    assert_eq!(unblocked(), "exmaple.com:443 was not blocked\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_refuses_us_is_shown_once_with_advice_until_it_answers() {
    let fleet = Fleet::start(&["--set", "policy.penalty.host_refuses=1s"]).await;
    let paths = ["/1", "/2", "/3", "/4"];
    for path in paths {
        fleet.origin.set(path, Script::status(403));
        fleet.run(&["feed", "add", &fleet.origin.url(path)]);
    }
    let host = fleet.origin.address(0).to_string();
    let shown = fleet.until(&["host", "show", &host], |out| out.contains("refuses us"));
    assert!(shown.contains("HTTP 403, since") && shown.contains("what helps"), "{shown}");
    let refusing = json(&fleet.done(&["host", "show", &host, "--json"]))["refusing"].clone();
    assert_eq!(refusing["status"], 403);
    assert_eq!(refusing["failure"], "status");
    assert!(fleet.done(&["feed", "explain", "4"]).contains("has refused most requests since"));
    for path in paths {
        fleet.origin.set(path, Script::feed(Feed::rss().initial(1)));
    }
    fleet.done(&["requeue", "--all"]);
    fleet.until(&["host", "show", &host], |out| !out.contains("refuses us"));
    fleet.until(&["stats"], |out| !out.contains("penalty box"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_hosts_names_the_command_that_continues_it() {
    let fleet = Fleet::start(&[]).await;
    for host in ["a.example:443", "b.example:443"] {
        fleet.done(&["host", "block", host, "--for", "2h"]);
    }
    let first = run(&["host", "list", "--limit", "1", "--server", &fleet.server]);
    let next = first.err.trim().strip_prefix("there are more: feedfleet ").unwrap().to_owned();
    assert!(next.starts_with(&format!("host list --limit 1 --server {} --after ", fleet.server)), "{next}");
    let second = run(&next.split(' ').collect::<Vec<_>>());
    let is_a = [&first, &second].map(|page| page.out.contains("a.example"));
    assert!(second.code == Some(0) && is_a[0] != is_a[1], "{}{}", first.out, second.out);
}
