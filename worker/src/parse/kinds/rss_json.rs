//! RSS-in-JSON: RSS with a JSON object in place of each element. It is written as XML and read as that, so that it has every
//! field that RSS has.
//!
//! A member of an object is an element, a list of them that element several times. Attributes are members as well, and
//! converters mark them in several ways: `@name`, `-name`, members of `$` or `@attributes`; where nothing marks them, texts in
//! the objects that RSS uses as containers are elements, and texts in all others are attributes. An element's own text beside
//! attributes is `#value`, `#text`, `$t` or `_`.

use serde_json::{Map, Value};

use super::posts::json;
use crate::parse::ParseLimits;

/// Elements whose texts are elements, not attributes.
const CONTAINERS: [&str; 9] =
    ["channel", "item", "image", "textInput", "skipHours", "skipDays", "author", "atom:author", "media:group"];
/// Members that are the text of the element around them.
const TEXTS: [&str; 5] = ["#value", "#text", "$t", "_", "__cdata"];
/// Members whose members are attributes.
const ATTRIBUTES: [&str; 2] = ["$", "@attributes"];
/// Nesting that is read: a feed has half of it.
const MAX_DEPTH: usize = 12;
/// Longest name of an element.
const MAX_NAME: usize = 64;
/// A list of `{}` becomes a list of elements with names: how many times its size a document may grow, beside a few KB.
const MAX_GROWTH: usize = 3;
const MAX_GROWTH_OF_SMALL: usize = 64 * 1024;

/// Returns the document as RSS in XML, if it is RSS-in-JSON.
pub(in crate::parse) fn as_xml(text: &str, limits: &ParseLimits) -> Option<String> {
    if !text.trim_start().starts_with('{') || !text.contains("\"rss\"") || limits.is_late() {
        return None;
    }
    let document = json(text)?;
    let rss = document.get("rss")?;
    let channel = rss.get("channel")?;
    // some converters make a list of every element
    let is_feed = channel.is_object() || channel.get(0).is_some_and(Value::is_object);
    let mut writer = Writer { out: String::new(), limit: text.len().saturating_mul(MAX_GROWTH) + MAX_GROWTH_OF_SMALL };
    writer.element("rss", rss, 0);
    (is_feed && writer.out.len() < writer.limit).then_some(writer.out)
}

struct Writer {
    out: String,
    /// Nothing more is written beyond this many bytes.
    limit: usize,
}

impl Writer {
    /// Writes a member as an element, or as several.
    fn element(&mut self, name: &str, value: &Value, depth: usize) {
        if depth == MAX_DEPTH || self.out.len() >= self.limit || !is_name(name) {
            return;
        }
        match value {
            Value::Null => {}
            Value::Array(list) => {
                list.iter().filter(|one| !one.is_array()).for_each(|one| self.element(name, one, depth));
            }
            Value::Object(members) => self.object(name, members, depth),
            scalar => {
                self.out.extend(["<", name, ">"]);
                self.text(scalar);
                self.out.extend(["</", name, ">"]);
            }
        }
    }

    fn object(&mut self, name: &str, members: &Map<String, Value>, depth: usize) {
        let holds_elements = CONTAINERS.contains(&name);
        self.out.extend(["<", name]);
        for (member, value) in members {
            let attribute = match member.strip_prefix(['@', '-']) {
                Some(marked) => Some(marked),
                None if holds_elements || TEXTS.contains(&member.as_str()) => None,
                // those of other namespaces have no prefix themselves
                None => Some(member.as_str()).filter(|member| !member.contains(':') || is_of_xml(member)),
            };
            match (attribute, value) {
                (_, Value::Object(marked)) if ATTRIBUTES.contains(&member.as_str()) => {
                    marked.iter().for_each(|(member, value)| self.attribute(member, value));
                }
                (Some(attribute), value) => self.attribute(attribute, value),
                _ => {}
            }
        }
        self.out.push('>');
        for (member, value) in members {
            let is_nested = value.is_object() || value.is_array();
            let is_element = is_nested || holds_elements || (member.contains(':') && !is_of_xml(member));
            if TEXTS.contains(&member.as_str()) {
                self.text(value);
            } else if is_element {
                self.element(member, value, depth + 1);
            }
        }
        self.out.extend(["</", name, ">"]);
    }

    fn attribute(&mut self, name: &str, value: &Value) {
        if is_name(name) && !value.is_object() && !value.is_array() && !value.is_null() && self.out.len() < self.limit {
            self.out.extend([" ", name, "=\""]);
            self.text(value);
            self.out.push('"');
        }
    }

    /// Writes a scalar as text.
    fn text(&mut self, value: &Value) {
        match value {
            Value::String(text) => {
                for piece in text.split_inclusive(['&', '<', '"']) {
                    let (plain, reference) = match piece.as_bytes().last() {
                        Some(b'&') => (&piece[..piece.len() - 1], "&amp;"),
                        Some(b'<') => (&piece[..piece.len() - 1], "&lt;"),
                        Some(b'"') => (&piece[..piece.len() - 1], "&quot;"),
                        _ => (piece, ""),
                    };
                    self.out.extend([plain, reference]);
                }
            }
            Value::Number(number) => self.out.push_str(&number.to_string()),
            Value::Bool(truth) => self.out.push_str(if *truth { "true" } else { "false" }),
            Value::Null | Value::Array(_) | Value::Object(_) => {}
        }
    }
}

fn is_of_xml(name: &str) -> bool {
    name.starts_with("xmlns:") || name.starts_with("xml:")
}

/// Returns whether this can be an element's or attribute's name.
fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'_' | b'-' | b'.');
    let starts = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    starts && name.len() <= MAX_NAME && name.bytes().all(is_part) && name.matches(':').count() < 2
}
