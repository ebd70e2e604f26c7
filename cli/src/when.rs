//! Times for people: local ones, with the zone, on a terminal; UTC in files and pipes.

use std::io::IsTerminal;
use std::sync::OnceLock;

use chrono::{DateTime, Local, TimeZone, Utc};
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

/// Formats a time in full, to the second.
pub(crate) fn full(at: Timestamp) -> String {
    zone().format(at, "%Y-%m-%d %H:%M:%S %Z")
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

/// Returns the head of a column of times.
pub(crate) fn head(name: &str) -> String {
    match zone() {
        Zone::Utc => format!("{name} (UTC)"),
        Zone::Named(zone) => format!("{name} ({zone})"),
        Zone::Local => format!("{name} (local)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
