//! The price of a poll, as this scheduler last read it, and the demand that it has seen since.
//!
//! The price itself is in the store, so that all schedulers use the same one and a restart changes nothing. No scheduler
//! leads: once a minute, each one corrects the price by what all of them did (they share these numbers through the schedule).
//! If another scheduler has just changed the price, the correction is dropped. [`common::policy::price`] says what a price should be.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::config::Config;
use common::policy::price::{Demand, Lengthening, adjusted};
use common::time::Timestamp;

use rand::RngExt;

use crate::condition::pace;
use crate::error::BackendError;
use crate::schedule::{Rates, ScheduleView};
use store::{Store, StoreError};

/// Shared by the code that decides by the price, the code that sees demand, and the loop that corrects the price.
#[derive(Debug)]
pub struct Price {
    /// Of this scheduler, among those that measure the demand.
    name: String,
    /// The bits of a float.
    now: AtomicU64,
    /// The same of the demand that was last measured.
    demand: AtomicU64,
    seen: Mutex<PriceInputs>,
}

#[derive(Debug, Default)]
struct PriceInputs {
    /// Feeds claimed that were not claimed before for the same due time.
    claimed: u64,
    /// Polls started.
    started: u64,
    planned: Lengthening,
    /// The backlog of the last look, and when that was.
    last: Option<(Timestamp, usize)>,
}

/// A backlog that takes longer than this to start is a sign that the fleet is at its limit.
const AT_THE_LIMIT: Duration = Duration::from_secs(30);

impl Price {
    /// Starts with the configured price, until the store has been read.
    pub fn new(config: &Config) -> Self {
        Price {
            name: format!("{:016x}", rand::rng().random::<u64>()),
            now: AtomicU64::new(config.policy.price.to_bits()),
            demand: AtomicU64::new(0.0_f64.to_bits()),
            seen: Mutex::default(),
        }
    }

    /// Returns the price to decide by, in subscriber-hours.
    pub fn get(&self) -> f64 {
        f64::from_bits(self.now.load(Ordering::Relaxed))
    }

    /// Polls a second that the fleet's feeds want at this price, as this scheduler last measured it.
    pub fn demand(&self) -> f64 {
        f64::from_bits(self.demand.load(Ordering::Relaxed))
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, PriceInputs> {
        common::lock(&self.seen)
    }

    /// Records a round of dispatch: the feeds claimed for the first time since they became due, and the polls started.
    pub(crate) fn dispatched(&self, claimed: usize, started: usize) {
        let mut seen = self.seen();
        seen.claimed += claimed as u64;
        seen.started += started as u64;
    }

    /// A feed that was due an interval of `before` after its last poll is now due `after` this one.
    pub(crate) fn decided(&self, before: Duration, after: Duration) {
        self.seen().planned.note(before, after);
    }

    /// Takes over the price that the schedulers agreed on before.
    pub(crate) async fn load(&self, store: &dyn Store, config: &Config) -> Result<(), StoreError> {
        let agreed = store.price().await?.unwrap_or(config.policy.price);
        self.set(adjusted(agreed, config.policy.price, 1.0, Some(1.0), 1));
        Ok(())
    }

    /// Takes over the price, and forgets what was seen: while the fleet is paused, or polls no more than to probe its own network, the
    /// number of its polls says nothing of what it can make. The next correction only begins to count.
    pub(crate) async fn rest(&self, store: &dyn Store, config: &Config) -> Result<(), StoreError> {
        *self.seen() = PriceInputs::default();
        self.load(store, config).await
    }

    fn set(&self, price: f64) {
        self.now.store(price.to_bits(), Ordering::Relaxed);
    }

    /// Corrects the price by what the schedulers did since the last call. `backlog`: the fleet's feeds that are due and wait for no host.
    /// Without a single start no judgement is possible: a fleet that is paused or cut off is not overloaded.
    pub async fn correct(
        &self,
        store: &dyn Store,
        schedule: &dyn ScheduleView,
        backlog: usize,
        now: Timestamp,
        config: &Config,
    ) -> Result<(), BackendError> {
        let seen =
            std::mem::replace(&mut *self.seen(), PriceInputs { last: Some((now, backlog)), ..PriceInputs::default() });
        let agreed = store.price().await?;
        let price = agreed.unwrap_or(config.policy.price);
        let all = match seen.rates(now) {
            Some(own) => schedule.rates(&self.name, own).await?,
            None => Vec::new(),
        };
        let Some((measured, affordable)) = seen.measure(&all, backlog, now, config) else {
            self.set(price);
            return Ok(());
        };
        self.demand.store(measured.to_bits(), Ordering::Relaxed);
        let better = adjusted(price, config.policy.price, measured, affordable, all.len());
        // Another scheduler was faster: its price applies.
        let changed = Some(better) != agreed && !store.adjust_price(agreed, better).await?;
        self.set(if changed { store.price().await?.unwrap_or(better) } else { better });
        Ok(())
    }
}

impl PriceInputs {
    /// Returns what this scheduler did per second since its last look; `None` at its first one.
    fn rates(&self, now: Timestamp) -> Option<Rates> {
        let seconds = now.since(self.last?.0).as_secs_f64();
        (seconds > 0.0)
            .then(|| Rates { claimed: self.claimed as f64 / seconds, started: self.started as f64 / seconds })
    }

    /// Polls a second that the fleet wants, and that it can make; `None` when no judgement is possible. `all`: what each scheduler did.
    fn measure(&self, all: &[Rates], backlog: usize, now: Timestamp, config: &Config) -> Option<(f64, Option<f64>)> {
        let (since, before) = self.last?;
        let seconds = now.since(since).as_secs_f64();
        let started: f64 = all.iter().map(|rates| rates.started).sum();
        if seconds <= 0.0 || started <= 0.0 {
            return None;
        }
        let capacity = (backlog as f64 > started * AT_THE_LIMIT.as_secs_f64()).then_some(started);
        let affordable = match (pace::limit(config), capacity) {
            (Some(limit), Some(capacity)) => Some(limit.min(capacity)),
            (limit, capacity) => limit.or(capacity),
        };
        let claimed: f64 = all.iter().map(|rates| rates.claimed).sum();
        let newly_due = claimed + (backlog as f64 - before as f64) / seconds;
        let demand = Demand { newly_due, backlog: backlog as f64, planned: self.planned };
        Some((demand.per_second(affordable), affordable))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::memory::MemorySchedule;
    use store::sqlite::SqliteStore;

    const MINUTE: Duration = Duration::from_secs(60);

    fn config(polls_per_second: f64) -> Config {
        let mut config = common::config::defaults();
        config.policy.polls_per_second = polls_per_second;
        config
    }

    fn at(minute: u32) -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000).after(minute * MINUTE)
    }

    async fn store() -> SqliteStore {
        SqliteStore::open("sqlite::memory:").await.unwrap()
    }

    #[tokio::test]
    async fn two_schedulers_agree_on_one_price_without_a_leader() {
        let (store, config) = (store().await, config(1.0));
        let [one, other] = [(); 2].map(|()| Price::new(&config));
        for minute in 0..5 {
            for price in [&one, &other] {
                price.dispatched(60, 60);
                price
                    .correct(&store, &MemorySchedule::default(), 600 * minute as usize, at(minute), &config)
                    .await
                    .unwrap();
            }
        }
        one.load(&store, &config).await.unwrap();
        assert_eq!(one.get(), other.get());
        assert!(one.get() > config.policy.price, "overload makes polls dear: {}", one.get());
        assert!(one.demand() > 1.0);
        let restarted = Price::new(&config);
        restarted.load(&store, &config).await.unwrap();
        assert_eq!(restarted.get(), other.get());
    }

    #[tokio::test]
    async fn a_fleet_that_can_do_all_it_wants_stays_at_the_configured_price() {
        for cap in [0.0, 5.0] {
            let (store, config) = (store().await, config(cap));
            let price = Price::new(&config);
            for minute in 0..5 {
                price.dispatched(60, 60);
                price.correct(&store, &MemorySchedule::default(), 3, at(minute), &config).await.unwrap();
                assert_eq!(price.get(), config.policy.price);
            }
            assert!((price.demand() - 1.0).abs() < 0.1, "{}", price.demand());
        }
    }

    #[tokio::test]
    async fn without_a_cap_a_backlog_that_grows_shows_the_limit() {
        let (store, config) = (store().await, config(0.0));
        let price = Price::new(&config);
        for minute in 0..5 {
            price.dispatched(600, 600);
            price
                .correct(&store, &MemorySchedule::default(), 1000 * minute as usize, at(minute), &config)
                .await
                .unwrap();
        }
        assert!(price.get() > config.policy.price, "{}", price.get());
    }

    #[tokio::test]
    async fn what_a_fleet_did_while_it_rested_does_not_count_afterwards() {
        let (store, config) = (store().await, config(0.0));
        let price = Price::new(&config);
        for minute in 0..30 {
            price.dispatched(60, 60);
            price.rest(&store, &config).await.unwrap();
            assert_eq!(price.get(), config.policy.price, "minute {minute}");
        }
        price.dispatched(60, 60);
        // The first look after it only begins to count.
        price.correct(&store, &MemorySchedule::default(), 90_000, at(30), &config).await.unwrap();
        assert_eq!((price.get(), price.demand()), (config.policy.price, 0.0));
    }

    #[tokio::test]
    async fn a_paused_fleet_is_not_overloaded() {
        let (store, config) = (store().await, config(1.0));
        let price = Price::new(&config);
        for minute in 0..5 {
            price
                .correct(&store, &MemorySchedule::default(), 1000 * minute as usize, at(minute), &config)
                .await
                .unwrap();
        }
        assert_eq!(price.get(), config.policy.price);
    }

    #[tokio::test]
    async fn longer_intervals_that_were_decided_lower_the_demand_before_they_take_effect() {
        let (store, config) = (store().await, config(1.0));
        let price = Price::new(&config);
        for minute in 0..2 {
            price.dispatched(60, 60);
            price.decided(MINUTE, 2 * MINUTE);
            price.correct(&store, &MemorySchedule::default(), 0, at(minute), &config).await.unwrap();
        }
        assert!((price.demand() - 0.5).abs() < 1e-9, "{}", price.demand());
    }
}
