//! What an answer's head decides, before any of its body is read. Pure.

use common::document::Validators;
use common::outcome::FailureKind;
use common::report::Outcome;
use common::time::Timestamp;
use http::StatusCode;
use http::header::HeaderMap;

use crate::failure::Failure;
use crate::headers;
use crate::redirect::is_redirect;

/// What follows from an answer's head.
#[derive(Clone, Debug, PartialEq)]
pub enum Head {
    /// The body is the feed, or says that it is something else.
    Content,
    /// The body is the feed without what we have of it already.
    Delta,
    /// The server says that what we have is still right.
    NotModified,
    /// Request another URL.
    Redirect,
    /// Nothing more will come of it.
    Ended(Outcome),
}

/// How an answer came about.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Its request carried validators.
    pub conditional: bool,
    /// Its request accepted a delta.
    pub delta: bool,
    /// Its URL speaks for the feed's own: no temporary redirect led there.
    pub permanent: bool,
    /// When the head was read.
    pub received: Timestamp,
}

/// Reads the head of an answer.
pub fn head(status: StatusCode, headers: &HeaderMap, asked: Asked) -> Head {
    let failed = |detail: String| Head::Ended(Failure::new(FailureKind::Status, detail).into());
    let throttled = || {
        let by_limit = headers::limited_until(headers, asked.received);
        Head::Ended(Outcome::Throttled { retry_after: headers::retry_after(headers, asked.received).or(by_limit) })
    };
    match status.as_u16() {
        200 | 203 => Head::Content,
        304 if asked.conditional => Head::NotModified,
        304 => failed("304 to an unconditional request".to_owned()),
        _ if is_redirect(status) => Head::Redirect,
        // A temporary redirect's target may go while the feed stays: that is worth another try, and this is for good.
        410 if asked.permanent => Head::Ended(Outcome::Gone),
        429 => throttled(),
        503 if headers::has_retry_after(headers) => throttled(),
        226 if !asked.delta => failed("226 to a request without A-IM".to_owned()),
        226 if headers::is_feed_delta(headers) => Head::Delta,
        226 => failed("226 without IM: feed; the next poll requests no delta".to_owned()),
        code => failed(format!("the server answered {}", described(status, code))),
    }
}

fn described(status: StatusCode, code: u16) -> String {
    status.canonical_reason().map_or_else(|| code.to_string(), |reason| format!("{code} {reason}"))
}

/// Returns whether this answer carries the same validators as are stored: then its body is the known one, if its server
/// is right.
pub fn is_same(stored: &Validators, answer: &Validators) -> bool {
    let same = |stored: &Option<String>, answer: &Option<String>| stored.is_none() || stored == answer;
    !stored.is_empty() && same(&stored.etag, &answer.etag) && same(&stored.last_modified, &answer.last_modified)
}

/// Returns what to store after a 304: each validator that it carries replaces the stored one, the others stay.
pub fn merged(stored: &Validators, answer: Validators) -> Validators {
    Validators {
        etag: answer.etag.or_else(|| stored.etag.clone()),
        last_modified: answer.last_modified.or_else(|| stored.last_modified.clone()),
        for_url: stored.for_url.clone(),
    }
}

#[cfg(test)]
mod tests {
    use common::outcome::OutcomeKind;
    use http::header;

    use super::*;

    const ASKED: Asked = Asked { conditional: true, delta: false, permanent: true, received: Timestamp::EPOCH };

    fn outcome(status: u16, headers: &HeaderMap, asked: Asked) -> Option<Outcome> {
        match head(StatusCode::from_u16(status).unwrap(), headers, asked) {
            Head::Ended(outcome) => Some(outcome),
            _ => None,
        }
    }

    fn kind(status: u16, asked: Asked) -> Option<OutcomeKind> {
        outcome(status, &HeaderMap::new(), asked).map(|outcome| outcome.kind())
    }

    #[test]
    fn every_status_has_one_meaning() {
        let none = HeaderMap::new();
        let head = |status: u16| head(StatusCode::from_u16(status).unwrap(), &none, ASKED);
        assert_eq!((head(200), head(203), head(304)), (Head::Content, Head::Content, Head::NotModified));
        for status in [301, 302, 303, 307, 308] {
            assert_eq!(head(status), Head::Redirect);
        }
        assert_eq!((kind(410, ASKED), kind(429, ASKED)), (Some(OutcomeKind::Gone), Some(OutcomeKind::Throttled)));
        for status in
            [201, 204, 206, 226, 300, 305, 306, 400, 401, 403, 404, 406, 418, 451, 500, 502, 503, 504, 599, 999]
        {
            assert_eq!(outcome(status, &none, ASKED).and_then(|o| o.failure()), Some(FailureKind::Status), "{status}");
        }
    }

    #[test]
    fn p41_a_304_that_nobody_asked_for_is_an_error() {
        assert_eq!(kind(304, Asked { conditional: false, ..ASKED }), Some(OutcomeKind::Failed));
    }

    #[test]
    fn p42_a_226_is_a_delta_of_a_feed_when_that_was_asked_for() {
        let asked = Asked { delta: true, ..ASKED };
        let read = |im: Option<&str>, asked| {
            let headers = im.map(|im| (http::HeaderName::from_static("im"), im.parse().unwrap())).into_iter().collect();
            head(StatusCode::from_u16(226).unwrap(), &headers, asked)
        };
        for im in ["feed", "Feed", " feed "] {
            assert_eq!(read(Some(im), asked), Head::Delta, "{im}");
            assert!(matches!(read(Some(im), ASKED), Head::Ended(_)), "nobody asked");
        }
        for im in [None, Some(""), Some("vcdiff"), Some("feed, gzip"), Some("feed;x=1, diffe")] {
            assert!(matches!(read(im, asked), Head::Ended(Outcome::Failed { .. })), "{im:?}");
        }
    }

    #[test]
    fn gone_at_the_end_of_a_temporary_redirect_is_not_the_feeds_end() {
        assert_eq!(kind(410, Asked { permanent: false, ..ASKED }), Some(OutcomeKind::Failed));
    }

    #[test]
    fn p28_a_503_throttles_when_it_carries_retry_after_usable_or_not() {
        for (value, usable) in [("120", true), ("soon", false), ("0", false)] {
            let headers = [(header::RETRY_AFTER, value.parse().unwrap())].into_iter().collect();
            for status in [429, 503] {
                let Some(Outcome::Throttled { retry_after }) = outcome(status, &headers, ASKED) else {
                    panic!("{status} with {value}")
                };
                assert_eq!(retry_after.is_some(), usable, "{status} with {value}");
            }
        }
    }

    #[test]
    fn p44_validators_are_the_same_when_each_that_is_stored_came_again() {
        let of = |etag: Option<&str>, date: Option<&str>| {
            let own = |text: Option<&str>| text.map(str::to_owned);
            Validators { etag: own(etag), last_modified: own(date), for_url: None }
        };
        let both = of(Some("a"), Some("x"));
        assert!(is_same(&both, &both) && is_same(&of(None, Some("x")), &both) && is_same(&of(Some("a"), None), &both));
        for other in [of(Some("b"), Some("x")), of(Some("a"), Some("y")), of(Some("a"), None), of(None, Some("x"))] {
            assert!(!is_same(&both, &other), "{other:?}");
        }
        assert!(!is_same(&of(None, None), &both), "nothing to compare");
    }

    #[test]
    fn p6_p8_a_304_replaces_each_validator_on_its_own() {
        let own = |text: &str| Some(text.to_owned());
        let stored = Validators { etag: own("\"a\""), last_modified: own("x"), for_url: own("http://a.example/") };
        let etag_only = Validators { etag: own("\"b\""), ..Validators::default() };
        let merged_etag = merged(&stored, etag_only);
        assert_eq!(merged_etag, Validators { etag: own("\"b\""), ..stored.clone() });
        assert_eq!(merged(&stored, Validators::default()), stored);
    }
}
