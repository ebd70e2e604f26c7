//! A process's share of the subscriptions: leased, woken by events, and delivered.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use common::metrics::SUBSCRIPTION_STATES;
use common::time::Timestamp;
use rand::RngExt;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::attempt::{Attempts, Ended, Task, filter};
use super::held::Held;
use super::lanes::Lanes;
use super::reader::{News, next_news, read};
use super::recent::Recent;
use super::saver::Saver;
use super::targets::{Refusals, Targets};
use crate::condition::failure_log::FailureLog;
use crate::error::BackendError;
use crate::ops::Ops;
use store::{Advance, DeliveryShare, DeliveryTurn, StoreError, Subscription, SubscriptionKind, SubscriptionState};

/// Between two looks for subscriptions that were added, changed or taken over.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a lease lasts that is not renewed: so late are deliveries when the process that makes them is killed.
const LEASE: Duration = Duration::from_secs(5);
/// Between two looks at how subscriptions stand.
const COUNT_EVERY: Duration = Duration::from_secs(15);
/// Cursors that moved over events that do not match are stored this often: a process that takes over reads these again.
const STORE_EVERY: Duration = Duration::from_secs(30);
/// After a failure of the store.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How long requests in flight may take after the signal to stop. What is not answered by then is sent again, under the same id.
const GRACE: Duration = Duration::from_secs(3);
/// Subscriptions that are looked at in one go.
const AT_ONCE: usize = 100;

/// The subscriptions that this process holds.
pub(super) struct Share {
    attempts: Arc<Attempts>,
    held: HashMap<i64, Held>,
    targets: Targets,
    /// When each has something to send, by time.
    pub(super) due: BTreeSet<(Timestamp, i64)>,
    running: JoinSet<(i64, Ended)>,
    /// Subscriptions with an attempt among these, perhaps from before they were lost and held again.
    busy: HashSet<i64>,
    /// What the reader for all reads, while there are subscriptions.
    news: Option<mpsc::Receiver<News>>,
    reader: JoinSet<()>,
    /// Up to here events were looked at for all that wait; `None`: the reader has not begun.
    read_to: Option<i64>,
    /// Until then the lease lasts.
    leased_until: Instant,
    /// The store's epoch, and its newest number.
    store: Option<(Arc<str>, i64)>,
    /// When the lease was renewed last, or that was tried.
    looked: Instant,
    leasing: FailureLog,
}

impl Share {
    pub(super) fn new(ops: Arc<Ops>) -> Self {
        let holder = format!("{:032x}", rand::rng().random::<u128>());
        let saver = Saver::new(Arc::clone(&ops.store), Arc::clone(&ops.clock), holder);
        let lanes = Lanes::new(ops.config.delivery.concurrency);
        let (recent, refusals) = (Recent::default(), Refusals::default());
        Share {
            attempts: Arc::new(Attempts { ops, lanes, saver, recent, refusals }),
            held: HashMap::new(),
            targets: Targets::default(),
            due: BTreeSet::new(),
            running: JoinSet::new(),
            busy: HashSet::new(),
            news: None,
            reader: JoinSet::new(),
            read_to: None,
            leased_until: Instant::now(),
            store: None,
            looked: Instant::now(),
            leasing: FailureLog::new("taking subscriptions"),
        }
    }

    fn now(&self) -> Timestamp {
        self.attempts.ops.clock.now()
    }

    /// Delivers until stopped.
    pub(super) async fn run(mut self, stop: &CancellationToken) {
        let [mut counting, mut storing, mut attempting] =
            ["counting subscriptions", "storing the cursors of subscriptions", "storing what was delivered"]
                .map(FailureLog::new);
        let [mut counted, mut stored] = [Instant::now(); 2];
        self.look_again().await;
        counting.note(self.count().await);
        loop {
            self.start_due();
            let next = self.next_due();
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep_until(self.looked + LOOK_EVERY) => {
                    self.look_again().await;
                    if counted.elapsed() >= COUNT_EVERY {
                        counted = Instant::now();
                        counting.note(self.count().await);
                    }
                    if stored.elapsed() >= STORE_EVERY {
                        stored = Instant::now();
                        storing.note(self.store_cursors().await);
                    }
                }
                Some(ended) = self.running.join_next() => self.end(ended, &mut attempting),
                Some(news) = next_news(&mut self.news) => self.wake(news).await,
                () = tokio::time::sleep(next), if next < LOOK_EVERY => {}
            }
        }
        self.stop(&mut attempting).await;
    }

    /// Lets requests in flight end, and then the subscriptions go.
    async fn stop(mut self, attempting: &mut FailureLog) {
        let deadline = Instant::now() + GRACE;
        while let Ok(Some(ended)) = tokio::time::timeout_at(deadline, self.running.join_next()).await {
            self.end(ended, attempting);
        }
        self.running.shutdown().await;
        // Otherwise the lease expires, and events that do not match are looked at again.
        let _ = self.store_cursors().await;
        let turn = DeliveryTurn { holder: &self.attempts.saver.holder, lasts: Duration::ZERO, idle: &[] };
        let _ = self.attempts.ops.store.lease_subscriptions(&turn).await;
    }

    async fn look_again(&mut self) {
        self.looked = Instant::now();
        let looked = self.look().await;
        self.leasing.note(looked);
    }

    /// Renews the lease, and learns of subscriptions that were added, changed, taken over or lost.
    async fn look(&mut self) -> Result<(), BackendError> {
        let store = Arc::clone(&self.attempts.ops.store);
        let idle: Vec<i64> = self.held.iter().filter(|(_, held)| held.running.is_none()).map(|(id, _)| *id).collect();
        let turn = DeliveryTurn { holder: &self.attempts.saver.holder, lasts: LEASE, idle: &idle };
        let begun = Instant::now();
        let share = store.lease_subscriptions(&turn).await?;
        self.leased_until = begun + LEASE;
        self.note_store(&share);
        let leased = share.held;
        let ids: HashSet<i64> = leased.iter().map(|(id, _)| *id).collect();
        let lost: Vec<i64> = self.held.keys().filter(|id| !ids.contains(id)).copied().collect();
        for id in lost {
            self.let_go(id);
        }
        let is_new = |(id, revision): &(i64, i64)| match self.held.get(id) {
            Some(held) => held.subscription.revision != *revision,
            None => true,
        };
        let news: Vec<i64> = leased.iter().filter(|it| is_new(it)).map(|(id, _)| *id).collect();
        for ids in news.chunks(AT_ONCE) {
            for subscription in store.subscriptions_among(ids).await? {
                self.hold(subscription);
            }
        }
        self.read_or_not();
        self.targets.forget_unused();
        Ok(())
    }

    /// Forgets all subscriptions when the store is another one: restored, or taken over without its last transactions. Cursors in
    /// memory may then be ahead of it.
    fn note_store(&mut self, share: &DeliveryShare) {
        let is_other = self.store.as_ref().is_some_and(|(epoch, newest)| {
            **epoch != *share.epoch || share.newest < (*newest).max(self.read_to.unwrap_or(0))
        });
        self.store = Some((share.epoch.as_str().into(), share.newest));
        if is_other {
            tracing::warn!(
                newest = share.newest,
                "the store is behind what was read from it; reading the subscriptions again"
            );
            self.attempts.recent.forget();
            (self.news, self.read_to, self.reader) = (None, None, JoinSet::new());
            let ids: Vec<i64> = self.held.keys().copied().collect();
            for id in ids {
                self.let_go(id);
            }
        }
    }

    /// Runs the reader while there are subscriptions.
    fn read_or_not(&mut self) {
        if self.held.is_empty() {
            // What is dropped is aborted.
            (self.news, self.read_to, self.reader) = (None, None, JoinSet::new());
        } else if self.news.is_none() {
            let (sender, news) = mpsc::channel(1);
            self.reader.spawn(read(Arc::clone(&self.attempts.ops.store), sender));
            self.news = Some(news);
        }
    }

    fn hold(&mut self, subscription: Subscription) {
        let id = subscription.id;
        self.let_go(id);
        let intent = subscription.hub.as_ref().and_then(|hub| hub.intent.as_ref());
        let url = match Url::parse(&subscription.wish.target) {
            Ok(url) if subscription.is_served() => url,
            Ok(_) => return,
            Err(error) => {
                tracing::error!(subscription = id, %error, "the target of a subscription is not a URL");
                return;
            }
        };
        let limits = &self.attempts.ops.config.delivery;
        let progress = &subscription.progress;
        let now = self.now();
        // Questions do not wait for a target that fails.
        let question = intent.map(|intent| intent.next_try.unwrap_or(now));
        let delivery = subscription.is_delivered().then(|| progress.next_try.unwrap_or(now));
        let due = delivery.into_iter().chain(question).min().unwrap_or(now);
        self.due.insert((due, id));
        let held = Held {
            filter: filter(&subscription),
            target: self.targets.of(&url, limits.target_parallel, limits.target_gap),
            url,
            running: None,
            is_slow: progress.failures > 0,
            question,
            due: Some(due),
            is_caught_up: false,
            looked: progress.cursor,
            gathered: None,
            stored: progress.cursor,
            subscription,
        };
        self.held.insert(id, held);
    }

    fn let_go(&mut self, id: i64) {
        if let Some(held) = self.held.remove(&id)
            && let Some(due) = held.due
        {
            self.due.remove(&(due, id));
        }
    }

    /// How long nothing is due. Nothing starts without a lease.
    pub(super) fn next_due(&self) -> Duration {
        if Instant::now() >= self.leased_until {
            return LOOK_EVERY;
        }
        self.due.first().map_or(LOOK_EVERY, |(due, _)| due.since(self.now()))
    }

    fn start_due(&mut self) {
        let now = self.now();
        if Instant::now() >= self.leased_until {
            return;
        }
        // Known since the first look.
        let Some((epoch, _)) = self.store.clone() else { return };
        while let Some((due, id)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            self.due.remove(&(due, id));
            let Some(held) = self.held.get_mut(&id) else { continue };
            (held.due, held.is_caught_up) = (None, false);
            if !self.busy.insert(id) {
                // An attempt with what was known before is still running: its end makes this one due.
                continue;
            }
            if held.gathered.take().is_some() {
                // What was gathered is not sent yet: the page may end before the last of it.
                held.looked = held.subscription.progress.cursor;
            }
            let gone = CancellationToken::new();
            held.running = Some(gone.clone().drop_guard());
            let task = Task {
                of: held.subscription.clone(),
                url: held.url.clone(),
                target: Arc::clone(&held.target),
                is_slow: held.is_slow,
                asks: held.question.is_some_and(|at| at <= now),
                epoch: Arc::clone(&epoch),
                stored: (held.stored, held.subscription.progress.pending),
                newest: self.read_to.unwrap_or(0),
                gone,
            };
            let attempts = Arc::clone(&self.attempts);
            self.running.spawn(async move { (id, attempts.attempt(&task).await) });
        }
    }

    /// Takes note of how an attempt ended, and decides when the next one begins.
    fn end(&mut self, ended: Result<(i64, Ended), JoinError>, log: &mut FailureLog) {
        let (id, ended) = match ended {
            Ok(ended) => ended,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => return,
        };
        self.busy.remove(&id);
        let (now, read_to) = (self.now(), self.read_to);
        let Some(held) = self.held.get_mut(&id) else { return };
        if held.running.take().is_none() {
            if held.due.is_none() {
                self.wait(id, now);
            }
            return;
        }
        let looked = match ended {
            Ended::Nothing(looked) => Some(looked),
            Ended::Later { due, looked, count } => {
                (held.looked, held.gathered) = (looked, Some(count));
                // The reader for all was ahead: what it saw is to be counted too.
                let due = if read_to.is_some_and(|read_to| looked < read_to) { now } else { due };
                let due = held.or_question(Some(due)).unwrap_or(due);
                return self.wait(id, due);
            }
            Ended::Answered { progress, is_slow, looked } => {
                log.note(Ok::<(), BackendError>(()));
                let next = progress.next_try;
                (held.stored, held.is_slow) = (progress.cursor, is_slow);
                held.subscription.progress = *progress;
                match (next, looked) {
                    (Some(next), _) => {
                        let due = held.or_question(Some(next)).unwrap_or(next);
                        return self.wait(id, due);
                    }
                    (None, looked) => looked,
                }
            }
            Ended::Unanswered(question) => {
                held.question = question.or(held.question);
                let due = held.question.unwrap_or_else(|| now.after(TRY_AGAIN));
                return self.wait(id, due);
            }
            // The next look knows more.
            Ended::Lost => return self.let_go(id),
            // What is stored is unknown. The next look reads it: a request that was sent has its range there.
            Ended::Unstored(error) => {
                log.note(Err::<(), _>(Unstored(error)));
                return self.let_go(id);
            }
        };
        match looked {
            Some(looked) => {
                held.looked = looked.max(held.looked);
                if held.subscription.progress.pending == 0 {
                    held.subscription.progress.cursor = held.looked;
                }
                // The reader for all was ahead: what it saw is not to be missed.
                let is_behind = read_to.is_some_and(|read_to| held.looked < read_to);
                held.is_caught_up = !is_behind && held.subscription.progress.pending == 0;
                if let Some(due) = held.or_question(is_behind.then_some(now)) {
                    self.wait(id, due);
                }
            }
            None => self.wait(id, now),
        }
    }

    fn wait(&mut self, id: i64, due: Timestamp) {
        if let Some(held) = self.held.get_mut(&id) {
            held.due = Some(due);
            self.due.insert((due, id));
        }
    }

    /// Wakes the subscriptions for which there is news. Filters that look at texts may take long for thousands of subscriptions: the
    /// lease is renewed meanwhile.
    async fn wake(&mut self, news: News) {
        let page = match news {
            News::From(seq) => {
                self.attempts.recent.forget();
                self.read_to = Some(seq);
                Err(seq)
            }
            News::Page(after, page) => {
                self.read_to = Some(page.next);
                Ok(self.attempts.recent.keep(after, page))
            }
        };
        let ids: Vec<i64> = self.held.keys().copied().collect();
        for ids in ids.chunks(AT_ONCE) {
            let now = self.now();
            for id in ids {
                let Some(held) = self.held.get_mut(id) else { continue };
                let is_woken = match &page {
                    // What was stored before the reader began, or in another epoch, each looks at for itself.
                    Err(seq) => held.waits() && held.looked != *seq,
                    Ok(page) => held.waits_for_events() && held.is_woken(page),
                };
                if !is_woken {
                    continue;
                }
                held.is_caught_up = false;
                if let Some(due) = held.due {
                    self.due.remove(&(due, *id));
                }
                self.wait(*id, now);
            }
            tokio::task::yield_now().await;
            if self.looked.elapsed() >= LOOK_EVERY {
                self.look_again().await;
                if self.read_to.is_none() {
                    // The store is another one: what was read of it does not count.
                    return;
                }
            }
        }
    }

    async fn count(&self) -> Result<(), StoreError> {
        let counts = self.attempts.ops.store.count_subscriptions().await?;
        for kind in SubscriptionKind::ALL {
            for name in SUBSCRIPTION_STATES {
                let of_state = counts.iter().filter(|(_, state, is_failing, _)| match state {
                    SubscriptionState::Active if *is_failing => name == "failing",
                    state => name == state.as_str(),
                });
                let sum: u64 = of_state.filter(|count| count.0 == kind).map(|(.., count)| count).sum();
                let gauge = self.attempts.ops.metrics.subscriptions.with_label_values(&[kind.as_str(), name]);
                gauge.set(i64::try_from(sum).unwrap_or(i64::MAX));
            }
        }
        Ok(())
    }

    /// Stores the cursors that only moved over events that do not match.
    async fn store_cursors(&mut self) -> Result<(), StoreError> {
        let Some((epoch, _)) = &self.store else { return Ok(()) };
        let moved: Vec<Advance> = self.held.values().filter_map(|held| held.moved(epoch)).collect();
        let attempts = Arc::clone(&self.attempts);
        for advances in moved.chunks(AT_ONCE) {
            let now = self.attempts.ops.clock.now();
            let stored = attempts.ops.store.advance_subscriptions(&attempts.saver.holder, advances, now).await?;
            for id in advances.iter().map(|advance| advance.id) {
                match self.held.get_mut(&id).filter(|_| stored.contains(&id)) {
                    Some(held) => held.stored = held.subscription.progress.cursor,
                    // The next look knows more.
                    None => self.let_go(id),
                }
            }
        }
        Ok(())
    }
}

/// What the store answered.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Unstored(String);
