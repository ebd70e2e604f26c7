//! What is going on, as pages for people: rendered here, readable on a phone and without a script. They show; the buttons of
//! a feed's page call the API with the token that is typed there, and so changing is the API's business alone.
//!
//! `/`, `/entries`, `/feeds`, `/feeds/{id}` and `/live` are for operators; `/status` is open to publishers and knows no private feed.
//! Everything that strangers wrote is escaped by the templates; should that fail one day, the policy that is sent along lets
//! no script run but ours.

mod advice;
mod assets;
mod charts;
mod feed;
mod files;
mod fleet;
mod frame;
mod lists;
mod live;
mod outlook;
mod river;
mod search;
mod shown;
mod status;
#[cfg(test)]
mod tests;
mod words;

use std::sync::Arc;

use axum::Router;
use axum::extract::FromRef;
use axum::routing::get;

use crate::state::Api;

pub(crate) use live::{Live, watch};

/// What the pages' handlers work on.
#[derive(Clone)]
pub(crate) struct Pages {
    api: Api,
    live: Arc<Live>,
}

impl FromRef<Pages> for Api {
    fn from_ref(pages: &Pages) -> Self {
        pages.api.clone()
    }
}

impl FromRef<Pages> for Arc<Live> {
    fn from_ref(pages: &Pages) -> Self {
        pages.live.clone()
    }
}

/// Returns the routes of all pages.
pub(crate) fn routes(api: Api, live: Arc<Live>) -> Router {
    Router::new()
        .route("/", get(fleet::page))
        .route("/entries", get(river::page))
        .route("/feeds", get(search::page))
        .route("/feeds/{id}", get(feed::page))
        .route("/status", get(status::page))
        .route("/live", get(live::stream))
        .route("/assets/{name}", get(assets::asset))
        .with_state(Pages { api, live })
}

/// Is it one of the pages that show everything? They are opened as the API is, or by a browser's login.
pub(crate) fn is_for_operators(path: &str) -> bool {
    matches!(path, "/" | "/entries" | "/entries.atom" | "/entries.json" | "/feeds" | "/live")
        || path.starts_with("/feeds/")
}
