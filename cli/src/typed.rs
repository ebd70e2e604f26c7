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
}
