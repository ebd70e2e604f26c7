//! Push: this fleet as a subscriber of WebSub hubs and rssCloud servers (`docs/push.md`, `docs/decisions/0030-push.md`).
//!
//! `wish` turns what a feed announces into a wanted subscription, `state` decides when it is requested and renewed, `request` sends the
//! request, `callback` answers hubs and takes deliveries, `claim` finds out which feeds are pushed reliably, `pace` plans the others
//! again, `upkeep` finds what was forgotten. All state is in the store: any scheduler makes any request and takes any callback.

mod address;
pub mod callback;
pub mod check;
pub(crate) mod claim;
mod cloud;
mod limits;
pub(crate) mod pace;
mod request;
mod state;
#[cfg(test)]
mod tests;
mod upkeep;
pub mod wish;

use std::sync::Arc;
use std::time::Duration;

use common::push::{PushKind, PushState};
use common::secrets::Sealed;
use common::time::Timestamp;
use rand::RngExt;
use store::{PushSubscription, PushWish};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::request::{Answer, Mode};
use self::state::Step;
use self::upkeep::{Upkeep, count};
use crate::condition::failure_log::FailureLog;
use crate::error::BackendError;
use crate::ops::Ops;

/// Between two looks for subscriptions that are due. Leases may be as short as a few seconds.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long a scheduler keeps a hub's host to itself: if it dies, another one continues after this time.
const TAKEN_FOR: Duration = Duration::from_secs(30);
/// Hosts with requests in flight, and subscriptions of one host that are acted on in one go.
const HOSTS_AT_ONCE: usize = 256;
const OF_HOST: u32 = 20;
/// Between two counts.
const COUNT_EVERY: Duration = Duration::from_secs(60);
/// After a failure of the store.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How long requests in flight may take when this process ends.
const LAST_REQUESTS: Duration = Duration::from_secs(5);

/// Requests and renews subscriptions until stopped. Without a public URL nothing is requested, which is logged once.
pub(crate) async fn run(ops: &Arc<Ops>, stop: &CancellationToken) {
    let push = &ops.config.push;
    if ops.sender.get().is_none() {
        return stop.cancelled().await;
    }
    if ops.config.api.public_url.is_empty() && (push.websub || push.rsscloud) {
        tracing::info!("push is off: hubs need api.public_url to reach this fleet (docs/push.md)");
    }
    // What is off is left: the feeds of such subscriptions get their old pace back. Without any the loops end.
    let is_on = PushKind::ALL.into_iter().any(|kind| wish::is_on(&ops.config, kind));
    let needed = stop.child_token();
    // Each at its own pace: a count over a large table delays no renewal.
    tokio::join!(requests(ops, &needed), upkeep(ops, &needed), async {
        let mut counting = FailureLog::new("counting push subscriptions");
        loop {
            if counting.note(count(ops).await) == Some(0) && !is_on {
                needed.cancel();
            }
            if !common::sleep_or_stop(COUNT_EVERY, &needed).await {
                return;
            }
        }
    });
    stop.cancelled().await;
}

async fn requests(ops: &Arc<Ops>, stop: &CancellationToken) {
    let mut subscriber = Subscriber::new(Arc::clone(ops));
    let mut acting = FailureLog::new("requesting push subscriptions");
    loop {
        let acted = acting.note(subscriber.act(stop).await);
        let wait = if acted.is_some() { LOOK_EVERY } else { TRY_AGAIN };
        if !common::sleep_or_stop(wait, stop).await {
            break;
        }
    }
    // They end after the subscription in hand, and let other schedulers continue.
    let _ =
        tokio::time::timeout(LAST_REQUESTS, async { while subscriber.running.join_next().await.is_some() {} }).await;
}

async fn upkeep(ops: &Arc<Ops>, stop: &CancellationToken) {
    let (mut upkeep, mut failing) = (Upkeep::new(Arc::clone(ops)), FailureLog::new("the upkeep of push subscriptions"));
    loop {
        let done = failing.note(upkeep.look().await);
        let wait = if done.is_some() { LOOK_EVERY } else { TRY_AGAIN };
        if !common::sleep_or_stop(wait, stop).await {
            return;
        }
    }
}

/// Sends the requests of one scheduler.
struct Subscriber {
    ops: Arc<Ops>,
    /// One task for each host that this scheduler holds, with the number of subscriptions that it acted on.
    running: JoinSet<Result<usize, BackendError>>,
}

/// Returns what a task ended with; its panic is ours.
fn done(ended: Result<Result<usize, BackendError>, JoinError>) -> Result<usize, BackendError> {
    match ended {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Ok(0),
    }
}

impl Subscriber {
    fn new(ops: Arc<Ops>) -> Self {
        Subscriber { ops, running: JoinSet::new() }
    }

    /// Takes hosts of hubs that have something due, and begins to act on their subscriptions, those of one host one after the other. A
    /// hub that is slow, or has a long backlog, keeps no other one waiting.
    async fn act(&mut self, stop: &CancellationToken) -> Result<(), BackendError> {
        while let Some(ended) = self.running.try_join_next() {
            done(ended)?;
        }
        let free = HOSTS_AT_ONCE - self.running.len().min(HOSTS_AT_ONCE);
        if free == 0 || stop.is_cancelled() {
            return Ok(());
        }
        let now = self.ops.clock.now();
        let limit = u32::try_from(free).unwrap_or(u32::MAX);
        for host in self.ops.store.push_hosts(now, now.after(TAKEN_FOR), limit).await? {
            let (ops, stop) = (Arc::clone(&self.ops), stop.clone());
            self.running.spawn(async move { act_at(&ops, &host, &stop).await });
        }
        Ok(())
    }
}

/// Acts on some subscriptions at a host that this scheduler holds, and frees it. Returns on how many.
async fn act_at(ops: &Ops, host: &str, stop: &CancellationToken) -> Result<usize, BackendError> {
    let held_until = Instant::now() + TAKEN_FOR / 2;
    let (mut acted, mut closed_until) = (0, None);
    let done = async {
        for of in ops.store.push_due(host, ops.clock.now(), OF_HOST).await? {
            // Renewals come first. Behind a gate that is closed they only note that their lease expired.
            let waits = closed_until.is_some() && of.lease_until.is_none();
            if waits || stop.is_cancelled() || Instant::now() >= held_until {
                break;
            }
            acted += 1;
            closed_until = closed_until.max(act_on(ops, of).await?);
        }
        Ok::<(), BackendError>(())
    };
    let done = done.await;
    ops.store.free_push_host(host, closed_until).await?;
    done.map(|()| acted)
}

/// Takes the next step of a subscription: stores that it is requested, so that its verification is expected, requests it, and stores
/// the result. Returns until when the gate of its host is closed.
async fn act_on(ops: &Ops, of: PushSubscription) -> Result<Option<Timestamp>, BackendError> {
    let spread = || rand::rng().random::<f64>();
    let is_left = of.state == PushState::Unsubscribing;
    if !is_left && !may_stay(ops, &of).await? {
        ops.store.want_pushes(&[PushWish { feed: of.feed, wanted: None }], ops.clock.now()).await?;
        return Ok(None);
    }
    let next = match state::step(&of, ops.clock.now(), spread()) {
        Step::Ask(next) if !is_left || !ops.config.api.public_url.is_empty() => *next,
        // Without a public URL a hub could not verify the request.
        Step::Ask(_) | Step::Remove => {
            ops.store.remove_push(&of.id, of.revision).await?;
            return Ok(None);
        }
    };
    let mut next = PushSubscription { secret: secret_of(ops, &of), ..next };
    if !ops.store.store_push(&next).await? {
        return Ok(None);
    }
    next.revision += 1;
    let mode = if is_left { Mode::Unsubscribe } else { Mode::Subscribe };
    let answer = request::send(ops, &next, mode, state::may_leave_host(&of, ops.clock.now())).await?;
    tracing::debug!(feed = %next.feed, kind = %next.kind, ?mode, ?answer, "push subscription requested");
    let now = ops.clock.now();
    let mut after = match (&answer, next.kind) {
        (Answer::Accepted, PushKind::WebSub) => return Ok(None),
        (Answer::Accepted, PushKind::RssCloud) => state::registered(&next, now, spread()),
        (Answer::Failed(reason, not_before), _) => state::failed(&next, reason.clone(), *not_before, now, spread()),
        (Answer::Later(until), _) => {
            let before = PushSubscription { revision: next.revision, ..of.clone() };
            state::put_off(&before, *until, now, spread())
        }
    };
    if !matches!(answer, Answer::Accepted) {
        // The hub did not take a new one, and signs with the one before, if any.
        after.secret = of.secret;
    }
    // A verification that came meanwhile has changed the revision: it stays.
    ops.store.store_push(&after).await?;
    Ok(match answer {
        Answer::Later(until) => Some(until),
        _ => None,
    })
}

async fn may_stay(ops: &Ops, of: &PushSubscription) -> Result<bool, BackendError> {
    let feed = ops.store.states_for(&[of.feed]).await?.pop();
    Ok(feed.is_some_and(|feed| wish::may_stay(of, &feed, &ops.config, &ops.rules.get())))
}

/// Returns the secret to request with, under the key in force. One that no key opens any more is replaced: the hub learns the new one
/// with this request. A hub without a secret, from a time without a key, gets one too, and one that may have none any more loses it. Not
/// while an earlier request waits for its verification: the hub would sign with the secret of that one.
fn secret_of(ops: &Ops, of: &PushSubscription) -> Option<Sealed> {
    if of.state == PushState::Unsubscribing {
        return of.secret.clone();
    }
    if !ops.wishes.may_have_secret(of.kind, &of.hub) {
        return None;
    }
    let Some(sealed) = &of.secret else {
        return if of.asked_at.is_some() { None } else { ops.wishes.new_secret(of.kind, &of.hub) };
    };
    match ops.secrets.open_push(sealed) {
        Ok(_) if ops.secrets.is_current(sealed) => Some(sealed.clone()),
        Ok(secret) => Some(ops.secrets.seal_push(&secret).unwrap_or_else(|_| sealed.clone())),
        Err(error) => {
            tracing::warn!(feed = %of.feed, %error, "the secret of a push subscription is replaced");
            ops.wishes.new_secret(of.kind, &of.hub)
        }
    }
}
