//! How full the coming minutes are. A due time is drawn twice, and the draw in the emptier minute wins: the power of
//! two choices, which keeps the fullest minute close to the others (Mitzenmacher, "The Power of Two Choices in
//! Randomized Load Balancing", 2001).
//!
//! Each scheduler counts its own decisions. Feeds are distributed randomly over schedulers, so each of them evens out
//! its own part, and the sum of even parts is even.

use super::{Decision, Draw, Policy, Subject, decide};
use crate::report::FetchReport;
use crate::time::Timestamp;

const MINUTE: i64 = 60_000;
/// Number of minutes counted: more than the longest interval with its salt, publishers' hints and failures aside.
const SPAN: usize = 2048;

/// Due times by minute, starting now.
#[derive(Clone, Debug)]
pub struct Minutes {
    due: Box<[u32]>,
    /// The first minute that is still counted.
    present: i64,
}

impl Default for Minutes {
    fn default() -> Self {
        Minutes { due: vec![0; SPAN].into(), present: 0 }
    }
}

impl Minutes {
    /// Runs [`decide()`] with both draws, returns the decision whose due time is in the emptier minute, and counts it
    /// there.
    pub fn decide(
        &mut self,
        subject: &Subject<'_>,
        report: &FetchReport,
        now: Timestamp,
        draws: [Draw; 2],
        policy: &Policy<'_>,
    ) -> Decision {
        self.advance(now.millis().div_euclid(MINUTE));
        let [one, other] = draws.map(|draw| decide(subject, report, now, draw, policy));
        let [place, other_place] = [&one, &other].map(|decision| self.place(decision.next_due));
        let due = |place: Option<usize>| place.map_or(0, |place| self.due[place]);
        let (decision, place) = if due(other_place) < due(place) { (other, other_place) } else { (one, place) };
        if let Some(place) = place {
            self.due[place] = self.due[place].saturating_add(1);
        }
        decision
    }

    /// Drops the minutes that have passed.
    fn advance(&mut self, present: i64) {
        let past = usize::try_from(present - self.present).unwrap_or(0).min(SPAN);
        for minute in (present - past as i64)..present {
            self.due[slot(minute)] = 0;
        }
        self.present = self.present.max(present);
    }

    fn place(&self, due: Option<Timestamp>) -> Option<usize> {
        let minute = due?.millis().div_euclid(MINUTE);
        (self.present..self.present + SPAN as i64).contains(&minute).then(|| slot(minute))
    }
}

fn slot(minute: i64) -> usize {
    usize::try_from(minute.rem_euclid(SPAN as i64)).unwrap_or(0)
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
}
