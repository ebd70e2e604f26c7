//! Posting histories: when feeds posted, from a file or generated.
//!
//! The file has one line per feed: name, `kind:precision`, and times in whole seconds since 1970 (UTC), ascending and
//! separated by spaces; the parts are separated by tabs. Precision `s` means seconds; `d` means that only the day
//! is known and the time of day is drawn at random. A fourth part, which only [`Own`](super::Own) reads, is the feed's
//! [`Audience`] as JSON.
//!
//! Times in simulations are seconds since 1970 as `f64`, as in the reference simulation; they are converted to
//! [`common::time::Timestamp`] for the policy.

use std::fmt::Write;

use common::policy::Audience;

use super::random::Random;

/// Seconds in an hour and in a day.
pub const HOUR: f64 = 3600.0;
pub(crate) const DAY: f64 = 86_400.0;

/// One feed's posts.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The name of the feed.
    pub name: String,
    /// The kind, such as blog, news, release.
    pub kind: String,
    /// Whether the time of day is unknown.
    pub days_only: bool,
    /// The posting times, ascending.
    pub times: Vec<f64>,
    /// Its readers: one subscriber if nothing is known.
    pub audience: Audience,
}

/// Why a file is not valid.
#[derive(Debug, thiserror::Error)]
#[error(
    "line {line}: {problem}; expected NAME, a tab, KIND:s or KIND:d, a tab, and ascending times in seconds; and perhaps a tab and a JSON object with subscribers"
)]
pub struct HistoriesError {
    /// Counted from 1.
    line: usize,
    problem: String,
}

/// Parses a file's text.
///
/// # Errors
/// Reports the first line that does not match the format above.
pub fn read(text: &str) -> Result<Vec<Series>, HistoriesError> {
    let numbered = text.lines().enumerate().filter(|(_, line)| !line.is_empty());
    numbered.map(|(at, line)| series(line).map_err(|problem| HistoriesError { line: at + 1, problem })).collect()
}

fn series(line: &str) -> Result<Series, String> {
    let parts: Vec<&str> = line.split('\t').collect();
    let (name, kind, times, audience) = match parts[..] {
        [name, kind, times] => (name, kind, times, None),
        [name, kind, times, audience] => (name, kind, times, Some(audience)),
        _ => return Err("neither three parts nor four".into()),
    };
    let audience = audience.map(serde_json::from_str).transpose().map_err(|error| format!("no audience: {error}"))?;
    let (kind, days_only) = match kind.rsplit_once(':') {
        Some((kind, "s")) => (kind, false),
        Some((kind, "d")) => (kind, true),
        _ => return Err(format!("'{kind}' is no kind and precision")),
    };
    let number =
        |word: &str| word.parse::<f64>().ok().filter(|at| at.is_finite()).ok_or(format!("'{word}' is no time"));
    let times = times.split_ascii_whitespace().map(number).collect::<Result<Vec<_>, _>>()?;
    if times.is_empty() || !times.is_sorted() {
        return Err("no times, or not ascending ones".into());
    }
    Ok(Series {
        name: name.to_owned(),
        kind: kind.to_owned(),
        days_only,
        times,
        audience: audience.unwrap_or_default(),
    })
}

/// Formats the text that [`read`] parses.
pub fn write(all: &[Series]) -> String {
    let mut text = String::new();
    for Series { name, kind, days_only, times, audience } in all {
        let precision = if *days_only { 'd' } else { 's' };
        let times: Vec<String> = times.iter().map(|at| format!("{at:.0}")).collect();
        // Writing to a string does not fail.
        let _ = write!(text, "{name}\t{kind}:{precision}\t{}", times.join(" "));
        if *audience != Audience::default() {
            let _ = write!(text, "\t{}", serde_json::json!(audience));
        }
        text.push('\n');
    }
    text
}

/// A kind of feed for [`generated`].
struct Habit {
    kind: &'static str,
    /// Posts per day of the quietest and of the busiest feed.
    posts: (f64, f64),
    /// The maximum number of simultaneous posts.
    burst: usize,
    /// The share of posts in the working hours of some time zone, on working days.
    office: f64,
    /// The share of feeds for which only days are known.
    days_only: f64,
}

const HABITS: [Habit; 7] = [
    Habit { kind: "blog", posts: (0.005, 1.0), burst: 2, office: 0.75, days_only: 0.4 },
    Habit { kind: "weekly", posts: (0.12, 0.16), burst: 1, office: 0.95, days_only: 0.2 },
    Habit { kind: "release", posts: (0.005, 0.8), burst: 5, office: 0.85, days_only: 0.0 },
    Habit { kind: "commits", posts: (0.1, 12.0), burst: 12, office: 0.8, days_only: 0.0 },
    Habit { kind: "news", posts: (0.1, 25.0), burst: 4, office: 0.7, days_only: 0.1 },
    Habit { kind: "planet", posts: (0.5, 6.0), burst: 2, office: 0.6, days_only: 0.0 },
    Habit { kind: "auto", posts: (4.0, 30.0), burst: 5, office: 0.0, days_only: 0.0 },
];

/// Generates a population: `of_each` feeds of each kind found on the web, over a year, determined by the seed. It does
/// not resemble particular feeds; use real histories for meaningful results.
pub fn generated(seed: u64, of_each: usize) -> Vec<Series> {
    let mut random = Random::new(seed);
    let all = HABITS.iter().flat_map(|habit| (0..of_each).map(move |number| (habit, number)));
    all.map(|(habit, number)| habit.series(number, &mut random)).collect()
}

/// 2025-01-01, and the length of a year.
const START: f64 = 1_735_689_600.0;
const LENGTH: f64 = 366.0 * DAY;

impl Habit {
    fn series(&self, number: usize, random: &mut Random) -> Series {
        let (quiet, busy) = self.posts;
        let posts = quiet * (busy / quiet).powf(random.fraction());
        let days_only = random.fraction() < self.days_only;
        let zone = random.uniform(-8.0, 9.0);
        let mut times = Vec::new();
        let mut at = START;
        loop {
            at += random.exponential(DAY / posts * mean_burst(self.burst));
            let settled = if random.fraction() < self.office { working_time(at, zone, random) } else { at };
            if settled > START + LENGTH {
                break;
            }
            let burst = 1 + random.below(self.burst);
            times.extend((0..burst).map(|_| (settled + random.exponential(600.0)).floor()));
        }
        // Even the quietest feed has posted a few times.
        times.extend((0..4).map(|quarter| (START + LENGTH * (f64::from(quarter) + random.fraction()) / 4.0).floor()));
        if days_only {
            times.iter_mut().for_each(|at| *at = (*at / DAY).floor() * DAY);
        }
        times.sort_by(f64::total_cmp);
        let name = format!("{}/{number}", self.kind);
        Series { name, kind: self.kind.to_owned(), days_only, times, audience: Audience::default() }
    }
}

fn mean_burst(longest: usize) -> f64 {
    (longest as f64 + 1.0) / 2.0
}

/// Returns a time in the working hours of a time zone, on the same day or, for a weekend, on the next Monday.
fn working_time(at: f64, zone: f64, random: &mut Random) -> f64 {
    let day = (at / DAY).floor();
    // 1970-01-01 was a Thursday; Monday is 0.
    let weekday = (day + 3.0).rem_euclid(7.0);
    let monday = if weekday >= 5.0 { 7.0 - weekday } else { 0.0 };
    (day + monday) * DAY + (13.0 - zone) * HOUR + random.normal(2.0 * HOUR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_again() {
        let made = generated(7, 3);
        assert_eq!(made.len(), 21);
        assert!(made.iter().any(|series| series.days_only));
        assert_eq!(read(&write(&made)).unwrap(), made);
        assert_eq!(generated(7, 3), made);
        assert_ne!(generated(8, 3), made);
    }

    #[test]
    fn a_wrong_line_is_named() {
        let said = |text: &str| read(text).unwrap_err().to_string();
        assert!(said("a\tblog:s\t1 2\nb\tblog\t1 2").starts_with("line 2: 'blog' is no kind and precision; expected"));
        assert!(said("a\tblog:s\t2 1").starts_with("line 1: no times, or not ascending ones"));
        assert!(said("a\tblog:s\tx").starts_with("line 1: 'x' is no time"));
        assert!(said("a\tblog:s").starts_with("line 1: neither three parts"));
    }
}
