//! Subscriptions as OPML: every outline that names a feed, however deep in folders; and the same written.
//!
//! What OPML has no word for (subscribers and the like) stands in attributes of a namespace of our own, under the names of
//! the API's fields. Nothing is fetched and no entity expanded. Tags that are left open or closed twice and bare ampersands
//! are common in such files, and read as what was meant.

use std::borrow::Cow;

use anyhow::{anyhow, ensure};
use quick_xml::Reader;
use quick_xml::escape::{escape, unescape};
use quick_xml::events::{BytesStart, Event};
use scheduler::wire::FeedView;
use serde_json::{Map, Value, json};

use crate::output::plain;
use crate::subscription::Subscription;

const PREFIX: &str = "feedfleet:";
/// The beginning of a document.
pub(crate) const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
    <opml version=\"2.0\" xmlns:feedfleet=\"urn:feedfleet:opml\">\n<head><title>feedfleet</title></head>\n<body>\n";
/// The end of a document that [`HEAD`] begins.
pub(crate) const END: &str = "</body>\n</opml>\n";

/// The subscriptions of an OPML document, in its order. An error when it is none: nothing of it should be used then.
pub(crate) fn read(document: &str) -> anyhow::Result<Vec<Subscription>> {
    let mut reader = Reader::from_str(document);
    let config = reader.config_mut();
    (config.check_end_names, config.allow_unmatched_ends) = (false, true);
    let (mut found, mut is_opml) = (Vec::new(), false);
    let (mut line, mut counted) = (1, 0);
    loop {
        let begins = usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX).min(document.len());
        line += document.as_bytes()[counted..begins].iter().filter(|byte| **byte == b'\n').count();
        counted = begins;
        match reader.read_event().map_err(|error| anyhow!("line {line}: it is not well-formed XML: {error}"))? {
            Event::Start(element) | Event::Empty(element) => {
                let name = element.name();
                is_opml |= name.as_ref().eq_ignore_ascii_case("opml");
                if name.as_ref().eq_ignore_ascii_case("outline") {
                    found.extend(subscription(&element, line));
                }
            }
            Event::Eof => break,
            _ => {}
        }
    }
    ensure!(is_opml, "it has no <opml> element");
    Ok(found)
}

/// An outline that names a feed; folders, links and inclusions do not.
fn subscription(outline: &BytesStart<'_>, line: usize) -> Option<Subscription> {
    let (mut xml_url, mut url, mut is_feed) = (None, None, false);
    let mut fields = Map::new();
    for attribute in outline.attributes().with_checks(false) {
        // Attributes after a broken one cannot be separated.
        let Ok(attribute) = attribute else { break };
        let (name, value) = (attribute.key.as_ref(), meant(&attribute.value));
        if name.eq_ignore_ascii_case("xmlUrl") {
            xml_url = Some(value.trim().to_owned());
        } else if name.eq_ignore_ascii_case("url") {
            url = Some(value.trim().to_owned());
        } else if name.eq_ignore_ascii_case("type") {
            is_feed = ["rss", "atom", "feed"].iter().any(|kind| value.trim().eq_ignore_ascii_case(kind));
        } else if let Some(field) = name.strip_prefix(PREFIX) {
            let value = serde_json::from_str(&value).unwrap_or_else(|_| Value::String(value.into_owned()));
            fields.insert(field.to_owned(), value);
        }
    }
    let url = xml_url.or(url.filter(|_| is_feed));
    if url.is_none() && !is_feed {
        return None;
    }
    Some(Subscription { line, url: url.unwrap_or_default(), fields })
}

/// An attribute's value; one with bare ampersands is taken as it stands but for the entities that are meant as such.
fn meant(raw: &str) -> Cow<'_, str> {
    unescape(raw).unwrap_or_else(|_| {
        let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
        entities.iter().fold(raw.to_owned(), |text, (entity, meant)| text.replace(entity, meant)).into()
    })
}

/// A feed as an outline, on a line of its own.
pub(crate) fn outline(feed: &FeedView) -> String {
    let title = plain(feed.title.as_deref().unwrap_or(&feed.url), 500);
    let (title, url) = (escape(title), escape(feed.url.as_str()));
    let mut line = format!("<outline type=\"rss\" text=\"{title}\" title=\"{title}\" xmlUrl=\"{url}\"");
    let differs = feed.active_subscribers != feed.subscribers;
    let fields = [
        ("subscribers", Some(json!(feed.subscribers))),
        ("active_subscribers", differs.then(|| json!(feed.active_subscribers))),
        ("sla", feed.sla.then_some(Value::Bool(true))),
        ("important", feed.important.then_some(Value::Bool(true))),
        ("private", feed.private.then_some(Value::Bool(true))),
        ("interval", feed.interval.map(|seconds| json!(seconds))),
        ("calm", (!feed.calm.is_empty()).then(|| json!(feed.calm))),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            line += &format!(" {PREFIX}{name}=\"{}\"", escape(value.to_string()));
        }
    }
    line + "/>\n"
}

#[cfg(test)]
mod tests {
    use common::testing::assert_linear;

    use super::*;

    fn urls(document: &str) -> Vec<String> {
        read(document).unwrap().into_iter().map(|found| found.url).collect()
    }

    #[test]
    fn every_outline_with_a_feed_is_found_however_deep() {
        let document = r#"<opml version="2.0"><body>
            <outline text="folder"><outline type="rss" xmlUrl="http://a.example/?x=1&amp;y=2"/></outline>
            <outline XMLURL=" http://b.example/ "></outline><outline htmlUrl="http://c.example/"/>
            <outline type="link" url="http://d.example/"/><outline type="RSS" url="http://e.example/"/>
            <outline type="rss" text="nothing"/></body></opml>"#;
        let found: Vec<_> = read(document).unwrap().into_iter().map(|found| (found.line, found.url)).collect();
        let expected = [(2, "http://a.example/?x=1&y=2"), (3, "http://b.example/"), (4, "http://e.example/"), (5, "")];
        assert_eq!(found, expected.map(|(line, url)| (line, url.to_owned())));
    }

    #[test]
    fn what_is_often_wrong_in_such_files_is_read_as_meant() {
        let bare = r#"<opml><body><outline xmlUrl="http://a.example/?x=1&y=2&amp;z=%20"></body></opml>"#;
        assert_eq!(urls(bare), ["http://a.example/?x=1&y=2&z=%20"]);
        let open = "<opml><body><outline text='a'><outline xmlUrl='http://b.example/'/></body></outline></opml>";
        assert_eq!(urls(open), ["http://b.example/"]);
    }

    #[test]
    fn no_entity_of_its_own_is_expanded() {
        let document = r#"<!DOCTYPE opml [<!ENTITY a "http://secret.example/">]><opml><outline xmlUrl="&a;"/></opml>"#;
        assert_eq!(urls(document), ["&a;"]);
    }

    #[test]
    fn another_document_is_refused() {
        assert!(read("<rss><outline xmlUrl='http://a.example/'/></rss>").is_err());
        assert!(read("plain text").is_err());
        let error = read("<opml>\n<outline").err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.starts_with("line 2: it is not well-formed XML")));
    }

    #[test]
    fn time_grows_with_the_document_whatever_is_repeated() {
        let pieces = [
            "<",
            "<outline",
            "<outline ",
            "<outline xmlUrl=\"",
            "<outline xmlUrl='http://a/'/>\n",
            "<outline>",
            "</outline>",
            "<outline text='&'>",
            "<a b='",
            "<!--",
            "-->",
            "<![CDATA[",
            "]]>",
            "<?",
            "<!DOCTYPE [",
            "&",
            "&amp;",
            "&amp",
            "\n",
            "x",
            " a='b'",
            " xmlUrl='&amp;'",
            "'",
            "\"",
            "é",
        ];
        for piece in pieces {
            for beginning in ["", "<opml><body>", "<opml><outline xmlUrl='", "<opml><outline "] {
                let make = |length: usize| format!("{beginning}{}", piece.repeat(length / piece.len()));
                assert_linear(&format!("{beginning}{piece}.."), make, |document| drop(read(document)));
            }
        }
        let attributes = |length: usize| {
            let attributes: String = (0..length / 14).map(|n| format!(" feedfleet:a{n}='&'")).collect();
            format!("<opml><outline xmlUrl='http://a/'{attributes}/></opml>")
        };
        assert_linear("attributes", attributes, |document| drop(read(document)));
        let value = |length: usize| format!("<opml><outline xmlUrl='{}'/></opml>", "&".repeat(length));
        assert_linear("a value", value, |document| drop(read(document)));
    }
}
