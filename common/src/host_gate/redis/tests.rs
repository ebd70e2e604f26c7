//! The conformance suite over a real server, and what only shows over several processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use super::*;
use crate::config::ServerConfig;
use crate::host::HostLimits;
use crate::redis::testing::{CuttingProxy, PrivateServer, shared};
use crate::time::{Clock, SystemClock};
use crate::url::FeedId;

crate::host_gate_conformance!(|| async { RedisGate::new(shared(), Duration::ZERO).on_callers_time() });

/// Far beyond what a loaded machine needs.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
pub(super) const FETCH: Duration = Duration::from_millis(300);
pub(super) const LIMITS: HostLimits = HostLimits { gap: Duration::from_millis(20), burst: 1, parallel: 2 };

pub(super) fn now() -> Timestamp {
    SystemClock.now()
}

pub(super) fn host() -> HostKey {
    HostKey::new("busy:80")
}

pub(super) async fn reserve(gate: &RedisGate, limits: HostLimits) -> Result<Ticket, Timestamp> {
    reserve_at(gate, limits, now()).await
}

async fn reserve_at(gate: &RedisGate, limits: HostLimits, now: Timestamp) -> Result<Ticket, Timestamp> {
    let request = ReserveRequest { host: host(), limits, expires: now.after(PATIENCE) };
    match gate.reserve(&[request], now).await.unwrap()[0] {
        Reservation::Ticket(ticket) => Ok(ticket),
        Reservation::Refused { until } => Err(until),
    }
}

pub(super) async fn acquire(
    gate: &RedisGate,
    ticket: Ticket,
    feed: i64,
    started: Timestamp,
    fetch: Duration,
) -> Acquired {
    let request = AcquireRequest {
        host: host(),
        limits: LIMITS,
        ticket,
        feed: FeedId(feed),
        version: Version(1),
        deadline: started.after(fetch),
        leased_until: Timestamp::EPOCH,
        nonce: fresh_nonce(),
        isolation: Isolation::Alone,
    };
    gate.acquire(&request, started).await.unwrap()
}

/// Returns whether a hold that was put on the gate until one time ends at the other: later by what the call took, never
/// earlier.
pub(super) fn ends(until: Timestamp, hold: Timestamp) -> bool {
    until >= hold && until.since(hold) < PATIENCE
}

/// Opens the gate as a scheduler does, when it may be opened.
async fn load(gate: &RedisGate) -> bool {
    let Some(mark) = gate.begin_loading(now()).await.unwrap() else { return true };
    gate.open(&mark, now()).await.unwrap()
}

pub(super) async fn opened(gate: &RedisGate) {
    while !load(gate).await {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What the requests at one host looked like.
struct Seen {
    /// The longest that a request may take.
    fetch: Duration,
    /// Between which two times each was granted: by the server's clock, at some moment in between.
    starts: std::sync::Mutex<Vec<(Timestamp, Timestamp)>>,
    /// The starts of the requests in flight.
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

    fn start(&self, asked: Timestamp, at: Timestamp) {
        self.starts.lock().unwrap().push((asked, at));
        let mut flying = self.flying.lock().unwrap();
        flying.push(at);
        // A request that a stall kept beyond its deadline has lost its slot.
        let alive = flying.iter().filter(|start| start.after(self.fetch) > at).count();
        self.most.fetch_max(alive, Ordering::SeqCst);
    }

    fn end(&self, at: Timestamp) {
        let mut flying = self.flying.lock().unwrap();
        let place = flying.iter().position(|start| *start == at).unwrap();
        flying.swap_remove(place);
    }

    /// Waits for this number of starts.
    async fn wait_for(&self, starts: usize) {
        let begun = Instant::now();
        while self.starts.lock().unwrap().len() < starts {
            assert!(begun.elapsed() < PATIENCE, "fewer than {starts} requests");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns how often the host was polled; checks its gap and its concurrency.
    fn judged(&self) -> usize {
        let mut starts = self.starts.lock().unwrap().clone();
        starts.sort_unstable();
        for pair in starts.windows(2) {
            let [(asked, at), (next_asked, next_at)] = [pair[0], pair[1]];
            let apart = next_at.since(asked).max(at.since(next_asked));
            assert!(apart >= LIMITS.gap, "{asked} to {at}, and {next_asked} to {next_at}");
        }
        assert!(self.most.load(Ordering::SeqCst) <= LIMITS.parallel as usize);
        starts.len()
    }
}

/// One of many workers at one host, until enough was seen. Its clock is `ahead`, or behind, by milliseconds.
async fn work(gate: Arc<RedisGate>, seen: Arc<Seen>, feed: i64, ahead: i64) {
    let own_now = || Timestamp::from_millis(now().millis() + ahead);
    while !seen.over.load(Ordering::SeqCst) {
        let Ok(ticket) = reserve_at(&gate, LIMITS, own_now()).await else {
            tokio::time::sleep(Duration::from_millis(3)).await;
            continue;
        };
        let asked = now();
        if let Acquired::Granted(permit) = acquire(&gate, ticket, feed, own_now(), seen.fetch).await {
            let started = now();
            seen.start(asked, started);
            tokio::time::sleep(Duration::from_millis(30)).await;
            seen.end(started);
            gate.release(&permit, Release::default(), own_now()).await.unwrap();
        } else {
            gate.cancel(&host(), ticket, own_now()).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn however_many_processes_ask_and_whatever_their_clocks_say_a_host_keeps_its_gap_and_its_parallelism() {
    let private = PrivateServer::started(&[]);
    let seen = Seen::new(PATIENCE);
    let mut workers = Vec::new();
    for process in 0..4 {
        let gate = Arc::new(RedisGate::new(private.client("hammer"), Duration::ZERO));
        opened(&gate).await;
        for task in 0..6 {
            workers.push(tokio::spawn(work(gate.clone(), seen.clone(), process * 10 + task, (process - 2) * 450)));
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
            workers.push(tokio::spawn(work(gate.clone(), seen.clone(), process * 10 + task, 0)));
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
        meanwhile.retain(|(asked, _)| asked.since(wiped) < FETCH);
        assert!(meanwhile.iter().all(|(asked, _)| asked.since(wiped) < LIMITS.gap), "{meanwhile:?} after {wiped}");
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
    gate.hold(&[(host(), hold)], now()).await.unwrap();
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
    assert!(ends(held_until, hold), "the dump's hold is still one");
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
    proxy.cut_next_answer();
    let hop = ExtraRequest { host: &host(), limits, during: None, deadline: now().after(PATIENCE) };
    let hop = gate.acquire_extra(&hop, now()).await.unwrap().expect("the host is free, but for this very call");
    assert!(proxy.has_cut());
    gate.release(&hop, Release::default(), now()).await.unwrap();
    tokio::time::sleep(LIMITS.gap).await;
    reserve(&gate, limits).await.unwrap();
}

#[tokio::test]
async fn what_an_unanswered_start_without_a_ticket_took_is_given_back_long_before_its_deadline() {
    let private = PrivateServer::started(&[]);
    let proxy = CuttingProxy::before(private.port).await;
    let gate = RedisGate::new(RedisServer::connect(&ServerConfig::at(&proxy.url()), "hop").unwrap(), Duration::ZERO);
    opened(&gate).await;
    tokio::time::sleep(LIMITS.gap).await;
    let (limits, deadline) = (HostLimits { parallel: 1, ..LIMITS }, now().after(PATIENCE));
    let [busy, other] = [host(), HostKey::new("other:80")];
    let hop = |host| ExtraRequest { host, limits, during: None, deadline };
    gate.acquire_extra(&hop(&other), now()).await.unwrap().expect("the server knows the script now");
    proxy.delay_answer_to("busy:443", gate.server.patience() * 2);
    gate.acquire_extra(&hop(&busy), now()).await.unwrap_err();
    assert!(proxy.has_delayed());
    let begun = Instant::now();
    while !matches!(gate.acquire_extra(&hop(&busy), now()).await, Ok(Ok(_))) {
        assert!(begun.elapsed() < PATIENCE / 3, "its slot is still taken");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_user_who_may_touch_gate_keys_only_can_do_all_that_a_worker_does() {
    let private = PrivateServer::started(&[]);
    let rights = crate::redis::rights::of_worker("acl");
    let mut words = vec!["ACL", "SETUSER", "worker", "reset", "on", ">p@ss/word"];
    words.extend(rights.iter().map(String::as_str));
    assert_eq!(private.cli(&words), "OK");
    let url = format!("redis://worker:p%40ss%2Fword@127.0.0.1:{}/", private.port);
    let gate = RedisGate::new(RedisServer::connect(&ServerConfig::at(&url), "acl").unwrap(), Duration::ZERO);
    let scheduler = RedisGate::new(private.client("acl"), Duration::ZERO);
    opened(&scheduler).await;
    tokio::time::sleep(LIMITS.gap).await;

    let ticket = reserve(&scheduler, LIMITS).await.unwrap();
    let Acquired::Granted(permit) = acquire(&gate, ticket, 1, now(), PATIENCE).await else { panic!("not granted") };
    let other = HostKey::new("other:80");
    let hop = ExtraRequest { host: &other, limits: LIMITS, during: Some(&permit), deadline: now().after(PATIENCE) };
    let hop = gate.acquire_extra(&hop, now()).await.unwrap().unwrap();
    gate.hold(&[(host(), now().after(Duration::from_secs(9)))], now()).await.unwrap();
    gate.release(&hop, Release::default(), now()).await.unwrap();
    gate.release(&permit, Release { remembered: Some(PATIENCE), next_start_in: None }, now()).await.unwrap();
    gate.check(&SystemClock).await.unwrap();
    assert_eq!(gate.held(now()).await.unwrap(), 1);

    let elsewhere = RedisGate::new(RedisServer::connect(&ServerConfig::at(&url), "not-acl").unwrap(), Duration::ZERO);
    let refused = elsewhere.begin_loading(now()).await.unwrap_err();
    assert!(matches!(refused, GateError::Backend { action: "say whether it is open", .. }));
    let mut connection = ::redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
    let denied: Result<(), _> = ::redis::cmd("GET").arg("{acl:0/1}:schedule:steady").query_async(&mut connection).await;
    assert!(denied.is_err());
}

#[tokio::test]
async fn a_clock_that_was_ahead_and_was_put_back_counts_as_a_loss() {
    let gate = RedisGate::new(shared(), Duration::ZERO).on_callers_time();
    let right = now();
    let mark = gate.begin_loading(right).await.unwrap().unwrap();
    assert!(gate.open(&mark, right).await.unwrap());
    assert_eq!(gate.begin_loading(right.after(Duration::from_secs(1))).await.unwrap(), None);
    assert_eq!(gate.begin_loading(right.after(Duration::from_millis(800))).await.unwrap(), None, "a clock is adjusted");
    assert_eq!(gate.begin_loading(right.after(Duration::from_secs(600))).await.unwrap(), None);
    // Records that were to last for less than ten minutes have expired.
    let later = right.after(Duration::from_secs(3));
    let mark = gate.begin_loading(later).await.unwrap().expect("a step back counts as a loss");
    assert!(gate.open(&mark, later).await.unwrap());
    assert_eq!(gate.begin_loading(later.after(Duration::from_secs(1))).await.unwrap(), None);
}

#[tokio::test]
async fn an_acquire_that_runs_after_its_caller_gave_up_grants_nothing() {
    let private = PrivateServer::started(&[]);
    let gate = RedisGate::new(RedisServer::connect(&ServerConfig::at(&private.url()), "late").unwrap(), Duration::ZERO);
    opened(&gate).await;
    tokio::time::sleep(LIMITS.gap).await;
    let ticket = reserve(&gate, LIMITS).await.unwrap();
    let asked = now().before(gate.server.patience() + Duration::from_millis(1));
    let other = HostKey::new("other:80");
    let hop = ExtraRequest { host: &other, limits: LIMITS, during: None, deadline: now().after(PATIENCE) };
    assert!(gate.acquire_extra(&hop, asked).await.unwrap().is_err());
    assert!(gate.acquire_extra(&hop, now()).await.unwrap().is_ok());
    assert!(matches!(acquire(&gate, ticket, 1, asked, PATIENCE).await, Acquired::NotNow { .. }));
    assert!(
        matches!(acquire(&gate, ticket, 1, now(), PATIENCE).await, Acquired::Granted(_)),
        "the ticket is still good"
    );
}

/// Also one whose server's clock is ahead for a moment: what it reserved would begin when it is that time.
#[tokio::test]
async fn a_reservation_that_runs_after_its_caller_gave_up_takes_nothing_and_parks_nothing_for_long() {
    let private = PrivateServer::started(&[]);
    let gate = RedisGate::new(RedisServer::connect(&ServerConfig::at(&private.url()), "late").unwrap(), Duration::ZERO);
    let request = ReserveRequest { host: host(), limits: LIMITS, expires: now().after(PATIENCE) };
    let gave_up = now().before(Duration::from_millis(1)).millis();
    for is_open in [false, true] {
        if is_open {
            opened(&gate).await;
            tokio::time::sleep(LIMITS.gap).await;
        }
        let answers = gate.reserve_in(&gate.groups[0], &[(0, &request)], (now(), gave_up)).await.unwrap();
        assert!(matches!(answers[..], [Reservation::Refused { until }] if until.millis() == gave_up), "{answers:?}");
    }
    assert!(reserve(&gate, LIMITS).await.is_ok(), "the host's place is free");
}

#[tokio::test]
async fn a_clock_of_the_server_that_was_ahead_for_a_moment_keeps_no_host_from_its_next_start() {
    let private = PrivateServer::started(&[]);
    let gate = RedisGate::new(RedisServer::connect(&ServerConfig::at(&private.url()), "set").unwrap(), Duration::ZERO);
    gate.open_new(now()).await.unwrap();
    // By the callers' clocks, the server's is ten minutes ahead.
    let (ahead, gap) = (Duration::from_secs(600), Duration::from_secs(60));
    let limits = HostLimits { gap, ..LIMITS };
    let ticket = reserve(&gate, limits).await.unwrap();
    let Acquired::Granted(permit) = acquire(&gate, ticket, 1, now(), PATIENCE).await else { panic!("not granted") };
    let release = Release { remembered: None, next_start_in: Some(Duration::from_secs(660)) };
    gate.release(&permit, release, now().before(ahead)).await.unwrap();
    let until = reserve(&gate, limits).await.unwrap_err();
    assert!(until <= now().after(Duration::from_secs(62)), "{until} counts from the server's clock");
}

#[tokio::test]
async fn a_host_has_a_bounded_number_of_places_whatever_its_rule_says() {
    let gate = RedisGate::new(shared(), Duration::ZERO);
    opened(&gate).await;
    let limits = HostLimits { gap: Duration::ZERO, burst: 1, parallel: 100_000 };
    let request = ReserveRequest { host: host(), limits, expires: now().after(PATIENCE) };
    let requests = vec![request; 600];
    let mut places = 0;
    for _ in 0..3 {
        let begun = Instant::now();
        let answers = gate.reserve(&requests, now()).await.unwrap();
        println!("600 reservations at a host with {places} places: {:?}", begun.elapsed());
        places += answers.iter().filter(|answer| matches!(answer, Reservation::Ticket(_))).count();
    }
    assert_eq!(places, 1000);
}

#[tokio::test]
async fn a_hold_lasts_as_long_as_was_asked_whatever_the_callers_clock_says() {
    let private = PrivateServer::started(&[]);
    let gate = RedisGate::new(private.client("skewed"), Duration::ZERO);
    gate.open_new(now()).await.unwrap();
    let (lasts, skew) = (Duration::from_secs(60), Duration::from_millis(900));
    for (n, error) in [-1_i32, 0, 1].into_iter().enumerate() {
        let begun = now();
        let caller = if error < 0 { begun.before(skew) } else { begun.after(skew * error.unsigned_abs()) };
        let host = HostKey::new(&format!("h{n}:80"));
        gate.hold(&[(host.clone(), caller.after(lasts))], caller).await.unwrap();
        let request = ReserveRequest { host, limits: LIMITS, expires: begun.after(PATIENCE) };
        let Reservation::Refused { until } = gate.reserve(&[request], now()).await.unwrap()[0] else {
            panic!("not held")
        };
        assert!(until >= begun.after(lasts) && until <= now().after(lasts), "{error}: {until} from {begun} on");
    }

    // The server's clock is ten minutes ahead or behind for a moment, and then the caller's counts: it is checked each second.
    let (set, second) = (Duration::from_secs(600), Duration::from_secs(1));
    let begun = now();
    for (name, caller) in [("ahead:80", begun.before(set)), ("behind:80", begun.after(set))] {
        let (host, till) = (HostKey::new(name), caller.after(lasts));
        gate.hold(&[(host.clone(), till)], caller).await.unwrap();
        let request = ReserveRequest { host, limits: LIMITS, expires: begun.after(PATIENCE) };
        match gate.reserve(&[request], now()).await.unwrap()[0] {
            Reservation::Refused { until } => assert_eq!(until, till.before(second), "{name}"),
            Reservation::Ticket(_) => assert!(till.after(second) < now(), "{name}"),
        }
    }
}
