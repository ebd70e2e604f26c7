//! Publishes events to the exchange of a cluster, in the order of their numbers and at least once.
//!
//! Every scheduler runs a relay, but only one at a time publishes: the one that has the turn, a lease in the store. The store
//! also records the last event that was published. The holder renews its turn continuously. When the turn expires, another
//! scheduler takes over and continues after the last event that the exchange confirmed. If two schedulers believe that they
//! have the turn, because one of them was suspended for a while, they publish some events twice but omit none: each continues
//! after the last confirmed event, in order.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use common::metrics::Metrics;
use common::queue::{Announce, Announcement, Published};
use common::time::{Clock, Timestamp};
use rand::RngExt;
use tokio_util::sync::CancellationToken;

use crate::condition::failure_log::FailureLog;
use crate::error::BackendError;
use crate::events::follow::{Follower, Tail};
use crate::events::headers::{self, Texts};
use crate::wire::EventView;
use store::{Event, RelayTurn, Store};

/// How long a turn lasts that is not prolonged: so late are events when the process that passed them on is killed.
const TURN: Duration = Duration::from_secs(5);
/// Between two prolongations, at most.
const PROLONG: Duration = Duration::from_secs(1);
/// Between two looks whether the turn is free, and two tries after trouble.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Runs a relay, where there is an exchange, until stopped.
pub async fn run(relay: Option<Relay>, stop: &CancellationToken) {
    if let Some(relay) = relay {
        relay.run(stop).await;
    }
}

/// One process's wish to pass events on.
pub struct Relay {
    exchange: Box<dyn Announce>,
    tail: Arc<Tail>,
    turn: RelayLease,
    texts: Texts,
    /// It had the turn when it looked last.
    has_turn: bool,
    metrics: Arc<Metrics>,
}

impl Relay {
    /// From this store to this exchange, with headers for these texts; nothing runs yet.
    pub fn new(
        store: Arc<dyn Store>,
        exchange: Box<dyn Announce>,
        texts: &[String],
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let tail = Arc::new(Tail::of(Arc::clone(&store)));
        let holder = format!("{:032x}", rand::rng().random::<u128>());
        let turn = RelayLease { store, clock, holder };
        Relay { exchange, tail, turn, texts: Texts::new(texts), has_turn: false, metrics }
    }

    /// Runs until stopped, and then leaves the turn to others at once.
    pub async fn run(mut self, stop: &CancellationToken) {
        let mut trouble = FailureLog::new("passing events on to the exchange");
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                passed = self.pass_on(&mut trouble) => {
                    // Otherwise the turn is still this one's, and the exchange or the store refuses.
                    if passed.is_ok() {
                        self.metrics.relay_turn.set(0);
                    }
                    trouble.note(passed);
                }
            }
            if !common::sleep_or_stop(LOOK_EVERY, stop).await {
                break;
            }
        }
        self.metrics.relay_turn.set(0);
        // Otherwise the lease expires.
        let _ = self.turn.take(&Confirmed::default(), Duration::ZERO).await;
    }

    /// Passes on for as long as it is this one's turn.
    async fn pass_on(&mut self, trouble: &mut FailureLog) -> Result<(), BackendError> {
        let Some(cursor) = self.turn.take(&Confirmed::default(), TURN).await? else {
            self.metrics.relay_lag.set(0.0);
            self.has_turn = false;
            return Ok(());
        };
        self.metrics.relay_turn.set(1);
        if !std::mem::replace(&mut self.has_turn, true) {
            tracing::info!(holder = self.turn.holder, after = cursor, "it is this process that passes events on");
        }
        let mut follower = Follower::new(Arc::clone(&self.tail), cursor);
        let mut confirmed = Confirmed { seq: cursor, epoch: String::new() };
        loop {
            let page = follower.page().await?;
            if confirmed.epoch.is_empty() {
                confirmed.epoch.clone_from(&page.epoch);
            } else if confirmed.epoch != page.epoch {
                // What this one knows is of a history that ended: the cursor in the store is the new one's.
                tracing::warn!(
                    epoch = page.epoch,
                    "the events have another history; they are passed on from its cursor"
                );
                self.has_turn = false;
                return Ok(());
            }
            if Follower::missed(confirmed.seq, &page) {
                let (after, oldest) = (confirmed.seq, page.oldest);
                tracing::error!(after, oldest, "events were deleted by retention before the exchange had them");
            }
            self.note_lag(page.items.first());
            if page.items.is_empty() {
                let _ = tokio::time::timeout(PROLONG, follower.news()).await;
            } else {
                let messages: Vec<Announcement> =
                    page.items.iter().map(|event| announcement(event, &page.epoch, &self.texts)).collect();
                follower.note_size(messages.len(), messages.iter().map(|message| message.body.len()).sum());
                let Some(published) = self.publish(&messages, &confirmed, &page.items).await? else { return Ok(()) };
                if let Some(last) = published.confirmed.checked_sub(1) {
                    confirmed.seq = page.items[last].seq;
                }
                if let Some(refusal) = published.trouble {
                    self.turn.take(&confirmed, TURN).await?;
                    return Err(refusal.into());
                }
                trouble.note(Ok::<(), BackendError>(()));
            }
            if self.turn.take(&confirmed, TURN).await?.is_none() {
                return Ok(());
            }
        }
    }

    /// Waits for the exchange as long as it takes, and prolongs the turn meanwhile; `None` when it was lost.
    async fn publish(
        &mut self,
        messages: &[Announcement],
        confirmed: &Confirmed,
        events: &[Event],
    ) -> Result<Option<Published>, BackendError> {
        let mut publishing = pin!(self.exchange.publish(messages));
        loop {
            tokio::select! {
                biased;
                published = &mut publishing => return Ok(Some(published)),
                () = tokio::time::sleep(PROLONG) => {}
            }
            if self.turn.take(confirmed, TURN).await?.is_none() {
                return Ok(None);
            }
            self.metrics.relay_lag.set(lag(events.first(), self.turn.clock.now()));
        }
    }

    fn note_lag(&self, oldest: Option<&Event>) {
        self.metrics.relay_lag.set(lag(oldest, self.turn.clock.now()));
    }
}

/// Seconds since the oldest event that waits was stored.
fn lag(oldest: Option<&Event>, now: Timestamp) -> f64 {
    oldest.map_or(0.0, |event| now.since(event.at).as_secs_f64())
}

fn announcement(event: &Event, epoch: &str, texts: &Texts) -> Announcement {
    let (kind, feed, seq) = (event.kind.clone(), event.feed_id, event.seq);
    let headers = headers::of(event, texts);
    // Texts and numbers: there is nothing in it that JSON could not say.
    let body = serde_json::to_vec(&EventView::in_epoch(event.clone(), epoch)).unwrap_or_default();
    Announcement { key: format!("{kind}.{feed}"), kind, id: format!("{epoch}-{seq}"), headers, body }
}

/// How far the exchange has the events, as far as this process knows; of which history.
#[derive(Default)]
struct Confirmed {
    seq: i64,
    epoch: String,
}

/// The lease under which one scheduler relays events.
struct RelayLease {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// This process.
    holder: String,
}

impl RelayLease {
    /// Takes or keeps the lease for this time; returns the last event that was relayed.
    async fn take(&self, confirmed: &Confirmed, lasts: Duration) -> Result<Option<i64>, BackendError> {
        let Confirmed { seq, epoch } = confirmed;
        let turn = RelayTurn { holder: &self.holder, confirmed: *seq, epoch, lasts };
        Ok(self.store.relay_turn(&turn).await?)
    }
}
