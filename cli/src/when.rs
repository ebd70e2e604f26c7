//! Times for people: local ones, with the zone, on a terminal; UTC in files and pipes.

use std::io::IsTerminal;
use std::sync::OnceLock;

use chrono::{DateTime, Local, NaiveDateTime, TimeZone, Utc};
use chrono_tz::Tz;
use common::time::Timestamp;
use common::words;

/// The time zone that times are shown in.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Zone {
    Utc,
    /// One that has a name.
    Named(Tz),
    /// The machine's, whose name is unknown.
    Local,
}

impl Zone {
    /// Returns the zone of the person at the terminal: `TZ`, else the machine's.
    fn of_person() -> Zone {
        let given = std::env::var("TZ").ok().filter(|zone| !zone.is_empty());
        match given.or_else(|| iana_time_zone::get_timezone().ok()) {
            Some(name) => name.trim_start_matches(':').parse().map_or(Zone::Local, Zone::Named),
            None => Zone::Local,
        }
    }

    fn format(self, at: Timestamp, format: &str) -> String {
        fn written<Z: TimeZone<Offset: std::fmt::Display>>(at: &DateTime<Z>, format: &str) -> String {
            at.format(format).to_string()
        }
        let at: DateTime<Utc> = at.to_chrono();
        match self {
            Zone::Utc => written(&at, format),
            Zone::Named(zone) => written(&at.with_timezone(&zone), format),
            Zone::Local => written(&at.with_timezone(&Local), format),
        }
    }
}

fn zone() -> Zone {
    static ZONE: OnceLock<Zone> = OnceLock::new();
    *ZONE.get_or_init(|| if std::io::stdout().is_terminal() { Zone::of_person() } else { Zone::Utc })
}

const FULL: &str = "%Y-%m-%d %H:%M:%S %Z";

/// Formats a time in full, to the second.
pub(crate) fn full(at: Timestamp) -> String {
    zone().format(at, FULL)
}

/// Formats a time in full and as seen from `now`.
pub(crate) fn moment(at: Timestamp, now: Timestamp) -> String {
    format!("{} ({})", full(at), words::relative(at, now))
}

/// Formats the time of day, with the zone.
pub(crate) fn time_of_day(at: Timestamp) -> String {
    zone().format(at, "%H:%M:%S %Z")
}

/// Formats a time for a column whose head names the zone.
pub(crate) fn cell(at: Timestamp, format: &str) -> String {
    zone().format(at, format)
}

/// Formats a time for such a column, to the second, with the year unless it is the current one.
pub(crate) fn due(at: Timestamp, now: Timestamp) -> String {
    due_in(zone(), at, now)
}

fn due_in(zone: Zone, at: Timestamp, now: Timestamp) -> String {
    let year = |at| zone.format(at, "%Y");
    zone.format(at, if year(at) == year(now) { "%m-%d %H:%M:%S" } else { WRITTEN.0 })
}

/// Returns the head of a column of times.
pub(crate) fn head(name: &str) -> String {
    match zone() {
        Zone::Utc => format!("{name} (UTC)"),
        Zone::Named(zone) => format!("{name} ({zone})"),
        Zone::Local => format!("{name} (local)"),
    }
}

/// How servers write times in sentences ([`words::moment`]): this many characters, then the zone.
const WRITTEN: (&str, usize) = ("%Y-%m-%d %H:%M:%S", 19);

/// Returns a sentence of a server with its times as this person reads them.
pub(crate) fn said(sentence: &str) -> String {
    said_in(zone(), sentence)
}

fn said_in(zone: Zone, sentence: &str) -> String {
    let mut said = String::new();
    let mut rest = sentence;
    while let Some((before, after)) = rest.split_once(" UTC") {
        let written = before.len().checked_sub(WRITTEN.1).and_then(|start| before.split_at_checked(start));
        let time = written.and_then(|(_, time)| NaiveDateTime::parse_from_str(time, WRITTEN.0).ok());
        match (written, time) {
            (Some((words, _)), Some(time)) => {
                let at = Timestamp::from_millis(time.and_utc().timestamp_millis());
                said.extend([words, &zone.format(at, FULL)]);
            }
            _ => said.extend([before, " UTC"]),
        }
        rest = after;
    }
    said + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_sentences_are_shown_in_the_persons_zone() {
        let tokyo = |sentence: &str| said_in(Zone::Named(chrono_tz::Asia::Tokyo), sentence);
        let (before, after) =
            ("no requests before 2026-01-15 23:00:00 UTC (now)", "no requests before 2026-01-16 08:00:00 JST (now)");
        assert_eq!(tokyo(before), after);
        assert_eq!(said_in(Zone::Utc, before), before);
        assert_eq!(tokyo(&format!("{before}, {before}")), format!("{after}, {after}"));
        for other in ["", " UTC", "12 UTC", "ä026-01-15 23:00:00 UTC", "2026-13-15 23:00:00 UTC", "no time"] {
            assert_eq!(tokyo(other), other);
        }
    }

    #[test]
    fn a_due_time_of_another_year_is_shown_with_the_year() {
        let at = |day: i64| Timestamp::from_millis(1_798_758_000_000 + day * 86_400_000);
        assert_eq!(due_in(Zone::Utc, at(-1), at(0)), "12-30 23:00:00");
        assert_eq!(due_in(Zone::Utc, at(1), at(0)), "2027-01-01 23:00:00");
        assert_eq!(due_in(Zone::Utc, at(366), at(0)), "2028-01-01 23:00:00");
        let tokyo = Zone::Named(chrono_tz::Asia::Tokyo);
        assert_eq!(due_in(tokyo, at(1), at(0)), "01-02 08:00:00", "it is 2027 there already");
    }

    #[test]
    fn a_named_zone_is_shown_with_its_abbreviation_of_that_day() {
        let winter = Timestamp::from_millis(1_768_478_400_000);
        let summer = Timestamp::from_millis(1_784_116_800_000);
        let of = |zone: Zone, at| zone.format(at, "%Y-%m-%d %H:%M:%S %Z");
        assert_eq!(of(Zone::Named(chrono_tz::Asia::Tokyo), winter), "2026-01-15 21:00:00 JST");
        assert_eq!(of(Zone::Named(chrono_tz::Europe::Berlin), winter), "2026-01-15 13:00:00 CET");
        assert_eq!(of(Zone::Named(chrono_tz::Europe::Berlin), summer), "2026-07-15 14:00:00 CEST");
        assert_eq!(of(Zone::Utc, winter), "2026-01-15 12:00:00 UTC");
    }
}
