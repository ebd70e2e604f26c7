//! Requests to the WebSub hub (WebSub, section 5.1): what is refused at once, and what the subscriber has to confirm.

use std::time::Duration;

use common::config::HubAccess;
use common::labels::Marks;
use common::policy::{Audience, Status};
use common::secrets::{Sealed, SecretError};
use common::url::{FeedId, FeedUrl};

use super::subscriptions::SubscriptionError;
use super::{AddFeed, Ops};
use crate::error::BackendError;
use store::{
    DeliveryFormat, EventFilter, FeedRef, Hub, Intent, IntentMode, MOST_AT_HUB, NewSubscription, StoreError,
    Subscription, SubscriptionChange, SubscriptionKind, SubscriptionState, Wish,
};

/// How long a first request may take to be confirmed.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(3600);
/// Events of a notification.
const BATCH: u32 = 100;
/// The maximum length of a secret, and of a topic, in bytes.
const LONGEST_SECRET: usize = 199;
const LONGEST_TOPIC: usize = 2_048;
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
    /// Who asks.
    pub by: String,
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
    /// The operator does not want it.
    #[error("the operator of this hub has paused this subscription")]
    Paused,
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

impl Ops {
    /// Returns where the hub is.
    pub fn hub_url(&self) -> String {
        format!("{}/hub", self.config.api.public_url.trim_end_matches('/'))
    }

    /// Takes a request to the hub. What it asks for happens when the subscriber has confirmed it.
    pub async fn hub_request(&self, request: &HubRequest) -> Result<(), HubRefusal> {
        let topic = topic(&request.topic)?;
        let callback = self.callback(&request.callback)?;
        for _ in 0..TRIES {
            let known = self.store.hub_subscription(&request.topic, &callback).await?;
            let asked = match request.mode {
                IntentMode::Subscribe => self.subscribe(request, &topic, &callback, known).await,
                _ => self.unsubscribe(request, known).await,
            };
            match asked {
                Err(HubRefusal::Backend(BackendError::Store(StoreError::Outdated))) => {}
                asked => return asked,
            }
        }
        Err(StoreError::Outdated.into())
    }

    async fn subscribe(
        &self,
        request: &HubRequest,
        topic: &FeedUrl,
        callback: &str,
        known: Option<Subscription>,
    ) -> Result<(), HubRefusal> {
        let feed = self.hub_topic(topic, None).await?.map_err(HubRefusal::Unknown)?;
        let secret = request.secret.as_deref().map(|secret| self.secrets.seal_hub(secret)).transpose()?;
        let limits = &self.config.delivery;
        let lease = request.lease.map_or(limits.hub_lease, Duration::from_secs);
        let lease = lease.clamp(limits.hub_lease_min, limits.hub_lease_max).as_secs().max(1);
        let is_first = known.as_ref().is_none_or(is_unconfirmed);
        let format = request.format;
        let intent = Intent { is_first, lease, secret, format, mode: IntentMode::Subscribe, ..Intent::denied("") };
        match known {
            Some(known) => self.ask(&known, intent).await,
            None => self.add_at_hub(request, callback, feed, intent).await,
        }
    }

    async fn unsubscribe(&self, request: &HubRequest, known: Option<Subscription>) -> Result<(), HubRefusal> {
        let unknown = || HubRefusal::Unknown("this callback has no subscription to this topic".to_owned());
        let known = known.ok_or_else(unknown)?;
        let (is_first, format) = (is_unconfirmed(&known), request.format);
        let intent = Intent { is_first, format, mode: IntentMode::Unsubscribe, ..Intent::denied("") };
        self.ask(&known, intent).await
    }

    /// Has the subscriber of a known subscription asked.
    async fn ask(&self, known: &Subscription, intent: Intent) -> Result<(), HubRefusal> {
        let Some(hub) = &known.hub else { return Err(StoreError::Outdated.into()) };
        // One that is disabled is asked too: its subscriber is there again.
        let state = match known.state {
            SubscriptionState::Active => None,
            SubscriptionState::Disabled => Some(SubscriptionState::Active),
            SubscriptionState::Paused => return Err(HubRefusal::Paused),
        };
        let hub = Some(Hub { intent: Some(intent), ..hub.clone() });
        let change = SubscriptionChange { hub, state, revision: known.revision, ..SubscriptionChange::default() };
        match self.store.change_subscription(known.id, &change).await? {
            Some(_) => Ok(()),
            None => Err(StoreError::Outdated.into()),
        }
    }

    async fn add_at_hub(
        &self,
        request: &HubRequest,
        callback: &str,
        feed: Option<FeedId>,
        intent: Intent,
    ) -> Result<(), HubRefusal> {
        let counts = self.store.count_subscriptions().await?;
        let at_hub: u64 = counts.iter().filter(|it| it.0 == SubscriptionKind::Websub).map(|it| it.3).sum();
        if at_hub >= MOST_AT_HUB {
            return Err(HubRefusal::Full);
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
        let now = self.clock.now();
        let new = NewSubscription {
            wish,
            secret: Sealed::from_bytes(Vec::new()),
            by: request.by.clone(),
            after: self.store.latest_seq().await?,
            hub: Some(Hub { topic: request.topic.clone(), until: now.after(CONFIRMED_WITHIN), intent: Some(intent) }),
        };
        match self.store.add_subscription(&new, now).await? {
            Some(_) => Ok(()),
            // The same request came twice at once, unless there are too many subscriptions in all.
            None if self.store.hub_subscription(&request.topic, callback).await?.is_some() => {
                Err(StoreError::Outdated.into())
            }
            None => Err(HubRefusal::Full),
        }
    }

    /// Checks a callback, and returns it as it is stored.
    fn callback(&self, text: &str) -> Result<String, HubRefusal> {
        let url = self.target(text).map_err(|error| match error {
            SubscriptionError::Target { why, .. } => HubRefusal::Bad(format!("hub.callback cannot be used: {why}")),
            other => HubRefusal::Bad(other.to_string()),
        })?;
        match url.fragment() {
            None => Ok(url.into()),
            Some(_) => Err(HubRefusal::Bad("hub.callback must not have a fragment".to_owned())),
        }
    }

    /// Returns the feed of a topic, or `None` if the hub may add it; `Err` says why nobody can subscribe to it.
    async fn hub_topic(
        &self,
        url: &FeedUrl,
        known: Option<FeedId>,
    ) -> Result<Result<Option<FeedId>, String>, StoreError> {
        let access = self.config.delivery.hub;
        let mut found = match known {
            Some(id) => self.store.feed(&FeedRef::Id(id)).await?,
            None => None,
        };
        if found.is_none() {
            found = self.store.feed(&FeedRef::Url(url.clone())).await?;
        }
        if let Some(survivor) = found.as_ref().and_then(|feed| feed.merged_into) {
            found = self.store.feed(&FeedRef::Id(survivor)).await?;
        }
        Ok(match found {
            _ if access == HubAccess::Off => Err("this hub is closed".to_owned()),
            Some(feed) if matches!(feed.status, Status::Removed | Status::Gone) => {
                Err("this feed is no longer polled here".to_owned())
            }
            // Private feeds are as good as unknown to everybody without a token.
            Some(feed) if feed.is_private() && access != HubAccess::Token => {
                Err("this hub has no such feed".to_owned())
            }
            Some(feed) => Ok(Some(feed.id)),
            None if access == HubAccess::Known => Err("this hub has no such feed".to_owned()),
            None => Ok(None),
        })
    }

    /// Returns the feed of a topic, which is added if it is unknown; `Err` says why nobody can subscribe to it.
    pub(crate) async fn hub_feed(
        &self,
        topic: &str,
        known: Option<FeedId>,
    ) -> Result<Result<FeedId, String>, BackendError> {
        let Ok(url) = topic.parse::<FeedUrl>() else { return Ok(Err("hub.topic is not the URL of a feed".to_owned())) };
        let feed = match self.hub_topic(&url, known).await? {
            Ok(feed) => feed,
            Err(why) => return Ok(Err(why)),
        };
        if let Some(feed) = feed {
            return Ok(Ok(feed));
        }
        let feed = AddFeed {
            url,
            login: None,
            audience: Audience::default(),
            calm: Vec::new(),
            private: false,
            marks: Marks::default(),
            title: None,
        };
        let added = self.add_for_hub(feed).await?;
        Ok(added.ok_or_else(|| "the feed was erased while it was added".to_owned()))
    }
}

fn is_unconfirmed(subscription: &Subscription) -> bool {
    let intent = subscription.hub.as_ref().and_then(|hub| hub.intent.as_ref());
    intent.is_some_and(|intent| intent.is_first)
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

/// Checks a secret, which is shorter than 200 bytes (WebSub, section 5.1).
///
/// # Errors
/// It is empty or too long.
pub fn check_secret(secret: &str) -> Result<(), HubRefusal> {
    match secret.len() {
        1..=LONGEST_SECRET => Ok(()),
        _ => Err(HubRefusal::Bad("hub.secret must be 1 to 199 bytes long".to_owned())),
    }
}
