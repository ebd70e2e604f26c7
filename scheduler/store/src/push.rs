//! Push subscriptions: what this fleet asked of the hubs and clouds that feeds announce.
//!
//! Any scheduler acts on a row when its time comes: [`Pushes::push_due`](crate::Pushes::push_due) moves that time on, so that no other one does
//! at the same moment. Changes are made from a revision and rejected if the row has another one by now.

use common::push::{PushKind, PushState};
use common::secrets::Sealed;
use common::time::Timestamp;
use common::url::FeedId;
use sqlx_macros::FromRow;

use super::StoreError;

/// A push subscription.
#[derive(Clone, Debug, PartialEq)]
pub struct PushSubscription {
    /// The unguessable part of the callback's URL.
    pub id: String,
    /// Which feed.
    pub feed: FeedId,
    /// The protocol.
    pub kind: PushKind,
    /// The hub's URL; of a cloud `domain:port/path protocol`.
    pub hub: String,
    /// What is subscribed there.
    pub topic: String,
    /// Signs deliveries.
    pub secret: Option<Sealed>,
    /// The state.
    pub state: PushState,
    /// When the request was sent that waits for its verification.
    pub asked_at: Option<Timestamp>,
    /// When the lease expires.
    pub lease_until: Option<Timestamp>,
    /// When something is to be requested again.
    pub act_at: Timestamp,
    /// Requests in a row that failed.
    pub failures: u32,
    /// Why the last one failed, or why the hub refused.
    pub reason: Option<String>,
    /// Counts changes of the fields above.
    pub revision: i64,
    /// Pushes in a row that announced new entries.
    pub announced: u32,
    /// Polls that found entries which were not announced.
    pub missed: u64,
    /// Deliveries and notifications.
    pub deliveries: u64,
    /// When the last of them arrived.
    pub heard_at: Option<Timestamp>,
    /// When the last one arrived that caused a poll.
    pub light_at: Option<Timestamp>,
    /// When it was created.
    pub created: Timestamp,
}

/// What a feed announces, or that it announces nothing to subscribe to.
#[derive(Clone, Debug, PartialEq)]
pub struct PushWish {
    /// Which feed.
    pub feed: FeedId,
    /// What is to be subscribed.
    pub wanted: Option<NewPush>,
}

/// A subscription to be created, unless the feed has the same one.
#[derive(Clone, Debug, PartialEq)]
pub struct NewPush {
    /// See [`PushSubscription::id`].
    pub id: String,
    /// The protocol.
    pub kind: PushKind,
    /// The hub or the cloud.
    pub hub: String,
    /// What is subscribed there.
    pub topic: String,
    /// What deliveries will be signed with.
    pub secret: Option<Sealed>,
}

/// A push that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushHeard {
    /// For which feed.
    pub feed: FeedId,
    /// When.
    pub at: Timestamp,
    /// It only causes a poll.
    pub light: bool,
    /// It is one more delivery; otherwise only the other fields count.
    pub counts: bool,
    /// It announced new entries.
    pub announced: bool,
}

/// Push subscriptions of a kind in a state.
pub type PushCount = (PushKind, PushState, u64);

/// A feed that announces a hub or a cloud and has no push subscription.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Unpushed {
    /// Which feed.
    pub id: i64,
    /// Where it is polled.
    pub url: String,
    /// A person wants it unknown to others, or it has credentials.
    pub private: bool,
    /// Its hub.
    pub hub: Option<String>,
    /// Its own idea of its URL.
    pub self_link: Option<String>,
    /// Its cloud.
    pub cloud: Option<String>,
}

/// The statuses of feeds whose subscriptions are kept.
macro_rules! kept_statuses {
    () => {
        "('active', 'paused', 'blacklisted', 'quarantined')"
    };
}

/// A push subscription as both databases hold it.
#[derive(Debug, FromRow)]
pub(super) struct PushRow {
    id: String,
    feed_id: i64,
    kind: String,
    hub: String,
    topic: String,
    secret: Option<Vec<u8>>,
    state: String,
    asked_at: Option<i64>,
    lease_until: Option<i64>,
    act_at: i64,
    failures: i64,
    reason: Option<String>,
    revision: i64,
    announced: i64,
    missed: i64,
    deliveries: i64,
    heard_at: Option<i64>,
    light_at: Option<i64>,
    created: i64,
}

/// The columns of a [`PushRow`].
macro_rules! push_columns {
    () => {
        "id, feed_id, kind, hub, topic, secret, state, asked_at, lease_until, act_at, failures, reason, revision, announced, missed, \
         deliveries, heard_at, light_at, created"
    };
}
pub(super) use push_columns;

impl TryFrom<PushRow> for PushSubscription {
    type Error = StoreError;

    fn try_from(row: PushRow) -> Result<Self, StoreError> {
        let feed = FeedId(row.feed_id);
        let unreadable = |what| StoreError::Push { feed, what };
        let count = |count: i64| u64::try_from(count).unwrap_or(0);
        Ok(PushSubscription {
            kind: PushKind::from_name(&row.kind).ok_or_else(|| unreadable("kind"))?,
            state: PushState::from_name(&row.state).ok_or_else(|| unreadable("state"))?,
            id: row.id,
            feed,
            hub: row.hub,
            topic: row.topic,
            secret: row.secret.map(Sealed::from_bytes),
            asked_at: row.asked_at.map(Timestamp::from_millis),
            lease_until: row.lease_until.map(Timestamp::from_millis),
            act_at: Timestamp::from_millis(row.act_at),
            failures: u32::try_from(row.failures).unwrap_or(u32::MAX),
            reason: row.reason,
            revision: row.revision,
            announced: u32::try_from(row.announced).unwrap_or(u32::MAX),
            missed: count(row.missed),
            deliveries: count(row.deliveries),
            heard_at: row.heard_at.map(Timestamp::from_millis),
            light_at: row.light_at.map(Timestamp::from_millis),
            created: Timestamp::from_millis(row.created),
        })
    }
}

/// The subscriptions that can be read; the others are logged and skipped.
pub(super) fn readable(rows: Vec<PushRow>) -> Vec<PushSubscription> {
    let read = |row: PushRow| {
        PushSubscription::try_from(row).map_err(|error| tracing::error!(%error, "a push subscription is left out")).ok()
    };
    rows.into_iter().filter_map(read).collect()
}

/// Counts as rows say them.
pub(super) fn counted(rows: Vec<(String, String, i64)>) -> Vec<PushCount> {
    let read = |(kind, state, count): (String, String, i64)| {
        Some((PushKind::from_name(&kind)?, PushState::from_name(&state)?, u64::try_from(count).unwrap_or(0)))
    };
    rows.into_iter().filter_map(read).collect()
}

/// The statements that both databases understand.
pub(super) mod sql {
    /// A feed, and the kind, hub and topic that it announces, or three times nothing; now.
    pub(crate) const LEAVE_OTHER: &str = "UPDATE push_subscriptions \
        SET state = 'unsubscribing', act_at = $5, failures = 0, asked_at = NULL, revision = revision + 1 \
        WHERE feed_id = $1 AND state <> 'unsubscribing' \
        AND (CAST($2 AS TEXT) IS NULL OR kind <> $2 OR hub <> $3 OR topic <> $4)";
    /// Id, feed, kind, hub, topic, secret, now.
    pub(crate) const ADD: &str = "INSERT INTO push_subscriptions (id, feed_id, kind, hub, topic, secret, state, act_at, created) \
        VALUES ($1, $2, $3, $4, $5, $6, 'pending', $7, $7) ON CONFLICT DO NOTHING";
    /// Id.
    pub(crate) const ONE: &str = concat!("SELECT ", push_columns!(), " FROM push_subscriptions WHERE id = $1");
    /// The subscription, without counters; its revision.
    pub(crate) const STORE: &str = "UPDATE push_subscriptions \
        SET secret = $3, state = $4, asked_at = $5, lease_until = $6, act_at = $7, failures = $8, reason = $9, \
        revision = revision + 1 WHERE id = $1 AND revision = $2";
    /// Id and revision.
    pub(crate) const REMOVE: &str = "DELETE FROM push_subscriptions WHERE id = $1 AND revision = $2";
    /// Feed, deliveries, time, light, announced.
    pub(crate) const HEARD: &str = "UPDATE push_subscriptions \
        SET deliveries = deliveries + $2, heard_at = $3, light_at = CASE WHEN $4 THEN $3 ELSE light_at END, \
        announced = announced + $5 WHERE feed_id = $1 AND state <> 'unsubscribing'";
    /// Feed.
    pub(crate) const MISSED: &str = "UPDATE push_subscriptions SET announced = 0, missed = missed + 1 \
        WHERE feed_id = $1 AND state <> 'unsubscribing'";
    /// Now, and how many.
    pub(crate) const LEAVE: &str = concat!(
        "UPDATE push_subscriptions ",
        "SET state = 'unsubscribing', act_at = $1, failures = 0, asked_at = NULL, revision = revision + 1 WHERE id IN (",
        "SELECT p.id FROM push_subscriptions AS p LEFT JOIN feeds ON feeds.id = p.feed_id ",
        "WHERE p.state <> 'unsubscribing' AND (feeds.status IS NULL OR feeds.status NOT IN ",
        kept_statuses!(),
        ") LIMIT $2)"
    );
    /// The feed before, and how many.
    pub(crate) const UNPUSHED: &str = "SELECT id, url, (private OR sealed IS NOT NULL) AS private, hub, self_link, cloud FROM feeds \
        WHERE id > $1 AND status = 'active' AND (hub IS NOT NULL OR cloud IS NOT NULL) AND NOT EXISTS ( \
        SELECT 1 FROM push_subscriptions AS p WHERE p.feed_id = feeds.id AND p.state <> 'unsubscribing') ORDER BY id LIMIT $2";
    pub(crate) const COUNT: &str = "SELECT kind, state, count(*) FROM push_subscriptions GROUP BY kind, state";
}
