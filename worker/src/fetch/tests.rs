//! Fetches that need to reach into the fetcher: parsers that are busy, and budgets that count loopback.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::host::{HostConfig, HostKey};
use common::host_gate::memory::MemoryGate;
use common::host_gate::{ExtraRequest, GateUpkeep, HostGate, LoadMark, Ticket};
use common::job::Detour;
use common::time::{Clock, SystemClock, Timestamp};
use common::url::{FeedId, FeedUrl, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::client;
use crate::own_holds::OwnHolds;

const FEED: &str = "<rss version='2.0'><channel><title>t</title><item><guid>1</guid></item></channel></rss>";

/// A server that answers each connection with the same feed and counts them.
struct Origin {
    port: u16,
    requests: Arc<AtomicUsize>,
}

impl Origin {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
                if stream.read(&mut [0; 4096]).await.is_err() {
                    continue;
                }
                let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", FEED.len());
                let _ = stream.write_all(format!("{head}{FEED}").as_bytes()).await;
            }
        });
        Origin { port, requests }
    }
}

fn config() -> FetchConfig {
    let mut config = common::config::defaults().fetch;
    config.allow_networks = vec!["127.0.0.0/8".parse().unwrap()];
    config.allow_ports = vec!["1-65535".to_owned()];
    config
}

fn setup() -> FetchSetup {
    FetchSetup { hosts: "127.0.0.1 one.test\n127.0.0.1 two.test\n".to_owned(), ..FetchSetup::default() }
}

fn job(url: &str) -> FetchJob {
    let url: FeedUrl = url.parse().unwrap();
    FetchJob {
        subscribers: 1,
        ..FetchJob::of(
            FeedId(1),
            Version(1),
            HostRules::default().for_url(url.as_url()).key,
            url,
            Ticket(0),
            Timestamp::MAX,
        )
    }
}

async fn fetch(fetcher: &Fetcher, job: &FetchJob) -> Fetched {
    let rules = HostRules::new(HostConfig::default(), Vec::new());
    let gate = MemoryGate::new(Timestamp::EPOCH);
    let now = SystemClock.now();
    assert!(gate.open(&LoadMark(String::new()), now).await.unwrap());
    let deadline = now.after(Duration::from_secs(60));
    let request = ExtraRequest { host: &job.host, limits: rules.limits_of(&job.host), during: None, deadline };
    let permit = gate.acquire_extra(&request, now).await.unwrap().unwrap();
    let patience = Duration::ZERO;
    let hops = Hops {
        gate: &gate,
        rules: &rules,
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
async fn a_feed_is_not_blamed_for_parsers_that_stay_busy() {
    let origin = Origin::start().await;
    let mut config = config();
    (config.timeout, config.parsers) = (Duration::from_secs(3), 1);
    let fetcher = Fetcher::new(&config, &HostRules::default()).unwrap();
    let job = job(&format!("http://127.0.0.1:{}/feed", origin.port));
    let pushed = PushedBody { body: FEED.into(), content_type: None };

    let busy = Arc::clone(&fetcher.0.parsers).acquire_owned().await.unwrap();
    let before = SystemClock.now();
    let fetched = fetch(&fetcher, &job).await;
    let Outcome::Deferred { until } = fetched.outcome else { panic!("{fetched:?}") };
    assert!(until > before, "the feed is polled later");
    let fetched = fetcher.read_pushed(&job, &pushed).await;
    assert_eq!(fetched.outcome, Outcome::Deferred { until: job.expires }, "the feed is polled instead");

    drop(busy);
    let fetched = fetch(&fetcher, &job).await;
    assert!(matches!(fetched.outcome, Outcome::Modified(_)), "{fetched:?}");
}

#[tokio::test]
async fn a_large_body_without_a_place_costs_its_server_one_request_and_no_bytes() {
    let origin = Origin::start().await;
    let config = FetchConfig { timeout: Duration::from_secs(3), large_body_bytes: 10, large_bodies: 1, ..config() };
    let fetcher = Fetcher::new(&config, &HostRules::default()).unwrap();
    let mut job = job(&format!("http://127.0.0.1:{}/feed", origin.port));

    let other = fetcher.0.large_bodies.take_within(&HostKey::new("other.test:80"), Duration::ZERO).await.unwrap();
    for number in 0..3 {
        let fetched = fetch(&fetcher, &job).await;
        assert!(matches!(fetched.outcome, Outcome::Deferred { .. }), "{fetched:?}");
        assert_eq!((origin.requests.load(Ordering::Relaxed), fetched.wire_bytes), (1, 0), "fetch {number}");
        // When its time has come.
        job.detour = fetched.detour.map(|detour| Detour { not_before: None, ..detour });
    }
    drop(other);
    let fetched = fetch(&fetcher, &job).await;
    assert!(matches!(fetched.outcome, Outcome::Modified(_)), "{fetched:?}");
    assert_eq!(origin.requests.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn two_names_of_one_address_share_its_budget_and_a_refusal_costs_the_domain_nothing() {
    let origin = Origin::start().await;
    let mut fetcher = Fetcher::with_setup(&config(), &HostRules::default(), &setup()).unwrap();
    // One start in 100 s. Networks that are opened are exempt, so the budgets must not know of loopback.
    let counting = FetchConfig { address_rate: 0.01, allow_networks: Vec::new(), ..config() };
    fetcher.0.client = client::build(&counting, fetcher.0.guard.clone(), &setup()).unwrap();
    let url = |name: &str| format!("http://{name}:{}/feed", origin.port);

    let first = fetch(&fetcher, &job(&url("one.test"))).await;
    assert!(matches!(first.outcome, Outcome::Modified(_)), "{first:?}");
    let before = SystemClock.now();
    let second = fetch(&fetcher, &job(&url("two.test"))).await;
    let Outcome::Deferred { until } = second.outcome else { panic!("{second:?}") };
    assert!(until > before.after(Duration::from_secs(50)), "after the address's gap");
    assert_eq!(origin.requests.load(Ordering::Relaxed), 1);
    assert!(fetcher.0.client.enter_domain("two.test").is_ok(), "its domain was not charged");
    assert!(fetcher.0.client.enter_domain("one.test").is_err(), "the domain that was asked was");
}
