//! The reader of XML feeds: one pass over the document, in which the limits are kept, and entries and hints are found.
//!
//! It uses quick-xml's events and recurses nowhere. Here is the pass; what an element means at its place is in
//! `meaning`. Deliberately not here: any repair of what is not XML, and the final form of what was found (`normalise`).

mod about;
mod attribute;
mod capture;
mod context;
mod details;
mod doctype;
mod extensions;
mod guard;
mod meaning;
mod pass;
mod person;
mod refusal;

use std::borrow::Cow;
use std::ops::Range;

use quick_xml::Reader;
use quick_xml::events::{BytesEnd, BytesStart, Event};
use url::Url;

use super::dates::Order;
use super::draft::Draft;
use super::kept::newest_revisions;
use super::vocabulary::Word;
use super::{ParseLimits, entities};
use crate::watch::Watch;
pub(super) use doctype::Entities;
use guard::Guard;
use pass::{Pass, Root, Scope};
pub(super) use refusal::Refusal;

/// Reads a document whose own URL is `document_url`.
pub(super) fn read<'a>(text: &'a str, document_url: Option<&Url>, limits: &ParseLimits) -> Result<Draft<'a>, Refusal> {
    let pass = passed(text, Pass::new(text, document_url, limits), limits)?;
    if !pass.has_day_first {
        return pass.finish();
    }
    // One date shows how the others are meant, also those before it.
    let order = Order::DayFirst;
    passed(text, Pass { order, ..Pass::new(text, document_url, limits) }, limits)?.finish()
}

/// Passes over a document.
fn passed<'a, 'l>(text: &'a str, mut pass: Pass<'a, 'l>, limits: &ParseLimits) -> Result<Pass<'a, 'l>, Refusal> {
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let mut watch = Watch::new(limits.deadline);
    loop {
        let begins = position(reader.buffer_position());
        if watch.is_late(begins) {
            return Err(Refusal::Late);
        }
        let event = reader.read_event().map_err(|error| Refusal::Malformed(error.to_string()))?;
        let span = begins..position(reader.buffer_position());
        match event {
            Event::Start(tag) => pass.start(&tag, &span)?,
            Event::End(tag) => {
                pass.end(&tag, &span);
                if pass.guard.depth() == 0 {
                    break;
                }
            }
            Event::Text(piece) => pass.text(piece.into_inner()),
            Event::CData(piece) => pass.text(piece.into_inner()),
            Event::GeneralRef(reference) => pass.reference(&reference),
            Event::DocType(doctype) if pass.root.is_none() => {
                pass.entities = Entities::of_doctype(&doctype.into_inner());
            }
            Event::Eof => break,
            _ => {}
        }
    }
    Ok(pass)
}

/// Returns the length of the element that a text begins with, if it is well-formed and within the limits inside of this number
/// of elements.
pub(super) fn whole_element(text: &str, around: usize, limits: &ParseLimits) -> Option<usize> {
    let limits = ParseLimits { max_depth: limits.max_depth.saturating_sub(around), ..*limits };
    let mut guard = Guard::new(&limits);
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    loop {
        match reader.read_event().ok()? {
            Event::Start(tag) => guard.open(&tag, true).ok()?,
            Event::End(_) => guard.close(),
            Event::Eof => return None,
            _ => continue,
        }
        if guard.depth() == 0 {
            return Some(position(reader.buffer_position()));
        }
    }
}

/// Returns the length of the DOCTYPE that a text begins with.
pub(super) fn doctype_length(text: &str) -> Option<usize> {
    let mut reader = Reader::from_str(text);
    let event = reader.read_event().ok()?;
    matches!(event, Event::DocType(_)).then(|| position(reader.buffer_position()))
}

fn position(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

impl<'a> Pass<'a, '_> {
    fn start(&mut self, tag: &BytesStart<'_>, span: &Range<usize>) -> Result<(), Refusal> {
        let around = self.scopes.last().copied();
        self.guard.open(tag, around != Some(Scope::LeftOut))?;
        let depth = self.guard.depth();
        if let Some((capture, _)) = &mut self.capture {
            let may_be_wrapper = capture.open(depth, tag, span);
            if may_be_wrapper && tag.attributes_raw().contains("xml:base") {
                let base = self.base_of_wrapper(tag);
                self.capture.iter_mut().for_each(|(_, held)| held.wrapper_base.clone_from(&base));
            }
            return Ok(());
        }
        let scope = match around {
            Some(scope @ (Scope::LeftOut | Scope::Ignored)) => scope,
            Some(around) => {
                self.context.open(depth, tag, self.document_url);
                let word = self.word(tag);
                self.meet(around, word, tag, span)
            }
            None => {
                self.context.open(depth, tag, self.document_url);
                self.begin(tag)?
            }
        };
        self.scopes.push(scope);
        Ok(())
    }

    fn word(&self, tag: &BytesStart<'_>) -> Word {
        let (local_name, prefix) = tag.name().decompose();
        let space = self.context.space(prefix.map_or("", |prefix| prefix.into_inner()));
        super::vocabulary::word(space, local_name.as_ref())
    }

    fn text(&mut self, piece: Cow<'a, str>) {
        let depth = self.guard.depth();
        if let Some((capture, _)) = &mut self.capture {
            capture.text(depth, with_plain_line_ends(piece));
        } else if let (Some(person), Some(Scope::Person)) = (&mut self.person, self.scopes.last()) {
            person.text(depth, &piece);
        }
    }

    /// A reference: a number, a name of HTML's, a name of the document's own. Any other stands for itself.
    fn reference(&mut self, name: &str) {
        if self.capture.is_none() && self.person.is_none() {
            return;
        }
        let character = if name.starts_with('#') { entities::number(name) } else { entities::character(name) };
        let mut buffer = [0; 4];
        let own;
        let meaning: &str = match character {
            Some(character) => character.encode_utf8(&mut buffer),
            None if name.starts_with('#') => return,
            None => {
                own = self.entities.resolve(name).map_or_else(|| format!("&{name};"), str::to_owned);
                &own
            }
        };
        let depth = self.guard.depth();
        match (&mut self.capture, &mut self.person) {
            (Some((capture, _)), _) => capture.push(depth, meaning),
            (None, Some(person)) => person.text(depth, meaning),
            (None, None) => {}
        }
    }

    fn end(&mut self, _tag: &BytesEnd<'_>, span: &Range<usize>) {
        let depth = self.guard.depth();
        match self.capture.take() {
            Some((capture, held)) if capture.depth() == depth => self.release(capture, held, span.start),
            Some((mut capture, held)) => {
                capture.close(depth, span);
                self.capture = Some((capture, held));
                self.guard.close();
                return;
            }
            None => {}
        }
        match self.scopes.pop() {
            Some(Scope::Entry) if self.entry.as_ref().is_some_and(|(_, of)| *of == depth) => self.end_entry(),
            Some(Scope::Person) => self.end_person(depth),
            _ => {}
        }
        self.context.close(depth);
        self.guard.close();
    }

    fn finish(self) -> Result<Draft<'a>, Refusal> {
        if self.root.is_none() {
            return Err(Refusal::NotAFeed("no element at all".to_owned()));
        }
        if self.guard.depth() > 0 {
            let open = self.guard.depth();
            return Err(Refusal::Malformed(format!("the document ends inside of {open} open elements")));
        }
        if !self.is_feed {
            return Err(Refusal::NotAFeed("RDF without a channel".to_owned()));
        }
        let entries = self.kept.into_entries();
        let entries = if self.root == Some(Root::Atom) { newest_revisions(entries) } else { entries };
        Ok(Draft { entries, ..self.draft })
    }
}

/// As XML has it (section 2.11): a line ends in a line feed.
fn with_plain_line_ends(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n").into() } else { text }
}
