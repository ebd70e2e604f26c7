//! `/config`: the policy and the host rules in force, and reading the configuration again.

use askama::Template;
use axum::Extension;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;

use super::frame::{Frame, answer, see_other};
use super::query::encoded;
use super::words::{self, Moment};
use crate::api::audit::Who;
use crate::api::config;
use crate::error::ApiError;
use crate::request::Params;
use crate::state::{Api, State};
use scheduler::wire::ConfigView;

#[derive(Template)]
#[template(path = "pages/config.html")]
struct ConfigPage {
    frame: Frame,
    version: Option<i64>,
    accepted: Option<Moment>,
    by: String,
    refused: Option<String>,
    last_reload: Option<(Moment, Option<String>)>,
    sections: Vec<(&'static str, Vec<(String, String)>)>,
    done: Option<String>,
}

/// The parameters of `GET /config`: what a reload came to.
#[derive(Debug, Deserialize)]
pub(super) struct ConfigParams {
    reloaded: Option<String>,
    restart: Option<String>,
}

/// `GET /config`
pub(super) async fn page(
    State(api): State<Api>,
    frame: Frame,
    Params(params): Params<ConfigParams>,
) -> Result<Response, ApiError> {
    let view = ConfigView::of(&api.ops.condition.config.in_force());
    let now = frame.now;
    let restart = params.restart.filter(|keys| !keys.is_empty() && keys.len() < 500);
    let restart = restart.map_or_else(String::new, |keys| format!(" These keys need a restart: {keys}."));
    let done = match params.reloaded.as_deref() {
        Some("changed") => Some(format!("The configuration was read again and is in force.{restart}")),
        Some("tokens") => Some(format!(
            "The configuration was read again. Nothing in the sections below changed; the tokens of the API changed in this \
             scheduler.{restart}"
        )),
        Some("same") => Some(format!("The configuration was read again; nothing in it changed.{restart}")),
        _ => None,
    };
    let page = ConfigPage {
        version: view.version,
        accepted: view.accepted.map(|at| Moment::of(at, now)),
        by: view.accepted_by.unwrap_or_default(),
        refused: view.refused,
        last_reload: view.last_reload.map(|reload| (Moment::of(reload.at, now), reload.error)),
        sections: vec![
            ("policy", flat(&view.policy)),
            ("host", flat(&view.host)),
            ("host_rule", flat(&view.host_rule)),
        ],
        done,
        frame: frame.around("config"),
    };
    answer(StatusCode::OK, &page)
}

/// Every value with its key; those of tables inside of tables have keys with dots.
fn flat(section: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut open = vec![(String::new(), section)];
    while let Some((key, value)) = open.pop() {
        let inside = |name: &str| if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
        match value {
            Value::Object(fields) => open.extend(fields.iter().rev().map(|(name, value)| (inside(name), value))),
            Value::Array(items) if items.iter().any(Value::is_object) => {
                // Rules of hosts: by the host's name.
                let name = |index: usize, item: &Value| {
                    let host = item.get("match").and_then(Value::as_str).map(str::to_owned);
                    inside(&host.unwrap_or_else(|| (index + 1).to_string()))
                };
                open.extend(items.iter().enumerate().rev().map(|(index, item)| (name(index, item), item)));
            }
            Value::Array(items) if items.is_empty() => {}
            Value::Null => {}
            Value::String(text) => found.push((key, said(text))),
            other => found.push((key, other.to_string())),
        }
    }
    found
}

/// A duration as people write it, if that loses nothing; any other text as it is.
fn said(text: &str) -> String {
    let duration = humantime::parse_duration(text).ok();
    let words = duration.map(words::duration);
    words.filter(|words| humantime::parse_duration(words).ok() == duration).unwrap_or_else(|| text.to_owned())
}

/// `POST /config/reload`
pub(super) async fn reload(State(api): State<Api>, who: Extension<Who>) -> Result<Response, ApiError> {
    let axum::Json(view) = config::reload(State(api), who).await?;
    let what = match (view.changed, view.tokens) {
        (true, _) => "changed",
        (false, true) => "tokens",
        (false, false) => "same",
    };
    Ok(see_other(&format!("../config?reloaded={what}&restart={}", encoded(&view.needs_restart.join(", ")))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_said_in_words_that_lose_nothing() {
        let shown = ["2months 29days 2h 52m 48s", "1m", "1h 1m 1s", "0s", "off", "2000days"].map(said);
        assert_eq!(shown, ["90 d", "1 min", "1h 1m 1s", "0 s", "off", "2000days"]);
    }
}
