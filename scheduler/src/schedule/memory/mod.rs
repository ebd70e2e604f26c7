//! The schedule inside one process: a heap per band and a table with the place of each feed, twelve bytes per feed,
//! behind a mutex that is never held across an await.
//!
//! A heap entry is a time and an item, four bytes each; the item is a feed's slot in the table, or the number of a host
//! whose head it is. The table contains each feed's position in its heap, so that every change is one move in a heap.

mod heap;
mod hosts;
mod places;
mod waiting;
mod window;

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use common::host::HostKey;
use common::time::{Clock, Timestamp};
use common::url::FeedId;

use self::heap::{Entry, Heap};
use self::hosts::Hosts;
use self::places::{HEAD, HeapPosition, Places, Standing, TooMany};
use self::window::Window;
use super::{Band, Claim, Depth, Parking, RebuildMark, Schedule, ScheduleError, ScheduleUpkeep, ScheduleView, Slot};

/// The due times of the feeds of one process.
#[derive(Default)]
pub struct MemorySchedule {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    places: Places,
    hosts: Hosts,
    /// Due times, by band.
    bands: [Heap<u32>; 4],
    /// The window that the bands' times are relative to.
    window: Window,
    leased: usize,
    /// Whether every feed of the store was added.
    whole: bool,
}

/// The rank of a woken feed: before all others of its host.
const FRONT: i64 = i64::MIN;

impl State {
    /// Moves the window if `now` has drifted from its middle.
    fn follow(&mut self, now: Timestamp) {
        let (old, new) = (self.window, Window::around(now));
        if self.bands.iter().all(Heap::is_empty) {
            self.window = new;
        } else if old.is_off(now) {
            self.window = new;
            self.bands.iter_mut().for_each(|band| band.rekey_all(|key| old.rekey(key, new)));
        }
    }

    /// Returns one band's heap, and the callback for moves in it.
    fn band(&mut self, band: Band) -> (&mut Heap<u32>, impl FnMut(u32, u32)) {
        let State { places, hosts, bands, .. } = self;
        let moved = move |item: u32, at| match item & HEAD {
            0 => places.moved(item, at),
            _ => hosts.set_head(item & !HEAD, (band, at)),
        };
        (&mut bands[band as usize], moved)
    }

    fn enter(&mut self, item: u32, band: Band, at: Timestamp) {
        let key = self.window.key(at);
        let (heap, mut moved) = self.band(band);
        heap.push(Entry { key, item }, &mut moved);
    }

    fn leave(&mut self, band: Band, place: u32) {
        let (heap, mut moved) = self.band(band);
        heap.remove(place, &mut moved);
    }

    /// Moves an entry of a band's heap to another time, and to another band if that differs.
    fn shift(&mut self, item: u32, (from, place): (Band, u32), to: Band, at: Timestamp) {
        if from == to {
            let key = self.window.key(at);
            let (heap, mut moved) = self.band(to);
            heap.rekey(place, key, &mut moved);
        } else {
            self.leave(from, place);
            self.enter(item, to, at);
        }
    }

    /// Returns when an entry of a band's heap becomes due.
    fn time(&self, band: Band, place: u32) -> Timestamp {
        self.bands[band as usize].at(place).map_or(Timestamp::EPOCH, |entry| self.window.time(entry.key))
    }

    /// Makes a feed wait for its due time, whatever its state was.
    fn wait(&mut self, feed: FeedId, due_at: Timestamp, band: Band) -> Result<(), TooMany> {
        match self.places.find(feed) {
            None => {
                let slot = self.places.add(feed, HeapPosition { standing: Standing::Waiting, band, at: 0 })?;
                self.enter(slot, band, due_at);
            }
            Some((slot, place)) => self.stand(slot, place, Standing::Waiting, band, due_at),
        }
        Ok(())
    }

    /// Moves a feed from its place into a band's heap.
    fn stand(&mut self, slot: u32, from: HeapPosition, standing: Standing, band: Band, at: Timestamp) {
        self.leased -= usize::from(from.is_leased());
        self.places.set(slot, HeapPosition { standing, band, ..from });
        self.leased += usize::from(matches!(standing, Standing::Leased));
        if from.standing == Standing::Parked {
            self.leave_host(from.at);
            self.enter(slot, band, at);
        } else {
            self.shift(slot, (from.band, from.at), band, at);
        }
    }

    /// Removes a parked feed from its host's heap, and the host's head with the last feed.
    fn leave_host(&mut self, spot: u32) {
        let number = self.hosts.unpark(spot, &self.places);
        if self.hosts.first(number).is_none()
            && let Some((band, place)) = self.hosts.get(number).map(|host| host.head)
        {
            self.leave(band, place);
            self.hosts.remove(number);
        }
    }

    fn remove(&mut self, feed: FeedId) {
        let Some((slot, place)) = self.places.find(feed) else { return };
        self.leased -= usize::from(place.is_leased());
        match place.standing {
            Standing::Parked => self.leave_host(place.at),
            _ => self.leave(place.band, place.at),
        }
        self.places.remove(slot);
    }

    fn put(&mut self, slot: Slot, raises: bool, now: Timestamp) -> Result<(), TooMany> {
        match self.places.find(slot.feed).map(|(_, place)| place) {
            Some(HeapPosition { standing: Standing::Woken, .. }) => {
                self.wait(slot.feed, slot.due_at.min(now), Band::Urgent)
            }
            Some(place) if place.standing == Standing::Waiting && !raises => {
                let at = self.time(place.band, place.at);
                self.wait(slot.feed, slot.due_at.min(at), slot.band.min(place.band))
            }
            Some(place) if place.standing == Standing::Parked && place.band < slot.band && !raises => Ok(()),
            _ => self.wait(slot.feed, slot.due_at, slot.band),
        }
    }

    fn lower(&mut self, wish: Slot, now: Timestamp) -> Result<(), TooMany> {
        let Some((slot, place)) = self.places.find(wish.feed) else {
            return self.wait(wish.feed, wish.due_at, wish.band);
        };
        let band = wish.band.min(place.band);
        match place.standing {
            Standing::Parked => {
                self.places.set(slot, HeapPosition { band, ..place });
                let host = self.hosts.rank(place.at, FRONT, &self.places);
                self.bring_head(host, wish.due_at, band);
            }
            _ => {
                let at = self.time(place.band, place.at);
                if place.is_leased() && at > now {
                    self.places.set(slot, HeapPosition { standing: Standing::Woken, ..place });
                } else {
                    self.stand(slot, place, Standing::Waiting, band, at.min(wish.due_at));
                }
            }
        }
        Ok(())
    }

    /// Brings a host's head forward to `at` and to `band`, unless it is already earlier or in a more urgent band.
    fn bring_head(&mut self, host: u32, at: Timestamp, band: Band) {
        let Some((old_band, place)) = self.hosts.get(host).map(|host| host.head) else { return };
        let at = at.min(self.time(old_band, place));
        self.shift(host | HEAD, (old_band, place), band.min(old_band), at);
    }

    fn correct(&mut self, slot: Slot, slack: Duration, now: Timestamp) -> Result<bool, TooMany> {
        // Clamped to the window, like the stored times.
        let latest = self.window.time(self.window.key(slot.due_at)).after(slack);
        if let Some((_, place)) = self.places.find(slot.feed) {
            let right = match place.standing {
                // A parked feed waits for its host, which always has a head.
                Standing::Parked => true,
                Standing::Waiting => self.time(place.band, place.at) <= latest,
                // A feed that was claimed late has a lease that ends late.
                Standing::Leased | Standing::Woken => self.time(place.band, place.at) <= latest.max(now.after(slack)),
            };
            if right {
                return Ok(false);
            }
        }
        self.wait(slot.feed, slot.due_at, slot.band)?;
        Ok(true)
    }

    fn park(&mut self, parking: &Parking) {
        // Only a claimed feed can be parked: if it was removed or re-scored in the meantime, this claim no longer owns
        // it.
        let Some((slot, place)) = self.places.find(parking.feed).filter(|(_, place)| place.is_leased()) else { return };
        let (band, rank) = match place.standing {
            Standing::Woken => (Band::Urgent, FRONT),
            _ => (parking.band, parking.rank),
        };
        let lease = self.time(place.band, place.at);
        self.leased -= 1;
        self.leave(place.band, place.at);
        let known = self.hosts.number(&parking.host);
        let host = known.unwrap_or_else(|| self.hosts.add(&parking.host, band));
        self.hosts.park(host, slot, (band, rank), &mut self.places);
        match (known, self.hosts.get(host).map(|host| host.head)) {
            // The claim of this feed set it, in case the feed was not parked again.
            (Some(_), Some(head)) if self.time(head.0, head.1) == lease => {
                self.shift(host | HEAD, head, band.min(head.0), parking.until);
            }
            (Some(_), _) => self.bring_head(host, parking.until, band),
            (None, _) => self.enter(host | HEAD, band, parking.until),
        }
    }

    /// Claims the first due entry of a band, if there is one.
    fn claim(&mut self, band: Band, now: Timestamp, until: Timestamp) -> Option<Claim> {
        let first = self.bands[band as usize].first().filter(|first| self.window.time(first.key) <= now)?;
        if first.item & HEAD != 0 {
            return self.claim_parked(first.item & !HEAD, until);
        }
        let place = self.places.get(first.item)?;
        self.stand(first.item, place, Standing::Leased, band, until);
        Some(Claim { feed: self.places.feed(first.item), parked_at: None, lease_expired: place.is_leased() })
    }

    /// Claims the top parked feed of a host whose head is due, and sets the head to the lease's end while others stay
    /// parked.
    fn claim_parked(&mut self, number: u32, until: Timestamp) -> Option<Claim> {
        let slot = self.hosts.first(number)?;
        let place = self.places.get(slot)?;
        let host = self.hosts.get(number)?;
        let (key, head) = (host.key.clone(), host.head);
        self.stand(slot, place, Standing::Leased, place.band, until);
        if let Some(next) = self.hosts.first(number).and_then(|next| self.places.get(next)) {
            let head = self.hosts.get(number).map_or(head, |host| host.head);
            self.shift(number | HEAD, head, next.band, until);
        }
        Some(Claim { feed: self.places.feed(slot), parked_at: Some(key), lease_expired: false })
    }

    /// Claims from every band: its guaranteed share, then what the others left, most urgent first.
    fn claim_due(&mut self, now: Timestamp, limit: usize, lease: Duration) -> Vec<Claim> {
        let until = now.after(lease);
        let mut claims = [const { Vec::new() }; 4];
        let mut left = limit;
        for shares in [Band::shares(limit, now), [limit; 4]] {
            for ((band, share), claims) in Band::ALL.into_iter().zip(shares).zip(&mut claims) {
                let before = claims.len();
                claims.extend((0..share.min(left)).map_while(|_| self.claim(band, now, until)));
                left -= claims.len() - before;
            }
        }
        claims.concat()
    }

    fn claim_urgent(&mut self, now: Timestamp, limit: usize, lease: Duration) -> Vec<Claim> {
        let until = now.after(lease);
        (0..limit).map_while(|_| self.claim(Band::Urgent, now, until)).collect()
    }

    /// Extends a lease, if there is one.
    fn extend(&mut self, feed: FeedId, until: Timestamp) {
        if let Some((slot, place)) = self.places.find(feed).filter(|(_, place)| place.is_leased())
            && self.time(place.band, place.at) < until
        {
            self.shift(slot, (place.band, place.at), place.band, until);
        }
    }

    fn waiting(&self, from: Option<(Timestamp, FeedId)>, limit: usize, reversed: bool) -> Vec<(Timestamp, FeedId)> {
        waiting::waiting((&self.bands, self.window, &self.places), from, limit, reversed)
    }

    fn depth(&self, now: Timestamp) -> Depth {
        let parked = self.hosts.parked();
        let (mut due, mut oldest) = (parked, [None; 4]);
        for (band, oldest) in self.bands.iter().zip(&mut oldest) {
            band.visit(self.window.key(now), &mut |entry| {
                let place = self.places.get(entry.item).filter(|_| entry.item & HEAD == 0);
                if place.is_some_and(|place| place.standing == Standing::Waiting) {
                    due += 1;
                    *oldest = Some(oldest.unwrap_or(Timestamp::MAX).min(self.window.time(entry.key)));
                }
            });
        }
        let next = self.bands.iter().filter_map(Heap::first).map(|first| self.window.time(first.key)).min();
        Depth { feeds: self.places.len(), due, parked, leased: self.leased, next, oldest }
    }
}

impl HeapPosition {
    fn is_leased(self) -> bool {
        matches!(self.standing, Standing::Leased | Standing::Woken)
    }
}

impl From<TooMany> for ScheduleError {
    fn from(error: TooMany) -> Self {
        ScheduleError::Backend { action: "take in another feed", source: Box::new(error) }
    }
}

impl MemorySchedule {
    fn lock(&self) -> MutexGuard<'_, State> {
        common::lock(&self.state)
    }

    /// Locks the state, with its window around `now`.
    fn at(&self, now: Timestamp) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.follow(now);
        state
    }
}

#[async_trait]
impl Schedule for MemorySchedule {
    async fn put(&self, slots: &[Slot], now: Timestamp) -> Result<(), ScheduleError> {
        let mut state = self.at(now);
        Ok(slots.iter().try_for_each(|slot| state.put(*slot, false, now))?)
    }

    async fn put_off(&self, slots: &[Slot], now: Timestamp) -> Result<(), ScheduleError> {
        let mut state = self.at(now);
        Ok(slots.iter().try_for_each(|slot| state.put(*slot, true, now))?)
    }

    async fn lower(&self, slots: &[Slot], now: Timestamp) -> Result<(), ScheduleError> {
        let mut state = self.at(now);
        Ok(slots.iter().try_for_each(|slot| state.lower(*slot, now))?)
    }

    async fn correct(&self, slots: &[Slot], slack: Duration, now: Timestamp) -> Result<usize, ScheduleError> {
        let mut state = self.at(now);
        let mut corrected = 0;
        for slot in slots {
            corrected += usize::from(state.correct(*slot, slack, now)?);
        }
        Ok(corrected)
    }

    async fn remove(&self, feeds: &[FeedId]) -> Result<(), ScheduleError> {
        let mut state = self.lock();
        feeds.iter().for_each(|feed| state.remove(*feed));
        Ok(())
    }

    async fn claim_due(&self, now: Timestamp, limit: usize, lease: Duration) -> Result<Vec<Claim>, ScheduleError> {
        Ok(self.at(now).claim_due(now, limit, lease))
    }

    async fn claim_urgent(&self, now: Timestamp, limit: usize, lease: Duration) -> Result<Vec<Claim>, ScheduleError> {
        Ok(self.at(now).claim_urgent(now, limit, lease))
    }

    async fn extend(&self, feeds: &[FeedId], until: Timestamp) -> Result<(), ScheduleError> {
        let mut state = self.lock();
        feeds.iter().for_each(|feed| state.extend(*feed, until));
        Ok(())
    }

    async fn park(&self, parkings: &[Parking]) -> Result<(), ScheduleError> {
        let mut state = self.lock();
        parkings.iter().for_each(|parking| state.park(parking));
        Ok(())
    }

    async fn unpark(&self, hosts: &[(HostKey, Timestamp)]) -> Result<(), ScheduleError> {
        let mut state = self.lock();
        for (host, at) in hosts {
            if let Some(host) = state.hosts.number(host) {
                state.bring_head(host, *at, Band::Patient);
            }
        }
        Ok(())
    }
}

#[async_trait]
impl ScheduleUpkeep for MemorySchedule {
    async fn begin_rebuild(&self) -> Result<Option<RebuildMark>, ScheduleError> {
        Ok((!self.lock().whole).then(|| RebuildMark(Vec::new())))
    }

    async fn finish_rebuild(&self, _mark: &RebuildMark) -> Result<bool, ScheduleError> {
        self.lock().whole = true;
        Ok(true)
    }

    async fn check(&self, _: &dyn Clock) -> Result<(), ScheduleError> {
        Ok(())
    }
}

#[async_trait]
impl ScheduleView for MemorySchedule {
    async fn waiting(
        &self,
        after: Option<(Timestamp, FeedId)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, FeedId)>, ScheduleError> {
        Ok(self.lock().waiting(after, limit, false))
    }

    async fn waiting_before(
        &self,
        before: Option<(Timestamp, FeedId)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, FeedId)>, ScheduleError> {
        Ok(self.lock().waiting(before, limit, true))
    }

    async fn taken(&self, limit: usize) -> Result<Vec<FeedId>, ScheduleError> {
        let state = self.lock();
        Ok(waiting::taken(&state.places, state.leased + state.hosts.parked(), limit))
    }

    async fn depth(&self, now: Timestamp) -> Result<Depth, ScheduleError> {
        Ok(self.lock().depth(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::schedule_conformance!(|| async { MemorySchedule::default() });

    #[test]
    fn feeds_by_the_page_come_and_go_and_their_room_is_used_again() {
        let mut state = State::default();
        let now = Timestamp::from_millis(1_790_000_000_000);
        state.follow(now);
        for round in 0..3 {
            let feeds: Vec<FeedId> = (0..5_000).map(|n| FeedId(round * 1_000_000_007 + n)).collect();
            for feed in &feeds {
                state.put(Slot { feed: *feed, due_at: now, band: Band::Steady }, false, now).unwrap();
            }
            let claims = state.claim_due(now, usize::MAX, Duration::from_secs(9));
            let mut claimed: Vec<FeedId> = claims.into_iter().map(|claim| claim.feed).collect();
            claimed.sort_unstable();
            assert_eq!(claimed, feeds);
            feeds.iter().for_each(|feed| state.remove(*feed));
            assert_eq!(state.depth(now), Depth::default());
        }
        assert!(state.places.pages() <= 5_000 / 256 + 2, "{} pages", state.places.pages());
    }
}
