//! Feeds as people name them, where that is not the feed's URL.
//!
//! An account of the AT Protocol (Bluesky) has no feed URL, but its service's response to `app.bsky.feed.getAuthorFeed`
//! is a feed. `at://HANDLE`, the same with a permanent identifier (`did:..`), and the URL of the account's page are
//! translated to it. Only user input is translated, never a stored URL or a redirect's target.

use url::Url;

use crate::secrets::{Login, SplitLoginError, split_login};
use crate::url::{FeedUrl, FeedUrlError};

/// Posts and the author's own threads; replies to others are half a conversation.
const FILTER: &str = "posts_and_author_threads";

/// Returns the feed that a text names, where credentials are not supported. `service` is `fetch.at_service`.
pub fn feed_url(text: &str, service: &str) -> Result<FeedUrl, FeedUrlError> {
    let text = text.trim();
    account_feed(text, service).unwrap_or_else(|| text.parse())
}

/// Returns the feed and the credentials that the text contains.
pub fn feed(text: &str, service: &str) -> Result<(FeedUrl, Option<Login>), SplitLoginError> {
    let text = text.trim();
    account_feed(text, service).map_or_else(|| split_login(text), |url| Ok((url?, None)))
}

fn account_feed(text: &str, service: &str) -> Option<Result<FeedUrl, FeedUrlError>> {
    let account = account(text)?;
    let service = service.trim_end_matches('/');
    Some(format!("{service}/xrpc/app.bsky.feed.getAuthorFeed?actor={account}&filter={FILTER}").parse())
}

/// Returns the URL of an author's feed by the account's permanent identifier, if `url` has it by the account's handle, which may
/// change. `page` is the account's page, as the feed itself names it.
pub fn permanent_account(url: &FeedUrl, page: &str) -> Option<FeedUrl> {
    let url = url.as_url();
    let (_, handle) = url.query_pairs().find(|(name, _)| name == "actor")?;
    if !url.path().ends_with("/xrpc/app.bsky.feed.getAuthorFeed") || handle.starts_with("did:") {
        return None;
    }
    let identifier = account(page).filter(|account| account.starts_with("did:"))?;
    // The other values stay as they are written: encoded.
    let pairs = url.query().unwrap_or_default().split('&').map(|pair| match pair.split_once('=') {
        Some(("actor", _)) => format!("actor={identifier}"),
        _ => pair.to_owned(),
    });
    let query = pairs.collect::<Vec<_>>().join("&");
    let mut by_identifier = url.clone();
    by_identifier.set_query(Some(&query));
    by_identifier.as_str().parse().ok()
}

/// Returns the account that a text names.
fn account(text: &str) -> Option<String> {
    let name = match text.strip_prefix("at://") {
        Some(name) => name.trim_end_matches('/').to_owned(),
        None => of_page(&Url::parse(text).ok()?)?,
    };
    let name = name.trim_start_matches('@').to_ascii_lowercase();
    let of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    let is_handle = name.contains('.') && name.chars().all(of_name);
    let is_number = name
        .strip_prefix("did:")
        .is_some_and(|rest| rest.contains(':') && rest.chars().all(|c| of_name(c) || c == ':'));
    ((is_handle || is_number) && name.len() <= 253).then_some(name)
}

/// Returns the handle in `https://bsky.app/profile/HANDLE`; longer paths, such as those of posts, are not feeds.
fn of_page(url: &Url) -> Option<String> {
    if !matches!(url.host_str(), Some("bsky.app" | "www.bsky.app")) {
        return None;
    }
    let mut segments = url.path_segments()?.filter(|segment| !segment.is_empty());
    match (segments.next(), segments.next(), segments.next()) {
        (Some("profile"), Some(name), None) => Some(name.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        let url = feed_url(text, "https://api.example/").map_err(|error| error.to_string())?;
        Ok(url.as_str().to_owned())
    }

    #[test]
    fn an_account_stands_for_its_authors_feed() {
        let of = |actor: &str| {
            Ok(format!(
                "https://api.example/xrpc/app.bsky.feed.getAuthorFeed?actor={actor}&filter=posts_and_author_threads"
            ))
        };
        for text in [
            "at://ada.example",
            " at://Ada.Example/ ",
            "at://@ada.example",
            "https://bsky.app/profile/ada.example",
            "http://www.bsky.app/profile/ada.example/?x=1#y",
        ] {
            assert_eq!(read(text), of("ada.example"), "{text}");
        }
        assert_eq!(read("at://did:plc:abc234"), of("did:plc:abc234"));
        assert_eq!(read("https://bsky.app/profile/did:web:ada.example"), of("did:web:ada.example"));
    }

    #[test]
    fn an_account_that_is_followed_by_its_handle_is_followed_by_its_identifier_once_that_is_known() {
        let by = |text: &str| feed_url(text, "https://api.example").unwrap();
        let page = "https://bsky.app/profile/did:plc:abc234";
        assert_eq!(permanent_account(&by("at://ada.example"), page), Some(by("at://did:plc:abc234")));
        assert_eq!(permanent_account(&by("at://did:plc:abc234"), page), None);
        assert_eq!(permanent_account(&by("at://ada.example"), "https://bsky.app/profile/ada.example"), None);
        assert_eq!(permanent_account(&by("https://example.com/feed?actor=ada.example"), page), None);
    }

    #[test]
    fn everything_else_is_a_url_or_nothing() {
        for text in [
            "https://example.com/feed.xml",
            "https://bsky.app/profile/ada.example/post/3k",
            "https://bsky.app/profile/did:plc:abc234/rss",
            "https://bsky.app/",
            "https://bsky.app.example/profile/ada.example",
        ] {
            assert_eq!(read(text).as_deref(), Ok(text));
        }
        for text in [
            "at://",
            "at://ada",
            "at://ada.example/app.bsky.feed.post/3k",
            "at://a b.example",
            "at://did:x",
            "ada.example",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
