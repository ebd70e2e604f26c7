//! Requeues: many feeds polled now, at a rate; what one would do, the state of those that run, and their end.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Extension, FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use common::host::HostKey;
use common::host_name::HostName;
use common::outcome::FailureKind;
use common::policy::{Category, Status};
use common::time::Timestamp;
use common::url::FeedId;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::audit::{Subject, Who};
use super::change::run_to_completion;
use crate::error::ApiError;
use crate::listing::named;
use crate::request::{Accepts, Body, explained, fields};
use crate::state::{Api, State};
use scheduler::ops;
use scheduler::wire::{List, RequeuedView};
use store::requeues::MOST_REQUEUES;
use store::{NewRequeue, Requeue, RequeueFilter};

/// The default number of feeds a second.
const RATE: f64 = 10.0;
/// Feeds a second, at most.
const MOST_RATE: f64 = 10_000.0;

/// A requeue in a request.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RequeueBody {
    filter: Option<Map<String, Value>>,
    /// Feeds a second.
    rate: Option<f64>,
    dry_run: Option<bool>,
    lift_penalties: Option<bool>,
}

impl Accepts for RequeueBody {
    fn accepts(field: &str) -> &'static str {
        match field {
            "filter" => "an object such as {\"host\": \"example.com\"}, or {\"all\": true}",
            "rate" => ACCEPTED_RATE,
            _ => "true or false",
        }
    }
}

const ACCEPTED_RATE: &str = "a number of feeds a second, more than 0 and at most 10000";

const ACCEPTED_FEEDS: &str = "a list of 1 to 1000 ids of feeds";

/// Its filter.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FilterBody {
    feed: Option<i64>,
    feeds: Option<Vec<i64>>,
    host: Option<String>,
    category: Option<String>,
    status: Option<String>,
    failure: Option<String>,
    /// Seconds.
    overdue: Option<f64>,
    all: Option<bool>,
}

impl Accepts for FilterBody {
    fn accepts(field: &str) -> &'static str {
        match field {
            "feed" => "a feed's id",
            "feeds" => ACCEPTED_FEEDS,
            "overdue" => "a number of seconds",
            "all" => "true or false",
            _ => "text",
        }
    }
}

/// `POST /requeue`: 202 when feeds will be polled, 200 when none will.
pub(crate) async fn begin(
    State(api): State<Api>,
    Extension(who): Extension<Who>,
    Body(body): Body<RequeueBody>,
) -> Result<Response, ApiError> {
    let view = requeue(&api, &who, body).await?;
    let Some(id) = view.id else { return Ok(Json(view).into_response()) };
    let place = [(header::LOCATION, format!("/api/v1/requeue/{id}"))];
    let subject = Extension(Subject(format!("requeue/{id}")));
    Ok((StatusCode::ACCEPTED, place, subject, Json(view)).into_response())
}

/// Begins a requeue, or says what it would do; without a number nothing began.
pub(crate) async fn requeue(api: &Api, who: &Who, body: RequeueBody) -> Result<RequeuedView, ApiError> {
    let rate = body.rate.unwrap_or(RATE);
    if !(rate > 0.0 && rate <= MOST_RATE) {
        return Err(ApiError::bad(format!("rate must be {ACCEPTED_RATE}")));
    }
    let missing = || ApiError::bad(format!("filter is missing; it must be {}", RequeueBody::accepts("filter")));
    let filter = filter(api, fields(body.filter.ok_or_else(missing)?)?).await?;
    let (lift_penalties, dry_run) = (body.lift_penalties.unwrap_or(false), body.dry_run.unwrap_or(false));
    let plan = api.ops.store.plan_requeue(&filter, lift_penalties).await?;
    let view = RequeuedView::of(&plan, &waits(api).await?, lift_penalties, rate, dry_run);
    if view.queued == 0 {
        return Ok(view);
    }
    let by = who.0.to_string();
    let new = NewRequeue { filter, rate, lift_penalties, by, matched: view.matched, queued: view.queued };
    let ops = api.ops.clone();
    let begun = run_to_completion(async move { ops.store.begin_requeue(&new, ops.clock.now()).await }).await?;
    let too_many = || {
        let message = format!("{MOST_REQUEUES} requeues run already; wait for one, or cancel one");
        ApiError::new(StatusCode::CONFLICT, message)
    };
    let begun = begun.ok_or_else(too_many)?;
    Ok(RequeuedView { id: Some(begun.id), ..view })
}

/// Returns the hosts that are not polled for now: on hold by a server, or blocked by an operator.
async fn waits(api: &Api) -> Result<BTreeMap<HostKey, Timestamp>, ApiError> {
    let now = api.ops.clock.now();
    let blocks = api.ops.store.host_orders(None).await?.unwrap_or_default().blocks;
    let mut waits = BTreeMap::new();
    for (host, until) in api.ops.store.holds(now).await?.into_iter().chain(blocks).filter(|(_, until)| *until > now) {
        let latest = waits.entry(host).or_insert(until);
        *latest = until.max(*latest);
    }
    Ok(waits)
}

/// Returns which feeds are meant.
async fn filter(api: &Api, body: FilterBody) -> Result<RequeueFilter, ApiError> {
    let hosts = match &body.host {
        None => Vec::new(),
        Some(host) => ops::hosts::keys(&api.ops, &explained::<HostName>("host", host)?).await?,
    };
    let due_before = match body.overdue.map(std::time::Duration::try_from_secs_f64) {
        None => None,
        Some(Ok(overdue)) => Some(api.ops.clock.now().before(overdue)),
        Some(Err(_)) => return Err(ApiError::bad("overdue must be a number of seconds, not less than 0")),
    };
    let feeds: Option<Vec<FeedId>> = body.feeds.map(|feeds| feeds.into_iter().map(FeedId).collect());
    if feeds.as_ref().is_some_and(|feeds| !(1..=RequeueFilter::MOST_FEEDS).contains(&feeds.len())) {
        return Err(ApiError::bad(format!("feeds must be {ACCEPTED_FEEDS}")));
    }
    let filter = RequeueFilter {
        feeds: feeds.unwrap_or_default(),
        feed: body.feed.map(FeedId),
        hosts,
        category: named("category", body.category.as_deref(), &Category::ALL, Category::as_str)?,
        status: named("status", body.status.as_deref(), &Status::ALL, Status::as_str)?,
        failure: named("failure", body.failure.as_deref(), &FailureKind::ALL, FailureKind::as_str)?,
        http_statuses: Vec::new(),
        due_before,
    };
    match (filter == RequeueFilter::default(), body.all.unwrap_or(false)) {
        (true, false) => Err(ApiError::bad(
            "filter says nothing; name feed, feeds, host, category, status, failure or overdue, or say {\"all\": true}",
        )),
        (false, true) => Err(ApiError::bad("all goes with nothing else; leave it out, or the rest")),
        _ => Ok(filter),
    }
}

/// `GET /requeue`: those that run and the last hundred that ended, newest first, in one part.
pub(crate) async fn list(State(api): State<Api>) -> Result<Json<List<Requeue>>, ApiError> {
    Ok(Json(List { items: api.ops.store.requeues(false).await?, next: None }))
}

/// `GET /requeue/{id}`
pub(crate) async fn show(State(api): State<Api>, RequeueId(id): RequeueId) -> Result<Json<Requeue>, ApiError> {
    let found = api.ops.store.requeues(false).await?.into_iter().find(|requeue| requeue.id == id);
    let unknown =
        || ApiError::new(StatusCode::NOT_FOUND, format!("there is no requeue {id}; GET /api/v1/requeue lists them"));
    found.map(Json).ok_or_else(unknown)
}

/// `POST /requeue/{id}/cancel`: wakes no further feeds; those that were woken are polled.
pub(crate) async fn cancel(State(api): State<Api>, RequeueId(id): RequeueId) -> Result<Json<Requeue>, ApiError> {
    let ops = api.ops.clone();
    let cancelled = run_to_completion(async move { ops.store.cancel_requeue(id, ops.clock.now()).await }).await?;
    let Json(requeue) = show(State(api), RequeueId(id)).await?;
    if !cancelled {
        let message = format!("requeue {id} is {} already", requeue.state.as_str());
        return Err(ApiError::new(StatusCode::CONFLICT, message));
    }
    Ok(Json(requeue))
}

/// The `{id}` of the path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequeueId(pub(crate) i64);

impl<S: Send + Sync> FromRequestParts<S> for RequeueId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let not_a_number = |_| ApiError::bad("a requeue's id must be a whole number; GET /api/v1/requeue lists them");
        let Path(id) = Path::<i64>::from_request_parts(parts, state).await.map_err(not_a_number)?;
        Ok(RequeueId(id))
    }
}
