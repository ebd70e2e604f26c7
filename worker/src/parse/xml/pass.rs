//! The state of the pass over a document.

use std::borrow::Cow;
use std::rc::Rc;

use url::Url;

use super::capture::Capture;
use super::context::Context;
use super::doctype::Entities;
use super::guard::Guard;
use crate::parse::ParseLimits;
use crate::parse::dates::Order;
use crate::parse::draft::{Draft, DraftEntry};
use crate::parse::kept::Kept;
use crate::parse::vocabulary::Word;

/// What the root element says that the document is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// `rss`
    Rss,
    /// `rdf:RDF`: RSS 0.90 and 1.0.
    Rdf,
    /// `feed`, or a single `entry`.
    Atom,
    /// `channel` on its own: CDF, RSS 1.1.
    Channel,
}

/// What the text of a captured element will be.
#[derive(Clone, Debug)]
pub(super) struct CapturedText {
    pub(super) word: Word,
    pub(super) format: Format,
    /// `isPermaLink` of a guid.
    pub(super) id_is_link: Option<bool>,
    /// The scope around the element.
    pub(super) around: Option<Scope>,
    /// The base of the first element inside, if that may be left out.
    pub(super) wrapper_base: Option<Rc<Url>>,
}

/// How a text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// RSS, which does not say.
    Unknown,
    Plain,
    Html,
    Xhtml,
    Base64,
}

/// What an open element is to what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// The feed itself: its root, its channel.
    Feed,
    /// An entry.
    Entry,
    /// Something around words that are an entry's, but trusted less: a group of media.
    Group,
    /// A file, and words about it.
    File,
    /// The feed that an entry was taken from.
    Source,
    /// `podcast:value`
    Value,
    /// `podcast:alternateEnclosure`
    Alternate,
    /// The picture of a feed, whose address is in a separate element.
    Logo,
    /// A person, of an entry or of the feed.
    Person,
    /// `skipHours`, `skipDays`: their members have names that others use as well.
    Skips,
    /// Text is collected.
    CapturedText,
    /// Nothing of the feed's; but entries may be inside.
    Foreign,
    /// Nothing inside matters.
    Ignored,
    /// An entry beyond the limit.
    LeftOut,
}

/// A person whose element is open.
#[derive(Debug)]
pub(super) struct Person<'a> {
    pub(super) rank: u8,
    pub(super) depth: usize,
    pub(super) name: Option<Cow<'a, str>>,
    pub(super) email: Option<Cow<'a, str>>,
    pub(super) uri: Option<Cow<'a, str>>,
    pub(super) text: String,
}

/// Longest text of a person that is looked at, in bytes.
const MAX_PERSON: usize = 1024;

impl<'a> Person<'a> {
    /// Text directly inside of the element.
    pub(super) fn text(&mut self, depth: usize, piece: &str) {
        if depth == self.depth && self.text.len() + piece.len() <= MAX_PERSON {
            self.text.push_str(piece);
        }
    }
}

/// The state of the pass.
pub(super) struct Pass<'a, 'l> {
    pub(super) document: &'a str,
    pub(super) document_url: Option<&'l Url>,
    pub(super) guard: Guard<'l>,
    pub(super) context: Context,
    pub(super) entities: Entities,
    pub(super) root: Option<Root>,
    pub(super) is_feed: bool,
    /// Of the open elements; those inside of a capture have none.
    pub(super) scopes: Vec<Scope>,
    /// The element whose text is collected, and what it will mean.
    pub(super) capture: Option<(Capture<'a>, CapturedText)>,
    /// A person's own text is collected around its parts.
    pub(super) person: Option<Person<'a>>,
    /// How its dates are read.
    pub(super) order: Order,
    /// One of its dates has the day first, without doubt.
    pub(super) has_day_first: bool,
    /// Attributes of an element whose text is collected, where both count.
    pub(super) attributes: Vec<(String, String)>,
    /// Without its entries.
    pub(super) draft: Draft<'a>,
    pub(super) kept: Kept<'a>,
    /// The open entry, and its depth.
    pub(super) entry: Option<(DraftEntry<'a>, usize)>,
}

impl<'a, 'l> Pass<'a, 'l> {
    pub(super) fn new(document: &'a str, document_url: Option<&'l Url>, limits: &'l ParseLimits) -> Self {
        Pass {
            document,
            document_url,
            guard: Guard::new(limits),
            context: Context::default(),
            entities: Entities::default(),
            root: None,
            is_feed: false,
            scopes: Vec::with_capacity(16),
            capture: None,
            person: None,
            order: Order::default(),
            has_day_first: false,
            attributes: Vec::new(),
            draft: Draft::default(),
            kept: Kept::new(limits.max_entries),
            entry: None,
        }
    }

    /// Returns the number of open elements.
    pub(super) fn depth(&self) -> usize {
        self.guard.depth()
    }
}
