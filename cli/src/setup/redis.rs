//! A role's user at Redis.

use anyhow::Context;
use common::config::{Config, without_password};
use common::redis::rights::{Kept, of_scheduler, of_worker, servers, set_user, user_rules};
use common::server_password::ServerPassword;

use super::user::{Role, Setup, User, redis_settings};

pub(super) fn setup(config: &Config, user: &User) -> Setup {
    let rules = user_rules(hash(user).as_slice(), &rights(config, user)).join(" ");
    Setup {
        paste: "paste this command into redis-cli at each node, replicas included, because users are not replicated; then run \
                ACL SAVE, or without an aclfile CONFIG REWRITE, or the user is gone after a restart",
        commands: format!("ACL SETUSER {} {rules}", user.name),
        settings: redis_settings(config, user),
    }
}

pub(super) async fn apply(config: &Config, user: &User, url: &str) -> anyhow::Result<()> {
    let (hash, rights) = (hash(user), rights(config, user));
    // Each node keeps its own users.
    for node in servers(url).await.context("cannot ask a Redis Cluster for its nodes")? {
        let set = set_user(&node, &user.name, hash.as_deref(), &rights).await;
        let shown = without_password(&node);
        if set.with_context(|| format!("cannot set user {} at {shown}", user.name))? == Kept::UntilRestart {
            note!("{shown} has neither aclfile nor configuration file: the user is gone after its restart");
        }
    }
    Ok(())
}

fn hash(user: &User) -> Option<String> {
    user.password.as_ref().map(ServerPassword::redis_hash)
}

fn rights(config: &Config, user: &User) -> Vec<String> {
    match user.role {
        Role::Scheduler => of_scheduler(&config.namespace),
        Role::Worker => of_worker(&config.namespace),
    }
}
