//! What a cluster's database records of its feeds while a test runs.

use std::collections::HashMap;
use std::fmt::Write as _;

use common::time::Timestamp;

use super::harness::Cluster;

impl Cluster {
    /// Makes the database record each version that a feed reaches, whichever process writes it: a version that is
    /// reached twice was reported and accepted twice. Also records the poll that led to it, and when.
    pub(crate) async fn watch_versions(&self, database: &sqlx::PgPool) {
        let schema = &self.namespace;
        let mut text = String::new();
        write!(
            text,
            r#"CREATE TABLE "{schema}".reached (feed bigint, version bigint, polled timestamptz, at timestamptz);
            CREATE FUNCTION "{schema}".reach() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN INSERT INTO "{schema}".reached VALUES
                    (new.id, new.version, (new.state::jsonb ->> 'last_polled')::timestamptz, clock_timestamp());
                RETURN new; END $$;
            CREATE TRIGGER reach AFTER UPDATE ON "{schema}".feeds FOR EACH ROW
                WHEN (old.version IS DISTINCT FROM new.version) EXECUTE FUNCTION "{schema}".reach()"#
        )
        .unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(database).await.unwrap();
    }

    /// Returns when the result of each poll was stored: of a feed, and when the poll began.
    pub(crate) async fn stored_polls(&self, database: &sqlx::PgPool) -> HashMap<(i64, Timestamp), Timestamp> {
        let millis = |column: &str| format!("(extract(epoch FROM {column}) * 1000)::bigint");
        let (polled, at) = (millis("polled"), millis("min(at)"));
        let schema = &self.namespace;
        let text = format!(
            r#"SELECT feed, {polled}, {at} FROM "{schema}".reached WHERE polled IS NOT NULL GROUP BY feed, polled"#
        );
        let rows: Vec<(i64, i64, i64)> = sqlx::query_as(sqlx::AssertSqlSafe(text)).fetch_all(database).await.unwrap();
        let time = Timestamp::from_millis;
        rows.into_iter().map(|(feed, polled, at)| ((feed, time(polled)), time(at))).collect()
    }

    /// Compares the counters of feeds with a recount; nothing may write in the meantime.
    pub(crate) async fn assert_well_counted(&self, database: &sqlx::PgPool) {
        let mut on = database.acquire().await.unwrap().detach();
        let here = sqlx::AssertSqlSafe(format!(r#"SET search_path TO "{}""#, self.namespace));
        sqlx::query(here).execute(&mut on).await.unwrap();
        let counted = "SELECT kind, name, sum(feeds)::bigint FROM \
                       (SELECT * FROM feed_counts UNION ALL SELECT * FROM feed_count_changes) AS counted \
                       GROUP BY kind, name HAVING sum(feeds) <> 0 ORDER BY 1, 2";
        let recount = include_str!("../../../../scheduler/store/src/conformance/recount.sql");
        let counted: Vec<(String, String, i64)> = sqlx::query_as(counted).fetch_all(&mut on).await.unwrap();
        let right: Vec<(String, String, i64)> = sqlx::query_as(recount).fetch_all(&mut on).await.unwrap();
        assert!(!right.is_empty(), "no feeds to count");
        assert_eq!(counted, right, "the counters are wrong");
    }

    /// Returns the number of versions that were reached twice, and the number of all versions.
    pub(crate) async fn versions_reached_twice(&self, database: &sqlx::PgPool) -> (i64, i64) {
        let schema = &self.namespace;
        let text = format!(r#"SELECT count(*) - count(DISTINCT (feed, version)), count(*) FROM "{schema}".reached"#);
        sqlx::query_as(sqlx::AssertSqlSafe(text)).fetch_one(database).await.unwrap()
    }
}
