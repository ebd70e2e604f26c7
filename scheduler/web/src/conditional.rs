//! Answers with validators, so that an unchanged one costs a 304 (RFC 9110, section 13).

use std::time::{Duration, SystemTime};

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use common::time::Timestamp;
use xxhash_rust::xxh3::xxh3_128;

/// A change within the second that `Last-Modified` names would go unnoticed: the header is sent once that second has passed, with
/// room for the clocks of several schedulers.
const SETTLED: Duration = Duration::from_secs(3);

/// Returns the body, or 304 if the caller has it already. `modified` is when it changed last.
pub(crate) fn answer(
    asked: &HeaderMap,
    media_type: &'static str,
    body: Vec<u8>,
    modified: Option<Timestamp>,
    now: Timestamp,
) -> Response {
    let tag = format!("\"{:032x}\"", xxh3_128(&body));
    let modified = modified.filter(|modified| now.since(*modified) >= SETTLED).map(whole_seconds);
    let mut response = if has(asked, &tag, modified) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, HeaderValue::from_static(media_type))], body).into_response()
    };
    let fields = response.headers_mut();
    // A hash in hexadecimal digits, and a date.
    fields.extend(HeaderValue::try_from(tag).ok().map(|tag| (header::ETAG, tag)));
    let modified = modified.and_then(|modified| HeaderValue::try_from(httpdate::fmt_http_date(modified)).ok());
    fields.extend(modified.map(|modified| (header::LAST_MODIFIED, modified)));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    response
}

fn whole_seconds(at: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(at.millis()).unwrap_or(0) / 1000)
}

/// Returns whether the caller has the answer: by its tag, or by its date if no tag is named.
fn has(asked: &HeaderMap, tag: &str, modified: Option<SystemTime>) -> bool {
    let mut tags = asked.get_all(header::IF_NONE_MATCH).iter().peekable();
    if tags.peek().is_some() {
        let tags = tags.filter_map(|tags| tags.to_str().ok()).flat_map(|tags| tags.split(','));
        return tags.map(str::trim).any(|known| known == "*" || known.trim_start_matches("W/") == tag);
    }
    let since = asked.get(header::IF_MODIFIED_SINCE).and_then(|since| since.to_str().ok());
    let since = since.and_then(|since| httpdate::parse_http_date(since).ok());
    since.zip(modified).is_some_and(|(since, modified)| modified <= since)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_millis(1_790_000_000_500)
    }

    fn status(fields: &[(header::HeaderName, &str)], modified: Option<Timestamp>) -> u16 {
        let asked = fields.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        answer(&asked, "text/plain", b"body".to_vec(), modified, now()).status().as_u16()
    }

    #[test]
    fn a_known_tag_or_date_is_a_304_and_a_tag_goes_before_a_date() {
        let before = now().before(Duration::from_secs(60));
        let first = answer(&HeaderMap::new(), "text/plain", b"body".to_vec(), Some(before), now());
        let field = |name: header::HeaderName| first.headers()[name].to_str().unwrap().to_owned();
        let (tag, date) = (field(header::ETAG), field(header::LAST_MODIFIED));
        let (weak, listed) = (format!("W/{tag}"), format!("\"x\", {tag}"));
        for known in [&tag, &weak, &listed, "*"] {
            assert_eq!(status(&[(header::IF_NONE_MATCH, known)], Some(before)), 304, "{known}");
        }
        assert_eq!(status(&[(header::IF_NONE_MATCH, "\"x\"")], Some(before)), 200);
        assert_eq!(status(&[(header::IF_MODIFIED_SINCE, &date)], Some(before)), 304);
        assert_eq!(status(&[(header::IF_NONE_MATCH, "\"x\""), (header::IF_MODIFIED_SINCE, &date)], Some(before)), 200);
        assert_eq!(status(&[(header::IF_MODIFIED_SINCE, "Mon, 01 Jan 1990 00:00:00 GMT")], Some(before)), 200);
        assert_eq!(status(&[(header::IF_MODIFIED_SINCE, "yesterday")], Some(before)), 200);
    }

    #[test]
    fn a_second_that_may_still_bring_a_change_has_no_date() {
        let fresh = answer(&HeaderMap::new(), "text/plain", Vec::new(), Some(now()), now());
        assert!(!fresh.headers().contains_key(header::LAST_MODIFIED) && fresh.headers().contains_key(header::ETAG));
    }
}
