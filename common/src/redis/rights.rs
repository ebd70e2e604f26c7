//! What Redis has to permit each role, as the rules of `ACL SETUSER`, and how they are set.
//!
//! Workers reach the keys of the host gate and no others, with the commands of the gate's scripts and no others: Redis checks both inside
//! of scripts as well. Schedulers reach the schedule's keys too.

use std::collections::HashMap;

use ::redis::{Client, ErrorKind, RedisError, Value, from_redis_value};

use super::cluster::all_addresses;
use crate::config::{ServerConfig, hosts_of};

/// What connecting and running scripts needs: `INFO` and `TIME` are used by checks; `SELECT`, `ROLE` and `CLUSTER NODES` only by some
/// URLs.
const CONNECTION: [&str; 9] =
    ["evalsha", "eval", "script|load", "info", "time", "ping", "select", "role", "cluster|nodes"];
/// What the gate's scripts call.
const GATE: [&str; 8] = ["get", "set", "del", "pexpire", "zadd", "zcount", "zrange", "zremrangebyscore"];
/// What the schedule's scripts call beyond.
const SCHEDULE: [&str; 14] = [
    "exists",
    "hdel",
    "hlen",
    "hmget",
    "hscan",
    "hset",
    "hvals",
    "unlink",
    "zcard",
    "zmscore",
    "zpopmin",
    "zrangebyscore",
    "zrem",
    "zscore",
];

/// Returns the rules of a scheduler's user, without name and password. They replace what the user had.
pub fn of_scheduler(namespace: &str) -> Vec<String> {
    let keys = ["gate", "schedule"].into_iter().flat_map(|part| keys(namespace, part));
    rules(keys, CONNECTION.iter().chain(&GATE).chain(&SCHEDULE))
}

/// Returns the rules of a worker's user, without name and password. They replace what the user had.
pub fn of_worker(namespace: &str) -> Vec<String> {
    rules(keys(namespace, "gate").into_iter(), CONNECTION.iter().chain(&GATE))
}

/// Returns the keys of one part: in one slot of a cluster, or spread over several, where more follows the namespace in
/// the braces.
fn keys(namespace: &str, part: &str) -> [String; 2] {
    [format!("~{{{namespace}}}:{part}:*"), format!("~{{{namespace}:*}}:{part}:*")]
}

fn rules<'a>(keys: impl Iterator<Item = String>, commands: impl Iterator<Item = &'a &'a str>) -> Vec<String> {
    keys.chain(commands.map(|command| format!("+{command}"))).collect()
}

/// Whether the server keeps a user beyond its next restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// In its file of users, or in its configuration file.
    Saved,
    /// It has neither.
    UntilRestart,
}

/// Returns the URL of each server that keeps its own users, from an administrator's URL: of a Redis Cluster all nodes,
/// as the first that answers names them.
pub async fn servers(url: &str) -> Result<Vec<String>, RedisError> {
    let named = ServerConfig::at(url).urls();
    if !url.starts_with("redis-cluster:") && !url.starts_with("rediss-cluster:") {
        return Ok(named);
    }
    let mut failure = None;
    for seed in named.iter().map(|url| url.replacen("-cluster:", ":", 1)) {
        let (before, after) = hosts_of(&seed).map(|(before, _, after)| (before, after)).unwrap_or_default();
        match nodes(&seed).await {
            Ok(nodes) => return Ok(nodes.iter().map(|node| format!("{before}{node}{after}")).collect()),
            Err(error) => failure = Some(error),
        }
    }
    failure.map_or(Ok(Vec::new()), Err)
}

async fn nodes(seed: &str) -> Result<Vec<String>, RedisError> {
    let client = Client::open(seed)?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let answer: String = ::redis::cmd("CLUSTER").arg("NODES").query_async(&mut connection).await?;
    let by_name = seed.starts_with("rediss:");
    Ok(all_addresses(&client.get_connection_info().addr().to_string(), &answer, by_name))
}

/// Returns the rules of `ACL SETUSER` that make a user as described: on, with these rights only, and with these hashes as its only
/// passwords. Without any it keeps its passwords.
pub fn user_rules(hashes: &[String], rights: &[String]) -> Vec<String> {
    let first: &[&str] =
        if hashes.is_empty() { &["resetkeys", "resetchannels", "-@all", "on"] } else { &["reset", "on"] };
    let mut rules: Vec<String> = first.iter().map(|rule| (*rule).to_owned()).collect();
    rules.extend(hashes.iter().map(|hash| format!("#{hash}")));
    rules.extend(rights.iter().cloned());
    rules
}

/// Sets a user at the server of this administrator's URL: on, with these rights only, and with this hash as its only password. Without
/// one it keeps its passwords, and must have some.
pub async fn set_user(url: &str, user: &str, hash: Option<&str>, rights: &[String]) -> Result<Kept, RedisError> {
    let mut connection = Client::open(url)?.get_multiplexed_async_connection().await?;
    let hashes = match hash {
        Some(hash) => vec![hash.to_owned()],
        None => {
            let known: Option<HashMap<String, Value>> =
                ::redis::cmd("ACL").arg("GETUSER").arg(user).query_async(&mut connection).await?;
            let passwords = known.and_then(|mut known| known.remove("passwords"));
            let hashes: Vec<String> = passwords.map(from_redis_value).transpose()?.unwrap_or_default();
            if hashes.is_empty() {
                return Err((ErrorKind::Client, "the user does not exist, or has no password to keep").into());
            }
            hashes
        }
    };
    let mut set = ::redis::cmd("ACL");
    set.arg("SETUSER").arg(user).arg(user_rules(&hashes, rights));
    let () = set.query_async(&mut connection).await?;
    for save in [["ACL", "SAVE"], ["CONFIG", "REWRITE"]] {
        let saved: Result<(), RedisError> = ::redis::cmd(save[0]).arg(save[1]).query_async(&mut connection).await;
        if saved.is_ok() {
            return Ok(Kept::Saved);
        }
    }
    Ok(Kept::UntilRestart)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Returns what the scripts of a folder call, of the tree and not of the binary: an unused file counts too.
    fn called(folder: &str) -> BTreeSet<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let mut called = BTreeSet::new();
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "lua") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let calls = text.split("call('").chain(text.split("many('")).skip(1);
            called.extend(calls.filter_map(|rest| rest.split_once('\'')).map(|(command, _)| command.to_lowercase()));
        }
        called.retain(|command| command.chars().all(|character| character.is_ascii_lowercase()) && !command.is_empty());
        called
    }

    fn permitted(rules: &[String]) -> BTreeSet<String> {
        rules.iter().filter_map(|rule| rule.strip_prefix('+')).map(ToOwned::to_owned).collect()
    }

    #[test]
    fn a_user_may_call_what_its_scripts_call_and_nothing_more() {
        let connection: BTreeSet<String> = CONNECTION.iter().map(|command| (*command).to_owned()).collect();
        let mut gate = called("src/host_gate/redis");
        gate.extend(called("src/redis"));
        let beyond = |permitted: &BTreeSet<String>, called: &BTreeSet<String>| {
            let unused: Vec<String> =
                permitted.difference(called).filter(|it| !connection.contains(*it)).cloned().collect();
            let missing: Vec<String> = called.difference(permitted).cloned().collect();
            (unused, missing)
        };
        assert_eq!(beyond(&permitted(&of_worker("f")), &gate), (vec![], vec![]), "unused, missing");
        let mut all = called("../scheduler/src/schedule/redis");
        all.extend(gate);
        assert_eq!(beyond(&permitted(&of_scheduler("f")), &all), (vec![], vec![]), "unused, missing");
    }
}
