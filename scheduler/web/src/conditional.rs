//! Answers with an ETag, so that an unchanged one costs a 304 (RFC 9110, section 13).
//!
//! There is no Last-Modified: a feed that is renamed, removed or labelled changes the answer without a newer entry, and
//! a caller that sends nothing but a date would get a wrong 304.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use xxhash_rust::xxh3::xxh3_128;

/// Returns the body, or 304 if the caller has it already.
pub(crate) fn answer(asked: &HeaderMap, media_type: &'static str, body: Vec<u8>) -> Response {
    let tag = format!("\"{:032x}\"", xxh3_128(&body));
    let mut response = if has(asked, &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, HeaderValue::from_static(media_type))], body).into_response()
    };
    let fields = response.headers_mut();
    // A hash in hexadecimal digits.
    fields.extend(HeaderValue::try_from(tag).ok().map(|tag| (header::ETAG, tag)));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    response
}

/// Returns whether the caller has the answer.
fn has(asked: &HeaderMap, tag: &str) -> bool {
    let tags = asked.get_all(header::IF_NONE_MATCH).iter();
    let mut tags = tags.filter_map(|tags| tags.to_str().ok()).flat_map(|tags| tags.split(','));
    tags.any(|known| known.trim() == "*" || known.trim().trim_start_matches("W/") == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(fields: &[(header::HeaderName, &str)]) -> u16 {
        let asked = fields.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        answer(&asked, "text/plain", b"body".to_vec()).status().as_u16()
    }

    #[test]
    fn a_known_tag_is_a_304_and_a_date_alone_is_not() {
        let first = answer(&HeaderMap::new(), "text/plain", b"body".to_vec());
        let tag = first.headers()[header::ETAG].to_str().unwrap().to_owned();
        let (weak, listed) = (format!("W/{tag}"), format!("\"x\", {tag}"));
        for known in [&tag, &weak, &listed, "*"] {
            assert_eq!(status(&[(header::IF_NONE_MATCH, known)]), 304, "{known}");
        }
        assert_eq!(status(&[(header::IF_NONE_MATCH, "\"x\"")]), 200);
        assert_eq!(status(&[(header::IF_MODIFIED_SINCE, "Fri, 01 Jan 2100 00:00:00 GMT")]), 200);
        assert!(!first.headers().contains_key(header::LAST_MODIFIED));
    }
}
