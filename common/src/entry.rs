//! Entries: what feeds announce, in the one shape that every kind of feed is brought to.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// The schemes of links that entries keep, and that sanitised HTML keeps: what they open is shown to a person. `javascript:`
/// and `data:` run code in a reader's page, others start a program of the reader's machine.
pub const LINK_SCHEMES: [&str; 6] = ["http", "https", "mailto", "tel", "magnet", "xmpp"];

/// One entry of a feed, normalised. Text is as the publisher wrote it (HTML is not sanitised here).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Entry {
    /// Identity inside its feed: guid or id, else the link, else a hash of title and date. Stable over polls.
    pub id: String,
    /// Where the entry can be read, resolved against `xml:base` and the feed's final URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Its title; many posts have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// When it was first published, by the publisher's word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<Timestamp>,
    /// When it was last changed, by the publisher's word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated: Option<Timestamp>,
    /// The authors' names, joined by ", ".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// A short form of the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The whole content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Attached media.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub enclosures: Vec<Enclosure>,
    /// Categories and tags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    /// The language that it is written in, as its publisher names it, in lower case: `en`, `pt-br`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// The web pages that its text links to, absolute, each once; a bounded number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<String>,
    /// The first words of its text as plain text, where it has no title: see [`Entry::display_title`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_words: Option<String>,
    /// Text was cut, or content left out, to stay within the limits of size.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// A file that belongs to an entry: a podcast's episode, a picture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Enclosure {
    /// Where it can be fetched, resolved like [`Entry::url`].
    pub url: String,
    /// Its media type as announced, such as `audio/mpeg`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// Its length in bytes as announced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
}

/// Eight bytes that stand for an entry: see [`Entry::fingerprint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    /// Do both stand for the same identity, whatever the content?
    pub fn same_identity(self, other: Fingerprint) -> bool {
        self.0 >> 32 == other.0 >> 32
    }
}

impl Entry {
    /// What tells whether the entry is stored already: the upper half is a hash of the identity, the lower half one of
    /// everything a reader reads; not of categories, which some publishers give in another order each time. Equal
    /// fingerprints mean that there is nothing to store.
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
        let identity = xxhash_rust::xxh3::xxh3_64(self.id.as_bytes());
        Fingerprint(identity & !u64::from(u32::MAX) | content.digest() >> 32)
    }

    /// What to show as its title: the title, or the first words of its text, or its address.
    pub fn display_title(&self) -> &str {
        [&self.title, &self.first_words, &self.url].into_iter().find_map(|text| text.as_deref()).unwrap_or(&self.id)
    }

    /// Every text that the entry carries, for limits of size.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let optional =
            [&self.url, &self.title, &self.author, &self.summary, &self.content, &self.language, &self.first_words];
        let listed = self.categories.iter().chain(&self.links).map(String::as_str);
        let enclosures = self.enclosures.iter().map(|enclosure| enclosure.url.as_str());
        std::iter::once(self.id.as_str())
            .chain(optional.into_iter().flatten().map(String::as_str))
            .chain(listed)
            .chain(enclosures)
    }

    /// Bytes of text that the entry carries, for limits of size.
    pub fn text_bytes(&self) -> usize {
        self.texts().map(str::len).sum()
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
    }
}
