//! How long a process keeps a message of a newer program before it returns it to the queue.

use std::time::Duration;

/// The pauses before a message goes back. The first is long enough for others to take it. RabbitMQ before 4.3 counts each return towards the
/// delivery limit of a queue, so a message that comes back is kept longer each time: the limit has to outlast an upgrade.
#[derive(Clone, Copy, Debug)]
pub(super) struct TooNewPauses {
    pub(super) first: Duration,
    /// Well below the time after which brokers close a channel with an unacknowledged message (15 min or more).
    pub(super) longest: Duration,
}

impl Default for TooNewPauses {
    fn default() -> Self {
        TooNewPauses { first: Duration::from_secs(5), longest: Duration::from_secs(300) }
    }
}

impl TooNewPauses {
    /// Returns the pause for a message that the broker has counted this many returns of, in a queue with this delivery limit.
    pub(super) fn after(self, returns: u64, delivery_limit: Option<u32>) -> Duration {
        if delivery_limit.is_none() {
            return self.first;
        }
        let doublings = u32::try_from(returns).unwrap_or(u32::MAX).min(31);
        self.first.saturating_mul(1 << doublings).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::FetchJob;
    use crate::queue::Message;

    #[test]
    fn the_delivery_limit_of_jobs_lasts_an_hour_and_reports_are_returned_soon() {
        let pauses = TooNewPauses::default();
        let limit = FetchJob::DELIVERY_LIMIT.unwrap();
        let total: Duration = (0..u64::from(limit)).map(|returns| pauses.after(returns, Some(limit))).sum();
        assert!(total >= Duration::from_secs(3600), "{total:?}");
        assert_eq!(pauses.after(0, Some(limit)), Duration::from_secs(5));
        assert_eq!(pauses.after(u64::MAX, Some(limit)), Duration::from_secs(300));
        assert_eq!(pauses.after(1000, None), Duration::from_secs(5));
    }
}
