//! The `Link` fields of a response's head (RFC 8288), as far as WebSub needs them.

use common::url::FeedUrl;
use http::header::{self, HeaderMap};
use url::Url;

use crate::document::HubLinks;

/// The maximum number of links of one response that are looked at.
const MOST_LINKS: usize = 64;

/// Returns the first hub and the first self link, made absolute. A link of another document (`anchor`) says nothing of this one.
pub(crate) fn announced(headers: &HeaderMap, url: &Url) -> HubLinks {
    let mut announced = HubLinks::default();
    let fields = headers.get_all(header::LINK).iter();
    // A title may have any bytes; the links are ASCII.
    let fields: Vec<_> = fields.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    for link in fields.iter().flat_map(|field| Links(field)).take(MOST_LINKS) {
        let target = || {
            let target = url.join(link.target.trim()).ok()?;
            let is_web = matches!(target.scheme(), "http" | "https") && target.as_str().len() <= FeedUrl::MAX_LENGTH;
            is_web.then(|| target.to_string())
        };
        let is = |wanted: &str| link.relations().any(|relation| relation.eq_ignore_ascii_case(wanted));
        if announced.hub.is_none() && is("hub") {
            announced.hub = target();
        }
        if announced.self_link.is_none() && is("self") {
            announced.self_link = target();
        }
    }
    announced
}

/// The links of one field, in order.
struct Links<'f>(&'f str);

/// One link: what is between the angle brackets, and the parameters behind it.
struct Link<'f> {
    target: &'f str,
    parameters: &'f str,
}

impl<'f> Iterator for Links<'f> {
    type Item = Link<'f>;

    fn next(&mut self) -> Option<Link<'f>> {
        let (_, rest) = self.0.split_once('<')?;
        let (target, rest) = rest.split_once('>')?;
        let end = end_outside_quotes(rest, b',');
        let (parameters, rest) = rest.split_at(end);
        self.0 = rest;
        Some(Link { target, parameters })
    }
}

impl<'f> Link<'f> {
    /// Returns the relations of the first `rel`; none with an `anchor`.
    fn relations(&self) -> impl Iterator<Item = &'f str> + use<'f> {
        let (mut relations, mut is_anchored, mut rest) = (None, false, self.parameters);
        while !rest.is_empty() {
            let (parameter, after) = rest.split_at(end_outside_quotes(rest, b';'));
            rest = after.get(1..).unwrap_or_default();
            let Some((name, value)) = parameter.split_once('=') else { continue };
            match name.trim() {
                name if name.eq_ignore_ascii_case("rel") => {
                    relations.get_or_insert(value.trim().trim_matches('"'));
                }
                name if name.eq_ignore_ascii_case("anchor") => is_anchored = true,
                _ => {}
            }
        }
        relations.filter(|_| !is_anchored).unwrap_or_default().split_ascii_whitespace()
    }
}

/// Returns the position of the first of these bytes that is not quoted, or the end.
fn end_outside_quotes(text: &str, end: u8) -> usize {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            _ if byte == end && !is_quoted => return at,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use common::testing::processor_time;
    use http::HeaderValue;

    use super::*;

    fn read(fields: &[impl AsRef<[u8]>]) -> (Option<String>, Option<String>) {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(header::LINK, HeaderValue::from_bytes(field.as_ref()).unwrap());
        }
        let HubLinks { hub, self_link } = announced(&headers, &"https://a.example/b/feed".parse().unwrap());
        (hub, self_link)
    }

    fn both(hub: &str, own: &str) -> (Option<String>, Option<String>) {
        (Some(hub.to_owned()), Some(own.to_owned()))
    }

    #[test]
    fn hubs_and_topics_are_found_however_they_are_written() {
        let expected = both("https://hub.example/", "https://a.example/feed");
        for fields in [
            &["<https://hub.example/>; rel=\"hub\", <https://a.example/feed>; rel=\"self\""][..],
            &["<https://hub.example/>;rel=hub", "</feed>; title=\"a, b; rel=hub\"; REL=\"alternate Self\""],
            &["<https://x.example/?a,b>; rel=next, <https://hub.example/>; rel=hub; x", "<../feed> ; rel = self"],
            &["<https://hub.example/>; rel=hub, <https://two.example/>; rel=hub", "<//a.example/feed>; rel=self"],
            &["<https://hub.example/>; rel=hub; title=\"café\", </feed>; rel=self"],
        ] {
            assert_eq!(read(fields), expected, "{fields:?}");
        }
        let latin1 = &b"<https://hub.example/>; rel=hub; title=\"caf\xe9\", </feed>; rel=self"[..];
        assert_eq!(read(&[latin1]), expected);
    }

    #[test]
    fn what_is_no_link_of_this_document_is_left_out() {
        for field in [
            "https://hub.example/; rel=hub",
            "<https://hub.example/; rel=hub",
            "<mailto:a@hub.example>; rel=hub",
            "<https://hub.example/>; rel=hub; anchor=\"https://other.example/\"",
            "<https://hub.example/>; rel=\"hubs\"",
            "<https://hub.example/>; title=\"; rel=hub",
            "<>>>,,;;\"",
            "",
        ] {
            assert_eq!(read(&[field]).0, None, "{field}");
        }
        let many = "<https://a.example/>; rel=x, ".repeat(1000) + "<https://hub.example/>; rel=hub";
        assert_eq!(read(&[&many]).0, None, "bounded");
    }

    #[test]
    fn a_target_is_resolved_once_however_often_its_relation_is_repeated() {
        let field = format!("<mailto:{}>; rel=\"{}\"", "a".repeat(100_000), "hub ".repeat(100_000));
        let begun = processor_time();
        assert_eq!(read(&[&field]).0, None);
        assert!(processor_time() - begun < Duration::from_secs(5), "{:?}", processor_time() - begun);
    }
}
