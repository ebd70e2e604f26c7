//! P13, P17, P28, P30, P36, P37: redirects.

use std::sync::Arc;
use std::time::Duration;

use common::faults::{Fault, Faults, Faulty};
use common::host::{HostConfig, HostRule, HostRules};
use common::host_gate::memory::MemoryGate;
use common::host_gate::{HostGate, Isolation, LoadMark, Nonces, Reservation, ReserveRequest};
use common::job::FetchJob;
use common::live_rules::LiveRules;
use common::metrics::Metrics;
use common::outcome::FailureKind;
use common::report::{FetchReport, Outcome};
use common::time::{Clock, ClockWatch, SystemClock, Timestamp};
use common::url::FeedUrl;
use load_tests::{Feed, Script};
use worker::own_holds::OwnHolds;
use worker::poll::{Polled, Poller};

use super::bench::{Bench, PATIENCE, document, failure, not_modified};

fn gap(gap: Duration) -> HostConfig {
    HostConfig { gap, ..HostConfig::default() }
}

#[tokio::test]
async fn p13_validators_go_to_the_hop_that_gave_them_only() {
    let bench = Bench::start().await;
    bench.origin.set("/feed", Script::feed(Feed::rss()));
    let target = bench.origin.url_on(1, "/feed");
    let script = Script::redirect(302, target.clone()).header("ETag", "\"of-the-redirect\"");
    let mut job = bench.feed("/old", script);

    let first = bench.poll(&mut job).await;
    assert_eq!(document(&first).entries.len(), 3);
    assert_eq!(job.validators.for_url.as_deref(), Some(&*target));
    let second = bench.poll(&mut job).await;
    assert!(not_modified(&second) && second.conditional, "a 304 at the end of redirects is a 304: {second:?}");
    assert_eq!(job.validators.for_url.as_deref(), Some(&*target));
    assert!(bench.requests("/old", 2).await.iter().all(|request| !request.is_conditional()));
    assert!(bench.requests("/feed", 2).await[1].is_conditional());
}

#[tokio::test]
async fn p13_a_redirect_to_another_place_is_asked_unconditionally() {
    let bench = Bench::start().await;
    bench.origin.set("/one", Script::feed(Feed::rss()));
    bench.origin.set("/two", Script::feed(Feed::rss()));
    let mut job = bench.feed("/old", Script::redirect(302, "/one").then(Script::redirect(302, "/two")));
    bench.poll(&mut job).await;
    bench.poll(&mut job).await;
    assert!(!bench.requests("/two", 1).await[0].is_conditional());

    let mut direct = bench.feed("/feed", Script::feed(Feed::rss()).then(Script::redirect(302, "/one")));
    bench.poll(&mut direct).await;
    bench.poll(&mut direct).await;
    assert!(bench.requests("/feed", 2).await[1].is_conditional(), "the feed's own URL gave them");
    assert!(!bench.requests("/one", 2).await[1].is_conditional());
}

#[tokio::test]
async fn the_start_of_the_request_to_the_jobs_own_host_is_known_after_a_redirect_to_another() {
    let bench = Bench::start().await;
    bench.origin.set("/feed", Script::feed(Feed::rss()));
    let mut job = bench.feed("/old", Script::redirect(302, bench.origin.url_on(1, "/feed")));
    let fetched = bench.poll(&mut job).await;
    assert!(fetched.last_host.as_ref().is_some_and(|host| *host != job.host), "{fetched:?}");
    assert!(fetched.own_sent.is_some() && fetched.own_sent < fetched.last_sent, "{fetched:?}");

    let mut direct = bench.feed("/direct", Script::feed(Feed::rss()));
    let fetched = bench.poll(&mut direct).await;
    assert!(fetched.own_sent.is_some() && fetched.own_sent == fetched.last_sent, "{fetched:?}");
}

#[tokio::test]
async fn p41_a_304_from_a_hop_that_was_asked_unconditionally_is_an_error() {
    let bench = Bench::start().await;
    bench.origin.set("/other", Script::status(304));
    let mut job = bench.feed("/feed", Script::feed(Feed::rss()).then(Script::redirect(302, "/other")));
    bench.poll(&mut job).await;
    assert_eq!(failure(&bench.poll(&mut job).await).0, FailureKind::Status);
}

#[tokio::test]
async fn p37_only_permanent_redirects_to_a_good_answer_are_reported_as_a_move() {
    let bench = Bench::start().await;
    bench.origin.set("/feed", Script::feed(Feed::rss()));
    bench.origin.set("/gone", Script::status(404));
    bench.origin.set("/to-temporary", Script::redirect(301, "/temporary"));
    bench.origin.set("/temporary", Script::redirect(302, "/feed"));
    for (status, location, moved) in [
        (301, "/feed", Some("/feed")),
        (308, "/feed#x", Some("/feed")),
        (302, "/feed", None),
        (303, "/feed", None),
        (307, "/feed", None),
        (301, "/gone", None),
        (301, "/to-temporary", Some("/temporary")),
    ] {
        let mut job = bench.feed("/old", Script::redirect(status, location));
        let fetched = bench.poll(&mut job).await;
        let expected = moved.map(|path| bench.origin.url(path));
        assert_eq!(fetched.moved_to.map(|url| url.to_string()), expected, "{status} {location}");
    }
}

#[tokio::test]
async fn p36_circles_and_long_chains_end_in_a_failure_of_their_own() {
    let bench = Bench::start().await;
    let mut job = bench.feed("/self", Script::redirect(302, "/self"));
    assert_eq!(failure(&bench.poll(&mut job).await).0, FailureKind::Redirects);
    bench.requests("/self", 1).await;

    bench.origin.set("/a", Script::redirect(302, "/b"));
    let mut job = bench.feed("/b", Script::redirect(302, "/a"));
    assert_eq!(failure(&bench.poll(&mut job).await).0, FailureKind::Redirects);
    bench.requests("/b", 1).await;

    for hop in 0..10 {
        bench.origin.set(&format!("/{hop}"), Script::redirect(301, format!("/{}", hop + 1)));
    }
    bench.origin.set("/10", Script::feed(Feed::rss()));
    let start = |hop: usize| bench.job(&bench.origin.url(&format!("/{hop}")));
    let too_long = bench.fetch(&start(4)).await;
    assert_eq!(failure(&too_long), (FailureKind::Redirects, "more than 5 redirects"));
    assert_eq!(too_long.http_status, Some(301));
    bench.requests("/10", 0).await;
    assert_eq!(document(&bench.fetch(&start(5)).await).entries.len(), 3);

    for location in ["", "ftp://127.0.0.1/", "http://"] {
        let mut job = bench.feed("/nowhere", Script::redirect(302, location));
        assert_eq!(failure(&bench.poll(&mut job).await).0, FailureKind::Redirects, "'{location}'");
    }
}

#[tokio::test]
async fn armour_every_hop_is_checked_before_it_is_dialled() {
    let bench = Bench::with(|fetch| {
        fetch.allow_networks = vec!["127.0.0.1/32".parse().unwrap()];
        fetch.allow_ports = vec!["1024-65535".to_owned()];
    })
    .await;
    bench.origin.set("/feed", Script::feed(Feed::rss()));
    let other_loopback = bench.origin.url_on(1, "/feed");
    let by_name = format!("http://two.test:{}/feed", bench.origin.address(1).port());
    let refused = [
        other_loopback.as_str(),
        by_name.as_str(),
        "http://169.254.169.254:8080/latest/meta-data/",
        "http://[::ffff:127.0.0.2]:8080/",
        "http://[::1]:8080/",
        "http://2130706434:8080/",
        "http://127.0.0.1:80/",
    ];
    for location in refused {
        let mut job = bench.feed("/old", Script::redirect(301, location));
        let fetched = bench.poll(&mut job).await;
        assert_eq!(failure(&fetched).0, FailureKind::RefusedAddress, "{location}");
        assert_eq!(fetched.moved_to, None);
    }
    bench.requests("/feed", 0).await;

    let port = bench.origin.address(0).port();
    let mapped = format!("http://[::ffff:127.0.0.1]:{port}/feed");
    let mut job = bench.feed("/old", Script::redirect(301, format!("http://one.test:{port}/feed")));
    assert_eq!(document(&bench.poll(&mut job).await).entries.len(), 3, "the same address under an opened network");
    assert!(failure_or_document(&bench, &mapped).await);
}

/// A mapped address is opened with the one inside; whether the machine can dial it is its own affair.
async fn failure_or_document(bench: &Bench, url: &str) -> bool {
    let fetched = bench.fetch(&bench.job(url)).await;
    match fetched.outcome {
        Outcome::Modified(_) => true,
        Outcome::Failed { failure, .. } => failure == FailureKind::Connect,
        _ => false,
    }
}

#[tokio::test]
async fn p30_a_hop_on_the_same_host_waits_for_the_hosts_gap() {
    let gap_length = Duration::from_millis(400);
    let bench = Bench::with_hosts(gap(gap_length), Vec::new(), |_| {}).await;
    bench.origin.set("/feed", Script::feed(Feed::rss()));
    let mut job = bench.feed("/old", Script::redirect(302, "/feed"));
    assert_eq!(document(&bench.poll(&mut job).await).entries.len(), 3);
    let starts: Vec<Duration> = bench.origin.log().iter().map(|record| record.start).collect();
    // both clocks are this machine's; the origin's starts when the first byte is there
    assert!(starts[1] - starts[0] > gap_length / 2, "{starts:?}");
}

#[tokio::test]
async fn p27_a_chain_that_returns_to_the_jobs_host_waits_for_the_gap_from_its_first_request() {
    let gap_length = Duration::from_millis(600);
    let bench = Bench::with_hosts(gap(gap_length), Vec::new(), |_| {}).await;
    bench.origin.set("/feed", Script::feed(Feed::rss()));
    bench.origin.set("/mid", Script::redirect(302, bench.origin.url("/feed")));
    let job = bench.feed("/old", Script::redirect(302, bench.origin.url_on(1, "/mid")));
    // The request leaves long after the gate has granted it, as behind a slow resolver or handshake.
    let fetched = bench.fetch_after(gap_length, &job).await;
    assert_eq!(document(&fetched).entries.len(), 3);
    let of = |path: &str| bench.origin.log().iter().find(|record| *record.path == *path).unwrap().start;
    assert!(of("/feed") - of("/old") > gap_length / 2, "{:?} after {:?}", of("/feed"), of("/old"));
}

#[tokio::test]
async fn p30_a_hop_to_another_host_is_charged_to_that_host() {
    let bench = Bench::with_hosts(gap(Duration::from_secs(3600)), Vec::new(), |_| {}).await;
    bench.origin.set("/feed", Script::feed(Feed::rss()));
    let target = bench.origin.url_on(1, "/feed");
    let mut job = bench.feed("/old", Script::redirect(302, target.clone()));
    let fetched = bench.poll(&mut job).await;
    assert_eq!(document(&fetched).entries.len(), 3);
    let host = bench.rules.for_url(&target.parse().unwrap()).key;
    assert_eq!(fetched.last_host.as_ref(), Some(&host));

    let now = SystemClock.now();
    let request = ReserveRequest { host: host.clone(), limits: bench.rules.limits_of(&host), expires: now };
    let answer = bench.gate.reserve(&[request], now).await.unwrap()[0];
    assert!(
        matches!(answer, Reservation::Refused { until } if until.since(now) > Duration::from_secs(3000)),
        "{answer:?}"
    );
    let mut second = bench.feed("/old-too", Script::redirect(302, target));
    second.host = common::host::HostKey::new("elsewhere");
    assert!(matches!(bench.poll(&mut second).await.outcome, Outcome::Deferred { .. }), "the host was asked just now");
    bench.requests("/feed", 1).await;
}

#[tokio::test]
async fn p30_a_chain_that_a_hosts_gap_interrupts_goes_on_where_it_stopped() {
    let bench = Bench::with_hosts(gap(Duration::from_secs(5)), Vec::new(), |fetch| {
        fetch.timeout = Duration::from_secs(4);
    })
    .await;
    bench.origin.set("/feed", Script::feed(Feed::rss()));
    let mut job = bench.feed("/old", Script::redirect(301, "/feed"));
    let first = bench.poll(&mut job).await;
    assert!(matches!(first.outcome, Outcome::Deferred { .. }), "{first:?}");
    assert_eq!((first.http_status, first.moved_to), (None, None));
    assert_eq!(first.detour.map(|detour| detour.next.to_string()), Some(bench.origin.url("/feed")));
    let second = bench.poll(&mut job).await;
    assert_eq!(document(&second).entries.len(), 3);
    assert_eq!(second.moved_to.map(|url| url.to_string()), Some(bench.origin.url("/feed")));
    bench.requests("/old", 1).await;
    bench.requests("/feed", 1).await;
}

#[tokio::test]
async fn p17_a_redirect_is_followed_no_sooner_than_it_says() {
    let bench = Bench::start().await;
    bench.origin.set("/feed", Script::feed(Feed::rss()));
    let mut job = bench.feed("/old", Script::redirect(302, "/feed").header("Retry-After", "30"));
    let before = SystemClock.now();
    let fetched = bench.poll(&mut job).await;
    let Outcome::Deferred { until } = fetched.outcome else { panic!("{fetched:?}") };
    let wait = until.since(before);
    assert!(wait >= Duration::from_secs(30) && wait < Duration::from_secs(90), "{wait:?}");
    let early = bench.fetch(&FetchJob { detour: fetched.detour, ..job.clone() }).await;
    assert_eq!((early.outcome, early.last_sent), (Outcome::Deferred { until }, None), "a refresh comes too early");
    bench.requests("/feed", 0).await;
    assert_eq!(document(&bench.poll(&mut job).await).entries.len(), 3, "then it goes on where it stopped");
    bench.requests("/old", 1).await;

    let mut far = bench.feed("/far", Script::redirect(302, "/feed").header("Retry-After", "99999999"));
    let fetched = bench.poll(&mut far).await;
    let Outcome::Deferred { until } = fetched.outcome else { panic!("{fetched:?}") };
    assert!(until.since(before) < Duration::from_secs(25 * 3600), "no redirect silences a feed for years");
}

/// Works a job to its end, as a worker does. Returns its report, the gate, and the names of the gate's calls.
async fn worked(bench: Bench, job: FetchJob) -> (FetchReport, Arc<dyn HostGate>, Vec<&'static str>) {
    worked_with(OwnHolds::default(), bench, job).await
}

/// The same, by a worker that knows of holds that the gate does not have.
async fn worked_with(
    own_holds: OwnHolds,
    bench: Bench,
    job: FetchJob,
) -> (FetchReport, Arc<dyn HostGate>, Vec<&'static str>) {
    let mut config = common::config::load(None, std::iter::empty(), &[]).unwrap().config;
    (config.fetch, config.host) = (bench.config, gap(Duration::ZERO));
    let rules = LiveRules::new(&config);
    let gate: Arc<dyn HostGate> = Arc::new(MemoryGate::new(Timestamp::EPOCH));
    let now = SystemClock.now();
    assert!(gate.open(&LoadMark(String::new()), now).await.unwrap());
    let expires = now.after(PATIENCE);
    let request = ReserveRequest { host: job.host.clone(), limits: rules.get().limits_of(&job.host), expires };
    let Reservation::Ticket(ticket) = gate.reserve(&[request], now).await.unwrap()[0] else { panic!("no ticket") };
    // These change nothing, and are listed.
    let calls = Faults::at((0..20).map(|call| (call, Fault::Late(Duration::ZERO))));
    let poller = Poller {
        fetcher: Box::new(bench.fetcher),
        gate: Arc::new(Faulty::new(Arc::clone(&gate), &calls)),
        rules: Arc::new(rules),
        config: Arc::new(config),
        clock: Arc::new(SystemClock),
        metrics: Arc::new(Metrics::new()),
        secrets: Arc::default(),
        watch: ClockWatch::default(),
        nonces: Nonces::default(),
        own_holds,
    };
    let polled = poller.poll(&FetchJob { ticket, expires, ..job }, Isolation::None).await.unwrap();
    let Polled::Report(report, Some(held)) = polled else { panic!("{polled:?}") };
    poller.release(&held).await.unwrap();
    let names = calls.struck().into_iter().map(|(_, name, _)| name).collect();
    (*report, gate, names)
}

#[tokio::test]
async fn p17_a_redirect_with_a_limit_that_is_used_up_is_followed_later_and_its_host_held() {
    let bench = Bench::start().await;
    bench.origin.set("/feed", Script::feed(Feed::rss()));
    let limited = Script::redirect(302, "/feed").header("RateLimit-Remaining", "0").header("RateLimit-Reset", "60");
    let job = bench.feed("/old", limited);
    let (report, gate, _) = worked(bench, job).await;
    let Outcome::Deferred { until } = report.outcome else { panic!("{report:?}") };
    assert_eq!(report.retry_after, Some(until));
    assert_eq!(gate.held(SystemClock.now()).await.unwrap(), 1, "the host's other feeds wait too");
}

#[tokio::test]
async fn p28_the_host_at_the_end_of_a_redirect_is_held_before_its_slot_is_free() {
    for answer in [
        Script::status(429).header("Retry-After", "3600"),
        Script::status(429),
        Script::status(403).header("cf-mitigated", "challenge"),
        Script::feed(Feed::rss()).header("RateLimit-Remaining", "0").header("RateLimit-Reset", "60"),
    ] {
        let bench = Bench::start().await;
        bench.origin.set("/busy", answer);
        let job = bench.feed("/old", Script::redirect(302, bench.origin.url_on(1, "/busy")));
        let (report, gate, calls) = worked(bench, job).await;
        let order: Vec<&str> = calls.into_iter().filter(|call| ["hold", "release"].contains(call)).collect();
        // First of the redirect's target, then of the feed's own slot.
        assert_eq!(order, ["hold", "release", "hold", "release"], "{report:?}");
        assert_eq!(gate.held(SystemClock.now()).await.unwrap(), 1, "{report:?}");
    }
}

#[tokio::test]
async fn a_redirect_to_a_host_whose_hold_the_gate_does_not_have_yet_is_followed_after_it() {
    let bench = Bench::start().await;
    bench.origin.set("/feed", Script::feed(Feed::rss()));
    let target: FeedUrl = bench.origin.url_on(1, "/feed").parse().unwrap();
    let (now, own_holds) = (SystemClock.now(), OwnHolds::default());
    let held = now.after(PATIENCE);
    own_holds.note(&HostRules::default().for_url(target.as_url()).key, held, now);
    let job = bench.feed("/old", Script::redirect(302, target.as_str()));
    let (report, _, calls) = worked_with(own_holds, bench, job).await;
    assert_eq!(report.outcome, Outcome::Deferred { until: held });
    assert!(!calls.contains(&"acquire_extra"), "{calls:?}");
}

#[tokio::test]
async fn a_chain_that_is_interrupted_again_keeps_the_time_of_the_first() {
    let bench = Bench::start().await;
    bench.origin.set("/feed", Script::feed(Feed::rss()));
    bench.origin.set("/middle", Script::redirect(302, "/feed").header("Retry-After", "30"));
    let mut job = bench.feed("/old", Script::redirect(302, "/middle").header("Retry-After", "30"));
    let mut begun = Vec::new();
    for _ in 0..2 {
        let fetched = bench.poll(&mut job).await;
        let Outcome::Deferred { until } = fetched.outcome else { panic!("{fetched:?}") };
        assert_eq!(fetched.retry_after, Some(until), "its host may be free before");
        let way: serde_json::Value = serde_json::from_str(&fetched.detour.unwrap().way).unwrap();
        begun.push(way["at"].clone());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(begun[0], begun[1]);
}

#[tokio::test]
async fn p30_names_of_a_shared_host_are_one_host() {
    let rule =
        HostRule { r#match: "test".into(), shared: true, gap: Some(Duration::from_secs(3600)), ..HostRule::default() };
    let bench = Bench::with_hosts(gap(Duration::ZERO), vec![rule], |_| {}).await;
    let port = bench.origin.address(0).port();
    bench.origin.set("/feed", Script::feed(Feed::rss()));
    bench.origin.set("/old", Script::redirect(302, format!("http://two.test:{}/feed", bench.origin.address(1).port())));
    let fetched = bench.fetch(&bench.job(&format!("http://one.test:{port}/old"))).await;
    assert!(matches!(fetched.outcome, Outcome::Deferred { .. }), "{fetched:?}");
    bench.requests("/feed", 0).await;
}

#[tokio::test]
async fn gone_counts_only_where_the_feed_itself_is_gone() {
    let bench = Bench::start().await;
    bench.origin.set("/gone", Script::status(410));
    let mut moved = bench.feed("/moved", Script::redirect(301, "/gone"));
    assert_eq!(bench.poll(&mut moved).await.outcome, Outcome::Gone);
    let mut lent = bench.feed("/lent", Script::redirect(302, "/gone"));
    let fetched = bench.poll(&mut lent).await;
    assert_eq!((failure(&fetched).0, fetched.http_status), (FailureKind::Status, Some(410)));
}

#[tokio::test]
async fn p32_cookies_of_a_redirect_are_not_sent_back() {
    let bench = Bench::start().await;
    bench.origin.set("/feed", Script::feed(Feed::rss()));
    let mut job = bench.feed("/old", Script::redirect(302, "/feed").header("Set-Cookie", "seen=1; Path=/"));
    bench.poll(&mut job).await;
    let request = &bench.requests("/feed", 1).await[0];
    assert_eq!((request.header("cookie"), request.header("referer")), (None, None));
}
