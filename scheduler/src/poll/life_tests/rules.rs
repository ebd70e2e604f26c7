//! Rules and blocks that change while a fleet runs.

use common::faults::{Fault, Faults, Faulty};
use common::host::{HostKey, HostRule};
use common::host_name::HostName;
use common::live_rules::LiveRules;
use common::policy::Category;

use super::*;
use crate::ops;
use crate::ops::hosts::RuleChange;
use crate::upkeep::orders::Orders;

const HOST: &str = "a.org";

fn rule() -> HostRule {
    HostRule { r#match: HOST.into(), reason: "a test".into(), ..HostRule::default() }
}

fn host() -> HostName {
    HOST.parse().unwrap()
}

impl Fleet {
    async fn set(&self, rule: &HostRule) {
        assert_eq!(ops::hosts::set_rule(&self.ops, rule).await.unwrap(), RuleChange::Done);
    }

    /// Has the feed polled now, and returns when it is due again.
    async fn polled(&self, id: FeedId, outcome: Outcome) -> Timestamp {
        let jobs = self.dispatched().await;
        let job = jobs.iter().find(|job| job.feed == id).expect("the feed is due");
        let report = self.work(job, outcome).await;
        self.settle(report).await;
        self.feed(id).await.next_due.unwrap()
    }
}

#[tokio::test]
async fn a_feed_that_was_planned_before_its_host_got_an_interval_is_planned_anew_and_not_polled() {
    let fleet = Fleet::new().await;
    let id = fleet.add("https://www.a.org/feed").await;
    let polled = fleet.clock.now();
    let due = fleet.polled(id, not_modified()).await;
    let interval = Duration::from_secs(48 * 3600);
    fleet.set(&HostRule { interval: Some(interval), ..rule() }).await;
    fleet.clock.advance(due.since(polled) + Duration::from_secs(1));
    assert!(fleet.dispatched().await.is_empty(), "it would be polled once more at the old pace");
    let feed = fleet.feed(id).await;
    let due = feed.next_due.unwrap();
    assert!(due >= polled.after(interval) && due <= polled.after(interval.mul_f64(1.1)), "{}", due);
    assert_eq!(fleet.ops.store.jobs_for(&[id]).await.unwrap()[0].category, Category::F);
    // A person's refresh is honoured nevertheless.
    fleet.ops.wake(&[id]).await.unwrap();
    assert_eq!(fleet.dispatched_ids().await, [id]);
}

#[tokio::test]
async fn a_feed_that_is_planned_anew_is_polled_at_a_wake_that_lies_ahead() {
    let fleet = Fleet::new().await;
    let id = fleet.add("https://www.a.org/feed").await;
    let due = fleet.polled(id, not_modified()).await;
    fleet.set(&HostRule { interval: Some(Duration::from_secs(48 * 3600)), ..rule() }).await;
    let now = fleet.clock.advance(due.since(fleet.clock.now()) + GAP);
    let quiet = Duration::from_secs(60);
    fleet.ops.store.wake(&[id], now.after(quiet), now).await.unwrap();
    assert!(fleet.dispatched().await.is_empty());
    fleet.clock.advance(quiet);
    assert_eq!(fleet.dispatched_ids().await, [id]);
}

#[tokio::test]
async fn another_scheduler_follows_at_its_next_look() {
    let fleet = Fleet::new().await;
    let rules = Arc::new(LiveRules::new(&config()));
    let Ops { store, gate, schedule, .. } = &*fleet.ops;
    let (condition, metrics) = (Arc::new(crate::condition::Condition::new(&config())), Arc::default());
    let other = Orders::new(store.clone(), gate.clone(), schedule.clone(), rules.clone(), condition, metrics);
    other.look(fleet.clock.now()).await.unwrap();
    let gap = || rules.get().limits_of(&common::host::HostKey::new("a.org:443")).gap;
    fleet.set(&HostRule { gap: Some(Duration::from_secs(9)), ..rule() }).await;
    assert_eq!(gap(), GAP);
    other.look(fleet.clock.now()).await.unwrap();
    assert_eq!(gap(), Duration::from_secs(9));
    assert_eq!(ops::hosts::remove_rule(&fleet.ops, HOST).await.unwrap(), RuleChange::Done);
    other.look(fleet.clock.now()).await.unwrap();
    let shown = gate.shown_rules(None).await.unwrap().unwrap();
    assert!(gap() == GAP && !shown.contains("\"a.org\""), "{shown}");
}

#[tokio::test]
async fn a_block_is_loaded_before_a_new_gate_opens_and_its_feeds_come_when_it_is_lifted() {
    let fleet = Fleet::new().await;
    let id = fleet.add("https://a.org/feed").await;
    ops::hosts::block(&fleet.ops, &host(), Duration::from_secs(3600)).await.unwrap();
    assert!(fleet.dispatched().await.is_empty());
    let fleet = fleet.restart().await;
    fleet.clock.advance(Duration::from_secs(60));
    assert!(fleet.dispatched().await.is_empty());
    fleet.clock.advance(Duration::from_secs(1800));
    assert!(fleet.dispatched().await.is_empty());
    ops::hosts::unblock(&fleet.ops, &host()).await.unwrap();
    assert_eq!(fleet.dispatched_ids().await, [id], "it waited for the end of the block");
}

#[tokio::test]
async fn the_feeds_of_a_lifted_block_come_although_the_gate_was_told_at_the_second_look_only() {
    let fleet = Fleet::new().await;
    let id = fleet.add("https://a.org/feed").await;
    let Ops { store, gate, schedule, .. } = &*fleet.ops;
    // Each look shows the rules and sets the one block. The second one fails at the block.
    let faults = Faults::at([(3, Fault::Before)]);
    let faulty = Arc::new(Faulty::new(gate.clone(), &faults));
    let rules = Arc::new(LiveRules::new(&config()));
    let (condition, metrics) = (Arc::new(crate::condition::Condition::new(&config())), Arc::default());
    let orders = Orders::new(store.clone(), faulty, schedule.clone(), rules, condition, metrics);
    let key = HostKey::new("a.org:443");
    let now = fleet.clock.now();
    store.block_hosts(std::slice::from_ref(&key), Some(now.after(Duration::from_secs(3600)))).await.unwrap();
    orders.look(now).await.unwrap();
    assert!(fleet.dispatched().await.is_empty());
    fleet.clock.advance(GAP);
    store.block_hosts(&[key], None).await.unwrap();
    orders.look(fleet.clock.now()).await.unwrap_err();
    assert_eq!(faults.struck(), [(3, "block", Fault::Before)]);
    assert!(fleet.dispatched().await.is_empty());
    orders.look(fleet.clock.now()).await.unwrap();
    assert_eq!(fleet.dispatched_ids().await, [id], "it waited for the end of the block");
}

#[tokio::test]
async fn feeds_of_a_block_that_is_shortened_come_at_its_new_end() {
    let fleet = Fleet::new().await;
    let id = fleet.add("https://a.org/feed").await;
    ops::hosts::block(&fleet.ops, &host(), Duration::from_secs(3600)).await.unwrap();
    assert!(fleet.dispatched().await.is_empty());
    ops::hosts::block(&fleet.ops, &host(), Duration::from_secs(60)).await.unwrap();
    fleet.clock.advance(Duration::from_secs(50));
    assert!(fleet.dispatched().await.is_empty());
    fleet.clock.advance(Duration::from_secs(10));
    assert_eq!(fleet.dispatched_ids().await, [id]);
}

#[tokio::test]
async fn a_block_ends_by_itself() {
    let fleet = Fleet::new().await;
    let id = fleet.add("https://a.org/feed").await;
    ops::hosts::block(&fleet.ops, &host(), Duration::from_secs(60)).await.unwrap();
    assert!(fleet.dispatched().await.is_empty());
    fleet.clock.advance(Duration::from_secs(60));
    assert_eq!(fleet.dispatched_ids().await, [id]);
}

#[tokio::test]
async fn a_soft_status_that_an_operator_names_is_passing_trouble_from_then_on() {
    let fleet = Fleet::new().await;
    let ids = [fleet.add("https://a.org/feed").await, fleet.add("https://b.org/feed").await];
    fleet.set(&HostRule { soft_statuses: vec![404], ..rule() }).await;
    let now = fleet.clock.now();
    let mut waits = Vec::new();
    for job in fleet.dispatched().await {
        let outcome = Outcome::Failed { failure: FailureKind::Status, detail: "HTTP 404".into() };
        let report = FetchReport { http_status: Some(404), ..fleet.work(&job, outcome).await };
        fleet.settle(report).await;
        waits.push((job.feed, fleet.feed(job.feed).await.next_due.unwrap().since(now)));
    }
    let wait = |id: FeedId| waits.iter().find(|(feed, _)| *feed == id).unwrap().1;
    assert!(wait(ids[0]) < Duration::from_secs(3600), "{:?}", wait(ids[0]));
    assert!(wait(ids[1]) >= Duration::from_secs(24 * 3600), "{:?}", wait(ids[1]));
}

#[tokio::test]
async fn a_410_that_an_operator_calls_soft_does_not_end_its_feed() {
    let fleet = Fleet::new().await;
    let ids = [fleet.add("https://a.org/feed").await, fleet.add("https://b.org/feed").await];
    fleet.set(&HostRule { soft_statuses: vec![410], ..rule() }).await;
    let now = fleet.clock.now();
    for job in fleet.dispatched().await {
        fleet.settle(FetchReport { http_status: Some(410), ..fleet.work(&job, Outcome::Gone).await }).await;
    }
    let statuses = [fleet.feed(ids[0]).await.status, fleet.feed(ids[1]).await.status];
    assert_eq!(statuses, [Status::Active, Status::Gone]);
    let wait = fleet.feed(ids[0]).await.next_due.unwrap().since(now);
    assert!(wait < Duration::from_secs(3600), "{wait:?}");
    let events = fleet.ops.store.events(0, 1000).await.unwrap().items;
    let gone = events.into_iter().filter(|event| event.kind == "feed.gone").map(|event| event.feed_id);
    assert_eq!(gone.collect::<Vec<_>>(), [ids[1]]);
}

#[tokio::test]
async fn a_reload_is_in_force_although_the_gate_does_not_answer() {
    use common::config::{ApiRole, ApiToken};

    use crate::condition::live_config::ConfigSource;

    let fleet = async |planned: Option<usize>| {
        let faults = Faults::at(planned.map(|call| (call, Fault::Before)));
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
        let store = Arc::new(SqliteStore::open("sqlite::memory:").await.unwrap());
        let gate: Arc<dyn HostGate> = Arc::new(MemoryGate::new(Timestamp::EPOCH));
        let gate = Arc::new(Faulty::new(gate, &faults));
        let fleet = Fleet::with(config(), store, clock, gate, Arc::new(MemoryQueue::new(1 << 20))).await;
        fleet.ops.orders.look(fleet.clock.now()).await.unwrap();
        let mut edited = config();
        edited.api.tokens = vec![ApiToken::new("ann", "0123456789abcdef", ApiRole::Read)];
        edited.policy.min_interval *= 2;
        let read = Box::new(move || Ok(edited.clone()));
        assert!(fleet.ops.config_source.set(ConfigSource { started_with: config(), read }).is_ok());
        (fleet, faults)
    };
    let (_, faults) = fleet(None).await;
    let (fleet, faults) = fleet(Some(faults.calls())).await;
    let reloaded = ops::config::reload(&fleet.ops, "signal").await.unwrap();
    assert_eq!(faults.struck()[0].1, "show_rules");
    assert!(reloaded.tokens && reloaded.changed);
    assert_eq!(fleet.ops.condition.tokens.get().len(), 1, "those of the file are valid, and no others");
    assert_eq!(fleet.ops.condition.config.get().policy.min_interval, config().policy.min_interval * 2);
}

#[tokio::test]
async fn a_reload_is_not_refused_for_what_was_wrong_with_the_configuration_before() {
    use common::accepted;
    use common::config::{ApiRole, ApiToken};
    use store::NewPolicy;

    use crate::condition::live_config::ConfigSource;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("feedfleet.db");
    let store = Arc::new(SqliteStore::open(&format!("sqlite://{}", path.display())).await.unwrap());
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
    let fleet = Fleet::over(config(), store, clock, Timestamp::EPOCH).await;
    let now = fleet.clock.now();
    fleet.ops.orders.look(now).await.unwrap();
    let hash = accepted::hash("policy = 3");
    let wrong = NewPolicy { text: "policy = 3", hash: &hash, by: "another version", decided: true };
    fleet.ops.store.accept_policy(&wrong, now).await.unwrap();
    fleet.ops.orders.look(now).await.unwrap();
    assert!(fleet.ops.condition.config.in_force().refused.is_some());
    let mut edited = config();
    edited.api.tokens = vec![ApiToken::new("ann", "0123456789abcdef", ApiRole::Read)];
    edited.policy.min_interval *= 2;
    let read = Box::new(move || Ok(edited.clone()));
    assert!(fleet.ops.config_source.set(ConfigSource { started_with: config(), read }).is_ok());
    // What is accepted is stored, but cannot be read.
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("ALTER TABLE host_refusals RENAME TO away").unwrap();
    assert!(ops::config::reload(&fleet.ops, "signal").await.unwrap().tokens);
    assert_eq!(fleet.ops.condition.tokens.get().len(), 1, "those before are not valid any more");
    other.execute_batch("ALTER TABLE away RENAME TO host_refusals").unwrap();
    fleet.ops.orders.look(now).await.unwrap();
    assert_eq!(fleet.ops.condition.config.get().policy.min_interval, config().policy.min_interval * 2);
    assert_eq!(fleet.ops.condition.config.in_force().refused, None);
}
