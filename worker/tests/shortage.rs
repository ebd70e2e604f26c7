//! A worker without a free file descriptor. Alone in its program, because the limit holds for a whole process.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::time::Duration;

use common::host::{HostConfig, HostRules};
use common::host_gate::memory::MemoryGate;
use common::host_gate::{ExtraRequest, GateUpkeep, HostGate, LoadMark, Ticket};
use common::job::FetchJob;
use common::report::Outcome;
use common::time::{Clock, SystemClock, Timestamp};
use common::url::{FeedId, Version};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use worker::fetch::{FetchFeed, Fetched, Fetcher, Hops};
use worker::own_holds::OwnHolds;

fn job(rules: &HostRules, url: &str) -> FetchJob {
    let url: common::url::FeedUrl = url.parse().unwrap();
    FetchJob {
        subscribers: 1,
        ..FetchJob::of(FeedId(1), Version(1), rules.for_url(url.as_url()).key, url, Ticket(0), Timestamp::MAX)
    }
}

async fn fetch(fetcher: &Fetcher, rules: &HostRules, job: &FetchJob) -> Fetched {
    let gate = MemoryGate::new(Timestamp::EPOCH);
    let now = SystemClock.now();
    assert!(gate.open(&LoadMark(String::new()), now).await.unwrap());
    let deadline = now.after(Duration::from_secs(30));
    let limits = rules.limits_of(&job.host);
    let request = ExtraRequest { host: &job.host, limits, during: None, deadline };
    let permit = gate.acquire_extra(&request, now).await.unwrap().unwrap();
    let patience = Duration::ZERO;
    let hops = Hops {
        gate: &gate,
        rules,
        clock: &SystemClock,
        permit: &permit,
        own_holds: &OwnHolds::default(),
        deadline,
        login: None,
        patience,
    };
    fetcher.fetch(job, &hops).await
}

#[tokio::test]
async fn without_a_descriptor_a_fetch_is_deferred_and_no_feed_is_blamed() {
    let mut config = common::config::defaults().fetch;
    config.allow_networks = vec!["127.0.0.0/8".parse().unwrap()];
    config.allow_ports = vec!["1-65535".to_owned()];
    config.name_servers = vec!["127.0.0.1:9".parse().unwrap()];
    let rules = HostRules::new(HostConfig::default(), Vec::new());
    let fetcher = Fetcher::new(&config, &rules).unwrap();
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), maximum: before.maximum }).unwrap();
    for url in ["http://127.0.0.1:1/feed", "http://name.example:1/feed"] {
        let fetched = fetch(&fetcher, &rules, &job(&rules, url)).await;
        let Outcome::Deferred { until } = fetched.outcome else { panic!("{url}: {fetched:?}") };
        assert!(until > SystemClock.now());
    }
    setrlimit(Resource::Nofile, before).unwrap();
    let fetched = fetch(&fetcher, &rules, &job(&rules, "http://127.0.0.1:1/feed")).await;
    assert!(matches!(fetched.outcome, Outcome::Failed { .. }), "{fetched:?}");
}
