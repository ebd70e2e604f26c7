//! `/audit`: who changed what.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::frame::{Frame, answer};
use super::words::{self, Moment};
use crate::audit_log::Entry;
use crate::error::ApiError;
use crate::state::Api;

#[derive(Template)]
#[template(path = "pages/audit.html")]
struct AuditPage {
    frame: Frame,
    rows: Vec<Row>,
    most: String,
}

struct Row {
    at: Moment,
    entry: Entry,
    class: &'static str,
}

/// `GET /audit`
pub(super) async fn page(State(api): State<Api>, frame: Frame) -> Result<Response, ApiError> {
    let row = |entry: Entry| Row {
        at: Moment::of(entry.at, frame.now),
        class: match entry.outcome {
            "done" => "good",
            "failed" => "bad",
            _ => "warn",
        },
        entry,
    };
    let rows = api.audit.newest().into_iter().map(row).collect();
    let most = words::count(crate::audit_log::KEPT as u64);
    answer(StatusCode::OK, &AuditPage { rows, most, frame: frame.around("audit") })
}
