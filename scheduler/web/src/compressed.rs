//! Compressed responses of the API: lists of entries are mostly text.
//!
//! Only responses to reads are compressed: what a change returns may contain a secret, and its compressed length would
//! reveal something about it. Streams of events are not compressed, because an event would wait for others.

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};

/// Smaller bodies are sent as they are, in bytes.
const SMALLEST: u16 = 1_024;

/// Compresses the responses of a router for callers that accept it.
pub(crate) fn compressed<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
    let fits = SizeAbove::new(SMALLEST).and(NotForContentType::SSE).and(NotForContentType::IMAGES);
    router.layer(CompressionLayer::new().gzip(true).compress_when(fits)).layer(middleware::from_fn(only_reads))
}

/// Keeps responses to changes as they are. The tag of a compressed body is weak: the plain one has the same.
async fn only_reads(mut request: Request, next: Next) -> Response {
    if !request.method().is_safe() {
        request.headers_mut().remove(header::ACCEPT_ENCODING);
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    if headers.contains_key(header::CONTENT_ENCODING)
        && let Some(tag) = headers.get(header::ETAG).filter(|tag| tag.as_bytes().starts_with(b"\""))
        && let Ok(weak) = HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat())
    {
        headers.insert(header::ETAG, weak);
    }
    response
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use serde_json::{Value, json};
    use tower_service::Service;

    use super::*;
    use crate::testing::Fleet;

    async fn sent(fleet: &Fleet, method: &str, path: &str, body: &str) -> (axum::http::HeaderMap, Vec<u8>) {
        let request = Request::builder().method(method).uri(path).header(header::HOST, "127.0.0.1:7878");
        let request =
            request.header(header::ACCEPT_ENCODING, "gzip, br").header(header::CONTENT_TYPE, "application/json");
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let (head, body) = fleet.router.clone().call(request).await.unwrap().into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap().to_vec();
        assert!(head.status.is_success(), "{method} {path}: {} {}", head.status, String::from_utf8_lossy(&body));
        (head.headers, body)
    }

    fn unzipped(bytes: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
        plain
    }

    #[tokio::test]
    async fn long_reads_are_compressed_and_nothing_else() {
        let fleet = Fleet::with_secrets().await;
        let id = fleet.feed("https://a.example/feed").await;
        let ids: Vec<String> = (0..50).map(|number| format!("an entry with the number {number}")).collect();
        fleet.polled(id, &ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
        for path in ["/api/v1/entries", "/openapi.json", "/entries.atom"] {
            let plain = fleet.get(path).await.body;
            let (headers, body) = sent(&fleet, "GET", path, "").await;
            assert_eq!(headers[header::CONTENT_ENCODING], "gzip", "{path}");
            assert!(headers.get_all(header::VARY).iter().any(|vary| vary == "accept-encoding"), "{path}");
            let body = unzipped(&body);
            let text = || Value::String(String::from_utf8(body.clone()).unwrap());
            assert_eq!(serde_json::from_slice(&body).unwrap_or_else(|_| text()), plain, "{path}");
            if let Some(tag) = headers.get(header::ETAG) {
                assert!(tag.to_str().unwrap().starts_with("W/\""));
                let again = fleet.send_with(path, &[(header::IF_NONE_MATCH, tag.to_str().unwrap())]).await;
                assert_eq!(again.status, 304, "{path}");
            }
        }
        let filter = json!({ "label": "l".repeat(60), "host": "a.example:443" });
        let wish = json!({ "kind": "webhook", "target": format!("https://a.example/{}", "x".repeat(1_500)), "filter": filter });
        let (headers, body) = sent(&fleet, "POST", "/api/v1/subscriptions", &wish.to_string()).await;
        assert!(
            body.len() > usize::from(SMALLEST) && !headers.contains_key(header::CONTENT_ENCODING),
            "it has a secret"
        );
        let (headers, _) = sent(&fleet, "GET", "/healthz", "").await;
        assert!(!headers.contains_key(header::CONTENT_ENCODING), "it is short");
    }

    #[tokio::test]
    async fn streams_are_sent_as_they_come() {
        let fleet = Fleet::new().await;
        let request = Request::get("/api/v1/events/stream").header(header::HOST, "127.0.0.1:7878");
        let request = request.header(header::ACCEPT_ENCODING, "gzip").body(Body::empty()).unwrap();
        let response = fleet.router.clone().call(request).await.unwrap();
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
        assert!(!response.headers().contains_key(header::CONTENT_ENCODING));
    }
}
