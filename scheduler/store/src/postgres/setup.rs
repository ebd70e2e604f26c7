//! The role with which schedulers use a database: what has to be granted, as text for `psql` and done over an administrator's
//! connection. Both may be repeated. Workers have no role: they never connect to the store.

use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection};

use crate::StoreError;

/// What recognises the promotion of a standby. Everyone may call them by default, unless an administrator revoked that.
const HISTORY_FUNCTIONS: &str =
    "pg_catalog.pg_control_system(), pg_catalog.pg_current_wal_lsn(), pg_catalog.pg_walfile_name(pg_lsn)";

/// What is to be there.
#[derive(Clone, Debug)]
pub struct SchedulerRole {
    /// The role's name.
    pub role: String,
    /// Its password, or a verifier of it that the server stores as it is. None: the role is there and keeps its own.
    pub password: Option<String>,
    /// The database; made if it is missing.
    pub database: String,
    /// The fleet's namespace, which is the name of the schema that the role owns.
    pub namespace: String,
}

/// What was done at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The database has the extension for fast searches.
    pub has_trigrams: bool,
    /// The role can recognise that a standby was promoted.
    pub may_read_timeline: bool,
}

impl SchedulerRole {
    /// Returns the statements for `psql`, run as an administrator.
    pub fn script(&self) -> String {
        let (name, database) = (literal(&self.database), identifier(&self.database));
        let create = literal(&format!("CREATE DATABASE {database}"));
        let mut lines = vec!["\\set ON_ERROR_STOP on".to_owned()];
        lines.extend(self.role_statements().map(|statement| format!("{statement};")));
        lines
            .push(format!("SELECT {create} WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = {name}) \\gexec"));
        lines.push(format!("\\connect {database}"));
        lines.extend(self.grants().into_iter().map(|grant| format!("{grant};")));
        lines.join("\n")
    }

    /// Does the same at the server of this administrator's URL, whichever database that names.
    pub async fn apply(&self, url: &str) -> Result<Applied, StoreError> {
        const ACTION: &str = "be set up";
        let failed = StoreError::on;
        let options = PgConnectOptions::from_str(url).map_err(failed("read the administrator's URL"))?;
        let options = options.disable_statement_logging();
        let mut on = options.connect().await.map_err(failed(ACTION))?;
        for statement in self.role_statements() {
            execute(&mut on, statement).await.map_err(failed("make the role"))?;
        }
        let exists = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)");
        let exists: bool = exists.bind(&self.database).fetch_one(&mut on).await.map_err(failed(ACTION))?;
        if !exists {
            let create = format!("CREATE DATABASE {}", identifier(&self.database));
            execute(&mut on, create).await.map_err(failed("make the database"))?;
        }
        on.close().await.map_err(failed(ACTION))?;
        let mut on = options.database(&self.database).connect().await.map_err(failed(ACTION))?;
        for grant in self.grants() {
            execute(&mut on, grant).await.map_err(failed("grant the role its rights"))?;
        }
        let has_trigrams = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_trgm')");
        let has_trigrams = has_trigrams.fetch_one(&mut on).await.map_err(failed(ACTION))?;
        let may_read_timeline = sqlx::query_scalar(
            "SELECT bool_and(has_function_privilege($1, name, 'EXECUTE')) FROM unnest(string_to_array($2, ', ')) AS name",
        );
        let may_read_timeline = may_read_timeline.bind(&self.role).bind(HISTORY_FUNCTIONS).fetch_one(&mut on).await;
        let may_read_timeline = may_read_timeline.map_err(failed(ACTION))?;
        on.close().await.map_err(failed(ACTION))?;
        Ok(Applied { has_trigrams, may_read_timeline })
    }

    fn role_statements(&self) -> impl Iterator<Item = String> {
        let (role, name) = (identifier(&self.role), literal(&self.role));
        let make = format!("DO $$ BEGIN CREATE ROLE {role}; EXCEPTION WHEN duplicate_object THEN NULL; END $$");
        let password = self.password.as_deref().map(|password| format!(" PASSWORD {}", literal(password)));
        // Only a superuser may name these attributes, even to take away what is not there.
        let strip = format!(
            "DO $$ BEGIN IF EXISTS (SELECT FROM pg_roles WHERE rolname = {name} AND \
             (rolsuper OR rolcreatedb OR rolcreaterole OR rolreplication OR rolbypassrls)) THEN \
             ALTER ROLE {role} NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS; END IF; END $$"
        );
        let login = format!("ALTER ROLE {role} WITH LOGIN{}", password.as_deref().unwrap_or_default());
        password.is_some().then_some(make).into_iter().chain([login, strip])
    }

    /// Inside of the database. The role owns its schema, and may create nothing outside.
    fn grants(&self) -> [String; 6] {
        let [role, database, schema] = [&self.role, &self.database, &self.namespace].map(|name| identifier(name));
        let namespace = literal(&self.namespace);
        [
            format!("GRANT CONNECT ON DATABASE {database} TO {role}"),
            // An administrator who is not a superuser gives things to a role of which it is a member.
            format!(
                "DO $$ BEGIN IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = CURRENT_USER) THEN \
                 GRANT {role} TO CURRENT_USER; END IF; END $$"
            ),
            // `IF NOT EXISTS` needs the right to create one also where it exists.
            format!(
                "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = {namespace}) THEN \
                 CREATE SCHEMA {schema} AUTHORIZATION {role}; END IF; END $$"
            ),
            self.ownership(),
            format!(
                "DO $$ BEGIN GRANT EXECUTE ON FUNCTION {HISTORY_FUNCTIONS} TO {role}; \
                 EXCEPTION WHEN insufficient_privilege THEN \
                 RAISE WARNING 'a superuser has to grant {role} {HISTORY_FUNCTIONS}: %', SQLERRM; END $$"
            ),
            "DO $$ BEGIN CREATE EXTENSION IF NOT EXISTS pg_trgm SCHEMA public; EXCEPTION WHEN OTHERS THEN \
             RAISE WARNING 'searches for feeds are slow without the extension pg_trgm: %', SQLERRM; END $$"
                .to_owned(),
        ]
    }

    /// What an administrator made in the schema, by a migration or from a backup, is the role's from now on. A schema of another role
    /// stays that role's, and this role may do what the other may: two can alternate while a password changes.
    fn ownership(&self) -> String {
        let (role, name) = (identifier(&self.role), literal(&self.role));
        let (schema, namespace) = (identifier(&self.namespace), literal(&self.namespace));
        let hand_over = hand_over(&self.namespace, "(rolsuper OR rolcreaterole)");
        format!(
            "DO $$ DECLARE owner text := {name}; other record; made text; BEGIN \
             SELECT rolname, rolsuper, rolcreaterole INTO other FROM pg_namespace JOIN pg_roles ON pg_roles.oid = nspowner \
             WHERE nspname = {namespace}; \
             IF other.rolsuper THEN ALTER SCHEMA {schema} OWNER TO {role}; \
             ELSIF other.rolname <> owner AND other.rolcreaterole THEN ALTER SCHEMA {schema} OWNER TO {role}; \
             EXECUTE format('GRANT {role} TO %I', other.rolname); \
             ELSIF other.rolname <> owner THEN owner := other.rolname; EXECUTE format('GRANT %I TO {role}', owner); END IF; \
             {hand_over} END $$"
        )
    }
}

/// Returns a statement of PL/pgSQL that gives what some roles own in the schema to the role in the variable `owner`. It needs a variable
/// `made` of type text.
pub(super) fn hand_over(namespace: &str, of: &str) -> String {
    let namespace = literal(namespace);
    let owned = |kind: &str, what: &str, catalog: &str, is: &str| {
        format!(
            "SELECT '{kind} ' || {catalog}.oid::{what} FROM {catalog} JOIN pg_roles ON pg_roles.oid = {is}owner \
             JOIN pg_namespace ON pg_namespace.oid = {is}namespace \
             WHERE nspname = {namespace} AND rolname <> owner AND {of}"
        )
    };
    let tables = owned("TABLE", "regclass", "pg_class", "rel");
    let functions = owned("FUNCTION", "regprocedure", "pg_proc", "pro");
    format!(
        "FOR made IN {tables} AND relkind = 'r' UNION ALL {functions} \
         LOOP EXECUTE format('ALTER %s OWNER TO %I', made, owner); END LOOP;"
    )
}

async fn execute(on: &mut PgConnection, statement: String) -> Result<(), sqlx::Error> {
    on.execute(AssertSqlSafe(statement)).await.map(drop)
}

pub(super) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_quotes() {
        let role = SchedulerRole {
            role: "a\"; DROP ROLE b; --".into(),
            password: Some("it's".into()),
            database: "d\"b'".into(),
            namespace: "fleet".into(),
        };
        let script = role.script();
        assert!(script.contains("\"a\"\"; DROP ROLE b; --\"") && script.contains("PASSWORD 'it''s'"), "{script}");
        assert!(
            script.contains("'CREATE DATABASE \"d\"\"b''\"'") && script.contains("\\connect \"d\"\"b'\""),
            "{script}"
        );
    }
}
