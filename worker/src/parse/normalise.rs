//! From what an engine read to what may be reported: within limits, with absolute links and stable identities.
//!
//! **Identity.** An entry's id is its guid or id; without one its link; without that a hash of title and date; without
//! those a hash of its content. Ids beyond [`MAX_ID_BYTES`] are replaced by their hash. Nothing random, nothing positional:
//! the same entry has the same id at every poll, wherever it stands in the document.
//!
//! **Equal ids inside one document.** Some feeds give every item the same guid, others list an entry twice. Among the
//! entries of one id the first of link, title, date and content that is not the same for all of them tells which are
//! different: each of those gets an id made of the common one and a hash of that field, whatever the order; of entries
//! that are equal in it the first is kept.

use std::collections::HashMap;

use common::entry::{Enclosure, Entry};
use url::Url;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::draft::{Draft, DraftEntry};
use super::text::{self, Markup};
use super::{ParseLimits, ParsedFeed};

/// Longest id that is kept as it is, in bytes.
pub(super) const MAX_ID_BYTES: usize = 1024;
/// Longest title, author, language, in bytes: what is shown on a line.
const MAX_LINE_BYTES: usize = 16 * 1024;
/// Longest URL, in bytes; a longer one is dropped, because half a URL is none.
const MAX_URL_BYTES: usize = common::feed::FeedUrl::MAX_LENGTH;

/// Brings a feed into its final form.
pub(super) fn finish(draft: Draft, base: Option<&Url>, limits: &ParseLimits) -> ParsedFeed {
    let mut cut = false;
    let entries = draft.entries.into_iter().take(limits.max_entries);
    ParsedFeed {
        title: title(draft.title, draft.title_markup, &mut cut),
        link: draft.link.and_then(|link| absolute(&link, base)),
        id: text::cleaned(draft.id).map(bounded_id),
        language: line(draft.language, &mut cut),
        hints: draft.announced.hints,
        hub: draft.announced.hub.and_then(|hub| absolute(&hub, base)),
        self_link: draft.announced.self_link.and_then(|link| absolute(&link, base)),
        cloud: line(draft.announced.cloud, &mut cut),
        entries: distinguished(entries.map(|entry| finish_entry(entry, base, limits)).collect()),
        repaired: false,
        truncated: false,
    }
}

fn finish_entry(draft: DraftEntry, base: Option<&Url>, limits: &ParseLimits) -> Entry {
    let DraftEntry { entry, title_markup } = draft;
    let mut cut = entry.cut;
    let mut finished = Entry {
        id: String::new(),
        url: entry.url.and_then(|url| absolute(&url, base)),
        title: title(entry.title, title_markup, &mut cut),
        published: entry.published,
        updated: entry.updated,
        author: line(entry.author, &mut cut),
        summary: long_text(entry.summary, limits.max_text_bytes, &mut cut),
        content: long_text(entry.content, limits.max_text_bytes, &mut cut),
        enclosures: entry.enclosures.into_iter().filter_map(|enclosure| finish_enclosure(enclosure, base)).collect(),
        cut: false,
    };
    finished.cut = cut;
    finished.id = match text::cleaned(entry.id) {
        Some(id) => bounded_id(id),
        None => made_up_id(&finished),
    };
    finished
}

fn finish_enclosure(enclosure: Enclosure, base: Option<&Url>) -> Option<Enclosure> {
    let mut cut = false;
    let media_type = line(enclosure.media_type, &mut cut).filter(|_| !cut);
    Some(Enclosure { url: absolute(&enclosure.url, base)?, media_type, length: enclosure.length })
}

fn title(raw: Option<String>, markup: Option<Markup>, cut: &mut bool) -> Option<String> {
    let mut raw = raw?;
    *cut |= text::cut(&mut raw, MAX_LINE_BYTES);
    let plain = markup.map_or(raw.as_str().into(), |markup| text::plain(&raw, markup));
    text::cleaned(text::on_one_line(&plain).into_owned())
}

fn line(raw: Option<String>, cut: &mut bool) -> Option<String> {
    title(raw, None, cut)
}

fn long_text(raw: Option<String>, max: usize, cut: &mut bool) -> Option<String> {
    let mut cleaned = text::cleaned(raw?)?;
    *cut |= text::cut(&mut cleaned, max);
    Some(cleaned)
}

/// A link made absolute. What would run in a reader's browser, and what is too long, is none; so is nothing.
fn absolute(link: &str, base: Option<&Url>) -> Option<String> {
    if link.len() > MAX_URL_BYTES {
        return None;
    }
    let link = text::cleaned(link.to_owned())?;
    let absolute = match (Url::parse(&link), base) {
        (Ok(url), _) => url.into(),
        (Err(_), Some(base)) => base.join(&link).map_or(link, String::from),
        (Err(_), None) => link,
    };
    let scheme = absolute.split(':').next().unwrap_or("").to_ascii_lowercase();
    let runs = matches!(scheme.as_str(), "javascript" | "data" | "vbscript");
    (!runs && absolute.len() <= MAX_URL_BYTES).then_some(absolute)
}

fn bounded_id(id: String) -> String {
    if id.len() > MAX_ID_BYTES { hashed_id(&[Some(id.as_str())]) } else { id }
}

/// An id for an entry whose publisher gave none.
fn made_up_id(entry: &Entry) -> String {
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
    format!("xxh3:{:032x}", xxh3_128(&bytes))
}

/// What tells two entries of one id apart, in the order of trust.
const DISTINCTIONS: [fn(&Entry) -> String; 4] = [
    |entry| entry.url.clone().unwrap_or_default(),
    |entry| entry.title.clone().unwrap_or_default(),
    |entry| entry.published.map(|at| at.to_string()).unwrap_or_default(),
    |entry| format!("{:?}{:?}", entry.content, entry.summary),
];

/// Makes ids unique: see the module's description.
fn distinguished(entries: Vec<Entry>) -> Vec<Entry> {
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
        let suffixes = suffixes(places.iter().filter_map(|at| entries[*at].as_ref()));
        let mut seen = std::collections::HashSet::new();
        for (at, suffix) in places.into_iter().zip(suffixes) {
            if !seen.insert(suffix) {
                entries[at] = None;
            } else if let (Some(entry), Some(suffix)) = (entries[at].as_mut(), suffix) {
                entry.id = format!("{}#{suffix:016x}", entry.id);
            }
        }
    }
    entries.into_iter().flatten().collect()
}

/// A hash of the first field in which the entries differ, for each of them; nothing where they do not.
fn suffixes<'e>(entries: impl Iterator<Item = &'e Entry> + Clone) -> Vec<Option<u64>> {
    for distinction in DISTINCTIONS {
        let values: Vec<u64> = entries.clone().map(|entry| xxh3_64(distinction(entry).as_bytes())).collect();
        if values.windows(2).any(|pair| pair[0] != pair[1]) {
            return values.into_iter().map(Some).collect();
        }
    }
    entries.map(|_| None).collect()
}
