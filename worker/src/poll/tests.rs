//! What a worker reports and releases when clocks are set, hosts redirect late, and gates lose their memory.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use common::document::Validators;
use common::faults::{Fault, Faults, Faulty};
use common::host_gate::memory::MemoryGate;
use common::host_gate::{GateUpkeep, LoadMark, Reservation, ReserveRequest};
use common::outcome::OutcomeKind;
use common::push::PushedBody;
use common::time::ManualClock;
use common::url::FeedId;

use super::*;
use crate::discover::AnnouncedFeed;

const REST: Duration = Duration::from_secs(60);

/// A host that throttles, and whose answer takes so long that the worker's clock is set meanwhile.
struct SetsClock(Arc<ManualClock>);

#[async_trait]
impl FetchFeed for SetsClock {
    async fn fetch(&self, job: &FetchJob, hops: &Hops<'_>) -> Fetched {
        self.0.advance(Duration::from_secs(3600));
        let throttled = Outcome::Throttled { retry_after: Some(hops.clock.now().after(REST)) };
        Fetched { last_host: Some(job.host.clone()), ..Fetched::unasked(throttled) }
    }
}

/// A host that redirects to another, and to which it takes long to connect.
struct RedirectsLate(Arc<ManualClock>);

#[async_trait]
impl FetchFeed for RedirectsLate {
    async fn fetch(&self, _job: &FetchJob, _hops: &Hops<'_>) -> Fetched {
        self.0.advance(Duration::from_secs(20));
        let (sent, other) = (Some(Instant::now()), Some(HostKey::new("other.example:443")));
        let failed = Outcome::Failed { failure: FailureKind::Status, detail: String::new() };
        let (asked_after, duration) = (Some(Duration::from_secs(20)), Duration::from_secs(21));
        let fresh_for = Some(Duration::from_secs(80));
        let fetched = Fetched { asked_after, duration, fresh_for, ..Fetched::unasked(failed) };
        Fetched { last_host: other, last_sent: sent, own_sent: sent, ..fetched }
    }
}

fn begun() -> Timestamp {
    Timestamp::from_millis(1_790_000_000_000)
}

/// One job at a host, its worker, and what asks for the host's next slot.
struct Bench {
    poller: Poller,
    gate: Arc<MemoryGate>,
    job: FetchJob,
    next: ReserveRequest,
}

async fn bench(fetcher: Box<dyn FetchFeed>, clock: Arc<ManualClock>) -> Bench {
    let config = Arc::new(common::config::defaults());
    let gate = Arc::new(MemoryGate::new(Timestamp::EPOCH));
    gate.open(&LoadMark(String::new()), begun()).await.unwrap();
    let poller = Poller {
        fetcher,
        gate: Arc::clone(&gate) as Arc<dyn HostGate>,
        rules: Arc::new(LiveRules::new(&config)),
        config,
        clock,
        metrics: Arc::new(Metrics::new()),
        secrets: Arc::default(),
        watch: ClockWatch::default(),
        nonces: Nonces::default(),
        own_holds: OwnHolds::default(),
    };
    let job = common::queue::conformance::job(1);
    let expires = begun().after(REST);
    let next = ReserveRequest { host: job.host.clone(), limits: poller.rules.get().limits_of(&job.host), expires };
    let reserved = gate.reserve(std::slice::from_ref(&next), begun()).await.unwrap().remove(0);
    let Reservation::Ticket(ticket) = reserved else { panic!("{reserved:?}") };
    Bench { poller, gate, job: FetchJob { ticket, expires, ..job }, next }
}

#[tokio::test]
async fn a_hold_is_as_long_as_the_server_said_although_the_clock_is_set_during_the_fetch() {
    let clock = Arc::new(ManualClock::new(begun()));
    let Bench { poller, gate, job, next } = bench(Box::new(SetsClock(Arc::clone(&clock))), clock).await;
    let polled = poller.poll(&job, Isolation::None).await.unwrap();

    let Polled::Report(report, Some(_)) = polled else { panic!("{polled:?}") };
    let Outcome::Throttled { retry_after: Some(reported) } = report.outcome else { panic!("{report:?}") };
    let reserved = gate.reserve(&[next], begun()).await.unwrap().remove(0);
    let Reservation::Refused { until: held } = reserved else { panic!("{reserved:?}") };
    for until in [reported, held] {
        let rest = until.since(begun());
        assert!(REST <= rest && rest < REST * 2, "{rest:?}");
    }
}

#[tokio::test]
async fn a_hold_is_put_on_a_gate_that_lost_it_while_its_report_waits() {
    let clock = Arc::new(ManualClock::new(begun()));
    let Bench { mut poller, job, next, .. } = bench(Box::new(SetsClock(Arc::clone(&clock))), Arc::clone(&clock)).await;
    let polled = poller.poll(&job, Isolation::None).await.unwrap();
    let Polled::Report(_, Some(held)) = polled else { panic!("{polled:?}") };

    let fresh = Arc::new(MemoryGate::new(Timestamp::EPOCH));
    poller.gate = Arc::clone(&fresh) as Arc<dyn HostGate>;
    poller.release_early(&held).await.unwrap();
    fresh.open(&LoadMark(String::new()), begun()).await.unwrap();
    let reserved = fresh.reserve(&[next], begun()).await.unwrap().remove(0);
    assert!(matches!(reserved, Reservation::Refused { until } if REST <= until.since(begun())), "{reserved:?}");
}

/// A host that asks to wait.
struct Throttles;

#[async_trait]
impl FetchFeed for Throttles {
    async fn fetch(&self, _job: &FetchJob, _hops: &Hops<'_>) -> Fetched {
        Fetched::unasked(Outcome::Throttled { retry_after: Some(begun().after(REST * 2)) })
    }
}

/// A host that answers well, and whose limit of requests is used up then.
struct UsesUpItsLimit;

#[async_trait]
impl FetchFeed for UsesUpItsLimit {
    async fn fetch(&self, job: &FetchJob, _hops: &Hops<'_>) -> Fetched {
        let until = Some(begun().after(REST * 2));
        let unchanged = Fetched::unasked(Outcome::NotModified { validators: Validators::default() });
        Fetched { last_host: Some(job.host.clone()), retry_after: until, limited_until: until, ..unchanged }
    }
}

#[tokio::test]
async fn a_limit_that_is_used_up_holds_its_host_and_is_reported() {
    let clock = Arc::new(ManualClock::new(begun()));
    let Bench { poller, gate, job, next } = bench(Box::new(UsesUpItsLimit), clock).await;
    let polled = poller.poll(&job, Isolation::None).await.unwrap();
    let Polled::Report(report, Some(_)) = polled else { panic!("{polled:?}") };
    let until = begun().after(REST * 2);
    assert_eq!((report.outcome.kind(), report.limited_until), (OutcomeKind::NotModified, Some(until)));
    assert_eq!(report.host_rest(), Some(Some(until)));
    let reserved = gate.reserve(&[next], begun()).await.unwrap().remove(0);
    assert_eq!(reserved, Reservation::Refused { until });
}

/// The permit has ended, and the gate grants the host's next request.
#[tokio::test]
async fn a_worker_heeds_a_hold_that_it_could_not_tell_the_gate_yet() {
    let clock = Arc::new(ManualClock::new(begun()));
    let Bench { mut poller, gate, job, next } = bench(Box::new(Throttles), Arc::clone(&clock)).await;
    let faults = Faults::at([(2, Fault::Before)]);
    poller.gate = Arc::new(Faulty::new(Arc::clone(&gate) as Arc<dyn HostGate>, &faults));
    poller.poll(&job, Isolation::None).await.unwrap();
    assert_eq!(faults.struck(), [(2, "hold", Fault::Before)]);

    let ended = clock.advance(REST);
    let next = ReserveRequest { expires: ended.after(REST), ..next };
    let Reservation::Ticket(ticket) = gate.reserve(&[next], ended).await.unwrap().remove(0) else { panic!("refused") };
    let job = FetchJob { ticket, feed: FeedId(2), expires: ended.after(REST), ..job };
    let polled = poller.poll(&job, Isolation::None).await.unwrap();
    let Polled::Report(report, Some(PendingRelease { reported: false, .. })) = polled else { panic!("{polled:?}") };
    assert_eq!(report.outcome, Outcome::Deferred { until: begun().after(REST * 2) });

    let hold = (job.host, begun().after(REST * 2));
    assert_eq!(poller.own_holds.of(&hold.0, hold.1), None, "it has ended");
    poller.own_holds.is_known(&(hold.0.clone(), ended));
    assert_eq!(poller.own_holds.of(&hold.0, ended), Some(hold.1), "the gate knows an earlier one");
    poller.own_holds.is_known(&hold);
    assert_eq!(poller.own_holds.of(&hold.0, ended), None, "the gate knows it");
}

#[tokio::test(start_paused = true)]
async fn a_hosts_gap_begins_with_the_request_although_it_redirected_to_another_host() {
    let clock = Arc::new(ManualClock::new(begun()));
    let fetcher = Box::new(RedirectsLate(Arc::clone(&clock)));
    let Bench { poller, gate, job, next } = bench(fetcher, Arc::clone(&clock)).await;
    let polled = poller.poll(&job, Isolation::None).await.unwrap();
    let Polled::Report(report, Some(held)) = polled else { panic!("{polled:?}") };
    poller.release(&held).await.unwrap();

    let reserved = gate.reserve(std::slice::from_ref(&next), clock.now()).await.unwrap().remove(0);
    assert_eq!(reserved, Reservation::Refused { until: clock.now().after(next.limits.gap) });
    // So does the poll's interval, and the answer's freshness.
    let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
    assert_eq!((report.started, report.duration, report.fresh_for), (clock.now(), second, Some(minute)));
}

/// Answers at once that nothing changed, and counts how often it was requested.
struct Counts(Arc<AtomicUsize>);

#[async_trait]
impl FetchFeed for Counts {
    async fn fetch(&self, _job: &FetchJob, _hops: &Hops<'_>) -> Fetched {
        self.0.fetch_add(1, Ordering::SeqCst);
        Fetched::unasked(Outcome::NotModified { validators: Validators::default() })
    }

    async fn read_pushed(&self, _job: &FetchJob, _body: &PushedBody) -> Fetched {
        self.0.fetch_add(1, Ordering::SeqCst);
        Fetched::unasked(Outcome::NotModified { validators: Validators::default() })
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_was_stopped_until_its_permit_nearly_ended_requests_nothing_and_blames_nobody() {
    let requests = Arc::new(AtomicUsize::new(0));
    let clock = Arc::new(ManualClock::new(begun()));
    let Bench { mut poller, gate, job, next } =
        bench(Box::new(Counts(Arc::clone(&requests))), Arc::clone(&clock)).await;
    let fetch = &poller.config.fetch;
    let spare = fetch.deadline() - fetch.timeout - fetch.max_place_wait();
    // The first call is for the clock.
    let late = Faults::at([(1, Fault::Late(spare + A_MILLISECOND)), (5, Fault::Late(spare))]);
    poller.gate = Arc::new(Faulty::new(gate as Arc<dyn HostGate>, &late));

    let Polled::Report(report, Some(held)) = poller.poll(&job, Isolation::None).await.unwrap() else { panic!() };
    assert!(matches!(report.outcome, Outcome::Deferred { .. }), "{report:?}");
    assert_eq!(requests.load(Ordering::SeqCst), 0);
    poller.release(&held).await.unwrap();
    // The version was not reported: it is granted again.
    let now = clock.advance(Duration::from_secs(10));
    let reserved = poller.gate.reserve(&[next], now).await.unwrap().remove(0);
    let Reservation::Ticket(ticket) = reserved else { panic!("{reserved:?}") };
    poller.poll(&FetchJob { ticket, ..job }, Isolation::None).await.unwrap();
    assert_eq!(late.struck().iter().map(|(_, call, _)| *call).collect::<Vec<_>>(), ["acquire", "acquire"]);
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

const A_MILLISECOND: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn a_job_is_worked_until_it_expires_and_then_its_slot_is_free() {
    let requests = Arc::new(AtomicUsize::new(0));
    let clock = Arc::new(ManualClock::new(begun()));
    let Bench { poller, gate, job, next } = bench(Box::new(Counts(Arc::clone(&requests))), Arc::clone(&clock)).await;
    // Its ticket is good for longer than the job.
    let expires = begun().after(REST / 2);
    let job = FetchJob { expires, ..job };

    clock.advance(REST / 2 + A_MILLISECOND);
    let Polled::Report(report, None) = poller.poll(&job, Isolation::None).await.unwrap() else { panic!() };
    assert_eq!(report.outcome, Outcome::Deferred { until: clock.now() });
    assert_eq!((requests.load(Ordering::SeqCst), poller.metrics.in_flight.get()), (0, 0));
    let reserved = gate.reserve(std::slice::from_ref(&next), clock.now()).await.unwrap().remove(0);
    let Reservation::Ticket(ticket) = reserved else { panic!("{reserved:?}") };

    let expires = clock.advance(A_MILLISECOND);
    let job = FetchJob { expires, ticket, ..job };
    let Polled::Report(report, Some(_)) = poller.poll(&job, Isolation::None).await.unwrap() else { panic!() };
    assert_eq!(report.outcome.kind(), OutcomeKind::NotModified);
    assert_eq!((requests.load(Ordering::SeqCst), poller.metrics.in_flight.get()), (1, 0));

    // Once its lease has ended, another job of its feed may be in flight, and nothing is said of this one.
    clock.advance(poller.config.scheduler.fetch_lease);
    assert!(matches!(poller.poll(&job, Isolation::None).await.unwrap(), Polled::Nothing));
}

#[tokio::test]
async fn what_a_hub_delivered_is_read_until_its_job_expires() {
    let read = Arc::new(AtomicUsize::new(0));
    let clock = Arc::new(ManualClock::new(begun()));
    let Bench { poller, job, .. } = bench(Box::new(Counts(Arc::clone(&read))), Arc::clone(&clock)).await;
    let pushed = Some(Box::new(PushedBody { content_type: None, body: Vec::new() }));
    let job = FetchJob { pushed, expires: begun(), ..job };
    let Polled::Report(report, None) = poller.poll(&job, Isolation::None).await.unwrap() else { panic!() };
    assert!(report.pushed);
    let now = clock.advance(A_MILLISECOND);
    let Polled::Report(report, None) = poller.poll(&job, Isolation::None).await.unwrap() else { panic!() };
    assert_eq!(report.outcome, Outcome::Deferred { until: now });
    assert_eq!(read.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_version_counts_as_reported_for_a_lease_before_its_report_is_safe_and_for_two_after_that() {
    for is_safe in [false, true] {
        let clock = Arc::new(ManualClock::new(begun()));
        let requests = Arc::new(AtomicUsize::new(0));
        let Bench { poller, gate, job, .. } = bench(Box::new(Counts(Arc::clone(&requests))), Arc::clone(&clock)).await;
        let Polled::Report(_, Some(held)) = poller.poll(&job, Isolation::None).await.unwrap() else { panic!() };
        let scheduler = &poller.config.scheduler;
        let lease = scheduler.queue_lease + scheduler.fetch_lease;
        let remembered = if is_safe { 2 * lease } else { lease };
        if is_safe {
            poller.release(&held).await.unwrap();
        } else {
            poller.release_early(&held).await.unwrap();
        }
        for (passes, is_reported) in [(remembered - A_MILLISECOND, true), (A_MILLISECOND, false)] {
            let expires = clock.advance(passes).after(REST);
            let limits = poller.rules.get().limits_of(&job.host);
            let next = ReserveRequest { host: job.host.clone(), limits, expires };
            let reserved = gate.reserve(&[next], clock.now()).await.unwrap().remove(0);
            let ticket = if let Reservation::Ticket(ticket) = reserved { ticket } else { job.ticket };
            let job = FetchJob { ticket, expires, ..job.clone() };
            let polled = poller.poll(&job, Isolation::None).await.unwrap();
            assert_eq!(matches!(polled, Polled::Nothing), is_reported, "safe: {is_safe}, {passes:?}: {polled:?}");
        }
    }
}

#[test]
fn a_report_names_the_host_that_answered_its_job_s_kind_and_the_feeds_of_a_page() {
    let job = FetchJob { page: true, ..common::queue::conformance::job(1) };
    let fetched = |host: &HostKey| {
        let next = "http://example.com/next".parse().unwrap();
        let announced =
            [("https://a.example/feed", "application/rss+xml"), ("https://a.example/me", "application/activity+json")];
        let announced = announced.map(|(url, media_type)| AnnouncedFeed {
            url: url.parse().unwrap(),
            media_type: media_type.to_owned(),
            title: None,
        });
        Fetched {
            last_host: Some(host.clone()),
            detour: Some(Detour { next, way: String::new(), page: false, not_before: None }),
            announced: announced.to_vec(),
            ..Fetched::unasked(Outcome::Gone)
        }
    };
    let own = report(&job, begun(), fetched(&job.host));
    assert_eq!(own.answered_by, None);
    assert!(own.page && own.detour.unwrap().page);
    assert_eq!(own.announced.iter().map(ToString::to_string).collect::<Vec<_>>(), ["https://a.example/feed"]);
    let other = HostKey::new("other.example:443");
    assert_eq!(report(&job, begun(), fetched(&other)).answered_by, Some(other));
}
