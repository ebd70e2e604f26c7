//! One polite fetch: step 4 of a feed's life, from a job to what its report says. `way` walks from request to request,
//! `ask` makes each of them.
//!
//! The hops of a fetch are asked one after the other, each checked against the address guard and charged to its host;
//! validators go to the URL that gave them, and to no other. Whatever a server does is an [`Outcome`], never an error.
//! When the job's own host may be asked was settled before; when to poll next is none of this module's business.

mod ask;
mod head_first;
mod way;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use common::bot_auth::BotKey;
use common::config::FetchConfig;
use common::host::{HostKey, HostRules};
use common::host_gate::{HostGate, Permit};
use common::job::FetchJob;
use common::report::{Outcome, Probe};
use common::secrets::Login;
use common::time::{Clock, Timestamp};
use common::url::FeedUrl;
use http_body_util::Empty;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::address::AddressGuard;
use crate::client::{self, Client, FetchSetup, FetchSetupError};
use crate::decode::DecodeLimits;
use crate::discover::AnnouncedFeed;
use crate::document::ReadLimits;
use crate::parse::ParseLimits;
use crate::redirect::Interrupted;
use crate::request::UserAgent;
use crate::searched::Searched;
use crate::signature::Signer;
use crate::trace::Exchange;
use way::{Fetch, start_of};

/// Makes fetches. One for a process: it holds the connections, the resolver's cache and the places for large bodies.
pub struct Fetcher {
    client: Client,
    guard: AddressGuard,
    user_agent: UserAgent,
    signer: Option<Signer>,
    bot_key: Option<Arc<BotKey>>,
    delta_encoding: bool,
    timeout: Duration,
    max_redirects: usize,
    max_header_bytes: usize,
    max_informational: u32,
    max_wire_bytes: usize,
    large_body_bytes: usize,
    large_bodies: Arc<Semaphore>,
    parsers: Arc<Semaphore>,
    limits: ReadLimits,
    interrupted: Mutex<Interrupted>,
    searched: Mutex<Searched>,
}

/// What a fetch needs from around it.
pub struct Hops<'a> {
    /// Charges hops to their hosts.
    pub gate: &'a dyn HostGate,
    /// Which host a URL belongs to.
    pub rules: &'a HostRules,
    /// The time.
    pub clock: &'a dyn Clock,
    /// The job's own permit; its first request is covered by it.
    pub permit: &'a Permit,
    /// When that permit ends: the life of further ones.
    pub deadline: Timestamp,
    /// What the job's feed is asked with, at its own origin alone.
    pub login: Option<&'a Login>,
}

/// What a fetch came to: the part of a report that the fetch decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Fetched {
    /// How it ended.
    pub outcome: Outcome,
    /// The last HTTP status, if an answer came.
    pub http_status: Option<u16>,
    /// The last request carried validators.
    pub conditional: bool,
    /// Bytes of body on the wire.
    pub wire_bytes: u64,
    /// Bytes of body after decoding.
    pub body_bytes: u64,
    /// How long the answer stays fresh, from the fetch's start on.
    pub fresh_for: Option<Duration>,
    /// Where the unbroken permanent prefix of the redirects led, if a good answer was at the end of them.
    pub moved_to: Option<FeedUrl>,
    /// Who was asked last: whom a throttling outcome speaks of.
    pub last_host: Option<HostKey>,
    /// When the last request went out, after its host's name was resolved and the connection stood: a host's gap should
    /// be counted from here.
    pub last_sent: Option<Timestamp>,
    /// From the start to the last byte read, or to the failure.
    pub duration: Duration,
    /// The feeds that the body announces, when it is a page instead of a feed.
    pub announced: Vec<AnnouncedFeed>,
    /// What a HEAD came to, or would have come to.
    pub probe: Option<Probe>,
}

impl Fetched {
    /// An outcome that needed no request.
    pub fn unasked(outcome: Outcome) -> Self {
        Fetched {
            outcome,
            http_status: None,
            conditional: false,
            wire_bytes: 0,
            body_bytes: 0,
            fresh_for: None,
            moved_to: None,
            last_host: None,
            last_sent: None,
            duration: Duration::ZERO,
            announced: Vec::new(),
            probe: None,
        }
    }
}

impl Fetcher {
    /// A fetcher by the configuration; `rules` are only checked here.
    pub fn new(config: &FetchConfig, rules: &HostRules) -> Result<Self, FetchSetupError> {
        Self::with_setup(config, rules, &FetchSetup::default())
    }

    /// A fetcher that knows names or root certificates which the machine does not know.
    pub fn with_setup(config: &FetchConfig, rules: &HostRules, setup: &FetchSetup) -> Result<Self, FetchSetupError> {
        let guard = AddressGuard::new(&config.allow_networks, &config.allow_ports)?;
        let parsers = match config.parsers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            parsers => parsers,
        };
        Ok(Fetcher {
            client: client::build(config, guard.clone(), setup)?,
            guard,
            user_agent: client::user_agent(config, rules)?,
            signer: Signer::of(config)?,
            bot_key: setup.bot_key.clone(),
            delta_encoding: config.delta_encoding,
            timeout: config.timeout,
            max_redirects: config.max_redirects,
            max_header_bytes: config.max_header_bytes,
            max_informational: config.max_informational,
            max_wire_bytes: config.max_wire_bytes,
            large_body_bytes: config.large_body_bytes,
            large_bodies: Arc::new(Semaphore::new(config.large_bodies)),
            parsers: Arc::new(Semaphore::new(parsers)),
            limits: ReadLimits {
                decode: DecodeLimits { max_bytes: config.max_body_bytes, max_ratio: config.max_ratio },
                parse: ParseLimits { max_entries: config.max_entries, ..ParseLimits::default() },
                max_report_bytes: config.max_report_bytes,
            },
            interrupted: Mutex::default(),
            searched: Mutex::default(),
        })
    }

    /// Fetches a job's feed and reads what came.
    pub async fn fetch(&self, job: &FetchJob, hops: &Hops<'_>) -> Fetched {
        self.run(job, hops, None).await
    }

    /// The same, and adds to `trace` what went over the wire.
    pub async fn fetch_traced(&self, job: &FetchJob, hops: &Hops<'_>, trace: &mut Vec<Exchange>) -> Fetched {
        self.run(job, hops, Some(trace)).await
    }

    async fn run(&self, job: &FetchJob, hops: &Hops<'_>, trace: Option<&mut Vec<Exchange>>) -> Fetched {
        let started = Instant::now();
        let kept = self.interrupted().take(job.feed, &job.url, hops.clock.now());
        let mut fetch = Fetch {
            fetcher: self,
            job,
            hops,
            started,
            deadline: started + self.timeout,
            chain: kept.unwrap_or_else(|| start_of(job)),
            fetched: Fetched::unasked(Outcome::Gone),
            trace,
            is_bare_page: false,
        };
        let outcome = fetch.run().await;
        fetch.finish(outcome)
    }

    fn searched(&self) -> std::sync::MutexGuard<'_, Searched> {
        self.searched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn interrupted(&self) -> std::sync::MutexGuard<'_, Interrupted> {
        self.interrupted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A body that nobody sends: every request is a GET or a HEAD.
pub(crate) type NoBody = Empty<Bytes>;
