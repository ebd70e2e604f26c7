//! A whole fleet in virtual time: the scheduler's own dispatcher and results over the embedded backends, a manual
//! clock, and feeds that respond from posting histories. Seeded: the same arguments produce the same run.
//!
//! Not simulated: the duration of a fetch, and the network.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::bail;
use common::config::Config;
use common::document::{ContentHash, Document, Validators};
use common::host::HostKey;
use common::host_gate::memory::MemoryGate;
use common::host_gate::{AcquireRequest, Acquired, GateUpkeep, Isolation, Release, fresh_nonce};
use common::job::FetchJob;
use common::live_rules::LiveRules;
use common::metrics::Metrics;
use common::outcome::FailureKind;
use common::policy::{Audience, Draw, category};
use common::queue::memory::MemoryQueue;
use common::report::{FetchReport, Outcome};
use common::time::{ClockWatch, Timestamp};
use common::url::FeedId;
use load_tests::simulate::{Random, SampledFeed};
use scheduler::condition::Condition;
use scheduler::condition::pace::Pace;
use scheduler::poll::dispatch::Dispatcher;
use scheduler::poll::moves::Moves;
use scheduler::poll::results::Results;
use scheduler::push::wish::Wishes;
use scheduler::schedule::memory::MemorySchedule;
use scheduler::schedule::{Band, ScheduleUpkeep, Slot};
use store::NewFeed;
use store::sqlite::SqliteStore;

use super::answers::{Answers, document};
use store::{Feeds, Polls};

/// How often the dispatcher looks for due feeds.
pub(super) const TICK: Duration = Duration::from_millis(500);
const MINUTE: Duration = Duration::from_secs(60);
/// The configured price, low enough that the capacity decides. The controller never goes below it.
const LEAST_PRICE: f64 = 0.001;
/// The number of reports settled together.
const BATCH: usize = 500;
/// Queue capacity; messages are taken out immediately.
const QUEUE_BYTES: usize = 64 << 20;

/// A fleet and its feeds.
pub(super) struct VirtualFleet {
    pub(super) now: Timestamp,
    dispatcher: Dispatcher,
    results: Results,
    store: Arc<SqliteStore>,
    pace: Pace,
    condition: Arc<Condition>,
    answers: Answers,
    numbers: HashMap<FeedId, usize>,
    last_start: HashMap<HostKey, Timestamp>,
    /// The shortest time between the starts of two requests to one host.
    pub(super) shortest_gap: Duration,
    last_poll: HashMap<usize, Timestamp>,
    /// Polls that followed another poll of the same feed sooner than the minimum interval allows.
    pub(super) polls_under_floor: usize,
    minute: Minute,
    backlog: usize,
}

/// What happened in a minute.
#[derive(Clone, Debug, Default)]
pub(super) struct Minute {
    /// Polls started, by feed.
    pub(super) polled: Vec<usize>,
    /// Feeds that became due.
    pub(super) became_due: f64,
    /// Feeds that are due and waiting at the end of the minute.
    pub(super) backlog: usize,
    /// How long the oldest of them has waited.
    pub(super) oldest: Duration,
}

impl VirtualFleet {
    /// Creates a fleet of these feeds, first polled over an hour, with a capacity of `polls_per_second`.
    pub(super) async fn new(
        sample: Vec<SampledFeed>,
        hosts: usize,
        polls_per_second: f64,
        seed: u64,
        start: Timestamp,
    ) -> anyhow::Result<Self> {
        let mut config = common::config::defaults();
        config.policy.polls_per_second = polls_per_second;
        config.policy.price = LEAST_PRICE;
        let config = Arc::new(config);
        let store = Arc::new(SqliteStore::open("sqlite::memory:").await?);
        let gate = Arc::new(MemoryGate::new(Timestamp::EPOCH));
        if let Some(mark) = gate.begin_loading(start).await? {
            gate.open(&mark, start).await?;
        }
        let schedule = Arc::new(MemorySchedule::default());
        if let Some(mark) = schedule.begin_rebuild().await? {
            schedule.finish_rebuild(&mark).await?;
        }
        let condition = Arc::new(Condition::new(&config));
        let (dispatcher, results) = loops(&config, &store, &gate, &schedule, &condition, seed);
        let mut fleet = VirtualFleet {
            now: start,
            pace: Pace::new(&config, start),
            condition,
            dispatcher,
            results,
            store,
            answers: Answers::new(sample, hosts, seed),
            numbers: HashMap::new(),
            last_start: HashMap::new(),
            shortest_gap: Duration::MAX,
            last_poll: HashMap::new(),
            polls_under_floor: 0,
            minute: Minute::default(),
            backlog: 0,
        };
        fleet.add_feeds().await?;
        Ok(fleet)
    }

    async fn add_feeds(&mut self) -> anyhow::Result<()> {
        let mut feeds = Vec::with_capacity(self.answers.feeds.len());
        let mut slots = Vec::new();
        for (number, feed) in self.answers.feeds.iter().enumerate() {
            let audience =
                Audience { subscribers: feed.subscribers, active_subscribers: feed.subscribers, ..Audience::default() };
            let url = self.answers.url(number).parse()?;
            let category = category(&common::policy::Subject::new(audience, None));
            let host = self.dispatcher.rules.get().for_url(common::url::FeedUrl::as_url(&url)).key;
            let first_due = self.now.after(Duration::from_secs(3600).mul_f64(feed.seed));
            feeds.push(NewFeed { audience, ..NewFeed::of(host, url, category, first_due) });
            slots.push((first_due, Band::of(category, false)));
        }
        let added = self.store.add_feeds(&feeds, self.now).await?;
        let place = |((number, added), (due_at, band)): ((usize, &store::Added), &(Timestamp, Band))| {
            self.numbers.insert(added.id, number);
            Slot { feed: added.id, due_at: *due_at, band: *band }
        };
        let slots: Vec<Slot> = added.iter().enumerate().zip(&slots).map(place).collect();
        self.dispatcher.schedule.put(&slots, self.now).await?;
        Ok(())
    }

    /// Changes the capacity.
    pub(super) fn set_capacity(&mut self, polls_per_second: f64) {
        self.change(|config| config.policy.polls_per_second = polls_per_second);
        self.pace = Pace::new(&self.dispatcher.config, self.now);
    }

    /// Returns the current price of a poll, in subscriber-hours.
    pub(super) fn price(&self) -> f64 {
        self.condition.price.get()
    }

    fn change(&mut self, change: impl FnOnce(&mut Config)) {
        let mut config = Config::clone(&self.dispatcher.config);
        change(&mut config);
        let config = Arc::new(config);
        self.condition.config.replace(Arc::clone(&config));
        self.dispatcher.config = Arc::clone(&config);
        self.results.config = config;
    }

    /// Makes a share of all hosts refuse connections.
    pub(super) fn set_hosts_down(&mut self, share: f64) {
        self.answers.down = share;
    }

    /// Runs one minute; if `working` is false, the whole fleet is down.
    pub(super) async fn minute(&mut self, working: bool) -> anyhow::Result<Minute> {
        let end = self.now.after(MINUTE);
        while self.now < end {
            if working {
                self.tick().await?;
            }
            self.now = self.now.after(TICK);
        }
        let depth = self.dispatcher.schedule.depth(self.now).await?;
        let mut minute = std::mem::take(&mut self.minute);
        minute.backlog = depth.due;
        minute.oldest =
            depth.oldest.into_iter().flatten().min().map_or(Duration::ZERO, |oldest| self.now.since(oldest));
        minute.became_due = (minute.polled.len() + depth.due) as f64 - self.backlog as f64;
        self.backlog = depth.due;
        if working {
            let backlog = depth.due.saturating_sub(depth.parked);
            let (store, schedule) = (&*self.store, &*self.dispatcher.schedule);
            self.condition.price.correct(store, schedule, backlog, self.now, &self.dispatcher.config).await?;
        }
        Ok(minute)
    }

    async fn tick(&mut self) -> anyhow::Result<()> {
        let mut reports = Vec::new();
        loop {
            let round = self.dispatcher.round(self.now, self.pace.room(self.now, 1)).await?;
            self.pace.spend(round.published);
            for job in self.published().await? {
                reports.extend(self.work(&job).await?);
            }
            if round.claimed < self.dispatcher.config.scheduler.claim_batch {
                break;
            }
        }
        while !reports.is_empty() {
            let rest = reports.split_off(reports.len().min(BATCH));
            self.results.settle(std::mem::replace(&mut reports, rest), self.now).await?;
        }
        Ok(())
    }

    async fn published(&self) -> anyhow::Result<Vec<FetchJob>> {
        let mut jobs = Vec::new();
        while self.dispatcher.jobs.depth().await?.items > 0 {
            let (items, receipt) = self.dispatcher.jobs.receive().await?.into_parts();
            jobs.extend(items);
            receipt.ack().await?;
        }
        Ok(jobs)
    }

    /// Does what a worker does with a job, except the fetch.
    async fn work(&mut self, job: &FetchJob) -> anyhow::Result<Option<FetchReport>> {
        let gate = Arc::clone(&self.dispatcher.gate);
        let limits = self.dispatcher.rules.get().limits_of(&job.host);
        let deadline = self.now.after(self.dispatcher.config.fetch.timeout);
        let request = AcquireRequest {
            host: job.host.clone(),
            limits,
            ticket: job.ticket,
            feed: job.feed,
            version: job.version,
            deadline,
            leased_until: job.expires.after(self.dispatcher.config.scheduler.fetch_lease),
            nonce: fresh_nonce(),
            isolation: Isolation::None,
        };
        let permit = match gate.acquire(&request, self.now).await? {
            Acquired::Granted(permit) => permit,
            Acquired::NotNow { until } => return Ok(Some(self.report(job, Outcome::Deferred { until }, None))),
            Acquired::Reported => return Ok(None),
            Acquired::Suspect(_) | Acquired::Crashed(_) => {
                bail!("a feed counts as one that kills workers, and none died")
            }
        };
        let Some(number) = self.numbers.get(&job.feed).copied() else { bail!("a job of an unknown feed") };
        if let Some(before) = self.last_start.insert(job.host.clone(), self.now) {
            self.shortest_gap = self.shortest_gap.min(self.now.since(before));
        }
        let before = self.last_poll.insert(number, self.now);
        let floor = self.results.config.policy.min_interval;
        self.polls_under_floor += usize::from(before.is_some_and(|before| self.now.since(before) < floor));
        self.minute.polled.push(number);
        let report = match self.answers.ask(number, self.now) {
            None => {
                let detail = "the host is down".to_owned();
                self.report(job, Outcome::Failed { failure: FailureKind::Connect, detail }, None)
            }
            Some(new) if new.is_empty() && job.content_hash.is_some() => {
                self.report(job, Outcome::NotModified { validators: validators() }, Some(304))
            }
            Some(new) => {
                let content_hash = Some(ContentHash::of(&self.now.millis().to_le_bytes(), 0));
                let document = Document { validators: validators(), content_hash, ..document(&new) };
                self.report(job, Outcome::Modified(Box::new(document)), Some(200))
            }
        };
        let scheduler = &self.dispatcher.config.scheduler;
        let remembered = Some((scheduler.queue_lease + scheduler.fetch_lease) * 2);
        gate.release(&permit, Release { remembered, next_start_in: None }, self.now).await?;
        Ok(Some(report))
    }

    fn report(&self, job: &FetchJob, outcome: Outcome, http_status: Option<u16>) -> FetchReport {
        FetchReport {
            http_status,
            conditional: true,
            ..FetchReport::of(job.feed, job.version, job.host.clone(), self.now, outcome)
        }
    }

    /// Returns the feeds that are due.
    pub(super) async fn due(&self) -> anyhow::Result<HashSet<usize>> {
        let ids: Vec<FeedId> = self.numbers.keys().copied().collect();
        let rows = self.store.jobs_for(&ids).await?;
        let due = rows.iter().filter(|row| row.due() <= self.now);
        Ok(due.filter_map(|row| self.numbers.get(&row.id).copied()).collect())
    }

    /// Returns the number of subscribers of a feed.
    pub(super) fn subscribers(&self, number: usize) -> u32 {
        self.answers.feeds[number].subscribers
    }

    /// Returns the number of feeds.
    pub(super) fn feeds(&self) -> usize {
        self.answers.feeds.len()
    }
}

fn validators() -> Validators {
    Validators { etag: Some("\"1\"".into()), ..Validators::default() }
}

/// Creates the scheduler's parts that the simulation drives itself.
fn loops(
    config: &Arc<Config>,
    store: &Arc<SqliteStore>,
    gate: &Arc<MemoryGate>,
    schedule: &Arc<MemorySchedule>,
    condition: &Arc<Condition>,
    seed: u64,
) -> (Dispatcher, Results) {
    let rules = Arc::new(LiveRules::new(config));
    let metrics = Arc::new(Metrics::new());
    let moves = Moves { store: store.clone(), schedule: schedule.clone(), rules: rules.clone() };
    let random = Mutex::new(Random::new(seed));
    let draw = move || {
        let mut random = common::lock(&random);
        Draw { salt: random.fraction(), minute: random.fraction() }
    };
    let reports = Arc::new(MemoryQueue::new(QUEUE_BYTES));
    let dispatcher = Dispatcher {
        store: store.clone(),
        schedule: schedule.clone(),
        gate: gate.clone(),
        jobs: Arc::new(MemoryQueue::new(QUEUE_BYTES)),
        reports: reports.clone(),
        rules: rules.clone(),
        config: config.clone(),
        metrics: metrics.clone(),
        condition: condition.clone(),
        watch: ClockWatch::default(),
        any_minute: false,
    };
    let results = Results {
        store: store.clone(),
        schedule: schedule.clone(),
        gate: gate.clone(),
        reports,
        rules,
        config: config.clone(),
        metrics,
        condition: condition.clone(),
        // Nothing is announced here.
        wishes: Arc::new(Wishes::new(config.clone(), Arc::default())),
        moves,
        draw: Box::new(draw),
        minutes: Mutex::default(),
    };
    (dispatcher, results)
}
