//! `/hosts` and `/hosts/{host}`: what is known of hosts, their pace, and forms that block and pace them.

use std::collections::HashSet;

use askama::Template;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use common::host::HostKey;
use common::host_name::HostName;
use common::time::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::columns::{self, Column, Sortable, heads, is_reversed};
use super::form::{Fields, object};
use super::frame::{Frame, answer, see_other};
use super::host_order;
use super::paging::Paging;
use super::query::encoded;
use super::words::{self, Moment};
use crate::api::hosts::{self, BlockBody, PathHost, RuleBody};
use crate::error::ApiError;
use crate::listing::named;
use crate::request::{Body, Params, explained, fields};
use crate::state::{Api, State};
use scheduler::ops;
use scheduler::ops::hosts::HostState;
use scheduler::wire::HostView;
use store::{HostQuery, Page};

/// Hosts on a page.
const USUAL: u32 = 100;
/// Hosts in trouble that are shown before the list.
const TROUBLED: usize = 20;

#[derive(Template)]
#[template(path = "pages/hosts.html")]
struct HostsPage {
    frame: Frame,
    columns: Vec<Column>,
    troubled: Vec<Row>,
    more_troubled: usize,
    rows: Vec<Row>,
    /// The number of hosts with feeds; empty behind the first page.
    count: String,
    paging: Paging,
    /// All polling is paused.
    paused: bool,
}

common::named! {
    /// How the list is sorted.
    Order {
        /// By name.
        Host = "host",
        /// The ones with the most feeds first.
        Feeds = "feeds",
        /// The slowest first.
        Pace = "pace",
        /// Those that are not polled first.
        State = "state",
    }
}

/// The columns by which the list can be sorted.
const COLUMNS: [Sortable; 4] = [
    Sortable::rising("host", "Host", ""),
    Sortable::falling("feeds", "Feeds", "n"),
    Sortable::falling("pace", "Pace", "mid")
        .about("Hosts that a rule names, the slowest first, then all others by name"),
    Sortable::rising("state", "State", "")
        .about("Blocked hosts, then those that refuse us, then held ones, then all others"),
];

struct Row {
    host: String,
    feeds: String,
    pace: String,
    notes: Vec<Note>,
}

/// Why nothing is polled on a host, and until when.
struct Note {
    class: &'static str,
    text: &'static str,
    until: Moment,
}

/// The parameters of `GET /hosts`. `host` leads to that one's page.
#[derive(Debug, Deserialize)]
pub(super) struct HostsParams {
    sort: Option<String>,
    order: Option<String>,
    after: Option<String>,
    earlier: Option<String>,
    host: Option<String>,
}

/// `GET /hosts`
pub(super) async fn list(
    State(api): State<Api>,
    frame: Frame,
    Params(params): Params<HostsParams>,
) -> Result<Response, ApiError> {
    if let Some(host) = params.host.as_deref().map(str::trim).filter(|host| !host.is_empty()) {
        return Ok(see_other(&format!("./hosts/{}", encoded(host))));
    }
    let first = params.after.is_none();
    let sort = params.sort.as_deref().filter(|sort| !sort.is_empty());
    let sort = named("sort", sort, &Order::ALL, Order::as_str)?.unwrap_or(Order::Host);
    let falls = COLUMNS.iter().any(|column| column.name == sort.as_str() && column.falls);
    let reversed = is_reversed(params.order.as_deref(), falls)?;
    let (after, limit) = (params.after.clone(), USUAL as usize);
    let page = match sort {
        Order::Host => ops::hosts::page(&api.ops, &HostQuery::all(after, USUAL).turned(reversed)).await?,
        Order::Feeds => ops::hosts::page(&api.ops, &HostQuery::by_feeds(after, USUAL).turned(reversed)).await?,
        Order::Pace => host_order::page(&api, host_order::by_pace(&api), (after, reversed), limit).await?,
        Order::State => {
            let ranked = host_order::by_state(&api, frame.now).await?;
            host_order::page(&api, ranked, (after, reversed), limit).await?
        }
    };
    let columns = heads(&COLUMNS, "hosts", "", (sort.as_str(), reversed));
    let order = columns::conditions(&COLUMNS, sort.as_str(), reversed);
    let order = if sort == Order::Host && !reversed { "" } else { order.as_str() };
    let paging = Paging::new("hosts", order, params.earlier.as_deref(), params.after.as_deref(), page.next.as_deref());
    let (troubled, more_troubled) =
        if first && sort != Order::State { troubled(&api, frame.now).await? } else { (Vec::new(), 0) };
    let count = if first { counted(&api, &page).await? } else { String::new() };
    let rows = page.items.into_iter().map(|state| row(state, frame.now)).collect();
    let paused = api.ops.store.paused().await?;
    let frame = frame.around("hosts");
    answer(StatusCode::OK, &HostsPage { paused, frame, columns, troubled, more_troubled, rows, count, paging })
}

/// How many hosts have feeds; empty as long as new ones are not counted.
async fn counted(api: &Api, first: &Page<HostState>) -> Result<String, ApiError> {
    let shown = first.items.iter().filter(|host| host.row.feeds > 0).count() as u64;
    let all = if first.next.is_none() { shown } else { api.ops.store.count_hosts().await? };
    Ok(match all {
        all if all < shown => String::new(),
        all if all > HostQuery::MOST_COUNTED => {
            format!("more than {}", words::counted(HostQuery::MOST_COUNTED, "host", "hosts"))
        }
        all => words::counted(all, "host", "hosts"),
    })
}

/// Hosts that are held, blocked, or refuse us: some of them, and the number of the others.
async fn troubled(api: &Api, now: Timestamp) -> Result<(Vec<Row>, usize), ApiError> {
    let refusing = api.ops.condition.refusals.list().into_iter().map(|refusal| refusal.host);
    let blocks = api.ops.store.host_orders(None).await?.unwrap_or_default().blocks;
    let held = api.ops.store.holds(now).await?.into_iter();
    let kept = blocks.into_iter().chain(held).filter(|(_, until)| *until > now).map(|(host, _)| host);
    let mut seen = HashSet::new();
    let hosts: Vec<HostKey> = refusing.chain(kept).filter(|host| seen.insert(host.clone())).collect();
    let more = hosts.len().saturating_sub(TROUBLED);
    let mut rows = Vec::new();
    for host in hosts.into_iter().take(TROUBLED) {
        rows.push(row(ops::hosts::state_of(&api.ops, &HostName::Key(host)).await?, now));
    }
    Ok((rows, more))
}

fn row(state: HostState, now: Timestamp) -> Row {
    let view = HostView::of(state);
    Row { pace: pace(&view), notes: notes(&view, now), feeds: words::count(view.feeds), host: view.host }
}

fn pace(view: &HostView) -> String {
    let gap = words::seconds(view.gap);
    let at_once = if view.parallel > 1 { format!(", {} at once", view.parallel) } else { String::new() };
    let burst = if view.burst > 1 { format!(", bursts of {}", view.burst) } else { String::new() };
    format!("1 request per {gap}{burst}{at_once}")
}

fn notes(view: &HostView, now: Timestamp) -> Vec<Note> {
    let until = |class, text, at: Option<Timestamp>| {
        Some(Note { class, text, until: Moment::of(at.filter(|at| *at > now)?, now) })
    };
    // The rest of a host that refuses us is kept as a hold, too: its server asked for no such thing.
    let rest = view.refusing.as_ref().map(|refusing| refusing.until);
    let held = view.hold_until.filter(|until| rest.is_none_or(|rest| *until > rest));
    let notes = [
        until("warn", "blocked", view.blocked_until),
        until("warn", "on hold", held),
        until("bad", "refuses us", rest),
    ];
    notes.into_iter().flatten().collect()
}

#[derive(Template)]
#[template(path = "pages/host.html")]
struct HostPage {
    frame: Frame,
    /// As it is in addresses, and without its port: rules are for all ports.
    key: String,
    name: String,
    host: String,
    feeds: String,
    pace: String,
    notes: Vec<Note>,
    blocked: bool,
    refusal: Option<(String, Moment, String)>,
    rule: Vec<(String, String)>,
    by_operator: bool,
    gap: String,
    interval: String,
    burst: u32,
    parallel: u32,
    reason: String,
    done: &'static str,
}

/// The parameters of `GET /hosts/{host}`.
#[derive(Debug, Deserialize)]
pub(super) struct HostParams {
    done: Option<String>,
}

/// `GET /hosts/{host}`
pub(super) async fn page(
    State(api): State<Api>,
    frame: Frame,
    PathHost(name): PathHost,
    Params(params): Params<HostParams>,
) -> Result<Response, ApiError> {
    let view = HostView::of(ops::hosts::state_of(&api.ops, &name).await?);
    let done = match params.done.as_deref() {
        Some("block") => "It is blocked: no request is sent to it until the block ends.",
        Some("unblock") => "It is not blocked any more.",
        Some("rule") => "The rule is in force.",
        Some("remove") => "The rule is removed.",
        _ => "",
    };
    let now = frame.now;
    let rule = view.rule.clone().unwrap_or_default();
    let refusal = view.refusing.as_ref().map(|refusing| {
        let status = refusing.status.map_or_else(String::new, |status| format!(", HTTP {status}"));
        let how = format!("{}{status}", words::failure(refusing.failure));
        (how, Moment::of(refusing.since, now), refusing.advice.clone())
    });
    let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let seconds = |name: &str| rule.get(name).and_then(Value::as_f64).map(duration).unwrap_or_default();
    let page = HostPage {
        key: encoded(&view.host),
        name: encoded(name.name()),
        feeds: words::count(view.feeds),
        pace: pace(&view),
        notes: notes(&view, now),
        blocked: view.blocked_until.is_some_and(|until| until > now),
        refusal,
        by_operator: rule.get("source").is_some_and(|source| source == "operator"),
        gap: seconds("gap"),
        interval: seconds("interval"),
        burst: view.burst,
        parallel: view.parallel,
        reason: text("reason"),
        rule: rule.iter().filter(|(_, value)| !value.is_null()).map(said).collect(),
        host: view.host,
        done,
        frame: frame.around("hosts"),
    };
    answer(StatusCode::OK, &page)
}

/// A part of a rule as the page writes it.
fn said((name, value): (&String, &Value)) -> (String, String) {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if scheduler::wire::RULE_DURATIONS.contains(&name.as_str()) => {
            words::seconds(number.as_f64().unwrap_or_default())
        }
        other => other.to_string(),
    };
    (words::spaced(name), text)
}

/// A duration as a form takes it.
fn duration(seconds: f64) -> String {
    let time = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default();
    common::duration::as_text(time)
}

fn path_host(host: &str) -> Result<PathHost, ApiError> {
    explained("host", host).map(PathHost)
}

fn back(host: &str, done: &str) -> Response {
    see_other(&format!("../{}?done={done}", encoded(host)))
}

/// `POST /hosts/{host}/block`
pub(super) async fn block(
    State(api): State<Api>,
    Path(host): Path<String>,
    sent: Fields,
) -> Result<Response, ApiError> {
    let body: BlockBody = fields(object([("for", sent.seconds("for")?.map(|seconds| json!(seconds)))]))?;
    hosts::block(State(api), path_host(&host)?, Body(body)).await.map(drop)?;
    Ok(back(&host, "block"))
}

/// `POST /hosts/{host}/unblock`
pub(super) async fn unblock(State(api): State<Api>, Path(host): Path<String>) -> Result<Response, ApiError> {
    hosts::unblock(State(api), path_host(&host)?).await.map(drop)?;
    Ok(back(&host, "unblock"))
}

/// `POST /hosts/{host}/rule`: what the form has replaces what an earlier rule said about it; the rest of that rule stays.
pub(super) async fn set_rule(
    State(api): State<Api>,
    Path(host): Path<String>,
    sent: Fields,
) -> Result<Response, ApiError> {
    let name: HostName = explained("host", &host)?;
    let before = HostView::of(ops::hosts::state_of(&api.ops, &name).await?).rule.unwrap_or_default();
    let is_own = before.get("match").and_then(Value::as_str).is_some_and(|domain| domain == name.name());
    let mut rule = if is_own { before } else { serde_json::Map::new() };
    rule.remove("source");
    let whole = |field: &str| {
        let accepted = || ApiError::bad(format!("{field} must be a whole number from 1 to 4294967295"));
        sent.get(field).map(|text| text.parse::<u32>().map_err(|_| accepted())).transpose()
    };
    let given = [
        ("gap", json!(sent.seconds("gap")?)),
        ("interval", json!(sent.seconds("interval")?)),
        ("burst", json!(whole("burst")?)),
        ("parallel", json!(whole("parallel")?)),
        ("reason", json!(sent.get("reason"))),
    ];
    for (field, value) in given {
        rule.remove(field);
        if !value.is_null() {
            rule.insert(field.to_owned(), value);
        }
    }
    let body: RuleBody = fields(rule)?;
    hosts::set(State(api), path_host(&host)?, Body(body)).await.map(drop)?;
    Ok(back(&host, "rule"))
}

/// `POST /hosts/{host}/remove-rule`
pub(super) async fn remove_rule(State(api): State<Api>, Path(host): Path<String>) -> Result<Response, ApiError> {
    hosts::remove(State(api), path_host(&host)?).await.map(drop)?;
    Ok(back(&host, "remove"))
}
