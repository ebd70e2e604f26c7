//! Pages of other origins whose scripts may read the API (`api.allow_origins`), by the rules of the Fetch standard.
//!
//! A browser sends a preflight before a request with a token or a body; the answer needs no token. Nothing is allowed
//! here that the guard refuses: this only lets a browser show a script what it got.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// The configured origins; `*` is any.
pub(crate) type Origins = Arc<[String]>;

/// What a script may send, for a day without another preflight.
const PREFLIGHT: [(HeaderName, &str); 3] = [
    (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST, PUT, PATCH, DELETE"),
    (header::ACCESS_CONTROL_ALLOW_HEADERS, "authorization, content-type, last-event-id, if-none-match"),
    (header::ACCESS_CONTROL_MAX_AGE, "86400"),
];

/// Answers preflights, and marks answers that scripts may read.
pub(crate) async fn shared(State(origins): State<Origins>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_api = path.starts_with("/api/") || path == "/openapi.json";
    if origins.is_empty() || !is_api {
        return next.run(request).await;
    }
    let allowed = allowed(&origins, request.headers());
    let asks =
        request.method() == Method::OPTIONS && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match &allowed {
        Some(_) if asks => {
            let fields = PREFLIGHT.map(|(name, value)| (name, HeaderValue::from_static(value)));
            (StatusCode::NO_CONTENT, fields).into_response()
        }
        _ => next.run(request).await,
    };
    let headers = response.headers_mut();
    // A cache must not show one origin what is meant for another.
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    if let Some(origin) = allowed {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert("cross-origin-resource-policy", HeaderValue::from_static("cross-origin"));
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("location, retry-after, etag"));
    }
    response
}

fn allowed(origins: &[String], headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    let is_allowed = |allowed: &String| allowed == "*" || allowed.as_bytes() == origin.as_bytes();
    origins.iter().any(is_allowed).then(|| origin.clone())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use common::config::{ApiRole, ApiToken};
    use tower_service::Service;

    use super::*;
    use crate::testing::Fleet;

    async fn answer(fleet: &Fleet, method: &str, path: &str, fields: &[(&str, &str)]) -> (u16, HeaderMap) {
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, "127.0.0.1:7878");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let response = fleet.router.clone().call(request.body(Body::empty()).unwrap()).await.unwrap();
        (response.status().as_u16(), response.headers().clone())
    }

    #[tokio::test]
    async fn scripts_of_allowed_origins_read_the_api_with_a_token_and_others_do_not() {
        const READER: &str = "https://reader.example";
        let fleet = Fleet::with(|config| {
            config.api.allow_origins = vec![READER.into()];
            config.api.tokens = vec![ApiToken::new("script", "0123456789abcdef", ApiRole::Read)];
        });
        let fleet = fleet.await;
        let ask = [("origin", READER), ("access-control-request-method", "GET")];
        let (status, headers) = answer(&fleet, "OPTIONS", "/api/v1/feeds", &ask).await;
        assert_eq!((status, headers[header::ACCESS_CONTROL_ALLOW_ORIGIN].to_str().unwrap()), (204, READER));
        assert!(headers[header::ACCESS_CONTROL_ALLOW_HEADERS].to_str().unwrap().contains("authorization"));
        let with_token = [("origin", READER), ("authorization", "Bearer 0123456789abcdef")];
        let (status, headers) = answer(&fleet, "GET", "/api/v1/feeds", &with_token).await;
        assert_eq!((status, &headers[header::ACCESS_CONTROL_ALLOW_ORIGIN]), (200, &HeaderValue::from_static(READER)));
        assert!(headers.get_all(header::VARY).iter().any(|value| value == "origin"));
        assert_eq!(answer(&fleet, "GET", "/api/v1/feeds", &with_token[..1]).await.0, 401, "it still needs a token");
        for other in ["https://evil.example", "http://reader.example", "null", "https://reader.example.evil.example"] {
            let ask = [("origin", other), ("access-control-request-method", "GET")];
            let (status, headers) = answer(&fleet, "OPTIONS", "/api/v1/feeds", &ask).await;
            assert!(status >= 400 && !headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN), "{other}");
        }
        let (_, headers) = answer(&fleet, "GET", "/", &with_token).await;
        assert!(!headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN), "pages are for people");
    }

    #[tokio::test]
    async fn without_allowed_origins_nothing_is_shared() {
        let fleet = Fleet::new().await;
        let ask = [("origin", "https://reader.example"), ("access-control-request-method", "GET")];
        let (status, headers) = answer(&fleet, "OPTIONS", "/api/v1/feeds", &ask).await;
        assert!(status >= 400 && !headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN));
        assert_eq!(headers["cross-origin-resource-policy"], "same-origin");
    }
}
