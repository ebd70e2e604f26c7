//! A feed's appearance and behaviour: format, pace, validators, conditional requests. Values only; the `items` module
//! holds the items of a path.

use std::sync::Arc;
use std::time::Duration;

use common::time::Timestamp;
use serde::Serialize;

/// One published item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Item {
    /// Stable id: RSS `guid`, Atom and JSON Feed `id`.
    pub id: String,
    /// Title, plain text.
    pub title: String,
    /// Absolute link.
    pub link: String,
    /// When it was published; whole seconds, as feeds write dates.
    pub published: Timestamp,
}

/// The document's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// RSS 2.0, `application/rss+xml`.
    Rss,
    /// Atom 1.0, `application/atom+xml`.
    Atom,
    /// JSON Feed 1.1, `application/feed+json`.
    Json,
}

/// When items appear automatically, as offsets from the origin's start.
#[derive(Clone, Debug)]
pub enum Pace {
    /// Never: only through [`Origin::publish`](crate::Origin::publish).
    Manual,
    /// One item per period.
    Every(Duration),
    /// A Poisson process with this mean interval; the same seed produces the same times.
    Random {
        /// Mean time between two items.
        mean: Duration,
        /// Determines the times.
        seed: u64,
    },
    /// At these offsets, ascending.
    At(Arc<[Duration]>),
}

/// The feed's `ETag`.
#[derive(Clone, Debug)]
pub enum Tag {
    /// No tag is sent.
    None,
    /// `"..."`, new with each revision.
    Strong,
    /// `W/"..."`, new with each revision.
    Weak,
    /// Exactly these bytes, with `{}` replaced by the revision's number.
    Text(Vec<u8>),
    /// Strong, and each 304 carries a fresh tag, the only valid one from then on.
    FreshOn304,
    /// As in Apache: a compressed response's tag ends in this suffix (`-gzip`) inside its quotes, and only the tag
    /// without the suffix ever matches.
    Suffix(&'static str),
}

/// The feed's `Last-Modified`.
#[derive(Clone, Debug)]
pub enum Stamp {
    /// No date is sent.
    None,
    /// The time of the last change. Advances by at least a second with each revision, into the future if necessary, so
    /// that equal dates mean equal documents.
    Date,
    /// Exactly these bytes, with `{}` replaced by the revision's number; compared byte for byte.
    Text(Vec<u8>),
}

/// How the server evaluates conditional requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conditions {
    /// `If-None-Match` decides if it is sent, else `If-Modified-Since`. Tags must be equal byte for byte (one of a
    /// list), dates must be the same date: a later date does not match.
    Exact,
    /// As in nginx: every condition that was sent must match.
    All,
    /// Never a 304.
    Ignored,
}

/// A path's feed. The items belong to the path: two scripts for one path show the same items.
#[derive(Clone, Debug)]
pub struct Feed {
    pub(super) format: Format,
    pub(super) title: String,
    pub(super) initial: usize,
    pub(super) shown: usize,
    pub(super) pace: Pace,
    pub(super) tag: Tag,
    pub(super) stamp: Stamp,
    pub(super) conditions: Conditions,
    pub(super) extra: String,
    pub(super) padding: usize,
    pub(super) headlines: Arc<[String]>,
    pub(super) deltas: bool,
}

impl Feed {
    /// Creates a feed with 3 initial items, at most 20 shown, published manually, with strong tag and date, that
    /// honours conditional requests.
    pub fn new(format: Format) -> Self {
        Feed {
            format,
            title: "A scripted feed".to_owned(),
            initial: 3,
            shown: 20,
            pace: Pace::Manual,
            tag: Tag::Strong,
            stamp: Stamp::Date,
            conditions: Conditions::Exact,
            extra: String::new(),
            padding: 0,
            headlines: Arc::default(),
            deltas: false,
        }
    }

    /// Creates an RSS 2.0 feed like [`Feed::new`].
    pub fn rss() -> Self {
        Self::new(Format::Rss)
    }

    /// Creates an Atom 1.0 feed like [`Feed::new`].
    pub fn atom() -> Self {
        Self::new(Format::Atom)
    }

    /// Creates a JSON Feed 1.1 feed like [`Feed::new`].
    pub fn json() -> Self {
        Self::new(Format::Json)
    }

    /// Sets the feed's title, plain text without markup characters.
    pub fn title(self, title: impl Into<String>) -> Self {
        Feed { title: title.into(), ..self }
    }

    /// Sets the number of items that exist from the start, an hour apart in the past.
    pub fn initial(self, items: usize) -> Self {
        Feed { initial: items, ..self }
    }

    /// Sets the maximum number of items in the document, newest first.
    pub fn shown(self, items: usize) -> Self {
        Feed { shown: items, ..self }
    }

    /// Sets when items appear automatically.
    pub fn pace(self, pace: Pace) -> Self {
        Feed { pace, ..self }
    }

    /// Sets the `ETag`.
    pub fn tag(self, tag: Tag) -> Self {
        Feed { tag, ..self }
    }

    /// Sets the `Last-Modified`.
    pub fn stamp(self, stamp: Stamp) -> Self {
        Feed { stamp, ..self }
    }

    /// Sets how conditional requests are evaluated.
    pub fn conditions(self, conditions: Conditions) -> Self {
        Feed { conditions, ..self }
    }

    /// Inserts raw elements (`<ttl>60</ttl>`) or JSON members (`"hubs": []`) into the feed, unchanged. The prefixes
    /// `sy`, `atom`, `media` are bound.
    pub fn extra(self, raw: impl Into<String>) -> Self {
        Feed { extra: raw.into(), ..self }
    }

    /// Sets the approximate number of bytes of text in each item.
    pub fn padding(self, bytes: usize) -> Self {
        Feed { padding: bytes, ..self }
    }

    /// Sets the items' titles, used in rotation, inserted unchanged; none: numbered ones.
    pub fn headlines(self, titles: impl IntoIterator<Item = String>) -> Self {
        Feed { headlines: titles.into_iter().collect(), ..self }
    }

    /// Answers `A-IM: feed` with 226 and the items that are newer than the revision whose strong tag was sent (RFC
    /// 3229).
    pub fn deltas(self) -> Self {
        Feed { deltas: true, ..self }
    }

    pub(super) fn content_type(&self) -> &'static str {
        match self.format {
            Format::Rss => "application/rss+xml; charset=utf-8",
            Format::Atom => "application/atom+xml; charset=utf-8",
            Format::Json => "application/feed+json",
        }
    }
}
