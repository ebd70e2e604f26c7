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

use std::borrow::Cow;
use std::collections::HashMap;

use common::document::Onward;
use common::entry::{Enclosure, Entry};
use url::Url;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::draft::{Draft, DraftEntry, File, Text};
use super::link::Link;
use super::links::{self, Links};
use super::text;
use super::{ParseLimits, ParsedFeed};

/// Longest id that is kept as it is, in bytes.
pub(super) const MAX_ID_BYTES: usize = 1024;
/// Longest title, in bytes: what is shown on a line.
const MAX_LINE_BYTES: usize = 16 * 1024;
/// Longest list of authors, media type or category, in bytes: what may be repeated in every entry.
const MAX_NAME_BYTES: usize = 1024;
/// Longest name of a language (RFC 5646, section 4.4.1), in bytes.
const MAX_LANGUAGE_BYTES: usize = 35;

/// Brings a feed into its final form.
pub(super) fn finish(draft: Draft<'_>, base: Option<&Url>, limits: &ParseLimits) -> ParsedFeed {
    let mut links = Links::new(base);
    let announced = draft.announced;
    let hints = announced.hints();
    let language = language(draft.language.into_option());
    let authors = authors(draft.authors.into_option());
    let common = Common { limits, language: language.clone(), authors };
    let entries = draft.entries.into_iter().take(limits.max_entries);
    let entries = entries.map(|entry| finish_entry(entry, &common, &mut links)).collect();
    let mut absolute = |link: Option<Link<'_>>| link.and_then(|link| links.absolute(&link));
    ParsedFeed {
        title: title(draft.title.into_option(), &mut false),
        link: absolute(draft.link.into_option()),
        id: draft.id.into_option().and_then(text::cleaned).map(bounded_id),
        language,
        hints,
        hub: absolute(announced.hub),
        self_link: absolute(announced.self_link),
        onward: Onward {
            next: absolute(announced.next),
            prev_archive: absolute(announced.prev_archive),
            new_feed_url: absolute(announced.new_feed_url),
            expired: announced.expired,
        },
        cloud: announced.cloud.and_then(|cloud| name(cloud.into(), MAX_NAME_BYTES)),
        entries: distinguished(entries),
        repaired: false,
        truncated: false,
    }
}

/// What is the same for all entries of a document.
struct Common<'l> {
    limits: &'l ParseLimits,
    language: Option<String>,
    authors: Option<String>,
}

fn finish_entry(draft: DraftEntry<'_>, common: &Common<'_>, links: &mut Links<'_>) -> Entry {
    let mut cut = draft.cut;
    let max = common.limits.max_text_bytes;
    let id = draft.id.into_option().and_then(text::cleaned);
    let link = draft.link.into_option().and_then(|link| links.absolute(&link));
    let url = link.or_else(|| permalink(id.as_deref()?, draft.id_is_link, links));
    let mut entry = Entry {
        id: String::new(),
        url,
        title: title(draft.title.into_option(), &mut cut),
        published: draft.published.into_option(),
        updated: draft.updated.into_option(),
        author: authors(draft.authors.into_option()).or_else(|| common.authors.clone()),
        summary: long_text(draft.summary.into_option(), max, &mut cut),
        content: long_text(draft.content.into_option(), max, &mut cut),
        enclosures: draft.files.into_iter().filter_map(|file| enclosure(file, links)).collect(),
        categories: draft.categories.into_iter().filter_map(|category| name(category, MAX_NAME_BYTES)).collect(),
        language: language(draft.language.into_option()).or_else(|| common.language.clone()),
        ..Entry::default()
    };
    entry.cut = cut;
    let text = entry.content.as_deref().or(entry.summary.as_deref());
    if let Some(text) = text {
        entry.links = links.of_text(text, entry.url.as_deref());
        entry.first_words = if entry.title.is_none() { links::first_words(text) } else { None };
    }
    entry.id = match id {
        Some(id) => bounded_id(id),
        None => made_up_id(&entry),
    };
    entry
}

/// RSS' guid is a link unless it says otherwise, and many who do not say so give anything: then only a web address counts.
fn permalink(id: &str, said: Option<bool>, links: &mut Links<'_>) -> Option<String> {
    let is_web = id.starts_with("http://") || id.starts_with("https://");
    let is_link = said.unwrap_or(is_web);
    is_link.then(|| links.absolute(&Link { href: id.into(), base: None }))?
}

fn enclosure(file: File<'_>, links: &mut Links<'_>) -> Option<Enclosure> {
    let url = links.absolute(&file.link)?;
    let media_type = file.media_type.filter(|media_type| media_type.len() <= MAX_NAME_BYTES);
    Some(Enclosure {
        url,
        media_type: media_type.and_then(|media_type| name(media_type, MAX_NAME_BYTES)),
        length: file.length,
    })
}

fn title(title: Option<Text<'_>>, cut: &mut bool) -> Option<String> {
    let Text { mut raw, markup } = title?;
    *cut |= text::cut(&mut raw, MAX_LINE_BYTES);
    let plain = match markup {
        Some(markup) => text::plain(&raw, markup),
        None => Cow::Borrowed(&*raw),
    };
    text::cleaned(text::on_one_line(&plain))
}

/// A short text on one line, cut without a word.
fn name(mut name: Cow<'_, str>, max: usize) -> Option<String> {
    text::cut(&mut name, max);
    text::cleaned(text::on_one_line(&name))
}

fn authors(names: Option<Vec<Cow<'_, str>>>) -> Option<String> {
    let names = names?;
    let joined = match names.as_slice() {
        [single] => Cow::Borrowed(&**single),
        several => several.join(", ").into(),
    };
    name(joined, MAX_NAME_BYTES)
}

fn language(written: Option<Cow<'_, str>>) -> Option<String> {
    let language = name(written?, MAX_NAME_BYTES)?;
    (language.len() <= MAX_LANGUAGE_BYTES).then(|| language.to_ascii_lowercase())
}

fn long_text(text: Option<Cow<'_, str>>, max: usize, cut: &mut bool) -> Option<String> {
    let mut text = text?;
    *cut |= text::cut(&mut text, max);
    text::cleaned(text)
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
