//! An import into a cluster, and its export into another one.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::Command;

use common::feed::Feed;
use common::time::{Clock, SystemClock};

use super::harness::{Cluster, Kind, Role, Servers, Urls};

const FEEDS: usize = 600;
const SPREAD: i64 = 1000 * 60 * 60 * 1000;
/// How much later a poll may be because it leaves a hot minute.
const OPEN_REACH: i64 = 15 * 60 * 1000;
const CONFIG: &str = r#"
[policy]
import_spread = "1000h"
"#;

/// Runs a command against a role; returns its output.
fn operate(role: &mut Role, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_feedfleet"));
    let output = command.args(arguments).env("FEEDFLEET_SERVER", role.address()).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns a paused cluster with two schedulers.
async fn paused(servers: &Servers) -> (Cluster, Role, Role) {
    let cluster = Cluster::new(servers, Urls::of(servers), CONFIG).await;
    let (mut first, second) = (cluster.start(Kind::Scheduler), cluster.start(Kind::Scheduler));
    operate(&mut first, &["fleet", "pause"]);
    (cluster, first, second)
}

async fn known(cluster: &Cluster) -> Vec<Feed> {
    let mut feeds = cluster.feeds().await;
    feeds.sort_by_key(|feed| feed.url.to_string());
    feeds
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_is_spread_and_its_export_imports_to_the_same_set() {
    let servers = Servers::shared();
    let (one, mut first, mut second) = paused(&servers).await;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let mut list = std::fs::File::create(path("list")).unwrap();
    for number in 0..FEEDS {
        writeln!(list, "http://host{}.example/{number}?a=1&b=\u{e9}", number % 30).unwrap();
    }
    let began = SystemClock.now().millis();
    let printed = operate(&mut first, &["import", &path("list")]);
    assert!(printed.starts_with(&format!("{FEEDS} feeds added, 0 known\n")), "{printed}");
    let ended = SystemClock.now().millis();
    operate(&mut first, &["feed", "set", "7", "--subscribers", "40", "--active-subscribers", "4", "--private"]);
    let feeds = known(&one).await;
    let due: Vec<i64> = feeds.iter().map(|feed| feed.next_due.unwrap().millis()).collect();
    assert!(due.iter().all(|due| (began..=ended + SPREAD + OPEN_REACH).contains(due)), "{due:?}");
    let tenths: BTreeSet<i64> = due.iter().map(|due| (due - began) / (SPREAD / 10)).collect();
    assert!(tenths.len() >= 10, "every part of the time has its share: {tenths:?}");

    // Exported from the other scheduler, which shares only the store with the first.
    operate(&mut second, &["export", &path("first.opml")]);
    let (other, mut third, mut fourth) = paused(&servers).await;
    let printed = operate(&mut third, &["import", &path("first.opml")]);
    assert!(printed.starts_with(&format!("{FEEDS} feeds added, 0 known\n")), "{printed}");
    let again = known(&other).await;
    assert_eq!(again.len(), feeds.len());
    for (feed, again) in feeds.iter().zip(&again) {
        assert_eq!((&feed.url, feed.audience, feed.private), (&again.url, again.audience, again.private));
    }
    let printed = operate(&mut fourth, &["import", &path("first.opml")]);
    assert_eq!(printed, format!("0 feeds added, {FEEDS} known\n"));
    for role in [first, second, third, fourth] {
        role.stop().await;
    }
}
