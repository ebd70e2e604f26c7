//! Publishes reports in batches, and notifies each job's task when its report is safe.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::config::WorkerConfig;
use common::document::Document;
use common::entry::{Entry, Fingerprint};
use common::known::KnownEntries;
use common::outcome::FailureKind;
use common::queue::{Queue, QueueError};
use common::report::{FetchReport, Outcome};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};

/// How long to wait before a batch that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Bytes of text and of known entries in one message of reports, about, unless one report has more. As JSON they may be several
/// times as many; the queue refuses what is too large. A broker sends a scheduler 64 messages ahead.
const MESSAGE_BYTES: usize = 1 << 20;
/// The maximum number of messages of reports in flight.
const UNCONFIRMED: usize = 16;

/// A report to be published, and the sender that signals when it is safe.
pub(crate) type Outgoing = (FetchReport, oneshot::Sender<()>);

/// Publishes what is finished, in batches, several at once, until every sender is gone. A report that cannot be published
/// is tried again: its place stays taken meanwhile, so that nothing piles up.
pub(crate) async fn publish_reports(
    reports: Arc<dyn Queue<FetchReport>>,
    config: WorkerConfig,
    mut outgoing: mpsc::Receiver<Outgoing>,
) {
    let failing = AtomicBool::new(false);
    let mut publishing = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            Some(()) = publishing.next() => {}
            first = outgoing.recv(), if publishing.len() < UNCONFIRMED => match first {
                // While other reports are in flight, gathering here delays no report.
                Some(first) => {
                    let (batch, confirms) = gather(first, &mut outgoing, &config).await;
                    publishing.push(publish(&*reports, batch, confirms, &failing));
                }
                None => break,
            },
        }
    }
    while publishing.next().await.is_some() {}
}

/// Publishes one batch, however long it takes. One that is too large for a message is halved; a report that is too large
/// alone loses content first and then everything.
async fn publish(
    reports: &dyn Queue<FetchReport>,
    batch: Vec<FetchReport>,
    confirms: Vec<oneshot::Sender<()>>,
    failing: &AtomicBool,
) {
    let mut pending = vec![(batch, confirms)];
    while let Some((mut batch, mut confirms)) = pending.pop() {
        match reports.publish(&batch).await {
            Ok(()) => {
                if failing.swap(false, Ordering::Relaxed) {
                    tracing::info!("reports are published again");
                }
                for confirm in confirms {
                    // The receiver is gone when the job's task was dropped: its lease repairs that.
                    let _ = confirm.send(());
                }
            }
            Err(QueueError::TooLarge { .. }) if batch.len() > 1 => {
                let middle = batch.len() / 2;
                let rest = (batch.split_off(middle), confirms.split_off(middle));
                pending.extend([rest, (batch, confirms)]);
            }
            Err(error @ QueueError::TooLarge { .. }) => {
                let shrunk = batch.pop().and_then(|report| shrink(report, &error));
                // What cannot be made smaller is not confirmed: its job comes again.
                pending.extend(shrunk.map(|report| (vec![report], confirms)));
            }
            Err(error) => {
                if !failing.swap(true, Ordering::Relaxed) {
                    tracing::error!(error = &error as &dyn std::error::Error, "cannot publish reports; trying again");
                }
                if matches!(error, QueueError::Closed) {
                    return;
                }
                pending.push((batch, confirms));
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Returns a smaller report on the same fetch: without the entries' texts, and when that is not enough, without
/// entries. `None` for one that is as small as can be.
fn shrink(mut report: FetchReport, error: &QueueError) -> Option<FetchReport> {
    match &mut report.outcome {
        Outcome::Modified(document) if document.entries.iter().any(has_text) => {
            tracing::warn!(feed = %report.feed, %error, "a report leaves out the texts of its entries");
            strip(document);
        }
        Outcome::Modified(_) => {
            tracing::warn!(feed = %report.feed, %error, "a report leaves out its entries");
            let detail = "its entries do not fit into a message".to_owned();
            report.outcome = Outcome::Failed { failure: FailureKind::TooLarge, detail };
            report.moved_to = None;
            report.announced.clear();
        }
        _ => return None,
    }
    Some(report)
}

/// Takes the texts out of the entries, and notes whose these were. The entries stay known as the document has them: the queue
/// would refuse the texts again.
fn strip(document: &mut Document) {
    let mut stripped: Vec<Fingerprint> = document.stripped.iter().collect();
    for entry in document.entries.iter_mut().filter(|entry| has_text(entry)) {
        (entry.content, entry.summary, entry.cut) = (None, None, true);
        stripped.push(Fingerprint::of_identity(&entry.id));
    }
    document.stripped = KnownEntries::default().after_document(stripped);
}

fn has_text(entry: &Entry) -> bool {
    entry.content.is_some() || entry.summary.is_some()
}

async fn gather(
    first: Outgoing,
    outgoing: &mut mpsc::Receiver<Outgoing>,
    config: &WorkerConfig,
) -> (Vec<FetchReport>, Vec<oneshot::Sender<()>>) {
    let deadline = tokio::time::Instant::now() + config.report_delay;
    let mut bytes = carried_bytes(&first.0);
    let (mut batch, mut confirms) = (vec![first.0], vec![first.1]);
    while batch.len() < config.report_batch && bytes < MESSAGE_BYTES {
        let Ok(Some((report, confirm))) = tokio::time::timeout_at(deadline, outgoing.recv()).await else { break };
        bytes += carried_bytes(&report);
        batch.push(report);
        confirms.push(confirm);
    }
    (batch, confirms)
}

fn carried_bytes(report: &FetchReport) -> usize {
    match &report.outcome {
        Outcome::Modified(document) => {
            document.known.memory_bytes() + document.entries.iter().map(Entry::text_bytes).sum::<usize>()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use common::host::HostKey;
    use common::queue::{Delivery, QueueDepth, encode};
    use common::time::Timestamp;
    use common::url::{FeedId, Version};

    use super::*;

    /// A broker that takes messages of a megabyte at most, as long as it is encoded.
    #[derive(Default)]
    struct Narrow(std::sync::Mutex<Vec<FetchReport>>);

    #[async_trait]
    impl Queue<FetchReport> for Narrow {
        async fn publish(&self, items: &[FetchReport]) -> Result<(), QueueError> {
            let bytes = encode(items)?.len();
            if bytes > 1 << 20 {
                return Err(QueueError::TooLarge { bytes });
            }
            self.0.lock().unwrap().extend(items.iter().cloned());
            Ok(())
        }

        async fn receive(&self) -> Result<Delivery<FetchReport>, QueueError> {
            std::future::pending().await
        }

        async fn pause(&self) {}

        async fn depth(&self) -> Result<QueueDepth, QueueError> {
            Ok(QueueDepth::default())
        }

        async fn check(&self) -> Result<(), QueueError> {
            Ok(())
        }
    }

    /// Returns a report with entries of these numbers of bytes, each of which JSON doubles.
    fn report(feed: i64, contents: &[usize], titles: usize) -> FetchReport {
        let entry = |(number, bytes): (usize, &usize)| Entry {
            id: "i".repeat(number),
            content: Some("\"".repeat(*bytes)),
            title: Some("\\".repeat(titles)),
            ..Entry::default()
        };
        let document = Document { entries: contents.iter().enumerate().map(entry).collect(), ..Document::default() };
        let outcome = Outcome::Modified(Box::new(document));
        FetchReport::of(FeedId(feed), Version(1), HostKey::new("a:80"), Timestamp::EPOCH, outcome)
    }

    /// Sends reports of this many bytes each, all at once; returns how many each message had.
    async fn messages(bytes: usize) -> Vec<usize> {
        let (outbox, mut outgoing) = mpsc::channel(16);
        for feed in 0..8 {
            let confirm = oneshot::channel().0;
            outbox.send((report(feed, &[bytes], 0), confirm)).await.unwrap();
        }
        drop(outbox);
        let config = WorkerConfig { report_batch: 5, ..common::config::defaults().worker };
        let mut sizes = Vec::new();
        while let Some(first) = outgoing.recv().await {
            sizes.push(gather(first, &mut outgoing, &config).await.0.len());
        }
        sizes
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_has_as_many_reports_as_are_configured_and_about_a_megabyte_of_text() {
        assert_eq!(messages(10).await, [5, 3]);
        assert_eq!(messages(MESSAGE_BYTES / 2).await, [2, 2, 2, 2]);
        assert_eq!(messages(MESSAGE_BYTES / 2 - 1).await, [3, 3, 2]);
    }

    #[tokio::test]
    async fn reports_that_are_too_large_together_or_alone_are_published_as_whole_as_they_fit() {
        let reports = vec![
            report(1, &[100], 10),
            report(2, &[300_000, 100_000], 10),
            report(3, &[400_000], 10),
            report(4, &[400_000, 400_000], 10),
            report(5, &[10, 10], 400_000),
            report(6, &[100], 10),
        ];
        let narrow = Arc::new(Narrow::default());
        let (outbox, outgoing) = mpsc::channel(16);
        let config = common::config::defaults().worker;
        let publishing = tokio::spawn(publish_reports(narrow.clone(), config, outgoing));
        let mut confirmations = Vec::new();
        for report in &reports {
            let (confirm, confirmed) = oneshot::channel();
            outbox.send((report.clone(), confirm)).await.unwrap();
            confirmations.push(confirmed);
        }
        drop(outbox);
        for confirmed in confirmations {
            confirmed.await.unwrap();
        }
        publishing.await.unwrap();
        let mut published = narrow.0.lock().unwrap().clone();
        published.sort_by_key(|report| report.feed);
        for place in [0, 1, 2, 5] {
            assert_eq!(published[place], reports[place], "whole");
        }
        let Outcome::Modified(document) = &published[3].outcome else { panic!("{:?}", published[3].outcome.kind()) };
        assert!(document.entries.iter().all(|entry| entry.content.is_none() && entry.title.is_some() && entry.cut));
        let identities: Vec<_> = ["", "i"].map(Fingerprint::of_identity).into();
        assert_eq!(document.stripped.iter().collect::<Vec<_>>(), identities, "the store keeps what it has of these");
        assert_eq!(published[4].outcome.failure(), Some(FailureKind::TooLarge));
    }
}
