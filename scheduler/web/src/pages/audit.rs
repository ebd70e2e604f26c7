//! `/audit`: who changed what.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;

use super::frame::{Frame, answer};
use super::words::{self, Moment};
use crate::error::ApiError;
use crate::request::{Params, parsed};
use crate::state::{Api, State};
use store::audit::MOST_AUDITED;
use store::{AuditLine, AuditOutcome, AuditPage, Audited};

/// Lines on a page.
const LINES: u32 = 100;

#[derive(Template)]
#[template(path = "pages/audit.html")]
struct AuditTemplate {
    frame: Frame,
    rows: Vec<Row>,
    newer: Option<i64>,
    older: Option<i64>,
    kept: String,
    most: String,
}

struct Row {
    at: Moment,
    change: Audited,
    class: &'static str,
}

/// The parameters of `GET /audit`: lines after a number, or before it.
#[derive(Debug, Deserialize)]
pub(super) struct AuditParams {
    after: Option<String>,
    before: Option<String>,
}

impl AuditParams {
    fn page(&self) -> Result<AuditPage, ApiError> {
        let number = |name, text: &Option<String>| parsed::<i64>(name, text.as_deref(), "the number of a line");
        match (number("after", &self.after)?, number("before", &self.before)?) {
            (Some(_), Some(_)) => Err(ApiError::bad("give after or before, not both")),
            (Some(than), None) => Ok(AuditPage::Newer(than)),
            (None, Some(than)) => Ok(AuditPage::Older(than)),
            (None, None) => Ok(AuditPage::Newest),
        }
    }
}

/// `GET /audit`
pub(super) async fn page(
    State(api): State<Api>,
    frame: Frame,
    Params(params): Params<AuditParams>,
) -> Result<Response, ApiError> {
    let mut page = params.page()?;
    let mut lines = api.ops.store.audit(page, LINES + 1).await?;
    if matches!(page, AuditPage::Newer(_)) && lines.len() <= LINES as usize {
        // At the top there may be fewer than a page: the first page has them too.
        page = AuditPage::Newest;
        lines = api.ops.store.audit(page, LINES + 1).await?;
    }
    let more = lines.len() > LINES as usize;
    match page {
        // The one too many is the furthest from the number: the newest.
        AuditPage::Newer(_) => lines.drain(..lines.len() - LINES as usize).for_each(drop),
        _ => lines.truncate(LINES as usize),
    }
    let newest = matches!(page, AuditPage::Newest);
    let page = AuditTemplate {
        newer: lines.first().filter(|_| !newest).map(|line| line.id),
        older: lines.last().filter(|_| more).map(|line| line.id),
        rows: lines.into_iter().map(|line| row(line, &frame)).collect(),
        kept: words::duration(api.ops.config.retention.audit),
        most: words::count(MOST_AUDITED.unsigned_abs()),
        frame: frame.around("audit"),
    };
    answer(StatusCode::OK, &page)
}

fn row(AuditLine { change, .. }: AuditLine, frame: &Frame) -> Row {
    let class = match change.outcome {
        AuditOutcome::Done => "good",
        AuditOutcome::Failed => "bad",
        _ => "warn",
    };
    Row { at: Moment::of(change.at, frame.now), class, change }
}
