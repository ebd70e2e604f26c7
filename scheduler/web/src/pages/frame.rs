//! What all pages have in common: the frame around them, their headers, and how a refusal looks.

use askama::Template;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use common::time::Timestamp;

use super::files::{CSS, ICON, JS};
use super::words;
use crate::error::ApiError;

/// The public page's name in the navigation.
pub(super) const PUBLIC: &str = "status";

/// What stands around every page.
pub(super) struct Frame {
    /// From the page to `/`: behind a proxy the pages may live below another path.
    pub(super) root: &'static str,
    /// Which page it is, as the navigation names it.
    pub(super) here: &'static str,
    pub(super) at: String,
}

impl Frame {
    pub(super) fn new(root: &'static str, here: &'static str, now: Timestamp) -> Self {
        Frame { root, here, at: words::full(now) }
    }

    /// Publishers are shown no way to pages that they cannot open.
    pub(super) fn is_public(&self) -> bool {
        self.here == PUBLIC
    }

    pub(super) fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    pub(super) fn css(&self) -> String {
        CSS.path()
    }

    pub(super) fn js(&self) -> String {
        JS.path()
    }

    pub(super) fn icon(&self) -> String {
        ICON.path()
    }
}

const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// A page as an answer.
pub(super) fn answer(status: StatusCode, page: &impl Template) -> Result<Response, Refusal> {
    let html = page.render().map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "a page could not be rendered");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the page could not be rendered")
    })?;
    let mut response = (status, Html(html)).into_response();
    protect(&mut response);
    Ok(response)
}

pub(super) fn protect(response: &mut Response) {
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
pub(super) struct Refusal(ApiError);

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
            css: CSS.path(),
        };
        // The page of a refusal can only fail while rendering.
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
