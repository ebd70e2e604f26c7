//! `/audit`: who changed what.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use super::columns::{self, Column, Sortable, heads, is_reversed};
use super::frame::{Frame, answer};
use super::paging::Paging;
use super::words::{self, Moment};
use crate::error::ApiError;
use crate::listing::named;
use crate::request::Params;
use crate::state::{Api, State};
use store::audit::MOST_AUDITED;
use store::{AuditLine, AuditOutcome, AuditQuery, AuditSort, Audited};

/// Lines on a page.
const LINES: u32 = 100;

#[derive(Template)]
#[template(path = "pages/audit.html")]
struct AuditTemplate {
    frame: Frame,
    rows: Vec<Row>,
    columns: Vec<Column>,
    count: String,
    paging: Paging,
    kept: String,
    most: String,
}

struct Row {
    at: Moment,
    change: Audited,
    class: &'static str,
}

/// The columns by which the list can be sorted.
const COLUMNS: [Sortable; 5] = [
    Sortable::falling("at", "When", ""),
    Sortable::rising("who", "Who", ""),
    Sortable::rising("request", "Request", ""),
    Sortable::rising("on", "On", "mid"),
    Sortable::rising("outcome", "Outcome", ""),
];

/// The parameters of `GET /audit`.
#[derive(Debug, Deserialize)]
pub(super) struct AuditParams {
    sort: Option<String>,
    order: Option<String>,
    after: Option<String>,
    earlier: Option<String>,
}

/// `GET /audit`
pub(super) async fn page(
    State(api): State<Api>,
    frame: Frame,
    Params(params): Params<AuditParams>,
) -> Result<Response, ApiError> {
    let sort = params.sort.as_deref().filter(|sort| !sort.is_empty());
    let sort = named("sort", sort, &AuditSort::ALL, AuditSort::as_str)?.unwrap_or(AuditSort::At);
    let reversed = is_reversed(params.order.as_deref(), sort == AuditSort::At)?;
    let after = params.after.as_deref().map(place).transpose()?;
    let mut lines = api.ops.store.audit(&AuditQuery { sort, reversed, after, limit: LINES + 1 }).await?;
    let more = lines.len() > LINES as usize;
    lines.truncate(LINES as usize);
    let next = lines.last().filter(|_| more).map(|last| cursor(sort.value(last), last.id));
    let order = columns::conditions(&COLUMNS, sort.as_str(), reversed);
    let order = if sort == AuditSort::At && !reversed { "" } else { order.as_str() };
    let paging = Paging::new("audit", order, params.earlier.as_deref(), params.after.as_deref(), next.as_deref());
    let page = AuditTemplate {
        columns: heads(&COLUMNS, "audit", "", (sort.as_str(), reversed)),
        count: counted(&api).await?,
        paging,
        rows: lines.into_iter().map(|line| row(line, &frame)).collect(),
        kept: words::duration(api.ops.config.retention.audit),
        most: words::count(MOST_AUDITED.unsigned_abs()),
        frame: frame.around("audit"),
    };
    answer(StatusCode::OK, &page)
}

async fn counted(api: &Api) -> Result<String, ApiError> {
    Ok(match api.ops.store.count_audit().await? {
        all if all > AuditQuery::MOST_COUNTED => {
            format!("more than {}", words::counted(AuditQuery::MOST_COUNTED, "change", "changes"))
        }
        all => words::counted(all, "change", "changes"),
    })
}

/// A line's place: its number, and what it has in the column.
fn cursor(value: &str, id: i64) -> String {
    format!("{id}.{}", URL_SAFE_NO_PAD.encode(value))
}

fn place(cursor: &str) -> Result<(String, i64), ApiError> {
    let place = cursor.split_once('.').and_then(|(id, value)| {
        let value = URL_SAFE_NO_PAD.decode(value).ok().and_then(|bytes| String::from_utf8(bytes).ok())?;
        Some((value, id.parse().ok()?)).filter(|(value, _)| !value.contains('\0'))
    });
    place.ok_or_else(|| ApiError::bad("after must be a cursor of this list"))
}

fn row(AuditLine { change, .. }: AuditLine, frame: &Frame) -> Row {
    let class = match change.outcome {
        AuditOutcome::Done => "good",
        AuditOutcome::Failed => "bad",
        _ => "warn",
    };
    Row { at: Moment::of(change.at, frame.now), class, change }
}
