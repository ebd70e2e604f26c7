//! The second try: a broken document rewritten into one that is well-formed.
//!
//! Runs only when the first try failed, so that a sound document pays nothing for it. It repairs text before the
//! document, stray `&` and `<`, undeclared entities, broken attributes, unclosed and crossed tags, HTML written into a
//! feed without escaping, and a document that ends too early (whole entries are kept). An entry in which nothing is broken
//! is copied as it is, so that it reads the same whatever is wrong elsewhere in the document.
//!
//! The result is only a better guess: it passes the reader and its limits like any document.

mod dialect;
pub(super) mod json;
#[cfg(test)]
mod tests;
mod tokens;

use std::collections::HashMap;

use crate::parse::ParseLimits;
use crate::parse::xml::{self, Entities};
use crate::watch::Watch;
use dialect::{Dialect, NextEnd};
use tokens::{Tag, Token, Tokens};

/// A document with more open elements than this is not repaired: the reader would refuse it anyway.
const MAX_OPEN: usize = 256;
/// How much longer than half as much again the repaired document may be, in bytes: what needs more is not a document.
const MAX_GROWTH: usize = 64 * 1024;
/// End tags without a start tag that are left out: each is compared with all open elements.
const MAX_UNMATCHED: usize = 100_000;
/// How many times its own length a document may be scanned for whole entries without finding one.
const WASTE: usize = 4;
/// Attributes that are kept of one element, and that are looked at: each is compared with those that are kept.
const MAX_ATTRIBUTES: usize = 64;
const MAX_ATTRIBUTES_READ: usize = 4 * MAX_ATTRIBUTES;
/// How far into a text the beginning of a feed is looked for, in bytes.
const MAX_JUNK: usize = 64 * 1024;
/// Longest name of a root element, prefix included, in bytes: further ones must not be read to their end at each `<`.
const MAX_ROOT_NAME: usize = 32;

/// What is not markup of the document: how it begins, and how it ends.
const NO_MARKUP: [(&str, &str); 3] = [("<!--", "-->"), ("<script", "</script"), ("<style", "</style")];

/// Returns where the feed begins in a text, if there is one: at the first tag that only a feed begins with. A page may mention
/// such a tag in a comment or in a script.
pub(super) fn feed_position(text: &str) -> Option<usize> {
    let head = &text[..text.floor_char_boundary(MAX_JUNK)];
    let mut from = 0;
    // What begins and does not end: what looks like the feed may be a part of it.
    let mut unclosed = [false; NO_MARKUP.len()];
    while let Some(at) = head[from..].find('<').map(|at| from + at) {
        let rest = &head[at..];
        let kind = NO_MARKUP.iter().position(|(begin, _)| starts_with(rest, begin));
        if let Some(kind) = kind.filter(|kind| !unclosed[*kind]) {
            let end = ends(rest, NO_MARKUP[kind].1);
            unclosed[kind] = end.is_none();
            from = at + end.unwrap_or(1);
            continue;
        }
        let name = &rest[1..rest.floor_char_boundary(MAX_ROOT_NAME + 2)];
        let end = name.find(|c: char| c.is_whitespace() || matches!(c, '>' | '/')).unwrap_or(name.len());
        if end <= MAX_ROOT_NAME && dialect::kind(&name[..end]).is_some() {
            let is_certain =
                unclosed == [false; NO_MARKUP.len()] || text.trim_end().ends_with(&format!("</{}>", &name[..end]));
            return is_certain.then_some(at);
        }
        from = at + 1;
    }
    None
}

fn starts_with(text: &str, begin: &str) -> bool {
    text.as_bytes().get(..begin.len()).is_some_and(|bytes| bytes.eq_ignore_ascii_case(begin.as_bytes()))
}

/// Returns where the first `end` begins, in letters of any case.
fn ends(text: &str, end: &str) -> Option<usize> {
    text.as_bytes().windows(end.len()).position(|bytes| bytes.eq_ignore_ascii_case(end.as_bytes()))
}

/// A document that was rewritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mended {
    pub(super) text: String,
    /// It ended before its root element did.
    pub(super) truncated: bool,
}

/// Returns the repaired document. `None` when it is not a feed, or when its deadline has passed.
pub(super) fn mended(text: &str, limits: &ParseLimits) -> Option<Mended> {
    let (head, text) = text.split_at(feed_position(text)?);
    let mut watch = Watch::new(limits.deadline);
    let Some((Token::Start(root), _)) = Tokens::new(text).next() else { return None };
    let mut rewriter = Rewriter::new(Dialect::of_root(root.name)?, doctype(head), text.len(), *limits);
    let mut tokens = Tokens::new(text);
    loop {
        let here = &text[text.len() - tokens.left()..];
        let Some((token, raw)) = tokens.next() else { break };
        match token {
            Token::Text(text) => rewriter.text(text),
            Token::Data(data) => tokens::push_literal(&mut rewriter.out, data),
            Token::Start(tag) => {
                if let Some(rest) = rewriter.start(tag, raw, here) {
                    tokens.continue_at(rest);
                }
            }
            Token::End(name) => rewriter.end(name, raw),
            Token::Nothing => {}
        }
        rewriter.hopeless |= rewriter.out.len() > rewriter.longest || watch.is_late(text.len() - tokens.left());
        if rewriter.hopeless || rewriter.closed {
            break;
        }
    }
    rewriter.finish()
}

/// Returns the DOCTYPE among what comes before the document, whose entities its entries use. As for the reader, the last one counts.
fn doctype(head: &str) -> &str {
    let mut found = "";
    let mut tokens = Tokens::new(head);
    loop {
        let here = &head[head.len() - tokens.left()..];
        let Some((token, _)) = tokens.next() else { return found };
        if token == Token::Nothing && starts_with(here, "<!doctype") {
            let Some(length) = xml::doctype_length(here) else { return found };
            found = &here[..length];
            tokens.continue_at(&here[length..]);
        }
    }
}

/// An element that is open in the output.
struct Open {
    /// As it would be in a plain document.
    plain: String,
    /// As it was written.
    written: String,
}

/// How markup inside of an element that holds text is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    /// It is HTML that should have been escaped.
    Html,
    /// It is XHTML: its text contains references.
    Xhtml,
}

struct Rewriter {
    out: String,
    open: Vec<Open>,
    dialect: Dialect,
    /// What the document's DOCTYPE defines.
    entities: Entities,
    /// An element that holds text is open: its depth.
    text_holder: Option<(usize, Inside)>,
    /// An entry is open: its depth, and where it begins in the output.
    entry: Option<(usize, usize)>,
    /// End tags that were left out.
    unmatched: usize,
    /// Bytes that may still be scanned for entries that turn out to be broken.
    budget: usize,
    /// In how many bytes at the end of the document no comment ends, no CDATA section.
    without_end: [usize; 2],
    /// Where elements of these names end that need not have an end tag.
    ends: HashMap<String, NextEnd>,
    /// Too deep, grown too much, too many end tags, or late.
    hopeless: bool,
    longest: usize,
    limits: ParseLimits,
    /// The root element has ended.
    closed: bool,
    /// The channel that holds all entries of RSS has ended, and nothing begins behind it: only the end of the root is missing.
    channel_ended: bool,
}

impl Rewriter {
    fn new(dialect: Dialect, doctype: &str, length: usize, limits: ParseLimits) -> Self {
        let mut out = String::with_capacity(doctype.len() + length + length / 8);
        out.push_str(doctype);
        Rewriter {
            out,
            open: Vec::new(),
            dialect,
            entities: Entities::of_doctype(doctype),
            text_holder: None,
            entry: None,
            unmatched: 0,
            budget: length.saturating_mul(WASTE),
            without_end: [0; 2],
            ends: HashMap::new(),
            hopeless: false,
            longest: doctype.len() + length + length / 2 + MAX_GROWTH,
            limits,
            closed: false,
            channel_ended: false,
        }
    }

    fn text(&mut self, text: &str) {
        match self.text_holder {
            Some((_, Inside::Xhtml)) => tokens::push_literal(&mut self.out, text),
            _ => tokens::push_escaped(&mut self.out, text, &self.entities, self.longest),
        }
    }

    /// Handles a start tag, with which the text `here` begins. Returns what follows where more than the tag was taken.
    fn start<'t>(&mut self, tag: Tag<'_>, raw: &str, here: &'t str) -> Option<&'t str> {
        let plain = self.dialect.plain(tag.name);
        let is_entry = self.dialect.is_entry(&plain) && !self.open.is_empty();
        if is_entry {
            self.close_to(self.container() + 1);
            if let Some(entry) = self.whole_entry(here, tag.name) {
                self.out.push_str(entry);
                return Some(&here[entry.len()..]);
            }
        } else if self.is_unclosed_before(&plain, tag.attributes, here) {
            self.close_to(self.open.len());
        } else if self.text_holder.is_some() {
            tokens::push_literal(&mut self.out, raw);
            return None;
        }
        let begins = self.out.len();
        let is_xhtml = self.dialect.holds_text(&plain) && self.dialect.is_xhtml(tag.attributes);
        self.write_start(tag, is_xhtml);
        if tag.empty {
            self.closed = self.open.is_empty();
            return None;
        }
        self.channel_ended = false;
        self.open.push(Open { written: tag.name.to_owned(), plain });
        let depth = self.open.len();
        self.hopeless |= depth > MAX_OPEN;
        if is_entry {
            self.entry = Some((depth, begins));
        } else if self.open.last().is_some_and(|open| self.dialect.holds_text(&open.plain)) {
            self.text_holder = Some((depth, if is_xhtml { Inside::Xhtml } else { Inside::Html }));
        }
        None
    }

    /// Returns the entry of this name that a text begins with, if it is well-formed and within the limits here.
    fn whole_entry<'t>(&mut self, text: &'t str, name: &str) -> Option<&'t str> {
        let whole = text.len();
        let text = &text[..text.floor_char_boundary(self.budget)];
        let cut = whole - text.len();
        let known = self.without_end.map(|last| last.saturating_sub(cut));
        let mut without_end = known;
        let at = tokens::next_tag(text, name, &mut without_end);
        let tag = text.get(at + 1..).filter(|tag| tag.starts_with('/'));
        let end = tag.and_then(|tag| tag.find(['<', '>'])).map(|end| at + 1 + end);
        let entry = end.map(|end| &text[..=end]);
        let is_whole = |entry: &&str| xml::whole_element(entry, self.open.len(), &self.limits) == Some(entry.len());
        let entry = entry.filter(is_whole);
        if cut == 0 {
            self.without_end = without_end;
        }
        if entry.is_none() {
            self.budget -= match (end, tag) {
                // A section may end behind the budget: that it was searched here is not remembered.
                _ if cut > 0 && without_end != known => text.len(),
                (Some(end), _) => end,
                (None, Some(_)) => text.len(),
                (None, None) => at,
            };
        }
        entry
    }

    /// Returns whether the innermost element has no end tag, and ends where this one begins.
    fn is_unclosed_before(&mut self, plain: &str, attributes: &str, here: &str) -> bool {
        let Some(open) = self.open.last() else { return false };
        if !self.dialect.ends_before(&open.plain, plain, attributes) {
            return false;
        }
        // What was found for an element of this name counts until the text after it begins, so that no text is searched twice.
        let found = self.ends.get(&open.plain).copied().filter(|end| end.left < here.len());
        let end = found.unwrap_or_else(|| {
            let end = self.dialect.next_end(&open.plain, here);
            self.ends.insert(open.plain.clone(), end);
            end
        });
        !end.is_own
    }

    fn end(&mut self, name: &str, raw: &str) {
        let plain = self.dialect.plain(name);
        if let Some((depth, _)) = self.text_holder {
            let own = self.open.get(depth - 1).is_some_and(|open| open.plain == plain);
            if !own && !self.dialect.is_frame(&plain) {
                tokens::push_literal(&mut self.out, raw);
                return;
            }
        }
        if let Some(at) = self.open.iter().rposition(|open| open.plain == plain) {
            self.close_to(at + 1);
            self.closed = at == 0;
            self.channel_ended = at == 1 && self.dialect.is_channel(&plain);
        } else {
            self.unmatched += 1;
            self.hopeless |= self.unmatched > MAX_UNMATCHED;
        }
    }

    /// Returns the depth of the element that contains the entries: whatever else is open, an entry begins outside of
    /// it.
    fn container(&self) -> usize {
        self.open.iter().position(|open| open.plain == "channel").map_or(1, |at| at + 1)
    }

    /// Closes every element down to, and with, the one at `depth`.
    fn close_to(&mut self, depth: usize) {
        while self.open.len() >= depth {
            let at = self.open.len();
            let Some(open) = self.open.pop() else { return };
            self.out.push_str("</");
            self.out.push_str(&open.written);
            self.out.push('>');
            self.text_holder = self.text_holder.filter(|(holder, _)| at > *holder);
            self.entry = self.entry.filter(|(entry, _)| at > *entry);
        }
    }

    fn finish(mut self) -> Option<Mended> {
        if self.hopeless {
            return None;
        }
        // An entry that is still open here was cut off: half of it would be stored as the whole.
        if let Some((depth, begins)) = self.entry {
            self.out.truncate(begins);
            self.open.truncate(depth - 1);
        }
        let truncated = !self.closed && !self.channel_ended;
        self.close_to(1);
        Some(Mended { text: self.out, truncated })
    }

    /// Markup that was not escaped is escaped from here on, which the type then has to say.
    fn write_start(&mut self, tag: Tag<'_>, is_xhtml: bool) {
        self.out.push('<');
        self.out.push_str(tag.name);
        let mut seen: Vec<&str> = Vec::new();
        for (attribute, value) in tokens::attributes(tag.attributes).take(MAX_ATTRIBUTES_READ) {
            let replaced = is_xhtml && matches!(attribute, "type" | "mode");
            if replaced || seen.len() == MAX_ATTRIBUTES || seen.contains(&attribute) || !tokens::is_name(attribute) {
                continue;
            }
            seen.push(attribute);
            self.write_attribute(attribute, value);
        }
        if is_xhtml {
            self.write_attribute("type", "html");
        }
        self.out.push_str(if tag.empty { "/>" } else { ">" });
    }

    fn write_attribute(&mut self, name: &str, value: &str) {
        self.out.push(' ');
        self.out.push_str(name);
        self.out.push_str("=\"");
        tokens::push_escaped(&mut self.out, value, &self.entities, self.longest);
        self.out.push('"');
    }
}
