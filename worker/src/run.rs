//! The worker's loop: takes as many jobs as it has free slots, runs them concurrently, hands their reports over to be published
//! in batches (`reporting`), and acknowledges a message once all its reports are confirmed.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::host_gate::{GateError, Isolation};
use common::job::FetchJob;
use common::queue::{Delivery, Queue, Receipt};
use common::report::FetchReport;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::isolation::{Room, Ward};
use crate::log;
use crate::owed::Owed;
use crate::poll::{PendingRelease, Polled, Poller, Unasked};
use crate::reporting::{Outgoing, publish_reports};
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

/// How long to wait before a queue that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// A part of the worker stopped before the shutdown: the process can do no more work and must exit.
#[derive(Debug, thiserror::Error)]
#[error("the worker's {0} ended unexpectedly; unfinished jobs will be delivered again")]
pub struct WorkerDied(&'static str);

impl Worker {
    /// Takes jobs until `stop`; then waits for the fetches in progress and their reports. What was received and not begun
    /// goes back to the queue.
    ///
    /// # Errors
    ///
    /// When a part of the worker panicked: nothing would be reported any more.
    pub async fn run(&self, stop: &CancellationToken) -> Result<(), WorkerDied> {
        let mut follower = Follower::default();
        follower.begin(&self.poller, stop).await;
        let owed = Arc::new(Owed::default());
        // The last releases are owed when the last fetch has ended.
        let worked = CancellationToken::new();
        let work = async {
            let ended = self.work(stop, &owed).await;
            worked.cancel();
            ended
        };
        let watch = follower.run(&self.poller, &worked);
        tokio::join!(work, watch, owed.run(&self.poller, &worked)).0
    }

    async fn work(&self, stop: &CancellationToken, owed: &Arc<Owed>) -> Result<(), WorkerDied> {
        let config = &self.poller.config.worker;
        let (outbox, outgoing) = mpsc::channel(config.concurrency);
        let mut reporter = tokio::spawn(publish_reports(Arc::clone(&self.reports), config.clone(), outgoing));
        let places = if config.gentle { GENTLE_CONCURRENCY } else { config.concurrency };
        let crew = Crew {
            poller: Arc::clone(&self.poller),
            places: Arc::new(Semaphore::new(places)),
            outbox,
            stop: stop.clone(),
            gate_lost: Arc::default(),
            ward: Ward::default(),
            owed: Arc::clone(owed),
        };
        let messages = TaskTracker::new();
        let working = async {
            self.receive(&crew, &messages).await;
            messages.close();
            messages.wait().await;
        };
        // While there are senders it ends by a panic only.
        tokio::select! {
            biased;
            () = working => {}
            _ = &mut reporter => return Err(WorkerDied("reporter")),
        }
        drop(crew);
        reporter.await.map_err(|_| WorkerDied("reporter"))
    }

    /// Receives messages while there is a free place and the gate can be relied on. Says once when either fails.
    async fn receive(&self, crew: &Crew, messages: &TaskTracker) {
        let mut failing = false;
        while let Some(Ok(place)) = until(&crew.stop, Arc::clone(&crew.places).acquire_owned()).await {
            if crew.gate_lost.load(Ordering::Relaxed)
                && until(&crew.stop, self.pause_until_gate_answers(crew)).await.is_none()
            {
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
    async fn pause_until_gate_answers(&self, crew: &Crew) {
        if !crew.gate_answers().await {
            self.jobs.pause().await;
            while !crew.gate_answers().await {
                tokio::time::sleep(RETRY).await;
            }
        }
        if crew.gate_lost.swap(false, Ordering::Relaxed) {
            tracing::info!("the host gate answers again");
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
    ward: Ward,
    owed: Arc<Owed>,
}

impl Crew {
    /// Starts the jobs of a message side by side, each in a separate slot, and returns when the last has its slot. A
    /// feed that killed its worker before is kept apart by the gate's count, whichever message it comes in.
    async fn start(&self, delivery: Delivery<FetchJob>, place: OwnedSemaphorePermit, messages: &TaskTracker) {
        let (jobs, receipt) = delivery.into_parts();
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
            let span = log::job(&job);
            started.push(tokio::spawn(self.clone().work(job, place).instrument(span)));
        }
        messages.spawn(finish(started, receipt, whole));
    }

    /// Returns a place for one fetch; `None` once nothing more is begun.
    async fn place(&self) -> Option<OwnedSemaphorePermit> {
        until(&self.stop, Arc::clone(&self.places).acquire_owned()).await?.ok()
    }

    /// Works one job to its end; false when it must come again.
    async fn work(self, job: FetchJob, place: OwnedSemaphorePermit) -> bool {
        match self.report(&job, place).await {
            Ok(()) => true,
            Err(WorkError::Gate(unasked, room)) => {
                self.lose_gate(&unasked);
                if let Some(owed) = unasked.owed {
                    self.owed.add(*owed, room.if_alone());
                }
                false
            }
            Err(WorkError::Unpublished | WorkError::Stopped) => false,
        }
    }

    /// Polls a job, has its report published, waits for the confirmation, and releases what the gate granted.
    async fn report(&self, job: &FetchJob, place: OwnedSemaphorePermit) -> Result<(), WorkError> {
        // A suspect that waits for its isolation keeps no place from others.
        let mut place = Some(place);
        let mut isolation = Isolation::None;
        let mut room = until(&self.stop, self.ward.room(isolation)).await.ok_or(WorkError::Stopped)?;
        let polled = loop {
            let needed = match self.poller.poll(job, isolation).await {
                Ok(Polled::Suspect(needed)) => needed,
                Ok(polled) => break polled,
                Err(unasked) => return Err(WorkError::Gate(unasked, room)),
            };
            drop((room, place.take()));
            let found = until(&self.stop, self.room(job, needed)).await.ok_or(WorkError::Stopped)?;
            let Some(isolated) = found else {
                return self.publish(self.poller.put_off(job, suspects_turn(self.poller.nonces.fresh())).await).await;
            };
            (isolation, room) = (needed, isolated);
        };
        let Polled::Report(report, held) = polled else { return Ok(()) };
        let Some(held) = held else { return self.publish(report).await };
        self.publish_held(report, &held).await?;
        drop(place);
        self.release(held, room.if_alone()).await;
        Ok(())
    }

    /// Returns when the report is safe. While it has to wait for the queue, the gate knows that the feed was fetched: its token
    /// ends long before an outage may, and then the feed would be fetched again.
    async fn publish_held(&self, report: Box<FetchReport>, held: &PendingRelease) -> Result<(), WorkError> {
        let mut publishing = pin!(self.publish(report));
        loop {
            match tokio::time::timeout(REMIND_EVERY, &mut publishing).await {
                Ok(published) => return published,
                Err(_) => {
                    if let Err(error) = self.poller.release_early(held).await {
                        tracing::debug!(error = &error as &dyn std::error::Error, "the host gate was not reminded");
                    }
                }
            }
        }
    }

    /// Returns when the report is safe.
    async fn publish(&self, report: Box<FetchReport>) -> Result<(), WorkError> {
        log::report(&report);
        let (confirm, confirmed) = oneshot::channel();
        self.outbox.send((*report, confirm)).await.map_err(|_| WorkError::Unpublished)?;
        confirmed.await.map_err(|_| WorkError::Unpublished)
    }

    /// Waits for isolation: among few suspects for a short time, because the job keeps its host's place; alone for as long as
    /// the job may wait to start, because the fetches in progress have to end.
    async fn room(&self, job: &FetchJob, isolation: Isolation) -> Option<Room> {
        let left = job.expires.since(self.poller.clock.now());
        let patience = if isolation == Isolation::Alone { left } else { left.min(SUSPECT_PATIENCE) };
        tokio::time::timeout(patience, self.ward.room(isolation)).await.ok()
    }

    /// The report is safe, so the job is done: what the gate does not take now is sent later.
    async fn release(&self, held: PendingRelease, room: Option<Room>) {
        if let Err(error) = self.poller.release(&held).await {
            // While a part of the gate is away, jobs for the hosts of the others are worked.
            if !matches!(error, GateError::PartAway { .. }) {
                self.lose_gate(&error);
            }
            self.owed.add(held, room);
        }
    }

    fn lose_gate(&self, error: &(dyn std::error::Error + 'static)) {
        if !self.gate_lost.swap(true, Ordering::Relaxed) {
            tracing::error!(error, "cannot use the host gate; other workers get the jobs");
        }
    }

    async fn gate_answers(&self) -> bool {
        self.poller.gate.check(&*self.poller.clock).await.is_ok()
    }
}

/// How long a suspect waits for others before it.
const SUSPECT_PATIENCE: Duration = Duration::from_secs(5);

/// How often the gate is reminded of a report that waits for the queue. Far less than the rest of a token's life after
/// a fetch that took all of its time.
const REMIND_EVERY: Duration = Duration::from_secs(2);

/// Returns when a suspect that waited without success comes again: not all of them at the same moment.
fn suspects_turn(draw: u64) -> Duration {
    Duration::from_millis(1_000 + draw % 4_000)
}

/// `worker.gentle`: the Windows RSS Platform's.
const GENTLE_CONCURRENCY: usize = 4;

/// Returns the future's value, or `None` when stopped first.
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
    #[error("{0}")]
    Gate(#[source] Unasked, Room),
    #[error("the report could not be published")]
    Unpublished,
    #[error("the worker stops before the job was begun")]
    Stopped,
}
