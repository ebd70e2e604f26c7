//! `/status?url=`: the page for publishers: whether their feed is read, when next, why it is in the penalty box, and
//! what to fix. Public and rate-limited; a private feed looks like one that is not in the fleet.

use askama::Template;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use common::feed::Feed;
use common::last_error::ErrorKind;
use common::outcome::FailureKind;
use common::time::Timestamp;
use serde::Deserialize;

use super::advice;
use super::feed::{PollLine, poll_line};
use super::frame::{Frame, answer};
use super::outlook::{self, Outlook};
use super::waits::{Next, Stops};
use super::words::{self, Moment};
use crate::error::ApiError;
use crate::request::Params;
use crate::state::{Api, State};
use crate::visitors::Visitor;
use store::{FeedRef, HistoryEntry};

/// Polls that are shown.
const POLLS: usize = 10;

/// The parameters of `GET /status`.
#[derive(Debug, Deserialize)]
pub(super) struct StatusParams {
    url: Option<String>,
}

#[derive(Template)]
#[template(path = "pages/status.html")]
struct StatusPage {
    frame: Frame,
    /// The requested URL, as it was written.
    asked: String,
    wrong: Option<String>,
    found: Option<Found>,
    /// An address to ping with, as it may stand between single quotes in a shell.
    example: String,
    pings_at: String,
}

struct Found {
    url: String,
    link: Option<String>,
    title: Option<String>,
    outlook: Outlook,
    /// Its last poll was good.
    is_well: bool,
    subscribers: String,
    next: Option<Next>,
    last_polled: Option<Moment>,
    last_success: Option<Moment>,
    advice: Vec<&'static str>,
    polls: Vec<PollLine>,
}

/// `GET /status`
pub(super) async fn page(
    State(api): State<Api>,
    frame: Frame,
    caller: Visitor,
    headers: HeaderMap,
    params: Result<Params<StatusParams>, ApiError>,
) -> Result<Response, ApiError> {
    let now = frame.now;
    if let Err(wait) = api.publishers.admit(caller, api.ops.config.api.status_per_minute, now) {
        return Ok(too_often(wait.as_secs().max(1)));
    }
    let Params(StatusParams { url }) = params?;
    let asked = url.unwrap_or_default().trim().to_owned();
    let mut page = StatusPage {
        frame: frame.around("status"),
        wrong: None,
        found: None,
        example: "https://example.com/feed.xml".to_owned(),
        pings_at: quotable(&format!("{}/ping", api.reached_at(&headers))),
        asked,
    };
    if page.asked.is_empty() {
        return answer(StatusCode::OK, &page);
    }
    match api.feed_url(&page.asked) {
        Ok(url) => {
            page.example = quotable(url.as_str());
            let feed = api.ops.feed(&FeedRef::Url(url)).await?.filter(|feed| !feed.is_private());
            let feed = match feed.as_ref().and_then(|feed| feed.merged_into) {
                Some(other) => api.ops.feed(&FeedRef::Id(other)).await?.filter(|feed| !feed.is_private()),
                None => feed,
            };
            if let Some(feed) = feed {
                page.found = Some(found(&api, &feed, now).await?);
            }
        }
        Err(error) => page.wrong = Some(error.to_string()),
    }
    let status = match (&page.wrong, &page.found) {
        (Some(_), _) => StatusCode::BAD_REQUEST,
        (None, None) => StatusCode::NOT_FOUND,
        (None, Some(_)) => StatusCode::OK,
    };
    answer(status, &page)
}

/// Returns the URL as it may stand between single quotes in a shell.
fn quotable(url: &str) -> String {
    url.replace('\'', "%27")
}

async fn found(api: &Api, feed: &Feed, now: Timestamp) -> Result<Found, ApiError> {
    let mut history = api.ops.store.history(feed.id).await?.unwrap_or_default();
    let mut feed = feed.clone();
    hide_refused_addresses(&mut feed, &mut history);
    let feed = &feed;
    let waits = Stops::of_host(&api.ops, &feed.host, now).await?.of(feed);
    let outlook = outlook::of(feed, waits, &api.ops.condition.config.get().policy, now);
    let moment = |at: Timestamp| Moment::of(at, now);
    Ok(Found {
        url: feed.url.to_string(),
        link: words::web_link(feed.url.as_str()),
        title: feed.title.clone(),
        is_well: outlook.class == "good" && feed.state.last_polled.is_some(),
        outlook,
        subscribers: words::count(feed.audience.subscribers.into()),
        next: waits.next(feed, now),
        last_polled: feed.state.last_polled.map(moment),
        last_success: feed.state.last_success.map(moment),
        advice: advice::of(feed),
        polls: history.iter().take(POLLS).map(|poll| poll_line(poll, now)).collect(),
    })
}

/// A name of our own network and one that does not exist look alike from outside.
fn hide_refused_addresses(feed: &mut Feed, history: &mut [HistoryEntry]) {
    let last = feed.last_error.as_mut().and_then(|error| match &mut error.kind {
        ErrorKind::Failed(kind) => Some(kind),
        ErrorKind::Refused(_) => None,
    });
    let boxed = feed.state.penalty.as_mut().map(|penalty| &mut penalty.kind);
    let failures = history.iter_mut().filter_map(|poll| poll.failure.as_mut());
    for kind in failures.chain(boxed).chain(last) {
        if *kind == FailureKind::RefusedAddress {
            *kind = FailureKind::Dns;
        }
    }
}

fn too_often(seconds: u64) -> Response {
    let message = format!("that is too often within a minute; try again in {seconds} s");
    let mut response = ApiError::new(StatusCode::TOO_MANY_REQUESTS, message).into_response();
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}
