//! kill -9 while webhooks are delivered: nothing is lost, the order is kept, and what arrives twice has the same id.

use std::collections::HashMap;
use std::time::Duration;

use super::receiver::Received;
use super::{Receiver, Reply, accepted, busy, home, operator, stored};

/// Times that the fleet is killed.
fn kills() -> u64 {
    std::env::var("SOAK_KILLS").map_or(6, |text| text.parse().expect("SOAK_KILLS must be a number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_fleet_delivers_everything_in_order_and_duplicates_have_their_id() {
    let home = home("");
    let receiver = Receiver::listen().await;
    // Slow enough that many are in flight whenever the fleet is killed.
    receiver.set("/b", &[Reply::Status(500), Reply::Status(200), Reply::Status(503), Reply::Status(200)]);
    let (_origin, urls) = busy(10).await;
    let opml = home.opml(urls);
    let fleet = home.start(&[]);
    for (path, batch) in [("/a", "1"), ("/b", "3")] {
        let target = receiver.url(path);
        operator(&home, &fleet, &["subscription", "add", &target, "--kind", "entry.*", "--batch", batch]);
    }
    fleet.kill();
    let mut fleet = home.start(&[&opml]);
    for number in 0..kills() {
        let before = receiver.log("/a").len();
        fleet.wait_for("deliveries", async |_| (receiver.log("/a").len() > before + 3).then_some(())).await;
        tokio::time::sleep(Duration::from_millis(37 * (number % 9))).await;
        fleet.kill();
        fleet = home.start(&[]);
    }
    // No further entries.
    operator(&home, &fleet, &["fleet", "pause"]);
    let (all, logs) = fleet
        .wait_for("all events", async |fleet| {
            let all = stored(fleet, "kind=entry.*").await;
            // Read after the events: a poll that was in flight at the pause may still store some.
            let logs = ["/a", "/b"].map(|path| (path, receiver.log(path)));
            let last = all.last().copied();
            let done = logs.iter().all(|(_, log)| accepted(log).last().copied() == last);
            done.then_some((all, logs))
        })
        .await;
    for (path, log) in &logs {
        let first = first_of_each(log);
        assert_eq!(first, all, "{path}: each event once, in order, but for what was repeated");
    }
    fleet.stop();
}

/// Returns the events of accepted requests in the order of their first arrival. What arrives again must be the same
/// request.
fn first_of_each(log: &[Received]) -> Vec<i64> {
    let mut ids: HashMap<i64, String> = HashMap::new();
    let mut first = Vec::new();
    for request in log.iter().filter(|request| request.is_accepted()) {
        let id = request.header("webhook-id");
        for event in request.events() {
            let seq = event["seq"].as_i64().unwrap();
            match ids.get(&seq) {
                Some(known) => assert_eq!(known, id, "event {seq} arrived twice under different ids"),
                None => {
                    ids.insert(seq, id.to_owned());
                    first.push(seq);
                }
            }
        }
    }
    first
}
