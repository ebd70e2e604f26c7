//! Requests that change something.

use std::future::Future;

use axum::http::StatusCode;

use crate::error::ApiError;

/// Runs a change to completion even when the caller hangs up: store and schedule are written one after the other.
pub(crate) async fn run_to_completion<T: Send + 'static, E: Into<ApiError> + Send + 'static>(
    change: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, ApiError> {
    match tokio::spawn(change).await {
        Ok(result) => result.map_err(Into::into),
        Err(_) => Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the change failed half way; look at the log")),
    }
}
