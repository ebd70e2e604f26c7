//! What people do with subscriptions: add, change, replay, remove them.

use std::time::Duration;

use common::secrets::SecretError;
use common::time::Timestamp;
use common::webhook::{SignatureKind, WebhookSecret};
use url::Url;

use crate::error::BackendError;
use crate::ops::Ops;
use store::subscriptions::MOST_SUBSCRIPTIONS;
use store::{
    EventFilter, EventQuery, NewSubscription, StoreError, Subscription, SubscriptionChange, SubscriptionState, Wish,
};

/// How long requests are signed with the earlier secret too after another one was set.
pub const ROTATION: Duration = Duration::from_secs(86_400);
/// The maximum length of a target's URL.
const LONGEST_TARGET: usize = 2_048;
/// How often a change is made again because another one was made at the same time.
const TRIES: usize = 20;

/// From where on events are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum From {
    /// From now on.
    Now,
    /// After this number.
    After(i64),
    /// Stored at this time or later.
    Since(Timestamp),
}

/// A secret in a request.
#[derive(Clone, Debug)]
pub enum WantedSecret {
    /// A random one.
    Generated(SignatureKind),
    /// This one.
    Given(WebhookSecret),
}

/// Changes what is wanted.
pub type WishChange = dyn Fn(&mut Wish) + Send + Sync;

/// What a person changes about a subscription. `None` leaves as it is.
#[derive(Default)]
pub struct EditSubscription {
    /// Changes what is wanted.
    pub wish: Option<Box<WishChange>>,
    /// Pauses or resumes.
    pub state: Option<SubscriptionState>,
    /// Another secret.
    pub secret: Option<WantedSecret>,
    /// A random secret of the same kind.
    pub rotate: bool,
    /// Sends these events, whether they were sent before or not.
    pub replay: Option<From>,
}

/// Why a subscription is not added or changed.
#[derive(Debug, thiserror::Error)]
pub enum SubscriptionError {
    /// Requests cannot go there.
    #[error("cannot send to {target}: {why}")]
    Target {
        /// As it was given.
        target: String,
        /// What is wrong.
        why: String,
    },
    /// There are too many.
    #[error("there are {MOST_SUBSCRIPTIONS} subscriptions already; remove one")]
    TooMany,
    /// Events behind the cursor are gone.
    #[error(
        "the events after {after} were deleted by retention (retention.events); continue after {}, which leaves out what was \
         deleted", oldest - 1
    )]
    Lost {
        /// The cursor.
        after: i64,
        /// The oldest number that is kept.
        oldest: i64,
    },
    /// The cursor is of another store.
    #[error("after={after} is newer than anything here; the newest is {newest}")]
    Ahead {
        /// The cursor.
        after: i64,
        /// The newest number.
        newest: i64,
    },
    /// A JSON Feed and an Atom feed have entries only.
    #[error(
        "the formats jsonfeed and atom contain entries only, and the filter's kinds contain none; add entry.* or use the format \
         feedfleet"
    )]
    NoEntries,
    /// Only its subscriber can change what it requested.
    #[error(
        "this is a subscription at the WebSub hub: its subscriber changes it; pause, resume, replay or remove it instead"
    )]
    OfHub,
    /// The secret before the last rotation still signs.
    #[error(
        "the secret was changed within the last day, and requests are signed with the earlier one too until {until}; change it again \
         after that, or remove the subscription and add it again"
    )]
    Rotating {
        /// Until then.
        until: Timestamp,
    },
    /// Our own trouble.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

impl std::convert::From<StoreError> for SubscriptionError {
    fn from(error: StoreError) -> Self {
        SubscriptionError::Backend(error.into())
    }
}

impl std::convert::From<SecretError> for SubscriptionError {
    fn from(error: SecretError) -> Self {
        SubscriptionError::Backend(error.into())
    }
}

/// Checks a target, as far as that is possible before its name is resolved.
pub fn target(ops: &Ops, text: &str) -> Result<Url, SubscriptionError> {
    let shown = || common::url::without_login(text).to_string();
    let refused = |why: &str| SubscriptionError::Target { target: shown(), why: why.to_owned() };
    if text.len() > LONGEST_TARGET {
        return Err(refused("the URL is longer than 2,048 bytes"));
    }
    let url = Url::parse(text.trim()).map_err(|error| refused(&format!("it is not a URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(refused("it must be an http or https URL, such as https://example.com/hook"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refused("it contains a user name or password; requests are signed instead"));
    }
    match ops.sender.get().map(|sender| (sender.judge)(&url)) {
        Some(Err(why)) => Err(refused(&why)),
        _ => Ok(url),
    }
}

/// Adds a subscription; returns it with its secret, which is not shown again.
pub async fn add(
    ops: &Ops,
    mut wish: Wish,
    secret: WantedSecret,
    from: From,
    by: &str,
) -> Result<(Subscription, WebhookSecret), SubscriptionError> {
    wish.target = target(ops, &wish.target)?.into();
    check_kinds(&wish)?;
    let secret = made(secret)?;
    let sealed = ops.secrets.seal_webhook(&secret)?;
    let after = cursor(ops, from).await?;
    let new = NewSubscription { wish, secret: sealed, by: by.to_owned(), after, hub: None };
    let added = ops.store.add_subscription(&new, ops.clock.now()).await?;
    Ok((added.ok_or(SubscriptionError::TooMany)?, secret))
}

/// One subscription.
pub async fn find(ops: &Ops, id: i64) -> Result<Option<Subscription>, StoreError> {
    Ok(ops.store.subscriptions_among(&[id]).await?.into_iter().next())
}

/// Changes a subscription; returns it as it is afterwards, and another secret if one was set. `None`: there is none.
pub async fn edit(
    ops: &Ops,
    id: i64,
    edit: &EditSubscription,
) -> Result<Option<(Subscription, Option<WebhookSecret>)>, SubscriptionError> {
    for _ in 0..TRIES {
        let Some(before) = find(ops, id).await? else { return Ok(None) };
        let secret = match (&edit.secret, edit.rotate) {
            (Some(wanted), _) => Some(made(wanted.clone())?),
            (None, true) => Some(made(WantedSecret::Generated(kind_of(ops, &before)))?),
            (None, false) => None,
        };
        let change = change_of(ops, &before, edit, secret.as_ref()).await?;
        match ops.store.change_subscription(id, &change).await {
            Err(StoreError::Outdated) => {}
            changed => return Ok(changed?.map(|changed| (changed, secret))),
        }
    }
    Err(StoreError::Outdated.into())
}

async fn change_of(
    ops: &Ops,
    before: &Subscription,
    edit: &EditSubscription,
    secret: Option<&WebhookSecret>,
) -> Result<SubscriptionChange, SubscriptionError> {
    if before.hub.is_some() && (edit.wish.is_some() || secret.is_some()) {
        return Err(SubscriptionError::OfHub);
    }
    let mut wish = None;
    if let Some(change) = &edit.wish {
        let mut changed = before.wish.clone();
        change(&mut changed);
        changed.target = target(ops, &changed.target)?.into();
        check_kinds(&changed)?;
        wish = Some(changed);
    }
    let replay_after = match edit.replay {
        Some(from) => Some(cursor(ops, from).await?),
        None => None,
    };
    let resumes = edit.state == Some(SubscriptionState::Active) && before.state != SubscriptionState::Active;
    if resumes && replay_after.is_none() {
        check_cursor(ops, before.progress.cursor).await?;
    }
    let now = ops.clock.now();
    if let (Some(_), Some((old, until))) = (secret, &before.old_secret)
        && *until > now
        && ops.secrets.open_webhook(old).is_ok()
    {
        // The receiver may have either of the two: a third would lock it out.
        return Err(SubscriptionError::Rotating { until: *until });
    }
    let until = now.after(ROTATION);
    let secret = secret.map(|secret| ops.secrets.seal_webhook(secret)).transpose()?;
    Ok(SubscriptionChange {
        hub: None,
        delivery: None,
        wish,
        state: edit.state,
        secret: secret.map(|secret| (secret, until)),
        replay_after,
        revision: before.revision,
    })
}

fn kind_of(ops: &Ops, subscription: &Subscription) -> SignatureKind {
    ops.secrets.open_webhook(&subscription.secret).map_or(SignatureKind::Hmac, |secret| secret.kind())
}

/// Returns the number after which events are sent.
async fn cursor(ops: &Ops, from: From) -> Result<i64, SubscriptionError> {
    match from {
        From::Now => Ok(ops.store.latest_seq().await?),
        From::After(after) => Ok(after.max(check_cursor(ops, after).await? - 1)),
        From::Since(since) => {
            let filter = EventFilter { since: Some(since), ..EventFilter::default() };
            let page = ops.store.find_events(&EventQuery { filter, ..EventQuery::after(0, 1) }).await?;
            match page.items.first() {
                Some(event) => Ok(event.seq - 1),
                None => Ok(ops.store.latest_seq().await?),
            }
        }
    }
}

/// Returns the oldest number that is kept. Zero is the beginning of that.
async fn check_cursor(ops: &Ops, after: i64) -> Result<i64, SubscriptionError> {
    let page = ops.store.events(after, 1).await?;
    if after > 0 && after < page.oldest - 1 {
        return Err(SubscriptionError::Lost { after, oldest: page.oldest });
    }
    let newest = ops.store.latest_seq().await?;
    if after > newest { Err(SubscriptionError::Ahead { after, newest }) } else { Ok(page.oldest) }
}

fn check_kinds(wish: &Wish) -> Result<(), SubscriptionError> {
    let kinds = &wish.filter.kinds;
    let has_entries = kinds.is_empty() || kinds.iter().any(|kind| kind.starts_with("entry."));
    if wish.format.has_entries_only() && !has_entries { Err(SubscriptionError::NoEntries) } else { Ok(()) }
}

fn made(secret: WantedSecret) -> Result<WebhookSecret, SecretError> {
    match secret {
        WantedSecret::Generated(kind) => WebhookSecret::generate(kind).ok_or(SecretError::Failed),
        WantedSecret::Given(secret) => Ok(secret),
    }
}
