//! Entries: what feeds publish, in one normalised form for every kind of feed.

mod canonical;
mod details;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use canonical::canonical_url;
pub(crate) use details::json_bytes;
pub use details::{
    AlternateEnclosure, Author, Chapters, EntryDetails, Extension, Geo, License, Location, Number, Person, Podcast,
    Recipient, Soundbite, Source, Transcript, Value,
};

use crate::time::Timestamp;

/// The URL schemes of links that entries and sanitised HTML keep, because they open something for a person.
/// `javascript:` and `data:` run code in the reader's page, others start a program on the reader's machine.
pub const LINK_SCHEMES: [&str; 6] = ["http", "https", "mailto", "tel", "magnet", "xmpp"];

/// One entry of a feed, normalised. Text is as the publisher wrote it (HTML is not sanitised here).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Entry {
    /// Identity inside its feed: guid or id, else the link, else a hash of title and date. Stable across polls.
    pub id: String,
    /// Where the entry can be read, resolved against `xml:base` and the feed's final URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Its title; many posts have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// When it was first published, according to the publisher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<Timestamp>,
    /// When it was last changed, according to the publisher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated: Option<Timestamp>,
    /// The authors' names, joined by ", ".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// A short form of the content: HTML as the publisher sent it, not sanitised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The whole content: HTML as the publisher sent it, not sanitised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Attached media.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub enclosures: Vec<Enclosure>,
    /// Categories and tags. A different list alone does not count as an update.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    /// Its language, as the publisher states it, in lower case: `en`, `pt-br`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// The web pages that its text links to: absolute URLs, each once, up to a limit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<String>,
    /// Without a title: the first words of its text, as plain text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_words: Option<String>,
    /// Text was truncated, or content left out, to stay within the size limits.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// What only some entries have.
    #[serde(flatten, with = "details::beside")]
    #[schemars(with = "EntryDetails")]
    pub details: Option<Box<EntryDetails>>,
}

/// A file that belongs to an entry: a podcast's episode, a picture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct Enclosure {
    /// Its URL, resolved like the entry's.
    pub url: String,
    /// Its media type as announced, such as `audio/mpeg`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(description = "The same as type, which is the name to use.", extend("deprecated" = true))]
    pub media_type: Option<String>,
    /// The same under the name that readers are given. Only [`Entry::name_types`] sets it, so that messages and the
    /// store have it once.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(description = "Its media type as announced, such as audio/mpeg.")]
    pub shown_type: Option<String>,
    /// Its length in bytes as announced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
    /// Seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Number>,
    /// Pixels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// Pixels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
    /// Kilobits a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bitrate: Option<Number>,
    /// `image`, `audio`, `video`, `document` or `executable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub medium: Option<String>,
    /// Its description, for readers who cannot see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alt: Option<String>,
    /// Small pictures of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub thumbnails: Vec<String>,
}

/// Eight bytes that identify an entry's state: see [`Entry::fingerprint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    /// Returns the fingerprint of an entry with this id, whatever its content.
    pub fn of_identity(id: &str) -> Self {
        Fingerprint(xxhash_rust::xxh3::xxh3_64(id.as_bytes())).identity_alone()
    }

    /// Returns the fingerprint of the same identity, whatever the content: what [`Fingerprint::of_identity`] returns.
    #[must_use]
    pub fn identity_alone(self) -> Self {
        Fingerprint(self.0 & !u64::from(u32::MAX))
    }

    /// Returns whether both have the same identity, whatever the content.
    pub fn same_identity(self, other: Fingerprint) -> bool {
        self.identity() == other.identity()
    }

    /// Returns the half that is the hash of the identity.
    pub(crate) fn identity(self) -> u64 {
        self.0 >> 32
    }
}

impl Entry {
    /// Gives its files' media types the name that readers are given too.
    pub fn name_types(&mut self) {
        self.enclosures.iter_mut().for_each(|file| file.shown_type.clone_from(&file.media_type));
    }

    /// Returns a fingerprint that shows whether the entry is already stored: the upper half is a hash of the identity,
    /// the lower half one of everything that readers see; not of categories, which some publishers reorder each time.
    /// If the fingerprints are equal, there is nothing to store.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut content = xxhash_rust::xxh3::Xxh3::new();
        let mut add = |part: &str| {
            content.update(&(part.len() as u64).to_le_bytes());
            content.update(part.as_bytes());
        };
        for text in [&self.url, &self.title, &self.author, &self.summary, &self.content] {
            add(text.as_deref().unwrap_or("\u{0}"));
        }
        for time in [self.published, self.updated] {
            add(&time.map_or(String::new(), |at| at.millis().to_string()));
        }
        for enclosure in &self.enclosures {
            add(&enclosure.url);
        }
        Fingerprint(Fingerprint::of_identity(&self.id).0 | content.digest() >> 32)
    }

    /// Returns the details, to be filled in.
    pub fn details_mut(&mut self) -> &mut EntryDetails {
        self.details.get_or_insert_default()
    }

    /// Lists its authors where no more is known of them than their names.
    pub fn name_authors(&mut self) {
        let is_listed = self.details.as_ref().is_some_and(|details| !details.authors.is_empty());
        if let Some(name) = self.author.clone().filter(|_| !is_listed) {
            self.details_mut().authors = vec![Author { name, ..Author::default() }];
        }
    }

    /// Returns what to show as the title: the title, or the first words of the text, or the URL.
    pub fn display_title(&self) -> &str {
        [&self.title, &self.first_words, &self.url].into_iter().find_map(|text| text.as_deref()).unwrap_or(&self.id)
    }

    /// Returns every text that the entry carries but those of its details, for limits of size.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let optional =
            [&self.url, &self.title, &self.author, &self.summary, &self.content, &self.language, &self.first_words];
        let listed = self.categories.iter().chain(&self.links).map(String::as_str);
        let enclosures = self.enclosures.iter().flat_map(|enclosure| {
            let texts = [&enclosure.media_type, &enclosure.medium, &enclosure.alt].into_iter().flatten();
            std::iter::once(&enclosure.url).chain(texts).chain(&enclosure.thumbnails).map(String::as_str)
        });
        std::iter::once(self.id.as_str())
            .chain(optional.into_iter().flatten().map(String::as_str))
            .chain(listed)
            .chain(enclosures)
    }

    /// Returns the number of bytes of text, those of its details included, for size limits.
    pub fn text_bytes(&self) -> usize {
        let details = self.details.as_ref().map_or(0, |details| details.json_bytes());
        self.texts().map(str::len).sum::<usize>() + details
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_tells_an_edit_from_another_entry() {
        let entry = Entry { id: "1".into(), title: Some("a".into()), ..Entry::default() };
        let edited = Entry { title: Some("b".into()), ..entry.clone() };
        let other = Entry { id: "2".into(), ..entry.clone() };
        let moved = Entry { url: Some("a".into()), title: None, ..entry.clone() };
        assert_eq!(entry.fingerprint(), entry.clone().fingerprint());
        assert_ne!(entry.fingerprint(), edited.fingerprint());
        assert_ne!(entry.fingerprint(), moved.fingerprint());
        assert!(entry.fingerprint().same_identity(edited.fingerprint()));
        assert!(!entry.fingerprint().same_identity(other.fingerprint()));
        assert_eq!(entry.fingerprint().identity_alone(), Fingerprint::of_identity("1"));
    }
}
