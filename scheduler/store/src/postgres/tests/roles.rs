//! The roles that the setup makes, at a database of the test's own.

use common::config::ServerConfig;
use common::time::{Clock, SystemClock};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection};

use crate::conformance::add;
use crate::postgres::PostgresStore;
use crate::postgres::setup::SchedulerRole;
use crate::testing::{Schema, url};
use crate::{FeedRef, Feeds, StoreError, Upkeep};

const NAMESPACE: &str = "feed-fleet";

/// A database, which `end` removes with its roles.
struct Database {
    name: String,
    roles: Vec<String>,
}

impl Database {
    /// Returns the name of one that the setup makes.
    fn new() -> Self {
        Database { name: Schema::default().0.clone(), roles: Vec::new() }
    }

    /// Returns a role of this database.
    fn role(&mut self, suffix: &str) -> SchedulerRole {
        let role = format!("{}-{suffix}", self.name);
        self.roles.push(role.clone());
        SchedulerRole { role, password: Some("known".into()), database: self.name.clone(), namespace: NAMESPACE.into() }
    }

    /// Returns the database's URL for a user; for the administrator without one.
    fn url(&self, user: Option<&str>) -> String {
        let options = url().parse::<PgConnectOptions>().unwrap().database(&self.name);
        user.map_or(options.clone(), |user| options.username(user).password("known")).to_url_lossy().to_string()
    }

    async fn open(&self, user: Option<&str>) -> Result<PostgresStore, StoreError> {
        PostgresStore::open(&ServerConfig::at(&self.url(user)), NAMESPACE).await
    }

    /// Returns who owns anything in the schema.
    async fn owners(&self) -> Vec<String> {
        let mut on = PgConnection::connect(&self.url(None)).await.unwrap();
        let sql = "SELECT DISTINCT owner::regrole::text FROM (
                       SELECT nspowner AS owner FROM pg_namespace WHERE nspname = $1
                       UNION ALL SELECT relowner FROM pg_class WHERE relnamespace = quote_ident($1)::regnamespace
                       UNION ALL SELECT proowner FROM pg_proc WHERE pronamespace = quote_ident($1)::regnamespace
                       UNION ALL SELECT typowner FROM pg_type WHERE typnamespace = quote_ident($1)::regnamespace) AS owned";
        sqlx::query_scalar(sql).bind(NAMESPACE).fetch_all(&mut on).await.unwrap()
    }

    async fn end(self) {
        let mut on = PgConnection::connect(&url()).await.unwrap();
        on.execute(AssertSqlSafe(format!("DROP DATABASE \"{}\" WITH (FORCE)", self.name))).await.unwrap();
        for role in self.roles.iter().rev() {
            on.execute(AssertSqlSafe(format!("DROP ROLE \"{role}\""))).await.unwrap();
        }
    }
}

fn quoted(role: &SchedulerRole) -> String {
    format!("\"{}\"", role.role)
}

#[tokio::test]
async fn a_server_whose_timeline_may_not_be_read_is_reported_and_the_setup_grants_that() {
    let mut database = Database::new();
    let role = database.role("a");
    role.apply(&url()).await.unwrap();
    let mut on = PgConnection::connect(&database.url(None)).await.unwrap();
    let reason = async || {
        let store = database.open(Some(&role.role)).await.unwrap();
        let stats = store.stats(SystemClock.now()).await.unwrap();
        store.close().await;
        stats.timeline_unreadable
    };
    // A hardened server; rights on functions are those of this database.
    on.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC").await.unwrap();
    assert_eq!(reason().await, None, "the role has the right itself");
    let revoke = format!("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM {}", quoted(&role));
    on.execute(AssertSqlSafe(revoke)).await.unwrap();
    let why = reason().await.expect("it cannot be read");
    assert!(why.contains("pg_control_system"), "{why}");
    role.apply(&url()).await.unwrap();
    assert_eq!(reason().await, None);
    on.close().await.unwrap();
    database.end().await;
}

#[tokio::test]
async fn what_an_administrator_migrates_is_the_schedulers() {
    let mut database = Database::new();
    let role = database.role("a");
    role.apply(&url()).await.unwrap();
    database.open(None).await.unwrap().close().await;
    assert_eq!(database.owners().await, [quoted(&role)]);
    // What an earlier migration, or a backup, left to the administrator.
    let mut on = PgConnection::connect(&database.url(None)).await.unwrap();
    for statement in
        ["ALTER TABLE \"feed-fleet\".store OWNER TO CURRENT_USER", "CREATE TABLE \"feed-fleet\".later (id serial)"]
    {
        on.execute(statement).await.unwrap();
    }
    on.close().await.unwrap();
    assert_eq!(database.owners().await.len(), 2);
    database.open(None).await.unwrap().close().await;
    assert_eq!(database.owners().await, [quoted(&role)]);
    let store = database.open(Some(&role.role)).await.unwrap();
    add(&store, "https://a.org/feed").await;
    store.close().await;
    database.end().await;
}

#[tokio::test]
async fn the_setup_gives_the_role_what_an_administrator_made() {
    let mut database = Database::new();
    let mut admin = PgConnection::connect(&url()).await.unwrap();
    admin.execute(AssertSqlSafe(format!("CREATE DATABASE \"{}\"", database.name))).await.unwrap();
    let store = database.open(None).await.unwrap();
    let id = add(&store, "https://a.org/feed").await;
    store.close().await;
    let role = database.role("a");
    role.apply(&url()).await.unwrap();
    assert_eq!(database.owners().await, [quoted(&role)]);
    // A table that an administrator added since, as an older program's migration did.
    let mut on = PgConnection::connect(&database.url(None)).await.unwrap();
    let table = format!("CREATE TABLE \"{NAMESPACE}\".later (id serial PRIMARY KEY)");
    on.execute(AssertSqlSafe(table)).await.unwrap();
    assert_eq!(database.owners().await.len(), 2);
    on.close().await.unwrap();
    role.apply(&url()).await.unwrap();
    assert_eq!(database.owners().await, [quoted(&role)]);
    let store = database.open(Some(&role.role)).await.unwrap();
    assert!(store.feed(&FeedRef::Id(id)).await.unwrap().is_some());
    store.close().await;
    database.end().await;
}

#[tokio::test]
async fn a_second_role_works_beside_the_first() {
    let mut database = Database::new();
    let (first, second) = (database.role("a"), database.role("b"));
    first.apply(&url()).await.unwrap();
    second.apply(&url()).await.unwrap();
    // Each may migrate.
    let after = database.open(Some(&second.role)).await.unwrap();
    assert_eq!(database.owners().await, [quoted(&first)]);
    let before = database.open(Some(&first.role)).await.unwrap();
    let id = add(&before, "https://a.org/feed").await;
    assert!(after.feed(&FeedRef::Id(id)).await.unwrap().is_some());
    add(&after, "https://b.org/feed").await;
    before.close().await;
    after.close().await;
    // Restored by an administrator for the second one.
    let mut on = PgConnection::connect(&database.url(None)).await.unwrap();
    on.execute(AssertSqlSafe(format!("DROP SCHEMA \"{NAMESPACE}\" CASCADE"))).await.unwrap();
    on.close().await.unwrap();
    second.apply(&url()).await.unwrap();
    database.open(Some(&second.role)).await.unwrap().close().await;
    assert_eq!(database.owners().await, [quoted(&second)]);
    database.end().await;
}

#[tokio::test]
async fn an_administrator_need_not_be_a_superuser() {
    let mut database = Database::new();
    let (admin, role) = (database.role("admin"), database.role("a"));
    let mut on = PgConnection::connect(&url()).await.unwrap();
    let make = format!("CREATE ROLE {} LOGIN CREATEROLE CREATEDB PASSWORD 'known'", quoted(&admin));
    on.execute(AssertSqlSafe(make)).await.unwrap();
    let theirs = url().parse::<PgConnectOptions>().unwrap().username(&admin.role).password("known").to_url_lossy();
    for _ in 0..2 {
        role.apply(theirs.as_str()).await.unwrap();
    }
    let store = database.open(Some(&role.role)).await.unwrap();
    add(&store, "https://a.org/feed").await;
    assert_eq!(database.owners().await, [quoted(&role)]);
    store.close().await;
    // A hardened server, where only a superuser may grant it.
    let mut on = PgConnection::connect(&database.url(None)).await.unwrap();
    on.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC").await.unwrap();
    on.close().await.unwrap();
    assert!(!role.apply(theirs.as_str()).await.unwrap().may_read_timeline);
    assert!(role.apply(&url()).await.unwrap().may_read_timeline);
    database.end().await;
}

#[tokio::test]
async fn a_role_keeps_its_password_and_no_attribute_of_an_administrator() {
    let mut database = Database::new();
    let role = database.role("a");
    let keeps = SchedulerRole { password: None, ..role.clone() };
    let missing = keeps.apply(&url()).await.unwrap_err();
    assert!(common::causes::causes(&missing).contains("does not exist"), "{missing:?}");
    role.apply(&url()).await.unwrap();
    let mut on = PgConnection::connect(&url()).await.unwrap();
    on.execute(AssertSqlSafe(format!("ALTER ROLE {} SUPERUSER CREATEDB", quoted(&role)))).await.unwrap();
    let mut state = async || -> (String, bool, bool) {
        let sql = "SELECT rolpassword, rolsuper, rolcreatedb FROM pg_authid WHERE rolname = $1";
        sqlx::query_as(sql).bind(&role.role).fetch_one(&mut on).await.unwrap()
    };
    let (password, ..) = state().await;
    keeps.apply(&url()).await.unwrap();
    assert_eq!(state().await, (password.clone(), false, false));
    role.apply(&url()).await.unwrap();
    assert_ne!(state().await.0, password, "another verifier");
    database.end().await;
}
