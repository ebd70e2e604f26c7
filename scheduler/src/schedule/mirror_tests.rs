//! Compares the schedule with its mirror, which scans everything each time: after random operations both must agree.

use std::time::Duration;

use common::redis::testing::shared;
use common::time::Timestamp;
use common::url::FeedId;
use proptest::prelude::*;
use tokio::runtime::Runtime;

use super::memory::MemorySchedule;
use super::mirror::{Mirror, name};
use super::redis::RedisSchedule;
use super::{Band, Parking, Schedule, ScheduleError, Slot};

#[derive(Clone, Debug)]
enum Step {
    Put { feed: i64, band: Band, ahead: i64 },
    PutOff { feed: i64, band: Band, ahead: i64 },
    Lower { feed: i64, band: Band, ahead: i64 },
    Correct { feed: i64, band: Band, ahead: i64 },
    Remove { feed: i64 },
    Claim { limit: usize },
    Extend { feed: i64, ahead: i64 },
    Park { feed: i64, host: u8, band: Band, ahead: i64, rank: i64 },
    Unpark { host: u8, ahead: i64 },
    Advance { by: i64 },
}

const LEASE: i64 = 10_000;
const SLACK: i64 = 7_000;
const START: i64 = 1_790_000_000_000;
const DAY: i64 = 24 * 60 * 60 * 1000;

/// Generates operations on feeds whose ids have the same number of digits, so that text has the same order.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Three pages of the table, and so few feeds that each gets many operations.
    let feed = || prop_oneof![102_400..102_408_i64, 102_655..102_659_i64, 170_000..170_003_i64];
    let band = || prop::sample::select(&Band::ALL[..]);
    let ahead = || prop_oneof![8 => -3_000..30_000_i64, 1 => 20 * DAY..35 * DAY];
    let step = prop_oneof![
        4 => (feed(), band(), ahead()).prop_map(|(feed, band, ahead)| Step::Put { feed, band, ahead }),
        1 => (feed(), band(), ahead()).prop_map(|(feed, band, ahead)| Step::PutOff { feed, band, ahead }),
        2 => (feed(), band(), ahead()).prop_map(|(feed, band, ahead)| Step::Lower { feed, band, ahead }),
        1 => (feed(), band(), ahead()).prop_map(|(feed, band, ahead)| Step::Correct { feed, band, ahead }),
        1 => feed().prop_map(|feed| Step::Remove { feed }),
        5 => (1..9_usize).prop_map(|limit| Step::Claim { limit }),
        2 => (feed(), ahead()).prop_map(|(feed, ahead)| Step::Extend { feed, ahead }),
        5 => (feed(), 0..3_u8, band(), ahead(), 0..5_i64)
            .prop_map(|(feed, host, band, ahead, rank)| Step::Park { feed, host, band, ahead, rank }),
        1 => (0..3_u8, ahead()).prop_map(|(host, ahead)| Step::Unpark { host, ahead }),
        4 => (0..8_000_i64).prop_map(|by| Step::Advance { by }),
        1 => Just(Step::Advance { by: DAY / 3 }),
    ];
    prop::collection::vec(step, 1..250)
}

/// A real schedule and its mirror.
struct Beside<S> {
    real: S,
    mirror: Mirror,
    now: i64,
    runtime: Runtime,
}

impl<S: Schedule> Beside<S> {
    fn new(real: S, ties_by_band: bool) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Beside { real, mirror: Mirror { ties_by_band, ..Mirror::default() }, now: START, runtime }
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
                self.mirror.put(feed, self.now + ahead, band, self.now);
            }
            Step::PutOff { feed, band, ahead } => {
                self.done(self.real.put_off(&slot(feed, band, self.now + ahead), at));
                self.mirror.put_off(feed, self.now + ahead, band, self.now);
            }
            Step::Lower { feed, band, ahead } => {
                self.done(self.real.lower(&slot(feed, band, self.now + ahead), at));
                self.mirror.lower(feed, self.now + ahead, band, self.now);
            }
            Step::Correct { feed, band, ahead } => {
                let slack = Duration::from_millis(SLACK.unsigned_abs());
                let corrected = self.done(self.real.correct(&slot(feed, band, self.now + ahead), slack, at));
                assert_eq!(corrected, self.mirror.correct(feed, self.now + ahead, band, SLACK, self.now));
            }
            Step::Remove { feed } => {
                self.done(self.real.remove(&[FeedId(feed)]));
                self.mirror.remove(feed);
            }
            Step::Claim { limit } => {
                let lease = Duration::from_millis(LEASE.unsigned_abs());
                let claims = self.done(self.real.claim_due(at, limit, lease));
                self.mirror.claimed(&claims, limit, LEASE, self.now);
            }
            Step::Extend { feed, ahead } => {
                self.done(self.real.extend(&[FeedId(feed)], Timestamp::from_millis(self.now + ahead)));
                self.mirror.extend(feed, self.now + ahead);
            }
            Step::Park { feed, host, band, ahead, rank } => {
                let until = Timestamp::from_millis(self.now + ahead);
                self.done(self.real.park(&[Parking { feed: FeedId(feed), host: name(host), until, band, rank }]));
                self.mirror.park(feed, host, band, self.now + ahead, rank);
            }
            Step::Unpark { host, ahead } => {
                self.done(self.real.unpark(&[(name(host), Timestamp::from_millis(self.now + ahead))]));
                self.mirror.unpark(host, self.now + ahead);
            }
            Step::Advance { by } => self.now += by,
        }
        let depth = self.done(self.real.depth(Timestamp::from_millis(self.now)));
        assert_eq!(depth, self.mirror.depth(self.now), "after {step:?}");
        let (mut waiting, mut after) = (Vec::new(), None);
        while let Some(last) =
            self.done(self.real.waiting(after, 7)).iter().inspect(|place| waiting.push(**place)).last()
        {
            after = Some(*last);
        }
        assert_eq!(waiting, self.mirror.waiting(), "after {step:?}");
        let (mut backwards, mut before) = (Vec::new(), None);
        while let Some(first) =
            self.done(self.real.waiting_before(before, 7)).iter().inspect(|place| backwards.push(**place)).last()
        {
            before = Some(*first);
        }
        backwards.reverse();
        assert_eq!(backwards, waiting, "after {step:?}");
        let taken = self.done(self.real.taken(100));
        assert_eq!(waiting.len() + taken.len(), depth.feeds, "after {step:?}");
        assert!(waiting.iter().all(|(_, feed)| !taken.contains(feed)), "after {step:?}");
    }

    /// Runs the operations, after adding a feed in each page that is never touched: so the table is in the order of the
    /// feeds' ids, like ties.
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
    fn after_any_life_the_schedule_in_memory_shows_what_its_mirror_shows(steps in steps()) {
        Beside::new(MemorySchedule::default(), false).live(&steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn after_any_life_the_schedule_in_redis_shows_what_its_mirror_shows(steps in steps()) {
        Beside::new(RedisSchedule::new(shared(), 1).on_callers_time(), true).live(&steps);
    }
}
