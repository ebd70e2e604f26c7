//! Dates as publishers write them: RFC 3339 and its relatives, RFC 822 and its relatives, and everything between.
//!
//! One reader for all forms: the text is cut into words, and each word is taken for what it looks like (a clock time, a
//! zone, a month's name, a year, a day). What is missing is midnight and UTC. An impossible date, or one before 1000 or
//! after 9999, is ignored: no date is better than a wrong one, and nothing may be keyed on dates.

mod months;

use std::borrow::Cow;

use chrono::{DateTime, Datelike, Duration, NaiveDate, NaiveTime, Utc};

use months::month;

/// Longer texts are not dates.
const MAX_BYTES: usize = 100;

/// 1000-01-01T00:00:00Z, and the last second of 9999.
const FIRST_SECOND: i64 = -30_610_224_000;
const LAST_SECOND: i64 = 253_402_300_799;

/// Which number of `9/6/2021` is the day, where both can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    MonthFirst,
    DayFirst,
}

/// Returns the point in time that a publisher's text means.
pub(super) fn parse(text: &str, order: Order) -> Option<DateTime<Utc>> {
    // Java writes the zone's name behind the time: `2021-09-06T00:01:00Z[UTC]`.
    let before = text.split_once('[').map(|(before, _)| before).filter(|before| !before.trim().is_empty());
    let text = before.unwrap_or(text).trim();
    if text.is_empty() || text.len() > MAX_BYTES {
        return None;
    }
    let unusual = || {
        let text = &with_plain_halves(text);
        unix(text).or_else(|| words(text, order)).or_else(|| words(&eastern(text)?, order))
    };
    let at = iso(text).or_else(|| rfc_2822(text)).or_else(unusual)?;
    (FIRST_SECOND..=LAST_SECOND).contains(&at.timestamp()).then_some(at)
}

/// Returns whether a text is a date like `13/5/2021`: then the document's other dates have the day first, too.
pub(super) fn has_day_first(text: &str) -> bool {
    text.len() <= MAX_BYTES
        && text.contains('/')
        && text
            .split(is_between)
            .filter_map(numbers)
            .any(|([first, second, _], _)| first > 12 && first <= 31 && second <= 12)
}

/// Spanish puts a space into its halves of days: `02:30 p. m.`
fn with_plain_halves(text: &str) -> Cow<'_, str> {
    let spaced = |half: &str| format!("{half}.m");
    match text.contains(". m") || text.contains(".\u{a0}m") {
        true => text.replace('\u{a0}', " ").replace("p. m", &spaced("p")).replace("a. m", &spaced("a")).into(),
        false => text.into(),
    }
}

/// `2021-09-06`, `2021-09-06T00:01:00.5+02:00`, `2021-09-06 00:01`, `2021-09`, `20210906T000100Z`, `20210906000100`.
fn iso(text: &str) -> Option<DateTime<Utc>> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (date, rest) = match (digits, text.as_bytes().get(digits)) {
        (4, Some(b'-')) => {
            let end = text.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(text.len());
            let mut parts = text[..end].split('-');
            let mut number = |default: u32| parts.next().map_or(Some(default), |part| part.parse().ok());
            let year = i32::try_from(number(0)?).ok()?;
            // A zone may follow the date at once, but no feed was ever seen to do so.
            (NaiveDate::from_ymd_opt(year, number(1)?, number(1)?)?, &text[end..])
        }
        (8, None | Some(b'T' | b't' | b' ' | b'Z')) => {
            (NaiveDate::parse_from_str(&text[..8], "%Y%m%d").ok()?, &text[8..])
        }
        (12 | 14, None) => (NaiveDate::parse_from_str(&text[..8], "%Y%m%d").ok()?, &text[8..]),
        (4, None) => (NaiveDate::from_ymd_opt(text.parse().ok()?, 1, 1)?, ""),
        _ => return None,
    };
    let rest = rest.trim_start_matches(['T', 't', ' ']);
    let clock_end = rest.find(|c: char| !c.is_ascii_digit() && !matches!(c, ':' | '.' | ',')).unwrap_or(rest.len());
    let (seconds, zone) = match (&rest[..clock_end], rest[clock_end..].trim()) {
        ("", zone) => (Duration::zero(), zone),
        (time, zone) => (clock(time)?, zone),
    };
    // Half a day's name after the clock is an English habit that came along with the ISO form.
    let (noon, zone) = half_day(zone);
    let seconds = on_half_day(seconds, noon);
    let offset = if zone.is_empty() { 0 } else { zone_seconds(zone)? };
    at(date, seconds, offset)
}

/// Years before it are left to the reader of all forms.
const USUAL_YEARS: i32 = 1950;

/// `Mon, 06 Sep 2021 00:01:00 GMT`, as nearly all RSS feeds have it. Not with other names of zones: chrono takes those that it does not
/// know for UTC. Nor with a leap second or an offset that no place has, or a year like 000, which chrono reads as 1900.
fn rfc_2822(text: &str) -> Option<DateTime<Utc>> {
    let zone = &text.as_bytes()[text.rfind(' ')? + 1..];
    if zone != b"GMT" && !(zone.len() == 5 && matches!(zone[0], b'+' | b'-')) {
        return None;
    }
    let at = DateTime::parse_from_rfc2822(text).ok()?;
    let is_sane = at.offset().local_minus_utc().abs() < 15 * 3600 && at.timestamp_subsec_millis() == 0;
    (is_sane && at.year() >= USUAL_YEARS).then(|| at.to_utc())
}

/// `2021年9月6日 下午3:01`, `2021년 9월 6일 오후 3:01` as `2021/9/6 3:01 PM`; `None` for what names no year so.
fn eastern(text: &str) -> Option<String> {
    let afternoon = text.contains("오후") || text.contains("下午") || text.contains("午後");
    let morning = text.contains("오전") || text.contains("上午") || text.contains("午前");
    let (date, clock) = text.split_once(['日', '일'])?;
    let (year, rest) = date.split_once(['年', '년'])?;
    let (month, day) = rest.split_once(['月', '월'])?;
    let clock = clock.trim_start_matches(|c: char| !c.is_ascii_digit());
    let half = if afternoon {
        "PM"
    } else if morning {
        "AM"
    } else {
        ""
    };
    Some(format!("{}/{}/{} {clock} {half}", year.trim(), month.trim(), day.trim()))
}

/// Seconds or milliseconds since 1970.
fn unix(text: &str) -> Option<DateTime<Utc>> {
    let whole = text.split('.').next()?;
    let number: i64 = whole.parse().ok()?;
    match whole.len() {
        9 | 10 => DateTime::from_timestamp(number, 0),
        12 | 13 => DateTime::from_timestamp_millis(number),
        _ => None,
    }
}

/// What has been recognised among the words of a date.
#[derive(Default)]
struct Found {
    order: Order,
    year: Option<i32>,
    month: Option<u32>,
    day: Option<u32>,
    time: Option<Duration>,
    offset: Option<i32>,
    afternoon: Option<bool>,
}

/// `Mon, 06 Sep 2021 00:01:00 GMT`, `September 6, 2021 12:01 AM`, `Mon Sep  6 00:01:00 2021`, `9/6/2021`, `6-Sep-21`,
/// with weekdays, months and order of any language whose months are known.
fn words(text: &str, order: Order) -> Option<DateTime<Utc>> {
    let mut found = Found { order, ..Found::default() };
    for word in text.split(is_between).filter(|word| !word.is_empty()) {
        found.take(word);
    }
    let date = NaiveDate::from_ymd_opt(found.year?, found.month?, found.day?)?;
    let seconds = on_half_day(found.time.unwrap_or_default(), found.afternoon);
    at(date, seconds, found.offset.unwrap_or(0))
}

/// Returns whether a character is between words.
fn is_between(character: char) -> bool {
    character.is_whitespace() || matches!(character, ',' | ';' | '(' | ')')
}

impl Found {
    fn take(&mut self, word: &str) {
        if word.contains(':') {
            self.take_clock(word);
        } else if let Some(date) = numeric_date(word, self.order) {
            (self.year, self.month, self.day) = (Some(date.0), Some(date.1), Some(date.2));
        } else if let Ok(number) =
            word.trim_end_matches(['.', 'º', 'ª', '日']).parse::<u32>().or_else(|_| ordinal(word))
        {
            if !word.starts_with('+') || self.time.is_none() {
                self.take_number(number, word.bytes().filter(u8::is_ascii_digit).count());
            } else {
                self.offset = zone_seconds(word);
            }
        } else if self.time.is_some() && word.starts_with(['+', '-']) {
            self.offset = self.offset.or_else(|| zone_seconds(word));
        } else if let (Some(noon), "") = half_day(word) {
            self.afternoon = Some(noon);
        } else if let Some(month) = self.may_be_month().then(|| month(word)).flatten() {
            self.month = Some(month);
        } else if let Some(zone) = zone_seconds(word).filter(|_| self.time.is_some() && word.contains('-')) {
            self.offset = self.offset.or(Some(zone));
        } else if word.contains('-') {
            word.split('-').for_each(|part| self.take(part));
        } else if self.time.is_some() {
            self.offset = self.offset.or_else(|| zone_seconds(word));
        }
    }

    /// Returns whether a word may be a month. The last one before the clock counts: weekdays of some languages begin
    /// like months (`mar, 06 sep`, `maandag 6 september`), and so do some zones.
    fn may_be_month(&self) -> bool {
        self.month.is_none() || self.time.is_none()
    }

    /// `00:01:00`, also with a zone or half of a day at once behind it.
    fn take_clock(&mut self, word: &str) {
        let end = word.find(|c: char| !c.is_ascii_digit() && !matches!(c, ':' | '.')).unwrap_or(word.len());
        if self.time.is_none() {
            self.time = clock(&word[..end]);
            let (noon, zone) = half_day(&word[end..]);
            self.afternoon = noon;
            self.offset = zone_seconds(zone);
        } else {
            self.offset = zone_seconds(word);
        }
    }

    fn take_number(&mut self, number: u32, length: usize) {
        let year = i32::try_from(number).unwrap_or(i32::MAX);
        if length >= 4 {
            self.year = self.year.or(Some(year));
        } else if self.day.is_none() && (1..=31).contains(&number) {
            self.day = Some(number);
        } else if self.year.is_none() {
            self.year = Some(full_year(year));
        }
    }
}

/// `9/6/2021` is the sixth of September, unless it cannot be or other dates have the day first; `6.9.2021` and `6-9-2021` are the same
/// day; `2021/9/6`, too.
fn numeric_date(word: &str, order: Order) -> Option<(i32, u32, u32)> {
    let ([first, second, third], separator) = numbers(word)?;
    let year = |number: u32| i32::try_from(number).ok().map(full_year);
    if word.find(separator) == Some(4) {
        return Some((year(first)?, second, third));
    }
    let day_first = first > 12 || (second <= 12 && (separator != '/' || order == Order::DayFirst));
    let (month, day) = if day_first { (second, first) } else { (first, second) };
    Some((year(third)?, month, day))
}

/// Returns the numbers of a date that consists of nothing else, and what is between them. Of those with `-` one has four digits.
fn numbers(word: &str) -> Option<([u32; 3], char)> {
    let separator = ['/', '.', '-'].into_iter().find(|separator| word.matches(*separator).count() == 2)?;
    let mut parts = word.split(separator).map(|part| part.parse::<u32>().ok());
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    let has_year = separator != '-' || word.find('-') == Some(4) || word.len() == word.rfind('-')? + 5;
    has_year.then_some((numbers, separator))
}

/// `6th`, `1er`.
fn ordinal(word: &str) -> Result<u32, std::num::ParseIntError> {
    let lower = word.to_ascii_lowercase();
    let digits = ["st", "nd", "rd", "th", "er"].iter().find_map(|suffix| lower.strip_suffix(suffix)).unwrap_or("");
    digits.parse()
}

/// RFC 2822's reading of years with two or three digits.
fn full_year(year: i32) -> i32 {
    match year {
        0..=49 => year + 2000,
        50..=999 => year + 1900,
        _ => year,
    }
}

/// `hh`, `hh:mm`, `hh:mm:ss`, `hhmmss`, with a fraction; 24:00 is the next midnight, a leap second the one before it.
fn clock(text: &str) -> Option<Duration> {
    let (whole, fraction) = text.split_once(['.', ',']).unwrap_or((text, ""));
    let whole = whole.trim_end_matches(':');
    let mut numbers = [0_i64; 3];
    if whole.contains(':') || whole.len() <= 2 {
        for (at, part) in whole.split(':').enumerate() {
            *numbers.get_mut(at)? = part.parse().ok()?;
        }
    } else {
        for (at, part) in whole.as_bytes().chunks(2).enumerate() {
            *numbers.get_mut(at)? = std::str::from_utf8(part).ok()?.parse().ok()?;
        }
    }
    let [hours, minutes, seconds] = numbers;
    let sane = (0..=24).contains(&hours) && (0..60).contains(&minutes) && (0..=61).contains(&seconds);
    let digits: String = fraction.chars().take_while(char::is_ascii_digit).chain("000".chars()).take(3).collect();
    let millis = digits.parse().ok()?;
    let seconds = seconds.min(59);
    sane.then(|| Duration::seconds(hours * 3600 + minutes * 60 + seconds) + Duration::milliseconds(millis))
}

/// `AM` or `PM` at the beginning of a text, also as `a.m.`, and the rest of it.
fn half_day(text: &str) -> (Option<bool>, &str) {
    const FORMS: [(&str, bool); 6] =
        [("a.m.", false), ("p.m.", true), ("a.m", false), ("p.m", true), ("am", false), ("pm", true)];
    let begins = |form: &str| text.get(..form.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(form));
    let Some((form, noon)) = FORMS.into_iter().find(|(form, _)| begins(form)) else { return (None, text) };
    let rest = &text[form.len()..];
    if rest.starts_with(|next: char| next.is_alphanumeric()) { (None, text) } else { (Some(noon), rest.trim()) }
}

fn on_half_day(time: Duration, afternoon: Option<bool>) -> Duration {
    let noon = Duration::hours(12);
    match afternoon {
        Some(true) if time < noon => time + noon,
        Some(false) if time >= noon && time < noon * 2 => time - noon,
        _ => time,
    }
}

fn at(date: NaiveDate, time: Duration, offset: i32) -> Option<DateTime<Utc>> {
    let midnight = date.and_time(NaiveTime::MIN).and_utc();
    midnight.checked_add_signed(time)?.checked_sub_signed(Duration::seconds(offset.into()))
}

/// Seconds east of Greenwich. Names are those of RFC 822 and a few that feeds use besides; a lone letter means nothing
/// any more (RFC 2822, section 4.3), but for Z.
fn zone_seconds(zone: &str) -> Option<i32> {
    let zone = zone.trim();
    if let Some(digits) = zone.strip_prefix(['+', '-']) {
        let digits: String = digits.chars().filter(char::is_ascii_digit).collect();
        let (hours, minutes) = match digits.len() {
            1 | 2 => (digits.parse::<i32>().ok()?, 0),
            3 | 4 => digits.parse::<i32>().map(|both| (both / 100, both % 100)).ok()?,
            _ => return None,
        };
        let seconds = hours * 3600 + minutes * 60;
        let sane = hours <= 14 && minutes < 60;
        return sane.then_some(if zone.starts_with('-') { -seconds } else { seconds });
    }
    let name = zone.to_ascii_uppercase();
    if let Some(rest) = name.strip_prefix("GMT").or_else(|| name.strip_prefix("UTC")) {
        return if rest.is_empty() { Some(0) } else { zone_seconds(rest) };
    }
    let hours = match name.as_str() {
        "Z" | "UT" | "WET" | "A" | "M" | "N" | "Y" => 0,
        "BST" | "CET" | "MEZ" | "WEST" => 1,
        "CEST" | "MESZ" | "EET" | "SAST" => 2,
        "EEST" | "MSK" => 3,
        "SGT" | "HKT" | "AWST" => 8,
        "JST" | "KST" => 9,
        "AEST" => 10,
        "AEDT" => 11,
        "NZST" => 12,
        "NZDT" => 13,
        "BRT" | "ART" | "ADT" => -3,
        "AST" | "EDT" | "ET" => {
            if name == "ET" {
                -5
            } else {
                -4
            }
        }
        "EST" | "CDT" => -5,
        "CST" | "MDT" | "CT" => -6,
        "MST" | "PDT" | "MT" => -7,
        "PST" | "AKDT" | "PT" => -8,
        "AKST" => -9,
        "HST" => -10,
        "IST" => return Some(19_800),
        _ => return None,
    };
    Some(hours * 3600)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Option<String> {
        parse(text, Order::MonthFirst).map(|at| at.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
    }

    #[test]
    fn every_form_of_one_minute_is_read_as_that_minute() {
        let forms = [
            "2021-09-06T00:01:00Z",
            "2021-09-06T00:01:00+00:00",
            "2021-09-06T02:01:00+0200",
            "2021-09-06T02:01:00 +02:00",
            "2021-09-05T19:01:00-05",
            "2021-09-06 00:01:00",
            "2021-09-06T00:01:00",
            "2021-09-06 00:01:00 UTC",
            "2021-09-06T00:01Z",
            "2021-09-06 12:01:00 AM",
            "20210906T000100Z",
            "Mon, 06 Sep 2021 00:01:00 GMT",
            "Mon, 06 Sep 2021 00:01:00 +0000",
            "Mon, 6 Sep 21 00:01 UT",
            "Mon, 06 Sep 2021 00:01:00",
            "Wed, 06 Sep 2021 00:01:00 GMT",
            "Sun, 05 Sep 2021 20:01:00 EDT",
            "Mon, 06 Sept 2021 02:01:00 GMT+2",
            "Monday, September 6th, 2021 12:01 AM",
            "Sep 6, 2021 12:01am",
            "Mon Sep  6 00:01:00 2021",
            "Mon Sep  6 00:01:00 UTC 2021",
            "6-Sep-2021 00:01:00",
            "06-Sep-21 00:01:00 +0000",
            "9/6/2021 12:01:00 AM",
            "6.9.2021 00:01",
            "2021/09/06 00:01:00",
            "lun., 06 sept. 2021 00:01:00 +0000",
            "Пн, 06 сен 2021 00:01:00 +0000",
            "Mo, 06 September 2021 02:01:00 +0200",
            "mar, 06 sep 2021 00:01:00 +0000",
            "mar. 6 septembre 2021 00:01",
            "maandag 6 september 2021 00:01",
            "sze, 06 szept. 2021 00:01:00 GMT",
            "2021年9月6日 00:01",
            "2021年09月06日 上午 12:01:00",
            "2021년 9월 6일 오전 12:01",
            "6 de setembro de 2021 00:01",
            "6. září 2021 00:01",
            "  Mon,06 Sep 2021 00:01:00 GMT ",
            "1630886460",
            "1630886460000",
            "06-09-2021 00:01:00",
            "2021-09-06T00:01:00.000Z[UTC]",
            "2021-09-06T02:01:00+02:00[Europe/Berlin]",
            "09/06/2021 12:01:00 a. m.",
            "202109060001",
            "20210906000100",
            "2021-09-06 02:01:00 +0200 CEST m=+0.000012",
            "ma, 06 syyskuu 2021 00:01:00",
        ];
        for form in forms {
            assert_eq!(read(form).as_deref(), Some("2021-09-06T00:01:00.000Z"), "{form}");
        }
    }

    #[test]
    fn a_date_alone_is_its_midnight() {
        for form in ["2021-09-06", "06 Sep 2021", "Mon, 6 September 2021", "20210906", "9/6/2021", "6 septembre 2021"] {
            assert_eq!(read(form).as_deref(), Some("2021-09-06T00:00:00.000Z"), "{form}");
        }
        assert_eq!(read("2021-09").as_deref(), Some("2021-09-01T00:00:00.000Z"));
        assert_eq!(read("2021").as_deref(), Some("2021-01-01T00:00:00.000Z"));
        for (form, day) in [
            ("13-09-2021", "2021-09-13"),
            ("09-13-2021", "2021-09-13"),
            ("20-07-2021 00:00", "2021-07-20"),
            ("ma, 04 mrt 2024", "2024-03-04"),
            ("man, 04 des 2023", "2023-12-04"),
            ("ma, 06 marraskuu 2023", "2023-11-06"),
            ("mar, 06 mars 2024", "2024-03-06"),
            ("06/09/2021 12:00:00 a.\u{a0}m.", "2021-06-09"),
            ("July 28th, 2023", "2023-07-28"),
            ("28th July 2023", "2023-07-28"),
            ("September 3rd, 2021", "2021-09-03"),
            ("15º de setembro de 2021", "2021-09-15"),
        ] {
            assert_eq!(read(form).as_deref(), Some(&*format!("{day}T00:00:00.000Z")), "{form}");
        }
        assert_eq!(read("31/12/2021").as_deref(), Some("2021-12-31T00:00:00.000Z"));
    }

    #[test]
    fn where_a_document_has_the_day_first_all_its_dates_have() {
        let day_first = |text: &str| parse(text, Order::DayFirst).map(|at| at.format("%F").to_string());
        assert_eq!(day_first("05/06/2021 14:30").as_deref(), Some("2021-06-05"));
        assert_eq!(day_first("05/13/2021").as_deref(), Some("2021-05-13"), "it cannot be");
        assert_eq!(day_first("2021/05/06").as_deref(), Some("2021-05-06"));
        for (text, expected) in [
            ("13/05/2021 14:30", true),
            ("sam., 13/05/2021 - 14:30", true),
            ("05/13/2021", false),
            ("05/06/2021", false),
            ("2021/05/13", false),
            ("https://a.example/13/05/2021", false),
        ] {
            assert_eq!(has_day_first(text), expected, "{text}");
        }
    }

    #[test]
    fn zones_west_of_greenwich_and_halves_of_days_are_read_in_their_usual_forms() {
        let cases = [
            ("Mon Sep 06 2021 00:01:00 GMT-0500 (Central Daylight Time)", "2021-09-06T05:01:00.000Z"),
            ("Mon Sep 06 2021 00:01:00 GMT+0200 (Central European Summer Time)", "2021-09-05T22:01:00.000Z"),
            ("Sep 06 2021 00:01 UTC-5", "2021-09-06T05:01:00.000Z"),
            ("06 Sep 2021 00:01 GMT-0330", "2021-09-06T03:31:00.000Z"),
            ("September 6, 2021 - 4:30 p.m.", "2021-09-06T16:30:00.000Z"),
            ("6 Sep 2021 04:30 P.M. EST", "2021-09-06T21:30:00.000Z"),
            ("6 Sep 2021 12:01 a.m.", "2021-09-06T00:01:00.000Z"),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_around_a_date_does_not_hide_it() {
        assert_eq!(read("[Update] Mon, 06 Sep 2021 00:01:00 GMT").as_deref(), Some("2021-09-06T00:01:00.000Z"));
        assert_eq!(read("946684800000").as_deref(), Some("2000-01-01T00:00:00.000Z"));
    }

    #[test]
    fn odd_clocks_are_read_and_fractions_kept() {
        assert_eq!(read("2021-09-06T12:30:15.123456Z").as_deref(), Some("2021-09-06T12:30:15.123Z"));
        assert_eq!(read("2021-09-06T24:00:00Z").as_deref(), Some("2021-09-07T00:00:00.000Z"));
        assert_eq!(read("2016-12-31T23:59:60Z").as_deref(), Some("2016-12-31T23:59:59.000Z"));
        assert_eq!(read("06 Sep 2021 12:00 PM").as_deref(), Some("2021-09-06T12:00:00.000Z"));
    }

    #[test]
    fn what_is_no_date_is_none() {
        let long = "1".repeat(MAX_BYTES + 1);
        for text in [
            "",
            "yesterday",
            "2021-13-01",
            "2021-02-30",
            "32 Sep 2021",
            "0001-01-01T00:00:00Z",
            "0999-12-31",
            "25:00",
            &long,
            "é:é",
            "99999999999999999999",
            "-",
            "+:",
            "2021-09-06T99:99:99Z",
            "1 Aug 0021 00:00:00 GMT",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn years_with_leading_zeros_are_those_of_this_century() {
        for (year, full) in [("000", "2000"), ("049", "2049"), ("00", "2000")] {
            let date = |year: &str| read(&format!("1 Aug {year} 00:00:00 GMT"));
            assert_eq!(date(year), read(&format!("1 Aug {full} 00:00:00 GMT")), "{year}");
            assert!(date(year).is_some());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn the_reader_of_the_usual_form_agrees_with_that_of_all_forms(
            weekday in "((Mon|tue|Wed|Thu|Fri|Sat|Sun|Monday), ?)?",
            day in "[0-3]?[0-9]",
            month in "(Jan|Feb|mar|Apr|MAY|Jun|July|Aug|Sep|Oct|Nov|Dec)",
            year in "([0-9]{2,4}|20[0-9]{2})",
            clock in "([012]?[0-9]:[0-5][0-9](:[0-6][0-9])?|24:00:00)",
            zone in "(GMT|UT|EST|BST|CET|A|Z|[+-][0-2][0-9][0-6][0-9]|[+-][0-9]:[0-9]{2})",
        ) {
            let text = format!("{weekday}{day} {month} {year} {clock} {zone}");
            if let Some(at) = rfc_2822(&text) {
                prop_assert_eq!(Some(at), words(&text, Order::MonthFirst), "{}", text);
            }
            let usual = format!("01 {month} 2021 00:01:00 GMT");
            prop_assert!(month == "July" || rfc_2822(&usual).is_some(), "{}", usual);
        }
    }
}
