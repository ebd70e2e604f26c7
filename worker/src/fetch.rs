//! One polite fetch: step 4 of a feed's life, from a job to what its report says. `way` walks from request to request,
//! `ask` makes each of them.
//!
//! The hops of a fetch are requested one after the other, each checked against the address guard and charged to its
//! host; validators go to the URL that sent them, and to no other. Whatever a server does is an [`Outcome`], never an
//! error. When the job's own host may be polled was decided before; when to poll next is not decided in this module.

mod ask;
mod fetched;
mod head_first;
mod progress;
mod reading;
mod shared;
#[cfg(test)]
mod tests;
mod way;

use async_trait::async_trait;
use common::config::FetchConfig;
use common::document::{ContentHash, Validators};
use common::host::HostRules;
use common::job::FetchJob;
use common::push::PushedBody;
use common::report::Outcome;
use tokio::time::Instant;

use crate::decode::Codings;
use crate::document::{Answer, HubLinks};
use crate::redirect::Chain;
pub use fetched::{Fetched, Hops};
use progress::Fetch;
use shared::Shared;
use way::start_of;

use crate::setup::{FetchSetup, FetchSetupError};
use crate::trace::Exchange;

/// What a [`Poller`](crate::poll::Poller) fetches with: a [`Fetcher`], except where a whole fleet is simulated.
#[async_trait]
pub trait FetchFeed: Send + Sync {
    /// Fetches a job's feed and reads what came. Ends by `hops.deadline`.
    async fn fetch(&self, job: &FetchJob, hops: &Hops<'_>) -> Fetched;

    /// Reads what a hub delivered for a job's feed, like a fetched document. Where nothing is read, the feed is polled
    /// instead.
    async fn read_pushed(&self, job: &FetchJob, _: &PushedBody) -> Fetched {
        Fetched::unasked(Outcome::Deferred { until: job.expires })
    }
}

/// The hash that a delivery's document gets whose entries did not all fit into the report; others get none.
const PARTLY_READ: ContentHash = ContentHash(0);

#[async_trait]
impl FetchFeed for Fetcher {
    async fn fetch(&self, job: &FetchJob, hops: &Hops<'_>) -> Fetched {
        self.run(job, hops, None).await
    }

    async fn read_pushed(&self, job: &FetchJob, pushed: &PushedBody) -> Fetched {
        let begun = Instant::now();
        let found_at = job.validators.for_url.as_deref().map(|url| url.strip_suffix(Validators::POSTS).unwrap_or(url));
        let answer = Answer {
            wire: pushed.body.clone(),
            codings: Codings::default(),
            content_type: pushed.content_type.clone(),
            // Links are relative to where polls find the document, as theirs are.
            url: found_at.map_or_else(|| job.url.to_string(), str::to_owned),
            validators: Validators::default(),
            stored: Validators::default(),
            known_hash: Some(PARTLY_READ),
            known: job.known.clone(),
            announced: HubLinks::default(),
            // It holds what is new, and perhaps nothing else.
            delta: true,
        };
        let longest_wait = begun + self.0.timeout;
        let Some((read, is_slow)) = reading::read_apart(&self.0, job.feed, answer, longest_wait).await else {
            return Fetched::unasked(Outcome::Deferred { until: job.expires });
        };
        Fetched {
            duration: begun.elapsed(),
            wire_bytes: pushed.body.len() as u64,
            body_bytes: read.bytes,
            slow_parses: u64::from(is_slow),
            ..Fetched::unasked(read.outcome)
        }
    }
}

/// Makes fetches. One for a process: it holds the connections, the resolver's cache and the places for large bodies.
pub struct Fetcher(Shared);

impl Fetcher {
    /// Returns a fetcher by the configuration; `rules` are only checked here.
    pub fn new(config: &FetchConfig, rules: &HostRules) -> Result<Self, FetchSetupError> {
        Self::with_setup(config, rules, &FetchSetup::default())
    }

    /// Returns a fetcher that knows names or root certificates which the machine does not know.
    pub fn with_setup(config: &FetchConfig, rules: &HostRules, setup: &FetchSetup) -> Result<Self, FetchSetupError> {
        Ok(Fetcher(Shared::new(config, rules, setup)?))
    }

    /// Fetches as [`FetchFeed`] does, and adds to `trace` what went over the wire.
    pub async fn fetch_traced(&self, job: &FetchJob, hops: &Hops<'_>, trace: &mut Vec<Exchange>) -> Fetched {
        self.run(job, hops, Some(trace)).await
    }

    async fn run(&self, job: &FetchJob, hops: &Hops<'_>, trace: Option<&mut Vec<Exchange>>) -> Fetched {
        let started = Instant::now();
        let resumed = job.detour.as_ref().and_then(|detour| Chain::resumed(detour, &job.url, hops.clock.now()));
        let interrupted = resumed.as_ref().map(|(_, at)| *at);
        // A refresh or a ping brings the job earlier than the last answer allowed.
        let retry_after = job.detour.as_ref().filter(|_| resumed.is_some()).and_then(|detour| detour.not_before);
        let chain = resumed.map_or_else(|| start_of(job), |(chain, _)| chain);
        let mut fetch = Fetch {
            shared: &self.0,
            job,
            hops,
            started,
            deadline: started + self.0.timeout,
            interrupted,
            fetched: Fetched { probe: chain.probe(), retry_after, ..Fetched::unasked(Outcome::Gone) },
            chain,
            trace,
            is_bare_page: false,
            patience: hops.patience,
            search: None,
        };
        let outcome = way::run(&mut fetch).await;
        way::finish(fetch, outcome)
    }
}
