//! Why a feed is due when it is: the rules that moved the due time, in order, in constant space.

use serde::{Deserialize, Serialize};

use crate::named;
use crate::time::Timestamp;

/// One term of a due time: the rule, and the due time after it was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Term {
    /// The rule.
    pub rule: Rule,
    /// The due time after the rule was applied.
    pub due: Timestamp,
}

named! {
    /// The rules that move a due time. Numbers (positions in [`Rule::ALL`]) are stored: append only.
    Rule {
        /// The category's interval.
        Category = "category",
        /// The interval that follows from the posting rate, within the category's bounds.
        Adaptive = "adaptive",
        /// An interval set by a person.
        Person = "person",
        /// The feed has no subscribers.
        NoSubscribers = "no_subscribers",
        /// The host rule's interval (category F).
        HostInterval = "host_interval",
        /// The minimum interval of scheduled polls.
        MinInterval = "min_interval",
        /// RSS `ttl`.
        Ttl = "ttl",
        /// `sy:updatePeriod` and `sy:updateFrequency`.
        UpdatePeriod = "update_period",
        /// `Cache-Control: max-age` or `Expires`.
        Freshness = "freshness",
        /// `skipHours` or `skipDays`.
        Skip = "skip",
        /// No validators, or a server that ignores conditional requests.
        NoValidators = "no_validators",
        /// The same bytes downloaded repeatedly.
        EqualDownloads = "equal_downloads",
        /// The interval was stretched by earlier throttling.
        Stretch = "stretch",
        /// The backoff of a transient failure.
        Backoff = "backoff",
        /// The penalty box.
        PenaltyBox = "penalty_box",
        /// The server's Retry-After.
        RetryAfter = "retry_after",
        /// Our own delay after a 429 without Retry-After.
        Throttled = "throttled",
        /// A ceiling was reached.
        Ceiling = "ceiling",
        /// A random share of the interval, added to it.
        Salt = "salt",
        /// Moved out of a hot minute.
        HotMinute = "hot_minute",
        /// Added: due immediately, or at its position in the import's spread.
        Added = "added",
        /// The report arrived after the due time that it leads to: due now; or after its feed's lease: counted from its arrival.
        Late = "late",
        /// Calm subscribers: the time before their midnight.
        Calm = "calm",
        /// Our own network failed: retried soon, and not counted as a failure of the feed.
        OurFault = "our_fault",
        /// The host refuses us on most of its feeds: the end of its rest.
        HostRefuses = "host_refuses",
        /// A hub or a cloud announces its new entries reliably: polled less often.
        Pushed = "pushed",
        /// It overflowed a while ago: polled more often.
        Overflow = "overflow",
        /// A page of its older entries is read before the next poll.
        Archive = "archive",
    }
}

impl Rule {
    /// Returns the position in [`Self::ALL`].
    pub fn number(self) -> u8 {
        self as u8
    }
}

/// Up to [`Terms::CAPACITY`] terms, without allocation.
#[derive(Clone, Copy, PartialEq)]
pub struct Terms {
    list: [Term; Terms::CAPACITY],
    len: usize,
}

impl Terms {
    /// More terms than a decision has, unless a publisher's skipped hours apply at every single step.
    pub const CAPACITY: usize = 16;

    /// Adds a term. When there are already [`Self::CAPACITY`] terms it replaces the last, so that the last term's due
    /// time is always the decision's.
    pub fn push(&mut self, rule: Rule, due: Timestamp) {
        self.len = (self.len + 1).min(Self::CAPACITY);
        self.list[self.len - 1] = Term { rule, due };
    }
}

impl Default for Terms {
    fn default() -> Self {
        Terms { list: [Term { rule: Rule::Category, due: Timestamp::EPOCH }; Terms::CAPACITY], len: 0 }
    }
}

impl std::ops::Deref for Terms {
    type Target = [Term];

    fn deref(&self) -> &[Term] {
        &self.list[..self.len]
    }
}

impl std::fmt::Debug for Terms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rules_number_is_its_place() {
        for (place, rule) in Rule::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(rule.number()), place);
        }
    }

    #[test]
    fn the_last_term_is_kept_however_many_there_are() {
        let mut terms = Terms::default();
        for second in 1..=40 {
            terms.push(Rule::Salt, Timestamp::from_millis(second));
        }
        assert_eq!(terms.len(), Terms::CAPACITY);
        assert_eq!(terms.last().unwrap().due, Timestamp::from_millis(40));
    }

    #[test]
    fn terms_are_shown_as_a_list_of_those_that_there_are() {
        let mut terms = Terms::default();
        terms.push(Rule::Salt, Timestamp::EPOCH);
        assert_eq!(format!("{terms:?}"), format!("{:?}", [Term { rule: Rule::Salt, due: Timestamp::EPOCH }]));
    }
}
