//! Refusals in JSON: a status and one sentence that names what was wrong and what would be accepted.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use scheduler::error::BackendError;
use store::StoreError;

/// A refusal. In JSON `{"error": "..."}`, sometimes with further fields.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    message: String,
    more: Map<String, Value>,
}

impl ApiError {
    /// A refusal with this status and sentence.
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        ApiError { status, message: message.into(), more: Map::new() }
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
    }

    /// The status.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// The same refusal with a further field.
    pub(crate) fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.more.insert(field.to_owned(), value.into());
        self
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut body = json!({ "error": self.message });
        if let Some(fields) = body.as_object_mut() {
            fields.extend(self.more);
        }
        let mut response = (self.status, Json(body)).into_response();
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
    /// Our own trouble: logged in full, told in general, and worth trying again. A foreign cursor, an identity that is taken
    /// and a login that cannot be stored are the caller's.
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
