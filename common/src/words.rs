//! Numbers, durations and times as people read them, the same on the terminal and on the pages.

use std::time::Duration;

use crate::outcome::{FailureKind, OutcomeKind};
use crate::time::Timestamp;

/// Formats a duration in its two largest units, rounded down: `45 s`, `1 h 40 min`, `2 d 3 h`.
pub fn duration(duration: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let seconds = duration.as_secs();
    let Some(first) = UNITS.iter().position(|(size, _)| seconds >= *size) else {
        return if duration.is_zero() { "0 s".to_owned() } else { format!("{} ms", duration.as_millis()) };
    };
    let (size, unit) = UNITS[first];
    let (whole, rest) = (count(seconds / size), seconds % size);
    match UNITS.get(first + 1) {
        Some((next_size, next_unit)) if rest >= *next_size => {
            format!("{whole} {unit} {} {next_unit}", rest / next_size)
        }
        _ => format!("{whole} {unit}"),
    }
}

/// Formats seconds like [`duration`], with a decimal below ten: `250 ms`, `2.5 s`, `1 min 15 s`.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        0.0 => "0 s".to_owned(),
        0.001..1.0 => format!("{:.0} ms", seconds * 1000.0),
        1.0..10.0 => format!("{} s", format!("{seconds:.1}").trim_end_matches(".0")),
        10.0.. => duration(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)),
        _ => "0 ms".to_owned(),
    }
}

/// Formats a time as seen from `now`: `in 5 min`, `3 h ago`.
pub fn relative(at: Timestamp, now: Timestamp) -> String {
    match (at.since(now), now.since(at)) {
        (ahead, _) if ahead >= Duration::from_secs(1) => format!("in {}", duration(ahead)),
        (_, past) if past >= Duration::from_secs(1) => format!("{} ago", duration(past)),
        _ => "now".to_owned(),
    }
}

/// Formats a time as seen from `now`, in its largest unit only: `in 5 min`, `2 h ago`.
pub fn about(at: Timestamp, now: Timestamp) -> String {
    let whole = |duration: Duration| {
        let seconds = duration.as_secs();
        let unit = [86_400, 3600, 60].into_iter().find(|unit| seconds >= *unit).unwrap_or(1);
        Duration::from_secs(seconds / unit * unit)
    };
    match (at.since(now), now.since(at)) {
        (Duration::ZERO, past) => relative(now.before(whole(past)), now),
        (ahead, _) => relative(now.after(whole(ahead)), now),
    }
}

/// Formats a time in full, to the second.
pub fn full(at: Timestamp) -> String {
    at.to_chrono().format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// Formats a time in full and as seen from `now`.
pub fn moment(at: Timestamp, now: Timestamp) -> String {
    format!("{} ({})", full(at), relative(at, now))
}

/// Formats a number with thousands separators.
pub fn count(number: u64) -> String {
    grouped(&number.to_string())
}

/// Formats a counter that is kept as a float, rounded to a whole number.
pub fn whole(number: f64) -> String {
    grouped(&format!("{:.0}", number.max(0.0)))
}

/// Formats a number of things: `1 feed`, `1,200 feeds`.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// Formats a rate or another small number, with as many digits as are significant.
pub fn rate(rate: f64) -> String {
    match rate {
        ..0.005 => "0".to_owned(),
        ..0.1 => format!("{rate:.2}"),
        ..10.0 => format!("{rate:.1}"),
        _ => whole(rate),
    }
}

/// Formats a number of bytes in the largest unit that keeps it above one.
pub fn bytes(count: f64) -> String {
    match count {
        ..1e3 => format!("{count:.0} B"),
        ..1e6 => format!("{:.1} kB", count / 1e3),
        ..1e9 => format!("{:.1} MB", count / 1e6),
        _ => format!("{:.1} GB", count / 1e9),
    }
}

/// Formats an HTTP status with its words: `404 Not Found`.
pub fn status(code: u16) -> String {
    let reason = http::StatusCode::from_u16(code).ok().and_then(|status| status.canonical_reason());
    reason.map_or_else(|| code.to_string(), |reason| format!("{code} {reason}"))
}

/// Names a kind of failure.
pub fn failure(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Dns => "name not resolved",
        FailureKind::Connect => "no connection",
        FailureKind::Tls => "TLS failed",
        FailureKind::Timeout => "timeout",
        FailureKind::Status => "error status",
        FailureKind::TooLarge => "too large",
        FailureKind::NotAFeed => "not a feed",
        FailureKind::Malformed => "malformed",
        FailureKind::Truncated => "truncated",
        FailureKind::Redirects => "bad redirect",
        FailureKind::RefusedAddress => "address refused",
        FailureKind::Crashed => "worker crashed",
        FailureKind::Blocked => "blocked",
    }
}

/// Names an outcome.
pub fn outcome(kind: OutcomeKind) -> &'static str {
    match kind {
        OutcomeKind::Modified => "new content",
        OutcomeKind::NotModified => "not modified",
        OutcomeKind::Throttled => "throttled",
        OutcomeKind::Failed => "failed",
        OutcomeKind::Gone => "gone",
        OutcomeKind::Deferred => "deferred",
    }
}

/// Returns whether the character turns the direction of the text around it.
pub fn turns_text(c: char) -> bool {
    matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns a stranger's text on one line, without control characters and not longer than `longest` characters.
pub fn plain(text: &str, longest: usize) -> String {
    let visible: String = text.chars().map(|c| if c.is_control() || turns_text(c) { ' ' } else { c }).collect();
    let words = visible.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}

fn grouped(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units() {
        let of = |millis| duration(Duration::from_millis(millis));
        assert_eq!([0, 45_900, 3_605_000].map(of), ["0 s", "45 s", "1 h"]);
        assert_eq!([300_000, 6_000_000, 183_600_000].map(of), ["5 min", "1 h 40 min", "2 d 3 h"]);
        assert_eq!(
            [0.0, 0.25, 2.5, 75.0, f64::NAN, 1e30].map(seconds),
            ["0 s", "250 ms", "2.5 s", "1 min 15 s", "0 ms", "213,503,982,334,601 d 7 h"]
        );
    }

    #[test]
    fn numbers_have_separators_and_bytes_a_unit() {
        assert_eq!([0, 7, 999, 1000, 1_234_567].map(count), ["0", "7", "999", "1,000", "1,234,567"]);
        assert_eq!([0.0, 0.04, 3.07, 1234.6].map(rate), ["0", "0.04", "3.1", "1,235"]);
        assert_eq!([0.0, 999.0, 1500.0, 2.5e6, 1e10].map(bytes), ["0 B", "999 B", "1.5 kB", "2.5 MB", "10.0 GB"]);
        assert_eq!(
            (counted(1, "feed", "feeds"), counted(1200, "feed", "feeds")),
            ("1 feed".into(), "1,200 feeds".into())
        );
    }

    #[test]
    fn times_are_relative_to_now() {
        let now = Timestamp::from_millis(10_000_000);
        assert_eq!(relative(now.after(Duration::from_secs(300)), now), "in 5 min");
        assert_eq!(relative(now.before(Duration::from_secs(7200)), now), "2 h ago");
        assert_eq!(relative(now, now), "now");
        let of = |seconds: i64| about(Timestamp::from_millis(now.millis() + seconds * 1000), now);
        assert_eq!([9000, -9000, 59, -100, 0].map(of), ["in 2 h", "2 h ago", "in 59 s", "1 min ago", "now"]);
        assert_eq!(moment(now, now), "1970-01-01 02:46:40 UTC (now)");
    }
}
