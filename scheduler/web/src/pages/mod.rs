//! What is going on, as pages for people: rendered here, readable on a phone and without a script. They show; the buttons of
//! a feed's page call the API with the token that is typed there, and so changing is the API's business alone.
//!
//! `/`, `/feeds`, `/feeds/{id}` and `/live` are for operators; `/status` is open to publishers and knows no private feed.
//! Everything that strangers wrote is escaped by the templates; should that fail one day, the policy that is sent along lets
//! no script run but ours.

mod advice;
mod assets;
mod charts;
mod feed;
mod fleet;
mod live;
mod search;
mod status;
#[cfg(test)]
mod tests;
mod words;

use std::sync::Arc;

use askama::Template;
use axum::Router;
use axum::extract::FromRef;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use common::time::Timestamp;

use crate::error::ApiError;
use crate::state::Api;

pub(crate) use live::{Live, watch};

/// What the pages' handlers work on.
#[derive(Clone)]
pub(crate) struct Pages {
    api: Api,
    live: Arc<Live>,
}

impl FromRef<Pages> for Api {
    fn from_ref(pages: &Pages) -> Self {
        pages.api.clone()
    }
}

impl FromRef<Pages> for Arc<Live> {
    fn from_ref(pages: &Pages) -> Self {
        pages.live.clone()
    }
}

/// Returns the routes of all pages.
pub(crate) fn routes(api: Api, live: Arc<Live>) -> Router {
    Router::new()
        .route("/", get(fleet::page))
        .route("/feeds", get(search::page))
        .route("/feeds/{id}", get(feed::page))
        .route("/status", get(status::page))
        .route("/live", get(live::stream))
        .route("/assets/{name}", get(assets::asset))
        .with_state(Pages { api, live })
}

/// Is it one of the pages that show everything? They are opened as the API is, or by a browser's login.
pub(crate) fn is_for_operators(path: &str) -> bool {
    matches!(path, "/" | "/feeds" | "/live") || path.starts_with("/feeds/")
}

/// What stands around every page.
struct Frame {
    /// From the page to `/`: behind a proxy the pages may live below another path.
    root: &'static str,
    /// Which page it is, as the navigation names it.
    here: &'static str,
    at: String,
}

impl Frame {
    fn new(root: &'static str, here: &'static str, now: Timestamp) -> Self {
        Frame { root, here, at: words::full(now) }
    }

    /// Publishers are shown no way to pages that they cannot open.
    fn is_public(&self) -> bool {
        self.here == status::NAME
    }

    fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    fn css(&self) -> String {
        assets::CSS.path()
    }

    fn js(&self) -> String {
        assets::JS.path()
    }

    fn icon(&self) -> String {
        assets::ICON.path()
    }
}

const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// A page as an answer.
fn answer(status: StatusCode, page: &impl Template) -> Result<Response, Refusal> {
    let html = page.render().map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "a page could not be rendered");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the page could not be rendered")
    })?;
    let mut response = (status, Html(html)).into_response();
    protect(&mut response);
    Ok(response)
}

fn protect(response: &mut Response) {
    let fields = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in fields {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
}

/// A refusal as a page.
#[derive(Debug)]
pub(crate) struct Refusal(ApiError);

impl<E: Into<ApiError>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Refusal(error.into())
    }
}

#[derive(Template)]
#[template(path = "pages/refusal.html")]
struct RefusalPage {
    status: u16,
    reason: &'static str,
    message: String,
    css: String,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = self.0.status();
        let page = RefusalPage {
            status: status.as_u16(),
            reason: status.canonical_reason().unwrap_or_default(),
            message: self.0.to_string(),
            css: assets::CSS.path(),
        };
        // A page that says no can fail in no other way than by rendering.
        match page.render() {
            Ok(html) => {
                let mut response = (status, Html(html)).into_response();
                protect(&mut response);
                response
            }
            Err(_) => self.0.into_response(),
        }
    }
}
