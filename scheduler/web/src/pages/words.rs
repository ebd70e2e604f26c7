//! Numbers and times as the pages say them.

use std::time::Duration;

use common::outcome::OutcomeKind;
use common::policy::Rule;
use common::time::Timestamp;

/// A moment, for `<time>`: for machines, in full, and as seen from now.
pub(super) struct Moment {
    pub(super) machine: String,
    pub(super) full: String,
    pub(super) relative: String,
}

impl Moment {
    /// `at` as seen from `now`.
    pub(super) fn of(at: Timestamp, now: Timestamp) -> Self {
        Moment { machine: at.to_string(), full: full(at), relative: relative(at, now) }
    }

    /// A due time as seen from `now`.
    pub(super) fn due(at: Timestamp, now: Timestamp) -> Self {
        Moment { relative: due(at, now), ..Moment::of(at, now) }
    }
}

/// A time in full.
pub(super) fn full(at: Timestamp) -> String {
    at.to_chrono().format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// A day.
pub(super) fn day(at: Timestamp) -> String {
    at.to_chrono().format("%Y-%m-%d").to_string()
}

/// A time as seen from `now`.
pub(super) fn relative(at: Timestamp, now: Timestamp) -> String {
    match (at.since(now), now.since(at)) {
        (ahead, _) if ahead >= Duration::from_secs(1) => format!("in {}", span(ahead)),
        (_, past) if past >= Duration::from_secs(1) => format!("{} ago", span(past)),
        _ => "now".to_owned(),
    }
}

/// A due time as seen from `now`.
pub(super) fn due(at: Timestamp, now: Timestamp) -> String {
    match now.since(at) {
        late if late >= Duration::from_secs(1) => format!("due for {}", span(late)),
        _ => relative(at, now),
    }
}

/// A duration in its largest unit, rounded down.
pub(super) fn span(duration: Duration) -> String {
    match duration.as_secs() {
        0 if duration.is_zero() => "0 s".to_owned(),
        0 => format!("{} ms", duration.as_millis()),
        seconds @ 1..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{} min", seconds / 60),
        seconds @ 3600..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// A duration in seconds, with as many digits as say something.
pub(super) fn seconds(seconds: f64) -> String {
    match seconds {
        0.0..0.001 => "0 ms".to_owned(),
        0.001..1.0 => format!("{:.0} ms", seconds * 1000.0),
        1.0..10.0 => format!("{seconds:.1} s"),
        _ => span(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)),
    }
}

/// A number with a narrow space between thousands.
pub(super) fn number(number: u64) -> String {
    grouped(&number.to_string())
}

/// The same of a counter that is no whole number, or is kept as none.
pub(super) fn whole(number: f64) -> String {
    grouped(&format!("{:.0}", number.max(0.0)))
}

fn grouped(digits: &str) -> String {
    let mut text = String::with_capacity(2 * digits.len());
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// A rate or another small number, with as many digits as say something.
pub(super) fn rate(rate: f64) -> String {
    match rate {
        ..0.005 => "0".to_owned(),
        ..0.1 => format!("{rate:.2}"),
        ..10.0 => format!("{rate:.1}"),
        _ => whole(rate),
    }
}

/// Bytes in the largest unit that keeps them above one.
pub(super) fn bytes(count: f64) -> String {
    match count {
        ..1e3 => format!("{count:.0} B"),
        ..1e6 => format!("{:.1} kB", count / 1e3),
        ..1e9 => format!("{:.1} MB", count / 1e6),
        _ => format!("{:.1} GB", count / 1e9),
    }
}

/// A name of the API's as words.
pub(super) fn spaced(name: &str) -> String {
    name.replace('_', " ")
}

/// An outcome in words.
pub(super) fn outcome(kind: OutcomeKind) -> &'static str {
    match kind {
        OutcomeKind::Modified => "Read whole",
        OutcomeKind::NotModified => "Not modified",
        OutcomeKind::Throttled => "Throttled",
        OutcomeKind::Failed => "Failed",
        OutcomeKind::Gone => "Gone",
        OutcomeKind::Deferred => "Deferred",
    }
}

/// A rule in a word or two, as publishers know it.
pub(super) fn rule(rule: Rule) -> &'static str {
    match rule {
        Rule::Category => "category",
        Rule::Adaptive => "posting rate",
        Rule::Person => "a person's wish",
        Rule::NoSubscribers => "no subscribers",
        Rule::HostInterval => "its host's interval",
        Rule::MinInterval => "shortest interval",
        Rule::Ttl => "ttl",
        Rule::UpdatePeriod => "updatePeriod",
        Rule::Freshness => "max-age",
        Rule::Skip => "skipHours or skipDays",
        Rule::NoValidators => "no validators",
        Rule::EqualDownloads => "same bytes again",
        Rule::Stretch => "throttled before",
        Rule::Backoff => "back-off",
        Rule::PenaltyBox => "penalty box",
        Rule::RetryAfter => "Retry-After",
        Rule::Throttled => "throttled",
        Rule::Ceiling => "cut by a ceiling (hint_ceiling)",
        Rule::Salt => "salt",
        Rule::HotMinute => "a busy minute avoided",
        Rule::Added => "added",
        Rule::Late => "late",
        Rule::Calm => "calm delivery",
        Rule::OurFault => "our own fault",
        Rule::HostRefuses => "its host refuses us",
    }
}

/// Only http and https make a link: a feed may announce `javascript:`.
pub(super) fn web_link(link: &str) -> Option<String> {
    (link.starts_with("http://") || link.starts_with("https://")).then(|| link.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_said_shortly() {
        assert_eq!(
            [0, 7, 999, 1000, 1_234_567].map(number),
            ["0", "7", "999", "1\u{202f}000", "1\u{202f}234\u{202f}567"]
        );
        assert_eq!([0.0, 0.04, 3.07, 1234.6].map(rate), ["0", "0.04", "3.1", "1\u{202f}235"]);
        assert_eq!([0.0, 999.0, 1500.0, 2.5e6, 1e10].map(bytes), ["0 B", "999 B", "1.5 kB", "2.5 MB", "10.0 GB"]);
        assert_eq!(
            [0.0, 0.25, 2.5, 75.0, 1e30].map(seconds),
            ["0 ms", "250 ms", "2.5 s", "1 min", "213503982334601 d"]
        );
    }

    #[test]
    fn what_is_late_is_due_for_so_long() {
        let now = Timestamp::from_millis(10_000_000);
        assert_eq!(due(now.before(Duration::from_secs(90)), now), "due for 1 min");
        assert_eq!(due(now.after(Duration::from_secs(90)), now), "in 1 min");
        assert_eq!(
            (due(now, now), relative(now.before(Duration::from_secs(90)), now)),
            ("now".into(), "1 min ago".into())
        );
    }

    #[test]
    fn only_web_addresses_become_links() {
        assert_eq!(web_link("https://a.example/"), Some("https://a.example/".to_owned()));
        for link in ["javascript:alert(1)", "JAVASCRIPT:x", "data:text/html,x", "//a.example", " https://a.example"] {
            assert_eq!(web_link(link), None, "{link}");
        }
    }
}
