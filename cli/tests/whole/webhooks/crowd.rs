//! Many targets, of which some never answer, fail, or drip: the others do not notice.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::time::{Clock, SystemClock, Timestamp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::receiver::Received;
use super::{Receiver, Reply, busy, home, operator, received};

/// Returns the size: a short form among all tests, the long one in `dev/soak` (`SOAK_TARGETS`).
fn targets() -> usize {
    std::env::var("SOAK_TARGETS").map_or(20, |text| text.parse().expect("SOAK_TARGETS must be a number"))
}

/// From an event's commit to its arrival, in seconds, the shortest first.
fn lags(log: &[Received]) -> Vec<f64> {
    let mut lags: Vec<f64> = Vec::new();
    for request in log {
        for event in request.events() {
            let at: Timestamp = serde_json::from_value(event["at"].clone()).unwrap();
            lags.push(request.at.since(at).as_secs_f64());
        }
    }
    lags.sort_by(f64::total_cmp);
    lags
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_and_dead_targets_delay_nobody_else() {
    let all = targets();
    let bad = all / 10;
    // The lane of slow targets has as many slots as there are dead ones: these fill it, and all other bad ones wait for it.
    // Bad targets of one kind share a host, whose limit must not keep some of them from being tried. Each good one has its own.
    let (concurrency, parallel) = ((2 * bad).max(4), 2 * bad);
    let limits = format!("timeout = \"30s\"\ntarget_gap = \"1ms\"\ntarget_parallel = {parallel}");
    let home = home(&format!("concurrency = {concurrency}\n{limits}"));
    let mut receivers = vec![Receiver::on_hosts(all - 3 * bad).await];
    for _ in 0..3 {
        receivers.push(Receiver::listen().await);
    }
    let [good, dead, failing, dripping] = &receivers[..] else { unreachable!() };
    let (_origin, urls) = busy(5).await;
    let mut fleet = home.start(&[]);
    let mut paths = Vec::new();
    for number in 0..all {
        let path = format!("/{number}");
        let (receiver, reply) = match number {
            number if number < bad => (dead, Reply::Hang),
            number if number < 2 * bad => (failing, Reply::Status(500)),
            number if number < 3 * bad => (dripping, Reply::Drip),
            _ => (good, Reply::Status(204)),
        };
        receiver.set(&path, &[reply]);
        let host = number.saturating_sub(3 * bad);
        operator(&home, &fleet, &["subscription", "add", &receiver.url_on(host, &path), "--kind", "entry.*"]);
        if number >= 3 * bad {
            paths.push(path);
        }
    }
    for url in &urls {
        operator(&home, &fleet, &["feed", "add", url]);
    }
    let mut log = Vec::new();
    for path in &paths {
        log.extend(received(&mut fleet, good, path, 12).await);
    }
    let lags = lags(&log);
    let at = |percent: usize| lags[(lags.len() - 1) * percent / 100];
    let (median, p99) = (at(50), at(99));
    let (memory, at_once) =
        (fleet.peak_memory() >> 20, receivers.iter().map(Receiver::most_at_once).collect::<Vec<_>>());
    println!("{} deliveries of {} targets: median {median:.3} s, p99 {p99:.3} s", lags.len(), paths.len());
    println!(
        "peak memory {memory} MiB; the most requests at once to good, dead, failing and dripping targets: {at_once:?}"
    );
    // A target that waits for a dead one's slot waits for up to 30 s. The short form runs beside other tests.
    let longest = if all >= 1_000 { 2.0 } else { 10.0 };
    assert!(p99 < longest, "median {median}, p99 {p99}");
    assert!(memory < 1_024, "{memory} MiB");
    assert!(at_once.iter().all(|most| *most <= parallel), "{at_once:?}, more than {parallel}");
    let dead_one = operator(&home, &fleet, &["subscription", "show", "1"]);
    assert_eq!(dead_one["delivered"], 0);
    for number in 0..3 * bad {
        let receiver = [dead, failing, dripping][number / bad];
        assert!(!receiver.log(&format!("/{number}")).is_empty(), "target {number} was tried");
    }
    fleet.kill();
}

/// A server whose responses begin, and whose heads never end: a byte every 100 ms.
struct DrippingHead {
    address: SocketAddr,
    starts: Arc<Mutex<Vec<Timestamp>>>,
}

impl DrippingHead {
    async fn listen() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let starts: Arc<Mutex<Vec<Timestamp>>> = Arc::default();
        let log = Arc::clone(&starts);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                log.lock().unwrap().push(SystemClock.now());
                tokio::spawn(async move {
                    let _ = stream.read(&mut [0; 4096]).await;
                    let mut bytes: &[u8] = b"HTTP/1.1 204 No Content\r\nx: ";
                    while stream.write_all(bytes).await.is_ok() {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        bytes = b"x";
                    }
                });
            }
        });
        DrippingHead { address, starts }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_target_host_gets_more_requests_at_once_or_sooner_than_its_limits_allow() {
    const PARALLEL: usize = 4;
    let limits = format!("timeout = \"6s\"\ntarget_gap = \"500ms\"\ntarget_parallel = {PARALLEL}");
    let home = home(&limits);
    let (silent, good, dripping) = (Receiver::listen().await, Receiver::listen().await, DrippingHead::listen().await);
    let (_origin, urls) = busy(1).await;
    let mut fleet = home.start(&[]);
    let mut silent_paths = Vec::new();
    for number in 0..20 {
        let path = format!("/{number}");
        silent.set(&path, &[Reply::Hang]);
        operator(&home, &fleet, &["subscription", "add", &silent.url(&path)]);
        let target = format!("http://{}{path}", dripping.address);
        operator(&home, &fleet, &["subscription", "add", &target]);
        silent_paths.push(path);
    }
    operator(&home, &fleet, &["subscription", "add", &good.url("/good")]);
    operator(&home, &fleet, &["feed", "add", &urls[0]]);
    // Each host has more than two rounds of timeouts by then.
    let at_silent = |receiver: &Receiver| -> Vec<Timestamp> {
        silent_paths.iter().flat_map(|path| receiver.log(path)).map(|request| request.at).collect()
    };
    let wanted = 2 * PARALLEL + 1;
    let starts = fleet
        .wait_for("requests to both hosts", async |_| {
            let both = [at_silent(&silent), dripping.starts.lock().unwrap().clone()];
            both.iter().all(|starts| starts.len() >= wanted).then_some(both)
        })
        .await;
    assert!(!good.log("/good").is_empty(), "others do not wait for these");
    for mut starts in starts {
        starts.sort();
        // A request that never ends has its slot for 6 s. What is measured is the arrival, which may be late on a busy machine.
        let at_once = |from: &Timestamp| {
            let until = from.after(Duration::from_secs(4));
            starts.iter().filter(|at| (*from..until).contains(*at)).count()
        };
        assert_eq!(starts.iter().map(at_once).max(), Some(PARALLEL), "{starts:?}");
        let mut gaps = starts.windows(2).map(|pair| pair[1].since(pair[0]));
        assert!(gaps.all(|gap| gap >= Duration::from_millis(150)), "{starts:?}");
    }
    fleet.kill();
}
