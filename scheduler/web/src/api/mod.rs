//! The HTTP API: the operations for operators, scripts and the command line, under `/api/v1`, and health and metrics
//! beside it.
//!
//! Handlers translate: they read a request strictly, call [`Ops`](scheduler::ops::Ops) or the store, and answer with a shape
//! of [`wire`](scheduler::wire). They decide nothing about polling.

pub(crate) mod audit;
pub(crate) mod bulk;
pub(crate) mod change;
pub(crate) mod config;
mod entries;
mod events;
pub(crate) mod feeds;
pub(crate) mod fleet;
pub(crate) mod guard;
pub(crate) mod hosts;
mod hub;
mod openapi;
mod pings;
pub(crate) mod requeue;
mod river;
pub(crate) mod scope;
pub(crate) mod subscriptions;
mod unread;
mod xml_rpc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn;
use axum::routing::{get, post};
use common::bot_auth::DIRECTORY_PATH;

use crate::push;
use crate::routes::Routes;
use crate::state::Api;

/// What every path of the API begins with.
pub(crate) const PREFIX: &str = "/api/v1";

/// Returns the API's routes, and those of pings, health and metrics.
pub(crate) fn routes() -> Router<Api> {
    Router::new().nest(PREFIX, versioned().router.route_layer(from_fn(unread::refuse))).merge(outer().router)
}

/// Paths that are described beside the API's own.
pub(crate) fn outer() -> Routes<Api> {
    Routes::default()
        .route("/openapi.json", get(openapi::document))
        .route("/entries.atom", get(river::atom))
        .route("/entries.json", get(river::json))
        .route("/ping", post(pings::ping).layer(DefaultBodyLimit::max(pings::MAX_BYTES)))
        .route("/RPC2", post(pings::rpc).layer(DefaultBodyLimit::max(pings::MAX_BYTES)))
        .route("/hub", post(hub::request).layer(DefaultBodyLimit::max(hub::MAX_BYTES)))
        .route("/websub/{token}", get(push::verify).post(push::deliver).layer(DefaultBodyLimit::disable()))
        .route("/rsscloud/{token}", get(push::challenge).post(push::notify))
        .route("/healthz", get(fleet::healthz))
        .route("/readyz", get(fleet::readyz))
        .route("/readyz/api", get(fleet::readyz_api))
        .route("/metrics", get(fleet::metrics))
        .route(DIRECTORY_PATH, get(fleet::keys))
}

/// Paths below [`PREFIX`].
pub(crate) fn versioned() -> Routes<Api> {
    Routes::default()
        .route("/feeds", get(feeds::list).post(feeds::add))
        .route("/feeds/bulk", post(bulk::bulk).layer(DefaultBodyLimit::max(bulk::MAX_BYTES)))
        .route("/feeds/lookup", get(feeds::lookup))
        .route("/feeds/{id}", get(feeds::show).patch(feeds::change).delete(feeds::erase))
        .route("/feeds/{id}/explain", get(feeds::explain))
        .route("/feeds/{id}/history", get(feeds::history))
        .route("/feeds/{id}/entries", get(entries::of_feed))
        .route("/feeds/{id}/pause", post(feeds::pause))
        .route("/feeds/{id}/resume", post(feeds::resume))
        .route("/feeds/{id}/refresh", post(feeds::refresh))
        .route("/feeds/{id}/forget", post(feeds::forget))
        .route("/feeds/{id}/backfill", post(feeds::backfill))
        .route("/feeds/{id}/unmove", post(feeds::unmove))
        .route("/entries", get(entries::all))
        .route("/entries/lookup", get(entries::lookup))
        .route("/entries/{seq}", get(entries::show))
        .route("/events", get(events::events))
        .route("/events/stream", get(events::stream))
        .route("/config", get(config::show))
        .route("/config/reload", post(config::reload))
        .route("/fleet/pause", post(fleet::pause))
        .route("/fleet/resume", post(fleet::resume))
        .route("/hosts", get(hosts::list))
        .route("/hosts/{host}", get(hosts::show).put(hosts::set).delete(hosts::remove))
        .route("/hosts/{host}/block", post(hosts::block))
        .route("/hosts/{host}/unblock", post(hosts::unblock))
        .route("/push/check", post(push::check_reach))
        .route("/requeue", get(requeue::list).post(requeue::begin))
        .route("/requeue/{id}", get(requeue::show))
        .route("/requeue/{id}/cancel", post(requeue::cancel))
        .route("/subscriptions", get(subscriptions::list).post(subscriptions::add))
        .route(
            "/subscriptions/{id}",
            get(subscriptions::show).patch(subscriptions::change).delete(subscriptions::remove),
        )
        .route("/subscriptions/{id}/pause", post(subscriptions::pause))
        .route("/subscriptions/{id}/resume", post(subscriptions::resume))
        .route("/subscriptions/{id}/replay", post(subscriptions::replay))
        .route("/subscriptions/{id}/deliveries", get(subscriptions::deliveries))
        .route("/stats", get(fleet::stats))
}

#[cfg(test)]
mod login_tests;
#[cfg(test)]
mod tests;
