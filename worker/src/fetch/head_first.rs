//! HEAD before GET (P44): for servers that send validators, ignore conditions, and serve the same large body again and
//! again. Whether it saves is the policy's to say; here the request is made and its result reported.

use common::host::HostRule;
use common::report::{Outcome, Probe};
use common::url::FeedUrl;
use http::header::{self, HeaderMap};
use http::response::Parts;
use http::{Method, StatusCode};

use super::progress::{Fetch, Step};
use crate::classify::{self, Asked, Head};
use crate::failure::Failure;
use crate::headers;
use crate::request;

/// Returns the method for this URL. HEAD only where a body and its validators are known, where the job or the
/// host's rule wants it, and where the host's gap leaves the time for another request within this fetch.
pub(super) fn method(fetch: &Fetch<'_>, url: &FeedUrl, fields: &mut HeaderMap) -> Method {
    let rule = fetch.hops.rules.rule_for(url.as_url());
    let limits = fetch.hops.rules.limits(rule);
    let is_known = fetch.job.content_hash.is_some() && request::is_conditional(fields);
    let time_for_two = limits.burst > 1 || limits.gap < fetch.shared.timeout / 3;
    let may = is_known && time_for_two && !fetch.chain.asks_for_activities() && fetch.chain.probe().is_none();
    if !may || !is_wanted(rule, fetch.job.head_first) {
        return Method::GET;
    }
    // A HEAD describes the whole document.
    fields.remove(request::A_IM);
    Method::HEAD
}

/// After a HEAD: the end of the poll, or a GET as the next request.
pub(super) fn after_head(fetch: &mut Fetch<'_>, head: &Parts, spent: u32, asked: Asked) -> Step {
    let answer = headers::validators(&head.headers);
    let is_known = matches!(head.status.as_u16(), 200 | 203) && classify::is_same(&fetch.job.validators, &answer);
    let outcome = match classify::head(head.status, &head.headers, asked) {
        Head::Ended(throttled @ Outcome::Throttled { .. }) => return Step::Ended(throttled),
        Head::NotModified => Some(classify::merged(&fetch.job.validators, answer)),
        Head::Content if is_known => Some(classify::merged(&fetch.job.validators, answer)),
        Head::Content | Head::Redirect => None,
        // Many servers answer 405 or 501, and some do not support HEAD for generated pages: the GET decides.
        Head::Delta | Head::Ended(_) => {
            return ask_again(fetch, Probe::Refused);
        }
    };
    match outcome {
        Some(validators) => {
            fetch.fetched.probe = Some(Probe::Enough { spent, length: content_length(&head.headers) });
            Step::Ended(Outcome::NotModified { validators })
        }
        None => ask_again(fetch, Probe::NotEnough { spent }),
    }
}

/// Continues with a GET. It belongs to the same report, which covers both requests, and waits for the host, and for the time that
/// the HEAD's response requests, within this fetch or in the next one.
fn ask_again(fetch: &mut Fetch<'_>, probe: Probe) -> Step {
    fetch.chain.probed(probe);
    fetch.fetched.probe = Some(probe);
    fetch.patience = fetch.shared.timeout;
    Step::Again
}

/// A HEAD got no answer. The poll does not send a second request because of that, but the next one is a GET if it
/// was the HEAD's fault.
pub(super) fn head_failed(fetch: &mut Fetch<'_>, failure: Failure, was_sent: bool) -> Step {
    fetch.fetched.probe = was_sent.then_some(Probe::Refused);
    Step::Ended(failure.into())
}

/// Records of a full response whether a HEAD would have shown the same.
pub(super) fn note_known(fetch: &mut Fetch<'_>, headers: &HeaderMap) {
    let is_same = classify::is_same(&fetch.job.validators, &headers::validators(headers));
    if fetch.fetched.probe.is_none() && fetch.fetched.conditional && is_same {
        fetch.fetched.probe = Some(Probe::Known);
    }
}

/// A rule that says no is the last word, and one that says yes the first: the feed's own experience comes between.
fn is_wanted(rule: Option<&HostRule>, experience: Option<bool>) -> bool {
    match rule.and_then(|rule| rule.head_first) {
        Some(false) => false,
        by_rule => experience.or(by_rule).unwrap_or(false),
    }
}

/// About the bytes of two heads on the wire.
pub(super) fn heads_len(url: &FeedUrl, request: usize, status: StatusCode, answer: &HeaderMap) -> u32 {
    const LINES: usize = "HEAD  HTTP/1.1\r\nHTTP/1.1 200 \r\n\r\n\r\n".len();
    let reason = status.canonical_reason().map_or(0, str::len);
    u32::try_from(LINES + url.as_str().len() + request + reason + fields_len(answer)).unwrap_or(u32::MAX)
}

/// Returns the bytes of fields on the wire.
pub(super) fn fields_len(fields: &HeaderMap) -> usize {
    fields.iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len()).sum()
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
