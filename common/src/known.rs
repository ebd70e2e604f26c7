//! The entries of a feed that are stored already, as a bounded list of 8-byte fingerprints.
//!
//! A job carries the list so that its report need only carry what is new or changed. The list is a saving, not the truth:
//! an entry that it does not know is sent, and the store's uniqueness decides whether it is new.

use crate::entry::Fingerprint;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Fingerprints ([`crate::entry::Entry::fingerprint`]) of entries that were seen, newest first. In JSON: base64 of the
/// little-endian hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownEntries(Vec<Fingerprint>);

impl KnownEntries {
    /// How many fingerprints a feed keeps: 4 KB a feed, more items than nearly every feed carries.
    pub const LIMIT: usize = 512;

    /// Is this very entry known, content included?
    pub fn contains(&self, fingerprint: Fingerprint) -> bool {
        self.0.contains(&fingerprint)
    }

    /// Is an entry of this identity known, perhaps with other content?
    pub fn knows_identity(&self, fingerprint: Fingerprint) -> bool {
        self.0.iter().any(|known| known.same_identity(fingerprint))
    }

    /// The list after a document with these entries was read: they come first, earlier ones follow as far as there is
    /// room, so that a server that swaps between two versions of a feed causes no traffic.
    pub fn after_document(&self, document: impl IntoIterator<Item = Fingerprint>) -> Self {
        let mut list = Vec::with_capacity(Self::LIMIT.min(self.0.len() + 32));
        let mut seen = std::collections::HashSet::new();
        for fingerprint in document.into_iter().chain(self.0.iter().copied()) {
            if list.len() == Self::LIMIT {
                break;
            }
            if seen.insert(fingerprint) {
                list.push(fingerprint);
            }
        }
        KnownEntries(list)
    }

    /// The list without these.
    pub fn without(&self, gone: &[Fingerprint]) -> Self {
        KnownEntries(self.0.iter().copied().filter(|known| !gone.contains(known)).collect())
    }

    /// The number of fingerprints.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Is nothing known?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The packed form for storage: 8 bytes a fingerprint, little-endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|fingerprint| fingerprint.0.to_le_bytes()).collect()
    }

    /// From the packed form; a remainder of less than 8 bytes is ignored.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let (whole, _) = bytes.as_chunks::<8>();
        KnownEntries(whole.iter().map(|chunk| Fingerprint(u64::from_le_bytes(*chunk))).collect())
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
        assert_eq!(known.0[..4], [7, 1000, 0, 1].map(Fingerprint));
        assert!(known.contains(Fingerprint(1000)) && !known.contains(Fingerprint(599)));
    }

    #[test]
    fn json_and_bytes_come_back_equal() {
        let known = KnownEntries::default().after_document(prints([1, u64::MAX]));
        let json = serde_json::to_string(&known).unwrap();
        assert_eq!(json, "\"AQAAAAAAAAD//////////w\"");
        assert_eq!(serde_json::from_str::<KnownEntries>(&json).unwrap(), known);
    }
}
