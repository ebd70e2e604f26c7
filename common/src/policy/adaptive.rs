//! Adaptive mode: one price for a poll.
//!
//! While a feed is not polled, its subscribers wait for what it may have posted. After some time their expected
//! waiting, summed over subscribers and items, is worth a poll. The price of a poll is the same for all feeds, so the
//! next poll always goes where it saves the most waiting. For posts at a constant rate this is the square-root rule,
//! sqrt(2 price / (weight x rate)); the loop below also takes into account the hours and weekdays at which a feed
//! posts, and that posts come in groups.
//!
//! The controller that adjusts the price to the fleet's capacity is in `price`.

use std::time::Duration;

use super::rhythm::{Rhythm, hour_of, place};
use crate::time::Timestamp;

/// Number of hours for which the hourly profile is used; after them the mean rate applies.
const STEPS: i64 = 24;
const MILLIS_PER_HOUR: f64 = 3_600_000.0;
/// Just after a post a feed is expected to post more often by this share of its rate, and by less later: posts come in
/// groups.
const BURST: f64 = 1.5;
/// The time constant, in hours, with which that share decays.
const BURST_HOURS: f64 = 6.0;

/// Returns the interval, from a poll at `polled`, after which the expected waiting of `weight` subscribers is worth
/// `price`, in subscriber-hours. The result is only exact up to `longest`.
pub(super) fn interval(rhythm: &Rhythm, polled: Timestamp, weight: f64, price: f64, longest: Duration) -> Duration {
    let rate = rhythm.per_day() / 24.0;
    let (hours, days) = rhythm.profile();
    let longest = longest.as_secs_f64() / 3600.0;
    let first = hour_of(polled);
    // Hours passed, items expected in that time, and the waiting per subscriber that is still missing.
    let mut passed = 0.0;
    let mut pending = 0.0;
    let mut missing = price / weight;
    let mut part = 1.0 - (polled.millis() % 3_600_000) as f64 / MILLIS_PER_HOUR;
    let quiet_for = rhythm.quiet_for(polled).map(|hours| hours + part / 2.0);
    // In the middle of the first part; the following ones are almost an hour apart.
    let mut burst = quiet_for.map_or(0.0, |hours| BURST * (-hours / BURST_HOURS).exp());
    let decay = (-1.0 / BURST_HOURS).exp();
    for hour in first..=first + STEPS {
        let (hour_of_day, weekday) = place(hour);
        let now = rate * f64::from(hours[hour_of_day]) * f64::from(days[weekday]) * (1.0 + burst);
        let waiting = (pending + now * part / 2.0) * part;
        if waiting >= missing || passed >= longest {
            return as_duration(passed + time_to_wait(missing, pending, now));
        }
        missing -= waiting;
        pending += now * part;
        passed += part;
        part = 1.0;
        burst *= decay;
    }
    as_duration(passed + time_to_wait(missing, pending, rate))
}

/// Returns when `pending` items, plus new ones at `rate`, will have waited for `missing`: the root of
/// rate/2 t^2 + pending t = missing, in the form that avoids cancellation.
fn time_to_wait(missing: f64, pending: f64, rate: f64) -> f64 {
    2.0 * missing / (pending + (pending * pending + 2.0 * rate * missing).sqrt())
}

fn as_duration(hours: f64) -> Duration {
    Duration::try_from_secs_f64(hours * 3600.0).unwrap_or(Duration::MAX)
}
