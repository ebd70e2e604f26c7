//! The final form of what only some entries have: absolute addresses, and texts that every store takes.

use std::rc::Rc;

use common::document::{FeedAbout, Funding};
use common::entry::{Author, Enclosure, EntryDetails, Extension, Number, Podcast};
use url::Url;

use super::super::draft::{DraftAbout, DraftDetails, File, MAX_MEMBERS};
use super::super::link::Link;
use super::super::links::Links;
use super::super::text;
use super::bounds::{Budget, bounded};
use crate::parse::one_line::{MAX_NAME_BYTES, name, title};

/// Returns the details of an entry, but its authors.
pub(super) fn finish(draft: DraftDetails<'_>, links: &mut Links<'_>) -> EntryDetails {
    let DraftDetails { image, rights, base, mut fields, .. } = draft;
    let mut absolute = |href: &mut Option<String>| {
        let link = href.take().map(|href| Link { href: href.into(), base: base.clone() });
        *href = link.and_then(|link| links.absolute(&link));
    };
    absolute(&mut fields.comments_url);
    absolute(&mut fields.external_url);
    let mut all = |hrefs: &mut Vec<String>| {
        let mut made = std::mem::take(hrefs).into_iter().map(Some);
        made.by_ref().for_each(|mut href| {
            absolute(&mut href);
            hrefs.extend(href);
        });
    };
    all(&mut fields.related);
    if let Some(source) = &mut fields.source {
        absolute(&mut source.url);
        (source.title, source.id) = (tidy(source.title.take()), tidy(source.id.take()));
    }
    if let Some(podcast) = &mut fields.podcast {
        finish_podcast(podcast, &mut absolute);
    }
    fields.source = fields.source.take().filter(|source| *source != Default::default());
    fields.podcast = fields.podcast.take().filter(|podcast| **podcast != Podcast::default());
    fields.image = image.into_option().and_then(|link| links.absolute(&link));
    fields.rights = title(rights.into_option(), &mut false);
    fields.content_type = tidy(fields.content_type.take());
    fields.in_reply_to = std::mem::take(&mut fields.in_reply_to).into_iter().filter_map(|id| tidy(Some(id))).collect();
    let extensions = std::mem::take(&mut fields.extensions).into_iter();
    fields.extensions = extensions.filter_map(|(name, values)| Some((tidy(Some(name))?, extension(values)))).collect();
    bounded(&mut fields);
    fields
}

/// Returns the persons of these names, if that says more than one name does: there are several of them, or more is
/// known of one.
pub(super) fn persons<'k>(
    known: impl Iterator<Item = &'k Author>,
    names: &[String],
    mut left: Budget,
    base: Option<&Rc<Url>>,
    links: &mut Links<'_>,
) -> Vec<Author> {
    // trimmed once: white space may be most of a document
    let known: Vec<(&str, &Author)> = known.map(|author| (author.name.trim(), author)).collect();
    let mut absolute =
        |href: &Option<String>| links.absolute(&Link { href: href.as_ref()?.into(), base: base.cloned() });
    let mut person = |name: &String| {
        let found = known.iter().find(|(trimmed, _)| trimmed == name);
        let Some((_, Author { url, email, avatar, .. })) = found else {
            return Author { name: name.clone(), ..Author::default() };
        };
        Author { name: name.clone(), url: absolute(url), email: tidy(email.clone()), avatar: absolute(avatar) }
    };
    let persons = names.iter().take(MAX_MEMBERS).map(&mut person).filter(|author| left.takes_author(author));
    let persons: Vec<Author> = persons.collect();
    let says_more = |author: &Author| author.url.is_some() || author.email.is_some() || author.avatar.is_some();
    if persons.len() > 1 || persons.iter().any(says_more) { persons } else { Vec::new() }
}

fn finish_podcast(podcast: &mut Podcast, absolute: &mut impl FnMut(&mut Option<String>)) {
    let mut required = |url: &mut String| {
        let mut whole = Some(std::mem::take(url));
        absolute(&mut whole);
        *url = whole.unwrap_or_default();
    };
    podcast.transcripts.iter_mut().for_each(|transcript| required(&mut transcript.url));
    podcast.transcripts.retain(|transcript| !transcript.url.is_empty());
    if let Some(chapters) = &mut podcast.chapters {
        required(&mut chapters.url);
    }
    podcast.chapters = podcast.chapters.take().filter(|chapters| !chapters.url.is_empty());
    for alternate in &mut podcast.alternate_enclosures {
        alternate.sources.iter_mut().for_each(&mut required);
        alternate.sources.retain(|source| !source.is_empty());
    }
    for person in &mut podcast.persons {
        absolute(&mut person.image);
        absolute(&mut person.url);
        person.name = tidy(Some(std::mem::take(&mut person.name))).unwrap_or_default();
    }
    if let Some(license) = &mut podcast.license {
        absolute(&mut license.url);
    }
}

fn extension(values: Vec<Extension>) -> Vec<Extension> {
    let clean = |text: String| tidy(Some(text)).unwrap_or_default();
    let cleaned = |value| match value {
        Extension::Text(text) => Extension::Text(clean(text)),
        Extension::Element(attributes) => {
            Extension::Element(attributes.into_iter().map(|(name, value)| (clean(name), clean(value))).collect())
        }
    };
    values.into_iter().map(cleaned).collect()
}

/// Returns a file in its final form.
pub(super) fn enclosure(file: File<'_>, links: &mut Links<'_>) -> Option<Enclosure> {
    let url = links.absolute(&file.link)?;
    let media_type = file.media_type.filter(|media_type| media_type.len() <= MAX_NAME_BYTES);
    let media_type = media_type.and_then(|media_type| name(media_type, MAX_NAME_BYTES));
    let Some(more) = file.more else {
        return Some(Enclosure { url, media_type, length: file.length, ..Enclosure::default() });
    };
    let Enclosure { duration, width, height, bitrate, medium, alt, thumbnails, .. } = *more;
    let thumbnails = thumbnails.into_iter().map(|href| Link { href: href.into(), base: file.link.base.clone() });
    let mut left = Budget::new();
    let thumbnails =
        thumbnails.filter_map(|link| links.absolute(&link)).filter(|url| left.takes([Some(url)])).collect();
    let positive = |number: Option<Number>| number.filter(|number| number.get() > 0.0);
    let (duration, bitrate, medium, alt) = (positive(duration), positive(bitrate), tidy(medium), tidy(alt));
    Some(Enclosure {
        url,
        media_type,
        length: file.length,
        duration,
        width,
        height,
        bitrate,
        medium,
        alt,
        thumbnails,
        shown_type: None,
    })
}

/// Longest description of a feed, in bytes.
const MAX_DESCRIPTION: usize = 4 * 1024;

/// Returns what a feed says about itself, if it says anything.
pub(super) fn finish_about(
    draft: DraftAbout<'_>,
    language: Option<String>,
    links: &mut Links<'_>,
) -> Option<FeedAbout> {
    let DraftAbout { description, image, icon, copyright, mut fields } = draft;
    fields.description = title(description.into_option(), &mut false).map(|text| {
        let end = text.floor_char_boundary(MAX_DESCRIPTION);
        text[..end].to_owned()
    });
    fields.image = image.into_option().and_then(|link| links.absolute(&link));
    fields.icon = icon.into_option().and_then(|link| links.absolute(&link));
    fields.copyright = tidy(title(copyright.into_option(), &mut false));
    fields.language = language;
    fields.generator = tidy(fields.generator.take());
    let mut left = Budget::new();
    let mut absolute = |href: Option<String>| links.absolute(&Link { href: href?.into(), base: None });
    let authors = std::mem::take(&mut fields.authors).into_iter().filter_map(|author| {
        let (name, email) = (tidy(Some(author.name))?, tidy(author.email));
        let author = Author { name, url: absolute(author.url), email, avatar: absolute(author.avatar) };
        left.takes_author(&author).then_some(author)
    });
    fields.authors = authors.collect();
    fields.categories = std::mem::take(&mut fields.categories).into_iter().filter_map(|one| tidy(Some(one))).collect();
    fields.categories.retain(|category| left.takes([Some(category)]));
    if let Some(podcast) = &mut fields.podcast {
        (podcast.guid, podcast.medium) = (tidy(podcast.guid.take()), tidy(podcast.medium.take()));
        podcast.update_frequency = tidy(podcast.update_frequency.take());
        let funding = std::mem::take(&mut podcast.funding).into_iter();
        let funding = funding.filter_map(|one| Some(Funding { url: absolute(Some(one.url))?, title: tidy(one.title) }));
        podcast.funding = funding.filter(|one: &Funding| left.takes([Some(&one.url), one.title.as_ref()])).collect();
    }
    (fields != FeedAbout::default()).then_some(fields)
}

/// Returns a short text that every store takes.
fn tidy(written: Option<String>) -> Option<String> {
    let written = written?;
    let short = &written[..written.floor_char_boundary(MAX_NAME_BYTES)];
    text::cleaned(short.into())
}
