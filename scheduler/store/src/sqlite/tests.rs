//! The suite on SQLite, and what only SQLite has.

use async_trait::async_trait;
use common::config::QuotaConfig;
use common::entry::Entry;
use common::host::HostKey;
use common::policy::{Category, PollState};
use common::time::Timestamp;
use common::url::FeedId;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, SqlitePool};
use tempfile::TempDir;

use super::SqliteStore;
use super::list::{View, bound};
use super::open::check_writable;
use crate::conformance::plans::{
    Explains, every_list_follows_its_index, labels_ids_and_several_hosts_follow_their_indexes,
};
use crate::conformance::upgrades::{
    ROWS_OF_AN_ERASED_SURVIVOR, ROWS_OF_PORT_80, SCHEMA_OF_AN_ERASED_SURVIVOR, SCHEMAS_OF_PORT_80,
    a_feed_without_its_survivor_can_be_added_again, ports_80_and_443_become_one_host, rows_of_the_first_program,
};
use crate::conformance::{Audit, Backend, add, entry, modified, new_entries, poll, published, stamp};
use crate::statement::Statement;
use crate::texts::Trigrams;
use crate::{Events, Feeds, Polls, Upkeep};
use crate::{FeedRef, NewFeed, Store, StoreError};

/// A database in a separate folder.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    fn url(&self) -> String {
        format!("sqlite://{}/feedfleet.db", self.0.path().display())
    }
}

#[async_trait]
impl Backend for Folder {
    async fn open(&self) -> Box<dyn Store> {
        Box::new(SqliteStore::open(&self.url()).await.unwrap())
    }

    async fn open_within(&self, quota: QuotaConfig) -> Box<dyn Store> {
        Box::new(SqliteStore::open(&self.url()).await.unwrap().within(quota))
    }

    fn another(&self) -> Box<dyn Backend> {
        Box::new(Folder::new())
    }

    async fn is_left_by(&self, version: i64) -> bool {
        let migrations = sqlx_macros::migrate!("migrations/sqlite");
        if !migrations.version_exists(version) {
            return false;
        }
        let options: SqliteConnectOptions = self.url().parse().unwrap();
        let mut on = options.create_if_missing(true).connect().await.unwrap();
        migrations.run_direct(Some(version), &mut on, false).await.unwrap();
        on.execute(AssertSqlSafe(rows_of_the_first_program("x'", ["", ""]))).await.unwrap();
        on.close().await.unwrap();
        true
    }

    async fn number_audit_from(&self, number: i64) {
        let options: SqliteConnectOptions = self.url().parse().unwrap();
        let mut on = options.connect().await.unwrap();
        let sql = "UPDATE sqlite_sequence SET seq = ?1 - 1 WHERE name = 'audit'";
        sqlx::query(sql).bind(number).execute(&mut on).await.unwrap();
        on.close().await.unwrap();
    }

    /// The index of texts keeps no texts: their trigrams are compared.
    async fn audit(&self) -> Audit {
        let options: SqliteConnectOptions = self.url().parse().unwrap();
        let mut on = options.connect().await.unwrap();
        on.execute("CREATE VIRTUAL TABLE temp.words USING fts5vocab(main, feed_texts, instance)").await.unwrap();
        let lines = async |on: &mut sqlx::SqliteConnection, sql: &'static str| {
            let rows: Vec<(String, String, i64)> = sqlx::query_as(sql).fetch_all(on).await.unwrap();
            rows.into_iter().map(|(kind, name, feeds)| format!("{kind} {name} {feeds}")).collect::<Vec<_>>()
        };
        let counted = "SELECT kind, name, feeds FROM feed_counts WHERE feeds <> 0 ORDER BY 1, 2";
        let mut kept = lines(&mut on, counted).await;
        let mut right = lines(&mut on, include_str!("../conformance/recount.sql")).await;
        let indexed = "SELECT group_concat(term, '|'), '', doc FROM (SELECT DISTINCT doc, term FROM words ORDER BY doc, term) \
                       GROUP BY doc ORDER BY doc";
        kept.extend(lines(&mut on, indexed).await);
        let texts = "SELECT url, '', 2 * id AS place FROM feeds UNION ALL \
                     SELECT title, '', 2 * id + 1 FROM feeds WHERE title IS NOT NULL ORDER BY place";
        let texts: Vec<(String, String, i64)> = sqlx::query_as(texts).fetch_all(&mut on).await.unwrap();
        let trigrams = |text: &str| Trigrams::of(text).unwrap().iter().collect::<Vec<_>>().join("|");
        right.extend(texts.iter().map(|(text, _, place)| format!("{}  {place}", trigrams(text))));
        on.close().await.unwrap();
        Audit { kept, right }
    }
}

stamp!(Folder::new());

impl Explains for View<'_> {
    async fn explain(&mut self, statement: Statement) -> String {
        let statement = Statement { sql: format!("EXPLAIN QUERY PLAN {}", statement.sql), ..statement };
        let steps: Vec<(i64, i64, i64, String)> = bound(statement).fetch_all(&mut *self.0).await.unwrap();
        steps.into_iter().map(|(.., step)| step).collect::<Vec<_>>().join("\n")
    }
}

#[tokio::test]
async fn every_list_of_a_large_fleet_follows_its_index() {
    const FILL: &str = "
        WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 20000)
        INSERT INTO feeds (url, host, added, subscribers, active_subscribers, sla, important, audience_at, private,
            category, status, failure, penalty, next_due, labels, external_id)
        SELECT 'https://a.org/' || n, iif(n > 12000, iif(n % 2 = 0, 'a.org:443', 'a.org:8080'), 'b.org:443'), 0, n % 7, 1, 0, 0, 0, 0,
            iif(n > 9000, 'C', 'D'), iif(n % 3 = 0, 'paused', 'active'), iif(n % 4 = 0, 'dns', NULL), iif(n % 5 = 0, 'dns', NULL), 0,
            iif(n > 15000, iif(n > 17000, '[\"blue\",\"green\"]', '[\"green\"]'), NULL), iif(n > 16000, '7', NULL)
        FROM numbers";
    let folder = Folder::new();
    let store = SqliteStore::open(&folder.url()).await.unwrap();
    sqlx::query(FILL).execute(&store.writer).await.unwrap();
    let mut on = store.writer.acquire().await.unwrap();
    every_list_follows_its_index(&mut View(&mut on), "feeds").await;
    labels_ids_and_several_hosts_follow_their_indexes(&mut View(&mut on)).await;
}

#[tokio::test]
async fn what_was_stored_of_port_80_is_merged_into_443() {
    let folder = Folder::new();
    assert!(folder.is_left_by(SCHEMAS_OF_PORT_80[0]).await);
    let options: SqliteConnectOptions = folder.url().parse().unwrap();
    let mut on = options.connect().await.unwrap();
    on.execute(ROWS_OF_PORT_80).await.unwrap();
    on.close().await.unwrap();
    ports_80_and_443_become_one_host(&folder).await;
}

#[tokio::test]
async fn what_was_stored_of_a_feed_whose_survivor_was_erased_can_be_added_again() {
    let folder = Folder::new();
    assert!(folder.is_left_by(SCHEMA_OF_AN_ERASED_SURVIVOR).await);
    let options: SqliteConnectOptions = folder.url().parse().unwrap();
    let mut on = options.connect().await.unwrap();
    on.execute(ROWS_OF_AN_ERASED_SURVIVOR).await.unwrap();
    on.close().await.unwrap();
    a_feed_without_its_survivor_can_be_added_again(&folder).await;
}

/// Returns whether the database finds itself sound, and all references lead somewhere.
async fn is_sound(store: &SqliteStore) -> bool {
    let check: String = sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&store.writer).await.unwrap();
    let dangling = sqlx::query("PRAGMA foreign_key_check").fetch_all(&store.writer).await.unwrap();
    check == "ok" && dangling.is_empty()
}

async fn refusal(url: &str) -> StoreError {
    match SqliteStore::open(url).await {
        Ok(_) => panic!("{url} was opened"),
        Err(error) => error,
    }
}

fn new_feed(url: &str) -> NewFeed {
    NewFeed::of(HostKey::new("a.org:443"), url.parse().unwrap(), Category::D, Timestamp::EPOCH)
}

#[tokio::test]
async fn a_database_is_for_one_process_at_a_time() {
    let folder = Folder::new();
    let first = SqliteStore::open(&folder.url()).await.unwrap();
    let error = refusal(&folder.url()).await;
    assert!(matches!(error, StoreError::InUse { .. }), "{error:?}");
    assert!(error.to_string().contains("in use by another feedfleet"), "{error}");
    first.close().await;
    drop(first);
    SqliteStore::open(&folder.url()).await.unwrap();
}

#[tokio::test]
async fn a_database_of_a_newer_program_is_refused_and_left_alone() {
    let folder = Folder::new();
    let store = SqliteStore::open(&folder.url()).await.unwrap();
    let sql = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
               VALUES (9000, 'of the future', 1, x'00', 0)";
    sqlx::query(sql).execute(&store.writer).await.unwrap();
    drop(store);
    let error = refusal(&folder.url()).await;
    assert!(matches!(error, StoreError::TooNew { found: 9000, .. }), "{error:?}");
}

#[tokio::test]
async fn an_entry_of_before_a_column_is_read_and_is_no_update_when_it_comes_again() {
    let folder = Folder::new();
    let store = SqliteStore::open(&folder.url()).await.unwrap();
    let id = add(&store, "https://a.org/feed").await;
    let tagged = || modified(vec![Entry { categories: vec!["fog".into()], ..entry("1", "one") }]);
    poll(&store, id, 10, tagged()).await;
    // As the schema was before.
    for sql in [
        "ALTER TABLE entries DROP COLUMN details",
        "ALTER TABLE feeds DROP COLUMN onward",
        "DELETE FROM _sqlx_migrations WHERE version = 4",
    ] {
        sqlx::query(sql).execute(&store.writer).await.unwrap();
    }
    store.close().await;
    drop(store);
    let store = SqliteStore::open(&folder.url()).await.unwrap();
    assert_eq!(store.entries(None, 0, 10).await.unwrap().items[0].entry, entry("1", "one"));
    assert_eq!(new_entries(&poll(&store, id, 20, tagged()).await), (0, 0));
    assert_eq!(published(&store).await, [("entry.new".to_owned(), Some("one".to_owned()))]);
}

#[tokio::test]
async fn what_is_no_database_of_ours_is_refused_with_its_path() {
    let folder = Folder::new();
    let path = folder.0.path().join("feedfleet.db");
    std::fs::write(&path, "<opml>".repeat(1000)).unwrap();
    let error = refusal(&folder.url()).await;
    assert!(matches!(&error, StoreError::Foreign { path: named } if *named == path), "{error:?}");

    std::fs::remove_file(&path).unwrap();
    let options = SqliteConnectOptions::new().filename(&path).create_if_missing(true);
    let mut other = options.connect().await.unwrap();
    sqlx::query("CREATE TABLE bookmarks (url TEXT)").execute(&mut other).await.unwrap();
    other.close().await.unwrap();
    let error = refusal(&folder.url()).await;
    assert!(matches!(error, StoreError::Foreign { .. }), "{error:?}");
}

#[tokio::test]
async fn a_place_that_cannot_be_used_is_refused_with_its_path() {
    let folder = Folder::new();
    let file = folder.0.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = refusal(&format!("sqlite://{}/feedfleet.db", file.display())).await;
    assert!(matches!(&error, StoreError::Unusable { path, .. } if *path == file), "{error:?}");

    std::fs::create_dir(folder.0.path().join("feedfleet.db")).unwrap();
    let error = refusal(&folder.url()).await;
    assert!(matches!(error, StoreError::Unusable { .. }), "{error:?}");

    for url in ["", "sqlite:", "postgres://u:hunter2@localhost/feeds"] {
        let error = refusal(url).await;
        assert!(matches!(error, StoreError::Url { .. }), "{error:?}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    }
}

#[tokio::test]
async fn a_file_that_may_only_be_read_is_refused_with_its_path() {
    let folder = Folder::new();
    let path = folder.0.path().join("feedfleet.db");
    let store = SqliteStore::open(&folder.url()).await.unwrap();
    check_writable(&store.writer, &path).await.unwrap();
    store.close().await;
    // As SQLite opens a file whose mode forbids writes. No mode stops root, as which tests may run.
    let readers = SqlitePool::connect_with(SqliteConnectOptions::new().filename(&path).read_only(true)).await.unwrap();
    let error = check_writable(&readers, &path).await.unwrap_err().to_string();
    let expected = format!("cannot write {}: permission denied; give the file", path.display());
    assert!(error.starts_with(&expected), "{error}");
}

#[tokio::test]
async fn a_missing_folder_is_made() {
    let folder = Folder::new();
    let deep = folder.0.path().join("a/b c%20/feedfleet.db");
    SqliteStore::open(deep.to_str().unwrap()).await.unwrap();
    assert!(deep.is_file());
}

#[tokio::test]
async fn a_store_in_memory_works_and_is_nobody_elses() {
    let one = SqliteStore::open("sqlite::memory:").await.unwrap();
    let two = SqliteStore::open(":memory:").await.unwrap();
    let added = one.add_feeds(&[new_feed("https://a.org/1")], Timestamp::EPOCH).await.unwrap();
    assert_eq!(one.placements(FeedId(0), 10).await.unwrap().len(), 1);
    assert_eq!(one.events(0, 10).await.unwrap().items.len(), 1);
    assert_eq!(two.events(0, 10).await.unwrap().items, []);
    assert_eq!(two.feed(&FeedRef::Id(added[0].id)).await.unwrap(), None);
}

#[tokio::test]
async fn a_transaction_that_sqlite_ended_by_itself_does_not_stop_the_next_one() {
    let folder = Folder::new();
    let store = SqliteStore::open(&folder.url()).await.unwrap();
    // What a full disk leaves behind: SQLite has rolled back already when sqlx wants to.
    let mut tx = store.write("do something").await.unwrap();
    sqlx::query("ROLLBACK").execute(&mut *tx).await.unwrap();
    assert!(tx.commit().await.is_err());
    store.add_feeds(&[new_feed("https://a.org/1")], Timestamp::EPOCH).await.unwrap();
    assert_eq!(store.placements(FeedId(0), 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_full_disk_is_said_so_and_harms_nothing() {
    let folder = Folder::new();
    let store = SqliteStore::open(&folder.url()).await.unwrap();
    store.add_feeds(&[new_feed("https://a.org/first")], Timestamp::EPOCH).await.unwrap();
    let pages: i64 = sqlx::query_scalar("PRAGMA page_count").fetch_one(&store.writer).await.unwrap();
    let limit = |pages: i64| AssertSqlSafe(format!("PRAGMA max_page_count = {pages}"));
    sqlx::query(limit(pages)).execute(&store.writer).await.unwrap();

    let many: Vec<NewFeed> = (0..1000).map(|number| new_feed(&format!("https://a.org/{number}"))).collect();
    let error = store.add_feeds(&many, Timestamp::EPOCH).await.unwrap_err();
    assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
    assert_eq!(error.to_string(), "the store could not add feeds: the disk is full");
    assert!(!error.refuses_data(), "the feeds are good: they can be added later");
    assert_eq!(store.placements(FeedId(0), 9).await.unwrap().len(), 1);
    assert!(is_sound(&store).await);

    sqlx::query(limit(1_000_000)).execute(&store.writer).await.unwrap();
    assert_eq!(store.add_feeds(&many, Timestamp::EPOCH).await.unwrap().len(), 1000);
}

#[tokio::test]
async fn a_store_that_is_dropped_without_closing_leaves_a_sound_database() {
    let folder = Folder::new();
    for number in 0..5 {
        let store = SqliteStore::open(&folder.url()).await.unwrap();
        assert!(is_sound(&store).await);
        store.add_feeds(&[new_feed(&format!("https://a.org/{number}"))], Timestamp::EPOCH).await.unwrap();
        assert_eq!(store.placements(FeedId(0), 9).await.unwrap().len(), number + 1);
    }
}

#[tokio::test]
async fn a_feed_with_an_unreadable_memory_is_still_polled_and_stored() {
    let store = SqliteStore::open(":memory:").await.unwrap();
    let added = store.add_feeds(&[new_feed("https://a.org/1")], Timestamp::EPOCH).await.unwrap();
    let spoil = "UPDATE feeds SET state = '{', terms = x'ff', content_hash = x'00', known = x'00', history = x'00'";
    sqlx::query(spoil).execute(&store.writer).await.unwrap();
    let ids = [added[0].id];
    assert_eq!(store.jobs_for(&ids).await.unwrap().len(), 1);
    let feed = &store.states_for(&ids).await.unwrap()[0];
    assert_eq!((feed.state, feed.content_hash, feed.terms.len()), (PollState::default(), None, 0));
    assert_eq!(store.history(ids[0]).await.unwrap(), Some(vec![]));
}

#[tokio::test]
async fn every_statement_of_a_batch_finds_its_feeds_by_number() {
    let store = SqliteStore::open(":memory:").await.unwrap();
    let statements = [
        include_str!("apply_before.sql"),
        include_str!("apply_standing.sql"),
        super::rows::POLLS.as_str(),
        include_str!("apply_polled_day.sql"),
        include_str!("apply_document.sql"),
        include_str!("apply_validators.sql"),
        include_str!("apply_holds_before.sql"),
        include_str!("entries_before.sql"),
        include_str!("entries_delete.sql"),
        super::events::LINES[0],
        super::events::LINES[1],
        super::events::LINES[2],
        super::events::LINES[3],
        super::events::LINES[4],
        super::events::LINES[5],
        super::events::LINES[6],
        super::events::LINES[7],
        super::events::LINES[8],
        include_str!("feeds_find.sql"),
        include_str!("feeds_revive.sql"),
        include_str!("jobs.sql"),
        include_str!("placements.sql"),
        include_str!("states.sql"),
        include_str!("wake.sql"),
    ];
    for statement in statements {
        let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
        let plan: Vec<(i64, i64, i64, String)> = sqlx::query_as(explain).fetch_all(&store.writer).await.unwrap();
        for table in ["feeds", "known", "entries", "host_holds", "audit"] {
            let scan = format!("SCAN {table}");
            assert!(!plan.iter().any(|step| step.3.starts_with(&scan)), "{statement}\n{plan:#?}");
        }
    }
}

#[tokio::test]
async fn the_audit_is_read_along_the_index_of_each_column() {
    let store = SqliteStore::open("sqlite::memory:").await.unwrap();
    let mut on = store.writer.acquire().await.unwrap();
    for (query, index) in crate::conformance::audit::further_pages() {
        let plan = View(&mut on).explain(query.statement()).await;
        let reads: Vec<&str> = plan.lines().filter(|step| step.contains(" audit")).collect();
        assert!(
            !reads.is_empty() && reads.iter().all(|step| step.starts_with("SEARCH") && step.contains(index)),
            "{plan}"
        );
    }
}

/// A fleet has millions of feeds and subscriptions, and these statements run several times a second.
#[tokio::test]
async fn statements_on_pushes_use_their_indexes() {
    use crate::push::sql;
    let store = SqliteStore::open("sqlite::memory:").await.unwrap();
    let statements = [
        (sql::LEAVE_OTHER, "push_of_feed"),
        (sql::LEFT_OF_FEED, "push_left_of_feed"),
        (sql::DUE, "push_renewals"),
        (sql::DUE, "push_requests"),
        (sql::NEXT_RENEWAL, "push_renewals"),
        (sql::NEXT_REQUEST, "push_requests"),
        (sql::HEARD, "push_of_feed"),
        (include_str!("learned.sql"), "push_of_feed"),
        (sql::LOST, "push_awaited"),
        (sql::FORGET_LOST, "push_awaited"),
        (sql::OWED, "push_owed"),
        (sql::FORGET_LEFT, "push_left"),
        (sql::SUBSCRIBED, "push_of_feed"),
        (sql::SECRETS, "sqlite_autoindex_push_subscriptions_1"),
        (sql::RESEAL, "sqlite_autoindex_push_subscriptions_1"),
        (sql::UNPUSHED, "feeds_announcing"),
        (super::push::TAKE_HOSTS, "push_hosts_due"),
    ];
    for (statement, index) in statements {
        let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
        let plan: Vec<(i64, i64, i64, String)> = sqlx::query_as(explain).fetch_all(&store.writer).await.unwrap();
        let steps: Vec<&str> = plan.iter().map(|step| step.3.as_str()).collect();
        assert!(steps.iter().any(|step| step.contains(&format!("INDEX {index}"))), "{statement}\n{steps:#?}");
        let is_whole = |step: &&&str| step.starts_with("SCAN") && !step.contains("INDEX") && step.contains("push_");
        assert_eq!(steps.iter().find(is_whole), None, "{statement}");
    }
}

#[test]
fn every_migration_in_the_folder_is_compiled_in() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/sqlite");
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), sqlx_macros::migrate!("migrations/sqlite").iter().count());
}
