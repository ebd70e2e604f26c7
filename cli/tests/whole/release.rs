//! The end of a host's hold: its feeds are polled again slowly, in the server's own log.

use std::time::Duration;

use load_tests::{Feed, Origin, Record, Rules, Script, judge, loopback};

use crate::harness::{Home, PATIENCE, watch_stalls};

const FEEDS: u16 = 24;
const GAP: Duration = Duration::from_millis(400);
/// Requests are spaced when they start; a single one may arrive late by this much on a loaded machine, besides stalls. Requests
/// without any spacing would arrive together.
const NOISE: Duration = Duration::from_millis(320);
const HOLD: Duration = Duration::from_secs(4);

/// Every feed is due again long before its host's hold ends.
const CONFIG: &str = r#"
[policy]
mode = "classes"
min_interval = "500ms"
salt = 0.0
hot_minutes = false
no_validator_factor = 1.0
import_spread = "0s"
[policy.category.d]
interval = "500ms"
interval_max = "500ms"
[host]
gap = "400ms"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn p28_the_feeds_of_a_held_host_come_at_its_gap_when_the_hold_ends() {
    let origin = Origin::listen(&loopback(1, 0)).await.unwrap();
    let paths: Vec<String> = (0..FEEDS).map(|number| format!("/{number}")).collect();
    for path in &paths {
        origin.set(path, Script::feed(Feed::rss().initial(1)));
    }
    let home = Home::new(CONFIG);
    let stalls = watch_stalls(&origin);
    let fleet = home.start(&[&home.opml(paths.iter().map(|path| origin.url(path)))]);
    fleet.watch(&stalls);
    for path in &paths {
        assert!(!origin.wait_for(path, 1, PATIENCE).await.is_empty(), "{path} was never polled");
    }
    let seconds = HOLD.as_secs().to_string();
    let throttled = Script::status(429).header("Retry-After", seconds).times(1);
    let polled = origin.requests("/7").len();
    origin.set("/7", throttled.then(Script::feed(Feed::rss().initial(1))));
    let asked = origin.wait_for(&paths[7], polled + 1, PATIENCE).await;
    let hold = asked.iter().find(|record| record.status == Some(429)).expect("it was throttled").clone();
    let held_until = hold.end.unwrap() + HOLD;

    let after = |record: &Record| record.start > hold.start;
    let released = loop {
        let log = origin.log();
        let released: Vec<Record> = log.into_iter().filter(after).collect();
        if released.len() >= usize::from(FEEDS) {
            break released;
        }
        assert!(origin.wait_for_total(origin.request_count() + 1, PATIENCE).await, "{}", fleet.stderr());
    };
    let mut starts: Vec<Duration> = released.iter().map(|record| record.start).collect();
    starts.sort();
    let stalls = stalls.seen();
    // The server counts from its response, we from its arrival; both clocks are this machine's.
    assert!(starts[0] + Duration::from_millis(50) >= held_until, "{:?} before {held_until:?}", starts[0]);
    let shortest = starts.windows(2).map(|pair| pair[1] - pair[0] + stalls.near(pair[0])).min().unwrap();
    assert!(shortest + NOISE >= GAP, "two starts {shortest:?} apart");
    let all = starts[usize::from(FEEDS) - 1] - starts[0] + stalls.near(starts[0]);
    assert!(all + 2 * NOISE >= GAP * u32::from(FEEDS - 1), "{FEEDS} starts within {all:?}");
    let card = judge(&origin.log(), &Rules { gap: GAP, slack: NOISE, stalls, ..Rules::default() });
    assert!(card.violations.is_empty(), "{card}");
    fleet.stop();
}
