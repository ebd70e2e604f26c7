//! What operators say about hosts, and lists of hosts.

use common::host::{HostKey, HostRule};
use common::time::Timestamp;
use sqlx::{Connection, PgConnection};

use super::{PostgresStore, column};
use crate::hosts::packed;
use crate::{HostOrders, HostQuery, HostRow, Page, StoreError};

impl PostgresStore {
    pub(super) async fn orders(&self, known: Option<i64>) -> Result<Option<HostOrders>, StoreError> {
        const ACTION: &str = "read what operators say about hosts";
        let mut on = self.session(ACTION).await?;
        let mut tx = on.begin().await.map_err(StoreError::on(ACTION))?;
        let orders = orders_from(&mut tx, known).await.map_err(StoreError::on(ACTION))?;
        tx.commit().await.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(orders)
    }

    pub(super) async fn set_rule(&self, rule: &HostRule, now: Timestamp) -> Result<bool, StoreError> {
        const ACTION: &str = "set a host rule";
        let mut on = self.session(ACTION).await?;
        let mut tx = on.begin().await.map_err(StoreError::on(ACTION))?;
        let (listed, text) = packed(rule);
        let set = sqlx::query(include_str!("host_rule_set.sql")).bind(rule.domain()).bind(listed).bind(text);
        let set = set.bind(now.millis()).bind(HostOrders::MOST_RULES).execute(&mut *tx);
        let done = set.await.map_err(StoreError::on(ACTION))?.rows_affected() > 0;
        count_change(&mut tx).await.map_err(StoreError::on(ACTION))?;
        tx.commit().await.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(done)
    }

    pub(super) async fn remove_rule(&self, domain: &str) -> Result<bool, StoreError> {
        const ACTION: &str = "take back a host rule";
        let mut on = self.session(ACTION).await?;
        let mut tx = on.begin().await.map_err(StoreError::on(ACTION))?;
        let remove = sqlx::query("DELETE FROM host_rules WHERE domain = $1").bind(domain).execute(&mut *tx);
        let done = remove.await.map_err(StoreError::on(ACTION))?.rows_affected() > 0;
        count_change(&mut tx).await.map_err(StoreError::on(ACTION))?;
        tx.commit().await.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(done)
    }

    pub(super) async fn block(&self, hosts: &[HostKey], until: Option<Timestamp>) -> Result<(), StoreError> {
        const ACTION: &str = "block hosts";
        // In their order, as whoever else locks hosts.
        let mut hosts = column(hosts, HostKey::as_str);
        hosts.sort_unstable();
        hosts.dedup();
        let mut on = self.session(ACTION).await?;
        let mut tx = on.begin().await.map_err(StoreError::on(ACTION))?;
        let sql = "INSERT INTO host_blocks (host, blocked_until) SELECT host, $2 FROM UNNEST($1::text[]) AS new (host) \
                   ON CONFLICT (host) DO UPDATE SET blocked_until = excluded.blocked_until";
        let block = sqlx::query(sql).bind(hosts).bind(until.unwrap_or_default().millis());
        block.execute(&mut *tx).await.map_err(StoreError::on(ACTION))?;
        count_change(&mut tx).await.map_err(StoreError::on(ACTION))?;
        tx.commit().await.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(())
    }

    pub(super) async fn list_hosts(&self, query: &HostQuery, now: Timestamp) -> Result<Page<HostRow>, StoreError> {
        const ACTION: &str = "list hosts";
        let after = query.place()?;
        let mut on = self.session(ACTION).await?;
        let rows = sqlx::query_as(include_str!("hosts.sql"))
            .bind(&query.from)
            .bind(&query.to)
            .bind(after)
            .bind(now.millis())
            .bind(i64::from(query.limit) + 1)
            .fetch_all(&mut *on)
            .await
            .map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(query.page(rows))
    }
}

async fn orders_from(on: &mut PgConnection, known: Option<i64>) -> Result<Option<HostOrders>, sqlx::Error> {
    // Before the rest: what changes in between is read now, and once more with the next change.
    let change: i64 = sqlx::query_scalar("SELECT host_orders FROM store").fetch_one(&mut *on).await?;
    if known == Some(change) {
        return Ok(None);
    }
    let rules = sqlx::query_scalar("SELECT rule FROM host_rules ORDER BY domain").fetch_all(&mut *on).await?;
    let blocks = sqlx::query_as("SELECT host, blocked_until FROM host_blocks ORDER BY host").fetch_all(on).await?;
    Ok(Some(HostOrders::read(change, rules, blocks)))
}

/// Last in its transaction, as every lock of the store's row.
async fn count_change(on: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE store SET host_orders = host_orders + 1").execute(on).await?;
    Ok(())
}
