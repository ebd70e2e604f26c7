//! The pass that every XML document must survive before the engine sees it.
//!
//! The engine recurses: 24 KB of nested `media:group` overflow its stack, and no panic handler survives that. It also
//! copies what a group inherits into every group, and a base URL to every link, so that its memory grows with products of
//! what the document holds. This pass counts depth,
//! elements, attributes, entries and groups on a tokeniser that does not recurse, refuses what is beyond the limits, and
//! leaves out what is merely too many. It resolves HTML's names of characters, which the engine leaves standing, and
//! collects what the engine's model loses: hints and RSS enclosures.
//!
//! Deliberately not here: any judgement of the content, and any repair.

use std::borrow::Cow;
use std::ops::Range;

use common::entry::Enclosure;
use quick_xml::Reader;
use quick_xml::events::{BytesEnd, BytesStart, Event};

use super::ParseLimits;
use super::bases::Bases;
use super::draft::MAX_ENCLOSURES;
use super::entities;
use super::hints::{Announced, HintScanner, attribute};
use super::namespaces;

/// Groups of media that are read of one entry.
const MAX_GROUPS: usize = 8;
/// The shortest attribute, ` a=""`, in bytes.
const SHORTEST_ATTRIBUTE: usize = 5;

/// What the root element says that the document is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// `rss`: RSS 0.91 to 2.0.
    Rss,
    /// `rdf:RDF`: RSS 0.90 and 1.0.
    Rdf,
    /// `feed`: Atom.
    Feed,
    /// `entry`: a single Atom entry.
    Entry,
}

/// A document that is safe for the engine, and what was seen on the way.
#[derive(Debug)]
pub(super) struct Surveyed<'a> {
    /// The document without what was too many.
    pub(super) text: Cow<'a, str>,
    pub(super) root: Root,
    /// Entries by their elements' names, at most the limit.
    pub(super) entries: usize,
    /// The root binds a namespace that the engine does not know under this name.
    pub(super) old_namespaces: bool,
    pub(super) announced: Announced,
    /// RSS enclosures with the place of their entry in the document: the engine drops them where an entry has other media.
    pub(super) enclosures: Vec<(usize, Enclosure)>,
}

/// Why a document does not get to the engine.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Beyond a limit. Repairing does not help.
    TooLarge(String),
    /// Not well-formed.
    Malformed(String),
    /// The first element is no feed's.
    NotAFeed(String),
}

/// Surveys a document whose own URL has `base_bytes` bytes.
pub(super) fn survey<'a>(text: &'a str, base_bytes: usize, limits: &ParseLimits) -> Result<Surveyed<'a>, Refusal> {
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let mut walk = Walk::new(base_bytes, limits);
    loop {
        let before = position(reader.buffer_position());
        let event = reader.read_event().map_err(|error| Refusal::Malformed(error.to_string()))?;
        let span = before..position(reader.buffer_position());
        match event {
            Event::Start(element) => walk.start(&element, span)?,
            Event::End(element) => {
                walk.end(&element, text, span);
                if walk.depth == 0 {
                    break;
                }
            }
            Event::Text(content) => walk.hints_text(&content),
            Event::CData(content) => walk.hints_text(&content),
            Event::GeneralRef(reference) => {
                if let Some(character) = entities::character(&reference).filter(|character| !character.is_ascii()) {
                    walk.replace(text, span, character.encode_utf8(&mut [0; 4]));
                }
            }
            Event::Decl(_) => walk.replace(text, span, ""),
            Event::Eof => break,
            _ => {}
        }
    }
    walk.finish(text)
}

fn position(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

struct Walk<'l> {
    limits: &'l ParseLimits,
    root: Option<Root>,
    depth: usize,
    elements: usize,
    bases: Bases,
    entries: usize,
    /// The depth of the entry's element, while inside of one.
    entry: Option<usize>,
    groups: usize,
    /// The depth and beginning of an element that is left out, while inside of one.
    leaving_out: Option<(usize, usize)>,
    /// The document as the engine shall see it, and how far it was copied; empty as long as nothing differs.
    edited: String,
    copied: usize,
    old_namespaces: bool,
    hints: HintScanner,
    enclosures: Vec<(usize, Enclosure)>,
}

impl<'l> Walk<'l> {
    fn new(base_bytes: usize, limits: &'l ParseLimits) -> Self {
        Walk {
            limits,
            root: None,
            depth: 0,
            elements: 0,
            bases: Bases::new(base_bytes),
            entries: 0,
            entry: None,
            groups: 0,
            leaving_out: None,
            edited: String::new(),
            copied: 0,
            old_namespaces: false,
            hints: HintScanner::default(),
            enclosures: Vec::new(),
        }
    }

    fn start(&mut self, element: &BytesStart<'_>, span: Range<usize>) -> Result<(), Refusal> {
        self.depth += 1;
        self.elements += usize::from(self.leaving_out.is_none());
        let limits = self.limits;
        if self.depth > limits.max_depth {
            return Err(Refusal::TooLarge(format!("elements are nested more than {} deep", limits.max_depth)));
        }
        if self.elements > limits.max_elements {
            return Err(Refusal::TooLarge(format!("more than {} elements", limits.max_elements)));
        }
        self.check_attributes(element)?;
        self.bases.start(self.depth, element)?;
        let local_name = element.local_name();
        let name = local_name.as_ref();
        let Some(root) = self.root else {
            let root = root(name).ok_or_else(|| Refusal::NotAFeed(format!("the first element is <{name}>")))?;
            self.root = Some(root);
            self.old_namespaces = namespaces::any_alias(element);
            if root == Root::Entry {
                self.start_entry(span.start);
            }
            return Ok(());
        };
        if self.leaving_out.is_some() {
            return Ok(());
        }
        if self.entry.is_none() {
            if is_entry(root, name) {
                self.start_entry(span.start);
            } else {
                self.hints.start(element);
            }
            return Ok(());
        }
        match name {
            "group" => {
                self.groups += 1;
                if self.groups > MAX_GROUPS {
                    self.leaving_out = Some((self.depth, span.start));
                }
            }
            "enclosure" if root == Root::Rss => self.enclosure(element),
            _ => {}
        }
        Ok(())
    }

    fn start_entry(&mut self, start: usize) {
        if self.entries == self.limits.max_entries {
            self.leaving_out = Some((self.depth, start));
            return;
        }
        self.entry = Some(self.depth);
        self.entries += 1;
        self.groups = 0;
    }

    fn check_attributes(&self, element: &BytesStart<'_>) -> Result<(), Refusal> {
        let bytes = element.attributes_raw().len();
        let limit = self.limits.max_attributes;
        let count = |limit: usize| element.attributes().with_checks(false).take(limit + 1).count();
        if bytes / SHORTEST_ATTRIBUTE > limit && count(limit) > limit {
            return Err(Refusal::TooLarge(format!("an element has more than {limit} attributes")));
        }
        Ok(())
    }

    fn enclosure(&mut self, element: &BytesStart<'_>) {
        let entry = self.entries - 1;
        let of_this_entry = self.enclosures.iter().rev().take_while(|(owner, _)| *owner == entry).count();
        if let Some(url) = attribute(element, "url").filter(|_| of_this_entry < MAX_ENCLOSURES) {
            let length = attribute(element, "length").and_then(|length| length.trim().parse().ok());
            self.enclosures.push((entry, Enclosure { url, media_type: attribute(element, "type"), length }));
        }
    }

    fn hints_text(&mut self, text: &str) {
        if self.entry.is_none() {
            self.hints.text(text);
        }
    }

    fn end(&mut self, element: &BytesEnd<'_>, text: &str, span: Range<usize>) {
        match self.leaving_out {
            Some((depth, start)) if depth == self.depth => {
                self.leaving_out = None;
                self.replace(text, start..span.end, "");
            }
            Some(_) => {}
            None if self.entry == Some(self.depth) => self.entry = None,
            None if self.entry.is_none() => self.hints.end(element),
            None => {}
        }
        self.bases.end(self.depth);
        self.depth -= 1;
    }

    /// Has the engine see something else in place of a range.
    fn replace(&mut self, text: &str, range: Range<usize>, by: &str) {
        if self.leaving_out.is_none() {
            self.edited.push_str(&text[self.copied..range.start]);
            self.edited.push_str(by);
            self.copied = range.end;
        }
    }

    fn finish(mut self, text: &str) -> Result<Surveyed<'_>, Refusal> {
        let Some(root) = self.root else {
            return Err(Refusal::NotAFeed("no element at all".to_owned()));
        };
        if self.depth > 0 {
            return Err(Refusal::Malformed(format!("the document ends inside of {} open elements", self.depth)));
        }
        let text = match self.copied {
            0 => Cow::Borrowed(text),
            copied => {
                self.edited.push_str(&text[copied..]);
                Cow::Owned(self.edited)
            }
        };
        Ok(Surveyed {
            text,
            root,
            entries: self.entries,
            old_namespaces: self.old_namespaces,
            announced: self.hints.finish(),
            enclosures: self.enclosures,
        })
    }
}

fn root(name: &str) -> Option<Root> {
    match name {
        "rss" => Some(Root::Rss),
        "RDF" => Some(Root::Rdf),
        "feed" => Some(Root::Feed),
        "entry" => Some(Root::Entry),
        _ => None,
    }
}

fn is_entry(root: Root, name: &str) -> bool {
    match root {
        Root::Rss | Root::Rdf => name == "item",
        Root::Feed => name == "entry",
        Root::Entry => false,
    }
}
