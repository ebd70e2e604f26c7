//! Entries as an Atom feed (RFC 4287, with the paging of RFC 5005).

use common::time::Timestamp;

use super::xml::Xml;
use super::{Channel, Health, base_url, entry_urn, modified, own_id, web_link};
use crate::wire::EntryView;

/// The namespace of what Atom has no element for.
const NAMESPACE: &str = "urn:feedfleet:atom";

/// Writes the feed. Its texts are sanitised, and have no relative links.
pub fn written(channel: &Channel) -> Vec<u8> {
    document(channel, false)
}

/// Writes the feed. Its texts are as the publisher wrote them, and each states what its relative links are resolved
/// against.
pub(crate) fn as_published(channel: &Channel) -> Vec<u8> {
    document(channel, true)
}

fn document(channel: &Channel, with_base: bool) -> Vec<u8> {
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
            entry(xml, view, channel.of.is_some(), with_base);
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

fn entry(xml: &mut Xml, view: &EntryView, is_own: bool, with_base: bool) {
    let (stored, entry) = (&view.stored, &view.stored.entry);
    let id = if is_own { own_id(stored.feed_id, &entry.id) } else { entry_urn(stored.feed_id, &entry.id) };
    let alternate = web_link(entry.url.as_ref());
    let base = base_url(entry).filter(|_| with_base);
    let (summary, content) = match (view.summary_html.as_deref(), view.content_html.as_deref()) {
        // An entry without an alternate link must have content (RFC 4287, section 4.1.2).
        (summary, None) if alternate.is_none() => (None, Some(summary.unwrap_or_default())),
        texts => texts,
    };
    xml.element("entry").inner(|xml| {
        text(xml, "id", &id);
        text(xml, "title", &view.display_title);
        text(xml, "updated", &updated(view).to_string());
        text(xml, "published", &published(view).to_string());
        if let Some(url) = alternate {
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
        html(xml, "summary", summary, base);
        html(xml, "content", content, base);
        if !is_own {
            source(xml, view);
        }
    });
}

/// Returns when it changed last. If it never did: when it was published or first seen.
fn updated(view: &EntryView) -> Timestamp {
    modified(&view.stored).unwrap_or_else(|| published(view))
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

fn html(xml: &mut Xml, name: &'static str, html: Option<&str>, base: Option<&str>) {
    let Some(html) = html else { return };
    let mut element = xml.element(name).with("type", "html");
    if let Some(base) = base {
        element = element.with("xml:base", base);
    }
    element.text(html);
}

fn text(xml: &mut Xml, name: &'static str, text: &str) {
    xml.element(name).text(text);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use common::entry::{Entry, EntryDetails};
    use common::url::FeedId;
    use store::{EntryFeed, StoredEntry};

    use super::*;

    const SEEN: Timestamp = Timestamp::EPOCH;

    type Write = fn(&Channel) -> Vec<u8>;

    /// Returns what a document says of its only entry, whose form was stored at this time.
    fn entry_of(write: Write, entry: Entry, stored: Timestamp) -> String {
        let (summary_html, content_html) = (entry.summary.clone(), entry.content.clone());
        let feed = EntryFeed::default();
        let stored = StoredEntry { seq: 1, feed_id: FeedId(1), seen: SEEN, stored, feed, entry };
        let view = EntryView { summary_html, content_html, ..EntryView::of(stored) };
        let channel = Channel {
            title: "t".into(),
            id: "urn:t".into(),
            home: None,
            own: "urn:t".into(),
            next: None,
            hub: None,
            updated: SEEN,
            of: None,
            entries: vec![view],
        };
        let text = String::from_utf8(write(&channel)).unwrap();
        let (_, entry) = text.split_once("<entry>").unwrap();
        entry.to_owned()
    }

    fn with_texts(summary: Option<&str>, content: Option<&str>) -> Entry {
        let [summary, content] = [summary, content].map(|text| text.map(str::to_owned));
        Entry { id: "1".into(), summary, content, ..Entry::default() }
    }

    #[test]
    fn texts_as_published_state_the_base_of_their_links_and_sanitised_ones_do_not() {
        let at_url = || Entry { url: Some("https://a.example/b/1?x&y".into()), ..with_texts(Some("s"), Some("c")) };
        let published = entry_of(as_published, at_url(), SEEN);
        let base = "xml:base=\"https://a.example/b/1?x&amp;y\"";
        for part in [format!("<summary type=\"html\" {base}>s<"), format!("<content type=\"html\" {base}>c<")] {
            assert!(published.contains(&part), "{part} is missing: {published}");
        }
        let details = EntryDetails { base_url: Some("https://a.example/dir/".into()), ..EntryDetails::default() };
        let stated = Entry { details: Some(Box::new(details)), ..at_url() };
        let published = entry_of(as_published, stated.clone(), SEEN);
        assert_eq!(published.matches("xml:base=\"https://a.example/dir/\"").count(), 2, "{published}");
        let opens_a_program = Entry { url: Some("magnet:?x".into()), ..at_url() };
        let without: [(Write, Entry); 3] =
            [(written, stated), (as_published, with_texts(None, Some("c"))), (as_published, opens_a_program)];
        for (write, entry) in without {
            let text = entry_of(write, entry, SEEN);
            assert!(text.contains("<content type=\"html\">c<"), "{text}");
        }
    }

    #[test]
    fn an_entry_without_an_alternate_link_has_content() {
        let link = Some("https://a.example/1".to_owned());
        let other = Some("mailto:ann@a.example".to_owned());
        let short = || with_texts(Some("s"), None);
        for (entry, expected) in [
            (with_texts(None, None), "<content type=\"html\"></content>"),
            (short(), "<content type=\"html\">s</content>"),
            (Entry { url: other, ..short() }, "<content type=\"html\">s</content>"),
            (with_texts(Some("s"), Some("c")), "<summary type=\"html\">s</summary><content type=\"html\">c</content>"),
            (Entry { url: link.clone(), ..short() }, "<summary type=\"html\">s</summary>"),
            (Entry { url: link, ..with_texts(None, None) }, ""),
        ] {
            let text = entry_of(written, entry, SEEN);
            assert!(text.contains(expected), "{expected} is missing: {text}");
            for name in ["<summary", "<content"] {
                assert_eq!(text.matches(name).count(), expected.matches(name).count(), "{text}");
            }
        }
    }

    #[test]
    fn an_edit_moves_the_update_of_an_entry_whose_publisher_states_none() {
        let at = |seconds: u64| SEEN.after(Duration::from_secs(seconds));
        for (published, updated, stored, expected) in [
            (None, None, SEEN, SEEN),
            (Some(at(10)), None, SEEN, at(10)),
            (Some(at(10)), Some(at(20)), SEEN, at(20)),
            (None, None, at(30), at(30)),
            (Some(at(10)), None, at(30), at(30)),
            (Some(at(40)), None, at(30), at(40)),
            (Some(at(10)), Some(at(20)), at(30), at(20)),
        ] {
            let entry = Entry { published, updated, ..with_texts(None, None) };
            let text = entry_of(written, entry, stored);
            let part = format!("<updated>{expected}</updated>");
            assert!(text.contains(&part), "{part} is missing: {text}");
        }
    }
}
