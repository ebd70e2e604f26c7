//! Jobs with and without logins in two queues, so that workers without the key to the logins are not given those that need one.
//!
//! Schedulers publish jobs with logins to the second queue while it has a consumer, and to the first one otherwise: a
//! fleet whose workers all have the key, or none, or an earlier version, works as with one queue. Workers with the key
//! consume both.
//!
//! What waits in the second queue must keep no other jobs away, least of all when the last worker with the key has left:
//! the depth names it as apart ([`QueueDepth::taken`]), and schedulers publish no more there than its workers' share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;

use super::{Apart, Delivery, Queue, QueueDepth, QueueError};
use crate::job::FetchJob;

/// Two queues as one.
pub struct JobsAndLogins {
    jobs: Arc<dyn Queue<FetchJob>>,
    logins: Arc<dyn Queue<FetchJob>>,
    /// The second queue had a consumer when its depth was last read.
    consumed: AtomicBool,
}

impl JobsAndLogins {
    /// Returns the queue of jobs, and that of jobs with logins.
    pub fn new(jobs: Arc<dyn Queue<FetchJob>>, logins: Arc<dyn Queue<FetchJob>>) -> Self {
        JobsAndLogins { jobs, logins, consumed: AtomicBool::new(false) }
    }
}

#[async_trait]
impl Queue<FetchJob> for JobsAndLogins {
    /// Not in one step: after an error some of the items may be in one of the queues.
    async fn publish(&self, items: &[FetchJob]) -> Result<(), QueueError> {
        if !self.consumed.load(Ordering::Relaxed) || items.iter().all(|job| job.credentials.is_none()) {
            return self.jobs.publish(items).await;
        }
        let (logins, jobs): (Vec<_>, Vec<_>) = items.iter().cloned().partition(|job| job.credentials.is_some());
        self.logins.publish(&logins).await?;
        if jobs.is_empty() { Ok(()) } else { self.jobs.publish(&jobs).await }
    }

    async fn receive(&self) -> Result<Delivery<FetchJob>, QueueError> {
        tokio::select! {
            delivery = self.jobs.receive() => delivery,
            delivery = self.logins.receive() => delivery,
        }
    }

    async fn pause(&self) {
        tokio::join!(self.jobs.pause(), self.logins.pause());
    }

    /// Consumers are those of the first queue: every worker consumes it. Items of the second one are apart.
    async fn depth(&self) -> Result<QueueDepth, QueueError> {
        let (jobs, logins) = tokio::try_join!(self.jobs.depth(), self.logins.depth())?;
        let apart = Apart { items: logins.items, consumers: logins.consumers.unwrap_or(0) };
        self.consumed.store(apart.consumers > 0, Ordering::Relaxed);
        Ok(QueueDepth { items: jobs.items + logins.items, dead: jobs.dead + logins.dead, apart, ..jobs })
    }

    /// Both are queues of one broker.
    fn blocked(&self) -> Option<String> {
        self.jobs.blocked()
    }

    /// Checks the first queue: the second one is missing while schedulers of an earlier version run, and nothing waits
    /// in it then.
    async fn check(&self) -> Result<(), QueueError> {
        self.jobs.check().await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::queue::conformance::job;
    use crate::queue::memory::MemoryQueue;
    use crate::secrets::Sealed;

    /// A queue in memory that says how many consume it.
    struct Consumed {
        queue: MemoryQueue<FetchJob>,
        consumers: AtomicUsize,
    }

    impl Consumed {
        fn by(consumers: usize) -> Arc<Self> {
            Arc::new(Consumed { queue: MemoryQueue::new(1 << 20), consumers: AtomicUsize::new(consumers) })
        }

        async fn items(&self) -> usize {
            self.queue.depth().await.unwrap().items
        }
    }

    #[async_trait]
    impl Queue<FetchJob> for Consumed {
        async fn publish(&self, items: &[FetchJob]) -> Result<(), QueueError> {
            self.queue.publish(items).await
        }

        async fn receive(&self) -> Result<Delivery<FetchJob>, QueueError> {
            self.queue.receive().await
        }

        async fn pause(&self) {}

        async fn depth(&self) -> Result<QueueDepth, QueueError> {
            let consumers = Some(self.consumers.load(Ordering::Relaxed));
            Ok(QueueDepth { consumers, ..self.queue.depth().await? })
        }

        async fn check(&self) -> Result<(), QueueError> {
            Ok(())
        }
    }

    fn login(n: i64) -> FetchJob {
        FetchJob { credentials: Some(Sealed::from_bytes(vec![1])), ..job(n) }
    }

    #[tokio::test]
    async fn jobs_with_logins_are_apart_while_somebody_takes_them() {
        let (jobs, logins) = (Consumed::by(4), Consumed::by(0));
        let both = JobsAndLogins::new(jobs.clone(), logins.clone());
        both.depth().await.unwrap();
        both.publish(&[job(1), login(2)]).await.unwrap();
        assert_eq!((jobs.items().await, logins.items().await), (2, 0));
        logins.consumers.store(1, Ordering::Relaxed);
        both.depth().await.unwrap();
        both.publish(&[job(3), login(4)]).await.unwrap();
        assert_eq!((jobs.items().await, logins.items().await), (3, 1));
    }

    #[tokio::test]
    async fn a_backlog_of_logins_counts_as_items_and_takes_no_more_than_its_consumers_share() {
        let (jobs, logins) = (Consumed::by(4), Consumed::by(1));
        jobs.publish(&[job(1), job(2)]).await.unwrap();
        for n in 0..100 {
            logins.publish(&[login(n)]).await.unwrap();
        }
        let both = JobsAndLogins::new(jobs.clone(), logins.clone());
        for (consumers, share) in [(0, 0), (1, 20), (2, 40), (4, 80), (5, 80)] {
            logins.consumers.store(consumers, Ordering::Relaxed);
            let depth = both.depth().await.unwrap();
            assert_eq!((depth.items, depth.share_apart(80), depth.taken(80)), (102, share, 2 + share), "{consumers}");
            assert_eq!(depth.taken(1000), 2 + (1000 * consumers.min(4) / 4).min(100), "{consumers}");
        }
        jobs.consumers.store(0, Ordering::Relaxed);
        let depth = both.depth().await.unwrap();
        assert_eq!((depth.consumers, depth.taken(80)), (Some(0), 2));
    }
}
