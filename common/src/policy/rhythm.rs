//! What is remembered about a feed's posting: how much, at which hours of the day, on which days of the week. 56 bytes.
//!
//! The rate is a Gamma estimate over a decaying window: items seen, over time watched, both decaying with a time
//! constant of 30 days. Hours and weekdays (UTC) are counts, shrunk towards a uniform distribution by a prior of a few
//! items, so that a feed has a profile only after enough posts. Constant space is enough to follow a feed whose habits
//! change. The time of the newest item is kept to a quarter of an hour, because a feed that has just
//! posted is likely to post again soon.

use std::time::Duration;

use crate::document::Document;
use crate::entry::Entry;
use crate::time::Timestamp;

/// Items and watched time decay with this time constant, in days: long enough for a monthly feed, short enough to
/// notice that a feed has gone quiet.
const MEMORY_DAYS: f64 = 30.0;
/// The prior: four tenths of a group of items in four days, a group in ten days. A longer one keeps busy feeds below their rate
/// for weeks. Of a feed that posts many items at once, a group is as large as its groups were.
const PRIOR_GROUPS: f64 = 0.4;
const PRIOR_DAYS: f64 = 4.0;
/// The prior of the size of a group: this many groups of one item.
const SINGLE_GROUPS: f64 = 2.0;
/// Items that are closer in time are a group.
const TOGETHER: i64 = HOUR;
/// The prior of the profiles: items that are assumed to be spread evenly over the day, and over the week, whose days differ
/// less than hours do.
const EVEN_ITEMS: f32 = 8.0;
const EVEN_WEEK_ITEMS: f32 = 16.0;
/// An item counts in its hour and, less, in both adjacent hours: cron jobs are punctual, people are not.
const OWN_HOUR: u8 = 3;
const HOUR_BESIDE: u8 = 1;
/// What one item adds to the hours in total.
const HOURS_PER_ITEM: f32 = (OWN_HOUR + 2 * HOUR_BESIDE) as f32;
/// A clock that went back by more than this was ahead before, and time counts from here; by less, two clocks differ.
const SET_BACK: Duration = Duration::from_secs(3600);
/// An item without a usable date appeared between two polls. If these are further apart, its hour is unknown.
const KNOWN_HOUR: i64 = 3 * HOUR;

const HOUR: i64 = 3_600_000;
const QUARTER: i64 = HOUR / 4;
/// The time of the newest item is known modulo this: 682 days.
const QUARTERS: i64 = 65_535;
/// The time of the newest item is dropped after this many hours, long before its counter wraps.
const LONG_AGO: f64 = 24.0 * 365.0;
const HOURS: usize = 24;
const DAYS: usize = 7;
/// 1970-01-01 was a Thursday; Monday is 0.
const EPOCH_WEEKDAY: i64 = 3;
const MILLIS_PER_DAY: f64 = 86_400_000.0;

/// When a feed posts, according to its reports.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rhythm {
    /// Items seen, decayed.
    items: f32,
    /// Days watched, decayed in the same way.
    days: f32,
    /// When both were last updated; `None`: nothing is known.
    at: Option<Timestamp>,
    /// When the newest item was posted, see [`quarter`]; 0: unknown, or long ago.
    newest: u16,
    /// Items by hour of the day, in units of a fifth; scaled down together when one is full.
    hours: [u8; HOURS],
    /// Items by day of the week, Monday first; scaled down together when one is full.
    weekdays: [u8; DAYS],
    /// Items, and the groups that they came in; scaled down together when one is full.
    grouped: [u8; 2],
}

impl Rhythm {
    /// The length of [`Self::to_bytes`].
    pub const SIZE: usize = 56;

    /// Creates the rhythm of a feed that was watched for `days` and posted `items`, at any hour.
    pub fn steady(items: f32, days: f32, at: Timestamp) -> Self {
        Rhythm { items, days, at: Some(at), ..Rhythm::default() }
    }

    /// Returns the number of items seen, decayed.
    pub fn items(&self) -> f32 {
        self.items
    }

    /// Returns the expected number of items a day, over all hours and days. Never zero.
    pub fn per_day(&self) -> f64 {
        let (items, days) = (f64::from(self.items), f64::from(self.days));
        (items.max(0.0) + PRIOR_GROUPS * self.per_group()) / (days.max(0.0) + PRIOR_DAYS)
    }

    /// Returns how many items come together, at least one.
    fn per_group(&self) -> f64 {
        let [items, groups] = self.grouped.map(f64::from);
        ((items + SINGLE_GROUPS) / (groups + SINGLE_GROUPS)).max(1.0)
    }

    /// Returns the hours since the newest item was posted; `None` if that is unknown.
    pub(super) fn quiet_for(&self, at: Timestamp) -> Option<f64> {
        let posted = i64::from(self.newest.checked_sub(1)?);
        Some((at.millis() / QUARTER - posted).rem_euclid(QUARTERS) as f64 / 4.0)
    }

    /// Returns by how much each hour of the day, and each day of the week (from Monday), is above or below the mean.
    pub(super) fn profile(&self) -> ([f32; HOURS], [f32; DAYS]) {
        (shares(&self.hours, EVEN_ITEMS * HOURS_PER_ITEM), shares(&self.weekdays, EVEN_WEEK_ITEMS))
    }

    /// Returns the rhythm after a good answer at `at` without anything new.
    #[must_use]
    pub(super) fn watched(self, at: Timestamp) -> Self {
        let Some(before) = self.at else { return Rhythm { at: Some(at), ..self } };
        let days = days_between(before, at);
        let kept = (-days / MEMORY_DAYS).exp();
        let at = not_back(before, at);
        Rhythm {
            items: narrow(f64::from(self.items) * kept),
            days: narrow(f64::from(self.days) * kept + MEMORY_DAYS * (1.0 - kept)),
            newest: if self.quiet_for(at).is_some_and(|hours| hours < LONG_AGO) { self.newest } else { 0 },
            at: Some(at),
            ..self
        }
    }

    /// Returns the rhythm after a document at `at`. The dated entries of the first document are history from before we
    /// watched; of later documents only entries that are new since the last poll count, at their date if that is
    /// between the two polls.
    #[must_use]
    pub(super) fn observed(self, document: &Document, at: Timestamp) -> Self {
        let Some(before) = self.at else { return Rhythm::from_history(&document.entries, at) };
        let mut after = self.watched(at);
        after.items = narrow(f64::from(after.items) + f64::from(document.new_entries));
        // Changed entries come with the new ones, but have older dates. The newest entries are last.
        let dates = document.entries.iter().rev().filter_map(date).filter(|date| (before..=at).contains(date));
        let new_entries = usize::try_from(document.new_entries).unwrap_or(usize::MAX);
        let mut dated = 0;
        let (mut newest, mut later) = (None, None);
        for date in dates.take(new_entries) {
            after.count(date);
            if let Some(later) = later {
                after.group(is_apart(later, date));
            }
            (newest, later) = (newest.max(Some(date)), Some(date));
            dated += 1;
        }
        if let Some(oldest) = later {
            after.group(self.quiet_for(oldest).is_none_or(|hours| hours >= TOGETHER as f64 / HOUR as f64));
        }
        let gap = at.millis() - before.millis();
        if (0..=KNOWN_HOUR).contains(&gap) {
            let between = Timestamp::from_millis(at.millis() - gap / 2);
            (dated..new_entries.min(document.entries.len())).for_each(|_| after.count(between));
            newest = newest.or((new_entries > 0).then_some(between));
        }
        // Those without a usable date came together, as far as anybody knows.
        (dated..new_entries.min(document.entries.len())).for_each(|undated| after.group(undated == 0));
        if let Some(newest) = newest {
            after.newest = quarter(newest, at);
        }
        after
    }

    /// Returns the rhythm after a document at `at` whose identities are all new once more. A feed that posts more than its
    /// document holds looks like that, and so does one that renames its entries: only entries dated between the two polls
    /// count as new.
    #[must_use]
    pub(super) fn doubted(self, document: &Document, at: Timestamp) -> Self {
        let Some(before) = self.at else { return self.observed(document, at) };
        let between = |entry: &&Entry| date(entry).is_some_and(|date| before < date && date <= at);
        let dated: Vec<Entry> = document.entries.iter().filter(between).cloned().collect();
        if dated.is_empty() {
            return Rhythm { at: Some(not_back(before, at)), ..self };
        }
        let new_entries = u32::try_from(dated.len()).unwrap_or(u32::MAX);
        self.observed(&Document { entries: dated, new_entries, ..Document::default() }, at)
    }

    /// Creates a rhythm from the first document's entries. Dates in the future are ignored, and without dates nothing
    /// is known.
    fn from_history(entries: &[Entry], at: Timestamp) -> Self {
        let mut rhythm = Rhythm { at: Some(at), ..Rhythm::default() };
        let (mut items, mut oldest, mut newest, mut before) = (0.0, 0.0_f64, None, None);
        for date in entries.iter().filter_map(date).filter(|date| *date <= at) {
            let age = days_between(date, at);
            items += (-age / MEMORY_DAYS).exp();
            oldest = oldest.max(age);
            newest = newest.max(Some(date));
            rhythm.count(date);
            rhythm.group(before.is_none_or(|before| is_apart(before, date)));
            before = Some(date);
        }
        rhythm.newest = newest.map_or(0, |newest| quarter(newest, at));
        rhythm.items = narrow(items);
        rhythm.days = narrow(MEMORY_DAYS * (1.0 - (-oldest / MEMORY_DAYS).exp()));
        rhythm
    }

    fn count(&mut self, posted: Timestamp) {
        let (hour, weekday) = (hour_of_day(posted), weekday(posted));
        let beside = [(hour + HOURS - 1) % HOURS, (hour + 1) % HOURS];
        make_room(&mut self.hours, OWN_HOUR);
        self.hours[hour] += OWN_HOUR;
        beside.into_iter().for_each(|hour| self.hours[hour] += HOUR_BESIDE);
        make_room(&mut self.weekdays, 1);
        self.weekdays[weekday] += 1;
    }

    /// Notes an item that begins a group, or belongs to the last one.
    fn group(&mut self, is_first: bool) {
        make_room(&mut self.grouped, 1);
        self.grouped[0] += 1;
        self.grouped[1] += u8::from(is_first);
    }

    /// Packs the rhythm into bytes for the store, which treats them as opaque.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let parts: [&[u8]; 6] = [
            &self.items.to_le_bytes(),
            &self.days.to_le_bytes(),
            &packed(self.at, self.newest).to_le_bytes(),
            &self.hours,
            &self.weekdays,
            &self.grouped,
        ];
        let mut rest = &mut bytes[..];
        for part in parts {
            let (head, tail) = rest.split_at_mut(part.len());
            head.copy_from_slice(part);
            rest = tail;
        }
        bytes
    }

    /// Unpacks bytes from the store; bytes of another length result in an unknown rhythm.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let Ok(bytes) = <[u8; Self::SIZE]>::try_from(bytes) else { return Rhythm::default() };
        let part = |from: usize| std::array::from_fn(|place| bytes[from + place]);
        let (at, newest) = unpacked(u64::from_le_bytes(std::array::from_fn(|place| bytes[8 + place])));
        Rhythm {
            items: f32::from_le_bytes(part(0)),
            days: f32::from_le_bytes(part(4)),
            at,
            newest,
            hours: std::array::from_fn(|hour| bytes[16 + hour]),
            weekdays: std::array::from_fn(|day| bytes[16 + HOURS + day]),
            // Older versions wrote zeros.
            grouped: std::array::from_fn(|place| bytes[16 + HOURS + DAYS + place]),
        }
    }
}

/// Returns the number of hours since 1970, negative before.
pub(super) fn hour_of(at: Timestamp) -> i64 {
    at.millis().div_euclid(HOUR)
}

/// Returns the hour of the day, and the day of the week from Monday, of an hour since 1970.
#[expect(clippy::cast_possible_truncation, reason = "Euclidean remainders, of at most 23")]
pub(super) fn place(hour: i64) -> (usize, usize) {
    (hour.rem_euclid(24) as usize, (hour.div_euclid(24) + EPOCH_WEEKDAY).rem_euclid(7) as usize)
}

fn hour_of_day(at: Timestamp) -> usize {
    place(hour_of(at)).0
}

fn weekday(at: Timestamp) -> usize {
    place(hour_of(at)).1
}

fn date(entry: &Entry) -> Option<Timestamp> {
    entry.published.or(entry.updated)
}

/// Returns whether two items, one after the other in a document, are in different groups.
fn is_apart(one: Timestamp, other: Timestamp) -> bool {
    (one.millis() - other.millis()).abs() >= TOGETHER
}

/// Takes a quarter off all counts if one of them has no room for `more`.
fn make_room(counts: &mut [u8], more: u8) {
    if counts.iter().any(|count| count.checked_add(more).is_none()) {
        for count in counts {
            *count -= *count / 4;
        }
    }
}

fn shares<const N: usize>(counts: &[u8; N], even: f32) -> [f32; N] {
    let sum: u16 = counts.iter().map(|count| u16::from(*count)).sum();
    let scale = N as f32 / (f32::from(sum) + even);
    counts.map(|count| (f32::from(count) + even / N as f32) * scale)
}

/// The bits of a time in milliseconds, which last until the year 10000. The newest item is above them, where older versions
/// wrote zeros.
const TIME_BITS: u32 = 48;

fn packed(at: Option<Timestamp>, newest: u16) -> u64 {
    let millis = at.and_then(|at| u64::try_from(at.millis()).ok()).unwrap_or(0);
    millis.min((1 << TIME_BITS) - 1) | u64::from(newest) << TIME_BITS
}

fn unpacked(bits: u64) -> (Option<Timestamp>, u16) {
    let millis = i64::try_from(bits & ((1 << TIME_BITS) - 1)).unwrap_or(0);
    let at = (millis > 0).then(|| Timestamp::from_millis(millis));
    (at, u16::try_from(bits >> TIME_BITS).unwrap_or(0))
}

/// Returns a time in quarters of an hour since 1970, modulo [`QUARTERS`], counted from 1; 0 if it was long ago.
fn quarter(posted: Timestamp, now: Timestamp) -> u16 {
    let is_recent = days_between(posted, now) * 24.0 < LONG_AGO;
    let quarter = u16::try_from((posted.millis() / QUARTER).rem_euclid(QUARTERS)).unwrap_or(0);
    if is_recent { quarter + 1 } else { 0 }
}

/// Returns `at`, or `before` if that is a little later.
fn not_back(before: Timestamp, at: Timestamp) -> Timestamp {
    if before.since(at) > SET_BACK { at } else { at.max(before) }
}

fn days_between(earlier: Timestamp, later: Timestamp) -> f64 {
    later.since(earlier).as_millis() as f64 / MILLIS_PER_DAY
}

#[expect(clippy::cast_possible_truncation, reason = "seven digits are plenty for an estimate, and half the space")]
fn narrow(value: f64) -> f32 {
    value as f32
}
