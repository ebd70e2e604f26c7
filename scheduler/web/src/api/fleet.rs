//! The fleet as a whole: pause and resume, numbers, health.

use axum::Json;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use common::bot_auth::DIRECTORY_TYPE;
use serde_json::{Value, json};

use super::change::run_to_completion;
use crate::error::ApiError;
use crate::readiness;
use crate::state::{Api, State};
use scheduler::wire::StatsView;

/// `POST /fleet/pause`
pub(crate) async fn pause(State(api): State<Api>) -> Result<Json<Value>, ApiError> {
    set_paused(api, true).await
}

/// `POST /fleet/resume`
pub(crate) async fn resume(State(api): State<Api>) -> Result<Json<Value>, ApiError> {
    set_paused(api, false).await
}

async fn set_paused(api: Api, paused: bool) -> Result<Json<Value>, ApiError> {
    run_to_completion(async move { api.ops.set_paused(paused).await }).await?;
    Ok(Json(json!({ "paused": paused })))
}

/// `GET /stats`
pub(crate) async fn stats(State(api): State<Api>) -> Result<Json<StatsView>, ApiError> {
    let now = api.ops.clock.now();
    let store = api.ops.store.stats(now).await?;
    let (depth, schedule_unavailable) = readiness::schedule_depth(&api.ops, now).await;
    let paused = api.ops.store.paused().await?;
    let condition = &api.ops.condition;
    let our_fault_since = condition.our_fault.since();
    let gate_closed = condition.gate.closed().map(|closed| closed.to_string());
    let view = StatsView::of(&store, &depth, &condition.price, paused, now);
    let policy_version = condition.config.in_force().accepted.map(|accepted| accepted.version);
    let queue_blocked = api.ops.jobs.blocked();
    let dispatch_stopped = readiness::dispatch_stopped(&api.ops);
    Ok(Json(StatsView {
        our_fault_since,
        gate_closed,
        queue_blocked,
        dispatch_stopped,
        policy_version,
        schedule_unavailable,
        ..view
    }))
}

/// `GET /healthz`: the process answers, and its watchdog has not found it stuck. Does not depend on any server.
pub(crate) async fn healthz(State(api): State<Api>) -> Result<&'static str, ApiError> {
    match api.ops.condition.watchdog.alarm() {
        None => Ok("ok\n"),
        Some(why) => Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, why)),
    }
}

/// `GET /readyz`: this scheduler can poll, because every server that it depends on answers, and the host gate is open. A refusal names
/// the root cause; so does an answer while a part of the gate is closed.
pub(crate) async fn readyz(State(api): State<Api>) -> Result<Json<Value>, ApiError> {
    let Json(mut ready) = shown(api.readiness.to_poll(&api.ops).await)?;
    if let Some(closed) = api.ops.condition.gate.closed() {
        ready["gate_closed"] = closed.to_string().into();
    }
    Ok(Json(ready))
}

/// `GET /readyz/api`: this scheduler can answer for the API and the pages.
pub(crate) async fn readyz_api(State(api): State<Api>) -> Result<Json<Value>, ApiError> {
    shown(api.readiness.to_answer(&api.ops).await)
}

fn shown(ready: Result<(), String>) -> Result<Json<Value>, ApiError> {
    ready.map_err(|why| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, why))?;
    Ok(Json(json!({ "ready": true })))
}

/// `GET /metrics`
pub(crate) async fn metrics(State(api): State<Api>) -> ([(HeaderName, &'static str); 1], String) {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], api.ops.metrics.render())
}

/// `GET /.well-known/http-message-signatures-directory`: the public half of the key that requests are signed with, signed.
pub(crate) async fn keys(State(api): State<Api>) -> Response {
    let Some(key) = &api.ops.bot_key else {
        return ([(header::CONTENT_TYPE, DIRECTORY_TYPE)], "{\"keys\":[]}").into_response();
    };
    let signed = key.sign_directory(api.ops.clock.now());
    // Put in, not added: a text already has a type.
    let headers = [
        (header::CONTENT_TYPE, DIRECTORY_TYPE.to_owned()),
        (header::CACHE_CONTROL, "max-age=60".to_owned()),
        (HeaderName::from_static("signature-input"), signed.input),
        (HeaderName::from_static("signature"), signed.signature),
    ];
    (headers, key.directory()).into_response()
}
