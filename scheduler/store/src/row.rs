//! A feed's row as both databases hold it.
//!
//! What a person or a query looks for has a separate column; what only the program reads is packed: the policy's memory
//! as JSON, so that a new field needs no migration, everything that is long as bytes.

use std::borrow::Cow;
use std::time::Duration;

use common::calm::calm_subscribers;
use common::document::{Onward, Validators};
use common::entry::Entry;
use common::feed::Feed;
use common::host::HostKey;
use common::known::KnownEntries;
use common::policy::{Audience, Category, PollState, Rhythm, Signing, Status};
use common::push::{FeedPush, PushKind, PushState};
use common::secrets::Sealed;
use common::time::Timestamp;
use common::url::{FeedId, Version};
use sqlx_macros::FromRow;

use super::columns::{
    Advice, Details, StoredDetour, corrupt, count, read_archive, read_calm, read_category, read_error, read_hash,
    read_marks, read_onward, read_state, read_status, read_terms, read_url,
};
use super::quota::Budget;
use super::{EntryFeed, JobRow, OldSeal, Placement, StoreError, StoredEntry};

/// The columns of a [`FeedRow`].
macro_rules! feed_columns {
    () => {
        "id, url, sealed, host, added, status, category, subscribers, active_subscribers, sla, important, interval_ms, audience_at, calm, private, \
         labels, external_id, version, next_due, wake_at, hold_until, etag, last_modified, validators_url, content_hash, title, entries, moved_from, \
         onward, merged_into, state, rhythm, terms, quota, last_error, also_announced, archive"
    };
}
pub(crate) use feed_columns;

/// A feed's push subscription as one text, for a [`FeedRow`].
macro_rules! push_column {
    () => {
        "(SELECT p.kind || ' ' || p.state || ' ' || coalesce(p.lease_until, -1) || ' ' || p.announced || ' ' || p.missed || ' ' || \
         p.deliveries || ' ' || coalesce(p.heard_at, -1) || ' ' || coalesce(p.light_at, -1) || ' ' || p.topic || ' ' || p.hub \
         FROM push_subscriptions AS p WHERE p.feed_id = feeds.id AND p.state <> 'unsubscribing') AS push"
    };
}
pub(crate) use push_column;

/// Everything about a feed but its history and its known entries.
#[derive(Debug, FromRow)]
pub(crate) struct FeedRow {
    id: i64,
    url: String,
    sealed: Option<Vec<u8>>,
    host: String,
    added: i64,
    status: String,
    category: String,
    subscribers: i64,
    active_subscribers: i64,
    sla: bool,
    important: bool,
    interval_ms: Option<i64>,
    audience_at: i64,
    calm: Option<String>,
    private: bool,
    labels: Option<String>,
    external_id: Option<String>,
    version: i64,
    next_due: Option<i64>,
    wake_at: Option<i64>,
    hold_until: Option<i64>,
    etag: Option<String>,
    last_modified: Option<String>,
    validators_url: Option<String>,
    content_hash: Option<Vec<u8>>,
    title: Option<String>,
    entries: i64,
    quota: Option<String>,
    moved_from: Option<String>,
    onward: Option<String>,
    merged_into: Option<i64>,
    state: String,
    rhythm: Vec<u8>,
    terms: Vec<u8>,
    last_error: Option<String>,
    also_announced: Option<String>,
    archive: Option<String>,
    /// See [`push_column`]; lists do not read it.
    #[sqlx(default)]
    push: Option<String>,
}

/// What a job is built from.
#[derive(Debug, FromRow)]
pub(crate) struct JobColumns {
    id: i64,
    version: i64,
    url: String,
    sealed: Option<Vec<u8>>,
    category: String,
    next_due: i64,
    wake_at: Option<i64>,
    etag: Option<String>,
    last_modified: Option<String>,
    validators_url: Option<String>,
    content_hash: Option<Vec<u8>>,
    known: Vec<u8>,
    /// Only where it has something about HEAD or deltas.
    state: Option<String>,
    subscribers: i64,
    calm: Option<String>,
    detour: Option<String>,
    by_hand: bool,
    archive: Option<String>,
    epochs: i64,
}

/// A feed whose credentials are sealed with another key.
#[derive(Debug, FromRow)]
pub(crate) struct SealColumns {
    id: i64,
    url: String,
    sealed: Vec<u8>,
}

/// An entry in its newest form.
#[derive(Debug, FromRow)]
pub(crate) struct EntryRow {
    seq: i64,
    feed_id: i64,
    seen: i64,
    stored: i64,
    published: Option<i64>,
    updated: Option<i64>,
    cut: bool,
    id: String,
    url: Option<String>,
    title: Option<String>,
    author: Option<String>,
    enclosures: Option<String>,
    summary: Option<String>,
    content: Option<String>,
    details: Option<String>,
    feed_url: Option<String>,
    feed_title: Option<String>,
    labels: Option<String>,
    external_id: Option<String>,
}

/// A live feed's place.
#[derive(Debug, FromRow)]
pub(crate) struct PlaceColumns {
    id: i64,
    host: String,
    category: String,
    next_due: i64,
    wake_at: Option<i64>,
}

impl FeedRow {
    pub(crate) fn id(&self) -> i64 {
        self.id
    }

    pub(crate) fn subscribers(&self) -> i64 {
        self.subscribers
    }

    /// Its place among feeds by due time: when it is due, or behind all that are.
    pub(crate) fn due_order(&self) -> i64 {
        match (self.status.parse().unwrap_or_default(), self.next_due) {
            (Status::Active, Some(due)) => self.wake_at.map_or(due, |wake| wake.min(due)),
            (status, _) => never(status),
        }
    }

    /// Its place among feeds by category.
    pub(crate) fn category_order(&self) -> i64 {
        Category::from_name(&self.category).map_or(0, category_order)
    }

    /// Its place among feeds by their last poll: that time, or zero before the first one.
    pub(crate) fn polled_order(&self) -> i64 {
        read_state(FeedId(self.id), &self.state, None).last_polled.map_or(0, Timestamp::millis)
    }
}

/// Returns the place of a category among all, in the order of their letters.
pub(crate) fn category_order(category: Category) -> i64 {
    category as i64
}

/// Returns the value by due time of feeds with this status, which are never due: they come after all others.
pub fn never(status: Status) -> i64 {
    i64::MAX - 100 + status as i64
}

impl TryFrom<FeedRow> for Feed {
    type Error = StoreError;

    fn try_from(row: FeedRow) -> Result<Feed, StoreError> {
        let id = FeedId(row.id);
        let status = read_status(id, &row.status)?;
        Ok(Feed {
            id,
            url: read_url(id, row.url)?,
            credentials: row.sealed.map(Sealed::from_bytes),
            host: HostKey::new(&row.host),
            title: row.title,
            status,
            category: read_category(id, &row.category)?,
            audience: Audience {
                subscribers: count(row.subscribers),
                active_subscribers: count(row.active_subscribers),
                sla: row.sla,
                important: row.important,
                interval: row.interval_ms.map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or(0))),
            },
            audience_at: Timestamp::from_millis(row.audience_at),
            calm: row.calm.as_deref().map_or_else(Vec::new, |calm| read_calm(id, calm)),
            private: row.private,
            marks: read_marks(row.labels.as_deref(), row.external_id),
            version: Version(row.version),
            validators: Validators { etag: row.etag, last_modified: row.last_modified, for_url: row.validators_url },
            content_hash: read_hash(row.content_hash),
            state: PollState { rhythm: Rhythm::from_bytes(&row.rhythm), ..read_state(id, &row.state, row.hold_until) },
            last_error: read_error(row.last_error.as_deref()),
            also_announced: row.also_announced.and_then(|list| serde_json::from_str(&list).ok()).unwrap_or_default(),
            next_due: row.next_due.filter(|_| status == Status::Active).map(Timestamp::from_millis),
            wake_at: row.wake_at.map(Timestamp::from_millis),
            terms: read_terms(&row.terms),
            moved_from: row.moved_from,
            onward: row.onward.as_deref().map_or_else(Onward::default, |onward| read_onward(id, onward)),
            merged_into: row.merged_into.map(FeedId),
            entries: u64::try_from(row.entries).unwrap_or(0),
            over_quota: Budget::read(row.quota.as_deref()).over,
            push: row.push.as_deref().and_then(read_push),
            archive: row.archive.as_deref().and_then(|archive| read_archive(id, archive)),
            added: Timestamp::from_millis(row.added),
        })
    }
}

/// Reads a [`push_column`].
fn read_push(text: &str) -> Option<FeedPush> {
    let mut words = text.splitn(10, ' ');
    let mut word = || words.next();
    let (kind, state) = (PushKind::from_name(word()?)?, PushState::from_name(word()?)?);
    let time = |word: &str| word.parse().ok().filter(|millis| *millis >= 0).map(Timestamp::from_millis);
    let lease_until = time(word()?);
    let announced = word()?.parse().ok()?;
    let (missed, deliveries) = (word()?.parse().ok()?, word()?.parse().ok()?);
    let (heard_at, light_at) = (time(word()?), time(word()?));
    // A topic is a URL and holds no space; a cloud is written with one.
    let (topic, hub) = (word()?.to_owned(), word()?.to_owned());
    Some(FeedPush { kind, hub, topic, state, lease_until, announced, missed, deliveries, heard_at, light_at })
}

impl TryFrom<JobColumns> for JobRow {
    type Error = StoreError;

    fn try_from(row: JobColumns) -> Result<JobRow, StoreError> {
        let (id, version) = (FeedId(row.id), Version(row.version));
        let calm = row.calm.as_deref().map_or_else(Vec::new, |calm| read_calm(id, calm));
        let advice = row.state.map_or_else(Advice::default, |state| Advice::read(&state));
        Ok(JobRow {
            id,
            version,
            url: read_url(id, row.url)?,
            credentials: row.sealed.map(Sealed::from_bytes),
            category: read_category(id, &row.category)?,
            next_due: Timestamp::from_millis(row.next_due),
            wake_at: row.wake_at.map(Timestamp::from_millis),
            validators: Validators { etag: row.etag, last_modified: row.last_modified, for_url: row.validators_url },
            content_hash: read_hash(row.content_hash),
            known: KnownEntries::from_bytes(&row.known),
            head_first: advice.head_first.advice(),
            no_delta_until: advice.no_delta_until,
            epochs: count(row.epochs),
            signed: advice.signing == Signing::Wanted,
            detour: row.detour.and_then(|detour| StoredDetour::read(&detour, version)),
            by_hand: row.by_hand,
            archive: row.archive.as_deref().and_then(|archive| read_archive(id, archive)),
            page: false,
            subscribers: count(row.subscribers).saturating_add(calm_subscribers(&calm)),
        })
    }
}

impl TryFrom<SealColumns> for OldSeal {
    type Error = StoreError;

    fn try_from(row: SealColumns) -> Result<OldSeal, StoreError> {
        let id = FeedId(row.id);
        Ok(OldSeal { id, url: read_url(id, row.url)?, sealed: Sealed::from_bytes(row.sealed) })
    }
}

impl TryFrom<PlaceColumns> for Placement {
    type Error = StoreError;

    fn try_from(row: PlaceColumns) -> Result<Placement, StoreError> {
        let id = FeedId(row.id);
        let due = row.wake_at.map_or(row.next_due, |wake| wake.min(row.next_due));
        Ok(Placement {
            id,
            host: HostKey::new(&row.host),
            category: read_category(id, &row.category)?,
            due: Timestamp::from_millis(due),
            wake: row.wake_at.is_some(),
        })
    }
}

impl TryFrom<EntryRow> for StoredEntry {
    type Error = StoreError;

    fn try_from(row: EntryRow) -> Result<StoredEntry, StoreError> {
        let feed_id = FeedId(row.feed_id);
        let enclosures = row.enclosures.as_deref().map_or(Ok(Vec::new()), serde_json::from_str);
        let details = row.details.as_deref().map_or(Ok(Details::default()), serde_json::from_str);
        let details = details.map_err(|error| corrupt(feed_id, "details")(error.to_string()))?;
        Ok(StoredEntry {
            seq: row.seq,
            feed_id,
            seen: Timestamp::from_millis(row.seen),
            stored: Timestamp::from_millis(row.stored),
            feed: EntryFeed {
                feed_url: row.feed_url,
                feed_title: row.feed_title,
                marks: read_marks(row.labels.as_deref(), row.external_id),
            },
            entry: Entry {
                id: row.id,
                url: row.url,
                title: row.title,
                published: row.published.map(Timestamp::from_millis),
                updated: row.updated.map(Timestamp::from_millis),
                author: row.author,
                summary: row.summary,
                content: row.content,
                enclosures: enclosures.map_err(|error| corrupt(feed_id, "enclosures")(error.to_string()))?,
                categories: details.categories.into_owned(),
                language: details.language.map(Cow::into_owned),
                links: details.links.into_owned(),
                first_words: details.first_words.map(Cow::into_owned),
                cut: row.cut,
                details: details.more.map(|more| Box::new(more.into_owned())),
            },
        })
    }
}

/// Reads the rows of a batch. One that cannot be read is left out and logged: it must not stop all others for ever.
pub(crate) fn readable<Row, T: TryFrom<Row, Error = StoreError>>(rows: Vec<Row>) -> Vec<T> {
    let mut read = Vec::with_capacity(rows.len());
    for row in rows {
        match T::try_from(row) {
            Ok(item) => read.push(item),
            Err(error) => tracing::error!(%error, "a feed is left out"),
        }
    }
    read
}
