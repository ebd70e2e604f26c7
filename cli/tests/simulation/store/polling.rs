//! What the loops of polls ask of the store.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use common::archive::ArchiveRead;
use common::feed::Feed;
use common::host::HostKey;
use common::host::HostRule;
use common::time::Timestamp;
use common::url::FeedId;
use common::url::Version;
use store::sqlite::SqliteStore;
use store::{
    AcceptedPolicy, Applied, EntryRef, Event, EventPage, EventQuery, Events, HostOrders, HostQuery, HostRefusal,
    HostRow, Hosts, Interruption, JobRow, Move, Moved, NewPolicy, Page, Placement, Polls, RefusedHost, RelayTurn,
    StoreError, StoredEntry, Unmove, Unmoved, Verdict, VersionedChanges, Wakes,
};

use super::SeenStore;
use crate::blocking::run;
use crate::world::Sabotage;

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

    async fn interrupt(&self, interruptions: &[Interruption]) -> Result<(), StoreError> {
        let interruptions = interruptions.to_vec();
        self.call("interrupt", move |store| run(store.interrupt(&interruptions))).await
    }

    async fn keep_holds(&self, holds: &[(HostKey, Timestamp, FeedId)]) -> Result<(), StoreError> {
        let kept = holds.to_vec();
        self.call("keep_holds", move |store| run(store.keep_holds(&kept))).await?;
        let world = &self.line.world;
        holds.iter().for_each(|(host, ..)| world.judge().hold_is_stored(host, world.now()));
        Ok(())
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
        let (verdicts, world, life) = (verdicts.to_vec(), Arc::clone(&self.line.world), Arc::clone(&self.line.life));
        let apply = move |store: &SqliteStore| {
            let applied = run(store.apply(&verdicts, clock_skew, now))?;
            if world.is_sabotaged(Sabotage::Twice) {
                world.judge().applied(&life, &verdicts, &applied, world.now());
            }
            world.judge().applied(&life, &verdicts, &applied, world.now());
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
impl VersionedChanges for SeenStore {
    async fn begin_archive(
        &self,
        id: FeedId,
        version: Version,
        archive: &ArchiveRead,
        now: Timestamp,
    ) -> Result<Option<Placement>, StoreError> {
        run(self.server.current().begin_archive(id, version, archive, now))
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
        run(self.server.current().unmove_feed(id, version, back, now))
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
        run(self.server.current().wake_pinged(ids, at, now))
    }

    async fn feeds_of_site(&self, links: &[String], limit: u32) -> Result<Vec<Feed>, StoreError> {
        run(self.server.current().feeds_of_site(links, limit))
    }
}

#[async_trait]
impl Hosts for SeenStore {
    async fn host_orders(&self, known: Option<i64>) -> Result<Option<HostOrders>, StoreError> {
        self.call("host_orders", move |store| run(store.host_orders(known))).await
    }

    async fn set_host_rule(&self, rule: &HostRule, now: Timestamp) -> Result<bool, StoreError> {
        run(self.server.current().set_host_rule(rule, now))
    }

    async fn remove_host_rule(&self, domain: &str) -> Result<bool, StoreError> {
        run(self.server.current().remove_host_rule(domain))
    }

    async fn block_hosts(&self, hosts: &[HostKey], until: Option<Timestamp>) -> Result<(), StoreError> {
        run(self.server.current().block_hosts(hosts, until))
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
        run(self.server.current().hosts(query, now))
    }

    async fn hosts_among(&self, hosts: &[HostKey], now: Timestamp) -> Result<Vec<HostRow>, StoreError> {
        run(self.server.current().hosts_among(hosts, now))
    }

    async fn count_hosts(&self) -> Result<u64, StoreError> {
        run(self.server.current().count_hosts())
    }
}

#[async_trait]
impl Events for SeenStore {
    async fn find_entries(&self, query: &EventQuery) -> Result<EventPage<StoredEntry>, StoreError> {
        run(self.server.current().find_entries(query))
    }

    async fn find_events(&self, query: &EventQuery) -> Result<EventPage<Event>, StoreError> {
        let query = query.clone();
        self.call("find_events", move |store| run(store.find_events(&query))).await
    }

    async fn entry(&self, which: &EntryRef) -> Result<Option<StoredEntry>, StoreError> {
        run(self.server.current().entry(which))
    }

    async fn last_entry_before(&self, at: Timestamp) -> Result<i64, StoreError> {
        run(self.server.current().last_entry_before(at))
    }

    async fn latest_seq(&self) -> Result<i64, StoreError> {
        self.call("latest_seq", |store| run(store.latest_seq())).await
    }

    async fn relay_turn(&self, turn: &RelayTurn<'_>) -> Result<Option<i64>, StoreError> {
        let (holder, epoch) = (turn.holder.to_owned(), turn.epoch.to_owned());
        let (confirmed, lasts) = (turn.confirmed, turn.lasts);
        let (server, world) = (Arc::clone(&self.server), Arc::clone(&self.line.world));
        let take = move |store: &SqliteStore| {
            let turn = RelayTurn { holder: &holder, confirmed, epoch: &epoch, lasts };
            server.relay_turn(store, &turn, world.now())
        };
        self.call("relay_turn", take).await
    }
}
