//! Hosts that refuse us: one signal and one rest for the host in place of a penalty box for each feed. Hosts with soft statuses.

use std::collections::BTreeMap;

use common::host::HostKey;
use common::host::HostRule;

use super::*;
use crate::ops;
use crate::poll::refusals::{begin_owed, owe_requeues};

const HOUR: Duration = Duration::from_secs(3600);
const STEP: Duration = Duration::from_secs(60);

fn answered(status: Option<u16>) -> (Outcome, Option<u16>) {
    match status {
        None => (not_modified(), Some(304)),
        Some(status) => {
            let failure = FailureKind::Status;
            (Outcome::Failed { failure, detail: format!("HTTP {status}") }, Some(status))
        }
    }
}

impl Fleet {
    /// Polls what is due, a minute at a time, and gives each feed the status that `says` returns. Returns the number of
    /// requests.
    async fn live(&self, span: Duration, says: impl Fn(FeedId) -> Option<u16>) -> usize {
        self.live_with(span, false, says).await
    }

    /// The same, with workers that can sign requests or cannot.
    async fn live_with(&self, span: Duration, can_sign: bool, says: impl Fn(FeedId) -> Option<u16>) -> usize {
        let end = self.clock.now().after(span);
        let mut requests = 0;
        while self.clock.now() < end {
            for job in self.dispatched().await {
                let (outcome, http_status) = answered(says(job.feed));
                let wants_signature = can_sign && !job.signed && http_status == Some(403);
                let report = FetchReport { http_status, wants_signature, ..self.work(&job, outcome).await };
                requests += 1;
                self.settle(report).await;
            }
            self.clock.advance(STEP);
        }
        requests
    }

    /// Polls one feed that is due, and another one 5 hours later: both get a page against robots.
    async fn meet_two_pages(&self) {
        for _ in 0..2 {
            let job = self.dispatched().await.remove(0);
            let outcome = Outcome::Failed { failure: FailureKind::Blocked, detail: "a check".into() };
            let report = FetchReport { http_status: Some(403), ..self.work(&job, outcome).await };
            self.settle(report).await;
            self.clock.advance(5 * HOUR);
        }
    }

    async fn feeds_at(&self, host: &str, count: usize) -> Vec<FeedId> {
        let mut ids = Vec::new();
        for n in 0..count {
            ids.push(self.add(&format!("https://{host}/{n}")).await);
        }
        ids
    }

    async fn boxed(&self, ids: &[FeedId]) -> usize {
        let mut boxed = 0;
        for id in ids {
            boxed += usize::from(self.feed(*id).await.state.penalty.is_some());
        }
        boxed
    }

    /// Returns how often each kind of event was published.
    async fn events(&self) -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        for event in self.ops.store.events(0, 1000).await.unwrap().items {
            *kinds.entry(event.kind).or_default() += 1;
        }
        kinds
    }
}

#[tokio::test]
async fn a_host_that_refuses_all_of_its_feeds_rests_as_a_whole_until_it_answers_again() {
    let fleet = Fleet::new().await;
    let ids = fleet.feeds_at("wall.example", 20).await;
    fleet.live(HOUR, |_| None).await;
    let requests = fleet.live(72 * HOUR, |_| Some(403)).await;
    let kinds = fleet.events().await;
    assert_eq!((kinds.get("host.refusing"), kinds.get("feed.penalised")), (Some(&1), Some(&2)), "{kinds:?}");
    assert_eq!(fleet.boxed(&ids).await, 2, "those that showed it");
    // The first three, then one or two after each rest of 1, 2, 4, 8, 16 and 24 h; feed by feed it would be 60.
    assert!((6..=16).contains(&requests), "{requests} requests in three days");
    let host = HostKey::new("wall.example:443");
    let refusal = fleet.ops.condition.refusals.of(&host).unwrap();
    assert_eq!((refusal.status, fleet.ops.store.holds(fleet.clock.now()).await.unwrap().len()), (Some(403), 1));
    assert_eq!(fleet.results.metrics.hosts_refusing.get(), 1);

    let fleet = fleet.restart().await;
    assert!(fleet.ops.condition.refusals.of(&host).is_some(), "a restart does not forget it");
    fleet.live(48 * HOUR, |_| None).await;
    let kinds = fleet.events().await;
    assert_eq!((kinds.get("host.refusing"), kinds.get("host.recovered")), (Some(&1), Some(&1)), "{kinds:?}");
    assert!(fleet.ops.condition.refusals.of(&host).is_none());
    assert_eq!((fleet.boxed(&ids).await, kinds.get("feed.recovered")), (0, Some(&2)));
    let requeues = fleet.ops.store.requeues(true).await.unwrap();
    assert!(requeues.iter().all(|requeue| requeue.by == "host.recovered") && !requeues.is_empty());
}

#[tokio::test]
async fn only_the_feeds_that_a_host_refused_are_polled_again_when_it_answers() {
    let fleet = Fleet::new().await;
    let ids = fleet.feeds_at("wall.example", 10).await;
    let missing = ids[9];
    fleet.live(HOUR, |id| (id == missing).then_some(404)).await;
    fleet.live(24 * HOUR, |id| Some(if id == missing { 404 } else { 403 })).await;
    let host = HostKey::new("wall.example:443");
    let mut refused = 0;
    while fleet.ops.condition.refusals.of(&host).is_some() {
        refused = 0;
        for id in &ids {
            let status = fleet.feed(*id).await.last_error.and_then(|error| error.status);
            refused += u64::from(status == Some(403));
        }
        fleet.live(STEP, |id| (id == missing).then_some(404)).await;
    }
    let requeues = fleet.ops.store.requeues(false).await.unwrap();
    let matched: u64 = requeues.iter().map(|requeue| requeue.matched).sum();
    // The report of the feed that was read is stored after that.
    assert_eq!((matched, fleet.feed(missing).await.state.penalty.is_some()), (refused, true));
    assert!(refused > 1);
}

#[tokio::test]
async fn a_fleet_that_can_sign_requests_sees_a_host_that_refuses_it_too() {
    let fleet = Fleet::new().await;
    let ids = fleet.feeds_at("wall.example", 20).await;
    fleet.live(HOUR, |_| None).await;
    fleet.live_with(72 * HOUR, true, |_| Some(403)).await;
    let kinds = fleet.events().await;
    assert_eq!(kinds.get("host.refusing"), Some(&1), "{kinds:?}");
    assert!(fleet.boxed(&ids).await <= 3, "{kinds:?}");
    fleet.live_with(48 * HOUR, true, |_| None).await;
    assert_eq!((fleet.events().await.get("host.recovered"), fleet.boxed(&ids).await), (Some(&1), 0));
}

#[tokio::test]
async fn a_page_against_robots_speaks_for_the_host_sooner() {
    let fleet = Fleet::new().await;
    let ids = fleet.feeds_at("wall.example", 3).await;
    fleet.meet_two_pages().await;
    assert_eq!(fleet.events().await.get("host.refusing"), Some(&1));
    assert_eq!(fleet.boxed(&ids).await, 1, "the second one shows that it is the host");
}

#[tokio::test]
async fn a_few_forbidden_feeds_among_others_are_penalised_one_by_one() {
    let fleet = Fleet::new().await;
    let ids = fleet.feeds_at("mixed.example", 12).await;
    fleet.live(72 * HOUR, |id| (id.0 % 3 == 0).then_some(403)).await;
    let kinds = fleet.events().await;
    assert_eq!((kinds.get("host.refusing"), kinds.get("feed.penalised")), (None, Some(&4)), "{kinds:?}");
    assert_eq!(fleet.boxed(&ids).await, 4);
}

#[tokio::test]
async fn a_soft_status_of_all_feeds_of_a_host_never_reaches_the_box_for_as_long_as_the_rule_says() {
    let fleet = Fleet::new().await;
    let rule = |host: &str| HostRule {
        r#match: host.into(),
        soft_statuses: vec![404],
        soft_for: Some(30 * HOUR),
        reason: "a test".into(),
        ..HostRule::default()
    };
    for host in ["soft.example", "alone.example"] {
        ops::hosts::set_rule(&fleet.ops, &rule(host)).await.unwrap();
    }
    let ids = fleet.feeds_at("soft.example", 8).await;
    let alone = fleet.feeds_at("alone.example", 1).await;
    fleet.live(HOUR, |_| None).await;
    // Half a day until all were polled, and 24 hours of it.
    fleet.live(36 * HOUR, |_| Some(404)).await;
    assert_eq!((fleet.boxed(&ids).await, fleet.boxed(&alone).await), (0, 1));
    assert!(fleet.feed(ids[0]).await.state.consecutive_failures > 6);
    fleet.live(48 * HOUR, |_| Some(404)).await;
    assert_eq!(fleet.boxed(&ids).await, 8, "longer than the rule says");
}

#[tokio::test]
async fn a_403_that_an_operator_calls_soft_is_no_refusal() {
    let fleet = Fleet::new().await;
    let (r#match, reason) = ("soft.example".to_owned(), "a test".to_owned());
    let rule = HostRule { r#match, soft_statuses: vec![403], reason, ..HostRule::default() };
    ops::hosts::set_rule(&fleet.ops, &rule).await.unwrap();
    fleet.feeds_at("soft.example", 8).await;
    fleet.feeds_at("wall.example", 8).await;
    fleet.live(HOUR, |_| None).await;
    fleet.live(36 * HOUR, |_| Some(403)).await;
    let refusing: Vec<HostKey> = fleet.ops.condition.refusals.list().into_iter().map(|refusal| refusal.host).collect();
    assert_eq!(refusing, [HostKey::new("wall.example:443")]);
}

#[tokio::test]
async fn a_page_against_robots_is_a_refusal_although_an_operator_calls_its_403_soft() {
    let fleet = Fleet::new().await;
    let (r#match, reason) = ("wall.example".to_owned(), "a test".to_owned());
    let rule = HostRule { r#match, soft_statuses: vec![403], reason, ..HostRule::default() };
    ops::hosts::set_rule(&fleet.ops, &rule).await.unwrap();
    fleet.feeds_at("wall.example", 3).await;
    fleet.meet_two_pages().await;
    assert_eq!(fleet.events().await.get("host.refusing"), Some(&1));
}

#[tokio::test]
async fn a_host_that_lets_its_feeds_pass_to_one_that_answers_refuses_nobody() {
    let fleet = Fleet::new().await;
    fleet.feeds_at("wall.example", 5).await;
    fleet.live(HOUR, |_| None).await;
    fleet.live(24 * HOUR, |_| Some(403)).await;
    let host = HostKey::new("wall.example:443");
    assert!(fleet.ops.condition.refusals.of(&host).is_some());
    let end = fleet.clock.now().after(72 * HOUR);
    while fleet.ops.condition.refusals.of(&host).is_some() {
        assert!(fleet.clock.now() < end, "it refuses for ever");
        for job in fleet.dispatched().await {
            let (outcome, http_status) = answered(None);
            let answered_by = Some(HostKey::new("new.example:443"));
            fleet.settle(FetchReport { http_status, answered_by, ..fleet.work(&job, outcome).await }).await;
        }
        fleet.clock.advance(STEP);
    }
    assert_eq!(fleet.events().await.get("host.recovered"), Some(&1));
}

#[tokio::test]
async fn the_feeds_of_a_host_that_answers_again_are_polled_although_their_requeue_could_not_be_stored_at_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("feedfleet.db");
    let store = Arc::new(SqliteStore::open(&format!("sqlite://{}", path.display())).await.unwrap());
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
    let fleet = Fleet::over(config(), store, clock, Timestamp::EPOCH).await;
    fleet.feeds_at("wall.example", 5).await;
    fleet.live(HOUR, |_| None).await;
    fleet.live(24 * HOUR, |_| Some(403)).await;
    let host = HostKey::new("wall.example:443");
    assert!(fleet.ops.condition.refusals.of(&host).is_some());
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("ALTER TABLE requeues RENAME TO away").unwrap();
    while fleet.ops.condition.refusals.of(&host).is_some() {
        fleet.live(STEP, |_| None).await;
    }
    assert_eq!(fleet.events().await.get("host.recovered"), Some(&1), "reports are stored all the same");
    let begin = async || begin_owed(&*fleet.ops.store, &fleet.ops.condition, fleet.clock.now()).await;
    begin().await.unwrap_err();
    other.execute_batch("ALTER TABLE away RENAME TO requeues").unwrap();
    let requeues = async || fleet.ops.store.requeues(false).await.unwrap().len();
    assert_eq!(requeues().await, 0);
    begin().await.unwrap();
    let begun = requeues().await;
    assert!(begun > 0);
    begin().await.unwrap();
    assert_eq!(requeues().await, begun, "once");
}

#[tokio::test]
async fn the_feeds_of_a_host_that_answers_again_are_polled_although_the_stores_answer_to_that_was_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("feedfleet.db");
    let store = Arc::new(SqliteStore::open(&format!("sqlite://{}", path.display())).await.unwrap());
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
    let fleet = Fleet::over(config(), store, clock, Timestamp::EPOCH).await;
    fleet.feeds_at("wall.example", 5).await;
    fleet.live(HOUR, |_| None).await;
    fleet.live(24 * HOUR, |_| Some(403)).await;
    let refusals = &fleet.ops.condition.refusals;
    let host = HostKey::new("wall.example:443");
    let rest = refusals.of(&host).unwrap().until;
    fleet.clock.advance(rest.since(fleet.clock.now()));
    let mut jobs = fleet.dispatched().await;
    while jobs.is_empty() {
        assert!(fleet.clock.advance(STEP) < rest.after(48 * HOUR), "no feed is due");
        jobs = fleet.dispatched().await;
    }
    let (outcome, http_status) = answered(None);
    let report = FetchReport { http_status, ..fleet.work(&jobs[0], outcome).await };
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("ALTER TABLE host_refusals RENAME TO away").unwrap();
    fleet.results.settle(vec![report.clone()], fleet.clock.now()).await.unwrap_err();
    assert!(refusals.of(&host).is_some());
    assert!(fleet.ops.store.requeues(false).await.unwrap().is_empty());
    // It had ended in the store, so that the next call ends nothing.
    other.execute_batch("DELETE FROM away; ALTER TABLE away RENAME TO host_refusals").unwrap();
    fleet.settle(report).await;
    assert!(refusals.of(&host).is_none());
    assert!(!fleet.ops.store.requeues(false).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_else_goes_wrong_at_a_host_that_refuses_us_counts_against_its_feed() {
    let fleet = Fleet::new().await;
    fleet.feeds_at("wall.example", 5).await;
    fleet.live(HOUR, |_| None).await;
    fleet.live(24 * HOUR, |_| Some(403)).await;
    assert!(fleet.ops.condition.refusals.of(&HostKey::new("wall.example:443")).is_some());
    let mut jobs = fleet.dispatched().await;
    while jobs.is_empty() {
        fleet.clock.advance(STEP);
        jobs = fleet.dispatched().await;
    }
    let before = fleet.feed(jobs[0].feed).await.state.consecutive_failures;
    let timeout = Outcome::Failed { failure: FailureKind::Timeout, detail: "no answer".into() };
    let report = fleet.work(&jobs[0], timeout).await;
    fleet.settle(report).await;
    assert_eq!(fleet.feed(jobs[0].feed).await.state.consecutive_failures, before + 1);
}

#[tokio::test]
async fn what_is_owed_after_a_refusal_is_of_that_host_alone_and_of_what_refused() {
    let fleet = Fleet::new().await;
    let (condition, host) = (&fleet.results.condition, HostKey::new("a.example:443"));
    owe_requeues(condition, &host);
    let mut owed = Vec::new();
    while let Some(filter) = condition.refusals.take_owed_requeue() {
        assert_eq!((&filter.hosts, filter.status), (&vec![host.clone()], Some(Status::Active)));
        owed.push((filter.failure, filter.http_statuses.is_empty()));
    }
    owed.sort_by_key(|(_, is_any)| *is_any);
    assert_eq!(owed, [(Some(FailureKind::Status), false), (Some(FailureKind::Blocked), true)]);
    // An answer that was lost may have ended it.
    assert!(!condition.refusals.has_ended(&host, Some(false)));
    assert!(!condition.refusals.has_ended(&host, None));
    assert!(condition.refusals.has_ended(&host, Some(false)));
    assert!(!condition.refusals.has_ended(&host, Some(false)), "once");
}
