//! How a feed looks and behaves: format, pace, validators, answers to conditions. Values only; the items of a path
//! live in the module beside.

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

/// When items appear by themselves, as offsets from the origin's start.
#[derive(Clone, Debug)]
pub enum Pace {
    /// Never: only by [`Origin::publish`](crate::Origin::publish).
    Manual,
    /// One item each time this much has passed.
    Every(Duration),
    /// Like a Poisson process with this mean distance; the same seed gives the same times.
    Random {
        /// Mean distance of two items.
        mean: Duration,
        /// Chooses the times.
        seed: u64,
    },
    /// At these offsets, ascending.
    At(Arc<[Duration]>),
}

/// The feed's `ETag`.
#[derive(Clone, Debug)]
pub enum Tag {
    /// None is sent.
    None,
    /// `"..."`, new with each revision.
    Strong,
    /// `W/"..."`, new with each revision.
    Weak,
    /// These very bytes, `{}` replaced by the revision's number.
    Text(Vec<u8>),
    /// Strong, and each 304 brings a fresh one that alone is good from then on.
    FreshOn304,
    /// As Apache does it: a coded answer's tag ends in this suffix (`-gzip`) inside of its quotes, and only the tag
    /// without the suffix is ever matched.
    Suffix(&'static str),
}

/// The feed's `Last-Modified`.
#[derive(Clone, Debug)]
pub enum Stamp {
    /// None is sent.
    None,
    /// The time of the last change. Moves by at least a second with each revision, into the future if need be, so that
    /// equal dates mean equal documents.
    Date,
    /// These very bytes, `{}` replaced by the revision's number; compared byte for byte.
    Text(Vec<u8>),
}

/// What conditional requests lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conditions {
    /// `If-None-Match` decides where it is sent, else `If-Modified-Since`. Tags must be equal byte for byte (one of a
    /// list), dates must be the same date: "later" is not enough.
    Exact,
    /// As nginx does it: each condition that was sent must match.
    All,
    /// Never a 304.
    Ignored,
}

/// How a path's feed looks. The items belong to the path: two scripts for one path show the same items.
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
    /// A feed with 3 items at the start of at most 20 shown, published by hand, strong tag and date, conditions honoured.
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

    /// [`Feed::new`] as RSS 2.0.
    pub fn rss() -> Self {
        Self::new(Format::Rss)
    }

    /// [`Feed::new`] as Atom 1.0.
    pub fn atom() -> Self {
        Self::new(Format::Atom)
    }

    /// [`Feed::new`] as JSON Feed 1.1.
    pub fn json() -> Self {
        Self::new(Format::Json)
    }

    /// The feed's own title, plain text without markup characters.
    pub fn title(self, title: impl Into<String>) -> Self {
        Feed { title: title.into(), ..self }
    }

    /// Items that exist from the start, an hour apart in the past.
    pub fn initial(self, items: usize) -> Self {
        Feed { initial: items, ..self }
    }

    /// How many of the newest items the document shows.
    pub fn shown(self, items: usize) -> Self {
        Feed { shown: items, ..self }
    }

    /// When items appear by themselves.
    pub fn pace(self, pace: Pace) -> Self {
        Feed { pace, ..self }
    }

    /// The `ETag`.
    pub fn tag(self, tag: Tag) -> Self {
        Feed { tag, ..self }
    }

    /// The `Last-Modified`.
    pub fn stamp(self, stamp: Stamp) -> Self {
        Feed { stamp, ..self }
    }

    /// What conditional requests lead to.
    pub fn conditions(self, conditions: Conditions) -> Self {
        Feed { conditions, ..self }
    }

    /// Raw elements (`<ttl>60</ttl>`) or JSON members (`"hubs": []`) of the feed itself, inserted as they are. The
    /// prefixes `sy`, `atom`, `media` are bound.
    pub fn extra(self, raw: impl Into<String>) -> Self {
        Feed { extra: raw.into(), ..self }
    }

    /// About so many bytes of text in each item.
    pub fn padding(self, bytes: usize) -> Self {
        Feed { padding: bytes, ..self }
    }

    /// The items' titles, in turn and around, inserted as they are; none: numbered ones.
    pub fn headlines(self, titles: impl IntoIterator<Item = String>) -> Self {
        Feed { headlines: titles.into_iter().collect(), ..self }
    }

    /// Answers `A-IM: feed` with 226 and the items that are newer than the revision whose strong tag is sent (RFC 3229).
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
