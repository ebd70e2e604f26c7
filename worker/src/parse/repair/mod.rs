//! The second try: a broken document rewritten into one that the engine can read.
//!
//! Runs only when the first try failed or found nothing, so that a sound document pays nothing for it. What it mends: text
//! before the document, stray `&` and `<`, undeclared entities, broken attributes, unclosed and crossed tags, a missing or
//! odd `rss` version, Atom 0.3 and RSS 0.90, misspelt namespaces, HTML written into a feed without escaping, types of text
//! that nobody knows, and a document that ends too early (whole entries are kept). Extensions that the engine is strict
//! about and that nobody reads here are left out.
//!
//! The result is only a better guess: it passes the guard and the engine like any document.

mod dialect;
pub(super) mod json;
mod tokens;

use super::namespaces;
use dialect::{Dialect, Kind, local};
use tokens::{Tag, Token};

/// More open elements than this are not mended: the guard would refuse them anyway.
const MAX_OPEN: usize = 256;
/// How much longer than half as much again the mended document may be, in bytes: what needs more is no document.
const MAX_GROWTH: usize = 64 * 1024;
/// Attributes that are kept of one element.
const MAX_ATTRIBUTES: usize = 64;
/// How far into a text the beginning of a feed is looked for, in bytes.
const MAX_JUNK: usize = 64 * 1024;

/// Where the feed begins in a text, if there is one: at the first tag that only a feed begins with.
pub(super) fn feed_position(text: &str) -> Option<usize> {
    let head = &text[..text.floor_char_boundary(MAX_JUNK)];
    head.match_indices('<').map(|(at, _)| at).find(|at| {
        let name = &head[at + 1..];
        let end = name.find(|c: char| c.is_whitespace() || matches!(c, '>' | '/')).unwrap_or(name.len());
        dialect::kind(&name[..end]).is_some()
    })
}

/// A document that was rewritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mended {
    pub(super) text: String,
    /// It ended before its root element did.
    pub(super) truncated: bool,
}

/// The document mended. `without_people` also leaves out authors, over whose addresses the engine is known to panic.
/// `None` when it is no feed.
pub(super) fn mended(text: &str, without_people: bool) -> Option<Mended> {
    let mut rest = &text[feed_position(text)?..];
    let Some((Token::Start(root), _)) = tokens::first(rest) else { return None };
    let mut rewriter = Rewriter::new(Dialect::of_root(root.name)?, rest.len(), without_people);
    while let Some((token, length)) = tokens::first(rest) {
        let raw = &rest[..length];
        rest = &rest[length..];
        match token {
            Token::Text(text) => rewriter.text(text),
            Token::Data(data) => rewriter.data(data),
            Token::Start(tag) => rewriter.start(tag, raw),
            Token::End(name) => rewriter.end(name, raw),
            Token::Nothing => {}
        }
        rewriter.hopeless |= rewriter.out.len() > rewriter.longest;
        if rewriter.is_done() {
            break;
        }
    }
    rewriter.finish()
}

struct Open {
    /// The name as the document has it.
    name: String,
    /// The name as it was written.
    written: String,
}

/// How markup inside of an element that holds text is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    /// It is HTML that should have been escaped.
    Html,
    /// It is XHTML: its text has references of its own.
    Xhtml,
}

struct Rewriter {
    out: String,
    open: Vec<Open>,
    dialect: Dialect,
    without_people: bool,
    /// An element that holds text is open: its depth.
    text_holder: Option<(usize, Inside)>,
    /// An element that is left out is open: its depth.
    leaving_out: Option<usize>,
    /// An entry is open: its depth, and where it begins in the output.
    entry: Option<(usize, usize)>,
    /// Too deep, or grown too much.
    hopeless: bool,
    longest: usize,
    has_channel: bool,
    closed: bool,
}

impl Rewriter {
    fn new(dialect: Dialect, length: usize, without_people: bool) -> Self {
        Rewriter {
            out: String::with_capacity(length + length / 8),
            open: Vec::new(),
            dialect,
            without_people,
            text_holder: None,
            leaving_out: None,
            entry: None,
            hopeless: false,
            longest: length + length / 2 + MAX_GROWTH,
            has_channel: false,
            closed: false,
        }
    }

    fn is_done(&self) -> bool {
        self.hopeless || self.closed
    }

    fn text(&mut self, text: &str) {
        if self.leaving_out.is_none() {
            match self.text_holder {
                Some((_, Inside::Xhtml)) => tokens::push_literal(&mut self.out, text),
                _ => tokens::push_escaped(&mut self.out, text, self.longest),
            }
        }
    }

    fn data(&mut self, data: &str) {
        if self.leaving_out.is_none() {
            tokens::push_literal(&mut self.out, data);
        }
    }

    fn start(&mut self, tag: Tag<'_>, raw: &str) {
        let name = self.dialect.plain(tag.name);
        if self.dialect.is_entry(&name) && !self.open.is_empty() {
            self.close_to(self.container() + 1);
        } else if self.text_holder.is_some() {
            tokens::push_literal(&mut self.out, raw);
            return;
        }
        if self.dialect.kind == Kind::Rss && matches!(self.open.len(), 1 | 2) {
            let is_channel = name == "channel";
            if is_channel && self.has_channel {
                return;
            }
            if is_channel || self.open.len() == 1 {
                self.open_channel(if is_channel { tag.attributes } else { "" });
            }
            if is_channel {
                return;
            }
        }
        if self.leaving_out.is_none() && self.is_unwanted(&name) {
            self.leaving_out = Some(self.open.len() + 1);
        }
        let begins = self.out.len();
        if self.leaving_out.is_none() {
            self.write_start(&name, tag.attributes, tag.empty);
        }
        if tag.empty {
            if self.leaving_out == Some(self.open.len() + 1) {
                self.leaving_out = None;
            }
            return;
        }
        let written = self.dialect.renamed(&name).to_owned();
        self.open.push(Open { name: name.clone(), written });
        self.hopeless |= self.open.len() > MAX_OPEN;
        if self.leaving_out.is_none() {
            self.note_opened(&name, tag.attributes, begins);
        }
    }

    /// There is one channel, around everything in an `rss`, whether the document has one, several, or none.
    fn open_channel(&mut self, attributes: &str) {
        self.has_channel = true;
        self.write_start("channel", attributes, false);
        self.open.push(Open { name: "channel".to_owned(), written: "channel".to_owned() });
    }

    fn note_opened(&mut self, name: &str, attributes: &str, begins: usize) {
        let depth = self.open.len();
        if depth > 1 && self.dialect.is_entry(name) {
            self.entry = Some((depth, begins));
        } else if self.dialect.holds_text(name) {
            let is_xhtml = self.dialect.kind == Kind::Atom && dialect::text_type(attributes).1;
            self.text_holder = Some((depth, if is_xhtml { Inside::Xhtml } else { Inside::Html }));
        }
    }

    fn end(&mut self, name: &str, raw: &str) {
        let name = self.dialect.plain(name);
        if let Some((depth, _)) = self.text_holder {
            let own = self.open.get(depth - 1).is_some_and(|open| open.name == name);
            if !own && !self.dialect.is_frame(&name) {
                tokens::push_literal(&mut self.out, raw);
                return;
            }
        }
        // Items after their channel's end are still its items.
        if self.dialect.kind == Kind::Rss && name == "channel" {
            if let Some((depth, _)) = self.entry {
                self.close_to(depth);
            }
            return;
        }
        if let Some(at) = self.open.iter().rposition(|open| open.name == name) {
            self.close_to(at + 1);
            self.closed = at == 0;
        }
    }

    /// The depth of the element that entries stand in: whatever else is open, an entry begins outside of it.
    fn container(&self) -> usize {
        let channel = self.open.iter().position(|open| open.name == "channel" && self.dialect.kind == Kind::Rss);
        channel.map_or(1, |at| at + 1)
    }

    fn is_unwanted(&self, name: &str) -> bool {
        self.dialect.is_unwanted(name) || (self.without_people && dialect::is_person(name))
    }

    /// Closes every element down to, and with, the one at `depth`.
    fn close_to(&mut self, depth: usize) {
        while self.open.len() >= depth {
            let at = self.open.len();
            if at == 1 && self.dialect.kind == Kind::Rss {
                self.close_missing_channel();
            }
            let Some(open) = self.open.pop() else { return };
            if self.leaving_out.is_none_or(|left_out| at < left_out) {
                self.out.push_str("</");
                self.out.push_str(&open.written);
                self.out.push('>');
            }
            self.leaving_out = self.leaving_out.filter(|left_out| at > *left_out);
            self.text_holder = self.text_holder.filter(|(holder, _)| at > *holder);
            self.entry = self.entry.filter(|(entry, _)| at > *entry);
        }
    }

    /// An `rss` with nothing in it is a feed with nothing in it.
    fn close_missing_channel(&mut self) {
        if !self.has_channel {
            self.has_channel = true;
            self.out.push_str("<channel></channel>");
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
            self.leaving_out = None;
        }
        let truncated = !self.closed;
        self.close_to(1);
        Some(Mended { text: self.out, truncated })
    }

    fn write_start(&mut self, name: &str, attributes: &str, empty: bool) {
        let is_root = self.open.is_empty();
        self.out.push('<');
        let written = self.dialect.renamed(name).to_owned();
        self.out.push_str(&written);
        if is_root {
            self.write_root_attributes();
        }
        let atom_text = self.dialect.kind == Kind::Atom && self.dialect.holds_text(name);
        let strict_type = name.contains(':') && matches!(local(name), "title" | "description" | "text");
        let mut seen: Vec<&str> = Vec::new();
        for (attribute, value) in tokens::attributes(attributes) {
            let replaced = (is_root && matches!(attribute, "xmlns" | "version"))
                || (atom_text && matches!(attribute, "type" | "mode"))
                || (strict_type && attribute == "type" && !matches!(value, "plain" | "html"))
                || (attribute == "xml:base" && !is_base(value));
            if replaced || seen.len() == MAX_ATTRIBUTES || seen.contains(&attribute) || !tokens::is_name(attribute) {
                continue;
            }
            seen.push(attribute);
            let value = attribute.strip_prefix("xmlns").and_then(|_| namespaces::canonical(value)).unwrap_or(value);
            self.write_attribute(attribute, value);
        }
        if atom_text {
            self.write_attribute("type", dialect::text_type(attributes).0);
        }
        self.out.push_str(if empty { "/>" } else { ">" });
    }

    fn write_root_attributes(&mut self) {
        match self.dialect.kind {
            Kind::Rss => self.write_attribute("version", "2.0"),
            Kind::Rdf => self.write_attribute("xmlns", namespaces::RSS),
            Kind::Atom => self.write_attribute("xmlns", namespaces::ATOM),
        }
    }

    fn write_attribute(&mut self, name: &str, value: &str) {
        self.out.push(' ');
        self.out.push_str(name);
        self.out.push_str("=\"");
        tokens::push_escaped(&mut self.out, value, self.longest);
        self.out.push('"');
    }
}

fn is_base(value: &str) -> bool {
    matches!(url::Url::parse(value), Ok(_) | Err(url::ParseError::RelativeUrlWithoutBase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_feed_is_found_behind_junk_and_nowhere_else() {
        assert_eq!(feed_position("Warning: <b>x</b> <?xml?><rss>"), Some(25));
        assert_eq!(feed_position("<RDF:RDF>"), Some(0));
        assert_eq!(feed_position("<atom:feed xmlns:atom='x'>"), Some(0));
        assert_eq!(feed_position("<html><feedback/><rssx></html>"), None);
        assert_eq!(feed_position("< rss"), None);
    }

    fn mended_to(text: &str) -> Option<String> {
        mended(text, false).map(|mended| mended.text)
    }

    #[test]
    fn what_is_broken_is_mended() {
        let rss = |inside: &str| format!("<rss version=\"2.0\"><channel>{inside}</channel></rss>");
        let table = [
            ("<rss><channel><title>a & b</title></channel></rss>", rss("<title>a &amp; b</title>")),
            ("junk<rss version='9'><channel><link>x", rss("<link>x</link>")),
            ("<RSS><CHANNEL><Title>a</TITLE></CHANNEL></RSS>", rss("<title>a</title>")),
            ("<rss><channel><a><b></a></channel></rss>", rss("<a><b></b></a>")),
            ("<rss><channel></b><c/></channel></rss>", rss("<c/>")),
            ("<rss><channel><item>1</item><item>2", rss("<item>1</item>")),
            ("<rss><channel><item>1<item>2</item></channel></rss>", rss("<item>1</item><item>2</item>")),
            ("<rss><channel><title>a<item>1</item></channel></rss>", rss("<title>a</title><item>1</item>")),
            ("<rss><item>1</item></rss>", rss("<item>1</item>")),
            ("<rss></rss>", rss("")),
            (
                "<rss><channel/><item>1</item><channel><item>2</item></channel></rss>",
                rss("<item>1</item><item>2</item>"),
            ),
            ("<rss><channel></channel><item>1</item></rss>", rss("<item>1</item>")),
            (
                "<rss><channel><description><p>x<br>&eacute;</description></channel></rss>",
                rss("<description>&lt;p&gt;x&lt;br&gt;é</description>"),
            ),
            ("<rss><channel><itunes:a>x<b></itunes:a><podcast:c/><d/></channel>", rss("<d/>")),
            ("<rss><channel><a b=c b=d '9'=e f='<'/></channel>", rss("<a b=\"c\" f=\"&lt;\"/>")),
        ];
        for (broken, mended_text) in table {
            assert_eq!(mended_to(broken).as_deref(), Some(mended_text.as_str()), "{broken}");
        }
        assert_eq!(mended("<html></html>", false), None);
        assert_eq!(mended(&format!("<rss>{}", "<a>".repeat(MAX_OPEN)), false), None);
    }

    #[test]
    fn atom_0_3_becomes_atom_1_0() {
        let old = "<feed version='0.3' xmlns='http://purl.org/atom/ns#'><tagline>t</tagline><entry><issued>2003</issued>\
                   <content type='application/xhtml+xml' mode='xml'><p>a &lt; b</p></content></entry></feed>";
        let new = "<feed xmlns=\"http://www.w3.org/2005/Atom\"><subtitle type=\"text\">t</subtitle><entry><published>2003</published>\
                   <content type=\"html\">&lt;p&gt;a &amp;lt; b&lt;/p&gt;</content></entry></feed>";
        assert_eq!(mended_to(old).as_deref(), Some(new));
    }

    #[test]
    fn a_document_that_ends_too_early_is_known() {
        for (text, truncated) in [("<rss></rss>", false), ("<rss><channel>", true), ("<rss></channel></rss>x", false)] {
            assert_eq!(mended(text, false).map(|mended| mended.truncated), Some(truncated), "{text}");
        }
    }

    #[test]
    fn people_are_left_out_on_demand_only() {
        let feed = "<rss><channel><item><author>a</author></item></channel></rss>";
        assert!(mended(feed, false).is_some_and(|mended| mended.text.contains("author")));
        assert!(mended(feed, true).is_some_and(|mended| !mended.text.contains("author")));
    }
}
