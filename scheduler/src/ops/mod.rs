//! What people and programs can do with a fleet: add feeds, change them, have them polled, pause. The API and the
//! embedded command line both end here.
//!
//! Each operation writes the store first and the schedule second: a crash between the two is repaired by reconcile. No
//! polling decisions are made here.

pub mod backfill;
pub mod config;
pub mod hosts;
pub mod hub;
#[cfg(test)]
mod large_tests;
pub mod pings;
pub mod subscriptions;
pub mod unmove;
pub mod upcoming;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use common::bot_auth::BotKey;
use common::calm::CalmGroup;
use common::config::Config;
use common::feed::Feed;
use common::host_gate::HostGate;
use common::job::FetchJob;
use common::labels::{LabelEdit, Marks};
use common::live_rules::LiveRules;
use common::metrics::Metrics;
use common::policy::{Audience, Policy, Rule, Status, Subject, Terms, category, first_due, replan};
use common::queue::Queue;
use common::report::FetchReport;
use common::secrets::{Credentials, Keyring, Login, SecretError};
use common::time::{Clock, Timestamp};
use common::url::{FeedId, FeedUrl};
use tokio_util::sync::CancellationToken;

use crate::condition::Condition;
use crate::condition::live_config::ConfigSource;
use crate::delivery::sender::Sender;
use crate::error::BackendError;
use crate::poll::retire::retire;
use crate::poll::subject::{draw, new_subject, placement_slot, planned_subject, slot};
use crate::push::wish::Wishes;
use crate::schedule::{Band, Schedule, Slot};
use crate::upkeep::orders::Orders;
use store::{Added, FeedChange, FeedQuery, FeedRef, LabelChange, NewFeed, Page, Placement, Store, StoreError};

/// The operations, over whatever the fleet runs on.
pub struct Ops {
    /// Feeds, entries, events.
    pub store: Arc<dyn Store>,
    /// Due times.
    pub schedule: Arc<dyn Schedule>,
    /// Hosts' gaps and holds.
    pub gate: Arc<dyn HostGate>,
    /// To the workers.
    pub jobs: Arc<dyn Queue<FetchJob>>,
    /// Reports on them.
    pub reports: Arc<dyn Queue<FetchReport>>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The configuration at the start; what may change since then is in [`Condition::config`].
    pub config: Arc<Config>,
    /// Where it is read again.
    pub config_source: OnceLock<ConfigSource>,
    /// One reads it at a time: the file that was read last is the one in force.
    pub reloading: tokio::sync::Mutex<()>,
    /// The host rules in force.
    pub rules: Arc<LiveRules>,
    /// What operators say about hosts, and the way of it.
    pub orders: Arc<Orders>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What the loops measured of the fleet.
    pub condition: Arc<Condition>,
    /// Cancelled when the scheduler is about to stop: it claims nothing more and is not ready.
    pub quiet: CancellationToken,
    /// Seals logins.
    pub secrets: Arc<Keyring>,
    /// What sends requests to the targets of subscriptions.
    pub sender: OnceLock<Sender>,
    /// Which push subscriptions are wanted.
    pub wishes: Arc<Wishes>,
    /// Whose public half servers look for.
    pub bot_key: Option<BotKey>,
}

/// A feed to be polled.
#[derive(Clone, Debug)]
pub struct AddFeed {
    /// Where.
    pub url: FeedUrl,
    /// With which user name and password.
    pub login: Option<Login>,
    /// Its readers.
    pub audience: Audience,
    /// Subscribers who want it at midnight.
    pub calm: Vec<CalmGroup>,
    /// Unknown to pings and the publisher's page.
    pub private: bool,
    /// What the caller notes on it.
    pub marks: Marks,
    /// The caller's name for it: its title until the feed itself has one.
    pub title: Option<String>,
}

impl AddFeed {
    /// Returns a feed about which the caller says nothing else.
    pub fn of(url: FeedUrl) -> Self {
        AddFeed {
            url,
            login: None,
            audience: Audience::default(),
            calm: Vec::new(),
            private: false,
            marks: Marks::default(),
            title: None,
        }
    }
}

/// What a person changes about a feed. `None` leaves as it is.
#[derive(Clone, Debug, Default)]
pub struct EditFeed {
    /// Its readers.
    pub audience: Option<AudienceEdit>,
    /// Subscribers who want it at midnight.
    pub calm: Option<Vec<CalmGroup>>,
    /// Unknown to pings and the publisher's page.
    pub private: Option<bool>,
    /// Its labels.
    pub labels: LabelEdit,
    /// The caller's own id, or none.
    pub external_id: Option<Option<String>>,
    /// Pause, resume, remove.
    pub status: Option<Status>,
    /// Another login, or none: its next poll, which is due at once, is unconditional.
    pub login: Option<Option<Login>>,
}

/// The fields of an audience that a person changes. Each is laid over the feed as it is when the change is stored, so that two
/// changes of different fields at once both survive.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AudienceEdit {
    subscribers: Option<u32>,
    active_subscribers: Option<u32>,
    sla: Option<bool>,
    important: Option<bool>,
    interval: Option<Option<Duration>>,
}

impl AudienceEdit {
    /// Returns the fields in which these differ; `None` when they do not.
    pub fn between(before: Audience, after: Audience) -> Option<Self> {
        fn changed<T: Copy + PartialEq>(before: T, after: T) -> Option<T> {
            (before != after).then_some(after)
        }
        (before != after).then(|| AudienceEdit {
            subscribers: changed(before.subscribers, after.subscribers),
            active_subscribers: changed(before.active_subscribers, after.active_subscribers),
            sla: changed(before.sla, after.sla),
            important: changed(before.important, after.important),
            interval: changed(before.interval, after.interval),
        })
    }

    /// Returns the audience with these fields changed.
    pub fn over(self, before: Audience) -> Audience {
        let subscribers = self.subscribers.unwrap_or(before.subscribers);
        Audience {
            subscribers,
            active_subscribers: self.active_subscribers.unwrap_or(before.active_subscribers).min(subscribers),
            sla: self.sla.unwrap_or(before.sla),
            important: self.important.unwrap_or(before.important),
            interval: self.interval.unwrap_or(before.interval),
        }
    }
}

/// How often a change is tried again because the feed was changed at the same time.
const TRIES: usize = 20;

/// Returns whether a person may set a feed of one status to another.
fn may_become(before: Status, after: Status) -> bool {
    match after {
        Status::Paused => matches!(before, Status::Active | Status::Paused),
        Status::Active => !matches!(before, Status::Gone | Status::Removed | Status::Merged),
        _ => true,
    }
}

/// Who adds feeds. What a person adds one by one is polled again whatever ended it before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Adder {
    Person,
    List,
    Hub,
}

impl Ops {
    fn sealed(&self, login: Option<&Login>, url: &FeedUrl) -> Result<Option<Credentials>, SecretError> {
        login.map(|login| self.secrets.seal(login, url)).transpose()
    }

    /// Adds feeds, or finds them known; one answer each, in order. `spread` returns for each feed a number in [0, 1):
    /// its place in the spread of an import; `None` polls at once, as for feeds added by hand.
    pub async fn add(&self, feeds: &[AddFeed], spread: Option<&[f64]>) -> Result<Vec<Added>, BackendError> {
        let adder = if spread.is_some() { Adder::List } else { Adder::Person };
        self.add_for(feeds, spread, adder).await
    }

    /// Adds the feeds of a list like [`Self::add`], but has new ones polled at once.
    pub async fn add_list_at_once(&self, feeds: &[AddFeed]) -> Result<Vec<Added>, BackendError> {
        self.add_for(feeds, None, Adder::List).await
    }

    /// Adds a feed for subscribers of the hub, which releases it when they are gone. `None`: it was erased meanwhile.
    async fn add_for_hub(&self, feed: AddFeed) -> Result<Option<FeedId>, BackendError> {
        let added = self.add_for(&[feed], None, Adder::Hub).await?;
        Ok(added.first().map(|added| added.id))
    }

    async fn add_for(
        &self,
        feeds: &[AddFeed],
        spread: Option<&[f64]>,
        adder: Adder,
    ) -> Result<Vec<Added>, BackendError> {
        let now = self.clock.now();
        let (rules, config) = (self.rules.get(), self.condition.config.get());
        let new_feeds = feeds
            .iter()
            .enumerate()
            .map(|(index, feed)| {
                let place = spread.and_then(|places| places.get(index)).copied();
                let subject = new_subject(&rules, &feed.url, feed.audience, &feed.calm, feed.login.is_some());
                Ok(NewFeed {
                    url: feed.url.clone(),
                    credentials: self.sealed(feed.login.as_ref(), &feed.url)?,
                    host: rules.for_url(feed.url.as_url()).key,
                    audience: feed.audience,
                    calm: feed.calm.clone(),
                    category: category(&subject),
                    private: feed.private,
                    marks: feed.marks.clone(),
                    title: feed.title.clone(),
                    first_due: first_due(now, place, &config.policy),
                    by_hand: adder == Adder::Person,
                    hub: adder == Adder::Hub,
                })
            })
            .collect::<Result<Vec<_>, SecretError>>()?;
        let added = self.store.add_feeds(&new_feeds, now).await?;
        let slots: Vec<Slot> = (added.iter().zip(&new_feeds))
            .filter(|(added, _)| added.new || added.revived)
            .map(|(added, feed)| Slot {
                feed: added.id,
                due_at: if added.revived { now } else { feed.first_due },
                band: Band::of(feed.category, false),
            })
            .collect();
        self.schedule.put(&slots, now).await?;
        Ok(added)
    }

    /// One feed.
    pub async fn feed(&self, which: &FeedRef) -> Result<Option<Feed>, BackendError> {
        Ok(self.store.feed(which).await?)
    }

    /// Returns a page of feeds, in any order.
    pub async fn feeds(&self, query: &FeedQuery) -> Result<Page<Feed>, BackendError> {
        upcoming::feeds(&*self.store, &*self.schedule, query, self.clock.now()).await
    }

    /// Changes a feed and moves it in the schedule accordingly. `None`: there is no such feed. If its status does not allow the status
    /// that is wanted, nothing changes, and the feed is returned as it is.
    pub async fn edit(&self, id: FeedId, edit: &EditFeed) -> Result<Option<Feed>, BackendError> {
        for _ in 0..TRIES {
            let now = self.clock.now();
            let Some(before) = self.store.feed(&FeedRef::Id(id)).await? else { return Ok(None) };
            if edit.status.is_some_and(|status| !may_become(before.status, status)) {
                return Ok(Some(before));
            }
            let change = self.change(&before, edit, now)?;
            let changed = match self.store.change_feed(id, &change, now).await {
                Err(StoreError::Outdated) => continue,
                changed => changed?,
            };
            let Some(feed) = changed else { return Ok(None) };
            self.reschedule(std::slice::from_ref(&feed), now).await?;
            return Ok(Some(feed));
        }
        Err(StoreError::Outdated.into())
    }

    /// Changes many feeds at once, each once only.
    pub async fn edit_all(&self, edits: &[(FeedId, EditFeed)]) -> Result<(), BackendError> {
        let ids: Vec<FeedId> = edits.iter().map(|(id, _)| *id).collect();
        for _ in 0..TRIES {
            let now = self.clock.now();
            let before = self.store.states_for(&ids).await?;
            let before: HashMap<FeedId, Feed> = before.into_iter().map(|feed| (feed.id, feed)).collect();
            let known = edits.iter().filter_map(|(id, edit)| Some((before.get(id)?, edit)));
            let change = |(before, edit): (&Feed, &EditFeed)| Ok((before.id, self.change(before, edit, now)?));
            let changes = known.map(change).collect::<Result<Vec<_>, SecretError>>()?;
            match self.store.change_feeds(&changes, now).await {
                Err(StoreError::Outdated) => {}
                changed => return self.reschedule(&changed?, now).await,
            }
        }
        Err(StoreError::Outdated.into())
    }

    /// Returns what an edit means for the store.
    fn change(&self, before: &Feed, edit: &EditFeed, now: Timestamp) -> Result<FeedChange, SecretError> {
        let rules = self.rules.get();
        let resumed = edit.status == Some(Status::Active) && before.status != Status::Active;
        let audience = edit.audience.map_or(before.audience, |edit| edit.over(before.audience));
        let credentials = match &edit.login {
            Some(login) => Some(self.sealed(login.as_ref(), &before.url)?),
            None => None,
        };
        let has_login = credentials.as_ref().map_or(before.credentials.is_some(), Option::is_some);
        let calm = edit.calm.as_deref().unwrap_or(&before.calm);
        let subject = Subject { audience, calm, credentials: has_login, ..planned_subject(&rules, before, now) };
        let config = self.condition.config.get();
        let policy =
            Policy { config: &config.policy, load: self.condition.load.get(), price: self.condition.price.get() };
        let is_replanned = edit.audience.is_some() || edit.login.is_some() || edit.calm.is_some();
        let due = before.poll_due().filter(|_| is_replanned);
        let earlier = due.and_then(|due| replan(&subject, due, now, draw(), &policy));
        // A feed that is resumed keeps its due time, or is due at once if that has passed.
        let plan = match resumed {
            true => Some(added_again(before.poll_due().unwrap_or(now).max(before.state.hold_until.unwrap_or(now)))),
            // After a password is corrected, the feed does not wait for the end of its penalty.
            false if edit.login.is_some() && before.status == Status::Active => Some(added_again(now)),
            false => earlier,
        };
        let (next_due, archive) = plan.map_or((None, None), |plan| before.replanned(plan));
        Ok(FeedChange {
            audience: is_replanned.then(|| (audience, category(&subject))),
            calm: edit.calm.clone(),
            private: edit.private,
            labels: (!edit.labels.is_empty()).then(|| LabelChange {
                before: before.marks.labels.clone(),
                after: edit.labels.over(&before.marks.labels),
            }),
            external_id: edit.external_id.clone(),
            status: edit.status,
            archive,
            next_due,
            credentials,
            expects: Some((before.version, before.audience)),
        })
    }

    /// Updates the schedule for feeds that a person changed.
    async fn reschedule(&self, feeds: &[Feed], now: Timestamp) -> Result<(), BackendError> {
        let rules = self.rules.get();
        let due = feeds.iter().filter_map(|feed| Some(slot(&rules, feed, feed.due()?)));
        let retired: Vec<FeedId> = feeds.iter().filter(|feed| feed.due().is_none()).map(|feed| feed.id).collect();
        self.schedule.lower(&due.collect::<Vec<_>>(), now).await?;
        retire(&*self.store, &*self.schedule, &rules, &retired, now).await?;
        crate::push::wish::leave_unfit(&*self.store, feeds, now).await
    }

    /// Drops a feed's validators and content hash: its next poll, which comes when it is due, downloads it in full.
    /// `None`: there is no such feed.
    pub async fn forget(&self, id: FeedId) -> Result<Option<Feed>, BackendError> {
        if !self.store.forget_validators(id).await? {
            return Ok(None);
        }
        Ok(self.store.feed(&FeedRef::Id(id)).await?)
    }

    /// Erases a feed with its entries and history. False when there is none.
    pub async fn erase(&self, id: FeedId) -> Result<bool, BackendError> {
        let erased = self.store.erase_feed(id, self.clock.now()).await?;
        self.schedule.remove(&[id]).await?;
        Ok(erased)
    }

    /// Has live feeds polled as soon as their hosts allow it; returns how many of `ids` are live.
    pub async fn wake(&self, ids: &[FeedId]) -> Result<usize, BackendError> {
        let now = self.clock.now();
        let woken = self.store.wake(ids, now, now).await?;
        self.lower(&woken, now).await
    }

    /// Has feeds that were pinged polled at `at`: live ones, and blacklisted and gone ones once, whose status only a good
    /// answer changes.
    pub(crate) async fn wake_pinged(&self, id: FeedId, at: Timestamp) -> Result<(), BackendError> {
        let now = self.clock.now();
        let woken = self.store.wake_pinged(&[id], at.max(now), now).await?;
        self.lower(&woken, now).await?;
        Ok(())
    }

    /// Brings feeds forward in the schedule that were woken in the store; returns their number.
    async fn lower(&self, woken: &[Placement], now: Timestamp) -> Result<usize, BackendError> {
        let slots: Vec<Slot> = woken.iter().map(placement_slot).collect();
        self.schedule.lower(&slots, now).await?;
        Ok(woken.len())
    }

    /// Stops or starts all polling; fetches in progress are finished.
    pub async fn set_paused(&self, paused: bool) -> Result<(), BackendError> {
        self.store.set_paused(paused).await?;
        self.condition.pause.set(paused);
        Ok(())
    }
}

/// Returns a due time that no policy made.
fn added_again(due: Timestamp) -> (Timestamp, Terms) {
    let mut terms = Terms::default();
    terms.push(Rule::Added, due);
    (due, terms)
}
