//! What a document says about itself that the engine's model has no place for: when to poll it, and who pushes it.
//!
//! Fed by the guard's pass over the document, so that hints cost no pass of their own. Elements are known by their local
//! name: publishers bind these prefixes to every address they can think of. Deliberately not here: what to make of the
//! hints (`common::policy`) and the hints of HTTP headers.

use std::time::Duration;

use common::feed::FeedHints;
use quick_xml::events::{BytesEnd, BytesStart};

/// The hints and links of one document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Announced {
    /// `ttl`, `sy:*`, `skipHours`, `skipDays`.
    pub(super) hints: FeedHints,
    /// The first link with `rel=hub`, as written.
    pub(super) hub: Option<String>,
    /// The first link with `rel=self`, as written.
    pub(super) self_link: Option<String>,
    /// The `cloud` element as `domain:port/path protocol`.
    pub(super) cloud: Option<String>,
}

/// Longest text of a hint that is looked at, in bytes.
const MAX_HINT_BYTES: usize = 64;
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// A longer `ttl` or period says nothing that this one does not.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Collects [`Announced`] from the events of a document. The caller leaves out what lies inside of entries.
#[derive(Debug, Default)]
pub(super) struct HintScanner {
    announced: Announced,
    period: Option<Duration>,
    frequency: Option<u32>,
    open: Option<Field>,
    /// Inside of `skipHours` or `skipDays`, whose members have names that others use as well.
    skipping: bool,
    text: String,
}

#[derive(Clone, Copy, Debug)]
enum Field {
    Ttl,
    Hour,
    Day,
    UpdatePeriod,
    UpdateFrequency,
}

impl HintScanner {
    /// An element begins.
    pub(super) fn start(&mut self, element: &BytesStart<'_>) {
        self.text.clear();
        self.open = match element.local_name().as_ref() {
            "ttl" => Some(Field::Ttl),
            "skipHours" | "skipDays" => {
                self.skipping = true;
                None
            }
            "hour" if self.skipping => Some(Field::Hour),
            "day" if self.skipping => Some(Field::Day),
            "updatePeriod" => Some(Field::UpdatePeriod),
            "updateFrequency" => Some(Field::UpdateFrequency),
            "cloud" => {
                self.announced.cloud = self.announced.cloud.take().or_else(|| cloud(element));
                None
            }
            "link" => {
                self.link(element);
                None
            }
            _ => None,
        };
    }

    /// Text of the element that began last.
    pub(super) fn text(&mut self, text: &str) {
        if self.open.is_some() && self.text.len() + text.len() <= MAX_HINT_BYTES {
            self.text.push_str(text);
        }
    }

    /// An element ends.
    pub(super) fn end(&mut self, element: &BytesEnd<'_>) {
        if matches!(element.local_name().as_ref(), "skipHours" | "skipDays") {
            self.skipping = false;
        }
        let Some(field) = self.open.take() else { return };
        let text = self.text.trim();
        let hints = &mut self.announced.hints;
        match field {
            Field::Ttl => hints.ttl = hints.ttl.or_else(|| minutes(text)),
            Field::Hour => hints.skip_hours |= hour(text).map_or(0, |hour| 1 << hour),
            Field::Day => hints.skip_days |= day(text).map_or(0, |day| 1 << day),
            Field::UpdatePeriod => self.period = self.period.or_else(|| period(text)),
            Field::UpdateFrequency => self.frequency = text.parse().ok().filter(|times| *times > 0).or(self.frequency),
        }
    }

    /// The document has ended. The defaults of the syndication module are a day, and once.
    pub(super) fn finish(mut self) -> Announced {
        if self.period.is_some() || self.frequency.is_some() {
            self.announced.hints.update_period = Some(self.period.unwrap_or(DAY) / self.frequency.unwrap_or(1));
        }
        self.announced
    }

    fn link(&mut self, element: &BytesStart<'_>) {
        let Some(rel) = attribute(element, "rel") else { return };
        for relation in rel.split_ascii_whitespace() {
            let place = if relation.eq_ignore_ascii_case("hub") {
                &mut self.announced.hub
            } else if relation.eq_ignore_ascii_case("self") {
                &mut self.announced.self_link
            } else {
                continue;
            };
            if place.is_none() {
                *place = attribute(element, "href").filter(|href| !href.trim().is_empty());
            }
        }
    }
}

/// An attribute's value with its references resolved; as written where they cannot be.
pub(super) fn attribute(element: &BytesStart<'_>, name: &str) -> Option<String> {
    let found = element.attributes().with_checks(false).flatten().find(|attribute| attribute.key.as_ref() == name)?;
    let value = quick_xml::escape::unescape(&found.value).map(std::borrow::Cow::into_owned);
    Some(value.unwrap_or_else(|_| found.value.into_owned()))
}

fn cloud(element: &BytesStart<'_>) -> Option<String> {
    let part = |name: &str| attribute(element, name).map(|value| value.trim().to_owned()).unwrap_or_default();
    let (domain, port, path, protocol) = (part("domain"), part("port"), part("path"), part("protocol"));
    let port: u16 = if port.is_empty() { 80 } else { port.parse().ok()? };
    let slash = if path.starts_with('/') { "" } else { "/" };
    let known = !domain.is_empty() && !protocol.is_empty();
    known.then(|| format!("{domain}:{port}{slash}{path} {}", protocol.to_ascii_lowercase()))
}

fn minutes(text: &str) -> Option<Duration> {
    let whole = text.split(['.', ',']).next()?;
    let minutes = whole.parse::<u64>().ok().filter(|minutes| *minutes > 0)?;
    Some(Duration::from_secs(minutes.saturating_mul(60)).min(LONGEST))
}

/// 0 to 23; the first form of the element counted from 1 to 24.
fn hour(text: &str) -> Option<u32> {
    text.parse::<u32>().ok().filter(|hour| *hour <= 24).map(|hour| hour % 24)
}

fn day(text: &str) -> Option<u32> {
    const DAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    let day = DAYS.iter().position(|day| day.eq_ignore_ascii_case(text))?;
    u32::try_from(day).ok()
}

fn period(text: &str) -> Option<Duration> {
    let periods = [("hourly", HOUR), ("daily", DAY), ("weekly", DAY * 7), ("monthly", DAY * 30), ("yearly", DAY * 365)];
    periods.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, period)| period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_days_and_minutes_outside_of_their_range_are_no_hints() {
        assert_eq!(["0", "23", "24", "25", "-1", "noon"].map(hour), [Some(0), Some(23), Some(0), None, None, None]);
        assert_eq!(["Monday", "SUNDAY", "Sun", ""].map(day), [Some(0), Some(6), None, None]);
        assert_eq!(minutes("60"), Some(HOUR));
        assert_eq!(minutes("1.5"), Some(Duration::from_secs(60)));
        assert_eq!(minutes("18446744073709551615"), Some(LONGEST));
        assert_eq!(["0", "-5", "soon", "", "1e9"].map(minutes), [None; 5]);
    }
}
