//! One request to the target of one subscription: from its cursor to what the response changes.

use std::sync::Arc;
use std::time::Duration;

use common::delivery::{DeliveryAnswer, DeliveryRequest};
use common::outcome::DeliveryOutcome;
use common::secrets::SecretError;
use common::time::Timestamp;
use rand::RngExt;
use tokio::time::Instant;
use url::Url;

use super::backoff::next_try;
use super::body::{self, Body};
use super::lanes::{Lanes, QUICK, Slot};
use super::saver::Saver;
use super::targets::Target;
use crate::events::follow::{Follower, cut};
use crate::ops::Ops;
use crate::sender::{Answering, Sender};
use store::subscriptions::{KEPT_DELIVERIES, MOST_BATCH};
use store::{
    Advance, Delivery, DeliveryFormat, Event, EventFilter, EventPage, EventQuery, Progress, StoreError, Subscription,
};

/// Bytes of text of a request, unless its first event alone has more.
const BODY_BYTES: usize = 1 << 20;

/// What all attempts of a process share.
pub(super) struct Attempts {
    pub(super) ops: Arc<Ops>,
    pub(super) lanes: Lanes,
    pub(super) saver: Saver,
}

/// How an attempt ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// There is nothing to send up to this number.
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
    /// Somebody else has the subscription, or it was changed, disabled or removed.
    Lost,
    /// The store did not answer.
    Unstored(String),
}

/// A request with its events, whose range is stored.
struct Batch {
    id: String,
    progress: Progress,
    first: i64,
    count: u32,
    body: Body,
    /// There is nothing more behind it up to this number.
    looked: Option<i64>,
}

impl Attempts {
    /// Sends the next events of a subscription, if there are some.
    pub(super) async fn attempt(&self, of: &Subscription, url: &Url, target: &Target, is_slow: bool) -> Ended {
        match self.try_once(of, url, target, is_slow).await {
            Ok(ended) => ended,
            Err(error) => Ended::Unstored(error),
        }
    }

    async fn try_once(&self, of: &Subscription, url: &Url, target: &Target, is_slow: bool) -> Result<Ended, String> {
        let Some(_target_slot) = target.slot().await else { return Ok(Ended::Lost) };
        let lane = self.lanes.lane(is_slow);
        let mut slot = loop {
            target.ready().await;
            let Some(slot) = lane.enter(is_slow).await else { return Ok(Ended::Lost) };
            if target.start() {
                break slot;
            }
        };
        let Some(turn) = lane.reading().await else { return Ok(Ended::Lost) };
        let batch = match self.batch(of).await? {
            Ok(batch) => batch,
            Err(ended) => return Ok(ended),
        };
        lane.hold(&mut slot, batch.body.bytes.len()).await;
        drop(turn);
        self.send(of, url, batch, slot).await
    }

    /// Reads the next events and stores which ones the request covers.
    async fn batch(&self, of: &Subscription) -> Result<Result<Batch, Ended>, String> {
        let mut progress = of.progress.clone();
        let repeats = progress.pending > 0;
        let limit = if repeats { MOST_BATCH } else { of.wish.batch };
        let query = EventQuery { filter: filter(of), ..EventQuery::after(progress.cursor, limit) };
        let mut page = self.ops.store.find_events(&query).await.map_err(|error| told(&error))?;
        note_lost(of, &mut progress, &page);
        if repeats {
            let all = page.items.len();
            page.items.retain(|event| event.seq <= progress.pending);
            page.more |= page.items.len() < all;
        }
        let is_cut = cut(&mut page.items, if repeats { 4 * BODY_BYTES } else { BODY_BYTES });
        page.more |= is_cut;
        let Some((first, last)) = page.items.first().zip(page.items.last()) else {
            // What was pending is gone: its feed was erased, or retention took it.
            let looked = if repeats { progress.pending } else { page.next };
            return Ok(Err(self.skip(of, progress, looked).await?));
        };
        let (first_seq, last_seq, first_at) = (first.seq, last.seq, first.at);
        let count = u32::try_from(page.items.len()).unwrap_or(u32::MAX);
        let due = first_at.after(of.wish.delay);
        if !repeats && count < of.wish.batch && !page.more && due > self.ops.clock.now() {
            return Ok(Err(Ended::Later { due, looked: page.next, count }));
        }
        // A request that is repeated keeps its range, and with it its id, unless its entries have grown beyond all measure.
        if !repeats || is_cut {
            (progress.pending, progress.waiting_since) = (last_seq, Some(first_at));
            if !self.save(of, &progress, None).await? {
                return Ok(Err(Ended::Lost));
            }
        }
        let looked = (!page.more && !repeats).then_some(page.next);
        let id = request_id(of, &progress, &page.epoch);
        let body = body::written(of.wish.format, of.id, &page.epoch, page.items);
        Ok(Ok(Batch { id, progress, first: first_seq, count, body, looked }))
    }

    /// Moves on over events of which none is to be sent.
    async fn skip(&self, of: &Subscription, mut progress: Progress, looked: i64) -> Result<Ended, String> {
        if progress.pending == 0 {
            return Ok(Ended::Nothing(looked));
        }
        (progress.cursor, progress.pending, progress.waiting_since) = (looked, 0, None);
        if !self.save(of, &progress, None).await? {
            return Ok(Ended::Lost);
        }
        Ok(Ended::Answered { progress: Box::new(progress), is_slow: false, looked: None })
    }

    async fn send(&self, of: &Subscription, url: &Url, batch: Batch, mut slot: Slot) -> Result<Ended, String> {
        let Batch { id, mut progress, first, count, body, looked } = batch;
        let at = self.ops.clock.now();
        let begun = Instant::now();
        let answer = match (self.fields(of, &id, &body, at), self.ops.sender.get()) {
            (Ok(fields), Some(sender)) => {
                let request = DeliveryRequest { url: url.clone(), fields, body: body.bytes };
                self.answered(sender, request, &mut slot).await
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
        progress.deliveries.insert(0, delivery);
        progress.deliveries.truncate(KEPT_DELIVERIES);
        self.ops.metrics.deliveries.with_label_values(&[answer.outcome.as_str()]).inc();
        let waited = progress.waiting_since.map_or(Duration::ZERO, |since| now.since(since));
        let disable = settle(&mut progress, &answer, count, self.ops.config.delivery.give_up_after, now);
        let is_disabled = disable.is_some();
        if !self.save(of, &progress, disable).await? || is_disabled {
            return Ok(Ended::Lost);
        }
        let is_good = answer.outcome == DeliveryOutcome::Delivered;
        if is_good {
            self.ops.metrics.delivery_lag.observe(waited.as_secs_f64());
        }
        let looked = looked.filter(|_| is_good);
        Ok(Ended::Answered { progress: Box::new(progress), is_slow: !is_good || took > QUICK, looked })
    }

    /// Waits for the response. A request that takes long leaves the slots of quick ones.
    async fn answered(&self, sender: &Sender, request: DeliveryRequest, slot: &mut Slot) -> DeliveryAnswer {
        let mut answering: Answering = (sender.send)(request);
        if let Ok(answer) = tokio::time::timeout(QUICK, &mut answering).await {
            return answer;
        }
        self.lanes.slow_down(slot);
        answering.await
    }

    /// The fields of Standard Webhooks, signed with each secret that is in use.
    fn fields(
        &self,
        of: &Subscription,
        id: &str,
        body: &Body,
        at: Timestamp,
    ) -> Result<Vec<(&'static str, String)>, SecretError> {
        let old = of.old_secret.as_ref().filter(|(_, until)| *until > at).map(|(secret, _)| secret);
        let sign = |sealed| {
            let secret = self.ops.secrets.open_webhook(sealed)?;
            Ok(secret.sign(id, at.unix_seconds(), &body.bytes))
        };
        let signatures = [Some(&of.secret), old].into_iter().flatten().map(sign).collect::<Result<Vec<_>, _>>()?;
        Ok(vec![
            ("content-type", body.media_type.to_owned()),
            ("webhook-id", id.to_owned()),
            ("webhook-timestamp", at.unix_seconds().to_string()),
            ("webhook-signature", signatures.join(" ")),
        ])
    }

    async fn save(&self, of: &Subscription, progress: &Progress, disable: Option<String>) -> Result<bool, String> {
        let advance = Advance { id: of.id, revision: of.revision, progress: progress.clone(), disable };
        self.saver.save(advance).await.map_err(|error| told(&error))
    }
}

/// The id of a request: of the subscription, of its replays, and of the range of events that it covers. Retries have the same.
fn request_id(of: &Subscription, progress: &Progress, epoch: &str) -> String {
    let Progress { cursor, pending, .. } = progress;
    format!("msg_{epoch}_{}_{}_{cursor}_{pending}", of.id, of.replays)
}

/// Which events are sent: a JSON Feed has entries only.
pub(super) fn filter(of: &Subscription) -> EventFilter {
    let mut filter = of.wish.filter.clone();
    if of.wish.format == DeliveryFormat::JsonFeed {
        match filter.kinds.is_empty() {
            true => filter.kinds = vec!["entry.*".to_owned()],
            false => filter.kinds.retain(|kind| kind.starts_with("entry.")),
        }
    }
    filter
}

/// What a response changes; returns why the subscription is disabled, if it is.
fn settle(
    progress: &mut Progress,
    answer: &DeliveryAnswer,
    events: u32,
    give_up_after: Duration,
    now: Timestamp,
) -> Option<String> {
    if answer.outcome == DeliveryOutcome::Delivered {
        (progress.cursor, progress.pending, progress.waiting_since) = (progress.pending, 0, None);
        (progress.failures, progress.failing_since, progress.next_try) = (0, None, None);
        progress.delivered += u64::from(events);
        return None;
    }
    progress.failures = progress.failures.saturating_add(1);
    let since = *progress.failing_since.get_or_insert(now);
    progress.next_try = Some(next_try(progress.failures, answer.retry_after, rand::rng().random(), now));
    if answer.outcome == DeliveryOutcome::Gone {
        return Some("the target answered 410 Gone: it wants no more requests".to_owned());
    }
    (now.since(since) >= give_up_after).then(|| {
        let last = match answer.status {
            Some(status) => format!("status {status}"),
            None => answer.detail.clone(),
        };
        let days = humantime::format_duration(give_up_after);
        format!("its requests have failed for {days} (delivery.give_up_after); the last one: {last}")
    })
}

/// Notes that retention deleted events before they were sent.
fn note_lost(of: &Subscription, progress: &mut Progress, page: &EventPage<Event>) {
    if Follower::missed(progress.cursor, page) && progress.lost_after != Some(page.oldest - 1) {
        let (after, oldest) = (progress.cursor, page.oldest);
        tracing::error!(
            subscription = of.id,
            after,
            oldest,
            "events were deleted by retention before they were delivered"
        );
        progress.lost_after = Some(page.oldest - 1);
    }
}

fn told(error: &StoreError) -> String {
    common::causes::causes(error).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(outcome: DeliveryOutcome) -> DeliveryAnswer {
        DeliveryAnswer { status: Some(500), ..DeliveryAnswer::unanswered(outcome, "no") }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + seconds * 1000)
    }

    #[test]
    fn a_failure_is_retried_for_days_and_then_the_subscription_is_disabled() {
        let day = Duration::from_secs(86_400);
        let mut progress = Progress { cursor: 3, pending: 9, waiting_since: Some(at(0)), ..Progress::default() };
        assert_eq!(settle(&mut progress, &answer(DeliveryOutcome::ServerError), 2, day, at(0)), None);
        assert_eq!((progress.failures, progress.failing_since, progress.pending), (1, Some(at(0)), 9));
        assert!(progress.next_try > Some(at(0)));
        assert_eq!(settle(&mut progress, &answer(DeliveryOutcome::Timeout), 2, day, at(86_399)), None);
        let why = settle(&mut progress, &answer(DeliveryOutcome::ServerError), 2, day, at(86_400)).unwrap();
        assert!(why.contains("for 1day") && why.contains("status 500"), "{why}");
        assert_eq!((progress.cursor, progress.failures), (3, 3), "nothing is skipped");

        assert_eq!(settle(&mut progress, &answer(DeliveryOutcome::Delivered), 2, day, at(86_401)), None);
        let expected = Progress { cursor: 9, delivered: 2, ..Progress::default() };
        assert_eq!(progress, expected);
        assert!(settle(&mut progress, &answer(DeliveryOutcome::Gone), 1, day, at(0)).unwrap().contains("410"));
    }
}
