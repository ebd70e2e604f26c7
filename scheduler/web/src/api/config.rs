//! The configuration in force, and reading it again.

use axum::http::StatusCode;
use axum::{Extension, Json};

use super::audit::Who;
use super::change::run_to_completion;
use crate::error::ApiError;
use crate::state::{Api, State};
use scheduler::ops::config::{self, ReloadError};
use scheduler::wire::{ConfigView, ReloadView};

/// `GET /config`
pub(crate) async fn show(State(api): State<Api>) -> Json<ConfigView> {
    Json(ConfigView::of(&api.ops.condition.config.in_force()))
}

/// `POST /config/reload`
pub(crate) async fn reload(
    State(api): State<Api>,
    Extension(Who(who)): Extension<Who>,
) -> Result<Json<ReloadView>, ApiError> {
    let ops = api.ops.clone();
    let reloaded = run_to_completion(async move { config::reload(&ops, &who).await }).await?;
    Ok(Json(ReloadView::of(reloaded)))
}

impl From<ReloadError> for ApiError {
    fn from(error: ReloadError) -> Self {
        match error {
            ReloadError::Backend(error) => error.into(),
            refused @ (ReloadError::NoSource | ReloadError::Refused(_)) => {
                ApiError::new(StatusCode::CONFLICT, refused.to_string())
            }
        }
    }
}
