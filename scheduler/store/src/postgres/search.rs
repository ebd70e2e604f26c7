//! The index for searches, which needs the extension pg_trgm of PostgreSQL's own `contrib`.
//!
//! Any role that may create things in a database may make the extension there. Where it is not installed on the server,
//! or not allowed, searches read all names, and a later start tries again.

use sqlx::{AssertSqlSafe, Executor, PgConnection};

use crate::error::waited_for_a_lock;

/// Makes the index of trigrams if it is missing. Writers of feeds wait meanwhile.
pub(super) async fn make_index(on: &mut PgConnection) -> Result<(), sqlx::Error> {
    let exists = "SELECT to_regclass('feed_texts_by_trigram') IS NOT NULL";
    if sqlx::query_scalar(exists).fetch_one(&mut *on).await? {
        return Ok(());
    }
    let Some(home) = extension(on).await? else { return Ok(()) };
    let operators = format!("\"{}\".gin_trgm_ops", home.replace('"', "\"\""));
    // What waits to be sorted in is read by every search: little of it.
    let index = format!(
        "CREATE INDEX feed_texts_by_trigram ON feed_texts USING gin (text {operators}) WITH (gin_pending_list_limit = 512)"
    );
    on.execute(AssertSqlSafe(index)).await?;
    Ok(())
}

/// Returns the schema that has the extension, made if need be and if it may be. Not ours: another fleet in the same
/// database uses it too.
async fn extension(on: &mut PgConnection) -> Result<Option<String>, sqlx::Error> {
    const HOME: &str = "SELECT nspname::text FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace \
                        WHERE extname = 'pg_trgm'";
    let home = sqlx::query_scalar(HOME).fetch_optional(&mut *on).await?;
    if home.is_some() {
        return Ok(home);
    }
    let made = on.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm SCHEMA public").await;
    // Another process may have made it in this moment.
    let home = sqlx::query_scalar(HOME).fetch_optional(&mut *on).await?;
    if let (Err(error), None) = (made, &home) {
        if waited_for_a_lock(&error) {
            return Err(error);
        }
        tracing::warn!(
            %error,
            "the database has no extension pg_trgm, so searches for feeds are slow in a large fleet; as the database's owner \
             run CREATE EXTENSION pg_trgm SCHEMA public, then start again"
        );
    }
    Ok(home)
}
