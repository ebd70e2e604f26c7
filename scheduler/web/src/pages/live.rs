//! `/live`: the fleet's page while it is looked at. One loop counts and renders for all who look, and only while somebody does;
//! they get the same texts that the page has, by the names that it gives them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Extension, State as Shared};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::charts::{Ring, Sample};
use super::frame::protect;
use super::lists::fragments;
use super::shown::Shown;
use crate::error::ApiError;
use crate::session::Caller;
use crate::state::{Api, State};
use scheduler::condition::failure_log::FailureLog;
use scheduler::error::BackendError;
use scheduler::ops::Ops;

/// How often numbers are renewed; the lists, which ask the store more, every fifth time.
const EVERY: Duration = Duration::from_secs(2);
const LISTS_EVERY: u32 = 5;
/// How long a stream lasts. Then the page opens the next one, with the login that its browser has by then.
const LONGEST: Duration = Duration::from_secs(60);
/// Pages that are kept up to date at once.
const MOST_LISTENERS: usize = 64;

/// The last half hour, and who watches.
#[derive(Debug)]
pub(crate) struct Live {
    ring: Mutex<Ring>,
    news: watch::Sender<News>,
    places: Arc<Semaphore>,
    /// Counts those who logged out.
    logouts: watch::Sender<u64>,
}

/// The data of the two events for listeners.
#[derive(Clone, Debug, Default)]
struct News {
    numbers: Arc<str>,
    lists: Arc<str>,
}

impl Default for Live {
    fn default() -> Self {
        let places = Arc::new(Semaphore::new(MOST_LISTENERS));
        Live { ring: Mutex::default(), news: watch::Sender::default(), places, logouts: watch::Sender::default() }
    }
}

impl Live {
    /// The last half hour.
    pub(super) fn ring(&self) -> &Mutex<Ring> {
        &self.ring
    }

    /// Has every page open its stream again: somebody logged out, whose streams must end.
    pub(super) fn someone_left(&self) {
        self.logouts.send_modify(|count| *count += 1);
    }

    /// Sends listeners what is shown now.
    fn tell(&self, shown: &Shown, lists: Option<BTreeMap<&'static str, String>>) {
        let paths: BTreeMap<&str, &str> = shown.paths().collect();
        let values: BTreeMap<&str, &str> = shown.values().collect();
        let numbers = json!({ "texts": shown.texts, "paths": paths, "values": values }).to_string();
        self.news.send_modify(|news| {
            news.numbers = numbers.into();
            if let Some(lists) = lists {
                let lists = json!(lists).to_string();
                if *news.lists != *lists {
                    news.lists = lists.into();
                }
            }
        });
    }

    /// Returns what listeners were sent last.
    #[cfg(test)]
    pub(super) fn last_sent(&self) -> (serde_json::Value, serde_json::Value) {
        let news = self.news.borrow();
        (serde_json::from_str(&news.numbers).unwrap(), serde_json::from_str(&news.lists).unwrap())
    }

    /// One look at the fleet; `turn` counts the looks of this audience.
    pub(super) async fn look(&self, ops: &Ops, turn: u32) -> Result<(), BackendError> {
        let shown = Shown::now(ops, &self.ring).await?;
        let lists = if turn.is_multiple_of(LISTS_EVERY) { Some(fragments(ops, &shown).await?) } else { None };
        self.tell(&shown, lists);
        Ok(())
    }
}

/// Samples what is counted, and keeps the pages that are open up to date, until stopped.
pub(crate) async fn watch(live: Arc<Live>, ops: Arc<Ops>, stop: CancellationToken) {
    let mut every = tokio::time::interval(EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut looking = FailureLog::new("keeping the fleet's page up to date");
    let mut turn = 0;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = every.tick() => {}
        }
        common::lock(&live.ring).push(Sample::of(&ops.metrics, ops.clock.now()));
        if live.news.receiver_count() == 0 {
            turn = 0;
            continue;
        }
        looking.note(live.look(&ops, turn).await);
        turn += 1;
    }
}

/// `GET /live`: server-sent events `numbers`, `lists`, and `again` as the last one.
pub(super) async fn stream(
    State(api): State<Api>,
    Shared(live): Shared<Arc<Live>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let full = |_| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "enough pages are watched already; reload by hand");
    let place = live.places.clone().try_acquire_owned().map_err(full)?;
    let mut news = live.news.subscribe();
    // A new listener waits for the next count: older news may be of yesterday.
    news.mark_unchanged();
    let listener = Listener {
        news,
        has_lists: Arc::default(),
        waiting: None,
        end: api.closing.clone(),
        logouts: live.logouts.subscribe(),
        login: caller.in_session.then_some((api, headers)),
        until: Instant::now() + LONGEST,
        ended: false,
        _place: place,
    };
    let events = events(listener);
    let mut response = Sse::new(events).keep_alive(KeepAlive::default()).into_response();
    protect(&mut response);
    Ok(response)
}

struct Listener {
    news: watch::Receiver<News>,
    /// The lists that it has.
    has_lists: Arc<str>,
    /// Lists that come next.
    waiting: Option<Arc<str>>,
    end: CancellationToken,
    logouts: watch::Receiver<u64>,
    /// The login that it was opened with.
    login: Option<(Api, HeaderMap)>,
    until: Instant,
    ended: bool,
    _place: OwnedSemaphorePermit,
}

impl Listener {
    /// Returns whether the login that it was opened with has expired.
    fn has_expired(&self) -> bool {
        self.login.as_ref().is_some_and(|(api, headers)| api.sessions.of(headers, api.ops.clock.now()).is_none())
    }

    /// The last event: the page is to open another stream.
    fn again(mut self) -> Option<(Result<Event, Infallible>, Self)> {
        self.ended = true;
        // Browsers drop an event without data.
        Some((Ok(Event::default().event("again").data("now")), self))
    }
}

fn events(listener: Listener) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(listener, async |mut listener| {
        if listener.ended {
            return None;
        }
        if listener.has_expired() {
            return listener.again();
        }
        if let Some(lists) = listener.waiting.take() {
            return Some((Ok(Event::default().event("lists").data(&*lists)), listener));
        }
        tokio::select! {
            () = listener.end.cancelled() => return None,
            _ = listener.logouts.changed() => return listener.again(),
            () = tokio::time::sleep_until(listener.until) => return listener.again(),
            changed = listener.news.changed() => changed.ok()?,
        }
        if listener.has_expired() {
            return listener.again();
        }
        let news = listener.news.borrow_and_update().clone();
        if news.lists != listener.has_lists {
            listener.has_lists = news.lists.clone();
            listener.waiting = Some(news.lists);
        }
        Some((Ok(Event::default().event("numbers").data(&*news.numbers)), listener))
    })
}
