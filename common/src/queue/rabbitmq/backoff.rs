//! How long to wait before the next attempt: doubling, capped, with jitter, for ever.

use std::time::Duration;

use rand::RngExt;

const FIRST: Duration = Duration::from_millis(100);
/// A broker that came back is found within this time.
const LONGEST: Duration = Duration::from_secs(4);

/// The delays of one row of attempts.
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Backoff { next: FIRST }
    }

    /// Between half and all of the current backoff, so that processes that lost the broker together do not come back
    /// together.
    pub(super) fn delay(&mut self) -> Duration {
        let delay = self.next.mul_f64(rand::rng().random_range(0.5..=1.0));
        self.next = (self.next * 2).min(LONGEST);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_a_ceiling_and_stay_there() {
        let mut backoff = Backoff::new();
        assert!(backoff.delay() <= FIRST);
        for _ in 0..100 {
            backoff.delay();
        }
        let delay = backoff.delay();
        assert!(delay <= LONGEST && delay >= LONGEST / 2, "{delay:?}");
    }
}
