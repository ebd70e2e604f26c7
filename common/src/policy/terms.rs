//! Why a due time is what it is: the rules that moved it, in order, in constant space.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// One term of a due time: the rule, and the due time after it was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Term {
    /// Which rule.
    pub rule: Rule,
    /// The due time that it left behind.
    pub due: Timestamp,
}

/// The rules that move a due time. Numbers (positions in [`Rule::ALL`]) are stored: append only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The category's interval.
    Category,
    /// The interval that the posting rate asks for, inside the category's bounds.
    Adaptive,
    /// An interval that a person asked for.
    Person,
    /// Nobody subscribes.
    NoSubscribers,
    /// The host rule's interval (category F).
    HostInterval,
    /// The floor of all scheduled polls.
    MinInterval,
    /// RSS `ttl`.
    Ttl,
    /// `sy:updatePeriod` and `sy:updateFrequency`.
    UpdatePeriod,
    /// `Cache-Control: max-age` or `Expires`.
    Freshness,
    /// `skipHours` or `skipDays`.
    Skip,
    /// No validators, or conditions that the server ignores.
    NoValidators,
    /// The same bytes downloaded again and again.
    EqualDownloads,
    /// Grown by earlier throttling.
    Stretch,
    /// A transient failure's back-off.
    Backoff,
    /// The penalty box.
    PenaltyBox,
    /// The server's Retry-After.
    RetryAfter,
    /// Our own delay after a 429 without Retry-After.
    Throttled,
    /// A ceiling was reached.
    Ceiling,
    /// A random share of the interval on top.
    Salt,
    /// Moved off a hot minute.
    HotMinute,
    /// Added: due at once, or at its place in the import's spread.
    Added,
    /// The report came so late that its due time had passed: due now.
    Late,
    /// Only calm subscribers: the hour before their midnight.
    Calm,
    /// Our own network failed: tried again soon, and nothing is held against the feed.
    OurFault,
}

impl Rule {
    /// All of them, in the order of their stored numbers: append only.
    pub const ALL: [Rule; 24] = [
        Rule::Category,
        Rule::Adaptive,
        Rule::Person,
        Rule::NoSubscribers,
        Rule::HostInterval,
        Rule::MinInterval,
        Rule::Ttl,
        Rule::UpdatePeriod,
        Rule::Freshness,
        Rule::Skip,
        Rule::NoValidators,
        Rule::EqualDownloads,
        Rule::Stretch,
        Rule::Backoff,
        Rule::PenaltyBox,
        Rule::RetryAfter,
        Rule::Throttled,
        Rule::Ceiling,
        Rule::Salt,
        Rule::HotMinute,
        Rule::Added,
        Rule::Late,
        Rule::Calm,
        Rule::OurFault,
    ];

    /// The position in [`Self::ALL`].
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
    /// More than a decision has, unless a publisher's skipped hours catch it at every single step.
    pub const CAPACITY: usize = 16;

    /// Adds a term. When there are [`Self::CAPACITY`] already it replaces the last, so that the last term's due time is
    /// always the decision's.
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
}
