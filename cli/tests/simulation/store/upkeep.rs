//! What people, and the loops beside those of polls, ask of the store.

use std::sync::Arc;

use async_trait::async_trait;
use common::feed::Feed;
use common::job_keys::JobKey;
use common::secrets::Credentials;
use common::time::Timestamp;
use common::time::clocks_agree;
use common::url::FeedId;
use store::sqlite::SqliteStore;
use store::{
    Added, AuditLine, AuditQuery, Audited, Audits, FeedChange, FeedQuery, FeedRef, Feeds, HistoryEntry, NewFeed,
    NewRequeue, OldSeal, Page, Requeue, RequeueFilter, RequeuePlan, RequeueStep, Requeues, Seals, StoreError,
    StoreStats, StoredJobKeys, Upkeep,
};

use super::{SeenStore, lost};
use crate::blocking::run;
use crate::world::Sabotage;

#[async_trait]
impl Feeds for SeenStore {
    async fn add_feeds(&self, feeds: &[NewFeed], now: Timestamp) -> Result<Vec<Added>, StoreError> {
        run(self.server.current().add_feeds(feeds, now))
    }

    async fn feed(&self, which: &FeedRef) -> Result<Option<Feed>, StoreError> {
        run(self.server.current().feed(which))
    }

    async fn feeds(&self, query: &FeedQuery) -> Result<Page<Feed>, StoreError> {
        run(self.server.current().feeds(query))
    }

    async fn feeds_among(&self, query: &FeedQuery, ids: &[FeedId]) -> Result<Vec<Feed>, StoreError> {
        run(self.server.current().feeds_among(query, ids))
    }

    async fn change_feed(&self, id: FeedId, change: &FeedChange, now: Timestamp) -> Result<Option<Feed>, StoreError> {
        run(self.server.current().change_feed(id, change, now))
    }

    async fn change_feeds(&self, changes: &[(FeedId, FeedChange)], now: Timestamp) -> Result<Vec<Feed>, StoreError> {
        let changes = changes.to_vec();
        self.call("change_feeds", move |store| run(store.change_feeds(&changes, now))).await
    }

    async fn erase_feed(&self, id: FeedId, now: Timestamp) -> Result<bool, StoreError> {
        run(self.server.current().erase_feed(id, now))
    }

    async fn erase_pages(&self, before: Timestamp, now: Timestamp) -> Result<u64, StoreError> {
        run(self.server.current().erase_pages(before, now))
    }

    async fn forget_validators(&self, id: FeedId) -> Result<bool, StoreError> {
        run(self.server.current().forget_validators(id))
    }

    async fn history(&self, id: FeedId) -> Result<Option<Vec<HistoryEntry>>, StoreError> {
        run(self.server.current().history(id))
    }
}

#[async_trait]
impl Requeues for SeenStore {
    async fn plan_requeue(&self, filter: &RequeueFilter, lift_penalties: bool) -> Result<RequeuePlan, StoreError> {
        run(self.server.current().plan_requeue(filter, lift_penalties))
    }

    async fn begin_requeue(&self, new: &NewRequeue, now: Timestamp) -> Result<Option<Requeue>, StoreError> {
        run(self.server.current().begin_requeue(new, now))
    }

    async fn requeues(&self, running: bool) -> Result<Vec<Requeue>, StoreError> {
        self.call("requeues", move |store| run(store.requeues(running))).await
    }

    async fn cancel_requeue(&self, id: i64, now: Timestamp) -> Result<bool, StoreError> {
        run(self.server.current().cancel_requeue(id, now))
    }

    async fn step_requeue(&self, id: i64, now: Timestamp) -> Result<RequeueStep, StoreError> {
        self.call("step_requeue", move |store| run(store.step_requeue(id, now))).await
    }
}

#[async_trait]
impl Audits for SeenStore {
    async fn write_audit(&self, added: &[Audited], ended: &[(i64, Audited)]) -> Result<Vec<i64>, StoreError> {
        run(self.server.current().write_audit(added, ended))
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditLine>, StoreError> {
        run(self.server.current().audit(query))
    }

    async fn count_audit(&self) -> Result<u64, StoreError> {
        run(self.server.current().count_audit())
    }

    async fn prune_audit(&self, before: Timestamp) -> Result<u64, StoreError> {
        self.call("prune_audit", move |store| run(store.prune_audit(before))).await
    }
}

#[async_trait]
impl Upkeep for SeenStore {
    async fn stats(&self, now: Timestamp) -> Result<StoreStats, StoreError> {
        self.call("stats", move |store| run(store.stats(now))).await
    }

    async fn fold_counts(&self) -> Result<(), StoreError> {
        self.call("fold_counts", |store| run(store.fold_counts())).await
    }

    async fn check(&self, now: Timestamp) -> Result<(), StoreError> {
        let world = Arc::clone(&self.line.world);
        if world.is_sabotaged(Sabotage::NeverProbes) {
            return Err(lost());
        }
        let check = move |store: &SqliteStore| {
            clocks_agree(now, world.now()).map_err(StoreError::Clock)?;
            run(store.check(now))
        };
        self.call("store check", check).await
    }

    async fn close(&self) {}

    async fn paused(&self) -> Result<bool, StoreError> {
        self.call("paused", |store| run(store.paused())).await
    }

    async fn set_paused(&self, paused: bool) -> Result<(), StoreError> {
        run(self.server.current().set_paused(paused))
    }

    async fn begin_epoch(&self) -> Result<String, StoreError> {
        run(self.server.current().begin_epoch())
    }

    async fn price(&self) -> Result<Option<f64>, StoreError> {
        self.call("price", |store| run(store.price())).await
    }

    async fn adjust_price(&self, before: Option<f64>, price: f64) -> Result<bool, StoreError> {
        self.call("adjust_price", move |store| run(store.adjust_price(before, price))).await
    }

    async fn prune(&self, events: Timestamp, entries: Option<Timestamp>) -> Result<u64, StoreError> {
        self.call("prune", move |store| run(store.prune(events, entries))).await
    }
}

#[async_trait]
impl Seals for SeenStore {
    async fn job_keys(&self, known: &[JobKey], fresh: &JobKey) -> Result<StoredJobKeys, StoreError> {
        let (known, fresh) = (known.to_vec(), fresh.clone());
        self.call("job_keys", move |store| run(store.job_keys(&known, &fresh))).await
    }

    async fn old_seals(&self, current: &[u8], after: FeedId, limit: u32) -> Result<Vec<OldSeal>, StoreError> {
        let current = current.to_vec();
        self.call("old_seals", move |store| run(store.old_seals(&current, after, limit))).await
    }

    async fn reseal(&self, old: &OldSeal, credentials: &Credentials) -> Result<bool, StoreError> {
        run(self.server.current().reseal(old, credentials))
    }
}
