//! One request of a fetch: when its host allows it, with the right fields, and what its answer's head decides.

use std::sync::Arc;
use std::time::Duration;

use common::document::Validators;
use common::host_gate::{ExtraRequest, GateError, Permit, Release};
use common::outcome::{Blocker, FailureKind};
use common::report::Outcome;
use common::time::Timestamp;
use common::url::{FeedId, FeedUrl};
use http::header::{self, HeaderMap};
use http::response::Parts;
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use super::head_first;
use super::shared::Shared;
use super::way::{Fetch, Step};
use crate::blocked;
use crate::body::{self, BodyError, Rate, WireLimits};
use crate::budget::{Busy, InFlight};
use crate::classify::{self, Asked, Head};
use crate::client::{self, Answered};
use crate::decode::{DecodeLimits, codings, decode};
use crate::discover::is_activity;
use crate::document::{Answer, Read, read};
use crate::failure::{self, Failure, Unanswered};
use crate::headers;
use crate::links;
use crate::request;
use crate::trace::{self, Exchange};

impl Fetch<'_> {
    /// Charges the hop to its host, if the host may be requested now or within the fetch's patience. Returns the extra
    /// permit, if the job's own does not cover the hop; `Err`: not in this fetch, but at that time.
    pub(super) async fn admission(&mut self, url: &FeedUrl) -> Result<Option<Permit>, Timestamp> {
        let policy = self.hops.rules.for_url(url.as_url());
        let before = self.fetched.last_host.clone();
        if before.is_none() && policy.key == self.job.host {
            self.fetched.last_host = Some(policy.key);
            return Ok(None);
        }
        if before.as_ref() == Some(&policy.key) && policy.limits.burst <= 1 {
            let left = self.fetched.last_sent.map(|sent| policy.limits.gap.saturating_sub(sent.elapsed()));
            self.wait_until(self.hops.clock.now().after(left.unwrap_or_default())).await?;
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
                Ok(Ok(permit)) => {
                    self.fetched.last_host = Some(policy.key);
                    return Ok(Some(permit));
                }
                Ok(Err(until)) => until,
                Err(error) => return Err(self.gate_failed(&error, now)),
            };
            self.wait_until(until.max(now.after(SHORTEST_WAIT))).await?;
        }
    }

    /// Waits, or returns the time if the wait would leave too little of this fetch for a request.
    async fn wait_until(&self, until: Timestamp) -> Result<(), Timestamp> {
        let now = self.hops.clock.now();
        if until <= now {
            return Ok(());
        }
        let wait = until.since(now);
        let ready = Instant::now() + wait;
        if wait > self.patience || ready + self.shared.timeout / 3 > self.deadline {
            return Err(until);
        }
        tokio::time::sleep_until(ready).await;
        Ok(())
    }

    fn gate_failed(&self, error: &GateError, now: Timestamp) -> Timestamp {
        tracing::warn!(feed = %self.job.feed, error = error as &dyn std::error::Error, "a redirect waits for the host gate");
        now.after(GATE_RETRY)
    }

    /// Puts the job off until its host is free, at that time as far as is known; the next fetch continues where this
    /// one stopped.
    pub(super) fn interrupt(&mut self, until: Timestamp) -> Outcome {
        self.forget_answer();
        match self.chain.detour(self.interrupted.unwrap_or(self.hops.clock.now())) {
            Ok(detour) => {
                self.fetched.detour = detour;
                Outcome::Deferred { until }
            }
            Err(too_long) => Failure::from(too_long).into(),
        }
    }

    /// The same, for a reason that is not over when the host is free.
    fn pause(&mut self, until: Timestamp) -> Outcome {
        let outcome = self.interrupt(until);
        self.fetched.retry_after = matches!(outcome, Outcome::Deferred { .. }).then_some(until);
        outcome
    }

    /// Forgets what the last answer said: it does not apply to another.
    fn forget_answer(&mut self) {
        (self.fetched.http_status, self.fetched.fresh_for, self.fetched.retry_after) = (None, None, None);
        (self.fetched.limited_until, self.fetched.blocked_by) = (None, None);
        (self.fetched.unusable_delta, self.fetched.wants_signature) = (false, false);
    }

    pub(super) async fn give_back(&self, permit: &Permit) {
        let gap = self.hops.rules.limits_of(&permit.host).gap;
        let next_start_in = self.fetched.last_sent.map(|sent| gap.saturating_sub(sent.elapsed()));
        let release = Release { next_start_in, ..Release::default() };
        if let Err(error) = self.hops.gate.release(permit, release, self.hops.clock.now()).await {
            // it expires at its deadline
            tracing::warn!(feed = %self.job.feed, error = &error as &dyn std::error::Error, "a hop's permit was not released");
        }
    }

    /// Requests one URL.
    pub(super) async fn hop(&mut self, url: &FeedUrl) -> Step {
        let mut fields = self.fields(url);
        let method = self.method(url, &mut fields);
        let is_head = method == Method::HEAD;
        self.fetched.conditional = request::is_conditional(&fields);
        let delta = fields.contains_key(request::A_IM);
        self.forget_answer();
        let before = self.started.elapsed();
        let asked_bytes = head_first::fields_len(&fields);
        let shown = self.trace.is_some().then(|| trace::fields(&fields));
        let limits = client::HeadLimits {
            deadline: self.deadline,
            timeout: self.shared.timeout,
            max_informational: self.shared.max_informational,
            max_header_bytes: self.shared.max_header_bytes,
            max_headers: self.shared.max_headers,
        };
        let domain = match self.domain(url) {
            Ok(flight) => flight,
            Err(Busy(wait)) => return Step::Ended(self.pause(self.hops.clock.now().after(wait))),
        };
        let mut sent = None;
        let response = client::send(&self.shared.client, method, url.as_url(), fields, limits, &mut sent).await;
        let received = self.hops.clock.now();
        self.fetched.last_sent = sent;
        if let (Some(trace), Some(request)) = (&mut self.trace, shown) {
            let answer = response.as_ref().ok().map(|answered| trace::ResponseHead::of(&answered.response));
            let took = self.started.elapsed().saturating_sub(before);
            trace.push(Exchange { url: url.clone(), request, answer, after: before, took });
        }
        // What is in flight ends with this request.
        let ((head, incoming), _flights) = match response {
            Ok(Answered { response, flight }) => (response.into_parts(), (flight, domain)),
            Err(Unanswered::Shortage(reason)) => return Step::Ended(self.short_of(&reason)),
            Err(Unanswered::Busy(wait)) => {
                // Nothing was sent, so neither budget is charged.
                if let Some(flight) = domain {
                    flight.undo();
                }
                return Step::Ended(self.pause(received.after(wait)));
            }
            Err(Unanswered::Throttled) => return Step::Ended(Outcome::Throttled { retry_after: None }),
            Err(Unanswered::Failed(failure)) if is_head => return self.head_failed(failure, sent.is_some()),
            Err(Unanswered::Failed(failure)) => return Step::Ended(failure.into()),
        };
        self.fetched.http_status = Some(head.status.as_u16());
        self.fetched.fresh_for = headers::freshness(&head.headers, received).map(|fresh| fresh + before);

        self.fetched.limited_until = headers::limited_until(&head.headers, received);
        self.fetched.retry_after = headers::retry_after(&head.headers, received).max(self.fetched.limited_until);
        if let Some(by) = blocked::by_head(&head) {
            return Step::Ended(self.blocked(by));
        }
        self.fetched.unusable_delta = head.status == StatusCode::IM_USED && delta;

        let permanent = self.chain.is_permanent();
        let asked = Asked { conditional: self.fetched.conditional, delta, permanent, received };
        if is_head {
            let spent = head_first::heads_len(url, asked_bytes, head.status, &head.headers);
            return self.after_head(&head, spent, asked);
        }
        match classify::head(head.status, &head.headers, asked) {
            Head::Ended(outcome) => match self.blocked_by(&head, &outcome, incoming).await {
                Some(by) => Step::Ended(self.blocked(by)),
                None => Step::Ended(self.without_login(url, outcome)),
            },
            Head::NotModified => {
                let validators = classify::merged(&self.job.validators, headers::validators(&head.headers));
                Step::Ended(Outcome::NotModified { validators })
            }
            Head::Redirect => match self.chain.follow(head.status, &head.headers, self.shared.max_redirects) {
                Ok(()) => match (blocked::by_redirect(self.chain.current().as_url()), self.fetched.retry_after) {
                    (Some(by), _) => Step::Ended(self.blocked(by)),
                    // RFC 9110, section 10.2.3: the least time to wait before the redirected request.
                    (None, Some(until)) => Step::Ended(self.pause(until.min(received.after(LONGEST_DETOUR)))),
                    (None, None) => Step::Redirected,
                },
                Err(error) => Step::Ended(Failure::from(error).into()),
            },
            Head::Content => self.content(url, &head.headers, false, incoming).await,
            Head::Delta => {
                self.fetched.unusable_delta = false;
                self.content(url, &head.headers, true, incoming).await
            }
        }
    }

    /// Counts the request with its domain, where no rule covers the host.
    fn domain(&self, url: &FeedUrl) -> Result<Option<InFlight>, Busy> {
        match (self.hops.rules.rule_for(url.as_url()), url.as_url().domain()) {
            (None, Some(name)) => self.shared.client.enter_domain(name),
            _ => Ok(None),
        }
    }

    /// Puts the job off because this machine could not make the request.
    fn short_of(&mut self, reason: &str) -> Outcome {
        let now = self.hops.clock.now();
        if self.shared.shortage_is_news(now) {
            tracing::error!(
                reason,
                "this machine cannot open connections; fetches are deferred (logged once a minute)"
            );
        }
        self.pause(now.after(SHORTAGE_RETRY))
    }

    /// Another service answered for the site.
    fn blocked(&mut self, by: Blocker) -> Outcome {
        self.fetched.blocked_by = Some(by);
        Failure::blocked(by).into()
    }

    /// Returns the service that answered with a failing status in place of the site, by the page in the response.
    /// `None` for a page that cannot be read in time, or is too large for such a page.
    async fn blocked_by(&mut self, head: &Parts, outcome: &Outcome, incoming: Incoming) -> Option<Blocker> {
        if outcome.failure().is_none() || !blocked::may_block(head) {
            return None;
        }
        let codings = codings(&head.headers).ok()?.known;
        let body = Limited::new(incoming, blocked::OPENING).collect();
        let deadline = self.deadline.min(Instant::now() + PAGE_TIMEOUT);
        let wire = timeout_at(deadline, body).await.ok()?.ok()?.to_bytes();
        self.fetched.wire_bytes += wire.len() as u64;
        let limits = DecodeLimits { max_bytes: 4 * blocked::OPENING, max_ratio: u32::MAX, deadline: None };
        let page = decode(wire.into(), &codings, limits).ok()?;
        blocked::by_page(&page)
    }

    /// A person whose feed is refused at the end of redirects should learn that the credentials were not sent there.
    fn without_login(&self, url: &FeedUrl, mut outcome: Outcome) -> Outcome {
        let withheld = self.hops.login.is_some() && !url.has_origin_of(&self.job.url);
        if let (true, Outcome::Failed { detail, .. }) = (withheld, &mut outcome) {
            detail.push_str(", after a redirect to another server, which the credentials were not sent to");
        }
        outcome
    }

    fn fields(&self, url: &FeedUrl) -> HeaderMap {
        let stored = &self.job.validators;
        let given_by = stored.for_url.as_deref().unwrap_or(self.job.url.as_str()).trim_end_matches(Validators::POSTS);
        let none = Validators::default();
        let validators = if given_by == url.as_str() { stored } else { &none };
        let rule = self.hops.rules.rule_for(url.as_url());
        let own = || self.shared.user_agent.text(self.job.subscribers);
        let user_agent = rule.and_then(|rule| rule.user_agent.clone()).unwrap_or_else(own);
        let mut fields = request::fields(&user_agent, validators);
        if let Some(login) = self.hops.login.filter(|_| url.has_origin_of(&self.job.url)) {
            request::authorize(&mut fields, login);
        }
        let delta = rule.and_then(|rule| rule.delta_encoding).unwrap_or(self.shared.delta_encoding);
        if delta && !self.job.without_delta && !self.chain.asks_for_activities() {
            request::ask_for_delta(&mut fields);
        }
        let now = self.hops.clock.now();
        let signer = self.shared.signer.as_ref().filter(|_| self.chain.asks_for_activities());
        if self.chain.asks_for_activities() {
            request::ask_for_activities(&mut fields);
        }
        // Both schemes have a field of the same name.
        match (signer, &self.shared.bot_key) {
            (Some(signer), _) => signer.sign(url.as_url(), now, &mut fields),
            (None, Some(key)) => request::sign(&mut fields, key, url.as_url(), now),
            (None, None) => {}
        }
        fields
    }

    /// Reads the body of a good answer off the wire.
    async fn content(&mut self, url: &FeedUrl, headers: &HeaderMap, delta: bool, incoming: Incoming) -> Step {
        let codings = match codings(headers) {
            Ok(codings) => codings,
            Err(error) => return Step::Ended(Failure::from(error).into()),
        };
        let shared = self.shared;
        let limits = WireLimits {
            max_bytes: shared.max_wire_bytes,
            large_bytes: shared.large_body_bytes,
            deadline: self.deadline,
            max_wait: shared.max_place_wait,
            least_rate: Rate::LEAST,
        };
        let charged = self.fetched.last_host.clone();
        let host = charged.unwrap_or_else(|| self.hops.rules.for_url(url.as_url()).key);
        let places = (&shared.large_bodies, &host);
        let body = match body::read(incoming, limits, places, &mut self.fetched.wire_bytes).await {
            Ok(body) => body,
            Err(error) => return Step::Ended(self.unread(&error)),
        };
        if !delta {
            self.note_known(headers);
        }
        let mut validators = headers::validators(headers);
        let content_type: Option<String> =
            headers.get(header::CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()).into());
        let is_led = self.chain.asks_for_activities();
        if *url != self.job.url && is_led {
            validators.for_url = Some(format!("{url}{}", Validators::POSTS));
        } else if *url != self.job.url && !validators.is_empty() {
            validators.for_url = Some(url.as_str().to_owned());
        }
        self.fetched.wants_signature = is_led && content_type.as_deref().is_some_and(is_activity);
        let answer = Answer {
            wire: body.bytes,
            codings,
            content_type,
            url: url.as_str().to_owned(),
            validators,
            stored: self.job.validators.clone(),
            known_hash: self.job.content_hash,
            known: self.job.known.clone(),
            announced: links::announced(headers, url.as_url()),
            delta,
        };
        Step::Body(Box::new(answer), body.place)
    }

    fn unread(&mut self, error: &BodyError<hyper::Error>) -> Outcome {
        match error {
            BodyError::TooLarge => {
                let detail = format!("the body has more than {} bytes", self.shared.max_wire_bytes);
                Failure::new(FailureKind::TooLarge, detail).into()
            }
            BodyError::Late => Failure::late(self.shared.timeout).into(),
            BodyError::Slow => {
                let Rate { bytes, within } = Rate::LEAST;
                let detail = format!("the body came more slowly than {bytes} bytes in {} s", within.as_secs());
                Failure::new(FailureKind::Timeout, detail).into()
            }
            BodyError::Broken(error) if failure::asks_for_calm(error) => Outcome::Throttled { retry_after: None },
            BodyError::Broken(error) => Failure::of_wire(error).into(),
            BodyError::NoSlot => self.pause(self.hops.clock.now().after(self.shared.timeout)),
        }
    }

    /// Reads a body, and counts it if that took longer than it should. Puts the job off if all parsers are busy for too long.
    pub(super) async fn read(&mut self, answer: Answer) -> Read {
        let longest_wait = self.deadline + self.shared.max_place_wait;
        match read_apart(self.shared, self.job.feed, answer, longest_wait).await {
            Some((read, is_slow)) => {
                self.fetched.slow_parses += u64::from(is_slow);
                read
            }
            None => Read::ended(self.pause(self.hops.clock.now().after(self.shared.timeout)), 0),
        }
    }
}

/// Decodes and parses on a separate thread, one of a few: that bounds memory and leaves the network its share. Returns
/// also whether it took longer than it should; `None` if no thread was free by `longest_wait`, which is never the
/// feed's fault.
pub(super) async fn read_apart(
    shared: &Shared,
    feed: FeedId,
    answer: Answer,
    longest_wait: Instant,
) -> Option<(Read, bool)> {
    let mut limits = shared.limits;
    let place = timeout_at(longest_wait, Arc::clone(&shared.parsers).acquire_owned()).await.ok()?;
    let work = tokio::task::spawn_blocking(move || {
        let begun = std::time::Instant::now();
        limits.parse.deadline = Some(begun + PARSE_DEADLINE);
        limits.decode.deadline = limits.parse.deadline;
        let result = read(answer, &limits);
        drop(place);
        (result, begun.elapsed())
    });
    Some(match work.await {
        Ok((read, took)) => {
            let is_slow = took > SLOW_PARSE;
            if is_slow {
                tracing::warn!(%feed, ?took, bytes = read.bytes, "slow parse");
            }
            (read, is_slow)
        }
        Err(error) => {
            tracing::error!(%feed, %error, "reading this feed panicked");
            let detail = "our reader panicked over the body; please report it";
            (Read::ended(Failure::new(FailureKind::Malformed, detail).into(), 0), false)
        }
    })
}

/// After this time decoding and parsing end, and the document is refused as too large. No honest document takes a tenth of it, even on a busy machine.
const PARSE_DEADLINE: Duration = Duration::from_secs(10);
/// A parse that takes longer is logged and counted: 20 MB take about a second.
const SLOW_PARSE: Duration = Duration::from_secs(2);
/// Waiting for a host takes at least this long, so that a stopped clock does not make a busy loop.
const SHORTEST_WAIT: Duration = Duration::from_millis(5);
/// Time for the page that comes with a failing status.
const PAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a redirect may make us wait before it is followed.
const LONGEST_DETOUR: Duration = Duration::from_secs(24 * 60 * 60);
/// When a job is tried again that this machine had no socket for.
const SHORTAGE_RETRY: Duration = Duration::from_secs(5);
/// When a job is tried again whose redirect could not be charged because the gate did not answer.
const GATE_RETRY: Duration = Duration::from_secs(5);
