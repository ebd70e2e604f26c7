//! The pings of a feed that come together, made one poll after the last of them ([`PingWindow`]).
//!
//! No ping is lost, and none is answered by a fetch that began before it. The first one of a window stores a wake at
//! the window's end, which is brought forward when no further ping came for the quiet time; so a process that is killed
//! delays a poll and forgets none. Pings that come while a fetch may be in flight are known to this process alone until
//! that fetch has ended. Schedulers that hear pings of the same feed do not coordinate: a scheduler that finds that the
//! stored wake was brought forward after its last ping has nothing left to do.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use common::feed::Feed;
use common::policy::{PingWindow, Status, rest_after_poll};
use common::time::Timestamp;
use common::url::FeedId;
use tokio::time::Instant;

use crate::error::BackendError;
use crate::ops::Ops;
use store::FeedRef;

/// Feeds whose pings are gathered at once; further ones are polled at their place in the spread, whatever follows.
const MOST: usize = 10_000;
/// How long a ping waits after a first failure of the store or the schedule; after each further one it waits that much longer.
const RETRY: Duration = Duration::from_secs(1);
/// The maximum number of retries: five minutes in all.
const RETRIES: u32 = 24;

/// The feeds that may receive further pings.
pub(super) struct GatheredPings {
    ops: Arc<Ops>,
    last: Mutex<HashMap<FeedId, Ping>>,
}

/// The last ping of a feed.
#[derive(Clone, Copy)]
struct Ping {
    came: Instant,
    at: Timestamp,
    /// A wake that lay ahead was stored then: the fetch that answers it, and no other one, began after this ping.
    is_stored: bool,
}

impl GatheredPings {
    pub(super) fn new(ops: Arc<Ops>) -> Self {
        GatheredPings { ops, last: Mutex::default() }
    }

    /// Notes a ping of a feed that hears pings, `feed` read after it came. `window` is its window if it is the first.
    pub(super) async fn add(self: &Arc<Self>, feed: &Feed, window: PingWindow) -> Result<(), BackendError> {
        let (came, at) = (Instant::now(), self.ops.clock.now());
        let is_stored = match feed.wake_at {
            None => {
                self.ops.wake_pinged(feed.id, at.after(window.end)).await?;
                true
            }
            // True if the wake lies ahead by any scheduler's clock. If it has passed, a fetch in flight may already
            // answer this ping; if that fetch does not, a later wake would delay the answer: none is stored.
            Some(wake) => wake > at.after(self.ops.config.scheduler.clock_skew),
        };
        // Where the feed rests for longer, its poll is stored for the right time already.
        if is_stored && window.place >= window.end {
            return Ok(());
        }
        match self.hear(feed.id, Ping { came, at, is_stored }) {
            Heard::Further => {}
            Heard::First => {
                let (gathered, id) = (Arc::clone(self), feed.id);
                tokio::spawn(async move {
                    if let Err(error) = gathered.answer(id, window, came).await {
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            feed = id.0,
                            "a ping is answered late"
                        );
                    }
                });
            }
            Heard::TooMany => {
                self.ops.wake_pinged(feed.id, at.after(window.place)).await?;
            }
        }
        Ok(())
    }

    fn hear(&self, id: FeedId, ping: Ping) -> Heard {
        let mut last = self.last();
        let is_full = last.len() >= MOST;
        match last.entry(id) {
            Entry::Occupied(mut known) => {
                known.insert(ping);
                Heard::Further
            }
            Entry::Vacant(_) if is_full => Heard::TooMany,
            Entry::Vacant(place) => {
                place.insert(ping);
                Heard::First
            }
        }
    }

    /// Has the feed polled when its pings have ended. `first` is when the first of them came. Returns an error after the last retry, or
    /// when the scheduler stops.
    async fn answer(&self, id: FeedId, mut window: PingWindow, first: Instant) -> Result<(), BackendError> {
        let mut failures = 0;
        while let Some(ping) = self.last_of_all(id, window, first).await {
            let wait = match self.answer_last(id, ping).await {
                Ok(wait) => wait,
                Err(error) if failures == RETRIES || self.ops.quiet.is_cancelled() => return Err(error),
                Err(_) => {
                    failures += 1;
                    Some(RETRY * failures)
                }
            };
            let Some(wait) = wait else { break };
            if !self.keep(id, ping) {
                break;
            }
            window.place = first.elapsed() + wait;
            window.end = window.end.max(window.place);
        }
        Ok(())
    }

    /// Has the feed polled for the last of its pings. Returns how long the ping waits first, if it does.
    async fn answer_last(&self, id: FeedId, ping: Ping) -> Result<Option<Duration>, BackendError> {
        let feed = self.ops.feed(&FeedRef::Id(id)).await?.filter(Feed::hears_pings);
        let Some(feed) = feed else { return Ok(None) };
        let (now, quits) = (self.ops.clock.now(), self.ops.quiet.is_cancelled());
        let lies_ahead = feed.wake_at.is_some_and(|wake| wake > now);
        let skew = self.ops.config.scheduler.clock_skew;
        let is_answered = match ping.is_stored {
            true => !lies_ahead,
            // A poll that lies ahead was made by a clock that was ahead, and was corrected since.
            false => {
                feed.state.last_polled.is_some_and(|polled| polled > ping.at.after(skew) && polled <= now.after(skew))
            }
        };
        // What is stored outlives this process.
        if is_answered || quits && lies_ahead {
            return Ok(None);
        }
        let config = self.ops.condition.config.get();
        let policy = &config.policy;
        let rest = rest_after_poll(now, feed.status, &feed.state, policy);
        // A report uses up the only try of a feed that is not polled otherwise, whenever that try was requested.
        let in_flight = feed.status != Status::Active && feed.wake_at.is_some_and(|wake| wake <= now);
        let wait = if in_flight { rest.max(policy.ping_spread).max(policy.ping_quiet) } else { rest };
        let is_due = quits || wait.is_zero();
        // Without a wake, a fetch ended meanwhile that did not see what the ping announced.
        if is_due || feed.wake_at.is_none() {
            self.ops.wake_pinged(id, if is_due { now } else { now.after(wait) }).await?;
            return Ok(None);
        }
        Ok(Some(wait))
    }

    /// Waits until the feed is to be polled, and takes its last ping, so that a further one starts from scratch.
    async fn last_of_all(&self, id: FeedId, window: PingWindow, first: Instant) -> Option<Ping> {
        loop {
            let wait = {
                let mut last = self.last();
                let ping = last.get(&id)?;
                let due = window.due(ping.came.duration_since(first), &self.ops.condition.config.get().policy);
                let wait = due.saturating_sub(first.elapsed());
                if wait < Duration::from_millis(1) || self.ops.quiet.is_cancelled() {
                    return last.remove(&id);
                }
                wait
            };
            common::sleep_or_stop(wait, &self.ops.quiet).await;
        }
    }

    /// Puts a ping back that waits on. False when a further one came, whose turn it then is.
    fn keep(&self, id: FeedId, ping: Ping) -> bool {
        match self.last().entry(id) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(ping);
                true
            }
        }
    }

    fn last(&self) -> MutexGuard<'_, HashMap<FeedId, Ping>> {
        common::lock(&self.last)
    }
}

/// What a ping is to those before it.
enum Heard {
    First,
    Further,
    TooMany,
}

#[cfg(test)]
mod tests {
    use common::metrics::Metrics;

    use common::time::{Clock, ManualClock};
    use futures_util::FutureExt;
    use store::sqlite::SqliteStore;

    use super::*;
    use crate::ops::AddFeed;
    use crate::run::{Backends, Scheduler};

    #[tokio::test]
    async fn a_ping_during_a_fetch_is_answered_although_the_store_failed_when_its_window_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("feedfleet.db");
        let store = Arc::new(SqliteStore::open(&format!("sqlite://{}", path.display())).await.unwrap());
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
        let (config, metrics) = (Arc::new(common::config::defaults()), Arc::new(Metrics::new()));
        let Scheduler { ops, .. } = Scheduler::new(&Backends::in_memory(store), &config, &metrics, &clock);
        let feed = AddFeed::of("http://a.example/feed".parse().unwrap());
        let id = ops.add(&[feed], None).await.unwrap()[0].id;
        let pings = GatheredPings::new(ops.clone());
        let first = Instant::now();
        let ping = Ping { came: first, at: clock.now(), is_stored: false };
        assert!(matches!(pings.hear(id, ping), Heard::First));

        let other = rusqlite::Connection::open(&path).unwrap();
        let set = |url: &str| other.execute("UPDATE feeds SET url = ?1", [url]).unwrap();
        set("no URL");
        let window = PingWindow { place: Duration::ZERO, end: Duration::ZERO };
        let mut answering = std::pin::pin!(pings.answer(id, window, first));
        // It takes the ping, and reads the feed.
        assert!(answering.as_mut().now_or_never().is_none());
        let is_kept = async {
            while pings.last().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            answered = &mut answering => panic!("the ping was given up: {answered:?}"),
            () = is_kept => {}
        }
        set("http://a.example/feed");
        answering.await.unwrap();
        let feed = ops.feed(&FeedRef::Id(id)).await.unwrap().unwrap();
        assert_eq!(feed.wake_at, Some(clock.now()));
        assert!(pings.last().is_empty());

        // Its last poll was noted by a clock that was ahead.
        let ahead = clock.now().after(Duration::from_secs(365 * 86_400));
        let state = serde_json::json!({ "last_polled": ahead }).to_string();
        other.execute("UPDATE feeds SET wake_at = NULL, state = ?1", [&state]).unwrap();
        assert_eq!(pings.answer_last(id, ping).await.unwrap(), None);
        let feed = ops.feed(&FeedRef::Id(id)).await.unwrap().unwrap();
        let rested = clock.now().after(config.policy.ping_spread);
        assert_eq!((feed.state.last_polled, feed.wake_at), (Some(ahead), Some(rested)));
    }
}
