//! The schedule beside a model of it that looks through everything each time: after random lives both show the same.

use std::collections::BTreeMap;
use std::time::Duration;

use common::feed::FeedId;
use common::host::HostKey;
use common::redis::testing::shared;
use common::time::Timestamp;
use proptest::prelude::*;
use tokio::runtime::Runtime;

use super::memory::MemorySchedule;
use super::redis::RedisSchedule;
use super::{Band, Claim, Depth, Parking, Schedule, ScheduleError, Slot};

/// Where the model has a feed; times are in milliseconds.
#[derive(Clone, Copy, Debug)]
enum At {
    Waiting { due: i64, band: Band },
    Leased { until: i64, band: Band, woken: bool },
    Parked { host: u8, rank: i64, band: Band },
}

#[derive(Debug, Default)]
struct Model {
    feeds: BTreeMap<i64, At>,
    heads: BTreeMap<u8, (i64, Band)>,
    /// Of feeds with the same rank at a host the more urgent one comes first.
    ties_by_band: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Put { feed: i64, band: Band, ahead: i64 },
    Lower { feed: i64, band: Band, ahead: i64 },
    Correct { feed: i64, band: Band, ahead: i64 },
    Remove { feed: i64 },
    Claim { limit: usize },
    Park { feed: i64, host: u8, band: Band, ahead: i64, rank: i64 },
    Unpark { host: u8, ahead: i64 },
    Advance { by: i64 },
}

const LEASE: i64 = 10_000;
const SLACK: i64 = 7_000;
const START: i64 = 1_790_000_000_000;
const DAY: i64 = 24 * 60 * 60 * 1000;

impl Model {
    fn put(&mut self, feed: i64, due: i64, band: Band, now: i64) {
        let woken = matches!(self.feeds.get(&feed), Some(At::Leased { woken: true, .. }));
        let (due, band) = if woken { (due.min(now), Band::Urgent) } else { (due, band) };
        self.place(feed, At::Waiting { due, band });
    }

    fn lower(&mut self, feed: i64, due: i64, band: Band, now: i64) {
        let at = match self.feeds.get(&feed).copied() {
            None => At::Waiting { due, band },
            Some(At::Leased { until, band, .. }) if until > now => At::Leased { until, band, woken: true },
            Some(At::Waiting { due: old, band: was } | At::Leased { until: old, band: was, .. }) => {
                At::Waiting { due: due.min(old), band: band.min(was) }
            }
            Some(At::Parked { host, band: was, .. }) => {
                let head = self.heads.get_mut(&host).unwrap();
                head.1 = head.1.min(band.min(was));
                At::Parked { host, rank: i64::MIN, band: band.min(was) }
            }
        };
        self.place(feed, at);
    }

    fn correct(&mut self, feed: i64, due: i64, band: Band, now: i64) -> usize {
        let right = match self.feeds.get(&feed) {
            None => false,
            Some(At::Parked { .. }) => true,
            Some(At::Waiting { due: stands, .. }) => *stands <= due + SLACK,
            Some(At::Leased { until, .. }) => *until <= due.max(now) + SLACK,
        };
        if !right {
            self.place(feed, At::Waiting { due, band });
        }
        usize::from(!right)
    }

    fn park(&mut self, feed: i64, host: u8, band: Band, until: i64, rank: i64) {
        let Some(At::Leased { woken, .. }) = self.feeds.get(&feed).copied() else { return };
        let (rank, band) = if woken { (i64::MIN, Band::Urgent) } else { (rank, band) };
        let head = self.heads.entry(host).or_insert((until, band));
        *head = (head.0.min(until), head.1.min(band));
        self.place(feed, At::Parked { host, rank, band });
    }

    fn unpark(&mut self, host: u8, at: i64) {
        if let Some(head) = self.heads.get_mut(&host) {
            head.0 = head.0.min(at);
        }
    }

    fn place(&mut self, feed: i64, at: At) {
        self.feeds.insert(feed, at);
        self.drop_idle_heads();
    }

    fn remove(&mut self, feed: i64) {
        self.feeds.remove(&feed);
        self.drop_idle_heads();
    }

    fn drop_idle_heads(&mut self) {
        let feeds = &self.feeds;
        self.heads.retain(|host, _| feeds.values().any(|at| matches!(at, At::Parked { host: h, .. } if h == host)));
    }

    /// The rank, number and band of the feed that is next at a host.
    fn top(&self, host: u8) -> Option<(i64, i64, Band)> {
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

    /// Checks that these claims are what a claim must give; among equally old entries any may come first.
    fn claimed(&mut self, claims: &[Claim], limit: usize, now: i64) {
        let shares = Band::shares(limit, Timestamp::from_millis(now));
        let mut rest = claims.to_vec();
        let rounds = Band::ALL.into_iter().zip(shares).chain(Band::ALL.map(|band| (band, limit)));
        for (band, share) in rounds {
            let room = share.min(limit - (claims.len() - rest.len()).min(limit));
            for _ in 0..room {
                let Some(earliest) = self.earliest(band).filter(|at| *at <= now) else { break };
                let next = rest.iter().position(|claim| self.stands(claim) == Some((earliest, band)));
                let next = next.unwrap_or_else(|| panic!("{band:?} at {earliest} was not claimed: {claims:?}"));
                self.claim(&rest.remove(next), band, earliest, now);
            }
        }
        assert_eq!(rest, [], "claimed too much");
    }

    /// Where the entry stands from which this claim came: a feed, or the head of its host.
    fn stands(&self, claim: &Claim) -> Option<(i64, Band)> {
        match self.feeds.get(&claim.feed.0)? {
            At::Waiting { due: at, band } | At::Leased { until: at, band, .. } => Some((*at, *band)),
            At::Parked { host, .. } => self.heads.get(host).copied(),
        }
    }

    fn claim(&mut self, claim: &Claim, band: Band, earliest: i64, now: i64) {
        let feed = claim.feed.0;
        let until = now + LEASE;
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

    fn depth(&self, now: i64) -> Depth {
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

fn name(host: u8) -> HostKey {
    HostKey::new(&format!("host{host}:80"))
}

/// Steps of feeds whose numbers have as many digits, so that text has the same order.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Three pages of the table, and few enough feeds that each has a life.
    let feed = || prop_oneof![102_400..102_408_i64, 102_655..102_659_i64, 170_000..170_003_i64];
    let band = || prop::sample::select(&Band::ALL[..]);
    let ahead = || prop_oneof![8 => -3_000..30_000_i64, 1 => 20 * DAY..35 * DAY];
    let step = prop_oneof![
        4 => (feed(), band(), ahead()).prop_map(|(feed, band, ahead)| Step::Put { feed, band, ahead }),
        2 => (feed(), band(), ahead()).prop_map(|(feed, band, ahead)| Step::Lower { feed, band, ahead }),
        1 => (feed(), band(), ahead()).prop_map(|(feed, band, ahead)| Step::Correct { feed, band, ahead }),
        1 => feed().prop_map(|feed| Step::Remove { feed }),
        5 => (1..9_usize).prop_map(|limit| Step::Claim { limit }),
        5 => (feed(), 0..3_u8, band(), ahead(), 0..5_i64)
            .prop_map(|(feed, host, band, ahead, rank)| Step::Park { feed, host, band, ahead, rank }),
        1 => (0..3_u8, ahead()).prop_map(|(host, ahead)| Step::Unpark { host, ahead }),
        4 => (0..8_000_i64).prop_map(|by| Step::Advance { by }),
        1 => Just(Step::Advance { by: DAY / 3 }),
    ];
    prop::collection::vec(step, 1..250)
}

/// A real schedule beside the model.
struct Beside<S> {
    real: S,
    model: Model,
    now: i64,
    runtime: Runtime,
}

impl<S: Schedule> Beside<S> {
    fn new(real: S, ties_by_band: bool) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Beside { real, model: Model { ties_by_band, ..Model::default() }, now: START, runtime }
    }

    fn done<T>(&self, answer: impl Future<Output = Result<T, ScheduleError>>) -> T {
        self.runtime.block_on(answer).unwrap()
    }

    fn take(&mut self, step: &Step) {
        let at = Timestamp::from_millis(self.now);
        let slot = |feed, band, due| [Slot { feed: FeedId(feed), due_at: Timestamp::from_millis(due), band }];
        match *step {
            Step::Put { feed, band, ahead } => {
                self.done(self.real.put(&slot(feed, band, self.now + ahead), at));
                self.model.put(feed, self.now + ahead, band, self.now);
            }
            Step::Lower { feed, band, ahead } => {
                self.done(self.real.lower(&slot(feed, band, self.now + ahead), at));
                self.model.lower(feed, self.now + ahead, band, self.now);
            }
            Step::Correct { feed, band, ahead } => {
                let slack = Duration::from_millis(SLACK.unsigned_abs());
                let corrected = self.done(self.real.correct(&slot(feed, band, self.now + ahead), slack, at));
                assert_eq!(corrected, self.model.correct(feed, self.now + ahead, band, self.now));
            }
            Step::Remove { feed } => {
                self.done(self.real.remove(&[FeedId(feed)]));
                self.model.remove(feed);
            }
            Step::Claim { limit } => {
                let lease = Duration::from_millis(LEASE.unsigned_abs());
                let claims = self.done(self.real.claim_due(at, limit, lease));
                self.model.claimed(&claims, limit, self.now);
            }
            Step::Park { feed, host, band, ahead, rank } => {
                let until = Timestamp::from_millis(self.now + ahead);
                self.done(self.real.park(&[Parking { feed: FeedId(feed), host: name(host), until, band, rank }]));
                self.model.park(feed, host, band, self.now + ahead, rank);
            }
            Step::Unpark { host, ahead } => {
                self.done(self.real.unpark(&[(name(host), Timestamp::from_millis(self.now + ahead))]));
                self.model.unpark(host, self.now + ahead);
            }
            Step::Advance { by } => self.now += by,
        }
        let depth = self.done(self.real.depth(Timestamp::from_millis(self.now)));
        assert_eq!(depth, self.model.depth(self.now), "after {step:?}");
    }

    /// A life, after a feed in each page that is never touched: so the table is in the order of the feeds' numbers, as ties are.
    fn live(mut self, steps: &[Step]) {
        for feed in [102_500, 102_700, 170_100] {
            self.take(&Step::Put { feed, band: Band::Steady, ahead: 38 * DAY });
        }
        steps.iter().for_each(|step| self.take(step));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn after_any_life_the_schedule_in_memory_shows_what_the_model_shows(steps in steps()) {
        Beside::new(MemorySchedule::default(), false).live(&steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn after_any_life_the_schedule_in_redis_shows_what_the_model_shows(steps in steps()) {
        Beside::new(RedisSchedule::new(shared(), 1), true).live(&steps);
    }
}
