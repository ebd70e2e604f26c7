//! Webhooks of a cluster while receivers, schedulers, PostgreSQL and RabbitMQ are killed: nothing is lost, the order is kept, and what
//! arrives twice has the same id.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use common::testing::Port;
use common::url::FeedId;
use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::harness::{Kind, Role, Servers, Urls};
use super::load::{Load, Size};
use crate::harness::PATIENCE;
use store::{Events, Part};

const SHORT: Size = Size {
    feeds: 120,
    hosts: 40,
    interval: Duration::from_secs(6),
    gap: Duration::from_millis(20),
    trouble: Duration::ZERO,
    leases: 1,
};
const LONG: Size = Size {
    feeds: 2_000,
    hosts: 200,
    interval: Duration::from_secs(30),
    gap: Duration::from_millis(50),
    trouble: Duration::ZERO,
    leases: 1,
};
/// Subscriptions, and kills of each kind.
const SHORT_FORM: (u32, usize) = (20, 2);
const LONG_FORM: (u32, usize) = (200, 100);
/// How many subscriptions get all events; the others get a part each.
const WHOLE: u32 = 4;
const SECRETS: &str = "[secrets]\nkey = \"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\"\n";

/// What a receiver has processed, by path: ids of requests with the numbers of their events, in order.
type Processed = Arc<Mutex<HashMap<String, Vec<(String, Vec<i64>)>>>>;

/// A receiver that is killed with all its connections, and restarted at the same address.
struct Receiver {
    port: Port,
    processed: Processed,
    runtime: Option<Runtime>,
}

impl Receiver {
    fn start() -> Self {
        let mut receiver = Receiver { port: Port::reserved(), processed: Arc::default(), runtime: None };
        receiver.restart();
        receiver
    }

    fn restart(&mut self) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (address, processed) = (self.port.address(), Arc::clone(&self.processed));
        let (sender, bound) = std::sync::mpsc::channel();
        runtime.spawn(async move {
            let deadline = Instant::now() + PATIENCE;
            let listener = loop {
                match tokio::net::TcpListener::bind(&address).await {
                    Ok(listener) => break listener,
                    // The runtime that was killed may not have closed its listener yet.
                    Err(error) => assert!(Instant::now() < deadline, "cannot listen on {address}: {error}"),
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            };
            sender.send(()).unwrap();
            axum::serve(listener, Router::new().fallback(receive).with_state(processed)).await
        });
        bound.recv().unwrap();
        self.runtime = Some(runtime);
    }

    /// Requests in progress are cut off: some were processed, and were not answered.
    fn kill(&mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn receive(State(processed): State<Processed>, uri: Uri, headers: HeaderMap, body: Bytes) -> StatusCode {
    let body: Value = serde_json::from_slice(&body).unwrap();
    let seqs = body["data"]["events"].as_array().unwrap().iter().map(|event| event["seq"].as_i64().unwrap()).collect();
    let id = headers["webhook-id"].to_str().unwrap().to_owned();
    processed.lock().unwrap().entry(uri.path().to_owned()).or_default().push((id, seqs));
    // Time in which it can be killed.
    tokio::time::sleep(Duration::from_millis(20)).await;
    StatusCode::NO_CONTENT
}

/// Adds a subscription; returns its path, and which feeds it wants.
async fn subscribe(api: &str, receiver: &Receiver, number: u32, all: u32) -> (String, Option<Part>) {
    let path = format!("/{number}");
    let parts = all - WHOLE;
    let part = (number >= WHOLE).then(|| Part { number: number - WHOLE + 1, of: parts });
    let mut filter = json!({ "kind": "entry.*" });
    if let Some(Part { number, of }) = part {
        filter["part"] = json!(format!("{number}/{of}"));
    }
    let wish = json!({
        "kind": "webhook", "target": format!("http://{}{path}", receiver.port.address()), "filter": filter, "batch": 20, "after": 0,
    });
    let request = reqwest::Client::new().post(format!("{api}/api/v1/subscriptions"));
    let answer = request.header("content-type", "application/json").body(wish.to_string()).send().await.unwrap();
    assert_eq!(answer.status(), 201, "{}", answer.text().await.unwrap());
    (path, part)
}

/// Returns all events of entries, with their feeds.
async fn stored(load: &Load) -> Vec<(i64, FeedId)> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let page = load.cluster.store.events(after, 1_000).await.unwrap();
        let entries = page.items.iter().filter(|event| event.kind.starts_with("entry."));
        all.extend(entries.map(|event| (event.seq, event.feed_id)));
        after = page.next;
        if page.items.is_empty() {
            return all;
        }
    }
}

/// Returns the events in the order of their first arrival, and the number of those that arrived again. These must have
/// the same id.
fn first_of_each(requests: &[(String, Vec<i64>)]) -> (Vec<i64>, usize) {
    let (mut ids, mut first, mut again) = (HashMap::new(), Vec::new(), 0);
    for (id, seqs) in requests {
        for seq in seqs {
            match ids.get(seq) {
                None => {
                    ids.insert(*seq, id);
                    first.push(*seq);
                }
                Some(known) => {
                    assert_eq!(*known, id, "event {seq} arrived twice under different ids");
                    again += 1;
                }
            }
        }
    }
    (first, again)
}

async fn pause(rng: &mut StdRng, most: u64) {
    tokio::time::sleep(Duration::from_millis(rng.random_range(50..most))).await;
}

/// Kills everything in turn, this number of times.
async fn kill(load: &Load, servers: &Servers, receiver: &mut Receiver, schedulers: &mut [Role], kills: usize) {
    let mut rng: StdRng = rand::SeedableRng::seed_from_u64(20_261_123);
    for number in 0..kills {
        pause(&mut rng, 1_000).await;
        receiver.kill();
        pause(&mut rng, 500).await;
        receiver.restart();
        pause(&mut rng, 1_000).await;
        let place = number % schedulers.len();
        schedulers[place].kill();
        pause(&mut rng, 1_000).await;
        schedulers[place] = load.cluster.start(Kind::Scheduler);
        for name in ["postgres", "rabbitmq"] {
            pause(&mut rng, 2_000).await;
            servers.signal(name, "KILL");
            pause(&mut rng, 1_000).await;
            servers.up(name);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deliveries_survive_kills_of_receivers_schedulers_postgresql_and_rabbitmq() {
    let soak = std::env::var_os("SOAK").is_some();
    let (subscriptions, kills) = if soak { LONG_FORM } else { SHORT_FORM };
    let servers = Servers::own(true);
    let load = Load::new(Size::pick(SHORT, LONG), &servers, Urls::of(&servers), SECRETS).await;
    let mut receiver = Receiver::start();
    let mut schedulers = [load.cluster.start(Kind::Scheduler), load.cluster.start(Kind::Scheduler)];
    let api = schedulers[0].address();
    let mut wanted = Vec::new();
    for number in 0..subscriptions {
        wanted.push(subscribe(&api, &receiver, number, subscriptions).await);
    }
    let worker = load.cluster.start(Kind::Worker);
    load.warm_up().await;
    kill(&load, &servers, &mut receiver, &mut schedulers, kills).await;
    worker.stop().await;

    // The last reports are still being stored, and the last events delivered.
    let deadline = Instant::now() + 2 * PATIENCE;
    let expected = |all: &[(i64, FeedId)], part: Option<Part>| -> Vec<i64> {
        all.iter().filter(|(_, feed)| part.is_none_or(|part| part.has(*feed))).map(|(seq, _)| *seq).collect()
    };
    let (mut all, mut settled) = (Vec::new(), Instant::now());
    loop {
        let now = stored(&load).await;
        if now.len() != all.len() {
            (all, settled) = (now, Instant::now());
        }
        let missing = wanted.iter().filter(|(path, part)| {
            let processed = receiver.processed.lock().unwrap();
            let seqs = processed.get(path).map(|requests| first_of_each(requests).0).unwrap_or_default();
            seqs.last() != expected(&all, *part).last()
        });
        let missing = missing.count();
        if missing == 0 && settled.elapsed() > Duration::from_secs(10) {
            break;
        }
        assert!(Instant::now() < deadline, "{missing} subscriptions lack events");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let mut repeated = 0;
    for (path, part) in &wanted {
        let (first, again) = first_of_each(&receiver.processed.lock().unwrap()[path]);
        assert_eq!(first, expected(&all, *part), "{path}: each event once, in order, but for what was repeated");
        repeated += again;
    }
    println!(
        "{} events to {subscriptions} subscriptions, {kills} kills of each kind: {repeated} arrived again",
        all.len()
    );
    assert!(all.len() > load.size.feeds, "the feeds published");
    for role in schedulers {
        role.stop().await;
    }
}
