//! Polls the fleet and the servers' log, and keeps the picture up to date.
//!
//! It only reads: the store, the schedule, the metrics, the log. It does not influence the fleet.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::feed::Feed;
use common::outcome::FailureKind;
use common::policy::{Category, Status};
use common::time::Timestamp;
use common::url::FeedId;
use load_tests::{Fault, Record, Rules, ScoreCard, judge};
use scheduler::ops::Ops;
use store::{Event, FeedQuery};
use tokio::task::JoinHandle;

use super::internet::{self, Internet};
use super::pace;
use super::picture::{Asked, Asking, Boxed, Came, Cell, Happening, HeldHost, Picture, Verdict};
use super::requests::Reader;
use crate::output::plain;

/// The maximum length of each list: more than the tallest terminal shows.
const KEPT: usize = 200;
/// Events read in one query.
const PAGE: u32 = 500;
/// How long a feed is shown as requested, and as having a new entry.
const ASKED_FOR: Duration = Duration::from_millis(400);
const NEWS_FOR: Duration = Duration::from_millis(1500);
/// The number of looks over which the lag is averaged, about five seconds.
const LAG_LOOKS: usize = 20;
/// The shortest time between two judgements of the log; it grows with the log, so that judging uses at most a twentieth
/// of a core.
const JUDGE_EVERY: Duration = Duration::from_secs(2);
const JUDGE_SHARE: u32 = 20;

/// The state of the watch.
pub(super) struct Watch {
    internet: Arc<Internet>,
    ops: Arc<Ops>,
    numbers: HashMap<FeedId, usize>,
    reader: Reader,
    after: i64,
    asked_at: Vec<Duration>,
    news_at: Vec<Duration>,
    delays: (u64, Duration),
    lags: VecDeque<(f64, u64)>,
    down: Option<String>,
    judging: Option<JoinHandle<(ScoreCard, Duration)>>,
    judge_next: Instant,
    /// The picture at the last look.
    pub(super) picture: Picture,
}

/// What happened since the previous look, oldest first: for a log.
#[derive(Default)]
pub(super) struct News {
    /// Entries.
    pub(super) entries: Vec<Came>,
    /// Everything else.
    pub(super) happenings: Vec<Happening>,
}

impl Watch {
    /// Creates a watch over the feeds that were added with these ids, in the internet's order.
    pub(super) fn new(
        internet: Arc<Internet>,
        ops: Arc<Ops>,
        ids: &[FeedId],
        address: String,
        limit: Duration,
    ) -> Self {
        let feeds = internet.sites.len();
        let picture = Picture {
            address,
            limit,
            hosts: internet.hosts(),
            cells: vec![Cell::Unasked; feeds],
            ..Picture::default()
        };
        Watch {
            numbers: ids.iter().enumerate().map(|(number, id)| (*id, number)).collect(),
            reader: Reader::default(),
            after: 0,
            asked_at: vec![Duration::ZERO; feeds],
            news_at: vec![Duration::ZERO; feeds],
            delays: (0, Duration::ZERO),
            lags: VecDeque::new(),
            down: None,
            judging: None,
            judge_next: Instant::now() + JUDGE_EVERY,
            internet,
            ops,
            picture,
        }
    }

    /// Updates everything once.
    pub(super) async fn look(&mut self) -> anyhow::Result<News> {
        let elapsed = self.internet.origin.elapsed();
        self.picture.elapsed = elapsed;
        self.look_at_requests(elapsed);
        self.look_at_feeds(elapsed).await?;
        let mut news = self.look_at_events().await?;
        self.look_at_lag();
        news.happenings.extend(self.outage(elapsed));
        self.look_at_verdict().await;
        prepend(&mut self.picture.came, &news.entries);
        prepend(&mut self.picture.story, &news.happenings);
        Ok(news)
    }

    fn look_at_requests(&mut self, elapsed: Duration) {
        let ended = self.reader.read(&self.internet.origin);
        for record in ended.iter().chain(self.reader.open.values()) {
            if let Some(number) = self.internet.at_path(&record.path) {
                self.asked_at[number] = self.asked_at[number].max(record.end.unwrap_or(elapsed));
            }
        }
        let asked: Vec<Asked> = ended.iter().map(|record| self.asked(record)).collect();
        prepend(&mut self.picture.asked, &asked);
        let mut asking: Vec<Asking> = self.reader.open.values().map(|record| self.asking(record, elapsed)).collect();
        asking.sort_by_key(|asking| std::cmp::Reverse(asking.since));
        self.picture.asking = asking;
        self.picture.requests = self.reader.sums;
        self.picture.pace = self.reader.pace(elapsed);
    }

    fn asked(&self, record: &Record) -> Asked {
        let took = record.end.unwrap_or_default().saturating_sub(record.start);
        let status = record.status.filter(|_| record.cut.is_none());
        Asked { feed: self.name_at(&record.path), status, took, bytes: record.body_bytes }
    }

    fn asking(&self, record: &Record, elapsed: Duration) -> Asking {
        Asking { feed: self.name_at(&record.path), since: elapsed.saturating_sub(record.start) }
    }

    fn name_at(&self, path: &str) -> String {
        self.internet.at_path(path).map_or_else(|| path.to_owned(), |number| self.internet.sites[number].name.clone())
    }

    fn name_of(&self, feed: FeedId) -> String {
        let number = self.numbers.get(&feed);
        number.map_or_else(|| format!("feed {feed}"), |number| self.internet.sites[*number].name.clone())
    }

    async fn look_at_events(&mut self) -> anyhow::Result<News> {
        let mut news = News::default();
        loop {
            let page = self.ops.store.events(self.after, PAGE).await?;
            let Some(last) = page.items.last() else { return Ok(news) };
            self.after = last.seq;
            for event in page.items {
                self.take(event, &mut news);
            }
        }
    }

    fn take(&mut self, event: Event, news: &mut News) {
        let at = event.at.since(self.internet.origin.started());
        let feed = self.name_of(event.feed_id);
        match event.entry {
            Some(stored) if event.kind == "entry.new" => {
                self.picture.entries += 1;
                self.note_fresh(event.feed_id, stored.entry.published, event.at, at);
                let title = plain(stored.entry.display_title(), 200);
                news.entries.push(Came { at, feed, title });
            }
            _ => news.happenings.extend(headline(&event, &feed).map(|(good, text)| Happening { at, good, text })),
        }
    }

    /// Counts an entry that was published during the demo.
    fn note_fresh(&mut self, feed: FeedId, published: Option<Timestamp>, stored: Timestamp, at: Duration) {
        let Some(published) = published.filter(|published| *published > self.internet.origin.started()) else { return };
        // Feeds write whole seconds: on average half a second was truncated.
        let delay = stored.since(published).saturating_sub(Duration::from_millis(500));
        self.delays = (self.delays.0 + 1, self.delays.1 + delay);
        self.picture.fresh = self.delays.0;
        self.picture.delay = self.delays.1.checked_div(u32::try_from(self.delays.0).unwrap_or(u32::MAX));
        if let Some(number) = self.numbers.get(&feed) {
            self.news_at[*number] = at;
        }
    }

    async fn look_at_feeds(&mut self, elapsed: Duration) -> anyhow::Result<()> {
        let now = self.ops.clock.now();
        let query = FeedQuery { limit: 1000, ..FeedQuery::default() };
        let feeds = self.ops.store.feeds(&query).await?.items;
        for feed in &feeds {
            if let Some(number) = self.numbers.get(&feed.id) {
                let recent = |at: Duration, time: Duration| at > Duration::ZERO && elapsed < at + time;
                let asked = recent(self.asked_at[*number], ASKED_FOR);
                let news = recent(self.news_at[*number], NEWS_FOR);
                self.picture.cells[*number] = cell(feed, asked, news, now);
            }
        }
        let mut boxed: Vec<Boxed> = feeds.iter().filter_map(|feed| self.boxed(feed, now)).collect();
        boxed.sort_by_key(|boxed| boxed.again);
        self.picture.boxed = by_turns(boxed);
        let mut held: Vec<HeldHost> = self
            .ops
            .store
            .holds(now)
            .await?
            .into_iter()
            .map(|(host, until)| HeldHost { host: self.internet.host_name(host.as_str()), left: until.since(now) })
            .collect();
        held.sort_by_key(|held| held.left);
        self.picture.held = held;
        self.picture.parked = self.ops.schedule.depth(now).await?.parked;
        Ok(())
    }

    fn boxed(&self, feed: &Feed, now: Timestamp) -> Option<Boxed> {
        let penalty = feed.state.penalty.filter(|_| feed.status == Status::Active)?;
        Some(Boxed {
            feed: self.name_of(feed.id),
            why: reason(penalty.kind, feed.state.last_status),
            again: feed.next_due.unwrap_or(penalty.until).since(now),
        })
    }

    fn look_at_lag(&mut self) {
        let sums = Category::ALL.iter().fold((0.0, 0), |(sum, count), category| {
            let lag = self.ops.metrics.lag.with_label_values(&[category.as_str()]);
            (sum + lag.get_sample_sum(), count + lag.get_sample_count())
        });
        let before = self.lags.front().copied().unwrap_or_default();
        let claims = sums.1.saturating_sub(before.1);
        self.picture.lag =
            (claims > 0).then(|| Duration::from_secs_f64(((sums.0 - before.0) / claims as f64).max(0.0)));
        self.lags.push_back(sums);
        if self.lags.len() > LAG_LOOKS {
            self.lags.pop_front();
        }
    }

    fn outage(&mut self, elapsed: Duration) -> Vec<Happening> {
        let down = internet::down_at(elapsed);
        if down == self.down {
            return Vec::new();
        }
        let before = std::mem::replace(&mut self.down, down.clone());
        let up = before.map(|host| Happening { at: elapsed, good: true, text: format!("{host} is up again") });
        let down = down.map(|host| Happening { at: elapsed, good: false, text: format!("{host} is down") });
        up.into_iter().chain(down).collect()
    }

    /// Stores the judge's verdict when there is one, and starts a new judgement when it is due.
    async fn look_at_verdict(&mut self) {
        if let Some(judging) = self.judging.take_if(|judging| judging.is_finished())
            && let Ok((card, took)) = judging.await
        {
            self.picture.verdict = Some(verdict(&card));
            self.judge_next = Instant::now() + JUDGE_EVERY.max(took * JUDGE_SHARE);
        }
        if self.judging.is_none() && Instant::now() >= self.judge_next {
            let internet = Arc::clone(&self.internet);
            self.judging = Some(tokio::task::spawn_blocking(move || judged(&internet)));
        }
    }
}

/// Judges the whole log, and measures how long that took.
pub(super) fn judged(internet: &Internet) -> (ScoreCard, Duration) {
    let started = Instant::now();
    let rules = Rules { gap: pace::GAP, slack: pace::SLACK, stalls: internet.stalls.seen(), ..Rules::default() };
    (judge(&internet.origin.log(), &rules), started.elapsed())
}

fn verdict(card: &ScoreCard) -> Verdict {
    let counts = Fault::ALL.into_iter().map(|fault| (fault.as_str(), card.count(fault)));
    Verdict {
        requests: card.requests,
        rules: Fault::ALL.len(),
        broken: counts.filter(|(_, count)| *count > 0).collect(),
    }
}

fn cell(feed: &Feed, asked: bool, news: bool, now: Timestamp) -> Cell {
    let state = &feed.state;
    match feed.status {
        Status::Active if asked => Cell::Asked,
        Status::Active if news => Cell::News,
        Status::Active if state.penalty.is_some() => Cell::Boxed,
        Status::Active if state.consecutive_failures > 0 || state.hold_until.is_some_and(|until| until > now) => {
            Cell::Waiting
        }
        Status::Active if state.last_polled.is_none() => Cell::Unasked,
        Status::Active => Cell::Quiet,
        _ => Cell::Gone,
    }
}

/// Reorders feeds so that reasons alternate (each reason's first feed, then each reason's second, ...): a short list
/// still shows every reason.
fn by_turns(boxed: Vec<Boxed>) -> Vec<Boxed> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let turn = |boxed: Boxed| {
        let turn = seen.entry(boxed.why.clone()).or_default();
        *turn += 1;
        (*turn, boxed)
    };
    let mut turns: Vec<(usize, Boxed)> = boxed.into_iter().map(turn).collect();
    turns.sort_by_key(|(turn, _)| *turn);
    turns.into_iter().map(|(_, boxed)| boxed).collect()
}

/// Describes a feed's event in words, and says whether it is good news.
fn headline(event: &Event, feed: &str) -> Option<(bool, String)> {
    Some(match event.kind.as_str() {
        "feed.gone" => (false, format!("{feed} is gone (410): it is never asked again")),
        "feed.moved" => (true, format!("{feed} moved: its new address is kept")),
        "feed.penalised" => {
            let why = event.error.as_ref().map(|error| format!(": {}", error.short()));
            (false, format!("{feed} goes into the penalty box{}", why.unwrap_or_default()))
        }
        "feed.failing" => (false, format!("{feed} has failed for a long time: event feed.failing")),
        "feed.recovered" => (true, format!("{feed} is well again")),
        "feed.overflowed" => (false, format!("{feed} posts faster than it is polled: event feed.overflowed")),
        "feed.silent" => (false, format!("{feed} has not posted for unusually long: event feed.silent")),
        "feed.blacklisted" | "feed.quarantined" => (false, format!("{feed} is given up")),
        _ => return None,
    })
}

/// Returns the reason why a feed is in the penalty box.
fn reason(kind: FailureKind, status: Option<u16>) -> String {
    match (kind, status) {
        (FailureKind::Status, Some(404)) => "404 not found".to_owned(),
        (FailureKind::Status, Some(status)) => format!("answers {status}"),
        (FailureKind::TooLarge, _) => "too large".to_owned(),
        (FailureKind::NotAFeed, _) => "not a feed".to_owned(),
        (FailureKind::Blocked, _) => "blocked".to_owned(),
        (FailureKind::Connect, _) => "no connection".to_owned(),
        (FailureKind::Timeout, _) => "timed out".to_owned(),
        (kind, _) => kind.as_str().replace('_', " "),
    }
}

/// Inserts new items at the front, newest first, and drops the oldest.
fn prepend<T: Clone>(list: &mut Vec<T>, oldest_first: &[T]) {
    list.splice(0..0, oldest_first.iter().rev().take(KEPT).cloned());
    list.truncate(KEPT);
}
