//! Endless responses: server-sent events (WHATWG HTML, section 9.2), for any source of news.
//!
//! A stream is pulled: nothing is made for a client that does not read. The number of places is fixed, and all streams
//! end when the fleet stops; browsers and other clients reconnect automatically.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::error::ApiError;

/// The maximum number of streams: each holds a connection and about a page of what it sends.
const PLACES: usize = 500;

/// Something must be sent this often, if only a comment: a client that receives nothing for twice as long disconnects,
/// and a client that is gone is noticed.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);

/// How long a client waits before it comes back.
const COME_BACK: Duration = Duration::from_secs(1);

/// The places for streams. Reusable: [`Streams::answer`] takes any stream of events.
pub(crate) struct Streams {
    places: Arc<Semaphore>,
    /// This process ends.
    closing: CancellationToken,
}

impl Streams {
    /// Streams that end at `closing`.
    pub(crate) fn new(closing: CancellationToken) -> Self {
        Streams { places: Arc::new(Semaphore::new(PLACES)), closing }
    }

    /// Sends these events, each when the client has taken those before. 503 when all places are taken. The caller sends
    /// a [`heartbeat`] when there is nothing else for as long as [`HEARTBEAT`].
    pub(crate) fn answer(&self, events: impl Stream<Item = Event> + Send + 'static) -> Result<Response, ApiError> {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            let message = format!("{PLACES} streams are open already, and no more are kept; try again");
            return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message));
        };
        let begin = futures_util::stream::once(std::future::ready(Event::default().retry(COME_BACK)));
        let closing = self.closing.clone().cancelled_owned();
        let events = begin.chain(events).take_until(closing).map(move |event| {
            let _held = &place;
            Ok::<_, Infallible>(event)
        });
        let mut response = Sse::new(events).into_response();
        // A proxy that gathers an answer before it passes it on would gather this one for ever.
        response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
        Ok(response)
    }
}

/// Returns a comment, which clients ignore.
pub(crate) fn heartbeat() -> Event {
    Event::default().comment("")
}
