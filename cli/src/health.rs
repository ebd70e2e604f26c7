//! What a process without an API still answers: whether it lives, whether it can do its work, and its numbers.

use std::future::Future;
use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::routing::get;
use common::metrics::Metrics;
use futures_util::future::BoxFuture;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Says why the process cannot do its work now, if it cannot.
type Readiness = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

#[derive(Clone)]
struct Health {
    ready: Readiness,
    metrics: Arc<Metrics>,
}

/// Answers `/healthz` (never depends on anything), `/readyz` (asks `ready`) and `/metrics` until `stop`.
pub(crate) async fn serve<F>(
    listener: TcpListener,
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
        .route("/metrics", get(render))
        .with_state(Health { ready, metrics });
    let stopped = async move { stop.cancelled().await };
    axum::serve(listener, paths).with_graceful_shutdown(stopped).await
}

async fn readyz(State(health): State<Health>) -> Result<&'static str, (StatusCode, String)> {
    match (health.ready)().await {
        Ok(()) => Ok("ready\n"),
        Err(why) => Err((StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"))),
    }
}

async fn render(State(health): State<Health>) -> ([(header::HeaderName, &'static str); 1], String) {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], health.metrics.render())
}
