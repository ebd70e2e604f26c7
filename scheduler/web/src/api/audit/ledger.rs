//! Writes the audit's lines to the store, those that wait together in one transaction.
//!
//! Each change needs two writes besides its own: its line, and its outcome. Where each write waits for the disk, some
//! hundred changes at once would otherwise wait for three times as many syncs.

use std::error::Error;
use std::sync::{Arc, Mutex};

use store::{AuditOutcome, Audited, Store};
use tokio::sync::oneshot;

/// Lines in one transaction at most: it must not hold up other writes for long.
const BATCH: usize = 100;
/// Lines that wait at most, a few megabytes; others are refused.
const WAITING: usize = 10_000;

/// The lines that wait to be written. One task at a time writes them, and ends when none is left.
pub(crate) struct Ledger {
    store: Arc<dyn Store>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    lines: Vec<Write>,
    is_writing: bool,
}

enum Write {
    /// A change that is about to be made. Its number is sent; if the receiver is gone by then, the line says so
    /// afterwards.
    Begin(Audited, oneshot::Sender<Result<i64, Unwritten>>),
    /// The outcome of a change: of the one with this number, or of one without a line so far.
    End(Option<i64>, Audited, oneshot::Sender<()>),
}

/// Receives the number of a line.
pub(super) type Begun = oneshot::Receiver<Result<i64, Unwritten>>;

/// Why a line was not written. The cause is in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unwritten(pub(super) String);

impl Ledger {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Ledger { store, waiting: Mutex::default() }
    }

    /// Writes that a change is about to be made; its line's number comes.
    pub(super) fn begin(self: &Arc<Self>, change: Audited) -> Begun {
        let (sender, begun) = oneshot::channel();
        if let Some(Write::Begin(_, sender)) = self.add(Write::Begin(change, sender)) {
            let _ = sender.send(Err(Unwritten("too many changes wait for the audit".to_owned())));
        }
        begun
    }

    /// Writes the outcome of a change, once. The receiver is notified when that has been tried.
    pub(super) fn end(self: &Arc<Self>, id: Option<i64>, change: Audited) -> oneshot::Receiver<()> {
        let (sender, ended) = oneshot::channel();
        if self.add(Write::End(id, change, sender)).is_some() {
            tracing::error!(
                "the audit lacks the outcome of a change, because too many wait; the log has it (target audit)"
            );
        }
        ended
    }

    /// Writes the outcome of a change whose line is still to be written, once that has its number: it has one line.
    pub(super) fn end_when_begun(self: &Arc<Self>, begun: Begun, change: Audited) {
        let ledger = Arc::clone(self);
        tokio::spawn(async move {
            if let Ok(Ok(id)) = begun.await {
                ledger.end(Some(id), change);
            }
        });
    }

    /// Hands the line back when too many wait.
    fn add(self: &Arc<Self>, line: Write) -> Option<Write> {
        let mut waiting = common::lock(&self.waiting);
        if waiting.lines.len() >= WAITING {
            return Some(line);
        }
        waiting.lines.push(line);
        if !std::mem::replace(&mut waiting.is_writing, true) {
            tokio::spawn(Arc::clone(self).write_all());
        }
        None
    }

    async fn write_all(self: Arc<Self>) {
        while let Some(batch) = self.take() {
            self.write(batch).await;
        }
    }

    fn take(&self) -> Option<Vec<Write>> {
        let mut waiting = common::lock(&self.waiting);
        let count = waiting.lines.len().min(BATCH);
        waiting.is_writing = count > 0;
        (count > 0).then(|| waiting.lines.drain(..count).collect())
    }

    async fn write(self: &Arc<Self>, batch: Vec<Write>) {
        let (mut added, mut ended) = (Vec::new(), Vec::new());
        for line in &batch {
            match line {
                Write::Begin(change, _) | Write::End(None, change, _) => added.push(change.clone()),
                Write::End(Some(id), change, _) => ended.push((*id, change.clone())),
            }
        }
        let mut written = self.store.write_audit(&added, &ended).await.map(Vec::into_iter).map_err(|error| {
            let lines = batch.len();
            tracing::error!(
                error = &error as &dyn Error,
                lines,
                "the audit was not written; the log has it (target audit)"
            );
            Unwritten(error.to_string())
        });
        let mut next_id = || match &mut written {
            Ok(ids) => ids.next().ok_or_else(|| Unwritten("the store gave a line no number".to_owned())),
            Err(unwritten) => Err(unwritten.clone()),
        };
        for line in batch {
            match line {
                Write::Begin(mut change, sender) => {
                    if let Err(Ok(id)) = sender.send(next_id()) {
                        change.outcome = AuditOutcome::Abandoned;
                        self.end(Some(id), change);
                    }
                }
                Write::End(id, _, sender) => {
                    if id.is_none() {
                        let _ = next_id();
                    }
                    let _ = sender.send(());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use common::time::Timestamp;
    use store::{AuditLine, AuditOutcome, AuditQuery, Audited};

    use super::{BATCH, Ledger, Unwritten, WAITING};
    use crate::testing::Fleet;

    fn change(number: usize) -> Audited {
        Audited {
            at: Timestamp::from_millis(number as i64),
            who: "ann".into(),
            from: "192.0.2.1".into(),
            action: "POST /feeds".into(),
            on: number.to_string(),
            outcome: AuditOutcome::InProgress,
            status: 0,
            millis: 0,
        }
    }

    #[tokio::test]
    async fn lines_that_wait_together_are_written_together() {
        let ledger = Arc::new(Ledger::new(Fleet::new().await.ops.store.clone()));
        let _begun: Vec<_> = (0..BATCH + 50).map(|number| ledger.begin(change(number))).collect();
        let batches = [ledger.take(), ledger.take(), ledger.take()].map(|batch| batch.map(|lines| lines.len()));
        assert_eq!(batches, [Some(BATCH), Some(50), None]);
    }

    #[tokio::test]
    async fn each_change_gets_its_own_number_and_outcome() {
        let fleet = Fleet::new().await;
        let ledger = Arc::new(Ledger::new(fleet.ops.store.clone()));
        let mut begun: Vec<_> = (0..BATCH + 50).map(|number| Some(ledger.begin(change(number)))).collect();
        // The receiver of this one is gone.
        begun[7] = None;
        let done = |number| Audited { outcome: AuditOutcome::Done, status: 200, ..change(number) };
        let mut ended = Vec::new();
        for (number, begun) in begun.into_iter().enumerate() {
            if let Some(begun) = begun {
                ended.push(ledger.end(Some(begun.await.unwrap().unwrap()), done(number)));
            }
        }
        ended.push(ledger.end(None, done(1_000)));
        for ended in ended {
            ended.await.unwrap();
        }
        let mut expected: Vec<_> = (0..BATCH + 50).map(done).collect();
        expected[7] = Audited { outcome: AuditOutcome::Abandoned, ..change(7) };
        expected.push(done(1_000));
        let lines = fleet.ops.store.audit(&AuditQuery::newest(1_000)).await.unwrap();
        assert_eq!(lines.into_iter().rev().map(|line| line.change).collect::<Vec<_>>(), expected);
    }

    #[tokio::test]
    async fn a_change_that_was_refused_before_its_line_was_written_has_one_line() {
        let fleet = Fleet::new().await;
        let ledger = Arc::new(Ledger::new(fleet.ops.store.clone()));
        let failed = Audited { outcome: AuditOutcome::Failed, status: 503, ..change(1) };
        let begun = ledger.begin(change(1));
        ledger.end_when_begun(begun, failed.clone());
        let mut lines = Vec::new();
        while lines.iter().all(|line: &AuditLine| line.change.outcome == AuditOutcome::InProgress) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            lines = fleet.ops.store.audit(&AuditQuery::newest(9)).await.unwrap();
        }
        assert_eq!(lines.into_iter().map(|line| line.change).collect::<Vec<_>>(), [failed]);
    }

    #[tokio::test]
    async fn no_more_lines_wait_than_there_is_room_for() {
        let ledger = Arc::new(Ledger::new(Fleet::new().await.ops.store.clone()));
        let mut begun: Vec<_> = (0..=WAITING).map(|number| ledger.begin(change(number))).collect();
        let refused = begun.pop().unwrap().await.unwrap();
        assert_eq!(refused, Err(Unwritten("too many changes wait for the audit".to_owned())));
        assert!(begun.pop().unwrap().await.unwrap().is_ok());
    }
}
