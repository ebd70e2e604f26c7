//! The store of a simulated fleet: SQLite in memory, behind connections that may break. The judge learns of everything
//! that it accepts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use common::archive::ArchiveRead;
use common::feed::Feed;
use common::host::{HostKey, HostRule};
use common::job::Detour;
use common::secrets::Credentials;
use common::time::{Timestamp, clocks_agree};
use common::url::{FeedId, Version};
use store::sqlite::SqliteStore;
use store::{
    AcceptedPolicy, Added, Applied, AuditLine, AuditQuery, Audited, Audits, Deliveries, EntryRef, Event, EventPage,
    EventQuery, Events, FeedChange, FeedQuery, FeedRef, Feeds, HistoryEntry, HostOrders, HostQuery, HostRefusal,
    HostRow, Hosts, HubSubscriptions, JobRow, Move, Moved, NewFeed, NewPolicy, NewRequeue, OldSeal, OwedPace, Page,
    Placement, Polls, PushCount, PushHeard, PushLosses, PushSubscription, PushUpkeep, PushWish, Pushes, RefusedHost,
    RelayTurn, Requeue, RequeueFilter, RequeuePlan, RequeueStep, Requeues, Seals, StoreError, StoreStats, StoredEntry,
    StoredJobKeys, Subscribed, Subscriptions, Unmove, Unmoved, Unpushed, Upkeep, Verdict, VersionedChanges, Wakes,
};
use store::{
    Advance, DeliveryShare, DeliveryTurn, HubFeed, NewSubscription, Stray, StrayQuery, Subscription,
    SubscriptionChange, SubscriptionCount,
};

use crate::blocking::run;
use crate::life::Server;
use crate::line::Line;
use crate::world::Sabotage;

/// The server.
pub(crate) struct StoreServer {
    pub(crate) store: SqliteStore,
    /// The process that passes events on, and until when: SQLite uses the machine's clock.
    turn: Mutex<Option<(String, Timestamp)>>,
}

impl StoreServer {
    pub(crate) fn new() -> Self {
        let store = run(SqliteStore::open("sqlite::memory:")).expect("a store in memory");
        StoreServer { store, turn: Mutex::default() }
    }

    /// Takes the turn by the simulation's clock. A holder whose turn has expired releases it first.
    fn relay_turn(&self, turn: &RelayTurn<'_>, now: Timestamp) -> Result<Option<i64>, StoreError> {
        let mut holder = common::lock(&self.turn);
        if let Some((other, until)) = holder.as_ref().filter(|(other, _)| *other != turn.holder) {
            if *until > now {
                return Ok(None);
            }
            let over = RelayTurn { holder: other, confirmed: 0, epoch: "", lasts: Duration::ZERO };
            run(self.store.relay_turn(&over))?;
        }
        *holder = Some((turn.holder.to_owned(), now.after(turn.lasts)));
        run(self.store.relay_turn(turn))
    }
}

/// The store as one process sees it.
pub(crate) struct SeenStore {
    pub(crate) line: Line,
    pub(crate) server: Arc<StoreServer>,
}

fn lost() -> StoreError {
    StoreError::Late { action: "be used by this process", limit: Server::Store.patience() }
}

impl SeenStore {
    async fn call<T: Send + 'static>(
        &self,
        name: &'static str,
        call: impl FnOnce(&SqliteStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let server = Arc::clone(&self.server);
        self.line.call(name, lost, move || call(&server.store)).await
    }
}

#[async_trait]
impl Polls for SeenStore {
    async fn jobs_for(&self, ids: &[FeedId]) -> Result<Vec<JobRow>, StoreError> {
        let ids = ids.to_vec();
        let mut rows = self.call("jobs_for", move |store| run(store.jobs_for(&ids))).await?;
        if self.line.world.is_sabotaged(Sabotage::Early) {
            rows.iter_mut().for_each(|row| row.next_due = row.next_due.before(Duration::from_secs(9)));
        }
        Ok(rows)
    }

    async fn live_among(&self, ids: &[FeedId]) -> Result<Vec<FeedId>, StoreError> {
        let ids = ids.to_vec();
        self.call("live_among", move |store| run(store.live_among(&ids))).await
    }

    async fn keep_detours(&self, detours: &[(FeedId, Version, Detour)]) -> Result<(), StoreError> {
        let detours = detours.to_vec();
        self.call("keep_detours", move |store| run(store.keep_detours(&detours))).await
    }

    async fn states_for(&self, ids: &[FeedId]) -> Result<Vec<Feed>, StoreError> {
        let ids = ids.to_vec();
        self.call("states_for", move |store| run(store.states_for(&ids))).await
    }

    async fn apply(
        &self,
        verdicts: &[Verdict],
        clock_skew: Duration,
        now: Timestamp,
    ) -> Result<Vec<Applied>, StoreError> {
        let (verdicts, world) = (verdicts.to_vec(), Arc::clone(&self.line.world));
        let apply = move |store: &SqliteStore| {
            let applied = run(store.apply(&verdicts, clock_skew, now))?;
            if world.is_sabotaged(Sabotage::Twice) {
                world.judge().applied(&verdicts, &applied, world.now());
            }
            world.judge().applied(&verdicts, &applied, world.now());
            Ok(applied)
        };
        self.call("apply", apply).await
    }

    async fn placements(&self, after: FeedId, limit: u32) -> Result<Vec<Placement>, StoreError> {
        self.call("placements", move |store| run(store.placements(after, limit))).await
    }

    async fn holds(&self, now: Timestamp) -> Result<Vec<(HostKey, Timestamp)>, StoreError> {
        let holds = self.call("holds", move |store| run(store.holds(now))).await?;
        Ok(if self.line.world.is_sabotaged(Sabotage::LoadsNoHolds) { Vec::new() } else { holds })
    }

    async fn overdue(&self, at: Timestamp) -> Result<u64, StoreError> {
        self.call("overdue", move |store| run(store.overdue(at))).await
    }

    async fn sla_unmet(&self, longest: Duration) -> Result<u64, StoreError> {
        self.call("sla_unmet", move |store| run(store.sla_unmet(longest))).await
    }
}

#[async_trait]
impl Feeds for SeenStore {
    async fn add_feeds(&self, feeds: &[NewFeed], now: Timestamp) -> Result<Vec<Added>, StoreError> {
        run(self.server.store.add_feeds(feeds, now))
    }

    async fn feed(&self, which: &FeedRef) -> Result<Option<Feed>, StoreError> {
        run(self.server.store.feed(which))
    }

    async fn feeds(&self, query: &FeedQuery) -> Result<Page<Feed>, StoreError> {
        run(self.server.store.feeds(query))
    }

    async fn feeds_among(&self, query: &FeedQuery, ids: &[FeedId]) -> Result<Vec<Feed>, StoreError> {
        run(self.server.store.feeds_among(query, ids))
    }

    async fn change_feed(&self, id: FeedId, change: &FeedChange, now: Timestamp) -> Result<Option<Feed>, StoreError> {
        run(self.server.store.change_feed(id, change, now))
    }

    async fn change_feeds(&self, changes: &[(FeedId, FeedChange)], now: Timestamp) -> Result<Vec<Feed>, StoreError> {
        run(self.server.store.change_feeds(changes, now))
    }

    async fn erase_feed(&self, id: FeedId, now: Timestamp) -> Result<bool, StoreError> {
        run(self.server.store.erase_feed(id, now))
    }

    async fn erase_pages(&self, before: Timestamp, now: Timestamp) -> Result<u64, StoreError> {
        run(self.server.store.erase_pages(before, now))
    }

    async fn forget_validators(&self, id: FeedId) -> Result<bool, StoreError> {
        run(self.server.store.forget_validators(id))
    }

    async fn history(&self, id: FeedId) -> Result<Option<Vec<HistoryEntry>>, StoreError> {
        run(self.server.store.history(id))
    }
}

#[async_trait]
impl VersionedChanges for SeenStore {
    async fn begin_archive(
        &self,
        id: FeedId,
        version: Version,
        archive: &ArchiveRead,
        now: Timestamp,
    ) -> Result<Option<Placement>, StoreError> {
        run(self.server.store.begin_archive(id, version, archive, now))
    }

    async fn move_feed(&self, id: FeedId, version: Version, to: &Move, now: Timestamp) -> Result<Moved, StoreError> {
        let to = to.clone();
        self.call("move_feed", move |store| run(store.move_feed(id, version, &to, now))).await
    }

    async fn unmove_feed(
        &self,
        id: FeedId,
        version: Version,
        back: &Unmove,
        now: Timestamp,
    ) -> Result<Unmoved, StoreError> {
        run(self.server.store.unmove_feed(id, version, back, now))
    }
}

#[async_trait]
impl Wakes for SeenStore {
    async fn wake(&self, ids: &[FeedId], at: Timestamp, now: Timestamp) -> Result<Vec<Placement>, StoreError> {
        let (ids, world) = (ids.to_vec(), Arc::clone(&self.line.world));
        let wake = move |store: &SqliteStore| {
            let woken = run(store.wake(&ids, at, now))?;
            world.judge().woken(&woken, world.now());
            Ok(woken)
        };
        self.call("wake", wake).await
    }

    async fn wake_pinged(&self, ids: &[FeedId], at: Timestamp, now: Timestamp) -> Result<Vec<Placement>, StoreError> {
        run(self.server.store.wake_pinged(ids, at, now))
    }

    async fn feeds_of_site(&self, links: &[String], limit: u32) -> Result<Vec<Feed>, StoreError> {
        run(self.server.store.feeds_of_site(links, limit))
    }
}

#[async_trait]
impl Hosts for SeenStore {
    async fn host_orders(&self, known: Option<i64>) -> Result<Option<HostOrders>, StoreError> {
        self.call("host_orders", move |store| run(store.host_orders(known))).await
    }

    async fn set_host_rule(&self, rule: &HostRule, now: Timestamp) -> Result<bool, StoreError> {
        run(self.server.store.set_host_rule(rule, now))
    }

    async fn remove_host_rule(&self, domain: &str) -> Result<bool, StoreError> {
        run(self.server.store.remove_host_rule(domain))
    }

    async fn block_hosts(&self, hosts: &[HostKey], until: Option<Timestamp>) -> Result<(), StoreError> {
        run(self.server.store.block_hosts(hosts, until))
    }

    async fn accept_policy(&self, offered: &NewPolicy<'_>, now: Timestamp) -> Result<AcceptedPolicy, StoreError> {
        let (text, hash, by) = (offered.text.to_owned(), offered.hash.to_owned(), offered.by.to_owned());
        let decided = offered.decided;
        let accept = move |store: &SqliteStore| {
            run(store.accept_policy(&NewPolicy { text: &text, hash: &hash, by: &by, decided }, now))
        };
        self.call("accept_policy", accept).await
    }

    async fn refuse_host(&self, refused: &RefusedHost<'_>, now: Timestamp) -> Result<Option<HostRefusal>, StoreError> {
        let (host, RefusedHost { feed, failure, status, first, ceiling, is_known, .. }) =
            (refused.host.clone(), *refused);
        let refuse = move |store: &SqliteStore| {
            let refused = RefusedHost { host: &host, feed, failure, status, first, ceiling, is_known };
            run(store.refuse_host(&refused, now))
        };
        self.call("refuse_host", refuse).await
    }

    async fn host_answers(&self, host: &HostKey, feed: FeedId, now: Timestamp) -> Result<bool, StoreError> {
        let host = host.clone();
        self.call("host_answers", move |store| run(store.host_answers(&host, feed, now))).await
    }

    async fn hosts(&self, query: &HostQuery, now: Timestamp) -> Result<Page<HostRow>, StoreError> {
        run(self.server.store.hosts(query, now))
    }

    async fn hosts_among(&self, hosts: &[HostKey], now: Timestamp) -> Result<Vec<HostRow>, StoreError> {
        run(self.server.store.hosts_among(hosts, now))
    }

    async fn count_hosts(&self) -> Result<u64, StoreError> {
        run(self.server.store.count_hosts())
    }
}

#[async_trait]
impl Events for SeenStore {
    async fn find_entries(&self, query: &EventQuery) -> Result<EventPage<StoredEntry>, StoreError> {
        run(self.server.store.find_entries(query))
    }

    async fn find_events(&self, query: &EventQuery) -> Result<EventPage<Event>, StoreError> {
        let query = query.clone();
        self.call("find_events", move |store| run(store.find_events(&query))).await
    }

    async fn entry(&self, which: &EntryRef) -> Result<Option<StoredEntry>, StoreError> {
        run(self.server.store.entry(which))
    }

    async fn last_entry_before(&self, at: Timestamp) -> Result<i64, StoreError> {
        run(self.server.store.last_entry_before(at))
    }

    async fn latest_seq(&self) -> Result<i64, StoreError> {
        self.call("latest_seq", |store| run(store.latest_seq())).await
    }

    async fn relay_turn(&self, turn: &RelayTurn<'_>) -> Result<Option<i64>, StoreError> {
        let (holder, epoch) = (turn.holder.to_owned(), turn.epoch.to_owned());
        let (confirmed, lasts) = (turn.confirmed, turn.lasts);
        let (server, world) = (Arc::clone(&self.server), Arc::clone(&self.line.world));
        let take = move || {
            let turn = RelayTurn { holder: &holder, confirmed, epoch: &epoch, lasts };
            server.relay_turn(&turn, world.now())
        };
        self.line.call("relay_turn", lost, take).await
    }
}

#[async_trait]
impl Requeues for SeenStore {
    async fn plan_requeue(&self, filter: &RequeueFilter, lift_penalties: bool) -> Result<RequeuePlan, StoreError> {
        run(self.server.store.plan_requeue(filter, lift_penalties))
    }

    async fn begin_requeue(&self, new: &NewRequeue, now: Timestamp) -> Result<Option<Requeue>, StoreError> {
        run(self.server.store.begin_requeue(new, now))
    }

    async fn requeues(&self, running: bool) -> Result<Vec<Requeue>, StoreError> {
        self.call("requeues", move |store| run(store.requeues(running))).await
    }

    async fn cancel_requeue(&self, id: i64, now: Timestamp) -> Result<bool, StoreError> {
        run(self.server.store.cancel_requeue(id, now))
    }

    async fn step_requeue(&self, id: i64, now: Timestamp) -> Result<RequeueStep, StoreError> {
        self.call("step_requeue", move |store| run(store.step_requeue(id, now))).await
    }
}

#[async_trait]
impl Audits for SeenStore {
    async fn write_audit(&self, added: &[Audited], ended: &[(i64, Audited)]) -> Result<Vec<i64>, StoreError> {
        run(self.server.store.write_audit(added, ended))
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditLine>, StoreError> {
        run(self.server.store.audit(query))
    }

    async fn count_audit(&self) -> Result<u64, StoreError> {
        run(self.server.store.count_audit())
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
        run(self.server.store.set_paused(paused))
    }

    async fn begin_epoch(&self) -> Result<String, StoreError> {
        run(self.server.store.begin_epoch())
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
    async fn job_keys(&self, fresh: &[u8; 32], now: Timestamp) -> Result<StoredJobKeys, StoreError> {
        let fresh = *fresh;
        self.call("job_keys", move |store| run(store.job_keys(&fresh, now))).await
    }

    async fn old_seals(&self, current: &[u8], after: FeedId, limit: u32) -> Result<Vec<OldSeal>, StoreError> {
        let current = current.to_vec();
        self.call("old_seals", move |store| run(store.old_seals(&current, after, limit))).await
    }

    async fn reseal(&self, old: &OldSeal, credentials: &Credentials) -> Result<bool, StoreError> {
        run(self.server.store.reseal(old, credentials))
    }
}

#[async_trait]
impl Subscriptions for SeenStore {
    async fn add_subscription(
        &self,
        new: &NewSubscription,
        now: Timestamp,
    ) -> Result<Option<Subscription>, StoreError> {
        run(self.server.store.add_subscription(new, now))
    }

    async fn subscriptions(&self, after: i64, limit: u32) -> Result<Vec<Subscription>, StoreError> {
        run(self.server.store.subscriptions(after, limit))
    }

    async fn subscriptions_among(&self, ids: &[i64]) -> Result<Vec<Subscription>, StoreError> {
        run(self.server.store.subscriptions_among(ids))
    }

    async fn change_subscription(
        &self,
        id: i64,
        change: &SubscriptionChange,
    ) -> Result<Option<Subscription>, StoreError> {
        run(self.server.store.change_subscription(id, change))
    }

    async fn remove_subscription(&self, id: i64) -> Result<bool, StoreError> {
        run(self.server.store.remove_subscription(id))
    }

    async fn end_subscription(&self, id: i64, revision: i64) -> Result<bool, StoreError> {
        run(self.server.store.end_subscription(id, revision))
    }

    async fn reseal_subscription(&self, id: i64, sealed: [&[u8]; 2]) -> Result<bool, StoreError> {
        run(self.server.store.reseal_subscription(id, sealed))
    }
}

#[async_trait]
impl HubSubscriptions for SeenStore {
    async fn hub_subscription(&self, topic: &str, callback: &str) -> Result<Option<Subscription>, StoreError> {
        run(self.server.store.hub_subscription(topic, callback))
    }

    async fn expire_subscriptions(&self, now: Timestamp) -> Result<u64, StoreError> {
        run(self.server.store.expire_subscriptions(now))
    }

    async fn hub_feeds(&self, added_before: Timestamp) -> Result<Vec<HubFeed>, StoreError> {
        run(self.server.store.hub_feeds(added_before))
    }

    async fn release_hub_feed(&self, id: FeedId, now: Timestamp) -> Result<bool, StoreError> {
        run(self.server.store.release_hub_feed(id, now))
    }

    async fn hub_additions(&self, since: Timestamp) -> Result<u64, StoreError> {
        run(self.server.store.hub_additions(since))
    }

    async fn unconfirmed_callbacks(&self) -> Result<Vec<String>, StoreError> {
        run(self.server.store.unconfirmed_callbacks())
    }

    async fn stray_subscriptions(&self, query: StrayQuery) -> Result<Vec<Stray>, StoreError> {
        run(self.server.store.stray_subscriptions(query))
    }
}

#[async_trait]
impl Deliveries for SeenStore {
    async fn lease_subscriptions(&self, turn: &DeliveryTurn<'_>) -> Result<DeliveryShare, StoreError> {
        run(self.server.store.lease_subscriptions(turn))
    }

    async fn advance_subscriptions(
        &self,
        holder: &str,
        advances: &[Advance],
        now: Timestamp,
    ) -> Result<Vec<i64>, StoreError> {
        run(self.server.store.advance_subscriptions(holder, advances, now))
    }

    async fn count_subscriptions(&self) -> Result<Vec<SubscriptionCount>, StoreError> {
        run(self.server.store.count_subscriptions())
    }
}

/// No feed announces a hub here.
#[async_trait]
impl Pushes for SeenStore {
    async fn want_pushes(&self, wishes: &[PushWish], now: Timestamp) -> Result<u64, StoreError> {
        let wishes = wishes.to_vec();
        self.call("want_pushes", move |store| run(store.want_pushes(&wishes, now))).await
    }

    async fn push(&self, id: &str) -> Result<Option<PushSubscription>, StoreError> {
        run(self.server.store.push(id))
    }

    async fn pushes_of(&self, feeds: &[FeedId]) -> Result<Vec<PushSubscription>, StoreError> {
        run(self.server.store.pushes_of(feeds))
    }

    async fn push_hosts(&self, now: Timestamp, until: Timestamp, limit: u32) -> Result<Vec<String>, StoreError> {
        run(self.server.store.push_hosts(now, until, limit))
    }

    async fn push_due(&self, host: &str, now: Timestamp, limit: u32) -> Result<Vec<PushSubscription>, StoreError> {
        run(self.server.store.push_due(host, now, limit))
    }

    async fn free_push_host(&self, host: &str, not_before: Option<Timestamp>) -> Result<(), StoreError> {
        run(self.server.store.free_push_host(host, not_before))
    }

    async fn store_push(&self, changed: &PushSubscription) -> Result<bool, StoreError> {
        run(self.server.store.store_push(changed))
    }

    async fn remove_push(&self, id: &str, revision: i64) -> Result<bool, StoreError> {
        run(self.server.store.remove_push(id, revision))
    }
}

#[async_trait]
impl PushLosses for SeenStore {
    async fn heard_pushes(&self, heard: &[PushHeard]) -> Result<(), StoreError> {
        run(self.server.store.heard_pushes(heard))
    }

    async fn await_push(&self, feed: FeedId, at: Timestamp) -> Result<(), StoreError> {
        run(self.server.store.await_push(feed, at))
    }

    async fn lost_pushes(&self, before: Timestamp, limit: u32) -> Result<Vec<FeedId>, StoreError> {
        run(self.server.store.lost_pushes(before, limit))
    }

    async fn forget_lost_pushes(&self, feeds: &[FeedId], before: Timestamp) -> Result<(), StoreError> {
        run(self.server.store.forget_lost_pushes(feeds, before))
    }

    async fn owed_paces(&self, limit: u32) -> Result<Vec<OwedPace>, StoreError> {
        run(self.server.store.owed_paces(limit))
    }

    async fn paces_restored(&self, of: &[OwedPace]) -> Result<(), StoreError> {
        run(self.server.store.paces_restored(of))
    }
}

#[async_trait]
impl PushUpkeep for SeenStore {
    async fn forget_left_pushes(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        run(self.server.store.forget_left_pushes(before, limit))
    }

    async fn subscribed(&self, after: FeedId, limit: u32) -> Result<Vec<Subscribed>, StoreError> {
        run(self.server.store.subscribed(after, limit))
    }

    async fn unpushed(&self, after: FeedId, limit: u32) -> Result<Vec<Unpushed>, StoreError> {
        run(self.server.store.unpushed(after, limit))
    }

    async fn count_pushes(&self) -> Result<Vec<PushCount>, StoreError> {
        run(self.server.store.count_pushes())
    }
}
