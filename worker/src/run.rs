//! The worker's loop: takes as many jobs as it has free places, works them side by side, publishes their reports in
//! batches, and acks a message once every report of it is safe.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::config::WorkerConfig;
use common::job::FetchJob;
use common::queue::{Delivery, Queue, QueueError, Receipt};
use common::report::{FetchReport, Outcome};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::poll::{Polled, Poller};
use crate::rules::Follower;

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

/// Messages of reports on their way at once.
const UNCONFIRMED: usize = 16;

/// A report on its way, and whom to tell when it is safe.
type Outgoing = (FetchReport, oneshot::Sender<()>);

impl Worker {
    /// Takes jobs until `stop`; then waits for the ones under way and their reports. What was received and not begun goes
    /// back to the queue.
    pub async fn run(&self, stop: &CancellationToken) {
        let mut follower = Follower::default();
        follower.begin(&self.poller, stop).await;
        tokio::join!(follower.run(&self.poller, stop), self.work(stop));
    }

    async fn work(&self, stop: &CancellationToken) {
        let config = &self.poller.config.worker;
        let (outbox, outgoing) = mpsc::channel(config.concurrency);
        let reporter = tokio::spawn(publish_reports(Arc::clone(&self.reports), config.clone(), outgoing));
        let places = if config.gentle { GENTLE_CONCURRENCY } else { config.concurrency };
        let crew = Crew {
            poller: Arc::clone(&self.poller),
            places: Arc::new(Semaphore::new(places)),
            outbox,
            stop: stop.clone(),
            gate_lost: Arc::default(),
        };
        let messages = TaskTracker::new();
        self.receive(&crew, &messages).await;
        messages.close();
        messages.wait().await;
        drop(crew);
        // The reporter ends when the last report is out; it panics only if a queue does.
        if reporter.await.is_err() {
            tracing::error!("the reporter died; its reports come again with their jobs");
        }
    }

    /// Receives messages while there is a free place and the gate can be relied on. Says once when either fails.
    async fn receive(&self, crew: &Crew, messages: &TaskTracker) {
        let mut failing = false;
        while let Some(Ok(place)) = until(&crew.stop, Arc::clone(&crew.places).acquire_owned()).await {
            if crew.gate_lost.load(Ordering::Relaxed) && until(&crew.stop, self.stand_aside(crew)).await.is_none() {
                return;
            }
            match until(&crew.stop, self.jobs.receive()).await {
                None => return,
                Some(Ok(delivery)) => {
                    if std::mem::take(&mut failing) {
                        tracing::info!("jobs are received again");
                    }
                    crew.start(delivery, place, messages).await;
                }
                Some(Err(error)) => {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(error = &error as &dyn std::error::Error, "no jobs can be received");
                    }
                    until(&crew.stop, tokio::time::sleep(RETRY)).await;
                }
            }
        }
    }

    /// Waits until the gate answers and our clock agrees with its. Meanwhile others get the jobs that were sent here ahead.
    async fn stand_aside(&self, crew: &Crew) {
        if !crew.gate_answers().await {
            self.jobs.pause().await;
            while !crew.gate_answers().await {
                tokio::time::sleep(RETRY).await;
            }
        }
        if crew.gate_lost.swap(false, Ordering::Relaxed) {
            tracing::info!("the host gate is back");
        }
    }
}

/// What every message's jobs are worked with.
#[derive(Clone)]
struct Crew {
    poller: Arc<Poller>,
    places: Arc<Semaphore>,
    outbox: mpsc::Sender<Outgoing>,
    stop: CancellationToken,
    /// The gate failed, or our clock is off: nothing more is received before it answers.
    gate_lost: Arc<AtomicBool>,
}

impl Crew {
    /// Starts the jobs of a message. Those of a new one run side by side, each in a place of its own, and this returns
    /// when the last has its place.
    async fn start(&self, delivery: Delivery<FetchJob>, place: OwnedSemaphorePermit, messages: &TaskTracker) {
        let redelivered = delivery.redelivered;
        let (jobs, receipt) = delivery.into_parts();
        if redelivered {
            messages.spawn(self.clone().one_by_one(jobs, receipt, place));
            return;
        }
        let mut place = Some(place);
        let mut started = Vec::with_capacity(jobs.len());
        let mut whole = true;
        for job in jobs {
            let next = match place.take() {
                Some(place) => Some(place),
                None => self.place().await,
            };
            let Some(place) = next else {
                whole = false;
                break;
            };
            started.push(tokio::spawn(self.clone().work(job, place)));
        }
        messages.spawn(finish(started, receipt, whole));
    }

    /// A message that came before: one job after the other, so that a feed that kills its worker does not take its
    /// neighbours along again.
    async fn one_by_one(self, jobs: Vec<FetchJob>, receipt: Box<dyn Receipt>, place: OwnedSemaphorePermit) {
        let mut place = Some(place);
        for job in jobs {
            let next = match place.take() {
                Some(place) => Some(place),
                None => self.place().await,
            };
            let Some(place) = next else { return };
            // A task of its own, so that a panic is this job's alone.
            if !tokio::spawn(self.clone().work(job, place)).await.unwrap_or(false) {
                return;
            }
        }
        ack(receipt).await;
    }

    /// A place for one fetch; `None` once nothing more is begun.
    async fn place(&self) -> Option<OwnedSemaphorePermit> {
        until(&self.stop, Arc::clone(&self.places).acquire_owned()).await?.ok()
    }

    /// Works one job to its end; false when it must come again.
    async fn work(self, job: FetchJob, place: OwnedSemaphorePermit) -> bool {
        let worked = work(&self.poller, &job, &self.outbox).await;
        drop(place);
        if let Err(WorkError::Gate(error)) = &worked
            && !self.gate_lost.swap(true, Ordering::Relaxed)
        {
            tracing::error!(
                error = error as &dyn std::error::Error,
                "the host gate is lost; other workers get the jobs"
            );
        }
        worked.is_ok()
    }

    async fn gate_answers(&self) -> bool {
        self.poller.gate.check(self.poller.clock.now()).await.is_ok()
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

/// Acks a message when all its jobs ended well; otherwise it comes again once they have ended, and the gate knows which
/// of them were reported.
async fn finish(started: Vec<JoinHandle<bool>>, receipt: Box<dyn Receipt>, whole: bool) {
    let mut well = whole;
    for work in started {
        well &= work.await.unwrap_or(false);
    }
    if well {
        ack(receipt).await;
    }
}

async fn ack(receipt: Box<dyn Receipt>) {
    if let Err(error) = receipt.ack().await {
        tracing::debug!(error = &error as &dyn std::error::Error, "a finished message comes again");
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
async fn work(poller: &Poller, job: &FetchJob, outbox: &mpsc::Sender<Outgoing>) -> Result<(), WorkError> {
    let Polled::Report(report, held) = poller.poll(job).await? else { return Ok(()) };
    let (confirm, confirmed) = oneshot::channel();
    outbox.send((*report, confirm)).await.map_err(|_| WorkError::Unpublished)?;
    confirmed.await.map_err(|_| WorkError::Unpublished)?;
    if let Some(held) = held {
        poller.release(&held).await?;
    }
    Ok(())
}

/// Publishes what is finished, in batches, several at once, until every sender is gone. A report that cannot be published
/// is tried again: its place stays taken meanwhile, so that nothing piles up.
async fn publish_reports(
    reports: Arc<dyn Queue<FetchReport>>,
    config: WorkerConfig,
    mut outgoing: mpsc::Receiver<Outgoing>,
) {
    let failing = AtomicBool::new(false);
    let mut publishing = FuturesUnordered::new();
    loop {
        tokio::select! {
            Some(()) = publishing.next() => {}
            first = outgoing.recv(), if publishing.len() < UNCONFIRMED => match first {
                // While others are on their way, nobody is kept waiting by what is gathered here.
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

/// Publishes one batch, however long it takes.
async fn publish(
    reports: &dyn Queue<FetchReport>,
    batch: Vec<FetchReport>,
    confirms: Vec<oneshot::Sender<()>>,
    failing: &AtomicBool,
) {
    while let Err(error) = reports.publish(&batch).await {
        if !failing.swap(true, Ordering::Relaxed) {
            tracing::error!(error = &error as &dyn std::error::Error, "reports cannot be published; trying again");
        }
        if matches!(error, QueueError::Closed) {
            return;
        }
        tokio::time::sleep(RETRY).await;
    }
    if failing.swap(false, Ordering::Relaxed) {
        tracing::info!("reports are published again");
    }
    for confirm in confirms {
        // Nobody waits any more when the job's task was dropped: its lease repairs that.
        let _ = confirm.send(());
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
