//! Who may call. With tokens: a caller that sends one, within its role. Without: this machine's programs, but no web
//! page that runs in a browser on it.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use common::config::{ApiRole, ApiToken, hash_of_token};
use common::metrics::Metrics;
use common::time::{Clock, Timestamp};
use subtle::ConstantTimeEq;

use super::audit::{self, Who};
use crate::error::ApiError;

/// What is needed to tell who may call.
#[derive(Clone)]
pub(crate) struct Guard {
    tokens: Arc<[Known]>,
    clock: Arc<dyn Clock>,
    /// Returns whether the path is a page for operators, which a browser's login opens too.
    is_page: fn(&str) -> bool,
    metrics: Arc<Metrics>,
    /// When a rejection was logged last.
    logged: Arc<Mutex<Option<Instant>>>,
}

/// A token, by its hash.
struct Known {
    name: String,
    hash: String,
    role: ApiRole,
    expires: Option<Timestamp>,
}

impl Known {
    fn of(token: &ApiToken) -> Self {
        Known { name: token.name.clone(), hash: token.hash(), role: token.role, expires: token.expires }
    }
}

/// Between two log lines about rejected tokens.
const LOG_EVERY: Duration = Duration::from_secs(10);

impl Guard {
    pub(crate) fn new(
        tokens: &[ApiToken],
        is_page: fn(&str) -> bool,
        metrics: &Arc<Metrics>,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        Guard {
            tokens: tokens.iter().map(Known::of).collect(),
            clock: Arc::clone(clock),
            is_page,
            metrics: Arc::clone(metrics),
            logged: Arc::default(),
        }
    }

    /// Counts a request with a missing or wrong token, and logs one of them every [`LOG_EVERY`] at most.
    fn note_rejection(&self, request: &Request) {
        self.metrics.rejected_tokens.inc();
        let now = Instant::now();
        let mut logged = common::lock(&self.logged);
        if logged.is_some_and(|last| now.duration_since(last) < LOG_EVERY) {
            return;
        }
        *logged = Some(now);
        drop(logged);
        let from = request.extensions().get::<ConnectInfo<SocketAddr>>();
        let from = from.map_or_else(|| "-".to_owned(), |ConnectInfo(address)| address.ip().to_string());
        let rejected = self.metrics.rejected_tokens.get();
        tracing::warn!(from, rejected, "a request had a missing or wrong token; see feedfleet_rejected_tokens_total");
    }
}

/// Rejects callers without permission; other requests proceed, with the caller's name. Changes leave a line in the log.
pub(crate) async fn admit(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    let (tokens, is_page) = (&guard.tokens, guard.is_page);
    let path = request.uri().path();
    let (is_page, is_api) = (is_page(path), path.starts_with("/api/"));
    let is_change = is_api && !request.method().is_safe();
    let (who, admitted) = if tokens.is_empty() {
        let direct = if is_api || is_page { without_proxy(request.headers()) } else { Ok(()) };
        let local = from_this_machine(request.method(), request.uri(), request.headers());
        ("loopback", local.and(direct))
    } else if is_api {
        with_token(tokens, request.method(), &bearer(request.headers()), guard.clock.now())
    } else if is_page {
        // A browser asks for a password. It would send it along with other sites' requests too, so that it opens pages only.
        let shown = password(request.headers()).unwrap_or_else(|| bearer(request.headers()));
        with_token(tokens, request.method(), &shown, guard.clock.now())
    } else {
        (NOBODY, Ok(()))
    };
    if admitted.as_ref().is_err_and(|refusal| refusal.status() == StatusCode::UNAUTHORIZED) {
        guard.note_rejection(&request);
    }
    let who = Who(who.into());
    request.extensions_mut().insert(who.clone());
    match admitted {
        admitted if is_change => audit::recorded(&who, admitted.err(), request, next).await,
        Ok(()) => next.run(request).await,
        Err(refusal) => {
            let mut response = refusal.into_response();
            if is_page && response.status() == StatusCode::UNAUTHORIZED {
                let ask =
                    HeaderValue::from_static("Basic realm=\"feedfleet: a token as the password\", charset=\"UTF-8\"");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, ask);
            }
            response
        }
    }
}

/// Somebody without a token.
const NOBODY: &str = "nobody";

/// What is shown in an `Authorization` header of this scheme.
fn shown<'a>(headers: &'a HeaderMap, scheme: &str) -> Option<&'a str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (name, rest) = value.split_once(' ')?;
    name.eq_ignore_ascii_case(scheme).then(|| rest.trim())
}

fn bearer(headers: &HeaderMap) -> String {
    shown(headers, "bearer").unwrap_or_default().to_owned()
}

/// The password of a browser's login; its user name may be anything.
fn password(headers: &HeaderMap) -> Option<String> {
    let login = BASE64_STANDARD.decode(shown(headers, "basic")?).ok()?;
    let (_, password) = std::str::from_utf8(&login).ok()?.split_once(':')?;
    Some(password.to_owned())
}

/// Whose token is shown, and whether it may be used so.
fn with_token<'a>(
    tokens: &'a [Known],
    method: &Method,
    shown: &str,
    now: Timestamp,
) -> (&'a str, Result<(), ApiError>) {
    // Every hash is compared, and each in constant time: the time reveals nothing about any of them.
    let (mut found, shown) = (None, hash_of_token(shown));
    for token in tokens {
        if bool::from(token.hash.as_bytes().ct_eq(shown.as_bytes())) {
            found = Some(token);
        }
    }
    let Some(token) = found else {
        let message = "the Authorization header must be 'Bearer ' and one of the tokens in api.tokens";
        return (NOBODY, Err(ApiError::new(StatusCode::UNAUTHORIZED, message)));
    };
    if let Some(expired) = token.expires.filter(|expires| *expires <= now) {
        let message = format!("this token expired at {expired}; ask the operator for another one");
        return (&token.name, Err(ApiError::new(StatusCode::UNAUTHORIZED, message).coded("token_expired")));
    }
    if token.role < needed_role(method) {
        let message = "this token may only read; changes need one with the role write";
        return (&token.name, Err(ApiError::new(StatusCode::FORBIDDEN, message)));
    }
    (&token.name, Ok(()))
}

fn needed_role(method: &Method) -> ApiRole {
    if method.is_safe() { ApiRole::Read } else { ApiRole::Write }
}

/// A page of a foreign site can make a browser send requests here: under a name of its own that it points at this
/// machine (refused by the Host), or across origins (refused by the Origin).
fn from_this_machine(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    let host = match uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => headers.get(header::HOST).map(|host| host.to_str().unwrap_or_default()),
    };
    if host.is_some_and(|host| !is_loopback(host)) {
        return Err(ApiError::new(
            StatusCode::MISDIRECTED_REQUEST,
            "without api.tokens only localhost and loopback addresses are answered as Host",
        ));
    }
    let origin = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or_default());
    let same_origin = |origin: &str| origin.strip_prefix("http://").is_some_and(|rest| Some(rest) == host);
    let foreign = origin.is_some_and(|origin| !same_origin(origin))
        || headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site");
    if foreign && !method.is_safe() {
        return Err(ApiError::new(StatusCode::FORBIDDEN, "changes are not taken from pages of another origin"));
    }
    Ok(())
}

/// A proxy on this machine makes everybody's requests its own, and often names itself as their Host.
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
    }

    #[test]
    fn a_token_opens_what_its_role_allows() {
        let hashed = ApiToken {
            token: String::new(),
            token_hash: hash_of_token("hashed-0123456789"),
            ..ApiToken::new("kept", "", ApiRole::Write)
        };
        let now = Timestamp::from_millis(1_000_000);
        let expired = ApiToken { expires: Some(now), ..ApiToken::new("was", "expired-0123456789", ApiRole::Read) };
        let tokens = [
            ApiToken::new("look", "0123456789abcdef", ApiRole::Read),
            ApiToken::new("do", "fedcba9876543210", ApiRole::Write),
            hashed,
            expired,
        ];
        let tokens = tokens.each_ref().map(Known::of);
        let status = |method: &Method, shown: &'static str| {
            with_token(&tokens, method, &bearer(&headers(&[("authorization", shown)])), now)
                .1
                .err()
                .map(|error| error.status())
        };
        assert_eq!(status(&Method::GET, "Bearer 0123456789abcdef"), None);
        assert_eq!(status(&Method::POST, "bearer fedcba9876543210"), None);
        assert_eq!(status(&Method::POST, "Bearer 0123456789abcdef"), Some(StatusCode::FORBIDDEN));
        assert_eq!(status(&Method::POST, "Bearer hashed-0123456789"), None);
        assert_eq!(status(&Method::GET, "Bearer expired-0123456789"), Some(StatusCode::UNAUTHORIZED));
        let before = Timestamp::from_millis(999_999);
        assert!(with_token(&tokens, &Method::GET, "expired-0123456789", before).1.is_ok());
        let of_hash = with_token(&tokens, &Method::GET, &hash_of_token("hashed-0123456789"), now);
        assert!(of_hash.1.is_err(), "the hash opens nothing");
        for wrong in ["Bearer 0123456789abcde", "Bearer ", "Basic 0123456789abcdef", "0123456789abcdef"] {
            assert_eq!(status(&Method::GET, wrong), Some(StatusCode::UNAUTHORIZED), "{wrong}");
        }
        assert!(with_token(&tokens, &Method::GET, "", now).1.is_err());
        assert_eq!(
            with_token(&tokens, &Method::POST, "0123456789abcdef", now).0,
            "look",
            "the audit names who was refused"
        );
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
