//! Entries as an Atom feed (RFC 4287, with the paging of RFC 5005).

use std::borrow::Cow;
use std::io;

use common::time::Timestamp;
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event};

use super::{Channel, Health, entry_urn, own_id, web_link};
use crate::wire::EntryView;

type Xml = Writer<Vec<u8>>;

/// The namespace of what Atom has no element for.
const NAMESPACE: &str = "urn:feedfleet:atom";

/// Writes the feed. `None`: it cannot be written.
pub fn written(channel: &Channel) -> Option<Vec<u8>> {
    let mut xml = Writer::new(Vec::new());
    xml.write_event(Event::Decl(BytesDecl::new("1.0", Some("utf-8"), None))).ok()?;
    let feed = xml.create_element("feed").with_attribute(("xmlns", "http://www.w3.org/2005/Atom"));
    feed.write_inner_content(|xml| {
        text(xml, "id", &channel.id)?;
        text(xml, "title", &channel.title)?;
        text(xml, "updated", &channel.updated.to_string())?;
        author(xml, if channel.of.is_some() { &channel.title } else { "feedfleet" }, None)?;
        let own_type = [("type", "application/atom+xml")];
        link(xml, "self", &channel.own, if channel.of.is_some() { &[] } else { &own_type })?;
        if let Some(home) = &channel.home {
            link(xml, "alternate", home, &[("type", "text/html")])?;
        }
        if let Some(next) = &channel.next {
            link(xml, "next", next, &[])?;
        }
        if let Some(hub) = &channel.hub {
            link(xml, "hub", hub, &[])?;
        }
        if let Some(of) = &channel.of {
            health(xml, of)?;
        }
        channel.entries.iter().try_for_each(|view| entry(xml, view, channel.of.is_some()))
    })
    .ok()?;
    Some(xml.into_inner())
}

/// How polls of the feed go.
fn health(xml: &mut Xml, of: &Health) -> io::Result<()> {
    let at = |at: Option<Timestamp>| at.map(|at| at.to_string());
    let fields = [
        ("last_status", of.last_status.map(|status| status.to_string())),
        ("last_outcome", of.last_outcome.map(|outcome| outcome.to_string())),
        ("last_polled", at(of.last_polled)),
        ("next_due", at(of.next_due)),
        ("failing_since", at(of.failing_since)),
    ];
    let mut element = xml.create_element("feedfleet:status").with_attribute(("xmlns:feedfleet", NAMESPACE));
    for (name, value) in &fields {
        if let Some(value) = value {
            element = element.with_attribute((*name, value.as_str()));
        }
    }
    element.write_empty().map(drop)
}

fn entry(xml: &mut Xml, view: &EntryView, is_own: bool) -> io::Result<()> {
    let (stored, entry) = (&view.stored, &view.stored.entry);
    let id = if is_own { own_id(stored.feed_id, &entry.id) } else { entry_urn(stored.feed_id, &entry.id) };
    xml.create_element("entry")
        .write_inner_content(|xml| {
            text(xml, "id", &id)?;
            text(xml, "title", &view.display_title)?;
            text(xml, "updated", &entry.updated.or(entry.published).unwrap_or(stored.seen).to_string())?;
            text(xml, "published", &published(view).to_string())?;
            if let Some(url) = web_link(entry.url.as_ref()) {
                link(xml, "alternate", url, &[])?;
            }
            authors(xml, view)?;
            for category in &entry.categories {
                xml.create_element("category").with_attribute(("term", &*valid(category))).write_empty()?;
            }
            for enclosure in &entry.enclosures {
                let length = enclosure.length.map(|length| length.to_string());
                let more = [("type", enclosure.media_type.as_deref()), ("length", length.as_deref())];
                let more: Vec<_> = more.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
                if let Some(url) = web_link(Some(&enclosure.url)) {
                    link(xml, "enclosure", url, &more)?;
                }
            }
            html(xml, "summary", view.summary_html.as_deref())?;
            html(xml, "content", view.content_html.as_deref())?;
            if is_own { Ok(()) } else { source(xml, view) }
        })
        .map(drop)
}

fn published(view: &EntryView) -> Timestamp {
    view.stored.entry.published.unwrap_or(view.stored.seen)
}

fn authors(xml: &mut Xml, view: &EntryView) -> io::Result<()> {
    let listed = view.stored.entry.details.as_ref().map_or(&[][..], |details| &details.authors);
    for one in listed {
        author(xml, &one.name, web_link(one.url.as_ref()))?;
    }
    match &view.stored.entry.author {
        Some(name) if listed.is_empty() => author(xml, name, None),
        _ => Ok(()),
    }
}

fn author(xml: &mut Xml, name: &str, url: Option<&str>) -> io::Result<()> {
    xml.create_element("author")
        .write_inner_content(|xml| {
            text(xml, "name", name)?;
            url.map_or(Ok(()), |url| text(xml, "uri", url))
        })
        .map(drop)
}

/// The feed that it comes from.
fn source(xml: &mut Xml, view: &EntryView) -> io::Result<()> {
    let feed = &view.stored.feed;
    let Some(url) = &feed.feed_url else { return Ok(()) };
    xml.create_element("source")
        .write_inner_content(|xml| {
            text(xml, "id", url)?;
            text(xml, "title", feed.feed_title.as_deref().unwrap_or(url))?;
            text(xml, "updated", &published(view).to_string())?;
            link(xml, "self", url, &[])
        })
        .map(drop)
}

fn link(xml: &mut Xml, rel: &str, href: &str, more: &[(&str, &str)]) -> io::Result<()> {
    let href = valid(href);
    let mut element = xml.create_element("link").with_attribute(("rel", rel)).with_attribute(("href", &*href));
    let more: Vec<_> = more.iter().map(|(name, value)| (*name, valid(value))).collect();
    for (name, value) in &more {
        element = element.with_attribute((*name, &**value));
    }
    element.write_empty().map(drop)
}

fn html(xml: &mut Xml, name: &str, html: Option<&str>) -> io::Result<()> {
    let Some(html) = html else { return Ok(()) };
    let element = xml.create_element(name).with_attribute(("type", "html"));
    element.write_text_content(BytesText::new(&valid(html))).map(drop)
}

fn text(xml: &mut Xml, name: &str, text: &str) -> io::Result<()> {
    xml.create_element(name).write_text_content(BytesText::new(&valid(text))).map(drop)
}

/// Leaves out the characters that XML 1.0 does not have, escaped or not.
fn valid(text: &str) -> Cow<'_, str> {
    let is_valid = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{FFFD}' | '\u{10000}'..) && c != '\u{FFFE}';
    match text.chars().all(is_valid) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(text.chars().filter(|c| is_valid(*c)).collect()),
    }
}
