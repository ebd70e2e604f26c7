//! One request to a hub or a cloud: charged to its host at the gate like any request of a worker, sent by the worker's client with
//! its address guard, and followed through redirects, each hop again at its host's pace.

use std::time::Duration;

use common::delivery::{DeliveryAnswer, DeliveryRequest};
use common::host::HostKey;
use common::host_gate::{ExtraRequest, Release};
use common::outcome::DeliveryOutcome;
use common::policy::first_hold;
use common::push::PushKind;
use common::time::Timestamp;
use common::url::FeedId;
use store::PushSubscription;
use url::Url;

use super::address::{callback_url, path};
use super::cloud::{self, Callback, Cloud};
use crate::error::BackendError;
use crate::ops::Ops;

/// The maximum number of redirects of one request.
const MOST_REDIRECTS: usize = 5;
/// How long a request waits for its host in place; further ones are postponed.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time that a permit lasts beyond the request's own.
const GRACE: Duration = Duration::from_secs(5);

/// What is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Subscribe,
    Unsubscribe,
}

/// What a request resulted in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The hub took it. A hub verifies it later; a cloud has done so.
    Accepted,
    /// It did not, or could not be reached; it may have said when to try again.
    Failed(String, Option<Timestamp>),
    /// Nothing was requested: the gate of its host is closed until then.
    Later(Timestamp),
}

/// A request before its target is known.
struct Call {
    media_type: &'static str,
    body: Vec<u8>,
}

/// Sends a request for a subscription. `may_leave`: a redirect to another host is followed.
pub(super) async fn send(
    ops: &Ops,
    of: &PushSubscription,
    mode: Mode,
    may_leave: bool,
) -> Result<Answer, BackendError> {
    let made = match of.kind {
        PushKind::WebSub => Url::parse(&of.hub).ok().and_then(|url| Some((url, websub(ops, of, mode)?))),
        PushKind::RssCloud => Cloud::parse(&of.hub).and_then(|cloud| {
            let public_url = Url::parse(&ops.config.api.public_url).ok()?;
            let path = path(of.kind, &of.id);
            let callback = Callback { public_url: &public_url, path: &path };
            let (media_type, body) = cloud.registration(&callback, &of.topic);
            Some((cloud.url, Call { media_type, body }))
        }),
    };
    let Some((url, call)) = made else {
        return Ok(Answer::Failed("the hub's address cannot be used".to_owned(), None));
    };
    if of.secret.is_some() && url.scheme() == "http" && mode == Mode::Subscribe && !ops.config.push.secret_over_http {
        return Ok(Answer::Failed(
            "the hub is reached over http, which gets no secret unless push.secret_over_http is set".into(),
            None,
        ));
    }
    Ok(match follow(ops, of, url, &call, may_leave).await? {
        Ok(answer) if answer.outcome == DeliveryOutcome::Delivered => match of.kind {
            PushKind::RssCloud if cloud::is_refusal(&answer.detail) => Answer::Failed(answer.detail, None),
            _ => Answer::Accepted,
        },
        Ok(answer) => Answer::Failed(reason(&answer), answer.retry_after),
        Err(until) => Answer::Later(until),
    })
}

/// Returns the form of WebSub, section 5.1. The secret is only opened here.
fn websub(ops: &Ops, of: &PushSubscription, mode: Mode) -> Option<Call> {
    let callback = callback_url(&ops.config.api.public_url, of.kind, &of.id);
    let lease = ops.config.push.lease.as_secs().max(1).to_string();
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    let name = if mode == Mode::Subscribe { "subscribe" } else { "unsubscribe" };
    form.append_pair("hub.callback", &callback).append_pair("hub.mode", name).append_pair("hub.topic", &of.topic);
    // Hubs of PubSubHubbub 0.3 require it; later ones ignore it.
    form.append_pair("hub.verify", "async");
    if mode == Mode::Subscribe {
        form.append_pair("hub.lease_seconds", &lease);
        if let Some(sealed) = &of.secret {
            form.append_pair("hub.secret", &ops.secrets.open_push(sealed).ok()?);
        }
    }
    Some(Call { media_type: "application/x-www-form-urlencoded", body: form.finish().into_bytes() })
}

/// Sends a request and follows redirects; `Err` inside: nothing was sent, and is not before then. A form with a secret never goes from
/// https to http.
async fn follow(
    ops: &Ops,
    of: &PushSubscription,
    mut url: Url,
    call: &Call,
    may_leave: bool,
) -> Result<Result<DeliveryAnswer, Timestamp>, BackendError> {
    let failed = |detail: &str| Ok(Ok(DeliveryAnswer::unanswered(DeliveryOutcome::Refused, detail)));
    for hop in 0..=MOST_REDIRECTS {
        let answer = match once(ops, of.feed, &url, call).await? {
            Ok(answer) => answer,
            Err(until) if hop == 0 => return Ok(Err(until)),
            // The hub itself had its request, and it is its target that has no time.
            Err(until) => {
                let busy =
                    DeliveryAnswer::unanswered(DeliveryOutcome::Refused, "the host that it redirects to is busy");
                return Ok(Ok(DeliveryAnswer { retry_after: Some(until), ..busy }));
            }
        };
        let is_redirect = matches!(answer.status, Some(301 | 302 | 307 | 308));
        let next = answer.location.as_deref().filter(|_| is_redirect).and_then(|location| url.join(location).ok());
        match next {
            Some(next) if !may_leave && next.host() != url.host() => {
                return failed("it redirects to another host, and its lease is too short for that");
            }
            Some(next) if !matches!(next.scheme(), "http" | "https") => {
                return failed("it redirects to no web address");
            }
            Some(next) if of.secret.is_some() && next.scheme() == "http" && !ops.config.push.secret_over_http => {
                return failed("it redirects to http, which gets no secret unless push.secret_over_http is set");
            }
            Some(next) => url = next,
            None => return Ok(Ok(answer)),
        }
    }
    failed("it redirects too often")
}

/// Sends one request when its host allows it.
async fn once(
    ops: &Ops,
    feed: FeedId,
    url: &Url,
    call: &Call,
) -> Result<Result<DeliveryAnswer, Timestamp>, BackendError> {
    let Some(sender) = ops.sender.get() else {
        return Ok(Ok(DeliveryAnswer::unanswered(DeliveryOutcome::Refused, "this process sends nothing")));
    };
    if let Err(refused) = (sender.judge)(url) {
        return Ok(Ok(DeliveryAnswer::unanswered(DeliveryOutcome::Refused, refused)));
    }
    let rules = ops.rules.get();
    let host = rules.for_url(url);
    let first_try = ops.clock.now();
    let permit = loop {
        let now = ops.clock.now();
        let deadline = now.after(ops.config.delivery.timeout + GRACE);
        let request = ExtraRequest { host: &host.key, limits: host.limits, during: None, deadline };
        match ops.gate.acquire_extra(&request, now).await? {
            Ok(permit) => break permit,
            Err(until) if until > first_try.after(PATIENCE) => return Ok(Err(until)),
            Err(until) => {
                let wait = until.since(now).max(Duration::from_millis(5));
                if !common::sleep_or_stop(wait, &ops.quiet).await {
                    return Ok(Err(until));
                }
            }
        }
    };
    let fields = vec![("content-type", call.media_type.to_owned())];
    let answer = (sender.send)(DeliveryRequest { url: url.clone(), fields, body: Some(call.body.clone()) }).await;
    let now = ops.clock.now();
    if let Some(until) = wanted_rest(ops, &answer, now) {
        logged("hold", hold(ops, &host.key, until, feed, now).await);
    }
    // What was answered counts, whatever the gate says; a permit that is not released expires.
    logged("release", ops.gate.release(&permit, Release::default(), now).await.map_err(BackendError::from));
    Ok(Ok(answer))
}

/// Returns until when a host wants no further requests, as for polls: one subscription holds it for at most an hour.
fn wanted_rest(ops: &Ops, answer: &DeliveryAnswer, now: Timestamp) -> Option<Timestamp> {
    let throttled = ops.condition.config.get().policy.penalty.throttled;
    let wants_rest = answer.status == Some(429) || answer.status == Some(503) && answer.retry_after.is_some();
    wants_rest.then(|| first_hold(answer.retry_after, now, throttled))
}

/// Holds a host: in the store, because the gate may lose its memory, and on the gate.
async fn hold(ops: &Ops, host: &HostKey, until: Timestamp, feed: FeedId, now: Timestamp) -> Result<(), BackendError> {
    ops.store.keep_holds(&[(host.clone(), until, feed)]).await?;
    Ok(ops.condition.gate.hold_stored(&*ops.gate, &[(host.clone(), until)], now).await?)
}

fn logged(what: &str, done: Result<(), BackendError>) {
    if let Err(error) = done {
        tracing::warn!(
            what,
            error = &error as &dyn std::error::Error,
            "the hold or release of a hub's host is not on the gate"
        );
    }
}

/// Returns why a request failed, in a line.
fn reason(answer: &DeliveryAnswer) -> String {
    let detail = answer.detail.trim();
    let text = match answer.status {
        Some(status) if detail.is_empty() => format!("it answered {status}"),
        Some(status) => format!("it answered {status}: {detail}"),
        None => detail.to_owned(),
    };
    common::words::plain(&text, 200)
}
