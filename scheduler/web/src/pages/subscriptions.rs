//! `/subscriptions` and `/subscriptions/{id}`: targets that events are sent to, how far deliveries are, and forms for them.

use std::cmp::Reverse;

use askama::Template;
use axum::Extension;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use common::outcome::DeliveryOutcome;
use common::policy::Category;
use common::time::Timestamp;
use common::webhook::SignatureKind;
use serde::Deserialize;
use serde_json::json;

use super::columns::{self, Column, Sortable, heads, is_reversed};
use super::form::{Fields, object};
use super::frame::{Frame, answer, see_other};
use super::paging::Paging;
use super::subscription_form::{self, Wanted};
use super::words::{self, Moment};
use crate::api::audit::{Subject, Who};
use crate::api::subscriptions::{self as subscriptions, ChangeBody, ListParams, ReplayBody, SubscriptionId};
use crate::error::ApiError;
use crate::listing::named;
use crate::request::{Body, Params, fields, parsed};
use crate::state::{Api, State};
use scheduler::delivery::view::SubscriptionView;
use store::{Delivery, DeliveryFormat, Subscription, SubscriptionKind, SubscriptionState};

#[derive(Template)]
#[template(path = "pages/subscriptions.html")]
struct SubscriptionsPage {
    frame: Frame,
    rows: Vec<Row>,
    count: String,
    columns: Vec<Column>,
    paging: Paging,
    done: &'static str,
    wanted: Wanted,
}

common::named! {
    /// How the list is sorted.
    Order {
        /// As added.
        Id = "id",
        /// By target.
        Target = "target",
        /// The ones that do not work first.
        State = "state",
        /// The longest lag first.
        Lag = "lag",
        /// The most deliveries first.
        Delivered = "delivered",
        /// The latest response first.
        Last = "last",
    }
}

impl Order {
    fn sort(self, all: &mut [Subscription]) {
        match self {
            Order::Id => {}
            Order::Target => all.sort_by(|one, other| one.wish.target.cmp(&other.wish.target)),
            Order::State => {
                all.sort_by_key(|it| Reverse((it.state == SubscriptionState::Disabled, it.progress.failures)));
            }
            // Those for which nothing waits come last.
            Order::Lag => all.sort_by_key(|it| it.progress.waiting_since.unwrap_or(Timestamp::MAX)),
            Order::Delivered => all.sort_by_key(|it| Reverse(it.progress.delivered)),
            Order::Last => all.sort_by_key(|it| Reverse(it.progress.deliveries.first().map(|last| last.at))),
        }
    }

    /// The usual order has the highest first.
    fn falls(self) -> bool {
        !matches!(self, Order::Id | Order::Target)
    }
}

/// The columns by which the list can be sorted.
const COLUMNS: [Sortable; 5] = [
    Sortable::rising("target", "Target", ""),
    Sortable::falling("state", "State", ""),
    Sortable::falling("lag", "Lag", "n mid"),
    Sortable::falling("delivered", "Delivered", "n far"),
    Sortable::falling("last", "Last response", ""),
];

struct Row {
    id: i64,
    target: String,
    what: String,
    state: &'static str,
    class: &'static str,
    lag: String,
    delivered: String,
    last: Option<(String, Moment)>,
}

/// The parameters of `GET /subscriptions`.
#[derive(Debug, Deserialize)]
pub(super) struct PageParams {
    sort: Option<String>,
    order: Option<String>,
    after: Option<String>,
    earlier: Option<String>,
    done: Option<String>,
}

/// Subscriptions on a sorted page.
const USUAL: usize = 100;

/// `GET /subscriptions`
pub(super) async fn list(
    State(api): State<Api>,
    frame: Frame,
    Params(params): Params<PageParams>,
) -> Result<Response, ApiError> {
    let sort = named("sort", params.sort.as_deref(), &Order::ALL, Order::as_str)?.unwrap_or(Order::Id);
    let reversed = is_reversed(params.order.as_deref(), sort.falls())?;
    let (views, count, paging) =
        if sort == Order::Id { as_added(api, &params).await? } else { sorted(&api, (sort, reversed), &params).await? };
    let done = if params.done.as_deref() == Some("removed") { "The subscription is removed." } else { "" };
    let rows = views.into_iter().map(|view| row(view, frame.now)).collect();
    let (frame, wanted) = (frame.around("subscriptions"), Wanted::default());
    let columns = heads(&COLUMNS, "subscriptions", "", (sort.as_str(), reversed));
    let page = SubscriptionsPage { frame, rows, count, columns, paging, done, wanted };
    answer(StatusCode::OK, &page)
}

/// A page of the list, how many there are if that is known, and the links to other pages.
type Part = (Vec<SubscriptionView>, String, Paging);

async fn as_added(api: Api, params: &PageParams) -> Result<Part, ApiError> {
    let params_of_list = ListParams { after: params.after.clone(), limit: None };
    let axum::Json(page) = subscriptions::list(State(api), Params(params_of_list)).await?;
    let (earlier, after) = (params.earlier.as_deref(), params.after.as_deref());
    let is_all = after.is_none() && page.next.is_none();
    let count = if is_all { counted(page.items.len()) } else { String::new() };
    let paging = Paging::new("subscriptions", "", earlier, after, page.next.as_deref());
    Ok((page.items, count, paging))
}

/// Reads all subscriptions: what they are sorted by changes with each delivery, so that no index has it.
async fn sorted(api: &Api, (sort, reversed): (Order, bool), params: &PageParams) -> Result<Part, ApiError> {
    let before: usize = parsed("after", params.after.as_deref(), "a number of subscriptions")?.unwrap_or(0);
    let mut found = subscriptions::all(api).await?;
    sort.sort(&mut found);
    if reversed {
        found.reverse();
    }
    let all = found.len();
    let order = columns::conditions(&COLUMNS, sort.as_str(), reversed);
    let page = |before: usize| format!("subscriptions?{order}&after={before}");
    let paging = Paging {
        first: (before > 0).then(|| page(0)),
        previous: (before > 0).then(|| page(before.saturating_sub(USUAL))),
        next: before.checked_add(USUAL).filter(|next| *next < all).map(page),
    };
    let page = found.into_iter().skip(before).take(USUAL);
    Ok((page.map(|it| subscriptions::view(api, it)).collect(), counted(all), paging))
}

fn counted(subscriptions: usize) -> String {
    words::counted(subscriptions as u64, "subscription", "subscriptions")
}

fn row(view: SubscriptionView, now: Timestamp) -> Row {
    Row {
        id: view.id,
        what: what(&view),
        state: view.state_text(),
        class: class(&view),
        lag: words::seconds(view.lag),
        delivered: words::count(view.delivered),
        last: view.last.as_ref().map(|last| (response(last), Moment::of(last.at, now))),
        target: view.target,
    }
}

fn class(view: &SubscriptionView) -> &'static str {
    match view.state {
        SubscriptionState::Disabled => "bad",
        SubscriptionState::Paused => "warn",
        SubscriptionState::Active if view.failures > 0 => "warn",
        SubscriptionState::Active => "",
    }
}

/// Which events are sent, in words.
fn what(view: &SubscriptionView) -> String {
    let filter = &view.filter;
    let parts = [
        ("", filter.kind.clone()),
        ("feed ", filter.feed.map(|feed| feed.to_string())),
        ("host ", filter.host.clone()),
        ("label ", filter.label.clone()),
        ("category ", filter.category.map(|category| category.as_str().to_owned())),
        ("language ", filter.language.clone()),
        ("with ", filter.q.clone()),
        ("part ", filter.part.clone()),
    ];
    let parts: Vec<String> = parts.into_iter().filter_map(|(name, value)| Some(format!("{name}{}", value?))).collect();
    if parts.is_empty() { "all events".to_owned() } else { parts.join(", ") }
}

fn response(delivery: &Delivery) -> String {
    match delivery.status {
        Some(status) => words::status(status),
        None => words::spaced(delivery.outcome.as_str()),
    }
}

#[derive(Template)]
#[template(path = "pages/subscription.html")]
struct SubscriptionPage {
    frame: Frame,
    view: SubscriptionView,
    what: String,
    class: &'static str,
    lag: String,
    delivered: String,
    facts: Vec<(&'static str, String)>,
    created: Moment,
    failing_since: Option<Moment>,
    next_try: Option<Moment>,
    deliveries: Vec<DeliveryLine>,
    done: &'static str,
    wanted: Wanted,
}

struct DeliveryLine {
    at: Moment,
    class: &'static str,
    response: String,
    events: String,
    attempt: u32,
    took: String,
    detail: String,
}

impl SubscriptionPage {
    fn is_active(&self) -> bool {
        self.view.state == SubscriptionState::Active
    }

    /// Subscribers of the hub say themselves what they want.
    fn is_webhook(&self) -> bool {
        self.view.kind == SubscriptionKind::Webhook
    }
}

/// The parameters of `GET /subscriptions/{id}`.
#[derive(Debug, Deserialize)]
pub(super) struct OneParams {
    done: Option<String>,
}

/// `GET /subscriptions/{id}`
pub(super) async fn page(
    State(api): State<Api>,
    frame: Frame,
    Path(id): Path<String>,
    Params(params): Params<OneParams>,
) -> Result<Response, ApiError> {
    let id = number(&id)?;
    let axum::Json(view) = subscriptions::show(State(api.clone()), SubscriptionId(id)).await?;
    let done = match params.done.as_deref() {
        Some("pause") => "It is paused. Events wait as long as they are kept.",
        Some("resume") => "It is resumed.",
        Some("replay") => "The events are sent again.",
        Some("change") => "It is changed.",
        _ => "",
    };
    let axum::Json(deliveries) = subscriptions::deliveries(State(api), SubscriptionId(id)).await?;
    show(frame, view, &deliveries.items, done, StatusCode::OK)
}

fn number(id: &str) -> Result<i64, ApiError> {
    let none = |_| ApiError::new(StatusCode::NOT_FOUND, format!("there is no subscription {id}"));
    id.parse().map_err(none)
}

fn show(
    frame: Frame,
    view: SubscriptionView,
    deliveries: &[Delivery],
    done: &'static str,
    status: StatusCode,
) -> Result<Response, ApiError> {
    let now = frame.now;
    let moment = |at: Timestamp| Moment::of(at, now);
    let page = SubscriptionPage {
        what: what(&view),
        class: class(&view),
        lag: words::seconds(view.lag),
        delivered: words::count(view.delivered),
        facts: facts(&view),
        created: moment(view.created),
        failing_since: view.failing_since.map(moment),
        next_try: view.next_try.map(moment),
        deliveries: deliveries.iter().map(|delivery| line(delivery, now)).collect(),
        done,
        wanted: Wanted::of(&view),
        view,
        frame: frame.around("subscriptions"),
    };
    answer(status, &page)
}

fn facts(view: &SubscriptionView) -> Vec<(&'static str, String)> {
    let all = [
        ("Events", Some(what(view))),
        ("Only of feeds with one of the labels", Some(view.limited_to.join(", ")).filter(|labels| !labels.is_empty())),
        ("Format", Some(view.format.as_str().to_owned())),
        ("Events in a request, at most", Some(view.batch.to_string())),
        ("Waits for further events", Some(words::seconds(view.delay))),
        ("Signature", view.signature.clone()),
        ("Public key", view.public_key.clone()),
        ("Also signed with the earlier secret until", view.old_secret_until.map(words::full)),
        ("Everything delivered up to event", Some(view.cursor.to_string())),
        ("Lost to retention, up to event", view.lost_up_to.map(|last| last.to_string())),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn line(delivery: &Delivery, now: Timestamp) -> DeliveryLine {
    let events = words::counted(delivery.events.into(), "event", "events");
    DeliveryLine {
        at: Moment::of(delivery.at, now),
        class: if delivery.outcome == DeliveryOutcome::Delivered { "good" } else { "bad" },
        response: response(delivery),
        events: format!("{events}, {} to {}", delivery.first, delivery.last),
        attempt: delivery.attempt,
        took: words::seconds(delivery.duration),
        detail: delivery.detail.clone(),
    }
}

/// `POST /subscriptions/add`: shows the secret, this once.
pub(super) async fn add(
    State(api): State<Api>,
    Extension(who): Extension<Who>,
    frame: Frame,
    sent: Fields,
) -> Result<Response, ApiError> {
    let body = fields(subscription_form::added(&sent, frame.now)?)?;
    let view = subscriptions::added(&api, &who, body).await?;
    let subject = Extension(Subject(format!("subscriptions/{}", view.id)));
    // With what is at hand: nothing may fail now, because the secret is shown this once.
    let page = show(frame, view, &[], "The subscription is added.", StatusCode::CREATED)?;
    Ok((subject, page).into_response())
}

/// `POST /subscriptions/{id}/change`: its target and its filter, and how events are sent.
pub(super) async fn change(State(api): State<Api>, Path(id): Path<String>, sent: Fields) -> Result<Response, ApiError> {
    let id = number(&id)?;
    let body: ChangeBody = fields(subscription_form::changed(&sent)?)?;
    subscriptions::change(State(api), SubscriptionId(id), Body(body)).await.map(drop)?;
    Ok(see_other(&format!("../{id}?done=change")))
}

/// `POST /subscriptions/{id}/pause`
pub(super) async fn pause(State(api): State<Api>, Path(id): Path<String>) -> Result<Response, ApiError> {
    let id = number(&id)?;
    subscriptions::pause(State(api), SubscriptionId(id)).await.map(drop)?;
    Ok(see_other(&format!("../{id}?done=pause")))
}

/// `POST /subscriptions/{id}/resume`
pub(super) async fn resume(State(api): State<Api>, Path(id): Path<String>) -> Result<Response, ApiError> {
    let id = number(&id)?;
    subscriptions::resume(State(api), SubscriptionId(id)).await.map(drop)?;
    Ok(see_other(&format!("../{id}?done=resume")))
}

/// `POST /subscriptions/{id}/rotate`: shows the new secret, this once.
pub(super) async fn rotate(State(api): State<Api>, frame: Frame, Path(id): Path<String>) -> Result<Response, ApiError> {
    let id = SubscriptionId(number(&id)?);
    let body: ChangeBody = fields(object([("secret", Some(json!("new")))]))?;
    let axum::Json(view) = subscriptions::change(State(api.clone()), id, Body(body)).await?;
    // With what is at hand: nothing may fail now, because the secret is shown this once.
    show(frame, view, &[], "The secret is replaced. Requests are signed with both for a day.", StatusCode::OK)
}

/// `POST /subscriptions/{id}/replay`: from a time ago, or after an event.
pub(super) async fn replay(
    State(api): State<Api>,
    frame: Frame,
    Path(id): Path<String>,
    sent: Fields,
) -> Result<Response, ApiError> {
    let id = number(&id)?;
    let body: ReplayBody = fields(object(subscription_form::start(&sent, frame.now)?))?;
    subscriptions::replay(State(api), SubscriptionId(id), Body(body)).await.map(drop)?;
    Ok(see_other(&format!("../{id}?done=replay")))
}

/// `POST /subscriptions/{id}/remove`
pub(super) async fn remove(State(api): State<Api>, Path(id): Path<String>, sent: Fields) -> Result<Response, ApiError> {
    let id = number(&id)?;
    if !sent.is_ticked("sure") {
        return Err(ApiError::bad("tick the box first: nothing is sent to the target of a removed subscription"));
    }
    subscriptions::remove(State(api), SubscriptionId(id)).await.map(drop)?;
    Ok(see_other("../../subscriptions?done=removed"))
}
