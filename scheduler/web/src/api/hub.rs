//! The WebSub hub: `POST /hub`. Refusals are texts, as the specification requires (WebSub, section 5.1).

use axum::Form;
use axum::extract::{Extension, FromRequest, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use common::config::HubAccess;
use scheduler::ops;
use scheduler::ops::hub::{HubRefusal, HubRequest, check_secret};
use store::{ANONYMOUS, DeliveryFormat, IntentMode};

use super::audit::Who;
use super::change::run_to_completion;
use super::pings;
use crate::error::ApiError;
use crate::state::{Api, State};
use crate::visitors::Visitor;

/// Bytes of a request.
pub(super) const MAX_BYTES: usize = 16 * 1024;
/// Requests of a caller without a token within a minute.
const PER_MINUTE: u32 = 600;
/// Between two requests that could have been one, in seconds.
const BUSY: u64 = 60;

/// What a request says.
struct Fields(Vec<(String, String)>);

impl Fields {
    /// Returns the first value of a field that is not empty.
    fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(field, value)| field == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    }

    fn needed(&self, name: &str) -> Result<String, HubRefusal> {
        self.get(name).map(str::to_owned).ok_or_else(|| HubRefusal::Bad(format!("{name} is missing")))
    }

    /// Returns all values of these fields.
    fn all<'a>(&'a self, names: &'a [&str]) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(|(field, _)| names.contains(&field.as_str())).map(|(_, value)| value.as_str())
    }
}

/// `POST /hub`: 202 when the subscriber will be verified, 204 when a publisher was heard. Further parameters are
/// ignored.
pub(super) async fn request(
    State(api): State<Api>,
    Extension(who): Extension<Who>,
    caller: Visitor,
    request: Request,
) -> Result<Response, ApiError> {
    let access = api.ops.config.delivery.hub;
    if access == HubAccess::Off {
        return Ok(refusal(StatusCode::NOT_FOUND, "there is no WebSub hub here: delivery.hub is off"));
    }
    if access != HubAccess::Token
        && let Err(wait) = api.hub_callers.admit(caller, PER_MINUTE, api.ops.clock.now())
    {
        let message = format!("that is more than {PER_MINUTE} requests within a minute");
        return Ok(later(StatusCode::TOO_MANY_REQUESTS, &message, wait.as_secs().max(1)));
    }
    let fields = match Form::<Vec<(String, String)>>::from_request(request, &()).await {
        Ok(Form(fields)) => Fields(fields),
        Err(rejection) => return Ok(refusal(rejection.status(), &rejection.body_text())),
    };
    if fields.get("hub.mode") == Some("publish") {
        return published(&api, caller, &fields).await;
    }
    let by = if access == HubAccess::Token { who.0.to_string() } else { ANONYMOUS.to_owned() };
    let answered = match read(&fields, by) {
        Ok(wish) => {
            let ops = api.ops.clone();
            run_to_completion(async move { Ok::<_, ApiError>(ops::hub::accept(&ops, &wish).await) }).await?
        }
        Err(refused) => Err(refused),
    };
    match answered {
        Ok(()) => Ok(StatusCode::ACCEPTED.into_response()),
        Err(HubRefusal::Backend(error)) => Err(error.into()),
        Err(error @ HubRefusal::Bad(_)) => Ok(refusal(StatusCode::BAD_REQUEST, &error.to_string())),
        Err(error @ HubRefusal::Unknown(_)) => Ok(refusal(StatusCode::NOT_FOUND, &error.to_string())),
        Err(error @ HubRefusal::Paused) => Ok(refusal(StatusCode::FORBIDDEN, &error.to_string())),
        Err(HubRefusal::Busy { why, wait }) => {
            let message = HubRefusal::Busy { why, wait }.to_string();
            Ok(later(StatusCode::TOO_MANY_REQUESTS, &message, wait.as_secs().max(1)))
        }
        Err(error @ HubRefusal::Full) => Ok(later(StatusCode::SERVICE_UNAVAILABLE, &error.to_string(), BUSY)),
    }
}

fn read(fields: &Fields, by: String) -> Result<HubRequest, HubRefusal> {
    let mode = match fields.needed("hub.mode")?.as_str() {
        "subscribe" => IntentMode::Subscribe,
        "unsubscribe" => IntentMode::Unsubscribe,
        _ => return Err(HubRefusal::Bad("hub.mode must be subscribe, unsubscribe or publish".to_owned())),
    };
    let lease = fields.get("hub.lease_seconds").map(|text| {
        let wrong = |_| HubRefusal::Bad("hub.lease_seconds must be a whole number of seconds".to_owned());
        text.parse::<u64>().map_err(wrong)
    });
    let secret = fields.get("hub.secret").map(str::to_owned);
    if let Some(secret) = &secret {
        check_secret(secret)?;
    }
    let format = match fields.get("hub.format") {
        None | Some("atom") => DeliveryFormat::Atom,
        Some("json") => DeliveryFormat::JsonFeed,
        Some(_) => return Err(HubRefusal::Bad("hub.format must be atom or json".to_owned())),
    };
    let (topic, callback) = (fields.needed("hub.topic")?, fields.needed("hub.callback")?);
    if callback.contains(char::REPLACEMENT_CHARACTER) {
        return Err(HubRefusal::Bad("hub.callback must be UTF-8 text".to_owned()));
    }
    Ok(HubRequest { mode, topic, callback, lease: lease.transpose()?, secret, format, by })
}

/// Handles a publisher's announcement that feeds have something new: a ping.
async fn published(api: &Api, caller: Visitor, fields: &Fields) -> Result<Response, ApiError> {
    if let Some(refusal) = pings::too_often(api, caller) {
        return Ok(refusal);
    }
    let urls = pings::urls(fields.all(&["hub.url", "hub.topic"]));
    if urls.is_empty() {
        return Ok(refusal(StatusCode::BAD_REQUEST, "hub.url is missing; it must be the feed's address"));
    }
    pings::heard(api, "hub", &urls).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn refusal(status: StatusCode, why: &str) -> Response {
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], format!("{why}\n")).into_response()
}

fn later(status: StatusCode, why: &str, seconds: u64) -> Response {
    let mut response = refusal(status, why);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}
