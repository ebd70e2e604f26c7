//! `/`: the fleet in numbers, charts and short lists, as it is now.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::charts;
use super::frame::{Frame, Refusal, answer};
use super::lists::{Lists, frame, lists};
use super::live::Live;
use super::shown::Shown;
use crate::state::Api;

#[derive(Template)]
#[template(path = "pages/fleet.html")]
struct FleetPage {
    frame: Frame,
    shown: Shown,
    lists: Lists,
}

impl FleetPage {
    fn text(&self, name: &str) -> &str {
        self.shown.texts.get(name).map_or("", String::as_str)
    }
}

/// `GET /`
pub(super) async fn page(State(api): State<Api>, State(live): State<Arc<Live>>) -> Result<Response, Refusal> {
    let shown = Shown::now(&api.ops, live.ring()).await?;
    let (frame, lists) = (frame(shown.now), lists(&api.ops, &shown).await?);
    answer(StatusCode::OK, &FleetPage { frame, shown, lists })
}
