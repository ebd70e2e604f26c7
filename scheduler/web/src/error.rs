//! Refusals as problem details (RFC 9457): a status, a code for programs, and one sentence that names what was wrong and what would
//! be accepted.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use scheduler::error::BackendError;
use store::StoreError;

/// The media type of problem details.
pub(crate) const PROBLEM: &str = "application/problem+json";

/// A refusal: `{"type", "title", "status", "detail", "code", "error"}`, sometimes with further fields. `error` repeats `detail` for
/// clients from before there were problem details.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    more: Map<String, Value>,
}

/// Bytes of a sentence at most. Ours are far shorter, but some repeat what a caller wrote.
const LONGEST: usize = 4_000;

/// The sentence of a refusal, beside its response: pages show it to people.
#[derive(Clone, Debug)]
pub(crate) struct Refused(pub(crate) String);

impl ApiError {
    /// Returns a refusal with this status and sentence.
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        ApiError { status, code: code_of(status), message: cut(message.into()), more: Map::new() }
    }

    /// 400: the request says something that cannot be.
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// 400: the text is not the URL of a feed.
    pub(crate) fn not_a_url(error: impl std::fmt::Display) -> Self {
        Self::bad(format!("url: {error}"))
    }

    /// 404: no feed has this id.
    pub(crate) fn no_feed(id: common::url::FeedId) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("there is no feed {id}; GET /api/v1/feeds lists them"))
            .coded("unknown_feed")
    }

    /// Returns the status.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the same refusal with its own code, which never changes.
    pub(crate) fn coded(self, code: &'static str) -> Self {
        ApiError { code, ..self }
    }

    /// The same refusal with a further field.
    pub(crate) fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.more.insert(field.to_owned(), value.into());
        self
    }
}

fn cut(mut message: String) -> String {
    if message.len() > LONGEST {
        message.truncate(message.floor_char_boundary(LONGEST));
        message.push('…');
    }
    message
}

/// Returns the code of a refusal without a specific one.
fn code_of(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "invalid_request",
        StatusCode::UNAUTHORIZED => "unauthorized",
        StatusCode::FORBIDDEN => "forbidden",
        StatusCode::NOT_FOUND => "not_found",
        StatusCode::METHOD_NOT_ALLOWED => "method_not_allowed",
        StatusCode::CONFLICT => "conflict",
        StatusCode::GONE => "unknown_cursor",
        StatusCode::PAYLOAD_TOO_LARGE => "too_large",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "unsupported_media_type",
        StatusCode::MISDIRECTED_REQUEST => "misdirected_request",
        StatusCode::TOO_MANY_REQUESTS => "rate_limited",
        StatusCode::SERVICE_UNAVAILABLE => "unavailable",
        _ if status.is_client_error() => "refused",
        _ => "internal",
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut body = json!({
            "type": format!("urn:feedfleet:problem:{}", self.code),
            "title": self.status.canonical_reason().unwrap_or_default(),
            "status": self.status.as_u16(),
            "detail": self.message,
            "code": self.code,
            "error": self.message,
        });
        if let Some(fields) = body.as_object_mut() {
            fields.extend(self.more);
        }
        let mut response = (self.status, [(header::CONTENT_TYPE, PROBLEM)], body.to_string()).into_response();
        response.extensions_mut().insert(Refused(self.message));
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        BackendError::from(error).into()
    }
}

impl From<BackendError> for ApiError {
    /// Our own trouble: logged in full, reported in general words, and worth trying again. A foreign cursor, an
    /// identity that is taken and a login that cannot be stored are the caller's.
    fn from(error: BackendError) -> Self {
        match &error {
            BackendError::Secret(error) => return Self::bad(error.to_string()),
            BackendError::Store(StoreError::Cursor(_)) => return Self::bad(format!("after: {error}")),
            BackendError::Store(StoreError::Taken) => return Self::new(StatusCode::CONFLICT, error.to_string()),
            _ => {}
        }
        tracing::error!(error = &error as &dyn std::error::Error, "an API request failed");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, format!("{error}; try again"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_caller_wrote_does_not_make_a_sentence_long() {
        let said = |words: &str| ApiError::bad(format!("nothing is served at {words}")).to_string();
        assert_eq!(said("/fog"), "nothing is served at /fog");
        let long = said(&"°".repeat(100_000));
        assert!(long.ends_with("°…") && long.len() < LONGEST + 4, "{} bytes", long.len());
    }
}
