//! The stored entries of a feed, as a bounded list of 8-byte fingerprints.
//!
//! A job carries the list so that its report need only carry what is new or changed. The list is an optimisation: the
//! worker sends any entry that is not in it, and a unique constraint of the store decides whether the entry is new.

use crate::entry::Fingerprint;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Fingerprints ([`crate::entry::Entry::fingerprint`]) of entries that were seen, newest first. In JSON: base64 of the
/// little-endian hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownEntries {
    list: Vec<Fingerprint>,
    /// How many of them, at the beginning, were pushed and not yet found by a poll.
    pushed: usize,
}

/// Separates pushed fingerprints from polled ones in stored and sent lists. Earlier versions read it as one more entry.
const PUSHED: Fingerprint = Fingerprint(u64::from_le_bytes(*b"<pushed>"));

impl KnownEntries {
    /// The number of fingerprints kept per feed: 4 KB, and more entries than almost any feed contains.
    pub const LIMIT: usize = 512;

    /// Returns true if this entry is known with the same content.
    pub fn contains(&self, fingerprint: Fingerprint) -> bool {
        self.list.contains(&fingerprint)
    }

    /// Returns true if an entry with this identity is known, perhaps with other content.
    pub fn knows_identity(&self, fingerprint: Fingerprint) -> bool {
        self.list.iter().any(|known| known.same_identity(fingerprint))
    }

    /// Returns what polls know: the next one reports what was pushed, so that the feed's pace is learned from all of its entries.
    pub fn polled(&self) -> Self {
        KnownEntries { list: self.list[self.pushed..].to_vec(), pushed: 0 }
    }

    /// Returns what was pushed since the last poll, newest first.
    pub fn pushed(&self) -> Vec<Fingerprint> {
        self.list[..self.pushed].to_vec()
    }

    /// Returns the list after these entries were pushed.
    pub fn after_push(&self, pushed: impl IntoIterator<Item = Fingerprint>) -> Self {
        let mut list: Vec<Fingerprint> = pushed.into_iter().filter(|new| !self.list.contains(new)).collect();
        // One place is for the mark.
        list.truncate(Self::LIMIT - 1);
        let pushed = (list.len() + self.pushed).min(Self::LIMIT - 1);
        list.extend(&self.list);
        list.truncate(Self::LIMIT - 1);
        KnownEntries { list, pushed }
    }

    /// Returns the list after a document with these entries: they come first, and earlier ones follow up to the limit,
    /// so that a server that alternates between two versions of a feed causes no traffic.
    pub fn after_document(&self, document: impl IntoIterator<Item = Fingerprint>) -> Self {
        let mut list = Vec::with_capacity(Self::LIMIT.min(self.list.len() + 32));
        let mut seen = std::collections::HashSet::new();
        for fingerprint in document.into_iter().chain(self.list.iter().copied()) {
            if list.len() == Self::LIMIT {
                break;
            }
            if seen.insert(fingerprint) {
                list.push(fingerprint);
            }
        }
        KnownEntries { list, pushed: 0 }
    }

    /// Returns the list without these fingerprints.
    pub fn without(&self, gone: &[Fingerprint]) -> Self {
        let is_kept = |known: &&Fingerprint| !gone.contains(known);
        let pushed = self.list[..self.pushed].iter().filter(is_kept).count();
        KnownEntries { list: self.list.iter().filter(is_kept).copied().collect(), pushed }
    }

    /// Returns the fingerprints, newest first.
    pub fn iter(&self) -> impl Iterator<Item = Fingerprint> {
        self.list.iter().copied()
    }

    /// Returns how many bytes of memory its fingerprints take.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(self.list.as_slice())
    }

    /// Returns the number of fingerprints.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns true if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Packs the list for storage: 8 bytes per fingerprint, little-endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (pushed, polled) = self.list.split_at(self.pushed);
        let mark = (!pushed.is_empty()).then_some(&PUSHED);
        pushed.iter().chain(mark).chain(polled).flat_map(|fingerprint| fingerprint.0.to_le_bytes()).collect()
    }

    /// Unpacks the list; a remainder of less than 8 bytes is ignored.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let (whole, _) = bytes.as_chunks::<8>();
        let mut list: Vec<_> = whole.iter().map(|chunk| Fingerprint(u64::from_le_bytes(*chunk))).collect();
        let mark = list.iter().position(|fingerprint| *fingerprint == PUSHED);
        if let Some(mark) = mark {
            list.remove(mark);
        }
        KnownEntries { list, pushed: mark.unwrap_or(0) }
    }
}

impl Serialize for KnownEntries {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD_NO_PAD.encode(self.to_bytes()))
    }
}

impl<'de> Deserialize<'de> for KnownEntries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Ok(Self::from_bytes(&STANDARD_NO_PAD.decode(text.as_bytes()).map_err(de::Error::custom)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prints(numbers: impl IntoIterator<Item = u64>) -> impl Iterator<Item = Fingerprint> {
        numbers.into_iter().map(Fingerprint)
    }

    #[test]
    fn a_document_comes_first_and_the_list_stays_bounded() {
        let known = KnownEntries::default().after_document(prints(0..600)).after_document(prints([7, 1000, 7]));
        assert_eq!(known.len(), KnownEntries::LIMIT);
        assert_eq!(known.list[..4], [7, 1000, 0, 1].map(Fingerprint));
        assert!(known.contains(Fingerprint(1000)) && !known.contains(Fingerprint(599)));
    }

    #[test]
    fn json_and_bytes_come_back_equal() {
        let known = KnownEntries::default().after_document(prints([1, u64::MAX]));
        let json = serde_json::to_string(&known).unwrap();
        assert_eq!(json, "\"AQAAAAAAAAD//////////w\"");
        assert_eq!(serde_json::from_str::<KnownEntries>(&json).unwrap(), known);
    }

    #[test]
    fn what_was_pushed_is_known_and_is_no_news_only_after_the_next_poll() {
        let pushed = KnownEntries::default().after_document(prints([1, 2])).after_push(prints([3, 1]));
        let pushed = pushed.after_push(prints([4]));
        assert_eq!(pushed.list, [4, 3, 1, 2].map(Fingerprint));
        assert_eq!(KnownEntries::from_bytes(&pushed.to_bytes()), pushed);
        assert_eq!(pushed.polled().list, [1, 2].map(Fingerprint));
        assert!(pushed.contains(Fingerprint(3)) && !pushed.polled().contains(Fingerprint(3)));
        assert_eq!(pushed.without(&[Fingerprint(3), Fingerprint(2)]).polled().list, [Fingerprint(1)]);
        let polled = pushed.after_document(prints([4, 3]));
        assert_eq!((polled.polled(), polled.len()), (polled.clone(), 4));
        let many = polled.after_push(prints(10..2000));
        assert_eq!((many.to_bytes().len(), many.polled().len()), (8 * KnownEntries::LIMIT, 0));
        assert_eq!(KnownEntries::from_bytes(&many.to_bytes()), many);
    }
}
