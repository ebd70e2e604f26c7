//! `feedfleet requeue` against a running fleet.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use load_tests::{Feed, Script};
use serde_json::Value;

use crate::fleet::{Fleet, PATIENCE};
use crate::program::{Ran, command};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

async fn with_feeds(paths: &[&str]) -> Fleet {
    let fleet = Fleet::start(&[]).await;
    for path in paths {
        fleet.origin.set(path, Script::feed(Feed::rss().initial(1)));
        fleet.done(&["feed", "add", &fleet.origin.url(path)]);
    }
    fleet
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_says_what_would_be_polled_by_host_and_category() {
    let fleet = with_feeds(&["/a", "/b", "/c"]).await;
    fleet.done(&["feed", "pause", "3"]);
    let printed = fleet.done(&["requeue", "--all", "--rate", "120/m", "--dry-run"]);
    let host = fleet.origin.address(0).to_string();
    let lines: Vec<&str> = printed.lines().map(str::trim_end).collect();
    assert_eq!(
        lines[..2],
        ["would poll 2 feeds of 1 host, 2 a second, in 1 s at least", "left out: 1 paused"],
        "{printed}"
    );
    assert!(lines.contains(&"D         2") && lines.contains(&format!("2      {host}").as_str()), "{printed}");
    let printed = json(&fleet.done(&["requeue", "--host", "127.0.0.1", "--category", "d", "--dry-run", "--json"]));
    assert_eq!((&printed["matched"], &printed["queued"], &printed["dry_run"]), (&3.into(), &0.into(), &true.into()));
    fleet.done(&["host", "block", &host, "--for", "2h"]);
    let printed = fleet.done(&["requeue", "--all", "--dry-run"]);
    let row = printed.lines().find(|line| line.contains(&host)).unwrap();
    assert!(printed.contains("ASKED AGAIN") && row.contains("in 1 h 59 min"), "{printed}");
    assert_eq!(fleet.done(&["requeue", "--failure", "dns", "--dry-run"]), "no feed would be polled\n");
    assert_eq!(fleet.done(&["requeue", "list"]), "no requeues\n");
    assert_eq!(fleet.origin.requests("/a").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requeue_polls_what_it_names_and_is_shown_and_waited_for() {
    let fleet = with_feeds(&["/a", "/b", "/c"]).await;
    let url = fleet.origin.url("/b");
    let begun = fleet.done(&["requeue", "--feed", &url, "--rate", "50/s"]);
    assert!(begun.starts_with("requeue 1: 1 feed of 1 host, 50 a second"), "{begun}");
    let polled = fleet.origin.wait_for("/b", 2, PATIENCE).await;
    assert!(polled[1].is_conditional(), "as every poll");
    let shown = fleet.done(&["requeue", "show", "1", "--wait"]);
    let field = |name: &str| shown.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    assert_eq!(
        (field("state"), field("feeds"), field("woken")),
        (Some("done"), Some("feed 2"), Some("1 of 1")),
        "{shown}"
    );
    assert_eq!(field("by "), Some("loopback"));

    let done = json(&fleet.done(&["requeue", "--all", "--rate", "100/s", "--wait", "--json"]));
    assert_eq!((&done["state"], &done["woken"]), (&"done".into(), &3.into()));
    assert!(fleet.origin.wait_for_total(7, PATIENCE).await, "each feed once more");
    let list = fleet.done(&["requeue", "list"]);
    let row: Vec<&str> = list.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        (row[0], row[1], row[2..5].join(" ").as_str(), *row.last().unwrap()),
        ("2", "done", "3 of 3", "all"),
        "{list}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_requeue_is_called_off() {
    let fleet = with_feeds(&["/a", "/b"]).await;
    let begun = fleet.done(&["requeue", "--all", "--rate", "1/h"]);
    assert!(begun.starts_with("requeue 1: 2 feeds of 1 host, 1 an hour, in "), "{begun}");
    assert!(fleet.done(&["requeue", "list"]).contains("  1/h  "));
    assert_eq!(fleet.done(&["requeue", "cancel", "1"]), "cancelled requeue 1 after 0 feeds\n");
    let again = fleet.run(&["requeue", "cancel", "1"]);
    assert_eq!((again.code, again.err.as_str()), (Some(1), "error: requeue 1 is cancelled already\n"));
    assert_eq!(fleet.run(&["requeue", "show", "9"]).code, Some(1));
    assert_eq!(json(&fleet.done(&["requeue", "list", "--json"]))["state"], "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requeue_of_a_paused_fleet_says_what_it_waits_for() {
    let fleet = with_feeds(&["/a"]).await;
    fleet.done(&["fleet", "pause"]);
    let paused = "all polling is paused; `feedfleet fleet resume` starts it";
    let begun = fleet.run(&["requeue", "--all", "--rate", "30/m"]);
    assert_eq!((begun.code, begun.err), (Some(0), format!("{paused}\n")));
    assert!(begun.out.starts_with("requeue 1: 1 feed of 1 host, 30 a minute"), "{}", begun.out);
    fleet.done(&["requeue", "cancel", "1"]);

    let mut waiting = command(&["requeue", "--all", "--wait", "--server", &fleet.server]);
    let mut waiting = waiting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(waiting.stderr.take().unwrap()).lines();
    let plan = said.next().unwrap().unwrap();
    assert!(plan.starts_with("requeue 2: 1 feed of 1 host, 10 a second"), "{plan}");
    assert_eq!(said.next().unwrap().unwrap(), paused);
    fleet.done(&["fleet", "resume"]);
    let done = Ran::from(waiting.wait_with_output().unwrap());
    assert!(done.code == Some(0) && done.out.contains("1 of 1"), "{}", done.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_said_clearly_is_refused() {
    let fleet = Fleet::start(&[]).await;
    let refused = [
        (&["requeue"][..], "say which feeds: --feed"),
        (&["requeue", "--all", "--host", "a.org"], "the argument '--all' cannot be used with"),
        (&["requeue", "--all", "--rate", "fast"], "such as 50/s"),
        (&["requeue", "--overdue", "long"], "it must be a duration"),
        (&["requeue", "--category", "Z"], "category must be one of A, B, C, D, F"),
        (&["requeue", "--host", "http://a/"], "host must be a name"),
        (&["requeue", "cancel", "x"], "it must be a whole number"),
    ];
    for (arguments, expected) in refused {
        let ran = fleet.run(arguments);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(expected), "{arguments:?}: {}", ran.err);
    }
}
