//! URLs as people type them.

use common::input;
use common::secrets::{Login, SplitLoginError};
use common::url::FeedUrl;

/// Reads the URL of a feed or page; a text that is not a URL is tried again with `https://` in front.
///
/// # Errors
/// Those of [`input::feed`] for the text as it was typed.
pub(crate) fn feed(text: &str, at_service: &str) -> Result<(FeedUrl, Option<Login>), SplitLoginError> {
    input::feed(text, at_service).or_else(|error| match with_scheme(text) {
        Some(url) => input::feed(&url, at_service).map_err(|_| error),
        None => Err(error),
    })
}

/// Puts `https://` in front of what may be a URL without its scheme: a name with a dot, and perhaps a path.
pub(crate) fn with_scheme(text: &str) -> Option<String> {
    let text = text.trim();
    let host = text.split(['/', '?', '#']).next().unwrap_or_default();
    let of_host = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    let may_be = !text.contains("://") && host.contains(['.', ':']) && host.chars().all(of_host);
    may_be.then(|| format!("https://{text}"))
}

/// Reads the URL of a feed or page like [`feed`], but adds no scheme to a text that looks like the name of a file.
///
/// # Errors
/// Those of [`input::feed`] for the text as it was typed.
pub(crate) fn feed_or_file(text: &str, at_service: &str) -> Result<(FeedUrl, Option<Login>), SplitLoginError> {
    if is_like_file(text) { input::feed(text, at_service) } else { feed(text, at_service) }
}

/// Returns whether a text is more likely to name a file than a host: `feeds.xml`, `./example.com/feed`, `a.b/feeds.opml`.
fn is_like_file(text: &str) -> bool {
    const ENDINGS: [&str; 12] =
        ["atom", "csv", "htm", "html", "json", "jsonl", "list", "opml", "rss", "txt", "xhtml", "xml"];
    let text = text.trim().to_ascii_lowercase();
    let ending = text.rsplit_once('.').map_or("", |(_, ending)| ending);
    text.starts_with('.') || ending == "opml" || !text.contains('/') && ENDINGS.contains(&ending)
}

/// Returns the id or URL of a feed; a text that is neither gets `https://` in front if it may be a URL then.
pub(crate) fn id_or_url(text: &str) -> String {
    with_scheme(text).unwrap_or_else(|| text.to_owned())
}

/// Returns whether a text may be the id or URL of a feed. The fleet says whether it has one.
pub(crate) fn may_be_feed(text: &str) -> bool {
    text.parse::<i64>().is_ok() || id_or_url(text).contains("://")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_and_path_gets_a_scheme_and_anything_else_is_taken_as_it_is() {
        for text in
            ["example.com/feed", "example.com", "bücher.example/x?y=1", "example.com:8443/feed", " example.com "]
        {
            assert_eq!(with_scheme(text), Some(format!("https://{}", text.trim())));
        }
        for text in
            ["https://example.com", "feed.xml name", "at://ada.example", "", "feeds", "ann@example.com", "/etc/x"]
        {
            assert_eq!(with_scheme(text), None, "{text}");
        }
    }

    #[test]
    fn a_url_without_its_scheme_is_read_with_https() {
        let read = |text| feed(text, "").map(|(url, _)| url.to_string());
        assert_eq!(read("example.com/feed").ok().as_deref(), Some("https://example.com/feed"));
        assert_eq!(read("http://example.com/feed").ok().as_deref(), Some("http://example.com/feed"));
        assert!(read("feeds").is_err());
    }

    #[test]
    fn the_name_of_a_file_is_not_taken_for_a_host() {
        for text in
            ["feed.xml", "feeds.csv", "no-such-file.html", "./example.com/feed", "../a.b/feed", "a.example/f.OPML", "x"]
        {
            assert!(feed_or_file(text, "").is_err(), "{text}");
        }
        let read = |text| feed_or_file(text, "").map(|(url, _)| url.to_string());
        for text in ["example.com/", "example.com/feed.xml", "xml.example/feed"] {
            assert_eq!(read(text).ok(), Some(format!("https://{text}")));
        }
    }

    #[test]
    fn an_id_stays_an_id() {
        for text in ["7", "http://a.example/", "blog"] {
            assert_eq!(id_or_url(text), text);
        }
        assert_eq!(id_or_url("example.com/feed"), "https://example.com/feed");
    }
}
