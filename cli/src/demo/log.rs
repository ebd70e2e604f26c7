//! The demo as plain lines: new entries and events, a line of numbers every other second, and the summary at the end.

use common::words;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use load_tests::ScoreCard;

use super::pace::FASTER;
use super::picture::{Came, Picture};
use super::view::{clock, latest_rate};
use super::watch::News;
use crate::output;

const NUMBERS_EVERY: Duration = Duration::from_secs(2);

/// Writes lines.
#[derive(Default)]
pub(super) struct Log {
    numbers_next: Duration,
}

/// Returns the first line.
pub(super) fn greeting(picture: &Picture) -> String {
    let feeds = picture.cells.len();
    format!(
        "feedfleet demo: {feeds} feeds on {} hosts of a bundled internet, a day in a minute, for {} s\n\
         API and metrics at {}; Ctrl-C stops",
        picture.hosts,
        picture.limit.as_secs(),
        picture.address
    )
}

impl Log {
    /// Writes what is new, and the numbers when they are due.
    pub(super) fn write(&mut self, news: &News, picture: &Picture) -> io::Result<()> {
        for line in entries(&news.entries) {
            output::line(&line)?;
        }
        for happening in &news.happenings {
            output::line(&format!("{:>5}  {}", clock(happening.at), happening.text))?;
        }
        if picture.elapsed >= self.numbers_next {
            self.numbers_next = picture.elapsed + NUMBERS_EVERY;
            output::line(&numbers(picture))?;
        }
        Ok(())
    }
}

/// Returns one line per feed: its newest entry, and the number of entries.
fn entries(entries: &[Came]) -> Vec<String> {
    let mut by_feed: BTreeMap<&str, (usize, &Came)> = BTreeMap::new();
    for came in entries {
        let of_feed = by_feed.entry(&came.feed).or_insert((0, came));
        *of_feed = (of_feed.0 + 1, came);
    }
    let line = |(feed, (count, newest)): (&str, (usize, &Came))| {
        let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
        format!("{:>5}  new in {feed}: {}{more}", clock(newest.at), newest.title)
    };
    by_feed.into_iter().map(line).collect()
}

fn numbers(picture: &Picture) -> String {
    let Picture { requests, verdict, .. } = picture;
    let breaches =
        verdict.as_ref().map_or_else(|| "not checked yet".to_owned(), |verdict| verdict.breaches().to_string());
    format!(
        "{:>5}  polls {} ({} a second), 304 {}, entries {}, penalty box {}, hosts held {}, lag {}, rules broken {breaches}",
        clock(picture.elapsed),
        words::count(requests.count),
        latest_rate(&picture.pace),
        words::count(requests.not_modified),
        words::count(picture.entries),
        picture.boxed.len(),
        picture.held.len(),
        picture.lag.map_or_else(|| "-".to_owned(), |lag| words::seconds(lag.as_secs_f64())),
    )
}

/// Returns the summary.
pub(super) fn summary(picture: &Picture, card: &ScoreCard) -> String {
    let Picture { requests, .. } = picture;
    let delay = picture.delay.map_or(String::new(), |delay| {
        format!(
            ", on average {} after publication ({} min at real speed)",
            words::seconds(delay.as_secs_f64()),
            (delay * FASTER / 60).as_secs()
        )
    });
    let verdict = if card.is_clean() { "no rule was broken" } else { "RULES WERE BROKEN" };
    format!(
        "In {} s the fleet sent {} requests and stored {} entries, {} of them new{delay}.\n\
         {} answers were 304 and sent nothing: {} saved, {} sent.\n\
         {} feeds are in the penalty box.\n\n\
         The servers' log, checked against {} politeness rules: {verdict}.\n{card}",
        picture.elapsed.as_secs(),
        words::count(requests.count),
        words::count(picture.entries),
        words::count(picture.fresh),
        words::count(requests.not_modified),
        words::bytes(requests.saved as f64),
        words::bytes(requests.sent as f64),
        picture.boxed.len(),
        load_tests::Fault::ALL.len(),
    )
}
