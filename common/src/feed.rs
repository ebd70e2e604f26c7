//! A feed: its identity, who reads it, and what is remembered between two polls.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::calm::CalmGroup;
pub use crate::hints::{FeedHints, Onward};
use crate::policy::{HeadFirst, Rhythm, Term};
use crate::report::{FailureKind, OutcomeKind};
use crate::secrets::{Login, LoginError, Sealed};
use crate::time::Timestamp;

/// A feed's number in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
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

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An absolute http or https URL without fragment, user name and password. The rest stays as it was given.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FeedUrl(Url);

/// Why a text is no feed URL. Says what would be accepted.
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
    /// Holds a user name or password where none is read.
    #[error("the URL of {0} holds a user name or password, which is not read here")]
    Credentials(String),
    /// Holds a user name or password that cannot be sent.
    #[error("the credentials in the URL of {0} cannot be used: {1}")]
    Login(String, #[source] LoginError),
    /// Holds a user name or password that stands for no text.
    #[error("the credentials in the URL of {0} cannot be used: they are no UTF-8, percent-encoded")]
    Encoding(String),
}

impl FeedUrl {
    /// Bytes that a URL may have.
    pub const MAX_LENGTH: usize = 8 * 1024;

    /// The URL for the `url` crate's users.
    pub fn as_url(&self) -> &Url {
        &self.0
    }

    /// The URL's text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Is the other one of the same scheme, host and port? Credentials are for one origin.
    pub fn has_origin_of(&self, other: &FeedUrl) -> bool {
        self.0.origin() == other.0.origin()
    }

    /// Reads a URL like [`FeedUrl::from_str`], and takes user name and password out of it.
    pub fn with_login(text: &str) -> Result<(Self, Option<Login>), FeedUrlError> {
        let mut url = read(text)?;
        let login = login(&url)?;
        // cannot fail: the URL has a host
        let _ = (url.set_username(""), url.set_password(None));
        Ok((FeedUrl(url), login))
    }
}

/// An http or https URL without fragment, credentials included.
fn read(text: &str) -> Result<Url, FeedUrlError> {
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
    Ok(url)
}

fn login(url: &Url) -> Result<Option<Login>, FeedUrlError> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    let host = || url.host_str().unwrap_or_default().to_owned();
    let decoded = |text| percent_decode_str(text).decode_utf8().map_err(|_| FeedUrlError::Encoding(host()));
    let (username, password) = (decoded(url.username())?, decoded(url.password().unwrap_or_default())?);
    Login::new(&username, &password).map(Some).map_err(|error| FeedUrlError::Login(host(), error))
}

/// What somebody wrote for a URL, to be shown: without what may be a user name and password.
pub fn without_login(text: &str) -> String {
    let Some((before, host)) = text.rsplit_once('@') else { return text.to_owned() };
    let scheme = before.split_once("://").map_or(String::new(), |(scheme, _)| format!("{scheme}://"));
    format!("{scheme}***@{host}")
}

impl FromStr for FeedUrl {
    type Err = FeedUrlError;

    /// Reads a URL; `feed:` in front of (or instead of) `http:` is a browser's habit and dropped.
    fn from_str(text: &str) -> Result<Self, FeedUrlError> {
        let url = read(text)?;
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

/// NewsGator's categories, kept by name. The penalty box (E) is a state on top: see [`Penalty`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Category {
    /// Under an SLA.
    A,
    /// Over 20 subscribers, or marked important.
    B,
    /// 2 to 20 subscribers, and every feed with credentials.
    C,
    /// One subscriber, or none.
    D,
    /// On a host with an interval of its own.
    F,
}

impl Category {
    /// All of them, in order.
    pub const ALL: [Category; 5] = [Category::A, Category::B, Category::C, Category::D, Category::F];

    /// The letter.
    pub fn as_str(self) -> &'static str {
        match self {
            Category::A => "A",
            Category::B => "B",
            Category::C => "C",
            Category::D => "D",
            Category::F => "F",
        }
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Is a feed polled, and if not, why not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Polled.
    #[default]
    Active,
    /// Not polled until a person resumes it.
    Paused,
    /// The server answered 410: never polled again.
    Gone,
    /// Failed for a long time: leaves only by a ping and a good fetch, or by an operator.
    Blacklisted,
    /// Killed its workers: not polled until an operator or a new program version lets it out.
    Quarantined,
    /// Taken out by a person.
    Removed,
    /// Moved onto another feed, whose alias it is now.
    Merged,
}

impl Status {
    /// All of them.
    pub const ALL: [Status; 7] = [
        Status::Active,
        Status::Paused,
        Status::Gone,
        Status::Blacklisted,
        Status::Quarantined,
        Status::Removed,
        Status::Merged,
    ];

    /// The name as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Active => "active",
            Status::Paused => "paused",
            Status::Gone => "gone",
            Status::Blacklisted => "blacklisted",
            Status::Quarantined => "quarantined",
            Status::Removed => "removed",
            Status::Merged => "merged",
        }
    }
}

impl FromStr for Status {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Status::ALL.into_iter().find(|status| status.as_str() == name);
        found.ok_or_else(|| format!("'{name}' is no status; one of {}", Status::ALL.map(Status::as_str).join(", ")))
    }
}

/// Who reads a feed, as the people who subscribe it say. Reports never change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Audience {
    /// Subscribers in all.
    pub subscribers: u32,
    /// Of these, the ones that read at present.
    pub active_subscribers: u32,
    /// Content must arrive within two minutes (category A).
    pub sla: bool,
    /// Polled like a feed with many subscribers (category B).
    pub important: bool,
    /// An interval that a person asked for, in place of the category's.
    #[serde(with = "crate::duration::optional_seconds")]
    pub interval: Option<Duration>,
}

impl Default for Audience {
    /// A feed added without a count has one active subscriber.
    fn default() -> Self {
        Audience { subscribers: 1, active_subscribers: 1, sla: false, important: false, interval: None }
    }
}

/// What a server gave to make the next request conditional (RFC 9110, section 8.8). Opaque: kept and echoed byte for byte.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Validators {
    /// The `ETag` field's value, quotes and `W/` included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// The `Last-Modified` field's value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
    /// The URL that gave them, when redirects led to another one than the feed's own. They are sent to that URL alone. With
    /// [`Validators::POSTS`] behind it, it is where the feed's own answer said that its posts are: the next fetch begins there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_url: Option<String>,
}

impl Validators {
    /// The fragment that marks a URL as the place of an actor's posts. No request carries fragments.
    pub const POSTS: &str = "#posts";

    /// Is there nothing to make a request conditional with?
    pub fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }
}

/// xxh3-128 of a decoded body, in JSON as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContentHash(pub u128);

impl ContentHash {
    /// The hash of a body as parser `version` reads it: a better parser reads an equal body again.
    pub fn of(body: &[u8], parser_version: u64) -> Self {
        ContentHash(xxhash_rust::xxh3::xxh3_128_with_seed(body, parser_version))
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl From<ContentHash> for String {
    fn from(hash: ContentHash) -> String {
        hash.to_string()
    }
}

impl TryFrom<String> for ContentHash {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        u128::from_str_radix(&text, 16).map(ContentHash)
    }
}

/// The penalty box: why a feed waits longer than its interval, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Penalty {
    /// The failure that put it there.
    pub kind: FailureKind,
    /// When it is tried again.
    pub until: Timestamp,
}

/// A permanent redirect that good answers came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    /// Where it leads: see [`crate::policy::move_target`].
    pub target: u64,
    /// The first poll in a row that saw it.
    pub first: Timestamp,
    /// How many in a row.
    pub times: u32,
}

/// What the policy remembers of a feed between two polls. Written by `apply` alone, with the report that it came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PollState {
    /// Start of the last fetch that was answered by a report (never a Deferred).
    pub last_polled: Option<Timestamp>,
    /// The last poll that ended well: Modified or NotModified.
    pub last_success: Option<Timestamp>,
    /// The last poll that brought something new.
    pub last_changed: Option<Timestamp>,
    /// The last HTTP status, if an answer came.
    pub last_status: Option<u16>,
    /// How the last poll ended.
    pub last_outcome: Option<OutcomeKind>,
    /// Failures since the last success; being throttled is none.
    pub consecutive_failures: u32,
    /// The first failure of this run; later by the time in which the feed was not asked at all.
    pub failing_since: Option<Timestamp>,
    /// The last delay of this run of failures, which the next one never undercuts. JSON: milliseconds.
    #[serde(with = "crate::duration::millis")]
    pub failure_delay: Duration,
    /// Set while in the penalty box.
    pub penalty: Option<Penalty>,
    /// Not to be asked before, not even by a person: the server throttled us.
    pub hold_until: Option<Timestamp>,
    /// Times throttled in a row.
    pub throttles: u32,
    /// Factor on the interval, grown by throttling; 1 or less is none.
    pub stretch: f32,
    /// The server's freshness (`max-age`, `Expires`) of the last answer ends here; a person's refresh may come sooner.
    pub fresh_until: Option<Timestamp>,
    /// What the feed itself says.
    pub hints: FeedHints,
    /// The last good answer brought no validators: the next request cannot be conditional.
    pub no_validators: bool,
    /// Conditional requests that were answered in full without anything new, since the last 304.
    pub ignored_conditions: u32,
    /// Full downloads in a row that brought the same bytes.
    pub equal_downloads: u32,
    /// What asking its server with HEAD first saved, or would.
    #[serde(skip_serializing_if = "HeadFirst::is_unknown")]
    pub head_first: HeadFirst,
    /// The permanent redirect that good answers come through, until it is believed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sighting: Option<Sighting>,
    /// Where an operator does not want it to move: see [`crate::policy::move_target`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declined: Option<u64>,
    /// When it posts. Packed, and so not part of the JSON: a store keeps [`Rhythm::to_bytes`] in a column of its own.
    #[serde(skip)]
    pub rhythm: Rhythm,
}

/// A feed as the store knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Feed {
    /// Its number.
    pub id: FeedId,
    /// Where it is polled.
    pub url: FeedUrl,
    /// The user name and password that it is fetched with.
    pub credentials: Option<Sealed>,
    /// The unit of politeness that its requests are charged to.
    pub host: crate::host::HostKey,
    /// The title that the feed gives itself.
    pub title: Option<String>,
    /// Is it polled?
    pub status: Status,
    /// Who reads it.
    pub audience: Audience,
    /// Who wants it once a day, beside those.
    pub calm: Vec<CalmGroup>,
    /// A person wants it unknown to pings and the publisher's page; see [`Feed::is_private`].
    pub private: bool,
    /// See [`Version`].
    pub version: Version,
    /// For the next conditional request; of the last accepted answer.
    pub validators: Validators,
    /// Of the last accepted body.
    pub content_hash: Option<ContentHash>,
    /// What the policy remembers.
    pub state: PollState,
    /// When it should be polled next; `None` for feeds that are not polled.
    pub next_due: Option<Timestamp>,
    /// A ping, refresh or requeue wants it at this time; may lie in the past.
    pub wake_at: Option<Timestamp>,
    /// The terms that made `next_due`, in order.
    pub terms: Vec<Term>,
    /// Its URL before it moved.
    pub moved_from: Option<String>,
    /// What it says about its further documents and its end.
    pub onward: Onward,
    /// The feed that it turned out to be, when it is merged.
    pub merged_into: Option<FeedId>,
    /// Entries stored.
    pub entries: u64,
    /// When it was added.
    pub added: Timestamp,
}

impl Feed {
    /// Is it unknown to whoever asks without a token? A feed with credentials is nobody else's business.
    pub fn is_private(&self) -> bool {
        self.private || self.credentials.is_some()
    }

    /// The time at which the schedule should hold it: the earlier of `next_due` and `wake_at`, `None` when not polled.
    pub fn due(&self) -> Option<Timestamp> {
        match (self.status, self.next_due) {
            (Status::Active, Some(next_due)) => Some(self.wake_at.map_or(next_due, |wake| wake.min(next_due))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feed_url_keeps_what_was_given_and_drops_what_is_never_sent() {
        let parsed = |text: &str| text.parse::<FeedUrl>().map(|url| url.to_string());
        assert_eq!(parsed(" http://Example.com/a?b=C#frag "), Ok("http://example.com/a?b=C".into()));
        assert_eq!(parsed("feed://example.com/a"), Ok("http://example.com/a".into()));
        assert_eq!(parsed("feed:https://example.com/a"), Ok("https://example.com/a".into()));
        assert!(matches!(parsed("example.com/feed"), Err(FeedUrlError::NotAUrl(_))));
        assert!(matches!(parsed("ftp://example.com/feed"), Err(FeedUrlError::Scheme(..))));
        assert!(matches!(parsed(&format!("http://e.com/{}", "a".repeat(9000))), Err(FeedUrlError::TooLong(_))));
    }

    #[test]
    fn credentials_are_taken_out_of_a_url() {
        let (url, login) = FeedUrl::with_login("feed://me:s%3Ae%C3%A9@Example.com/a#b").unwrap();
        assert_eq!((url.as_str(), login), ("http://example.com/a", Some(Login::new("me", "s:e\u{e9}").unwrap())));
        let (url, login) = FeedUrl::with_login("https://token@example.com/").unwrap();
        assert_eq!((url.as_str(), login), ("https://example.com/", Some(Login::new("token", "").unwrap())));
        for none in ["https://example.com/", "https://:@example.com/"] {
            assert_eq!(FeedUrl::with_login(none).unwrap().1, None);
        }
        for broken in ["https://secret%3Aa:secret@example.com/", "https://a:secret%FF@example.com/"] {
            let error = FeedUrl::with_login(broken).unwrap_err().to_string();
            assert!(error.contains(".com") && !error.contains("secret"), "{error}");
        }
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
