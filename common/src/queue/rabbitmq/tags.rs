//! Which deliveries of one channel are settled, and how to report them to the broker in the fewest frames. Pure.

use std::collections::VecDeque;

/// The outcome of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settling {
    /// Done with.
    Acked,
    /// Given up by its receiver; counts towards the delivery limit.
    Returned,
    /// It was not taken. From RabbitMQ 4.3 on it does not count towards the delivery limit.
    Unseen,
    /// Cannot be read.
    Buried,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Held,
    Acked,
    Sent,
}

/// The deliveries of a channel, numbered from 1 without gaps.
#[derive(Debug)]
pub(super) struct Tags {
    /// The tag of the first of `fates`; all before it are settled.
    first: u64,
    fates: VecDeque<Fate>,
    news: Vec<(u64, Settling)>,
}

/// What to report to the broker, in this order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Settlements {
    /// To be returned, or buried, one by one.
    pub(super) returned: Vec<(u64, Settling)>,
    /// This one and everything before it is done with.
    pub(super) acked_up_to: Option<u64>,
    /// Done with, while earlier ones are not.
    pub(super) acked: Vec<u64>,
}

impl Default for Tags {
    fn default() -> Self {
        Tags { first: 1, fates: VecDeque::new(), news: Vec::new() }
    }
}

impl Tags {
    /// A delivery arrived.
    pub(super) fn arrived(&mut self, tag: u64) {
        let place = tag.saturating_sub(self.first);
        // A gap does not happen; it would be none of ours.
        while (self.fates.len() as u64) < place {
            self.fates.push_back(Fate::Sent);
        }
        self.fates.push_back(Fate::Held);
    }

    /// A delivery is settled.
    pub(super) fn settle(&mut self, tag: u64, settling: Settling) {
        self.news.push((tag, settling));
        if settling == Settling::Acked {
            self.set(tag, Fate::Acked);
        }
    }

    /// Returns whether nothing waits to be reported.
    pub(super) fn quiet(&self) -> bool {
        self.news.is_empty()
    }

    /// Returns whether everything that arrived is settled and reported.
    pub(super) fn none_left(&self) -> bool {
        self.quiet() && self.fates.is_empty()
    }

    /// Returns what was settled since the last call.
    pub(super) fn settlements(&mut self) -> Settlements {
        let news = std::mem::take(&mut self.news);
        let (acked, returned): (Vec<_>, Vec<_>) =
            news.into_iter().partition(|(_, settling)| *settling == Settling::Acked);
        for (tag, _) in &returned {
            self.set(*tag, Fate::Sent);
        }
        let mut settlements = Settlements { returned, ..Settlements::default() };
        while let Some(fate) = self.fates.front().filter(|fate| **fate != Fate::Held) {
            if *fate == Fate::Acked {
                settlements.acked_up_to = Some(self.first);
            }
            self.fates.pop_front();
            self.first += 1;
        }
        for (tag, _) in acked {
            if tag >= self.first {
                self.set(tag, Fate::Sent);
                settlements.acked.push(tag);
            }
        }
        settlements
    }

    fn set(&mut self, tag: u64, fate: Fate) {
        let place = tag.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        if let Some(known) = place.and_then(|place| self.fates.get_mut(place)) {
            *known = fate;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Settling::{Acked, Buried, Returned, Unseen};

    fn after(arrived: u64, settled: &[(u64, Settling)]) -> (Tags, Settlements) {
        let mut tags = Tags::default();
        (1..=arrived).for_each(|tag| tags.arrived(tag));
        settled.iter().for_each(|(tag, settling)| tags.settle(*tag, *settling));
        let settlements = tags.settlements();
        (tags, settlements)
    }

    #[test]
    fn a_row_of_acks_is_one_word_in_whatever_order_they_came() {
        let (_, settlements) = after(5, &[(3, Acked), (1, Acked), (2, Acked)]);
        assert_eq!(settlements, Settlements { acked_up_to: Some(3), ..Settlements::default() });
    }

    #[test]
    fn what_is_done_behind_one_that_is_not_is_acked_alone_and_only_once() {
        let (mut tags, settlements) = after(4, &[(2, Acked), (4, Acked)]);
        assert_eq!(settlements, Settlements { acked: vec![2, 4], ..Settlements::default() });
        assert_eq!(tags.settlements(), Settlements::default());
        tags.settle(1, Acked);
        // 2 was sent: only 1 may be named, or the broker would close the channel over an unknown tag.
        assert_eq!(tags.settlements(), Settlements { acked_up_to: Some(1), ..Settlements::default() });
        tags.settle(3, Acked);
        assert_eq!(tags.settlements(), Settlements { acked_up_to: Some(3), ..Settlements::default() });
    }

    #[test]
    fn a_returned_one_is_never_acked_by_a_later_one() {
        let (_, settlements) = after(3, &[(1, Acked), (2, Returned), (3, Acked)]);
        assert_eq!(settlements, Settlements { returned: vec![(2, Returned)], acked_up_to: Some(3), acked: vec![] });
        let (_, settlements) = after(3, &[(1, Acked), (2, Buried), (3, Unseen)]);
        assert_eq!(
            settlements,
            Settlements { returned: vec![(2, Buried), (3, Unseen)], acked_up_to: Some(1), acked: vec![] }
        );
    }

    #[test]
    fn a_held_one_is_never_acked() {
        let (mut tags, settlements) = after(2, &[(2, Returned)]);
        assert_eq!(settlements, Settlements { returned: vec![(2, Returned)], ..Settlements::default() });
        tags.arrived(3);
        tags.settle(3, Acked);
        assert_eq!(tags.settlements(), Settlements { acked: vec![3], ..Settlements::default() });
        assert!(tags.quiet());
    }
}
