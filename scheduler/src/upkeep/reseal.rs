//! Key rotation: in the background, seals logins and secrets again that were sealed with an older key. Any number of schedulers may do this
//! at the same time; every process that reads logins or secrets has both keys.

use std::collections::BTreeSet;

use common::secrets::{Keyring, Sealed, SecretError};
use common::url::FeedId;

use crate::error::BackendError;
use store::{Hub, Intent, OldSeal, Store, StoreError, Subscription, SubscriptionChange};

/// The number of logins to read from the store at once.
const PAGE: u32 = 500;
/// Pages of hubs' secrets in one round: a fleet may have as many as feeds, and other work waits for the round.
const PUSH_PAGES: u32 = 20;

/// What earlier rounds logged.
#[derive(Debug, Default)]
pub struct Resealing {
    /// Why some logins cannot be read.
    logged: BTreeSet<String>,
    /// The secrets of subscriptions were looked through: the key changes with a restart only.
    has_subscriptions: bool,
    /// So were the secrets of hubs.
    has_pushes: bool,
    /// The push subscription after which the next round continues.
    after_push: String,
}

impl Resealing {
    /// Seals again what can be opened; returns the number of logins. What cannot be opened stays, and is logged once.
    pub async fn round(&mut self, store: &dyn Store, secrets: &Keyring) -> Result<u64, StoreError> {
        let (mut sealed, mut after, mut unreadable) = (0, FeedId(0), BTreeSet::new());
        // Without a key nothing can be sealed, but unreadable logins are still logged.
        let current = secrets.current();
        loop {
            let old = store.old_seals(current.as_ref().map_or(&[0][..], |current| &current[..]), after, PAGE).await?;
            let Some(last) = old.last() else { break };
            after = last.id;
            for old in old {
                match anew(store, secrets, &old).await? {
                    Ok(done) => sealed += u64::from(done),
                    Err(error) => {
                        unreadable.insert(error.to_string());
                    }
                }
            }
        }
        if !self.has_subscriptions && current.is_some() {
            self.has_subscriptions = subscriptions(store, secrets, &mut unreadable).await?;
        }
        if !self.has_pushes && current.is_some() {
            self.has_pushes = self.pushes(store, secrets, &mut unreadable).await?;
        }
        if sealed > 0 {
            tracing::info!(feeds = sealed, "credentials are sealed with the new key");
        }
        for why in unreadable.difference(&self.logged) {
            tracing::error!(why, "some credentials of feeds or secrets of subscriptions or hubs cannot be used");
        }
        self.logged = unreadable;
        Ok(sealed)
    }

    /// Seals secrets of hubs again that an older key sealed, some pages of them; returns whether these were the last. What cannot be
    /// opened is replaced when its subscription is renewed.
    async fn pushes(
        &mut self,
        store: &dyn Store,
        secrets: &Keyring,
        unreadable: &mut BTreeSet<String>,
    ) -> Result<bool, StoreError> {
        let (mut sealed, mut are_all) = (0_u32, false);
        for _ in 0..PUSH_PAGES {
            let some = store.push_secrets(&self.after_push, PAGE).await?;
            let Some((last, _)) = some.last() else {
                are_all = true;
                break;
            };
            for (id, old) in some.iter().filter(|(_, old)| !secrets.is_current(old)) {
                match secrets.open_push(old).and_then(|secret| secrets.seal_push(&secret)) {
                    Ok(new) => {
                        sealed += u32::from(store.reseal_push(id, [old.as_bytes(), new.as_bytes()]).await?);
                    }
                    Err(error) => {
                        unreadable.insert(error.to_string());
                    }
                }
            }
            self.after_push.clone_from(last);
        }
        if sealed > 0 {
            tracing::info!(sealed, "secrets of hubs are sealed with the new key");
        }
        Ok(are_all)
    }
}

/// Seals the secrets of subscriptions again that an older key sealed; returns whether all could be opened.
async fn subscriptions(
    store: &dyn Store,
    secrets: &Keyring,
    unreadable: &mut BTreeSet<String>,
) -> Result<bool, StoreError> {
    let (mut after, mut sealed, mut all) = (0, 0_u32, true);
    loop {
        let some = store.subscriptions(after, PAGE).await?;
        let Some(last) = some.last() else { break };
        after = last.id;
        for subscription in some {
            let sealed_by_another = |old: &&Sealed| !old.as_bytes().is_empty() && !secrets.is_current(old);
            match intent(store, secrets, &subscription).await {
                Ok(done) => sealed += u32::from(done),
                Err(BackendError::Secret(error)) => {
                    all = false;
                    unreadable.insert(error.to_string());
                }
                Err(BackendError::Store(error)) if !matches!(error, StoreError::Outdated) => return Err(error),
                // It was changed at the same time: the next round looks again.
                Err(_) => all = false,
            }
            let old = subscription.old_secret.as_ref().map(|(old, _)| old);
            for old in [Some(&subscription.secret), old].into_iter().flatten().filter(sealed_by_another) {
                match secrets.reseal(old) {
                    Ok(new) => {
                        let both = [old.as_bytes(), new.as_bytes()];
                        sealed += u32::from(store.reseal_subscription(subscription.id, both).await?);
                    }
                    Err(error) => {
                        all = false;
                        unreadable.insert(error.to_string());
                    }
                }
            }
        }
    }
    if sealed > 0 {
        tracing::info!(sealed, "secrets of subscriptions are sealed with the new key");
    }
    Ok(all)
}

/// Seals the secret again that a subscriber at the hub is to confirm; returns whether an older key had sealed it.
async fn intent(store: &dyn Store, secrets: &Keyring, of: &Subscription) -> Result<bool, BackendError> {
    let Some(hub) = &of.hub else { return Ok(false) };
    let Some((intent, secret)) = hub.intent.as_ref().and_then(|it| Some((it, it.secret.as_ref()?))) else {
        return Ok(false);
    };
    if secrets.is_current(secret) {
        return Ok(false);
    }
    let intent = Intent { secret: Some(secrets.reseal(secret)?), ..intent.clone() };
    let hub = Some(Hub { intent: Some(intent), ..hub.clone() });
    let change = SubscriptionChange { hub, revision: of.revision, ..SubscriptionChange::default() };
    Ok(store.change_subscription(of.id, &change).await?.is_some())
}

async fn anew(store: &dyn Store, secrets: &Keyring, old: &OldSeal) -> Result<Result<bool, SecretError>, StoreError> {
    let credentials = secrets.open(&old.sealed, &old.url).and_then(|login| secrets.seal(&login, &old.url));
    match credentials {
        Ok(credentials) => Ok(Ok(store.reseal(old, &credentials).await?)),
        Err(error) => Ok(Err(error)),
    }
}
