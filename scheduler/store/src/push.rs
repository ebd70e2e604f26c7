//! Push subscriptions: this fleet's requests to the hubs and clouds that feeds announce.
//!
//! A scheduler takes the host of a hub ([`Pushes::push_hosts`](crate::Pushes::push_hosts)), acts on the rows of that host that are due, and
//! frees it: a hub with a long backlog delays no other one. Changes are made from a revision and rejected if the row has another one
//! by now.
//!
//! A statement that ends the reliability of a feed's pushes also notes in the row that the feed is to get its own pace back
//! (`owed`). Only the scheduler that has given it that pace removes the note, so a process that dies in between loses nothing.

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

impl PushSubscription {
    /// Returns the host of its hub or cloud, with the port.
    pub fn host(&self) -> String {
        hub_host(&self.hub)
    }
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
    /// It was accepted before ([`PushLosses::await_push`](crate::PushLosses::await_push)), and is stored now.
    pub settled: bool,
}

/// What makes new entries announced: the time of the push that named them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushClaim {
    /// New entries that are older were not announced by it; `None`: no push came, so none was announced.
    pub since: Option<Timestamp>,
}

/// A feed that is to get its own pace back.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct OwedPace {
    /// The subscription.
    pub id: String,
    /// Its feed.
    pub feed_id: i64,
    /// How often that was found.
    pub owed: i64,
}

/// A feed with a push subscription, and what it announces now.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Subscribed {
    /// Which feed; it may be erased.
    pub feed_id: i64,
    /// The protocol of its subscription.
    pub kind: String,
    /// The hub of its subscription.
    pub subscribed_hub: String,
    /// What is subscribed there.
    pub topic: String,
    /// Its status; `None` for all of the following: it is erased.
    pub status: Option<String>,
    /// Where it is polled.
    pub url: Option<String>,
    /// See [`Unpushed::private`].
    pub private: Option<bool>,
    /// Its hub.
    pub hub: Option<String>,
    /// Its own idea of its URL.
    pub self_link: Option<String>,
    /// Its cloud.
    pub cloud: Option<String>,
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
    /// A person made it private, or it has credentials.
    pub private: bool,
    /// Its hub.
    pub hub: Option<String>,
    /// Its own idea of its URL.
    pub self_link: Option<String>,
    /// Its cloud.
    pub cloud: Option<String>,
}

/// The maximum number of subscriptions of one feed that are being left at once. A feed that announces another topic with each document
/// is not subscribed again before its hubs have forgotten the earlier ones.
pub(super) const MOST_LEFT: i64 = 3;

/// Returns the host of a hub or cloud, with its port.
pub(super) fn hub_host(hub: &str) -> String {
    let from = hub.find("://").map_or(0, |at| at + 3);
    let rest = &hub[from..];
    rest.split(['/', ' ', '?', '#']).next().unwrap_or(rest).to_ascii_lowercase()
}

/// Returns the rows of a host in the order in which they are acted on: renewals first.
pub(super) fn in_turn(mut due: Vec<PushSubscription>, limit: u32) -> Vec<PushSubscription> {
    due.sort_by_key(|of| (of.lease_until.is_none(), of.act_at));
    due.truncate(limit as usize);
    due
}

/// Returns when a host has something to do again; `None`: never. Renewals are looked at in any case, so that leases that expire are seen.
pub(super) fn host_due(renewal: Option<i64>, request: Option<i64>, not_before: Option<Timestamp>) -> Option<i64> {
    let request = request.map(|at| not_before.map_or(at, |until| at.max(until.millis())));
    renewal.into_iter().chain(request).min()
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

/// Defines changes of subscriptions, over a connection of either database. `$text` makes a text one that the database stores.
macro_rules! push_changes {
    ($connection:ty, $text:expr) => {
        /// Stores what feeds announce; returns how many subscriptions that changes.
        async fn want(on: &mut $connection, wishes: &[&PushWish], now: Timestamp) -> Result<u64, sqlx::Error> {
            let (mut changed, mut hosts) = (0, BTreeSet::new());
            for wish in wishes {
                let wanted = wish.wanted.as_ref();
                let leave = sqlx::query_scalar(sql::LEAVE_OTHER).bind(wish.feed.0);
                let leave = leave.bind(wanted.map(|new| new.kind.as_str())).bind(wanted.map(|new| $text(&new.hub)));
                let leave = leave.bind(wanted.map(|new| $text(&new.topic))).bind(now.millis());
                let left: Vec<String> = leave.bind(i64::from(RELIABLE_AFTER)).fetch_all(&mut *on).await?;
                changed += left.len() as u64;
                hosts.extend(left);
                let Some(new) = wanted else { continue };
                let left: i64 = sqlx::query_scalar(sql::LEFT_OF_FEED).bind(wish.feed.0).fetch_one(&mut *on).await?;
                if left > MOST_LEFT {
                    continue;
                }
                let host = String::from($text(&hub_host(&new.hub)));
                let add = sqlx::query(sql::ADD).bind(&new.id).bind(wish.feed.0).bind(new.kind.as_str());
                let add = add.bind($text(&new.hub)).bind($text(&new.topic));
                let add = add.bind(new.secret.as_ref().map(Sealed::as_bytes)).bind(now.millis()).bind(&host);
                changed += add.execute(&mut *on).await?.rows_affected();
                hosts.insert(host);
            }
            for host in &hosts {
                sqlx::query(sql::HOST_DUE).bind(host).bind(now.millis()).execute(&mut *on).await?;
            }
            Ok(changed)
        }

        /// Frees a host until it is due again, or forgets it.
        async fn free(on: &mut $connection, host: &str, not_before: Option<Timestamp>) -> Result<(), sqlx::Error> {
            let renewal: Option<i64> = sqlx::query_scalar(sql::NEXT_RENEWAL).bind(host).fetch_one(&mut *on).await?;
            let request: Option<i64> = sqlx::query_scalar(sql::NEXT_REQUEST).bind(host).fetch_one(&mut *on).await?;
            let free = match host_due(renewal, request, not_before) {
                Some(due) => sqlx::query(sql::FREE_HOST).bind(host).bind(due),
                None => sqlx::query(sql::FORGET_HOST).bind(host),
            };
            free.execute(on).await?;
            Ok(())
        }

        /// Stores a subscription; returns false if another revision is there.
        async fn store(on: &mut $connection, changed: &PushSubscription) -> Result<bool, sqlx::Error> {
            let host = String::from($text(&hub_host(&changed.hub)));
            let store = sqlx::query(sql::STORE).bind(&changed.id).bind(changed.revision);
            let store = store.bind(changed.secret.as_ref().map(Sealed::as_bytes)).bind(changed.state.as_str());
            let store = store.bind(changed.asked_at.map(Timestamp::millis));
            let store = store.bind(changed.lease_until.map(Timestamp::millis)).bind(changed.act_at.millis());
            let store = store.bind(i64::from(changed.failures)).bind(changed.reason.as_deref().map($text));
            let store = store.bind(&host).bind(i64::from(RELIABLE_AFTER));
            let stored = store.execute(&mut *on).await?.rows_affected() > 0;
            if stored {
                sqlx::query(sql::HOST_DUE).bind(&host).bind(changed.act_at.millis()).execute(on).await?;
            }
            Ok(stored)
        }
    };
}
pub(super) use push_changes;

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

/// Returns the subscriptions that can be read; the others are logged and skipped.
pub(super) fn readable(rows: Vec<PushRow>) -> Vec<PushSubscription> {
    let read = |row: PushRow| {
        PushSubscription::try_from(row).map_err(|error| tracing::error!(%error, "a push subscription is left out")).ok()
    };
    rows.into_iter().filter_map(read).collect()
}

/// Secrets as rows say them.
pub(super) fn sealed(rows: Vec<(String, Vec<u8>)>) -> Vec<(String, Sealed)> {
    rows.into_iter().map(|(id, secret)| (id, Sealed::from_bytes(secret))).collect()
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
    /// A feed, and the kind, hub and topic that it announces, or three times nothing; now; after how many pushes they are reliable.
    pub(crate) const LEAVE_OTHER: &str = "UPDATE push_subscriptions \
        SET state = 'unsubscribing', act_at = $5, left_at = $5, lease_until = NULL, failures = 0, asked_at = NULL, \
        owed = owed + CASE WHEN state = 'verified' AND announced >= $6 THEN 1 ELSE 0 END, revision = revision + 1 \
        WHERE feed_id = $1 AND state <> 'unsubscribing' \
        AND (CAST($2 AS TEXT) IS NULL OR kind <> $2 OR hub <> $3 OR topic <> $4) RETURNING host";
    /// Feed.
    pub(crate) const LEFT_OF_FEED: &str =
        "SELECT count(*) FROM push_subscriptions WHERE feed_id = $1 AND state = 'unsubscribing'";
    /// Id, feed, kind, hub, topic, secret, now, host.
    pub(crate) const ADD: &str = "INSERT INTO push_subscriptions (id, feed_id, kind, hub, topic, secret, state, act_at, created, host) \
        VALUES ($1, $2, $3, $4, $5, $6, 'pending', $7, $7, $8) ON CONFLICT DO NOTHING";
    /// Id.
    pub(crate) const ONE: &str = concat!("SELECT ", push_columns!(), " FROM push_subscriptions WHERE id = $1");
    /// Host, now, how many.
    pub(crate) const DUE: &str = concat!(
        "SELECT ",
        push_columns!(),
        " FROM (SELECT * FROM push_subscriptions WHERE host = $1 AND lease_until IS NOT NULL AND act_at <= $2 ",
        "ORDER BY act_at LIMIT $3) AS renewals UNION ALL SELECT ",
        push_columns!(),
        " FROM (SELECT * FROM push_subscriptions WHERE host = $1 AND lease_until IS NULL AND act_at <= $2 ",
        "ORDER BY act_at LIMIT $3) AS requests"
    );
    /// Host, time.
    pub(crate) const HOST_DUE: &str = "INSERT INTO push_hosts (host, due_at) VALUES ($1, $2) \
        ON CONFLICT (host) DO UPDATE SET due_at = excluded.due_at WHERE push_hosts.due_at > excluded.due_at";
    /// Host.
    pub(crate) const NEXT_RENEWAL: &str =
        "SELECT min(act_at) FROM push_subscriptions WHERE host = $1 AND lease_until IS NOT NULL";
    /// Host.
    pub(crate) const NEXT_REQUEST: &str =
        "SELECT min(act_at) FROM push_subscriptions WHERE host = $1 AND lease_until IS NULL";
    /// Host, time.
    pub(crate) const FREE_HOST: &str = "UPDATE push_hosts SET due_at = $2, taken_until = 0 WHERE host = $1";
    /// Host.
    pub(crate) const FORGET_HOST: &str = "DELETE FROM push_hosts WHERE host = $1";
    /// The subscription, without counters; its revision; its host; after how many pushes they are reliable.
    pub(crate) const STORE: &str = "UPDATE push_subscriptions \
        SET secret = $3, asked_at = $5, lease_until = $6, act_at = $7, failures = $8, reason = $9, host = $10, \
        owed = owed + CASE WHEN state = 'verified' AND $4 <> 'verified' AND announced >= $11 THEN 1 ELSE 0 END, \
        state = $4, revision = revision + 1 WHERE id = $1 AND revision = $2";
    /// Id and revision. What a feed is owed is settled first.
    pub(crate) const REMOVE: &str = "DELETE FROM push_subscriptions WHERE id = $1 AND revision = $2 AND owed = 0";
    /// Feed, time, light, settled.
    pub(crate) const HEARD: &str = "UPDATE push_subscriptions \
        SET deliveries = deliveries + 1, heard_at = $2, light_at = CASE WHEN $3 THEN $2 ELSE light_at END, \
        awaited = CASE WHEN $4 AND awaited > 0 THEN awaited - 1 ELSE awaited END \
        WHERE feed_id = $1 AND state <> 'unsubscribing'";
    /// Feed, time: that of the oldest that is awaited counts, so that those behind a lost one do not hide it.
    pub(crate) const AWAIT: &str = "UPDATE push_subscriptions \
        SET awaited = awaited + 1, awaited_at = CASE WHEN awaited > 0 THEN awaited_at ELSE $2 END WHERE feed_id = $1 AND state <> 'unsubscribing'";
    /// Accepted before, and how many.
    pub(crate) const LOST: &str =
        "SELECT feed_id FROM push_subscriptions WHERE awaited > 0 AND awaited_at < $1 ORDER BY feed_id LIMIT $2";
    /// Feed, and accepted before.
    pub(crate) const FORGET_LOST: &str =
        "UPDATE push_subscriptions SET awaited = 0 WHERE feed_id = $1 AND awaited > 0 AND awaited_at < $2";
    /// How many.
    pub(crate) const OWED: &str =
        "SELECT id, feed_id, owed FROM push_subscriptions WHERE owed > 0 ORDER BY feed_id LIMIT $1";
    /// Id, and how often it was found.
    pub(crate) const PAID: &str = "UPDATE push_subscriptions SET owed = 0 WHERE id = $1 AND owed = $2";
    /// Left before, and how many.
    pub(crate) const FORGET_LEFT: &str = "DELETE FROM push_subscriptions WHERE id IN ( \
        SELECT id FROM push_subscriptions WHERE state = 'unsubscribing' AND left_at < $1 AND owed = 0 ORDER BY left_at LIMIT $2)";
    /// The feed before, and how many.
    pub(crate) const UNPUSHED: &str = "SELECT id, url, (private OR sealed IS NOT NULL) AS private, hub, self_link, cloud FROM feeds \
        WHERE id > $1 AND status = 'active' AND (hub IS NOT NULL OR cloud IS NOT NULL) AND NOT EXISTS ( \
        SELECT 1 FROM push_subscriptions AS p WHERE p.feed_id = feeds.id AND p.state <> 'unsubscribing') ORDER BY id LIMIT $2";
    /// The feed before, and how many.
    pub(crate) const SUBSCRIBED: &str = "SELECT p.feed_id, p.kind, p.hub AS subscribed_hub, p.topic, f.status, f.url, \
        (f.private OR f.sealed IS NOT NULL) AS private, f.hub, f.self_link, f.cloud \
        FROM push_subscriptions AS p LEFT JOIN feeds AS f ON f.id = p.feed_id \
        WHERE p.feed_id > $1 AND p.state <> 'unsubscribing' ORDER BY p.feed_id LIMIT $2";
    /// The id before, and how many.
    pub(crate) const SECRETS: &str =
        "SELECT id, secret FROM push_subscriptions WHERE id > $1 AND secret IS NOT NULL ORDER BY id LIMIT $2";
    /// Id, the secret as it was, and as it is to be. A change that was made from the row as it was would store the old secret again.
    pub(crate) const RESEAL: &str =
        "UPDATE push_subscriptions SET secret = $3, revision = revision + 1 WHERE id = $1 AND secret = $2";
    pub(crate) const COUNT: &str = "SELECT kind, state, count(*) FROM push_subscriptions GROUP BY kind, state";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_hub_is_read_from_urls_and_clouds() {
        let hosts =
            ["https://Hub.example:8443/a?b", "http://hub.example", "c.example:5337/rss http-post", "?x"].map(hub_host);
        assert_eq!(hosts, ["hub.example:8443", "hub.example", "c.example:5337", ""]);
    }

    #[test]
    fn a_host_that_refuses_requests_still_has_its_leases_looked_at() {
        let until = Some(Timestamp::from_millis(50));
        assert_eq!(host_due(Some(20), Some(10), until), Some(20));
        assert_eq!(host_due(None, Some(10), until), Some(50));
        assert_eq!((host_due(None, Some(10), None), host_due(None, None, until)), (Some(10), None));
    }
}
