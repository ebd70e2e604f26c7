//! The content of one element: its text with references resolved, or, where it holds markup, the markup as written.

use std::borrow::Cow;
use std::ops::Range;

use quick_xml::events::BytesStart;

use super::context::Context;
use crate::parse::vocabulary::Space;

/// Prefixes of XHTML that may be declared inside of one element; further ones stay.
const MAX_PREFIXES: usize = 8;

/// Collects the content of an element that means text.
#[derive(Debug)]
pub(super) struct Capture<'a> {
    document: &'a str,
    /// The element's depth.
    depth: usize,
    /// Where its content begins.
    begins: usize,
    text: Cow<'a, str>,
    /// Elements directly inside of it.
    children: usize,
    /// Where the content of the first of them begins, and where it ends; only that of a `div` is wanted.
    wrapper: Option<Range<usize>>,
    /// There is text beside the elements.
    mixed: bool,
    /// Prefixes of XHTML that are declared inside of it.
    prefixes: Vec<String>,
    /// An element inside of it has a prefix.
    is_prefixed: bool,
}

impl<'a> Capture<'a> {
    /// Of the element at this depth, whose content begins here.
    pub(super) fn new(document: &'a str, depth: usize, begins: usize) -> Self {
        Capture {
            document,
            depth,
            begins,
            text: Cow::Borrowed(""),
            children: 0,
            wrapper: None,
            mixed: false,
            prefixes: Vec::new(),
            is_prefixed: false,
        }
    }

    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// An element begins inside, at this depth; its content begins behind the tag. Returns whether it may be the `div` around
    /// XHTML.
    pub(super) fn open(&mut self, depth: usize, tag: &BytesStart<'_>, span: &Range<usize>) -> bool {
        let (name, prefix) = tag.name().decompose();
        self.is_prefixed |= prefix.is_some();
        if tag.attributes_raw().contains("xmlns:") {
            self.declare(tag);
        }
        if depth > self.depth + 1 {
            return false;
        }
        self.children += 1;
        let is_wrapper = self.children == 1 && name.as_ref().eq_ignore_ascii_case("div");
        if is_wrapper {
            self.wrapper = Some(span.end..span.end);
        }
        is_wrapper
    }

    fn declare(&mut self, tag: &BytesStart<'_>) {
        for declaration in tag.attributes().with_checks(false).flatten() {
            let prefix = declaration.key.as_ref().strip_prefix("xmlns:");
            if let Some(prefix) = prefix.filter(|_| Space::of_uri(&declaration.value) == Some(Space::Xhtml))
                && self.prefixes.len() < MAX_PREFIXES
                && !self.prefixes.iter().any(|known| known == prefix)
            {
                self.prefixes.push(prefix.to_owned());
            }
        }
    }

    /// The element inside at this depth ends with a tag here.
    pub(super) fn close(&mut self, depth: usize, tag: &Range<usize>) {
        let is_first = depth == self.depth + 1 && self.children == 1;
        if let Some(wrapper) = self.wrapper.as_mut().filter(|_| is_first) {
            // An empty element has no separate end tag.
            wrapper.end = tag.start.max(wrapper.start);
        }
    }

    /// Text at this depth, without references.
    pub(super) fn text(&mut self, depth: usize, piece: Cow<'a, str>) {
        if depth > self.depth {
            return;
        }
        self.mixed |= !self.mixed && !piece.trim().is_empty();
        if self.children > 0 {
            return;
        }
        if self.text.is_empty() {
            self.text = piece;
        } else {
            self.text.to_mut().push_str(&piece);
        }
    }

    /// Adds the text of a reference at this depth.
    pub(super) fn push(&mut self, depth: usize, meaning: &str) {
        if depth > self.depth {
            return;
        }
        self.mixed = true;
        if self.children == 0 {
            self.text.to_mut().push_str(meaning);
        }
    }

    /// Returns the content, when the element's end tag begins at `ends`. Of XHTML, and of anything that holds elements,
    /// the markup as written; a lone `div` around XHTML is left out (RFC 4287, section 3.1.1.3). `context` is the element's.
    pub(super) fn finish(self, ends: usize, xhtml: bool, context: &Context) -> Captured<'a> {
        if self.children == 0 && !xhtml {
            return Captured { text: self.text, is_markup: false, is_unwrapped: false };
        }
        let all = self.begins..ends.max(self.begins);
        let alone = self.children == 1 && !self.mixed;
        let wrapped = self.wrapper.filter(|_| alone && xhtml);
        let is_unwrapped = wrapped.is_some();
        let range = wrapped.unwrap_or(all);
        let markup = self.document.get(range).unwrap_or("");
        let is_xhtml = |prefix: &str| {
            context.space(prefix) == Space::Xhtml || self.prefixes.iter().any(|declared| declared == prefix)
        };
        Captured { text: as_html(markup, self.is_prefixed, is_xhtml), is_markup: true, is_unwrapped }
    }
}

/// What an element held.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Captured<'a> {
    pub(super) text: Cow<'a, str>,
    /// The text is XML, with its references.
    pub(super) is_markup: bool,
    /// It was the only element's, which was left out.
    pub(super) is_unwrapped: bool,
}

/// Elements of HTML that are always empty.
const VOID: [&str; 14] =
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"];

/// Markup of XML as HTML reads it: CDATA sections, which it does not know, become escaped text, an empty element that need not
/// be empty gets an end tag, because HTML would take what follows for its content, and XHTML's elements lose their prefixes.
/// Names with another prefix mean nothing there.
fn as_html(markup: &str, is_prefixed: bool, is_xhtml: impl Fn(&str) -> bool) -> Cow<'_, str> {
    const DATA: &str = "<![CDATA[";
    if !is_prefixed && !markup.contains(DATA) && !markup.contains("/>") {
        return markup.into();
    }
    let mut html = String::with_capacity(markup.len());
    let mut rest = markup;
    while let Some(at) = rest.find('<') {
        html.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(data) = rest.strip_prefix(DATA) {
            let (data, after) = data.split_once("]]>").unwrap_or((data, ""));
            html.push_str(&quick_xml::escape::partial_escape(data));
            rest = after;
            continue;
        }
        let length = if rest.starts_with("<!--") { rest.find("-->").map(|end| end + 3) } else { tag_length(rest) };
        let (tag, after) = rest.split_at(length.unwrap_or(rest.len()));
        let (begin, named) = tag.split_at(if tag.starts_with("</") { 2 } else { 1 });
        let bare = named.split_once(':').filter(|(prefix, _)| is_xhtml(prefix)).map_or(named, |(_, bare)| bare);
        html.push_str(begin);
        match open_and_close(bare) {
            Some((open, name)) => html.extend([open, "></", name, ">"]),
            None => html.push_str(bare),
        }
        rest = after;
    }
    html.push_str(rest);
    html.into()
}

/// Returns what stands before the `/>` of an empty element that could have content, and its name. The tag is given without
/// its `<`.
fn open_and_close(tag: &str) -> Option<(&str, &str)> {
    let open = tag.strip_suffix("/>")?;
    let name = open.split([' ', '\t', '\n', '\r', '/']).next()?;
    let is_void = VOID.iter().any(|void| void.eq_ignore_ascii_case(name));
    (!is_void && !name.contains(':')).then_some((open.trim_end(), name))
}

/// Returns the length of the tag that a text begins with, if it ends.
fn tag_length(text: &str) -> Option<usize> {
    let mut quote = None;
    let end = text.bytes().position(|byte| match (quote, byte) {
        (None, b'>') => true,
        (None, b'"' | b'\'') => {
            quote = Some(byte);
            false
        }
        (Some(open), byte) if open == byte => {
            quote = None;
            false
        }
        _ => false,
    });
    end.map(|end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{ParseLimits, parse};

    #[test]
    fn sections_of_data_become_escaped_text() {
        let as_html = |xml| as_html(xml, false, |_| false);
        assert_eq!(as_html("<p>a</p>"), "<p>a</p>");
        assert_eq!(as_html("<p><![CDATA[1 < 2]]></p>&amp;<![CDATA[x"), "<p>1 &lt; 2</p>&amp;x");
    }

    #[test]
    fn empty_elements_end_where_they_begin() {
        let cases = [
            ("<p>a</p><iframe src=\"x\" />b", "<p>a</p><iframe src=\"x\"></iframe>b"),
            ("<a id='x>/>'/>b<I/>c", "<a id='x>/>'></a>b<I></I>c"),
            ("a<br/>b<IMG src=\"/\"/><hr />", "a<br/>b<IMG src=\"/\"/><hr />"),
            ("<!-- <i/> --><i/>", "<!-- <i/> --><i></i>"),
            ("<media:x a=\"b\"/>c", "<media:x a=\"b\"/>c"),
            ("a <i/", "a <i/"),
            ("<i/>x<b", "<i></i>x<b"),
        ];
        for (xml, html) in cases {
            assert_eq!(as_html(xml, false, |_| false), html);
        }
    }

    #[test]
    fn a_prefix_of_xhtml_is_known_by_its_declaration_around_and_inside_of_a_text() {
        const XHTML: &str = "http://www.w3.org/1999/xhtml";
        let content = |root: &str, inside: &str| {
            let entry = format!("<entry><id>1</id><content type='xhtml'>{inside}</content></entry>");
            let feed = format!("<feed xmlns='http://www.w3.org/2005/Atom' {root}>{entry}</feed>");
            let read = parse(feed.as_bytes(), None, "https://a.example/", &ParseLimits::default());
            read.unwrap().entries.remove(0).content.unwrap()
        };
        let declared = format!("xmlns:h='{XHTML}'");
        let prefixed = "<h:p>a<h:br/></h:p>";
        assert_eq!(content(&declared, &format!("<h:div>{prefixed}</h:div>")), "<p>a<br/></p>");
        assert_eq!(content("", &format!("<h:div {declared}>{prefixed}</h:div>")), "<p>a<br/></p>");
        assert_eq!(content("", "<xhtml:div><xhtml:p>a</xhtml:p></xhtml:div>"), "<p>a</p>");
        assert_eq!(content("xmlns:h='urn:other'", &format!("<div>{prefixed}</div>")), prefixed);
    }

    #[test]
    fn elements_of_xhtml_lose_their_prefix_and_others_keep_theirs() {
        let cases = [
            ("<h:p class='h:x'>a:b<h:br/><h:i/></h:p>", "<p class='h:x'>a:b<br/><i></i></p>"),
            ("<h:p>a</h:p><m:math/>", "<p>a</p><m:math/>"),
            ("<p title='h:a'/><!--h:a--><![CDATA[<h:p>]]>", "<p title='h:a'></p><!--h:a-->&lt;h:p&gt;"),
        ];
        for (xml, html) in cases {
            assert_eq!(as_html(xml, true, |prefix| prefix == "h"), html);
        }
    }
}
