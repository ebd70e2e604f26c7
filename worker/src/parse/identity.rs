//! Ids that stay what they are: of entries without any, of those that share one with others, and of those that no longer do.
//!
//! **Entries without an id.** Their link is their id; without that a hash of title and date; without those a hash of the content. An id
//! that is too long is replaced by its hash. Nothing random, nothing positional: the same entry has the same id at every poll, wherever it
//! is in the document.
//!
//! **Equal ids inside one document.** Some feeds give every item the same guid, others list an entry twice. Among the
//! entries of one id the first of link, title, date and content that is not the same for all of them shows which are
//! different: each of those gets an id made of the common one and a hash of that field, whatever the order; among entries
//! that are equal in it the next field decides, and of those that are equal in all the first is kept.
//!
//! **From one document to the next.** Entries come and go, so that one is alone with its id today and shares it tomorrow, or
//! another field is the first that differs. [`steady`] gives an entry the id that it is known by, so that it is not announced
//! again. What is known is a bounded list, and no more is stored for this.

use std::collections::{HashMap, HashSet};

use chrono::Datelike;
use common::entry::{Entry, Fingerprint};
use common::known::KnownEntries;
use common::time::Timestamp;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// Longest id that is kept as it is, in bytes.
const MAX_ID_BYTES: usize = 1024;
/// The beginning of ids that are hashes.
const MADE_UP: &str = "xxh3:";
/// The fields that distinguish two entries of one id, in the order of trust.
const DISTINCTIONS: [fn(&Entry) -> String; 4] = [
    |entry| entry.url.clone().unwrap_or_default(),
    |entry| entry.title.clone().unwrap_or_default(),
    |entry| entry.published.map(|at| at.to_string()).unwrap_or_default(),
    |entry| format!("{:?}{:?}", entry.content, entry.summary),
];

/// Makes ids unique: see the module's description.
pub(super) fn distinguished(entries: Vec<Entry>) -> Vec<Entry> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::with_capacity(entries.len());
    for (at, entry) in entries.iter().enumerate() {
        places.entry(entry.id.as_str()).or_default().push(at);
    }
    let shared: Vec<Vec<usize>> = places.into_values().filter(|places| places.len() > 1).collect();
    if shared.is_empty() {
        return entries;
    }
    let mut entries: Vec<Option<Entry>> = entries.into_iter().map(Some).collect();
    for places in shared {
        let of_one_id: Vec<&Entry> = places.iter().filter_map(|at| entries[*at].as_ref()).collect();
        let suffixes = suffixes(&of_one_id, &DISTINCTIONS);
        let mut seen = HashSet::new();
        for (at, suffix) in places.into_iter().zip(suffixes) {
            if !seen.insert(suffix) {
                entries[at] = None;
            } else if let (Some(entry), Some(suffix)) = (entries[at].as_mut(), suffix) {
                entry.id = with_suffix(&entry.id, suffix);
            }
        }
    }
    entries.into_iter().flatten().collect()
}

/// Returns for each of the entries a hash of the first of these fields in which it differs from the others; nothing where none does.
fn suffixes(entries: &[&Entry], distinctions: &[fn(&Entry) -> String]) -> Vec<Option<u64>> {
    let Some((distinction, further)) = distinctions.split_first() else { return vec![None; entries.len()] };
    let values: Vec<u64> = entries.iter().map(|entry| xxh3_64(distinction(entry).as_bytes())).collect();
    let mut equal: HashMap<u64, Vec<usize>> = HashMap::new();
    values.iter().enumerate().for_each(|(at, value)| equal.entry(*value).or_default().push(at));
    if equal.len() == 1 {
        return suffixes(entries, further);
    }
    let mut suffixes_found: Vec<Option<u64>> = values.into_iter().map(Some).collect();
    for places in equal.into_values().filter(|places| places.len() > 1) {
        let alike: Vec<&Entry> = places.iter().map(|at| entries[*at]).collect();
        for (at, suffix) in places.into_iter().zip(suffixes(&alike, further)) {
            suffixes_found[at] = suffix.or(suffixes_found[at]);
        }
    }
    suffixes_found
}

fn with_suffix(id: &str, suffix: u64) -> String {
    format!("{id}#{suffix:016x}")
}

/// Gives entries the ids that they are known by, where a document without or with others of their id gave them another one.
pub(crate) fn steady(entries: &mut [Entry], known: &KnownEntries) {
    if known.is_empty() {
        return;
    }
    let known = known.lookup();
    let is_known = |id: &str| known.knows_identity(Fingerprint::of_identity(id));
    let mut taken: HashSet<String> = entries.iter().map(|entry| entry.id.clone()).collect();
    // Entries of a common id that are not known by any of theirs, by that id.
    let mut strangers: HashMap<String, Vec<usize>> = HashMap::new();
    for (at, entry) in entries.iter_mut().enumerate() {
        if known.contains(entry.fingerprint()) {
            continue;
        }
        // Only of an entry that is known: the content of each new one would be copied and hashed once more.
        let swapped = if is_known(&entry.id) { with_swapped_dates(entry) } else { None };
        if let Some(swapped) = swapped.filter(|swapped| known.contains(swapped.fingerprint())) {
            *entry = swapped;
            continue;
        }
        if let Some(swapped) =
            dated_otherwise(entry).filter(|swapped| is_known(&swapped.id) && !taken.contains(&swapped.id))
        {
            taken.insert(swapped.id.clone());
            *entry = swapped;
            continue;
        }
        let (common, is_shared) = common_id(entry);
        if is_shared && is_known(&entry.id) {
            continue;
        }
        let candidates = DISTINCTIONS.map(|distinction| with_suffix(common, xxh3_64(distinction(entry).as_bytes())));
        let moved = if is_known(&entry.id) { Vec::new() } else { addresses_before(entry) };
        let found = candidates.into_iter().chain(moved).find(|id| is_known(id) && !taken.contains(id));
        let common = common.to_owned();
        match found {
            Some(id) => {
                taken.insert(id.clone());
                entry.id = id;
            }
            None if is_shared => strangers.entry(common).or_default().push(at),
            None => {}
        }
    }
    for (id, places) in strangers {
        if !is_known(&id) || taken.contains(&id) {
            continue;
        }
        // One may have been alone with the id: the one that reads as it did then. A guess at one that was edited
        // meanwhile could make a new entry look like an edit, and no event would announce it.
        let as_before = |at: &usize| known.contains(Entry { id: id.clone(), ..entries[*at].clone() }.fingerprint());
        if let Some(at) = places.into_iter().find(as_before) {
            entries[at].id = id;
        }
    }
}

/// Returns an entry with days for months and months for days in its dates, if that makes another date: how a date like `5/6/2021` is
/// read depends on the others of its document, and is not to change with them.
fn with_swapped_dates(entry: &Entry) -> Option<Entry> {
    let swapped = |at: Timestamp| {
        let at = at.to_chrono();
        let other = at.with_day(1)?.with_month(at.day())?.with_day(at.month())?;
        (other != at).then(|| Timestamp::from_chrono(other))
    };
    let (published, updated) = (entry.published.and_then(swapped), entry.updated.and_then(swapped));
    if published.is_none() && updated.is_none() {
        return None;
    }
    Some(Entry { published: published.or(entry.published), updated: updated.or(entry.updated), ..entry.clone() })
}

/// Returns an entry whose id was made from its date, with days for months and months for days in both.
fn dated_otherwise(entry: &Entry) -> Option<Entry> {
    if entry.url.is_some() || !entry.id.starts_with(MADE_UP) {
        return None;
    }
    let swapped = with_swapped_dates(entry).filter(|_| made_up_id(entry) == entry.id)?;
    Some(Entry { id: made_up_id(&swapped), ..swapped })
}

/// Returns the other ids that an entry may be known by whose id is its address: that of its site before it began to use TLS, or to be
/// called `www`, or the reverse of both.
fn addresses_before(entry: &Entry) -> Vec<String> {
    if entry.url.as_ref() != Some(&entry.id) {
        return Vec::new();
    }
    let Some((scheme, rest)) = entry.id.split_once("://") else { return Vec::new() };
    let other = match scheme {
        "https" => "http",
        "http" => "https",
        _ => return Vec::new(),
    };
    let renamed = rest.strip_prefix("www.").map_or_else(|| format!("www.{rest}"), str::to_owned);
    vec![format!("{other}://{rest}"), format!("{scheme}://{renamed}"), format!("{other}://{renamed}")]
}

/// Returns the id that an entry shares with others, and whether it does: then its own is made of it and a hash of the
/// entry's.
fn common_id(entry: &Entry) -> (&str, bool) {
    let parts = entry.id.rsplit_once('#').filter(|(_, suffix)| suffix.len() == 16);
    let suffix = parts.and_then(|(common, suffix)| Some((common, u64::from_str_radix(suffix, 16).ok()?)));
    let is_ours = |suffix| DISTINCTIONS.iter().any(|distinction| xxh3_64(distinction(entry).as_bytes()) == suffix);
    match suffix {
        Some((common, suffix)) if is_ours(suffix) => (common, true),
        _ => (&entry.id, false),
    }
}

/// Returns an id, or its hash if it is too long.
pub(super) fn bounded_id(id: String) -> String {
    if id.len() > MAX_ID_BYTES { hashed_id(&[Some(id.as_str())]) } else { id }
}

/// Returns an id for an entry without one.
pub(super) fn made_up_id(entry: &Entry) -> String {
    if let Some(url) = &entry.url {
        return bounded_id(url.clone());
    }
    let published = entry.published.map(|at| at.to_string());
    if entry.title.is_some() || published.is_some() {
        return hashed_id(&[entry.title.as_deref(), published.as_deref()]);
    }
    let enclosure = entry.enclosures.first().map(|enclosure| enclosure.url.as_str());
    hashed_id(&[entry.content.as_deref(), entry.summary.as_deref(), enclosure])
}

fn hashed_id(parts: &[Option<&str>]) -> String {
    let mut bytes = Vec::new();
    for part in parts {
        let part = part.unwrap_or("");
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part.as_bytes());
    }
    format!("{MADE_UP}{:032x}", xxh3_128(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: &str, url: &str, title: &str) -> Entry {
        Entry { id: id.into(), url: Some(url.into()), title: Some(title.into()), ..Entry::default() }
    }

    /// Ids of one document after the other, each by its entries' titles.
    fn ids(documents: &[&[Entry]]) -> Vec<Vec<(String, String)>> {
        let mut known = KnownEntries::default();
        let mut all = Vec::new();
        for document in documents {
            let mut entries = distinguished(document.to_vec());
            steady(&mut entries, &known);
            let unique: HashSet<&str> = entries.iter().map(|entry| entry.id.as_str()).collect();
            assert_eq!(unique.len(), entries.len(), "each id once");
            known = known.after_document(entries.iter().map(Entry::fingerprint));
            all.push(entries.into_iter().map(|entry| (entry.title.unwrap_or_default(), entry.id)).collect());
        }
        all
    }

    /// Each title has one id in all documents, and no two titles have the same.
    fn are_steady(documents: &[&[Entry]]) {
        let mut of_title: HashMap<String, String> = HashMap::new();
        let all = ids(documents);
        for (title, id) in all.iter().flatten() {
            assert_eq!(of_title.entry(title.clone()).or_insert_with(|| id.clone()), id, "{title}: {all:?}");
        }
        let different: HashSet<&String> = of_title.values().collect();
        assert_eq!(different.len(), of_title.len(), "{all:?}");
    }

    #[test]
    fn entries_that_share_an_id_keep_theirs_when_others_leave_and_join() {
        let [a, b, c] = ["a", "b", "c"].map(|name| entry("g", &format!("https://a.example/{name}"), name));
        let alone = [b.clone()];
        are_steady(&[&[a.clone(), b.clone()], &alone, &[c.clone(), b.clone()], &[c.clone(), b, a.clone()], &[c]]);
        let [a, b, c] = ["a", "b", "c"].map(|name| entry("g", "https://status.example/", name));
        let (first, second) = ([a.clone()], [b.clone()]);
        are_steady(&[&first, &[b.clone(), a.clone()], &second, &[c.clone(), b.clone()], &[a, b, c]]);
    }

    #[test]
    fn entries_keep_their_ids_when_another_field_tells_them_apart() {
        let [a, b] = ["a", "b"].map(|name| entry("g", "https://a.example/", name));
        let c = entry("g", "https://a.example/c", "c");
        let documents: [&[Entry]; 2] = [&[a.clone(), b.clone()], &[c, a, b]];
        let all = ids(&documents);
        let before: HashMap<_, _> = all[0].iter().cloned().collect();
        assert_eq!((all[0].len(), all[1].len()), (2, 3), "none is lost: {all:?}");
        for (title, id) in &all[1] {
            assert!(before.get(title).is_none_or(|known| known == id), "{all:?}");
        }
    }

    #[test]
    fn an_entry_whose_id_is_made_of_its_date_keeps_it_when_the_date_is_read_otherwise() {
        let dated = |day: &str, title: &str| {
            let at = format!("{day}T00:00:00Z").parse().unwrap();
            let mut entry =
                Entry { title: Some(title.into()), published: Some(Timestamp::from_chrono(at)), ..Entry::default() };
            entry.id = made_up_id(&entry);
            entry
        };
        let (before, after) = (dated("2021-05-06", "a"), dated("2021-06-05", "a"));
        let all = ids(&[std::slice::from_ref(&before), &[dated("2021-06-13", "b"), after]]);
        assert_eq!(all[1][1].1, before.id);
        assert_ne!(all[1][0].1, before.id);
    }

    #[test]
    fn a_new_entry_is_not_taken_for_an_old_one_that_was_alone_with_the_id() {
        let [a, b, c] = ["a", "b", "c"].map(|name| entry("g", "https://a.example/", name));
        let all = ids(&[&[a], &[c, b]]);
        assert_eq!(all[0][0].1, "g");
        assert!(all[1].iter().all(|(_, id)| id.starts_with("g#")), "{all:?}");
    }

    #[test]
    fn an_entry_whose_id_is_its_address_keeps_it_when_its_site_moves_to_tls_or_another_name() {
        let entry = |at: &str, title: &str| entry(at, at, title);
        for moved in ["https://a.example/", "http://www.a.example/", "https://www.a.example/"] {
            let now = |name: &str| entry(&format!("{moved}{name}"), name);
            let before = ["1", "2"].map(|name| entry(&format!("http://a.example/{name}"), name));
            let after = [now("3"), now("2"), now("1")];
            are_steady(&[&before, &after, &after, &before]);
            let guid = Entry { id: "http://a.example/1".into(), ..now("1") };
            let new_guid =
                Entry { id: format!("{moved}1"), url: Some("http://a.example/other".into()), ..guid.clone() };
            let link = Entry { url: Some(guid.id.clone()), ..guid.clone() };
            assert_eq!(ids(&[&[link], &[now("1")]])[1][0].1, "http://a.example/1", "a guid that is the link");
            assert_ne!(
                ids(&[&[guid], std::slice::from_ref(&new_guid)])[1][0].1,
                "http://a.example/1",
                "a guid is what it says"
            );
        }
    }

    #[test]
    fn a_date_that_another_entry_lets_read_otherwise_is_no_edit() {
        let dated = |text: &str| Entry {
            published: Some(text.parse::<chrono::DateTime<chrono::Utc>>().map(Timestamp::from_chrono).unwrap()),
            ..entry("1", "https://a.example/1", "a")
        };
        let before = dated("2021-05-06T10:00:00Z");
        let known = KnownEntries::default().after_document(std::iter::once(before.fingerprint()));
        for (now, kept) in
            [("2021-06-05T10:00:00Z", true), ("2021-06-06T10:00:00Z", false), ("2021-05-06T11:00:00Z", false)]
        {
            let mut entries = [dated(now)];
            steady(&mut entries, &known);
            assert_eq!(entries[0] == before, kept, "{now}");
        }
    }

    #[test]
    fn an_id_that_only_looks_like_one_of_ours_stays() {
        let odd = entry("https://a.example/#0123456789abcdef", "https://a.example/", "a");
        let alone = [odd.clone()];
        assert_eq!(ids(&[&alone, &alone])[1][0].1, odd.id);
    }
}
