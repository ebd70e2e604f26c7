//! What the readers of these kinds return, and what they share.

use std::borrow::Cow;

use common::document::FeedAbout;
use common::entry::{Author, Enclosure, EntryDetails, Number};
use common::time::Timestamp;
use serde_json::Value;

use crate::parse::dates;
use crate::parse::draft::{Best, Draft, DraftAbout, DraftEntry, File, MAX_MEMBERS, Text};
use crate::parse::hints::Announced;
use crate::parse::link::Link;

/// A feed as one of these readers found it.
#[derive(Debug, Default)]
pub(in crate::parse) struct Posts {
    pub(super) title: Option<String>,
    pub(super) link: Option<String>,
    pub(super) id: Option<String>,
    pub(super) language: Option<String>,
    pub(super) hub: Option<String>,
    pub(super) self_link: Option<String>,
    pub(super) about: FeedAbout,
    pub(super) posts: Vec<Post>,
}

/// An entry as one of these readers found it. Its title is plain text.
#[derive(Debug, Default)]
pub(super) struct Post {
    pub(super) id: Option<String>,
    pub(super) url: Option<String>,
    pub(super) title: Option<String>,
    pub(super) published: Option<Timestamp>,
    pub(super) updated: Option<Timestamp>,
    pub(super) authors: Vec<Author>,
    pub(super) summary: Option<String>,
    pub(super) content: Option<String>,
    pub(super) files: Vec<Enclosure>,
    pub(super) categories: Vec<String>,
    pub(super) language: Option<String>,
    pub(super) details: EntryDetails,
}

impl From<Posts> for Draft<'_> {
    fn from(posts: Posts) -> Self {
        let hub = posts.hub.map(link);
        let announced = Announced { hub, self_link: posts.self_link.map(link), ..Announced::default() };
        Draft {
            title: Best::of(posts.title.map(plain)),
            link: Best::of(posts.link.map(link)),
            id: Best::of(posts.id.map(Cow::from)),
            language: Best::of(posts.language.map(Cow::from)),
            announced,
            about: about(posts.about),
            entries: posts.posts.into_iter().map(DraftEntry::from).collect(),
            ..Draft::default()
        }
    }
}

impl From<Post> for DraftEntry<'_> {
    fn from(post: Post) -> Self {
        let mut draft = DraftEntry {
            id: Best::of(post.id.map(Cow::from)),
            link: Best::of(post.url.map(link)),
            title: Best::of(post.title.map(plain)),
            published: Best::of(post.published),
            updated: Best::of(post.updated),
            summary: Best::of(post.summary.map(Cow::from)),
            content: Best::of(post.content.map(Cow::from)),
            language: Best::of(post.language.map(Cow::from)),
            ..DraftEntry::default()
        };
        for author in post.authors.into_iter().take(MAX_MEMBERS) {
            draft.authors.add(0, author.name.clone().into());
            if author.url.is_some() || author.email.is_some() || author.avatar.is_some() {
                draft.details().authors.push((0, author));
            }
        }
        post.categories.into_iter().for_each(|category| draft.add_category(category.into()));
        post.files.into_iter().for_each(|enclosure| draft.add_file(file(enclosure)));
        if post.details != EntryDetails::default() {
            let mut fields = post.details;
            fields.related.truncate(MAX_MEMBERS);
            fields.in_reply_to.truncate(MAX_MEMBERS);
            let details = draft.details();
            details.image = Best::of(fields.image.take().map(link));
            details.rights = Best::of(fields.rights.take().map(plain));
            details.fields = fields;
        }
        draft
    }
}

fn file(enclosure: Enclosure) -> File<'static> {
    let mut more = enclosure;
    more.thumbnails.truncate(MAX_MEMBERS);
    let (url, media_type, length) = (std::mem::take(&mut more.url), more.media_type.take(), more.length.take());
    let more = (more != Enclosure::default()).then(|| Box::new(more));
    File { link: link(url), media_type: media_type.map(Cow::from), length, more }
}

fn about(mut fields: FeedAbout) -> DraftAbout<'static> {
    fields.authors.truncate(MAX_MEMBERS);
    DraftAbout {
        description: Best::of(fields.description.take().map(plain)),
        image: Best::of(fields.image.take().map(link)),
        icon: Best::of(fields.icon.take().map(link)),
        fields,
        ..DraftAbout::default()
    }
}

fn plain(text: String) -> Text<'static> {
    Text { raw: text.into(), markup: None }
}

fn link(href: String) -> Link<'static> {
    Link { href: href.into(), base: None }
}

/// Values of a JSON document that these readers take apart as a tree; more would cost too much memory.
const MAX_VALUES: usize = 500_000;
/// An object takes the memory of this number of other values, even with one member: its map has room for several.
const VALUES_OF_OBJECT: usize = 12;

/// Returns a JSON document as a tree, if it is one and its tree is affordable.
pub(super) fn json(text: &str) -> Option<Value> {
    let weight = |byte| match byte {
        b',' | b'[' => 1,
        b'{' => VALUES_OF_OBJECT,
        _ => 0,
    };
    let values: usize = text.bytes().map(weight).sum();
    (values <= MAX_VALUES).then(|| serde_json::from_str(text).ok()).flatten()
}

/// Returns a time as publishers write it.
pub(super) fn time(text: &str) -> Option<Timestamp> {
    dates::parse(text, dates::Order::default()).map(Timestamp::from_chrono)
}

/// Returns a duration as ISO 8601 writes it, in seconds: `PT1H2M3.5S`. Days are the longest unit.
pub(super) fn iso_duration(text: &str) -> Option<Number> {
    let mut seconds = 0.0;
    let mut rest = text.trim().strip_prefix('P')?;
    while !rest.is_empty() {
        rest = rest.strip_prefix('T').unwrap_or(rest);
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let amount: f64 = rest[..end].parse().ok()?;
        let mut units = rest[end..].chars();
        seconds += amount
            * match units.next()? {
                'D' => 86_400.0,
                'H' => 3_600.0,
                'M' => 60.0,
                'S' => 1.0,
                _ => return None,
            };
        rest = units.as_str();
    }
    Number::new(seconds).filter(|_| seconds > 0.0)
}

/// Returns a file's media type by the end of its URL, for formats that do not name it.
pub(super) fn media_type_of(url: &str) -> Option<String> {
    let path = url.split(['?', '#']).next()?;
    let (_, extension) = path.rsplit('/').next()?.rsplit_once('.')?;
    let media_type = match extension.to_ascii_lowercase().as_str() {
        "jpg" | "jpeg" => "image/jpeg",
        "png" => "image/png",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "avif" => "image/avif",
        "svg" => "image/svg+xml",
        "mp3" => "audio/mpeg",
        "m4a" => "audio/mp4",
        "ogg" | "oga" | "opus" => "audio/ogg",
        "wav" => "audio/wav",
        "mp4" | "m4v" => "video/mp4",
        "webm" => "video/webm",
        "mov" => "video/quicktime",
        _ => return None,
    };
    Some(media_type.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_iso_8601_are_seconds() {
        let table = [("PT61S", Some(61.0)), ("PT1H2M3.5S", Some(3723.5)), ("P1DT1S", Some(86_401.0)), ("PT0S", None)];
        for (text, seconds) in
            table.into_iter().chain(["", "P", "61", "PT", "PT5", "PTS", "PT5X", "PT1.2.3S"].map(|text| (text, None)))
        {
            assert_eq!(iso_duration(text).map(Number::get), seconds, "{text}");
        }
    }
}
