//! What a scheduler shows over HTTP: the API for programs and the pages for people. Holds no loop and decides nothing
//! about polling. Both use the modules beside them, and the pages' forms end in the API's handlers: there is one way to
//! change something.

mod api;
mod compressed;
mod conditional;
mod cors;
mod draining;
mod error;
mod explain;
mod hardened;
#[cfg(test)]
mod label_tests;
pub mod listener;
mod listing;
pub mod opml;
mod pages;
mod push;
mod readiness;
mod reading;
mod recent;
mod request;
mod river;
#[cfg(test)]
mod route_tests;
mod routes;
mod sanitised;
mod serve;
mod session;
mod state;
mod streams;
#[cfg(test)]
mod testing;
mod turns;
mod until_sent;
mod visitors;
mod written;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
#[cfg(test)]
use scheduler::ops::Ops;
#[cfg(test)]
use tokio_util::sync::CancellationToken;

use api::guard::{self, Guard};
use error::ApiError;
use pages::Live;
use state::Api;

pub use serve::serve;

/// No response takes longer: a database that hangs must not collect callers.
const MAX_DURATION: Duration = Duration::from_secs(30);

/// Returns every path that is served. Streams end when `closing` is cancelled.
#[cfg(test)]
fn router(ops: Arc<Ops>, closing: CancellationToken) -> Router {
    composed(Api::new(ops, closing), Arc::default())
}

fn composed(api: Api, live: Arc<Live>) -> Router {
    let origins: cors::Origins = api.ops.config.api.allow_origins.as_slice().into();
    let drained = api.clone();
    let people = api.clone();
    let guard = Guard::new(api.clone(), pages::door);
    compressed::compressed(api::routes())
        .with_state(api.clone())
        .merge(pages::routes(api, live))
        .fallback(nowhere)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(request::MAX_BODY_BYTES))
        .layer(middleware::from_fn(in_time))
        // Around the limit of time: what took too long is recorded as such.
        .layer(middleware::from_fn_with_state(guard, guard::admit))
        .layer(middleware::from_fn_with_state(people, pages::for_people))
        // Browsers send a preflight before they send a token.
        .layer(middleware::from_fn_with_state(origins, cors::shared))
        .layer(middleware::from_fn_with_state(drained, draining::draining))
        .layer(middleware::from_fn(hardened::hardened))
}

/// Refuses every path that is not served.
async fn nowhere(uri: Uri) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, format!("nothing is served at {}", uri.path())).coded("unknown_path")
}

async fn wrong_method(request: Request) -> ApiError {
    let message = format!("{} does not take {}", request.uri().path(), request.method());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message)
}

async fn in_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(MAX_DURATION, next.run(request)).await {
        Ok(response) => response,
        Err(_) => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "this took too long; try again").into_response(),
    }
}
