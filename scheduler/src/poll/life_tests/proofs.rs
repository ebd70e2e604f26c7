//! What a worker can have a scheduler believe: reports on the jobs that it was given.

use super::*;
use common::document::Document;
use common::entry::Entry;
use common::host::HostKey;
use common::host_gate::{Reservation, ReserveRequest};
use common::job_mac::JobMac;
use common::metrics::Metrics;
use store::sqlite::SqliteStore;

use crate::condition::job_proofs::JobProofs;

/// Runs the intake until everything in the queue of reports is settled or dropped.
async fn taken_in(fleet: &Fleet) {
    let stop = tokio_util::sync::CancellationToken::new();
    tokio::select! {
        () = fleet.intake.run(&*fleet.clock, &stop) => {}
        () = async {
            while fleet.reports.depth().await.unwrap().items > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        } => {}
    }
}

fn refused(fleet: &Fleet, reason: &str) -> u64 {
    fleet.ops.metrics.refused_reports.with_label_values(&[reason]).get()
}

async fn is_held(fleet: &Fleet, host: &str) -> bool {
    let host = HostKey::new(host);
    let limits = fleet.ops.rules.get().limits_of(&host);
    let now = fleet.clock.now();
    let request = ReserveRequest { host, limits, expires: now.after(Duration::from_secs(1)) };
    !matches!(fleet.ops.gate.reserve(&[request], now).await.unwrap()[..], [Reservation::Ticket(_)])
}

#[tokio::test]
async fn a_forged_report_touches_no_hold_and_no_feed_and_is_counted() {
    let fleet = Fleet::new().await;
    let (own, victim) = (fleet.add("http://own.example/feed").await, fleet.add("http://victim.example/feed").await);
    let jobs = fleet.dispatched().await;
    let job = jobs.iter().find(|job| job.feed == own).unwrap();
    let before = fleet.feed(victim).await;
    let now = fleet.clock.now();
    let throttled = Outcome::Throttled { retry_after: Some(now.after(Duration::from_secs(3000))) };
    let honest = report(job, now, not_modified());
    let mac = job.mac.clone().unwrap();
    let forged = [
        // The proof of its own job under the name of another feed, at each version that it may have.
        FetchReport { feed: victim, ..report(job, now, Outcome::Gone) },
        FetchReport { feed: victim, version: Version(before.version.0 + 1), ..report(job, now, Outcome::Gone) },
        FetchReport { host: HostKey::new("third.example:80"), ..report(job, now, throttled.clone()) },
        FetchReport { pushed: true, ..honest.clone() },
        FetchReport {
            mac: Some(JobMac { expires: now.after(Duration::from_secs(9999)), ..mac.clone() }),
            ..honest.clone()
        },
        FetchReport { mac: Some(JobMac { key: 77, ..mac }), ..honest.clone() },
        FetchReport { mac: None, ..report(&jobs[1], now, throttled) },
        FetchReport { started: now.after(Duration::from_secs(500)), ..honest.clone() },
    ];
    for report in forged.clone() {
        fleet.reports.publish(&[report]).await.unwrap();
    }
    taken_in(&fleet).await;
    let counted = ["mismatch", "unknown_key", "missing", "time"].map(|reason| refused(&fleet, reason));
    assert_eq!(counted, [5, 1, 1, 1]);
    assert_eq!(fleet.feed(victim).await, before);
    assert_eq!(fleet.feed(own).await.version, job.version);
    for host in ["own.example:80", "victim.example:80", "third.example:80"] {
        let held = fleet.ops.gate.held(now).await.unwrap();
        assert_eq!(held, 0, "{host}");
    }
    assert!(!is_held(&fleet, "third.example:80").await);

    // In one message with an honest one.
    let mut message = forged[..2].to_vec();
    message.push(honest.clone());
    fleet.reports.publish(&message).await.unwrap();
    taken_in(&fleet).await;
    let settled = fleet.feed(own).await;
    assert_eq!(settled.version.0, job.version.0 + 1);
    assert_eq!(fleet.feed(victim).await, before);

    // The same report again, and another outcome for the same job: its version is stale.
    let again = FetchReport { outcome: Outcome::Gone, ..honest };
    fleet.reports.publish(&[again]).await.unwrap();
    taken_in(&fleet).await;
    assert_eq!(fleet.feed(own).await, settled);
    assert_eq!(fleet.ops.metrics.stale_reports.get(), 1);
}

#[tokio::test]
async fn reports_without_a_proof_are_believed_in_an_upgraded_fleet_for_a_while() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("feedfleet.db");
    let url = format!("sqlite://{}", path.display());
    let store = Arc::new(SqliteStore::open(&url).await.unwrap());
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
    let upgraded = rusqlite::Connection::open(&path).unwrap();
    upgraded.execute("UPDATE store SET unsigned_since = ?1", [clock.now().millis()]).unwrap();
    drop(upgraded);
    let fleet = Fleet::over(config(), store, clock, Timestamp::EPOCH).await;
    let id = fleet.add("http://a.example/feed").await;
    let job = fleet.dispatched().await.remove(0);
    let unsigned = |job: &FetchJob| FetchReport { mac: None, ..report(job, fleet.clock.now(), not_modified()) };
    fleet.reports.publish(&[unsigned(&job)]).await.unwrap();
    taken_in(&fleet).await;
    let settled = fleet.feed(id).await;
    assert_eq!(settled.version.0, job.version.0 + 1);
    assert_eq!((fleet.ops.metrics.unsigned_reports.get(), refused(&fleet, "missing")), (1, 0));

    fleet.clock.advance(Duration::from_secs(8 * 24 * 3600));
    let job = fleet.dispatched().await.remove(0);
    fleet.reports.publish(&[unsigned(&job)]).await.unwrap();
    taken_in(&fleet).await;
    assert_eq!(fleet.feed(id).await, settled);
    assert_eq!((fleet.ops.metrics.unsigned_reports.get(), refused(&fleet, "missing")), (1, 1));
}

/// Returns a fleet over a copy of the store that lacks everything, with the same clock.
async fn standby_of(fleet: &Fleet) -> Fleet {
    let store = Arc::new(SqliteStore::open("sqlite::memory:").await.unwrap());
    Fleet::over(config(), store, fleet.clock.clone(), Timestamp::EPOCH).await
}

#[tokio::test]
async fn a_report_on_a_feed_that_the_store_lost_changes_nothing_of_the_feed_that_has_its_number_now() {
    let fleet = Fleet::new().await;
    let standby = standby_of(&fleet).await;
    let lost = fleet.add("http://lost.example/feed").await;
    let job = fleet.dispatched().await.remove(0);
    fleet.clock.advance(Duration::from_secs(10));
    let other = standby.add("http://other.example/feed").await;
    let before = standby.feed(other).await;
    assert_eq!((other, before.version), (lost, job.version));
    standby.settle(report(&job, fleet.clock.now(), Outcome::Gone)).await;
    assert_eq!(standby.feed(other).await, before);
    assert_eq!(standby.ops.metrics.stale_reports.get(), 1);

    let job = standby.dispatched().await.remove(0);
    standby.settle(report(&job, fleet.clock.now(), not_modified())).await;
    assert_eq!(standby.feed(other).await.version.0, before.version.0 + 1);
}

#[tokio::test]
async fn a_page_and_a_delivery_of_a_lost_feed_add_nothing_to_the_feed_that_has_its_number_now() {
    let fleet = Fleet::new().await;
    let standby = standby_of(&fleet).await;
    let lost = fleet.add("http://lost.example/feed").await;
    let job = fleet.dispatched().await.remove(0);
    fleet.clock.advance(Duration::from_secs(10));
    let other = standby.add("http://other.example/feed").await;
    let before = standby.feed(other).await;
    assert_eq!((other, before.version), (lost, job.version));
    let read = |job: &FetchJob| {
        let entry = Entry { id: "1".into(), ..Entry::default() };
        let document = Document { entries: vec![entry], new_entries: 1, all_entries: 1, ..Document::default() };
        report(job, fleet.clock.now(), Outcome::Modified(Box::new(document)))
    };
    standby.settle(FetchReport { page: true, ..read(&job) }).await;
    standby.settle(FetchReport { pushed: true, ..read(&job) }).await;
    assert_eq!(standby.feed(other).await, before);
    assert_eq!(standby.ops.metrics.stale_reports.get(), 2);

    // A delivery that was taken before the feed's last poll is stored.
    let job = standby.dispatched().await.remove(0);
    fleet.clock.advance(Duration::from_secs(30));
    standby.settle(report(&job, fleet.clock.now(), not_modified())).await;
    standby.settle(FetchReport { pushed: true, ..read(&job) }).await;
    assert_eq!(standby.feed(other).await.entries, 1);
}

#[tokio::test]
async fn a_report_on_a_version_that_the_store_lost_changes_nothing_of_the_version_with_its_number() {
    let fleet = Fleet::new().await;
    let standby = standby_of(&fleet).await;
    let id = fleet.add("http://a.example/feed").await;
    assert_eq!(standby.add("http://a.example/feed").await, id);
    let job = fleet.dispatched().await.remove(0);
    fleet.settle(report(&job, fleet.clock.now(), not_modified())).await;
    fleet.clock.advance(Duration::from_secs(24 * 3600));
    let unanswered = fleet.dispatched().await.remove(0);

    // The standby never heard of the first poll, and repeats it.
    fleet.clock.advance(Duration::from_secs(30));
    let job = standby.dispatched().await.remove(0);
    standby.settle(report(&job, fleet.clock.now(), not_modified())).await;
    let before = standby.feed(id).await;
    assert_eq!(before.version, unanswered.version);
    standby.settle(report(&unanswered, fleet.clock.now(), Outcome::Gone)).await;
    assert_eq!(standby.feed(id).await, before);
}

#[tokio::test]
async fn a_feed_that_was_polled_while_the_clock_was_ahead_is_polled_as_ever_once_it_is_right() {
    let ahead = Fleet::new().await;
    let right = ahead.clock.now().after(Duration::from_secs(10));
    let id = ahead.add("http://a.example/feed").await;
    let polled = ahead.clock.advance(Duration::from_secs(3600));
    let job = ahead.dispatched().await.remove(0);
    ahead.settle(report(&job, polled, not_modified())).await;
    assert_eq!(ahead.feed(id).await.state.last_polled, Some(polled));

    let clock = Arc::new(ManualClock::new(right));
    let fleet = Fleet::over(config(), ahead.ops.store.clone(), clock, Timestamp::EPOCH).await;
    assert_eq!(fleet.ops.wake(&[id]).await.unwrap(), 1);
    let job = fleet.dispatched().await.remove(0);
    fleet.settle(report(&job, right, not_modified())).await;
    let feed = fleet.feed(id).await;
    assert_eq!((feed.version.0, feed.state.last_polled), (job.version.0 + 1, Some(right)));
    assert_eq!(fleet.ops.metrics.stale_reports.get(), 0);
}

#[tokio::test]
async fn schedulers_believe_each_others_jobs_although_the_store_has_lost_the_key_of_one() {
    let config = config();
    let (failed, promoted) =
        (SqliteStore::open(":memory:").await.unwrap(), SqliteStore::open(":memory:").await.unwrap());
    let (old, new) = (JobProofs::new(&config), JobProofs::new(&config));
    let now = common::time::SystemClock.now();
    let job = |feed, epochs| FetchJob {
        epochs,
        expires: now.after(Duration::from_secs(60)),
        ..common::queue::conformance::job(feed)
    };
    let (mut lost, mut known, mut others) = ([job(1, 0)], [job(2, 1)], [job(3, 1)]);
    old.sign(&mut lost, &failed, now).await.unwrap();
    // A scheduler that begins after the failover finds no key.
    new.sign(&mut others, &promoted, now).await.unwrap();
    old.sign(&mut known, &promoted, now).await.unwrap();

    let later = now.after(Duration::from_secs(2));
    for proofs in [&old, &new] {
        let mut reports: Vec<_> = [&lost, &known, &others]
            .map(|jobs| report(&jobs[0], now.after(Duration::from_secs(1)), not_modified()))
            .into();
        proofs.keep(&mut reports, &promoted, &Metrics::new(), later).await.unwrap();
        assert_eq!(reports.iter().map(|report| report.feed.0).collect::<Vec<_>>(), [1, 2, 3]);
    }
}

#[tokio::test]
async fn a_hold_of_a_stale_report_outlives_the_gate() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/feed").await;
    let job = fleet.dispatched().await.remove(0);
    fleet.settle(report(&job, fleet.clock.now(), not_modified())).await;
    let until = fleet.clock.now().after(Duration::from_secs(900));
    let throttled = Outcome::Throttled { retry_after: Some(until) };
    fleet.settle(report(&job, fleet.clock.now(), throttled)).await;
    assert_eq!(fleet.ops.metrics.stale_reports.get(), 1);
    let held = fleet.ops.store.holds(fleet.clock.now()).await.unwrap();
    assert_eq!(held, [(fleet.feed(id).await.host, until)]);
}

#[tokio::test]
async fn a_hold_of_a_report_outlives_the_gate_although_its_feed_was_erased() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/feed").await;
    let host = fleet.feed(id).await.host;
    let job = fleet.dispatched().await.remove(0);
    assert!(fleet.ops.erase(id).await.unwrap());
    let until = fleet.clock.now().after(Duration::from_secs(900));
    fleet.settle(report(&job, fleet.clock.now(), Outcome::Throttled { retry_after: Some(until) })).await;
    assert_eq!(fleet.ops.store.holds(fleet.clock.now()).await.unwrap(), [(host, until)]);
}

#[tokio::test]
async fn a_hold_of_a_report_outlives_the_gate_although_its_feed_changed_while_it_was_decided_on() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/feed").await;
    let job = fleet.dispatched().await.remove(0);
    let (before, now) = (fleet.feed(id).await, fleet.clock.now());
    let until = now.after(Duration::from_secs(900));
    let report = report(&job, now, Outcome::Throttled { retry_after: Some(until) });
    let verdict = fleet.results.judge(&before, report, now);
    let pause = store::FeedChange { status: Some(Status::Paused), ..Default::default() };
    fleet.ops.store.change_feed(id, &pause, now).await.unwrap();
    let host = before.host.clone();
    fleet.results.store_verdicts(vec![verdict], &[(id, before)].into(), now).await.unwrap();
    assert_eq!(fleet.ops.store.holds(now).await.unwrap(), [(host, until)]);
}

/// Returns the report of a worker to which the host says that its limit of requests is used up.
fn limited(report: FetchReport, until: Timestamp) -> FetchReport {
    FetchReport { retry_after: Some(until), limited_until: Some(until), ..report }
}

#[tokio::test]
async fn a_hold_for_a_used_up_limit_that_came_with_a_good_answer_outlives_the_gate() {
    let fleet = Fleet::new().await;
    let ids = [fleet.add("http://a.example/1").await, fleet.add("http://a.example/2").await];
    let job = fleet.dispatched().await.remove(0);
    let waits = if job.feed == ids[0] { ids[1] } else { ids[0] };
    let now = fleet.clock.now();
    let until = now.after(Duration::from_secs(600));
    fleet.settle(limited(report(&job, now, not_modified()), until)).await;
    let polled = fleet.feed(job.feed).await;
    assert_eq!((polled.version.0, polled.state.throttles), (job.version.0 + 1, 0));
    assert_eq!(fleet.ops.store.holds(now).await.unwrap(), [(polled.host.clone(), until)]);
    assert_eq!(fleet.ops.gate.held(now).await.unwrap(), 1);

    let fleet = fleet.restart().await;
    assert_eq!(fleet.ops.gate.held(now).await.unwrap(), 1);
    fleet.clock.advance(Duration::from_secs(599));
    assert!(is_held(&fleet, polled.host.as_str()).await);
    assert!(fleet.dispatched().await.is_empty());
    fleet.clock.advance(Duration::from_secs(1));
    assert_eq!(fleet.dispatched_ids().await, [waits]);
}

#[tokio::test]
async fn a_used_up_limit_holds_its_feed_in_full_and_its_host_for_an_hour() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/feed").await;
    let job = fleet.dispatched().await.remove(0);
    let now = fleet.clock.now();
    let until = now.after(Duration::from_secs(20 * 3600));
    fleet.settle(limited(report(&job, now, not_modified()), until)).await;
    let feed = fleet.feed(id).await;
    assert!(feed.next_due >= Some(until), "{feed:?}");
    assert_eq!(fleet.ops.store.holds(now).await.unwrap(), [(feed.host, now.after(Duration::from_secs(3600)))]);
}

#[tokio::test]
async fn a_hold_for_a_used_up_limit_is_on_the_gate_as_soon_as_its_report_is_taken() {
    let fleet = Fleet::new().await;
    fleet.add("http://a.example/feed").await;
    let job = fleet.dispatched().await.remove(0);
    let now = fleet.clock.now();
    let report = limited(report(&job, now, not_modified()), now.after(Duration::from_secs(900)));
    fleet.results.hold_hosts(std::iter::once(&report), now).await.unwrap();
    assert_eq!(fleet.ops.gate.held(now).await.unwrap(), 1);
}
