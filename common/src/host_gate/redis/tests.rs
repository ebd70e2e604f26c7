//! The conformance suite over a real server, and what only shows over several processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use super::*;
use crate::host::HostLimits;
use crate::redis::testing::{CuttingProxy, PrivateServer, shared};
use crate::time::{Clock, SystemClock};

crate::host_gate_conformance!(|| async { RedisGate::new(shared(), Duration::ZERO) });

/// Far beyond what a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(120);
const FETCH: Duration = Duration::from_millis(300);
const LIMITS: HostLimits = HostLimits { gap: Duration::from_millis(20), burst: 1, parallel: 2 };

fn now() -> Timestamp {
    SystemClock.now()
}

fn host() -> HostKey {
    HostKey::new("busy:80")
}

async fn reserve(gate: &RedisGate, limits: HostLimits) -> Result<Ticket, Timestamp> {
    let request = ReserveRequest { host: host(), limits, expires: now().after(PATIENCE) };
    match gate.reserve(&[request], now()).await.unwrap()[0] {
        Reservation::Ticket(ticket) => Ok(ticket),
        Reservation::Refused { until } => Err(until),
    }
}

async fn acquire(gate: &RedisGate, ticket: Ticket, feed: i64, started: Timestamp, fetch: Duration) -> Acquired {
    let request = AcquireRequest {
        host: host(),
        limits: LIMITS,
        ticket,
        feed: FeedId(feed),
        version: Version(1),
        deadline: started.after(fetch),
    };
    gate.acquire(&request, started).await.unwrap()
}

/// Opens the gate as a scheduler does, when it may be opened.
async fn load(gate: &RedisGate) -> bool {
    let Some(mark) = gate.begin_loading(now()).await.unwrap() else { return true };
    gate.open(&mark, now()).await.unwrap()
}

async fn opened(gate: &RedisGate) {
    while !load(gate).await {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What the requests at one host looked like.
struct Seen {
    /// The longest that a request may take.
    fetch: Duration,
    starts: std::sync::Mutex<Vec<Timestamp>>,
    /// The starts of those under way.
    flying: std::sync::Mutex<Vec<Timestamp>>,
    most: AtomicUsize,
    /// Enough was seen.
    over: AtomicBool,
}

impl Seen {
    fn new(fetch: Duration) -> Arc<Self> {
        let (starts, flying) = Default::default();
        Arc::new(Seen { fetch, starts, flying, most: AtomicUsize::new(0), over: AtomicBool::new(false) })
    }

    fn start(&self, at: Timestamp) {
        self.starts.lock().unwrap().push(at);
        let mut flying = self.flying.lock().unwrap();
        flying.push(at);
        // One that a stall kept beyond its deadline has lost its place.
        let alive = flying.iter().filter(|start| start.after(self.fetch) > at).count();
        self.most.fetch_max(alive, Ordering::SeqCst);
    }

    fn end(&self, at: Timestamp) {
        let mut flying = self.flying.lock().unwrap();
        let place = flying.iter().position(|start| *start == at).unwrap();
        flying.swap_remove(place);
    }

    /// Waits for so many starts.
    async fn wait_for(&self, starts: usize) {
        let begun = Instant::now();
        while self.starts.lock().unwrap().len() < starts {
            assert!(begun.elapsed() < PATIENCE, "fewer than {starts} requests");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// How often the host was asked; checks its gap and its parallelism.
    fn judged(&self) -> usize {
        let mut starts = self.starts.lock().unwrap().clone();
        starts.sort_unstable();
        for pair in starts.windows(2) {
            assert!(pair[1].since(pair[0]) >= LIMITS.gap, "{} and {}", pair[0], pair[1]);
        }
        assert!(self.most.load(Ordering::SeqCst) <= LIMITS.parallel as usize);
        starts.len()
    }
}

/// One of many workers at one host, until enough was seen.
async fn work(gate: Arc<RedisGate>, seen: Arc<Seen>, feed: i64) {
    while !seen.over.load(Ordering::SeqCst) {
        let Ok(ticket) = reserve(&gate, LIMITS).await else {
            tokio::time::sleep(Duration::from_millis(3)).await;
            continue;
        };
        let started = now();
        if let Acquired::Granted(permit) = acquire(&gate, ticket, feed, started, seen.fetch).await {
            seen.start(started);
            tokio::time::sleep(Duration::from_millis(30)).await;
            seen.end(started);
            gate.release(&permit, Release::default(), now()).await.unwrap();
        } else {
            gate.cancel(&host(), ticket, now()).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn however_many_processes_ask_a_host_keeps_its_gap_and_its_parallelism() {
    let private = PrivateServer::started(&[]);
    let seen = Seen::new(PATIENCE);
    let mut workers = Vec::new();
    for process in 0..4 {
        let gate = Arc::new(RedisGate::new(private.client("hammer"), Duration::ZERO));
        opened(&gate).await;
        for task in 0..6 {
            workers.push(tokio::spawn(work(gate.clone(), seen.clone(), process * 10 + task)));
        }
    }
    // Two seconds' worth, if nothing else runs on this machine.
    seen.wait_for(100).await;
    seen.over.store(true, Ordering::SeqCst);
    for worker in workers {
        worker.await.unwrap();
    }
    seen.judged();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let keys = private.cli(&["KEYS", "*"]);
    for key in keys.lines().filter(|key| !key.ends_with(":open")) {
        assert!(key.starts_with("{hammer}:gate:"), "{key}");
        // It may be gone by now.
        assert_ne!(private.cli(&["PTTL", key]).parse::<i64>().unwrap(), -1, "{key} stays for ever");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn emptied_under_load_the_gate_refuses_until_all_requests_are_over_and_no_gap_is_broken() {
    let private = PrivateServer::started(&[]);
    let seen = Seen::new(FETCH);
    let mut workers = Vec::new();
    for process in 0..3 {
        let gate = Arc::new(RedisGate::new(private.client("wiped"), FETCH));
        opened(&gate).await;
        for task in 0..4 {
            workers.push(tokio::spawn(work(gate.clone(), seen.clone(), process * 10 + task)));
        }
    }
    let loader = RedisGate::new(private.client("wiped"), FETCH);
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        private.cli(&["FLUSHALL"]);
        let wiped = now();
        let before = seen.starts.lock().unwrap().len();
        opened(&loader).await;
        let opened_after = now().since(wiped);
        assert!(opened_after >= FETCH, "opened after {opened_after:?}");
        // Since it is open, others may have started.
        let mut meanwhile = seen.starts.lock().unwrap()[before..].to_vec();
        meanwhile.retain(|start| start.since(wiped) < FETCH);
        assert!(meanwhile.iter().all(|start| start.since(wiped) < LIMITS.gap), "{meanwhile:?} after {wiped}");
    }
    let starts = seen.starts.lock().unwrap().len();
    seen.wait_for(starts + 5).await;
    seen.over.store(true, Ordering::SeqCst);
    for worker in workers {
        worker.await.unwrap();
    }
    seen.judged();
}

#[tokio::test]
async fn a_loading_that_a_wipe_overtook_does_not_open_the_gate() {
    let private = PrivateServer::started(&[]);
    let (one, other) = (private.client("load"), private.client("load"));
    let (one, other) = (RedisGate::new(one, Duration::ZERO), RedisGate::new(other, Duration::ZERO));
    let mark = one.begin_loading(now()).await.unwrap().unwrap();
    private.cli(&["FLUSHALL"]);
    assert!(!one.open(&mark, now()).await.unwrap());
    let newer = other.begin_loading(now()).await.unwrap().unwrap();
    assert!(!one.open(&mark, now()).await.unwrap());
    assert!(other.open(&newer, now()).await.unwrap());
    assert!(other.open(&newer, now()).await.unwrap(), "a repeated opening is none the worse");
    assert_eq!(one.begin_loading(now()).await.unwrap(), None);
}

#[tokio::test]
async fn a_restart_brings_no_open_gate_along_even_with_its_dump() {
    let mut private = PrivateServer::started(&[]);
    let gate = RedisGate::new(private.client("restart"), Duration::ZERO);
    opened(&gate).await;
    let hold = now().after(Duration::from_secs(3600));
    gate.hold(&host(), hold, now()).await.unwrap();
    private.dump();
    private.kill();
    assert!(gate.begin_loading(now()).await.is_err());
    private.start();
    let held_until = loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        if let Ok(mark) = gate.begin_loading(now()).await {
            let mark = mark.expect("the dump brought an open gate along");
            assert!(reserve(&gate, LIMITS).await.unwrap_err() < hold, "closed, whatever is held");
            assert!(gate.open(&mark, now()).await.unwrap());
            break reserve(&gate, LIMITS).await.unwrap_err();
        }
    };
    assert_eq!(held_until, hold, "the dump's hold is still one");
}

#[tokio::test]
async fn a_call_whose_answer_was_lost_is_sent_again_and_takes_nothing_twice() {
    let private = PrivateServer::started(&[]);
    let proxy = CuttingProxy::before(private.port).await;
    let gate = RedisGate::new(proxy.client("lost"), Duration::ZERO);
    opened(&gate).await;
    let limits = HostLimits { parallel: 1, ..LIMITS };
    tokio::time::sleep(LIMITS.gap).await;

    proxy.cut_next_answer();
    let ticket = reserve(&gate, limits).await.unwrap();
    assert!(proxy.has_cut());
    tokio::time::sleep(LIMITS.gap).await;
    assert!(reserve(&gate, limits).await.is_err());
    proxy.cut_next_answer();
    let started = now();
    let Acquired::Granted(permit) = acquire(&gate, ticket, 1, started, PATIENCE).await else { panic!("not granted") };
    assert!(proxy.has_cut());
    proxy.cut_next_answer();
    gate.release(&permit, Release::default(), now()).await.unwrap();
    assert!(proxy.has_cut());
    tokio::time::sleep(LIMITS.gap).await;
    reserve(&gate, limits).await.unwrap();
}

#[tokio::test]
async fn a_user_who_may_touch_gate_keys_only_can_do_all_that_a_worker_does() {
    let private = PrivateServer::started(&[]);
    let rights = "~{acl}:gate:* resetchannels -@all +get +set +del +zadd +zrange +zremrangebyscore +zcount +pexpire \
                  +time +info +eval +evalsha +script|load";
    let mut words = vec!["ACL", "SETUSER", "worker", "on", ">p@ss/word"];
    words.extend(rights.split_whitespace());
    assert_eq!(private.cli(&words), "OK");
    let url = format!("redis://worker:p%40ss%2Fword@127.0.0.1:{}/", private.port);
    let gate = RedisGate::new(RedisServer::connect(&url, "acl").unwrap(), Duration::ZERO);
    let scheduler = RedisGate::new(private.client("acl"), Duration::ZERO);
    opened(&scheduler).await;
    tokio::time::sleep(LIMITS.gap).await;

    let ticket = reserve(&scheduler, LIMITS).await.unwrap();
    let Acquired::Granted(permit) = acquire(&gate, ticket, 1, now(), PATIENCE).await else { panic!("not granted") };
    let other = HostKey::new("other:80");
    let hop = ExtraRequest { host: &other, limits: LIMITS, during: Some(&permit), deadline: now().after(PATIENCE) };
    let hop = gate.acquire_extra(&hop, now()).await.unwrap().unwrap();
    gate.hold(&host(), now().after(Duration::from_secs(9)), now()).await.unwrap();
    gate.release(&hop, Release::default(), now()).await.unwrap();
    gate.release(&permit, Release { remember_until: Some(now().after(PATIENCE)), next_start: None }, now())
        .await
        .unwrap();
    gate.check(now()).await.unwrap();
    assert_eq!(gate.held(now()).await.unwrap(), 1);

    let elsewhere = RedisGate::new(RedisServer::connect(&url, "not-acl").unwrap(), Duration::ZERO);
    let refused = elsewhere.begin_loading(now()).await.unwrap_err();
    assert!(matches!(refused, GateError::Backend { action: "say whether it is open", .. }));
    let mut connection = ::redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
    let denied: Result<(), _> = ::redis::cmd("GET").arg("{acl:0/1}:schedule:steady").query_async(&mut connection).await;
    assert!(denied.is_err());
}
