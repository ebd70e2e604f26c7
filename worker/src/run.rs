//! The worker's loop: takes as many jobs as it has free places, works them side by side, publishes their reports in
//! batches, and acks a message once every report of it is safe.

use std::sync::Arc;
use std::time::Duration;

use common::config::WorkerConfig;
use common::job::FetchJob;
use common::queue::{Delivery, Queue, QueueError, Receipt};
use common::report::{FetchReport, Outcome};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::poll::{Polled, Poller};

/// Works jobs until stopped.
pub struct Worker {
    /// Works one job.
    pub poller: Arc<Poller>,
    /// Where jobs come from.
    pub jobs: Arc<dyn Queue<FetchJob>>,
    /// Where reports go.
    pub reports: Arc<dyn Queue<FetchReport>>,
}

/// How long to wait before a queue that failed is asked again.
const RETRY: Duration = Duration::from_secs(1);
/// Bytes of text in one message of reports, about: keeps messages far below what brokers refuse.
const MESSAGE_BYTES: usize = 8 << 20;

/// A report on its way, and whom to tell when it is safe.
type Outgoing = (FetchReport, oneshot::Sender<()>);

impl Worker {
    /// Takes jobs until `stop`; then waits for the ones under way and their reports.
    pub async fn run(&self, stop: &CancellationToken) {
        let config = &self.poller.config.worker;
        let (outbox, outgoing) = mpsc::channel(config.concurrency);
        let reporter = tokio::spawn(publish_reports(Arc::clone(&self.reports), config.clone(), outgoing));
        let places = Arc::new(Semaphore::new(if config.gentle { GENTLE_CONCURRENCY } else { config.concurrency }));
        let messages = TaskTracker::new();
        while let Some(place) = until(stop, Arc::clone(&places).acquire_owned()).await {
            let Ok(place) = place else { break };
            match until(stop, self.jobs.receive()).await {
                None => break,
                Some(Ok(delivery)) => self.start(delivery, place, &places, &outbox, &messages).await,
                Some(Err(error)) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "no jobs can be received");
                    until(stop, tokio::time::sleep(RETRY)).await;
                }
            }
        }
        messages.close();
        messages.wait().await;
        drop(outbox);
        // The reporter ends when the last report is out; it panics only if a queue does.
        if reporter.await.is_err() {
            tracing::error!("the reporter died; its reports come again with their jobs");
        }
    }

    /// Starts the jobs of a message, each in a place of its own.
    async fn start(
        &self,
        delivery: Delivery<FetchJob>,
        place: OwnedSemaphorePermit,
        places: &Arc<Semaphore>,
        outbox: &mpsc::Sender<Outgoing>,
        messages: &TaskTracker,
    ) {
        let redelivered = delivery.redelivered;
        let (jobs, receipt) = delivery.into_parts();
        let mut place = Some(place);
        let mut started = Vec::with_capacity(jobs.len());
        for job in jobs {
            let place = match place.take() {
                Some(place) => Ok(place),
                None => Arc::clone(places).acquire_owned().await,
            };
            let Ok(place) = place else { return };
            let mut work = tokio::spawn(work(Arc::clone(&self.poller), job, outbox.clone(), place));
            // One after the other, so that a feed that kills its worker does not take its neighbours along again.
            if redelivered && !matches!((&mut work).await, Ok(Ok(()))) {
                return;
            }
            if !redelivered {
                started.push(work);
            }
        }
        messages.spawn(ack_when_done(started, receipt));
    }
}

/// `worker.gentle`: the Windows RSS Platform's.
const GENTLE_CONCURRENCY: usize = 4;

/// The future's value, or `None` when stopped first.
async fn until<F: Future>(stop: &CancellationToken, future: F) -> Option<F::Output> {
    tokio::select! {
        biased;
        () = stop.cancelled() => None,
        value = future => Some(value),
    }
}

/// Acks a message when all its jobs ended well; otherwise it comes again, and the gate knows what was reported.
async fn ack_when_done(started: Vec<JoinHandle<Result<(), WorkError>>>, receipt: Box<dyn Receipt>) {
    for work in started {
        match work.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "a job comes again");
                return;
            }
            Err(_panic) => return,
        }
    }
    if let Err(error) = receipt.ack().await {
        tracing::warn!(error = &error as &dyn std::error::Error, "a finished message could not be acked");
    }
}

#[derive(Debug, thiserror::Error)]
enum WorkError {
    #[error(transparent)]
    Gate(#[from] common::host_gate::GateError),
    #[error("the report could not be published")]
    Unpublished,
}

/// Works one job to its end: report, confirmation, release.
async fn work(
    poller: Arc<Poller>,
    job: FetchJob,
    outbox: mpsc::Sender<Outgoing>,
    _place: OwnedSemaphorePermit,
) -> Result<(), WorkError> {
    let Polled::Report(report, held) = poller.poll(&job).await? else { return Ok(()) };
    let (confirm, confirmed) = oneshot::channel();
    outbox.send((*report, confirm)).await.map_err(|_| WorkError::Unpublished)?;
    confirmed.await.map_err(|_| WorkError::Unpublished)?;
    if let Some(held) = held {
        poller.release(&held).await?;
    }
    Ok(())
}

/// Publishes what is finished, in batches, until every sender is gone. A report that cannot be published is tried again:
/// its place stays taken meanwhile, so that nothing piles up.
async fn publish_reports(
    reports: Arc<dyn Queue<FetchReport>>,
    config: WorkerConfig,
    mut outgoing: mpsc::Receiver<Outgoing>,
) {
    while let Some(first) = outgoing.recv().await {
        let (batch, confirms) = gather(first, &mut outgoing, &config).await;
        let mut failing = false;
        while let Err(error) = reports.publish(&batch).await {
            if !std::mem::replace(&mut failing, true) {
                tracing::error!(error = &error as &dyn std::error::Error, "reports cannot be published; trying again");
            }
            if matches!(error, QueueError::Closed) {
                return;
            }
            tokio::time::sleep(RETRY).await;
        }
        for confirm in confirms {
            // Nobody waits any more when the job's task was dropped: its lease repairs that.
            let _ = confirm.send(());
        }
    }
}

async fn gather(
    first: Outgoing,
    outgoing: &mut mpsc::Receiver<Outgoing>,
    config: &WorkerConfig,
) -> (Vec<FetchReport>, Vec<oneshot::Sender<()>>) {
    let deadline = tokio::time::Instant::now() + config.report_delay;
    let mut bytes = text_bytes(&first.0);
    let (mut batch, mut confirms) = (vec![first.0], vec![first.1]);
    while batch.len() < config.report_batch && bytes < MESSAGE_BYTES {
        let Ok(Some((report, confirm))) = tokio::time::timeout_at(deadline, outgoing.recv()).await else { break };
        bytes += text_bytes(&report);
        batch.push(report);
        confirms.push(confirm);
    }
    (batch, confirms)
}

fn text_bytes(report: &FetchReport) -> usize {
    match &report.outcome {
        Outcome::Modified(document) => document.entries.iter().map(common::entry::Entry::text_bytes).sum(),
        _ => 0,
    }
}
