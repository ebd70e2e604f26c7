//! What operators say about hosts, and lists of hosts.

use async_trait::async_trait;
use common::host::{HostKey, HostRule};
use common::time::Timestamp;
use common::url::FeedId;
use sqlx::SqliteConnection;

use super::{SqliteStore, news};
use crate::hosts::{HostColumns, packed};
use crate::news::News;
use crate::{
    AcceptedPolicy, HostOrders, HostQuery, HostRefusal, HostRow, Hosts, NewPolicy, Page, RefusedHost, StoreError,
};

#[async_trait]
impl Hosts for SqliteStore {
    async fn host_orders(&self, known: Option<i64>) -> Result<Option<HostOrders>, StoreError> {
        let failed = StoreError::on;
        const ACTION: &str = "read what operators say about hosts";
        let count = sqlx::query_scalar("SELECT host_orders FROM store");
        let change: i64 = count.fetch_one(&self.readers).await.map_err(failed(ACTION))?;
        if known == Some(change) {
            return Ok(None);
        }
        let mut tx = self.readers.begin().await.map_err(failed(ACTION))?;
        let count = sqlx::query_scalar("SELECT host_orders FROM store");
        let change: i64 = count.fetch_one(&mut *tx).await.map_err(failed(ACTION))?;
        let rules = sqlx::query_scalar("SELECT rule FROM host_rules ORDER BY domain");
        let rules: Vec<String> = rules.fetch_all(&mut *tx).await.map_err(failed(ACTION))?;
        let blocks = sqlx::query_as("SELECT host, blocked_until FROM host_blocks ORDER BY host");
        let blocks: Vec<(String, i64)> = blocks.fetch_all(&mut *tx).await.map_err(failed(ACTION))?;
        let refusals = sqlx::query_as(
            "SELECT host, since, until, tries, failure, status FROM host_refusals ORDER BY since LIMIT ?1",
        );
        let refusals = refusals.bind(HostRefusal::MOST).fetch_all(&mut *tx).await.map_err(failed(ACTION))?;
        let policy = sqlx::query_as(AcceptedPolicy::LATEST).fetch_optional(&mut *tx).await.map_err(failed(ACTION))?;
        Ok(Some(HostOrders::read(change, rules, blocks, policy.map(AcceptedPolicy::read), refusals)))
    }

    async fn accept_policy(&self, offered: &NewPolicy<'_>, now: Timestamp) -> Result<AcceptedPolicy, StoreError> {
        const ACTION: &str = "accept a policy";
        let mut tx = self.write(ACTION).await?;
        let failed = StoreError::on;
        let latest = sqlx::query_as(AcceptedPolicy::LATEST).fetch_optional(&mut *tx).await.map_err(failed(ACTION))?;
        let latest = latest.map(AcceptedPolicy::read);
        let known = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM policies WHERE hash = ?1)").bind(offered.hash);
        let known: bool = known.fetch_one(&mut *tx).await.map_err(failed(ACTION))?;
        let Some(next) = AcceptedPolicy::next(latest.as_ref(), offered, known, now) else {
            return latest.ok_or_else(|| failed(ACTION)(sqlx::Error::RowNotFound));
        };
        let sql = "INSERT INTO policies (version, hash, text, accepted, offered_by) VALUES (?1, ?2, ?3, ?4, ?5)";
        let insert = sqlx::query(sql).bind(next.version).bind(&next.hash).bind(&next.text);
        let insert = insert.bind(now.millis()).bind(&next.by).execute(&mut *tx);
        insert.await.map_err(failed(ACTION))?;
        let shorten = sqlx::query("UPDATE policies SET text = '' WHERE version < ?1 AND text <> ''").bind(next.version);
        shorten.execute(&mut *tx).await.map_err(failed(ACTION))?;
        let oldest = next.version - AcceptedPolicy::REMEMBERED;
        let forget = sqlx::query("DELETE FROM policies WHERE version <= ?1").bind(oldest);
        forget.execute(&mut *tx).await.map_err(failed(ACTION))?;
        count_change(&mut tx).await.map_err(failed(ACTION))?;
        tx.commit().await.map_err(failed(ACTION))?;
        Ok(next)
    }

    async fn set_host_rule(&self, rule: &HostRule, now: Timestamp) -> Result<bool, StoreError> {
        const ACTION: &str = "set a host rule";
        let mut tx = self.write(ACTION).await?;
        let (listed, text) = packed(rule);
        let domain = rule.domain();
        let set = sqlx::query(include_str!("host_rule_set.sql")).bind(&domain).bind(listed).bind(text);
        let set = set.bind(now.millis()).bind(HostOrders::MOST_RULES).execute(&mut *tx);
        if set.await.map_err(StoreError::on(ACTION))?.rows_affected() == 0 {
            return Ok(false);
        }
        count_change(&mut tx).await.map_err(StoreError::on(ACTION))?;
        tx.commit().await.map_err(StoreError::on(ACTION))?;
        Ok(true)
    }

    async fn remove_host_rule(&self, domain: &str) -> Result<bool, StoreError> {
        const ACTION: &str = "take back a host rule";
        let mut tx = self.write(ACTION).await?;
        let remove = sqlx::query("DELETE FROM host_rules WHERE domain = ?1").bind(domain).execute(&mut *tx);
        if remove.await.map_err(StoreError::on(ACTION))?.rows_affected() == 0 {
            return Ok(false);
        }
        count_change(&mut tx).await.map_err(StoreError::on(ACTION))?;
        tx.commit().await.map_err(StoreError::on(ACTION))?;
        Ok(true)
    }

    async fn block_hosts(&self, hosts: &[HostKey], until: Option<Timestamp>) -> Result<(), StoreError> {
        const ACTION: &str = "block hosts";
        let mut tx = self.write(ACTION).await?;
        for host in hosts {
            let sql = "INSERT INTO host_blocks (host, blocked_until) VALUES (?1, ?2) \
                       ON CONFLICT (host) DO UPDATE SET blocked_until = excluded.blocked_until";
            let block = sqlx::query(sql).bind(host.as_str()).bind(until.unwrap_or_default().millis());
            block.execute(&mut *tx).await.map_err(StoreError::on(ACTION))?;
        }
        count_change(&mut tx).await.map_err(StoreError::on(ACTION))?;
        tx.commit().await.map_err(StoreError::on(ACTION))
    }

    async fn refuse_host(&self, refused: &RefusedHost<'_>, now: Timestamp) -> Result<Option<HostRefusal>, StoreError> {
        const ACTION: &str = "store that a host refuses us";
        let failed = StoreError::on;
        let mut tx = self.write(ACTION).await?;
        let (first, ceiling) = refused.rests();
        let refuse = sqlx::query(include_str!("refuse_host.sql")).bind(refused.host.as_str()).bind(now.millis());
        let refuse =
            refuse.bind(first).bind(ceiling).bind(refused.failure.as_str()).bind(refused.status.map(i64::from));
        let changed =
            refuse.bind(refused.is_known).execute(&mut *tx).await.map_err(failed(ACTION))?.rows_affected() > 0;
        let look =
            sqlx::query_as("SELECT host, since, until, tries, failure, status FROM host_refusals WHERE host = ?1")
                .bind(refused.host.as_str());
        let found = look.fetch_optional(&mut *tx).await.map_err(failed(ACTION))?;
        let Some(refusal) = found.map(HostRefusal::read) else { return Ok(None) };
        if changed {
            let hold = sqlx::query(include_str!("refuse_host_hold.sql")).bind(refused.host.as_str());
            let hold = hold.bind(refusal.until.millis()).bind(refused.feed.0).execute(&mut *tx);
            hold.await.map_err(failed(ACTION))?;
        }
        if changed && refusal.tries == 1 {
            tell(&mut tx, "host.refusing", refused.feed, now).await.map_err(failed(ACTION))?;
        }
        tx.commit().await.map_err(failed(ACTION))?;
        Ok(Some(refusal))
    }

    async fn host_answers(&self, host: &HostKey, feed: FeedId, now: Timestamp) -> Result<bool, StoreError> {
        const ACTION: &str = "store that a host answers again";
        let failed = StoreError::on;
        let mut tx = self.write(ACTION).await?;
        let forget = sqlx::query("DELETE FROM host_refusals WHERE host = ?1").bind(host.as_str()).execute(&mut *tx);
        let ended = forget.await.map_err(failed(ACTION))?.rows_affected() > 0;
        if ended {
            tell(&mut tx, "host.recovered", feed, now).await.map_err(failed(ACTION))?;
            tx.commit().await.map_err(failed(ACTION))?;
        }
        Ok(ended)
    }

    async fn count_hosts(&self) -> Result<u64, StoreError> {
        let count: i64 = sqlx::query_scalar(HostQuery::COUNT)
            .fetch_one(&self.readers)
            .await
            .map_err(StoreError::on("count hosts"))?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    async fn hosts(&self, query: &HostQuery, now: Timestamp) -> Result<Page<HostRow>, StoreError> {
        if query.by_feeds {
            let (feeds, name) = query.place_by_feeds()?;
            let sql = match query.reversed {
                false => include_str!("hosts_by_feeds.sql"),
                true => include_str!("hosts_by_feeds_reversed.sql"),
            };
            let rows = sqlx::query_as(sql).bind(feeds).bind(name);
            let rows = rows.bind(i64::from(query.limit) + 1).bind(now.millis()).fetch_all(&self.readers);
            return Ok(query.page(rows.await.map_err(StoreError::on("list hosts"))?));
        }
        let sql = if query.reversed { include_str!("hosts_reversed.sql") } else { include_str!("hosts.sql") };
        let rows = sqlx::query_as(sql)
            .bind(&query.from)
            .bind(&query.to)
            .bind(query.place()?)
            .bind(now.millis())
            .bind(i64::from(query.limit) + 1)
            .fetch_all(&self.readers)
            .await
            .map_err(StoreError::on("list hosts"))?;
        Ok(query.page(rows))
    }

    async fn hosts_among(&self, hosts: &[HostKey], now: Timestamp) -> Result<Vec<HostRow>, StoreError> {
        let names: Vec<&str> = hosts.iter().map(HostKey::as_str).collect();
        let rows = sqlx::query_as(include_str!("hosts_among.sql")).bind(serde_json::json!(names).to_string());
        let rows: Result<Vec<HostColumns>, _> = rows.bind(now.millis()).fetch_all(&self.readers).await;
        Ok(rows.map_err(StoreError::on("read hosts"))?.into_iter().map(HostRow::from).collect())
    }
}

/// Publishes a change of the feed's host, and counts it, so that every scheduler learns of it.
async fn tell(on: &mut SqliteConnection, kind: &'static str, feed: FeedId, now: Timestamp) -> Result<(), sqlx::Error> {
    news::tell(on, &[News::of(kind, feed.0)], now).await?;
    count_change(on).await
}

pub(super) async fn count_change(on: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE store SET host_orders = host_orders + 1").execute(on).await?;
    Ok(())
}
