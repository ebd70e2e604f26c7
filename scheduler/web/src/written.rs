//! Large JSON, written on a thread for such work: megabytes take tens of milliseconds, for which the threads that
//! accept connections and answer `/healthz` would be blocked.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::error::ApiError;

/// Returns a page as a response.
pub(crate) async fn written(page: impl Serialize + Send + 'static) -> Result<Response, ApiError> {
    let failed = || ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the page could not be written");
    let text = tokio::task::spawn_blocking(move || serde_json::to_vec(&page)).await.map_err(|_| failed())?;
    let json = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, json)], text.map_err(|_| failed())?).into_response())
}
