//! The hours and days in which a publisher does not want to be polled (`skipHours`, `skipDays`).

use crate::document::FeedHints;
use crate::time::Timestamp;

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;
/// 1970-01-01 was a Thursday; Monday is 0.
const EPOCH_WEEKDAY: i64 = 3;
const ALL_HOURS: u32 = (1 << 24) - 1;
const ALL_DAYS: u8 = (1 << 7) - 1;

/// Hours and days (GMT) in which a publisher does not want to be polled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Skip {
    hours: u32,
    days: u8,
}

impl Skip {
    /// Reads the hints. A hint that leaves no hour of the day, or no day of the week, is ignored.
    pub(super) fn new(hints: &FeedHints) -> Self {
        let (hours, days) = (hints.skip_hours & ALL_HOURS, hints.skip_days & ALL_DAYS);
        Skip { hours: if hours == ALL_HOURS { 0 } else { hours }, days: if days == ALL_DAYS { 0 } else { days } }
    }

    /// Returns `at`, or the end of the skipped time that contains it.
    pub(super) fn end(self, at: Timestamp) -> Timestamp {
        let mut millis = at.millis();
        // Each round leaves a whole skipped day or hour: at most seven days and a day's hours.
        for _ in 0..7 + 24 {
            let (day, hour) = (millis / DAY, millis % DAY / HOUR);
            if self.days >> ((day + EPOCH_WEEKDAY) % 7) & 1 == 1 {
                millis = (day + 1) * DAY;
            } else if self.hours >> hour & 1 == 1 {
                millis = day * DAY + (hour + 1) * HOUR;
            } else {
                break;
            }
        }
        Timestamp::from_millis(millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        serde_json::from_str(&format!("\"{text}\"")).unwrap()
    }

    fn end(skip_hours: u32, skip_days: u8, from: &str) -> Timestamp {
        Skip::new(&FeedHints { skip_hours, skip_days, ..FeedHints::default() }).end(at(from))
    }

    #[test]
    fn skipped_hours_end_at_the_next_full_hour_that_is_not_skipped() {
        let night = 0b1111_1111 | 1 << 23;
        assert_eq!(end(night, 0, "2026-10-07T03:20:00Z"), at("2026-10-07T08:00:00Z"));
        assert_eq!(end(night, 0, "2026-10-07T23:59:59.999Z"), at("2026-10-08T08:00:00Z"));
        assert_eq!(end(night, 0, "2026-10-07T08:00:00Z"), at("2026-10-07T08:00:00Z"));
    }

    #[test]
    fn skipped_days_count_from_monday_and_lead_to_an_hour_that_is_not_skipped() {
        let weekend = 0b110_0000;
        assert_eq!(end(0, weekend, "2026-10-10T12:00:00Z"), at("2026-10-12T00:00:00Z"), "a Saturday");
        assert_eq!(end(0, weekend, "2026-10-09T12:00:00Z"), at("2026-10-09T12:00:00Z"), "a Friday");
        assert_eq!(end(0b11, weekend, "2026-10-11T12:00:00Z"), at("2026-10-12T02:00:00Z"));
        assert_eq!(end(1 << 23, 1 << 3, "2026-10-07T23:30:00Z"), at("2026-10-09T00:00:00Z"), "a Wednesday's night");
    }

    #[test]
    fn a_hint_that_leaves_no_time_is_ignored() {
        let noon = "2026-10-07T12:00:00Z";
        assert_eq!(end(ALL_HOURS, 0, noon), at(noon));
        assert_eq!(end(u32::MAX, u8::MAX, noon), at(noon));
        assert_eq!(end(ALL_HOURS, 1 << 2, noon), at("2026-10-08T00:00:00Z"), "the days of a hint with nonsense hours");
        assert_eq!(end(ALL_HOURS - 1, 0, noon), at("2026-10-08T00:00:00Z"), "one hour is left");
    }
}
