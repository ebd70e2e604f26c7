//! Credentials that are sealed with a key of before.

use common::secrets::Credentials;
use common::url::FeedId;

use super::PostgresStore;
use crate::row::{SealColumns, readable};
use crate::{OldSeal, StoreError};

impl PostgresStore {
    pub(super) async fn seals_but(
        &self,
        current: &[u8],
        after: FeedId,
        limit: u32,
    ) -> Result<Vec<OldSeal>, StoreError> {
        const ACTION: &str = "look for credentials of an old key";
        let query = sqlx::query_as::<_, SealColumns>(include_str!("seals.sql"));
        let mut on = self.session(ACTION).await?;
        let rows = query.bind(current).bind(after.0).bind(i64::from(limit)).fetch_all(&mut *on).await;
        let rows = rows.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(readable(rows))
    }

    pub(super) async fn seal_anew(&self, old: &OldSeal, credentials: &Credentials) -> Result<bool, StoreError> {
        const ACTION: &str = "store credentials under the new key";
        let query = sqlx::query(include_str!("seal_anew.sql")).bind(old.id.0).bind(old.sealed.as_bytes());
        let query = query.bind(&credentials.id.0[..]).bind(credentials.sealed.as_bytes());
        let mut on = self.session(ACTION).await?;
        let done = query.execute(&mut *on).await.map_err(StoreError::on(ACTION))?;
        on.keep();
        Ok(done.rows_affected() > 0)
    }
}
