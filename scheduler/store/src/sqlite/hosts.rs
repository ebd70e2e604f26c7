//! What operators say about hosts, and lists of hosts.

use async_trait::async_trait;
use common::host::{HostKey, HostRule};
use common::time::Timestamp;
use common::url::FeedId;
use sqlx::SqliteConnection;

use super::{SqliteStore, in_snapshot, in_transaction, news};
use crate::hosts::{HostColumns, host_orders, packed};
use crate::news::News;
use crate::{
    AcceptedPolicy, HostOrders, HostQuery, HostRefusal, HostRow, Hosts, NewPolicy, Page, RefusedHost, StoreError,
};

host_orders!(SqliteConnection);

#[async_trait]
impl Hosts for SqliteStore {
    async fn host_orders(&self, known: Option<i64>) -> Result<Option<HostOrders>, StoreError> {
        const ACTION: &str = "read what operators say about hosts";
        let count = sqlx::query_scalar("SELECT host_orders FROM store");
        let change: i64 = count.fetch_one(&self.readers).await.map_err(StoreError::on(ACTION))?;
        if known == Some(change) {
            return Ok(None);
        }
        in_snapshot!(self, ACTION, |tx| orders_from(tx, None).await)
    }

    async fn accept_policy(&self, offered: &NewPolicy<'_>, now: Timestamp) -> Result<AcceptedPolicy, StoreError> {
        in_transaction!(self, "accept a policy", |tx| accept(tx, offered, now).await)
    }

    async fn set_host_rule(&self, rule: &HostRule, now: Timestamp) -> Result<bool, StoreError> {
        let (listed, text) = packed(rule);
        let domain = rule.domain();
        in_transaction!(self, "set a host rule", |tx| {
            let set = sqlx::query(include_str!("host_rule_set.sql")).bind(&domain).bind(listed).bind(text);
            let set = set.bind(now.millis()).bind(HostOrders::MOST_RULES);
            if set.execute(&mut *tx).await?.rows_affected() == 0 {
                return Ok(false);
            }
            count_change(tx).await?;
            Ok(true)
        })
    }

    async fn remove_host_rule(&self, domain: &str) -> Result<bool, StoreError> {
        in_transaction!(self, "take back a host rule", |tx| {
            let remove = sqlx::query("DELETE FROM host_rules WHERE domain = ?1").bind(domain);
            if remove.execute(&mut *tx).await?.rows_affected() == 0 {
                return Ok(false);
            }
            count_change(tx).await?;
            Ok(true)
        })
    }

    async fn block_hosts(&self, hosts: &[HostKey], until: Option<Timestamp>) -> Result<(), StoreError> {
        in_transaction!(self, "block hosts", |tx| {
            for host in hosts {
                let sql = "INSERT INTO host_blocks (host, blocked_until) VALUES (?1, ?2) \
                           ON CONFLICT (host) DO UPDATE SET blocked_until = excluded.blocked_until";
                let block = sqlx::query(sql).bind(host.as_str()).bind(until.unwrap_or_default().millis());
                block.execute(&mut *tx).await?;
            }
            count_change(tx).await
        })
    }

    async fn refuse_host(&self, refused: &RefusedHost<'_>, now: Timestamp) -> Result<Option<HostRefusal>, StoreError> {
        in_transaction!(self, "store that a host refuses us", |tx| refuse(tx, refused, now).await)
    }

    async fn host_answers(&self, host: &HostKey, feed: FeedId, now: Timestamp) -> Result<bool, StoreError> {
        in_transaction!(self, "store that a host answers again", |tx| {
            let forget = sqlx::query("DELETE FROM host_refusals WHERE host = ?1").bind(host.as_str());
            let ended = forget.execute(&mut *tx).await?.rows_affected() > 0;
            if ended {
                tell(tx, "host.recovered", feed, now).await?;
            }
            Ok(ended)
        })
    }

    async fn count_hosts(&self) -> Result<u64, StoreError> {
        let count = sqlx::query_scalar::<_, i64>(HostQuery::COUNT).fetch_one(&self.readers).await;
        Ok(u64::try_from(count.map_err(StoreError::on("count hosts"))?).unwrap_or(0))
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
        let rows = sqlx::query_as(sql).bind(&query.from).bind(&query.to).bind(query.place()?);
        let rows = rows.bind(now.millis()).bind(i64::from(query.limit) + 1).fetch_all(&self.readers);
        Ok(query.page(rows.await.map_err(StoreError::on("list hosts"))?))
    }

    async fn hosts_among(&self, hosts: &[HostKey], now: Timestamp) -> Result<Vec<HostRow>, StoreError> {
        let names: Vec<&str> = hosts.iter().map(HostKey::as_str).collect();
        let rows = sqlx::query_as(include_str!("hosts_among.sql")).bind(serde_json::json!(names).to_string());
        let rows: Result<Vec<HostColumns>, _> = rows.bind(now.millis()).fetch_all(&self.readers).await;
        Ok(rows.map_err(StoreError::on("read hosts"))?.into_iter().map(HostRow::from).collect())
    }
}
