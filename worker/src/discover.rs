//! The feeds that a web page announces: `<link rel="alternate" type="application/rss+xml" href="..">` and its relatives,
//! `<link rel="feed" href="..">` for a page that is a feed by its microformats, and the author's ActivityStreams actor.
//!
//! Pure: bytes in, URLs out. A tokenizer without a tree reads the page, so that nesting costs nothing, and only a bounded
//! part of it. Nothing is fetched here. The usual addresses of feeds are listed as well; a fetch tries them for a page that announces
//! nothing, and only when a person has just added it.

use std::collections::HashSet;
use std::time::Instant;

use common::url::FeedUrl;
use html5gum::{DefaultEmitter, HtmlString, StartTag, Token, Tokenizer};
use url::Url;

use crate::parse;
use crate::watch::Watch;

/// A feed that a page announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnouncedFeed {
    /// Where it is.
    pub url: FeedUrl,
    /// What it is said to be, such as `application/rss+xml`.
    pub media_type: String,
    /// What the page calls it; not sanitised.
    pub title: Option<String>,
}

impl AnnouncedFeed {
    /// Returns whether it is not a feed itself but an actor of ActivityStreams, whose outbox is one.
    pub fn is_actor(&self) -> bool {
        is_activity(&self.media_type)
    }

    /// Another page, which is a feed by its microformats.
    fn is_page(&self) -> bool {
        matches!(self.media_type.as_str(), "text/html" | "text/mf2+html" | "application/xhtml+xml")
    }
}

/// Returns true if this is the media type of ActivityStreams; parameters are passed over.
pub(crate) fn is_activity(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    ["application/activity+json", "application/ld+json"].iter().any(|known| essence.eq_ignore_ascii_case(known))
}

/// The maximum number of announced feeds of one page.
pub const MAX_ANNOUNCED: usize = 10;
/// Announcements that are looked at: each is joined to the page's base, which may be long, and many may be of one URL.
const MAX_ANNOUNCEMENTS: usize = 200;
/// Bytes of a page that are looked at. Announcements belong into its head; some pages put half a megabyte of styles there.
const MAX_PAGE_BYTES: usize = 2 * 1024 * 1024;
/// What most tokens have at least, so that the deadline is checked often enough.
const BYTES_OF_A_TOKEN: usize = 8;
/// Characters of a title that are kept.
const MAX_TITLE: usize = 200;
/// How far into a document its kind shows.
const OPENING: usize = 1024;

/// Returns whether this looks like a web page, by the declared type or by how it begins: both are wrong often enough.
pub fn is_page(bytes: &[u8], content_type: Option<&str>) -> bool {
    let declared = content_type.unwrap_or_default().to_ascii_lowercase();
    if declared.starts_with("text/html") || declared.starts_with("application/xhtml+xml") {
        return true;
    }
    let opening = String::from_utf8_lossy(&bytes[..bytes.len().min(OPENING)]).to_ascii_lowercase();
    opening.contains("<!doctype html") || opening.contains("<html")
}

/// Returns the feeds that a page announces, at most [`MAX_ANNOUNCED`], each URL once: in the page's order, but pages
/// with microformats after other feeds, feeds of comments after these, and actors last. `page_url` is where the page
/// came from, after redirects.
pub fn announced(bytes: &[u8], content_type: Option<&str>, page_url: &Url) -> Vec<AnnouncedFeed> {
    announced_by(bytes, content_type, page_url, None)
}

/// The same, of what can be read of the page by a deadline.
pub(crate) fn announced_by(
    bytes: &[u8],
    content_type: Option<&str>,
    page_url: &Url,
    deadline: Option<Instant>,
) -> Vec<AnnouncedFeed> {
    let bytes = &bytes[..bytes.len().min(MAX_PAGE_BYTES)];
    announced_in(&parse::text_of(bytes, content_type), page_url, deadline)
}

/// The same of a page's text.
pub(crate) fn announced_in(text: &str, page_url: &Url, deadline: Option<Instant>) -> Vec<AnnouncedFeed> {
    let text = &text[..text.floor_char_boundary(MAX_PAGE_BYTES)];
    let mut emitter = DefaultEmitter::default();
    // links in a script or a comment do not count
    emitter.naively_switch_states(true);
    let mut base = page_url.clone();
    let mut based = false;
    let (mut seen, mut found, mut announcements) = (HashSet::new(), Vec::new(), 0);
    let mut watch = Watch::new(deadline);
    for (number, token) in Tokenizer::new_with_emitter(text, emitter).enumerate() {
        if watch.is_late(number * BYTES_OF_A_TOKEN) {
            break;
        }
        let Ok(Token::StartTag(tag)) = token else { continue };
        match tag.name.as_slice() {
            b"base" if !based => {
                // every link of the page is joined to it
                let href = attribute(&tag, b"href").filter(|href| href.len() <= FeedUrl::MAX_LENGTH);
                let href = href.and_then(|href| page_url.join(href.trim()).ok());
                based = href.is_some();
                base = href.unwrap_or(base);
            }
            b"link" | b"a" => {
                let Some((href, media_type)) = announcement(&tag) else { continue };
                announcements += 1;
                let feed = announced_feed(&tag, &href, media_type, &base);
                // an actor may share its page's address, and differs in the requested media type
                let feed = feed.filter(|feed| feed.is_actor() || feed.url.as_url() != page_url);
                found.extend(feed.filter(|feed| seen.insert(feed.url.clone())));
            }
            _ => {}
        }
        // some are for comments alone and move behind the others
        if found.len() >= 2 * MAX_ANNOUNCED || announcements == MAX_ANNOUNCEMENTS {
            break;
        }
    }
    found.sort_by_key(|feed| (feed.is_actor(), is_about_comments(feed), feed.is_page()));
    found.truncate(MAX_ANNOUNCED);
    found
}

/// Where the programs that most sites run on put their feeds: WordPress and Drupal, Jekyll and Eleventy, static sites of all
/// kinds, Hugo, Ghost.
const USUAL_PLACES: [&str; 6] = ["/feed", "/feed.xml", "/rss.xml", "/atom.xml", "/index.xml", "/rss"];

/// URLs of a page's site that may be feeds although no page announces them, the likeliest first.
pub(crate) fn usual_places(page: &FeedUrl) -> impl Iterator<Item = FeedUrl> {
    let page = page.clone();
    let place = move |path: &str| String::from(page.as_url().join(path).ok()?).parse().ok();
    USUAL_PLACES.into_iter().filter_map(place)
}

/// Returns the address as written and the media type, if this element announces a feed.
fn announcement(tag: &StartTag<()>) -> Option<(String, String)> {
    let rel = attribute(tag, b"rel")?.to_ascii_lowercase();
    let relations: HashSet<&str> = rel.split_ascii_whitespace().collect();
    let href = attribute(tag, b"href")?;
    let written = attribute(tag, b"type").unwrap_or_default().to_ascii_lowercase();
    let media_type = written.split(';').next().unwrap_or_default().trim().to_owned();
    let is_feed = match media_type.as_str() {
        _ if relations.contains("stylesheet") => false,
        "application/rss+xml"
        | "application/atom+xml"
        | "application/feed+json"
        | "application/rdf+xml"
        | "application/x.atom+xml"
        | "application/x-atom+xml"
        | "application/x-rss+xml" => relations.contains("alternate") || relations.contains("feed"),
        // JSON Feed 1.0 requires this type, and many other things have it
        "application/json" => relations.contains("alternate") && last_segment(&href).contains("feed"),
        "text/xml" | "application/xml" => relations.contains("alternate") || relations.contains("feed"),
        // the relation alone, as HTML 5 once had it; of a page it is microformats' own announcement
        "" | "text/html" | "application/xhtml+xml" => relations.contains("feed"),
        "text/mf2+html" => relations.contains("alternate") || relations.contains("feed"),
        "application/activity+json" => relations.contains("alternate"),
        // linked data of any kind, unless it says which
        "application/ld+json" => relations.contains("alternate") && written.contains("activitystreams"),
        _ => false,
    };
    is_feed.then_some((href, media_type))
}

fn announced_feed(tag: &StartTag<()>, href: &str, media_type: String, base: &Url) -> Option<AnnouncedFeed> {
    let url = String::from(base.join(href.trim()).ok()?).parse().ok()?;
    let title = attribute(tag, b"title").map(|title| title.split_whitespace().collect::<Vec<_>>().join(" "));
    let title = title.filter(|title| !title.is_empty()).map(|title| title.chars().take(MAX_TITLE).collect());
    Some(AnnouncedFeed { url, media_type, title })
}

fn attribute(tag: &StartTag<()>, name: &[u8]) -> Option<String> {
    let value: &HtmlString = tag.attributes.get(name)?;
    Some(String::from_utf8_lossy(value).into_owned())
}

fn last_segment(href: &str) -> String {
    let path = href.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    path.rsplit('/').next().unwrap_or_default().to_ascii_lowercase()
}

/// Weblogs announce the feed of their comments beside that of their posts, and people rarely mean the former.
fn is_about_comments(feed: &AnnouncedFeed) -> bool {
    let title = feed.title.as_deref().unwrap_or_default().to_ascii_lowercase();
    let path = feed.url.as_url().path().to_ascii_lowercase();
    title.contains("comment") || path.split('/').any(|segment| segment == "comments")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(page: &str) -> Vec<String> {
        let url = "https://blog.example/about/".parse().unwrap();
        announced(page.as_bytes(), None, &url).into_iter().map(|feed| feed.url.to_string()).collect()
    }

    #[test]
    fn each_kind_of_announcement_is_found_and_resolved() {
        let page = "<!DOCTYPE html><html><head><title>x</title>\
            <link rel=alternate type='application/rss+xml' title=' The\n posts ' href=/feed.xml>\
            <LINK REL='Alternate Nofollow' TYPE='application/atom+xml; charset=utf-8' HREF='../atom.xml#top'/>\
            <link rel='alternate' type='application/feed+json' href='https://other.example/feed.json?a=1&amp;b=2'>\
            <link rel='alternate' type='application/json' href='/my-feed.json'>\
            <link rel='feed' href='posts'></head><body><a rel='alternate' type='application/rdf+xml' href='/rdf'>";
        assert_eq!(
            found(page),
            [
                "https://blog.example/feed.xml",
                "https://blog.example/atom.xml",
                "https://other.example/feed.json?a=1&b=2",
                "https://blog.example/my-feed.json",
                "https://blog.example/about/posts",
                "https://blog.example/rdf",
            ]
        );
        let url = "https://blog.example/".parse().unwrap();
        let first = &announced(page.as_bytes(), Some("text/html"), &url)[0];
        assert_eq!((first.title.as_deref(), first.media_type.as_str()), (Some("The posts"), "application/rss+xml"));
    }

    #[test]
    fn what_only_looks_like_an_announcement_is_left_out() {
        let page = "<link rel=alternate hreflang=de href=/de><link rel=stylesheet type=text/xml href=/s.xml>\
            <link rel=alternate type='application/json' href='/wp-json/wp/v2/pages/2'>\
            <link rel=alternate type='application/json+oembed' href='/oembed'>\
            <link rel=alternate type='application/rss+xml' href='javascript:x()'>\
            <link rel=alternate type='application/rss+xml' href='http://me:pw@a.example/'>\
            <link rel=alternate type='application/rss+xml'><link type='application/rss+xml' href=/no-relation>\
            <link rel=alternate type='application/rss+xml' href=''>\
            <!-- <link rel=alternate type='application/rss+xml' href=/comment> -->\
            <script>'<link rel=alternate type=\"application/rss+xml\" href=/script>'</script>\
            <textarea><link rel=alternate type='application/rss+xml' href=/textarea></textarea>";
        assert_eq!(found(page), [""; 0]);
    }

    #[test]
    fn the_first_base_counts_and_a_broken_one_does_not() {
        let page = "<base target=_blank><base href='http://['><base href='https://cdn.example/x/'><base href=/y/>\
            <link rel=alternate type=application/rss+xml href=feed>";
        assert_eq!(found(page), ["https://cdn.example/x/feed"]);
    }

    #[test]
    fn feeds_of_comments_come_last_and_each_url_once() {
        let page = "<link rel=alternate type=application/rss+xml title='Comments Feed' href=/a>\
            <link rel=alternate type=application/rss+xml href=/comments/feed/>\
            <link rel=alternate type=application/rss+xml href=/b><link rel=alternate type=application/atom+xml href=/b#x>";
        let url = |path: &str| format!("https://blog.example{path}");
        assert_eq!(found(page), [url("/b"), url("/a"), url("/comments/feed/")]);
    }

    #[test]
    fn a_page_cannot_announce_without_end() {
        let many: String =
            (0..1000).map(|n| format!("<link rel=alternate type=application/rss+xml href=/{n}>")).collect();
        assert_eq!(found(&many).len(), MAX_ANNOUNCED);
        let repeated = "<a rel=feed href=x>".repeat(MAX_ANNOUNCEMENTS - 1);
        let also = "<link rel=alternate type=application/rss+xml href=/a>";
        let both = ["https://blog.example/about/x", "https://blog.example/a"];
        assert_eq!(found(&format!("{repeated}{also}")), both);
        assert_eq!(found(&format!("{repeated}<a rel=feed href=x>{also}")), [both[0]]);
        let far = format!("{}<link rel=alternate type=application/rss+xml href=/a>", "x".repeat(MAX_PAGE_BYTES));
        assert_eq!(found(&far).len(), 0);
    }

    #[test]
    fn a_page_is_known_by_its_type_or_its_beginning() {
        assert!(is_page(b"", Some("text/html; charset=utf-8")) && is_page(b"", Some("Application/XHTML+XML")));
        assert!(is_page(b"\n<!DOCTYPE HTML>", None) && is_page(b"<?xml version='1.0'?><html>", Some("text/xml")));
        assert!(!is_page(b"<rss>", Some("text/xml")) && !is_page(b"", None));
    }

    #[test]
    fn a_page_is_read_until_its_deadline() {
        let page = "<link rel=alternate type=application/rss+xml href=/a>";
        let url = "https://blog.example/".parse().unwrap();
        let by = |deadline| announced_by(page.as_bytes(), None, &url, Some(deadline)).len();
        assert_eq!(by(Instant::now()), 0);
        assert_eq!(by(Instant::now() + std::time::Duration::from_secs(600)), 1);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..300), tag in "<link rel=(alternate|feed) \\PC{0,40}>") {
            let url = "https://blog.example/".parse().unwrap();
            let page = [tag.as_bytes(), &bytes[..]].concat();
            prop_assert!(announced(&page, None, &url).len() <= MAX_ANNOUNCED);
        }
    }
}
