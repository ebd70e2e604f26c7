//! What a taken-over worker can do to the host gate, to which every worker may write, and how it ends.

use std::time::Duration;

use common::config::{ServerConfig, defaults};
use common::host::{HostKey, HostRules};
use common::host_gate::redis::RedisGate;
use common::host_gate::{HostGate, Reservation, ReserveRequest};
use common::redis::RedisServer;
use common::time::{Clock, SystemClock};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use super::harness::until;

/// Returns whether a host is held for a long time.
pub(super) async fn is_held(admin: &str, namespace: &str, host: &HostKey) -> bool {
    let limits = HostRules::new(defaults().host, Vec::new()).limits_of(host);
    let now = SystemClock.now();
    let request = ReserveRequest { host: host.clone(), limits, expires: now.after(Duration::from_millis(1)) };
    match gate(admin, namespace).reserve(&[request], now).await.unwrap()[..] {
        [Reservation::Refused { until }] => until.since(now) > Duration::from_secs(600),
        _ => false,
    }
}

fn gate(url: &str, namespace: &str) -> RedisGate {
    RedisGate::new(RedisServer::connect(&ServerConfig::at(url), namespace).unwrap(), Duration::from_secs(30))
}

async fn connection(url: &str) -> MultiplexedConnection {
    redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap()
}

/// With a worker's user: forged or deleted rules are shown again while schedulers run, and a hold that it deletes is back within a minute.
/// A hold that it adds stays until the gate's keys are deleted; then the gate has what the store has. `held` is held in the store, `free` is not.
pub(super) async fn try_gate(worker: &str, admin: &str, namespace: &str, held: &HostKey, free: &HostKey) {
    let (mut thief, mut keys) = (connection(worker).await, connection(admin).await);
    let name = |key: &str| format!("{{{namespace}}}:gate:{key}");
    let shown = name("rules");
    let rules: String = keys.get(&shown).await.unwrap();
    let () = thief.set(&shown, "[forged]").await.unwrap();
    until("forged rules are replaced", async || keys.clone().get::<_, String>(&shown).await.unwrap() == rules).await;
    let () = thief.del(vec![shown.clone(), name("rules-hash")]).await.unwrap();
    until("deleted rules are shown again", async || {
        keys.clone().get::<_, Option<String>>(&shown).await.unwrap().as_ref() == Some(&rules)
    })
    .await;

    assert!(is_held(admin, namespace, held).await && !is_held(admin, namespace, free).await);
    let () = thief.del(name(&format!("host:{held}"))).await.unwrap();
    let hour = SystemClock.now().after(Duration::from_secs(3600));
    gate(worker, namespace).hold(&[(free.clone(), hour)], SystemClock.now()).await.unwrap();
    assert!(!is_held(admin, namespace, held).await && is_held(admin, namespace, free).await, "a worker may do that");
    until("schedulers load the stored hold again", async || is_held(admin, namespace, held).await).await;
    assert!(is_held(admin, namespace, free).await);

    let all: Vec<String> = keys.keys(name("*")).await.unwrap();
    let () = keys.del(all).await.unwrap();
    // The gate is closed at first, for every host.
    until("the gate is loaded from the store", async || {
        keys.clone().exists::<_, bool>(name("open")).await.unwrap()
            && is_held(admin, namespace, held).await
            && !is_held(admin, namespace, free).await
    })
    .await;
}
