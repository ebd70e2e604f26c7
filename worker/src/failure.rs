//! Names for what goes wrong between us and a server: from the HTTP client's errors to a kind of failure and one line
//! for people.

use std::error::Error;
use std::io;
use std::time::Duration;

use common::outcome::{Blocker, FailureKind};
use common::report::Outcome;

use crate::address::Refused;
use crate::connection::Silence;
use crate::decode::DecodeError;
use crate::dial::DialError;
use crate::parse::ParseError;
use crate::redirect::RedirectError;

/// A failed fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) detail: String,
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// This machine could not make the request. Nothing follows for the feed.
    Shortage(String),
    /// Its address has used up its budget; the time until the next request is allowed.
    Busy(Duration),
    /// The server ended the connection to get fewer requests (HTTP/2's `ENHANCE_YOUR_CALM`).
    Throttled,
    /// The server's failure.
    Failed(Failure),
}

impl Unanswered {
    /// Names the HTTP client's error.
    pub(crate) fn of_request(error: &hyper_util::client::legacy::Error) -> Self {
        if asks_for_calm(error) {
            return Unanswered::Throttled;
        }
        let Some(dial) = find::<DialError>(error) else { return Failure::of_wire(error).into() };
        let kind = match dial {
            DialError::Busy(busy) => return Unanswered::Busy(busy.0),
            DialError::Shortage(_) => return Unanswered::Shortage(dial.to_string()),
            DialError::Dns { .. } => FailureKind::Dns,
            DialError::Refused(_) => FailureKind::RefusedAddress,
            DialError::Connect(_) => FailureKind::Connect,
            DialError::Tls(_) => FailureKind::Tls,
            DialError::Timeout(_) => FailureKind::Timeout,
        };
        Failure::new(kind, dial.to_string()).into()
    }
}

impl From<Failure> for Unanswered {
    fn from(failure: Failure) -> Self {
        Unanswered::Failed(failure)
    }
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, detail: impl Into<String>) -> Self {
        Failure { kind, detail: detail.into() }
    }

    /// A service answered in place of the site.
    pub(crate) fn blocked(by: Blocker) -> Self {
        Failure::new(FailureKind::Blocked, format!("a check for people or a block answers in place of the feed ({by})"))
    }

    /// A page with a good status has the mark of such an answer, which any author could have written into it.
    pub(crate) fn looks_blocked(by: Blocker) -> Self {
        let detail = format!("no feed, but what looks like a check for people or a block ({by}), with a good status");
        Failure::new(FailureKind::NotAFeed, detail)
    }

    /// The whole fetch took too long.
    pub(crate) fn late(timeout: Duration) -> Self {
        Failure::new(FailureKind::Timeout, format!("no complete answer within {}", humantime::format_duration(timeout)))
    }

    /// Nothing came for this time.
    pub(crate) fn silent(idle: Duration) -> Self {
        Failure::new(FailureKind::Timeout, Silence(idle).to_string())
    }

    /// The connection stood, and then an answer did not come, or not whole.
    pub(crate) fn of_wire(error: &(dyn Error + 'static)) -> Self {
        if let Some(silence) = find::<Silence>(error) {
            return Failure::new(FailureKind::Timeout, silence.to_string());
        }
        if let Some(broken) = find::<hyper::Error>(error) {
            if broken.is_parse_too_large() {
                return Failure::new(FailureKind::TooLarge, "the answer's header is too large");
            }
            if broken.is_parse() {
                return Failure::new(
                    FailureKind::Malformed,
                    format!("the response is not valid HTTP: {}", innermost(error)),
                );
            }
            if broken.is_incomplete_message() {
                return Failure::new(FailureKind::Truncated, "the connection ended inside the answer");
            }
        }
        // What our side refused in an answer, in place of what the connection's end looks like.
        if let Some(refused) = find::<h2::Error>(error).filter(|error| error.is_library() && error.reason().is_some()) {
            let detail = match refused.reason() {
                Some(h2::Reason::ENHANCE_YOUR_CALM) => "the answer floods the connection".to_owned(),
                _ => format!("the answer is not valid HTTP/2, or its header is far too large: {refused}"),
            };
            return Failure::new(FailureKind::Malformed, detail);
        }
        match find::<io::Error>(error).map(io::Error::kind) {
            Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => {
                Failure::new(FailureKind::Malformed, format!("the response is not valid HTTP: {}", innermost(error)))
            }
            _ => Failure::new(FailureKind::Truncated, format!("the connection broke: {}", innermost(error))),
        }
    }
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Self {
        Outcome::Failed { failure: failure.kind, detail: failure.detail }
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Failure::new(FailureKind::RefusedAddress, refused.to_string())
    }
}

impl From<RedirectError> for Failure {
    fn from(error: RedirectError) -> Self {
        Failure::new(FailureKind::Redirects, error.to_string())
    }
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        let kind = match error {
            DecodeError::Unknown(_) | DecodeError::TooMany | DecodeError::Corrupt(_) => FailureKind::Malformed,
            DecodeError::Truncated => FailureKind::Truncated,
            DecodeError::TooLarge(_) | DecodeError::Bomb(_) | DecodeError::Late => FailureKind::TooLarge,
        };
        Failure::new(kind, error.to_string())
    }
}

impl From<ParseError> for Failure {
    fn from(error: ParseError) -> Self {
        let kind = match error {
            ParseError::NotAFeed(_) => FailureKind::NotAFeed,
            ParseError::Malformed(_) => FailureKind::Malformed,
            ParseError::TooLarge(_) => FailureKind::TooLarge,
        };
        Failure::new(kind, error.to_string())
    }
}

/// Returns whether the server ended an HTTP/2 stream or connection because of too many requests (RFC 9113, section 7).
pub(crate) fn asks_for_calm(error: &(dyn Error + 'static)) -> bool {
    find::<h2::Error>(error)
        .is_some_and(|error| error.is_remote() && error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM))
}

/// Returns the first error of this type in the chain of causes.
fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

fn innermost(error: &(dyn Error + 'static)) -> String {
    causes(error).last().map_or_else(String::new, ToString::to_string)
}

/// Returns an error and its causes. [`io::Error`] skips the error that it wraps when its `source` is called.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| {
        let error: &'a (dyn Error + 'static) = *error;
        match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        }
    })
}
