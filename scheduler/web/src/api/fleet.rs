//! The fleet as a whole: pause and resume, numbers, health.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use common::bot_auth::DIRECTORY_TYPE;
use serde_json::{Value, json};

use super::to_the_end;
use crate::error::ApiError;
use crate::state::Api;
use scheduler::wire::StatsView;

/// `POST /fleet/pause`
pub(super) async fn pause(State(api): State<Api>) -> Result<Json<Value>, ApiError> {
    set_paused(api, true).await
}

/// `POST /fleet/resume`
pub(super) async fn resume(State(api): State<Api>) -> Result<Json<Value>, ApiError> {
    set_paused(api, false).await
}

async fn set_paused(api: Api, paused: bool) -> Result<Json<Value>, ApiError> {
    to_the_end(async move { api.ops.set_paused(paused).await }).await?;
    Ok(Json(json!({ "paused": paused })))
}

/// `GET /stats`
pub(super) async fn stats(State(api): State<Api>) -> Result<Json<StatsView>, ApiError> {
    let now = api.ops.clock.now();
    let store = api.ops.store.stats(now).await?;
    let depth = api.ops.schedule.depth(now).await.map_err(scheduler::ops::OpsError::from)?;
    let paused = api.ops.store.paused().await?;
    let our_fault_since = api.ops.our_fault.since();
    Ok(Json(StatsView { our_fault_since, ..StatsView::of(&store, &depth, &api.ops.price, paused, now) }))
}

/// `GET /healthz`: the process answers. Says nothing of what it depends on.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// `GET /readyz`: everything that it depends on answers too.
pub(super) async fn readyz(State(api): State<Api>) -> Result<Json<Value>, ApiError> {
    let not_ready = |what: &str, error: &dyn std::fmt::Display| {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, format!("{what}: {error}"))
    };
    let clock = &*api.ops.clock;
    api.ops.store.check(clock.now()).await.map_err(|error| not_ready("the store is not usable", &error))?;
    api.ops.schedule.check(clock).await.map_err(|error| not_ready("the schedule is not usable", &error))?;
    api.ops.gate.check(clock).await.map_err(|error| not_ready("the host gate is not usable", &error))?;
    api.ops.jobs.check().await.map_err(|error| not_ready("the queue is not usable", &error))?;
    if api.ops.quiet.is_cancelled() {
        return Err(not_ready("this scheduler", &"it is stopping"));
    }
    if let Some(why) = api.ops.storing.trouble() {
        return Err(not_ready("reports cannot be stored, and nothing more is fetched meanwhile", &why));
    }
    Ok(Json(json!({ "ready": true })))
}

/// `GET /metrics`
pub(super) async fn metrics(State(api): State<Api>) -> ([(HeaderName, &'static str); 1], String) {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], api.ops.metrics.render())
}

/// `GET /.well-known/http-message-signatures-directory`: the public half of the key that requests are signed with, signed.
pub(super) async fn keys(State(api): State<Api>) -> Response {
    let Some(key) = &api.ops.bot_key else {
        return ([(header::CONTENT_TYPE, DIRECTORY_TYPE)], "{\"keys\":[]}").into_response();
    };
    let signed = key.sign_directory(api.ops.clock.now());
    // Put in, not added: a text has a type of its own.
    let headers = [
        (header::CONTENT_TYPE, DIRECTORY_TYPE.to_owned()),
        (header::CACHE_CONTROL, "max-age=60".to_owned()),
        (HeaderName::from_static("signature-input"), signed.input),
        (HeaderName::from_static("signature"), signed.signature),
    ];
    (headers, key.directory()).into_response()
}
