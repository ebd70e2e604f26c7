//! `/`: the fleet in numbers, charts and short lists, as it is now.

use std::sync::Arc;

use askama::Template;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::response::Response;

use super::frame::{Frame, answer};
use super::lists::{Lists, lists};
use super::live::Live;
use super::shown::Shown;
use super::{actions, charts};
use crate::error::ApiError;
use crate::request::Params;
use crate::state::{Api, State};
use serde::Deserialize;

#[derive(Template)]
#[template(path = "pages/fleet.html")]
struct FleetPage {
    frame: Frame,
    shown: Shown,
    lists: Lists,
    /// What was done just now.
    done: &'static str,
}

/// The parameters of `GET /`.
#[derive(Debug, Deserialize)]
pub(super) struct FleetParams {
    done: Option<String>,
}

impl FleetPage {
    fn text(&self, name: &str) -> &str {
        self.shown.texts.get(name).map_or("", String::as_str)
    }

    /// Something is wrong as long as this is not zero.
    fn warns(&self, name: &str) -> bool {
        self.text(name) != "0"
    }
}

/// `GET /`
pub(super) async fn page(
    State(api): State<Api>,
    frame: Frame,
    Shared(live): Shared<Arc<Live>>,
    Params(params): Params<FleetParams>,
) -> Result<Response, ApiError> {
    let shown = Shown::now(&api.ops, live.ring()).await?;
    let done = params.done.as_deref().and_then(|done| actions::said(done, false)).unwrap_or_default();
    let lists = {
        // Some entries are read with all their text.
        let _turn = api.console_turn().await?;
        lists(&api.ops, &shown).await?
    };
    answer(StatusCode::OK, &FleetPage { frame: frame.around("fleet"), shown, lists, done })
}
