//! `/requeues`: many feeds polled now, at a rate: what that would do, how those that run stand, and their end.

use askama::Template;
use axum::Extension;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use common::host::HostKey;
use common::outcome::FailureKind;
use common::policy::{Category, Status};
use common::time::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::columns::{self, Column, Sortable, heads, is_reversed};
use super::form::{Fields, object};
use super::frame::{Frame, answer, see_other};
use super::words::{self, Moment};
use crate::api::audit::{Subject, Who};
use crate::api::requeue::{self, RequeueBody, RequeueId};
use crate::error::ApiError;
use crate::listing::named;
use crate::request::{Params, fields};
use crate::state::{Api, State};
use scheduler::wire::RequeuedView;
use store::{Requeue, RequeueState};

#[derive(Template)]
#[template(path = "pages/requeues.html")]
struct RequeuesPage {
    frame: Frame,
    rows: Vec<Row>,
    count: String,
    columns: Vec<Column>,
    /// The query string that keeps the order.
    order: String,
    /// One of them runs.
    runs: bool,
    plan: Option<Plan>,
    /// What the form shows, by name.
    sent: Fields,
    done: String,
}

common::named! {
    /// How the list is sorted.
    Order {
        /// The newest first.
        Started = "started",
        /// The ones of which the smallest share was woken first.
        Progress = "progress",
        /// The fastest first.
        Rate = "rate",
        /// Those that run first.
        State = "state",
    }
}

/// The columns by which the list can be sorted.
const COLUMNS: [Sortable; 4] = [
    Sortable::rising("progress", "Progress", ""),
    Sortable::falling("rate", "Rate", "mid"),
    Sortable::falling("started", "Started", "mid"),
    Sortable::rising("state", "State", ""),
];

impl Order {
    /// The usual order has the highest first.
    fn falls(self) -> bool {
        matches!(self, Order::Started | Order::Rate)
    }

    /// Sorts requeues that come with the newest first.
    fn sort(self, all: &mut [Requeue]) {
        match self {
            Order::Started => {}
            Order::Progress => all.sort_by(|one, other| share(one).total_cmp(&share(other))),
            Order::Rate => all.sort_by(|one, other| other.rate.total_cmp(&one.rate)),
            Order::State => all.sort_by_key(|requeue| (requeue.state != RequeueState::Running, requeue.state.as_str())),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "only compared")]
fn share(requeue: &Requeue) -> f64 {
    requeue.woken as f64 / requeue.queued.max(1) as f64
}

struct Row {
    id: i64,
    what: String,
    state: &'static str,
    running: bool,
    woken: String,
    queued: String,
    progress: u64,
    most: u64,
    rate: String,
    by: String,
    created: Moment,
}

/// What a requeue would do.
struct Plan {
    matched: String,
    pollable: String,
    is_empty: bool,
    left_out: Vec<(String, String)>,
    hosts: String,
    largest: Vec<(String, String)>,
    lasts: String,
}

impl RequeuesPage {
    fn given(&self, name: &str) -> &str {
        self.sent.get(name).unwrap_or_default()
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.sent.get(name) == Some(value)
    }

    fn is_ticked(&self, name: &str) -> bool {
        self.sent.is_ticked(name)
    }
}

/// The parameters of `GET /requeues`.
#[derive(Debug, Deserialize)]
pub(super) struct RequeuesParams {
    sort: Option<String>,
    order: Option<String>,
    done: Option<String>,
}

/// `GET /requeues`
pub(super) async fn page(
    State(api): State<Api>,
    frame: Frame,
    Params(params): Params<RequeuesParams>,
) -> Result<Response, ApiError> {
    let done = match params.done.as_deref().map(|done| (done, done.parse::<i64>())) {
        Some(("cancelled", _)) => "The requeue is cancelled. Feeds that were woken already are polled.".to_owned(),
        Some((_, Ok(0))) => "No feed matches that can be polled; nothing was started.".to_owned(),
        Some((_, Ok(id))) => format!("Requeue {id} is started."),
        _ => String::new(),
    };
    let sort = named("sort", params.sort.as_deref(), &Order::ALL, Order::as_str)?.unwrap_or(Order::Started);
    let reversed = is_reversed(params.order.as_deref(), sort.falls())?;
    show(&api, frame, (sort, reversed), None, Fields::default(), done).await
}

async fn show(
    api: &Api,
    frame: Frame,
    (sort, reversed): (Order, bool),
    plan: Option<Plan>,
    sent: Fields,
    done: String,
) -> Result<Response, ApiError> {
    let mut requeues = api.ops.store.requeues(false).await?;
    sort.sort(&mut requeues);
    if reversed {
        requeues.reverse();
    }
    let rows: Vec<Row> = requeues.iter().map(|requeue| row(requeue, frame.now)).collect();
    let count = words::counted(rows.len() as u64, "requeue", "requeues");
    let frame = frame.around("requeues");
    let columns = heads(&COLUMNS, &format!("{}requeues", frame.root), "", (sort.as_str(), reversed));
    let order = columns::conditions(&COLUMNS, sort.as_str(), reversed);
    let runs = rows.iter().any(|row| row.running);
    answer(StatusCode::OK, &RequeuesPage { frame, rows, count, columns, order, runs, plan, sent, done })
}

fn row(requeue: &Requeue, now: Timestamp) -> Row {
    Row {
        id: requeue.id,
        what: what(requeue, now),
        state: requeue.state.as_str(),
        running: requeue.state == RequeueState::Running,
        woken: words::count(requeue.woken),
        queued: words::count(requeue.queued),
        progress: requeue.woken.min(requeue.queued),
        most: requeue.queued.max(1),
        rate: words::rate(requeue.rate),
        by: requeue.by.clone(),
        created: Moment::of(requeue.created, now),
    }
}

/// Which feeds are meant, in words.
fn what(requeue: &Requeue, now: Timestamp) -> String {
    let filter = &requeue.filter;
    let hosts: Vec<&str> = filter.hosts.iter().map(HostKey::as_str).collect();
    let parts = [
        filter.feed.map(|feed| format!("feed {feed}")),
        (!filter.feeds.is_empty())
            .then(|| words::counted(filter.feeds.len() as u64, "selected feed", "selected feeds")),
        (!hosts.is_empty()).then(|| format!("host {}", hosts.join(", "))),
        filter.category.map(|category| format!("category {category} ({})", words::category(category))),
        filter.status.map(|status| format!("status {}", words::feed_status(status))),
        filter.failure.map(|failure| format!("failing: {}", words::failure(failure))),
        filter.due_before.map(|due| format!("due {}", words::relative(due, now))),
    ];
    let mut parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        parts.push("all feeds".to_owned());
    }
    parts.extend(requeue.lift_penalties.then(|| "without penalties".to_owned()));
    parts.join(", ")
}

/// What the API reads, from the form.
fn body(sent: &Fields, dry_run: bool) -> Result<RequeueBody, ApiError> {
    let text = |name: &str| sent.get(name).map(|text| json!(text));
    let filter: Map<String, Value> = object([
        ("host", text("host")),
        ("category", text("category")),
        ("status", text("status")),
        ("failure", text("failure")),
        ("overdue", sent.seconds("overdue")?.map(|seconds| json!(seconds))),
        ("all", sent.is_ticked("all").then_some(Value::Bool(true))),
    ]);
    fields(object([
        ("filter", Some(Value::Object(filter))),
        ("rate", sent.number("rate")?.map(|rate| json!(rate))),
        ("lift_penalties", Some(json!(sent.is_ticked("lift_penalties")))),
        ("dry_run", Some(json!(dry_run))),
    ]))
}

/// `POST /requeues/plan`: changes nothing; the page says what would be done, and has the button that does it.
pub(super) async fn plan(
    State(api): State<Api>,
    Extension(who): Extension<Who>,
    frame: Frame,
    sent: Fields,
) -> Result<Response, ApiError> {
    let view = requeue::requeue(&api, &who, body(&sent, true)?).await?;
    // The page lives at `/requeues/plan` now.
    show(&api, frame, (Order::Started, false), Some(planned(&view)), sent, String::new()).await
}

fn planned(view: &RequeuedView) -> Plan {
    let left_out = |(reason, feeds): (&String, &u64)| (words::spaced(reason), words::count(*feeds));
    Plan {
        matched: words::counted(view.matched, "feed matches", "feeds match"),
        pollable: words::counted(view.pollable, "feed", "feeds"),
        is_empty: view.pollable == 0,
        left_out: view.left_out.iter().map(left_out).collect(),
        hosts: words::counted(view.hosts, "host", "hosts"),
        largest: view.by_host.iter().take(10).map(|share| (share.host.clone(), words::count(share.feeds))).collect(),
        lasts: words::seconds(view.seconds.max(1.0)),
    }
}

/// `POST /requeues/start`
pub(super) async fn start(
    State(api): State<Api>,
    Extension(who): Extension<Who>,
    sent: Fields,
) -> Result<(Extension<Subject>, Response), ApiError> {
    let view = requeue::requeue(&api, &who, body(&sent, false)?).await?;
    let id = view.id.unwrap_or(0);
    Ok((Extension(Subject(format!("requeue/{id}"))), see_other(&format!("../requeues?done={id}"))))
}

/// `POST /requeues/{id}/cancel`
pub(super) async fn cancel(State(api): State<Api>, Path(id): Path<String>) -> Result<Response, ApiError> {
    let id = id.parse().map_err(|_| ApiError::new(StatusCode::NOT_FOUND, format!("there is no requeue {id}")))?;
    requeue::cancel(State(api), RequeueId(id)).await.map(drop)?;
    Ok(see_other("../../requeues?done=cancelled"))
}
