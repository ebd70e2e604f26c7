//! The codecs of packed columns.

use std::borrow::Cow;

use common::archive::ArchiveRead;
use common::calm::CalmGroup;
use common::document::{ContentHash, Onward};
use common::entry::{Enclosure, Entry, EntryDetails};
use common::feed::Feed;
use common::job::Detour;
use common::labels::Marks;
use common::last_error::LastError;
use common::policy::{Audience, Category, HeadFirst, PollState, Rule, Signing, Status, Term};
use common::report::FetchReport;
use common::time::Timestamp;
use common::url::{FeedId, FeedUrl, Version};
use serde::{Deserialize, Serialize};

use super::StoreError;

/// What only readers of an entry look at: one JSON column, so that a new field needs no migration. An entry that is
/// older than the column has none of it until its text changes.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Details<'a> {
    #[serde(skip_serializing_if = "is_empty")]
    pub(crate) categories: Cow<'a, [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) language: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "is_empty")]
    pub(crate) links: Cow<'a, [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_words: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) more: Option<Cow<'a, EntryDetails>>,
}

fn is_empty(list: &[String]) -> bool {
    list.is_empty()
}

/// What a memory says about how to request the feed. An unreadable one says nothing.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Advice {
    pub(crate) head_first: HeadFirst,
    pub(crate) no_delta_until: Option<Timestamp>,
    pub(crate) signing: Signing,
}

impl Advice {
    /// The names of its fields, which are left out if they say nothing.
    const FIELDS: [&str; 3] = ["\"head_first\"", "\"no_delta_until\"", "\"signing\""];

    /// Most memories say nothing, and are not parsed.
    pub(crate) fn read(state: &str) -> Self {
        match Self::FIELDS.iter().any(|field| state.contains(field)) {
            true => serde_json::from_str(state).unwrap_or_default(),
            false => Advice::default(),
        }
    }
}

/// A detour as it is stored: it ends automatically with the version of its feed.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredDetour {
    version: Version,
    #[serde(flatten)]
    detour: Detour,
}

impl StoredDetour {
    pub(crate) fn read(text: &str, version: Version) -> Option<Detour> {
        let stored: StoredDetour = serde_json::from_str(text).ok()?;
        (stored.version == version).then_some(stored.detour)
    }
}

/// Returns whether a feed has something that most feeds do not have, in a column that not every poll writes.
pub(crate) fn has_rare(feed: &Feed) -> bool {
    let PollState { hold_until, penalty, gap_since, silent_since, last_success, .. } = &feed.state;
    let times = [&feed.wake_at, hold_until, gap_since, silent_since];
    let is_troubled = penalty.is_some() || feed.last_error.is_some() || last_success.is_none();
    is_troubled || feed.archive.is_some() || times.into_iter().any(Option::is_some)
}

/// The unit of `polled_day`, in milliseconds.
pub(crate) const DAY: i64 = 86_400_000;

/// Returns the days since 1970 until the last poll, 0 before the first one.
pub(crate) fn day_of(last_polled: Option<Timestamp>) -> i64 {
    last_polled.map_or(0, |at| at.millis() / DAY)
}

/// A detour's text.
pub(crate) fn pack_detour(version: Version, detour: &Detour) -> String {
    let stored = StoredDetour { version, detour: detour.clone() };
    // a struct of texts and numbers
    serde_json::to_string(&stored).unwrap_or_default()
}

/// Why a poll failed, as it is stored; a good poll is NULL.
pub(crate) fn pack_error(report: &FetchReport) -> Option<String> {
    serde_json::to_string(&LastError::of(report)?).ok()
}

/// An error that cannot be read is not shown.
pub(crate) fn read_error(error: Option<&str>) -> Option<LastError> {
    serde_json::from_str(error?).ok()
}

/// How far an archive was read, as it is stored.
pub(crate) fn pack_archive(archive: &ArchiveRead) -> Option<String> {
    serde_json::to_string(archive).ok()
}

/// What cannot be read is not continued: a person can begin again.
pub(crate) fn read_archive(feed: FeedId, text: &str) -> Option<ArchiveRead> {
    let warn = |error| tracing::error!(%feed, %error, "how far an archive was read cannot be read");
    serde_json::from_str(text).map_err(warn).ok()
}

/// The room for a packed memory, in bytes: that of most feeds takes less.
const PACKED_STATE: usize = 512;

/// Packs the policy's memory for the store, without the rhythm, which is packed in a separate column.
pub(crate) fn pack_state(state: &PollState) -> String {
    let mut packed = Vec::with_capacity(PACKED_STATE);
    let written = serde_json::to_writer(&mut packed, state);
    written.ok().and_then(|()| String::from_utf8(packed).ok()).unwrap_or_else(|| "{}".to_owned())
}

/// Calm groups as they are stored; none are NULL.
pub(crate) fn pack_calm(calm: &[CalmGroup]) -> Option<String> {
    if calm.is_empty() { None } else { serde_json::to_string(calm).ok() }
}

/// Labels as they are stored; none are NULL.
pub(crate) fn pack_labels(labels: &[String]) -> Option<String> {
    if labels.is_empty() { None } else { serde_json::to_string(labels).ok() }
}

/// What a caller notes on a feed; labels that cannot be read are none.
pub(crate) fn read_marks(labels: Option<&str>, external_id: Option<String>) -> Marks {
    let labels = labels.and_then(|labels| serde_json::from_str(labels).ok()).unwrap_or_default();
    Marks { labels, external_id }
}

/// The stored groups `all` without those of `gone`, each once, as they are stored.
pub(crate) fn calm_without(feed: FeedId, all: Option<String>, gone: Option<String>) -> Option<String> {
    let read = |calm: Option<String>| calm.as_deref().map_or_else(Vec::new, |calm| read_calm(feed, calm));
    let mut left = read(all);
    for group in read(gone) {
        if let Some(place) = left.iter().position(|other| *other == group) {
            left.remove(place);
        }
    }
    pack_calm(&left)
}

/// Feeds that one statement adds.
pub(crate) const CHUNK: usize = 1_000;

/// Returns the interval that a person set, in milliseconds.
pub(crate) fn interval_millis(audience: Audience) -> Option<i64> {
    audience.interval.map(|interval| i64::try_from(interval.as_millis()).unwrap_or(i64::MAX))
}

/// Returns why a feed is due at `due`: because a person requested it.
pub(crate) fn added_terms(due: Timestamp) -> Vec<u8> {
    pack_terms(&[Term { rule: Rule::Added, due }])
}

/// The terms of a due time: a byte for the rule and eight for the due time, little-endian, each.
pub(crate) fn pack_terms(terms: &[Term]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(terms.len() * 9);
    for term in terms {
        packed.push(term.rule.number());
        packed.extend_from_slice(&term.due.millis().to_le_bytes());
    }
    packed
}

/// Enclosures as they are stored.
pub(crate) fn pack_enclosures(enclosures: &[Enclosure]) -> String {
    serde_json::to_string(enclosures).unwrap_or_else(|_| "[]".to_owned())
}

/// The rest of an entry as it is stored; nothing is NULL.
pub(crate) fn pack_details(entry: &Entry) -> Option<String> {
    let Entry { categories, language, links, first_words, details: more, .. } = entry;
    let nothing = categories.is_empty() && language.is_none() && links.is_empty() && first_words.is_none();
    let nothing = nothing && more.is_none();
    let details = Details {
        categories: categories.into(),
        language: language.as_deref().map(Cow::from),
        links: links.into(),
        first_words: first_words.as_deref().map(Cow::from),
        more: more.as_deref().map(Cow::Borrowed),
    };
    if nothing { None } else { serde_json::to_string(&details).ok() }
}

/// Packs what a document says about what follows it; nothing becomes NULL.
pub(crate) fn pack_onward(onward: &Onward) -> Option<String> {
    if onward.is_empty() { None } else { serde_json::to_string(onward).ok() }
}

/// The identity of an entry inside its feed.
pub(crate) fn entry_identity(entry: &Entry) -> [u8; 16] {
    entry_identity_of(&entry.id)
}

/// The identity of the entry with this id.
pub(crate) fn entry_identity_of(id: &str) -> [u8; 16] {
    xxhash_rust::xxh3::xxh3_128(id.as_bytes()).to_be_bytes()
}

pub(crate) fn corrupt(feed: FeedId, column: &'static str) -> impl FnOnce(String) -> StoreError {
    move |reason| StoreError::Corrupt { feed, column, reason }
}

pub(crate) fn read_url(feed: FeedId, url: String) -> Result<FeedUrl, StoreError> {
    FeedUrl::try_from(url).map_err(|error| corrupt(feed, "url")(error.to_string()))
}

pub(crate) fn read_status(feed: FeedId, status: &str) -> Result<Status, StoreError> {
    status.parse().map_err(corrupt(feed, "status"))
}

pub(crate) fn read_category(feed: FeedId, letter: &str) -> Result<Category, StoreError> {
    let found = Category::from_name(letter);
    found.ok_or_else(|| corrupt(feed, "category")(format!("'{letter}' is none")))
}

/// Without the hash the next good answer is read as if it were new, and stores a hash again.
pub(crate) fn read_hash(hash: Option<Vec<u8>>) -> Option<ContentHash> {
    let bytes = <[u8; 16]>::try_from(hash?).ok()?;
    Some(ContentHash(u128::from_be_bytes(bytes)))
}

/// A memory that cannot be read is an empty one, except for the hold, which has a separate column: the feed would
/// otherwise be polled without its reports ever being stored.
pub(crate) fn read_state(feed: FeedId, state: &str, hold_until: Option<i64>) -> PollState {
    serde_json::from_str(state).unwrap_or_else(|error| {
        tracing::error!(%feed, %error, "the stored state of a feed cannot be read; it starts from scratch");
        PollState { hold_until: hold_until.map(Timestamp::from_millis), ..PollState::default() }
    })
}

/// Groups that cannot be read delay nothing: the feed must still be polled.
pub(crate) fn read_calm(feed: FeedId, calm: &str) -> Vec<CalmGroup> {
    serde_json::from_str(calm).unwrap_or_else(|error| {
        tracing::error!(%feed, %error, "who wants a feed at midnight cannot be read");
        Vec::new()
    })
}

/// What a feed says about its future is shown and nothing more: one that cannot be read said nothing.
pub(crate) fn read_onward(feed: FeedId, onward: &str) -> Onward {
    serde_json::from_str(onward).unwrap_or_else(|error| {
        tracing::error!(%feed, %error, "what a feed said about its further documents cannot be read");
        Onward::default()
    })
}

/// The terms as far as they can be read: they are shown to people, and no decision depends on them.
pub(crate) fn read_terms(packed: &[u8]) -> Vec<Term> {
    let (terms, _) = packed.as_chunks::<9>();
    let read = |[rule, due @ ..]: &[u8; 9]| {
        let rule = *Rule::ALL.get(usize::from(*rule))?;
        Some(Term { rule, due: Timestamp::from_millis(i64::from_le_bytes(*due)) })
    };
    terms.iter().map_while(read).collect()
}

/// Defines changes of feeds, over a connection of either database; the statements are those beside the caller. `$change` is
/// `feed_change.sql`, which has the same parameters at both.
macro_rules! feed_changes {
    ($connection:ty, $change:expr) => {
        /// Changes a feed within a transaction; returns its new row.
        async fn change_row(
            on: &mut $connection,
            id: FeedId,
            change: &FeedChange,
            now: Timestamp,
        ) -> Result<Option<FeedRow>, StoreError> {
            use $crate::columns::{added_terms, interval_millis, pack_archive, pack_calm, pack_labels, pack_terms};
            const ACTION: &str = "change a feed";
            let audience = change.audience.map(|(audience, _)| audience);
            let expected = change.expects.map(|(_, audience)| audience);
            let credentials = change.credentials.as_ref().map(Option::as_ref);
            // A live feed must have a due time: a retired one that comes back without a wish is due now.
            let terms = change.next_due.map_or_else(|| added_terms(now), |(_, terms)| pack_terms(&terms));
            let row = sqlx::query_as($change)
                .bind(id.0)
                .bind(now.millis())
                .bind(audience.map(|audience| i64::from(audience.subscribers)))
                .bind(audience.map(|audience| i64::from(audience.active_subscribers)))
                .bind(audience.map(|audience| audience.sla))
                .bind(audience.map(|audience| audience.important))
                .bind(audience.and_then(interval_millis))
                .bind(change.audience.map(|(_, category)| category.as_str()))
                .bind(change.private)
                .bind(change.status.map(::common::policy::Status::as_str))
                .bind(change.next_due.map(|(due, _)| due.millis()))
                .bind(terms)
                .bind(change.calm.is_some())
                .bind(change.calm.as_deref().and_then(pack_calm))
                .bind(credentials.map(|login| login.map_or(&[][..], |login| &login.id.0[..])))
                .bind(credentials.flatten().map(|login| login.sealed.as_bytes()))
                .bind(change.expects.map(|(version, _)| version.0))
                .bind(expected.map(|audience| i64::from(audience.subscribers)))
                .bind(expected.map(|audience| i64::from(audience.active_subscribers)))
                .bind(expected.map(|audience| audience.sla))
                .bind(expected.map(|audience| audience.important))
                .bind(expected.and_then(interval_millis))
                .bind(change.labels.is_some())
                .bind(change.labels.as_ref().and_then(|labels| pack_labels(&labels.before)))
                .bind(change.labels.as_ref().and_then(|labels| pack_labels(&labels.after)))
                .bind(change.external_id.is_some())
                .bind(change.external_id.as_ref().and_then(Option::as_deref))
                .bind(change.archive.as_ref().and_then(pack_archive))
                .fetch_optional(&mut *on)
                .await
                .map_err(StoreError::of_identity(ACTION))?;
            if row.is_none() && change.expects.is_some() {
                let exists = sqlx::query_scalar("SELECT count(*) FROM feeds WHERE id = $1").bind(id.0);
                let exists: i64 = exists.fetch_one(on).await.map_err(StoreError::on(ACTION))?;
                if exists > 0 {
                    return Err(StoreError::Outdated);
                }
            }
            Ok(row)
        }

        /// A feed that is stored under an older key's name for its login gets the name of the key in force, so that it is found.
        async fn rename_logins(on: &mut $connection, feeds: &[NewFeed]) -> Result<(), sqlx::Error> {
            for feed in feeds {
                let Some(Credentials { id, older, sealed }) = &feed.credentials else { continue };
                for older in older {
                    let rename = sqlx::query(include_str!("login_rename.sql")).bind(feed.url.as_str());
                    let rename = rename.bind(&older.0[..]).bind(&id.0[..]).bind(sealed.as_bytes());
                    rename.execute(&mut *on).await?;
                }
            }
            Ok(())
        }
    };
}
pub(crate) use feed_changes;

/// A count that fits by construction; what older programs added up beyond that is the largest.
pub(crate) fn count(number: i64) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_advice_is_read_from_a_memory_that_says_nothing_else() {
        let head_first: HeadFirst = serde_json::from_str(r#"{"in_vain":3}"#).unwrap();
        let until = Some(Timestamp::from_millis(5));
        let read = |state: PollState| Advice::read(&pack_state(&state));
        assert_eq!(read(PollState { head_first, ..PollState::default() }).head_first, head_first);
        assert_eq!(read(PollState { no_delta_until: until, ..PollState::default() }).no_delta_until, until);
        assert_eq!(read(PollState { signing: Signing::Wanted, ..PollState::default() }).signing, Signing::Wanted);
    }

    #[test]
    fn terms_come_back_equal_as_far_as_they_can_be_read() {
        let terms = vec![
            Term { rule: Rule::Category, due: Timestamp::from_millis(5) },
            Term { rule: Rule::Added, due: Timestamp::MAX },
        ];
        let packed = pack_terms(&terms);
        assert_eq!(read_terms(&packed), terms);
        assert_eq!(read_terms(&[packed, vec![250; 9]].concat()), terms);
    }

    #[test]
    fn a_memory_comes_back_equal_and_an_older_one_has_defaults() {
        let state = PollState { last_status: Some(304), consecutive_failures: 3, ..PollState::default() };
        assert_eq!(read_state(FeedId(1), &pack_state(&state), None), state);
        assert_eq!(read_state(FeedId(1), "{}", None), PollState::default());
    }

    #[test]
    fn a_memory_that_cannot_be_read_keeps_the_hold() {
        let read = read_state(FeedId(1), "{\"last_outcome\":\"of the future\"}", Some(7));
        assert_eq!(read, PollState { hold_until: Some(Timestamp::from_millis(7)), ..PollState::default() });
    }
}
