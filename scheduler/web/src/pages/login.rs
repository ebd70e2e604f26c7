//! `/login` and `/logout`: one login for all pages, with a token of `api.tokens`.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::State as Shared;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::doors::path_from_root;
use super::form::Fields;
use super::frame::{Frame, answer, see_other};
use super::live::Live;
use super::words;
use crate::error::ApiError;
use crate::request::Params;
use crate::session::Caller;
use crate::state::{Api, State};
use crate::visitors::Visitor;

/// Attempts of one address in a minute: nobody mistypes a token as often, and nobody guesses one of sixteen signs.
const ATTEMPTS: u32 = 20;
/// The maximum length of the address of the next page, in bytes.
const LONGEST_NEXT: usize = 2_000;

#[derive(Template)]
#[template(path = "pages/login.html")]
struct LoginPage {
    frame: Frame,
    next: String,
    wrong: Option<String>,
    lasts: String,
}

/// The parameters of `GET /login`.
#[derive(Debug, Deserialize)]
pub(super) struct LoginParams {
    next: Option<String>,
}

/// `GET /login`
pub(super) async fn page(
    State(api): State<Api>,
    frame: Frame,
    Params(params): Params<LoginParams>,
) -> Result<Response, ApiError> {
    let next = params.next.unwrap_or_default();
    // There is nothing to log in to, or somebody is logged in already.
    if !frame.is_public() {
        return Ok(see_other(&onward(&next)));
    }
    form(&api, frame, &next, None)
}

fn form(api: &Api, frame: Frame, next: &str, wrong: Option<String>) -> Result<Response, ApiError> {
    let status = if wrong.is_some() { StatusCode::FORBIDDEN } else { StatusCode::OK };
    let lasts = words::duration(api.ops.config.api.session);
    answer(status, &LoginPage { frame, next: next.to_owned(), wrong, lasts })
}

/// `POST /login`
pub(super) async fn log_in(
    State(api): State<Api>,
    frame: Frame,
    visitor: Visitor,
    fields: Fields,
) -> Result<Response, ApiError> {
    let next = fields.get("next").unwrap_or_default();
    let token = fields.get("token").and_then(|shown| api.sessions.token(shown));
    let Some(token) = token.filter(|token| token.expires.is_none_or(|expires| expires > frame.now)) else {
        api.ops.metrics.rejected_tokens.inc();
        // Only what fails counts: behind a proxy all people have one address, and nobody there can keep the others out.
        if let Err(wait) = api.logins.admit(visitor, ATTEMPTS, frame.now) {
            return Ok(too_often(wait));
        }
        let wrong = "This is not one of the tokens in api.tokens, or it has expired.".to_owned();
        return form(&api, frame, next, Some(wrong));
    };
    let mut response = see_other(&onward(next));
    let cookie = api.sessions.begin(&token, frame.now);
    response.headers_mut().extend(cookie.map(|cookie| (header::SET_COOKIE, cookie)));
    // For the audit: who it turned out to be.
    response.extensions_mut().insert(Caller::logged_in(&token));
    Ok(response)
}

/// `POST /logout`
pub(super) async fn log_out(State(api): State<Api>, Shared(live): Shared<Arc<Live>>) -> Response {
    if api.caller.in_session {
        live.someone_left();
    }
    let mut response = see_other("./login");
    response.headers_mut().extend(api.sessions.end().map(|cookie| (header::SET_COOKIE, cookie)));
    response
}

/// Returns the next page, relative to the login: never another site.
fn onward(next: &str) -> String {
    let is_plain = next.len() <= LONGEST_NEXT && next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_plain { format!("./{}", path_from_root(next)) } else { "./".to_owned() }
}

fn too_often(wait: Duration) -> Response {
    let seconds = wait.as_secs().max(1);
    let message = format!("too many attempts to log in within a minute; try again in {seconds} s");
    let mut response = ApiError::new(StatusCode::TOO_MANY_REQUESTS, message).into_response();
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_pages_of_this_fleet_only() {
        let base: common::url::FeedUrl = "http://fleet.example/login".parse().unwrap();
        for next in [
            "",
            "feeds/7?x=1",
            "/feeds",
            "//evil.example/",
            "https://evil.example/",
            "\\\\evil.example",
            "/\\evil.example",
            "javascript:alert(1)",
            "a\nb",
            " //evil.example",
            "?x#y",
        ] {
            let to = base.as_url().join(&onward(next)).unwrap();
            assert_eq!((to.scheme(), to.host_str()), ("http", Some("fleet.example")), "{next}");
        }
        assert_eq!(onward("feeds/7?x=1"), "./feeds/7?x=1");
    }
}
