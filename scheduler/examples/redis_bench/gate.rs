//! The gate's calls: a claimed batch reserved at once, and a worker's calls for each poll.

use std::time::{Duration, Instant};

use anyhow::bail;
use common::host::{HostKey, HostLimits};
use common::host_gate::redis::RedisGate;
use common::host_gate::{
    AcquireRequest, Acquired, GateUpkeep, HostGate, Isolation, Release, Reservation, ReserveRequest, Ticket,
    fresh_nonce,
};
use common::redis::RedisServer;
use common::time::{Clock, SystemClock};
use common::url::{FeedId, Version};
use futures_util::future::try_join_all;
use redis::aio::MultiplexedConnection;

use crate::{BATCH, rate, used_memory};

const HOSTS: usize = 50_000;
/// Requests that workers start at the same time.
const AT_ONCE: usize = 64;
const LIMITS: HostLimits = HostLimits { gap: Duration::from_secs(1), burst: 1, parallel: 1 };
const LIFE: Duration = Duration::from_secs(60);

pub(crate) async fn measure(server: &RedisServer, mut connection: Option<MultiplexedConnection>) -> anyhow::Result<()> {
    let gate = RedisGate::new(server.clone(), Duration::ZERO);
    let Some(mark) = gate.begin_loading(SystemClock.now()).await? else { bail!("the gate is open already") };
    gate.open(&mark, SystemClock.now()).await?;
    tokio::time::sleep(LIMITS.gap).await;

    let hosts: Vec<HostKey> = (0..HOSTS).map(|host| HostKey::new(&format!("h{host}.example:443"))).collect();
    let before = match &mut connection {
        Some(connection) => used_memory(connection).await?,
        None => 0,
    };
    let begun = Instant::now();
    let mut tickets = Vec::new();
    for hosts in hosts.chunks(BATCH) {
        let now = SystemClock.now();
        let request = |host: &HostKey| ReserveRequest { host: host.clone(), limits: LIMITS, expires: now.after(LIFE) };
        let requests: Vec<ReserveRequest> = hosts.iter().map(request).collect();
        for (host, reservation) in hosts.iter().zip(gate.reserve(&requests, now).await?) {
            let Reservation::Ticket(ticket) = reservation else { bail!("an idle host was refused") };
            tickets.push((host, ticket));
        }
    }
    println!("gate: {:.0} places reserved/s by {BATCH}", rate(HOSTS, begun));
    if let Some(connection) = &mut connection {
        let bytes = used_memory(connection).await?.saturating_sub(before);
        println!("gate: {:.0} bytes a host with a ticket", bytes as f64 / HOSTS as f64);
    }

    let begun = Instant::now();
    let polls = (0..).map(FeedId).zip(&tickets).collect::<Vec<_>>();
    for polls in polls.chunks(AT_ONCE) {
        try_join_all(polls.iter().map(|(feed, (host, ticket))| poll(&gate, *feed, host, *ticket))).await?;
    }
    println!("gate: {:.0} acquires and releases/s, {AT_ONCE} at once", rate(HOSTS, begun));
    Ok(())
}

async fn poll(gate: &RedisGate, feed: FeedId, host: &HostKey, ticket: Ticket) -> anyhow::Result<()> {
    let now = SystemClock.now();
    let (host, deadline, version) = (host.clone(), now.after(LIFE), Version(1));
    let (nonce, isolation) = (fresh_nonce(), Isolation::None);
    let request = AcquireRequest {
        host,
        limits: LIMITS,
        ticket,
        feed,
        version,
        deadline,
        leased_until: deadline,
        nonce,
        isolation,
    };
    let Acquired::Granted(permit) = gate.acquire(&request, now).await? else { bail!("a ticket was refused") };
    gate.release(&permit, Release { remembered: Some(LIFE), next_start_in: None }, now).await?;
    Ok(())
}
