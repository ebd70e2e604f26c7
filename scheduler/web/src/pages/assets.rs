//! Serves the pages' files, which browsers may keep forever.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::docs::{self, Script};
use super::files::{CSS, ICON, JS};
use crate::error::ApiError;

/// Addresses of assets have a version.
const FOR_GOOD: &str = "public, max-age=31536000, immutable";

/// `GET /assets/{name}`
pub(super) async fn asset(
    State(script): State<Arc<Script>>,
    Path(name): Path<String>,
    asked: HeaderMap,
) -> Result<Response, ApiError> {
    if name == docs::NAME {
        let mut script = script.answer(&asked).await?;
        script.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static(FOR_GOOD));
        return Ok(script);
    }
    let found = [CSS, JS, ICON].into_iter().find(|asset| asset.name == name);
    let none = || ApiError::new(StatusCode::NOT_FOUND, "there is no such file");
    let asset = found.ok_or_else(none)?;
    let headers = [
        (header::CONTENT_TYPE, asset.media_type),
        (header::CACHE_CONTROL, FOR_GOOD),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'"),
    ];
    Ok((headers, asset.text).into_response())
}
