//! Opening: the connections' settings, the schema, its migrations.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use common::causes::causes;
use common::config::{QuotaConfig, ServerConfig};
use rand::RngExt;
use sqlx::migrate::Migrator;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use super::pooler::refuse_shared_sessions;
use super::primary::{self, Servers};
use super::setup::{hand_over, identifier, literal};
use super::silence::Connections;
use super::{Limits, PostgresStore, bounded, search};
use crate::StoreError;

/// Connections of one process: a few batches at once, readers beside them.
pub(super) const CONNECTIONS: u32 = 10;
/// A connection that was idle for this time is checked before use.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);
/// Connecting, and waiting for another process that migrates.
const OPEN_LIMIT: Duration = Duration::from_secs(600);
/// Migrations of large tables take their time. After this time the connection counts as lost.
const MIGRATION_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// How long a migration waits for a lock: every later statement on the table queues behind it, also those that only read. Longer than
/// `deadlock_timeout` (1 s), after which the server cancels an autovacuum that is in the way.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// Between two tries to get a lock, while the statements that queued are executed.
const LOCK_PAUSE: Duration = Duration::from_secs(5);

/// What a migration begins with.
const LOOK: &str = "look at its schema";

/// Settings of every connection.
///
/// The planner's switches have every batch find its rows by index, and lock them, in the batch's order. Each
/// statement is planned for its own values and the tables as they are: a plan that was made while a table was small would
/// read all of it after it has grown. What is meant to read a whole table says so.
const SETTINGS: [(&str, &str); 10] = [
    ("tcp_keepalives_idle", "30"),
    ("tcp_keepalives_interval", "10"),
    ("tcp_keepalives_count", "3"),
    ("tcp_user_timeout", "30000"),
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_material", "off"),
    ("plan_cache_mode", "force_custom_plan"),
    ("jit", "off"),
];

/// Returns the limits that end what a stuck server, a stuck neighbour or our own death would leave behind, in
/// milliseconds.
fn ends(limits: Limits) -> [(&'static str, u128); 3] {
    let (statement, wait) = (limits.statement.as_millis(), (limits.statement / 2).as_millis());
    [("statement_timeout", statement), ("lock_timeout", wait), ("idle_in_transaction_session_timeout", wait)]
}

impl PostgresStore {
    /// Connects, makes the schema that `namespace` names when it is missing, and migrates it. Several processes may do
    /// that at once.
    ///
    /// The URL is `postgres://USER:PASSWORD@HOST/DATABASE`, perhaps with several hosts; the database exists, and the
    /// user may create schemas in it or owns that schema. A schema of a newer program returns [`StoreError::TooNew`].
    pub async fn open(server: &ServerConfig, namespace: &str) -> Result<Self, StoreError> {
        Self::open_within(Limits::default(), server, namespace).await
    }

    pub(crate) async fn open_within(
        limits: Limits,
        server: &ServerConfig,
        namespace: &str,
    ) -> Result<Self, StoreError> {
        const ACTION: &str = "be opened";
        let schema = identifier(namespace);
        // Ours among those of other processes; a name is cut after 63 bytes.
        let name = format!("feedfleet {:08x} {namespace}", rand::rng().random::<u32>());
        let name = name.get(..63).unwrap_or(&name).to_owned();
        let read = primary::read(server, &name);
        let (hosts, target) = read.map_err(StoreError::on("read the URL of its database"))?;
        let servers = Servers::new(hosts, target, settings(limits, &schema));
        let connection = bounded(ACTION, OPEN_LIMIT, async {
            let connecting = tokio::time::timeout(limits.acquire, servers.connect()).await;
            let connecting = connecting.unwrap_or(Err(sqlx::Error::PoolTimedOut));
            let mut connection = connecting.map_err(StoreError::on(ACTION))?;
            refuse_shared_sessions(&servers, &mut connection).await?;
            refuse_narrow_encoding(&mut connection).await.map_err(StoreError::on(ACTION))??;
            wait_for_others(&mut connection, namespace).await?;
            Ok(connection)
        })
        .await?;
        bounded("migrate its schema", MIGRATION_LIMIT, migrate(connection, namespace, &schema)).await?;
        let connections = Connections::new(name, Arc::clone(&servers));
        let (known, new) = (Arc::clone(&connections), Arc::clone(&servers));
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(limits.acquire)
            // Never: what takes too long ends as an error, and is logged once, where it is handled.
            .acquire_slow_threshold(limits.acquire * 2)
            .test_before_acquire(false)
            .before_acquire(move |connection, meta| {
                let known = Arc::clone(&known);
                Box::pin(async move { Ok(known.may_use(connection, meta.idle_for, TRUSTED_IDLE).await) })
            })
            .after_connect(move |connection, _| {
                let servers = Arc::clone(&new);
                Box::pin(async move { servers.settle(connection).await })
            })
            .connect_lazy_with(servers.options());
        servers.is_pointed_to();
        Ok(PostgresStore { pool, limits, connections, servers, quota: QuotaConfig::NONE })
    }
}

/// Returns an error for a database that cannot keep every text: a later entry would be refused, or stored as bytes of unknown meaning.
async fn refuse_narrow_encoding(on: &mut PgConnection) -> Result<Result<(), StoreError>, sqlx::Error> {
    let encoding: String = sqlx::query_scalar("SHOW server_encoding").fetch_one(on).await?;
    Ok(if encoding == "UTF8" { Ok(()) } else { Err(StoreError::Encoding { encoding }) })
}

/// Returns what each connection begins with, as statements: a proxy may refuse parameters of the connection.
fn settings(limits: Limits, schema: &str) -> String {
    let mut text = format!("SET search_path = {schema};");
    for (name, value) in SETTINGS {
        let _ = write!(text, "SET {name} = '{value}';");
    }
    for (name, value) in ends(limits) {
        let _ = write!(text, "SET {name} = {value};");
    }
    text
}

/// Takes the lock under which a schema is migrated, and waits for processes that have it. It ends with the connection.
async fn wait_for_others(on: &mut PgConnection, namespace: &str) -> Result<(), StoreError> {
    const ACTION: &str = "wait for others that migrate it";
    // The server ends the wait: it would not notice that we have left, and keep the session until the lock is free.
    let longest = (OPEN_LIMIT - LOCK_PAUSE).as_millis();
    let limits =
        format!("SET statement_timeout = {longest}; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0");
    on.execute(AssertSqlSafe(limits)).await.map_err(StoreError::on(ACTION))?;
    let lock = sqlx::query("SELECT pg_advisory_lock(hashtextextended('feedfleet ' || $1, 0))").bind(namespace);
    lock.execute(&mut *on).await.map_err(StoreError::on(ACTION))?;
    on.execute("SET statement_timeout = 0").await.map_err(StoreError::on(ACTION))?;
    Ok(())
}

/// Migrates the schema on a separate connection, which has the lock that other starting processes wait for. Gives way, and tries
/// again, while another session has a lock that a statement needs.
async fn migrate(mut on: PgConnection, namespace: &str, schema: &str) -> Result<(), StoreError> {
    let found = version(&mut on, schema).await.map_err(StoreError::on(LOOK))?;
    let wait = AssertSqlSafe(format!("SET lock_timeout = {}", LOCK_WAIT.as_millis()));
    on.execute(wait).await.map_err(StoreError::on(LOOK))?;
    let mut migrations = sqlx_macros::migrate!("migrations/postgres");
    // Our lock is of one namespace, theirs of the whole database.
    migrations.set_locking(false);
    let known = migrations.iter().map(|migration| migration.version).max().unwrap_or(0);
    if found > known {
        return Err(StoreError::TooNew { found, known });
    }
    let is_upgrade = (1..known).contains(&found);
    if is_upgrade {
        tracing::info!(found, known, "migrating the schema of the database; with large tables this takes a while");
    }
    let pending = (found < known).then_some(&migrations);
    let mut is_logged = false;
    while let Err(error) = bring_up_to_date(&mut on, namespace, schema, pending).await {
        if !error.is_of_a_lock() {
            return Err(error);
        }
        if !is_logged {
            let why = causes(&error);
            tracing::warn!(why, "the migration needs a lock that another session has; retrying until it is free");
            is_logged = true;
        }
        tokio::time::sleep(LOCK_PAUSE).await;
    }
    if is_upgrade || is_logged {
        tracing::info!(version = known, "the schema of the database is migrated");
    }
    on.close().await.map_err(StoreError::on(LOOK))
}

/// Makes what is missing, and runs the migrations that are `pending`. May be repeated: each step is a transaction, or looks first.
async fn bring_up_to_date(
    on: &mut PgConnection,
    namespace: &str,
    schema: &str,
    pending: Option<&Migrator>,
) -> Result<(), StoreError> {
    let owner = owner(on, namespace).await.map_err(StoreError::on(LOOK))?;
    if let Some(Owner { name, may_act: true }) = &owner {
        // After a restore, for example: all tables are to be the schedulers', new ones and those that
        // a backup or an earlier migration left to the administrator.
        let hand_over = hand_over(namespace, "rolname = CURRENT_USER");
        let (role, owner) = (identifier(name), literal(name));
        let act = format!("DO $$ DECLARE owner text := {owner}; made text; BEGIN {hand_over} END $$; SET ROLE {role}");
        on.execute(AssertSqlSafe(act)).await.map_err(StoreError::on("act as the owner of its schema"))?;
    }
    if let Some(migrations) = pending {
        // A role that may not create schemas may own one: IF NOT EXISTS would be refused anyway.
        if owner.is_none() {
            let create = AssertSqlSafe(format!("CREATE SCHEMA {schema}"));
            on.execute(create).await.map_err(StoreError::on("create its schema"))?;
        }
        // `run` by another name: the compiler does not see that this one's future may cross threads.
        migrations.run_direct(None, on, false).await.map_err(|error| StoreError::Migrate(Box::new(error)))?;
    }
    search::make_index(on).await.map_err(StoreError::on("make the index for searches"))
}

/// Who owns the schema.
#[derive(sqlx_macros::FromRow)]
struct Owner {
    /// The role.
    name: String,
    /// It is another role, and this one may act as it: an administrator, or a second role of the schedulers.
    may_act: bool,
}

/// Returns the schema's owner; `None` if the schema is still to be created.
async fn owner(on: &mut PgConnection, namespace: &str) -> Result<Option<Owner>, sqlx::Error> {
    let owner = sqlx::query_as(
        "SELECT rolname::text AS name, rolname <> CURRENT_USER AND pg_has_role(pg_roles.oid, 'MEMBER') AS may_act \
         FROM pg_namespace JOIN pg_roles ON pg_roles.oid = nspowner WHERE nspname = $1",
    );
    owner.bind(namespace).fetch_optional(on).await
}

/// Returns the schema's version; 0 when there is none.
async fn version(on: &mut PgConnection, schema: &str) -> Result<i64, sqlx::Error> {
    let table = format!("{schema}._sqlx_migrations");
    let exists: bool = sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL").bind(table).fetch_one(&mut *on).await?;
    if !exists {
        return Ok(0);
    }
    sqlx::query_scalar("SELECT coalesce(max(version), 0) FROM _sqlx_migrations").fetch_one(on).await
}
