//! Tokens that are limited to labels: what such a caller may open, see and change.
//!
//! Two things hold them. Routes that are not listed here are refused, so that a new one shows nothing by accident. And the handlers of
//! those that are listed work on an [`Api`](crate::state::Api) that knows its caller ([`State`](crate::state::State)): it finds, lists and changes only feeds
//! with one of the labels.

use axum::extract::{MatchedPath, Request};
use axum::http::{Method, StatusCode};

use crate::error::ApiError;
use crate::session::Caller;

/// The routes that a token with labels may use.
pub(crate) const OPEN: [&str; 52] = [
    "/api/v1/feeds",
    "/api/v1/feeds/bulk",
    "/api/v1/feeds/lookup",
    "/api/v1/feeds/{id}",
    "/api/v1/feeds/{id}/explain",
    "/api/v1/feeds/{id}/history",
    "/api/v1/feeds/{id}/entries",
    "/api/v1/feeds/{id}/pause",
    "/api/v1/feeds/{id}/resume",
    "/api/v1/feeds/{id}/refresh",
    "/api/v1/feeds/{id}/forget",
    "/api/v1/feeds/{id}/backfill",
    "/api/v1/entries",
    "/api/v1/entries/lookup",
    "/api/v1/entries/{seq}",
    "/api/v1/events",
    "/api/v1/events/stream",
    "/api/v1/subscriptions",
    "/api/v1/subscriptions/{id}",
    "/api/v1/subscriptions/{id}/pause",
    "/api/v1/subscriptions/{id}/resume",
    "/api/v1/subscriptions/{id}/replay",
    "/api/v1/subscriptions/{id}/deliveries",
    "/entries.atom",
    "/entries.json",
    "/entries",
    "/feeds",
    "/feeds/add",
    "/feeds/import",
    "/feeds/refresh",
    "/feeds/pause",
    "/feeds/resume",
    "/feeds/label",
    "/feeds/unlabel",
    "/feeds/remove",
    "/feeds/{id}",
    "/feeds/{id}/refresh",
    "/feeds/{id}/pause",
    "/feeds/{id}/resume",
    "/feeds/{id}/forget",
    "/feeds/{id}/change",
    "/feeds/{id}/remove",
    "/subscriptions",
    "/subscriptions/add",
    "/subscriptions/{id}",
    "/subscriptions/{id}/pause",
    "/subscriptions/{id}/resume",
    "/subscriptions/{id}/rotate",
    "/subscriptions/{id}/change",
    "/subscriptions/{id}/replay",
    "/subscriptions/{id}/remove",
    // Leads to the first page that it may open.
    HOME,
];

/// The page of the fleet.
const HOME: &str = "/";

/// Returns true for a caller with labels that opens the page of the fleet: it is redirected.
pub(crate) fn leads_home(caller: &Caller, request: &Request) -> bool {
    caller.is_limited() && request.uri().path() == HOME && request.method() == Method::GET
}

/// Refuses a route that is not for tokens with labels.
pub(crate) fn within_labels(caller: &Caller, request: &Request) -> Result<(), ApiError> {
    let matched = request.extensions().get::<MatchedPath>();
    // A path without a route is a 404 for all callers.
    if !caller.is_limited() || matched.is_none_or(|path| OPEN.contains(&path.as_str())) {
        return Ok(());
    }
    let message =
        format!("this token is limited to feeds labelled {}; this needs a token without labels", named(&caller.labels));
    Err(ApiError::new(StatusCode::FORBIDDEN, message).coded("token_limited"))
}

/// Returns labels as messages list them.
pub(crate) fn named(labels: &[String]) -> String {
    labels.join(" or ")
}
