//! Stores progress: what several deliveries have to store at the same time goes into one transaction.

use std::sync::{Arc, Mutex};

use common::time::Clock;
use tokio::sync::oneshot;

use store::{Advance, Store, StoreError};

/// Rows of one transaction.
const MOST: usize = 200;

/// Stores progress under the lease of this process.
pub(super) struct Saver {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) holder: String,
    waiting: Mutex<Vec<Waiting>>,
    turn: tokio::sync::Mutex<()>,
}

struct Waiting {
    advance: Advance,
    answer: oneshot::Sender<Result<bool, Arc<StoreError>>>,
}

impl Saver {
    pub(super) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, holder: String) -> Self {
        Saver { store, clock, holder, waiting: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    /// Stores progress; false if this process does not hold the subscription any more, or it was changed.
    pub(super) async fn save(&self, advance: Advance) -> Result<bool, Arc<StoreError>> {
        let (answer, mut answered) = oneshot::channel();
        common::lock(&self.waiting).push(Waiting { advance, answer });
        loop {
            let _turn = self.turn.lock().await;
            // The process that had the turn before may have stored ours too.
            match answered.try_recv() {
                Ok(stored) => return stored,
                Err(oneshot::error::TryRecvError::Closed) => return Ok(false),
                Err(oneshot::error::TryRecvError::Empty) => self.store_some().await,
            }
        }
    }

    async fn store_some(&self) {
        let some: Vec<Waiting> = {
            let mut waiting = common::lock(&self.waiting);
            let count = waiting.len().min(MOST);
            waiting.drain(..count).collect()
        };
        let (advances, answers): (Vec<Advance>, Vec<_>) = some.into_iter().map(|it| (it.advance, it.answer)).unzip();
        let stored = self.store.advance_subscriptions(&self.holder, &advances, self.clock.now()).await;
        let stored = stored.map_err(Arc::new);
        for (advance, answer) in advances.iter().zip(answers) {
            // One that was dropped meanwhile does not care.
            let _ = answer.send(stored.as_ref().map(|ids| ids.contains(&advance.id)).map_err(Arc::clone));
        }
    }
}
