//! What a document says about when to poll it, which hub pushes it, and where it continues.
//!
//! Deliberately not here: what to make of the hints (`common::policy`) and the hints of HTTP headers.

use std::time::Duration;

use common::document::FeedHints;

use super::link::Link;
use super::vocabulary::Hint;

/// The hints and links of one document.
#[derive(Debug, Default)]
pub(super) struct Announced<'a> {
    /// `ttl`, `skipHours`, `skipDays`.
    pub(super) hints: FeedHints,
    pub(super) period: Option<Duration>,
    pub(super) frequency: Option<u32>,
    /// The first link of each relation.
    pub(super) hub: Option<Link<'a>>,
    pub(super) self_link: Option<Link<'a>>,
    pub(super) next: Option<Link<'a>>,
    pub(super) prev_archive: Option<Link<'a>>,
    /// `itunes:new-feed-url`
    pub(super) new_feed_url: Option<Link<'a>>,
    /// The `cloud` element as `domain:port/path protocol`, with the procedure behind it for XML-RPC.
    pub(super) cloud: Option<String>,
    /// JSON Feed's `expired`, `itunes:complete`: nothing will follow.
    pub(super) expired: bool,
}

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// A longer `ttl` or period says nothing that this one does not.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

impl<'a> Announced<'a> {
    /// A hint's text.
    pub(super) fn hint(&mut self, hint: Hint, text: &str) {
        let text = text.trim();
        let hints = &mut self.hints;
        match hint {
            Hint::Ttl => hints.ttl = hints.ttl.or_else(|| minutes(text)),
            Hint::Hour => hints.skip_hours |= hour(text).map_or(0, |hour| 1 << hour),
            Hint::Day => hints.skip_days |= day(text).map_or(0, |day| 1 << day),
            Hint::UpdatePeriod => self.period = self.period.or_else(|| period(text)),
            Hint::UpdateFrequency => self.frequency = text.parse().ok().filter(|times| *times > 0).or(self.frequency),
            Hint::Complete => self.expired |= text.eq_ignore_ascii_case("yes"),
            Hint::NewFeedUrl | Hint::SkipHours | Hint::SkipDays | Hint::Cloud => {}
        }
    }

    /// A link of the feed itself.
    pub(super) fn link(&mut self, relation: &str, link: &Link<'a>) {
        let place = match relation.to_ascii_lowercase().as_str() {
            "hub" => &mut self.hub,
            "self" => &mut self.self_link,
            "next" => &mut self.next,
            "prev-archive" => &mut self.prev_archive,
            _ => return,
        };
        if !link.href.trim().is_empty() {
            place.get_or_insert_with(|| link.clone());
        }
    }

    /// A `cloud` element, by its attributes.
    pub(super) fn cloud(&mut self, attribute: impl Fn(&str) -> Option<String>) {
        self.cloud = self.cloud.take().or_else(|| cloud(attribute));
    }

    /// What concerns the time of the next poll. The defaults of the syndication module are a day, and once.
    pub(super) fn hints(&self) -> FeedHints {
        let said = self.period.is_some() || self.frequency.is_some();
        let update_period = said.then(|| self.period.unwrap_or(DAY) / self.frequency.unwrap_or(1));
        FeedHints { update_period, ..self.hints }
    }
}

fn cloud(attribute: impl Fn(&str) -> Option<String>) -> Option<String> {
    let part = |name: &str| attribute(name).map(|value| value.trim().to_owned()).unwrap_or_default();
    let (domain, port, path, protocol) = (part("domain"), part("port"), part("path"), part("protocol"));
    let port: u16 = if port.is_empty() { 80 } else { port.parse().ok()? };
    let slash = if path.starts_with('/') { "" } else { "/" };
    let known = !domain.is_empty() && !protocol.is_empty();
    let protocol = protocol.to_ascii_lowercase();
    let procedure = part("registerProcedure");
    let procedure =
        if protocol == "xml-rpc" && !procedure.is_empty() { format!(" {procedure}") } else { String::new() };
    known.then(|| format!("{domain}:{port}{slash}{path} {protocol}{procedure}"))
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
