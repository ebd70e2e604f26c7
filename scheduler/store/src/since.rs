//! Looks for the number from which on events were stored at a time, without an index of times.

use std::time::Duration;

use common::time::Timestamp;

/// How much earlier the time of a line may be than that of a line before it. A line has the time at which its batch began, and a
/// number that is taken at the batch's end: a call ends within half a minute, and a batch may take several of them.
const SETTLES: Duration = Duration::from_secs(120);

/// Looks for a number by its time. Times rise with the numbers, but for [`SETTLES`].
pub(crate) struct Since {
    low: i64,
    high: i64,
    since: i64,
}

impl Since {
    /// Looks for a number before which nothing was stored at `since` or later.
    pub(crate) fn before(since: Timestamp) -> Self {
        Since::looking_for(since.before(SETTLES))
    }

    /// Looks for a number from which on nothing was stored before `at`.
    pub(crate) fn behind(at: Timestamp) -> Self {
        Since::looking_for(at.after(SETTLES))
    }

    fn looking_for(since: Timestamp) -> Self {
        Since { low: 1, high: 1, since: since.millis() }
    }

    /// Looks between the first and the last number that there are.
    pub(crate) fn among(self, first: Option<i64>, last: Option<i64>) -> Self {
        Since { low: first.unwrap_or(1), high: last.unwrap_or(0).saturating_add(1), ..self }
    }

    /// Returns the number to look at next: the first line from it on is to be [noted](Since::note). `None`: it is
    /// found.
    pub(crate) fn probe(&self) -> Option<i64> {
        (self.low < self.high).then(|| self.low + (self.high - self.low) / 2)
    }

    /// Notes the line that was found from `probe` on.
    pub(crate) fn note(&mut self, probe: i64, line: Option<(i64, i64)>) {
        match line {
            Some((seq, at)) if at < self.since => self.low = seq + 1,
            _ => self.high = probe,
        }
    }

    /// Returns the number that was looked for.
    pub(crate) fn found(&self) -> i64 {
        self.low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches these lines, each a number and a time in seconds.
    fn found(search: Since, lines: &[(i64, u64)]) -> i64 {
        let lines: Vec<(i64, i64)> = lines.iter().map(|(seq, at)| (*seq, seconds(*at).millis())).collect();
        let mut search = search.among(lines.first().map(|line| line.0), lines.last().map(|line| line.0));
        while let Some(probe) = search.probe() {
            search.note(probe, lines.iter().find(|(seq, _)| *seq >= probe).copied());
        }
        search.found()
    }

    fn seconds(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.after(Duration::from_secs(seconds))
    }

    #[test]
    fn the_first_number_since_a_time_is_found_over_gaps() {
        let lines = [(3, 100), (4, 100), (9, 250), (1_000, 300)];
        for (since, expected) in [(0, 3), (100, 3), (101, 5), (250, 5), (251, 10), (300, 10), (301, 1_001)] {
            assert_eq!(found(Since::looking_for(seconds(since)), &lines), expected, "since {since}");
        }
        assert_eq!(found(Since::before(seconds(7)), &[]), 1);
    }

    /// A batch that took its numbers after another one had begun before it.
    #[test]
    fn what_a_slow_batch_stored_behind_a_fast_one_is_within_the_place_that_is_found() {
        let lines = [(3, 1_000), (4, 1_100), (5, 1_000), (6, 1_120)];
        assert_eq!(found(Since::looking_for(seconds(1_050)), &lines), 6, "times alone mislead");
        assert!(found(Since::before(seconds(1_050)), &lines) <= 4);
        assert!(found(Since::behind(seconds(1_050)), &lines) > 5);
    }

    #[test]
    fn the_place_of_a_time_is_no_farther_off_than_batches_take() {
        let lines: Vec<(i64, u64)> = (1..=10_000_i64).map(|seq| (seq, seq.unsigned_abs())).collect();
        assert_eq!(found(Since::before(seconds(5_000)), &lines), 5_000 - 120);
        assert_eq!(found(Since::behind(seconds(5_000)), &lines), 5_000 + 120);
    }
}
