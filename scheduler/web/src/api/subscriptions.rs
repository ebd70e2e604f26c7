//! Subscriptions: targets that events are sent to, and the outcomes of deliveries.

use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use common::webhook::{SignatureKind, WebhookSecret};
use scheduler::delivery::view::SubscriptionView;
use scheduler::ops;
use scheduler::ops::subscriptions::{EditSubscription, From, SubscriptionError, WantedSecret};
use scheduler::wire::List;
use serde::Deserialize;
use serde_json::{Map, Value};
use store::subscriptions::{MOST_BATCH, MOST_SUBSCRIPTIONS};
use store::{Delivery, DeliveryFormat, EventFilter, Subscription, SubscriptionKind, SubscriptionState, Wish};

use super::audit::{Subject, Who};
use super::change::run_to_completion;
use crate::error::ApiError;
use crate::listing::named;
use crate::reading::{Chosen, time};
use crate::request::{Accepts, Body, Params, explained, fields, limit, parsed};
use crate::state::{Api, State};

/// The default number of events of a request.
const BATCH: u32 = 100;
/// Seconds that an event may wait for others, at most.
const LONGEST_DELAY: f64 = 3600.0;

/// A subscription in a request.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SubscriptionBody {
    kind: Option<String>,
    target: Option<String>,
    filter: Option<Map<String, Value>>,
    format: Option<String>,
    batch: Option<u32>,
    delay: Option<f64>,
    secret: Option<String>,
    signature: Option<String>,
    after: Option<i64>,
    since: Option<String>,
}

impl Accepts for SubscriptionBody {
    fn accepts(field: &str) -> &'static str {
        match field {
            "filter" => "an object such as {\"label\": \"news\", \"kind\": \"entry.*\"}",
            "batch" => ACCEPTED_BATCH,
            "delay" => ACCEPTED_DELAY,
            "after" => "a seq: a whole number, 0 for the oldest event that is kept",
            _ => "text",
        }
    }
}

const ACCEPTED_BATCH: &str = "a number of events from 1 to 500";
const ACCEPTED_DELAY: &str = "from 0 s to 1 h; in JSON it is a number of seconds";

/// What is changed about one.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ChangeBody {
    target: Option<String>,
    filter: Option<Map<String, Value>>,
    format: Option<String>,
    batch: Option<u32>,
    delay: Option<f64>,
    secret: Option<String>,
}

impl Accepts for ChangeBody {
    fn accepts(field: &str) -> &'static str {
        SubscriptionBody::accepts(field)
    }
}

/// From where events are sent again.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ReplayBody {
    after: Option<i64>,
    since: Option<String>,
}

impl Accepts for ReplayBody {
    fn accepts(field: &str) -> &'static str {
        SubscriptionBody::accepts(field)
    }
}

/// Its filter, under the names of the parameters of `GET /events`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FilterBody {
    kind: Option<String>,
    feed: Option<Value>,
    host: Option<String>,
    label: Option<String>,
    category: Option<String>,
    language: Option<String>,
    q: Option<String>,
    part: Option<String>,
}

impl Accepts for FilterBody {
    fn accepts(field: &str) -> &'static str {
        if field == "feed" { "a feed's id or URL" } else { "text" }
    }
}

/// `GET /subscriptions`
pub(crate) async fn list(
    State(api): State<Api>,
    Params(params): Params<ListParams>,
) -> Result<Json<List<SubscriptionView>>, ApiError> {
    let limit = limit(params.limit.as_deref(), 100, 1000)?;
    let after = parsed("after", params.after.as_deref(), "the cursor that the page before returned")?.unwrap_or(0);
    let mut found = readable(&api, after, limit.saturating_add(1)).await?;
    let more = found.len() > limit as usize;
    found.truncate(limit as usize);
    let next = found.last().filter(|_| more).map(|last| last.id.to_string());
    Ok(Json(List { items: found.into_iter().map(|it| view(&api, it)).collect(), next }))
}

/// Subscriptions that are read at once: those of all callers.
const AT_ONCE: u32 = 500;

/// Returns all subscriptions that the caller may see.
pub(crate) async fn all(api: &Api) -> Result<Vec<Subscription>, ApiError> {
    readable(api, 0, u32::try_from(MOST_SUBSCRIPTIONS).unwrap_or(u32::MAX)).await
}

/// Returns subscriptions that the caller may see, at most `limit`. There are some thousands at most.
async fn readable(api: &Api, mut after: i64, limit: u32) -> Result<Vec<Subscription>, ApiError> {
    let mut found = Vec::new();
    while found.len() < limit as usize {
        // A short page may be followed by others: the store leaves out rows that this version cannot read.
        let page = api.ops.store.subscriptions(after, AT_ONCE).await?;
        let Some(last) = page.last() else { break };
        after = last.id;
        found.extend(page.into_iter().filter(|it| api.owns(it)));
    }
    found.truncate(limit as usize);
    Ok(found)
}

/// Returns the subscription, or 404, also for one that the caller may not see.
async fn found(api: &Api, id: i64) -> Result<Subscription, ApiError> {
    ops::subscriptions::find(&api.ops, id).await?.filter(|it| api.owns(it)).ok_or_else(|| unknown(id))
}

/// The parameters of the list.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ListParams {
    pub(crate) after: Option<String>,
    pub(crate) limit: Option<String>,
}

/// `POST /subscriptions`
pub(crate) async fn add(
    State(api): State<Api>,
    Extension(who): Extension<Who>,
    Body(body): Body<SubscriptionBody>,
) -> Result<Response, ApiError> {
    let view = added(&api, &who, body).await?;
    let place = [(header::LOCATION, format!("/api/v1/subscriptions/{}", view.id))];
    let subject = Extension(Subject(format!("subscriptions/{}", view.id)));
    Ok((StatusCode::CREATED, place, subject, Json(view)).into_response())
}

/// Adds a subscription; returns it with its secret.
pub(crate) async fn added(api: &Api, who: &Who, body: SubscriptionBody) -> Result<SubscriptionView, ApiError> {
    let kind = named("kind", body.kind.as_deref(), &[SubscriptionKind::Webhook], SubscriptionKind::as_str)?;
    let wish = Wish {
        kind: kind.ok_or_else(|| ApiError::bad("kind is missing; it must be webhook"))?,
        target: body.target.ok_or_else(|| ApiError::bad("target is missing; it must be a URL"))?,
        filter: filter(api, body.filter.unwrap_or_default()).await?,
        format: format(body.format.as_deref())?.unwrap_or(DeliveryFormat::Feedfleet),
        batch: batch(body.batch)?.unwrap_or(BATCH),
        delay: delay(body.delay)?.unwrap_or_default(),
    };
    let signature = named("signature", body.signature.as_deref(), &SignatureKind::ALL, SignatureKind::as_str)?;
    let secret = match (body.secret.as_deref(), signature) {
        (None, kind) => WantedSecret::Generated(kind.unwrap_or(SignatureKind::Hmac)),
        (Some(text), None) => WantedSecret::Given(secret(text)?),
        (Some(_), Some(_)) => {
            return Err(ApiError::bad("signature goes with a generated secret; leave one of them out"));
        }
    };
    let from = from(body.after, body.since.as_deref())?.unwrap_or(From::Now);
    let ops = api.ops.clone();
    let by = who.0.to_string();
    let added = async move { ops::subscriptions::add(&ops, wish, secret, from, &by).await.map_err(refused) };
    let (added, secret) = run_to_completion(added).await?;
    Ok(SubscriptionView { secret: Some(secret.reveal()), ..view(api, added) })
}

/// `GET /subscriptions/{id}`
pub(crate) async fn show(
    State(api): State<Api>,
    SubscriptionId(id): SubscriptionId,
) -> Result<Json<SubscriptionView>, ApiError> {
    let found = found(&api, id).await?;
    Ok(Json(view(&api, found)))
}

/// `PATCH /subscriptions/{id}`
pub(crate) async fn change(
    State(api): State<Api>,
    SubscriptionId(id): SubscriptionId,
    Body(body): Body<ChangeBody>,
) -> Result<Json<SubscriptionView>, ApiError> {
    let filter = match body.filter {
        Some(wanted) => Some(filter(&api, wanted).await?),
        None => None,
    };
    let (format, batch, delay) = (format(body.format.as_deref())?, batch(body.batch)?, delay(body.delay)?);
    let target = body.target;
    let changes = target.is_some() || filter.is_some() || format.is_some() || batch.is_some() || delay.is_some();
    let change = move |wish: &mut Wish| {
        wish.target = target.clone().unwrap_or_else(|| wish.target.clone());
        if let Some(filter) = &filter {
            // The limit of the token that added it stays, whichever caller changes it.
            let visible = wish.filter.visible.clone();
            wish.filter = EventFilter { visible, ..filter.clone() };
        }
        wish.format = format.unwrap_or(wish.format);
        wish.batch = batch.unwrap_or(wish.batch);
        wish.delay = delay.unwrap_or(wish.delay);
    };
    let rotate = body.secret.as_deref() == Some("new");
    let given = body.secret.as_deref().filter(|_| !rotate).map(secret).transpose()?;
    let edit = EditSubscription {
        wish: changes.then(|| Box::new(change) as _),
        secret: given.map(WantedSecret::Given),
        rotate,
        ..EditSubscription::default()
    };
    edited(&api, id, edit).await
}

/// `POST /subscriptions/{id}/pause`
pub(crate) async fn pause(
    State(api): State<Api>,
    SubscriptionId(id): SubscriptionId,
) -> Result<Json<SubscriptionView>, ApiError> {
    edited(&api, id, EditSubscription { state: Some(SubscriptionState::Paused), ..Default::default() }).await
}

/// `POST /subscriptions/{id}/resume`
pub(crate) async fn resume(
    State(api): State<Api>,
    SubscriptionId(id): SubscriptionId,
) -> Result<Json<SubscriptionView>, ApiError> {
    edited(&api, id, EditSubscription { state: Some(SubscriptionState::Active), ..Default::default() }).await
}

/// `POST /subscriptions/{id}/replay`: sends events again. A subscription that is paused or disabled stays so.
pub(crate) async fn replay(
    State(api): State<Api>,
    SubscriptionId(id): SubscriptionId,
    Body(body): Body<ReplayBody>,
) -> Result<Json<SubscriptionView>, ApiError> {
    let missing = || ApiError::bad("say from where: {\"after\": SEQ}, 0 for all that is kept, or {\"since\": TIME}");
    let replay = Some(from(body.after, body.since.as_deref())?.ok_or_else(missing)?);
    edited(&api, id, EditSubscription { replay, ..Default::default() }).await
}

/// `DELETE /subscriptions/{id}`
pub(crate) async fn remove(State(api): State<Api>, SubscriptionId(id): SubscriptionId) -> Result<StatusCode, ApiError> {
    found(&api, id).await?;
    let ops = api.ops.clone();
    let removed = run_to_completion(async move { ops.store.remove_subscription(id).await }).await?;
    if removed { Ok(StatusCode::NO_CONTENT) } else { Err(unknown(id)) }
}

/// `GET /subscriptions/{id}/deliveries`: the last requests, the newest first, in one part.
pub(crate) async fn deliveries(
    State(api): State<Api>,
    SubscriptionId(id): SubscriptionId,
) -> Result<Json<List<Delivery>>, ApiError> {
    let found = found(&api, id).await?;
    Ok(Json(List { items: found.progress.deliveries, next: None }))
}

async fn edited(api: &Api, id: i64, edit: EditSubscription) -> Result<Json<SubscriptionView>, ApiError> {
    found(api, id).await?;
    let ops = api.ops.clone();
    let edited = async move { ops::subscriptions::edit(&ops, id, &edit).await.map_err(refused) };
    let (changed, secret) = run_to_completion(edited).await?.ok_or_else(|| unknown(id))?;
    Ok(Json(SubscriptionView { secret: secret.map(|secret| secret.reveal()), ..view(api, changed) }))
}

/// Returns the subscription as the API shows it.
pub(crate) fn view(api: &Api, subscription: Subscription) -> SubscriptionView {
    SubscriptionView::of(subscription, &api.ops.secrets, api.ops.clock.now())
}

fn unknown(id: i64) -> ApiError {
    let message = format!("there is no subscription {id}; GET /api/v1/subscriptions lists them");
    ApiError::new(StatusCode::NOT_FOUND, message).coded("unknown_subscription")
}

fn refused(error: SubscriptionError) -> ApiError {
    let message = error.to_string();
    match error {
        SubscriptionError::Target { .. } => ApiError::bad(message).coded("invalid_target"),
        SubscriptionError::NoEntries => ApiError::bad(message),
        SubscriptionError::TooMany | SubscriptionError::Rotating { .. } | SubscriptionError::OfHub => {
            ApiError::new(StatusCode::CONFLICT, message)
        }
        SubscriptionError::Lost { oldest, .. } => ApiError::new(StatusCode::GONE, message).with("oldest", oldest),
        SubscriptionError::Ahead { newest, .. } => ApiError::new(StatusCode::GONE, message).with("newest", newest),
        SubscriptionError::Backend(error) => error.into(),
    }
}

async fn filter(api: &Api, wanted: Map<String, Value>) -> Result<EventFilter, ApiError> {
    let body: FilterBody = fields(wanted)?;
    let feed = match &body.feed {
        None => None,
        Some(Value::String(url)) => Some(url.clone()),
        Some(Value::Number(id)) => Some(id.to_string()),
        Some(_) => return Err(ApiError::bad("feed must be a feed's id or URL")),
    };
    let chosen = Chosen {
        limit: None,
        order: None,
        kind: body.kind.as_deref(),
        feed: feed.as_deref(),
        host: body.host.as_deref(),
        label: body.label.as_deref(),
        category: body.category.as_deref(),
        language: body.language.as_deref(),
        q: body.q.as_deref(),
        since: None,
        part: body.part.as_deref(),
    };
    let filter = chosen.filter(api).await?;
    if let Some(feed) = filter.feed {
        api.feed(feed).await?;
    }
    Ok(filter)
}

fn format(text: Option<&str>) -> Result<Option<DeliveryFormat>, ApiError> {
    named("format", text, &DeliveryFormat::ALL, DeliveryFormat::as_str)
}

fn batch(batch: Option<u32>) -> Result<Option<u32>, ApiError> {
    match batch {
        Some(batch) if !(1..=MOST_BATCH).contains(&batch) => {
            Err(ApiError::bad(format!("batch must be {ACCEPTED_BATCH}")))
        }
        batch => Ok(batch),
    }
}

fn delay(seconds: Option<f64>) -> Result<Option<Duration>, ApiError> {
    let read = |seconds: f64| {
        let fits = (0.0..=LONGEST_DELAY).contains(&seconds);
        let delay = fits.then(|| Duration::from_secs_f64((seconds * 1000.0).trunc() / 1000.0));
        delay.ok_or_else(|| ApiError::bad(format!("delay must be {ACCEPTED_DELAY}")))
    };
    seconds.map(read).transpose()
}

fn secret(text: &str) -> Result<WebhookSecret, ApiError> {
    explained("secret", text)
}

fn from(after: Option<i64>, since: Option<&str>) -> Result<Option<From>, ApiError> {
    match (after, since) {
        (Some(_), Some(_)) => Err(ApiError::bad("after and since exclude each other; leave one of them out")),
        (Some(after), None) if after < 0 => Err(ApiError::bad("after must not be less than 0")),
        (Some(after), None) => Ok(Some(From::After(after))),
        (None, Some(since)) => Ok(Some(From::Since(time(since)?))),
        (None, None) => Ok(None),
    }
}

/// The `{id}` of the path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SubscriptionId(pub(crate) i64);

impl<S: Send + Sync> FromRequestParts<S> for SubscriptionId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let wrong =
            |_| ApiError::bad("a subscription's id must be a whole number; GET /api/v1/subscriptions lists them");
        let Path(id) = Path::<i64>::from_request_parts(parts, state).await.map_err(wrong)?;
        Ok(SubscriptionId(id))
    }
}
