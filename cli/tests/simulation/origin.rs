//! The feeds that a simulated fleet polls: each publishes entries by the clock, some hosts throttle for a while, and a
//! deadly feed kills the worker that requests it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use common::document::{ContentHash, Document, Validators};
use common::entry::Entry;
use common::host::HostKey;
use common::host_gate::{ExtraRequest, Release};
use common::job::{Detour, FetchJob};
use common::outcome::FailureKind;
use common::report::Outcome;
use common::time::{Clock, Timestamp};
use common::url::FeedId;
use tokio::time::{Instant, sleep};
use worker::fetch::{FetchFeed, Fetched, Hops};

use crate::life::{Life, Server};
use crate::line::{Call, Fate};
use crate::world::{Sabotage, World};

/// Entries that a document shows.
const SHOWN: u64 = 30;

/// Times are rounded down to milliseconds, more than once.
const ROUNDED: Duration = Duration::from_millis(2);

/// How a host answers requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostScript {
    /// The host answers 429 between these times, with a `Retry-After` of this duration.
    pub(crate) throttles: Option<(Timestamp, Timestamp, Duration)>,
}

/// A feed's life at its publisher.
#[derive(Clone, Debug)]
pub(crate) struct FeedScript {
    /// Between two entries.
    pub(crate) every: Duration,
    /// Kills the workers that fetch it.
    pub(crate) deadly: bool,
    /// Its host redirects to this one, which has the document.
    pub(crate) leads_to: Option<HostKey>,
}

impl FeedScript {
    /// Returns a harmless feed on its own host.
    pub(crate) fn every(every: Duration) -> Self {
        FeedScript { every, deadly: false, leads_to: None }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Origin {
    pub(crate) hosts: BTreeMap<HostKey, HostScript>,
    pub(crate) feeds: BTreeMap<FeedId, FeedScript>,
}

impl Origin {
    /// Returns the number of a feed's newest entry at that time; the first is there from the beginning.
    pub(crate) fn newest(&self, feed: FeedId, begun: Timestamp, now: Timestamp) -> u64 {
        let every = self.feeds[&feed].every;
        1 + u64::try_from(now.since(begun).as_millis() / every.as_millis()).expect("a simulation is short")
    }
}

/// Returns the identity of a feed's entry.
pub(crate) fn entry_id(number: u64) -> String {
    format!("entry-{number:06}")
}

/// A worker's way to the publishers.
pub(crate) struct Fetching {
    pub(crate) world: Arc<World>,
    pub(crate) life: Arc<Life>,
}

#[async_trait]
impl FetchFeed for Fetching {
    async fn fetch(&self, job: &FetchJob, hops: &Hops<'_>) -> Fetched {
        let begun = Instant::now();
        let leads_to = self.world.origin().feeds[&job.feed].leads_to.clone();
        let answered = self.ask(job, &job.host, hops, begun).await;
        let is_document = matches!(answered.outcome, Outcome::Modified(_) | Outcome::NotModified { .. });
        match leads_to.filter(|host| is_document && *host != job.host) {
            Some(host) => {
                let own_sent = answered.own_sent.filter(|_| !self.world.is_sabotaged(Sabotage::ForgetsStart));
                Fetched { own_sent, ..self.follow(job, &host, hops, begun).await }
            }
            None => answered,
        }
    }
}

impl Fetching {
    /// Follows a redirect to another host, at that host's pace.
    async fn follow(&self, job: &FetchJob, host: &HostKey, hops: &Hops<'_>, begun: Instant) -> Fetched {
        let limits = hops.rules.limits_of(host);
        let request = ExtraRequest { host, limits, during: Some(hops.permit), deadline: hops.deadline };
        let now = hops.clock.now();
        let permit = match hops.gate.acquire_extra(&request, now).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(until)) => return interrupted(host, until, begun),
            Err(_) => return interrupted(host, now.after(Duration::from_secs(1)), begun),
        };
        let fetched = self.ask(job, host, hops, begun).await;
        let next_start_in = fetched.last_sent.map(|sent| limits.gap.saturating_sub(sent.elapsed()));
        // What the gate does not hear expires at the deadline.
        let _ = hops.gate.release(&permit, Release { next_start_in, ..Release::default() }, hops.clock.now()).await;
        fetched
    }

    /// Sends a request to one host.
    async fn ask(&self, job: &FetchJob, host: &HostKey, hops: &Hops<'_>, begun: Instant) -> Fetched {
        let (world, life) = (&self.world, &self.life);
        let timeout = world.config.fetch.timeout;
        let [mut connecting, mut answering] = world.fetch_times();
        let fate = world.fate(life, Call { kind: life.kind, server: Server::Origin, name: "fetch" });
        match fate {
            Fate::Good | Fate::Before | Fate::After => {}
            Fate::Late(by) => connecting += by,
            Fate::LateAnswer(by) => answering += by,
            Fate::Silent => answering = timeout,
        }
        sleep(connecting.min(timeout.saturating_sub(begun.elapsed()))).await;
        life.running().await;
        let failed = |failure| Fetched {
            duration: begun.elapsed(),
            last_host: Some(host.clone()),
            ..Fetched::unasked(Outcome::Failed { failure, detail: "simulated".to_owned() })
        };
        // It was stopped for so long that its timers have expired.
        if begun.elapsed() >= timeout || hops.clock.now() >= hops.deadline {
            return failed(FailureKind::Timeout);
        }
        if fate == Fate::Before {
            return failed(FailureKind::Connect);
        }
        let sent = Instant::now();
        let own_sent = (*host == job.host).then_some(sent);
        // A fetch that was interrupted at a redirect, or continues from one, has requested the feed before.
        let flight = match job.detour.is_some() || *host != job.host {
            true => world.judge().redirected(life, job, host, world.now()),
            false => {
                let now = world.now();
                world.judge().asked(life, job, now.before(begun.elapsed() + ROUNDED), now)
            }
        };
        if world.origin().feeds[&job.feed].deadly {
            world.dies_of(life);
        }
        let left = timeout.saturating_sub(begun.elapsed());
        sleep(answering.min(left)).await;
        if life.is_dead() {
            // The judge knows when it died.
            std::future::pending::<()>().await;
        }
        let now = world.now();
        if answering >= left || fate == Fate::After {
            world.judge().answered(flight, None, now);
            life.running().await;
            let failure = if answering >= left { FailureKind::Timeout } else { FailureKind::Truncated };
            return Fetched { last_sent: Some(sent), own_sent, ..failed(failure) };
        }
        let throttled = match world.origin().hosts.get(host).and_then(|host| host.throttles) {
            Some((from, until, rest)) if from <= now && now < until => Some(rest),
            _ => None,
        };
        world.judge().answered(flight, throttled.map(|rest| now.after(rest)), now);
        let newest = world.origin().newest(job.feed, world.begun(), now);
        life.running().await;
        if let Some(rest) = throttled {
            world.judge().held(flight, now.after(rest));
        }
        // A server sends a duration to wait; the end of the hold follows from the fetch's clock.
        let read = if world.is_sabotaged(Sabotage::SetInFetch) { life.clock.now() } else { hops.clock.now() };
        let (outcome, status) = match throttled {
            Some(rest) => (Outcome::Throttled { retry_after: Some(read.after(rest)) }, 429),
            None => document(job, newest),
        };
        Fetched {
            duration: begun.elapsed(),
            last_host: Some(host.clone()),
            last_sent: Some(sent),
            own_sent,
            http_status: Some(status),
            conditional: !job.validators.is_empty(),
            ..Fetched::unasked(outcome)
        }
    }
}

/// The host of a redirect is busy: the fetch continues there later.
fn interrupted(host: &HostKey, until: Timestamp, begun: Instant) -> Fetched {
    let name = host.as_str().split(':').next().unwrap_or_default();
    let next = format!("https://{name}/").parse().expect("a URL");
    let detour = Detour { next, way: String::new(), page: false, not_before: None };
    let duration = begun.elapsed();
    Fetched { duration, detour: Some(detour), ..Fetched::unasked(Outcome::Deferred { until }) }
}

fn document(job: &FetchJob, newest: u64) -> (Outcome, u16) {
    let validators = Validators { etag: Some(format!("\"{newest}\"")), ..Validators::default() };
    if job.validators == validators {
        return (Outcome::NotModified { validators }, 304);
    }
    let first = newest.saturating_sub(SHOWN - 1).max(1);
    let entry = |number| Entry { id: entry_id(number), title: Some(format!("Entry {number}")), ..Entry::default() };
    let content_hash = Some(ContentHash::of(&newest.to_le_bytes(), 1));
    let mut document = Document { title: Some("A feed".to_owned()), validators, content_hash, ..Document::default() };
    document.keep_news((first..=newest).rev().map(entry).collect(), &job.known);
    // Consumers want the newest one last.
    document.entries.reverse();
    (Outcome::Modified(Box::new(document)), 200)
}

/// Returns the newest entry of the document that a report says is unchanged.
pub(crate) fn unchanged_since(outcome: &Outcome) -> Option<u64> {
    let Outcome::NotModified { validators } = outcome else { return None };
    validators.etag.as_ref()?.trim_matches('"').parse().ok()
}
