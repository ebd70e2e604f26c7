//! The form of a subscription: what it shows of one, and what it sends as the API reads it.

use std::time::Duration;

use common::time::Timestamp;
use serde_json::{Map, Value, json};

use super::form::{Fields, object};
use crate::error::ApiError;
use scheduler::delivery::view::SubscriptionView;

/// The conditions of a filter, under the names of the API.
const CONDITIONS: [&str; 8] = ["kind", "feed", "host", "label", "category", "language", "q", "part"];

/// What the form shows: fields and their values.
#[derive(Default)]
pub(super) struct Wanted(Vec<(&'static str, String)>);

impl Wanted {
    /// A subscription as it is.
    pub(super) fn of(view: &SubscriptionView) -> Self {
        let mut shown = Map::new();
        if let Ok(Value::Object(filter)) = serde_json::to_value(&view.filter) {
            shown.extend(filter);
        }
        let text = |name: &'static str| match shown.get(name)? {
            Value::String(text) => Some((name, text.clone())),
            other => Some((name, other.to_string())),
        };
        let mut fields: Vec<(&'static str, String)> = CONDITIONS.into_iter().filter_map(text).collect();
        let delay = Duration::try_from_secs_f64(view.delay).unwrap_or_default();
        fields.extend([
            ("target", view.target.clone()),
            ("format", view.format.as_str().to_owned()),
            ("batch", view.batch.to_string()),
            ("delay", common::duration::as_text(delay)),
        ]);
        Wanted(fields)
    }

    /// Returns the value of a field, or an empty text.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(field, _)| *field == name).map_or("", |(_, value)| value.as_str())
    }

    /// Returns whether a field has this value.
    pub(super) fn is(&self, name: &str, value: &str) -> bool {
        self.get(name) == value
    }
}

/// Reads what a new subscription is to be.
pub(super) fn added(sent: &Fields, now: Timestamp) -> Result<Map<String, Value>, ApiError> {
    let mut body = wish(sent)?;
    let secret = text(sent, "secret");
    // How to sign follows from one's own secret.
    let signature = if secret.is_none() { text(sent, "signature") } else { None };
    body.extend(object([("kind", Some(json!("webhook"))), ("secret", secret), ("signature", signature)]));
    body.extend(object(start(sent, now)?));
    Ok(body)
}

/// Reads what one is to be from now on: a condition that was left empty ends.
pub(super) fn changed(sent: &Fields) -> Result<Map<String, Value>, ApiError> {
    wish(sent)
}

/// Reads with which events to begin.
pub(super) fn start(sent: &Fields, now: Timestamp) -> Result<[(&'static str, Option<Value>); 2], ApiError> {
    let ago = sent.seconds("ago")?.map(Duration::try_from_secs_f64).transpose();
    let ago = ago.map_err(|_| ApiError::bad("ago must be a duration, such as 90s, 15m or 2h 30m"))?;
    let after = sent.get("after").map(|text| {
        text.parse::<i64>().map_err(|_| ApiError::bad("after must be the number of an event; 0 is the oldest"))
    });
    let after = after.transpose()?;
    Ok([("since", ago.map(|ago| json!(now.before(ago)))), ("after", after.map(|after| json!(after)))])
}

fn wish(sent: &Fields) -> Result<Map<String, Value>, ApiError> {
    let filter: Map<String, Value> =
        CONDITIONS.into_iter().filter_map(|name| Some((name.to_owned(), text(sent, name)?))).collect();
    Ok(object([
        ("target", text(sent, "target")),
        ("filter", Some(Value::Object(filter))),
        ("format", text(sent, "format")),
        ("batch", whole(sent, "batch")?),
        ("delay", sent.seconds("delay")?.map(|seconds| json!(seconds))),
    ]))
}

fn text(sent: &Fields, name: &str) -> Option<Value> {
    sent.get(name).map(|text| json!(text))
}

fn whole(sent: &Fields, name: &str) -> Result<Option<Value>, ApiError> {
    let accepted = |_| ApiError::bad(format!("{name} must be a whole number"));
    sent.get(name).map(|text| text.parse::<u32>().map(|number| json!(number)).map_err(accepted)).transpose()
}
