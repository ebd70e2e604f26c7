//! kill -9 at random moments of a busy run, repeatedly: nothing is lost, nothing is duplicated, and the politeness
//! rules hold.
//!
//! Between two runs the test reads the store; the next run is judged by what was committed. A fetch that was not
//! committed when its process was killed may be repeated once: it shows as a poll whose due time is still the old one.
//!
//! Starts are judged by the history of the gate's grants, to the millisecond. The origin sees arrivals, and confirms them roughly.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use common::feed::Feed;
use common::testing::draw::Draw;
use common::time::Timestamp;
use common::url::FeedUrl;
use load_tests::{Format, Origin, Pace, Record, Script, Stalls, loopback};

use crate::harness::{Home, PATIENCE, Stored, watch_stalls};

/// The size: a short form among all tests, the long one in `dev/soak`.
struct Size {
    kills: usize,
    feeds: usize,
    hosts: u16,
}

impl Size {
    /// Reads `SOAK_KILLS`, `SOAK_FEEDS` and `SOAK_HOSTS`, or returns the short form.
    fn from_environment() -> Self {
        let number = |name: &str, short: u16| match std::env::var(name) {
            Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} must be a number below 65536, not {text}")),
            Err(_) => short,
        };
        Size {
            kills: number("SOAK_KILLS", 20).into(),
            feeds: number("SOAK_FEEDS", 120).into(),
            hosts: number("SOAK_HOSTS", 30),
        }
    }
}

/// The minimum time between two polls of a feed.
const INTERVAL: Duration = Duration::from_secs(2);
const GAP: Duration = Duration::from_millis(500);
/// What the origin sees confirms the history of the gate, but it sees arrivals, and the first of two may be late on a
/// loaded machine: by `INTERVAL_NOISE` with a new connection, and by `GAP_NOISE` for the last step onto the network, besides
/// stalls. A real violation would arrive without any distance.
const INTERVAL_NOISE: Duration = Duration::from_millis(1500);
const GAP_NOISE: Duration = Duration::from_millis(420);

const CONFIG: &str = r#"
[policy]
mode = "classes"
min_interval = "2s"
salt = 0.1
hot_minutes = false
no_validator_factor = 1.0
import_spread = "0s"
[policy.category.d]
interval = "2s"
interval_max = "2s"
[host]
gap = "500ms"
# Longer than a restart takes: a new process must not ask this host because it knows of no request.
[[host_rule]]
match = "127.0.0.1"
gap = "1500ms"
[worker]
concurrency = 64
[log]
level = "info,gate=trace"
"#;

fn gap_of(host: std::net::SocketAddr) -> Duration {
    if host.ip() == std::net::Ipv4Addr::LOCALHOST { Duration::from_millis(1500) } else { GAP }
}

/// What the store had committed for a feed when its process was dead.
struct Committed {
    next_due: Timestamp,
    has_validators: bool,
}

#[derive(Debug, Default)]
struct Verdict {
    early: Vec<String>,
    unconditional: Vec<String>,
    too_close: Vec<String>,
    overlapping: Vec<String>,
}

async fn busy_origin(size: &Size) -> (Origin, Vec<String>) {
    let origin = Origin::listen(&loopback(size.hosts, 0)).await.unwrap();
    let formats = [Format::Rss, Format::Atom, Format::Json];
    let mut urls = Vec::new();
    for n in 0..size.feeds {
        let path = format!("/feed{n}");
        let feed = load_tests::Feed::new(formats[n % 3])
            .initial(3)
            .shown(1000)
            .pace(Pace::Every(Duration::from_millis(900 + 37 * (n % 400) as u64)));
        origin.set(&path, Script::feed(feed));
        urls.push(origin.url_on(n % usize::from(size.hosts), &path));
    }
    (origin, urls)
}

fn path_of(url: &FeedUrl) -> String {
    url.as_url().path().to_owned()
}

async fn committed(home: &Home, stored: &mut Stored) -> HashMap<String, Committed> {
    let remember = |feed: Feed| {
        stored.add(&feed);
        let next_due = feed.next_due.expect("every feed of this origin is live");
        (path_of(&feed.url), Committed { next_due, has_validators: !feed.validators.is_empty() })
    };
    home.feeds().await.into_iter().map(remember).collect()
}

/// Judges the requests of one run by what was committed before it, and by each other.
fn judge_run(requests: &[Record], before: &HashMap<String, Committed>, stalls: &Stalls, verdict: &mut Verdict) {
    let mut by_path: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    for request in requests {
        by_path.entry(request.target()).or_default().push(request);
    }
    for (path, requests) in by_path {
        if let Some(committed) = before.get(path) {
            // The origin uses another of the machine's clocks, in whole milliseconds.
            if requests[0].wall.after(Duration::from_millis(2)) < committed.next_due {
                verdict.early.push(format!("{path} at {} was due at {}", requests[0].wall, committed.next_due));
            }
            if committed.has_validators && !requests[0].is_conditional() {
                verdict.unconditional.push(format!("{path} at {}", requests[0].wall));
            }
        }
        for pair in requests.windows(2) {
            let apart = pair[1].wall.since(pair[0].wall);
            if apart + INTERVAL_NOISE + stalls.near(pair[0].start) < INTERVAL {
                verdict.early.push(format!("{path} at {} again after {apart:?}", pair[1].wall));
            }
            if !pair[1].is_conditional() {
                verdict.unconditional.push(format!("{path} at {} again", pair[1].wall));
            }
        }
    }
}

/// Judges each host over all runs: starts are a gap apart, and requests never overlap.
fn judge_hosts(requests: &[Record], stalls: &Stalls, verdict: &mut Verdict) {
    let mut by_host: BTreeMap<_, Vec<&Record>> = BTreeMap::new();
    for request in requests {
        by_host.entry(request.local).or_default().push(request);
    }
    for (host, mut requests) in by_host {
        requests.sort_by_key(|request| request.start);
        for pair in requests.windows(2) {
            let apart = pair[1].start - pair[0].start;
            if apart + GAP_NOISE + stalls.near(pair[0].start) < gap_of(host) {
                verdict.too_close.push(format!("{host}: {apart:?} apart at {}", pair[1].wall));
            }
            if pair[0].end.is_some_and(|end| end > pair[1].start) {
                verdict.overlapping.push(format!("{host} at {}", pair[1].wall));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_again_and_again_nothing_is_lost_doubled_early_or_unconditional() {
    let size = Size::from_environment();
    let (origin, urls) = busy_origin(&size).await;
    let stalls = watch_stalls(&origin);
    let home = Home::new(CONFIG);
    let opml = home.opml(urls);
    let mut draw = Draw(20_261_120);
    let (mut verdict, mut stored) = (Verdict::default(), Stored::default());
    let mut before = HashMap::new();
    let mut judged = 0;
    for kill in 0..size.kills {
        let sources = [opml.as_str()];
        let fleet = home.start(if kill == 0 { &sources } else { &[] });
        fleet.watch(&stalls);
        let begun = origin.wait_for_total(judged + 10 + draw.below(60), PATIENCE).await;
        assert!(begun, "it does not poll:\n{}", fleet.stderr());
        tokio::time::sleep(Duration::from_millis(300 + draw.below(1500) as u64)).await;
        fleet.kill();
        let log = origin.log();
        judge_run(&log[judged..], &before, &stalls.seen(), &mut verdict);
        judged = log.len();
        assert_eq!(home.integrity().await, "ok", "after kill {kill}");
        before = committed(&home, &mut stored).await;
        assert_eq!(before.len(), size.feeds, "after kill {kill}");
        if kill % 10 == 9 {
            println!("{} of {} kills, {} requests", kill + 1, size.kills, log.len());
        }
    }

    // One run to the end: everything that has been published by now must be stored.
    let mut fleet = home.start(&[]);
    fleet.watch(&stalls);
    let truth: HashMap<String, Vec<String>> = (0..size.feeds)
        .map(|n| format!("/feed{n}"))
        .map(|path| (path.clone(), origin.truth(&path).into_iter().map(|item| item.id).collect()))
        .collect();
    let polls_so_far: HashMap<String, usize> =
        truth.keys().map(|path| (path.clone(), origin.requests(path).len())).collect();
    fleet
        .wait_for("two polls of every feed", async |_| {
            polls_so_far.iter().all(|(path, polls)| origin.requests(path).len() >= polls + 2).then_some(())
        })
        .await;
    fleet.stop();
    let log = origin.log();
    let stalls = stalls.seen();
    judge_run(&log[judged..], &before, &stalls, &mut verdict);
    judge_hosts(&log, &stalls, &mut verdict);
    let proof = stored.prove(&home, &log, &gap_of, INTERVAL);

    let feeds = home.feeds().await;
    let (mut missing, mut doubled) = (Vec::new(), Vec::new());
    for feed in &feeds {
        let path = path_of(&feed.url);
        let mut stored: HashMap<String, usize> = HashMap::new();
        for entry in home.entries(Some(feed.id)).await {
            *stored.entry(entry.entry.id).or_default() += 1;
        }
        missing.extend(truth[&path].iter().filter(|id| !stored.contains_key(*id)).map(|id| format!("{path} {id}")));
        doubled.extend(stored.into_iter().filter(|(_, times)| *times > 1).map(|(id, _)| format!("{path} {id}")));
    }
    assert_eq!(home.integrity().await, "ok");
    let entries: usize = truth.values().map(Vec::len).sum();
    println!(
        "{} kills, {} feeds, {} hosts, {} requests, {entries} entries published: missing {}, doubled {}, \
         early {}, unconditional {}, too close {}, overlapping {}",
        size.kills,
        size.feeds,
        size.hosts,
        log.len(),
        missing.len(),
        doubled.len(),
        verdict.early.len(),
        verdict.unconditional.len(),
        verdict.too_close.len(),
        verdict.overlapping.len(),
    );
    assert!(log.len() > size.feeds * 5, "the run was not busy: {} requests", log.len());
    assert!(missing.is_empty(), "missing: {missing:?}");
    assert!(doubled.is_empty(), "doubled: {doubled:?}");
    proof.assert_holds();
    assert!(verdict.early.is_empty(), "early: {:?}", verdict.early);
    assert!(verdict.unconditional.is_empty(), "unconditional: {:?}", verdict.unconditional);
    assert!(verdict.too_close.is_empty(), "too close: {:?}", verdict.too_close);
    assert!(verdict.overlapping.is_empty(), "overlapping: {:?}", verdict.overlapping);
}
