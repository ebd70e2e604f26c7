//! A load for a cluster: feeds on many hosts of a scripted origin, and the evaluation of its log.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use common::feed::Feed;
use common::time::{Clock, SystemClock, Timestamp};
use load_tests::{
    Fault, Format, Memory, Origin, Pace, Promises, Proof, Record, Rules, Script, StallWatch, Stalls, judge, loopback,
    prove,
};

use sqlx::PgPool;
use store::Events;

use super::harness::{Cluster, Servers, Urls};
use crate::harness::{PATIENCE, watch_stalls};

/// The size: a short form among all tests, the long one in `dev/soak`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) feeds: usize,
    pub(crate) hosts: u16,
    /// The time between two polls of a feed.
    pub(crate) interval: Duration,
    pub(crate) gap: Duration,
    /// How long a server is down, or how long processes are killed.
    pub(crate) trouble: Duration,
    /// Times the leases that follow from the interval.
    pub(crate) leases: u32,
}

impl Size {
    /// Chooses the long form if `SOAK=1` is set.
    pub(crate) fn pick(short: Size, long: Size) -> Self {
        if std::env::var_os("SOAK").is_some() { long } else { short }
    }

    /// Returns the polls per second that the feeds need.
    pub(crate) fn rate(&self) -> f64 {
        self.feeds as f64 / self.interval.as_secs_f64()
    }

    /// Returns the maximum lifetime of a fetch, its report and a permit; leases follow from it.
    fn fetch_timeout(&self) -> Duration {
        self.interval / 3
    }

    /// Returns how long a host is held that throttles, if any does.
    pub(crate) fn hold(&self) -> Duration {
        Duration::from_secs(self.interval.mul_f64(1.5).as_secs())
    }

    fn queue_lease(&self) -> Duration {
        self.leases * self.interval / 2
    }

    fn fetch_lease(&self) -> Duration {
        self.leases * (self.fetch_timeout() + Duration::from_secs(2))
    }

    /// Returns the maximum time from one poll of a feed to the next when a process dies in between: its interval, a
    /// lease, and the lifetime of the dead worker's permit, which covers a fetch and its parsing.
    pub(crate) fn worst_gap(&self) -> Duration {
        self.interval + self.queue_lease() + self.fetch_lease() + self.permit_life()
    }

    /// Returns the lifetime of a permit that a dead worker leaves behind; its host is not polled during it.
    pub(crate) fn permit_life(&self) -> Duration {
        self.fetch_timeout() + Duration::from_secs(5)
    }

    /// Returns the bound that tests assert: an unoptimised build among other tests may take twice as long.
    pub(crate) fn longest_gap(&self) -> Duration {
        if std::env::var_os("SOAK").is_some() { self.worst_gap() } else { 2 * self.worst_gap() }
    }

    fn config(&self, policy: &str) -> String {
        let millis = |duration: Duration| format!("\"{}ms\"", duration.as_millis());
        format!(
            r#"
[policy]
mode = "classes"
min_interval = {interval}
salt = 0.0
hot_minutes = false
no_validator_factor = 1.0
{policy}
[policy.category.d]
interval = {interval}
interval_max = {interval}
# A fetch that a stall of the machine makes time out is repeated soon, and not minutes later.
[policy.penalty]
transient_first = {interval}
[host]
gap = {gap}
[scheduler]
claim_lease = {claim_lease}
queue_lease = {queue_lease}
fetch_lease = {fetch_lease}
[log]
level = "info,gate=trace"
[fetch]
allow_networks = ["127.0.0.0/8"]
allow_ports = ["1-65535"]
timeout = {timeout}
connect_timeout = {timeout}
idle_timeout = {timeout}
"#,
            interval = millis(self.interval),
            gap = millis(self.gap),
            claim_lease = millis(self.interval / 6),
            queue_lease = millis(self.queue_lease()),
            fetch_lease = millis(self.fetch_lease()),
            timeout = millis(self.fetch_timeout()),
        )
    }
}

/// The origin with its feeds, and a cluster that polls them.
pub(crate) struct Load {
    pub(crate) size: Size,
    pub(crate) origin: Origin,
    pub(crate) cluster: Cluster,
    /// Of this process, in which the origin runs.
    stalls: StallWatch,
}

impl Load {
    /// Creates feeds that publish occasionally, spread over the hosts and over the first interval. `policy` adds lines
    /// to that section.
    pub(crate) async fn new(size: Size, servers: &Servers, urls: Urls, policy: &str) -> Self {
        let (origin, feeds) = Self::feeds(size).await;
        let cluster = Cluster::new(servers, urls, &size.config(policy)).await;
        cluster.add(&feeds, size.interval).await;
        Load { size, stalls: watch_stalls(&origin), origin, cluster }
    }

    /// The same for a fleet that an older program begins: without feeds, whose URLs it returns too. The store is to be opened later.
    pub(crate) async fn without_feeds(size: Size, servers: &Servers, urls: Urls, policy: &str) -> (Self, Vec<String>) {
        let (origin, feeds) = Self::feeds(size).await;
        let cluster = Cluster::of_an_older_program(servers, urls, &size.config(policy)).await;
        (Load { size, stalls: watch_stalls(&origin), origin, cluster }, feeds)
    }

    async fn feeds(size: Size) -> (Origin, Vec<String>) {
        let origin = Origin::listen(&loopback(size.hosts, 0)).await.unwrap();
        let mut feeds = Vec::with_capacity(size.feeds);
        for n in 0..size.feeds {
            let path = path(n);
            origin.set(&path, Self::script(size, n));
            feeds.push(origin.url_on(n % usize::from(size.hosts), &path));
        }
        (origin, feeds)
    }

    fn script(size: Size, n: usize) -> Script {
        let format = [Format::Rss, Format::Atom, Format::Json][n % 3];
        let every = size.interval.mul_f64(2.0 + (n % 50) as f64 / 10.0);
        let feed = load_tests::Feed::new(format).initial(2).shown(1000).pace(Pace::Every(every));
        // Some respond late, so that a kill hits fetches in flight; but so few that none is hit by three kills in a
        // row, which would quarantine it for crashing workers.
        let delay = if n.is_multiple_of(10) { Duration::from_millis(100) } else { Duration::ZERO };
        Script::feed(feed).delay(delay)
    }

    /// Has one feed of every 25th host answer each fifth request with 429 and `Retry-After`, which holds the host.
    pub(crate) fn throttle_some_hosts(&self) {
        for n in (7..usize::from(self.size.hosts).min(self.size.feeds)).step_by(25) {
            let feed = || Self::script(self.size, n).times(4);
            let throttled = || Script::status(429).header("Retry-After", self.size.hold().as_secs().to_string());
            let steps = (0..200).flat_map(|_| [feed(), throttled()]);
            self.origin.set(&path(n), Script::sequence(steps.chain([feed()])));
        }
    }

    /// Returns the index of a feed's host.
    pub(crate) fn host_of(&self, n: usize) -> usize {
        n % usize::from(self.size.hosts)
    }

    /// Waits until every feed was polled once.
    pub(crate) async fn warm_up(&self) {
        let limit = self.size.worst_gap() * 4 + Duration::from_secs(60);
        let deadline = tokio::time::Instant::now() + limit;
        while self.origin.request_count() < self.size.feeds {
            assert!(tokio::time::Instant::now() < deadline, "{} requests in {limit:?}", self.origin.request_count());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until the store has the result of every request that has ended by now, or of a later one.
    pub(crate) async fn until_stored(&self) {
        // The worker's start time of a request is a little before its arrival.
        let early = Duration::from_secs(1);
        let ended = self.origin.log().into_iter().filter(|record| record.end.is_some());
        let last: HashMap<String, Timestamp> =
            ended.map(|record| (record.target().to_owned(), record.wall.before(early))).collect();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let feeds = self.cluster.feeds().await;
            let asked = |feed: &Feed| last.get(feed.url.as_url().path()).copied();
            let unknown = feeds.iter().filter(|feed| feed.state.last_polled < asked(feed)).count();
            if unknown == 0 {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "the last polls of {unknown} feeds were never stored");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Waits until the last reports of workers that were stopped are stored.
    pub(crate) async fn until_quiet(&self) {
        let mut last = 0;
        while last != self.cluster.store.latest_seq().await.unwrap() {
            last = self.cluster.store.latest_seq().await.unwrap();
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    }

    /// Measures the polls per second over the next `window`.
    pub(crate) async fn rate_over(&self, window: Duration) -> f64 {
        let before = self.origin.request_count();
        tokio::time::sleep(window).await;
        (self.origin.request_count() - before) as f64 / window.as_secs_f64()
    }

    /// Returns how many of these feeds became due between these times, and how many of those were polled from the first on.
    pub(crate) fn due_and_polled(&self, feeds: &HashSet<String>, from: Timestamp, until: Timestamp) -> (usize, usize) {
        let (before, since): (Vec<Record>, Vec<Record>) =
            self.origin.log().into_iter().partition(|record| record.wall < from);
        let last: HashMap<&str, Timestamp> = before.iter().map(|record| (record.target(), record.wall)).collect();
        let polled: HashSet<&str> = since.iter().map(Record::target).collect();
        let is_due = |polled: &Timestamp| (from..until).contains(&polled.after(self.size.interval));
        let due: Vec<&str> = last
            .into_iter()
            .filter(|(path, polled)| feeds.contains(*path) && is_due(polled))
            .map(|(path, _)| path)
            .collect();
        (due.len(), due.iter().filter(|path| polled.contains(**path)).count())
    }

    /// Returns the feeds with a missing entry, and the number of entries stored twice, compared with what the origin
    /// had published at `until`.
    pub(crate) async fn lost_and_doubled(&self, truth: &HashMap<String, Vec<String>>) -> (Vec<String>, usize) {
        let paths: HashMap<_, _> = self.cluster.feeds().await.into_iter().map(|feed| (feed.id, feed.url)).collect();
        let mut stored: HashMap<String, Vec<String>> = HashMap::new();
        for entry in self.cluster.entries().await {
            let path = paths[&entry.feed_id].as_url().path().to_owned();
            stored.entry(path).or_default().push(entry.entry.id.to_string());
        }
        let mut doubled = 0;
        for ids in stored.values_mut() {
            let all = ids.len();
            ids.sort();
            ids.dedup();
            doubled += all - ids.len();
        }
        let missing = |(path, ids): (&String, &Vec<String>)| {
            let known = stored.get(path).map_or(&[][..], Vec::as_slice);
            ids.iter().any(|id| known.binary_search(id).is_err()).then(|| path.clone())
        };
        (truth.iter().filter_map(missing).collect(), doubled)
    }

    /// Waits until nothing of that is lost, up to a generous limit.
    pub(crate) async fn until_known(&self, truth: &HashMap<String, Vec<String>>) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !self.lost_and_doubled(truth).await.0.is_empty() && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Returns what the origin has published by now, by path.
    pub(crate) fn truth(&self) -> HashMap<String, Vec<String>> {
        let ids = |path: &str| self.origin.truth(path).into_iter().map(|item| item.id).collect();
        (0..self.size.feeds).map(path).map(|path| (path.clone(), ids(&path))).collect()
    }

    /// Proves from the history of the gate that every promise was kept, and which polls were cut. `database` has recorded the polls
    /// ([`Cluster::watch_versions`]). `gate_lost` and `store_lost` are moments at which these lost what they knew last. To be called when
    /// the workers have ended.
    pub(crate) async fn prove(
        &self,
        log: &[Record],
        database: &PgPool,
        gate_lost: &[Timestamp],
        store_lost: &[Timestamp],
    ) -> Proof {
        let feeds = self.cluster.feeds().await;
        let paths = feeds.into_iter().map(|feed| (feed.id.0, feed.url.as_url().path().to_owned())).collect();
        let promises = Promises {
            paths: &paths,
            gap: &|_| self.size.gap,
            floor: self.size.interval,
            hold_ceiling: Rules::default().single_hold_ceiling,
            memory: Memory::OfServer,
            stored: &self.cluster.stored_polls(database).await,
            losses: gate_lost,
            rollbacks: store_lost,
        };
        let proof = prove(&self.cluster.gate.history(), log, &promises);
        println!("{proof}");
        proof
    }

    /// Judges the politeness of the requests; those in `undone` may be repeated.
    pub(crate) fn manners(&self, log: &[Record], undone: BTreeSet<usize>) -> Manners {
        self.judge(log, Rules { undone, ..Rules::default() })
    }

    /// The same for a fleet of which an older program is a part, which writes no history: each kill excuses what was near it.
    pub(crate) fn manners_near_kills(&self, log: &[Record], kills: Vec<Timestamp>) -> Manners {
        self.judge(log, Rules { kills, commit_window: Duration::from_secs(2), ..Rules::default() })
    }

    fn judge(&self, log: &[Record], rules: Rules) -> Manners {
        let stalls = self.stalls.seen();
        let crowded = crowded(log, self.size.gap, &stalls);
        let rules = Rules { floor: self.size.interval, gap: self.size.gap, slack: NOISE, stalls, ..rules };
        let card = judge(log, &rules);
        let of = |fault| card.count(fault);
        Manners {
            requests: log.len(),
            early: of(Fault::EarlyPoll),
            unconditional: of(Fault::UnconditionalRepeat),
            at_once: of(Fault::PathOverlap),
            during_hold: of(Fault::PollDuringHold),
            crowded,
            first: card.violations.first().map(|violation| format!("{violation:?}")),
        }
    }

    /// Returns whether a fetch was cut off long before its timeout. One that ends by its timeout, because the origin stalls, was not.
    pub(crate) fn is_aborted(&self, record: &Record) -> bool {
        let lasted = record.end.unwrap_or(record.start).saturating_sub(record.start);
        record.cut.is_some() && lasted + self.stalls.seen().near(record.start) < self.size.fetch_timeout() / 2
    }

    /// Returns the longest time from one request of a feed to the next, or to `until`. Prints the longest three.
    pub(crate) fn longest_silence(&self, log: &[Record], until: Timestamp) -> Duration {
        let silences = self.silences(log, until);
        for (silence, from, target) in silences.iter().take(3) {
            println!("{target} was not asked for {silence:?} from {from}");
        }
        silences[0].0
    }

    /// Returns silences longer than the bound for one kill, with the number of fetches at the feed's host that were cut
    /// during them: each left a permit behind, and no feed of the host is polled during its lifetime.
    pub(crate) fn cut_silences(&self, log: &[Record], until: Timestamp) -> Vec<(Duration, usize)> {
        let hosts: HashMap<&str, _> = log.iter().map(|record| (record.target(), record.local)).collect();
        let cut: Vec<&Record> = log.iter().filter(|record| record.cut.is_some()).collect();
        let long = self.silences(log, until).into_iter().take_while(|(silence, ..)| *silence > self.size.worst_gap());
        long.map(|(silence, from, target)| {
            let within = |record: &&&Record| record.wall >= from && record.wall <= from.after(silence);
            (silence, cut.iter().filter(within).filter(|record| record.local == hosts[target]).count())
        })
        .collect()
    }

    /// Returns the times from one request of a feed to the next, or to `until`, longest first.
    fn silences<'a>(&self, log: &'a [Record], until: Timestamp) -> Vec<(Duration, Timestamp, &'a str)> {
        let mut last: HashMap<&str, Timestamp> = HashMap::new();
        let mut silences = Vec::with_capacity(log.len());
        for record in log {
            if let Some(before) = last.insert(record.target(), record.wall) {
                silences.push((record.wall.since(before), before, record.target()));
            }
        }
        let never: Vec<String> =
            (0..self.size.feeds).map(path).filter(|path| !last.contains_key(path.as_str())).collect();
        assert!(never.is_empty(), "feeds that were never asked: {never:?}");
        silences.extend(last.into_iter().map(|(target, last)| (until.since(last), last, target)));
        silences.sort_by_key(|(silence, ..)| std::cmp::Reverse(*silence));
        silences
    }
}

/// Requests are spaced when they start, but the origin sees arrivals, late by this much on a loaded machine. A third of
/// the shortest interval: a real violation would arrive without any distance.
const NOISE: Duration = Duration::from_secs(2);
/// The number of starts at one host that are checked together: noise moves single arrivals, not five in a row. A stall of the origin
/// makes those that wait for it arrive together; it is accounted for.
const TOGETHER: usize = 5;
const CROWD_NOISE: Duration = Duration::from_millis(120);

/// The politeness of a log.
#[derive(Debug, PartialEq)]
pub(crate) struct Manners {
    pub(crate) requests: usize,
    pub(crate) early: usize,
    pub(crate) unconditional: usize,
    /// Overlapping requests for one feed.
    pub(crate) at_once: usize,
    /// Requests to a host that a `Retry-After` held.
    pub(crate) during_hold: usize,
    /// Starts at a host closer together than its gap.
    pub(crate) crowded: usize,
    pub(crate) first: Option<String>,
}

impl Manners {
    pub(crate) fn assert_clean(&self) {
        let faults = (self.early, self.unconditional, self.at_once, self.during_hold, self.crowded);
        assert_eq!(faults, (0, 0, 0, 0, 0), "{self:?}");
    }
}

/// Counts sequences of five starts at one host in less time than four gaps.
fn crowded(log: &[Record], gap: Duration, stalls: &Stalls) -> usize {
    let mut hosts: BTreeMap<_, Vec<Duration>> = BTreeMap::new();
    for record in log {
        hosts.entry(record.local).or_default().push(record.start);
    }
    let at_least = (gap.mul_f64(TOGETHER as f64 - 1.0)).saturating_sub(CROWD_NOISE);
    let mut crowded = 0;
    for starts in hosts.values_mut() {
        starts.sort();
        let within = |row: &&[Duration]| row[TOGETHER - 1] - row[0];
        crowded += starts.windows(TOGETHER).filter(|row| within(row) + stalls.near(row[0]) < at_least).count();
    }
    crowded
}

pub(crate) fn path(n: usize) -> String {
    format!("/feed{n}")
}

pub(crate) fn now() -> Timestamp {
    SystemClock.now()
}
