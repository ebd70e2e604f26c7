//! `/feeds`: feeds by words, host, category, status and failure, a page at a time.

use askama::Template;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use common::feed::Feed;
use common::outcome::FailureKind;
use common::policy::{Category, Status};
use common::time::Timestamp;
use percent_encoding::percent_decode_str;

use super::actions;
use super::columns::{Column, Sortable, heads, is_reversed};
use super::frame::{Frame, answer, in_pages};
use super::paging::Paging;
use super::query::without;
use super::waits::{Next, Stops};
use super::words::{self, Moment};
use crate::error::ApiError;
use crate::listing::ListParams;
use crate::request::Params;
use crate::state::{Api, State};
use crate::until_sent::until_sent;

/// The columns by which the list can be sorted.
const COLUMNS: [Sortable; 5] = [
    Sortable::rising("id", "Feed", "").about("In the order in which they were added"),
    Sortable::rising("category", "Cat.", "mid")
        .about("Category: A under an SLA, B more than 20 subscribers, C 2 to 20, D one or none, F by its host"),
    Sortable::falling("subscribers", "Subscribers", "n far"),
    Sortable::rising("last_polled", "Last poll", "").about("Among more than 2,000 feeds, sorted by the day"),
    Sortable::rising("next_due", "Next poll", "mid"),
];

/// The parameter that has the pages before this one.
const EARLIER: &str = "earlier";
/// Feeds on a page when nobody says how many.
const USUAL: u32 = 50;

#[derive(Template)]
#[template(path = "pages/search.html")]
struct SearchPage {
    frame: Frame,
    asked: ListParams,
    /// What was wrong with the request.
    wrong: Option<String>,
    rows: Vec<Row>,
    columns: Vec<Column>,
    paging: Paging,
    /// What was done just now.
    done: Option<String>,
    /// The query string of this page.
    query: String,
    /// How many feeds match, where that is known without counting them.
    count: Option<String>,
    /// All polling is paused; feeds that were woken may be polled all the same.
    paused: bool,
}

struct Row {
    id: i64,
    title: Option<String>,
    url: String,
    category: &'static str,
    /// What the category means.
    about: &'static str,
    /// The status in words, and its name in the API.
    status: (&'static str, &'static str),
    subscribers: String,
    last: Option<(&'static str, Moment)>,
    /// Colour of the last outcome, or of why it is not polled.
    class: &'static str,
    /// Colour, a few words, and a sentence that says why it fails.
    trouble: Option<(&'static str, String, String)>,
    next: Option<Next>,
}

impl SearchPage {
    fn is(&self, given: &Option<String>, name: &str) -> bool {
        given.as_deref().is_some_and(|given| given.eq_ignore_ascii_case(name))
    }

    fn given<'a>(&self, given: &'a Option<String>) -> &'a str {
        given.as_deref().unwrap_or_default()
    }

    fn is_filtered(&self) -> bool {
        let asked = &self.asked;
        let marks = [&asked.label, &asked.external_id];
        let classes = [&asked.category, &asked.status, &asked.failure, &asked.failing, &asked.penalised];
        [&asked.q, &asked.host].iter().chain(&classes).chain(&marks).any(|given| given.is_some())
    }
}

/// `GET /feeds`
pub(super) async fn page(State(api): State<Api>, frame: Frame, uri: Uri) -> Result<Response, ApiError> {
    let now = frame.now;
    let query = uri.query().unwrap_or_default();
    let done = query.split('&').find_map(|pair| pair.strip_prefix("done="));
    let stops = Stops::now(&api.ops, now).await?;
    let none = stops.is_all();
    let one = |done| actions::said(done, none).map(str::to_owned);
    let done = done.and_then(|done| actions::said_of_several(done, none).or_else(|| one(done)));
    let query = without(query, "done");
    let unreadable = |_| ApiError::bad("the query string is not readable; write name=value&name=value");
    let listed = without(&query, EARLIER);
    let Params(asked) = Params::<ListParams>::of(&Uri::try_from(format!("/feeds?{listed}")).map_err(unreadable)?)?;
    let asked = given(asked);
    // Until it is sent: a page of feeds takes as much memory as one of the API.
    let turn = api.page_turn().await?;
    let listed = list(&api, &asked, &stops, now).await;
    let (status, wrong, rows, next) = match listed {
        Ok((rows, next)) => (StatusCode::OK, None, rows, next),
        Err(error) if error.status().is_client_error() => {
            (error.status(), Some(in_pages(&error.to_string())), Vec::new(), None)
        }
        Err(error) => return Err(error),
    };
    let conditions = conditions(&query);
    let earlier = query.split('&').find_map(|pair| pair.strip_prefix("earlier="));
    let earlier = earlier.map(|earlier| percent_decode_str(earlier).decode_utf8_lossy());
    let paging = Paging::new("feeds", &conditions, earlier.as_deref(), asked.after.as_deref(), next.as_deref());
    let shown = words::at_least(rows.len(), asked.after.is_none(), paging.next.is_some(), ("feed", "feeds"));
    let count = if wrong.is_none() { count(&api, &asked, now, shown).await? } else { None };
    let frame = frame.around("feeds");
    let by = asked.sort.clone().unwrap_or_else(|| "id".to_owned());
    let falls = COLUMNS.iter().any(|column| column.falls && column.name.eq_ignore_ascii_case(&by));
    let reversed = is_reversed(asked.order.as_deref(), falls).unwrap_or(false);
    let columns = heads(&COLUMNS, "feeds", &without(&without(&conditions, "sort"), "order"), (by.as_str(), reversed));
    let paused = stops.paused;
    let page = SearchPage { paused, frame, asked, wrong, rows, columns, paging, done, query, count };
    Ok(until_sent(answer(status, &page)?, turn))
}

/// The part of a query string that says which feeds are listed, and in which order.
fn conditions(query: &str) -> String {
    without(&without(query, "after"), EARLIER)
}

/// A form sends every field, and empty what was left empty.
fn given(params: ListParams) -> ListParams {
    let some = |text: Option<String>| text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    ListParams {
        q: some(params.q),
        host: some(params.host),
        category: some(params.category),
        status: some(params.status),
        failure: some(params.failure),
        failing: some(params.failing),
        penalised: some(params.penalised),
        label: some(params.label),
        external_id: some(params.external_id),
        sort: some(params.sort),
        order: some(params.order),
        after: some(params.after),
        limit: some(params.limit),
    }
}

async fn list(
    api: &Api,
    asked: &ListParams,
    stops: &Stops,
    now: Timestamp,
) -> Result<(Vec<Row>, Option<String>), ApiError> {
    let page = api.ops.feeds(&asked.clone().query(api, USUAL).await?).await?;
    Ok((page.items.into_iter().map(|feed| row(api, feed, stops, now)).collect(), page.next))
}

fn row(api: &Api, feed: Feed, stops: &Stops, now: Timestamp) -> Row {
    let class = if feed.state.penalty.is_some() { "bad" } else { "warn" };
    let may_fail = matches!(feed.status, Status::Active | Status::Blacklisted);
    let next = stops.of(&feed).next(&feed, now);
    let view = api.view(feed);
    let (outcome, at) = (view.last_outcome, view.last_polled);
    Row {
        id: view.id.0,
        title: view.title,
        url: view.url,
        category: view.category.as_str(),
        about: words::category(view.category),
        status: (words::feed_status(view.status), view.status.as_str()),
        subscribers: words::count(view.subscribers.into()),
        last: outcome.zip(at).map(|(outcome, at)| (words::outcome(outcome), Moment::of(at, now))),
        class: match view.status {
            Status::Active => outcome.map_or("idle", super::feed::outcome_class),
            _ => "idle",
        },
        trouble: view.last_error.filter(|_| may_fail).map(|error| (class, error.error.short(), error.error.detail)),
        next,
    }
}

/// How many feeds match: from the counters, which know feeds by category and status, or else as far as this page shows it.
async fn count(
    api: &Api,
    asked: &ListParams,
    now: Timestamp,
    shown: Option<String>,
) -> Result<Option<String>, ApiError> {
    let query = asked.clone().query(api, USUAL).await?;
    let marks = query.label.is_some() || query.external_id.is_some();
    let failures = query.failing || query.penalised || query.failure.is_some();
    let others = query.text.is_some() || !query.hosts.is_empty() || failures;
    // For a caller with labels, what others have is not counted.
    if marks || others || !api.labels().is_empty() {
        return Ok(shown);
    }
    let stats = api.ops.store.stats(now).await?;
    let fits = |category, status| {
        query.category.is_none_or(|wanted| wanted == category) && query.status.is_none_or(|wanted| wanted == status)
    };
    let classes = stats.feeds.iter().filter(|(category, status, _)| fits(*category, *status));
    Ok(Some(words::counted(classes.map(|(.., feeds)| feeds).sum(), "feed", "feeds")))
}
