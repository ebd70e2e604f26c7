//! What operators say about hosts, and lists of hosts.

use async_trait::async_trait;
use common::host::{HostKey, HostRule};
use common::time::Timestamp;
use common::url::FeedId;
use sqlx::PgConnection;

use super::connection::{in_transaction, on_connection};
use super::{PostgresStore, column, news};
use crate::hosts::{HostColumns, host_orders, packed};
use crate::news::News;
use crate::{
    AcceptedPolicy, HostOrders, HostQuery, HostRefusal, HostRow, Hosts, NewPolicy, Page, RefusedHost, StoreError,
};

host_orders!(PgConnection);

#[async_trait]
impl Hosts for PostgresStore {
    async fn host_orders(&self, known: Option<i64>) -> Result<Option<HostOrders>, StoreError> {
        in_transaction!(self, "read what operators say about hosts", |tx| orders_from(tx, known).await)
    }

    async fn accept_policy(&self, offered: &NewPolicy<'_>, now: Timestamp) -> Result<AcceptedPolicy, StoreError> {
        in_transaction!(self, "accept a policy", |tx| {
            // One after the other. Nothing else that locks the store's row waits for these rows.
            sqlx::query("SELECT 1 FROM store FOR UPDATE").execute(&mut *tx).await?;
            accept(tx, offered, now).await
        })
    }

    async fn set_host_rule(&self, rule: &HostRule, now: Timestamp) -> Result<bool, StoreError> {
        in_transaction!(self, "set a host rule", |tx| {
            let (listed, text) = packed(rule);
            let set = sqlx::query(include_str!("host_rule_set.sql")).bind(rule.domain()).bind(listed).bind(text);
            let set = set.bind(now.millis()).bind(HostOrders::MOST_RULES).execute(&mut *tx).await?;
            count_change(tx).await?;
            Ok(set.rows_affected() > 0)
        })
    }

    async fn remove_host_rule(&self, domain: &str) -> Result<bool, StoreError> {
        in_transaction!(self, "take back a host rule", |tx| {
            let remove = sqlx::query("DELETE FROM host_rules WHERE domain = $1").bind(domain);
            let removed = remove.execute(&mut *tx).await?;
            count_change(tx).await?;
            Ok(removed.rows_affected() > 0)
        })
    }

    async fn block_hosts(&self, hosts: &[HostKey], until: Option<Timestamp>) -> Result<(), StoreError> {
        // In their order, like every transaction that locks hosts.
        let mut hosts = column(hosts, HostKey::as_str);
        hosts.sort_unstable();
        hosts.dedup();
        in_transaction!(self, "block hosts", |tx| {
            let sql = "INSERT INTO host_blocks (host, blocked_until) SELECT host, $2 FROM UNNEST($1::text[]) AS new (host) \
                       ON CONFLICT (host) DO UPDATE SET blocked_until = excluded.blocked_until";
            let block = sqlx::query(sql).bind(&hosts).bind(until.unwrap_or_default().millis());
            block.execute(&mut *tx).await?;
            count_change(tx).await
        })
    }

    async fn refuse_host(&self, refused: &RefusedHost<'_>, now: Timestamp) -> Result<Option<HostRefusal>, StoreError> {
        in_transaction!(self, "store that a host refuses us", |tx| refuse(tx, refused, now).await)
    }

    async fn host_answers(&self, host: &HostKey, feed: FeedId, now: Timestamp) -> Result<bool, StoreError> {
        in_transaction!(self, "store that a host answers again", |tx| {
            let forget = sqlx::query("DELETE FROM host_refusals WHERE host = $1").bind(host.as_str());
            let ended = forget.execute(&mut *tx).await?.rows_affected() > 0;
            if ended {
                tell(tx, "host.recovered", feed, now).await?;
            }
            Ok(ended)
        })
    }

    async fn count_hosts(&self) -> Result<u64, StoreError> {
        let count: i64 =
            on_connection!(self, "count hosts", |on| sqlx::query_scalar(HostQuery::COUNT).fetch_one(on).await)?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    async fn hosts(&self, query: &HostQuery, now: Timestamp) -> Result<Page<HostRow>, StoreError> {
        if query.by_feeds {
            let (feeds, name) = query.place_by_feeds()?;
            let sql = match query.reversed {
                false => include_str!("hosts_by_feeds.sql"),
                true => include_str!("hosts_by_feeds_reversed.sql"),
            };
            let rows = on_connection!(self, "list hosts", |on| {
                let list = sqlx::query_as(sql).bind(feeds).bind(name.clone());
                list.bind(i64::from(query.limit) + 1).bind(now.millis()).fetch_all(on).await
            });
            return Ok(query.page(rows?));
        }
        let after = query.place()?;
        let sql = if query.reversed { include_str!("hosts_reversed.sql") } else { include_str!("hosts.sql") };
        let rows = on_connection!(self, "list hosts", |on| {
            let list = sqlx::query_as(sql).bind(&query.from).bind(&query.to).bind(after.clone());
            list.bind(now.millis()).bind(i64::from(query.limit) + 1).fetch_all(on).await
        });
        Ok(query.page(rows?))
    }

    async fn hosts_among(&self, hosts: &[HostKey], now: Timestamp) -> Result<Vec<HostRow>, StoreError> {
        let names = column(hosts, |host| super::text(host.as_str()).into_owned());
        let rows: Vec<HostColumns> = on_connection!(self, "read hosts", |on| {
            sqlx::query_as(include_str!("hosts_among.sql")).bind(&names).bind(now.millis()).fetch_all(on).await
        })?;
        Ok(rows.into_iter().map(HostRow::from).collect())
    }
}
