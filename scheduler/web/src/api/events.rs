//! All events for consumers, in the order in which they were stored: as server-sent events, or as a list.
//!
//! The cursor is a `seq`, the last one that a consumer has processed. It is valid in one epoch only: a store that was
//! restored from a backup issues numbers again.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use axum::response::Response;
use axum::response::sse;
use futures_util::stream;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::error::ApiError;
use crate::reading::{parameters, refuse_lost};
use crate::request::{Params, parsed};
use crate::state::{Api, LARGE_EVENTS, State};
use crate::streams::{HEARTBEAT, heartbeat};
use crate::turns::Turns;
use crate::until_sent::until_sent;
use crate::written::written;
use scheduler::events::follow::Follower;
use scheduler::wire::{EventList, EventView};
use store::{Event, EventPage};

parameters! {
    /// The parameters of lists and streams of events.
    EventParams { }
}

/// `GET /events`: a list for clients that accept JSON and no stream, otherwise a stream.
pub(super) async fn events(
    State(api): State<Api>,
    Params(params): Params<EventParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    if !wants_list(&headers) {
        return streamed(&api, &params, &headers).await;
    }
    let query = params.chosen().query(&api, cursor(&api, &params, &headers).await?).await?;
    let turn = api.page_turn().await?;
    let page = api.ops.store.find_events(&query).await?;
    refuse_lost(&api, &query, params.epoch.as_deref(), &page).await?;
    let items = page.items.into_iter().map(EventView::of).collect();
    let list = EventList { epoch: page.epoch, oldest: page.oldest, items, next: page.next, more: page.more };
    Ok(until_sent(written(list).await?, turn))
}

/// `GET /events/stream`
pub(super) async fn stream(
    State(api): State<Api>,
    Params(params): Params<EventParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    streamed(&api, &params, &headers).await
}

async fn streamed(api: &Api, params: &EventParams, headers: &HeaderMap) -> Result<Response, ApiError> {
    let query = params.chosen().query(api, cursor(api, params, headers).await?).await?;
    if query.newest {
        return Err(ApiError::bad("order must be oldest in a stream; a list has the newest first"));
    }
    if params.limit.is_some() {
        return Err(ApiError::bad(
            "a stream has no limit; a list has one: send Accept: application/json to GET /api/v1/events",
        ));
    }
    let mut follower = Follower::new(api.tail.clone(), query.after).only(query.filter.clone()).holding(HELD);
    let turn = api.stream_turn().await?;
    let mut first = follower.page().await?;
    drop(turn);
    refuse_lost(api, &query, params.epoch.as_deref(), &first).await?;
    if room_for(&first.items) > 0 {
        // The stream reads it again once there is room for it.
        first.items.clear();
        follower.rewind(query.after);
    }
    let telling = Telling::new(follower, query.after, first, api);
    api.streams.answer(stream::unfold(telling, Telling::next))
}

/// Returns the cursor. A client that comes back sends its position in the header that browsers use.
async fn cursor(api: &Api, params: &EventParams, headers: &HeaderMap) -> Result<i64, ApiError> {
    let accepted = "a seq: a whole number, 0 for the oldest that is kept, or 'latest' for what comes from now on";
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty());
    match (last, params.after.as_deref()) {
        (None, Some("latest")) => Ok(api.ops.store.latest_seq().await?),
        (Some(id), _) => Ok(parsed("Last-Event-ID", Some(id), accepted)?.unwrap_or(0)),
        (None, after) => Ok(parsed("after", after, accepted)?.unwrap_or(0)),
    }
}

fn wants_list(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    accept.contains("application/json") && !accept.contains("text/event-stream")
}

/// Bytes of text that a stream holds. With what waits to be sent as JSON, 500 streams hold 250 MB (SECURITY.md). A larger event needs room of all streams together
/// ([`LARGE_EVENTS`]) until its reader has taken it.
const HELD: usize = 256 << 10;

/// Returns the kilobytes that events need beyond what one stream may hold; 0 if they fit.
fn room_for(events: &[Event]) -> usize {
    let bytes: usize =
        events.iter().filter_map(|event| event.entry.as_ref()).map(|stored| stored.entry.text_bytes()).sum();
    if bytes <= HELD { 0 } else { (bytes >> 10).min(LARGE_EVENTS) }
}

/// A stream to one client.
struct Telling {
    api: Api,
    follower: Follower,
    epoch: String,
    /// Read and not yet sent.
    ready: VecDeque<Event>,
    events: usize,
    bytes: usize,
    begun: bool,
    over: bool,
    after: i64,
    oldest: i64,
    /// When the client was last sent something.
    said: Instant,
    /// Limits the pages that are read at once.
    pages: Arc<Turns>,
    /// Room for large events, and what of it this stream has.
    large: Arc<Semaphore>,
    room: Option<OwnedSemaphorePermit>,
}

impl Telling {
    fn new(follower: Follower, after: i64, first: EventPage<Event>, api: &Api) -> Self {
        let (epoch, oldest, ready) = (first.epoch, first.oldest, VecDeque::from(first.items));
        Telling {
            api: api.clone(),
            follower,
            epoch,
            events: ready.len(),
            ready,
            bytes: 0,
            begun: false,
            over: false,
            after,
            oldest,
            said: Instant::now(),
            pages: Arc::clone(&api.pages),
            large: Arc::clone(&api.large_events),
            room: None,
        }
    }

    /// Returns the next event; `None` ends the stream, and the client's next request gets the reason.
    async fn next(mut self) -> Option<(sse::Event, Self)> {
        if self.over {
            return None;
        }
        if !std::mem::replace(&mut self.begun, true) {
            return Some((self.in_epoch(), self));
        }
        if self.ready.is_empty() {
            // The reader has taken what needed it.
            self.room = None;
        }
        loop {
            // The next request gets the reason.
            if !self.api.admits_still() {
                return None;
            }
            if let Some(event) = self.ready.pop_front() {
                let written = self.written(event)?;
                return Some((written, self));
            }
            if self.events > 0 {
                self.follower.note_size(self.events, self.bytes);
            }
            // With a filter much may be looked at and nothing said.
            if self.said.elapsed() >= HEARTBEAT {
                return Some((self.heartbeat(), self));
            }
            let after = self.follower.after();
            let turn = self.pages.take(None).await.ok()?;
            let page = self.follower.page().await.ok()?;
            drop(turn);
            if page.epoch != self.epoch {
                (self.epoch, self.oldest, self.over) = (page.epoch, page.oldest, true);
                return Some((self.in_epoch(), self));
            }
            if Follower::missed(after, &page) {
                return None;
            }
            let needed = room_for(&page.items);
            if needed > self.room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits) {
                // Not kept while it waits.
                drop(page);
                self.follower.rewind(after);
                self.room = None;
                let room = Arc::clone(&self.large).acquire_many_owned(u32::try_from(needed).ok()?);
                match tokio::time::timeout(HEARTBEAT, room).await {
                    Ok(room) => self.room = Some(room.ok()?),
                    Err(_) => return Some((self.heartbeat(), self)),
                }
                continue;
            }
            (self.events, self.bytes, self.ready) = (page.items.len(), 0, page.items.into());
            if self.ready.is_empty() && tokio::time::timeout(HEARTBEAT, self.follower.news()).await.is_err() {
                return Some((self.heartbeat(), self));
            }
        }
    }

    /// With the number up to which everything was looked at, so that a client that comes back continues from there.
    fn heartbeat(&mut self) -> sse::Event {
        self.said = Instant::now();
        match self.follower.after() {
            0 => heartbeat(),
            after => heartbeat().id(after.to_string()),
        }
    }

    /// Without an id, so that a client keeps its cursor.
    fn in_epoch(&self) -> sse::Event {
        let epoch = json!({ "epoch": self.epoch, "oldest": self.oldest, "after": self.after });
        sse::Event::default().event("epoch").data(epoch.to_string())
    }

    fn written(&mut self, event: Event) -> Option<sse::Event> {
        self.said = Instant::now();
        let (seq, kind) = (event.seq, event.kind.clone());
        let text = serde_json::to_string(&EventView::in_epoch(event, &self.epoch)).ok()?;
        self.bytes += text.len();
        Some(sse::Event::default().id(seq.to_string()).event(kind).data(text))
    }
}
