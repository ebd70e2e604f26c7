//! One host over time: spacing, parallelism, holds.

use std::time::Duration;

use super::conditions::retry_after;
use super::{Fault, Rules, Violation};
use crate::origin::log::Record;

/// Finds requests beyond `parallel` in flight at once. One that never ended counts as in flight for ever.
pub(super) fn judge_overlap(requests: &[&Record], parallel: usize, fault: Fault, violations: &mut Vec<Violation>) {
    let mut in_flight: Vec<&Record> = Vec::new();
    for record in requests {
        in_flight.retain(|earlier| earlier.end.is_none_or(|end| end > record.start));
        if in_flight.len() >= parallel {
            let numbers: Vec<String> = in_flight.iter().map(|earlier| earlier.number.to_string()).collect();
            let why = format!("{parallel} allowed, in flight already: {}", numbers.join(", "));
            violations.push(Violation::new(fault, record, why));
        }
        in_flight.push(record);
    }
}

/// Checks a token bucket, implemented as a theoretical arrival time. A tolerated or reported deviation is not counted
/// again.
pub(super) fn judge_gap(requests: &[&Record], rules: &Rules, violations: &mut Vec<Violation>) {
    let tolerance = rules.gap * rules.burst.saturating_sub(1);
    let mut arrival = Duration::ZERO;
    for (place, record) in requests.iter().enumerate() {
        let early = arrival.saturating_sub(record.start + tolerance);
        if rules.is_early(record, early) {
            let last = requests[place - 1];
            let distance = record.start.saturating_sub(last.start).as_secs_f64();
            let gap = rules.gap.as_secs_f64();
            let why = format!(
                "{distance:.3} s after request {}, {:.3} s early for a gap of {gap:.3} s",
                last.number,
                early.as_secs_f64()
            );
            violations.push(Violation::new(Fault::Gap, record, why));
        }
        arrival = arrival.clamp(record.start, record.start + tolerance) + rules.gap;
    }
}

/// A time in which a host must not be polled.
struct Hold<'a> {
    by: &'a Record,
    from: Duration,
    until: Duration,
    full: Duration,
}

/// Finds requests to a host while it is held.
pub(super) fn judge_holds(requests: &[&Record], rules: &Rules, violations: &mut Vec<Violation>) {
    let holds = holds(requests, rules);
    for record in requests {
        let within = |hold: &&Hold| {
            let (since, left) = (record.start.saturating_sub(hold.from), hold.until.saturating_sub(record.start));
            rules.is_early(record, since) && rules.is_early(record, left)
        };
        if let Some(hold) = holds.iter().find(within) {
            let left = hold.until.saturating_sub(record.start).as_secs_f64();
            let why = format!("held for another {left:.3} s by answer {} on {}", hold.by.number, hold.by.path);
            violations.push(Violation::new(Fault::PollDuringHold, record, why));
        }
    }
}

/// Returns the holds: one throttled path holds its host for a limited time; with a second one both hold it in full from
/// then on.
fn holds<'a>(requests: &[&'a Record], rules: &Rules) -> Vec<Hold<'a>> {
    let mut throttled: Vec<(Duration, &Record)> = requests
        .iter()
        .filter(|record| record.is_complete() && retry_after(record).is_some() && !rules.may_be_undone(record))
        .filter_map(|record| Some((record.end?, *record)))
        .collect();
    throttled.sort_by_key(|(end, _)| *end);
    let mut holds: Vec<Hold> = Vec::new();
    for (from, by) in throttled {
        let time = retry_after(by).unwrap_or_default().min(rules.retry_after_ceiling);
        let full = by.start + time;
        let others = holds.iter().filter(|hold| hold.by.path != by.path && hold.full > from);
        let extended: Vec<Hold> =
            others.map(|hold| Hold { by: hold.by, from, until: hold.full, full: hold.full }).collect();
        let until = if extended.is_empty() { full.min(by.start + rules.single_hold_ceiling) } else { full };
        holds.extend(extended);
        holds.push(Hold { by, from, until, full });
    }
    holds
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns requests at these milliseconds, each in flight for 10 ms.
    fn starts(times: &[u64]) -> Vec<Record> {
        times.iter().enumerate().map(|(number, at)| Record::made(number, "/f", *at, &[], 200, &[])).collect()
    }

    fn blamed(log: &[Record], judge: impl FnOnce(&[&Record], &mut Vec<Violation>)) -> Vec<usize> {
        let mut violations = Vec::new();
        judge(&log.iter().collect::<Vec<_>>(), &mut violations);
        violations.iter().map(|violation| violation.request).collect()
    }

    fn within_gap(times: &[u64], burst: u32) -> Vec<usize> {
        let rules = Rules { burst, ..Rules::default() };
        blamed(&starts(times), |log, violations| judge_gap(log, &rules, violations))
    }

    #[test]
    fn starts_closer_than_the_gap_are_blamed_beyond_the_slack() {
        assert_eq!(within_gap(&[0, 1000, 1960, 2920, 3880], 1), [] as [usize; 0]);
        assert_eq!(within_gap(&[0, 1000, 1900, 2900, 2950], 1), [2, 4]);
    }

    #[test]
    fn a_burst_is_allowed_after_a_rest_only() {
        assert_eq!(within_gap(&[0, 1, 2, 3, 1003, 2003], 4), [] as [usize; 0]);
        assert_eq!(within_gap(&[0, 1, 2, 3, 500], 4), [4]);
        assert_eq!(within_gap(&[0, 1, 2, 3, 9000, 9001, 9002, 9003], 4), [] as [usize; 0]);
    }

    #[test]
    fn requests_overlap_while_an_earlier_one_has_not_ended() {
        let overlaps = |log: &[Record], parallel| {
            blamed(log, |log, violations| judge_overlap(log, parallel, Fault::HostOverlap, violations))
        };
        let mut log = starts(&[0, 10, 15, 18]);
        assert_eq!(overlaps(&log, 1), [2, 3]);
        assert_eq!(overlaps(&log, 2), [3]);
        log[0].end = None;
        assert_eq!(overlaps(&log, 1), [1, 2, 3]);
    }

    /// Returns the violations of requests at these seconds to these paths; `Some` is the `Retry-After` of a 429.
    fn during_hold(requests: &[(u64, &str, Option<u64>)], rules: &Rules) -> Vec<usize> {
        let made = |(number, (at, path, wait)): (usize, &(u64, &str, Option<u64>))| match wait {
            Some(wait) => Record::made(number, path, at * 1000, &[], 429, &[&format!("Retry-After: {wait}")]),
            None => Record::made(number, path, at * 1000, &[], 200, &[]),
        };
        let log: Vec<Record> = requests.iter().enumerate().map(made).collect();
        blamed(&log, |log, violations| judge_holds(log, rules, violations))
    }

    #[test]
    fn a_throttled_path_holds_its_whole_host() {
        let rules = Rules::default();
        let requests = [(0, "/a", Some(60)), (30, "/b", None), (59, "/c", None), (60, "/d", None)];
        assert_eq!(during_hold(&requests, &rules), [1, 2]);
    }

    #[test]
    fn one_path_holds_its_host_for_an_hour_at_most_and_two_in_full() {
        let rules = Rules::default();
        assert_eq!(
            during_hold(&[(0, "/a", Some(7200)), (3601, "/b", None), (3700, "/c", None)], &rules),
            [] as [usize; 0]
        );
        let twice = [(0, "/a", Some(7200)), (3601, "/b", Some(7200)), (7300, "/c", None), (10_900, "/d", None)];
        assert_eq!(during_hold(&twice, &rules), [2]);
        let overlapping = [(0, "/a", Some(7200)), (1, "/b", Some(5)), (3700, "/c", None), (7300, "/d", None)];
        assert_eq!(during_hold(&overlapping, &rules), [1, 2]);
    }

    #[test]
    fn a_hold_that_a_kill_may_have_undone_is_not_held_against_anybody() {
        let made = Record::made(0, "/a", 0, &[], 429, &["Retry-After: 60"]);
        let rules = Rules { kills: vec![made.wall.after(Duration::from_millis(500))], ..Rules::default() };
        assert_eq!(during_hold(&[(0, "/a", Some(60)), (30, "/b", None)], &rules), [] as [usize; 0]);
    }
}
