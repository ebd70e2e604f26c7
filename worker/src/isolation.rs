//! Isolation of suspects: feeds whose earlier start brought no report.
//!
//! When a process dies, every feed that was being fetched is a suspect. A suspect is then fetched without other suspects
//! beside it, and one that was there twice, alone: so the feed that kills its worker is found, and no other one is blamed.

use std::sync::Arc;

use common::host_gate::Isolation;
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// Keeps fetches apart. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ward {
    /// Read by every fetch, written by one that is alone. A writer that waits lets no new reader in, so it waits for the
    /// fetches in progress and no longer.
    fetches: Arc<RwLock<()>>,
    /// Held by the only suspect.
    suspects: Arc<Mutex<()>>,
}

/// The right to fetch beside what an [`Isolation`] allows, until dropped.
#[derive(Debug)]
pub(crate) enum Room {
    /// Beside anything.
    Shared { _fetch: OwnedRwLockReadGuard<()> },
    /// Beside feeds that are no suspects.
    OnlySuspect { _fetch: OwnedRwLockReadGuard<()>, _suspect: OwnedMutexGuard<()> },
    /// Beside nothing.
    Alone { _fetch: OwnedRwLockWriteGuard<()>, _suspect: OwnedMutexGuard<()> },
}

impl Ward {
    /// Waits for the room. Whoever waits holds no other room.
    pub(crate) async fn room(&self, isolation: Isolation) -> Room {
        let suspects = || Arc::clone(&self.suspects).lock_owned();
        match isolation {
            Isolation::None => Room::Shared { _fetch: self.shared().await },
            Isolation::OnlySuspect => {
                let suspect = suspects().await;
                Room::OnlySuspect { _fetch: self.shared().await, _suspect: suspect }
            }
            Isolation::Alone => {
                let suspect = suspects().await;
                Room::Alone { _fetch: Arc::clone(&self.fetches).write_owned().await, _suspect: suspect }
            }
        }
    }

    async fn shared(&self) -> OwnedRwLockReadGuard<()> {
        Arc::clone(&self.fetches).read_owned().await
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn one_suspect_at_a_time_and_nothing_beside_one_that_is_alone() {
        use Isolation::{Alone, None, OnlySuspect};
        let ward = Ward::default();
        let free = |isolation| ward.room(isolation).now_or_never().is_some();
        let innocent = ward.room(None).await;
        assert!(free(None) && free(OnlySuspect) && !free(Alone));
        let suspect = ward.room(OnlySuspect).await;
        assert!(free(None) && !free(OnlySuspect) && !free(Alone));
        drop((suspect, innocent));
        let alone = ward.room(Alone).await;
        assert!(!free(None) && !free(OnlySuspect) && !free(Alone));
        drop(alone);
        assert!(free(None) && free(OnlySuspect) && free(Alone));
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
