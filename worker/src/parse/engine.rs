//! The XML engine: feed-rs, from its model to ours.
//!
//! What it is given has passed the guard, so that it cannot exhaust the stack or the memory; it may still panic, which
//! the caller catches. Deliberately not here: ids, limits of size, and anything that needs more than one entry: see
//! `normalise`.

use common::entry::{Enclosure, Entry};
use common::time::Timestamp;
use feed_rs::model;
use url::Url;

use super::dates;
use super::draft::{Draft, DraftEntry};
use super::guard::{Root, Surveyed};
use super::text::Markup;

/// Reads a document that the guard let through.
pub(super) fn read(document: &Surveyed<'_>, base: Option<&Url>) -> Result<Draft, String> {
    let parser = feed_rs::parser::Builder::new()
        .base_uri(base)
        .sanitize_content(false)
        .timestamp_parser(dates::parse)
        // An empty id is recognised later, with the whole entry at hand.
        .id_generator(|_, _, _| String::new())
        .build();
    let feed = parser.parse(document.text.as_bytes()).map_err(|error| error.to_string())?;
    let mut draft = Draft {
        title: feed.title.as_ref().map(|title| title.content.clone()),
        title_markup: feed.title.as_ref().and_then(|title| markup(title, document.root)),
        link: chosen_link(&feed.links),
        id: feed.id,
        language: feed.language,
        announced: document.announced.clone(),
        entries: feed.entries.into_iter().map(|entry| draft_entry(entry, document.root)).collect(),
    };
    if draft.entries.len() == document.entries {
        for (at, enclosure) in &document.enclosures {
            let absolute = base.and_then(|base| base.join(&enclosure.url).ok()).map(String::from);
            let url = absolute.unwrap_or_else(|| enclosure.url.clone());
            draft.entries[*at].add_enclosure(Enclosure { url, ..enclosure.clone() });
        }
    }
    Ok(draft)
}

fn draft_entry(entry: model::Entry, root: Root) -> DraftEntry {
    let is_rss = matches!(root, Root::Rss | Root::Rdf);
    let out_of_line = entry.content.as_ref().and_then(|content| content.src.as_ref()).map(|source| source.href.clone());
    let url = chosen_link(&entry.links).or_else(|| permalink(&entry.id));
    // The engine repeats RSS' date of publication as that of change.
    let updated = entry.updated.filter(|updated| !is_rss || Some(*updated) != entry.published);
    let authors: Vec<String> = entry.authors.into_iter().filter_map(|author| author.name.or(author.email)).collect();
    let described = entry.media.iter().find_map(|media| media.description.as_ref()).map(|text| text.content.clone());
    let mut draft = DraftEntry {
        title_markup: entry.title.as_ref().and_then(|title| markup(title, root)),
        entry: Entry {
            id: entry.id,
            url: url.or_else(|| out_of_line.filter(|_| !is_rss)),
            title: entry.title.map(|title| title.content),
            published: entry.published.map(Timestamp::from_chrono),
            updated: updated.map(Timestamp::from_chrono),
            author: (!authors.is_empty()).then(|| authors.join(", ")),
            summary: entry.summary.map(|summary| summary.content).or(described),
            content: entry.content.and_then(|content| content.body),
            ..Entry::default()
        },
    };
    for link in entry.links.into_iter().filter(|link| link.rel.as_deref() == Some("enclosure")) {
        draft.add_enclosure(Enclosure { url: link.href, media_type: link.media_type, length: link.length });
    }
    for content in entry.media.into_iter().flat_map(|media| media.content) {
        let Some(url) = content.url else { continue };
        let media_type = content.content_type.map(|media_type| media_type.to_string());
        draft.add_enclosure(Enclosure { url: url.into(), media_type, length: content.size });
    }
    draft
}

/// Where a reader should be sent: Atom's alternate, a page before any other type; else RSS' plain link.
fn chosen_link(links: &[model::Link]) -> Option<String> {
    let is_page = |link: &model::Link| link.media_type.as_deref().is_none_or(|media_type| media_type.contains("html"));
    let is_alternate = |link: &model::Link| link.rel.as_deref() == Some("alternate");
    let plain = |link: &model::Link| link.rel.is_none() && link.target.is_none();
    let order: [&dyn Fn(&model::Link) -> bool; 3] =
        [&plain, &|link| is_alternate(link) && is_page(link), &is_alternate];
    order
        .iter()
        .find_map(|wanted| links.iter().find(|link| wanted(link) && !link.href.is_empty()))
        .map(|link| link.href.clone())
}

/// An RSS guid is a link unless it says otherwise; the engine keeps no word of that, so only web addresses count.
fn permalink(id: &str) -> Option<String> {
    let is_web = id.starts_with("http://") || id.starts_with("https://");
    is_web.then(|| id.to_owned())
}

/// Atom says what a text is. RSS does not, and HTML in its titles is common.
fn markup(text: &model::Text, root: Root) -> Option<Markup> {
    match (root, text.content_type.as_str()) {
        (Root::Rss | Root::Rdf, _) => Some(Markup::Formatting),
        (_, "text/plain") => None,
        _ => Some(Markup::All),
    }
}
