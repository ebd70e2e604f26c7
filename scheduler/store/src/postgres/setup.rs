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
    /// Its password, or a verifier of it that the server stores as it is.
    pub password: String,
    /// The database; made if it is missing.
    pub database: String,
    /// The fleet's namespace, which is the name of the schema that the role owns.
    pub namespace: String,
}

impl SchedulerRole {
    /// Returns the statements for `psql`, run as an administrator.
    pub fn script(&self) -> String {
        let [make, alter] = self.role_statements();
        let (name, database) = (literal(&self.database), identifier(&self.database));
        let create = literal(&format!("CREATE DATABASE {database}"));
        let mut lines = vec![
            format!("{make};"),
            format!("{alter};"),
            format!("SELECT {create} WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = {name}) \\gexec"),
            format!("\\connect {database}"),
        ];
        lines.extend(self.grants().map(|grant| format!("{grant};")));
        lines.join("\n")
    }

    /// Does the same at the server of this administrator's URL, whichever database that names.
    pub async fn apply(&self, url: &str) -> Result<(), StoreError> {
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
        on.close().await.map_err(failed(ACTION))
    }

    fn role_statements(&self) -> [String; 2] {
        let (role, password) = (identifier(&self.role), literal(&self.password));
        [
            format!("DO $$ BEGIN CREATE ROLE {role}; EXCEPTION WHEN duplicate_object THEN NULL; END $$"),
            format!(
                "ALTER ROLE {role} WITH LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD {password}"
            ),
        ]
    }

    /// Inside of the database. The role owns its schema, and may create nothing outside.
    fn grants(&self) -> impl Iterator<Item = String> {
        let [role, database, schema] = [&self.role, &self.database, &self.namespace].map(|name| identifier(name));
        [
            format!("GRANT CONNECT ON DATABASE {database} TO {role}"),
            "CREATE EXTENSION IF NOT EXISTS pg_trgm SCHEMA public".to_owned(),
            format!("CREATE SCHEMA IF NOT EXISTS {schema} AUTHORIZATION {role}"),
            format!("GRANT EXECUTE ON FUNCTION {HISTORY_FUNCTIONS} TO {role}"),
        ]
        .into_iter()
    }
}

async fn execute(on: &mut PgConnection, statement: String) -> Result<(), sqlx::Error> {
    on.execute(AssertSqlSafe(statement)).await.map(drop)
}

fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_quotes() {
        let role = SchedulerRole {
            role: "a\"; DROP ROLE b; --".into(),
            password: "it's".into(),
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
