//! Writes subscriptions as OPML, as [`web::opml`] reads it.

use std::borrow::Cow;

use common::words::plain;
use quick_xml::escape;
use scheduler::wire::FeedView;
use serde_json::{Value, json};
use web::opml::PREFIX;

/// The beginning of a document.
pub(crate) const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
    <opml version=\"2.0\" xmlns:feedfleet=\"urn:feedfleet:opml\">\n<head><title>feedfleet</title></head>\n<body>\n";
/// The end of a document that [`HEAD`] begins.
pub(crate) const END: &str = "</body>\n</opml>\n";

/// The folder that is being written: feeds that follow each other with the same first label share one.
#[derive(Default)]
pub(crate) struct Folder(Option<String>);

impl Folder {
    /// Returns what leaves this folder for another one, or for none.
    pub(crate) fn move_to(&mut self, label: Option<&String>) -> String {
        if self.0.as_ref() == label {
            return String::new();
        }
        let mut text = String::new();
        if self.0.is_some() {
            text += "</outline>\n";
        }
        if let Some(label) = label {
            let name = escape(label.as_str());
            text += &format!("<outline text=\"{name}\" title=\"{name}\">\n");
        }
        self.0 = label.cloned();
        text
    }
}

/// Escapes a text, and leaves out what no XML document may contain.
fn escape<'a>(text: impl Into<Cow<'a, str>>) -> String {
    let is_allowed =
        |c: &char| (!c.is_control() || matches!(c, '\t' | '\n' | '\r')) && !matches!(c, '\u{fffe}' | '\u{ffff}');
    escape::escape(text.into().chars().filter(is_allowed).collect::<String>()).into_owned()
}

/// Returns a feed as an outline, on a separate line.
pub(crate) fn outline(feed: &FeedView) -> String {
    let title = plain(feed.title.as_deref().unwrap_or(&feed.url), 500);
    let (title, url) = (escape(title), escape(feed.url.as_str()));
    let mut line = format!("<outline type=\"rss\" text=\"{title}\" title=\"{title}\" xmlUrl=\"{url}\"");
    let labels = &feed.marks.labels;
    if !labels.is_empty() {
        line += &format!(" category=\"{}\"", escape(labels.join(",")));
    }
    let differs = feed.active_subscribers != feed.subscribers;
    let fields = [
        ("subscribers", Some(json!(feed.subscribers))),
        ("active_subscribers", differs.then(|| json!(feed.active_subscribers))),
        ("sla", feed.sla.then_some(Value::Bool(true))),
        ("important", feed.important.then_some(Value::Bool(true))),
        ("private", feed.private.then_some(Value::Bool(true))),
        ("interval", feed.interval.map(|seconds| json!(seconds))),
        ("calm", (!feed.calm.is_empty()).then(|| json!(feed.calm))),
        ("labels", (!labels.is_empty()).then(|| json!(labels))),
        ("external_id", feed.marks.external_id.as_ref().map(|id| json!(id))),
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
    use super::*;

    #[test]
    fn no_text_makes_a_document_that_is_not_xml() {
        assert_eq!(escape("a\u{fffe}\u{ffff}\u{1}<b>\n"), "a&lt;b&gt;\n");
    }
}
