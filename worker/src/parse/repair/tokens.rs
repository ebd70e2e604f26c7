//! A tokeniser for XML that is none: it never fails, and finds in any text what the author probably meant.
//!
//! Linear in the length of the text: what is unclosed is searched for a bounded number of times.

use crate::parse::entities;
use crate::parse::xml::Entities;

/// A piece of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// Text with references as they were written.
    Text(&'a str),
    /// The inside of a CDATA section.
    Data(&'a str),
    /// A start tag.
    Start(Tag<'a>),
    /// An end tag's name.
    End(&'a str),
    /// Comments, instructions, declarations.
    Nothing,
}

/// A start tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag<'a> {
    pub(super) name: &'a str,
    /// The text between the name and the tag's end.
    pub(super) attributes: &'a str,
    /// `<a/>`
    pub(super) empty: bool,
}

/// How many times its own length a document may be scanned for quotes that are never closed.
const WASTE: usize = 8;

/// Entries, without the prefix: their end tags are in no attribute, and hardly ever in CDATA.
const ENTRIES: [&str; 2] = ["item", "entry"];
/// Longest name of an entry, prefix included, in bytes, with room.
const MAX_ENTRY_NAME: usize = 40;

/// How comments and CDATA sections begin and end.
const COMMENT: (&str, &str) = ("<!--", "-->");
const CDATA: (&str, &str) = ("<![CDATA[", "]]>");

/// The tokens of a text, each with the text that it is made of.
pub(super) struct Tokens<'a> {
    rest: &'a str,
    /// Bytes that may still be scanned without finding an end.
    budget: usize,
    comments: Sections,
    data: Sections,
}

/// The sections of one kind, each of which is a single token.
struct Sections {
    begin: &'static str,
    end: &'static str,
    /// Bytes of the document from the next end on, so that no text is searched for it twice.
    next_end: Option<usize>,
    /// No section ends in the rest.
    has_no_end: bool,
    /// The first tag of an entry in the rest, and the bytes of the document from there on, so that it is not searched twice.
    next_tag: Option<(usize, EntryTag)>,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let budget = text.len().saturating_mul(WASTE);
        Tokens { rest: text, budget, comments: Sections::new(COMMENT), data: Sections::new(CDATA) }
    }

    /// Returns the number of bytes that are left.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    /// Continues with this text, which is a part of the rest.
    pub(super) fn continue_at(&mut self, rest: &'a str) {
        self.rest = rest;
    }

    /// Returns the token that the rest begins with, and its length. `None` at the end.
    fn first(&mut self) -> Option<(Token<'a>, usize)> {
        let text = self.rest;
        let Some(markup) = text.strip_prefix('<') else {
            let length = text.find('<').unwrap_or(text.len());
            return (length > 0).then(|| (Token::Text(&text[..length]), length));
        };
        if text.starts_with(CDATA.0) {
            let section = self.data.section(text);
            return Some(section.map_or((Token::Nothing, CDATA.0.len()), |(data, length)| (Token::Data(data), length)));
        }
        if text.starts_with(COMMENT.0) {
            let section = self.comments.section(text);
            return Some((Token::Nothing, section.map_or(COMMENT.0.len(), |(_, length)| length)));
        }
        if markup.starts_with(['?', '!']) {
            return Some((Token::Nothing, text.find('>').map_or(text.len(), |at| at + 1)));
        }
        let (is_end, named) = markup.strip_prefix('/').map_or((false, markup), |named| (true, named));
        let name_end =
            named.find(|c: char| c.is_whitespace() || matches!(c, '>' | '/' | '<' | '=')).unwrap_or(named.len());
        let name = &named[..name_end];
        if !is_name(name) {
            return Some((Token::Text(&text[..1]), 1));
        }
        let rest = &named[name_end..];
        if is_end {
            let end = rest.find(['>', '<']).map_or(rest.len(), |at| at + usize::from(rest[at..].starts_with('>')));
            return Some((Token::End(name), 2 + name_end + end));
        }
        let (inside, closed) = self.tag_end(rest);
        let trimmed = rest[..inside].trim_end();
        let empty = trimmed.ends_with('/');
        let attributes = trimmed.strip_suffix('/').unwrap_or(trimmed);
        Some((Token::Start(Tag { name, attributes, empty }), 1 + name_end + inside + closed))
    }

    /// Returns where the inside of a tag ends, and the length of what closes it: the first `>` outside of quotes, or, when
    /// a quote is never closed or another tag begins, the first of either. A quote around the end of an entry was not closed.
    fn tag_end(&mut self, text: &str) -> (usize, usize) {
        let mut quote = None;
        let mut after_equals = false;
        let mut scanned = &text[..text.floor_char_boundary(self.budget)];
        for (at, byte) in scanned.bytes().enumerate() {
            match (quote, byte) {
                (Some(open), byte) if byte == open => quote = None,
                (Some(_), b'<') if entry_tag(&scanned[at..]) == Some(EntryTag::End) => {
                    scanned = &scanned[..at];
                    break;
                }
                (Some(_), _) => {}
                (None, b'"' | b'\'') if after_equals => quote = Some(byte),
                (None, b'>') => return (at, 1),
                (None, b'<') => return (at, 0),
                _ => {}
            }
            after_equals = byte == b'=' || (after_equals && byte.is_ascii_whitespace());
        }
        self.budget -= scanned.len();
        match text.find(['>', '<']) {
            Some(at) => (at, usize::from(text[at..].starts_with('>'))),
            None => (text.len(), 0),
        }
    }
}

impl Sections {
    fn new((begin, end): (&'static str, &'static str)) -> Self {
        Sections { begin, end, next_end: None, has_no_end: false, next_tag: None }
    }

    /// Returns the inside of the section that a text begins with, and the length of the whole. One that does not end is the
    /// rest of a document that was cut. `None` if it should have ended in its element, which [`ends_early`]: no section ends
    /// behind it, or another section begins before this end.
    fn section<'t>(&mut self, text: &'t str) -> Option<(&'t str, usize)> {
        let known = self.next_end.filter(|left| *left <= text.len()).map(|left| text.len() - left);
        let end = known.or_else(|| if self.has_no_end { None } else { text.find(self.end) });
        let Some(end) = end else {
            self.has_no_end = true;
            let inside = &text[self.begin.len()..];
            return (!ends_early(self.next_tag(text), inside)).then_some((inside, text.len()));
        };
        self.next_end = Some(text.len() - end);
        let inside = text.get(self.begin.len()..end).unwrap_or_default();
        let is_unclosed = inside.find(self.begin).is_some_and(|next| {
            let own = &inside[..next];
            ends_early(first_entry_tag(own).map(|(_, tag)| tag), own)
        });
        (!is_unclosed).then_some((inside, end + self.end.len()))
    }

    /// Returns the first tag of an entry in a text.
    fn next_tag(&mut self, text: &str) -> Option<EntryTag> {
        self.next_tag = self.next_tag.filter(|(left, _)| *left <= text.len()).or_else(|| {
            let (at, tag) = first_entry_tag(text)?;
            Some((text.len() - at, tag))
        });
        self.next_tag.map(|(_, tag)| tag)
    }
}

/// A tag of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryTag {
    Start,
    End,
}

/// Returns which tag of an entry a text begins with, whatever its prefix and the case of its letters.
fn entry_tag(text: &str) -> Option<EntryTag> {
    let tag = text.strip_prefix('<')?;
    let (kind, named) = tag.strip_prefix('/').map_or((EntryTag::Start, tag), |named| (EntryTag::End, named));
    let named = &named.as_bytes()[..named.len().min(MAX_ENTRY_NAME)];
    let end = named.iter().position(|byte| byte.is_ascii_whitespace() || b"/<>".contains(byte))?;
    let local = named[..end].rsplit(|byte| *byte == b':').next()?;
    ENTRIES.iter().any(|entry| local.eq_ignore_ascii_case(entry.as_bytes())).then_some(kind)
}

/// Returns whether the element in which a text begins ends in it: the text's first tag of an entry is an end, or follows an end tag
/// that nothing in the text began.
fn ends_early(entry_tag: Option<EntryTag>, text: &str) -> bool {
    match entry_tag {
        Some(EntryTag::End) => true,
        Some(EntryTag::Start) => text.find('<').is_some_and(|at| text[at..].starts_with("</")),
        None => false,
    }
}

/// Returns the first tag of an entry in a text, and where it begins.
fn first_entry_tag(text: &str) -> Option<(usize, EntryTag)> {
    text.match_indices('<').find_map(|(at, _)| Some((at, entry_tag(&text[at..])?)))
}

impl<'a> Iterator for Tokens<'a> {
    type Item = (Token<'a>, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let (token, length) = self.first()?;
        let (raw, rest) = self.rest.split_at(length);
        self.rest = rest;
        Some((token, raw))
    }
}

/// Returns where, behind the tag that a text begins with, the next tag of this name begins that is in no comment and no CDATA
/// section, or such a section that does not end; the length of the text if there is neither. Remembers in how many of the last
/// bytes no comment ends and no CDATA section, so that they are not searched again.
pub(super) fn next_tag(text: &str, name: &str, without_end: &mut [usize; 2]) -> usize {
    let mut from = 1;
    while let Some(at) = text.get(from..).and_then(|rest| rest.find('<')).map(|at| from + at) {
        let tag = &text[at..];
        let mut sections = [COMMENT, CDATA].into_iter().zip(without_end.iter_mut());
        if let Some(((_, end), without_end)) = sections.find(|((begin, _), _)| tag.starts_with(begin)) {
            let unknown = tag.len().saturating_sub(*without_end);
            let searched = tag.ceil_char_boundary((unknown + end.len()).min(tag.len()));
            let Some(length) = tag[..searched].find(end).filter(|_| unknown > 0) else {
                *without_end = tag.len().max(*without_end);
                return at;
            };
            from = at + length + end.len();
        } else if tag[1..].trim_start_matches('/').starts_with(name) {
            return at;
        } else {
            from = at + 1;
        }
    }
    text.len()
}

pub(super) fn is_name(name: &str) -> bool {
    let begins = name.starts_with(|first: char| first.is_alphabetic() || first == '_');
    begins && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':'))
}

/// Returns the attributes of a tag: names with raw values, quoted or not; a name alone is its own value.
pub(super) fn attributes(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '/' | '"' | '\'' | '='));
        if rest.is_empty() {
            return None;
        }
        let end = rest.find(|c: char| c.is_whitespace() || c == '=').unwrap_or(rest.len());
        let (name, behind) = rest.split_at(end);
        let Some(value) = behind.trim_start().strip_prefix('=').map(str::trim_start) else {
            rest = behind;
            return Some((name, name));
        };
        let quote = value.chars().next().filter(|first| matches!(first, '"' | '\''));
        let value = quote.map_or(value, |_| &value[1..]);
        let end = value.find(|c: char| quote.map_or(c.is_whitespace(), |quote| c == quote)).unwrap_or(value.len());
        rest = &value[end..];
        Some((name, &value[..end]))
    })
}

/// Longest reference with a meaning, `&` and `;` included, in bytes, with room.
const MAX_REFERENCE: usize = 40;

/// Adds text in which every `&` begins a reference that an XML reader can resolve, without `<` or `"`. Gives up once
/// the output is longer than `longest`.
pub(super) fn push_escaped(out: &mut String, text: &str, own: &Entities, longest: usize) {
    let mut rest = text;
    while let Some(at) = rest.find(['&', '<', '"']).filter(|_| out.len() <= longest) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let consumed = match rest.as_bytes()[0] {
            b'<' => {
                out.push_str("&lt;");
                1
            }
            b'"' => {
                out.push_str("&quot;");
                1
            }
            _ => push_reference(out, rest, own),
        };
        rest = &rest[consumed..];
    }
    out.push_str(rest);
}

/// Adds text with everything escaped that has a meaning in XML, references included.
pub(super) fn push_literal(out: &mut String, text: &str) {
    out.push_str(&quick_xml::escape::partial_escape(text));
}

fn push_reference(out: &mut String, text: &str, own: &Entities) -> usize {
    let end = text.bytes().take(MAX_REFERENCE).position(|byte| byte == b';');
    let reference = end.map(|end| (&text[1..end], end + 1));
    if let Some((name, length)) = reference {
        if let Some(digits) = name.strip_prefix('#') {
            // A number that is not a character's is dropped.
            let character = entities::number(name).filter(|character| *character != '\0');
            if character.is_some() || digits.starts_with(|first: char| first.is_ascii_digit() || first == 'x') {
                out.extend(character.map(|character| format!("&#{};", u32::from(character))));
                return length;
            }
        } else if let Some(character) = entities::character(name) {
            match character {
                '&' | '<' | '>' | '"' | '\'' => out.push_str(&text[..length]),
                character => out.push(character),
            }
            return length;
        } else if own.contains(name) {
            out.push_str(&text[..length]);
            return length;
        }
    }
    out.push_str("&amp;");
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<Token<'_>> {
        Tokens::new(text).inspect(|(_, raw)| assert!(!raw.is_empty(), "{text}")).map(|(token, _)| token).collect()
    }

    fn start<'a>(name: &'a str, attributes: &'a str, empty: bool) -> Token<'a> {
        Token::Start(Tag { name, attributes, empty })
    }

    #[test]
    fn any_text_is_tokens() {
        let table: [(&str, Vec<Token<'_>>); 15] = [
            (
                "a<b c='>'/>d</b >",
                vec![Token::Text("a"), start("b", " c='>'", true), Token::Text("d"), Token::End("b")],
            ),
            ("1 < 2", vec![Token::Text("1 "), Token::Text("<"), Token::Text(" 2")]),
            ("<!-- < --><?x?><!DOCTYPE a>", vec![Token::Nothing, Token::Nothing, Token::Nothing]),
            ("<![CDATA[<a>]]>b", vec![Token::Data("<a>"), Token::Text("b")]),
            ("<![CDATA[<a>", vec![Token::Data("<a>")]),
            (
                "<![CDATA[a</item><![CDATA[b",
                vec![Token::Nothing, Token::Text("a"), Token::End("item"), Token::Data("b")],
            ),
            (
                "<![CDATA[a</x:Item ><item><![CDATA[b]]>c",
                vec![
                    Token::Nothing,
                    Token::Text("a"),
                    Token::End("x:Item"),
                    start("item", "", false),
                    Token::Data("b"),
                    Token::Text("c"),
                ],
            ),
            ("<![CDATA[<item></item><![CDATA[b]]>c", vec![Token::Data("<item></item><![CDATA[b"), Token::Text("c")]),
            (
                "<!--a</entry><!--b-->c",
                vec![Token::Nothing, Token::Text("a"), Token::End("entry"), Token::Nothing, Token::Text("c")],
            ),
            ("<!--a</ENTRY>b", vec![Token::Nothing, Token::Text("a"), Token::End("ENTRY"), Token::Text("b")]),
            (
                "<!-->a<!--<item></item>-->b<!--",
                vec![Token::Nothing, Token::Text("a"), Token::Nothing, Token::Text("b"), Token::Nothing],
            ),
            ("<a b=\"c><d>", vec![start("a", " b=\"c", false), start("d", "", false)]),
            (
                "<a b=\"c/></a:ITEM><d e=\"f\"/>",
                vec![start("a", " b=\"c", true), Token::End("a:ITEM"), start("d", " e=\"f\"", true)],
            ),
            ("<a <b>", vec![start("a", "", false), start("b", "", false)]),
            ("</a</b", vec![Token::End("a"), Token::End("b")]),
        ];
        for (text, expected) in table {
            assert_eq!(tokens(text), expected, "{text}");
        }
    }

    #[test]
    fn quotes_that_are_never_closed_cost_a_bounded_number_of_scans() {
        let text = format!("<b{} x=\"", " x=\"/<a ='\"".repeat(1000));
        let mut tokens = Tokens::new(&text);
        let before = tokens.budget;
        assert!(tokens.by_ref().count() > 1000);
        assert!(before <= WASTE * text.len() && tokens.budget == 0, "all of it is spent");
        let sound = "<a b='c'/>".repeat(1000);
        let mut tokens = Tokens::new(&sound);
        assert_eq!((tokens.by_ref().count(), tokens.budget), (1000, WASTE * sound.len()), "nothing is wasted");
    }

    #[test]
    fn attributes_are_found_with_and_without_quotes() {
        let found: Vec<_> = attributes(" a=\"1\" b = 'x y' c=d checked e='").collect();
        assert_eq!(found, [("a", "1"), ("b", "x y"), ("c", "d"), ("checked", "checked"), ("e", "")]);
    }

    #[test]
    fn every_reference_can_be_resolved_afterwards() {
        let table = [
            ("AT&T", "AT&amp;T"),
            ("a &amp; b &eacute;", "a &amp; b é"),
            ("&nosuch;", "&amp;nosuch;"),
            ("&#0;&#xD800;&#x41;&#65;", "&#65;&#65;"),
            ("?a=1&b=2;", "?a=1&amp;b=2;"),
            ("<\">", "&lt;&quot;>"),
            ("&é;", "&amp;é;"),
        ];
        for (text, expected) in table {
            let mut out = String::new();
            push_escaped(&mut out, text, &Entities::default(), usize::MAX);
            assert_eq!(out, expected, "{text}");
        }
    }
}
