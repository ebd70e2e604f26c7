//! Which callers are allowed. With tokens: a caller that sends one, within its role. Without: this machine's programs,
//! but not web pages in a browser on it.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use common::config::{ApiRole, HubAccess};

use super::audit::{self, Judged, Who};
use super::scope;
use crate::error::ApiError;
use crate::session::Caller;
use crate::state::Api;

/// What is needed to decide which callers are allowed.
#[derive(Clone)]
pub(crate) struct Guard {
    api: Api,
    /// Returns how a path is opened.
    door: fn(&str) -> Door,
    /// When a rejection was logged last.
    logged: Arc<Mutex<Option<Instant>>>,
}

/// How a path is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// By all callers.
    Public,
    /// By hubs, under whatever name they reach us: what is behind it is protected by its unguessable address.
    Callback,
    /// By all callers, but changes only from our own pages: the forms of the login.
    Login,
    /// By programs, with a bearer token.
    Api,
    /// By feed readers, which know a password (HTTP Basic), and by all callers that may open pages.
    Feed,
    /// By the subscribers of the WebSub hub: all callers, or those with a token, which may be a password.
    Hub,
    /// By people who are logged in, and by programs with a bearer token.
    Page,
}

/// Between two log lines about rejected tokens.
const LOG_EVERY: Duration = Duration::from_secs(10);

impl Guard {
    pub(crate) fn new(api: Api, door: fn(&str) -> Door) -> Self {
        Guard { api, door, logged: Arc::default() }
    }

    /// Returns how a path is opened.
    fn door(&self, path: &str) -> Door {
        match (self.door)(path) {
            Door::Hub if self.api.ops.config.delivery.hub == HubAccess::Token => Door::Feed,
            Door::Hub => Door::Public,
            door => door,
        }
    }

    /// Returns the caller, and whether it is refused.
    fn judge(&self, request: &Request, door: Door) -> (Caller, Result<(), ApiError>) {
        let (method, headers) = (request.method(), request.headers());
        if door == Door::Callback {
            return (Caller::nobody(), Ok(()));
        }
        if !self.api.sessions.needs_token() {
            let direct = if door == Door::Public { Ok(()) } else { without_proxy(headers) };
            let local = from_this_machine(method, request.uri(), headers);
            return (Caller::loopback(), local.and(direct));
        }
        let in_session = || self.api.sessions.of(headers, self.api.ops.clock.now());
        let logged_in = || in_session().map_or_else(Caller::nobody, |token| Caller::logged_in(&token));
        match door {
            Door::Hub | Door::Callback => (Caller::nobody(), Ok(())),
            // A caller that is logged in gets links to the other pages.
            Door::Public => (logged_in(), Ok(())),
            Door::Api => self.with_token(method, &bearer(headers)),
            Door::Login => {
                let from_page = if method.is_safe() { Ok(()) } else { self.refuse_other_pages(request) };
                (logged_in(), from_page)
            }
            Door::Feed | Door::Page => match in_session() {
                Some(token) => {
                    let caller = Caller::logged_in(&token);
                    let allowed = within_role(token.role, method);
                    // A browser sends the cookie along whichever site made it send the request.
                    let from_page = if method.is_safe() { Ok(()) } else { self.refuse_other_pages(request) };
                    (caller, from_page.and(allowed))
                }
                None if door == Door::Feed => match password(headers) {
                    Some(shown) => {
                        let (caller, admitted) = self.with_token(method, &shown);
                        // A browser that knows the password sends it along whichever site made it send the request.
                        let is_foreign = !method.is_safe() && self.is_of_our_page(request) == Some(false);
                        (caller, if is_foreign { Err(foreign()) } else { admitted })
                    }
                    None => self.with_token(method, &bearer(headers)),
                },
                None => self.with_token(method, &bearer(headers)),
            },
        }
    }

    /// Whose token is shown, and whether it may be used so.
    fn with_token(&self, method: &Method, shown: &str) -> (Caller, Result<(), ApiError>) {
        match self.api.sessions.token(shown) {
            Some(token) => {
                let expired = token.expires.filter(|expires| *expires <= self.api.ops.clock.now());
                let message = |at| format!("this token expired at {at}; ask the operator for another one");
                let refused =
                    expired.map(|at| ApiError::new(StatusCode::UNAUTHORIZED, message(at)).coded("token_expired"));
                (Caller::with(&token), refused.map_or_else(|| within_role(token.role, method), Err))
            }
            None => {
                let message = "the Authorization header must be 'Bearer ' and one of the tokens in api.tokens; feed readers send the token as \
                               the password";
                (Caller::nobody(), Err(ApiError::new(StatusCode::UNAUTHORIZED, message)))
            }
        }
    }

    /// Refuses a change that another site's page made a browser send.
    fn refuse_other_pages(&self, request: &Request) -> Result<(), ApiError> {
        if self.is_of_our_page(request) == Some(true) { Ok(()) } else { Err(foreign()) }
    }

    /// Returns whether one of our pages sent a request. Browsers say where a request comes from: in `Sec-Fetch-Site` over https and on
    /// loopback, in `Origin` otherwise. `None`: nothing says that a browser sent it.
    fn is_of_our_page(&self, request: &Request) -> Option<bool> {
        let text = |name: HeaderName| request.headers().get(name).map(|value| value.to_str().unwrap_or_default());
        let site = text(HeaderName::from_static("sec-fetch-site"));
        let public = self.api.ops.config.api.public_url.trim_end_matches('/');
        let is_own = |origin: &str| {
            let host = origin.split_once("://").map(|(_, host)| host);
            origin == public || (host.is_some() && host == host_of(request.uri(), request.headers()))
        };
        match (site, text(header::ORIGIN)) {
            (Some(site), _) => Some(matches!(site, "same-origin" | "none")),
            (None, origin) => origin.map(is_own),
        }
    }

    /// Counts a request with a missing or wrong token, and logs one of them every [`LOG_EVERY`] at most.
    fn note_rejection(&self, request: &Request) {
        self.api.ops.metrics.rejected_tokens.inc();
        let now = Instant::now();
        let mut logged = common::lock(&self.logged);
        if logged.is_some_and(|last| now.duration_since(last) < LOG_EVERY) {
            return;
        }
        *logged = Some(now);
        drop(logged);
        let from = request.extensions().get::<ConnectInfo<SocketAddr>>();
        let from = from.map_or_else(|| "-".to_owned(), |ConnectInfo(address)| address.ip().to_string());
        let rejected = self.api.ops.metrics.rejected_tokens.get();
        tracing::warn!(from, rejected, "a request had a missing or wrong token; see feedfleet_rejected_tokens_total");
    }
}

/// Rejects callers without permission; other requests proceed, with the caller's name. Changes leave a line in the log.
pub(crate) async fn admit(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    let door = guard.door(request.uri().path());
    let is_change = !matches!(door, Door::Public | Door::Callback) && !request.method().is_safe();
    let (caller, admitted) = guard.judge(&request, door);
    if admitted.is_ok() && scope::leads_home(&caller, &request) {
        return Redirect::to("feeds").into_response();
    }
    let is_scoped = !matches!(door, Door::Public | Door::Callback | Door::Login);
    let admitted = admitted.and_then(|()| if is_scoped { scope::within_labels(&caller, &request) } else { Ok(()) });
    let is_unknown = admitted.as_ref().is_err_and(|refusal| refusal.status() == StatusCode::UNAUTHORIZED);
    // A browser that is not logged in shows nothing: it is sent to the login.
    if is_unknown && (door != Door::Page || request.headers().contains_key(header::AUTHORIZATION)) {
        guard.note_rejection(&request);
    }
    let who = Who(caller.name.clone());
    request.extensions_mut().insert(who.clone());
    request.extensions_mut().insert(caller.clone());
    let mut response = match admitted {
        admitted if is_change => {
            let judged = match admitted {
                Err(refusal) => Judged::Refused(refusal),
                Ok(()) if door == Door::Login => Judged::Login,
                Ok(()) => Judged::Change,
            };
            audit::recorded(&who, &guard.api, judged, request, next).await
        }
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    if door == Door::Feed && response.status() == StatusCode::UNAUTHORIZED {
        let ask = HeaderValue::from_static("Basic realm=\"feedfleet: a token as the password\", charset=\"UTF-8\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, ask);
    }
    // A login names its caller itself.
    response.extensions_mut().get_or_insert_with(|| caller);
    response
}

/// Returns what is shown in an `Authorization` header of this scheme.
fn shown<'a>(headers: &'a HeaderMap, scheme: &str) -> Option<&'a str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (name, rest) = value.split_once(' ')?;
    name.eq_ignore_ascii_case(scheme).then(|| rest.trim())
}

fn bearer(headers: &HeaderMap) -> String {
    shown(headers, "bearer").unwrap_or_default().to_owned()
}

/// Returns the password of a browser's login; its user name may be anything.
fn password(headers: &HeaderMap) -> Option<String> {
    let login = BASE64_STANDARD.decode(shown(headers, "basic")?).ok()?;
    let (_, password) = std::str::from_utf8(&login).ok()?.split_once(':')?;
    Some(password.to_owned())
}

fn foreign() -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "changes are not taken from pages of another origin")
}

fn within_role(role: ApiRole, method: &Method) -> Result<(), ApiError> {
    if role < needed_role(method) {
        let message = "this token may only read; changes need one with the role write";
        return Err(ApiError::new(StatusCode::FORBIDDEN, message));
    }
    Ok(())
}

fn needed_role(method: &Method) -> ApiRole {
    if method.is_safe() { ApiRole::Read } else { ApiRole::Write }
}

/// A page of a foreign site can make a browser send requests here: under a name that it points at this machine (refused
/// by the Host), or across origins (refused by the Origin).
fn from_this_machine(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    let host = host_of(uri, headers);
    if host.is_some_and(|host| !is_loopback(host)) {
        return Err(ApiError::new(
            StatusCode::MISDIRECTED_REQUEST,
            "the Host header must be localhost or a loopback address, because no api.tokens are configured; use \
             http://127.0.0.1, or configure [[api.tokens]]",
        ));
    }
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let same_origin = |origin: &str| origin.strip_prefix("http://").is_some_and(|rest| Some(rest) == host);
    // Where browsers say the site, they may hide the origin.
    let is_foreign = match (text(HeaderName::from_static("sec-fetch-site")), text(header::ORIGIN)) {
        (Some(site), _) => !matches!(site, "same-origin" | "none"),
        (None, origin) => origin.is_some_and(|origin| !same_origin(origin)),
    };
    if is_foreign && !method.is_safe() { Err(foreign()) } else { Ok(()) }
}

/// Returns the host that a request names.
fn host_of<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    match uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => headers.get(header::HOST).map(|host| host.to_str().unwrap_or_default()),
    }
}

/// A proxy on this machine sends all callers' requests as its own, and often names itself as their Host.
fn without_proxy(headers: &HeaderMap) -> Result<(), ApiError> {
    let tells_of_proxy = |name: &HeaderName| {
        matches!(name.as_str(), "forwarded" | "via" | "x-real-ip") || name.as_str().starts_with("x-forwarded-")
    };
    if headers.keys().any(tells_of_proxy) {
        let message = "without api.tokens requests that came through a proxy are refused; configure [[api.tokens]]";
        return Err(ApiError::new(StatusCode::FORBIDDEN, message));
    }
    Ok(())
}

fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let lower = bare.to_ascii_lowercase();
    lower == "localhost"
        || lower.ends_with(".localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn local(method: &Method, pairs: &[(&'static str, &'static str)]) -> Option<StatusCode> {
        from_this_machine(method, &Uri::from_static("/api/v1/feeds"), &headers(pairs)).err().map(|error| error.status())
    }

    #[test]
    fn only_loopback_names_are_answered_without_tokens() {
        for host in ["localhost:7878", "127.0.0.1", "127.8.0.1:1", "[::1]:7878", "LOCALHOST", "fleet.localhost:80"] {
            assert_eq!(local(&Method::GET, &[("host", host)]), None, "{host}");
        }
        for host in ["evil.example", "evil.example:7878", "10.0.0.1", "localhost.evil.example", "[::2]", ""] {
            assert_eq!(local(&Method::GET, &[("host", host)]), Some(StatusCode::MISDIRECTED_REQUEST), "{host}");
        }
    }

    #[test]
    fn changes_across_origins_are_refused_and_our_own_pages_are_not() {
        let host = ("host", "127.0.0.1:7878");
        assert_eq!(local(&Method::POST, &[host]), None);
        assert_eq!(local(&Method::POST, &[host, ("origin", "http://127.0.0.1:7878")]), None);
        for origin in ["http://evil.example", "http://127.0.0.1:8080", "https://127.0.0.1:7878", "null"] {
            assert_eq!(local(&Method::POST, &[host, ("origin", origin)]), Some(StatusCode::FORBIDDEN), "{origin}");
            assert_eq!(local(&Method::GET, &[host, ("origin", origin)]), None);
        }
        assert_eq!(local(&Method::DELETE, &[host, ("sec-fetch-site", "cross-site")]), Some(StatusCode::FORBIDDEN));
        assert_eq!(local(&Method::POST, &[host, ("origin", "null"), ("sec-fetch-site", "same-origin")]), None);
    }

    #[test]
    fn a_request_through_a_proxy_is_told_by_its_headers() {
        for name in ["forwarded", "via", "x-real-ip", "x-forwarded-for", "x-forwarded-proto"] {
            let error = without_proxy(&headers(&[("host", "127.0.0.1"), (name, "x")])).unwrap_err();
            assert_eq!(error.status(), StatusCode::FORBIDDEN, "{name}");
        }
        assert!(without_proxy(&headers(&[("host", "127.0.0.1"), ("x-forwarded", "x")])).is_ok());
    }
}
