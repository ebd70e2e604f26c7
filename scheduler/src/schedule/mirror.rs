//! The simplest possible schedule: a map that is scanned for each operation. Tests compare the real ones with it, and
//! the model of the claim protocol uses it in their place.

use std::collections::BTreeMap;

use common::host::HostKey;
use common::time::Timestamp;
use common::url::FeedId;

use super::{Band, Claim, Depth};

/// The state of a feed; times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Waiting { due: i64, band: Band },
    Leased { until: i64, band: Band, woken: bool },
    Parked { host: u8, rank: i64, band: Band },
}

/// Feeds by id, and the heads of hosts with parked feeds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mirror {
    pub(crate) feeds: BTreeMap<i64, At>,
    pub(crate) heads: BTreeMap<u8, (i64, Band)>,
    /// Whether, of feeds with the same rank at a host, the more urgent one comes first.
    pub(crate) ties_by_band: bool,
}

impl Mirror {
    pub(crate) fn put(&mut self, feed: i64, due: i64, band: Band, now: i64) {
        match self.feeds.get(&feed).copied() {
            Some(At::Waiting { due: old, band: was }) => {
                self.place(feed, At::Waiting { due: due.min(old), band: band.min(was) });
            }
            Some(At::Parked { band: was, .. }) if was < band => {}
            _ => self.put_off(feed, due, band, now),
        }
    }

    pub(crate) fn put_off(&mut self, feed: i64, due: i64, band: Band, now: i64) {
        let woken = matches!(self.feeds.get(&feed), Some(At::Leased { woken: true, .. }));
        let (due, band) = if woken { (due.min(now), Band::Urgent) } else { (due, band) };
        self.place(feed, At::Waiting { due, band });
    }

    pub(crate) fn lower(&mut self, feed: i64, due: i64, band: Band, now: i64) {
        let at = match self.feeds.get(&feed).copied() {
            None => At::Waiting { due, band },
            Some(At::Leased { until, band, .. }) if until > now => At::Leased { until, band, woken: true },
            Some(At::Waiting { due: old, band: was } | At::Leased { until: old, band: was, .. }) => {
                At::Waiting { due: due.min(old), band: band.min(was) }
            }
            Some(At::Parked { host, band: was, .. }) => {
                let head = self.heads.get_mut(&host).unwrap();
                *head = (head.0.min(due), head.1.min(band.min(was)));
                At::Parked { host, rank: i64::MIN, band: band.min(was) }
            }
        };
        self.place(feed, at);
    }

    pub(crate) fn correct(&mut self, feed: i64, due: i64, band: Band, slack: i64, now: i64) -> usize {
        let right = match self.feeds.get(&feed) {
            None => false,
            Some(At::Parked { .. }) => true,
            Some(At::Waiting { due: stands, .. }) => *stands <= due + slack,
            Some(At::Leased { until, .. }) => *until <= due.max(now) + slack,
        };
        if !right {
            self.place(feed, At::Waiting { due, band });
        }
        usize::from(!right)
    }

    pub(crate) fn extend(&mut self, feed: i64, to: i64) {
        if let Some(At::Leased { until, .. }) = self.feeds.get_mut(&feed) {
            *until = to.max(*until);
        }
    }

    pub(crate) fn park(&mut self, feed: i64, host: u8, band: Band, until: i64, rank: i64) {
        let Some(At::Leased { until: lease, woken, .. }) = self.feeds.get(&feed).copied() else { return };
        let (rank, band) = if woken { (i64::MIN, Band::Urgent) } else { (rank, band) };
        let head = self.heads.entry(host).or_insert((until, band));
        let at = if head.0 == lease { until } else { head.0.min(until) };
        *head = (at, head.1.min(band));
        self.place(feed, At::Parked { host, rank, band });
    }

    pub(crate) fn unpark(&mut self, host: u8, at: i64) {
        if let Some(head) = self.heads.get_mut(&host) {
            head.0 = head.0.min(at);
        }
    }

    fn place(&mut self, feed: i64, at: At) {
        self.feeds.insert(feed, at);
        self.drop_idle_heads();
    }

    pub(crate) fn remove(&mut self, feed: i64) {
        self.feeds.remove(&feed);
        self.drop_idle_heads();
    }

    fn drop_idle_heads(&mut self) {
        let feeds = &self.feeds;
        self.heads.retain(|host, _| feeds.values().any(|at| matches!(at, At::Parked { host: h, .. } if h == host)));
    }

    /// Returns the rank, id and band of the next feed at a host.
    pub(crate) fn top(&self, host: u8) -> Option<(i64, i64, Band)> {
        let parked = self.feeds.iter().filter_map(|(feed, at)| match at {
            At::Parked { host: h, rank, band } if *h == host => Some((*rank, *feed, *band)),
            _ => None,
        });
        let urgency = |band: Band| if self.ties_by_band { band } else { Band::Patient };
        parked.min_by_key(|(rank, feed, band)| (*rank, urgency(*band), *feed))
    }

    fn earliest(&self, of: Band) -> Option<i64> {
        let feeds = self.feeds.values().filter_map(|at| match at {
            At::Waiting { due: at, band } | At::Leased { until: at, band, .. } if *band == of => Some(*at),
            _ => None,
        });
        feeds.chain(self.heads.values().filter(|head| head.1 == of).map(|head| head.0)).min()
    }

    /// Checks that these claims are correct; among entries of the same age any may come first.
    pub(crate) fn claimed(&mut self, claims: &[Claim], limit: usize, lease: i64, now: i64) {
        let shares = Band::shares(limit, Timestamp::from_millis(now));
        let mut rest = claims.to_vec();
        let rounds = Band::ALL.into_iter().zip(shares).chain(Band::ALL.map(|band| (band, limit)));
        for (band, share) in rounds {
            let room = share.min(limit - (claims.len() - rest.len()).min(limit));
            for _ in 0..room {
                let Some(earliest) = self.earliest(band).filter(|at| *at <= now) else { break };
                let next = rest.iter().position(|claim| self.stands(claim) == Some((earliest, band)));
                let next = next.unwrap_or_else(|| panic!("{band:?} at {earliest} was not claimed: {claims:?}"));
                self.claim(&rest.remove(next), band, earliest, lease, now);
            }
        }
        assert_eq!(rest, [], "claimed too much");
    }

    /// Returns the entry from which this claim came: a feed, or the head of its host.
    fn stands(&self, claim: &Claim) -> Option<(i64, Band)> {
        match self.feeds.get(&claim.feed.0)? {
            At::Waiting { due: at, band } | At::Leased { until: at, band, .. } => Some((*at, *band)),
            At::Parked { host, .. } => self.heads.get(host).copied(),
        }
    }

    pub(crate) fn claim(&mut self, claim: &Claim, band: Band, earliest: i64, lease: i64, now: i64) {
        let feed = claim.feed.0;
        let until = now + lease;
        match (&claim.parked_at, self.feeds[&feed]) {
            (None, At::Waiting { due: at, band: was } | At::Leased { until: at, band: was, .. }) => {
                assert_eq!((at, was), (earliest, band), "feed {feed}");
                assert_eq!(claim.lease_expired, matches!(self.feeds[&feed], At::Leased { .. }), "feed {feed}");
                self.place(feed, At::Leased { until, band, woken: false });
            }
            (Some(key), At::Parked { host, band: was, .. }) => {
                assert_eq!((key, claim.lease_expired), (&name(host), false));
                assert_eq!(self.heads[&host], (earliest, band), "head of {key}");
                assert_eq!(self.top(host).map(|top| top.1), Some(feed), "the next at {key}");
                self.place(feed, At::Leased { until, band: was, woken: false });
                if let Some((_, _, next)) = self.top(host) {
                    self.heads.insert(host, (until, next));
                }
            }
            (_, at) => panic!("{claim:?} of a feed that is {at:?}"),
        }
    }

    /// Returns the waiting feeds, by due time and id.
    pub(crate) fn waiting(&self) -> Vec<(Timestamp, FeedId)> {
        let waiting = self.feeds.iter().filter_map(|(feed, at)| match at {
            At::Waiting { due, .. } => Some((Timestamp::from_millis(*due), FeedId(*feed))),
            _ => None,
        });
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_unstable();
        waiting
    }

    pub(crate) fn depth(&self, now: i64) -> Depth {
        let parked = self.feeds.values().filter(|at| matches!(at, At::Parked { .. })).count();
        let due = |of: Band| {
            self.feeds.values().filter_map(move |at| match at {
                At::Waiting { due, band } if *band == of && *due <= now => Some(*due),
                _ => None,
            })
        };
        Depth {
            feeds: self.feeds.len(),
            due: parked + Band::ALL.map(|band| due(band).count()).iter().sum::<usize>(),
            parked,
            leased: self.feeds.values().filter(|at| matches!(at, At::Leased { .. })).count(),
            next: Band::ALL.iter().filter_map(|band| self.earliest(*band)).min().map(Timestamp::from_millis),
            oldest: Band::ALL.map(|band| due(band).min().map(Timestamp::from_millis)),
        }
    }
}

/// Returns the key of a host that the mirror has by number.
pub(crate) fn name(host: u8) -> HostKey {
    HostKey::new(&format!("host{host}:80"))
}
