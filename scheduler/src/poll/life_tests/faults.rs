//! Calls that fail in the middle of a round.

use common::document::Document;
use common::entry::Entry;
use common::faults::{Fault, Faults, Faulty};
use common::host_gate::HostGate;
use common::last_error::ErrorKind;
use common::queue::{Delivery, QueueDepth, QueueError};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::ops::pings::Pings;
use crate::ops::{AudienceEdit, EditFeed};
use crate::poll::dispatch::sort;
use crate::schedule::{Band, Claim, Slot};

#[tokio::test]
async fn jobs_that_are_in_the_queue_stay_hidden_when_others_of_their_round_could_not_be_published() {
    let mut fleet = Fleet::new().await;
    let batch = fleet.dispatcher.config.worker.job_batch;
    let mut feeds = Vec::new();
    for n in 0..batch + 3 {
        feeds.push(fleet.add(&format!("https://h{n}.org/feed")).await);
    }
    // The queue's depth is requested first, then come the messages.
    let faults = Faults::at([(2, Fault::Before)]);
    let queue: Arc<dyn Queue<FetchJob>> = fleet.jobs.clone();
    fleet.dispatcher.jobs = Arc::new(Faulty::new(queue, &faults));
    fleet.dispatcher.round(fleet.clock.now(), usize::MAX).await.unwrap_err();
    assert_eq!(faults.struck().len(), 1);
    let published = fleet.jobs.receive().await.unwrap();
    let hidden: Vec<FeedId> = published.items.iter().map(|job| job.feed).collect();
    assert_eq!(hidden.len(), batch);
    published.ack().await.unwrap();
    // The claims of those that were not published end soon, and theirs alone.
    fleet.clock.advance(fleet.dispatcher.config.scheduler.claim_lease + GAP);
    let mut again = fleet.dispatched_ids().await;
    again.sort_unstable();
    feeds.retain(|feed| !hidden.contains(feed));
    assert_eq!(again, feeds);
}

#[tokio::test]
async fn a_late_report_does_not_put_off_a_feed_that_a_person_has_just_wanted_polled() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/feed").await;
    let first = &fleet.dispatched().await[0];
    let report = fleet.work(first, not_modified()).await;
    fleet.settle(report).await;
    let next = fleet.feed(id).await.next_due.unwrap();
    fleet.clock.advance(next.since(fleet.clock.now()));
    let second = &fleet.dispatched().await[0];
    let late = fleet.work(second, not_modified()).await;
    fleet.clock.advance(GAP);
    let pause = store::FeedChange { status: Some(Status::Paused), ..Default::default() };
    fleet.ops.store.change_feed(id, &pause, fleet.clock.now()).await.unwrap();
    let resume = EditFeed { status: Some(Status::Active), ..EditFeed::default() };
    fleet.ops.edit(id, &resume).await.unwrap();
    fleet.settle(late).await;
    // The lease of the fetch before ends.
    fleet.clock.advance(Duration::from_secs(120));
    assert_eq!(fleet.dispatched_ids().await, [id]);
}

#[tokio::test]
async fn a_feed_that_one_round_claims_twice_is_due_once_and_not_put_off() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/feed").await;
    let rows = fleet.ops.store.jobs_for(&[id]).await.unwrap();
    let claim = |lease_expired| Claim { feed: id, parked_at: None, lease_expired };
    let sorted = sort(vec![claim(false), claim(true)], rows, fleet.clock.now());
    // One that counts as dead and is live is taken for unreadable, and waits for ten minutes.
    assert_eq!((sorted.dead.len(), sorted.early.len(), sorted.due.len()), (0, 0, 1));
}

#[tokio::test]
async fn only_a_stored_report_counts_as_progress() {
    let fleet = Fleet::new().await;
    fleet.add("http://a.example/feed").await;
    let job = &fleet.dispatched().await[0];
    let watchdog = &fleet.results.condition.watchdog;
    std::thread::sleep(Duration::from_millis(1));
    assert!(watchdog.judge(GAP, Duration::from_nanos(1)));
    let report = fleet.work(job, not_modified()).await;
    let stale = FetchReport { version: Version(99), ..report.clone() };
    let deferred = FetchReport { outcome: Outcome::Deferred { until: fleet.clock.now() }, ..report.clone() };
    for useless in [stale, deferred] {
        fleet.settle(useless).await;
        assert!(watchdog.alarm().is_some());
    }
    fleet.settle(report).await;
    assert_eq!(watchdog.alarm(), None);
}

#[tokio::test]
async fn stored_holds_that_the_gate_did_not_take_are_loaded_a_second_later() {
    let mut fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/feed").await;
    let until = fleet.clock.now().after(Duration::from_secs(3600));
    polled(&fleet, Outcome::Throttled { retry_after: Some(until) }).await;
    assert!(fleet.feed(id).await.next_due >= Some(until));
    // The gate forgot its state while it was open. The first call checks whether it is open, the second checks that
    // again, and the third loads.
    let forgetful: Arc<dyn HostGate> = Arc::new(MemoryGate::new(Timestamp::EPOCH));
    forgetful.open_new(fleet.clock.now()).await.unwrap();
    let faults = Faults::at([(2, Fault::Before)]);
    fleet.reconciler.gate = Arc::new(Faulty::new(forgetful.clone(), &faults));
    let stop = CancellationToken::new();
    let watched = async {
        while faults.calls() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // The clock is stopped from then on: there is no next minute.
        let now = fleet.clock.advance(Duration::from_secs(61));
        while forgetful.held(now).await.unwrap() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stop.cancel();
    };
    let both = async { tokio::join!(fleet.reconciler.run(&*fleet.clock, &stop), watched) };
    tokio::time::timeout(Duration::from_secs(120), both).await.expect("the hold is loaded");
    assert_eq!(faults.struck(), [(2, "hold", Fault::Before)]);
}

#[tokio::test]
async fn a_job_that_expired_hides_its_feed_no_longer_than_workers_report_it() {
    let mut config = config();
    config.policy.category.a.interval = Duration::from_secs(20);
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
    let store = Arc::new(SqliteStore::open("sqlite::memory:").await.unwrap());
    let fleet = Fleet::over(config, store, clock, Timestamp::EPOCH).await;
    let (urgent, steady) = (fleet.add("http://a.example/").await, fleet.add("http://b.example/").await);
    let sla = EditFeed {
        audience: AudienceEdit::between(Audience::default(), Audience { sla: true, ..Audience::default() }),
        ..EditFeed::default()
    };
    fleet.ops.edit(urgent, &sla).await.unwrap().unwrap();
    let jobs = fleet.dispatched().await;
    let dropped = |feed| {
        let job = jobs.iter().find(|job| job.feed == feed).unwrap();
        job.expires.after(fleet.ops.config.scheduler.fetch_lease)
    };
    assert!(dropped(urgent) < dropped(steady));
    for feed in [urgent, steady] {
        let left = dropped(feed).since(fleet.clock.now());
        fleet.clock.advance(left - Duration::from_millis(1));
        assert!(!fleet.dispatched_ids().await.contains(&feed), "a worker may report it yet");
        fleet.clock.advance(Duration::from_millis(1));
        assert!(fleet.dispatched_ids().await.contains(&feed), "no worker reports it any more");
    }
}

/// Polls a feed that is due and settles this outcome.
async fn polled(fleet: &Fleet, outcome: Outcome) {
    let jobs = fleet.dispatched().await;
    assert_eq!(jobs.len(), 1);
    let report = fleet.work(&jobs[0], outcome).await;
    fleet.settle(report).await;
}

#[tokio::test]
async fn a_ping_has_a_feed_that_is_gone_polled_once_and_a_good_answer_brings_it_back() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/feed").await;
    polled(&fleet, Outcome::Gone).await;
    let pings = Pings::new(fleet.ops.clone());
    let url = fleet.feed(id).await.url;
    let minute = Duration::from_secs(60);
    let day = 24 * 60 * minute;
    let mut tries = 0;
    // Pinged all day long, every ten minutes.
    for _ in 0..144 {
        fleet.clock.advance(10 * minute);
        assert!(pings.ping(std::slice::from_ref(&url)).await.unwrap());
        fleet.clock.advance(minute);
        let jobs = fleet.dispatched().await;
        tries += jobs.len();
        for job in jobs {
            let report = fleet.work(&job, Outcome::Gone).await;
            fleet.settle(report).await;
            assert_eq!(fleet.feed(id).await.due(), None, "the try is spent");
        }
        assert_eq!(fleet.feed(id).await.status, Status::Gone);
    }
    assert!((5..=11).contains(&tries), "{tries} polls of a dead feed, each wait twice the one before");
    let events = fleet.ops.store.events(0, 100).await.unwrap().items;
    let gone = events.iter().filter(|event| event.kind == "feed.gone").count();
    assert_eq!((gone, events.len()), (1, 2), "one event that it was added, one that it is gone");

    fleet.clock.advance(2 * day);
    pings.ping(&[url]).await.unwrap();
    // A schedule without memory has it too.
    fleet.ops.schedule.remove(&[id]).await.unwrap();
    fleet.reconciler.schedule_once(&*fleet.clock).await.unwrap();
    fleet.clock.advance(minute);
    polled(&fleet, not_modified()).await;
    let back = fleet.feed(id).await;
    assert_eq!((back.status, back.due().is_some()), (Status::Active, true));
}

#[tokio::test]
async fn a_try_that_meets_our_own_fault_is_not_spent() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/feed").await;
    polled(&fleet, Outcome::Gone).await;
    let mut well = Vec::new();
    for host in ["b", "c", "d"] {
        well.push(fleet.add(&format!("http://{host}.example/feed")).await);
        polled(&fleet, not_modified()).await;
    }
    fleet.clock.advance(Duration::from_secs(120));
    Pings::new(fleet.ops.clone()).ping(&[fleet.feed(id).await.url]).await.unwrap();
    fleet.clock.advance(Duration::from_secs(60));
    let jobs = fleet.dispatched().await;
    let unreachable = Outcome::Failed { failure: FailureKind::Connect, detail: String::new() };
    let report = fleet.work(&jobs[0], unreachable.clone()).await;
    // Three hosts that were well fail first.
    fleet.ops.wake(&well).await.unwrap();
    for job in fleet.dispatched().await {
        let report = fleet.work(&job, unreachable.clone()).await;
        fleet.settle(report).await;
    }
    assert!(fleet.results.condition.our_fault.since().is_some());
    fleet.settle(report).await;
    assert!(fleet.feed(id).await.wake_at.is_some());
    fleet.clock.advance(Duration::from_secs(600));
    assert!(fleet.dispatched_ids().await.contains(&id));
}

#[tokio::test]
async fn what_a_clock_that_was_ahead_planned_is_brought_forward_once_it_is_right() {
    let (fleet, minute) = (Fleet::new().await, Duration::from_secs(60));
    let right = fleet.clock.now();
    fleet.clock.advance(20 * 24 * 60 * minute);
    let [polled, new] = [fleet.add("http://a.example/").await, fleet.add("http://b.example/").await];
    let jobs = fleet.dispatched().await;
    let job = jobs.iter().find(|job| job.feed == polled).unwrap();
    let report = fleet.work(job, not_modified()).await;
    let last = report.started;
    fleet.settle(report).await;
    let interval = fleet.feed(polled).await.next_due.unwrap().since(last);

    let clock = Arc::new(ManualClock::new(right));
    let fleet = Fleet::over(config(), fleet.ops.store.clone(), clock, right).await;
    let wake = async |id| fleet.feed(id).await.wake_at;
    assert!(fleet.dispatched().await.is_empty());
    fleet.reconciler.schedule_once(&*fleet.clock).await.unwrap();
    let at = wake(polled).await.unwrap();
    assert!(at >= right.after(interval) && at <= right.after(interval + minute), "{at}: the interval is kept");
    fleet.clock.advance(minute);
    assert_eq!(fleet.dispatched_ids().await, [new], "never polled: at once");
    fleet.reconciler.schedule_once(&*fleet.clock).await.unwrap();
    assert_eq!(wake(polled).await, Some(at), "and not again and again");
    fleet.clock.advance(interval);
    assert!(fleet.dispatched_ids().await.contains(&polled));
}

#[tokio::test]
async fn a_report_that_the_database_refuses_counts_as_malformed_and_keeps_no_other_from_being_stored() {
    for refused_first in [false, true] {
        let (fleet, file, _folder) = Fleet::over_a_file().await;
        let [good, refused] = [fleet.add("http://a.example/").await, fleet.add("http://b.example/").await];
        let refuses = "CREATE TRIGGER refuses BEFORE INSERT ON entries WHEN new.title = 'refused' \
                       BEGIN SELECT raise(ABORT, 'refused'); END;";
        file.execute_batch(refuses).unwrap();
        let mut batch = Vec::new();
        for job in fleet.dispatched().await {
            let title = if job.feed == refused { "refused" } else { "good" };
            let entry = Entry { id: "1".into(), title: Some(title.into()), ..Entry::default() };
            let document = Document { entries: vec![entry], new_entries: 1, all_entries: 1, ..Document::default() };
            batch.push(fleet.work(&job, Outcome::Modified(Box::new(document))).await);
        }
        batch.sort_by_key(|report| (report.feed == refused) != refused_first);
        assert_eq!(fleet.results.settle(batch, fleet.clock.now()).await.unwrap(), []);
        assert_eq!((fleet.feed(good).await.entries, fleet.feed(refused).await.entries), (1, 0));
        let error = fleet.feed(refused).await.last_error.unwrap();
        assert_eq!(error.kind, ErrorKind::Failed(FailureKind::Malformed));
        assert_eq!(error.detail, "the store refused this feed's content");
    }
}

#[tokio::test]
async fn only_hosts_that_were_well_and_give_no_answer_show_that_the_fault_is_ours() {
    let unreachable = || Outcome::Failed { failure: FailureKind::Connect, detail: String::new() };
    let fleet = Fleet::new().await;
    for name in ["a", "b", "c"] {
        fleet.add(&format!("http://{name}.example/feed")).await;
        polled(&fleet, unreachable()).await;
    }
    assert_eq!(fleet.results.condition.our_fault.since(), None, "they never answered");

    let fleet = Fleet::new().await;
    let ours = &fleet.results.condition.our_fault;
    let woken = async |names: [&str; 3]| {
        let mut ids = Vec::new();
        for name in names {
            ids.push(fleet.add(&format!("http://{name}.example/feed")).await);
            polled(&fleet, not_modified()).await;
        }
        fleet.clock.advance(Duration::from_secs(120));
        fleet.ops.wake(&ids).await.unwrap();
        fleet.dispatched().await
    };
    for job in woken(["a", "b", "c"]).await {
        let missing = Outcome::Failed { failure: FailureKind::Status, detail: "HTTP 404".into() };
        let report = fleet.work(&job, missing).await;
        fleet.settle(FetchReport { http_status: Some(404), ..report }).await;
    }
    assert_eq!(ours.since(), None, "they answer");
    for job in woken(["d", "e", "f"]).await {
        let report = fleet.work(&job, unreachable()).await;
        fleet.settle(report).await;
    }
    assert!(ours.since().is_some());
    for name in ["g", "h", "i", "j"] {
        fleet.add(&format!("http://{name}.example/feed")).await;
    }
    for job in fleet.dispatched().await {
        let until = fleet.clock.now().after(GAP);
        fleet.settle(report(&job, fleet.clock.now(), Outcome::Deferred { until })).await;
    }
    assert!(ours.since().is_some(), "nobody was requested");
}

/// A queue whose depth is known only after this time.
struct Slow(Arc<dyn Queue<FetchJob>>, Arc<ManualClock>, Duration);

#[async_trait::async_trait]
impl Queue<FetchJob> for Slow {
    async fn publish(&self, items: &[FetchJob]) -> Result<(), QueueError> {
        self.0.publish(items).await
    }

    async fn receive(&self) -> Result<Delivery<FetchJob>, QueueError> {
        self.0.receive().await
    }

    async fn pause(&self) {
        self.0.pause().await;
    }

    async fn depth(&self) -> Result<QueueDepth, QueueError> {
        self.1.advance(self.2);
        self.0.depth().await
    }

    async fn check(&self) -> Result<(), QueueError> {
        self.0.check().await
    }
}

#[tokio::test]
async fn a_queue_that_answers_slowly_makes_no_claim_late() {
    let mut fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/feed").await;
    let (now, slow) = (fleet.clock.now(), Duration::from_secs(3));
    let later = Slot { feed: id, due_at: now.after(slow), band: Band::Urgent };
    fleet.ops.schedule.put_off(&[later], now).await.unwrap();
    fleet.dispatcher.jobs = Arc::new(Slow(fleet.jobs.clone(), fleet.clock.clone(), slow));
    let round = fleet.dispatcher.round_on_time(&*fleet.clock, usize::MAX).await.unwrap();
    assert_eq!(round.published, 1, "the claim is made with the time of its call");
}

#[tokio::test]
async fn a_late_report_does_not_put_off_a_feed_that_was_wanted_after_it_was_stored() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/feed").await;
    let report = fleet.work(&fleet.dispatched().await[0], not_modified()).await;
    fleet.settle(report).await;
    let proven = fleet.feed(id).await;
    fleet.clock.advance(Duration::from_secs(60));
    fleet.ops.wake(&[id]).await.unwrap();
    fleet.results.put_off(&[proven], fleet.clock.now()).await.unwrap();
    assert_eq!(fleet.dispatched_ids().await, [id]);
}

#[tokio::test]
async fn a_delivery_that_the_database_refuses_has_its_feed_polled_and_keeps_no_other_from_being_stored() {
    for refused_first in [false, true] {
        let (fleet, file, _folder) = Fleet::over_a_file().await;
        let [good, refused] = [fleet.add("http://a.example/").await, fleet.add("http://b.example/").await];
        for job in fleet.dispatched().await {
            fleet.settle(fleet.work(&job, not_modified()).await).await;
        }
        let refuses = format!(
            "CREATE TRIGGER refuses BEFORE INSERT ON entries WHEN new.feed_id = {refused} \
             BEGIN SELECT raise(ABORT, 'refused'); END;"
        );
        file.execute_batch(&refuses).unwrap();
        let mut batch = Vec::new();
        for (id, entry) in [(good, "1"), (refused, "1"), (good, "2")] {
            let feed = fleet.feed(id).await;
            let entry = Entry { id: entry.into(), title: Some(entry.into()), ..Entry::default() };
            let document = Document { entries: vec![entry], new_entries: 1, all_entries: 1, ..Document::default() };
            let outcome = Outcome::Modified(Box::new(document));
            let report = FetchReport::of(id, feed.version, feed.host, fleet.clock.now(), outcome);
            batch.push(FetchReport { pushed: true, ..report });
        }
        batch.sort_by_key(|report| (report.feed == refused) != refused_first);
        assert_eq!(fleet.results.settle(batch, fleet.clock.now()).await.unwrap(), []);
        let (good, refused) = (fleet.feed(good).await, fleet.feed(refused).await);
        assert_eq!((good.entries, good.wake_at), (2, None), "of both deliveries");
        assert!(refused.entries == 0 && refused.wake_at.is_some());
    }
}

#[tokio::test]
async fn a_round_is_followed_at_once_only_if_more_may_be_due() {
    let fleet = Fleet::new().await;
    let scheduler = &fleet.dispatcher.config.scheduler;
    let wait = |claimed: usize, queue_full: bool| {
        fleet.dispatcher.wait_after(Round { claimed, published: claimed, queue_full })
    };
    assert_eq!(wait(scheduler.claim_batch, false), Duration::ZERO);
    assert_eq!(wait(scheduler.claim_batch - 1, true), scheduler.tick / 10);
    assert_eq!(wait(scheduler.claim_batch - 1, false), scheduler.tick);
}

#[tokio::test]
async fn a_job_of_category_a_is_not_started_after_half_its_interval() {
    let mut config = config();
    config.policy.category.a.interval = Duration::from_secs(100);
    config.scheduler.queue_lease = Duration::from_secs(70);
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
    let store = Arc::new(SqliteStore::open("sqlite::memory:").await.unwrap());
    let fleet = Fleet::over(config, store, clock, Timestamp::EPOCH).await;
    let audience = Audience { sla: true, ..Audience::default() };
    let promised = AddFeed { audience, ..AddFeed::of("http://a.example/".parse().unwrap()) };
    fleet.ops.add(&[promised], None).await.unwrap();
    fleet.add("http://b.example/").await;
    let mut waits: Vec<_> =
        fleet.dispatched().await.iter().map(|job| job.expires.since(fleet.clock.now()).as_secs()).collect();
    waits.sort_unstable();
    assert_eq!(waits, [50, 70]);
}

#[tokio::test]
async fn a_process_that_runs_once_polls_what_is_overdue_in_hot_minutes_too() {
    for any_minute in [false, true] {
        let mut config = config();
        config.policy.hot_minutes = true;
        let hour = Timestamp::from_millis(497_223 * 3_600_000);
        let clock = Arc::new(ManualClock::new(hour.before(Duration::from_secs(17 * 60))));
        let store = Arc::new(SqliteStore::open("sqlite::memory:").await.unwrap());
        let mut fleet = Fleet::over(config, store, clock, Timestamp::EPOCH).await;
        fleet.dispatcher.any_minute = any_minute;
        let id = fleet.add("http://a.example/").await;
        let job = fleet.dispatched().await.remove(0);
        let mut document = Document { entries: vec![Entry::default()], all_entries: 1, ..Document::default() };
        document.validators.etag = Some("\"1\"".into());
        fleet.settle(fleet.work(&job, Outcome::Modified(Box::new(document))).await).await;
        fleet.clock.advance(hour.after(Duration::from_secs(86_410)).since(fleet.clock.now()));
        let expected = if any_minute { vec![id] } else { Vec::new() };
        assert_eq!(fleet.dispatched_ids().await, expected);
    }
}

#[tokio::test]
async fn a_list_that_is_added_at_once_revives_nothing_that_ended_and_an_edit_nothing_that_was_merged() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/").await;
    let job = fleet.dispatched().await.remove(0);
    fleet.settle(fleet.work(&job, Outcome::Gone).await).await;
    assert_eq!(fleet.feed(id).await.status, Status::Gone);
    let feed = [AddFeed::of("http://a.example/".parse().unwrap())];
    let known = &fleet.ops.add_list_at_once(&feed).await.unwrap()[0];
    assert_eq!((known.id, known.new, known.revived, fleet.feed(id).await.status), (id, false, false, Status::Gone));
    for status in [Status::Active, Status::Paused] {
        let edit = EditFeed { status: Some(status), ..EditFeed::default() };
        assert_eq!(fleet.ops.edit(id, &edit).await.unwrap().unwrap().status, Status::Gone, "nothing changes");
    }
    assert!(fleet.ops.add(&feed, None).await.unwrap()[0].revived, "a person adds it");
}
