//! One polite fetch: step 4 of a feed's life, from a job to what its report says.
//!
//! The hops of a fetch are asked one after the other, each checked against the address guard and charged to its host;
//! validators go to the URL that gave them, and to no other. Whatever a server does is an [`Outcome`], never an error.
//! When the job's own host may be asked was settled before; when to poll next is none of this module's business.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use common::config::FetchConfig;
use common::feed::{FeedUrl, Validators};
use common::host::{HostKey, HostRules};
use common::host_gate::{ExtraRequest, GateError, HostGate, Permit, Release};
use common::job::FetchJob;
use common::report::{FailureKind, Outcome};
use common::time::{Clock, Timestamp};
use http::header::{self, HeaderMap};
use http_body_util::Empty;
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::address::AddressGuard;
use crate::body::{self, BodyError, WireLimits};
use crate::classify::{self, Asked, Head};
use crate::client::{self, Client, FetchSetup, FetchSetupError};
use crate::decode::{DecodeLimits, codings};
use crate::discover::AnnouncedFeed;
use crate::document::{Answer, ReadLimits, read};
use crate::failure::Failure;
use crate::headers;
use crate::parse::{Lead, ParseLimits};
use crate::redirect::{About, Chain, Interrupted};
use crate::request::{self, UserAgent};
use crate::signature::Signer;
use crate::trace::{self, Exchange};

/// Makes fetches. One for a process: it holds the connections, the resolver's cache and the places for large bodies.
pub struct Fetcher {
    client: Client,
    guard: AddressGuard,
    user_agent: UserAgent,
    signer: Option<Signer>,
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
        let kept = self.interrupted().take(&job.url, hops.clock.now());
        let mut fetch = Fetch {
            fetcher: self,
            job,
            hops,
            started,
            deadline: started + self.timeout,
            chain: kept.unwrap_or_else(|| start_of(job)),
            fetched: Fetched::unasked(Outcome::Gone),
            trace,
        };
        let outcome = fetch.run().await;
        fetch.finish(outcome)
    }

    fn interrupted(&self) -> std::sync::MutexGuard<'_, Interrupted> {
        self.interrupted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a fetch begins: at the feed's own URL, or where that one's answer said that the posts are.
fn start_of(job: &FetchJob) -> Chain {
    let mut chain = Chain::new(job.url.clone());
    if let Some(posts) = job.validators.for_url.as_deref().and_then(|url| url.strip_suffix(Validators::POSTS)) {
        chain.lead_to(posts, About::default());
    }
    chain
}

/// One fetch under way.
struct Fetch<'a> {
    fetcher: &'a Fetcher,
    job: &'a FetchJob,
    hops: &'a Hops<'a>,
    started: Instant,
    deadline: Instant,
    chain: Chain,
    fetched: Fetched,
    trace: Option<&'a mut Vec<Exchange>>,
}

/// What one hop came to.
enum Step {
    Ended(Outcome),
    Redirected,
    Body(Box<Answer>, Option<tokio::sync::OwnedSemaphorePermit>),
}

impl Fetch<'_> {
    async fn run(&mut self) -> Outcome {
        loop {
            let url = self.chain.current().clone();
            if let Err(refused) = self.fetcher.guard.check_url(url.as_url()) {
                return Failure::from(refused).into();
            }
            let permit = match self.admission(&url).await {
                Ok(permit) => permit,
                Err(until) => return self.interrupt(until),
            };
            let step = self.hop(&url).await;
            self.fetched.duration = self.started.elapsed();
            if let Some(permit) = permit {
                self.give_back(&permit).await;
            }
            let (outcome, lead) = match step {
                Step::Ended(outcome) => (outcome, None),
                Step::Redirected => continue,
                Step::Body(answer, place) => {
                    let read = self.read(*answer).await;
                    drop(place);
                    read
                }
            };
            if !lead.is_some_and(|lead| self.follow(lead)) && !self.start_anew(&outcome) {
                return outcome;
            }
        }
    }

    /// Goes on to where an answer says that the posts are.
    fn follow(&mut self, lead: Lead) -> bool {
        self.chain.lead_to(&lead.url, About { name: lead.name, page: lead.page })
    }

    /// When the posts are no longer where they were last time, they are looked for once more from the feed's own URL on.
    fn start_anew(&mut self, outcome: &Outcome) -> bool {
        let missing =
            matches!(self.fetched.http_status, Some(404 | 410)) || outcome.failure() == Some(FailureKind::NotAFeed);
        let was_remembered = self.chain == start_of(self.job) && !self.chain.is_at_start();
        let anew = was_remembered && missing && outcome.failure().is_some();
        if anew {
            self.chain = Chain::new(self.job.url.clone());
        }
        anew
    }

    fn finish(self, outcome: Outcome) -> Fetched {
        let mut fetched = self.fetched;
        if matches!(outcome, Outcome::Modified(_) | Outcome::NotModified { .. }) {
            fetched.moved_to = self.chain.moved_to().cloned();
        }
        fetched.outcome = outcome;
        if let Outcome::Modified(document) = &mut fetched.outcome {
            let About { name, page } = self.chain.about().clone();
            document.title = document.title.take().or(name);
            document.link = document.link.take().or(page);
        }
        fetched
    }

    /// Waits until the hop's host may be asked; the extra permit, if the job's own does not cover it; `Err`: not in this
    /// fetch, but at that time.
    async fn admission(&mut self, url: &FeedUrl) -> Result<Option<Permit>, Timestamp> {
        let policy = self.hops.rules.for_url(url.as_url());
        let before = self.fetched.last_host.replace(policy.key.clone());
        if before.is_none() && policy.key == self.job.host {
            return Ok(None);
        }
        if before.as_ref() == Some(&policy.key) && policy.limits.burst <= 1 {
            let after_last = self.fetched.last_sent.map(|sent| sent.after(policy.limits.gap));
            self.wait_until(after_last.unwrap_or_default()).await?;
        }
        let request = ExtraRequest {
            host: &policy.key,
            limits: policy.limits,
            during: Some(self.hops.permit),
            deadline: self.hops.deadline,
        };
        loop {
            let now = self.hops.clock.now();
            let until = match self.hops.gate.acquire_extra(&request, now).await {
                Ok(Ok(permit)) => return Ok(Some(permit)),
                Ok(Err(until)) => until,
                Err(error) => return Err(self.gate_failed(&error, now)),
            };
            self.wait_until(until.max(now.after(SHORTEST_WAIT))).await?;
        }
    }

    /// Waits, or gives the time back if the wait would leave too little of this fetch for a request.
    async fn wait_until(&self, until: Timestamp) -> Result<(), Timestamp> {
        let now = self.hops.clock.now();
        if until <= now {
            return Ok(());
        }
        let ready = Instant::now() + until.since(now);
        if ready + self.fetcher.timeout / 3 > self.deadline {
            return Err(until);
        }
        tokio::time::sleep_until(ready).await;
        Ok(())
    }

    fn gate_failed(&self, error: &GateError, now: Timestamp) -> Timestamp {
        tracing::warn!(feed = %self.job.feed, error = error as &dyn std::error::Error, "a redirect waits for the host gate");
        now.after(GATE_RETRY)
    }

    /// The job is put off; the next fetch goes on where this one stopped.
    fn interrupt(&mut self, until: Timestamp) -> Outcome {
        if !self.chain.is_at_start() {
            self.fetcher.interrupted().keep(self.chain.clone(), self.hops.clock.now());
        }
        (self.fetched.http_status, self.fetched.fresh_for) = (None, None);
        Outcome::Deferred { until }
    }

    async fn give_back(&self, permit: &Permit) {
        let gap = self.hops.rules.limits_of(&permit.host).gap;
        let next_start = self.fetched.last_sent.map(|sent| sent.after(gap));
        let release = Release { next_start, ..Release::default() };
        if let Err(error) = self.hops.gate.release(permit, release, self.hops.clock.now()).await {
            // it ends by itself with its deadline
            tracing::warn!(feed = %self.job.feed, error = &error as &dyn std::error::Error, "a hop's permit was not released");
        }
    }

    /// Asks one URL.
    async fn hop(&mut self, url: &FeedUrl) -> Step {
        let fields = self.fields(url);
        self.fetched.conditional = request::is_conditional(&fields);
        (self.fetched.http_status, self.fetched.fresh_for) = (None, None);
        let before = self.started.elapsed();
        let shown = self.trace.is_some().then(|| trace::fields(&fields));
        let limits = client::HeadLimits {
            deadline: self.deadline,
            timeout: self.fetcher.timeout,
            max_informational: self.fetcher.max_informational,
            max_header_bytes: self.fetcher.max_header_bytes,
        };
        let mut sent = None;
        let response = client::send(&self.fetcher.client, url.as_url(), fields, limits, &mut sent).await;
        let received = self.hops.clock.now();
        self.fetched.last_sent = sent.map(|sent| received.before(sent.elapsed()));
        if let (Some(trace), Some(request)) = (&mut self.trace, shown) {
            let answer = response.as_ref().ok().map(trace::Head::of);
            let took = self.started.elapsed().saturating_sub(before);
            trace.push(Exchange { url: url.clone(), request, answer, after: before, took });
        }
        let (head, incoming) = match response {
            Ok(response) => response.into_parts(),
            Err(failure) => return Step::Ended(failure.into()),
        };
        self.fetched.http_status = Some(head.status.as_u16());
        self.fetched.fresh_for = headers::freshness(&head.headers, received).map(|fresh| fresh + before);

        let permanent = self.chain.is_permanent();
        let asked = Asked { conditional: self.fetched.conditional, permanent, received };
        match classify::head(head.status, &head.headers, asked) {
            Head::Ended(outcome) => Step::Ended(outcome),
            Head::NotModified => {
                let validators = classify::merged(&self.job.validators, headers::validators(&head.headers));
                Step::Ended(Outcome::NotModified { validators })
            }
            Head::Redirect => match self.chain.follow(head.status, &head.headers, self.fetcher.max_redirects) {
                Ok(()) => Step::Redirected,
                Err(error) => Step::Ended(Failure::from(error).into()),
            },
            Head::Content => self.content(url, &head.headers, incoming).await,
        }
    }

    fn fields(&self, url: &FeedUrl) -> HeaderMap {
        let stored = &self.job.validators;
        let given_by = stored.for_url.as_deref().unwrap_or(self.job.url.as_str()).trim_end_matches(Validators::POSTS);
        let none = Validators::default();
        let validators = if given_by == url.as_str() { stored } else { &none };
        let rule = self.hops.rules.for_url(url.as_url()).rule;
        let own = || self.fetcher.user_agent.text(self.job.subscribers);
        let user_agent = rule.and_then(|rule| rule.user_agent.clone()).unwrap_or_else(own);
        let mut fields = request::fields(&user_agent, validators);
        if self.chain.asks_for_activities() {
            request::ask_for_activities(&mut fields);
            if let Some(signer) = &self.fetcher.signer {
                signer.sign(url.as_url(), self.hops.clock.now(), &mut fields);
            }
        }
        fields
    }

    /// Reads the body of a good answer off the wire.
    async fn content(&mut self, url: &FeedUrl, headers: &HeaderMap, incoming: Incoming) -> Step {
        let codings = match codings(headers) {
            Ok(codings) => codings,
            Err(error) => return Step::Ended(Failure::from(error).into()),
        };
        let fetcher = self.fetcher;
        let limits = WireLimits {
            max_bytes: fetcher.max_wire_bytes,
            large_bytes: fetcher.large_body_bytes,
            deadline: self.deadline,
        };
        let body = match body::read(incoming, limits, &fetcher.large_bodies, &mut self.fetched.wire_bytes).await {
            Ok(body) => body,
            Err(error) => return Step::Ended(self.unread(&error)),
        };
        let mut validators = headers::validators(headers);
        if self.chain.asks_for_activities() {
            validators.for_url = Some(format!("{url}{}", Validators::POSTS));
        } else if *url != self.job.url && !validators.is_empty() {
            validators.for_url = Some(url.as_str().to_owned());
        }
        let content_type =
            headers.get(header::CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()).into());
        let answer = Answer {
            wire: body.bytes,
            codings,
            content_type,
            url: url.as_str().to_owned(),
            validators,
            stored: self.job.validators.clone(),
            known_hash: self.job.content_hash,
            known: self.job.known.clone(),
        };
        Step::Body(Box::new(answer), body.place)
    }

    fn unread(&self, error: &BodyError<hyper::Error>) -> Outcome {
        match error {
            BodyError::TooLarge => {
                let detail = format!("the body has more than {} bytes", self.fetcher.max_wire_bytes);
                Failure::new(FailureKind::TooLarge, detail).into()
            }
            BodyError::Late => Failure::late(self.fetcher.timeout).into(),
            BodyError::Broken(error) => Failure::of_wire(error).into(),
            BodyError::NoPlace => Outcome::Deferred { until: self.hops.clock.now().after(self.fetcher.timeout) },
        }
    }

    /// Decodes and parses on a thread of its own, one of a few: that bounds memory and leaves the network its share.
    async fn read(&mut self, answer: Answer) -> (Outcome, Option<Lead>) {
        let limits = self.fetcher.limits;
        let place = Arc::clone(&self.fetcher.parsers).acquire_owned().await;
        let work = tokio::task::spawn_blocking(move || {
            let result = read(answer, &limits);
            drop(place);
            result
        });
        match work.await {
            Ok(read) => {
                self.fetched.body_bytes = read.bytes;
                self.fetched.announced = read.announced;
                (read.outcome, read.lead)
            }
            Err(error) => {
                tracing::error!(feed = %self.job.feed, %error, "reading this feed panicked");
                let detail = "our reader panicked over the body; please report it";
                (Failure::new(FailureKind::Malformed, detail).into(), None)
            }
        }
    }
}

/// Waiting for a host takes at least this long, so that a clock that stands still does not make a busy loop.
const SHORTEST_WAIT: Duration = Duration::from_millis(5);
/// When a job is tried again whose redirect could not be charged because the gate did not answer.
const GATE_RETRY: Duration = Duration::from_secs(5);

/// A body that nobody sends: every request is a GET.
pub(crate) type NoBody = Empty<Bytes>;
