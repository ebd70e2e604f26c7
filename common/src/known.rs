//! The stored entries of a feed, as a bounded list of 8-byte fingerprints.
//!
//! A job carries the list so that its report need only carry what is new or changed. The list is an optimisation: the
//! worker sends any entry that is not in it, and a unique constraint of the store decides whether the entry is new.

use std::collections::{HashMap, HashSet};

use crate::entry::Fingerprint;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Fingerprints ([`crate::entry::Entry::fingerprint`]) of entries that were seen, newest first. An entry of which a part
/// did not fit into a report is in it by its identity alone ([`Fingerprint::identity_alone`]): it is not new, and the next
/// document that contains it makes it new again. In JSON: base64 of the little-endian hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownEntries {
    list: Vec<Fingerprint>,
    /// How many of them, at the beginning, were pushed and not yet found by a poll.
    pushed: usize,
    /// Forms of entries that another one replaced, newest first. One that comes back is news, once.
    replaced: Vec<Fingerprint>,
    /// Documents in a row in which forms that alternate were the same as before.
    steady: u8,
}

/// Separates pushed fingerprints from polled ones in stored and sent lists. Earlier versions read it as one more entry.
const PUSHED: Fingerprint = Fingerprint(u64::from_le_bytes(*b"<pushed>"));
/// Comes before the replaced forms in stored and sent lists. Earlier versions read it and them as further entries.
const REPLACED: Fingerprint = Fingerprint(u64::from_le_bytes(*b"replaced"));
/// Comes after that, with the number of steady documents in its highest byte.
const STEADY: u64 = u64::from_le_bytes(*b"steady!\0");
/// The number of steady documents that ends an alternation.
const STEADY_AFTER: u8 = 8;

impl KnownEntries {
    /// The number of fingerprints that earlier documents and pushes may fill up a feed's list to: 4 KB. The newest document has
    /// all of them.
    pub const LIMIT: usize = 512;
    /// The most fingerprints of one document: 200 KB, so that a message of such jobs is within what a broker accepts. By
    /// default documents have 2,000 entries at most (`fetch.max_entries`).
    pub const MOST: usize = 25_000;
    /// The most forms that are remembered as replaced.
    pub const REPLACED: usize = 128;

    /// Returns true if this entry is known with the same content. It reads the whole list: for many entries use
    /// [`KnownEntries::lookup`].
    pub fn contains(&self, fingerprint: Fingerprint) -> bool {
        self.list.contains(&fingerprint)
    }

    /// Returns the list in a form in which many entries are found quickly.
    pub fn lookup(&self) -> Lookup {
        let mut sorted: Vec<u64> = self.list.iter().map(|known| known.0).collect();
        sorted.sort_unstable();
        Lookup { sorted }
    }

    /// Returns what polls know: the next one reports what was pushed, so that the feed's pace is learned from all of its entries.
    pub fn polled(&self) -> Self {
        let list = self.list[self.pushed..].to_vec();
        KnownEntries { list, pushed: 0, replaced: self.replaced.clone(), steady: self.steady }
    }

    /// Returns what was pushed since the last poll, newest first.
    pub fn pushed(&self) -> Vec<Fingerprint> {
        self.list[..self.pushed].to_vec()
    }

    /// Returns the list after these entries were pushed. What polls know stays: the next document contains it.
    pub fn after_push(&self, pushed: impl IntoIterator<Item = Fingerprint>) -> Self {
        let known: HashSet<Fingerprint> = self.iter().collect();
        let (earlier, polled) = self.list.split_at(self.pushed);
        let mut list: Vec<Fingerprint> = pushed.into_iter().filter(|new| !known.contains(new)).collect();
        list.extend(earlier);
        list.truncate(Self::LIMIT);
        let pushed = list.len();
        list.extend(polled);
        KnownEntries { list, pushed, replaced: self.replaced.clone(), steady: self.steady }
    }

    /// Returns the list after a document with these entries: they come first, and earlier ones follow up to the limit,
    /// so that a server that alternates between two versions of a feed causes no traffic. An earlier form of one of them is
    /// no longer known: if it comes back, its publisher has taken an edit back. Once both forms came back, they alternate,
    /// and both stay known. When one of them then stays, it is reported once more: the store may have the other one.
    pub fn after_document(&self, document: impl IntoIterator<Item = Fingerprint>) -> Self {
        self.filled_up(document, Self::LIMIT)
    }

    /// Returns the list after a delta with these entries. It leaves out what is known, so the list does not become shorter.
    pub fn after_delta(&self, delta: impl IntoIterator<Item = Fingerprint>) -> Self {
        self.filled_up(delta, self.list.len().max(Self::LIMIT))
    }

    /// These fingerprints, each once, and earlier ones up to a number of all.
    fn filled_up(&self, own: impl IntoIterator<Item = Fingerprint>, limit: usize) -> Self {
        let mut seen = HashSet::new();
        let mut list: Vec<Fingerprint> = own.into_iter().filter(|own| seen.insert(*own)).take(Self::MOST).collect();
        let room = limit.saturating_sub(list.len());
        let renewed: HashMap<u64, Fingerprint> = list.iter().map(|own| (own.identity(), *own)).collect();
        let came_back = |form: &Fingerprint| self.replaced.contains(form);
        let is_replaced = |form: &Fingerprint| match renewed.get(&form.identity()) {
            Some(by) => !(came_back(form) && came_back(by)),
            None => false,
        };
        let (mut replaced, mut kept): (Vec<Fingerprint>, Vec<Fingerprint>) =
            self.iter().filter(|earlier| seen.insert(*earlier)).partition(is_replaced);
        replaced.extend(&self.replaced);
        let mut steady = self.steady_with(&kept, &renewed);
        if steady == STEADY_AFTER {
            let identities = kept.iter().map(|form| form.identity());
            let settled: HashSet<u64> = identities.filter(|identity| renewed.contains_key(identity)).collect();
            for form in &mut list {
                if settled.contains(&form.identity()) {
                    *form = form.identity_alone();
                }
            }
            let is_other = |form: &Fingerprint| !settled.contains(&form.identity());
            kept.retain(is_other);
            replaced.retain(is_other);
            steady = 0;
        }
        replaced.truncate(Self::REPLACED);
        list.extend(kept.into_iter().take(room));
        KnownEntries { list, pushed: 0, replaced, steady }
    }

    /// Returns the number of steady documents after one with these entries, by identity, that keeps these earlier ones.
    fn steady_with(&self, kept: &[Fingerprint], renewed: &HashMap<u64, Fingerprint>) -> u8 {
        let place = |form: Fingerprint| self.list.iter().position(|known| *known == form);
        let mut alternating =
            kept.iter().filter_map(|earlier| Some((*earlier, *renewed.get(&earlier.identity())?))).peekable();
        let is_some = alternating.peek().is_some();
        let stays =
            |(earlier, now): (Fingerprint, Fingerprint)| place(now).is_some_and(|now| Some(now) < place(earlier));
        if is_some && alternating.all(stays) { self.steady.saturating_add(1) } else { 0 }
    }

    /// Returns the list without these fingerprints.
    pub fn without(&self, gone: &[Fingerprint]) -> Self {
        let gone: HashSet<Fingerprint> = gone.iter().copied().collect();
        let is_kept = |known: &&Fingerprint| !gone.contains(*known);
        let pushed = self.list[..self.pushed].iter().filter(is_kept).count();
        let kept = |forms: &[Fingerprint]| forms.iter().filter(is_kept).copied().collect();
        KnownEntries { list: kept(&self.list), pushed, replaced: kept(&self.replaced), steady: self.steady }
    }

    /// Returns the list with these known by their identity alone.
    pub fn by_identity_alone(&self, of: &[Fingerprint]) -> Self {
        let of: HashSet<Fingerprint> = of.iter().copied().collect();
        let reduced = |known: Fingerprint| if of.contains(&known) { known.identity_alone() } else { known };
        KnownEntries { list: self.iter().map(reduced).collect(), ..self.clone() }
    }

    /// Returns the fingerprints, newest first.
    pub fn iter(&self) -> impl Iterator<Item = Fingerprint> {
        self.list.iter().copied()
    }

    /// Returns how many bytes of memory its fingerprints take.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(self.list.as_slice()) + size_of_val(self.replaced.as_slice())
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
        let known = pushed.iter().chain(mark).chain(polled);
        let steady = (self.steady > 0).then_some(Fingerprint(STEADY | u64::from(self.steady) << 56));
        let mark = (!self.replaced.is_empty()).then_some(&REPLACED);
        let replaced = mark.into_iter().chain(mark.and(steady.as_ref())).chain(&self.replaced);
        known.chain(replaced).flat_map(|fingerprint| fingerprint.0.to_le_bytes()).collect()
    }

    /// Unpacks the list; a remainder of less than 8 bytes is ignored.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let (whole, _) = bytes.as_chunks::<8>();
        let mut list: Vec<_> = whole.iter().map(|chunk| Fingerprint(u64::from_le_bytes(*chunk))).collect();
        let replaced = list.iter().position(|fingerprint| *fingerprint == REPLACED).map(|mark| list.split_off(mark));
        let mark = list.iter().position(|fingerprint| *fingerprint == PUSHED);
        if let Some(mark) = mark {
            list.remove(mark);
        }
        let mut replaced = replaced.map_or_else(Vec::new, |marked| marked[1..].to_vec());
        let first = replaced.first().map(|first| first.0.to_le_bytes());
        let steady = first.filter(|bytes| bytes[..7] == STEADY.to_le_bytes()[..7]).map_or(0, |bytes| bytes[7]);
        if steady > 0 {
            replaced.remove(0);
        }
        KnownEntries { list, pushed: mark.unwrap_or(0), replaced, steady }
    }
}

/// Known entries in an order in which each is found without reading all of them.
#[derive(Clone, Debug)]
pub struct Lookup {
    sorted: Vec<u64>,
}

impl Lookup {
    /// Returns true if this entry is known with the same content.
    pub fn contains(&self, fingerprint: Fingerprint) -> bool {
        self.sorted.binary_search(&fingerprint.0).is_ok()
    }

    /// Returns true if an entry with this identity is known, perhaps with other content.
    pub fn knows_identity(&self, fingerprint: Fingerprint) -> bool {
        let first = fingerprint.identity_alone().0;
        let place = self.sorted.partition_point(|known| *known < first);
        self.sorted.get(place).is_some_and(|known| Fingerprint(*known).same_identity(fingerprint))
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

    /// Of an entry with its own identity.
    fn of(number: u64) -> Fingerprint {
        Fingerprint(number << 32 | 1)
    }

    fn prints(numbers: impl IntoIterator<Item = u64>) -> impl Iterator<Item = Fingerprint> {
        numbers.into_iter().map(of)
    }

    #[test]
    fn a_document_comes_first_and_the_list_stays_bounded() {
        let long = KnownEntries::default().after_document(prints(0..600));
        assert_eq!(long.len(), 600, "all of the document");
        let known = long.after_document(prints([7, 1000, 7]));
        assert_eq!(known.len(), KnownEntries::LIMIT);
        assert_eq!(known.list[..4], [7, 1000, 0, 1].map(of));
        assert!(known.contains(of(1000)) && !known.contains(of(599)));
        assert_eq!(known.after_document(prints(0..1_000_000)).len(), KnownEntries::MOST);
    }

    #[test]
    fn a_delta_does_not_shorten_the_list() {
        let known = KnownEntries::default().after_document(prints(0..600)).after_delta(prints([1000, 7]));
        assert_eq!((known.len(), &known.list[..3]), (600, &[1000, 7, 0].map(of)[..]));
        let short = KnownEntries::default().after_document(prints(0..5)).after_delta(prints([9]));
        assert_eq!(short.len(), 6);
    }

    #[test]
    fn entries_are_found_by_content_and_by_identity() {
        let print = |identity: u64, content: u64| Fingerprint(identity << 32 | content);
        let known = KnownEntries::default().after_document([print(3, 4), print(1, 2), print(u64::MAX >> 32, 7)]);
        let reduced = known.by_identity_alone(&[print(1, 2), print(9, 9)]);
        assert_eq!(reduced.list, [print(3, 4), print(1, 0), print(u64::MAX >> 32, 7)]);
        for (list, is_whole) in [(&known, true), (&reduced, false)] {
            let lookup = list.lookup();
            assert!(lookup.contains(print(3, 4)) && !lookup.contains(print(3, 5)));
            assert_eq!(lookup.contains(print(1, 2)), is_whole);
            let identities = [0, 1, 2, 3, 4, u64::MAX >> 32].map(|identity| lookup.knows_identity(print(identity, 5)));
            assert_eq!(identities, [false, true, false, true, false, true]);
        }
        assert!(!KnownEntries::default().lookup().knows_identity(print(1, 2)));
    }

    #[test]
    fn an_edit_that_is_taken_back_is_news_until_its_forms_alternate() {
        let print = |content: u64| Fingerprint(7 << 32 | content);
        let other = Fingerprint(9 << 32 | 1);
        let mut known = KnownEntries::default().after_document([print(1), other]);
        let edits = [(2, true), (1, true), (3, true), (1, true), (2, true)];
        let alternating = [(1, false), (2, false), (4, true)];
        for (form, is_news) in edits.into_iter().chain(alternating) {
            assert_eq!(!known.contains(print(form)), is_news, "{form} after {:?}", known.list);
            known = KnownEntries::from_bytes(&known.after_document([print(form), other]).to_bytes());
            assert!(known.contains(print(form)) && known.contains(other));
        }
        let all = |content: u64| (0..1000).map(move |identity| Fingerprint(identity << 32 | content));
        let edited = KnownEntries::default().after_document(all(1)).after_document(all(2));
        assert_eq!((edited.len(), edited.replaced.len()), (1000, KnownEntries::REPLACED));
        assert!(!edited.contains(Fingerprint(999 << 32 | 1)));
    }

    #[test]
    fn a_form_that_stays_after_it_alternated_is_news_once_more() {
        let print = |content: u64| Fingerprint(7 << 32 | content);
        let other = Fingerprint(9 << 32 | 1);
        let mut known = KnownEntries::default().after_document([print(1), other]);
        let mut is_news = |form: u64| {
            let is_news = !known.contains(print(form));
            let next = known.after_document([print(form), other]);
            known = KnownEntries::from_bytes(&next.to_bytes());
            assert_eq!(known, next);
            is_news
        };
        assert_eq!([2, 1, 2].map(&mut is_news), [true; 3]);
        // What was reported last is form 2.
        assert_eq!([1, 2, 1, 1, 1, 2, 2, 1].map(&mut is_news), [false; 8]);
        let news: Vec<bool> = (0..20).map(|_| is_news(1)).collect();
        let expected: Vec<bool> = (0..20).map(|number| number == STEADY_AFTER).collect();
        assert_eq!(news, expected);
        assert_eq!([2, 1, 2, 1].map(&mut is_news), [true, true, true, false], "it begins again");
    }

    #[test]
    fn a_message_of_jobs_with_the_longest_lists_is_small_enough_for_a_broker() {
        let most = KnownEntries::MOST as u64;
        let known = KnownEntries::default().after_push(prints(most..2 * most)).after_document(prints(0..most));
        let pushed = known.after_push(prints(most..2 * most));
        assert_eq!(pushed.len(), KnownEntries::MOST + KnownEntries::LIMIT);
        let json = serde_json::to_string(&pushed).unwrap().len();
        // RabbitMQ accepts 16 MB by default.
        assert!(json * crate::config::defaults().worker.job_batch < 8 << 20, "{json}");
    }

    #[test]
    fn json_and_bytes_come_back_equal() {
        let known = KnownEntries::default().after_document([1, u64::MAX].map(Fingerprint));
        let json = serde_json::to_string(&known).unwrap();
        assert_eq!(json, "\"AQAAAAAAAAD//////////w\"");
        assert_eq!(serde_json::from_str::<KnownEntries>(&json).unwrap(), known);
    }

    #[test]
    fn what_was_pushed_is_known_and_is_no_news_only_after_the_next_poll() {
        let pushed = KnownEntries::default().after_document(prints([1, 2])).after_push(prints([3, 1]));
        let pushed = pushed.after_push(prints([4]));
        assert_eq!(pushed.list, [4, 3, 1, 2].map(of));
        assert_eq!(KnownEntries::from_bytes(&pushed.to_bytes()), pushed);
        assert_eq!(pushed.polled().list, [1, 2].map(of));
        assert!(pushed.contains(of(3)) && !pushed.polled().contains(of(3)));
        assert_eq!(pushed.without(&[of(3), of(2)]).polled().list, [of(1)]);
        let polled = pushed.after_document(prints([4, 3]));
        assert_eq!((polled.polled(), polled.len()), (polled.clone(), 4));
        let many = polled.after_push(prints(10..2000));
        assert_eq!((many.pushed().len(), many.polled()), (KnownEntries::LIMIT, polled));
        assert_eq!(many.after_push(prints(3000..4000)).len(), many.len());
        assert_eq!(KnownEntries::from_bytes(&many.to_bytes()), many);
    }
}
