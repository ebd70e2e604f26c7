//! What the readers of these kinds hand on, and what they share.

use std::borrow::Cow;

use common::entry::Enclosure;
use common::time::Timestamp;
use serde_json::Value;

use crate::parse::dates;
use crate::parse::draft::{Best, Draft, DraftEntry, File, Text};
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
    pub(super) authors: Vec<String>,
    pub(super) summary: Option<String>,
    pub(super) content: Option<String>,
    pub(super) files: Vec<Enclosure>,
    pub(super) categories: Vec<String>,
    pub(super) language: Option<String>,
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
        post.authors.into_iter().for_each(|name| draft.authors.add(0, name.into()));
        post.categories.into_iter().for_each(|category| draft.add_category(category.into()));
        for Enclosure { url, media_type, length, .. } in post.files {
            draft.add_file(File { link: link(url), media_type: media_type.map(Cow::from), length, more: None });
        }
        draft
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

/// A JSON document as a tree, if it is one and its tree is affordable.
pub(super) fn json(text: &str) -> Option<Value> {
    let values = text.bytes().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
    (values <= MAX_VALUES).then(|| serde_json::from_str(text).ok()).flatten()
}

/// A time as publishers write it.
pub(super) fn time(text: &str) -> Option<Timestamp> {
    dates::parse(text).map(Timestamp::from_chrono)
}

/// A file's media type by the end of its URL, for formats that do not tell.
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
