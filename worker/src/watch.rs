//! The deadline of work on one document, checked while the work is in progress.

use std::time::Instant;

/// Steps between two looks at the clock. A step is about a byte: a look costs some 30 ns, 4,096 bytes at least a microsecond.
const EVERY: usize = 4096;

/// Returns true if there is a deadline and it has passed.
pub(crate) fn has_passed(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| deadline <= Instant::now())
}

/// Checks a deadline every few thousand steps of a loop.
#[derive(Debug)]
pub(crate) struct Watch {
    deadline: Option<Instant>,
    next_look: usize,
}

impl Watch {
    /// Looks at the clock at the first step, and then every few thousand.
    pub(crate) fn new(deadline: Option<Instant>) -> Self {
        Watch { deadline, next_look: deadline.map_or(usize::MAX, |_| 0) }
    }

    /// Returns true once the deadline has passed. `step` is how far the work has come, in bytes or other small steps.
    #[inline]
    pub(crate) fn is_late(&mut self, step: usize) -> bool {
        if step < self.next_look {
            return false;
        }
        self.next_look = step.saturating_add(EVERY);
        has_passed(self.deadline)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_clock_is_read_every_few_thousand_steps() {
        let now = Instant::now();
        assert!(!Watch::new(None).is_late(usize::MAX - 1), "no deadline");
        assert!(!Watch::new(Some(now + Duration::from_secs(600))).is_late(0));
        let mut watch = Watch::new(Some(now + Duration::from_secs(600)));
        assert!(!watch.is_late(0));
        watch.deadline = Some(now);
        assert!(!watch.is_late(EVERY - 1), "not looked at again yet");
        assert!(watch.is_late(EVERY));
        assert!(watch.is_late(2 * EVERY), "it stays late");
    }
}
