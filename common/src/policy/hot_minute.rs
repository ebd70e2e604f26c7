//! Hot minutes (rule 7): the first four of an hour and the first of every five. Cron jobs and naive readers poll in
//! these, so we avoid them.
//!
//! A due time in a hot minute moves to a moment in the open minutes among the next fifteen. Drawn uniformly, these
//! moments would create new peaks: a feed that is polled every 15 minutes drifts through the hour by a minute a poll,
//! enters an open stretch anywhere and leaves it at its end, so that the ends fill up (to twice their share, with many
//! such feeds). So the weight of a minute grows with the share of polls that it misses because they would normally
//! follow (an interval and some salt later) a time that is hot. Feeds with long intervals reach all minutes equally;
//! for them a minute's weight falls with the number of hot minutes that share it.

use std::sync::LazyLock;
use std::time::Duration;

use super::Rule;
use super::plan::{Plan, scaled};
use crate::time::Timestamp;

pub(super) const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
/// The farthest that a due time is moved.
pub(super) const REACH: Duration = Duration::from_secs(15 * 60);
/// The open minutes over which polls are spread that would otherwise all start with the first one: as many as there are
/// between two hot minutes.
const STRETCH: usize = 4;
/// How far ahead the last of those is, at most: four hot minutes, an open one, a hot one, three open ones.
pub const OPEN_REACH: Duration = Duration::from_secs(9 * 60);
/// The weight of an open minute that misses nothing; one that misses all its polls weighs 1 more. It is large enough
/// that such a minute gets some polls, and small enough that the others get most. Found by experiment on feeds with one
/// interval each.
const LEAST_WEIGHT: f64 = 0.2;
/// A move out of a hot minute may end in skipped time, whose end is the start of an hour; a second move then stays
/// within the hour. One more round than can ever be needed.
const ROUNDS: usize = 4;
const EVENING_ROUNDS: usize = 20;

/// Moves the plan until it is neither in skipped time nor, if `avoid`, in a hot minute. `salt` is the maximum share of
/// the interval that salt adds.
pub(super) fn apply(plan: &mut Plan, avoid: bool, salt: f64, draw: f64) {
    let mut draw = draw.clamp(0.0, 1.0);
    plan.leave_skipped();
    for _ in 0..ROUNDS {
        if !avoid || !is_hot(plan.due) {
            return;
        }
        plan.move_to(Rule::HotMinute, moved(plan.due, plan.interval, scaled(plan.interval, salt), draw));
        plan.leave_skipped();
        draw = next_draw(draw);
    }
}

/// Returns a moment of the open minutes next after `at`, drawn evenly, if `at` is in a hot minute: for a poll that is due
/// then without having been placed by this rule, after a pause, a restart or downtime, or behind a busy host.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "at most a quarter of an hour of milliseconds"
)]
pub fn next_open(at: Timestamp, draw: f64) -> Option<Timestamp> {
    if !is_hot(at) {
        return None;
    }
    let own_minute = at.millis() - at.millis().rem_euclid(MINUTE);
    let minutes = (1..=OPEN_REACH.as_secs() as i64 / 60).map(|ahead| own_minute + ahead * MINUTE);
    let open: Vec<i64> = minutes.filter(|minute| !is_hot(Timestamp::from_millis(*minute))).take(STRETCH).collect();
    let place = draw.clamp(0.0, 1.0) * open.len() as f64;
    let minute = open[(place as usize).min(open.len() - 1)];
    Some(Timestamp::from_millis(minute + ((place.fract() * MINUTE as f64) as i64).min(MINUTE - 1)))
}

/// Moves the first due time of an imported feed, which is anywhere within `spread`, out of a hot minute.
pub(super) fn first_due(due: Timestamp, spread: Duration, salt: f64, draw: f64) -> Timestamp {
    if is_hot(due) { moved(due, spread, scaled(spread, salt), next_draw(draw)) } else { due }
}

/// Returns true if `at` is in a hot minute.
pub(super) fn is_hot(at: Timestamp) -> bool {
    let minute = at.millis() / MINUTE % 60;
    minute < 4 || minute % 5 == 0
}

/// Returns a moment in the open minutes of the next fifteen. A feed that is polled more often than that moves by at
/// most its own interval, or into the first open minute.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "at most a minute of milliseconds")]
fn moved(due: Timestamp, interval: Duration, salt: Duration, draw: f64) -> Timestamp {
    let start = due.millis();
    let own_minute = start - start % MINUTE;
    let open =
        (1..=15).map(|ahead| own_minute + ahead * MINUTE).filter(|minute| !is_hot(Timestamp::from_millis(*minute)));
    let first = open.clone().next().unwrap_or(own_minute);
    let end = (start + millis(interval.min(REACH))).max(first + MINUTE);
    // The part of each open minute before `end`, and its weight.
    let evenness = (interval.as_secs_f64() / 3600.0).min(1.0);
    let mut parts = [(0, 0.0, 0.0); 15];
    let mut count = 0;
    for minute in open.take_while(|minute| *minute < end) {
        let length = (end - minute).min(MINUTE) as f64;
        let even = if evenness < 1.0 { evening(minute).powf(evenness) } else { evening(minute) };
        let weight = even * (LEAST_WEIGHT + missing(minute, interval, salt));
        parts[count] = (minute, length, length * weight);
        count += 1;
    }
    let parts = &parts[..count];
    let mut rest = draw * parts.iter().map(|(_, _, weight)| weight).sum::<f64>();
    let mut moved = first;
    for &(minute, length, weight) in parts {
        let share = (rest / weight).min(1.0);
        moved = minute + ((length * share) as i64).min(MINUTE - 1);
        if rest < weight {
            break;
        }
        rest -= weight;
    }
    Timestamp::from_millis(moved)
}

/// Returns a further weight of a minute of the hour, so that feeds that become due at any time fill the open minutes
/// evenly: after the full hour many hot minutes share the same open ones, half an hour later few do.
fn evening(minute: i64) -> f64 {
    static WEIGHTS: LazyLock<[f64; 60]> = LazyLock::new(evening_weights);
    usize::try_from(minute / MINUTE % 60).map_or(1.0, |minute| WEIGHTS[minute])
}

/// Runs Sinkhorn's iteration: a minute that gets more than its share weighs less in the next round. More rounds would
/// be more even by one percent, and leave almost nothing to the minutes just after the full hour.
fn evening_weights() -> [f64; 60] {
    let hot = |minute: usize| is_hot(Timestamp::from_millis(minute as i64 * MINUTE));
    let mut weights = [1.0; 60];
    for _ in 0..EVENING_ROUNDS {
        let mut moved = [0.0; 60];
        for from in (0..60).filter(|minute| hot(*minute)) {
            let open = || (from + 1..=from + 15).map(|minute| minute % 60).filter(|minute| !hot(*minute));
            let all: f64 = open().map(|minute| weights[minute]).sum();
            open().for_each(|minute| moved[minute] += weights[minute] / all);
        }
        (0..60).filter(|minute| !hot(*minute)).for_each(|minute| weights[minute] /= (3.0 * moved[minute]).sqrt());
    }
    weights
}

/// Returns the part, 0 to 1, of the usual predecessors of a minute (an interval and up to `salt` earlier) that are hot.
#[expect(clippy::cast_precision_loss, reason = "at most an hour of milliseconds")]
fn missing(minute: i64, interval: Duration, salt: Duration) -> f64 {
    let latest = minute + MINUTE / 2 - millis(interval);
    // The pattern repeats every hour, and its resolution is a minute.
    let reach = millis(salt).clamp(MINUTE, HOUR);
    (hot_until(latest) - hot_until(latest - reach)) as f64 / reach as f64
}

/// Returns the number of hot milliseconds since the epoch.
pub(super) fn hot_until(millis: i64) -> i64 {
    let (hour, rest) = (millis.div_euclid(HOUR), millis.rem_euclid(HOUR));
    let marks = (1..12).map(|mark| (rest - mark * 5 * MINUTE).clamp(0, MINUTE));
    hour * 15 * MINUTE + rest.min(4 * MINUTE) + marks.sum::<i64>()
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4)
}

/// Derives a further draw from the last one with the finaliser of SplitMix64, whose outputs count as independent.
#[expect(clippy::cast_precision_loss, reason = "53 bits are what a number between 0 and 1 holds")]
fn next_draw(draw: f64) -> f64 {
    let mut bits = draw.to_bits().wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_in_a_hot_minute_waits_for_the_open_minutes_that_follow() {
        let minute = |minute: i64| Timestamp::from_millis(minute * MINUTE + 1000);
        for start in 0..60 {
            let moments = (0..100).map(|draw| next_open(minute(start), f64::from(draw) / 100.0));
            if !is_hot(minute(start)) {
                assert!(moments.flatten().next().is_none(), "minute {start} is open");
                continue;
            }
            let mut used: Vec<i64> = Vec::new();
            for moment in moments {
                let moment = moment.unwrap();
                assert!(!is_hot(moment) && moment > minute(start));
                assert!(moment <= minute(start).after(OPEN_REACH), "{start}");
                used.push(moment.millis() / MINUTE);
            }
            used.dedup();
            assert_eq!(used.len(), STRETCH, "spread over more than the first open minute after {start}");
        }
        assert!(next_open(minute(0), 1.0).is_some_and(|moment| !is_hot(moment)));
    }

    #[test]
    fn a_place_in_the_four_open_minutes_after_a_hot_one_is_exact() {
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
        for (draw, second) in [(0.0, 240), (0.125, 270), (0.25, 360), (1.0, 480)] {
            assert_eq!(next_open(at(1), draw), Some(at(second)), "{draw}");
        }
    }

    #[test]
    fn a_move_weighs_each_open_minute_by_what_it_misses_and_ends_with_the_interval() {
        let cases = [(1_200_000, 7, 0.5, 1_389_494), (1_230_000, 3, 0.9, 1_403_571), (1_200_000, 7, 1.0, 1_619_999)];
        for (due, minutes, draw, expected) in cases {
            let interval = Duration::from_secs(60 * minutes);
            let moment = moved(Timestamp::from_millis(due), interval, interval / 10, draw);
            assert_eq!(moment, Timestamp::from_millis(expected), "{due} {minutes} {draw}");
        }
        // The minute until 2:30 is hot; of a whole hour a quarter is.
        let two_minutes = missing(4 * MINUTE, Duration::from_secs(120), Duration::ZERO);
        assert!((two_minutes - 1.0).abs() < 1e-9, "{two_minutes}");
        let longest = missing(7 * MINUTE, Duration::MAX, Duration::MAX);
        assert!((longest - 0.25).abs() < 1e-9, "{longest}");
    }

    #[test]
    fn an_imported_feed_leaves_a_hot_minute_by_a_draw_of_its_own() {
        let due =
            |millis: i64| first_due(Timestamp::from_millis(millis), Duration::from_secs(6 * 3600), 0.1, 0.5).millis();
        assert_eq!(due(7 * MINUTE + 1), 7 * MINUTE + 1, "an open one");
        assert_eq!(due(20 * MINUTE), 2_079_387, "0.5 itself would lead to 1875065");
        let derived = [(0.0, 0.883_310_808_213_642_6), (0.25, 0.170_687_470_092_347_86), (0.5, 0.954_446_333_884_195)];
        for (draw, next) in derived {
            assert!((next_draw(draw) - next).abs() < 1e-12, "{draw}: {}", next_draw(draw));
        }
    }
}
