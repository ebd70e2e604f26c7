//! A heap that reports where each of its entries moves, so that an entry can be found, moved and removed.
//!
//! Four children per node: half the levels of a binary heap, and the four are adjacent in memory. It knows nothing
//! about feeds.

/// An entry: the lowest key comes first, among equal keys the lowest item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry<K> {
    pub(super) key: K,
    pub(super) item: u32,
}

/// A heap, lowest entry first. Every method that moves entries calls `moved(item, place)` with the new position of
/// each.
#[derive(Debug)]
pub(super) struct Heap<K> {
    entries: Vec<Entry<K>>,
}

const CHILDREN: usize = 4;
/// The minimum number of entries above which spare capacity is released.
const SMALL: usize = 1024;

impl<K> Default for Heap<K> {
    fn default() -> Self {
        Heap { entries: Vec::new() }
    }
}

impl<K: Copy + Ord> Heap<K> {
    pub(super) fn first(&self) -> Option<Entry<K>> {
        self.entries.first().copied()
    }

    pub(super) fn at(&self, place: u32) -> Option<Entry<K>> {
        self.entries.get(place as usize).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn push(&mut self, entry: Entry<K>, moved: &mut impl FnMut(u32, u32)) {
        self.entries.push(entry);
        self.up(self.entries.len() - 1, entry, moved);
    }

    pub(super) fn remove(&mut self, place: u32, moved: &mut impl FnMut(u32, u32)) -> Option<Entry<K>> {
        let removed = self.at(place)?;
        let last = self.entries.pop()?;
        if (place as usize) < self.entries.len() {
            self.settle(place as usize, last, moved);
        }
        if self.entries.capacity() > SMALL && self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to(self.entries.len() * 2);
        }
        Some(removed)
    }

    /// Changes the key of the entry at `place`.
    pub(super) fn rekey(&mut self, place: u32, key: K, moved: &mut impl FnMut(u32, u32)) {
        if let Some(entry) = self.at(place) {
            self.settle(place as usize, Entry { key, ..entry }, moved);
        }
    }

    /// Changes all keys at once, by a monotonic function.
    pub(super) fn rekey_all(&mut self, key: impl Fn(K) -> K) {
        for entry in &mut self.entries {
            entry.key = key(entry.key);
        }
    }

    /// Returns all entries, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry<K>> {
        self.entries.iter()
    }

    /// Visits every entry up to `last`, in no particular order, and looks at few others.
    pub(super) fn visit(&self, last: K, seen: &mut impl FnMut(Entry<K>)) {
        self.visit_below(0, last, seen);
    }

    fn visit_below(&self, place: usize, last: K, seen: &mut impl FnMut(Entry<K>)) {
        let Some(entry) = self.entries.get(place).filter(|entry| entry.key <= last) else { return };
        seen(*entry);
        for child in children(place) {
            self.visit_below(child, last, seen);
        }
    }

    fn settle(&mut self, place: usize, entry: Entry<K>, moved: &mut impl FnMut(u32, u32)) {
        if place > 0 && entry < self.entries[parent(place)] {
            self.up(place, entry, moved);
        } else {
            self.down(place, entry, moved);
        }
    }

    fn up(&mut self, mut place: usize, entry: Entry<K>, moved: &mut impl FnMut(u32, u32)) {
        while place > 0 && entry < self.entries[parent(place)] {
            self.write(place, self.entries[parent(place)], moved);
            place = parent(place);
        }
        self.write(place, entry, moved);
    }

    fn down(&mut self, mut place: usize, entry: Entry<K>, moved: &mut impl FnMut(u32, u32)) {
        while let Some((child, lowest)) = self.lowest_child(place)
            && lowest < entry
        {
            self.write(place, lowest, moved);
            place = child;
        }
        self.write(place, entry, moved);
    }

    fn lowest_child(&self, place: usize) -> Option<(usize, Entry<K>)> {
        let children = children(place);
        let present = children.start.min(self.entries.len())..children.end.min(self.entries.len());
        self.entries[present].iter().enumerate().map(|(n, entry)| (children.start + n, *entry)).min_by_key(|(_, e)| *e)
    }

    fn write(&mut self, place: usize, entry: Entry<K>, moved: &mut impl FnMut(u32, u32)) {
        self.entries[place] = entry;
        // Positions fit: `Places` limits the number of feeds in a heap.
        moved(entry.item, u32::try_from(place).unwrap_or(u32::MAX));
    }
}

fn parent(place: usize) -> usize {
    (place - 1) / CHILDREN
}

fn children(place: usize) -> std::ops::Range<usize> {
    place * CHILDREN + 1..place * CHILDREN + 1 + CHILDREN
}
