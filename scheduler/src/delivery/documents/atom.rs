//! Entries as an Atom feed (RFC 4287, with the paging of RFC 5005).

use common::time::Timestamp;

use super::xml::Xml;
use super::{Channel, Health, entry_urn, own_id, web_link};
use crate::wire::EntryView;

/// The namespace of what Atom has no element for.
const NAMESPACE: &str = "urn:feedfleet:atom";

/// Writes the feed.
pub fn written(channel: &Channel) -> Vec<u8> {
    let mut xml = Xml::new();
    xml.element("feed").with("xmlns", "http://www.w3.org/2005/Atom").inner(|xml| {
        text(xml, "id", &channel.id);
        text(xml, "title", &channel.title);
        text(xml, "updated", &channel.updated.to_string());
        author(xml, if channel.of.is_some() { &channel.title } else { "feedfleet" }, None);
        let own_type = [("type", "application/atom+xml")];
        link(xml, "self", &channel.own, if channel.of.is_some() { &[] } else { &own_type });
        if let Some(home) = &channel.home {
            link(xml, "alternate", home, &[("type", "text/html")]);
        }
        if let Some(next) = &channel.next {
            link(xml, "next", next, &[]);
        }
        if let Some(hub) = &channel.hub {
            link(xml, "hub", hub, &[]);
        }
        if let Some(of) = &channel.of {
            health(xml, of);
        }
        for view in &channel.entries {
            entry(xml, view, channel.of.is_some());
        }
    });
    xml.into_bytes()
}

/// How polls of the feed go.
fn health(xml: &mut Xml, of: &Health) {
    let at = |at: Option<Timestamp>| at.map(|at| at.to_string());
    let fields = [
        ("last_status", of.last_status.map(|status| status.to_string())),
        ("last_outcome", of.last_outcome.map(|outcome| outcome.to_string())),
        ("last_polled", at(of.last_polled)),
        ("next_due", at(of.next_due)),
        ("failing_since", at(of.failing_since)),
    ];
    let mut element = xml.element("feedfleet:status").with("xmlns:feedfleet", NAMESPACE);
    for (name, value) in fields {
        if let Some(value) = value {
            element = element.with(name, &value);
        }
    }
    element.empty();
}

fn entry(xml: &mut Xml, view: &EntryView, is_own: bool) {
    let (stored, entry) = (&view.stored, &view.stored.entry);
    let id = if is_own { own_id(stored.feed_id, &entry.id) } else { entry_urn(stored.feed_id, &entry.id) };
    xml.element("entry").inner(|xml| {
        text(xml, "id", &id);
        text(xml, "title", &view.display_title);
        text(xml, "updated", &entry.updated.or(entry.published).unwrap_or(stored.seen).to_string());
        text(xml, "published", &published(view).to_string());
        if let Some(url) = web_link(entry.url.as_ref()) {
            link(xml, "alternate", url, &[]);
        }
        authors(xml, view);
        for category in &entry.categories {
            xml.element("category").with("term", category).empty();
        }
        for enclosure in &entry.enclosures {
            let length = enclosure.length.map(|length| length.to_string());
            let more = [("type", enclosure.media_type.as_deref()), ("length", length.as_deref())];
            let more: Vec<_> = more.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
            if let Some(url) = web_link(Some(&enclosure.url)) {
                link(xml, "enclosure", url, &more);
            }
        }
        html(xml, "summary", view.summary_html.as_deref());
        html(xml, "content", view.content_html.as_deref());
        if !is_own {
            source(xml, view);
        }
    });
}

fn published(view: &EntryView) -> Timestamp {
    view.stored.entry.published.unwrap_or(view.stored.seen)
}

fn authors(xml: &mut Xml, view: &EntryView) {
    let listed = view.stored.entry.details.as_ref().map_or(&[][..], |details| &details.authors);
    for one in listed {
        author(xml, &one.name, web_link(one.url.as_ref()));
    }
    if let (Some(name), []) = (&view.stored.entry.author, listed) {
        author(xml, name, None);
    }
}

fn author(xml: &mut Xml, name: &str, url: Option<&str>) {
    xml.element("author").inner(|xml| {
        text(xml, "name", name);
        if let Some(url) = url {
            text(xml, "uri", url);
        }
    });
}

/// The feed that it comes from.
fn source(xml: &mut Xml, view: &EntryView) {
    let feed = &view.stored.feed;
    let Some(url) = &feed.feed_url else { return };
    xml.element("source").inner(|xml| {
        text(xml, "id", url);
        text(xml, "title", feed.feed_title.as_deref().unwrap_or(url));
        text(xml, "updated", &published(view).to_string());
        link(xml, "self", url, &[]);
    });
}

fn link(xml: &mut Xml, rel: &str, href: &str, more: &[(&str, &str)]) {
    let element = xml.element("link").with("rel", rel).with("href", href);
    more.iter().fold(element, |element, (name, value)| element.with(name, value)).empty();
}

fn html(xml: &mut Xml, name: &'static str, html: Option<&str>) {
    if let Some(html) = html {
        xml.element(name).with("type", "html").text(html);
    }
}

fn text(xml: &mut Xml, name: &'static str, text: &str) {
    xml.element(name).text(text);
}
