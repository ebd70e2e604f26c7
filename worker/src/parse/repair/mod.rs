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
mod tokens;

use std::collections::HashMap;

use crate::parse::{ParseLimits, xml};
use crate::watch::Watch;
use dialect::{Dialect, NextEnd};
use tokens::{Tag, Token, Tokens};

/// A document with more open elements than this is not repaired: the reader would refuse it anyway.
const MAX_OPEN: usize = 256;
/// How much longer than half as much again the repaired document may be, in bytes: what needs more is not a document.
const MAX_GROWTH: usize = 64 * 1024;
/// End tags without a start tag that are left out: each is compared with all open elements.
const MAX_UNMATCHED: usize = 100_000;
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
    let text = &text[feed_position(text)?..];
    let mut watch = Watch::new(limits.deadline);
    let Some((Token::Start(root), _)) = Tokens::new(text).next() else { return None };
    let mut rewriter = Rewriter::new(Dialect::of_root(root.name)?, text.len(), *limits);
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

/// Returns the entry of this name that a text begins with, if it is well-formed and within the limits inside of this number
/// of elements.
fn whole_entry<'t>(text: &'t str, name: &str, around: usize, limits: &ParseLimits) -> Option<&'t str> {
    let mut tags = text.match_indices('<').skip(1).map(|(at, _)| at);
    let is_named = |at: &usize| text[at + 1..].trim_start_matches('/').starts_with(name);
    let ends = tags.find(is_named).filter(|at| text[at + 1..].starts_with('/'))?;
    let entry = &text[..=ends + 1 + text[ends + 1..].find(['<', '>'])?];
    (xml::whole_element(entry, around, limits) == Some(entry.len())).then_some(entry)
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
    /// An element that holds text is open: its depth.
    text_holder: Option<(usize, Inside)>,
    /// An entry is open: its depth, and where it begins in the output.
    entry: Option<(usize, usize)>,
    /// End tags that were left out.
    unmatched: usize,
    /// Where elements of these names end that need not have an end tag.
    ends: HashMap<String, NextEnd>,
    /// Too deep, grown too much, too many end tags, or late.
    hopeless: bool,
    longest: usize,
    limits: ParseLimits,
    /// The root element has ended.
    closed: bool,
}

impl Rewriter {
    fn new(dialect: Dialect, length: usize, limits: ParseLimits) -> Self {
        Rewriter {
            out: String::with_capacity(length + length / 8),
            open: Vec::new(),
            dialect,
            text_holder: None,
            entry: None,
            unmatched: 0,
            ends: HashMap::new(),
            hopeless: false,
            longest: length + length / 2 + MAX_GROWTH,
            limits,
            closed: false,
        }
    }

    fn text(&mut self, text: &str) {
        match self.text_holder {
            Some((_, Inside::Xhtml)) => tokens::push_literal(&mut self.out, text),
            _ => tokens::push_escaped(&mut self.out, text, self.longest),
        }
    }

    /// Handles a start tag, with which the text `here` begins. Returns what follows where more than the tag was taken.
    fn start<'t>(&mut self, tag: Tag<'_>, raw: &str, here: &'t str) -> Option<&'t str> {
        let plain = self.dialect.plain(tag.name);
        let is_entry = self.dialect.is_entry(&plain) && !self.open.is_empty();
        if is_entry {
            self.close_to(self.container() + 1);
            if let Some(entry) = whole_entry(here, tag.name, self.open.len(), &self.limits) {
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
        let truncated = !self.closed;
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
        tokens::push_escaped(&mut self.out, value, self.longest);
        self.out.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mended(text: &str) -> Option<Mended> {
        super::mended(text, &ParseLimits::default())
    }

    #[test]
    fn the_feed_is_found_behind_junk_and_nowhere_else() {
        assert_eq!(feed_position("Warning: <b>x</b> <?xml?><rss>"), Some(25));
        assert_eq!(feed_position("<RDF:RDF>"), Some(0));
        assert_eq!(feed_position("<atom:feed xmlns:atom='x'>"), Some(0));
        assert_eq!(feed_position("<html><feedback/><rssx></html>"), None);
        assert_eq!(feed_position("< rss"), None);
        assert_eq!(feed_position("<!-- <rss> --><SCRIPT>'<rss>'</Script><style><feed></style><rss>"), Some(59));
        for page in
            ["<html><!-- <rss> --></html>", "<html><script>x = '<rss>'</script></html>", "<!-- <rss>", "<Script><feed>"]
        {
            assert_eq!(feed_position(page), None, "{page}");
        }
    }

    #[test]
    fn what_is_broken_is_mended() {
        let rss = |inside: &str| format!("<rss><channel>{inside}</channel></rss>");
        let table = [
            ("<rss><channel><title>a & b</title></channel></rss>", rss("<title>a &amp; b</title>")),
            ("junk<rss><channel><link>x", rss("<link>x</link>")),
            ("<RSS><Title>a</TITLE></RSS>", "<RSS><Title>a</Title></RSS>".to_owned()),
            ("<rss><channel><a><b></a></channel></rss>", rss("<a><b></b></a>")),
            ("<rss><channel></b><c/></channel></rss>", rss("<c/>")),
            ("<rss><channel><item>1</item><item>2", rss("<item>1</item>")),
            ("<rss><channel><item>1<item>2</item></channel></rss>", rss("<item>1</item><item>2</item>")),
            ("<rss><channel><title>a<item>1</item></channel></rss>", rss("<title>a</title><item>1</item>")),
            (
                "<rss><channel>&<item><description>a &amp; <b/><![CDATA[&]]></description></item></channel></rss>",
                rss("&amp;<item><description>a &amp; <b/><![CDATA[&]]></description></item>"),
            ),
            (
                "<rss><channel><item><title>a<b>c</b><link>x</link><guid>1<pubDate>y</item></channel></rss>",
                rss(
                    "<item><title>a&lt;b&gt;c&lt;/b&gt;</title><link>x</link><guid>1</guid><pubDate>y</pubDate></item>",
                ),
            ),
            (
                "<rss><channel><item><description>a<link href='b'><title>c</title><guid>1</guid></item></channel></rss>",
                rss(
                    "<item><description>a&lt;link href='b'&gt;&lt;title&gt;c&lt;/title&gt;</description><guid>1</guid></item>",
                ),
            ),
            ("<rss/>x", "<rss/>".to_owned()),
            (
                "<rss><channel><description><p>x<br>&eacute;</description></channel></rss>",
                rss("<description>&lt;p&gt;x&lt;br&gt;é</description>"),
            ),
            ("<rss><channel><a b=c b=d '9'=e f='<'/></channel>", rss("<a b=\"c\" f=\"&lt;\"/>")),
            (
                "<a:feed><a:entry><a:title type='xhtml'><b>x</b> &amp; y</a:entry></a:feed>",
                "<a:feed><a:entry><a:title type=\"html\">&lt;b&gt;x&lt;/b&gt; &amp;amp; y</a:title></a:entry></a:feed>"
                    .to_owned(),
            ),
        ];
        for (broken, whole) in table {
            assert_eq!(mended(broken).map(|mended| mended.text), Some(whole), "{broken}");
        }
        assert_eq!(mended("<html></html>"), None);
        assert_eq!(mended(&format!("<rss>{}", "<a>".repeat(MAX_OPEN))), None);
    }

    #[test]
    fn what_each_of_many_tags_and_attributes_is_compared_with_is_bounded() {
        let ended = |times: usize| mended(&format!("<rss>{}</rss>", "</a>".repeat(times))).map(|mended| mended.text);
        assert_eq!(ended(MAX_UNMATCHED).as_deref(), Some("<rss></rss>"));
        assert_eq!(ended(MAX_UNMATCHED + 1), None);
        let kept = |attributes: String| mended(&format!("<rss{attributes}></rss>")).map(|mended| mended.text);
        let repeated = " a=1".repeat(MAX_ATTRIBUTES_READ - 1);
        assert_eq!(kept(format!("{repeated} b=2")).as_deref(), Some("<rss a=\"1\" b=\"2\"></rss>"));
        assert_eq!(kept(format!("{repeated} a=1 b=2")).as_deref(), Some("<rss a=\"1\"></rss>"));
    }

    #[test]
    fn a_document_that_ends_too_early_is_known() {
        for (text, truncated) in [("<rss></rss>", false), ("<rss><channel>", true), ("<rss></channel></rss>x", false)] {
            assert_eq!(mended(text).map(|mended| mended.truncated), Some(truncated), "{text}");
        }
    }
}
