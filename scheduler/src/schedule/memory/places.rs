//! The state of each feed, in four bytes a feed.
//!
//! Feed ids are consecutive, so a paged table needs less memory than any map: a page exists while one of its feeds
//! does. The table does not contain due times.

use std::collections::HashMap;

use common::url::FeedId;

use crate::schedule::Band;

/// Marks an item of a band as the head of a host, and not a feed of this table.
pub(super) const HEAD: u32 = 1 << 31;

/// The state of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// In a band's heap, at its due time.
    Waiting,
    /// In a band's heap, at the end of its lease.
    Leased,
    /// The same, with a wake remembered for the next put.
    Woken,
    /// In its host's heap.
    Parked,
}

/// The state and position of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeapPosition {
    pub(super) standing: Standing,
    pub(super) band: Band,
    /// The position in the band's heap; for a parked feed the number of its spot.
    pub(super) at: u32,
}

/// A place in four bytes: 28 bits of `at`, two of the standing, two of the band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Packed(u32);

/// The table.
#[derive(Debug, Default)]
pub(super) struct Places {
    packed: Vec<Packed>,
    pages: HashMap<i64, Page>,
    /// The first feed of each page, by the page's position in the table.
    firsts: Vec<i64>,
    /// Unused pages of the table.
    free: Vec<u32>,
    feeds: usize,
}

#[derive(Debug)]
struct Page {
    index: u32,
    feeds: u32,
}

/// There are more feeds than the schedule of one process can address.
#[derive(Debug, thiserror::Error)]
#[error("one process can schedule {MAX_FEEDS} feeds at most")]
pub(super) struct TooMany;

const PAGE: u32 = 256;
/// Half of the range of 28 bits, because a heap may contain a host's head for each feed.
const MAX_FEEDS: u32 = 1 << 27;

impl Packed {
    /// The highest 28-bit position is never used by a feed.
    const ABSENT: Packed = Packed(u32::MAX);
    const AT: u32 = (1 << 28) - 1;

    fn of(place: HeapPosition) -> Self {
        Packed((place.band as u32) << 30 | (place.standing as u32) << 28 | place.at & Self::AT)
    }

    fn open(self) -> Option<HeapPosition> {
        let band = *Band::ALL.get((self.0 >> 30) as usize).filter(|_| self != Self::ABSENT)?;
        let standing = match self.0 >> 28 & 3 {
            0 => Standing::Waiting,
            1 => Standing::Leased,
            2 => Standing::Woken,
            _ => Standing::Parked,
        };
        Some(HeapPosition { standing, band, at: self.0 & Self::AT })
    }
}

impl Places {
    /// Returns the number of feeds.
    pub(super) fn len(&self) -> usize {
        self.feeds
    }

    /// Returns the maximum number of pages that were in use at once.
    #[cfg(test)]
    pub(super) fn pages(&self) -> usize {
        self.firsts.len()
    }

    /// Returns a feed's slot in the table, if it is there.
    pub(super) fn find(&self, feed: FeedId) -> Option<(u32, HeapPosition)> {
        let page = self.pages.get(&feed.0.div_euclid(i64::from(PAGE)))?;
        let slot = page.index * PAGE + offset(feed);
        Some((slot, self.get(slot)?))
    }

    /// Returns the feed of a slot.
    pub(super) fn feed(&self, slot: u32) -> FeedId {
        let first = self.firsts.get((slot / PAGE) as usize).copied().unwrap_or_default();
        FeedId(first + i64::from(slot % PAGE))
    }

    /// Returns every feed, in the order of the table.
    pub(super) fn iter(&self) -> impl Iterator<Item = (FeedId, HeapPosition)> {
        let places = (0..).zip(&self.packed).filter_map(|(slot, packed)| Some((slot, packed.open()?)));
        places.map(|(slot, place)| (self.feed(slot), place))
    }

    pub(super) fn get(&self, slot: u32) -> Option<HeapPosition> {
        self.packed.get(slot as usize)?.open()
    }

    /// Adds a feed that is not yet in the table and returns its slot.
    pub(super) fn add(&mut self, feed: FeedId, place: HeapPosition) -> Result<u32, TooMany> {
        let number = feed.0.div_euclid(i64::from(PAGE));
        if !self.pages.contains_key(&number) {
            let index = self.page(number * i64::from(PAGE))?;
            self.pages.insert(number, Page { index, feeds: 0 });
        }
        let page = self.pages.get_mut(&number).ok_or(TooMany)?;
        page.feeds += 1;
        self.feeds += 1;
        let slot = page.index * PAGE + offset(feed);
        self.set(slot, place);
        Ok(slot)
    }

    /// Returns a page for the feeds from `first` on.
    fn page(&mut self, first: i64) -> Result<u32, TooMany> {
        if let Some(index) = self.free.pop() {
            self.firsts[index as usize] = first;
            return Ok(index);
        }
        let index = u32::try_from(self.firsts.len()).ok().filter(|index| *index < MAX_FEEDS / PAGE).ok_or(TooMany)?;
        self.firsts.push(first);
        self.packed.resize(self.packed.len() + PAGE as usize, Packed::ABSENT);
        Ok(index)
    }

    /// Changes the place of the feed in a slot.
    pub(super) fn set(&mut self, slot: u32, place: HeapPosition) {
        self.packed[slot as usize] = Packed::of(place);
    }

    /// Records the new heap position of the feed in a slot.
    pub(super) fn moved(&mut self, slot: u32, at: u32) {
        let packed = &mut self.packed[slot as usize];
        *packed = Packed(packed.0 & !Packed::AT | at & Packed::AT);
    }

    /// Removes the feed in a slot.
    pub(super) fn remove(&mut self, slot: u32) {
        let number = self.feed(slot).0.div_euclid(i64::from(PAGE));
        self.packed[slot as usize] = Packed::ABSENT;
        self.feeds -= 1;
        if let Some(page) = self.pages.get_mut(&number) {
            page.feeds -= 1;
            if page.feeds == 0 {
                self.free.push(page.index);
                self.pages.remove(&number);
            }
        }
    }
}

fn offset(feed: FeedId) -> u32 {
    // A remainder modulo 256 fits.
    u32::try_from(feed.0.rem_euclid(i64::from(PAGE))).unwrap_or_default()
}
