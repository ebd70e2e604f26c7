//! Calm delivery: subscribers who want new entries once a day, at their own midnight (an idea of the Artemis reader).
//!
//! A midnight is the first instant of a day in a zone: 00:00, or the end of a gap where daylight saving time skips
//! that.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chrono::{Days, NaiveTime, TimeZone};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// A time zone by its IANA name, such as `Europe/Paris`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Zone(chrono_tz::Tz);

/// Subscribers of one zone who want a feed at their midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CalmGroup {
    /// An IANA time zone.
    #[schemars(with = "String", extend("example" = "Europe/Paris"))]
    pub zone: Zone,
    /// The number of subscribers.
    pub subscribers: u32,
}

/// How long before a midnight a feed is polled at the earliest: what appears after the poll waits for a day.
const WIDTH: Duration = Duration::from_secs(15 * 60);
/// The same under full load, when the polls of one midnight have to be spread further.
const WIDEST: Duration = Duration::from_secs(60 * 60);
/// How long before a midnight a poll must have started, so that what it finds is stored by then.
const FETCH: Duration = Duration::from_secs(60);

/// The time before a midnight in which a feed is polled for its calm subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The earliest time.
    pub start: Timestamp,
    /// The midnight.
    pub midnight: Timestamp,
}

impl Window {
    /// Returns the time by which the poll must have started.
    pub fn end(self) -> Timestamp {
        self.midnight.before(FETCH)
    }

    /// Returns what is left of it without any load.
    #[must_use]
    pub fn narrowest(self) -> Self {
        Window { start: self.start.max(self.midnight.before(WIDTH)), ..self }
    }
}

/// Returns the number of calm subscribers.
pub fn calm_subscribers(groups: &[CalmGroup]) -> u32 {
    groups.iter().fold(0, |sum: u32, group| sum.saturating_add(group.subscribers))
}

impl Zone {
    /// Returns the last midnight at or before `now`.
    pub fn last_midnight(self, now: Timestamp) -> Timestamp {
        self.midnights(now, -1).take_while(|midnight| *midnight <= now).last().unwrap_or(Timestamp::EPOCH)
    }

    /// Returns the first midnight after `time`.
    pub fn next_midnight(self, time: Timestamp) -> Option<Timestamp> {
        self.midnights(time, 0).find(|midnight| *midnight > time)
    }

    /// Returns the midnights of a few days, in order, from `first` days after the day of `time`.
    fn midnights(self, time: Timestamp, first: i64) -> impl Iterator<Item = Timestamp> {
        let today = time.to_chrono().with_timezone(&self.0).date_naive();
        let start = if first < 0 { today - Days::new(first.unsigned_abs()) } else { today };
        // Four days, because a country that crossed the date line skipped a whole day.
        (0..4).filter_map(move |day| self.midnight(start.checked_add_days(Days::new(day))?))
    }

    fn midnight(self, day: chrono::NaiveDate) -> Option<Timestamp> {
        const STEP: u32 = 15;
        let quarters = (0..24 * 60 / STEP).map(|quarter| quarter * STEP);
        let times = quarters.filter_map(|minute| NaiveTime::from_hms_opt(minute / 60, minute % 60, 0));
        let mut instants = times.filter_map(|time| self.0.from_local_datetime(&day.and_time(time)).earliest());
        instants.next().map(|instant| Timestamp::from_chrono(instant.to_utc()))
    }
}

/// Returns the next window before a midnight of one of these groups that starts after `polled`, while the fleet has this
/// `load`, from 0 to 1. A poll within a window serves its midnight.
pub fn next_window(groups: &[CalmGroup], polled: Timestamp, load: f64) -> Option<Window> {
    let width = width(load);
    first_window(groups, polled.after(width), width)
}

/// Returns the same for a poll that was planned for a window. It serves that one's midnight even if its window would begin later
/// under today's load.
pub fn next_window_but(groups: &[CalmGroup], polled: Timestamp, planned: Option<Window>, load: f64) -> Option<Window> {
    let next = next_window(groups, polled, load)?;
    match planned.filter(|planned| planned.start <= polled && next.midnight <= planned.midnight) {
        Some(planned) => first_window(groups, planned.midnight, width(load)),
        None => Some(next),
    }
}

/// Returns the first window before a midnight of one of these groups in which a poll at `time` or later can start. It may have
/// begun.
pub fn next_open_window(groups: &[CalmGroup], time: Timestamp, load: f64) -> Option<Window> {
    first_window(groups, time.after(FETCH), width(load))
}

/// Returns the window of this width before the first midnight after `time`.
fn first_window(groups: &[CalmGroup], time: Timestamp, width: Duration) -> Option<Window> {
    let wanted = groups.iter().filter(|group| group.subscribers > 0);
    let midnights = wanted.filter_map(|group| group.zone.next_midnight(time));
    midnights.min().map(|midnight| Window { start: midnight.before(width), midnight })
}

fn width(load: f64) -> Duration {
    // Where no load is known it is not a number.
    let load = if load > 0.0 { load.min(1.0) } else { 0.0 };
    WIDTH + (WIDEST - WIDTH).mul_f64(load)
}

impl FromStr for Zone {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        name.parse().map(Zone).map_err(|_| format!("'{name}' is not an IANA time zone; write one such as Europe/Paris"))
    }
}

impl TryFrom<String> for Zone {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse()
    }
}

impl From<Zone> for String {
    fn from(zone: Zone) -> String {
        zone.to_string()
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        serde_json::from_str(&format!("\"{text}\"")).unwrap()
    }

    fn zone(name: &str) -> Zone {
        name.parse().unwrap()
    }

    #[test]
    fn midnight_is_the_zones_own_in_summer_and_in_winter() {
        let paris = zone("Europe/Paris");
        assert_eq!(paris.next_midnight(at("2026-07-01T12:00:00Z")), Some(at("2026-07-01T22:00:00Z")));
        assert_eq!(paris.next_midnight(at("2026-12-01T12:00:00Z")), Some(at("2026-12-01T23:00:00Z")));
        assert_eq!(paris.last_midnight(at("2026-07-01T21:59:59Z")), at("2026-06-30T22:00:00Z"));
        assert_eq!(paris.last_midnight(at("2026-07-01T22:00:00Z")), at("2026-07-01T22:00:00Z"));
        // The night of 25 October has 25 hours.
        assert_eq!(paris.next_midnight(at("2026-10-24T22:00:00Z")), Some(at("2026-10-25T23:00:00Z")));
        assert_eq!(zone("Asia/Kathmandu").next_midnight(at("2026-07-01T12:00:00Z")), Some(at("2026-07-01T18:15:00Z")));
    }

    #[test]
    fn a_midnight_that_does_not_exist_is_the_first_instant_of_its_day() {
        // Cairo's clocks went from 00:00 to 01:00 on 26 April 2024.
        let cairo = zone("Africa/Cairo");
        assert_eq!(cairo.next_midnight(at("2024-04-25T12:00:00Z")), Some(at("2024-04-25T22:00:00Z")));
        assert_eq!(cairo.last_midnight(at("2024-04-26T12:00:00Z")), at("2024-04-25T22:00:00Z"));
        // Havana's went back from 01:00 to 00:00 on 2 November 2025: the day starts once, at the first of both
        // midnights.
        let havana = zone("America/Havana");
        assert_eq!(havana.next_midnight(at("2025-11-01T12:00:00Z")), Some(at("2025-11-02T04:00:00Z")));
        assert_eq!(havana.next_midnight(at("2025-11-02T04:30:00Z")), Some(at("2025-11-03T05:00:00Z")));
        // Samoa had no 30 December 2011.
        let apia = zone("Pacific/Apia");
        assert_eq!(apia.next_midnight(at("2011-12-29T20:00:00Z")), Some(at("2011-12-30T10:00:00Z")));
    }

    #[test]
    fn a_zone_that_nobody_knows_is_refused() {
        assert!("Europe/Atlantis".parse::<Zone>().unwrap_err().contains("Europe/Paris"));
        let group = r#"{"zone":"Asia/Tokyo","subscribers":3}"#;
        assert_eq!(serde_json::to_string(&serde_json::from_str::<CalmGroup>(group).unwrap()).unwrap(), group);
    }

    #[test]
    fn windows_follow_each_other_zone_by_zone_and_none_is_begun_twice() {
        let group = |name: &str, subscribers| CalmGroup { zone: zone(name), subscribers };
        let groups = [group("Europe/Paris", 2), group("Asia/Tokyo", 1), group("America/New_York", 0)];
        let mut polled = at("2026-07-01T00:00:00Z");
        let mut starts = Vec::new();
        for _ in 0..4 {
            let Window { start, midnight } = next_window(&groups, polled, 0.0).unwrap();
            assert_eq!(midnight, start.after(WIDTH));
            starts.push(start.to_string());
            polled = start.after(Duration::from_secs(60));
        }
        let expected = ["01T14:45", "01T21:45", "02T14:45", "02T21:45"].map(|time| format!("2026-07-{time}:00.000Z"));
        assert_eq!(starts, expected);
        assert_eq!(next_window(&groups[2..], polled, 0.0), None, "nobody waits there");
        let loaded = next_window(&groups, polled, 1.0).unwrap();
        assert_eq!(loaded.start.to_string(), "2026-07-03T14:00:00.000Z", "wider only under load");
    }

    #[test]
    fn a_window_is_open_until_a_minute_before_its_midnight() {
        let groups = [CalmGroup { zone: zone("Europe/Paris"), subscribers: 1 }];
        let midnight = |time: &str| next_open_window(&groups, at(time), 0.0).unwrap().midnight;
        assert_eq!(midnight("2026-07-01T12:00:00Z"), at("2026-07-01T22:00:00Z"));
        assert_eq!(midnight("2026-07-01T21:58:59Z"), at("2026-07-01T22:00:00Z"), "although it has begun");
        assert_eq!(midnight("2026-07-01T21:59:00Z"), at("2026-07-02T22:00:00Z"));
    }
}
