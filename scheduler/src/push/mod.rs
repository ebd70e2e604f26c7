//! Push: this fleet as a subscriber of WebSub hubs and rssCloud servers (`docs/push.md`, `docs/decisions/0030-push.md`).
//!
//! `wish` turns what a feed announces into a wanted subscription, `state` decides when it is requested and renewed, `request` sends the
//! request, `callback` answers hubs and takes deliveries, `learn` finds out which feeds are pushed reliably. All state is in the store:
//! any scheduler makes any request and takes any callback.

mod address;
pub mod callback;
pub mod check;
mod cloud;
pub(crate) mod learn;
mod request;
mod state;
#[cfg(test)]
mod tests;
pub mod wish;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use common::push::{PushKind, PushState};
use common::url::FeedId;
use rand::RngExt;
use store::PushSubscription;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::request::{Answer, Mode};
use self::state::Step;
use crate::condition::failure_log::FailureLog;
use crate::error::BackendError;
use crate::ops::Ops;

/// Between two looks for subscriptions that are due. Leases may be as short as a few seconds.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long subscriptions are hidden from other schedulers that one has taken.
const TAKEN_FOR: Duration = Duration::from_secs(60);
/// Subscriptions that are taken at once, and hosts with requests in flight.
const AT_ONCE: u32 = 200;
const HOSTS_AT_ONCE: usize = 256;
/// Between two looks for feeds that ended.
const LEAVE_EVERY: Duration = Duration::from_secs(15);
/// Subscriptions that are left in one go.
const LEAVE_AT_ONCE: u32 = 1_000;
/// Between two counts.
const COUNT_EVERY: Duration = Duration::from_secs(15);
/// Feeds whose announcements were stored before pushes were on: this many a look, and all of them again after this time.
const SWEEP_AT_ONCE: u32 = 200;
const SWEEP_EVERY: Duration = Duration::from_secs(60 * 60);
/// After a failure of the store.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Requests and renews subscriptions until stopped. Without a public URL nothing is requested, which is logged once.
pub(crate) async fn run(ops: &Arc<Ops>, stop: &CancellationToken) {
    let push = &ops.config.push;
    if ops.sender.get().is_none() {
        return stop.cancelled().await;
    }
    if ops.config.api.public_url.is_empty() && (push.websub || push.rsscloud) {
        tracing::info!("push is off: hubs need api.public_url to reach this fleet (docs/push.md)");
    }
    // What is off is left: the feeds of such subscriptions get their old pace back.
    let is_on = PushKind::ALL.into_iter().any(|kind| wish::is_on(&ops.config, kind));
    let mut loops = Subscriber::new(Arc::clone(ops));
    let mut acting = FailureLog::new("requesting push subscriptions");
    let mut counting = FailureLog::new("counting push subscriptions");
    let [mut left, mut counted] = [None::<Instant>; 2];
    let is_time = |last: Option<Instant>, every| last.is_none_or(|last| last.elapsed() >= every);
    loop {
        let acted = acting.note(loops.act(stop).await);
        if is_time(left, LEAVE_EVERY) {
            left = Some(Instant::now());
            acting.note(loops.leave().await);
        }
        if is_on {
            acting.note(loops.sweep().await);
        } else if let Ok(0) = loops.count().await {
            return stop.cancelled().await;
        }
        if is_time(counted, COUNT_EVERY) {
            counted = Some(Instant::now());
            counting.note(loops.count().await.map(drop));
        }
        let wait = match acted {
            Some(acted) if acted >= AT_ONCE as usize => Duration::ZERO,
            Some(_) => LOOK_EVERY,
            None => TRY_AGAIN,
        };
        if !common::sleep_or_stop(wait, stop).await {
            return;
        }
    }
}

/// The loop of one scheduler.
struct Subscriber {
    ops: Arc<Ops>,
    /// The last feed that was looked at for announcements; `None` between two sweeps.
    swept: Option<FeedId>,
    sweep_at: Instant,
    /// Requests to hubs, by host.
    running: JoinSet<Result<(), BackendError>>,
}

/// What a task ended with; its panic is ours.
fn done(ended: Result<Result<(), BackendError>, JoinError>) -> Result<(), BackendError> {
    match ended {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Ok(()),
    }
}

impl Subscriber {
    fn new(ops: Arc<Ops>) -> Self {
        Subscriber { ops, swept: Some(FeedId(0)), sweep_at: Instant::now(), running: JoinSet::new() }
    }

    /// Begins to act on the subscriptions that are due, those of one host one after the other; returns how many there are. A slow
    /// hub keeps no other one waiting.
    async fn act(&mut self, stop: &CancellationToken) -> Result<usize, BackendError> {
        while let Some(ended) = self.running.try_join_next() {
            done(ended)?;
        }
        if self.running.len() >= HOSTS_AT_ONCE {
            return Ok(0);
        }
        let now = self.ops.clock.now();
        let due = self.ops.store.push_due(now, now.after(TAKEN_FOR), AT_ONCE).await?;
        let begun = due.len();
        let mut hosts: HashMap<String, Vec<PushSubscription>> = HashMap::new();
        for of in due {
            hosts.entry(place(&of).to_owned()).or_default().push(of);
        }
        let taken_until = Instant::now() + TAKEN_FOR / 2;
        for of_host in hosts.into_values() {
            let (ops, stop) = (Arc::clone(&self.ops), stop.clone());
            self.running.spawn(async move {
                for of in of_host {
                    // What is not begun by then is due again when this scheduler no longer has it.
                    if stop.is_cancelled() || Instant::now() >= taken_until {
                        break;
                    }
                    act_on(&ops, of).await?;
                }
                Ok(())
            });
        }
        Ok(begun)
    }

    /// Leaves the subscriptions of feeds that ended.
    async fn leave(&self) -> Result<(), BackendError> {
        while self.ops.store.leave_pushes(self.ops.clock.now(), LEAVE_AT_ONCE).await? >= u64::from(LEAVE_AT_ONCE) {}
        Ok(())
    }

    /// Looks at some feeds that announce a hub and have no subscription: their documents came before pushes were on, or a process died
    /// between a poll and its wish.
    async fn sweep(&mut self) -> Result<(), BackendError> {
        let Some(after) = self.swept else {
            if Instant::now() >= self.sweep_at {
                self.swept = Some(FeedId(0));
            }
            return Ok(());
        };
        let feeds = self.ops.store.unpushed(after, SWEEP_AT_ONCE).await?;
        let rules = self.ops.rules.get();
        let wishes: Vec<_> = feeds.iter().filter_map(|feed| self.ops.wishes.of_stored(feed, &rules)).collect();
        if !wishes.is_empty() {
            self.ops.store.want_pushes(&wishes, self.ops.clock.now()).await?;
        }
        self.swept = feeds.last().map(|feed| FeedId(feed.id));
        if self.swept.is_none() {
            self.sweep_at = Instant::now() + SWEEP_EVERY;
        }
        Ok(())
    }

    /// Counts subscriptions by kind and state; returns how many there are.
    async fn count(&self) -> Result<u64, BackendError> {
        let counts = self.ops.store.count_pushes().await?;
        let gauge = &self.ops.metrics.push_subscriptions;
        for kind in PushKind::ALL {
            for state in PushState::ALL {
                let count = counts.iter().find(|count| (count.0, count.1) == (kind, state)).map_or(0, |count| count.2);
                gauge.with_label_values(&[kind.as_str(), state.as_str()]).set(i64::try_from(count).unwrap_or(i64::MAX));
            }
        }
        Ok(counts.iter().map(|count| count.2).sum())
    }
}

/// Returns the server that a subscription is requested at.
fn place(of: &PushSubscription) -> &str {
    let from = of.hub.find("://").map_or(0, |at| at + 3);
    let rest = &of.hub[from..];
    rest.split(['/', ' ', '?']).next().unwrap_or(rest)
}

/// Takes the next step of a subscription: stores that it is requested, so that its verification is expected, requests it, and stores
/// the result.
async fn act_on(ops: &Ops, mut of: PushSubscription) -> Result<(), BackendError> {
    let spread = || rand::rng().random::<f64>();
    let was_live = state::is_live(&of);
    // A kind that was switched off is left.
    if !wish::is_on(&ops.config, of.kind) && of.state != PushState::Unsubscribing {
        (of.state, of.asked_at, of.failures) = (PushState::Unsubscribing, None, 0);
    }
    let next = match state::step(&of, ops.clock.now(), spread()) {
        Step::Ask(next) => *next,
        Step::Remove => {
            ops.store.remove_push(&of.id, of.revision).await?;
            return Ok(());
        }
    };
    let mut next = PushSubscription { secret: resealed(ops, &next), ..next };
    if !ops.store.store_push(&next).await? {
        return Ok(());
    }
    next.revision += 1;
    let mode = if next.state == PushState::Unsubscribing { Mode::Unsubscribe } else { Mode::Subscribe };
    let answer = request::send(ops, &next, mode).await?;
    let now = ops.clock.now();
    let after = match (&answer, next.kind) {
        (Answer::Accepted, PushKind::WebSub) => None,
        (Answer::Accepted, PushKind::RssCloud) => Some(state::registered(&next, now, spread())),
        (Answer::Failed(reason), _) => Some(state::failed(&next, reason.clone(), None, now, spread())),
        (Answer::Later(until), _) => Some(state::failed(&next, String::new(), Some(*until), now, spread())),
    };
    tracing::debug!(feed = %next.feed, kind = %next.kind, ?mode, ?answer, "push subscription requested");
    let is_live = after.as_ref().unwrap_or(&next).state == PushState::Verified;
    if let Some(after) = after {
        // A verification that came meanwhile has changed the revision: it stays.
        ops.store.store_push(&after).await?;
    }
    if was_live && !is_live {
        learn::Pace::of(ops).restore(&[next.feed], now).await?;
    }
    Ok(())
}

/// The secret under the key in force, if another one sealed it.
fn resealed(ops: &Ops, of: &PushSubscription) -> Option<common::secrets::Sealed> {
    let sealed = of.secret.as_ref()?;
    if ops.secrets.is_current(sealed) {
        return Some(sealed.clone());
    }
    let again = ops.secrets.open_push(sealed).and_then(|secret| ops.secrets.seal_push(&secret));
    Some(again.unwrap_or_else(|_| sealed.clone()))
}
