//! What names a feed: its number, its version and its URL.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

/// A feed's number in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct FeedId(pub i64);

impl fmt::Display for FeedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Counts the accepted reports and the changes of url, credentials or status of a feed. A job echoes it and so does its
/// report: a report of another version is stale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub i64);

/// Versions of one epoch, as the host gate counts them: more than any feed reaches. Epochs are counted modulo [`EPOCHS`], so that the
/// gate's scripts, whose numbers are doubles, keep each version exactly.
const VERSIONS: i64 = 1 << 40;
const EPOCHS: u32 = 1 << 12;

impl Version {
    /// Returns the version as the host gate remembers it when the store had begun this many epochs: above those of the epochs before, so
    /// that a version that was given out again is not taken for the one that was reported.
    pub fn in_epoch(self, epochs: u32) -> Self {
        Version(self.0 + i64::from(epochs % EPOCHS) * VERSIONS)
    }

    /// Returns the version without its epoch.
    pub fn number(self) -> i64 {
        self.0 % VERSIONS
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An absolute http or https URL without fragment, user name and password. The rest stays as it was given.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FeedUrl(Url);

/// Why a text is not a valid feed URL. Says what would be accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeedUrlError {
    /// Not an absolute URL.
    #[error("'{0}' is not a URL; write it whole, such as https://example.com/feed.xml")]
    NotAUrl(String),
    /// Neither http nor https.
    #[error("'{0}' has the scheme {1}; feeds are read over http and https")]
    Scheme(String, String),
    /// Longer than [`FeedUrl::MAX_LENGTH`].
    #[error("the URL is {0} bytes long; at most {max} are read", max = FeedUrl::MAX_LENGTH)]
    TooLong(usize),
    /// The name of its host is longer than [`FeedUrl::MAX_HOST`].
    #[error("the name of the URL's host is {0} bytes long; names of hosts have at most {max}", max = FeedUrl::MAX_HOST)]
    LongHost(usize),
    /// Holds a user name or password where none is read.
    #[error("the URL of {0} holds a user name or password, which is not read here")]
    Credentials(String),
}

impl FeedUrl {
    /// Bytes that a URL may have.
    pub const MAX_LENGTH: usize = 8 * 1024;
    /// Bytes that the name of a host may have (RFC 1035, section 3.1, without the root's). No longer one can be resolved.
    pub const MAX_HOST: usize = 253;

    /// Returns the URL for the `url` crate's users.
    pub fn as_url(&self) -> &Url {
        &self.0
    }

    /// Returns the URL's text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Returns whether the other one has the same scheme, host and port. Credentials are for one origin.
    pub fn has_origin_of(&self, other: &FeedUrl) -> bool {
        self.0.origin() == other.0.origin()
    }

    /// Drops user name and password of a URL that [`read_web_url`] returned.
    pub(crate) fn without_credentials(mut url: Url) -> Self {
        // cannot fail: the URL has a host
        let _ = (url.set_username(""), url.set_password(None));
        FeedUrl(url)
    }
}

/// Reads an http or https URL, drops its fragment and keeps its credentials.
pub(crate) fn read_web_url(text: &str) -> Result<Url, FeedUrlError> {
    let text = text.trim();
    if text.len() > FeedUrl::MAX_LENGTH {
        return Err(FeedUrlError::TooLong(text.len()));
    }
    let unwrapped = match text.strip_prefix("feed:") {
        Some(rest) if rest.starts_with("//") => format!("http:{rest}"),
        Some(rest) => rest.to_owned(),
        None => text.to_owned(),
    };
    let mut url = Url::parse(&unwrapped).map_err(|_| FeedUrlError::NotAUrl(without_login(text)))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(FeedUrlError::Scheme(without_login(text), url.scheme().to_owned()));
    }
    url.set_fragment(None);
    // The final dot of an absolute name changes nothing for http: with and without it a feed is one and the same.
    if let Some(name) = url.domain().and_then(|name| name.strip_suffix('.')).filter(|name| !name.ends_with('.')) {
        let name = name.to_owned();
        url.set_host(Some(&name)).map_err(|_| FeedUrlError::NotAUrl(without_login(text)))?;
    }
    match url.host_str().map_or(0, str::len) {
        long if long > FeedUrl::MAX_HOST => return Err(FeedUrlError::LongHost(long)),
        _ => {}
    }
    // It is longer now, if characters had to be encoded; and this form is what is stored and read again.
    match url.as_str().len() {
        long if long > FeedUrl::MAX_LENGTH => Err(FeedUrlError::TooLong(long)),
        _ => Ok(url),
    }
}

/// Returns what was entered as a URL, to be shown: without what may be a user name and password.
pub fn without_login(text: &str) -> String {
    let Some((before, host)) = text.rsplit_once('@') else { return text.to_owned() };
    let scheme = before.split_once("://").map_or(String::new(), |(scheme, _)| format!("{scheme}://"));
    format!("{scheme}***@{host}")
}

impl FromStr for FeedUrl {
    type Err = FeedUrlError;

    /// Reads a URL; `feed:` in front of (or instead of) `http:` is a browser's habit and dropped.
    fn from_str(text: &str) -> Result<Self, FeedUrlError> {
        let url = read_web_url(text)?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(FeedUrlError::Credentials(url.host_str().unwrap_or_default().to_owned()));
        }
        Ok(FeedUrl(url))
    }
}

impl TryFrom<String> for FeedUrl {
    type Error = FeedUrlError;

    fn try_from(text: String) -> Result<Self, FeedUrlError> {
        text.parse()
    }
}

impl From<FeedUrl> for String {
    fn from(url: FeedUrl) -> String {
        url.0.into()
    }
}

impl fmt::Display for FeedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_of_a_later_epoch_is_above_all_of_earlier_ones_and_exact_as_a_double() {
        let version = |epochs, version| Version(version).in_epoch(epochs).0;
        assert_eq!(version(0, 7), 7);
        assert!(version(1, 1) > version(0, 1 << 39));
        assert_eq!(Version(7).in_epoch(3).number(), 7);
        let highest = version(EPOCHS - 1, VERSIONS - 1);
        assert!(highest < 1 << f64::MANTISSA_DIGITS, "{highest}");
        assert_eq!(version(EPOCHS, 7), 7, "counted from the beginning again");
    }

    #[test]
    fn a_feed_url_keeps_what_was_given_and_drops_what_is_never_sent() {
        let parsed = |text: &str| text.parse::<FeedUrl>().map(|url| url.to_string());
        assert_eq!(parsed(" http://Example.com/a?b=C#frag "), Ok("http://example.com/a?b=C".into()));
        assert_eq!(parsed("http://Example.com./a"), Ok("http://example.com/a".into()), "the final dot says nothing");
        assert_eq!(parsed("http://example.com../a"), Ok("http://example.com../a".into()), "this is no name");
        assert_eq!(parsed("feed://example.com/a"), Ok("http://example.com/a".into()));
        assert_eq!(parsed("feed:https://example.com/a"), Ok("https://example.com/a".into()));
        assert!(matches!(parsed("example.com/feed"), Err(FeedUrlError::NotAUrl(_))));
        assert!(matches!(parsed("ftp://example.com/feed"), Err(FeedUrlError::Scheme(..))));
        assert!(matches!(parsed(&format!("http://e.com/{}", "a".repeat(9000))), Err(FeedUrlError::TooLong(_))));
        // Six times as long once it is encoded, and too long to be read again from the store.
        assert!(matches!(parsed(&format!("http://e.com/{}", "é".repeat(2000))), Err(FeedUrlError::TooLong(12_013))));
        let name = |parts: usize| format!("http://{}ee.com/", "a.".repeat(parts));
        assert!(matches!((parsed(&name(123)), parsed(&name(124))), (Ok(_), Err(FeedUrlError::LongHost(254)))));
        let longest = parsed(&format!("http://e.com/{}", "é".repeat(1300))).unwrap();
        assert_eq!(parsed(&longest), Ok(longest.clone()), "what is accepted is read again");
    }

    #[test]
    fn what_is_no_url_is_repeated_without_what_may_be_a_password() {
        for text in ["https://me:secret@exa mple/", "me:secret@example.com/feed", "ftp://me:se@cret@example.com/"] {
            let error = text.parse::<FeedUrl>().unwrap_err().to_string();
            assert!(error.contains("***@") && !error.contains("cret"), "{error}");
        }
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let url = |text: &str| text.parse::<FeedUrl>().unwrap();
        assert!(url("https://a.com/x").has_origin_of(&url("https://A.com:443/y?z")));
        assert!(!url("https://a.com/").has_origin_of(&url("http://a.com/")));
        assert!(!url("https://a.com/").has_origin_of(&url("https://a.com:8443/")));
        assert!(!url("https://a.com/").has_origin_of(&url("https://www.a.com/")));
    }

    #[test]
    fn credentials_are_refused_without_repeating_them() {
        let error = "https://me:secret@example.com/".parse::<FeedUrl>().unwrap_err().to_string();
        assert!(error.contains("example.com") && !error.contains("secret") && !error.contains("me:"), "{error}");
    }
}
