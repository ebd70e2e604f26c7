//! Credentials that are sealed with a key of before.

use common::secrets::Credentials;
use common::url::FeedId;

use super::SqliteStore;
use crate::row::{SealColumns, readable};
use crate::{OldSeal, StoreError};

impl SqliteStore {
    pub(super) async fn seals_but(
        &self,
        current: &[u8],
        after: FeedId,
        limit: u32,
    ) -> Result<Vec<OldSeal>, StoreError> {
        let rows: Vec<SealColumns> = sqlx::query_as(include_str!("seals.sql"))
            .bind(current)
            .bind(after.0)
            .bind(limit)
            .fetch_all(&self.readers)
            .await
            .map_err(StoreError::on("look for credentials of an old key"))?;
        Ok(readable(rows))
    }

    pub(super) async fn seal_anew(&self, old: &OldSeal, credentials: &Credentials) -> Result<bool, StoreError> {
        let done = sqlx::query(include_str!("seal_anew.sql"))
            .bind(old.id.0)
            .bind(old.sealed.as_bytes())
            .bind(&credentials.id.0[..])
            .bind(credentials.sealed.as_bytes())
            .execute(&self.writer)
            .await
            .map_err(StoreError::on("store credentials under the new key"))?;
        Ok(done.rows_affected() > 0)
    }
}
