//! From what an engine read to what may be reported: within limits, with absolute links and stable identities.
//!
//! An entry's id is its guid or id; without one `identity` makes one up.

mod bounds;
mod details;

use std::borrow::Cow;
use std::rc::Rc;

use common::document::Onward;
use common::entry::{Author, Entry, EntryDetails};
use url::Url;

use super::draft::{Draft, DraftEntry};
use super::identity::{self, bounded_id, made_up_id};
use super::link::Link;
use super::links::{self, Links};
use super::one_line::{MAX_NAME_BYTES, name, title};
use super::text;
use super::{ParseError, ParseLimits, ParsedFeed};
use bounds::Budget;

/// Longest name of a language (RFC 5646, section 4.4.1), in bytes.
const MAX_LANGUAGE_BYTES: usize = 35;

/// Converts a feed to its final form. Fails only when the deadline passes.
pub(super) fn finish(draft: Draft<'_>, base: Option<&Url>, limits: &ParseLimits) -> Result<ParsedFeed, ParseError> {
    let mut links = Links::new(base);
    let announced = draft.announced;
    let hints = announced.hints();
    let language = language(draft.language.into_option());
    let names = names(draft.authors.into_option());
    let persons = details::persons(draft.about.fields.authors.iter(), &names, Budget::inherited(), None, &mut links);
    let common = Common { limits, language: language.clone(), authors: authors(names), persons };
    let entries = draft.entries.into_iter().take(limits.max_entries);
    let entries = entries.map(|entry| match limits.is_late() {
        true => Err(ParseError::late()),
        false => Ok(finish_entry(entry, &common, &mut links)),
    });
    let entries = entries.collect::<Result<_, _>>()?;
    let about = details::finish_about(draft.about, language.clone(), &mut links).map(Box::new);
    let mut absolute = |link: Option<Link<'_>>| link.and_then(|link| links.absolute(&link));
    Ok(ParsedFeed {
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
            about,
        },
        cloud: announced.cloud.and_then(|cloud| name(cloud.into(), MAX_NAME_BYTES)),
        entries: identity::distinguished(entries),
        repaired: false,
        truncated: false,
    })
}

/// What is the same for all entries of a document.
struct Common<'l> {
    limits: &'l ParseLimits,
    language: Option<String>,
    authors: Option<String>,
    /// The authors one by one, if that says more than their names together.
    persons: Vec<Author>,
}

fn finish_entry(draft: DraftEntry<'_>, common: &Common<'_>, links: &mut Links<'_>) -> Entry {
    let mut cut = draft.cut;
    let max = common.limits.max_text_bytes.min(text::MAX_TEXT_BYTES);
    let id = draft.id.into_option().and_then(text::cleaned);
    let mut more = draft.details;
    let original = more.as_mut().and_then(|more| links.absolute(&more.original_link.take()?));
    let link = original.or_else(|| links.absolute(&draft.link.into_option()?));
    let url = link.or_else(|| permalink(id.as_deref()?, draft.id_is_link, draft.id_base, links));
    let names = names(draft.authors.into_option());
    let persons = match &more {
        _ if names.is_empty() => common.persons.clone(),
        Some(more) => {
            let known = more.authors.iter().map(|(_, known)| known);
            details::persons(known, &names, Budget::new(), more.base.as_ref(), links)
        }
        None => details::persons([].iter(), &names, Budget::new(), None, links),
    };
    let mut entry = Entry {
        id: String::new(),
        url,
        title: title(draft.title.into_option(), &mut cut),
        published: draft.published.into_option(),
        updated: draft.updated.into_option(),
        author: authors(names).or_else(|| common.authors.clone()),
        summary: long_text(draft.summary.into_option(), max, &mut cut),
        content: long_text(draft.content.into_option(), max, &mut cut),
        enclosures: draft.files.into_iter().filter_map(|file| details::enclosure(file, links)).collect(),
        categories: draft.categories.into_iter().filter_map(|category| name(category, MAX_NAME_BYTES)).collect(),
        language: language(draft.language.into_option()).or_else(|| common.language.clone()),
        ..Entry::default()
    };
    entry.cut = cut;
    let text = entry.content.as_deref().or(entry.summary.as_deref());
    let base = if entry.content.is_some() { draft.content_base } else { draft.summary_base };
    let has_text = text.is_some();
    if let Some(text) = text {
        entry.links = links.of_text(text, base.as_ref().map(|base| base.as_str()).or(entry.url.as_deref()));
        entry.first_words = if entry.title.is_none() { links::first_words(text) } else { None };
    }
    if let Some(more) = more {
        let more = details::finish(*more, links);
        entry.details = (more != EntryDetails::default()).then(|| Box::new(more));
    }
    if !persons.is_empty() {
        entry.details_mut().authors = persons;
    }
    let base = base.filter(|base| has_text && entry.url.as_deref() != Some(base.as_str()));
    if let Some(base) = base.and_then(|base| links.copy_of(&base)) {
        entry.details_mut().base_url = Some(base);
    }
    entry.id = match id {
        Some(id) => bounded_id(id),
        None => made_up_id(&entry),
    };
    entry
}

/// RSS' guid is a link unless it says otherwise, and many publishers write anything without saying so: then only a web
/// address counts.
fn permalink(id: &str, said: Option<bool>, base: Option<Rc<Url>>, links: &mut Links<'_>) -> Option<String> {
    let is_web = id.starts_with("http://") || id.starts_with("https://");
    let is_link = said.unwrap_or(is_web);
    is_link.then(|| links.absolute(&Link { href: id.into(), base }))?
}

/// Names as they are shown.
fn names(written: Option<Vec<Cow<'_, str>>>) -> Vec<String> {
    written.unwrap_or_default().into_iter().filter_map(|author| name(author, MAX_NAME_BYTES)).collect()
}

fn authors(mut names: Vec<String>) -> Option<String> {
    if names.len() < 2 { names.pop() } else { name(names.join(", ").into(), MAX_NAME_BYTES) }
}

fn language(written: Option<Cow<'_, str>>) -> Option<String> {
    let language = name(written?, MAX_NAME_BYTES)?;
    (language.len() <= MAX_LANGUAGE_BYTES).then(|| language.to_ascii_lowercase().replace('_', "-"))
}

fn long_text(text: Option<Cow<'_, str>>, max: usize, cut: &mut bool) -> Option<String> {
    let mut text = text?;
    *cut |= text::cut(&mut text, max);
    text::cleaned(text)
}
