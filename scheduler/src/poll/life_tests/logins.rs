//! Jobs with logins in a separate queue, which some workers receive from, or none.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use common::queue::conformance::job;
use common::queue::logins::JobsAndLogins;
use common::queue::{Delivery, QueueDepth, QueueError};
use common::secrets::{Login, Sealed};

use super::*;

/// Jobs that may wait for each worker.
const HELD: usize = 32;
/// Longer than a feed waits for room.
const LATER: Duration = Duration::from_secs(10);

/// A queue in memory that says how many workers receive from it.
struct Received {
    queue: MemoryQueue<FetchJob>,
    workers: AtomicUsize,
}

impl Received {
    fn by(workers: usize) -> Arc<Self> {
        Arc::new(Received { queue: MemoryQueue::new(1 << 20), workers: AtomicUsize::new(workers) })
    }

    async fn items(&self) -> usize {
        self.queue.depth().await.unwrap().items
    }

    /// Takes everything out.
    async fn empty(&self) {
        while self.items().await > 0 {
            self.queue.receive().await.unwrap().ack().await.unwrap();
        }
    }
}

#[async_trait]
impl Queue<FetchJob> for Received {
    async fn publish(&self, items: &[FetchJob]) -> Result<(), QueueError> {
        self.queue.publish(items).await
    }

    async fn receive(&self) -> Result<Delivery<FetchJob>, QueueError> {
        self.queue.receive().await
    }

    async fn pause(&self) {
        self.queue.pause().await;
    }

    async fn depth(&self) -> Result<QueueDepth, QueueError> {
        let consumers = Some(self.workers.load(Ordering::SeqCst));
        Ok(QueueDepth { consumers, ..self.queue.depth().await? })
    }

    async fn check(&self) -> Result<(), QueueError> {
        Ok(())
    }
}

/// A scheduler with two workers, of which `with_key` have the key.
struct Queues {
    fleet: Fleet,
    jobs: Arc<Received>,
    logins: Arc<Received>,
}

impl Queues {
    async fn new(with_key: usize) -> Self {
        let mut config = config();
        config.worker.prefetch = HELD;
        config.secrets.key = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=".into();
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
        let store = Arc::new(SqliteStore::open("sqlite::memory:").await.unwrap());
        let mut fleet = Fleet::over(config, store, clock, Timestamp::EPOCH).await;
        let (jobs, logins) = (Received::by(2), Received::by(with_key));
        fleet.dispatcher.jobs = Arc::new(JobsAndLogins::new(jobs.clone(), logins.clone()));
        Queues { fleet, jobs, logins }
    }

    /// Leaves jobs with logins in their queue: more than both workers hold.
    async fn leave_logins(&self) {
        for n in 0..100 {
            let login = FetchJob { credentials: Some(Sealed::from_bytes(vec![1])), ..job(n) };
            self.logins.publish(&[login]).await.unwrap();
        }
    }

    async fn add_with_login(&self, url: &str) -> FeedId {
        let feed = AddFeed { login: Some(Login::new("ann", "s3cret").unwrap()), ..AddFeed::of(url.parse().unwrap()) };
        self.fleet.ops.add(&[feed], None).await.unwrap()[0].id
    }

    /// Runs a round; returns the number of jobs that it published.
    async fn published(&self) -> usize {
        self.fleet.dispatcher.round(self.fleet.clock.now(), usize::MAX).await.unwrap().published
    }
}

#[tokio::test]
async fn what_the_last_worker_with_the_key_left_behind_keeps_no_job_away() {
    let queues = Queues::new(0).await;
    queues.leave_logins().await;
    queues.fleet.add("https://plain.example/feed").await;
    queues.add_with_login("https://login.example/feed").await;
    assert_eq!(queues.published().await, 2);
    assert_eq!((queues.jobs.items().await, queues.logins.items().await), (2, 100));
    assert_eq!(queues.fleet.dispatcher.jobs.depth().await.unwrap().items, 102, "shown nevertheless");
}

#[tokio::test]
async fn a_backlog_of_logins_grows_no_further_and_keeps_no_other_job_away() {
    let queues = Queues::new(1).await;
    queues.leave_logins().await;
    queues.fleet.add("https://plain.example/feed").await;
    queues.add_with_login("https://login.example/feed").await;
    assert_eq!(queues.published().await, 1);
    assert_eq!((queues.jobs.items().await, queues.logins.items().await), (1, 100));
    queues.logins.empty().await;
    queues.fleet.clock.advance(LATER);
    assert_eq!(queues.published().await, 1);
    assert_eq!((queues.jobs.items().await, queues.logins.items().await), (1, 1));
}

#[tokio::test]
async fn a_round_that_finds_no_room_for_logins_and_nothing_else_is_not_followed_by_the_next_at_once() {
    let queues = Queues::new(1).await;
    queues.leave_logins().await;
    queues.add_with_login("https://login.example/feed").await;
    let claimed = async || queues.fleet.dispatcher.round(queues.fleet.clock.now(), usize::MAX).await.unwrap().claimed;
    assert_eq!(claimed().await, 0);
    queues.fleet.clock.advance(LATER);
    queues.fleet.add("https://plain.example/feed").await;
    assert_eq!(claimed().await, 2, "one of them became a job");
}

#[tokio::test]
async fn jobs_with_logins_are_as_many_as_the_workers_with_the_key_hold_and_the_others_follow() {
    let queues = Queues::new(1).await;
    for n in 0..HELD + 8 {
        queues.add_with_login(&format!("https://login{n}.example/feed")).await;
    }
    assert_eq!(queues.published().await, HELD);
    assert_eq!((queues.jobs.items().await, queues.logins.items().await), (0, HELD));
    assert_eq!(queues.published().await, 0);
    queues.logins.empty().await;
    queues.fleet.clock.advance(LATER);
    assert_eq!(queues.published().await, 8);
}

#[tokio::test]
async fn an_empty_queue_is_filled_and_a_fuller_one_gets_whole_messages() {
    let mut config = config();
    config.worker.prefetch = 20;
    let batch = config.worker.job_batch;
    assert_eq!(batch, 16);
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
    let store = Arc::new(SqliteStore::open("sqlite::memory:").await.unwrap());
    let mut fleet = Fleet::over(config, store, clock, Timestamp::EPOCH).await;
    let jobs = Received::by(1);
    fleet.dispatcher.jobs = jobs.clone();
    for n in 0..60 {
        fleet.add(&format!("https://h{n}.example/feed")).await;
    }
    let published = async || fleet.dispatcher.round(fleet.clock.now(), usize::MAX).await.unwrap().published;
    assert_eq!((published().await, published().await), (20, 0));
    // The first message has 16 jobs, the second 4.
    jobs.queue.receive().await.unwrap().ack().await.unwrap();
    assert_eq!(published().await, batch);
    jobs.queue.receive().await.unwrap().ack().await.unwrap();
    assert_eq!(published().await, 0, "four places are too few for a message");
}
