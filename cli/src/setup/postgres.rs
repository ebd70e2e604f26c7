//! The schedulers' role at PostgreSQL.

use common::config::Config;
use common::server_password::ServerPassword;
use store::postgres::setup::SchedulerRole;

use super::user::{Setup, User, is_server, path_of, setting};

pub(super) fn setup(config: &Config, user: &User, database: Option<&str>) -> Setup {
    let role = role(config, user, database);
    let setting = setting(&config.store.url, "FEEDFLEET_STORE__URL", user, "postgres", &role.database);
    let settings = setting.into_iter().collect();
    let paste = "paste these commands into psql, as an administrator of the server";
    Setup { paste, commands: role.script(), settings }
}

pub(super) async fn apply(config: &Config, user: &User, database: Option<&str>, url: &str) -> anyhow::Result<()> {
    let applied = role(config, user, database).apply(url).await?;
    if !applied.has_trigrams {
        note!(
            "searches for feeds stay slow in a large fleet: the server has no extension pg_trgm (a package postgresql-contrib \
             has it), or this administrator may not create it"
        );
    }
    if !applied.may_read_timeline {
        note!(
            "a superuser has to grant {} EXECUTE on pg_control_system(), pg_current_wal_lsn() and pg_walfile_name(pg_lsn): \
             without it the promotion of a standby is not noticed",
            user.name
        );
    }
    Ok(())
}

fn role(config: &Config, user: &User, database: Option<&str>) -> SchedulerRole {
    let configured = is_server(&config.store.url).then(|| path_of(&config.store.url)).flatten();
    SchedulerRole {
        role: user.name.clone(),
        // Not the password: statements may be logged.
        password: user.password.as_ref().map(ServerPassword::postgres_verifier),
        database: database.or(configured).unwrap_or("feedfleet").to_owned(),
        namespace: config.namespace.clone(),
    }
}
