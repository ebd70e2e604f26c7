//! What every handler works on.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use common::feed::Feed;
use common::input;
use common::labels::Marks;
use common::url::{FeedId, FeedUrl};
use scheduler::events::follow::Tail;
use scheduler::ops::pings::Pings;
use scheduler::ops::{AddFeed, Ops};
use scheduler::push::callback::Callbacks;
use scheduler::wire::FeedView;
use store::{FeedRef, Subscription};
use tokio::sync::{AcquireError, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::api::audit::ledger::Ledger;
use crate::api::scope::named;
use crate::error::ApiError;
use crate::readiness::Readiness;
use crate::session::{Caller, Sessions};
use crate::streams::Streams;
use crate::turns::{Turn, Turns};
use crate::visitors::Visitors;

/// The state that all handlers share.
#[derive(Clone)]
pub(crate) struct Api {
    /// The operations.
    pub(crate) ops: Arc<Ops>,
    /// The caller of the request that this is handed to.
    pub(crate) caller: Caller,
    /// Counts the visitors of the publisher's page.
    pub(crate) publishers: Arc<Visitors>,
    /// Counts requests that a token's role forbids.
    pub(crate) refusals: Arc<Visitors>,
    /// Writes the audit.
    pub(crate) ledger: Arc<Ledger>,
    /// Logins to the pages.
    pub(crate) sessions: Arc<Sessions>,
    /// Counts attempts to log in.
    pub(crate) logins: Arc<Visitors>,
    /// Counts the senders of pings.
    pub(crate) visitors: Arc<Visitors>,
    /// Counts the callers of the hub.
    pub(crate) hub_callers: Arc<Visitors>,
    /// Gathers pings.
    pub(crate) pings: Pings,
    /// Takes what hubs and clouds send.
    pub(crate) callbacks: Arc<Callbacks>,
    /// The end of the event log.
    pub(crate) tail: Arc<Tail>,
    /// The open event streams.
    pub(crate) streams: Arc<Streams>,
    /// Whether the servers behind a scheduler answer.
    pub(crate) readiness: Arc<Readiness>,
    /// Cancelled when what has no end of its own must end.
    pub(crate) closing: CancellationToken,
    /// Limits the pages in progress.
    pub(crate) pages: Arc<Turns>,
    /// Limits the pages for people in progress, which are short: programs that read slowly must not take their turns.
    pub(crate) people: Arc<Turns>,
    /// Limits the bytes of large events that streams hold.
    pub(crate) large_events: Arc<Semaphore>,
    /// Limits the pages of entries that are being sanitised to the number of cores, so that other requests are answered.
    pub(crate) sanitisers: Arc<Semaphore>,
}

/// The state for one request: with its caller, so that a token with labels finds only its feeds. Handlers take it instead of axum's.
pub(crate) struct State<T>(pub(crate) T);

impl<S> FromRequestParts<S> for State<Api>
where
    Api: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let caller = parts.extensions.get::<Caller>().cloned().unwrap_or_else(Caller::nobody);
        Ok(State(Api { caller, ..Api::from_ref(state) }))
    }
}

/// Pages of entries, events and feeds that are read, written or sent at once. Each holds at most 8 MB of text three times over (as
/// read, as HTML that may be shown, as JSON): about 300 MB for all of them. Short ones are sent at once and hold nothing up.
const PAGES: usize = 8;
/// Those of one token: its slow readers leave the others to other callers.
const PAGES_OF_ONE: usize = 3;
/// Kilobytes of events that are too large for a stream's own share, over all streams: 500 readers that take nothing would
/// otherwise hold the same megabyte 500 times, as text and as JSON. Less in tests, which reach it sooner.
pub(crate) const LARGE_EVENTS: usize = if cfg!(test) { 4 << 10 } else { 64 << 10 };
/// How long a page waits for its slot.
const PAGE_WAIT: Duration = Duration::from_millis(if cfg!(test) { 500 } else { 15_000 });

impl Api {
    /// Returns whether the caller's token is still in force: streams outlast it otherwise.
    pub(crate) fn admits_still(&self) -> bool {
        self.sessions.admits(&self.caller, self.ops.clock.now())
    }

    /// Waits for the turn to read a page of entries or events; 503 when it does not come.
    pub(crate) async fn page_turn(&self) -> Result<Turn, ApiError> {
        within_wait(self.pages.take(self.caller.identity())).await
    }

    /// The same for a page of a stream, which is not held until it is sent: its caller may have all turns.
    pub(crate) async fn stream_turn(&self) -> Result<Turn, ApiError> {
        within_wait(self.pages.take(None)).await
    }

    /// The same for the short pages of the console, which are not held until they are sent either.
    pub(crate) async fn console_turn(&self) -> Result<Turn, ApiError> {
        within_wait(self.people.take(None)).await
    }

    /// Returns the state over these operations. Streams end when `closing` is cancelled.
    pub(crate) fn new(ops: Arc<Ops>, closing: CancellationToken) -> Self {
        let pings = Pings::new(ops.clone());
        Api {
            callbacks: Arc::new(Callbacks::new(ops.clone(), pings.clone())),
            refusals: Arc::default(),
            ledger: Arc::new(Ledger::new(ops.store.clone())),
            sessions: Arc::new(Sessions::new(&ops.config, ops.condition.tokens.clone())),
            caller: Caller::nobody(),
            logins: Arc::default(),
            publishers: Arc::default(),
            visitors: Arc::default(),
            hub_callers: Arc::default(),
            pings,
            tail: Arc::new(Tail::of(ops.store.clone())),
            streams: Arc::new(Streams::new(closing.clone())),
            closing,
            readiness: Arc::default(),
            pages: Arc::new(Turns::new(PAGES, PAGES_OF_ONE)),
            people: Arc::new(Turns::new(PAGES, PAGES)),
            large_events: Arc::new(Semaphore::new(LARGE_EVENTS)),
            sanitisers: Arc::new(Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from))),
            ops,
        }
    }

    /// Returns the labels that the caller is limited to; none: it sees everything.
    pub(crate) fn labels(&self) -> &[String] {
        &self.caller.labels
    }

    /// Returns whether the caller may see a feed with these labels.
    pub(crate) fn shows(&self, marks: &Marks) -> bool {
        !self.caller.is_limited() || self.labels().iter().any(|label| marks.labels.contains(label))
    }

    /// Returns the feed, if the caller may see it.
    pub(crate) async fn find(&self, which: &FeedRef) -> Result<Option<Feed>, ApiError> {
        Ok(self.ops.feed(which).await?.filter(|feed| self.shows(&feed.marks)))
    }

    /// 404 for a feed that the caller may not see, as for one that there is not.
    pub(crate) async fn may_touch(&self, id: FeedId) -> Result<(), ApiError> {
        if self.caller.is_limited() { self.feed(id).await.map(drop) } else { Ok(()) }
    }

    /// Returns whether the caller may see a subscription: one that gets nothing that the caller could not read.
    pub(crate) fn owns(&self, subscription: &Subscription) -> bool {
        let visible = &subscription.wish.filter.visible;
        !self.caller.is_limited() || !visible.is_empty() && visible.iter().all(|label| self.labels().contains(label))
    }

    /// Returns the labels of a new feed. Without any of its own it gets the caller's.
    pub(crate) fn labels_for_new(&self, wanted: Vec<String>) -> Result<Vec<String>, ApiError> {
        if self.caller.is_limited() && wanted.is_empty() {
            return Ok(self.labels().to_vec());
        }
        self.may_label(&[], &wanted)?;
        Ok(wanted)
    }

    /// Refuses a change of labels that are not the caller's, and one that would leave none of these: the feed would be lost to it.
    pub(crate) fn may_label(&self, before: &[String], after: &[String]) -> Result<(), ApiError> {
        if !self.caller.is_limited() {
            return Ok(());
        }
        let own = |label: &String| self.labels().contains(label);
        let added = after.iter().filter(|label| !before.contains(label));
        let mut changed = before.iter().filter(|label| !after.contains(label)).chain(added);
        if changed.all(own) && after.iter().any(own) {
            return Ok(());
        }
        let message = format!(
            "this token may add and remove only the labels {}, and must leave a feed one of them",
            named(self.labels())
        );
        Err(ApiError::new(StatusCode::FORBIDDEN, message).coded("token_limited"))
    }

    /// Refuses to add a URL that others have: it would change their feed, or show it.
    pub(crate) async fn may_add(&self, feed: &AddFeed) -> Result<(), ApiError> {
        if !self.caller.is_limited() || feed.login.is_some() {
            return Ok(());
        }
        let known = self.ops.feed(&FeedRef::Url(feed.url.clone())).await?;
        match known.filter(|known| !self.shows(&known.marks)) {
            Some(_) => Err(self.of_others()),
            None => Ok(()),
        }
    }

    /// 409 for a URL that others have.
    pub(crate) fn of_others(&self) -> ApiError {
        let message = format!(
            "this URL was added without the label {}, which this token is limited to; ask the operator to label it",
            named(self.labels())
        );
        ApiError::new(StatusCode::CONFLICT, message).coded("feed_of_others")
    }

    /// Returns the feed, or 404, also for one that the caller may not see.
    pub(crate) async fn feed(&self, id: FeedId) -> Result<Feed, ApiError> {
        self.find(&FeedRef::Id(id)).await?.ok_or_else(|| ApiError::no_feed(id))
    }

    /// Returns the feed as the API shows it.
    pub(crate) fn view(&self, feed: Feed) -> FeedView {
        FeedView::of(feed, &self.ops.rules.get())
    }

    /// Returns the address of this program as it is reached from outside, or else as this request reached it; without a slash at
    /// its end.
    pub(crate) fn reached_at(&self, headers: &HeaderMap) -> String {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        match self.ops.config.api.public_url.trim_end_matches('/') {
            "" => format!("http://{host}"),
            public => public.to_owned(),
        }
    }

    /// Parses the URL of a feed as a caller wrote it, or returns 400.
    pub(crate) fn feed_url(&self, text: &str) -> Result<FeedUrl, ApiError> {
        input::feed_url(text, &self.ops.config.fetch.at_service).map_err(ApiError::not_a_url)
    }
}

async fn within_wait(turn: impl Future<Output = Result<Turn, AcquireError>>) -> Result<Turn, ApiError> {
    let turn = tokio::time::timeout(PAGE_WAIT, turn).await;
    let busy = || ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too many pages are being read; try again");
    turn.map_err(|_| busy())?.map_err(|_| busy())
}
