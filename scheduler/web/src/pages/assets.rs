//! Serves the pages' files, which browsers may keep forever.

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::files::{CSS, ICON, JS};
use super::frame::Refusal;
use crate::error::ApiError;

/// `GET /assets/{name}`
pub(super) async fn asset(Path(name): Path<String>) -> Result<Response, Refusal> {
    let found = [CSS, JS, ICON].into_iter().find(|asset| asset.name == name);
    let none = || ApiError::new(StatusCode::NOT_FOUND, "there is no such file");
    let asset = found.ok_or_else(none)?;
    let headers = [
        (header::CONTENT_TYPE, asset.media_type),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'"),
    ];
    Ok((headers, asset.text).into_response())
}
