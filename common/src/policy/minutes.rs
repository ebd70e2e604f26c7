//! How full the coming minutes are, and how full each minute of the hour was.
//!
//! A due time is drawn twice, and the draw in the emptier minute wins: the power of two choices, which keeps the fullest
//! minute close to the others (Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", 2001).
//!
//! Due times are near ones (`near`), which cost the least delay, as long as that leaves the minutes of the hour even. A minute
//! that got more than its share in the last hours takes no more near ones: those draw the wide way, as [`super::decide()`] does.
//!
//! Each scheduler counts its own decisions. Feeds are distributed randomly over schedulers, so each of them evens out
//! its own part, and the sum of even parts is even.

use super::decide::{Prepared, prepare};
use super::hot_minute::is_hot;
use super::plan::Plan;
use super::{Decision, Draw, Policy, Subject};
use crate::report::FetchReport;
use crate::time::Timestamp;

const MINUTE: i64 = 60_000;
/// Number of minutes counted: more than the longest interval with its salt, publishers' hints and failures aside.
const SPAN: usize = 4096;
/// The time constant, in minutes, with which the counts of minutes of the hour decay.
const MEMORY: f32 = 360.0;
/// A minute of the hour is full with this many times the mean of the open ones ...
const FULL: f32 = 1.03;
/// ... and this many times the square root of that mean, the noise of a count ...
const NOISE: f32 = 1.5;
/// ... and this many more: in a small fleet no minute is full.
const FEW: f32 = 2.0;
const MINUTES: usize = 60;
const OPEN_MINUTES: f32 = 45.0;

/// Due times by minute, starting now, and by minute of the hour.
#[derive(Clone, Debug)]
pub struct Minutes {
    due: Box<[u32]>,
    /// The first minute that is still counted.
    present: i64,
    /// Due times by minute of the hour, and their sum, decayed.
    by_minute: [f32; MINUTES],
    counted: f32,
}

impl Default for Minutes {
    fn default() -> Self {
        Minutes { due: vec![0; SPAN].into(), present: 0, by_minute: [0.0; MINUTES], counted: 0.0 }
    }
}

impl Minutes {
    /// Decides as [`super::decide()`] does, with a near due time where minutes are even: of both draws, the one in the emptier
    /// minute. Counts the due time.
    pub fn decide(
        &mut self,
        subject: &Subject<'_>,
        report: &FetchReport,
        now: Timestamp,
        draws: [Draw; 2],
        policy: &Policy<'_>,
    ) -> Decision {
        self.advance(now.millis().div_euclid(MINUTE));
        let open = match prepare(subject, report, now, policy) {
            Prepared::Settled(decision) => return decision,
            Prepared::Open(open) => open,
        };
        let [one, other] = draws.map(|draw| open.near(draw).filter(|plan| !self.is_full(plan.due)));
        let plan = match (one, other) {
            (Some(one), Some(other)) => self.emptier(one, other),
            (Some(near), None) | (None, Some(near)) => near,
            (None, None) => {
                let [one, other] = draws.map(|draw| open.wide(draw));
                self.emptier(one, other)
            }
        };
        self.count(plan.due);
        open.decided(plan)
    }

    fn emptier(&self, one: Plan, other: Plan) -> Plan {
        let due = |plan: &Plan| self.place(plan.due).map_or(0, |place| self.due[place]);
        if due(&other) < due(&one) { other } else { one }
    }

    /// Returns true if this minute of the hour got more than its share.
    fn is_full(&self, due: Timestamp) -> bool {
        let mean = self.counted / OPEN_MINUTES;
        self.by_minute[minute_of_the_hour(due)] > FULL * mean + NOISE * mean.sqrt() + FEW
    }

    fn count(&mut self, due: Timestamp) {
        if let Some(place) = self.place(due) {
            self.due[place] = self.due[place].saturating_add(1);
        }
        // Hot minutes are for those that may not wait.
        if !is_hot(due) {
            self.by_minute[minute_of_the_hour(due)] += 1.0;
            self.counted += 1.0;
        }
    }

    /// Drops the minutes that have passed.
    fn advance(&mut self, present: i64) {
        let past = usize::try_from(present - self.present).unwrap_or(0).min(SPAN);
        for minute in (present - past as i64)..present {
            self.due[slot(minute)] = 0;
        }
        if past > 0 {
            let kept = (-(past as f32) / MEMORY).exp();
            self.by_minute.iter_mut().for_each(|count| *count *= kept);
            // Summed again each time, because a running sum collects rounding errors.
            self.counted = self.by_minute.iter().sum();
        }
        self.present = self.present.max(present);
    }

    fn place(&self, due: Timestamp) -> Option<usize> {
        let minute = due.millis().div_euclid(MINUTE);
        (self.present..self.present + SPAN as i64).contains(&minute).then(|| slot(minute))
    }
}

fn slot(minute: i64) -> usize {
    usize::try_from(minute.rem_euclid(SPAN as i64)).unwrap_or(0)
}

fn minute_of_the_hour(at: Timestamp) -> usize {
    usize::try_from(at.millis().div_euclid(MINUTE).rem_euclid(MINUTES as i64)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::document::Validators;
    use crate::policy::Audience;
    use crate::report::Outcome;

    fn start() -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000)
    }

    fn due(minutes: &mut Minutes, salts: [f64; 2], now: Timestamp) -> Timestamp {
        let mut config = crate::config::defaults().policy;
        config.hot_minutes = false;
        let policy = Policy { config: &config, load: 0.0, price: config.price };
        let outcome = Outcome::NotModified { validators: Validators::default() };
        let host = crate::host::HostKey::new("a.example:80");
        let report = FetchReport::of(crate::url::FeedId(1), crate::url::Version(1), host, now, outcome);
        let draws = salts.map(|salt| Draw { salt, minute: 0.5 });
        minutes.decide(&Subject::new(Audience::default(), None), &report, now, draws, &policy).next_due.unwrap()
    }

    #[test]
    fn of_two_draws_the_one_in_the_emptier_minute_counts() {
        let mut minutes = Minutes::default();
        let first = due(&mut minutes, [0.0, 1.0], start());
        let second = due(&mut minutes, [0.0, 1.0], start());
        let third = due(&mut minutes, [0.0, 1.0], start());
        assert!(second > first.after(Duration::from_secs(60)), "the first minute is taken");
        assert_eq!(third, first, "both have one: the first draw");
        assert_eq!(due(&mut minutes, [0.0, 0.0], start()), first, "two draws into one minute leave no choice");
    }

    #[test]
    fn what_is_past_is_forgotten_and_its_places_count_other_minutes() {
        let mut minutes = Minutes::default();
        let first = due(&mut minutes, [0.0, 1.0], start());
        let later = start().after(Duration::from_secs(60 * SPAN as u64));
        let shifted = due(&mut minutes, [0.0, 1.0], later);
        assert_eq!(shifted.since(first), later.since(start()), "the same place, a whole round later");
        // A clock that went back a little counts no due time twice.
        due(&mut minutes, [0.0, 1.0], later.before(Duration::from_secs(90)));
        assert!(minutes.due.iter().sum::<u32>() <= 2);
    }

    #[test]
    fn a_minute_is_full_above_its_share_the_noise_of_a_count_and_two() {
        // With a mean of 10 they are 10.3, 4.74 and 2.
        for (counted, own, is_full) in [(450.0, 17.0, false), (450.0, 17.1, true), (0.0, 2.0, false), (0.0, 2.1, true)]
        {
            let mut minutes = Minutes { counted, ..Minutes::default() };
            minutes.by_minute[7] = own;
            assert_eq!(minutes.is_full(Timestamp::from_millis(7 * MINUTE)), is_full, "{own} of {counted}");
        }
    }

    #[test]
    fn only_open_minutes_of_the_hour_are_counted_and_they_fade() {
        let mut minutes = Minutes::default();
        for _ in 0..100 {
            minutes.count(Timestamp::from_millis(7 * MINUTE));
        }
        minutes.count(Timestamp::from_millis(5 * MINUTE));
        let counts = |minutes: &Minutes| [minutes.by_minute[7], minutes.by_minute[5], minutes.counted];
        assert_eq!((minutes.due[7], minutes.due[5]), (100, 1));
        assert_eq!(counts(&minutes), [100.0, 0.0, 100.0]);
        minutes.advance(360);
        let faded = counts(&minutes);
        assert!((faded[0] - 36.788).abs() < 1e-3 && (faded[2] - 36.788).abs() < 1e-3, "to one e-th: {faded:?}");
    }
}
