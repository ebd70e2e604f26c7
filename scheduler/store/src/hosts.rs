//! What the store knows of hosts: what operators say about them, and lists of them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use common::host::{HostKey, HostRule};
use common::live_rules;
use common::time::Timestamp;
use sqlx_macros::FromRow;

use super::refusals::{HostRefusal, RefusalColumns};
use super::{Page, StoreError};

/// What operators say about hosts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostOrders {
    /// Counts the changes.
    pub change: i64,
    /// Rules over those of the configuration.
    pub rules: Vec<HostRule>,
    /// Blocks; those that ended or were lifted stay in the list, with the time at which they did or with 1970.
    pub blocks: Vec<(HostKey, Timestamp)>,
    /// The configuration that the fleet accepted last.
    pub policy: Option<AcceptedPolicy>,
    /// Hosts that refuse us.
    pub refusals: Vec<HostRefusal>,
}

/// Policy and host rules of a configuration, as a scheduler offers them to its fleet.
#[derive(Clone, Copy, Debug)]
pub struct NewPolicy<'a> {
    /// [`common::accepted::text`]
    pub text: &'a str,
    /// [`common::accepted::hash`]
    pub hash: &'a str,
    /// The source of the offer.
    pub by: &'a str,
    /// It counts even if the fleet has accepted the same one before and replaced it since.
    pub decided: bool,
}

/// Policy and host rules that a fleet accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedPolicy {
    /// Counts the accepted ones, from 1.
    pub version: i64,
    /// [`common::accepted::hash`]
    pub hash: String,
    /// [`common::accepted::text`]
    pub text: String,
    /// When it was accepted.
    pub accepted: Timestamp,
    /// The source of the offer.
    pub by: String,
}

/// The columns of [`AcceptedPolicy::LATEST`].
pub(super) type PolicyColumns = (i64, String, String, i64, String);

impl AcceptedPolicy {
    /// Accepted versions that are remembered, to know an old configuration when it is offered again.
    pub(super) const REMEMBERED: i64 = 1_000;

    /// The last accepted one. Both databases read it so.
    pub(super) const LATEST: &str =
        "SELECT version, hash, text, accepted, offered_by FROM policies ORDER BY version DESC LIMIT 1";

    /// Reads a row of [`AcceptedPolicy::LATEST`].
    pub(super) fn read((version, hash, text, accepted, by): PolicyColumns) -> Self {
        AcceptedPolicy { version, hash, text, accepted: Timestamp::from_millis(accepted), by }
    }

    /// Returns the next version, if the offered one is to be accepted after this one.
    pub(super) fn next(latest: Option<&Self>, offered: &NewPolicy<'_>, is_known: bool, now: Timestamp) -> Option<Self> {
        let accept = latest.is_none_or(|latest| latest.hash != offered.hash && (offered.decided || !is_known));
        accept.then(|| AcceptedPolicy {
            version: latest.map_or(1, |latest| latest.version + 1),
            hash: offered.hash.to_owned(),
            text: offered.text.to_owned(),
            accepted: now,
            by: offered.by.to_owned(),
        })
    }
}

impl HostOrders {
    /// Rules that are kept at most: each worker and scheduler has all of them in memory.
    pub const MOST_RULES: i64 = 10_000;

    /// The orders as they were stored. A rule that cannot be read is left out and logged.
    pub(super) fn read(
        change: i64,
        rules: Vec<String>,
        blocks: Vec<(String, i64)>,
        policy: Option<AcceptedPolicy>,
        refusals: Vec<RefusalColumns>,
    ) -> Self {
        let rule = |text: String| live_rules::from_value(serde_json::from_str(&text).unwrap_or_default());
        let block = |(host, until): (String, i64)| (HostKey::new(&host), Timestamp::from_millis(until));
        HostOrders {
            change,
            rules: rules.into_iter().filter_map(rule).collect(),
            blocks: blocks.into_iter().map(block).collect(),
            policy,
            refusals: refusals.into_iter().map(HostRefusal::read).collect(),
        }
    }
}

/// How a rule is stored: how lists name it, and its JSON.
pub(super) fn packed(rule: &HostRule) -> (String, String) {
    let listed = if rule.shared { rule.shared_key().to_string() } else { rule.domain() };
    (listed, serde_json::to_string(rule).unwrap_or_default())
}

/// Which hosts to list.
#[derive(Clone, Debug)]
pub struct HostQuery {
    /// The first and the last name that may be in the list.
    pub(super) from: String,
    pub(super) to: String,
    /// Those with the most feeds first, instead of by name; only those with feeds.
    pub by_feeds: bool,
    /// In the opposite of that order.
    pub reversed: bool,
    /// After this cursor of an earlier page.
    pub after: Option<String>,
    /// The maximum number to return.
    pub limit: u32,
}

/// Behind every character of a host's name.
const END: char = '\u{7f}';

impl HostQuery {
    /// Hosts with feeds are counted up to this number: counting hundreds of thousands takes longer than a page may.
    pub const MOST_COUNTED: u64 = 50_000;
    /// The number of hosts with feeds, in both databases; one more than [`Self::MOST_COUNTED`] means all larger
    /// numbers.
    pub(super) const COUNT: &str =
        "SELECT count(*) FROM (SELECT 1 FROM feed_counts WHERE kind = 'host' AND feeds > 0 LIMIT 50001) AS counted";

    /// All of them.
    pub fn all(after: Option<String>, limit: u32) -> Self {
        HostQuery { from: String::new(), to: END.to_string(), by_feeds: false, reversed: false, after, limit }
    }

    /// All that have feeds, those with the most of them first.
    pub fn by_feeds(after: Option<String>, limit: u32) -> Self {
        HostQuery { by_feeds: true, ..HostQuery::all(after, limit) }
    }

    /// The same list in the opposite order, if `reversed`.
    pub fn turned(self, reversed: bool) -> Self {
        HostQuery { reversed, ..self }
    }

    /// One name at all of its ports.
    pub fn of_name(name: &str) -> Self {
        HostQuery { from: format!("{name}:"), to: format!("{name}:{END}"), ..HostQuery::all(None, MOST_PORTS) }
    }

    /// One host.
    pub fn of_key(key: &HostKey) -> Self {
        HostQuery { from: key.to_string(), to: key.to_string(), ..HostQuery::all(None, 1) }
    }

    /// The name behind which the page begins.
    pub(super) fn place(&self) -> Result<String, StoreError> {
        let first = if self.reversed { END.to_string() } else { String::new() };
        Ok(self.cursor()?.unwrap_or(first))
    }

    /// The number of feeds, and the name, after which the page begins.
    pub(super) fn place_by_feeds(&self) -> Result<(i64, String), StoreError> {
        let first = if self.reversed { 0 } else { i64::MAX };
        let Some(cursor) = self.cursor()? else { return Ok((first, String::new())) };
        let place = cursor.split_once(' ').and_then(|(feeds, name)| Some((feeds.parse().ok()?, name.to_owned())));
        place.ok_or_else(|| StoreError::Cursor(self.after.clone().unwrap_or_default()))
    }

    fn cursor(&self) -> Result<Option<String>, StoreError> {
        let Some(cursor) = &self.after else { return Ok(None) };
        let place = URL_SAFE_NO_PAD.decode(cursor).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let place = place.filter(|place| !place.is_empty() && !place.contains('\0'));
        place.map(Some).ok_or_else(|| StoreError::Cursor(cursor.clone()))
    }

    /// Returns the cursor of the page behind this host, in a list by name.
    pub fn behind(host: &HostKey) -> String {
        URL_SAFE_NO_PAD.encode(host.as_str())
    }

    /// Returns the host that such a cursor names.
    pub fn named(cursor: &str) -> Option<HostKey> {
        let name = URL_SAFE_NO_PAD.decode(cursor).ok().and_then(|bytes| String::from_utf8(bytes).ok())?;
        (!name.is_empty() && !name.contains('\0')).then(|| HostKey::new(&name))
    }

    /// Returns the page that these rows make. There is one row more than requested when there is a next page.
    pub(super) fn page(&self, mut rows: Vec<HostColumns>) -> Page<HostRow> {
        let more = rows.len() > self.limit as usize;
        rows.truncate(self.limit as usize);
        let place = |last: &HostColumns| match self.by_feeds {
            true => format!("{} {}", last.feeds, last.host),
            false => last.host.clone(),
        };
        let next = rows.last().filter(|_| more).map(|last| URL_SAFE_NO_PAD.encode(place(last)));
        Page { items: rows.into_iter().map(HostRow::from).collect(), next }
    }
}

/// Ports of one name that are looked at, at most.
const MOST_PORTS: u32 = 1_000;

/// A host as the store knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct HostRow {
    /// The host as in feeds; of an operator's rule for a domain that is not itself a host, the bare domain.
    pub host: HostKey,
    /// Feeds there, polled or not.
    pub feeds: u64,
    /// Held by a server's word until then, if it still is.
    pub hold_until: Option<Timestamp>,
    /// Blocked by an operator until then, if it still is.
    pub blocked_until: Option<Timestamp>,
}

/// The same as both databases return it.
#[derive(Debug, FromRow)]
pub(super) struct HostColumns {
    host: String,
    feeds: i64,
    held: Option<i64>,
    blocked: Option<i64>,
}

impl From<HostColumns> for HostRow {
    fn from(row: HostColumns) -> Self {
        HostRow {
            host: HostKey::new(&row.host),
            feeds: u64::try_from(row.feeds).unwrap_or(0),
            hold_until: row.held.map(Timestamp::from_millis),
            blocked_until: row.blocked.map(Timestamp::from_millis),
        }
    }
}

/// Defines what reads and changes orders about hosts, over a connection of either database; the statements and the news are those
/// beside the caller.
macro_rules! host_orders {
    ($connection:ty) => {
        /// Returns what operators say about hosts, if it is not what is known.
        async fn orders_from(on: &mut $connection, known: Option<i64>) -> Result<Option<HostOrders>, sqlx::Error> {
            // Before the rest: what changes in between is read now, and once more with the next change.
            let change: i64 = sqlx::query_scalar("SELECT host_orders FROM store").fetch_one(&mut *on).await?;
            if known == Some(change) {
                return Ok(None);
            }
            let rules = sqlx::query_scalar("SELECT rule FROM host_rules ORDER BY domain").fetch_all(&mut *on).await?;
            let blocks =
                sqlx::query_as("SELECT host, blocked_until FROM host_blocks ORDER BY host").fetch_all(&mut *on).await?;
            let refusals = sqlx::query_as(
                "SELECT host, since, until, tries, failure, status FROM host_refusals ORDER BY since LIMIT $1",
            );
            let refusals = refusals.bind(HostRefusal::MOST).fetch_all(&mut *on).await?;
            let policy = sqlx::query_as(AcceptedPolicy::LATEST).fetch_optional(on).await?;
            Ok(Some(HostOrders::read(change, rules, blocks, policy.map(AcceptedPolicy::read), refusals)))
        }

        async fn accept(
            on: &mut $connection,
            offered: &NewPolicy<'_>,
            now: Timestamp,
        ) -> Result<AcceptedPolicy, sqlx::Error> {
            let latest =
                sqlx::query_as(AcceptedPolicy::LATEST).fetch_optional(&mut *on).await?.map(AcceptedPolicy::read);
            let known = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM policies WHERE hash = $1)").bind(offered.hash);
            let known: bool = known.fetch_one(&mut *on).await?;
            let Some(next) = AcceptedPolicy::next(latest.as_ref(), offered, known, now) else {
                return latest.ok_or(sqlx::Error::RowNotFound);
            };
            let sql = "INSERT INTO policies (version, hash, text, accepted, offered_by) VALUES ($1, $2, $3, $4, $5)";
            let insert = sqlx::query(sql).bind(next.version).bind(&next.hash).bind(&next.text);
            insert.bind(now.millis()).bind(&next.by).execute(&mut *on).await?;
            let shorten =
                sqlx::query("UPDATE policies SET text = '' WHERE version < $1 AND text <> ''").bind(next.version);
            shorten.execute(&mut *on).await?;
            let oldest = next.version - AcceptedPolicy::REMEMBERED;
            sqlx::query("DELETE FROM policies WHERE version <= $1").bind(oldest).execute(&mut *on).await?;
            count_change(on).await?;
            Ok(next)
        }

        async fn refuse(
            on: &mut $connection,
            refused: &RefusedHost<'_>,
            now: Timestamp,
        ) -> Result<Option<HostRefusal>, sqlx::Error> {
            let (first, ceiling) = refused.rests();
            let refuse = sqlx::query(include_str!("refuse_host.sql")).bind(refused.host.as_str()).bind(now.millis());
            let refuse =
                refuse.bind(first).bind(ceiling).bind(refused.failure.as_str()).bind(refused.status.map(i64::from));
            let changed = refuse.bind(refused.is_known).execute(&mut *on).await?.rows_affected() > 0;
            let look =
                sqlx::query_as("SELECT host, since, until, tries, failure, status FROM host_refusals WHERE host = $1")
                    .bind(refused.host.as_str());
            let Some(refusal) = look.fetch_optional(&mut *on).await?.map(HostRefusal::read) else { return Ok(None) };
            if changed {
                let hold = sqlx::query(include_str!("refuse_host_hold.sql")).bind(refused.host.as_str());
                hold.bind(refusal.until.millis()).bind(refused.feed.0).execute(&mut *on).await?;
            }
            if changed && refusal.tries == 1 {
                tell(on, "host.refusing", refused.feed, now).await?;
            }
            Ok(Some(refusal))
        }

        /// Publishes a change of the feed's host, and counts it, so that every scheduler learns of it. Last in its transaction: it
        /// takes the row of `store`.
        async fn tell(
            on: &mut $connection,
            kind: &'static str,
            feed: FeedId,
            now: Timestamp,
        ) -> Result<(), sqlx::Error> {
            news::tell(on, &[News::of(kind, feed.0)], now).await?;
            count_change(on).await
        }

        /// Last in its transaction, as every lock of the store's row.
        pub(super) async fn count_change(on: &mut $connection) -> Result<(), sqlx::Error> {
            sqlx::query("UPDATE store SET host_orders = host_orders + 1").execute(on).await?;
            Ok(())
        }
    };
}
pub(crate) use host_orders;
