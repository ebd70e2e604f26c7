//! One request of a fetch: when its host allows it, with the right fields, and what its answer's head decides.

use std::time::Duration;

use common::document::Validators;
use common::host_gate::{ExtraRequest, GateError, Permit, Release};
use common::outcome::{Blocker, FailureKind};
use common::policy::first_hold;
use common::report::Outcome;
use common::time::Timestamp;
use common::url::FeedUrl;
use http::header::{self, HeaderMap};
use http::response::Parts;
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use super::head_first;
use super::progress::{Fetch, Step};
use super::reading::read_apart;
use crate::blocked;
use crate::body::{self, BodyError, BodySlot, Rate, WireLimits};
use crate::budget::{Busy, InFlight};
use crate::classify::{self, Asked, Head};
use crate::client::{self, Answered};
use crate::decode::{DecodeLimits, codings, decode};
use crate::discover::is_activity;
use crate::document::{Answer, Read};
use crate::failure::{self, Failure, Unanswered};
use crate::headers;
use crate::links;
use crate::redirect::Chain;
use crate::request;
use crate::trace::{self, Exchange};

/// Charges the hop to its host, if the host may be requested now or within the fetch's patience. Returns the extra
/// permit, if the job's own does not cover the hop; `Err`: not in this fetch, but at that time.
pub(super) async fn admission(fetch: &mut Fetch<'_>, url: &FeedUrl) -> Result<Option<Permit>, Timestamp> {
    let policy = fetch.hops.rules.for_url(url.as_url());
    let before = fetch.fetched.last_host.clone();
    if before.is_none() && policy.key == fetch.job.host {
        fetch.fetched.last_host = Some(policy.key);
        return Ok(None);
    }
    // The gate counts from the permit until this fetch has ended, and the request may have left later: of the host before, and of the
    // job's own, to which a chain may return.
    let sent = match &before {
        _ if policy.key == fetch.job.host => fetch.fetched.own_sent,
        Some(host) if *host == policy.key => fetch.fetched.last_sent,
        _ => None,
    };
    if let Some(sent) = sent.filter(|_| policy.limits.burst <= 1) {
        let left = policy.limits.gap.saturating_sub(sent.elapsed());
        wait_until(fetch, fetch.hops.clock.now().after(left)).await?;
    }
    if let Some(until) = fetch.hops.own_holds.of(&policy.key, fetch.hops.clock.now()) {
        return Err(until);
    }
    let request = ExtraRequest {
        host: &policy.key,
        limits: policy.limits,
        during: Some(fetch.hops.permit),
        deadline: fetch.hops.deadline,
    };
    loop {
        let now = fetch.hops.clock.now();
        let until = match fetch.hops.gate.acquire_extra(&request, now).await {
            Ok(Ok(permit)) => {
                fetch.fetched.last_host = Some(policy.key);
                return Ok(Some(permit));
            }
            Ok(Err(until)) => until,
            Err(error) => return Err(gate_failed(fetch, &error, now)),
        };
        wait_until(fetch, until.max(now.after(SHORTEST_WAIT))).await?;
    }
}

/// Waits until the server accepts the next request, if its last response says when (RFC 9110, section 10.2.3: after a redirect
/// too). `Err`: not in this fetch, but at that time. A wait within the host's gap delays nothing: the request waits for the gap
/// anyway.
pub(super) async fn wait_for_server(fetch: &Fetch<'_>, url: &FeedUrl) -> Result<(), Timestamp> {
    let Some(until) = fetch.fetched.retry_after else { return Ok(()) };
    let now = fetch.hops.clock.now();
    if until.since(now) > fetch.hops.rules.for_url(url.as_url()).limits.gap {
        return Err(until.min(now.after(Chain::LONGEST_WAIT)));
    }
    wait_until(fetch, until).await
}

/// Waits, or returns the time if the wait would leave too little of this fetch for a request.
async fn wait_until(fetch: &Fetch<'_>, until: Timestamp) -> Result<(), Timestamp> {
    let now = fetch.hops.clock.now();
    if until <= now {
        return Ok(());
    }
    let wait = until.since(now);
    let ready = Instant::now() + wait;
    if wait > fetch.patience || ready + fetch.shared.timeout / 3 > fetch.deadline {
        return Err(until);
    }
    tokio::time::sleep_until(ready).await;
    Ok(())
}

fn gate_failed(fetch: &Fetch<'_>, error: &GateError, now: Timestamp) -> Timestamp {
    tracing::warn!(feed = %fetch.job.feed, error = error as &dyn std::error::Error, "a redirect waits for the host gate");
    now.after(GATE_RETRY)
}

/// Puts the job off until its host is free, at that time as far as is known; the next fetch continues where this
/// one stopped.
pub(super) fn interrupt(fetch: &mut Fetch<'_>, until: Timestamp) -> Outcome {
    forget_answer(fetch);
    match fetch.chain.detour(fetch.interrupted.unwrap_or(fetch.hops.clock.now())) {
        Ok(detour) => {
            fetch.fetched.detour = detour;
            Outcome::Deferred { until }
        }
        Err(too_long) => Failure::from(too_long).into(),
    }
}

/// The same, for a reason that may last longer than the host is busy.
pub(super) fn pause(fetch: &mut Fetch<'_>, until: Timestamp) -> Outcome {
    // A limit that is used up applies to the host's other feeds as well.
    let limited_until = fetch.fetched.limited_until;
    let outcome = interrupt(fetch, until);
    fetch.fetched.limited_until = limited_until;
    fetch.fetched.retry_after = matches!(outcome, Outcome::Deferred { .. }).then_some(until);
    if let Some(detour) = &mut fetch.fetched.detour {
        detour.not_before = Some(until);
    }
    outcome
}

/// Forgets what the last answer said: it does not apply to another.
fn forget_answer(fetch: &mut Fetch<'_>) {
    (fetch.fetched.http_status, fetch.fetched.fresh_for, fetch.fetched.retry_after) = (None, None, None);
    (fetch.fetched.limited_until, fetch.fetched.blocked_by) = (None, None);
    (fetch.fetched.unusable_delta, fetch.fetched.wants_signature) = (false, false);
}

/// Releases a hop's permit, after the hold that the response requests: the next request must find the hold.
pub(super) async fn give_back(fetch: &Fetch<'_>, permit: &Permit, rest: Option<Option<Timestamp>>) {
    if let Some(until) = rest {
        let now = fetch.hops.clock.now();
        // Without a time from the server the hold lasts for the rest of the fetch: then the worker sets the whole one.
        let hold = (permit.host.clone(), first_hold(until, now, fetch.hops.deadline.since(now)));
        fetch.hops.own_holds.note(&hold.0, hold.1, now);
        if let Err(error) = fetch.hops.gate.hold(std::slice::from_ref(&hold), now).await {
            // The permit keeps the slot until its deadline. The worker sends the hold again before it releases the permit of this fetch.
            tracing::warn!(feed = %fetch.job.feed, error = &error as &dyn std::error::Error, "the hold of a hop's host waits for the host gate");
            return;
        }
        fetch.hops.own_holds.is_known(&hold);
    }
    let gap = fetch.hops.rules.limits_of(&permit.host).gap;
    let next_start_in = fetch.fetched.last_sent.map(|sent| gap.saturating_sub(sent.elapsed()));
    let release = Release { next_start_in, ..Release::default() };
    if let Err(error) = fetch.hops.gate.release(permit, release, fetch.hops.clock.now()).await {
        // it expires at its deadline
        tracing::warn!(feed = %fetch.job.feed, error = &error as &dyn std::error::Error, "a hop's permit was not released");
    }
}

/// Requests one URL.
pub(super) async fn hop(fetch: &mut Fetch<'_>, url: &FeedUrl) -> Step {
    let place = if fetch.chain.is_large() { fetch.take_place(url).await } else { None };
    if fetch.chain.is_large() && place.is_none() {
        return Step::Ended(without_place(fetch));
    }
    let mut fields = fields(fetch, url);
    let method = head_first::method(fetch, url, &mut fields);
    let is_head = method == Method::HEAD;
    fetch.fetched.conditional = request::is_conditional(&fields);
    let delta = fields.contains_key(request::A_IM);
    forget_answer(fetch);
    let before = fetch.started.elapsed();
    let asked_bytes = head_first::fields_len(&fields);
    let shown = fetch.trace.is_some().then(|| trace::fields(&fields));
    let limits = client::HeadLimits {
        deadline: fetch.deadline,
        timeout: fetch.shared.timeout,
        idle: fetch.shared.idle_timeout,
        max_informational: fetch.shared.max_informational,
        max_header_bytes: fetch.shared.max_header_bytes,
        max_headers: fetch.shared.max_headers,
    };
    let domain = match domain(fetch, url) {
        Ok(flight) => flight,
        Err(Busy(wait)) => return Step::Ended(pause(fetch, fetch.hops.clock.now().after(wait))),
    };
    let mut sent = None;
    let response = client::send(&fetch.shared.client, method, url.as_url(), fields, limits, &mut sent).await;
    let received = fetch.hops.clock.now();
    fetch.fetched.last_sent = sent;
    if fetch.fetched.asked_after.is_none() {
        fetch.fetched.asked_after = sent.map(|sent| sent.duration_since(fetch.started));
    }
    if fetch.fetched.last_host.as_ref() == Some(&fetch.job.host) {
        fetch.fetched.own_sent = sent.or(fetch.fetched.own_sent);
    }
    if let (Some(trace), Some(request)) = (&mut fetch.trace, shown) {
        let answer = response.as_ref().ok().map(|answered| trace::ResponseHead::of(&answered.response));
        let took = fetch.started.elapsed().saturating_sub(before);
        trace.push(Exchange { url: url.clone(), request, answer, after: before, took });
    }
    // What is in flight ends with this request.
    let ((head, incoming), _flights) = match response {
        Ok(Answered { response, flight }) => (response.into_parts(), (flight, domain)),
        Err(Unanswered::Shortage(reason)) => return Step::Ended(short_of(fetch, &reason)),
        Err(Unanswered::Busy(wait)) => {
            // Nothing was sent, so neither budget is charged.
            if let Some(flight) = domain {
                flight.undo();
            }
            return Step::Ended(pause(fetch, received.after(wait)));
        }
        Err(Unanswered::Throttled) => return Step::Ended(Outcome::Throttled { retry_after: None }),
        Err(Unanswered::Failed(failure)) if is_head => return head_first::head_failed(fetch, failure, sent.is_some()),
        Err(Unanswered::Failed(failure)) => return Step::Ended(failure.into()),
    };
    fetch.fetched.http_status = Some(head.status.as_u16());
    // From the request on, after its name was resolved and its connection established.
    let asked_after = sent.map_or(before, |sent| sent.duration_since(fetch.started));
    fetch.fetched.fresh_for = headers::freshness(&head.headers, received).map(|fresh| fresh + asked_after);

    fetch.fetched.limited_until = headers::limited_until(&head.headers, received);
    fetch.fetched.retry_after = headers::retry_after(&head.headers, received).max(fetch.fetched.limited_until);
    if let Some(by) = blocked::by_head(&head) {
        return Step::Ended(blocked(fetch, by));
    }
    fetch.fetched.unusable_delta = head.status == StatusCode::IM_USED && delta;

    let permanent = fetch.chain.is_permanent();
    let asked = Asked { conditional: fetch.fetched.conditional, delta, permanent, received };
    if is_head {
        let spent = head_first::heads_len(url, asked_bytes, head.status, &head.headers);
        return head_first::after_head(fetch, &head, spent, asked);
    }
    match classify::head(head.status, &head.headers, asked) {
        Head::Ended(outcome) => match blocked_by(fetch, &head, &outcome, incoming).await {
            Some(by) => Step::Ended(blocked(fetch, by)),
            None => Step::Ended(without_login(fetch, url, outcome)),
        },
        Head::NotModified => {
            let validators = classify::merged(&fetch.job.validators, headers::validators(&head.headers));
            Step::Ended(Outcome::NotModified { validators })
        }
        Head::Redirect => match fetch.chain.follow(head.status, &head.headers, fetch.shared.max_redirects) {
            Ok(()) => match blocked::by_redirect(fetch.chain.current().as_url()) {
                Some(by) => Step::Ended(blocked(fetch, by)),
                None => Step::Redirected,
            },
            Err(error) => Step::Ended(Failure::from(error).into()),
        },
        Head::Content => content(fetch, url, &head.headers, false, incoming, place).await,
        Head::Delta => {
            fetch.fetched.unusable_delta = false;
            content(fetch, url, &head.headers, true, incoming, place).await
        }
    }
}

/// Counts the request with its domain, where no rule covers the host.
fn domain(fetch: &Fetch<'_>, url: &FeedUrl) -> Result<Option<InFlight>, Busy> {
    match (fetch.hops.rules.rule_for(url.as_url()), url.as_url().domain()) {
        (None, Some(name)) => fetch.shared.client.enter_domain(name),
        _ => Ok(None),
    }
}

/// Puts the job off because this machine could not make the request.
fn short_of(fetch: &mut Fetch<'_>, reason: &str) -> Outcome {
    let now = fetch.hops.clock.now();
    if fetch.shared.shortage_is_news(now) {
        tracing::error!(reason, "this machine cannot open connections; fetches are deferred (logged once a minute)");
    }
    pause(fetch, now.after(SHORTAGE_RETRY))
}

/// Another service answered for the site.
fn blocked(fetch: &mut Fetch<'_>, by: Blocker) -> Outcome {
    fetch.fetched.blocked_by = Some(by);
    Failure::blocked(by).into()
}

/// Returns the service that answered with a failing status in place of the site, by the page in the response.
/// `None` for a page that cannot be read in time, or is too large for such a page.
async fn blocked_by(fetch: &mut Fetch<'_>, head: &Parts, outcome: &Outcome, incoming: Incoming) -> Option<Blocker> {
    if outcome.failure().is_none() || !blocked::may_block(head) {
        return None;
    }
    let codings = codings(&head.headers).ok()?.known;
    let body = Limited::new(incoming, blocked::OPENING).collect();
    let deadline = fetch.deadline.min(Instant::now() + PAGE_TIMEOUT);
    let wire = timeout_at(deadline, body).await.ok()?.ok()?.to_bytes();
    fetch.fetched.wire_bytes += wire.len() as u64;
    let limits = DecodeLimits { max_bytes: 4 * blocked::OPENING, max_ratio: u32::MAX, deadline: None };
    let page = decode(wire.into(), &codings, limits).ok()?;
    blocked::by_page(&page)
}

/// A person whose feed is refused at the end of redirects should learn that the credentials were not sent there.
fn without_login(fetch: &Fetch<'_>, url: &FeedUrl, mut outcome: Outcome) -> Outcome {
    let withheld = fetch.hops.login.is_some() && !url.has_origin_of(&fetch.job.url);
    if let (true, Outcome::Failed { detail, .. }) = (withheld, &mut outcome) {
        detail.push_str(", after a redirect to another server, which the credentials were not sent to");
    }
    outcome
}

fn fields(fetch: &Fetch<'_>, url: &FeedUrl) -> HeaderMap {
    let stored = &fetch.job.validators;
    let given_by = stored.for_url.as_deref().unwrap_or(fetch.job.url.as_str());
    let given_by = given_by.strip_suffix(Validators::POSTS).unwrap_or(given_by);
    let none = Validators::default();
    let validators = if given_by == url.as_str() { stored } else { &none };
    let rule = fetch.hops.rules.rule_for(url.as_url());
    let own = || fetch.shared.user_agent.text(fetch.job.subscribers);
    let user_agent = rule.and_then(|rule| rule.user_agent.clone()).unwrap_or_else(own);
    let mut fields = request::fields(&user_agent, validators);
    if let Some(login) = fetch.hops.login.filter(|_| url.has_origin_of(&fetch.job.url)) {
        request::authorize(&mut fields, login);
    }
    let delta = rule.and_then(|rule| rule.delta_encoding).unwrap_or(fetch.shared.delta_encoding);
    if delta && !fetch.job.without_delta && !fetch.chain.asks_for_activities() {
        request::ask_for_delta(&mut fields);
    }
    let now = fetch.hops.clock.now();
    let signer = fetch.shared.signer.as_ref().filter(|_| fetch.chain.asks_for_activities());
    if fetch.chain.asks_for_activities() {
        request::ask_for_activities(&mut fields);
    }
    // Both schemes have a field of the same name.
    match (signer, &fetch.shared.bot_key) {
        (Some(signer), _) => signer.sign(url.as_url(), now, &mut fields),
        (None, Some(key)) => request::sign(&mut fields, key, url.as_url(), now),
        (None, None) => {}
    }
    fields
}

/// Reads the body of a good answer off the wire.
async fn content(
    fetch: &mut Fetch<'_>,
    url: &FeedUrl,
    headers: &HeaderMap,
    delta: bool,
    incoming: Incoming,
    place: Option<BodySlot>,
) -> Step {
    let codings = match codings(headers) {
        Ok(codings) => codings,
        Err(error) => return Step::Ended(Failure::from(error).into()),
    };
    let shared = fetch.shared;
    let limits = WireLimits {
        max_bytes: shared.max_wire_bytes,
        large_bytes: shared.large_body_bytes,
        deadline: fetch.deadline,
        max_wait: fetch.latest().saturating_duration_since(fetch.deadline),
        least_rate: Rate::LEAST,
        idle: shared.idle_timeout,
    };
    let host = fetch.charged(url);
    let places = (&shared.large_bodies, &host);
    let body = match body::read(incoming, limits, places, place, &mut fetch.fetched.wire_bytes).await {
        Ok(body) => body,
        Err(error) => return Step::Ended(unread(fetch, &error)),
    };
    if !delta {
        head_first::note_known(fetch, headers);
    }
    let mut validators = headers::validators(headers);
    let content_type: Option<String> =
        headers.get(header::CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()).into());
    let is_led = fetch.chain.asks_for_activities();
    if *url != fetch.job.url && is_led {
        validators.for_url = Some(format!("{url}{}", Validators::POSTS));
    } else if *url != fetch.job.url && !validators.is_empty() {
        validators.for_url = Some(url.as_str().to_owned());
    }
    fetch.fetched.wants_signature = is_led && content_type.as_deref().is_some_and(is_activity);
    let answer = Answer {
        wire: body.bytes,
        codings,
        content_type,
        url: url.as_str().to_owned(),
        validators,
        stored: fetch.job.validators.clone(),
        known_hash: fetch.job.content_hash,
        known: fetch.job.known.clone(),
        announced: links::announced(headers, url.as_url()),
        delta,
    };
    Step::Body(Box::new(answer), body.place)
}

fn unread(fetch: &mut Fetch<'_>, error: &BodyError<hyper::Error>) -> Outcome {
    match error {
        BodyError::TooLarge => {
            let detail = format!("the body has more than {} bytes", fetch.shared.max_wire_bytes);
            Failure::new(FailureKind::TooLarge, detail).into()
        }
        BodyError::Late => Failure::late(fetch.shared.timeout).into(),
        BodyError::Slow => {
            let Rate { bytes, within } = Rate::LEAST;
            let detail = format!("the body came more slowly than {bytes} bytes in {} s", within.as_secs());
            Failure::new(FailureKind::Timeout, detail).into()
        }
        BodyError::Silent(idle) => Failure::silent(*idle).into(),
        BodyError::Broken(error) if failure::asks_for_calm(error) => Outcome::Throttled { retry_after: None },
        BodyError::Broken(error) => Failure::of_wire(error).into(),
        BodyError::NoSlot => without_place(fetch),
    }
}

/// Puts the job off because other large bodies had all places for too long. The next fetch has its place before its request: what the
/// server sent without one is lost.
fn without_place(fetch: &mut Fetch<'_>) -> Outcome {
    fetch.chain.needs_place();
    pause(fetch, fetch.hops.clock.now().after(fetch.shared.timeout))
}

/// Reads a body, and counts it if that took longer than it should. Puts the job off if all parsers are busy for too long.
pub(super) async fn read_body(fetch: &mut Fetch<'_>, answer: Answer) -> Read {
    match read_apart(fetch.shared, fetch.job.feed, answer, fetch.latest()).await {
        Some((read, is_slow)) => {
            fetch.fetched.slow_parses += u64::from(is_slow);
            read
        }
        None => Read::ended(pause(fetch, fetch.hops.clock.now().after(fetch.shared.timeout)), 0),
    }
}

/// Waiting for a host takes at least this long, so that a stopped clock does not make a busy loop.
const SHORTEST_WAIT: Duration = Duration::from_millis(5);
/// Time for the page that comes with a failing status.
const PAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// When a job is tried again that this machine had no socket for.
const SHORTAGE_RETRY: Duration = Duration::from_secs(5);
/// When a job is tried again whose redirect could not be charged because the gate did not answer.
const GATE_RETRY: Duration = Duration::from_secs(5);
