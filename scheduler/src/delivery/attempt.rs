//! One request to the target of one subscription: from its cursor to what the response changes.

use std::sync::Arc;
use std::time::Duration;

use common::delivery::{DeliveryAnswer, DeliveryRequest};
use common::feed::Feed;
use common::outcome::DeliveryOutcome;
use common::secrets::SecretError;
use common::time::Timestamp;
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::body::{self, Body, Topic};
use super::hub::{self, Verification};
use super::lanes::{Lane, LaneSlot, Lanes, QUICK, Way};
use super::range;
use super::recent::Recent;
use super::saver::Saver;
use super::settle::{is_ours, settle};
use super::targets::{Refusals, Target};
use crate::events::follow::cut;
use crate::ops::{self, Ops};
use store::{
    ANONYMOUS, Advance, Delivery, Event, EventFilter, EventPage, EventQuery, FeedRef, Intent, Progress, Subscription,
    SubscriptionKind,
};

/// Bytes of text of a request, unless its first event alone has more.
const BODY_BYTES: usize = 1 << 20;

/// What all attempts of a process share.
pub(super) struct Attempts {
    pub(super) ops: Arc<Ops>,
    pub(super) lanes: Lanes,
    pub(super) saver: Saver,
    pub(super) recent: Recent,
    pub(super) refusals: Refusals,
}

/// How an attempt ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// Nothing is to be sent up to this number.
    Nothing(i64),
    /// The events wait for others.
    Later {
        /// Until then.
        due: Timestamp,
        /// There are no others up to this number.
        looked: i64,
        /// How many they are.
        count: u32,
    },
    /// The target has answered, or not; this is how far deliveries are now.
    Answered {
        /// As it was stored.
        progress: Box<Progress>,
        /// It needed more than [`QUICK`], or failed.
        is_slow: bool,
        /// There was nothing more to send up to this number.
        looked: Option<i64>,
    },
    /// Nothing is delivered before the subscriber has answered. It receives a request at this time, or as planned.
    Unanswered(Option<Timestamp>),
    /// Another process has the subscription, or it was changed, disabled or removed.
    Lost,
    /// The store did not answer.
    Unstored(String),
}

/// A subscription of which the next events are sent.
pub(super) struct Task {
    pub(super) of: Subscription,
    pub(super) url: Url,
    pub(super) target: Arc<Target>,
    /// Its last request was slow or failed.
    pub(super) is_slow: bool,
    /// The subscriber is due a verification or a notification: its intent.
    pub(super) asks: bool,
    /// The store's epoch, in which this is so.
    pub(super) epoch: Arc<str>,
    /// The cursor and the pending number in the store.
    pub(super) stored: (i64, i64),
    /// All events up to this number can be read.
    pub(super) newest: i64,
    /// Cancelled when this process lets the subscription go.
    pub(super) gone: CancellationToken,
}

impl Task {
    /// Returns its lane.
    fn way(&self) -> Way {
        match (self.asks, self.is_slow) {
            (true, _) => Way::Question,
            (false, true) => Way::Slow,
            (false, false) => Way::Quick,
        }
    }
}

/// What is to be done.
enum Next {
    /// A request.
    Send(Batch),
    /// A question or a notification to the subscriber, at the hub.
    Ask(Intent),
    /// Nothing is sent, but the progress is to be stored.
    Move { progress: Progress, looked: Option<i64> },
    /// Nothing.
    Rest(Ended),
}

/// A request with its events.
struct Batch {
    id: String,
    progress: Progress,
    first: i64,
    count: u32,
    body: Body,
    /// No further event follows up to this number.
    looked: Option<i64>,
}

impl Attempts {
    /// Sends the next events of a subscription, if there are some.
    pub(super) async fn attempt(&self, task: &Task) -> Ended {
        match self.try_once(task).await {
            Ok(ended) => ended,
            Err(error) => Ended::Unstored(error),
        }
    }

    /// Waits, reads and sends for as long as this process has the subscription. What it stores is not interrupted: other
    /// subscriptions' progress may be in the same transaction.
    async fn try_once(&self, task: &Task) -> Result<Ended, String> {
        let gone = &task.gone;
        let Some(Some((next, target_slot, slot))) = gone.run_until_cancelled(self.prepared(task)).await.transpose()?
        else {
            return Ok(Ended::Lost);
        };
        match next {
            Next::Rest(ended) => Ok(ended),
            Next::Ask(intent) => {
                let ended = self.ask(task, intent, slot).await;
                drop(target_slot);
                ended
            }
            Next::Move { progress, looked } => match self.save(task, task.stored, &progress, None).await? {
                true => Ok(Ended::Answered { progress: Box::new(progress), is_slow: task.is_slow, looked }),
                false => Ok(Ended::Lost),
            },
            // Stored also when nothing changed: what waited to be sent again may be paused, changed or removed by now.
            Next::Send(batch) => match self.save(task, task.stored, &batch.progress, None).await? {
                true => {
                    let ended = self.send(task, batch, slot).await;
                    drop(target_slot);
                    ended
                }
                false => Ok(Ended::Lost),
            },
        }
    }

    /// Waits for its slots, and reads the next events. `None`: the process stops.
    async fn prepared<'a>(&self, task: &'a Task) -> Result<Option<(Next, SemaphorePermit<'a>, LaneSlot)>, String> {
        let lane = self.lanes.lane(task.way());
        let Some((target_slot, mut slot)) = entered(lane, task).await else { return Ok(None) };
        let Some(turn) = lane.reading().await else { return Ok(None) };
        let next = self.next(task).await?;
        if let Next::Send(batch) = &next {
            lane.hold(&mut slot, batch.body.bytes.len()).await;
        }
        drop(turn);
        Ok(Some((next, target_slot, slot)))
    }

    /// Reads the next events.
    async fn next(&self, task: &Task) -> Result<Next, String> {
        let of = &task.of;
        if let Some(hub) = &of.hub {
            let now = self.ops.clock.now();
            let has_ended = hub.until <= now;
            match &hub.intent {
                Some(intent) if task.asks => {
                    let is_strangers = intent.is_first && of.by == ANONYMOUS;
                    return Ok(match self.refusals.wait(&task.url, hub.until, now).filter(|_| is_strangers) {
                        Some(wait) => Next::Rest(Ended::Unanswered(Some(wait))),
                        None => Next::Ask(intent.clone()),
                    });
                }
                // If it is confirmed, what was found meanwhile is sent.
                Some(_) if has_ended || !of.is_delivered() => return Ok(Next::Rest(Ended::Unanswered(None))),
                None if has_ended => return Ok(Next::Rest(Ended::Nothing(task.newest))),
                _ => {}
            }
        }
        let mut progress = of.progress.clone();
        let repeats = progress.pending > 0;
        let (mut page, is_whole) = match repeats {
            true => range::read(&*self.ops.store, &filter(of), &progress).await?,
            false => (self.news(task).await?, false),
        };
        let is_lost = note_lost(of, &mut progress, &page);
        if of.wish.format.has_entries_only() {
            // Of entries that retention took there is nothing to send.
            page.items.retain(|event| event.entry.is_some());
        }
        if !repeats {
            page.more |= cut(&mut page.items, BODY_BYTES);
        }
        let Some((first, last)) = page.items.first().zip(page.items.last()) else {
            return Ok(skip(progress, page.next, is_lost));
        };
        let (first_seq, last_seq, first_at) = (first.seq, last.seq, first.at);
        let count = u32::try_from(page.items.len()).unwrap_or(u32::MAX);
        let due = first_at.after(of.wish.delay);
        if !repeats && count < of.wish.batch && !page.more && due > self.ops.clock.now() {
            return Ok(match is_lost {
                true => Next::Move { progress, looked: None },
                false => Next::Rest(Ended::Later { due, looked: page.next, count }),
            });
        }
        // A request that is repeated keeps its range, and with it its id, unless its events do not fit into one request any more.
        if !repeats || !is_whole {
            (progress.pending, progress.waiting_since) = (last_seq, Some(first_at));
        }
        let looked = (!page.more && !repeats).then_some(page.next);
        let id = request_id(of, &progress, &page.epoch);
        let Some(body) = self.body(of, &page.epoch, page.items).await? else {
            // Its feed was erased or hidden: the subscriber is to be notified, and gets nothing more.
            return Ok(Next::Rest(Ended::Lost));
        };
        Ok(Next::Send(Batch { id, progress, first: first_seq, count, body, looked }))
    }

    /// Reads the events after the cursor, for a new request.
    async fn news(&self, task: &Task) -> Result<EventPage<Event>, String> {
        let of = &task.of;
        let query = EventQuery { filter: filter(of), ..EventQuery::after(of.progress.cursor, of.wish.batch) };
        let mut page = match self.recent.read(&query) {
            Some(page) => page,
            None => self.ops.store.find_events(&query).await.map_err(|error| with_causes(&error))?,
        };
        if !page.more {
            // Numbers from the last event to this one are of events that are gone.
            page.next = page.next.max(task.newest);
        }
        Ok(page)
    }

    /// Writes a request's body. A notification of the hub says how the feed is, as of now; `None` if the feed was erased, or
    /// became private and the subscriber has no token.
    pub(super) async fn body(
        &self,
        of: &Subscription,
        epoch: &str,
        events: Vec<Event>,
    ) -> Result<Option<Body>, String> {
        let feed = match (&of.hub, of.wish.filter.feed) {
            (Some(_), Some(feed)) => {
                self.ops.store.feed(&FeedRef::Id(feed)).await.map_err(|error| with_causes(&error))?
            }
            _ => None,
        };
        let may_see = |feed: &Feed| !feed.is_private() || of.by != ANONYMOUS;
        if of.hub.is_some() && !feed.as_ref().is_some_and(may_see) {
            return Ok(None);
        }
        let hub = ops::hub::url(&self.ops);
        let topic = of.hub.as_ref().zip(feed.as_ref());
        let topic = topic.map(|(it, feed)| Topic { feed, topic: &it.topic, hub: &hub });
        Ok(Some(body::written(of.wish.format, of.id, epoch, topic.as_ref(), events)))
    }

    /// Verifies or notifies the subscriber. The next look reads the subscription again.
    async fn ask(&self, task: &Task, intent: Intent, slot: LaneSlot) -> Result<Ended, String> {
        if let (Some(hub), Some(sender)) = (&task.of.hub, self.ops.sender.get()) {
            let (of, callback, refusals) = (&task.of, &task.url, &self.refusals);
            let verification = Verification { ops: &self.ops, lanes: &self.lanes, sender, refusals, of, hub, callback };
            let asked = verification.ask(&task.gone, intent, slot).await;
            asked.map_err(|error| with_causes(&error))?;
        }
        Ok(Ended::Lost)
    }

    async fn send(&self, task: &Task, batch: Batch, mut slot: LaneSlot) -> Result<Ended, String> {
        let of = &task.of;
        let Batch { id, mut progress, first, count, body, looked } = batch;
        let at = self.ops.clock.now();
        let begun = Instant::now();
        let answer = match (self.fields(of, &id, &body, at), self.ops.sender.get()) {
            (Ok(fields), Some(sender)) => {
                let request = DeliveryRequest { url: task.url.clone(), fields, body: Some(body.bytes) };
                let answered = self.lanes.answered(sender, request, &mut slot);
                let Some(answer) = task.gone.run_until_cancelled(answered).await else { return Ok(Ended::Lost) };
                answer
            }
            (Err(why), _) => DeliveryAnswer::unanswered(DeliveryOutcome::Unsigned, why.to_string()),
            (_, None) => return Ok(Ended::Lost),
        };
        drop(slot);
        let (took, now) = (begun.elapsed(), self.ops.clock.now());
        let delivery = Delivery {
            at,
            id,
            attempt: progress.failures.saturating_add(1),
            events: count,
            first,
            last: progress.pending,
            outcome: answer.outcome,
            status: answer.status,
            duration: (took.as_secs_f64() * 1000.0).round() / 1000.0,
            detail: answer.detail.clone(),
        };
        let stored = progress.place();
        progress.note(delivery);
        self.ops.metrics.deliveries.with_label_values(&[answer.outcome.as_str()]).inc();
        let waited = progress.waiting_since.map_or(Duration::ZERO, |since| now.since(since));
        let disable = settle(&mut progress, &answer, count, self.ops.config.delivery.give_up_after, (at, now));
        let is_disabled = disable.is_some();
        if !self.save(task, stored, &progress, disable).await? || is_disabled {
            return Ok(Ended::Lost);
        }
        let is_good = answer.outcome == DeliveryOutcome::Delivered;
        if is_good {
            self.ops.metrics.delivery_lag.observe(waited.as_secs_f64());
        }
        let is_slow = if is_ours(answer.outcome) { task.is_slow } else { !is_good || took > QUICK };
        Ok(Ended::Answered { progress: Box::new(progress), is_slow, looked: looked.filter(|_| is_good) })
    }

    /// Returns the fields of WebSub, or of Standard Webhooks, signed with each secret that is in use.
    fn fields(
        &self,
        of: &Subscription,
        id: &str,
        body: &Body,
        at: Timestamp,
    ) -> Result<Vec<(&'static str, String)>, SecretError> {
        if let Some(hub) = &of.hub {
            return hub::fields(&self.ops, of, &hub.topic, id, body);
        }
        let old = of.old_secret.as_ref().filter(|(_, until)| *until > at).map(|(secret, _)| secret);
        let sign = |sealed| {
            let secret = self.ops.secrets.open_webhook(sealed)?;
            Ok(secret.sign(id, at.unix_seconds(), &body.bytes))
        };
        let mut signatures = vec![sign(&of.secret)?];
        // One that was sealed with a lost key cannot sign any more; its successor is there because of that.
        signatures.extend(old.and_then(|old| sign(old).ok()));
        Ok(vec![
            ("content-type", body.media_type.to_owned()),
            ("webhook-id", id.to_owned()),
            ("webhook-timestamp", at.unix_seconds().to_string()),
            ("webhook-signature", signatures.join(" ")),
        ])
    }

    async fn save(
        &self,
        Task { of, epoch, .. }: &Task,
        from: (i64, i64),
        progress: &Progress,
        disable: Option<String>,
    ) -> Result<bool, String> {
        let (epoch, progress) = (Arc::clone(epoch), progress.clone());
        let advance = Advance { epoch, id: of.id, revision: of.revision, from, progress, disable };
        self.saver.save(advance).await.map_err(|error| with_causes(&error))
    }
}

/// Waits for a slot of the lane and one of the target. No attempt waits for one of them while it holds the other:
/// subscriptions in the quick lane do not wait because others with the same target wait for the slow one.
async fn entered<'a>(lane: &Lane, task: &'a Task) -> Option<(SemaphorePermit<'a>, LaneSlot)> {
    let _turn = task.target.turn(task.way()).await;
    loop {
        task.target.ready().await;
        let slot = lane.enter(task.way()).await?;
        if let Some(target_slot) = task.target.start() {
            return Some((target_slot, slot));
        }
    }
}

/// Moves on over events of which none is to be sent: up to this number, or over the whole range of a request that is repeated.
fn skip(mut progress: Progress, looked: i64, is_lost: bool) -> Next {
    if progress.pending == 0 {
        return match is_lost {
            true => {
                progress.cursor = progress.cursor.max(looked);
                Next::Move { looked: Some(progress.cursor), progress }
            }
            false => Next::Rest(Ended::Nothing(looked)),
        };
    }
    // Nothing of what was pending matches any more: its feed was erased, retention deleted it, or it was updated. So nothing fails.
    progress.start_again();
    (progress.cursor, progress.pending, progress.waiting_since) = (progress.pending, 0, None);
    Next::Move { progress, looked: None }
}

/// Returns the id of a request: of the subscription, of its replays, and of the range of events that it covers. Retries
/// have the same.
fn request_id(of: &Subscription, progress: &Progress, epoch: &str) -> String {
    let Progress { cursor, pending, .. } = progress;
    format!("msg_{epoch}_{}_{}_{cursor}_{pending}", of.id, of.replays)
}

/// Returns which events are sent: a JSON Feed and an Atom feed have entries only. A subscription at the hub whose feed
/// is not known yet gets none.
pub(super) fn filter(of: &Subscription) -> EventFilter {
    let mut filter = of.wish.filter.clone();
    if of.wish.kind == SubscriptionKind::Websub && filter.feed.is_none() {
        return EventFilter { kinds: vec!["entry.none".to_owned()], ..filter };
    }
    if of.wish.format.has_entries_only() {
        match filter.kinds.is_empty() {
            true => filter.kinds = vec!["entry.*".to_owned()],
            false => filter.kinds.retain(|kind| kind.starts_with("entry.")),
        }
        if filter.kinds.is_empty() {
            // No kind would be any kind. This one does not exist.
            filter.kinds.push("entry.none".to_owned());
        }
    }
    filter
}

/// Notes that retention deleted events before they were sent; returns whether that is new.
fn note_lost(of: &Subscription, progress: &mut Progress, page: &EventPage<Event>) -> bool {
    let (after, gone) = (progress.cursor, page.oldest - 1);
    if after >= gone || progress.lost_after == Some(gone) {
        return false;
    }
    let oldest = page.oldest;
    tracing::error!(subscription = of.id, after, oldest, "events were deleted by retention before they were delivered");
    progress.lost_after = Some(gone);
    if progress.pending == 0 {
        progress.cursor = gone;
    }
    true
}

/// Returns an error with its causes, in a line.
fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    common::causes::causes(error).to_string()
}
