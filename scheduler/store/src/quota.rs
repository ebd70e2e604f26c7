//! Quotas: what one feed may cost the store. A publisher chooses the ids and the size of entries; with new ids at every poll a
//! single feed would fill a disk in days.
//!
//! A feed has an allowance of entries and of bytes, which refills within a day. What exceeds it in a document is left
//! out: the newest entries are stored, the rest is counted. A feed that has more rows than allowed loses the oldest
//! ones, with their identities.

use std::time::Duration;

use common::config::QuotaConfig;
use common::feed::OverQuota;
use common::time::Timestamp;
use serde::{Deserialize, Serialize};

const DAY: Duration = Duration::from_secs(86_400);
/// By how much clocks are set back to be right. One that was ahead by more was wrong.
const SET_BACK: Duration = Duration::from_secs(3_600);
/// When rows leave, this share of the limit leaves at once, so that the search for the oldest is rare.
const ROWS_SHARE: u64 = 10;

/// What is remembered of a feed's cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Budget {
    /// When the allowances were calculated; `None`: they are full.
    at: Option<Timestamp>,
    /// Entries that may be stored.
    entries: f64,
    /// Bytes of text that may be stored.
    bytes: f64,
    /// Identities in the store; `None`: not counted yet.
    pub(crate) rows: Option<u64>,
    /// What was left out.
    pub(crate) over: OverQuota,
}

impl Budget {
    /// Reads what was stored; what cannot be read is a full allowance.
    pub(crate) fn read(stored: Option<&str>) -> Self {
        stored.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// Returns the text to store.
    pub(crate) fn packed(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    fn refilled(self, quota: &QuotaConfig, now: Timestamp) -> Self {
        let share = self.at.map_or(1.0, |at| now.since(at).as_secs_f64() / DAY.as_secs_f64());
        // An earlier program took from allowances without a limit as well, so that they fell without end.
        let refill = |left: f64, limit: u64| (left.max(0.0) + share * limit as f64).min(limit as f64);
        let (entries, bytes) = (refill(self.entries, quota.entries_per_day), refill(self.bytes, quota.bytes_per_day));
        // After a clock was set back the allowance waits for the earlier time to come again, but not for one that was far ahead.
        let before = self.at.filter(|at| at.since(now) <= SET_BACK);
        Budget { at: Some(before.map_or(now, |at| at.max(now))), entries, bytes, ..self }
    }

    /// Takes an entry's cost from the allowances; false when it does not fit.
    fn takes(&mut self, bytes: usize, quota: &QuotaConfig) -> bool {
        let bytes = bytes as f64;
        let limited = |limit: u64| limit > 0;
        let no_entry = limited(quota.entries_per_day) && self.entries < 1.0;
        // An entry that alone is larger than the allowance of a day is stored when that is full.
        let no_bytes = limited(quota.bytes_per_day) && self.bytes < bytes.min(quota.bytes_per_day as f64);
        if no_entry || no_bytes {
            self.over.entries += u64::from(no_entry);
            self.over.bytes += u64::from(!no_entry);
            return false;
        }
        self.entries = (self.entries - 1.0).max(0.0);
        self.bytes = (self.bytes - bytes).max(0.0);
        true
    }
}

/// What a document did to its feed's budget.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    /// The budget afterwards.
    pub(crate) budget: Budget,
    /// What was left out earlier.
    before: OverQuota,
    /// Identities that the feed did not have.
    new: u64,
}

impl Spent {
    /// Begins with what is stored of a budget, refilled.
    pub(crate) fn none(stored: Option<&str>, quota: &QuotaConfig, now: Timestamp) -> Self {
        let budget = Budget::read(stored).refilled(quota, now);
        Spent { budget, before: budget.over, new: 0 }
    }

    /// Takes an entry's cost from the budget; returns false when it does not fit.
    pub(crate) fn takes(&mut self, bytes: usize, is_new: bool, quota: &QuotaConfig) -> bool {
        let fits = self.budget.takes(bytes, quota);
        self.new += u64::from(fits && is_new);
        fits
    }

    /// Returns what this document had left out, or drove out.
    pub(crate) fn over(&self) -> OverQuota {
        let (now, before) = (self.budget.over, self.before);
        OverQuota {
            entries: now.entries - before.entries,
            bytes: now.bytes - before.bytes,
            rows: now.rows - before.rows,
            last: now.last,
        }
    }

    /// Returns whether the feed's rows are limited and were not counted yet.
    pub(crate) fn wants_count(&self, quota: &QuotaConfig) -> bool {
        quota.rows_per_feed > 0 && self.budget.rows.is_none() && self.new > 0
    }

    /// Notes how many identities the store has of the feed before this document.
    pub(crate) fn counted(&mut self, rows: u64) {
        self.budget.rows = Some(rows);
    }

    /// Returns how many of the feed's oldest identities must leave before this document is stored.
    pub(crate) fn excess(&self, quota: &QuotaConfig) -> u64 {
        let rows = self.budget.rows.unwrap_or(0) + self.new;
        let limit = quota.rows_per_feed;
        if limit == 0 || rows <= limit { 0 } else { rows - (limit - limit / ROWS_SHARE) }
    }

    /// Notes what left, and the document's own rows.
    pub(crate) fn settled(&mut self, gone: u64, now: Timestamp) {
        if let Some(rows) = &mut self.budget.rows {
            *rows = (*rows + self.new).saturating_sub(gone);
        }
        self.budget.over.rows += gone;
        if self.over() != (OverQuota { last: self.budget.over.last, ..OverQuota::default() }) {
            self.budget.over.last = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: QuotaConfig = QuotaConfig { entries_per_day: 10, bytes_per_day: 1000, rows_per_feed: 100 };
    const NOW: Timestamp = Timestamp::EPOCH;

    fn taken(budget: &mut Budget, entries: usize, bytes: usize) -> usize {
        (0..entries).filter(|_| budget.takes(bytes, &QUOTA)).count()
    }

    #[test]
    fn an_allowance_is_spent_refills_within_a_day_and_never_grows_beyond_it() {
        let mut budget = Budget::default().refilled(&QUOTA, NOW);
        assert_eq!(taken(&mut budget, 15, 1), 10);
        assert_eq!((budget.over.entries, budget.over.bytes), (5, 0));
        let mut later = budget.refilled(&QUOTA, NOW.after(DAY / 2));
        assert_eq!(taken(&mut later, 15, 1), 5);
        let mut much_later = budget.refilled(&QUOTA, NOW.after(DAY * 9));
        assert_eq!(taken(&mut much_later, 5, 300), 3, "bytes count too");
        assert_eq!(much_later.over.bytes, 2);
        for (ahead, refills) in [(SET_BACK, 4), (SET_BACK * 2, 5), (DAY * 365, 5)] {
            let spent = Budget { at: Some(NOW.after(ahead)), entries: 0.0, ..budget }.refilled(&QUOTA, NOW);
            assert_eq!(taken(&mut spent.refilled(&QUOTA, NOW.after(DAY / 2)), 15, 1), refills, "{ahead:?} ahead");
        }
        let mut full = Budget::default().refilled(&QUOTA, NOW);
        assert_eq!(
            taken(&mut full, 2, 5000),
            1,
            "an entry beyond all measure is stored, and takes the day's allowance"
        );
    }

    #[test]
    fn without_limits_nothing_is_left_out() {
        let mut budget = Budget::default().refilled(&QuotaConfig::NONE, NOW);
        assert!((0..100).all(|_| budget.takes(1 << 30, &QuotaConfig::NONE)));
        assert_eq!((budget.entries, budget.bytes), (0.0, 0.0), "and nothing is owed once there is a limit");
        let owing = Budget { entries: -1e6, ..budget };
        assert_eq!(taken(&mut owing.refilled(&QUOTA, NOW.after(DAY)), 15, 1), 10);
    }

    #[test]
    fn rows_leave_some_at_a_time() {
        let spent = |rows, new| Spent {
            budget: Budget { rows: Some(rows), ..Budget::default() },
            before: OverQuota::default(),
            new,
        };
        assert_eq!(spent(95, 5).excess(&QUOTA), 0);
        let mut over = spent(95, 6);
        assert_eq!(over.excess(&QUOTA), 11);
        over.settled(11, NOW);
        assert_eq!((over.budget.rows, over.over().rows, over.budget.over.last), (Some(90), 11, Some(NOW)));
    }

    #[test]
    fn a_budget_comes_back_equal() {
        let mut budget = Budget::default().refilled(&QUOTA, NOW);
        budget.takes(5, &QUOTA);
        assert_eq!(Budget::read(Some(&budget.packed())), budget);
        assert_eq!(Budget::read(Some("what?")), Budget::default());
    }
}
