//! A week in a minute: the fleet's own dispatch, fetches, decisions and store against scripted feeds. Both sides use
//! one clock that stops while anything is in progress and then jumps to the next event. At the end every published
//! entry is stored, once, and the judge finds nothing.
//!
//! The loops' waiting is left out, and so are the delays of a real network: the other tests have both.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::config::Config;
use common::host_gate::memory::MemoryGate;
use common::host_gate::{Isolation, Nonces};
use common::job::FetchJob;
use common::live_rules::LiveRules;
use common::metrics::Metrics;
use common::policy::Audience;
use common::queue::Queue;
use common::queue::memory::MemoryQueue;
use common::time::{Clock, ClockWatch, ManualClock, Timestamp};
use common::url::FeedId;
use load_tests::{Feed, Kind, Origin, Pace, Plan, Population, Rules, Script, loopback};
use scheduler::ops::AddFeed;
use scheduler::{Backends, Scheduler};
use store::sqlite::SqliteStore;
use store::{HistoryEntry, Store};
use tokio::task::JoinSet;
use worker::fetch::Fetcher;
use worker::own_holds::OwnHolds;
use worker::poll::{Polled, Poller};

/// The size: a day of a few feeds among all tests, the week in `dev/soak`.
struct Size {
    feeds: u16,
    days: u16,
}

impl Size {
    /// Reads `SOAK_WEEK_FEEDS` and `SOAK_DAYS`, or returns the short form.
    fn from_environment() -> Self {
        let number = |name: &str, short: u16| match std::env::var(name) {
            Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} must be a number below 65536, not {text}")),
            Err(_) => short,
        };
        Size { feeds: number("SOAK_WEEK_FEEDS", 100), days: number("SOAK_DAYS", 1) }
    }

    fn hosts(&self) -> u16 {
        (self.feeds / 5).max(1)
    }

    fn length(&self) -> Duration {
        DAY * u32::from(self.days)
    }
}

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// The smallest step of time: what is due within it is dispatched together, as in a scheduler's tick.
const STEP: Duration = Duration::from_secs(1);
/// How long after its last item a feed may stay unpolled: feeds in the penalty box are retried once a day.
const LONGEST_SILENCE: Duration = Duration::from_secs(3 * 24 * 3600);

/// A scripted feed, and the fleet's id for it.
struct Subscribed {
    id: FeedId,
    kind: Kind,
    path: String,
    /// The path of its items, if a reader can get them.
    items_at: Option<String>,
}

/// Everything that the fleet polls.
struct Internet {
    origin: Origin,
    /// URL, audience, and what is checked at the end.
    feeds: Vec<(String, Audience, Subscribed)>,
}

impl Internet {
    async fn open(size: &Size, clock: &Arc<ManualClock>) -> Self {
        let plan = Plan {
            feeds: size.feeds.into(),
            hosts: size.hosts().into(),
            fastest: HOUR * 2,
            slowest: DAY * 14,
            longest_wait: HOUR * 6,
            // A feed still shows what it published since its last poll, even after a day in the penalty box.
            least_shown: 60,
            ..Plan::default()
        };
        let population = Population::generate(&plan).unwrap();
        // A feed moves to a separate host, because a hop waits for its host in real time.
        let moved = u16::try_from(population.of_kind(Kind::Moved).count()).unwrap();
        let clock: Arc<dyn Clock> = clock.clone();
        let origin = Origin::listen_by(&loopback(size.hosts() + moved, 0), clock).await.unwrap();
        population.install(&origin);
        let mut new_homes = usize::from(size.hosts())..;
        let mut feeds = Vec::new();
        for (number, member) in population.members.iter().enumerate() {
            if let (Kind::Moved, Some(target)) = (member.kind, &member.items_at) {
                let target = origin.url_on(new_homes.next().unwrap(), target);
                origin.set(&member.path, Script::redirect(301, target));
            }
            if number % 10 == 3 && member.kind == Kind::Good {
                origin.set(&member.path, with_a_bad_spell(number, size));
            }
            let (path, items_at) = (member.path.clone(), member.items_at.clone());
            let subscribed = Subscribed { id: FeedId(0), kind: member.kind, path, items_at };
            feeds.push((member.url(&origin), audience(number), subscribed));
        }
        Internet { origin, feeds }
    }

    /// Returns what was published at a member's URL so far and can be read.
    fn truth(&self, feed: &Subscribed) -> HashSet<String> {
        let Some(path) = &feed.items_at else { return HashSet::new() };
        let mut items = self.origin.truth(path);
        if feed.kind == Kind::Gone {
            // After the last of these it answered 410.
            let shown = self.origin.requests(path).iter().filter_map(|request| Some(request.items.as_ref()?.end)).max();
            items.truncate(shown.unwrap_or(0));
        }
        items.into_iter().map(|item| item.id).collect()
    }

    /// Returns whether a readable feed has been read completely since `at`.
    fn is_read_since(&self, feed: &Subscribed, at: Timestamp) -> bool {
        let Some(path) = feed.items_at.as_ref().filter(|_| feed.kind != Kind::Gone) else { return true };
        let good = |status| matches!(status, Some(200 | 304));
        self.origin.requests(path).last().is_some_and(|last| last.wall > at && good(last.status))
    }
}

/// Returns a script that is good, then answers 503 with Retry-After for a while, then is good again and fresh for half
/// an hour each time.
fn with_a_bad_spell(number: usize, size: &Size) -> Script {
    let mean = HOUR * u32::try_from(3 + number % 40).unwrap();
    let feed = || Feed::rss().shown(100).pace(Pace::Random { mean, seed: number as u64 });
    let (from, until) = (size.length() / 3, size.length() / 2);
    let good = Script::feed(feed()).until(from);
    let busy = Script::status(503).header("Retry-After", "5400").until(until);
    good.then(busy).then(Script::feed(feed()).header("Cache-Control", "max-age=1800"))
}

/// Returns the audience: most feeds have one subscriber, some have more, a few have an SLA.
fn audience(number: usize) -> Audience {
    let readers = match number {
        _ if number.is_multiple_of(10) => 50,
        _ if number.is_multiple_of(3) => 5,
        _ => 1,
    };
    Audience { subscribers: readers, active_subscribers: readers, sla: number % 400 == 7, ..Audience::default() }
}

/// The fleet without its loops' waiting.
pub(crate) struct Fleet {
    scheduler: Scheduler,
    backends: Backends,
    jobs: Arc<MemoryQueue<FetchJob>>,
    poller: Arc<Poller>,
    clock: Arc<ManualClock>,
    compared: Timestamp,
    polls: usize,
}

/// Returns the defaults, with loopback allowed.
pub(crate) fn config() -> Config {
    let mut config = common::config::defaults();
    config.fetch.allow_networks = vec!["127.0.0.0/8".parse().unwrap()];
    config.fetch.allow_ports = vec!["1-65535".to_owned()];
    config
}

impl Fleet {
    /// Starts a process over this store; `born` is the time until which an earlier process may have polled hosts.
    pub(crate) async fn over(store: Arc<dyn Store>, clock: Arc<ManualClock>, born: Timestamp, config: Config) -> Self {
        let jobs = Arc::new(MemoryQueue::new(1 << 26));
        let backends = Backends {
            gate: Arc::new(MemoryGate::new(born)),
            jobs: jobs.clone(),
            reports: Arc::new(MemoryQueue::new(1 << 26)),
            ..Backends::in_memory(store)
        };
        let (config, metrics) = (Arc::new(config), Arc::new(Metrics::new()));
        let clock_for_all: Arc<dyn Clock> = clock.clone();
        let scheduler = Scheduler::new(&backends, &config, &metrics, &clock_for_all);
        let rules = Arc::new(LiveRules::new(&config));
        let poller = Poller {
            fetcher: Box::new(Fetcher::new(&config.fetch, &rules.get()).unwrap()),
            gate: Arc::clone(&backends.gate),
            rules,
            config,
            clock: clock_for_all,
            metrics,
            secrets: Arc::default(),
            watch: ClockWatch::default(),
            nonces: Nonces::default(),
            own_holds: OwnHolds::default(),
        };
        scheduler.boot().await.unwrap();
        let compared = clock.now();
        Fleet { scheduler, backends, jobs, poller: Arc::new(poller), clock, compared, polls: 0 }
    }

    /// Kills the process, and starts another one over its store.
    pub(crate) async fn restart(self) -> Self {
        let born = self.clock.now();
        let polls = self.polls;
        let config = Config::clone(&self.poller.config);
        Fleet { polls, ..Self::over(self.backends.store, self.clock, born, config).await }
    }

    async fn subscribe(&self, internet: &mut Internet) {
        let feeds: Vec<AddFeed> = (internet.feeds.iter())
            .map(|(url, audience, _)| AddFeed { audience: *audience, ..AddFeed::of(url.parse().unwrap()) })
            .collect();
        let places: Vec<f64> = (0..feeds.len()).map(|number| number as f64 / feeds.len() as f64).collect();
        let added = self.add(&feeds, &places).await;
        for (added, (_, _, subscribed)) in added.into_iter().zip(&mut internet.feeds) {
            subscribed.id = added;
        }
    }

    /// Adds feeds, each at its position in the import's spread.
    pub(crate) async fn add(&self, feeds: &[AddFeed], places: &[f64]) -> Vec<FeedId> {
        let added = self.scheduler.ops.add(feeds, Some(places)).await.unwrap();
        added.into_iter().map(|added| added.id).collect()
    }

    /// Returns a feed's last polls, newest first.
    pub(crate) async fn history(&self, feed: FeedId) -> Vec<HistoryEntry> {
        self.backends.store.history(feed).await.unwrap().unwrap()
    }

    /// Polls until `end`.
    pub(crate) async fn live_until(&mut self, end: Timestamp) {
        while self.clock.now() < end {
            let now = self.clock.now();
            self.scheduler.reconciler.open_gate(&*self.clock).await.unwrap();
            if now.since(self.compared) >= self.poller.config.scheduler.reconcile_interval {
                self.compared = now;
                let differed = self.scheduler.reconciler.schedule_once(&*self.clock).await.unwrap();
                assert_eq!(differed, 0, "the schedule differed from the store at {now}");
            }
            while self.scheduler.dispatcher.round(now, usize::MAX).await.unwrap().claimed > 0 {
                self.work().await;
            }
            let next = self.backends.schedule.depth(now).await.unwrap().next.unwrap_or(end);
            self.clock.advance(next.since(now).max(STEP));
        }
    }

    /// Works all published jobs, and settles their reports.
    async fn work(&mut self) {
        let mut polls = JoinSet::new();
        while self.jobs.depth().await.unwrap().items > 0 {
            let (jobs, receipt) = self.jobs.receive().await.unwrap().into_parts();
            // No process dies here before the reports are settled.
            receipt.ack().await.unwrap();
            for job in jobs {
                let poller = Arc::clone(&self.poller);
                polls.spawn(async move { poller.poll(&job, Isolation::None).await.unwrap() });
            }
        }
        let mut reports = Vec::new();
        for polled in polls.join_all().await {
            self.polls += 1;
            if let Polled::Report(report, held) = polled {
                reports.push(*report);
                if let Some(held) = held {
                    self.poller.release(&held).await.unwrap();
                }
            }
        }
        self.scheduler.results.settle(reports, self.clock.now()).await.unwrap();
    }

    /// Returns how often each entry of each feed is stored.
    async fn entries(&self) -> HashMap<FeedId, BTreeMap<String, usize>> {
        let (mut entries, mut after): (HashMap<_, BTreeMap<_, _>>, _) = (HashMap::new(), 0);
        loop {
            let page = self.backends.store.entries(None, after, 1000).await.unwrap();
            let Some(last) = page.items.last() else { return entries };
            after = last.seq;
            for entry in page.items {
                *entries.entry(entry.feed_id).or_default().entry(entry.entry.id).or_default() += 1;
            }
        }
    }
}

fn rules(internet: &Internet) -> Rules {
    let promised = internet.feeds.iter().filter(|(_, audience, _)| audience.sla);
    Rules {
        floor: Duration::from_secs(15 * 60),
        floors: promised.map(|(_, _, feed)| (feed.path.clone(), Duration::from_secs(60))).collect(),
        // Both sides use one clock, which does not advance in the meantime.
        slack: Duration::ZERO,
        ..Rules::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_week_everything_that_was_published_is_stored_and_nobody_was_bothered() {
    let (size, begun) = (Size::from_environment(), Instant::now());
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
    let start = clock.now();
    let mut internet = Internet::open(&size, &clock).await;
    let store = Arc::new(SqliteStore::open("sqlite::memory:").await.unwrap());
    let mut fleet = Fleet::over(store, Arc::clone(&clock), Timestamp::EPOCH, config()).await;
    fleet.subscribe(&mut internet).await;
    let restart = start.after(size.length() / 4);
    for hours in (6..=24 * u64::from(size.days)).step_by(6) {
        let (now, end) = (clock.now(), start.after(HOUR * u32::try_from(hours).unwrap()));
        fleet.live_until(end).await;
        if now < restart && restart <= clock.now() {
            fleet = fleet.restart().await;
        }
        println!("hour {hours}: {} polls, {:.0} s", fleet.polls, begun.elapsed().as_secs_f64());
    }

    // Each feed is polled at least once more; what it has published until now must then be stored.
    let end = clock.now();
    let truth: Vec<HashSet<String>> = internet.feeds.iter().map(|(_, _, feed)| internet.truth(feed)).collect();
    while let Some((url, ..)) = internet.feeds.iter().find(|(_, _, feed)| !internet.is_read_since(feed, end)) {
        assert!(clock.now() < end.after(LONGEST_SILENCE), "{url} was not read since {end}");
        fleet.live_until(clock.now().after(HOUR)).await;
    }
    let stored = fleet.entries().await;
    let none = BTreeMap::new();
    let (mut missing, mut surplus, mut doubled) = (Vec::new(), Vec::new(), Vec::new());
    for ((_, _, feed), published) in internet.feeds.iter().zip(&truth) {
        let stored = stored.get(&feed.id).unwrap_or(&none);
        let since = internet.truth(feed);
        missing.extend(published.iter().filter(|id| !stored.contains_key(*id)));
        surplus.extend(stored.keys().filter(|id| !since.contains(*id)));
        doubled.extend(stored.iter().filter(|(_, times)| **times > 1).map(|(id, _)| id));
    }
    let card = load_tests::judge(&internet.origin.log(), &rules(&internet));
    let hosts: HashSet<SocketAddr> = internet.origin.log().iter().map(|request| request.local).collect();
    println!(
        "{} days, {} feeds on {} hosts, {} polls in {:.0} s; {} entries published: missing {}, surplus {}, doubled {}\n{card}",
        size.days,
        size.feeds,
        hosts.len(),
        fleet.polls,
        begun.elapsed().as_secs_f64(),
        truth.iter().map(HashSet::len).sum::<usize>(),
        missing.len(),
        surplus.len(),
        doubled.len(),
    );
    assert!(missing.is_empty(), "missing: {missing:?}");
    assert!(surplus.is_empty(), "surplus: {surplus:?}");
    assert!(doubled.is_empty(), "doubled: {doubled:?}");
    assert!(card.is_clean(), "{card}");
    assert!(card.not_modified > card.feeds_sent, "conditional requests are rarely answered 304");
    assert!(fleet.polls > usize::from(size.feeds) * usize::from(size.days), "the week was idle");
}
