//! What hostile documents are made of: a beginning, and a piece that is repeated behind it. Tests double such documents, and
//! measure large ones.

use common::testing::pieces;

/// A document of about any length.
pub(crate) struct Pattern {
    pub(crate) name: String,
    /// Makes a document of about this many bytes.
    pub(crate) make: Box<dyn Fn(usize) -> String>,
}

/// Pieces of feeds, pages and what is neither.
const TOKENS: [&str; 53] = [
    "<",
    "<x",
    "<x:",
    "<b",
    "<a ",
    "<a '",
    "<a \"",
    "<a b=",
    "<a b='",
    "<!--",
    "-->",
    "<![CDATA[",
    "]]>",
    "</b>",
    "<b><i></b>",
    "&",
    "&#",
    "&amp;",
    "<item>",
    "<entry>",
    "<title>",
    "<?",
    "<!x [",
    "<p><item>",
    "<br>",
    ">",
    "'",
    "\"",
    "x",
    " ",
    "\n",
    "é",
    "\u{a0}",
    "<rss ",
    "<feed ",
    "<a href=x>",
    "<div class=h-entry>",
    "<p class=p-category>",
    "<p class='e-content u-photo h-card'>",
    "<a rel=feed href=x>",
    "{",
    "[",
    "\\",
    "{\"a\":",
    "\"\t\",",
    "\\ud800",
    ",",
    "<media:group>",
    "&a",
    "\u{a0}x",
    "<p>x",
    "<link rel=alternate type=application/rss+xml href=",
    "<base href=x>",
];

/// How an h-feed begins that waits for the content of its entry.
pub(crate) const PAGE: &str =
    "<!DOCTYPE html><div class=h-feed><div class=h-entry><a class=u-url href=/1>1</a><p class=e-content>";

/// Beginnings of feeds and pages: some well-formed, some to be repaired.
const BEGINNINGS: [&str; 6] = [
    "",
    "<rss><channel>&",
    "<feed>&<entry><content type='html'><![CDATA[",
    "<rss><channel><item><title>&",
    PAGE,
    "{\"version\":\"https://jsonfeed.org/version/1\",\"items\":[",
];

/// Makes the piece of a number.
type Piece = fn(usize) -> String;

/// Names of patterns, their beginnings, and pieces of which no two are equal.
const NUMBERED: [(&str, &str, Piece); 12] = [
    ("attributes of a page", "<!DOCTYPE html><div class=h-feed><p", |n| format!(" a{n}")),
    ("attributes of an element", "<rss><channel><item", |n| format!(" a{n}=''")),
    ("attributes without an end", "<rss><channel>&<item", |n| format!(" a{n}='<'")),
    ("formatting elements", PAGE, |n| format!("<b id={n}></b>")),
    ("open formatting elements", PAGE, |n| format!("<b id={n}><p>")),
    ("elements", "<rss><channel>", |n| format!("<a{n}/>")),
    ("open elements", "<rss><channel>&", |n| format!("<a{n}>")),
    ("namespaces", "<rss xmlns:a='a'><channel>", |n| format!("<x xmlns:n{n}='u{n}'/>")),
    ("items", "<rss><channel><title>t</title>", |n| format!("<item><guid>{n}</guid><title>t</title></item>")),
    ("entities", "<!DOCTYPE rss [", |n| format!("<!ENTITY e{n} 'x'>")),
    ("announcements", "<!DOCTYPE html>", |n| format!("<link rel=alternate type=application/rss+xml href=/{n}>")),
    ("keys", "{\"version\":\"https://jsonfeed.org/version/1\",\"items\":[{", |n| format!("\"k{n}\":{n},")),
];

/// Returns a piece that is repeated behind a beginning.
fn repeated(beginning: &'static str, piece: String) -> Pattern {
    let from = beginning.char_indices().rev().nth(30).map_or(0, |(at, _)| at);
    let name = format!("{:?}..", format!("{}{piece}", &beginning[from..]));
    let make = move |length: usize| format!("{beginning}{}", piece.repeat(length / piece.len()));
    Pattern { name, make: Box::new(make) }
}

/// Generated pieces, unless `FEEDFLEET_PATTERNS` sets another number.
const GENERATED: u64 = 48;

/// Returns all patterns: each piece behind each beginning, generated pieces, and those that are numbered.
pub(crate) fn all() -> Vec<Pattern> {
    let each = |beginning| TOKENS.map(|token| repeated(beginning, token.to_owned()));
    let mut patterns: Vec<Pattern> = BEGINNINGS.into_iter().flat_map(each).collect();
    let beginnings = BEGINNINGS.into_iter().cycle();
    patterns.extend(beginnings.zip(pieces(&TOKENS, GENERATED)).map(|(beginning, piece)| repeated(beginning, piece)));
    patterns.extend(NUMBERED.map(|(name, beginning, piece)| {
        let make = move |length: usize| {
            let mut document = beginning.to_owned();
            (0..).map_while(|n| (document.len() < length).then(|| document.push_str(&piece(n)))).for_each(drop);
            document
        };
        Pattern { name: name.to_owned(), make: Box::new(make) }
    }));
    patterns
}
