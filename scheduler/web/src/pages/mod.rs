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
mod config;
#[cfg(test)]
mod console_tests;
mod docs;
mod doors;
mod feed;
mod files;
mod fleet;
mod form;
mod frame;
mod hosts;
mod lists;
mod live;
mod login;
#[cfg(test)]
mod login_tests;
mod outlook;
mod query;
mod requeues;
mod river;
mod search;
mod shown;
#[cfg(test)]
mod state_tests;
mod status;
#[cfg(test)]
mod tests;
mod words;

use std::sync::Arc;

use axum::Router;
use axum::extract::FromRef;
use axum::routing::{get, post};

use crate::state::Api;
use actions::Action;

pub(crate) use doors::door;
pub(crate) use frame::for_people;
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
        .route("/docs/api", get(docs::page))
        .route("/audit", get(audit::page))
        .route("/config", get(config::page))
        .route("/config/reload", post(config::reload))
        .merge(forms())
        .route("/login", get(login::page).post(login::log_in))
        .route("/logout", post(login::log_out))
        .route("/live", get(live::stream))
        .route("/assets/{name}", get(assets::asset))
        .with_state(Pages { api, live })
}

/// The forms that change something.
fn forms() -> Router<Pages> {
    let on_one = [
        Action::Refresh,
        Action::Pause,
        Action::Resume,
        Action::Forget,
        Action::Requeue,
        Action::Unmove,
        Action::Change,
        Action::Remove,
    ];
    let on_several = [
        Action::Refresh,
        Action::Pause,
        Action::Resume,
        Action::Requeue,
        Action::Label,
        Action::Unlabel,
        Action::Remove,
    ];
    let router = Router::new()
        .route("/fleet/pause", post(actions::pause_fleet))
        .route("/fleet/resume", post(actions::resume_fleet));
    let router = on_one.into_iter().fold(router, |router, action| {
        router.route(&format!("/feeds/{{id}}/{}", action.name()), post(actions::one(action)))
    });
    on_several.into_iter().fold(router, |router, action| {
        router.route(&format!("/feeds/{}", action.name()), post(actions::several(action)))
    })
}
