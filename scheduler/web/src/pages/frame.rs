//! What all pages have in common: the frame around them, their headers, and what a refusal looks like to people.

use std::convert::Infallible;

use askama::Template;
use axum::extract::{FromRef, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use common::time::Timestamp;

use super::doors::{is_page, path_from_root};
use super::files::{CSS, ICON, JS};
use super::query::encoded;
use super::words;
use crate::error::{ApiError, Refused};
use crate::session::Caller;
use crate::state::{Api, State};

/// What stands around every page.
pub(super) struct Frame {
    /// From the page to `/`: behind a proxy the pages may live below another path.
    pub(super) root: String,
    /// Which page it is, as the navigation names it.
    pub(super) here: &'static str,
    pub(super) now: Timestamp,
    caller: Caller,
}

/// The pages of the navigation: name, path from the root, text.
const NAVIGATION: [(&str, &str, &str); 9] = [
    ("fleet", "", "Fleet"),
    ("entries", "entries", "Entries"),
    ("feeds", "feeds", "Feeds"),
    ("hosts", "hosts", "Hosts"),
    ("requeues", "requeues", "Requeues"),
    ("subscriptions", "subscriptions", "Subscriptions"),
    ("audit", "audit", "Audit"),
    ("config", "config", "Configuration"),
    ("status", "status", "Publishers"),
];

impl Frame {
    /// The frame of a page at this path.
    pub(super) fn of(path: &str, caller: Caller, now: Timestamp) -> Self {
        let depth = path.matches('/').count().saturating_sub(1);
        let root = if depth == 0 { "./".to_owned() } else { "../".repeat(depth) };
        Frame { root, here: "", now, caller }
    }

    /// The same frame, around this page of the navigation.
    pub(super) fn around(self, here: &'static str) -> Self {
        Frame { here, ..self }
    }

    /// Publishers are shown no way to pages that they cannot open.
    pub(super) fn is_public(&self) -> bool {
        self.caller.role.is_none()
    }

    /// Returns whether the reader may change something: others are shown no buttons.
    pub(super) fn may_write(&self) -> bool {
        self.caller.may_write()
    }

    pub(super) fn in_session(&self) -> bool {
        self.caller.in_session
    }

    pub(super) fn who(&self) -> &str {
        &self.caller.name
    }

    /// The pages that the reader may open.
    pub(super) fn navigation(&self) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
        let is_limited = self.caller.is_limited();
        let for_labels = |name: &str| matches!(name, "entries" | "feeds" | "subscriptions" | "status");
        NAVIGATION.into_iter().filter(move |(name, ..)| !is_limited || for_labels(name))
    }

    pub(super) fn at(&self) -> String {
        words::full(self.now)
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

impl<S: Send + Sync> FromRequestParts<S> for Frame
where
    Api: FromRef<S>,
{
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let caller = parts.extensions.get::<Caller>().cloned().unwrap_or_else(Caller::nobody);
        Ok(Frame::of(parts.uri.path(), caller, Api::from_ref(state).ops.clock.now()))
    }
}

const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// A page as an answer.
pub(super) fn answer(status: StatusCode, page: &impl Template) -> Result<Response, ApiError> {
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
        // With "no-referrer" browsers hide the origin of our forms, too.
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in fields {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
}

#[derive(Template)]
#[template(path = "pages/refusal.html")]
struct RefusalPage {
    frame: Frame,
    status: u16,
    reason: &'static str,
    message: String,
    /// The page from which a change was sent, which was refused.
    back: Option<String>,
}

/// Shows refusals as pages to browsers, and sends those that are not logged in to the login.
pub(crate) async fn for_people(State(api): State<Api>, request: Request, next: Next) -> Response {
    let (path, asked) = (request.uri().path().to_owned(), request.headers().clone());
    let whole = request.uri().path_and_query().map_or_else(|| path.clone(), ToString::to_string);
    let is_safe = request.method().is_safe();
    let response = next.run(request).await;
    let Some(Refused(message)) = response.extensions().get::<Refused>().cloned() else { return response };
    if !wants_page(&path, &asked) {
        return response;
    }
    let status = response.status();
    let caller = response.extensions().get::<Caller>().cloned().unwrap_or_else(Caller::nobody);
    let frame = Frame::of(&path, caller, api.ops.clock.now());
    if status == StatusCode::UNAUTHORIZED && is_safe {
        return to_login(&frame, &whole, &asked);
    }
    let reason = status.canonical_reason().unwrap_or_default();
    let back = (!is_safe).then(|| frame.root.clone() + path_from_root(parent(&path)));
    let page = RefusalPage { frame, status: status.as_u16(), reason, message: in_pages(&message), back };
    let Ok(mut page) = answer(status, &page) else { return response };
    for name in [header::RETRY_AFTER, header::ALLOW] {
        page.headers_mut().extend(response.headers().get(&name).cloned().map(|value| (name, value)));
    }
    page
}

/// Requests that the API's refusals advise, and where people find the same on pages.
const ADVICE: [(&str, &str); 5] = [
    ("GET /api/v1/feeds lists them", "the page Feeds lists them"),
    ("GET /api/v1/feeds?q= finds those too", "the search of the page Feeds finds those too"),
    (
        "filter says nothing; name feed, feeds, host, category, status, failure or overdue, or say {\"all\": true}",
        "nothing says which feeds are meant; choose some, or tick All feeds",
    ),
    ("GET /api/v1/requeue lists them", "the page Requeues lists them"),
    ("GET /api/v1/subscriptions lists them", "the page Subscriptions lists them"),
];

/// A refusal of the API in words for a page.
pub(super) fn in_pages(message: &str) -> String {
    ADVICE.iter().fold(message.to_owned(), |said, (request, page)| said.replace(request, page))
}

/// The page that a form's address belongs to.
fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("/", |(page, _)| page)
}

fn wants_page(path: &str, asked: &HeaderMap) -> bool {
    let accepted = asked.get(header::ACCEPT).and_then(|accepted| accepted.to_str().ok()).unwrap_or_default();
    let is_program = path.starts_with("/api/");
    let is_feed = matches!(path, "/entries.atom" | "/entries.json" | "/live");
    !is_program && !is_feed && (accepted.contains("text/html") || (is_page(path) && !accepted.contains("json")))
}

/// A link on another site's page brings no cookie along (`SameSite=Strict`), and neither do redirects that follow; a page that
/// loads itself once more does.
const ONCE_MORE: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>feedfleet</title>\
                         <meta http-equiv=\"refresh\" content=\"0\"><p><a href=\"\">Continue to feedfleet</a></p></html>";

fn to_login(frame: &Frame, whole: &str, asked: &HeaderMap) -> Response {
    if asked.get("sec-fetch-site").is_some_and(|site| site == "cross-site") {
        return Html(ONCE_MORE).into_response();
    }
    let next: String = axum::http::Uri::try_from(whole).map(|_| encoded(path_from_root(whole))).unwrap_or_default();
    let mark = if next.is_empty() { "" } else { "?next=" };
    see_other(&format!("{}login{mark}{next}", frame.root))
}

/// A redirect after a form: to an address that is relative to the form's own.
pub(super) fn see_other(to: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    response.headers_mut().extend(HeaderValue::try_from(to).ok().map(|to| (header::LOCATION, to)));
    response
}
