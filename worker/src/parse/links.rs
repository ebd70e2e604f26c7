//! Links: made absolute, and found in the text of entries.
//!
//! The author of the document chooses the base as well as the links, so that a document of links of one letter below a
//! base of 8 KB could become a thousand times its size: what resolving adds has a budget, and links beyond it are left
//! out.

use std::borrow::Cow;
use std::rc::Rc;

use common::entry::LINK_SCHEMES;
use url::Url;

use super::link::Link;
use super::text::{self, Markup};

/// Longest URL, in bytes; a longer one is dropped, because half a URL is none.
const MAX_URL_BYTES: usize = common::url::FeedUrl::MAX_LENGTH;
/// What resolving and copies of bases may add to one document, in bytes.
const BUDGET: usize = 16 * 1024 * 1024;
/// Links that are kept of one entry's text, and their bytes together.
const MAX_LINKS: usize = 64;
const MAX_LINK_BYTES: usize = 16 * 1024;
/// First words in place of a title: characters of them, and bytes of text that they are looked for in.
const MAX_WORDS: usize = 80;
const WORDS_WINDOW: usize = 4 * 1024;

/// Resolves the links of one document.
#[derive(Debug)]
pub(super) struct Links<'u> {
    document: Option<&'u Url>,
    added: usize,
}

impl<'u> Links<'u> {
    /// Of a document at this URL.
    pub(super) fn new(document: Option<&'u Url>) -> Self {
        Links { document, added: 0 }
    }

    /// Returns a link made absolute. What would run in a reader's browser, and what is too long, is none; so is
    /// nothing.
    pub(super) fn absolute(&mut self, link: &Link<'_>) -> Option<String> {
        let written = link.href.trim();
        if written.is_empty() || written.len() > MAX_URL_BYTES || self.added > BUDGET {
            return None;
        }
        if is_plain(written) {
            return Some(written.to_owned());
        }
        let written = text::cleaned(Cow::Borrowed(written))?;
        let absolute = match (Url::parse(&written), link.base.as_deref().or(self.document)) {
            (Ok(url), _) => url.into(),
            (Err(_), Some(base)) => base.join(&written).map_or_else(|_| written.clone(), String::from),
            (Err(_), None) => written.clone(),
        };
        self.added += absolute.len().saturating_sub(written.len());
        (leads_somewhere(&absolute) && absolute.len() <= MAX_URL_BYTES).then_some(absolute)
    }

    /// Returns a copy of the base of an entry's content, as far as the budget allows.
    pub(super) fn copy_of(&mut self, base: &Url) -> Option<String> {
        if self.added > BUDGET {
            return None;
        }
        self.added += base.as_str().len();
        Some(base.as_str().to_owned())
    }

    /// Returns the web pages that an entry's text links to, each once, in the order of the text, as far as they fit.
    /// Relative ones are resolved against the entry's own address.
    pub(super) fn of_text(&mut self, html: &str, entry_url: Option<&str>) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        let mut bytes = 0;
        // parsed once: it may be long, and the links many
        let mut base: Option<Option<Rc<Url>>> = None;
        for href in hrefs(html) {
            let mut base = || base.get_or_insert_with(|| Url::parse(entry_url?).ok().map(Rc::new)).clone();
            let is_absolute = href.starts_with("https://") || href.starts_with("http://");
            let link = Link { href, base: if is_absolute { None } else { base() } };
            let Some(url) = self.absolute(&link).filter(|url| url.starts_with("http")) else { continue };
            if found.contains(&url) {
                continue;
            }
            bytes += url.len();
            if found.len() == MAX_LINKS || bytes > MAX_LINK_BYTES {
                break;
            }
            found.push(url);
        }
        found
    }
}

/// Returns whether a link may be shown to people. Addresses of schemes that are not known to be harmless run code,
/// carry data, or open a program of the reader's machine. A link without a scheme is relative to an unknown base.
fn leads_somewhere(link: &str) -> bool {
    let scheme =
        link.split(['/', '?', '#']).next().and_then(|beginning| beginning.split_once(':')).map(|(scheme, _)| scheme);
    scheme.is_none_or(|scheme| LINK_SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme)))
}

/// Returns whether a link is an absolute address already, written so that no browser would change it.
fn is_plain(link: &str) -> bool {
    let Some(rest) = link.strip_prefix("https://").or_else(|| link.strip_prefix("http://")) else { return false };
    let host_end = rest.find('/').unwrap_or(rest.len());
    let (host, path) = rest.split_at(host_end);
    let plain_host =
        host.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-'));
    let plain_path = path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_~/?&=+,;:@!$*().%#".contains(&byte));
    // A path with dots between its slashes, and a host that is a number, have other forms.
    let has_letter = host.bytes().any(|byte| byte.is_ascii_lowercase());
    plain_host && plain_path && has_letter && !host.is_empty() && !path.is_empty() && !path.contains("/.")
}

/// Returns the addresses of the `a` elements of HTML, as written.
fn hrefs(html: &str) -> impl Iterator<Item = Cow<'_, str>> {
    html.split('<').skip(1).filter_map(|tag| {
        let inside = tag.strip_prefix(['a', 'A'])?;
        if !inside.starts_with(|next: char| next.is_ascii_whitespace()) {
            return None;
        }
        let inside = &inside[..inside.floor_char_boundary(MAX_URL_BYTES)];
        text::tag_attribute(inside, "href")
    })
}

/// Returns the first words of an entry's text, in place of a missing title.
pub(super) fn first_words(html: &str) -> Option<String> {
    let window = &html[..html.floor_char_boundary(WORDS_WINDOW)];
    let plain = text::plain(window, Markup::All);
    let line = text::cleaned(text::on_one_line(&plain))?;
    let Some((end, _)) = line.char_indices().nth(MAX_WORDS) else { return Some(line) };
    let whole_words = line[..end].rfind(' ').unwrap_or(end);
    Some(format!("{}…", line[..whole_words].trim_end_matches([',', ';', ':', '.', ' '])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_in_text_each_once_and_resolved_against_the_entry() {
        let html = "<p><a href='/a'>x</a><A class=x HREF=\"https://o.example/?b=1&amp;c=2\">y</A><a href=c>z</a> <abbr href='no'>\
                    <a href='/a'>again</a><a name='x'><a href='mailto:a@b.c'><a href='javascript:x()'><a href='#here'></p>";
        let base = Url::parse("https://feed.example/feed.xml").unwrap();
        let found = Links::new(Some(&base)).of_text(html, Some("https://e.example/dir/post"));
        assert_eq!(
            found,
            [
                "https://e.example/a",
                "https://o.example/?b=1&c=2",
                "https://e.example/dir/c",
                "https://e.example/dir/post#here"
            ]
        );
        let many: String = (0..1_000).map(|n| format!("<a href='/{n}'>")).collect();
        assert_eq!(Links::new(Some(&base)).of_text(&many, None).len(), MAX_LINKS);
    }

    #[test]
    fn only_schemes_that_are_known_to_be_harmless_are_links() {
        let link = |href: &str| Links::new(None).absolute(&Link { href: href.to_owned().into(), base: None });
        for kept in [
            "https://a.example/",
            "HTTP://a.example/",
            "mailto:a@a.example",
            "magnet:?xt=urn:x",
            "/a:b",
            "a?b:c",
            "#x:y",
        ] {
            assert!(link(kept).is_some(), "{kept}");
        }
        for dropped in [
            "javascript:alert(1)",
            "JaVa\tScript:alert(1)",
            "data:text/html,x",
            "vbscript:x",
            "feed:javascript:alert(1)",
            "view-source:javascript:alert(1)",
            "blob:https://a.example/1",
            "file:///etc/passwd",
            "ms-msdt:/id PCWDiagnostic",
            "intent://a#Intent;end",
        ] {
            assert_eq!(link(dropped), None, "{dropped}");
        }
    }

    #[test]
    fn resolving_has_a_budget() {
        let base = Url::parse(&format!("https://e.example/{}", "b/".repeat(4_000))).unwrap();
        let mut links = Links::new(Some(&base));
        let kept = (0..10_000).filter_map(|_| links.absolute(&Link { href: "a".into(), base: None })).count();
        assert!((2_000..2_200).contains(&kept), "{kept}");

        let mut links = Links::new(None);
        let copies = (0..10_000).filter_map(|_| links.copy_of(&base)).count();
        assert!((2_000..2_200).contains(&copies), "{copies}");
        let relative = Link { href: "a".into(), base: Some(Rc::new(base.clone())) };
        assert_eq!(links.absolute(&relative), None, "copies and links have one budget");
    }

    #[test]
    fn a_plain_address_is_what_a_parser_would_make_of_it() {
        let plain = ["https://e.example/", "http://e.example/a/b?c=d&e=%20#f", "https://a-b.example/~x/(y)"];
        for link in plain {
            assert!(is_plain(link), "{link}");
            assert_eq!(Url::parse(link).unwrap().as_str(), link);
        }
        for link in [
            "https://e.example",
            "https://E.example/",
            "https://e.example/../a",
            "https://e.example/ä",
            "http://1/",
            "https://e.example:443/",
            "/a",
            "https:///a",
            "https://e.example/a b",
        ] {
            assert!(!is_plain(link), "{link}");
        }
    }

    #[test]
    fn first_words_end_at_a_word() {
        assert_eq!(first_words("<p>Just &amp; <b>this</b></p>").as_deref(), Some("Just & this"));
        assert_eq!(first_words("<img src='x'>"), None);
        let long = first_words(&"many words, ".repeat(20)).unwrap();
        assert!(long.ends_with(" many…") && long.chars().count() <= MAX_WORDS + 1, "{long}");
        assert_eq!(first_words(&"x".repeat(200)).map(|words| words.len()), Some(MAX_WORDS + "…".len()));
    }
}
