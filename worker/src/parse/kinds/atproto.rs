//! AT Protocol: the posts of one account, as `app.bsky.feed.getAuthorFeed` answers.
//!
//! A post is plain text with marked ranges; it becomes HTML here, with its links, pictures and cards, because that is what
//! the content of entries is. Addresses are made of the account's permanent number, not of its handle, which may change:
//! an entry must not look edited because of that.

use common::document::FeedAbout;
use common::entry::{Author, Enclosure, EntryDetails};
use common::url::FeedUrl;
use serde_json::Value;
use url::Url;

use super::posts::{Post, Posts, json, time};
use crate::parse::draft::MAX_MEMBERS;
use crate::parse::one_line::MAX_LINE_BYTES;
use crate::parse::text::{MAX_TEXT_BYTES, beginning, escaped, escaped_lines};

/// Returns the author's feed, if the document is one.
pub(in crate::parse) fn read(text: &str, url: Option<&Url>, max_entries: usize) -> Option<Posts> {
    // The list of an account without posts is empty, and only the URL says what it is a list of.
    let is_requested = url.is_some_and(|url| url.path().ends_with("/xrpc/app.bsky.feed.getAuthorFeed"));
    if !is_requested && !text.contains("app.bsky.feed.") {
        return None;
    }
    let document = json(text)?;
    let feed = document.get("feed")?.as_array()?;
    let is_author_feed = feed.iter().all(|item| str_at(item, "/post/uri").is_some_and(|uri| uri.starts_with("at://")));
    if !is_author_feed || (feed.is_empty() && !is_requested) {
        return None;
    }
    let owner = feed.iter().find_map(owner);
    Some(Posts {
        title: owner.and_then(name),
        link: owner.and_then(|owner| str_at(owner, "/did")).map(|did| format!("{PROFILES}{did}")),
        id: owner.and_then(|owner| str_at(owner, "/did")).map(str::to_owned),
        about: FeedAbout {
            image: owner.and_then(|owner| str_at(owner, "/avatar")).map(str::to_owned),
            authors: owner.and_then(account).into_iter().collect(),
            ..FeedAbout::default()
        },
        posts: feed.iter().filter_map(post).take(max_entries).collect(),
        ..Posts::default()
    })
}

const PROFILES: &str = "https://bsky.app/profile/";

/// Returns the owner of the feed: the author of what was not reposted, or the account that reposted it.
fn owner(item: &Value) -> Option<&Value> {
    if is_repost(item) { item.pointer("/reason/by") } else { item.pointer("/post/author") }
}

fn is_repost(item: &Value) -> bool {
    str_at(item, "/reason/$type").is_some_and(|reason| reason.ends_with("#reasonRepost"))
}

fn post(item: &Value) -> Option<Post> {
    let post = item.get("post")?;
    let uri = str_at(post, "/uri")?;
    let author = post.get("author")?;
    let record = post.get("record")?;
    let key = uri.rsplit('/').next()?;
    let created = str_at(record, "/createdAt").and_then(time).or_else(|| str_at(post, "/indexedAt").and_then(time));
    let (id, published) = if is_repost(item) {
        let by = str_at(item, "/reason/by/did").unwrap_or_default();
        let id = str_at(item, "/reason/uri").map_or_else(|| format!("{uri}#{by}"), str::to_owned);
        (id, str_at(item, "/reason/indexedAt").and_then(time).or(created))
    } else {
        (uri.to_owned(), created)
    };
    let mut content = marked_up(record);
    let mut files = Vec::new();
    let mut details = EntryDetails {
        comments_count: post.get("replyCount").and_then(Value::as_u64).and_then(|count| count.try_into().ok()),
        in_reply_to: str_at(record, "/reply/parent/uri").map(str::to_owned).into_iter().collect(),
        ..EntryDetails::default()
    };
    if let Some(embed) = post.get("embed") {
        add_embed(embed, &mut content, &mut files, &mut details);
    }
    details.content_type = (!content.is_empty()).then(|| "html".to_owned());
    Some(Post {
        id: Some(id),
        url: Some(format!("{PROFILES}{}/post/{key}", str_at(author, "/did")?)),
        published,
        authors: account(author).into_iter().collect(),
        content: Some(content).filter(|content| !content.is_empty()),
        files,
        categories: tags(record),
        language: str_at(record, "/langs/0").map(str::to_owned),
        details,
        ..Post::default()
    })
}

/// Returns the tags of a post: beside its text, and marked in it.
fn tags(record: &Value) -> Vec<String> {
    let features = list(record, "facets").flat_map(|facet| list(facet, "features"));
    let marked = features.filter_map(|feature| feature.get("tag"));
    list(record, "tags").chain(marked).filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns the name that an account shows, and its handle.
fn name(account: &Value) -> Option<String> {
    let handle = beginning(str_at(account, "/handle")?, MAX_LINE_BYTES);
    match str_at(account, "/displayName").map(str::trim) {
        Some(name) if !name.is_empty() => Some(format!("{} (@{handle})", beginning(name, MAX_LINE_BYTES))),
        _ => Some(format!("@{handle}")),
    }
}

/// Returns an account as an author.
fn account(account: &Value) -> Option<Author> {
    Some(Author {
        name: name(account)?,
        url: str_at(account, "/did").map(|did| format!("{PROFILES}{did}")),
        email: None,
        avatar: str_at(account, "/avatar").map(str::to_owned),
    })
}

/// Returns a post's text as HTML. Ranges are counted in bytes; those that overlap or split a character are left out.
fn marked_up(record: &Value) -> String {
    let text = beginning(str_at(record, "/text").unwrap_or_default(), MAX_TEXT_BYTES);
    let mut links: Vec<(usize, usize, String)> = list(record, "facets").filter_map(link).collect();
    links.sort_by_key(|(start, ..)| *start);
    let html = |text: &str| escaped_lines(text, "<br>");
    let mut marked = String::new();
    let mut done = 0;
    for (start, end, url) in links {
        // the rest would not be kept
        if marked.len() > MAX_TEXT_BYTES {
            break;
        }
        let (Some(before), Some(inside)) = (text.get(done..start), text.get(start..end)) else { continue };
        marked.push_str(&html(before));
        marked.push_str(&anchor(&url, &html(inside)));
        done = end;
    }
    marked.push_str(&html(text.get(done..).unwrap_or_default()));
    if marked.is_empty() { marked } else { format!("<p>{marked}</p>") }
}

fn link(facet: &Value) -> Option<(usize, usize, String)> {
    let place = |name| facet.pointer(name)?.as_u64().and_then(|at| usize::try_from(at).ok());
    let (start, end) = (place("/index/byteStart")?, place("/index/byteEnd")?);
    let url = list(facet, "features").find_map(|feature| {
        let of_account = || url_at(feature, "/did").map(|did| format!("{PROFILES}{did}"));
        url_at(feature, "/uri").map(str::to_owned).or_else(of_account)
    })?;
    (start < end).then_some((start, end, url))
}

fn anchor(url: &str, html: &str) -> String {
    format!("<a href=\"{}\">{html}</a>", escaped(url))
}

/// What hangs below a post: pictures, a film, a card, another post, or two of these.
fn add_embed(embed: &Value, content: &mut String, files: &mut Vec<Enclosure>, details: &mut EntryDetails) {
    // one more than an entry keeps, so that it is marked as cut
    for image in list(embed, "images").take(MAX_MEMBERS + 1) {
        let Some(url) = url_at(image, "/fullsize") else { continue };
        let alt = beginning(str_at(image, "/alt").unwrap_or_default(), MAX_TEXT_BYTES);
        add(content, || format!("<p><img src=\"{}\" alt=\"{}\"></p>", escaped(url), escaped(alt)));
        picture(details, Some(url));
        files.push(file(url, "image/jpeg", image, str_at(image, "/thumb")));
    }
    if let Some(playlist) = str_at(embed, "/playlist") {
        let thumbnail = str_at(embed, "/thumbnail");
        picture(details, thumbnail);
        files.push(file(playlist, "application/vnd.apple.mpegurl", embed, thumbnail));
    }
    if let Some(card) = embed.get("external") {
        details.external_url = details.external_url.take().or_else(|| str_at(card, "/uri").map(str::to_owned));
        picture(details, str_at(card, "/thumb"));
        add(content, || shown_card(card).unwrap_or_default());
    }
    // a quoted post, alone or beside media
    let quoted = embed.pointer("/record/record").or_else(|| embed.get("record"));
    if let Some(quoted) = quoted.filter(|quoted| quoted.get("value").is_some()) {
        details.related.extend(address(quoted));
        add(content, || shown_quote(quoted));
    }
    // one level only: what a quoted post embeds is its own affair
    if let Some(media) = embed.get("media").filter(|media| media.get("media").is_none()) {
        add_embed(media, content, files, details);
    }
}

/// The first picture represents the post.
fn picture(details: &mut EntryDetails, url: Option<&str>) {
    details.image = details.image.take().or_else(|| url.map(str::to_owned));
}

/// Adds HTML to the content, unless that is longer already than what is kept of it.
fn add(content: &mut String, html: impl FnOnce() -> String) {
    if content.len() <= MAX_TEXT_BYTES {
        content.push_str(&html());
    }
}

fn shown_card(card: &Value) -> Option<String> {
    let url = url_at(card, "/uri")?;
    let text = |pointer| {
        let text = str_at(card, pointer).filter(|text| !text.is_empty());
        text.map(|text| escaped(beginning(text, MAX_TEXT_BYTES)))
    };
    let title = text("/title").unwrap_or_else(|| escaped(url));
    let about = text("/description").map(|about| format!("<br>{about}")).unwrap_or_default();
    Some(format!("<p>{}{about}</p>", anchor(url, &title)))
}

fn shown_quote(quoted: &Value) -> String {
    let text = quoted.get("value").map(marked_up).unwrap_or_default();
    let by = quoted.get("author").and_then(name).unwrap_or_default();
    let by = address(quoted).map_or_else(|| escaped(&by), |url| anchor(&url, &escaped(&by)));
    format!("<blockquote><p>{by}</p>{text}</blockquote>")
}

/// Returns the page of a quoted post.
fn address(quoted: &Value) -> Option<String> {
    let key = url_at(quoted, "/uri").and_then(|uri| uri.rsplit('/').next());
    url_at(quoted, "/author/did").zip(key).map(|(did, key)| format!("{PROFILES}{did}/post/{key}"))
}

/// Returns a file, with what its embed says of it.
fn file(url: &str, media_type: &str, embed: &Value, thumbnail: Option<&str>) -> Enclosure {
    let side = |pointer| embed.pointer(pointer).and_then(Value::as_u64).and_then(|side| side.try_into().ok());
    Enclosure {
        url: url.to_owned(),
        media_type: Some(media_type.to_owned()),
        width: side("/aspectRatio/width"),
        height: side("/aspectRatio/height"),
        alt: str_at(embed, "/alt").filter(|alt| !alt.is_empty()).map(str::to_owned),
        thumbnails: thumbnail.map(str::to_owned).into_iter().collect(),
        ..Enclosure::default()
    }
}

fn str_at<'v>(value: &'v Value, pointer: &str) -> Option<&'v str> {
    value.pointer(pointer)?.as_str()
}

/// Returns a URL or an identifier that is part of one, unless it is longer than any URL that is kept.
fn url_at<'v>(value: &'v Value, pointer: &str) -> Option<&'v str> {
    str_at(value, pointer).filter(|url| url.len() <= FeedUrl::MAX_LENGTH)
}

/// Returns the members of a list; none of anything else.
fn list<'v>(of: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> {
    of.get(name).and_then(Value::as_array).into_iter().flatten()
}
