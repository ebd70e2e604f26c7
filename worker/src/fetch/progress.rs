//! A fetch in progress: what its steps know and note.

use std::time::Duration;

use common::host::HostKey;
use common::job::FetchJob;
use common::report::Outcome;
use common::time::Timestamp;
use common::url::FeedUrl;
use tokio::time::Instant;

use super::fetched::{Fetched, Hops};
use super::shared::Shared;
use crate::body::BodySlot;
use crate::document::Answer;
use crate::redirect::Chain;
use crate::trace::Exchange;

/// One fetch in progress.
pub(super) struct Fetch<'a> {
    pub(super) shared: &'a Shared,
    pub(super) job: &'a FetchJob,
    pub(super) hops: &'a Hops<'a>,
    pub(super) started: Instant,
    pub(super) deadline: Instant,
    pub(super) chain: Chain,
    /// When the chain was interrupted first, by an earlier fetch.
    pub(super) interrupted: Option<Timestamp>,
    pub(super) fetched: Fetched,
    pub(super) trace: Option<&'a mut Vec<Exchange>>,
    /// The last body was a page that announces no feed.
    pub(super) is_bare_page: bool,
    /// How long a hop may wait for its host.
    pub(super) patience: Duration,
    /// The host that is searched for a feed: no other host gets a request meanwhile.
    pub(super) search: Option<HostKey>,
}

impl Fetch<'_> {
    /// Returns the host that the request of this URL was charged to.
    pub(super) fn charged(&self, url: &FeedUrl) -> HostKey {
        let charged = self.fetched.last_host.clone();
        charged.unwrap_or_else(|| self.hops.rules.for_url(url.as_url()).key)
    }

    /// Returns the end of the fetch and of its waits for a place together.
    pub(super) fn latest(&self) -> Instant {
        self.started + self.shared.timeout + self.shared.max_place_wait
    }

    /// Waits for a place for the body at this URL, before it is requested. The wait does not count towards the fetch's time.
    pub(super) async fn take_place(&mut self, url: &FeedUrl) -> Option<BodySlot> {
        let asked = Instant::now();
        let max_wait = self.latest().saturating_duration_since(self.deadline);
        let place = self.shared.large_bodies.take_within(&self.charged(url), max_wait).await;
        self.deadline += asked.elapsed();
        place
    }
}

/// The outcome of one hop.
pub(super) enum Step {
    Ended(Outcome),
    Redirected,
    /// The same URL once more.
    Again,
    Body(Box<Answer>, Option<BodySlot>),
}
