//! Jobs with and without logins in two queues, so that workers without the key to the logins are not given those that need one.
//!
//! Schedulers publish jobs with logins to the second queue while it has a consumer, and to the first one otherwise: a
//! fleet whose workers all have the key, or none, or an earlier version, works as with one queue. Workers with the key
//! consume both.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;

use super::{Delivery, Queue, QueueDepth, QueueError};
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

    /// Consumers are those of the first queue: every worker consumes it.
    async fn depth(&self) -> Result<QueueDepth, QueueError> {
        let (jobs, logins) = tokio::try_join!(self.jobs.depth(), self.logins.depth())?;
        self.consumed.store(logins.consumers.is_some_and(|consumers| consumers > 0), Ordering::Relaxed);
        Ok(QueueDepth { items: jobs.items + logins.items, dead: jobs.dead + logins.dead, ..jobs })
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
