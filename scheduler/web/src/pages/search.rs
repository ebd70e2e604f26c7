//! `/feeds`: feeds by words, host, category, status and failure, a page at a time.

use askama::Template;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use common::feed::Feed;
use common::outcome::FailureKind;
use common::policy::{Category, Status};
use common::time::Timestamp;

use super::frame::{Frame, Refusal, answer};
use super::words::{self, Moment};
use crate::error::ApiError;
use crate::listing::ListParams;
use crate::request::Params;
use crate::state::Api;

/// Feeds on a page when nobody says how many.
const USUAL: u32 = 50;

#[derive(Template)]
#[template(path = "pages/search.html")]
struct SearchPage {
    frame: Frame,
    asked: ListParams,
    /// What was wrong with what was asked.
    wrong: Option<String>,
    rows: Vec<Row>,
    /// The query strings of the first and the next page.
    first: Option<String>,
    next: Option<String>,
}

struct Row {
    id: i64,
    title: Option<String>,
    url: String,
    category: &'static str,
    status: &'static str,
    subscribers: String,
    last: Option<(&'static str, Moment)>,
    /// Colour of the last outcome, or of why it is not polled.
    class: &'static str,
    /// Why it fails, in a few words and in a sentence.
    trouble: Option<(String, String)>,
    next: Option<Moment>,
}

impl SearchPage {
    fn is(&self, given: &Option<String>, name: &str) -> bool {
        given.as_deref().is_some_and(|given| given.eq_ignore_ascii_case(name))
    }

    fn given<'a>(&self, given: &'a Option<String>) -> &'a str {
        given.as_deref().unwrap_or_default()
    }

    fn categories(&self) -> [Category; 5] {
        Category::ALL
    }

    fn statuses(&self) -> [Status; 7] {
        Status::ALL
    }

    fn failures(&self) -> &'static [FailureKind] {
        &FailureKind::ALL
    }

    fn spaced(&self, name: &str) -> String {
        words::spaced(name)
    }

    fn is_filtered(&self) -> bool {
        let asked = &self.asked;
        let marks = [&asked.label, &asked.external_id, &asked.failing];
        let others = [&asked.q, &asked.host, &asked.category, &asked.status, &asked.failure];
        others.iter().chain(&marks).any(|given| given.is_some())
    }
}

/// `GET /feeds`
pub(super) async fn page(
    State(api): State<Api>,
    uri: Uri,
    params: Result<Params<ListParams>, ApiError>,
) -> Result<Response, Refusal> {
    let now = api.ops.clock.now();
    let Params(asked) = params?;
    let asked = given(asked);
    let listed = list(&api, &asked, now).await;
    let (status, wrong, rows, next) = match listed {
        Ok((rows, next)) => (StatusCode::OK, None, rows, next),
        Err(error) if error.status().is_client_error() => (error.status(), Some(error.to_string()), Vec::new(), None),
        Err(error) => return Err(error.into()),
    };
    let query = uri.query().unwrap_or_default();
    let first = asked.after.is_some().then(|| without_cursor(query));
    let next = next.map(|cursor| format!("{}&after={}", without_cursor(query), encoded(&cursor)));
    let frame = Frame::new("./", "feeds", now);
    answer(status, &SearchPage { frame, asked, wrong, rows, first, next })
}

/// A form sends every field, and empty what was left empty.
fn given(params: ListParams) -> ListParams {
    let some = |text: Option<String>| text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    ListParams {
        q: some(params.q),
        host: some(params.host)
            .map(|host| if host.contains(':') || host.starts_with("*.") { host } else { format!("{host}:443") }),
        category: some(params.category),
        status: some(params.status),
        failure: some(params.failure),
        failing: some(params.failing),
        label: some(params.label),
        external_id: some(params.external_id),
        sort: some(params.sort),
        after: some(params.after),
        limit: some(params.limit),
    }
}

async fn list(api: &Api, asked: &ListParams, now: Timestamp) -> Result<(Vec<Row>, Option<String>), ApiError> {
    let page = api.ops.feeds(&asked.clone().query(USUAL)?).await?;
    Ok((page.items.into_iter().map(|feed| row(api, feed, now)).collect(), page.next))
}

fn row(api: &Api, feed: Feed, now: Timestamp) -> Row {
    let next = feed.due().map(|due| Moment::due(due, now));
    let view = api.view(feed);
    let (outcome, at) = (view.last_outcome, view.last_polled);
    Row {
        id: view.id.0,
        title: view.title,
        url: view.url,
        category: view.category.as_str(),
        status: view.status.as_str(),
        subscribers: words::count(view.subscribers.into()),
        last: outcome.zip(at).map(|(outcome, at)| (words::outcome(outcome), Moment::of(at, now))),
        class: match view.status {
            Status::Active => outcome.map_or("idle", super::feed::outcome_class),
            _ => "idle",
        },
        trouble: view.last_error.map(|error| (error.error.short(), error.error.detail)),
        next,
    }
}

/// The query without its `after`, still encoded.
fn without_cursor(query: &str) -> String {
    query.split('&').filter(|pair| !pair.starts_with("after=") && !pair.is_empty()).collect::<Vec<_>>().join("&")
}

/// Cursors are base64 for URLs; anything else would be a mistake of ours.
fn encoded(cursor: &str) -> String {
    cursor.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~')).collect()
}
