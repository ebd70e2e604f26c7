//! Requests to the WebSub hub (WebSub, section 5.1): what is refused at once, and what the subscriber has to confirm.

use std::time::Duration;

use common::config::HubAccess;
use common::feed::Feed;
use common::labels::{HUB_LABEL, Marks};
use common::outcome::DeliveryOutcome;
use common::policy::Status;
use common::secrets::{Sealed, SecretError};
use common::time::Timestamp;
use common::url::{FeedId, FeedUrl};
use url::Url;

use super::subscriptions::{self, SubscriptionError};
use super::{AddFeed, Ops};
use crate::error::BackendError;
use store::{
    ANONYMOUS, DeliveryFormat, EventFilter, FeedRef, Hub, Intent, IntentMode, MOST_AT_HUB, NewSubscription, StoreError,
    Subscription, SubscriptionChange, SubscriptionKind, SubscriptionState, Wish,
};

/// How long a first request may take to be confirmed.
pub(crate) const CONFIRMED_WITHIN: Duration = Duration::from_secs(600);
/// First requests without a token that may wait for their confirmation at once: in all, and of callbacks on one host.
const MOST_UNCONFIRMED: usize = 500;
const MOST_UNCONFIRMED_PER_HOST: usize = 50;
/// Subscriptions without a token of callbacks on one host, confirmed or not: one host must not take the places of all others.
pub(crate) const MOST_PER_HOST: u64 = 400;
/// How long a feed that the hub added stays although no subscription names it: the subscription that it was added for
/// will name it soon.
pub(crate) const YOUNG: Duration = Duration::from_secs(10);
/// Feeds that callers without a token may have added within that time. None is released earlier, so that all are counted.
const ADDED_WITHIN: u64 = 10;
/// After a question that was refused, or not answered, before the same one may be sent again.
const QUIET: Duration = Duration::from_secs(60);
/// How soon a caller may try again while a question waits for its answer, or places are taken by others' first requests.
const SOON: Duration = Duration::from_secs(5);
/// The same while callbacks on its host have as many subscriptions as they can have.
const MUCH_LATER: Duration = Duration::from_secs(3600);
/// Events of a notification.
const BATCH: u32 = 100;
/// The maximum length of a secret, and of a topic, in bytes.
const LONGEST_SECRET: usize = 199;
const LONGEST_TOPIC: usize = 2_048;
/// Why a topic is refused.
const UNKNOWN: &str = "this hub has no such feed";
const ENDED: &str = "this feed is no longer polled here";
/// How often a change is made again because another one was made at the same time.
const TRIES: usize = 20;

/// A request to the hub.
#[derive(Clone, Debug)]
pub struct HubRequest {
    /// Subscribe or unsubscribe.
    pub mode: IntentMode,
    /// The feed's URL, as the subscriber wrote it.
    pub topic: String,
    /// Where notifications go.
    pub callback: String,
    /// How long the subscription is to last, in seconds.
    pub lease: Option<u64>,
    /// What notifications are signed with.
    pub secret: Option<String>,
    /// How entries are written.
    pub format: DeliveryFormat,
    /// The caller.
    pub by: String,
}

/// The feed of a topic.
pub(crate) enum TopicFeed {
    /// This one.
    Found(FeedId),
    /// It cannot be added yet.
    Later,
    /// Why it accepts no subscribers.
    Refused(String),
}

/// Why the hub refuses a request.
#[derive(Debug, thiserror::Error)]
pub enum HubRefusal {
    /// It is not what the hub accepts.
    #[error("{0}")]
    Bad(String),
    /// There is no such topic or subscription.
    #[error("{0}")]
    Unknown(String),
    /// The operator paused it.
    #[error("the operator of this hub has paused this subscription")]
    Paused,
    /// A question for this callback and topic waits for its answer, or there were too many others.
    #[error("{why}; try again later")]
    Busy {
        /// Why.
        why: &'static str,
        /// How long to wait.
        wait: Duration,
    },
    /// There are too many subscriptions.
    #[error("this hub has as many subscriptions as it can have; try again later")]
    Full,
    /// Our own trouble.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

impl From<StoreError> for HubRefusal {
    fn from(error: StoreError) -> Self {
        HubRefusal::Backend(error.into())
    }
}

impl From<SecretError> for HubRefusal {
    fn from(error: SecretError) -> Self {
        HubRefusal::Backend(error.into())
    }
}

/// Returns where the hub is.
pub fn url(ops: &Ops) -> String {
    format!("{}/hub", ops.config.api.public_url.trim_end_matches('/'))
}

/// Takes a request to the hub. It takes effect when the subscriber has confirmed it.
pub async fn accept(ops: &Ops, request: &HubRequest) -> Result<(), HubRefusal> {
    let topic = topic(&request.topic)?;
    let callback = callback(ops, &request.callback)?;
    for _ in 0..TRIES {
        let known = ops.store.hub_subscription(&request.topic, &callback).await?;
        let asked = match request.mode {
            IntentMode::Subscribe => subscribe(ops, request, &topic, &callback, known).await,
            _ => unsubscribe(ops, request, known).await,
        };
        match asked {
            Err(HubRefusal::Backend(BackendError::Store(StoreError::Outdated))) => {}
            asked => return asked,
        }
    }
    Err(StoreError::Outdated.into())
}

async fn subscribe(
    ops: &Ops,
    request: &HubRequest,
    topic: &FeedUrl,
    callback: &str,
    known: Option<Subscription>,
) -> Result<(), HubRefusal> {
    let named = known.as_ref().and_then(|known| known.wish.filter.feed);
    let feed = known_feed(ops, topic, named).await?.map_err(HubRefusal::Unknown)?;
    if feed.is_none() && !may_add_feed(ops).await? {
        return Err(HubRefusal::Busy { why: "this hub added too many feeds a moment ago", wait: YOUNG });
    }
    let secret = request.secret.as_deref().map(|secret| ops.secrets.seal_hub(secret)).transpose()?;
    let limits = &ops.config.delivery;
    let lease = request.lease.map_or(limits.hub_lease, Duration::from_secs);
    let lease = lease.clamp(limits.hub_lease_min, limits.hub_lease_max).as_secs().max(1);
    let is_first = known.is_none();
    let format = request.format;
    let intent = Intent { is_first, lease, secret, format, mode: IntentMode::Subscribe, ..Intent::denied("") };
    match known {
        Some(known) => ask(ops, &known, intent).await,
        None => add_subscription(ops, request, callback, feed, intent).await,
    }
}

async fn unsubscribe(ops: &Ops, request: &HubRequest, known: Option<Subscription>) -> Result<(), HubRefusal> {
    let unknown = || HubRefusal::Unknown("this callback has no subscription to this topic".to_owned());
    let known = known.ok_or_else(unknown)?;
    let intent = Intent { format: request.format, mode: IntentMode::Unsubscribe, ..Intent::denied("") };
    ask(ops, &known, intent).await
}

/// Has the subscriber of a known subscription verified. A stranger may send requests in its name: they change
/// nothing before it has confirmed them, and none replaces one that waits.
async fn ask(ops: &Ops, known: &Subscription, intent: Intent) -> Result<(), HubRefusal> {
    let Some(hub) = &known.hub else { return Err(StoreError::Outdated.into()) };
    // A disabled subscription is verified too: its subscriber may be back. One that is paused may end, and is not resumed.
    if known.state == SubscriptionState::Paused && intent.mode == IntentMode::Subscribe {
        return Err(HubRefusal::Paused);
    }
    let now = ops.clock.now();
    // While it is paused, nobody verifies what was pending, unless it ends.
    let is_served = |it: &&Intent| known.state != SubscriptionState::Paused || it.mode == IntentMode::Unsubscribe;
    if let Some(pending) = hub.intent.as_ref().filter(is_served) {
        let wait = pending.next_try.map_or(Duration::ZERO, |at| at.since(now)).max(SOON);
        return Err(HubRefusal::Busy { why: "an earlier request for this callback and topic is being verified", wait });
    }
    let wait = quiet(known, intent.mode, now);
    if !wait.is_zero() {
        let why = "this callback did not confirm the same request a moment ago";
        return Err(HubRefusal::Busy { why, wait });
    }
    let hub = Some(Hub { intent: Some(intent), ..hub.clone() });
    let change = SubscriptionChange { hub, revision: known.revision, ..SubscriptionChange::default() };
    match ops.store.change_subscription(known.id, &change).await? {
        Some(_) => Ok(()),
        None => Err(StoreError::Outdated.into()),
    }
}

async fn add_subscription(
    ops: &Ops,
    request: &HubRequest,
    callback: &str,
    feed: Option<FeedId>,
    intent: Intent,
) -> Result<(), HubRefusal> {
    let counts = ops.store.count_subscriptions().await?;
    let at_hub: u64 = counts.iter().filter(|it| it.0 == SubscriptionKind::Websub).map(|it| it.3).sum();
    if at_hub >= MOST_AT_HUB {
        return Err(HubRefusal::Full);
    }
    if request.by == ANONYMOUS {
        check_places(ops, callback).await?;
    }
    let kinds = ["entry.new", "entry.updated"].map(str::to_owned).to_vec();
    let wish = Wish {
        kind: SubscriptionKind::Websub,
        target: callback.to_owned(),
        filter: EventFilter { kinds, feed, ..EventFilter::default() },
        format: intent.format,
        batch: BATCH,
        delay: Duration::ZERO,
    };
    let now = ops.clock.now();
    let new = NewSubscription {
        wish,
        secret: Sealed::from_bytes(Vec::new()),
        by: request.by.clone(),
        after: ops.store.latest_seq().await?,
        hub: Some(Hub { topic: request.topic.clone(), until: now.after(CONFIRMED_WITHIN), intent: Some(intent) }),
    };
    match ops.store.add_subscription(&new, now).await? {
        Some(_) => Ok(()),
        // The same request came twice at once, unless there are too many subscriptions in all.
        None if ops.store.hub_subscription(&request.topic, callback).await?.is_some() => {
            Err(StoreError::Outdated.into())
        }
        None => Err(HubRefusal::Full),
    }
}

/// Neither unconfirmed requests nor the callbacks of one host take the places of others.
async fn check_places(ops: &Ops, callback: &str) -> Result<(), HubRefusal> {
    let waiting = ops.store.unconfirmed_callbacks().await?;
    let host = |url: &str| url.parse::<Url>().ok().and_then(|url| url.host_str().map(str::to_owned));
    let of_callback = host(callback);
    let of_host = ops.store.anonymous_subscriptions(of_callback.as_deref().unwrap_or_default()).await?;
    if of_host >= MOST_PER_HOST {
        let why = "callbacks on this host have as many subscriptions as they can have without a token";
        return Err(HubRefusal::Busy { why, wait: MUCH_LATER });
    }
    let of_host = waiting.iter().filter(|other| host(other) == of_callback).count();
    if of_host >= MOST_UNCONFIRMED_PER_HOST {
        let why = "too many subscriptions of callbacks on this host are waiting to be confirmed";
        return Err(HubRefusal::Busy { why, wait: SOON });
    }
    if waiting.len() >= MOST_UNCONFIRMED {
        return Err(HubRefusal::Full);
    }
    Ok(())
}

/// Returns whether the hub may add a feed now.
async fn may_add_feed(ops: &Ops) -> Result<bool, StoreError> {
    if ops.config.delivery.hub == HubAccess::Token {
        return Ok(true);
    }
    Ok(ops.store.hub_additions(ops.clock.now().before(YOUNG)).await? < ADDED_WITHIN)
}

/// Checks a callback, and returns it as it is stored.
fn callback(ops: &Ops, text: &str) -> Result<String, HubRefusal> {
    let url = subscriptions::target(ops, text).map_err(|error| match error {
        SubscriptionError::Target { why, .. } => HubRefusal::Bad(format!("hub.callback cannot be used: {why}")),
        other => HubRefusal::Bad(other.to_string()),
    })?;
    match url.fragment() {
        None => Ok(url.into()),
        Some(_) => Err(HubRefusal::Bad("hub.callback must not have a fragment".to_owned())),
    }
}

/// Returns the feed of a topic, or `None` if the hub may add it; `Err` says why it accepts no subscribers. The feed
/// that a subscription has already counts where there is none with the topic's URL: feeds move.
async fn known_feed(
    ops: &Ops,
    url: &FeedUrl,
    known: Option<FeedId>,
) -> Result<Result<Option<FeedId>, String>, StoreError> {
    let access = ops.config.delivery.hub;
    let is_over = |feed: &Feed| matches!(feed.status, Status::Removed | Status::Gone);
    let mut found = ops.store.feed(&FeedRef::Url(url.clone())).await?;
    if let Some(id) = known.filter(|_| found.as_ref().is_none_or(is_over)) {
        found = ops.store.feed(&FeedRef::Id(id)).await?.or(found);
    }
    let is_hidden = |feed: &Feed| feed.is_private() && access != HubAccess::Token;
    let mut hidden = found.as_ref().is_some_and(is_hidden);
    if let Some(survivor) = found.as_ref().and_then(|feed| feed.merged_into) {
        found = ops.store.feed(&FeedRef::Id(survivor)).await?;
        hidden |= found.as_ref().is_some_and(is_hidden);
    }
    Ok(match found {
        _ if access == HubAccess::Off => Err("this hub is closed".to_owned()),
        // To a caller without a token, private feeds look like unknown ones, whatever became of them. Where an unknown one would be
        // added, they look like those that ended.
        _ if hidden && access == HubAccess::Open => Err(ENDED.to_owned()),
        _ if hidden => Err(UNKNOWN.to_owned()),
        Some(feed) if is_over(&feed) => Err(ENDED.to_owned()),
        Some(feed) => Ok(Some(feed.id)),
        None if access == HubAccess::Known => Err(UNKNOWN.to_owned()),
        None => Ok(None),
    })
}

/// Returns the feed of a topic, which is added if it is unknown.
pub(crate) async fn feed_of(ops: &Ops, topic: &str, known: Option<FeedId>) -> Result<TopicFeed, BackendError> {
    let Ok(url) = topic.parse::<FeedUrl>() else {
        return Ok(TopicFeed::Refused("hub.topic is not the URL of a feed".to_owned()));
    };
    match known_feed(ops, &url, known).await? {
        Ok(Some(feed)) => return Ok(TopicFeed::Found(feed)),
        Ok(None) => {}
        Err(why) => return Ok(TopicFeed::Refused(why)),
    }
    if !may_add_feed(ops).await? {
        return Ok(TopicFeed::Later);
    }
    let feed = AddFeed { marks: Marks { labels: vec![HUB_LABEL.to_owned()], external_id: None }, ..AddFeed::of(url) };
    let added = ops.add_for_hub(feed).await?;
    let erased = || TopicFeed::Refused("the feed was erased while it was added".to_owned());
    Ok(added.map_or_else(erased, TopicFeed::Found))
}

/// Returns how long a question must wait: its last answer was no, or there was none.
fn quiet(known: &Subscription, mode: IntentMode, now: Timestamp) -> Duration {
    let id = question_id(mode);
    let last = known.progress.deliveries.iter().find(|delivery| delivery.id == id);
    let refused = last.filter(|last| last.outcome != DeliveryOutcome::Delivered);
    refused.map_or(Duration::ZERO, |last| last.at.after(QUIET).since(now))
}

/// Returns what a question is remembered as among the requests of a subscription.
pub(crate) fn question_id(mode: IntentMode) -> String {
    format!("hub.mode={mode}")
}

/// Reads a topic. It is repeated in a header field as it was written.
fn topic(text: &str) -> Result<FeedUrl, HubRefusal> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'<' | b'>' | b'"'));
    if text.is_empty() || text.len() > LONGEST_TOPIC || !is_plain {
        let message = "hub.topic must be a URL of up to 2,048 ASCII characters without spaces; encode others with %";
        return Err(HubRefusal::Bad(message.to_owned()));
    }
    if text.contains('#') {
        return Err(HubRefusal::Bad("hub.topic must not have a fragment".to_owned()));
    }
    text.parse().map_err(|error| HubRefusal::Bad(format!("hub.topic is not the URL of a feed: {error}")))
}

/// Checks a secret, which is shorter than 200 bytes (WebSub, section 5.1). Bytes of the form that are not UTF-8 were replaced:
/// signatures by what is left could not be verified.
///
/// # Errors
/// It is empty, too long, or was not UTF-8.
pub fn check_secret(secret: &str) -> Result<(), HubRefusal> {
    if secret.contains(char::REPLACEMENT_CHARACTER) {
        return Err(HubRefusal::Bad(
            "hub.secret must be UTF-8 text; send random bytes as hexadecimal digits".to_owned(),
        ));
    }
    match secret.len() {
        1..=LONGEST_SECRET => Ok(()),
        _ => Err(HubRefusal::Bad("hub.secret must be 1 to 199 bytes long".to_owned())),
    }
}
