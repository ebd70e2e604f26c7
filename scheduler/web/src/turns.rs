//! Turns to hold pages of entries or events in memory: a maximum at once, and of one caller only a part of them. A caller that reads
//! slowly, or not at all, keeps its turns until its responses are sent; others must not wait for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::session::Identity;

/// The turns of all callers.
pub(crate) struct Turns {
    all: Arc<Semaphore>,
    /// Turns of one caller.
    share: usize,
    /// The shares of those who have a turn or wait for one.
    shares: Mutex<HashMap<Identity, Weak<Semaphore>>>,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _of_all: OwnedSemaphorePermit,
    _of_caller: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// Returns this many turns, of which one caller has at most `share`.
    pub(crate) fn new(turns: usize, share: usize) -> Self {
        Turns { all: Arc::new(Semaphore::new(turns)), share, shares: Mutex::default() }
    }

    /// Waits for a turn. `None`: a caller that cannot be distinguished from others, or that gives its turn back soon.
    pub(crate) async fn take(&self, caller: Option<Identity>) -> Result<Turn, AcquireError> {
        // First its own: who waits for that holds none of the others.
        let of_caller = match caller.map(|caller| self.share_of(caller)) {
            Some(share) => Some(share.acquire_owned().await?),
            None => None,
        };
        Ok(Turn { _of_all: Arc::clone(&self.all).acquire_owned().await?, _of_caller: of_caller })
    }

    fn share_of(&self, caller: Identity) -> Arc<Semaphore> {
        let mut shares = common::lock(&self.shares);
        if let Some(share) = shares.get(&caller).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(self.share));
        shares.insert(caller, Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns the turn if it comes at once.
    async fn taken(turns: &Turns, caller: Option<&str>) -> Option<Turn> {
        let caller = caller.map(|token| Identity { token: token.into(), in_session: false });
        tokio::time::timeout(Duration::from_millis(50), turns.take(caller)).await.ok().map(Result::unwrap)
    }

    #[tokio::test]
    async fn one_caller_has_a_part_of_the_turns_and_leaves_the_rest_to_others() {
        let turns = Turns::new(8, 3);
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(taken(&turns, Some("ann")).await.expect("within its share"));
        }
        assert!(taken(&turns, Some("ann")).await.is_none());
        for caller in ["bob", "bob", "bob", "eve", "eve"] {
            held.push(taken(&turns, Some(caller)).await.expect("another caller"));
        }
        assert!(taken(&turns, Some("eve")).await.is_none(), "all turns are taken");
        drop(held.remove(0));
        assert!(taken(&turns, Some("ann")).await.is_some());
    }

    #[tokio::test]
    async fn those_who_cannot_be_told_apart_share_all_turns() {
        let turns = Turns::new(8, 3);
        let mut held = Vec::new();
        for _ in 0..8 {
            held.push(taken(&turns, None).await.expect("no share"));
        }
        assert!(taken(&turns, None).await.is_none());
    }

    #[tokio::test]
    async fn the_shares_of_those_who_are_gone_are_forgotten() {
        let turns = Turns::new(8, 3);
        for number in 0..100 {
            drop(taken(&turns, Some(&number.to_string())).await);
        }
        let _held = taken(&turns, Some("ann")).await;
        assert_eq!(turns.shares.lock().unwrap().len(), 1);
    }
}
