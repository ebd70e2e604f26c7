//! What an element means at its place, and where its content goes.

use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use common::time::Timestamp;
use common::url::FeedUrl;
use quick_xml::events::BytesStart;
use url::Url;

use super::attribute::attribute;
use super::capture::{Capture, Captured};
use super::details::describe_file;
use super::pass::{CapturedText, Format, Pass, Root, Scope};
use super::refusal::Refusal;
use crate::parse::dates::{self, Order};
use crate::parse::draft::{DraftEntry, File, MAX_MEMBERS, Text};
use crate::parse::link::Link;
use crate::parse::text::{Markup, as_html};
use crate::parse::vocabulary::{Detail, Element, Hint, Space, Word};

/// A web page before any other form of an entry: ranks of links.
const TEXT_LINK: u8 = 0;
const PAGE: u8 = 1;
const OTHER_TYPE: u8 = 2;
const OUT_OF_LINE: u8 = 4;

/// Relations of one link that count; further ones are ignored.
const MAX_RELATIONS: usize = 8;

impl<'a> Pass<'a, '_> {
    /// Handles the root element.
    pub(super) fn begin(&mut self, tag: &BytesStart<'_>) -> Result<Scope, Refusal> {
        let local_name = tag.local_name();
        let name = local_name.as_ref();
        let root = match name.to_ascii_lowercase().as_str() {
            "rss" => Root::Rss,
            "rdf" => Root::Rdf,
            "feed" | "entry" => Root::Atom,
            "channel" => Root::Channel,
            _ => return Err(Refusal::NotAFeed(format!("the first element is <{name}>"))),
        };
        self.root = Some(root);
        if let Some(language) = attribute(tag, "xml:lang") {
            self.draft.language.offer(1, language.into());
        }
        if root == Root::Channel {
            self.channel(tag);
        }
        // RDF is for anything; which it is for shows by a namespace of RSS, or by a channel.
        self.is_feed = root != Root::Rdf || names_feed(tag);
        Ok(if name.eq_ignore_ascii_case("entry") { self.begin_entry(tag) } else { Scope::Feed })
    }

    /// Any other element: what it is to what it holds.
    pub(super) fn meet(&mut self, around: Scope, word: Word, tag: &BytesStart<'_>, span: &Range<usize>) -> Scope {
        match (around, word.element) {
            (Scope::Feed | Scope::Foreign, Element::Entry) if self.entry.is_none() => self.begin_entry(tag),
            (Scope::Feed | Scope::Foreign, Element::Channel) => {
                self.channel(tag);
                Scope::Feed
            }
            (Scope::Feed, Element::Hint(hint)) => self.hint(hint, word, tag, span),
            (Scope::Feed, Element::Author) => self.begin_person(word.rank),
            (Scope::Feed, Element::Link) => self.link(word, tag, span),
            (Scope::Feed, Element::Title | Element::Id | Element::Language) => self.hold(word, tag, span),
            (Scope::Feed, Element::Summary | Element::Category | Element::Keywords | Element::Detail(_)) => {
                self.meet_about(word, tag, span)
            }
            (Scope::Logo, Element::Uri) => self.hold(word, tag, span),
            (Scope::Feed | Scope::Foreign, _) => Scope::Foreign,
            (Scope::Skips, Element::Hint(hint @ (Hint::Hour | Hint::Day))) => self.hint(hint, word, tag, span),
            (Scope::Person, Element::Name | Element::Email | Element::Uri) => self.hold(word, tag, span),
            (Scope::Entry, _) => self.meet_in_entry(word, tag, span),
            (Scope::Source, _) => self.meet_in_source(word, tag, span),
            (Scope::Value | Scope::Alternate, Element::Detail(detail)) => self.meet_in_podcast(detail, tag),
            (Scope::Value | Scope::Alternate, Element::Unknown) if tag.name().prefix().is_some() => {
                self.extension(word, tag, span)
            }
            (
                Scope::Group | Scope::File,
                Element::Title
                | Element::Summary
                | Element::File
                | Element::Group
                | Element::Category
                | Element::Keywords
                | Element::Detail(Detail::Image | Detail::Point)
                | Element::Unknown,
            ) => {
                let less_trusted = Word { rank: word.rank + 1, ..word };
                self.meet_in_entry(less_trusted, tag, span)
            }
            _ => Scope::Ignored,
        }
    }

    fn meet_in_entry(&mut self, word: Word, tag: &BytesStart<'_>, span: &Range<usize>) -> Scope {
        match word.element {
            Element::Link => self.link(word, tag, span),
            Element::Author => self.begin_person(word.rank),
            Element::Detail(detail) => self.detail(detail, word, tag, span),
            Element::Unknown if tag.name().prefix().is_some() => self.extension(word, tag, span),
            Element::OriginalLink | Element::Keywords => self.hold(word, tag, span),
            Element::File => self.file(tag),
            Element::Group => Scope::Group,
            Element::Category => match attribute(tag, "term").or_else(|| attribute(tag, "text")) {
                Some(term) => {
                    self.category(term.into());
                    Scope::Entry
                }
                None => self.hold(word, tag, span),
            },
            Element::Content => {
                if let Some(href) = attribute(tag, "src") {
                    self.offer_link(OUT_OF_LINE, href);
                    return Scope::Ignored;
                }
                self.content_is(tag);
                self.hold(word, tag, span)
            }
            Element::Summary => {
                self.summary_is();
                self.hold(word, tag, span)
            }
            Element::Title | Element::Id | Element::Published | Element::Updated | Element::Language => {
                self.hold(word, tag, span)
            }
            Element::Entry
            | Element::Channel
            | Element::Name
            | Element::Email
            | Element::Uri
            | Element::Hint(_)
            | Element::Unknown => Scope::Ignored,
        }
    }

    /// CDF and RDF say things in the attributes of the channel.
    fn channel(&mut self, tag: &BytesStart<'_>) {
        self.is_feed = true;
        if let Some(href) = attribute(tag, "href") {
            let link = self.link_here(href);
            self.draft.link.offer(PAGE, link);
        }
    }

    fn begin_entry(&mut self, tag: &BytesStart<'_>) -> Scope {
        if !self.kept.takes_more() {
            return Scope::LeftOut;
        }
        self.is_feed = true;
        self.entry = Some((DraftEntry::default(), self.depth()));
        if let Some(about) = attribute(tag, "rdf:about") {
            self.offer_id(1, about.into(), None);
        }
        if self.root == Some(Root::Channel) {
            if let Some(href) = attribute(tag, "href") {
                self.offer_link(PAGE, href);
            }
            let changed = attribute(tag, "lastmod").and_then(|text| time(&text, self.order));
            if let (Some(changed), Some((entry, _))) = (changed, &mut self.entry) {
                entry.updated.offer(0, changed);
            }
        }
        Scope::Entry
    }

    pub(super) fn end_entry(&mut self) {
        let Some((mut entry, depth)) = self.entry.take() else { return };
        let around = depth.saturating_sub(1);
        if let Some(language) = self.context.language_below(around) {
            entry.language.offer(1, language.to_owned().into());
        }
        self.kept.push(entry);
    }

    fn hint(&mut self, hint: Hint, word: Word, tag: &BytesStart<'_>, span: &Range<usize>) -> Scope {
        match hint {
            Hint::SkipHours | Hint::SkipDays => Scope::Skips,
            Hint::Cloud => {
                self.draft.announced.cloud(|name| attribute(tag, name));
                Scope::Ignored
            }
            Hint::Hour | Hint::Day if self.scopes.last() != Some(&Scope::Skips) => Scope::Foreign,
            _ => self.hold(word, tag, span),
        }
    }

    /// Atom's link has a relation and an address; RSS' is its text.
    fn link(&mut self, word: Word, tag: &BytesStart<'_>, span: &Range<usize>) -> Scope {
        let Some(href) = attribute(tag, "href") else { return self.hold(word, tag, span) };
        if href.len() > FeedUrl::MAX_LENGTH {
            // it would be dropped later, after a copy for each relation
            return Scope::Ignored;
        }
        let relations = attribute(tag, "rel").unwrap_or_default();
        let media_type = attribute(tag, "type").filter(|media_type| !media_type.is_empty());
        let is_page = media_type.as_deref().is_none_or(|media_type| media_type.contains("html"));
        let link = self.link_here(href);
        let relations = if relations.trim().is_empty() { "alternate" } else { relations.as_str() };
        let mut seen = [""; MAX_RELATIONS];
        for (at, relation) in relations.split_ascii_whitespace().take(MAX_RELATIONS).enumerate() {
            // The registry's names may be written as addresses.
            let relation = relation.rsplit('/').next().unwrap_or(relation);
            if seen[..at].iter().any(|known| known.eq_ignore_ascii_case(relation)) {
                continue;
            }
            seen[at] = relation;
            let is_alternate = relation.eq_ignore_ascii_case("alternate") && !link.href.trim().is_empty();
            let rank = if is_page { PAGE } else { OTHER_TYPE };
            match &mut self.entry {
                Some((entry, _)) if is_alternate => {
                    entry.link.offer(rank, link.clone());
                }
                Some((entry, _)) if relation.eq_ignore_ascii_case("enclosure") => {
                    let length = attribute(tag, "length").and_then(|length| length.trim().parse().ok());
                    let media_type = media_type.clone().map(Cow::from);
                    entry.add_file(File { link: link.clone(), media_type, length, more: None });
                }
                Some(_) => self.further_link(relation, &link, is_page, tag),
                None if is_alternate => {
                    self.draft.link.offer(rank, link.clone());
                }
                None => self.draft.announced.link(relation, &link),
            }
        }
        Scope::Ignored
    }

    /// Begins to collect an element's text.
    pub(super) fn hold(&mut self, word: Word, tag: &BytesStart<'_>, span: &Range<usize>) -> Scope {
        let format = match word.element {
            Element::Title
            | Element::Summary
            | Element::Content
            | Element::Detail(Detail::Rights | Detail::Subtitle) => self.format(tag),
            _ => Format::Plain,
        };
        let id_is_link = match word.element {
            Element::Id => attribute(tag, "isPermaLink").map(|word| word.trim().eq_ignore_ascii_case("true")),
            _ => None,
        };
        let held = CapturedText { word, format, id_is_link, around: self.scopes.last().copied(), wrapper_base: None };
        self.capture = Some((Capture::new(self.document, self.depth(), span.end), held));
        Scope::CapturedText
    }

    fn format(&self, tag: &BytesStart<'_>) -> Format {
        let (media_type, mode) = (attribute(tag, "type"), attribute(tag, "mode"));
        let media_type = media_type.map(|media_type| media_type.trim().to_ascii_lowercase());
        let is_atom = self.root == Some(Root::Atom);
        match (media_type.as_deref(), mode.as_deref()) {
            (_, Some("base64")) => Format::Base64,
            // neither text nor XML, by RFC 4287 (section 4.1.3.3)
            (Some("application/html"), _) if is_atom => Format::Base64,
            (Some("xhtml" | "application/xhtml+xml"), mode) if mode != Some("escaped") => Format::Xhtml,
            (Some(html), _) if html.contains("html") => Format::Html,
            (None | Some("" | "text"), _) => {
                if is_atom {
                    Format::Plain
                } else {
                    Format::Unknown
                }
            }
            (Some(text), _) if text.starts_with("text/") || text == "plain" => Format::Plain,
            (Some(xml), _) if xml.ends_with("/xml") || xml.ends_with("+xml") => Format::Xhtml,
            (Some(other), _) if is_atom && other.contains('/') => Format::Base64,
            _ => Format::Unknown,
        }
    }

    /// Returns the base of a `div` around XHTML. If the `div` is left out, its base is that of the text.
    pub(super) fn base_of_wrapper(&mut self, tag: &BytesStart<'_>) -> Option<Rc<Url>> {
        let depth = self.depth();
        self.context.open(depth, tag, self.document_url);
        let base = self.context.base();
        self.context.close(depth);
        base
    }

    /// The end of a captured element: its text is what its word says.
    pub(super) fn release(&mut self, capture: Capture<'a>, held: CapturedText, ends: usize) {
        let CapturedText { word: Word { element, rank }, format, id_is_link, around, wrapper_base } = held;
        let Captured { text, is_markup, is_unwrapped } = capture.finish(ends, format == Format::Xhtml, &self.context);
        match (element, &mut self.entry, wrapper_base.filter(|_| is_unwrapped)) {
            (Element::Content, Some((entry, _)), Some(base)) if entry.content.get().is_none() => {
                entry.content_base = Some(base);
            }
            (Element::Summary, Some((entry, _)), Some(base)) if entry.summary.get().is_none() => {
                entry.summary_base = Some(base);
            }
            _ => {}
        }
        let (text, format) = match format {
            Format::Base64 if !is_markup => match from_base64(&text) {
                Some(decoded) => (decoded.into(), Format::Html),
                // it is what it is, whatever it claims to be
                None if text.contains('<') => (text, Format::Html),
                None => (text, Format::Plain),
            },
            format => (text, if is_markup { Format::Xhtml } else { format }),
        };
        if text.trim().is_empty() && !matches!(element, Element::Detail(_)) {
            return;
        }
        let markup = match format {
            Format::Html | Format::Xhtml | Format::Base64 => Some(Markup::All),
            Format::Unknown => Some(Markup::Formatting),
            Format::Plain => None,
        };
        match (element, &mut self.entry) {
            (Element::Uri, None) if around == Some(Scope::Logo) => {
                let link = self.link_here(text);
                self.draft.about.image.offer(0, link);
            }
            (Element::Name | Element::Email | Element::Uri, _) => self.part_of_person(element, text),
            _ if around == Some(Scope::Source) => self.part_of_source(element, text),
            (Element::OriginalLink, _) => self.original_link(text),
            (Element::Keywords, _) => self.keywords(&text),
            (Element::Detail(detail), _) => self.release_detail(detail, rank, Text { raw: text, markup }),
            // with an element inside, the text before that
            (Element::Category, _) if is_markup => {
                let own = text.split('<').next().unwrap_or_default().trim();
                if !own.is_empty() {
                    self.category(own.to_owned().into());
                }
            }
            (Element::Hint(Hint::NewFeedUrl), _) => {
                let link = self.link_here(text);
                self.draft.announced.new_feed_url.get_or_insert(link);
            }
            (Element::Hint(hint), _) => self.draft.announced.hint(hint, &text),
            (Element::Link, _) => {
                let link = self.link_here(text);
                match &mut self.entry {
                    Some((entry, _)) => entry.link.offer(TEXT_LINK, link),
                    None => self.draft.link.offer(TEXT_LINK, link),
                };
            }
            (Element::Id, Some(_)) => self.offer_id(rank, text, id_is_link),
            (Element::Category, _) => self.category(text),
            (_, Some((entry, _))) => {
                if around == Some(Scope::File) && element == Element::Summary {
                    describe_file(entry, &text, markup);
                }
                if matches!(element, Element::Published | Element::Updated) {
                    self.has_day_first |= dates::has_day_first(&text);
                }
                put(entry, element, rank, Text { raw: text, markup }, self.order);
            }
            (_, None) => self.put_in_feed(element, rank, Text { raw: text, markup }),
        }
    }

    fn put_in_feed(&mut self, element: Element, rank: u8, text: Text<'a>) {
        match element {
            Element::Id => self.draft.id.offer(rank, text.raw),
            Element::Title => self.draft.title.offer(rank, text),
            Element::Language => self.draft.language.offer(0, text.raw),
            Element::Summary => self.draft.about.description.offer(rank, text),
            _ => false,
        };
    }

    fn offer_id(&mut self, rank: u8, id: Cow<'a, str>, is_link: Option<bool>) {
        let Some((entry, _)) = &mut self.entry else { return };
        if entry.id.offer(rank, id) {
            (entry.id_is_link, entry.id_base) = (is_link, self.context.base());
        }
    }

    pub(super) fn offer_link(&mut self, rank: u8, href: String) {
        let link = self.link_here(href);
        if let Some((entry, _)) = &mut self.entry {
            entry.link.offer(rank, link);
        }
    }

    pub(super) fn category(&mut self, category: Cow<'a, str>) {
        let of_feed = &mut self.draft.about.fields.categories;
        if self.entry.is_none() && of_feed.len() < MAX_MEMBERS && !of_feed.iter().any(|known| *known == category) {
            of_feed.push(category.clone().into_owned());
        }
        if let Some((entry, _)) = &mut self.entry {
            entry.add_category(category);
        }
    }

    pub(super) fn link_here(&self, href: impl Into<Cow<'a, str>>) -> Link<'a> {
        Link { href: href.into(), base: self.context.base() }
    }
}

fn names_feed(tag: &BytesStart<'_>) -> bool {
    let mut attributes = tag.attributes();
    let mut attributes = attributes.with_checks(false).flatten();
    attributes.any(|one| one.key.as_ref().starts_with("xmlns") && Space::of_uri(&one.value) == Some(Space::Feed))
}

fn put<'a>(entry: &mut DraftEntry<'a>, element: Element, rank: u8, text: Text<'a>, order: Order) {
    match element {
        Element::Title => entry.title.offer(rank, text),
        Element::Summary => entry.summary.offer(rank, html(text)),
        Element::Content => entry.content.offer(rank, html(text)),
        Element::Language => entry.language.offer(0, text.raw),
        Element::Published => time(&text.raw, order).is_some_and(|at| entry.published.offer(rank, at)),
        Element::Updated => time(&text.raw, order).is_some_and(|at| entry.updated.offer(rank, at)),
        _ => false,
    };
}

/// Returns a long text as HTML. Where nothing says what it is (RSS), it is HTML.
fn html(text: Text<'_>) -> Cow<'_, str> {
    if text.markup.is_some() { text.raw } else { as_html(text.raw) }
}

fn time(text: &str, order: Order) -> Option<Timestamp> {
    dates::parse(text, order).map(Timestamp::from_chrono)
}

/// Decodes text with white space anywhere in it; `None` if the result is not text.
fn from_base64(text: &str) -> Option<String> {
    let packed: String = text.split_whitespace().collect();
    String::from_utf8(STANDARD.decode(packed).ok()?).ok()
}
