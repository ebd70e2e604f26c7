//! What a publisher can fix, from what is remembered of the last polls.

use common::feed::Feed;
use common::last_error::ErrorKind;
use common::outcome::{FailureKind, OutcomeKind};
use common::policy::Status;

/// The number of full responses to conditional requests from which on the server is considered to ignore conditions.
const IGNORED: u32 = 3;
/// Returns what to fix, the most serious first; nothing when all is well.
pub(super) fn of(feed: &Feed) -> Vec<&'static str> {
    let mut advice = Vec::new();
    let state = &feed.state;
    // Only what is polled can be fixed for the next poll.
    if matches!(feed.status, Status::Merged | Status::Removed | Status::Paused | Status::Quarantined) {
        return advice;
    }
    // An address that this fleet may not dial is its operator's business.
    let boxed = state.penalty.filter(|penalty| penalty.kind != FailureKind::RefusedAddress);
    advice.extend(boxed.map(|penalty| failure(penalty.kind, state.last_status)));
    if state.penalty.is_none() && state.last_outcome == Some(OutcomeKind::Failed) {
        let kind = last_failure(feed).filter(|kind| *kind != FailureKind::RefusedAddress);
        advice.extend(kind.map(|kind| failure(kind, state.last_status)));
    }
    if state.throttles > 0 && state.hold_until.is_some() {
        advice.push("The server asks us to slow down (429 or 503), and its Retry-After header says for how long. We keep to it.");
    } else if state.throttles > 0 && state.stretch > 1.0 {
        // Only a response that did not say how long to wait stretches the interval.
        advice.push("The server asks us to slow down (429 or 503). We do; a Retry-After header says for how long, and spares both sides the guess.");
    }
    let was_read = state.last_success.is_some() && state.penalty.is_none();
    if was_read && (state.no_validators || feed.validators.is_empty()) {
        advice.push("The server sends neither ETag nor Last-Modified, so every poll transfers the whole feed. With one of them, an unchanged feed costs a 304 of a few bytes.");
    } else if was_read && state.ignored_conditions >= IGNORED {
        advice.push("The server sends the whole feed again although nothing changed since the ETag or Last-Modified that we showed it. An answer of 304 would spare it the transfer.");
    } else if was_read && state.equal_downloads >= IGNORED {
        advice.push("The same bytes come again and again under a new ETag or Last-Modified. They should change only when the feed does.");
    }
    if feed.moved_from.is_some() {
        advice.push("It was found at another address and is now polled here, because that one redirects permanently.");
    }
    advice
}

/// Returns how the last poll failed.
fn last_failure(feed: &Feed) -> Option<FailureKind> {
    let is_refused = feed.state.last_status.is_some_and(|status| status >= 400);
    match feed.last_error.as_ref().map(|error| error.kind) {
        Some(ErrorKind::Failed(kind)) => Some(kind),
        _ => is_refused.then_some(FailureKind::Status),
    }
}

fn failure(kind: FailureKind, status: Option<u16>) -> &'static str {
    match (kind, status) {
        // Alike, so that nobody learns from here which names of our own network exist.
        (FailureKind::Dns | FailureKind::RefusedAddress, _) => {
            "The host's name has no address in the public internet, or its name servers do not answer. Look at the domain's registration and its DNS records, and at the port."
        }
        (FailureKind::Connect, _) => {
            "Nothing accepts a connection at the host's address. Look whether the web server runs, and whether a firewall turns us away."
        }
        (FailureKind::Tls, _) => {
            "No secure connection comes about: the certificate has run out, is for another name, is not signed by a known authority, or its chain is incomplete."
        }
        (FailureKind::Timeout, _) => {
            "The server takes too long to answer. A feed that is kept as a file, or in a cache, answers at once."
        }
        (FailureKind::Status, Some(401 | 403)) => {
            "The server refuses us the feed (401 or 403). If something on the site keeps robots out, exempt the feed's address."
        }
        (FailureKind::Status, Some(404)) => {
            "There is nothing at the feed's address (404). If the feed moved, answer with a permanent redirect (301 or 308); if it ended, with 410."
        }
        (FailureKind::Status, Some(500..)) => {
            "The server fails while it makes the feed (5xx). Its own error log says why."
        }
        (FailureKind::Status, _) => "The server answers with an error status.",
        (FailureKind::TooLarge, _) => {
            "The feed is larger than we read. Keep the newest entries in it, and older ones in an archive (RFC 5005)."
        }
        (FailureKind::NotAFeed, _) => {
            "The address does not serve a feed, but a page, an empty file, or a check for human visitors. Publish the feed's own address, and exempt it from such checks."
        }
        (FailureKind::Malformed, _) => {
            "The feed, or the response that contains it, is too broken to repair. A feed validator shows the line."
        }
        (FailureKind::Truncated, _) => {
            "The answer ends before all the bytes came that it announced. A wrong Content-Length, or a proxy that gives up, does that."
        }
        (FailureKind::Redirects, _) => "The address redirects in a circle, too often, or to nowhere.",
        (FailureKind::Blocked, _) => {
            "A check for people, or a wall against robots, answers in place of the feed. Let the feed's address through it: our requests say who we are in the User-Agent, and may be signed, which such walls can verify."
        }
        (FailureKind::Crashed, _) => "Our own program fails at this feed. It is ours to fix.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_advice_of_its_own() {
        let told_apart = FailureKind::ALL.iter().filter(|kind| **kind != FailureKind::RefusedAddress);
        let mut all: Vec<&str> = told_apart.map(|kind| failure(*kind, None)).collect();
        assert_eq!(failure(FailureKind::RefusedAddress, None), failure(FailureKind::Dns, None));
        all.extend([401, 404, 500].map(|status| failure(FailureKind::Status, Some(status))));
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
