//! Hosts with parked feeds: which feeds wait, in which order, and the position of the host's head.

use std::collections::HashMap;

use common::host::HostKey;

use super::heap::{Entry, Heap};
use super::places::{HeapPosition, Places, Standing};
use crate::schedule::Band;

/// A host with parked feeds.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) key: HostKey,
    /// The waiting feeds, by rank.
    feeds: Heap<i64>,
    /// The head's band and its position in that band's heap.
    pub(super) head: (Band, u32),
}

/// A parked feed: its host, and its position in that host's heap.
#[derive(Clone, Copy, Debug, Default)]
struct Spot {
    host: u32,
    at: u32,
}

/// All hosts with parked feeds, numbered.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    numbers: HashMap<HostKey, u32>,
    hosts: Slots<Option<Host>>,
    spots: Slots<Spot>,
    parked: usize,
}

impl Hosts {
    /// Returns the number of feeds parked at all hosts.
    pub(super) fn parked(&self) -> usize {
        self.parked
    }

    pub(super) fn number(&self, key: &HostKey) -> Option<u32> {
        self.numbers.get(key).copied()
    }

    pub(super) fn get(&self, host: u32) -> Option<&Host> {
        self.hosts.items.get(host as usize)?.as_ref()
    }

    pub(super) fn set_head(&mut self, host: u32, head: (Band, u32)) {
        if let Some(Some(host)) = self.hosts.items.get_mut(host as usize) {
            host.head = head;
        }
    }

    /// Returns a host's number; adds the host if it is new, before its head is placed in `band`.
    pub(super) fn add(&mut self, key: &HostKey, band: Band) -> u32 {
        if let Some(known) = self.number(key) {
            return known;
        }
        let number = self.hosts.add(Some(Host { key: key.clone(), feeds: Heap::default(), head: (band, 0) }));
        self.numbers.insert(key.clone(), number);
        number
    }

    /// Removes a host without waiting feeds.
    pub(super) fn remove(&mut self, host: u32) {
        if let Some(Some(gone)) = self.hosts.items.get_mut(host as usize).map(Option::take) {
            self.numbers.remove(&gone.key);
            self.hosts.free.push(host);
        }
    }

    /// Parks the feed of a slot.
    pub(super) fn park(&mut self, host: u32, slot: u32, (band, rank): (Band, i64), places: &mut Places) {
        let spot = self.spots.add(Spot { host, at: 0 });
        places.set(slot, HeapPosition { standing: Standing::Parked, band, at: spot });
        self.parked += 1;
        let Hosts { hosts, spots, .. } = self;
        if let Some(Some(host)) = hosts.items.get_mut(host as usize) {
            host.feeds.push(Entry { key: rank, item: slot }, &mut |item, at| note(spots, places, item, at));
        }
    }

    /// Removes the feed of a spot from its host's heap; returns the host.
    pub(super) fn unpark(&mut self, spot: u32, places: &Places) -> u32 {
        let Spot { host, at } = self.spots.items[spot as usize];
        let Hosts { hosts, spots, .. } = self;
        if let Some(Some(host)) = hosts.items.get_mut(host as usize) {
            host.feeds.remove(at, &mut |item, at| note(spots, places, item, at));
        }
        self.spots.free.push(spot);
        self.parked -= 1;
        host
    }

    /// Changes the rank of the feed at a spot; returns the host.
    pub(super) fn rank(&mut self, spot: u32, rank: i64, places: &Places) -> u32 {
        let Spot { host, at } = self.spots.items[spot as usize];
        let Hosts { hosts, spots, .. } = self;
        if let Some(Some(host)) = hosts.items.get_mut(host as usize) {
            host.feeds.rekey(at, rank, &mut |item, at| note(spots, places, item, at));
        }
        host
    }

    /// Returns the slot of the next feed at a host.
    pub(super) fn first(&self, host: u32) -> Option<u32> {
        Some(self.get(host)?.feeds.first()?.item)
    }
}

/// Records the new position of a parked feed in its host's heap.
fn note(spots: &mut Slots<Spot>, places: &Places, slot: u32, at: u32) {
    if let Some(place) = places.get(slot)
        && let Some(spot) = spots.items.get_mut(place.at as usize)
    {
        spot.at = at;
    }
}

/// A slab: items with numbers that are reused.
#[derive(Debug)]
struct Slots<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Slots { items: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    fn add(&mut self, item: T) -> u32 {
        if let Some(free) = self.free.pop() {
            self.items[free as usize] = item;
            return free;
        }
        self.items.push(item);
        // There are no more of them than feeds, whose number `Places` limits.
        u32::try_from(self.items.len() - 1).unwrap_or(u32::MAX)
    }
}
