//! The hub's requests to its subscribers: it verifies that they want a subscription, and notifies them when it ends
//! (WebSub, sections 5.2 and 5.3). The requests are attempts like others: under the lease, through the lanes and the
//! target's limits, and retried.

use std::time::Duration;

use common::delivery::{DeliveryAnswer, DeliveryRequest};
use common::outcome::DeliveryOutcome;
use common::secrets::{Sealed, SecretError};
use common::time::Timestamp;
use common::url::FeedId;
use common::webhook::hub_signature;
use rand::RngExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::backoff::next_try;
use super::body::Body;
use super::lanes::{LaneSlot, Lanes};
use super::sender::Sender;
use super::settle::is_ours;
use super::targets::Refusals;
use crate::error::BackendError;
use crate::ops::hub::{TopicFeed, YOUNG, question_id};
use crate::ops::{self, Ops};
use store::{
    Delivery, FeedRef, Hub, Intent, IntentMode, StoreError, Subscription, SubscriptionChange, SubscriptionState,
};

/// Requests until a subscriber that does not answer is taken to have refused.
const TRIES: u32 = 5;

/// How long a callback can put a question off (`Retry-After`).
const LONGEST_HOLD: Duration = Duration::from_secs(60);

/// What a response means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Yes,
    No,
    /// There was none, or the subscriber is in trouble.
    Later,
}

/// Verifies the intent of a subscriber, or notifies it.
pub(super) struct Verification<'a> {
    pub(super) ops: &'a Ops,
    pub(super) lanes: &'a Lanes,
    pub(super) sender: &'a Sender,
    pub(super) refusals: &'a Refusals,
    pub(super) of: &'a Subscription,
    pub(super) hub: &'a Hub,
    pub(super) callback: &'a Url,
}

impl Verification<'_> {
    /// Sends the request, and stores what follows from the answer: nothing if `gone` is cancelled while it waits, or if
    /// another process was faster.
    pub(super) async fn ask(
        &self,
        gone: &CancellationToken,
        intent: Intent,
        mut slot: LaneSlot,
    ) -> Result<(), BackendError> {
        let (at, begun) = (self.ops.clock.now(), Instant::now());
        let challenge = format!("{:032x}", rand::rng().random::<u128>());
        let url = question(self.callback, &self.hub.topic, &intent, &challenge);
        let request = DeliveryRequest { url, fields: Vec::new(), body: None };
        let answered = self.lanes.answered(self.sender, request, &mut slot);
        let Some(answer) = gone.run_until_cancelled(answered).await else { return Ok(()) };
        drop(slot);
        self.ops.metrics.deliveries.with_label_values(&[answer.outcome.as_str()]).inc();
        let word = word(&answer, &intent, &challenge);
        let delivery = Delivery {
            at,
            id: question_id(intent.mode),
            attempt: intent.tries.saturating_add(1),
            events: 0,
            first: 0,
            last: 0,
            outcome: if word == Word::No && answer.outcome == DeliveryOutcome::Delivered {
                DeliveryOutcome::Rejected
            } else {
                answer.outcome
            },
            status: answer.status,
            duration: (begun.elapsed().as_secs_f64() * 1000.0).round() / 1000.0,
            detail: answer.detail.clone(),
        };
        let stored = match word {
            Word::Yes => self.confirmed(intent, delivery).await,
            Word::No => self.refused(&intent, delivery).await,
            Word::Later => self.again(intent, &answer, delivery).await,
        };
        match stored {
            Err(BackendError::Store(StoreError::Outdated)) => Ok(()),
            stored => stored,
        }
    }

    /// The subscriber confirmed its request.
    async fn confirmed(&self, intent: Intent, delivery: Delivery) -> Result<(), BackendError> {
        if intent.mode != IntentMode::Subscribe {
            return self.end().await;
        }
        self.refusals.note(self.callback, true, self.ops.clock.now());
        let feed = match ops::hub::feed_of(self.ops, &self.hub.topic, self.of.wish.filter.feed).await? {
            TopicFeed::Found(feed) => feed,
            TopicFeed::Later => {
                let next_try = Some(self.ops.clock.now().after(YOUNG));
                let hub = Hub { intent: Some(Intent { next_try, ..intent }), ..self.hub.clone() };
                return self.change(SubscriptionChange { delivery: Some(delivery), ..with(hub) }).await;
            }
            TopicFeed::Refused(reason) => {
                let hub = Hub { intent: Some(Intent::denied(&reason)), ..self.hub.clone() };
                return self.change(SubscriptionChange { delivery: Some(delivery), ..with(hub) }).await;
            }
        };
        // The key may have changed since the request.
        let secret = match &intent.secret {
            Some(secret) if !self.ops.secrets.is_current(secret) => self.ops.secrets.reseal(secret).map(Some),
            secret => Ok(secret.clone()),
        };
        let secret = match secret {
            Ok(secret) => secret,
            Err(error) => {
                tracing::error!(subscription = self.of.id, %error, "the secret of a subscriber cannot be read; its request is dropped");
                return self.refused(&intent, delivery).await;
            }
        };
        let mut wish = self.of.wish.clone();
        (wish.filter.feed, wish.format) = (Some(self.feed_for_now(feed).await?), intent.format);
        let until = self.ops.clock.now().after(Duration::from_secs(intent.lease));
        let hub = Hub { topic: self.hub.topic.clone(), until, intent: None };
        let secret = secret.unwrap_or_else(|| Sealed::from_bytes(Vec::new()));
        let change = SubscriptionChange {
            wish: Some(wish),
            state: Some(SubscriptionState::Active),
            secret: Some((secret, Timestamp::EPOCH)),
            delivery: Some(delivery),
            ..with(hub)
        };
        self.change(change).await
    }

    /// Returns which feed's entries are delivered from now on. One that is merged into the feed of the topic stays until all of its
    /// entries are delivered: then the subscription follows it (`tending`).
    async fn feed_for_now(&self, of_topic: FeedId) -> Result<FeedId, BackendError> {
        let Some(current) = self.of.wish.filter.feed.filter(|current| *current != of_topic) else {
            return Ok(of_topic);
        };
        let merged = self.ops.feed(&FeedRef::Id(current)).await?;
        Ok(merged.filter(|feed| feed.merged_into == Some(of_topic)).map_or(of_topic, |feed| feed.id))
    }

    /// The subscriber does not want it, or does not answer: what it had stays as it was.
    async fn refused(&self, intent: &Intent, delivery: Delivery) -> Result<(), BackendError> {
        if intent.is_first {
            self.refusals.note(self.callback, false, self.ops.clock.now());
        }
        if intent.is_first || intent.mode == IntentMode::Denied {
            return self.end().await;
        }
        let hub = Hub { intent: None, ..self.hub.clone() };
        self.change(SubscriptionChange { delivery: Some(delivery), ..with(hub) }).await
    }

    async fn again(&self, mut intent: Intent, answer: &DeliveryAnswer, delivery: Delivery) -> Result<(), BackendError> {
        if !is_ours(answer.outcome) {
            intent.tries = intent.tries.saturating_add(1);
        }
        if intent.tries >= TRIES {
            return self.refused(&intent, delivery).await;
        }
        let now = self.ops.clock.now();
        let hold = answer.retry_after.map(|at| at.min(now.after(LONGEST_HOLD)));
        intent.next_try = Some(next_try(intent.tries.max(1), hold, rand::rng().random(), now));
        let hub = Hub { intent: Some(intent), ..self.hub.clone() };
        self.change(SubscriptionChange { delivery: Some(delivery), ..with(hub) }).await
    }

    async fn change(&self, change: SubscriptionChange) -> Result<(), BackendError> {
        let change = SubscriptionChange { revision: self.of.revision, ..change };
        self.ops.store.change_subscription(self.of.id, &change).await?;
        Ok(())
    }

    async fn end(&self) -> Result<(), BackendError> {
        self.ops.store.end_subscription(self.of.id, self.of.revision).await?;
        Ok(())
    }
}

/// Returns the fields of a notification (WebSub, section 7). `webhook-id` is ours: a retry has the same one.
pub(super) fn fields(
    ops: &Ops,
    of: &Subscription,
    topic: &str,
    id: &str,
    body: &Body,
) -> Result<Vec<(&'static str, String)>, SecretError> {
    let mut fields = vec![
        ("content-type", body.media_type.to_owned()),
        ("link", format!("<{}>; rel=\"hub\", <{topic}>; rel=\"self\"", ops::hub::url(ops))),
        ("webhook-id", id.to_owned()),
    ];
    if !of.secret.as_bytes().is_empty() {
        let secret = ops.secrets.open_hub(&of.secret)?;
        fields.push(("x-hub-signature", hub_signature(&secret, &body.bytes)));
    }
    Ok(fields)
}

fn with(hub: Hub) -> SubscriptionChange {
    SubscriptionChange { hub: Some(hub), ..SubscriptionChange::default() }
}

/// Returns the callback with the question's parameters after those of its own query.
fn question(callback: &Url, topic: &str, intent: &Intent, challenge: &str) -> Url {
    let mut url = callback.clone();
    {
        let mut query = url.query_pairs_mut();
        query.append_pair("hub.mode", intent.mode.as_str()).append_pair("hub.topic", topic);
        match intent.mode {
            IntentMode::Denied => query.append_pair("hub.reason", &intent.reason),
            _ => query.append_pair("hub.challenge", challenge),
        };
        if intent.mode == IntentMode::Subscribe {
            query.append_pair("hub.lease_seconds", &intent.lease.to_string());
        }
    }
    url
}

fn word(answer: &DeliveryAnswer, intent: &Intent, challenge: &str) -> Word {
    match answer.outcome {
        DeliveryOutcome::Delivered if intent.mode == IntentMode::Denied => Word::Yes,
        DeliveryOutcome::Delivered if answer.is_whole && answer.detail == challenge => Word::Yes,
        // What is missing may be the challenge.
        DeliveryOutcome::Delivered if !answer.is_whole => Word::Later,
        DeliveryOutcome::Delivered
        | DeliveryOutcome::Redirect
        | DeliveryOutcome::Gone
        | DeliveryOutcome::Rejected
        | DeliveryOutcome::Refused => Word::No,
        DeliveryOutcome::Throttled
        | DeliveryOutcome::ServerError
        | DeliveryOutcome::Timeout
        | DeliveryOutcome::Unreachable
        | DeliveryOutcome::Unsigned
        | DeliveryOutcome::Shortage => Word::Later,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callback_keeps_its_query_and_gets_what_is_asked() {
        let callback: Url = "https://a.example/cb?x=1&y=%20".parse().unwrap();
        let topic = "https://b.example/feed?a=1&b=2";
        let mut intent = Intent { mode: IntentMode::Subscribe, lease: 60, ..Intent::denied("") };
        let topic_text = "hub.topic=https%3A%2F%2Fb.example%2Ffeed%3Fa%3D1%26b%3D2";
        let asked = |intent: &Intent| question(&callback, topic, intent, "c").as_str().to_owned();
        let base = "https://a.example/cb?x=1&y=%20&hub.mode";
        assert_eq!(asked(&intent), format!("{base}=subscribe&{topic_text}&hub.challenge=c&hub.lease_seconds=60"));
        intent.mode = IntentMode::Unsubscribe;
        assert_eq!(asked(&intent), format!("{base}=unsubscribe&{topic_text}&hub.challenge=c"));
        let denied = asked(&Intent::denied("it is gone"));
        assert_eq!(denied, format!("{base}=denied&{topic_text}&hub.reason=it+is+gone"));
    }

    #[test]
    fn only_the_challenge_confirms_and_only_trouble_is_asked_again() {
        let intent = Intent { mode: IntentMode::Subscribe, ..Intent::denied("") };
        let word = |outcome, body: &str| word(&DeliveryAnswer::unanswered(outcome, body), &intent, "abc");
        assert_eq!(word(DeliveryOutcome::Delivered, "abc"), Word::Yes);
        for (outcome, body) in [
            (DeliveryOutcome::Delivered, "abcd"),
            (DeliveryOutcome::Delivered, ""),
            (DeliveryOutcome::Rejected, "abc"),
            (DeliveryOutcome::Redirect, "abc"),
            (DeliveryOutcome::Refused, ""),
        ] {
            assert_eq!(word(outcome, body), Word::No, "{outcome} {body}");
        }
        assert_eq!(word(DeliveryOutcome::ServerError, "abc"), Word::Later);
        for body in ["", "ab", "abc"] {
            let late =
                DeliveryAnswer { is_whole: false, ..DeliveryAnswer::unanswered(DeliveryOutcome::Delivered, body) };
            assert_eq!(super::word(&late, &intent, "abc"), Word::Later, "the rest of the body may follow: {body}");
        }
        assert_eq!(word(DeliveryOutcome::Timeout, ""), Word::Later);
    }
}
