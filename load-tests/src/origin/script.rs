//! A path's responses: scripts, made of steps that are played in sequence.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use super::bodies::{self, Coding};
use super::feed::Feed;

/// The responses of one path. Built from one response ([`Script::feed`], [`Script::status`], ..), refined by its other
/// methods, chained by [`Script::then`] or [`Script::sequence`]; the last step repeats for ever.
///
/// The refining methods change every step so far.
#[derive(Clone, Debug)]
pub struct Script {
    pub(super) steps: Vec<Step>,
}

/// One step: a response, how it is sent, and for how long.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) source: Source,
    pub(super) headers: Vec<(String, Vec<u8>)>,
    pub(super) offered: Vec<Coding>,
    pub(super) forced: Option<Coding>,
    pub(super) delivery: Delivery,
    pub(super) delay: Duration,
    pub(super) gate: Option<Gate>,
    pub(super) lasts: Lasts,
}

/// How long a step is played before the next one; the last one repeats for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lasts {
    Times(usize),
    Until(Duration),
}

#[derive(Clone, Debug)]
pub(super) enum Source {
    Feed(Box<Feed>),
    Fixed { status: u16, content_type: Option<String>, body: Bytes },
}

/// How a response's bytes are sent.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// With `Content-Length`; the connection stays open.
    Whole,
    /// In chunks of this many bytes; the connection stays open.
    Chunked(usize),
    /// Without a length; the end of the connection ends the body.
    UntilClose,
    /// `Content-Length` of the whole, but the connection closes after this many bytes.
    Truncated(usize),
    /// Chunked, but the connection closes after this many bytes, without the last chunk.
    CutChunks(usize),
    /// Chunked, with the body repeated until the client disconnects.
    Endless,
    /// With `Content-Length`, one byte of the body at a time with this pause before each.
    Drip(Duration),
    /// One byte of the head at a time with this pause before each, then the body.
    SlowHead(Duration),
    /// This many extra headers of 100 bytes, then the response.
    HeaderFlood(usize),
    /// This many `103 Early Hints` before the response.
    InterimFlood(usize),
    /// Reads the request, and never responds until the client disconnects.
    Silent,
    /// Reads the request and closes the connection.
    Close,
    /// These bytes instead of a response, then closes.
    Raw(Bytes),
}

/// A barrier in front of responses: while it is closed, requests are recorded and wait. For tests that need to know
/// that a request is in flight, without sleeping.
#[derive(Clone, Debug)]
pub struct Gate(Arc<watch::Sender<bool>>);

impl Gate {
    /// Creates a closed gate; clones share its state.
    pub fn closed() -> Self {
        Gate(Arc::new(watch::Sender::new(false)))
    }

    /// Lets all waiting and later requests pass.
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    /// Makes later requests wait again.
    pub fn close(&self) {
        self.0.send_replace(false);
    }

    pub(super) async fn passed(&self) {
        // Cannot fail: this gate holds the sender.
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }
}

impl Script {
    fn one(source: Source) -> Self {
        Script {
            steps: vec![Step {
                source,
                headers: Vec::new(),
                offered: Vec::new(),
                forced: None,
                delivery: Delivery::Whole,
                delay: Duration::ZERO,
                gate: None,
                lasts: Lasts::Times(1),
            }],
        }
    }

    /// Responds with a changing feed.
    pub fn feed(feed: Feed) -> Self {
        Self::one(Source::Feed(Box::new(feed)))
    }

    /// Responds with a status code and an empty body.
    pub fn status(status: u16) -> Self {
        Self::one(Source::Fixed { status, content_type: None, body: Bytes::new() })
    }

    /// Responds with 200 and exactly these bytes.
    pub fn body(content_type: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self::one(Source::Fixed { status: 200, content_type: Some(content_type.into()), body: body.into() })
    }

    /// Redirects: 301, 302, 303, 307, 308, or any status with a `Location`, sent unchanged.
    pub fn redirect(status: u16, location: impl Into<Vec<u8>>) -> Self {
        Self::status(status).header("Location", location)
    }

    /// Sends these bytes instead of an HTTP response, then closes the connection.
    pub fn raw(bytes: impl Into<Bytes>) -> Self {
        Self::status(200).deliver(Delivery::Raw(bytes.into()))
    }

    /// Responds with a decompression bomb: a 200 that claims to be RSS and expands to `mebibytes` MiB of zero bytes.
    ///
    /// # Errors
    /// If the encoder fails, which does not happen when writing to memory.
    pub fn bomb(coding: Coding, mebibytes: u32) -> io::Result<Self> {
        let body = bodies::bomb(coding, mebibytes)?;
        Ok(Self::body("application/rss+xml", body).header("Content-Encoding", coding.name()))
    }

    /// Never responds.
    pub fn silent() -> Self {
        Self::status(200).deliver(Delivery::Silent)
    }

    /// Plays the scripts in sequence: each answers one request unless [`Script::times`] or [`Script::until`] says
    /// otherwise; the last repeats. An empty sequence responds with 404.
    pub fn sequence(scripts: impl IntoIterator<Item = Script>) -> Self {
        let steps: Vec<Step> = scripts.into_iter().flat_map(|script| script.steps).collect();
        if steps.is_empty() { Self::status(404) } else { Script { steps } }
    }

    /// Plays this script, then that one.
    pub fn then(self, next: Script) -> Self {
        Self::sequence([self, next])
    }

    /// Lasts for `requests` requests before the next script of a sequence.
    pub fn times(self, requests: usize) -> Self {
        self.each(|step| step.lasts = Lasts::Times(requests))
    }

    /// Lasts until this much time has passed since the origin's start before the next script of a sequence.
    pub fn until(self, since_start: Duration) -> Self {
        self.each(|step| step.lasts = Lasts::Until(since_start))
    }

    /// Adds a header, sent unchanged, to every response (including 304); it replaces the server's own header of that
    /// name (`Date`, `Content-Type`, `Content-Length`, `ETag`, ..). In the value `{date}`, `{date+60}` and `{date-60}`
    /// become the current HTTP date and that many seconds later or earlier; `{date850..}` and `{asctime..}` are the
    /// same in its obsolete forms.
    pub fn header(self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        let value = value.into();
        self.each(|step| step.headers.push((name.to_owned(), value.clone())))
    }

    /// Uses the first of these codings that the request accepts, else none.
    pub fn offer(self, codings: impl IntoIterator<Item = Coding>) -> Self {
        let codings: Vec<Coding> = codings.into_iter().collect();
        self.each(|step| step.offered.clone_from(&codings))
    }

    /// Uses this coding whatever the request accepts.
    pub fn force(self, coding: Coding) -> Self {
        self.each(|step| step.forced = Some(coding))
    }

    /// Sets how the bytes are sent.
    #[expect(clippy::needless_pass_by_value, reason = "callers write it in place")]
    pub fn deliver(self, delivery: Delivery) -> Self {
        self.each(|step| step.delivery = delivery.clone())
    }

    /// Waits this long before the response.
    pub fn delay(self, delay: Duration) -> Self {
        self.each(|step| step.delay = delay)
    }

    /// Waits for the gate before the response.
    pub fn gate(self, gate: &Gate) -> Self {
        self.each(|step| step.gate = Some(gate.clone()))
    }

    fn each(mut self, change: impl Fn(&mut Step)) -> Self {
        self.steps.iter_mut().for_each(change);
        self
    }

    /// Returns the feed that determines the path's initial items and pace.
    pub(super) fn first_feed(&self) -> Option<&Feed> {
        self.steps.iter().find_map(|step| match &step.source {
            Source::Feed(feed) => Some(&**feed),
            Source::Fixed { .. } => None,
        })
    }
}
