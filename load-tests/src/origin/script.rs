//! What a path answers: scripts, made of steps that are played one after the other.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use super::bodies::{self, Coding};
use super::feed::Feed;

/// What one path answers. Built from one answer ([`Script::feed`], [`Script::status`], ..), refined by its other
/// methods, chained by [`Script::then`] or [`Script::sequence`]; the last step repeats for ever.
///
/// The refining methods change every step so far.
#[derive(Clone, Debug)]
pub struct Script {
    pub(super) steps: Vec<Step>,
}

/// One step: an answer, how it is given, and for how long.
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

/// How long a step is played before the next one; the last one has no end.
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

/// How an answer's bytes go over the wire.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// With `Content-Length`; the connection stays open.
    Whole,
    /// In chunks of so many bytes; the connection stays open.
    Chunked(usize),
    /// Without a length; the end of the connection ends the body.
    UntilClose,
    /// `Content-Length` of the whole, but the connection closes after so many bytes of it.
    Truncated(usize),
    /// Chunked, but the connection closes after so many bytes, without the last chunk.
    CutChunks(usize),
    /// Chunked, the body over and over again, until the client leaves.
    Endless,
    /// With `Content-Length`, one byte of the body at a time with this pause before each.
    Drip(Duration),
    /// One byte of the head at a time with this pause before each, then the body.
    SlowHead(Duration),
    /// So many extra headers of 100 bytes, then the answer.
    HeaderFlood(usize),
    /// So many `103 Early Hints` before the answer.
    InterimFlood(usize),
    /// Reads the request, never answers, until the client leaves.
    Silent,
    /// Reads the request and closes the connection.
    Close,
    /// These bytes instead of any answer, then closes.
    Raw(Bytes),
}

/// A barrier in front of answers: while it is closed, requests are recorded and wait. For tests that need to know that
/// a request is in flight, without sleeping.
#[derive(Clone, Debug)]
pub struct Gate(Arc<watch::Sender<bool>>);

impl Gate {
    /// A closed gate; clones are the same gate.
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

    /// A feed that changes.
    pub fn feed(feed: Feed) -> Self {
        Self::one(Source::Feed(Box::new(feed)))
    }

    /// A bare status with an empty body.
    pub fn status(status: u16) -> Self {
        Self::one(Source::Fixed { status, content_type: None, body: Bytes::new() })
    }

    /// A 200 with these very bytes.
    pub fn body(content_type: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self::one(Source::Fixed { status: 200, content_type: Some(content_type.into()), body: body.into() })
    }

    /// A redirect: 301, 302, 303, 307, 308, or any status with a `Location`, given as it is.
    pub fn redirect(status: u16, location: impl Into<Vec<u8>>) -> Self {
        Self::status(status).header("Location", location)
    }

    /// These bytes instead of an HTTP answer, then the connection closes.
    pub fn raw(bytes: impl Into<Bytes>) -> Self {
        Self::status(200).deliver(Delivery::Raw(bytes.into()))
    }

    /// A decompression bomb: a 200 that claims to be RSS and unfolds to so many MiB of zero bytes.
    ///
    /// # Errors
    /// Only if an encoder itself fails; none of them does on memory.
    pub fn bomb(coding: Coding, mebibytes: u32) -> io::Result<Self> {
        let body = bodies::bomb(coding, mebibytes)?;
        Ok(Self::body("application/rss+xml", body).header("Content-Encoding", coding.name()))
    }

    /// Never answers.
    pub fn silent() -> Self {
        Self::status(200).deliver(Delivery::Silent)
    }

    /// Plays the scripts one after the other: each answers one request unless [`Script::times`] or [`Script::until`]
    /// says otherwise; the last repeats. An empty sequence answers 404.
    pub fn sequence(scripts: impl IntoIterator<Item = Script>) -> Self {
        let steps: Vec<Step> = scripts.into_iter().flat_map(|script| script.steps).collect();
        if steps.is_empty() { Self::status(404) } else { Script { steps } }
    }

    /// This script, then that one.
    pub fn then(self, next: Script) -> Self {
        Self::sequence([self, next])
    }

    /// Lasts for so many requests before the next one of a sequence.
    pub fn times(self, requests: usize) -> Self {
        self.each(|step| step.lasts = Lasts::Times(requests))
    }

    /// Lasts until this much time has passed since the origin's start before the next one of a sequence.
    pub fn until(self, since_start: Duration) -> Self {
        self.each(|step| step.lasts = Lasts::Until(since_start))
    }

    /// A header, sent as it is, on every answer (304 too); replaces the server's own of that name (`Date`,
    /// `Content-Type`, `Content-Length`, `ETag`, ..). In the value `{date}`, `{date+60}` and `{date-60}` become the HTTP
    /// date of now and so many seconds later or earlier; `{date850..}` and `{asctime..}` are the same in its old forms.
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

    /// How the bytes go over the wire.
    #[expect(clippy::needless_pass_by_value, reason = "callers write it in place")]
    pub fn deliver(self, delivery: Delivery) -> Self {
        self.each(|step| step.delivery = delivery.clone())
    }

    /// Waits this long before the answer.
    pub fn delay(self, delay: Duration) -> Self {
        self.each(|step| step.delay = delay)
    }

    /// Waits for the gate before the answer.
    pub fn gate(self, gate: &Gate) -> Self {
        self.each(|step| step.gate = Some(gate.clone()))
    }

    fn each(mut self, change: impl Fn(&mut Step)) -> Self {
        self.steps.iter_mut().for_each(change);
        self
    }

    /// The feed whose initial items and pace the path takes.
    pub(super) fn first_feed(&self) -> Option<&Feed> {
        self.steps.iter().find_map(|step| match &step.source {
            Source::Feed(feed) => Some(&**feed),
            Source::Fixed { .. } => None,
        })
    }
}
