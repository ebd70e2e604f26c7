//! What a process without an API still answers: whether it is alive, whether it can do its work, and its metrics.

use std::future::Future;
use std::io;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use common::metrics::Metrics;
use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use web::listener::{self, Limits};

/// The maximum number of connections, of one address too: few callers request health and metrics.
pub(crate) const CONNECTIONS: usize = 64;

/// Says why the process cannot do its work now, if it cannot.
type Readiness = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// The kind of process that answers, and so what its other paths mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Has no API: nothing else is served.
    Worker,
    /// Will have an API as soon as its store is open.
    StartingScheduler,
}

/// Seconds after which a client of a starting scheduler may retry.
const RETRY_AFTER: &str = "5";

#[derive(Clone)]
struct Health {
    ready: Readiness,
    metrics: Arc<Metrics>,
}

/// Answers `/healthz` (never depends on anything), `/readyz` (calls `ready`) and `/metrics` until `stop`.
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

/// Returns what the API and the pages answer before there are any: 503 with the reason, and when to retry.
async fn starting(State(health): State<Health>, asked: HeaderMap) -> Response {
    let why = (health.ready)().await.err().unwrap_or_else(|| "its store is being opened".to_owned());
    let accepted = asked.get(header::ACCEPT).and_then(|accepted| accepted.to_str().ok()).unwrap_or_default();
    let body = if accepted.contains("text/html") {
        Html(starting_page(&why)).into_response()
    } else {
        Json(json!({ "error": format!("this scheduler is starting: {why}; try again") })).into_response()
    };
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, RETRY_AFTER)], body).into_response()
}

/// Returns a page for browsers, without the styles and the script, which are not served yet.
fn starting_page(why: &str) -> String {
    let why = why.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Starting · feedfleet</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><meta name=\"color-scheme\" content=\"light dark\">\
         </head><body><main><h1>This scheduler is starting</h1><p>{why}</p><p>Reload this page in a few seconds.</p></main>\
         </body></html>"
    )
}

async fn render(State(health): State<Health>) -> ([(header::HeaderName, &'static str); 1], String) {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], health.metrics.render())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_starting_scheduler_shows_browsers_a_page_with_the_reason_and_programs_json() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/feeds", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let ready = || async { Err("migrating <feeds> & entries".to_owned()) };
        let metrics = Arc::new(Metrics::new());
        let serving = tokio::spawn(serve(listener, Role::StartingScheduler, metrics, ready, stop.clone()));
        let ask = async |accept: &str| {
            let request = reqwest::Client::new().get(&address).header(header::ACCEPT.as_str(), accept);
            let answer = request.send().await.unwrap();
            let field = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
            let (retry, media_type) = (field("retry-after"), field("content-type"));
            (answer.status().as_u16(), retry, media_type, answer.text().await.unwrap())
        };
        let (status, retry, media_type, page) = ask("text/html,application/xhtml+xml,*/*;q=0.8").await;
        assert_eq!((status, retry.as_str(), media_type.as_str()), (503, RETRY_AFTER, "text/html; charset=utf-8"));
        assert!(page.contains("<p>migrating &lt;feeds&gt; &amp; entries</p>"), "{page}");
        let (status, _, media_type, body) = ask("application/json").await;
        assert_eq!((status, media_type.as_str()), (503, "application/json"));
        assert!(body.contains("this scheduler is starting: migrating <feeds> & entries; try again"), "{body}");
        stop.cancel();
        serving.await.unwrap().unwrap();
    }
}
