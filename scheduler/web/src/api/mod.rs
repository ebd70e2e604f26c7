//! The HTTP API: what operators, scripts and the command line ask of a fleet, under `/api/v1`, and health and metrics
//! beside it.
//!
//! Handlers translate: they read a request strictly, call [`Ops`] or the store, and answer with a shape of [`view`]. They
//! decide nothing about polling.

mod audit;
mod bulk;
mod entries;
pub(crate) mod error;
mod events;
pub(crate) mod explain;
pub(crate) mod feeds;
mod fleet;
mod guard;
mod hardened;
pub mod hosts;
mod openapi;
mod pings;
pub(crate) mod request;
pub mod requeue;
mod sanitised;
mod streams;
pub(crate) mod visitors;
mod xml_rpc;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use common::bot_auth::DIRECTORY_PATH;
use common::feed::Feed;
use common::url::FeedId;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::pages::{self, Live};
use error::ApiError;
use scheduler::events::follow::Tail;
use scheduler::ops::Ops;
use scheduler::ops::pings::Pings;
use scheduler::wire::FeedView;
use store::FeedRef;
use streams::Streams;
use visitors::Visitors;

/// Bytes of a request's body: a feed's fields are far smaller.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// No answer takes longer; a database that hangs must not collect callers.
const MAX_DURATION: Duration = Duration::from_secs(30);

/// How long a stop waits for callers: one that connected and never finished its request must not hold it up.
const DRAIN: Duration = Duration::from_secs(2);

/// What every handler works on.
#[derive(Clone)]
pub(crate) struct Api {
    /// The operations.
    pub(crate) ops: Arc<Ops>,
    /// What the fleet's page shows of the last half hour.
    pub(crate) live: Arc<Live>,
    /// Who asked for the publisher's page.
    pub(crate) publishers: Arc<Visitors>,
    pings: Pings,
    visitors: Arc<Visitors>,
    tail: Arc<Tail>,
    streams: Arc<Streams>,
    /// Pages of entries that are being sanitised: as many as cores, so that other requests are answered meanwhile.
    sanitisers: Arc<Semaphore>,
}

impl Api {
    /// The feed, or 404.
    pub(crate) async fn feed(&self, id: FeedId) -> Result<Feed, ApiError> {
        self.ops.feed(&FeedRef::Id(id)).await?.ok_or_else(|| ApiError::no_feed(id))
    }

    pub(crate) fn view(&self, feed: Feed) -> FeedView {
        FeedView::of(feed, &self.ops.rules.get())
    }
}

/// Serves until `shutdown`; requests under way are then finished, as far as two seconds allows.
pub async fn serve(listener: TcpListener, ops: Arc<Ops>, shutdown: CancellationToken) -> io::Result<()> {
    let (stopped, live) = (shutdown.clone(), Arc::new(Live::default()));
    let unwatched = shutdown.child_token();
    let _watched_while_served = unwatched.clone().drop_guard();
    tokio::spawn(pages::watch(live.clone(), ops.clone(), unwatched));
    let service = routed(ops, live).into_make_service_with_connect_info::<SocketAddr>();
    let server = axum::serve(listener, service).with_graceful_shutdown(async move { stopped.cancelled().await });
    let out_of_patience = async {
        shutdown.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        served = server => served,
        () = out_of_patience => Ok(()),
    }
}

/// Every path that is served.
pub fn router(ops: Arc<Ops>) -> Router {
    routed(ops, Arc::default())
}

fn routed(ops: Arc<Ops>, live: Arc<Live>) -> Router {
    let tokens = ops.config.api.tokens.clone().into();
    let tail = Arc::new(Tail::of(ops.store.clone()));
    let streams = Arc::new(Streams::new(ops.quiet.clone()));
    Router::new()
        .nest("/api/v1", api_paths())
        .route("/", get(pages::fleet))
        .route("/openapi.json", get(openapi::document))
        .route("/ping", post(pings::ping).layer(DefaultBodyLimit::max(pings::MAX_BYTES)))
        .route("/RPC2", post(pings::rpc).layer(DefaultBodyLimit::max(pings::MAX_BYTES)))
        .route("/healthz", get(fleet::healthz))
        .route("/readyz", get(fleet::readyz))
        .route("/metrics", get(fleet::metrics))
        .route(DIRECTORY_PATH, get(fleet::keys))
        .merge(pages::routes())
        .fallback(feeds::nowhere)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn(in_time))
        // Around the limit of time: what took too long is recorded as such.
        .layer(middleware::from_fn_with_state(tokens, guard::admit))
        .layer(middleware::from_fn(hardened::hardened))
        .with_state(Api {
            pings: Pings::new(ops.clone()),
            ops,
            live,
            publishers: Arc::default(),
            visitors: Arc::default(),
            tail,
            streams,
            sanitisers: Arc::new(Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from))),
        })
}

fn api_paths() -> Router<Api> {
    Router::new()
        .route("/feeds", get(feeds::list).post(feeds::add))
        .route("/feeds/bulk", post(bulk::bulk).layer(DefaultBodyLimit::max(bulk::MAX_BYTES)))
        .route("/feeds/lookup", get(feeds::lookup))
        .route("/feeds/{id}", get(feeds::show).patch(feeds::change).delete(feeds::erase))
        .route("/feeds/{id}/explain", get(explain::explain))
        .route("/feeds/{id}/history", get(feeds::history))
        .route("/feeds/{id}/entries", get(entries::of_feed))
        .route("/feeds/{id}/pause", post(feeds::pause))
        .route("/feeds/{id}/resume", post(feeds::resume))
        .route("/feeds/{id}/refresh", post(feeds::refresh))
        .route("/feeds/{id}/forget", post(feeds::forget))
        .route("/feeds/{id}/unmove", post(feeds::unmove))
        .route("/entries", get(entries::all))
        .route("/events", get(events::events))
        .route("/fleet/pause", post(fleet::pause))
        .route("/fleet/resume", post(fleet::resume))
        .route("/hosts", get(hosts::list))
        .route("/hosts/{host}", get(hosts::show).put(hosts::set).delete(hosts::remove))
        .route("/hosts/{host}/block", post(hosts::block))
        .route("/hosts/{host}/unblock", post(hosts::unblock))
        .route("/requeue", get(requeue::list).post(requeue::begin))
        .route("/requeue/{id}", get(requeue::show))
        .route("/requeue/{id}/cancel", post(requeue::cancel))
        .route("/stats", get(fleet::stats))
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

/// Runs a change to its end even when the caller hangs up half way: store and schedule are written one after the other.
async fn to_the_end<T: Send + 'static, E: Into<ApiError> + Send + 'static>(
    change: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, ApiError> {
    match tokio::spawn(change).await {
        Ok(result) => result.map_err(Into::into),
        Err(_) => Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the change failed half way; look at the log")),
    }
}

#[cfg(test)]
mod login_tests;
#[cfg(test)]
pub(crate) mod tests;
