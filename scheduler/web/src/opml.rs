//! Subscriptions in OPML: every outline that names a feed, however deep in folders.
//!
//! What OPML has no word for (subscribers and the like) is in attributes of our own namespace, under the names of the
//! API's fields. Nothing is fetched and no entity expanded. Tags that are left open or closed twice and bare ampersands
//! are common in such files, and read as what was meant.

use std::borrow::Cow;

use common::labels::{LONGEST_TITLE, MOST_LABELS, label_of};
use common::words::plain;
use quick_xml::Reader;
use quick_xml::escape::unescape;
use quick_xml::events::{BytesStart, Event};
use serde_json::{Map, Value, json};

/// The prefix of the names of our attributes.
pub const PREFIX: &str = "feedfleet:";

/// A feed in a file.
#[derive(Debug)]
pub struct Subscription {
    /// Its line, from 1.
    pub line: usize,
    /// The text in place of its address; may be anything.
    pub url: String,
    /// What the file calls it.
    pub title: Option<String>,
    /// The folders that it is in, and its categories there, as labels.
    pub labels: Vec<String>,
    /// Further fields, under the names of the API's; may be anything.
    pub fields: Map<String, Value>,
}

impl Subscription {
    /// Returns a feed of which the file says nothing but its address.
    pub fn of(line: usize, url: &str) -> Self {
        Subscription { line, url: url.to_owned(), title: None, labels: Vec::new(), fields: Map::new() }
    }

    /// Returns the line of a bulk request that adds it. Labels are added to those that a known feed has, unless the file has our
    /// own list of them.
    pub fn to_json(&self) -> Value {
        let mut object = self.fields.clone();
        object.insert("url".to_owned(), self.url.as_str().into());
        if let Some(title) = &self.title {
            object.insert("title".to_owned(), title.as_str().into());
        }
        if !self.labels.is_empty() && !object.contains_key("labels") {
            let labels = &self.labels[..self.labels.len().min(MOST_LABELS)];
            object.insert("add_labels".to_owned(), json!(labels));
        }
        Value::Object(object)
    }
}

/// Returns the subscriptions of an OPML document, in its order. An error, in words, when it is not one: nothing of it
/// should be used then.
pub fn read(document: &str) -> Result<Vec<Subscription>, String> {
    read_at_most(document, usize::MAX)
}

/// The same of a document with at most this many subscriptions; an error as soon as there are more.
pub fn read_at_most(document: &str, most: usize) -> Result<Vec<Subscription>, String> {
    let mut reader = Reader::from_str(document);
    let config = reader.config_mut();
    (config.check_end_names, config.allow_unmatched_ends) = (false, true);
    let (mut found, mut is_opml, mut is_closed) = (Vec::new(), false, false);
    let (mut line, mut counted) = (1, 0);
    let mut folders = Folders::default();
    loop {
        let begins = usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX).min(document.len());
        line += document.as_bytes()[counted..begins].iter().filter(|byte| **byte == b'\n').count();
        counted = begins;
        if found.len() > most {
            return Err(format!("it has more than {most} feeds"));
        }
        match reader.read_event().map_err(|error| format!("line {line}: it is not well-formed XML: {error}"))? {
            event @ (Event::Start(_) | Event::Empty(_)) => {
                let is_open = matches!(event, Event::Start(_));
                let (Event::Start(element) | Event::Empty(element)) = event else { continue };
                let name = element.name();
                if name.as_ref().eq_ignore_ascii_case("opml") {
                    (is_opml, is_closed) = (true, !is_open);
                }
                if name.as_ref().eq_ignore_ascii_case("outline") {
                    let outline = Outline::of(&element);
                    let folder = outline.subscription(line, &folders).map(|feed| found.push(feed)).is_none();
                    if is_open {
                        folders.enter(outline.name().filter(|_| folder));
                    }
                }
            }
            Event::End(element) if element.name().as_ref().eq_ignore_ascii_case("outline") => folders.leave(),
            Event::End(element) if element.name().as_ref().eq_ignore_ascii_case("opml") => is_closed = true,
            Event::Eof if is_opml && !is_closed => {
                return Err(format!("line {line}: it ends before </opml>, so it was probably cut off"));
            }
            Event::Eof => break,
            _ => {}
        }
    }
    if is_opml { Ok(found) } else { Err("it has no <opml> element".to_owned()) }
}

/// The folders around an outline.
#[derive(Default)]
struct Folders(Vec<Option<String>>);

impl Folders {
    /// The maximum number of folders whose names become labels, the innermost ones: real documents have no more, and a
    /// document of nested folders costs no more.
    const DEEPEST: usize = 8;

    /// Goes into an outline; one that is a feed, or has no name, names no folder.
    fn enter(&mut self, name: Option<&str>) {
        self.0.push(name.and_then(label_of));
    }

    fn leave(&mut self) {
        self.0.pop();
    }

    fn labels(&self) -> impl Iterator<Item = String> {
        self.0[self.0.len().saturating_sub(Self::DEEPEST)..].iter().flatten().cloned()
    }
}

/// What an outline says.
#[derive(Default)]
struct Outline<'a> {
    xml_url: Option<String>,
    url: Option<String>,
    is_feed: bool,
    title: Option<Cow<'a, str>>,
    text: Option<Cow<'a, str>>,
    categories: Vec<String>,
    fields: Map<String, Value>,
}

impl<'a> Outline<'a> {
    fn of(outline: &'a BytesStart<'_>) -> Self {
        let mut found = Outline::default();
        for attribute in outline.attributes().with_checks(false) {
            // Attributes after a broken one cannot be separated.
            let Ok(attribute) = attribute else { break };
            let (name, value) = (attribute.key.as_ref().to_owned(), meant(&attribute.value).into_owned());
            match name.to_ascii_lowercase().as_str() {
                "xmlurl" => found.xml_url = Some(value.trim().to_owned()),
                "url" => found.url = Some(value.trim().to_owned()),
                "type" => {
                    found.is_feed = ["rss", "atom", "feed"].iter().any(|kind| value.trim().eq_ignore_ascii_case(kind));
                }
                "title" => found.title = Some(value.into()),
                "text" => found.text = Some(value.into()),
                "category" => {
                    found.categories = value.split([',', '/']).take(MOST_LABELS).filter_map(label_of).collect();
                }
                _ => {
                    if let Some(field) = name.strip_prefix(PREFIX) {
                        let value = serde_json::from_str(&value).unwrap_or(Value::String(value));
                        found.fields.insert(field.to_owned(), value);
                    }
                }
            }
        }
        found
    }

    fn name(&self) -> Option<&str> {
        let names = [&self.title, &self.text].into_iter().flatten().map(|name| name.trim());
        names.into_iter().find(|name| !name.is_empty())
    }

    /// Returns the feed that it names; folders, links and inclusions name none.
    fn subscription(&self, line: usize, folders: &Folders) -> Option<Subscription> {
        let url = self.xml_url.as_ref().or(self.url.as_ref().filter(|_| self.is_feed));
        if url.is_none() && !self.is_feed {
            return None;
        }
        let url = url.cloned().unwrap_or_default();
        let mut labels: Vec<String> = folders.labels().chain(self.categories.iter().cloned()).collect();
        labels.sort();
        labels.dedup();
        // Our own export calls a feed without a title by its URL.
        let title = self.name().filter(|name| *name != url).map(|name| plain(name, LONGEST_TITLE));
        let title = title.map(|title| title.trim().to_owned()).filter(|title| !title.is_empty());
        Some(Subscription { line, url, title, labels, fields: self.fields.clone() })
    }
}

/// Returns an attribute's value. One with bare ampersands is taken as written, except for the entities that are meant
/// as such.
fn meant(raw: &str) -> Cow<'_, str> {
    unescape(raw).unwrap_or_else(|_| {
        let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
        entities.iter().fold(raw.to_owned(), |text, (entity, meant)| text.replace(entity, meant)).into()
    })
}

#[cfg(test)]
mod tests {
    use common::testing::mutations::write_seeds;
    use common::testing::{self, assert_linear};

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
    fn folders_and_categories_become_labels_and_names_titles() {
        let document = r#"<opml><body><outline text="Cooking"><outline text="Ve&amp;gan, raw">
            <outline text="My name" xmlUrl="http://a.example/" category="/Best/Daily,new"/></outline>
            <outline title="http://b.example/" xmlUrl="http://b.example/"></outline></outline>
            <outline xmlUrl="http://c.example/"/></body></opml>"#;
        let found: Vec<_> = read(document).unwrap().into_iter().map(|found| (found.title, found.labels)).collect();
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let expected = [
            (Some("My name".to_owned()), names(&["Best", "Cooking", "Daily", "Ve&gan, raw", "new"])),
            (None, names(&["Cooking"])),
            (None, names(&[])),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn folders_in_folders_cost_a_feed_no_more_than_a_few_labels() {
        let depth = 100_000;
        let document = format!(
            "<opml>{}{}</opml>",
            "<outline text='x'>".repeat(depth),
            "<outline xmlUrl='http://a.example/'/>".repeat(9)
        );
        assert!(read(&document).unwrap().iter().all(|found| found.labels == ["x"]));
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
    fn reading_stops_at_the_first_subscription_too_many() {
        let document = "<opml>".to_owned() + &"<outline xmlUrl='http://a.example/'/>".repeat(3) + "</wrong";
        assert_eq!(read_at_most(&document, 2).err().as_deref(), Some("it has more than 2 feeds"));
        let three = document.replace("</wrong", "</opml>");
        assert_eq!(read_at_most(&three, 3).map(|found| found.len()), Ok(3));
    }

    /// `FEEDFLEET_SEEDS` names a folder that the seeds are written to, for libFuzzer.
    #[test]
    fn the_seeds_are_what_the_reader_takes() {
        let seeds = [
            "<?xml version='1.0'?><opml version='2.0'><head><title>t</title></head><body><outline text='a &amp; b' title='c'>\
             <outline type='rss' text='d' xmlUrl='http://a.example/?x=1&amp;y=2' category='/e/f,g'/></outline></body></opml>",
            "<opml><body><outline xmlUrl=' http://a.example/ ' feedfleet:labels='a,b' feedfleet:subscribers='7'/>\n\
             <outline XMLURL='http://b.example/?a&b'></outline></outline><outline><!-- c --><outline/></body></opml>",
        ];
        assert!(seeds.iter().all(|seed| read(seed).is_ok_and(|found| !found.is_empty())));
        write_seeds("opml", &seeds.map(|seed| seed.as_bytes().to_vec()));
    }

    #[test]
    fn another_document_is_refused() {
        assert!(read("<rss><outline xmlUrl='http://a.example/'/></rss>").is_err());
        assert!(read("plain text").is_err());
        let error = read("<opml>\n<outline").err();
        assert!(error.is_some_and(|error| error.starts_with("line 2: it is not well-formed XML")));
    }

    #[test]
    fn a_document_that_was_cut_off_between_two_elements_is_refused() {
        let whole = "<opml>\n<body>\n<outline xmlUrl='http://a.example/'/>\n</body></opml>\n";
        assert_eq!(urls(whole), ["http://a.example/"]);
        for cut_off in ["\n</body></opml>\n", "</opml>\n", "<outline xmlUrl='http://a.example/'/>\n</body></opml>\n"] {
            let error = read(whole.trim_end_matches(cut_off)).err();
            assert!(error.is_some_and(|error| error.ends_with("it ends before </opml>, so it was probably cut off")));
        }
        assert!(read("<opml/>").is_ok_and(|found| found.is_empty()));
        assert!(read("<OPML><body></OPML>").is_ok_and(|found| found.is_empty()), "only its end is needed");
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
        let generated = testing::pieces(&pieces, 24);
        for piece in pieces.into_iter().chain(generated.iter().map(String::as_str)) {
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
