//! Hostile servers among many good ones: nothing aborts, memory stays bounded, and polls of the good ones are hardly
//! delayed.

use std::collections::HashMap;
use std::time::Duration;

use common::config::defaults;
use common::host::HostRules;
use common::policy::{Audience, PollState};
use common::time::{Clock, SystemClock, Timestamp};
use common::url::FeedUrl;
use load_tests::{Coding, Delivery, Feed, Origin, Pace, Script, bodies, loopback};
use store::NewFeed;

use crate::harness::{Fleet, Home, PATIENCE};
use store::Feeds;

mod outside;

use outside::{Ending, Outside};

/// The size: a short form among all tests, the long one in `dev/soak`.
struct Size {
    good: usize,
    hosts: u16,
    /// Hostile feeds of each kind. Each has a separate host, because a misbehaving host delays only its own feeds. So all of
    /// them are polled at once.
    of_each_kind: u16,
    /// The number of polls of good feeds per measurement.
    polls: f64,
    /// Measurements of each kind, alternating.
    runs: u32,
    good_interval: Duration,
    hostile_interval: Duration,
    /// By this time the first round of the good feeds, all due at once, has ended.
    hostile_after: Duration,
    concurrency: u64,
    large_body_bytes: u64,
}

impl Size {
    /// Chooses the long form if `SOAK=1` is set.
    fn pick() -> Self {
        match std::env::var_os("SOAK") {
            None => Size {
                good: 1000,
                hosts: 250,
                of_each_kind: 1,
                polls: 3000.0,
                runs: 1,
                good_interval: Duration::from_secs(4),
                hostile_interval: Duration::from_secs(3),
                hostile_after: Duration::ZERO,
                concurrency: 64,
                large_body_bytes: 1_000_000,
            },
            Some(_) => Size {
                good: 5000,
                hosts: 1000,
                of_each_kind: 50,
                polls: 40_000.0,
                runs: 4,
                good_interval: Duration::from_secs(10),
                hostile_interval: Duration::from_secs(30),
                hostile_after: Duration::from_secs(15),
                concurrency: 1024,
                large_body_bytes: 100_000,
            },
        }
    }

    /// Good feeds are in category C, hostile ones in D, so that their lag is measured separately.
    fn config(&self) -> String {
        let seconds = |interval: Duration| format!("\"{}s\"", interval.as_secs());
        let (good, hostile) = (seconds(self.good_interval), seconds(self.hostile_interval));
        format!(
            r#"
[policy]
mode = "classes"
min_interval = "1s"
hot_minutes = false
no_validator_factor = 1.0
[policy.category.c]
interval = {good}
interval_max = {good}
[policy.category.d]
interval = {hostile}
interval_max = {hostile}
[policy.penalty]
transient_first = {hostile}
box_after = 1000
box = {hostile}
server_error = {hostile}
not_found = {hostile}
client_error = {hostile}
bad_feed = {hostile}
throttled = {hostile}
ceiling = {hostile}
[host]
gap = "10ms"
[worker]
concurrency = {}
"#,
            self.concurrency
        )
    }

    fn fetch(&self, outside: &Outside) -> String {
        format!(
            r#"
name_servers = ["{}"]
timeout = "{timeout}s"
connect_timeout = "{timeout}s"
idle_timeout = "{timeout}s"
large_body_bytes = {large}
large_bodies = {LARGE_BODIES}
max_wire_bytes = {MAX_WIRE_BYTES}
max_header_bytes = {MAX_HEADER_BYTES}
parsers = {PARSERS}
max_body_bytes = {MAX_BODY_BYTES}
"#,
            outside.name_server,
            timeout = TIMEOUT.as_secs(),
            large = self.large_body_bytes,
        )
    }

    /// Returns the memory that this configuration allows a process that takes `alone` without hostile servers: the sum at
    /// `large_bodies` in `config.default.toml`. Reports are not in it, because no document here has entries of more than some
    /// kilobytes.
    fn memory_bound(&self, alone: u64) -> u64 {
        // A connection's buffers while a body arrives as fast as it can: what is being read, the piece that waits to be kept,
        // and the piece before it, each up to `max_header_bytes`, and the allocator's rounding.
        let fetch = self.large_body_bytes + 4 * MAX_HEADER_BYTES + CONNECTION;
        // The parsed feed takes about three times the body.
        let parser = MAX_BODY_BYTES + WINDOW + 3 * MAX_BODY_BYTES;
        // Of the good feeds and the other kinds none uses TLS.
        let secure = outside::kinds_with_tls() as u64 * u64::from(self.of_each_kind);
        let tls = secure.min(self.concurrency) * (TLS + HTTP2_HEADER);
        alone + self.concurrency * fetch + tls + LARGE_BODIES * MAX_WIRE_BYTES + PARSERS * parser
    }
}

const LARGE_BODIES: u64 = 2;
const MAX_WIRE_BYTES: u64 = 10_000_000;
const MAX_HEADER_BYTES: u64 = 65_536;
const PARSERS: u64 = 2;
const MAX_BODY_BYTES: u64 = 20_000_000;
/// A decoder's window.
const WINDOW: u64 = 16_000_000;
/// A connection that says nothing, and its fetch (`docs/measurements.md`).
const CONNECTION: u64 = 40_000;

/// What TLS keeps of a connection: a message of a handshake of up to 64 KB and the certificates that it contains, and a record
/// in each direction.
const TLS: u64 = 2 * 65_536 + 2 * 16_640;
/// The fields of a response over HTTP/2, as received and decoded, each up to the limit that the worker announces. A body that
/// waits to be read takes up to 256 KB, which `4 * MAX_HEADER_BYTES` covers.
const HTTP2_HEADER: u64 = 2 * 4 * MAX_HEADER_BYTES;

/// How long a poll waits for a hostile server.
const TIMEOUT: Duration = Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 5 });
/// How much later than alone good feeds may be polled among hostile ones, at p99 (`docs/measurements.md`).
const MOST_LAG: f64 = 1.2;
/// The difference between two identical runs, which only the short form allows: it has one run of each kind. An unoptimised
/// build competes with other tests for the processor; there the limit is half the wait for a hostile server.
const NOISE: Duration = if cfg!(debug_assertions) { Duration::from_secs(10) } else { Duration::from_millis(10) };
/// The path on the busy host.
const BUSY: &str = "/busy";
/// Bytes of a hostile document before its coding.
const DOCUMENT: usize = if cfg!(debug_assertions) { 300_000 } else { 1_500_000 };

async fn seed(home: &Home, good: &[String], hostile: &[String], hostile_after: Duration) {
    std::fs::create_dir_all(home.path("data")).unwrap();
    let rules = HostRules::new(defaults().host, Vec::new());
    let now = SystemClock.now();
    let feed = |url: &String, subscribers| {
        let url: FeedUrl = url.parse().unwrap();
        let audience = Audience { subscribers, active_subscribers: subscribers, ..Audience::default() };
        NewFeed {
            audience,
            ..NewFeed::of(
                rules.for_url(url.as_url()).key,
                url,
                if subscribers > 1 { common::policy::Category::C } else { common::policy::Category::D },
                if subscribers > 1 { now } else { now.after(hostile_after) },
            )
        }
    };
    let feeds: Vec<NewFeed> =
        good.iter().map(|url| feed(url, 5)).chain(hostile.iter().map(|url| feed(url, 1))).collect();
    home.store().await.add_feeds(&feeds, now).await.unwrap();
}

/// The outcome for the feeds of a kind.
#[derive(Clone, Copy, Debug)]
enum Ends {
    /// They fail at each poll.
    Failing,
    /// They are read.
    Working,
    /// They fail when their turn comes, and most of them wait for it.
    Waiting,
    /// They are asked to send fewer requests at each poll.
    Throttled,
}

impl Ends {
    fn of(ending: Ending) -> Self {
        match ending {
            Ending::Failure => Ends::Failing,
            Ending::Throttling => Ends::Throttled,
        }
    }

    /// Returns whether that became of the feed.
    fn holds(self, state: &PollState) -> bool {
        match self {
            Ends::Failing => state.consecutive_failures > 0,
            Ends::Working => state.consecutive_failures == 0,
            Ends::Waiting => true,
            Ends::Throttled => state.consecutive_failures == 0 && state.last_success.is_none(),
        }
    }
}

/// Returns the kinds of attacks, by name. `busy` is a URL of a host that all redirectors lead to.
fn kinds(size: &Size, busy: &str) -> Vec<(&'static str, Script, Ends)> {
    let failing = failing_kinds().into_iter().map(|(name, script)| (name, script, Ends::Failing));
    // More than all its entries are new at each poll.
    let pace = Pace::Every(size.hostile_interval / 60);
    let renaming = Script::feed(Feed::rss().initial(50).shown(50).pace(pace));
    let others =
        [("renaming", renaming, Ends::Working), ("to-a-busy-host", Script::redirect(302, busy), Ends::Waiting)];
    failing.chain(others).collect()
}

/// Returns the kinds whose feeds fail, by name.
fn failing_kinds() -> Vec<(&'static str, Script)> {
    let rss = "application/rss+xml";
    let feed = || Script::feed(Feed::rss());
    let text = || Script::body(rss, vec![b'x'; 65_536]);
    let head = |fields: &str| Script::raw(format!("HTTP/1.1 200 OK\r\nContent-Type: {rss}\r\n{fields}\r\n\r\nhello"));
    let challenge = "<!DOCTYPE html><title>Just a moment...</title><script>window._cf_chl_opt={}</script>";
    let challenge = |status: &str| {
        let fields = format!("Content-Type: text/html\r\nContent-Length: {}", challenge.len());
        Script::raw(format!("HTTP/1.1 {status}\r\n{fields}\r\n\r\n{challenge}"))
    };
    let second = Duration::from_secs(1);
    vec![
        ("challenge", challenge("403 Forbidden")),
        ("challenge-ok", challenge("200 OK")),
        ("nested", Script::body(rss, bodies::nested(890))),
        ("nested-deep", Script::body(rss, bodies::nested(40_000))),
        ("bomb-gzip", Script::bomb(Coding::Gzip, 1000).unwrap()),
        ("bomb-br", Script::bomb(Coding::Br, 1000).unwrap()),
        ("bomb-zstd", Script::bomb(Coding::Zstd, 1000).unwrap()),
        ("bomb-deflate", Script::bomb(Coding::Deflate, 1000).unwrap()),
        ("endless", text().deliver(Delivery::Endless)),
        ("endless-gzip", Script::bomb(Coding::Gzip, 1).unwrap().deliver(Delivery::Endless)),
        ("silent", Script::silent()),
        ("drip", text().deliver(Delivery::Drip(second))),
        ("slow-head", feed().deliver(Delivery::SlowHead(second))),
        ("headers", Script::body(rss, "x").deliver(Delivery::HeaderFlood(10_000))),
        ("interim", Script::body(rss, "x").deliver(Delivery::InterimFlood(100_000))),
        ("too-short", text().deliver(Delivery::Truncated(60_000))),
        ("cut-chunks", text().deliver(Delivery::CutChunks(60_000))),
        ("too-long", text().header("Content-Length", "70000")),
        ("huge-length", text().header("Content-Length", "18446744073709551615")),
        ("no-length", text().header("Content-Length", "-1")),
        ("two-lengths", head("Content-Length: 5\r\nContent-Length: 7")),
        ("length-and-chunks", head("Content-Length: 5\r\nTransfer-Encoding: chunked")),
        ("huge-chunk", head("Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFFF")),
        ("unknown-coding", text().header("Content-Encoding", "x-snow")),
        ("wrong-coding", text().header("Content-Encoding", "br")),
        ("fifty-codings", text().header("Content-Encoding", ["gzip"; 50].join(", "))),
        ("garbage", Script::body(rss, bodies::garbage(65_536))),
        ("ampersands", packed("text/html", &format!("<!DOCTYPE html><p>{}", "&".repeat(DOCUMENT)))),
        ("no-breaks", packed("text/html", &format!("<!DOCTYPE html><p>{}", "\u{a0}x".repeat(DOCUMENT / 3)))),
        ("formatting", packed("text/html", &format!("<!DOCTYPE html>{}", numbered(|n| format!("<b id={n}><p>"))))),
        ("attributes", packed("text/html", &format!("<!DOCTYPE html><p{}", numbered(|n| format!(" a{n}"))))),
        ("less-than", packed(rss, &"<".repeat(DOCUMENT))),
        ("unclosed", packed(rss, &format!("<rss><channel>&{}", numbered(|n| format!("<a{n}>"))))),
    ]
}

/// A document that costs a careless parser more than its size.
fn packed(content_type: &str, document: &str) -> Script {
    let packed = Coding::Gzip.encode(document.as_bytes()).unwrap();
    Script::body(content_type, packed).header("Content-Encoding", "gzip")
}

/// Returns different pieces, in all about as long as a document.
fn numbered(piece: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    (0..).map_while(|n| (text.len() < DOCUMENT).then(|| text.push_str(&piece(n)))).for_each(drop);
    text
}

/// Returns the hostile paths, the same number of each kind.
fn hostile_scripts(size: &Size, busy: &str) -> Vec<(String, Script, Ends)> {
    let of_kind = |(kind, script, ends): (&str, Script, Ends)| {
        (0..size.of_each_kind)
            .map(move |number| (format!("/{kind}/{number}"), script.clone(), ends))
            .collect::<Vec<_>>()
    };
    kinds(size, busy).into_iter().flat_map(of_kind).collect()
}

/// Returns how late each good feed was polled, ascending, after the first round in which all are due at once: the start
/// of each poll minus the due time that the poll before had decided. Counts only polls before `until`.
async fn lags(home: &Home, until: Timestamp) -> Vec<Duration> {
    let store = home.store().await;
    let mut lags = Vec::new();
    for feed in home.feeds_of(&store).await.iter().filter(|feed| feed.audience.subscribers > 1) {
        let polls = store.history(feed.id).await.unwrap().unwrap();
        for pair in polls.windows(2).rev().skip(1).filter(|pair| pair[0].at < until) {
            lags.push(pair[0].at.since(pair[1].next_due.unwrap()));
        }
    }
    lags.sort();
    lags
}

pub(crate) fn percentile(ascending: &[Duration], share: f64) -> Duration {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index into a list")]
    let index = (ascending.len() as f64 * share) as usize;
    ascending[index.min(ascending.len() - 1)]
}

/// Runs good feeds, optionally with hostile ones among them, until enough good polls were made.
async fn measure(size: &Size, with_hostile: bool) -> Measured {
    let count = if with_hostile { hostile_scripts(size, "").len() } else { 0 };
    // The last host is the busy one.
    let origin = Origin::listen(&loopback(size.hosts + u16::try_from(count).unwrap() + 1, 0)).await.unwrap();
    let busy = origin.url_on(usize::from(size.hosts) + count, BUSY);
    origin.set(BUSY, Script::body("application/rss+xml", "x").delay(Duration::from_secs(1)));
    let scripts = if with_hostile { hostile_scripts(size, &busy) } else { Vec::new() };
    let mut good = Vec::new();
    for n in 0..size.good {
        let path = format!("/good{n}");
        origin.set(&path, Script::feed(Feed::rss()));
        good.push(origin.url_on(n % usize::from(size.hosts), &path));
    }
    let (mut hostile, mut hostile_paths) = (HashMap::new(), Vec::new());
    for (n, (path, script, ends)) in scripts.into_iter().enumerate() {
        origin.set(&path, script);
        hostile.insert(origin.url_on(usize::from(size.hosts) + n, &path), ends);
        hostile_paths.push(path);
    }
    let outside = Outside::start(if with_hostile { size.of_each_kind } else { 0 }).await;
    hostile.extend(outside.urls().into_iter().map(|(url, ending)| (url, Ends::of(ending))));
    let mut home = Home::with_fetch(&size.config(), &size.fetch(&outside));
    std::fs::write(home.path("roots.pem"), &outside.roots).unwrap();
    home.set("SSL_CERT_FILE", home.path("roots.pem").to_str().unwrap());
    seed(&home, &good, &hostile.keys().cloned().collect::<Vec<_>>(), size.hostile_after).await;

    let mut fleet = home.start(&[]);
    let claims = "feedfleet_lag_seconds_count{category=\"C\"}";
    let enough = async |fleet: &Fleet| (fleet.metric(claims).await >= size.polls).then_some(());
    fleet.wait_within(PATIENCE * 4, "enough polls", enough).await;
    let memory = fleet.peak_memory();
    let unasked: Vec<_> = hostile_paths.iter().filter(|path| origin.requests(path).is_empty()).collect();
    assert!(unasked.is_empty(), "never asked: {unasked:?}");
    assert!(outside.unasked().is_empty(), "never asked: {:?}", outside.unasked());
    assert!(fleet.is_alive());
    let until = SystemClock.now();
    every_place_comes_back(&mut fleet, &origin, &good).await;
    fleet.stop();
    for feed in home.feeds().await {
        let ends = hostile.get(feed.url.as_str()).copied().unwrap_or(Ends::Working);
        assert!(ends.holds(&feed.state), "{} should be {ends:?}: {:?}", feed.url, feed.state);
    }
    let lags = lags(&home, until).await;
    Measured { polls: lags.len(), p50: percentile(&lags, 0.5), p99: percentile(&lags, 0.99), memory }
}

/// Checks that no slot leaks: when the fleet pauses, no fetch is in flight after the longest timeout; when it resumes,
/// every good feed is polled again.
async fn every_place_comes_back(fleet: &mut Fleet, origin: &Origin, good: &[String]) {
    let order = async |fleet: &Fleet, what: &str| {
        let answer = fleet.client.post(format!("{}/api/v1/fleet/{what}", fleet.api)).send().await.unwrap();
        assert!(answer.status().is_success(), "{what}: {}", answer.status());
    };
    order(fleet, "pause").await;
    let idle = async |fleet: &Fleet| (fleet.metric("feedfleet_in_flight").await == 0.0).then_some(());
    fleet.wait_for("all places to come back", idle).await;
    let asked = |n: usize| origin.requests(&format!("/good{n}")).len();
    let before: Vec<usize> = (0..good.len()).map(asked).collect();
    order(fleet, "resume").await;
    let again = async |_: &Fleet| (0..good.len()).all(|n| asked(n) > before[n]).then_some(());
    fleet.wait_for("every good feed's next poll", again).await;
}

#[derive(Debug)]
struct Measured {
    polls: usize,
    p50: Duration,
    p99: Duration,
    memory: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_servers_among_many_good_feeds_abort_nothing_and_delay_hardly_anyone() {
    let size = Size::pick();
    // Alternating, so that what else the machine does meets both.
    let (mut alone, mut among) = (Vec::new(), Vec::new());
    for _ in 0..size.runs {
        alone.push(measure(&size, false).await);
        among.push(measure(&size, true).await);
    }
    let kinds = kinds(&size, "").len() + outside::all_kinds();
    println!("{} good feeds, {} hostile ones of each of {kinds} kinds", size.good, size.of_each_kind);
    for (name, runs) in [("alone", &alone), ("among hostile ones", &among)] {
        for measured in runs {
            println!(
                "good feeds {name}: lag p50 {:?}, p99 {:?} over {} polls, peak memory {} MB",
                measured.p50,
                measured.p99,
                measured.polls,
                measured.memory / 1_000_000,
            );
        }
    }
    let bound = size.memory_bound(alone.iter().map(|measured| measured.memory).max().unwrap_or_default());
    println!("memory bound {} MB", bound / 1_000_000);
    assert!(among.iter().all(|measured| measured.memory < bound), "{among:?}");
    let (calm, hostile) = (median_p99(&alone), median_p99(&among));
    let (ratio, with_noise) = (hostile.as_secs_f64() / calm.as_secs_f64(), calm.mul_f64(MOST_LAG) + NOISE);
    println!(
        "lag p99, medians: {hostile:?} among hostile ones, {calm:?} alone: {ratio:.2} x; with noise {with_noise:?}"
    );
    let most = if std::env::var_os("SOAK").is_some() { calm.mul_f64(MOST_LAG) } else { with_noise };
    assert!(hostile <= most, "{hostile:?} among hostile ones, {calm:?} alone, limit {most:?}");
}

/// Returns the median of the runs' p99; of an even number, the mean of the middle two.
fn median_p99(runs: &[Measured]) -> Duration {
    let mut all: Vec<Duration> = runs.iter().map(|measured| measured.p99).collect();
    all.sort();
    let middle = &all[(all.len() - 1) / 2..=all.len() / 2];
    middle.iter().sum::<Duration>() / u32::try_from(middle.len()).unwrap()
}
