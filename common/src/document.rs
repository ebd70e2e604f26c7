//! The content of a good response: the document, its validators and hash, and what its publisher says in it about when
//! to poll it and where it continues.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::entry::{Author, Entry, Fingerprint};
use crate::known::KnownEntries;

/// Entries known before an overflow that are remembered: some of them may be deleted meanwhile.
const REMEMBERED: usize = 64;

/// The content of a good response.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Document {
    /// The feed's title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The site that the feed belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// The answer's validators.
    pub validators: Validators,
    /// The hash of its body. `None` only in messages of a broken sender.
    pub content_hash: Option<ContentHash>,
    /// What the feed says about when to poll.
    pub hints: FeedHints,
    /// Its WebSub hub, if it announces one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hub: Option<String>,
    /// Its own idea of its URL (`rel=self`), the topic of its hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_link: Option<String>,
    /// Its rssCloud, as `domain:port/path protocol`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud: Option<String>,
    /// What it says about its further documents and its end.
    #[serde(skip_serializing_if = "Onward::is_empty")]
    pub onward: Onward,
    /// It was broken, and read after a repair.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub repaired: bool,
    /// Entries that the job did not know, or knew with other content. The document's last one first: documents begin
    /// with their newest entry, and consumers, which read in the order of storing, want it last.
    pub entries: Vec<Entry>,
    /// Of these, by their identities alone, the ones whose texts did not fit into the report: they replace nothing that is
    /// stored. Earlier versions did not say it.
    #[serde(skip_serializing_if = "KnownEntries::is_empty")]
    pub stripped: KnownEntries,
    /// How many of the entries had an identity that the job did not know.
    pub new_entries: u32,
    /// Entries in the whole document.
    pub all_entries: u32,
    /// None of its entries was known, although some were: entries between those and these may have been missed. What was pushed since
    /// the last poll fills the gap if it includes the document's oldest entry and one before it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub none_known: bool,
    /// If so, the newest entries that polls knew before, as many as are remembered. Earlier versions did not send them.
    #[serde(skip_serializing_if = "KnownEntries::is_empty")]
    pub known_before: KnownEntries,
    /// The known entries after this document.
    pub known: KnownEntries,
}

impl Document {
    /// Returns about how many bytes of memory it takes.
    pub fn memory_bytes(&self) -> usize {
        let entries = self.entries.iter().map(|entry| size_of::<Entry>() + entry.text_bytes());
        size_of::<Self>() + self.known.memory_bytes() + self.stripped.memory_bytes() + entries.sum::<usize>()
    }

    /// Keeps the entries that `known` does not hold in this very form, and counts the new identities.
    /// `entries` are all entries of the document, in its order.
    pub fn keep_news(&mut self, entries: Vec<Entry>, known: &KnownEntries) {
        let fingerprints: Vec<Fingerprint> = entries.iter().map(Entry::fingerprint).collect();
        self.all_entries = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        self.known = known.after_document(fingerprints.iter().copied());
        self.new_entries = 0;
        let (pushed, known) = (known.pushed(), known.polled());
        let lookup = known.lookup();
        let is_unknown = |fingerprint: &Fingerprint| !lookup.knows_identity(*fingerprint);
        self.none_known = !known.is_empty()
            && !fingerprints.is_empty()
            && fingerprints.iter().all(is_unknown)
            && !reaches_beyond(&pushed, &entries, &fingerprints, &known);
        if self.none_known {
            self.known_before = KnownEntries::default().after_document(known.iter().take(REMEMBERED));
        }
        for (entry, fingerprint) in entries.into_iter().zip(fingerprints) {
            if !lookup.contains(fingerprint) {
                self.new_entries += u32::from(is_unknown(&fingerprint));
                self.entries.push(entry);
            }
        }
    }
}

/// Returns whether pushed entries continue a document into the past: its oldest entry was pushed, and so was another
/// one that is not in it and that polls do not know. Otherwise the hub may have lost what was posted before the
/// document's entries. A pushed entry that polls know is an edit, and says nothing about the entries between.
fn reaches_beyond(
    pushed: &[Fingerprint],
    entries: &[Entry],
    fingerprints: &[Fingerprint],
    polled: &KnownEntries,
) -> bool {
    if pushed.is_empty() {
        return false;
    }
    let identities = |prints: &[Fingerprint]| prints.iter().map(|print| print.identity()).collect::<HashSet<_>>();
    let (pushed, here) = (identities(pushed), identities(fingerprints));
    let polled: HashSet<u64> = polled.iter().map(Fingerprint::identity).collect();
    // Documents begin with their newest entry, unless dates say otherwise.
    let by_age = entries.iter().zip(fingerprints).rev();
    let oldest = by_age.min_by_key(|(entry, _)| entry.published.or(entry.updated));
    oldest.is_some_and(|(_, oldest)| pushed.contains(&oldest.identity()))
        && pushed.iter().any(|identity| !here.contains(identity) && !polled.contains(identity))
}

/// What a server sent to make the next request conditional (RFC 9110, section 8.8). Opaque: kept and echoed byte for
/// byte.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Validators {
    /// The `ETag` field's value, quotes and `W/` included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// The `Last-Modified` field's value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
    /// The URL that sent them, when redirects led to another one than the feed's own. They are sent to that URL alone.
    /// With [`Validators::POSTS`] behind it, it is where the feed's own answer said that its posts are: the next fetch
    /// begins there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_url: Option<String>,
}

impl Validators {
    /// The fragment that marks a URL as the place of an actor's posts. No request carries fragments.
    pub const POSTS: &str = "#posts";

    /// Returns whether no validator is known.
    pub fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }
}

/// xxh3-128 of a decoded body, in JSON as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContentHash(pub u128);

impl ContentHash {
    /// Returns the hash of a body as parser `version` reads it: a better parser reads an equal body again.
    pub fn of(body: &[u8], parser_version: u64) -> Self {
        ContentHash(xxhash_rust::xxh3::xxh3_128_with_seed(body, parser_version))
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl From<ContentHash> for String {
    fn from(hash: ContentHash) -> String {
        hash.to_string()
    }
}

impl TryFrom<String> for ContentHash {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        u128::from_str_radix(&text, 16).map(ContentHash)
    }
}

/// What a publisher says in the feed itself about when to poll. Absent fields were not said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Hints")]
pub struct FeedHints {
    /// `ttl` of RSS, in seconds.
    #[serde(with = "crate::duration::optional_seconds", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<f64>")]
    pub ttl: Option<Duration>,
    /// `sy:updatePeriod` divided by `sy:updateFrequency`, in seconds.
    #[serde(with = "crate::duration::optional_seconds", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<f64>")]
    pub update_period: Option<Duration>,
    /// `skipHours`: bit h is set when hour h (GMT) is skipped.
    pub skip_hours: u32,
    /// `skipDays`: bit d is set when day d (Monday = 0, GMT) is skipped.
    pub skip_days: u8,
}

impl FeedHints {
    /// Returns true if it said nothing.
    pub fn is_empty(&self) -> bool {
        *self == FeedHints::default()
    }
}

/// What a feed says about its further documents and its end. Pages of older entries are read after an overflow and when a person
/// requests it ([`crate::archive`]). No poll of the feed itself depends on any of this, because the claim may be false: a feed
/// moves by permanent redirects and ends by 410.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(description = "What a feed says about its further documents and its end. Polling does not depend on it.")]
pub struct Onward {
    /// The page after this one: `rel=next` (RFC 5005), JSON Feed's `next_url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The archive before this document: `rel=prev-archive` (RFC 5005).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prev_archive: Option<String>,
    /// The feed's new URL: `itunes:new-feed-url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_feed_url: Option<String>,
    /// Nothing will follow: JSON Feed's `expired`, `itunes:complete`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub expired: bool,
    /// What it says about itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub about: Option<Box<FeedAbout>>,
}

/// What a feed says about itself beside title and link. Texts are plain, addresses absolute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FeedAbout {
    /// What it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// A picture that represents it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// A small picture for lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icon: Option<String>,
    /// Its language, in lower case: `en`, `pt-br`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Its makers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub authors: Vec<Author>,
    /// Categories and tags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    /// The program that wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generator: Option<String>,
    /// Its licence or copyright.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copyright: Option<String>,
    /// What it says as a podcast (Podcasting 2.0).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub podcast: Option<FeedPodcast>,
}

/// What a feed says as a podcast (Podcasting 2.0).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct FeedPodcast {
    /// Its identity, wherever it is hosted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guid: Option<String>,
    /// It must not be imported by other hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locked: Option<bool>,
    /// Where it can be supported.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub funding: Vec<Funding>,
    /// `podcast`, `music`, `video` ..
    #[serde(skip_serializing_if = "Option::is_none")]
    pub medium: Option<String>,
    /// How often it appears, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_frequency: Option<String>,
}

/// `podcast:funding`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct Funding {
    /// Where.
    pub url: String,
    /// What it is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

impl Onward {
    /// Returns true if it said nothing.
    pub fn is_empty(&self) -> bool {
        *self == Onward::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(ids: impl IntoIterator<Item = u32>) -> Vec<Entry> {
        ids.into_iter().map(|id| Entry { id: id.to_string(), ..Entry::default() }).collect()
    }

    fn prints(ids: impl IntoIterator<Item = u32>) -> Vec<Fingerprint> {
        entries(ids).iter().map(Entry::fingerprint).collect()
    }

    #[test]
    fn a_document_overflows_unless_it_or_what_was_pushed_reaches_back_to_what_was_known() {
        let polled = KnownEntries::default().after_document(prints(0..10));
        let is_over = |ids: std::ops::Range<u32>, known: &KnownEntries| {
            let mut document = Document::default();
            document.keep_news(entries(ids.rev()), known);
            document.none_known
        };
        assert!(!is_over(0..5, &KnownEntries::default()), "the first document");
        assert!(!is_over(9..20, &polled) && is_over(11..20, &polled) && !is_over(11..11, &polled));
        // Half of them were pushed one by one, and the document shows the newer ones only.
        assert!(!is_over(16..20, &polled.after_push(prints(11..20))));
        // One delivery with what the document shows: what was posted between is unknown.
        assert!(is_over(16..20, &polled.after_push(prints(16..20))));
        // The hub lost those between the pushed ones and the document, or the oldest that the document shows.
        assert!(is_over(21..31, &polled.after_push(prints([11]))));
        assert!(is_over(21..31, &polled.after_push(prints([11, 25]))));
        let edit = Entry { title: Some("edited".into()), ..entries([3]).remove(0) }.fingerprint();
        assert!(is_over(21..31, &polled.after_push([edit])), "an old entry was edited");
        assert!(is_over(16..20, &polled.after_push([edit].into_iter().chain(prints(16..20)))));
    }

    #[test]
    fn all_entries_of_a_long_document_are_known_afterwards() {
        let read = |ids: std::ops::Range<u32>, known: &KnownEntries| {
            let mut document = Document::default();
            document.keep_news(entries(ids.rev()), known);
            document
        };
        let first = read(0..1_000, &KnownEntries::default());
        assert_eq!((first.new_entries, first.entries.len()), (1_000, 1_000));
        let second = read(0..1_001, &first.known);
        assert_eq!((second.new_entries, second.entries.len(), second.known.len()), (1, 1, 1_001));
        // A push in between takes nothing away.
        let third = read(0..1_001, &second.known.after_push(prints([1_001])));
        assert_eq!((third.new_entries, third.entries.len()), (0, 0));
    }

    #[test]
    fn a_documents_oldest_entry_is_found_by_date() {
        let dated = |id: u32| Entry {
            id: id.to_string(),
            published: Some(crate::time::Timestamp::from_millis(i64::from(id))),
            ..Entry::default()
        };
        let polled = KnownEntries::default().after_document(prints(0..10));
        let pushed = (11..17).map(|id| dated(id).fingerprint());
        for (shown, is_over) in [(16..20, false), (17..20, true)] {
            let mut oldest_first = Document::default();
            oldest_first.keep_news(shown.map(dated).collect(), &polled.after_push(pushed.clone()));
            assert_eq!(oldest_first.none_known, is_over);
        }
    }
}
