//! What is going on, as pages for people: rendered here, readable on a phone and without a script. Their forms end in the API's
//! handlers; a script only spares the reload.
//!
//! `doors` says which paths are for operators; `/status` is open to publishers and knows no private feed. Everything that
//! strangers wrote is escaped by the templates; should that fail one day, the policy that is sent along lets no script run but ours.

mod actions;
mod add;
mod advice;
mod assets;
mod audit;
mod charts;
mod columns;
mod config;
#[cfg(test)]
mod console_tests;
mod docs;
mod doors;
pub(crate) mod escaped;
mod feed;
mod files;
mod fleet;
mod form;
mod frame;
mod host_order;
#[cfg(test)]
mod host_tests;
mod hosts;
mod lists;
mod live;
mod login;
#[cfg(test)]
mod login_tests;
mod outlook;
mod paging;
#[cfg(test)]
mod paging_tests;
mod query;
mod requeues;
mod river;
mod search;
mod shown;
#[cfg(test)]
mod state_tests;
mod status;
mod subscription_form;
#[cfg(test)]
mod subscription_tests;
mod subscriptions;
#[cfg(test)]
mod tests;
mod waits;
mod words;

use std::sync::Arc;

use axum::Router;
use axum::extract::FromRef;
use axum::routing::{get, post};

use crate::routes::Routes;
use crate::state::Api;
use actions::Action;

pub(crate) use columns::is_reversed;
pub(crate) use doors::door;
pub(crate) use frame::for_people;
pub(crate) use live::{Live, watch};

/// What the pages' handlers work on.
#[derive(Clone)]
pub(crate) struct Pages {
    api: Api,
    live: Arc<Live>,
    script: Arc<docs::Script>,
}

impl FromRef<Pages> for Arc<docs::Script> {
    fn from_ref(pages: &Pages) -> Self {
        pages.script.clone()
    }
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
    served().router.with_state(Pages { api, live, script: Arc::default() })
}

/// The pages and their forms.
pub(crate) fn served() -> Routes<Pages> {
    let pages = Routes::default()
        .route("/", get(fleet::page))
        .route("/entries", get(river::page))
        .route("/feeds", get(search::page))
        .route("/feeds/{id}", get(feed::page))
        .route("/status", get(status::page))
        .route("/feeds/add", get(add::page).post(add::add))
        .route("/feeds/import", post(add::import))
        .route("/hosts", get(hosts::list))
        .route("/hosts/{host}", get(hosts::page))
        .route("/hosts/{host}/block", post(hosts::block))
        .route("/hosts/{host}/unblock", post(hosts::unblock))
        .route("/hosts/{host}/rule", post(hosts::set_rule))
        .route("/hosts/{host}/remove-rule", post(hosts::remove_rule))
        .route("/requeues", get(requeues::page))
        .route("/requeues/plan", post(requeues::plan))
        .route("/requeues/start", post(requeues::start))
        .route("/requeues/{id}/cancel", post(requeues::cancel))
        .route("/subscriptions", get(subscriptions::list))
        .route("/subscriptions/add", post(subscriptions::add))
        .route("/subscriptions/{id}", get(subscriptions::page))
        .route("/subscriptions/{id}/pause", post(subscriptions::pause))
        .route("/subscriptions/{id}/resume", post(subscriptions::resume))
        .route("/subscriptions/{id}/rotate", post(subscriptions::rotate))
        .route("/subscriptions/{id}/change", post(subscriptions::change))
        .route("/subscriptions/{id}/replay", post(subscriptions::replay))
        .route("/subscriptions/{id}/remove", post(subscriptions::remove))
        .route("/docs/api", get(docs::page))
        .route("/audit", get(audit::page))
        .route("/config", get(config::page))
        .route("/config/reload", post(config::reload))
        .route("/fleet/pause", post(actions::pause_fleet))
        .route("/fleet/resume", post(actions::resume_fleet))
        .route("/login", get(login::page).post(login::log_in))
        .route("/logout", post(login::log_out))
        .route("/live", get(live::stream))
        .route("/assets/{name}", get(assets::asset));
    let of_one = |routes: Routes<Pages>, action: Action| {
        routes.route(&format!("/feeds/{{id}}/{}", action.name()), post(actions::one(action)))
    };
    let of_several = |routes: Routes<Pages>, action: Action| {
        routes.route(&format!("/feeds/{}", action.name()), post(actions::several(action)))
    };
    Action::OF_SEVERAL.into_iter().fold(Action::OF_ONE.into_iter().fold(pages, of_one), of_several)
}
