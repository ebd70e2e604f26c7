//! Failures of our own network: hosts on loopback that all go down at once, and come back.

use load_tests::{Feed, Origin, Script, loopback};
use serde_json::Value;

use crate::harness::{Fleet, Home, PATIENCE};

const HOSTS: u16 = 20;

const CONFIG: &str = r#"
[policy]
mode = "classes"
min_interval = "1s"
hot_minutes = false
import_spread = "0s"
[policy.category.d]
interval = "2s"
interval_max = "2s"
[policy.penalty]
transient_first = "1s"
[host]
gap = "100ms"
"#;

async fn feeds(fleet: &Fleet) -> Vec<Value> {
    fleet.get("/api/v1/feeds").await["items"].as_array().unwrap().clone()
}

async fn is_ours(fleet: &Fleet) -> bool {
    let by_stats = fleet.get("/api/v1/stats").await.get("our_fault_since").is_some();
    let by_metric = fleet.metric("feedfleet_our_fault").await > 0.0;
    by_stats && by_metric
}

/// Returns the number of log lines so far that contain this.
fn logged(fleet: &Fleet, what: &str) -> usize {
    fleet.stderr().lines().filter(|line| line.contains(what)).count()
}

/// Waits for a log line that contains this: it may come after what the API shows.
async fn until_logged(fleet: &mut Fleet, what: &str) {
    fleet.wait_for(what, async |fleet| (logged(fleet, what) > 0).then_some(())).await;
}

/// Returns a fleet with one feed per host, each of which was read once.
async fn well() -> (Origin, Home, Fleet) {
    let origin = Origin::listen(&loopback(HOSTS, 0)).await.unwrap();
    let urls: Vec<String> = (0..usize::from(HOSTS)).map(|host| origin.url_on(host, &format!("/feed{host}"))).collect();
    for host in 0..HOSTS {
        origin.set(&format!("/feed{host}"), Script::feed(Feed::rss()));
    }
    let home = Home::new(CONFIG);
    let opml = home.opml(urls);
    let mut fleet = home.start(&[&opml]);
    fleet
        .wait_for("every feed to be well", async |fleet| {
            let well = feeds(fleet).await.iter().filter(|feed| !feed["last_success"].is_null()).count();
            (well == usize::from(HOSTS)).then_some(())
        })
        .await;
    (origin, home, fleet)
}

#[tokio::test(flavor = "multi_thread")]
async fn when_all_hosts_fail_at_once_no_feed_pays_and_polling_is_a_probe_until_they_answer() {
    let (origin, _home, mut fleet) = well().await;
    assert!(!is_ours(&fleet).await);

    for host in 0..usize::from(HOSTS) {
        origin.take_down(host).await;
    }
    fleet.wait_for("the fault to be ours", async |fleet| is_ours(fleet).await.then_some(())).await;
    until_logged(&mut fleet, "the fault is ours").await;
    assert_eq!(logged(&fleet, "the fault is ours"), 1);
    // Some were in flight at that moment; the others are probes.
    let failures = async |fleet: &Fleet| fleet.metric("feedfleet_failures_total{kind=\"connect\"}").await;
    let begun = failures(&fleet).await;
    let start = std::time::Instant::now();
    fleet.wait_for("some probes", async |fleet| (failures(fleet).await >= begun + 16.0).then_some(())).await;
    let probes = failures(&fleet).await - begun;
    let seconds = start.elapsed().as_secs_f64();
    let under_way = 10.0;
    assert!(probes <= seconds * 1.1 + under_way, "{probes} in {seconds} s, where 20 feeds were due every 2 s");
    for feed in feeds(&fleet).await {
        assert!(feed["penalty"].is_null() && feed["status"] == "active", "{feed}");
        let run = feed["consecutive_failures"].as_u64().unwrap();
        assert!(run <= 1, "only what failed before it was known whose fault it is: {feed}");
    }
    let spared = feeds(&fleet).await.iter().filter(|feed| feed["consecutive_failures"] == 0).count();
    assert!(spared >= 5, "{spared}");

    for host in 0..usize::from(HOSTS) {
        origin.bring_up(host).await.unwrap();
    }
    let answered = origin.request_count();
    fleet.wait_for("the end of it", async |fleet| (!is_ours(fleet).await).then_some(())).await;
    until_logged(&mut fleet, "hosts answer again").await;
    assert_eq!(
        (logged(&fleet, "hosts answer again"), logged(&fleet, "the fault is ours")),
        (1, 1),
        "one line a change"
    );
    assert!(origin.wait_for_total(answered + 2 * usize::from(HOSTS), PATIENCE).await, "polled as before");
    fleet
        .wait_for("every feed to be well again", async |fleet| {
            let all = feeds(fleet).await;
            all.iter().all(|feed| feed["consecutive_failures"] == 0).then_some(())
        })
        .await;
    fleet.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_reset_after_the_request_are_ours_when_most_hosts_do_it() {
    let (origin, _home, mut fleet) = well().await;
    for host in 0..HOSTS {
        origin.set(&format!("/feed{host}"), Script::status(200).deliver(load_tests::Delivery::Close));
    }
    fleet.wait_for("the fault to be ours", async |fleet| is_ours(fleet).await.then_some(())).await;
    let begun = fleet.metric("feedfleet_failures_total{kind=\"truncated\"}").await;
    fleet
        .wait_for("some probes", async |fleet| {
            (fleet.metric("feedfleet_failures_total{kind=\"truncated\"}").await >= begun + 8.0).then_some(())
        })
        .await;
    let all = feeds(&fleet).await;
    let (penalised, failed) = all.iter().fold((0, 0), |(penalised, failed), feed| {
        let failures = feed["consecutive_failures"].as_u64().unwrap();
        (penalised + usize::from(!feed["penalty"].is_null()), failed + usize::from(failures > 0))
    });
    println!("{penalised} of {HOSTS} feeds penalised, {failed} with a failure counted");
    assert!(penalised == 0 && failed <= 15, "{penalised} {failed}");
    for host in 0..HOSTS {
        origin.set(&format!("/feed{host}"), Script::feed(Feed::rss()));
    }
    fleet.wait_for("the end of it", async |fleet| (!is_ours(fleet).await).then_some(())).await;
    fleet.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_few_hosts_that_fail_among_others_pay_for_it() {
    let (origin, _home, mut fleet) = well().await;
    for host in 0..4 {
        origin.take_down(host).await;
    }
    fleet
        .wait_for("four feeds to be in the box", async |fleet| {
            let boxed = feeds(fleet).await.iter().filter(|feed| feed["penalty"]["kind"] == "connect").count();
            (boxed == 4).then_some(())
        })
        .await;
    assert_eq!(logged(&fleet, "the fault is ours"), 0);
    assert!(origin.wait_for_total(origin.request_count() + 20, PATIENCE).await, "the others go on");
    fleet.stop();
}
