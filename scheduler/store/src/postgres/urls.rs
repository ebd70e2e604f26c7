//! The lock under which feeds get URLs.

use sqlx::PgConnection;

/// The number of the lock under which feeds get URLs, and counters are written.
macro_rules! url_lock {
    () => {
        "hashtextextended('feedfleet URLs of ' || current_schema(), 0)"
    };
}
pub(super) use url_lock;

/// Locks the assignment of URLs to feeds until the transaction ends: two transactions that assigned them in different orders would
/// wait for each other.
pub(super) async fn lock_urls(on: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query(concat!("SELECT pg_advisory_xact_lock(", url_lock!(), ")")).execute(on).await?;
    Ok(())
}
