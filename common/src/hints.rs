//! What publishers say about a feed inside of it: when to poll it, and where it goes on.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a publisher says in the feed itself about when to poll. Absent fields were not said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FeedHints {
    /// RSS `ttl`, JSON has seconds.
    #[serde(with = "crate::duration::optional_seconds", skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Duration>,
    /// `sy:updatePeriod` divided by `sy:updateFrequency`.
    #[serde(with = "crate::duration::optional_seconds", skip_serializing_if = "Option::is_none")]
    pub update_period: Option<Duration>,
    /// `skipHours`: bit h is set when hour h (GMT) is skipped.
    pub skip_hours: u32,
    /// `skipDays`: bit d is set when day d (Monday = 0, GMT) is skipped.
    pub skip_days: u8,
}

impl FeedHints {
    /// Did it say nothing?
    pub fn is_empty(&self) -> bool {
        *self == FeedHints::default()
    }
}

/// What a feed says about its further documents and its end. It is shown; no decision about polling rests on it, because
/// nobody has to be what he says: a feed moves by permanent redirects and ends by 410.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Onward {
    /// The page after this one: `rel=next` (RFC 5005), JSON Feed's `next_url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The archive before this document: `rel=prev-archive` (RFC 5005).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prev_archive: Option<String>,
    /// Where its publisher wants it to be read from now on: `itunes:new-feed-url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_feed_url: Option<String>,
    /// Nothing will follow: JSON Feed's `expired`, `itunes:complete`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub expired: bool,
}

impl Onward {
    /// Did it say nothing?
    pub fn is_empty(&self) -> bool {
        *self == Onward::default()
    }
}
