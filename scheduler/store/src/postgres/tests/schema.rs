//! The schema, what it accepts and returns, and how it is read.

use std::time::Duration;

use common::config::ServerConfig;
use common::time::{Clock, SystemClock};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection, Row};

use crate::conformance::Backend;
use crate::conformance::plans::{
    Explains, every_list_follows_its_index, labels_ids_and_several_hosts_follow_their_indexes,
};
use crate::conformance::upgrades::{
    ROWS_OF_AN_ERASED_SURVIVOR, ROWS_OF_PORT_80, SCHEMA_OF_AN_ERASED_SURVIVOR, SCHEMAS_OF_PORT_80,
    a_feed_without_its_survivor_can_be_added_again, ports_80_and_443_become_one_host,
};
use crate::conformance::{add, at, entry, modified, new_entries, poll};
use crate::postgres::PostgresStore;
use crate::postgres::audit::PRUNE as PRUNE_AUDIT;
use crate::postgres::events::STATEMENTS;
use crate::postgres::list::{ALONG_INDEXES, View, bound};
use crate::postgres::upkeep::HASHED;
use crate::statement::Statement;
use crate::testing::{Schema, url};
use crate::{Events, Feeds, Upkeep};
use crate::{FeedQuery, FeedRef, StoreError};

#[tokio::test]
async fn several_that_open_an_empty_database_at_once_migrate_it_once() {
    let schema = Schema::default();
    let stores = futures_util::future::join_all((0..6).map(|_| schema.store())).await;
    let mut on = schema.connection().await;
    let sql = "SELECT count(*), count(DISTINCT version) FROM _sqlx_migrations";
    let migrated: (i64, i64) = sqlx::query_as(sql).fetch_one(&mut on).await.unwrap();
    let known = sqlx_macros::migrate!("migrations/postgres").iter().count() as i64;
    assert_eq!(migrated, (known, known));
    let id = add(&stores[0], "https://a.org/feed").await;
    for store in &stores {
        assert!(store.feed(&FeedRef::Id(id)).await.unwrap().is_some());
        store.close().await;
    }
}

#[tokio::test]
async fn a_database_that_cannot_keep_every_text_is_refused() {
    let mut on = PgConnection::connect(&url()).await.unwrap();
    for encoding in ["SQL_ASCII", "LATIN1"] {
        let name = format!("test-{encoding}-{}", std::process::id());
        let options = format!("TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'");
        on.execute(AssertSqlSafe(format!("CREATE DATABASE \"{name}\" {options}"))).await.unwrap();
        let server: PgConnectOptions = url().parse().unwrap();
        let narrow = server.database(&name).to_url_lossy();
        let refused = PostgresStore::open(&ServerConfig::at(narrow.as_str()), "feedfleet").await.unwrap_err();
        assert!(matches!(&refused, StoreError::Encoding { encoding: found } if found == encoding), "{refused:?}");
        on.execute(AssertSqlSafe(format!("DROP DATABASE \"{name}\""))).await.unwrap();
    }
}

#[tokio::test]
async fn what_was_stored_of_port_80_is_merged_into_443() {
    let schema = Schema::default();
    assert!(schema.is_left_by(SCHEMAS_OF_PORT_80[1]).await);
    schema.connection().await.execute(ROWS_OF_PORT_80).await.unwrap();
    ports_80_and_443_become_one_host(&schema).await;
}

#[tokio::test]
async fn what_was_stored_of_a_feed_whose_survivor_was_erased_can_be_added_again() {
    let schema = Schema::default();
    assert!(schema.is_left_by(SCHEMA_OF_AN_ERASED_SURVIVOR).await);
    schema.connection().await.execute(ROWS_OF_AN_ERASED_SURVIVOR).await.unwrap();
    a_feed_without_its_survivor_can_be_added_again(&schema).await;
}

/// Such as a backup that takes hours.
#[tokio::test]
async fn a_migration_that_waits_for_a_reader_lets_other_readers_pass() {
    let schema = Schema::default();
    assert!(schema.is_left_by(SCHEMA_OF_AN_ERASED_SURVIVOR).await);
    let mut other = schema.connection().await;
    let mut backup = other.begin().await.unwrap();
    sqlx::query("SELECT count(*) FROM feeds").execute(&mut *backup).await.unwrap();
    let (store, ()) = tokio::join!(schema.store(), async {
        schema.waiting().await;
        // Queues behind the migration.
        let mut reader = schema.connection().await;
        let read = sqlx::query("SELECT count(*) FROM feeds").execute(&mut reader);
        tokio::time::timeout(Duration::from_secs(60), read).await.expect("the migration gives way").unwrap();
        backup.rollback().await.unwrap();
    });
    store.close().await;
    let sql = "SELECT max(version) FROM _sqlx_migrations";
    let version: i64 = sqlx::query_scalar(sql).fetch_one(&mut schema.connection().await).await.unwrap();
    assert!(version > SCHEMA_OF_AN_ERASED_SURVIVOR, "{version}");
}

#[tokio::test]
async fn events_that_another_history_of_the_server_numbered_begin_a_new_epoch() {
    let schema = Schema::default();
    let epoch = async || {
        let store = schema.store().await;
        let epoch = store.events(0, 1).await.unwrap().epoch;
        store.close().await;
        epoch
    };
    let first = epoch().await;
    assert_eq!(epoch().await, first, "the same server on the same timeline");
    let mut on = schema.connection().await;
    let history: String = sqlx::query_scalar("SELECT history FROM store").fetch_one(&mut on).await.unwrap();
    assert!(history.ends_with("/00000001"), "identifier and timeline: {history}");
    // As if the events had been numbered before this server was promoted.
    on.execute("UPDATE store SET history = '7000000000000000000/00000007'").await.unwrap();
    let second = epoch().await;
    assert_ne!(second, first);
    assert_eq!(epoch().await, second);
}

#[tokio::test]
async fn a_user_with_nothing_but_a_schema_of_its_own_is_enough() {
    let schema = Schema::default();
    let mut on = schema.connection().await;
    let user = &schema.0;
    let made =
        format!("CREATE ROLE \"{user}\" LOGIN PASSWORD 'known'; CREATE SCHEMA \"{user}\" AUTHORIZATION \"{user}\"");
    on.execute(AssertSqlSafe(made)).await.unwrap();
    let ours: PgConnectOptions = url().parse().unwrap();
    let theirs = ours.username(user).password("known").to_url_lossy();
    let store = PostgresStore::open(&ServerConfig::at(theirs.as_str()), user).await.unwrap();
    add(&store, "https://a.org/feed").await;
    store.close().await;
    on.execute(AssertSqlSafe(format!("DROP OWNED BY \"{user}\" CASCADE; DROP ROLE \"{user}\""))).await.unwrap();
}

#[tokio::test]
async fn a_schema_of_a_newer_program_is_refused_and_left_alone() {
    let schema = Schema::default();
    schema.store().await.close().await;
    let sql = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
               VALUES (9000, 'of the future', true, '', 0)";
    schema.connection().await.execute(sql).await.unwrap();
    let error = PostgresStore::open(&ServerConfig::at(&url()), &schema.0).await.unwrap_err();
    assert!(matches!(error, StoreError::TooNew { found: 9000, .. }), "{error:?}");
}

#[tokio::test]
async fn a_text_that_postgresql_cannot_hold_is_stored_as_near_as_it_can() {
    let schema = Schema::default();
    let store = schema.store().await;
    let id = add(&store, "https://a.org/feed").await;
    assert_eq!(new_entries(&poll(&store, id, 10, modified(vec![entry("1\0", "a\0b"), entry("1", "c")])).await), (2, 0));
    let items = store.entries(None, 0, 10).await.unwrap().items;
    assert_eq!((items[0].entry.id.as_str(), items[0].entry.title.as_deref()), ("1\u{FFFD}", Some("a\u{FFFD}b")));
    assert_eq!(new_entries(&poll(&store, id, 20, modified(vec![entry("1\0", "a\0b")])).await), (0, 0), "it is known");
}

#[tokio::test]
async fn a_clock_that_differs_by_more_than_a_second_is_told() {
    let schema = Schema::default();
    let store = schema.store().await;
    let now = SystemClock.now();
    store.check(now).await.unwrap();
    for off in [now.after(Duration::from_secs(10)), at(0)] {
        let error = store.check(off).await.unwrap_err();
        assert!(matches!(error, StoreError::Clock(_)), "{error:?}");
    }
}

#[tokio::test]
async fn a_url_that_cannot_be_read_is_not_repeated() {
    let error =
        PostgresStore::open(&ServerConfig::at("postgres://feedfleet:secret@db:port/feeds"), "test").await.unwrap_err();
    let whole = format!("{error} {error:?}");
    assert!(whole.contains("read the URL") && !whole.contains("secret"), "{whole}");
}

/// In large tables that were not analysed.
#[tokio::test]
async fn every_statement_of_a_batch_finds_its_rows_by_index() {
    const FILL: &str = "
        ALTER TABLE feeds SET (autovacuum_enabled = off);
        INSERT INTO feeds (url, url_digest, host, added, subscribers, active_subscribers, sla, important, audience_at,
            private, category, next_due)
        SELECT 'https://a.org/' || n, sha256(n::text::bytea), 'a.org', 0, 1, 1, false, false, 0, false, 'D', 0
        FROM generate_series(1, 20000) n;
        INSERT INTO entry_identities (feed_id, identity, seq, fingerprint)
        SELECT n, decode(md5(n::text), 'hex'), n, 0 FROM generate_series(1, 20000) n;
        INSERT INTO entries (seq, feed_id, identity, seen, stored, cut, id)
        SELECT n, n, decode(md5(n::text), 'hex'), 0, 0, false, n FROM generate_series(1, 20000) n;
        INSERT INTO events (seq, at, kind, feed_id) SELECT n, 0, 'feed.gone', n FROM generate_series(1, 20000) n;
        INSERT INTO host_holds SELECT n, 0, n FROM generate_series(1, 20000) n";
    let schema = Schema::default();
    let store = schema.store().await;
    schema.connection().await.execute(FILL).await.unwrap();
    let statements = [
        include_str!("../apply_before.sql"),
        include_str!("../apply_poll.sql"),
        include_str!("../apply_document.sql"),
        include_str!("../apply_validators.sql"),
        include_str!("../apply_holds.sql"),
        include_str!("../entries_before.sql"),
        STATEMENTS[0],
        STATEMENTS[1],
        STATEMENTS[2],
        STATEMENTS[3],
        STATEMENTS[4],
        STATEMENTS[5],
        STATEMENTS[6],
        STATEMENTS[7],
        STATEMENTS[8],
        PRUNE_AUDIT,
        include_str!("../feeds_find.sql"),
        include_str!("../feeds_of_site.sql"),
        include_str!("../feeds_revive.sql"),
        include_str!("../jobs.sql"),
        include_str!("../placements.sql"),
        include_str!("../prune_entries.sql"),
        include_str!("../prune_entries_lock.sql"),
        include_str!("../prune_events.sql"),
        include_str!("../wake.sql"),
    ];
    let mut on = store.pool.acquire().await.unwrap();
    for statement in statements {
        on.execute(AssertSqlSafe(format!("PREPARE batch AS {statement}"))).await.unwrap();
        let types = "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'batch'";
        let types: Vec<String> = sqlx::query_scalar(types).fetch_one(&mut *on).await.unwrap();
        let value = |kind: &String| match kind.strip_suffix("[]") {
            Some("boolean") => "array_fill(true, ARRAY[500])".to_owned(),
            None if kind == "boolean" => "true".to_owned(),
            Some(kind) => format!("array_fill('7'::{kind}, ARRAY[500])"),
            None => format!("'7'::{kind}"),
        };
        let values = types.iter().map(value).collect::<Vec<_>>().join(", ");
        let plan = explained(&mut on, AssertSqlSafe(format!("EXPLAIN EXECUTE batch ({values})"))).await;
        on.execute("DEALLOCATE batch").await.unwrap();
        // A filter over a join means that a table was not looked up by what it is joined by.
        for wrong in ["Seq Scan", "Hash Join", "Merge Join", "Join Filter"] {
            assert!(!plan.iter().any(|step| step.contains(wrong)), "{wrong}: {statement}\n{plan:#?}");
        }
    }
}

/// Four thousand subscriptions at the hub, each to another feed and another host: as many as one site may have.
#[tokio::test]
async fn subscriptions_are_counted_and_shared_out_without_comparing_each_with_each() {
    const FILL: &str = r#"
        INSERT INTO feeds (url, url_digest, host, added, subscribers, active_subscribers, sla, important, audience_at, private,
            category, status, next_due)
        SELECT 'https://a.org/' || n, sha256(n::text::bytea), 'a.org:443', 0, 1, 1, false, false, 0, false, 'D', 'active', 0
        FROM generate_series(1, 4000) n;
        INSERT INTO hub_feeds SELECT id, 0 FROM feeds;
        INSERT INTO subscriptions (kind, state, target, filter, format, batch, delay, secret, by_whom, created, holder)
        SELECT 'websub', 'active', 'https://b' || id || '.org/', '{"feed":' || id || '}', 'feedfleet', 1, 0, '', 'hub', 0,
            CASE WHEN id % 2 = 0 THEN 'one' ELSE '' END
        FROM feeds;
        ANALYZE"#;
    let schema = Schema::default();
    let store = schema.store().await;
    schema.connection().await.execute(FILL).await.unwrap();
    let mut on = store.pool.begin().await.unwrap();
    on.execute(HASHED).await.unwrap();
    let ids = (1..=4000).map(|id| id.to_string()).collect::<Vec<_>>().join(",");
    for (statement, values) in [
        (include_str!("../hub_feeds.sql"), "0".to_owned()),
        (include_str!("../subscriptions_take.sql"), "'two', 4000".to_owned()),
        (include_str!("../subscriptions_free.sql"), format!("'one', ARRAY[{ids}]::bigint[], 1000")),
    ] {
        on.execute(AssertSqlSafe(format!("PREPARE it AS {statement}"))).await.unwrap();
        let explain = format!("EXPLAIN (ANALYZE, TIMING OFF) EXECUTE it ({values})");
        let plan = explained(&mut on, AssertSqlSafe(explain)).await;
        on.execute("DEALLOCATE it").await.unwrap();
        let compared = plan.iter().filter_map(|step| step.trim().strip_prefix("Rows Removed by Join Filter: "));
        let most = compared.map(|rows| rows.parse::<u64>().unwrap()).max().unwrap_or(0);
        assert!(most < 10_000, "{statement}\n{plan:#?}");
    }
    on.rollback().await.unwrap();
}

impl Explains for View<'_> {
    async fn explain(&mut self, statement: Statement) -> String {
        let statement = Statement { sql: format!("EXPLAIN {}", statement.sql), ..statement };
        let steps: Vec<(String,)> = bound(statement).fetch_all(&mut *self.0).await.unwrap();
        steps.into_iter().map(|(step,)| step).collect::<Vec<_>>().join("\n")
    }
}

#[tokio::test]
async fn the_audit_is_read_along_the_index_of_each_column() {
    const FILL: &str = "
        INSERT INTO audit (at, who, source, action, subject, outcome, status, millis)
        SELECT n, 'token ' || n % 7, '', 'POST /' || n % 20, 'feeds/' || n, 'done', 200, 1 FROM generate_series(1, 20000) n;
        ANALYZE audit";
    let schema = Schema::default();
    let store = schema.store().await;
    schema.connection().await.execute(FILL).await.unwrap();
    let mut on = store.pool.acquire().await.unwrap();
    for (query, index) in crate::conformance::audit::further_pages() {
        let plan = View(&mut on).explain(query.statement()).await;
        let index = if index == "PRIMARY KEY" { "audit_pkey" } else { index };
        assert!(plan.contains(index) && !plan.contains("Seq Scan"), "{plan}");
    }
}

/// Whether the tables' statistics are up to date or not.
#[tokio::test]
async fn every_list_of_a_large_fleet_follows_its_index() {
    const FILL: &str = "
        ALTER TABLE feeds SET (autovacuum_enabled = off);
        INSERT INTO feeds (url, url_digest, host, added, subscribers, active_subscribers, sla, important, audience_at,
            private, category, status, failure, penalty, next_due, labels, external_id)
        SELECT 'https://a.org/' || n, sha256(n::text::bytea),
            CASE WHEN n <= 12000 THEN 'b.org:443' WHEN n % 2 = 0 THEN 'a.org:443' ELSE 'a.org:8080' END, 0,
            n % 7, 1, false, false, 0, false, CASE WHEN n > 9000 THEN 'C' ELSE 'D' END,
            CASE WHEN n % 3 = 0 THEN 'paused' ELSE 'active' END, CASE WHEN n % 4 = 0 THEN 'dns' END,
            CASE WHEN n % 5 = 0 THEN 'dns' END, 0,
            CASE WHEN n > 17000 THEN '[\"blue\",\"green\"]' WHEN n > 15000 THEN '[\"green\"]' END,
            CASE WHEN n > 16000 THEN '7' END
        FROM generate_series(1, 20000) n";
    let schema = Schema::default();
    let store = schema.store().await;
    schema.connection().await.execute(FILL).await.unwrap();
    for analyze in [false, true] {
        if analyze {
            schema.connection().await.execute("ANALYZE feeds").await.unwrap();
        }
        let mut on = store.pool.begin().await.unwrap();
        on.execute(ALONG_INDEXES).await.unwrap();
        every_list_follows_its_index(&mut View(&mut on), "feeds_pkey").await;
        labels_ids_and_several_hosts_follow_their_indexes(&mut View(&mut on)).await;
        let hosts = format!("EXPLAIN {}", include_str!("../hosts.sql"));
        let hosts = sqlx::query_scalar(AssertSqlSafe(hosts)).bind("").bind("z").bind("a").bind(0_i64).bind(101_i64);
        let hosts: Vec<String> = hosts.fetch_all(&mut *on).await.unwrap();
        let plan = hosts.join("\n");
        assert!(plan.contains("using feed_counts_pkey"), "{plan}");
        assert!(!["on feeds", "Seq Scan on feed_counts "].iter().any(|wrong| plan.contains(wrong)), "{plan}");
        // Left to the drop, it would end when the runtime next runs, and until then keep the schema from being dropped.
        on.rollback().await.unwrap();
    }
}

#[tokio::test]
async fn a_search_asks_the_index_of_trigrams() {
    let schema = Schema::default();
    let store = schema.store().await;
    add(&store, "https://a.org/feed").await;
    let mut on = store.pool.acquire().await.unwrap();
    let sql = "EXPLAIN SELECT place / 2 FROM feed_texts WHERE text ILIKE '%zebra%' ESCAPE '\\' LIMIT 10";
    let plan = explained(&mut on, AssertSqlSafe(sql.to_owned())).await.join("\n");
    assert!(plan.contains("feed_texts_by_trigram"), "{plan}");
}

/// As on a server without contrib, or for a role that may not make extensions.
#[tokio::test]
async fn without_the_extension_searches_work_and_the_index_comes_with_a_later_start() {
    let schema = Schema::default();
    let store = schema.store().await;
    let id = add(&store, "https://a.org/zebra").await;
    let mut on = schema.connection().await;
    on.execute("DROP INDEX feed_texts_by_trigram").await.unwrap();
    let query = FeedQuery { text: Some("ZEBRA".into()), limit: 9, ..FeedQuery::default() };
    assert_eq!(store.feeds(&query).await.unwrap().items[0].id, id);
    store.close().await;
    schema.store().await.close().await;
    let there: bool =
        sqlx::query_scalar("SELECT to_regclass('feed_texts_by_trigram') IS NOT NULL").fetch_one(&mut on).await.unwrap();
    assert!(there);
}

/// Such as another fleet that starts in the same database, or an administrator's open transaction.
#[tokio::test]
async fn a_start_waits_for_the_extension_that_another_session_makes() {
    let mut server = PgConnection::connect(&url()).await.unwrap();
    let name = format!("test-trigrams-{}", std::process::id());
    server.execute(AssertSqlSafe(format!("CREATE DATABASE \"{name}\" TEMPLATE template0"))).await.unwrap();
    let own = url().parse::<PgConnectOptions>().unwrap().database(&name);
    let mut other = own.connect().await.unwrap();
    let mut making = other.begin().await.unwrap();
    making.execute("CREATE EXTENSION pg_trgm SCHEMA public").await.unwrap();
    let config = ServerConfig::at(own.to_url_lossy().as_str());
    let waits = "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = $1 AND wait_event_type = 'Lock'";
    let (store, ()) = tokio::join!(PostgresStore::open(&config, "feedfleet"), async {
        // Until the start waits for the other session, and until it has given up once.
        for expected in [true, false] {
            while sqlx::query_scalar::<_, bool>(waits).bind(&name).fetch_one(&mut server).await.unwrap() != expected {
                tokio::task::yield_now().await;
            }
        }
        making.commit().await.unwrap();
    });
    let store = store.unwrap();
    let index = "SELECT to_regclass('feedfleet.feed_texts_by_trigram') IS NOT NULL";
    assert!(sqlx::query_scalar::<_, bool>(index).fetch_one(&mut other).await.unwrap());
    store.close().await;
    other.close().await.unwrap();
    server.execute(AssertSqlSafe(format!("DROP DATABASE \"{name}\""))).await.unwrap();
}

async fn explained(on: &mut PgConnection, explain: AssertSqlSafe<String>) -> Vec<String> {
    let rows = sqlx::raw_sql(explain).fetch_all(on).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[test]
fn every_migration_in_the_folder_is_compiled_in() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/postgres");
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), sqlx_macros::migrate!("migrations/postgres").iter().count());
}
