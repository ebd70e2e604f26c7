//! `feedfleet tail` with a cursor: whatever is killed, each event is dealt with, in order, and at most the last one twice.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use load_tests::{Feed, Origin, Pace, Script, loopback};

use crate::harness::{Fleet, Home};

const CONFIG: &str = "[policy]\nmode = \"classes\"\nmin_interval = \"1s\"\nhot_minutes = false\nno_validator_factor = 1.0\n\
                      [policy.category.d]\ninterval = \"1s\"\ninterval_max = \"1s\"\n[host]\ngap = \"10ms\"\n";

fn tail(home: &Home, fleet: &Fleet, command: &str) -> Child {
    let arguments = ["tail", "--after", "0", "--kind", "entry.*", "--cursor", "cursor", "--exec", command];
    let mut tail = home.command(&arguments);
    tail.env("FEEDFLEET_SERVER", &fleet.api).env("PATH", "/usr/bin:/bin");
    tail.process_group(0).stdout(Stdio::null()).spawn().unwrap()
}

/// kill -9, with the command that it runs: that one would note its event after the next tail has noted others.
fn kill(tail: &mut Child) {
    let group = format!("-{}", tail.id());
    assert!(Command::new("kill").args(["-KILL", "--", &group]).status().unwrap().success());
    tail.wait().unwrap();
}

fn seqs(home: &Home) -> Vec<i64> {
    let text = std::fs::read_to_string(home.path("seen")).unwrap_or_default();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_tail_repeats_at_most_the_last_event() {
    let home = Home::new(CONFIG);
    let origin = Origin::listen(&loopback(1, 0)).await.unwrap();
    origin
        .set("/feed", Script::feed(Feed::rss().initial(40).shown(1000).pace(Pace::Every(Duration::from_millis(500)))));
    let mut fleet = home.start(&[&origin.url("/feed")]);
    let command = "read -r line; case \"$line\" in *\\\"entry\\\"*) echo $FEEDFLEET_EVENT_SEQ >> seen;; esac";
    let kills = 8;
    for number in 0..kills {
        let mut running = tail(&home, &fleet, command);
        let before = seqs(&home).len();
        fleet.wait_for("events", async |_| (seqs(&home).len() > before + 3).then_some(())).await;
        tokio::time::sleep(Duration::from_millis(3 * number)).await;
        kill(&mut running);
    }
    let mut failing = tail(&home, &fleet, "false");
    assert_eq!(failing.wait().unwrap().code(), Some(1));
    let mut running = tail(&home, &fleet, command);
    let before = seqs(&home).len();
    fleet.wait_for("events", async |_| (seqs(&home).len() > before + 3).then_some(())).await;
    kill(&mut running);

    let seen = seqs(&home);
    let repeated = seen.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert!(seen.is_sorted() && u64::try_from(repeated).unwrap() <= kills, "{repeated} of {seen:?}");
    let mut once = seen;
    once.dedup();
    let request = fleet.client.get(format!("{}/api/v1/events?limit=1000&kind=entry.*", fleet.api));
    let answer = request.header("accept", "application/json").send().await.unwrap().text().await.unwrap();
    let page: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let all: Vec<i64> = page["items"].as_array().unwrap().iter().map(|event| event["seq"].as_i64().unwrap()).collect();
    assert_eq!(once, all[..once.len()], "none is left out");
    fleet.stop();
}
