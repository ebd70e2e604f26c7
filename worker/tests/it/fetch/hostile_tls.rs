//! Hostile servers behind TLS: what they do in HTTP/2's frames and in the handshake ends within the deadlines, as a failure
//! with a name.

use std::time::{Duration, Instant};

use common::outcome::FailureKind;
use common::report::Outcome;
use load_tests::hostile_tls::{Attack, Attacker, calming, floods, long_chain};
use load_tests::tls::{Authority, Front};
use load_tests::{Feed, Script};
use worker::fetch::{Fetched, Fetcher};
use worker::setup::FetchSetup;

use super::bench::{Bench, document, failure};

/// How long a fetch may take here.
const PATIENCE: Duration = Duration::from_secs(3);
/// What a loaded machine adds.
const SLACK: Duration = Duration::from_secs(20);

async fn bench(authority: &Authority) -> Bench {
    let mut bench = Bench::with(|fetch| {
        (fetch.timeout, fetch.connect_timeout, fetch.idle_timeout) = (PATIENCE, PATIENCE, PATIENCE);
    })
    .await;
    let (extra_roots, hosts) = (vec![authority.certificate()], "127.0.0.1 one.test\n".to_owned());
    let setup = FetchSetup { extra_roots, hosts, ..FetchSetup::default() };
    bench.fetcher = Fetcher::with_setup(&bench.config, &bench.rules, &setup).unwrap();
    bench
}

fn is_named(fetched: &Fetched) -> bool {
    match &fetched.outcome {
        Outcome::Failed { failure, .. } => matches!(
            failure,
            FailureKind::Timeout
                | FailureKind::Truncated
                | FailureKind::Malformed
                | FailureKind::TooLarge
                | FailureKind::Tls
        ),
        _ => false,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn armour_hostile_http2_ends_within_the_deadline_as_a_failure_with_a_name() {
    let authority = Authority::new("known").unwrap();
    let bench = bench(&authority).await;
    for (kind, frames) in floods() {
        let is_endless = !frames.again.is_empty();
        let attack = Attack::frames(authority.server("one.test", |_| {}).unwrap(), frames);
        let attacker = Attacker::start("127.0.0.1:0".parse().unwrap(), attack).await.unwrap();
        let port = attacker.address().port();
        let begin = Instant::now();
        let fetched = bench.fetch(&bench.job(&format!("https://one.test:{port}/feed"))).await;
        println!("{kind}: {:?} after {:?}", fetched.outcome, begin.elapsed());
        assert!(is_named(&fetched), "{kind}: {fetched:?}");
        let waited = failure(&fetched).0 == FailureKind::Timeout;
        assert!(!(is_endless && waited), "{kind}: was read until the deadline");
        assert!(begin.elapsed() < PATIENCE + SLACK, "{kind}: {:?}", begin.elapsed());
        assert!(fetched.wire_bytes <= bench.config.max_wire_bytes as u64 + 20_000, "{kind}: {}", fetched.wire_bytes);
    }
    let good = bench.fetch(&bench.feed("/good", Script::feed(Feed::rss()))).await;
    assert_eq!(document(&good).entries.len(), 3, "nobody else notices");
}

#[tokio::test]
async fn http2_a_server_that_asks_for_calm_and_says_nothing_more_is_throttling() {
    let authority = Authority::new("known").unwrap();
    let bench = bench(&authority).await;
    for (kind, frames) in calming() {
        let attack = Attack::frames(authority.server("one.test", |_| {}).unwrap(), frames);
        let attacker = Attacker::start("127.0.0.1:0".parse().unwrap(), attack).await.unwrap();
        let fetched = bench.fetch(&bench.job(&format!("https://one.test:{}/feed", attacker.address().port()))).await;
        assert_eq!(fetched.outcome, Outcome::Throttled { retry_after: None }, "{kind}");
    }
}

#[tokio::test]
async fn armour_a_handshake_byte_by_byte_ends_at_the_deadline() {
    let authority = Authority::new("known").unwrap();
    let bench = bench(&authority).await;
    let attack = Attack::SlowHandshake(Duration::from_millis(100));
    let attacker = Attacker::start("127.0.0.1:0".parse().unwrap(), attack).await.unwrap();
    let port = attacker.address().port();
    let begin = Instant::now();
    let fetched = bench.fetch(&bench.job(&format!("https://one.test:{port}/feed"))).await;
    let (kind, detail) = failure(&fetched);
    assert!(matches!(kind, FailureKind::Timeout | FailureKind::Tls), "{kind} {detail}");
    assert!(begin.elapsed() < PATIENCE + SLACK, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn armour_certificates_of_a_hundred_kilobytes_are_refused() {
    let authority = Authority::new("known").unwrap();
    let bench = bench(&authority).await;
    let server = long_chain(&authority).unwrap().server("one.test", |_| {}).unwrap();
    let port = Front::start(server, bench.origin.address(0)).await.unwrap().port;
    let fetched = bench.fetch(&bench.job(&format!("https://one.test:{port}/feed"))).await;
    assert_eq!(failure(&fetched).0, FailureKind::Tls, "{fetched:?}");
}
