//! The schedule inside one process: a map of places and an ordered set per band, behind a mutex that is never held across
//! an await.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use common::feed::FeedId;
use common::host::HostKey;
use common::time::Timestamp;

use super::{Band, Claim, Depth, Parking, Schedule, ScheduleError, Slot};

/// The due times of the feeds of one process.
#[derive(Default)]
pub struct MemorySchedule {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    places: HashMap<FeedId, Place>,
    /// What becomes due when, by band.
    bands: [BTreeSet<(Timestamp, Key)>; 3],
    hosts: HashMap<HostKey, ParkedHost>,
    leased: usize,
}

/// What stands in a band's set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Feed(FeedId),
    /// The head of a host with parked feeds.
    Head(HostKey),
}

/// Where a feed is.
#[derive(Clone, Debug)]
enum Place {
    /// In a band's set, at its due time.
    Waiting { due_at: Timestamp, band: Band },
    /// In a band's set, at the end of its lease; `woken` remembers a wake for the next put.
    Leased { until: Timestamp, band: Band, woken: bool },
    /// In its host's parked set.
    Parked { host: HostKey, rank: i64, band: Band },
}

/// A host with parked feeds.
#[derive(Debug)]
struct ParkedHost {
    feeds: BTreeSet<(i64, FeedId)>,
    head_at: Timestamp,
    head_band: Band,
}

/// The rank of a woken feed: before all others of its host.
const FRONT: i64 = i64::MIN;

impl State {
    fn band(&mut self, band: Band) -> &mut BTreeSet<(Timestamp, Key)> {
        &mut self.bands[band as usize]
    }

    fn insert_waiting(&mut self, feed: FeedId, due_at: Timestamp, band: Band) {
        self.band(band).insert((due_at, Key::Feed(feed)));
        self.places.insert(feed, Place::Waiting { due_at, band });
    }

    /// Takes a feed out of wherever it is.
    fn take(&mut self, feed: FeedId) -> Option<Place> {
        let place = self.places.remove(&feed)?;
        self.leased -= usize::from(matches!(place, Place::Leased { .. }));
        match &place {
            Place::Waiting { due_at: at, band } | Place::Leased { until: at, band, .. } => {
                let entry = (*at, Key::Feed(feed));
                self.band(*band).remove(&entry);
            }
            Place::Parked { host, rank, .. } => self.take_parked(&host.clone(), *rank, feed),
        }
        Some(place)
    }

    fn take_parked(&mut self, host: &HostKey, rank: i64, feed: FeedId) {
        let Some(parked) = self.hosts.get_mut(host) else { return };
        parked.feeds.remove(&(rank, feed));
        if parked.feeds.is_empty() {
            let head = (parked.head_at, Key::Head(host.clone()));
            let band = parked.head_band;
            self.band(band).remove(&head);
            self.hosts.remove(host);
        }
    }

    fn put(&mut self, slot: Slot, now: Timestamp) {
        match self.take(slot.feed) {
            Some(Place::Leased { woken: true, .. }) => {
                self.insert_waiting(slot.feed, slot.due_at.min(now), Band::Urgent);
            }
            _ => self.insert_waiting(slot.feed, slot.due_at, slot.band),
        }
    }

    fn lower(&mut self, slot: Slot, now: Timestamp) {
        match self.places.get_mut(&slot.feed) {
            None => self.insert_waiting(slot.feed, slot.due_at, slot.band),
            Some(Place::Leased { until, woken, .. }) if *until > now => *woken = true,
            Some(Place::Waiting { due_at, band } | Place::Leased { until: due_at, band, .. }) => {
                let (due_at, band) = (slot.due_at.min(*due_at), slot.band.min(*band));
                self.take(slot.feed);
                self.insert_waiting(slot.feed, due_at, band);
            }
            Some(Place::Parked { host, rank, band }) => {
                let (host, old_rank) = (host.clone(), *rank);
                (*rank, *band) = (FRONT, slot.band.min(*band));
                let band = *band;
                if let Some(parked) = self.hosts.get_mut(&host) {
                    parked.feeds.remove(&(old_rank, slot.feed));
                    parked.feeds.insert((FRONT, slot.feed));
                    let head_at = parked.head_at;
                    self.move_head(&host, head_at, band);
                }
            }
        }
    }

    /// Sets a host's head to `at`, in the more urgent of its band and `band`.
    fn move_head(&mut self, host: &HostKey, at: Timestamp, band: Band) {
        let Some(parked) = self.hosts.get_mut(host) else { return };
        let (old_at, old_band) = (parked.head_at, parked.head_band);
        (parked.head_at, parked.head_band) = (at, band.min(old_band));
        self.band(old_band).remove(&(old_at, Key::Head(host.clone())));
        self.band(band.min(old_band)).insert((at, Key::Head(host.clone())));
    }

    fn correct(&mut self, slot: Slot, slack: Duration, now: Timestamp) -> bool {
        let latest = slot.due_at.after(slack);
        match self.places.get(&slot.feed) {
            // A parked feed waits for its host, whose head is always there.
            Some(Place::Parked { .. }) => return false,
            Some(Place::Waiting { due_at, .. }) if *due_at <= latest => return false,
            // A feed that was claimed late has a lease that ends late.
            Some(Place::Leased { until, .. }) if *until <= latest.max(now.after(slack)) => return false,
            _ => {}
        }
        self.take(slot.feed);
        self.insert_waiting(slot.feed, slot.due_at, slot.band);
        true
    }

    fn park(&mut self, parking: &Parking) {
        // Only a claimed feed can be parked: one that was removed or re-scored meanwhile is somebody else's.
        let Some(Place::Leased { woken, .. }) = self.places.get(&parking.feed) else { return };
        let (rank, band) = if *woken { (FRONT, Band::Urgent) } else { (parking.rank, parking.band) };
        self.take(parking.feed);
        let head = (parking.until, Key::Head(parking.host.clone()));
        match self.hosts.get_mut(&parking.host) {
            Some(parked) => {
                parked.feeds.insert((rank, parking.feed));
                let at = parked.head_at.min(parking.until);
                self.move_head(&parking.host, at, band);
            }
            None => {
                let feeds = BTreeSet::from([(rank, parking.feed)]);
                let parked = ParkedHost { feeds, head_at: parking.until, head_band: band };
                self.hosts.insert(parking.host.clone(), parked);
                self.band(band).insert(head);
            }
        }
        self.places.insert(parking.feed, Place::Parked { host: parking.host.clone(), rank, band });
    }

    /// Claims the first due entry of a band, if there is one.
    fn claim(&mut self, band: Band, now: Timestamp, until: Timestamp) -> Option<Claim> {
        let (at, _) = self.band(band).first()?;
        if *at > now {
            return None;
        }
        match self.band(band).pop_first()? {
            (_, Key::Feed(feed)) => {
                let expired = matches!(self.places.get(&feed), Some(Place::Leased { .. }));
                self.leased -= usize::from(expired);
                self.lease(feed, band, until);
                Some(Claim { feed, parked_at: None, lease_expired: expired })
            }
            (_, Key::Head(host)) => {
                let feed = self.claim_parked(&host, until)?;
                Some(Claim { feed, parked_at: Some(host), lease_expired: false })
            }
        }
    }

    /// Claims the top parked feed of a host whose head was just taken out, and re-arms the head.
    fn claim_parked(&mut self, host: &HostKey, until: Timestamp) -> Option<FeedId> {
        let parked = self.hosts.get_mut(host)?;
        let (_, feed) = parked.feeds.pop_first()?;
        let band = match self.places.get(&feed) {
            Some(Place::Parked { band, .. }) => *band,
            _ => Band::Steady,
        };
        let next = parked.feeds.first().map(|(_, feed)| *feed);
        match next {
            None => {
                self.hosts.remove(host);
            }
            Some(next) => {
                let head_band = match self.places.get(&next) {
                    Some(Place::Parked { band, .. }) => *band,
                    _ => Band::Steady,
                };
                let parked = self.hosts.get_mut(host)?;
                (parked.head_at, parked.head_band) = (until, head_band);
                self.band(head_band).insert((until, Key::Head(host.clone())));
            }
        }
        self.lease(feed, band, until);
        Some(feed)
    }

    fn lease(&mut self, feed: FeedId, band: Band, until: Timestamp) {
        self.band(band).insert((until, Key::Feed(feed)));
        self.places.insert(feed, Place::Leased { until, band, woken: false });
        self.leased += 1;
    }

    /// Claims from every band: first its guaranteed share, then what the others left, most urgent first.
    fn claim_due(&mut self, now: Timestamp, limit: usize, lease: Duration) -> Vec<Claim> {
        let until = now.after(lease);
        let share = limit.div_ceil(4);
        let shares = [limit.saturating_sub(2 * share).max(share), share, share];
        let mut claims = Vec::new();
        for (band, share) in Band::ALL.into_iter().zip(shares) {
            let room = limit.saturating_sub(claims.len()).min(share);
            claims.extend((0..room).map_while(|_| self.claim(band, now, until)));
        }
        for band in Band::ALL {
            let room = limit.saturating_sub(claims.len());
            claims.extend((0..room).map_while(|_| self.claim(band, now, until)));
        }
        claims
    }

    fn depth(&self, now: Timestamp) -> Depth {
        let end = (now.after(Duration::from_millis(1)), Key::Feed(FeedId(i64::MIN)));
        let waiting = |band: Band| {
            self.bands[band as usize].range(..end.clone()).filter_map(|(at, key)| match key {
                Key::Feed(feed) => matches!(self.places.get(feed), Some(Place::Waiting { .. })).then_some(*at),
                Key::Head(_) => None,
            })
        };
        let parked = self.hosts.values().map(|host| host.feeds.len()).sum();
        Depth {
            feeds: self.places.len(),
            due: Band::ALL.into_iter().map(|band| waiting(band).count()).sum::<usize>() + parked,
            parked,
            leased: self.leased,
            next: self.bands.iter().filter_map(|band| band.first()).map(|(at, _)| *at).min(),
            oldest: Band::ALL.map(|band| waiting(band).next()),
        }
    }
}

impl MemorySchedule {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Schedule for MemorySchedule {
    async fn put(&self, slots: &[Slot], now: Timestamp) -> Result<(), ScheduleError> {
        let mut state = self.lock();
        slots.iter().for_each(|slot| state.put(*slot, now));
        Ok(())
    }

    async fn lower(&self, slots: &[Slot], now: Timestamp) -> Result<(), ScheduleError> {
        let mut state = self.lock();
        slots.iter().for_each(|slot| state.lower(*slot, now));
        Ok(())
    }

    async fn correct(&self, slots: &[Slot], slack: Duration, now: Timestamp) -> Result<usize, ScheduleError> {
        let mut state = self.lock();
        Ok(slots.iter().filter(|slot| state.correct(**slot, slack, now)).count())
    }

    async fn remove(&self, feeds: &[FeedId]) -> Result<(), ScheduleError> {
        let mut state = self.lock();
        for feed in feeds {
            state.take(*feed);
        }
        Ok(())
    }

    async fn claim_due(&self, now: Timestamp, limit: usize, lease: Duration) -> Result<Vec<Claim>, ScheduleError> {
        Ok(self.lock().claim_due(now, limit, lease))
    }

    async fn park(&self, parkings: &[Parking]) -> Result<(), ScheduleError> {
        let mut state = self.lock();
        parkings.iter().for_each(|parking| state.park(parking));
        Ok(())
    }

    async fn unpark(&self, host: &HostKey, at: Timestamp) -> Result<(), ScheduleError> {
        let mut state = self.lock();
        if let Some(parked) = state.hosts.get(host)
            && at < parked.head_at
        {
            let band = parked.head_band;
            state.move_head(host, at, band);
        }
        Ok(())
    }

    async fn check(&self, _: Timestamp) -> Result<(), ScheduleError> {
        Ok(())
    }

    async fn depth(&self, now: Timestamp) -> Result<Depth, ScheduleError> {
        Ok(self.lock().depth(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::schedule_conformance!(|| async { MemorySchedule::default() });
}
