//! Reports that will be settled together.

use common::queue::{Delivery, Message};
use common::report::FetchReport;
use tokio::time::Instant;

/// Reports settled in one transaction, at most.
pub(super) const BATCH: usize = 500;
/// The memory that reports settled in one transaction may take, about. A transaction has its rows as text beside them.
const BATCH_BYTES: usize = 2 << 20;

/// Deliveries that will be settled together.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) deliveries: Vec<Delivery<FetchReport>>,
    /// Reports of these deliveries that wait for a part of the gate that is away, and must come again.
    pub(super) waiting: Vec<FetchReport>,
    size: Size,
}

/// How much is settled together.
#[derive(Clone, Copy, Default)]
pub(super) struct Size {
    reports: usize,
    bytes: usize,
}

impl Size {
    pub(super) fn add(&mut self, delivery: &Delivery<FetchReport>) {
        self.reports += delivery.items.len();
        self.bytes += delivery.items.iter().map(Message::memory_bytes).sum::<usize>();
    }

    pub(super) fn is_full(self) -> bool {
        self.reports >= BATCH || self.bytes >= BATCH_BYTES
    }
}

impl Gathered {
    pub(super) fn take(&mut self, delivery: Delivery<FetchReport>) {
        self.size.add(&delivery);
        self.deliveries.push(delivery);
    }

    pub(super) fn is_full(&self) -> bool {
        self.size.is_full()
    }

    pub(super) fn size(&self) -> Size {
        self.size
    }

    /// Returns the number of reports.
    pub(super) fn reports(&self) -> usize {
        self.size.reports
    }

    /// Returns when the oldest of them arrived.
    pub(super) fn arrived(&self) -> Option<Instant> {
        self.deliveries.iter().map(|delivery| delivery.arrived).min()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use common::document::Document;
    use common::entry::Entry;
    use common::host::HostKey;
    use common::queue::Queue;
    use common::queue::memory::MemoryQueue;
    use common::report::Outcome;
    use common::time::Timestamp;
    use common::url::{FeedId, Version};

    use super::*;

    /// Returns that number of `messages`, each with a report on one entry with `content` bytes.
    pub(in crate::poll) async fn gathered(messages: usize, content: usize) -> Gathered {
        let entry = Entry { content: Some("x".repeat(content)), ..Entry::default() };
        let outcome = Outcome::Modified(Box::new(Document { entries: vec![entry], ..Document::default() }));
        let host = HostKey::new("a.example:80");
        let report = FetchReport::of(FeedId(1), Version(0), host, Timestamp::EPOCH, outcome);
        let (queue, mut gathered) = (MemoryQueue::new(usize::MAX), Gathered::default());
        for _ in 0..messages {
            queue.publish(std::slice::from_ref(&report)).await.unwrap();
            gathered.take(queue.receive().await.unwrap());
        }
        gathered
    }

    #[tokio::test]
    async fn a_batch_is_full_by_the_memory_that_its_reports_take_or_by_their_number() {
        assert!(!gathered(3, 512 << 10).await.is_full());
        assert!(gathered(4, 512 << 10).await.is_full());
        assert!(!gathered(BATCH - 1, 10).await.is_full());
        assert!(gathered(BATCH, 10).await.is_full());
    }
}
