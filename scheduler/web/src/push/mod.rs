//! Where hubs and clouds reach this fleet: `/websub/{token}` and `/rsscloud/{token}`, open to all callers. The token is
//! the unguessable id of a subscription, and what is sent there is judged by
//! [`Callbacks`](scheduler::push::callback::Callbacks).

#[cfg(test)]
mod tests;

use std::time::Duration;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, Query, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use common::push::PushKind;
use scheduler::push::callback::{MAX_BODY_BYTES, PushDelivery, Taken, Verification, Verified};
use scheduler::push::check::{self, PushCheck};

use crate::api::change::run_to_completion;
use crate::error::ApiError;
use crate::state::{Api, State};

/// Bytes of a notification: one address.
const MAX_FORM_BYTES: usize = 16 * 1024;
/// How long a body may take.
const BODY_WITHIN: Duration = Duration::from_secs(10);
/// When a delivery that found no room is to be sent again.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("10");

type Pairs = Vec<(String, String)>;

fn value(pairs: &[(String, String)], name: &str) -> String {
    let found = pairs.iter().find(|(given, _)| given == name);
    found.map(|(_, value)| value.clone()).unwrap_or_default()
}

/// `POST /push/check`: whether hubs can reach this fleet.
pub(crate) async fn check_reach(State(api): State<Api>) -> Json<PushCheck> {
    Json(check::check_reach(&api.ops).await)
}

/// `GET /websub/{token}`: a hub verifies a request, or refuses it.
pub(crate) async fn verify(
    State(api): State<Api>,
    Path(token): Path<String>,
    Query(query): Query<Pairs>,
) -> Result<Response, ApiError> {
    let asked = Verification {
        mode: value(&query, "hub.mode"),
        topic: value(&query, "hub.topic"),
        challenge: value(&query, "hub.challenge"),
        lease_seconds: value(&query, "hub.lease_seconds").parse().ok(),
        reason: value(&query, "hub.reason"),
    };
    let callbacks = api.callbacks.clone();
    Ok(match run_to_completion(async move { callbacks.verify(&token, &asked).await }).await? {
        Verified::Challenge(challenge) => plain(challenge),
        Verified::Noted => StatusCode::OK.into_response(),
        Verified::Refused => (StatusCode::NOT_FOUND, "nothing waits for this verification").into_response(),
    })
}

/// `POST /websub/{token}`: a hub delivers.
pub(crate) async fn deliver(
    State(api): State<Api>,
    Path(token): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    if token == check::TOKEN {
        return Ok(plain(format!("{}\n", check::REACHED)));
    }
    let callbacks = api.callbacks.clone();
    let admitted = match callbacks.admit(&token, PushKind::WebSub).await? {
        Ok(admitted) => admitted,
        Err(refused) => return Ok(answer(refused)),
    };
    let (head, body) = request.into_parts();
    let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let delivery = PushDelivery {
        signature: text("x-hub-signature"),
        content_type: text(header::CONTENT_TYPE.as_str()),
        is_encoded: head.headers.contains_key(header::CONTENT_ENCODING),
        topic: topic(&head.headers),
        body: in_time(whole(body)).await??,
    };
    Ok(answer(run_to_completion(async move { callbacks.deliver(admitted, delivery).await }).await?))
}

/// A body that comes too slowly delays others.
async fn in_time<T>(body: impl Future<Output = T>) -> Result<T, ApiError> {
    let late = |_| ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time");
    tokio::time::timeout(BODY_WITHIN, body).await.map_err(late)
}

/// Returns the body, or `None` if it is too large. One that breaks off is not a delivery: the hub sends it again.
async fn whole(body: Body) -> Result<Option<Vec<u8>>, ApiError> {
    use axum::body::HttpBody;
    let announced = body.size_hint().lower();
    if announced > MAX_BODY_BYTES as u64 {
        return Ok(None);
    }
    match to_bytes(body, MAX_BODY_BYTES).await {
        Ok(bytes) => Ok(Some(bytes.into())),
        Err(error) => {
            let is_too_large =
                std::iter::successors(Some(&error as &(dyn std::error::Error + 'static)), |error| error.source())
                    .any(|error| error.to_string().contains("length limit"));
            if is_too_large { Ok(None) } else { Err(ApiError::bad("the body broke off before its end")) }
        }
    }
}

/// Returns the topic that a delivery names (`Link`, `rel=self`).
fn topic(headers: &HeaderMap) -> Option<String> {
    let links = headers.get_all(header::LINK).iter().filter_map(|value| value.to_str().ok());
    let mut links = links.flat_map(|field| field.split('<').skip(1));
    links.find_map(|link| {
        let (target, parameters) = link.split_once('>')?;
        let parameters = parameters.to_ascii_lowercase().replace([' ', '"'], "");
        let is_own = parameters.split([';', ',']).any(|parameter| parameter == "rel=self");
        is_own.then(|| target.trim().to_owned())
    })
}

/// `GET /rsscloud/{token}`: a cloud checks a registration.
pub(crate) async fn challenge(
    State(api): State<Api>,
    Path(token): Path<String>,
    Query(query): Query<Pairs>,
) -> Result<Response, ApiError> {
    let (url, challenge) = (value(&query, "url"), value(&query, "challenge"));
    let callbacks = api.callbacks.clone();
    let echoed = run_to_completion(async move { callbacks.challenge(&token, &url, &challenge).await }).await?;
    let refused = || (StatusCode::NOT_FOUND, "no registration waits for this challenge").into_response();
    Ok(echoed.map_or_else(refused, plain))
}

/// `POST /rsscloud/{token}`: a cloud says that a feed changed.
pub(crate) async fn notify(
    State(api): State<Api>,
    Path(token): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let callbacks = api.callbacks.clone();
    let admitted = match callbacks.admit(&token, PushKind::RssCloud).await? {
        Ok(admitted) => admitted,
        Err(refused) => return Ok(answer(refused)),
    };
    let broken = |_| ApiError::bad("the body is too large or broke off before its end");
    let body = in_time(to_bytes(request.into_body(), MAX_FORM_BYTES)).await?.map_err(broken)?;
    let form: Pairs = form(&body);
    let url = value(&form, "url");
    Ok(answer(run_to_completion(async move { callbacks.notify(admitted, &url).await }).await?))
}

fn form(body: &[u8]) -> Pairs {
    let text = String::from_utf8_lossy(body);
    let decoded = |text: &str| {
        let spaced = text.replace('+', " ");
        percent_encoding::percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
    };
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        Some((decoded(name), decoded(value)))
    };
    text.split('&').filter_map(pair).collect()
}

fn answer(taken: Taken) -> Response {
    match taken {
        // The sender does not learn which of these it was.
        Taken::Accepted | Taken::Ignored => StatusCode::ACCEPTED.into_response(),
        Taken::Gone => (StatusCode::GONE, "nothing is subscribed under this address").into_response(),
        Taken::Busy => {
            (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, RETRY_AFTER)], "try again").into_response()
        }
    }
}

/// Returns a text that no browser takes for a page.
fn plain(text: String) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}
