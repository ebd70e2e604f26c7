//! What a process without an API still answers: whether it is alive, whether it can do its work, and its metrics.

use std::future::Future;
use std::io;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use common::metrics::Metrics;
use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use web::listener::{self, Limits};

/// The maximum number of connections, of one address too: few callers ask for health and metrics.
pub(crate) const CONNECTIONS: usize = 64;

/// Says why the process cannot do its work now, if it cannot.
type Readiness = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Who answers, and so what its other paths mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Has no API: nothing else is served.
    Worker,
    /// Will have an API as soon as its store is open.
    StartingScheduler,
}

/// Seconds after which a client of a starting scheduler may ask again.
const RETRY_AFTER: &str = "5";

#[derive(Clone)]
struct Health {
    ready: Readiness,
    metrics: Arc<Metrics>,
}

/// Answers `/healthz` (never depends on anything), `/readyz` (asks `ready`) and `/metrics` until `stop`.
pub(crate) async fn serve<F>(
    listener: TcpListener,
    role: Role,
    metrics: Arc<Metrics>,
    ready: impl Fn() -> F + Send + Sync + 'static,
    stop: CancellationToken,
) -> io::Result<()>
where
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    let ready: Readiness = Arc::new(move || Box::pin(ready()));
    let paths = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(render));
    let paths = match role {
        Role::Worker => paths,
        Role::StartingScheduler => paths.fallback(starting),
    };
    let paths = paths.with_state(Health { ready, metrics });
    listener::serve(listener, paths, Limits::new(CONNECTIONS, CONNECTIONS), stop).await
}

async fn readyz(State(health): State<Health>) -> Result<&'static str, (StatusCode, String)> {
    match (health.ready)().await {
        Ok(()) => Ok("ready\n"),
        Err(why) => Err((StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"))),
    }
}

/// What the API answers before there is one: 503 with the reason, and when to ask again.
async fn starting(State(health): State<Health>) -> Response {
    let why = (health.ready)().await.err().unwrap_or_else(|| "its store is being opened".to_owned());
    let body = Json(json!({ "error": format!("this scheduler is starting: {why}; try again") }));
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, RETRY_AFTER)], body).into_response()
}

async fn render(State(health): State<Health>) -> ([(header::HeaderName, &'static str); 1], String) {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], health.metrics.render())
}
