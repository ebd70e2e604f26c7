//! What a page's form sends.

use axum::Form;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde_json::{Map, Value};

use crate::error::ApiError;

/// The fields of a form, as browsers send them: each name any number of times, and what was left empty as well.
#[derive(Debug, Default)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    /// The field's text, unless it is empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let texts = self.0.iter().filter(|(field, _)| field == name).map(|(_, text)| text.trim());
        texts.into_iter().find(|text| !text.is_empty())
    }

    /// Every text of this name.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, text)| text.trim())
    }

    /// A box that is ticked.
    pub(super) fn is_ticked(&self, name: &str) -> bool {
        self.all(name).next().is_some()
    }

    /// The number in a field; `None` if it is empty.
    pub(super) fn number(&self, name: &str) -> Result<Option<f64>, ApiError> {
        let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
        let read = |text| number(text).ok_or_else(|| ApiError::bad(format!("{name} must be a number")));
        self.get(name).map(read).transpose()
    }

    /// The length of time in a field, such as `15m`, in seconds; `None` if it is empty.
    pub(super) fn seconds(&self, name: &str) -> Result<Option<f64>, ApiError> {
        let accepted = || ApiError::bad(format!("{name} must be a duration, such as 90s, 15m or 2h 30m"));
        let read = |text: &str| match humantime::parse_duration(text) {
            Ok(time) => Ok(time.as_secs_f64()),
            Err(_) => Err(accepted()),
        };
        self.get(name).map(read).transpose()
    }
}

impl<S: Send + Sync> FromRequest<S> for Fields {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let refused = |status: StatusCode| match status {
            StatusCode::PAYLOAD_TOO_LARGE => ApiError::new(status, "the form is too large; send less at once"),
            _ => {
                ApiError::bad("the form could not be read; send it from the page, as application/x-www-form-urlencoded")
            }
        };
        let form = Form::<Vec<(String, String)>>::from_request(request, state).await;
        form.map(|Form(fields)| Fields(fields)).map_err(|rejection| refused(rejection.into_response().status()))
    }
}

/// A JSON object of the fields that are there, for what the API reads.
pub(super) fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Map<String, Value> {
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}
