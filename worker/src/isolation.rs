//! Isolation of suspects: feeds whose earlier start has no report.
//!
//! When a process dies, every feed that was being fetched is a suspect. A suspect is then fetched together with only a
//! few other suspects, and one that was a suspect twice is fetched alone. This identifies the feed that kills its worker, and no other.

use std::sync::Arc;

use common::host_gate::Isolation;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, OwnedSemaphorePermit, RwLock, Semaphore};

/// Suspects side by side. More would make suspects of more feeds at the next death; with fewer, the feeds of a worker
/// that a person killed would wait for each other.
const FEW: usize = 4;

/// Keeps fetches apart. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Ward {
    /// Read by every fetch, written by one that is alone. A writer that waits lets no new reader in, so it waits for the
    /// fetches in progress and no longer.
    fetches: Arc<RwLock<()>>,
    suspects: Arc<Semaphore>,
}

/// The right to fetch beside what an [`Isolation`] allows, until dropped.
#[derive(Debug)]
pub(crate) enum Room {
    /// Beside anything, or beside few suspects.
    Shared { _fetch: OwnedRwLockReadGuard<()>, _suspect: Option<OwnedSemaphorePermit> },
    /// Beside nothing.
    Alone { _fetch: OwnedRwLockWriteGuard<()> },
}

impl Default for Ward {
    fn default() -> Self {
        Ward { fetches: Arc::default(), suspects: Arc::new(Semaphore::new(FEW)) }
    }
}

impl Ward {
    /// Waits for the room. A caller that waits holds no other room.
    pub(crate) async fn room(&self, isolation: Isolation) -> Room {
        let shared = || Arc::clone(&self.fetches).read_owned();
        match isolation {
            Isolation::None => Room::Shared { _fetch: shared().await, _suspect: None },
            Isolation::FewSuspects => {
                // It is never closed.
                let suspect = Arc::clone(&self.suspects).acquire_owned().await.ok();
                Room::Shared { _fetch: shared().await, _suspect: suspect }
            }
            Isolation::Alone => Room::Alone { _fetch: Arc::clone(&self.fetches).write_owned().await },
        }
    }
}

impl Room {
    /// Returns the room if it is one for a fetch alone.
    pub(crate) fn if_alone(self) -> Option<Self> {
        matches!(self, Room::Alone { .. }).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn few_suspects_at_a_time_and_nothing_beside_one_that_is_alone() {
        use Isolation::{Alone, FewSuspects, None};
        let ward = Ward::default();
        let free = |isolation| ward.room(isolation).now_or_never().is_some();
        let innocent = ward.room(None).await;
        assert!(free(None) && free(FewSuspects) && !free(Alone));
        let mut suspects = Vec::new();
        for _ in 0..FEW {
            assert!(free(FewSuspects));
            suspects.push(ward.room(FewSuspects).await);
        }
        assert!(free(None) && !free(FewSuspects) && !free(Alone));
        drop((suspects, innocent));
        let alone = ward.room(Alone).await;
        assert!(!free(None) && !free(FewSuspects) && !free(Alone));
        drop(alone);
        assert!(free(None) && free(FewSuspects) && free(Alone));
    }

    #[tokio::test]
    async fn one_that_is_to_be_alone_waits_for_the_fetches_in_progress_and_no_longer() {
        let ward = Ward::default();
        let before = ward.room(Isolation::None).await;
        let alone = tokio::spawn({
            let ward = ward.clone();
            async move { ward.room(Isolation::Alone).await }
        });
        tokio::task::yield_now().await;
        assert!(ward.room(Isolation::None).now_or_never().is_none(), "new ones wait behind it");
        drop(before);
        drop(alone.await.unwrap());
        assert!(ward.room(Isolation::None).now_or_never().is_some());
    }
}
