//! The time between the signal to stop and the end: this scheduler is not ready, so that proxies send it no new connections, and
//! answers those that still come.

use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;

use crate::state::Api;

/// Closes a connection after its response while the scheduler drains, so that its next request goes to another one.
pub(crate) async fn draining(State(api): State<Api>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if api.ops.quiet.is_cancelled() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
