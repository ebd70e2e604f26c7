//! A changed configuration reaches every role of a cluster through one scheduler, and an old file does not come back.

use std::time::{Duration, Instant};

use load_tests::{Feed, Origin, Script};
use serde_json::Value;

use super::harness::{Cluster, Kind, Role, Servers, Urls};
use super::relay::logged;
use crate::harness::PATIENCE;

fn configuration(interval: &str, name: &str) -> String {
    // A fetch that a stall of the machine makes time out is repeated soon, and not minutes later.
    format!(
        "[policy]\nmode = \"classes\"\nmin_interval = \"100ms\"\nsalt = 0.0\nhot_minutes = false\nno_validator_factor = 1.0\n\
         [policy.category.d]\ninterval = \"{interval}\"\ninterval_max = \"{interval}\"\n\
         [policy.penalty]\ntransient_first = \"200ms\"\n\
         [host]\ngap = \"10ms\"\n\
         [fetch]\ntimeout = \"1s\"\nallow_networks = [\"127.0.0.0/8\"]\nallow_ports = [\"1-65535\"]\n\
         [[host_rule]]\nmatch = \"127.0.0.1\"\nuser_agent = \"{name}\"\nreason = \"a test\"\n"
    )
}

async fn in_force(role: &mut Role) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (status, text) = role.get("/api/v1/config").await;
        if status == 200 {
            return serde_json::from_str(&text).unwrap();
        }
        let is_starting = status == 503 && text.contains("is starting");
        assert!(is_starting && Instant::now() < deadline, "{status}: {text}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn until_version(role: &mut Role, version: i64) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let view = in_force(role).await;
        if view["version"] == version {
            return view;
        }
        assert!(Instant::now() < deadline, "version {version} never comes: {view}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn hash(metrics: &str) -> String {
    metrics.lines().find(|line| line.starts_with("feedfleet_config_hash{")).unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_role_follows_a_hangup_of_one_scheduler_and_an_old_file_does_not_come_back() {
    let servers = Servers::shared();
    let cluster = Cluster::new(&servers, Urls::of(&servers), &configuration("300ms", "first")).await;
    let origin = Origin::start().await.unwrap();
    origin.set("/feed", Script::feed(Feed::rss().initial(1)));
    cluster.add(&[origin.url("/feed")], Duration::ZERO).await;
    let mut first = cluster.start(Kind::Scheduler);
    let mut second = cluster.start(Kind::Scheduler);
    let _worker = cluster.start(Kind::Worker);
    let polled_as = |name: &'static str| {
        let origin = &origin;
        async move {
            let deadline = Instant::now() + PATIENCE;
            while origin.requests("/feed").last().and_then(|last| last.header("user-agent")).as_deref() != Some(name) {
                assert!(Instant::now() < deadline, "nobody called {name} comes");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    polled_as("first").await;
    assert_eq!(until_version(&mut first, 1).await["hash"], until_version(&mut second, 1).await["hash"]);

    cluster.configure(&configuration("200ms", "second"));
    first.signal("HUP");
    let one = until_version(&mut first, 2).await;
    let began = Instant::now();
    let other = until_version(&mut second, 2).await;
    assert!(began.elapsed() < Duration::from_secs(30), "within seconds: {:?}", began.elapsed());
    assert_eq!((&one["policy"], &one["host_rule"]), (&other["policy"], &other["host_rule"]));
    assert_eq!(other["policy"]["category"]["d"]["interval"], "200ms");
    assert_eq!(hash(&first.get("/metrics").await.1), hash(&second.get("/metrics").await.1));
    polled_as("second").await;

    // A scheduler that is started with the old file does not restore it, and logs that.
    cluster.configure(&configuration("300ms", "first"));
    let mut third = cluster.start(Kind::Scheduler);
    let follows = until_version(&mut third, 2).await;
    assert_ne!(follows["own_hash"], follows["hash"]);
    logged(&third, "the fleet has replaced the policy", 1).await;
    third.signal("HUP");
    assert_eq!(until_version(&mut second, 3).await["policy"]["category"]["d"]["interval"], "300ms");
    polled_as("first").await;
    for role in [first, second, third] {
        role.stop().await;
    }
}
