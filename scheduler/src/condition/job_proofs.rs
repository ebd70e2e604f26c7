//! Accepts a report only if a job's authentication code proves that it answers a job of this fleet.
//!
//! The keys are the store's, shared by all schedulers and unknown to workers. A report without proof is dropped before it
//! changes a hold or the store, is counted, and is logged at a limited rate.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::config::Config;
use common::feed::Feed;
use common::job::FetchJob;
use common::job_keys::{JobKey, JobKeys, MacError, Tolerance};
use common::metrics::Metrics;
use common::report::FetchReport;
use common::time::Timestamp;
use store::{Store, StoreError, StoredJobKeys};

/// Between two looks at the store's keys. Far less than the time before a new key is used.
const READ_EVERY: Duration = Duration::from_secs(60);
/// The same while there are reports of an unknown key: of a scheduler that found none after the store had failed over.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// How long the store may take for it when the keys of the look before are there: a report's hold must not wait for the store.
const PATIENCE: Duration = Duration::from_millis(500);
/// Between two log lines about refused reports.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Signs jobs, and recognises the reports on them.
#[derive(Debug)]
pub struct JobProofs {
    tolerance: Tolerance,
    /// How long reports without a code are accepted in a fleet that had worked without.
    unsigned_for: Duration,
    known: Mutex<Option<Known>>,
    refused: Mutex<Refused>,
}

/// What was read from the store.
#[derive(Clone, Debug)]
struct Known {
    stored: Arc<StoredJobKeys>,
    keys: Arc<JobKeys>,
    read: Timestamp,
    /// The newest epoch of the store that is known to have these keys.
    epochs: Option<u32>,
}

/// Refused reports that were not logged yet.
#[derive(Debug, Default)]
struct Refused {
    reports: u64,
    logged: Option<Timestamp>,
}

impl JobProofs {
    /// Nothing is signed or believed before the keys were read.
    pub fn new(config: &Config) -> Self {
        let scheduler = &config.scheduler;
        JobProofs {
            // Each process's clock may differ from the servers' by that much, a scheduler's and a worker's in opposite directions.
            tolerance: Tolerance { skew: 2 * scheduler.clock_skew, after_start: scheduler.fetch_lease },
            unsigned_for: scheduler.unsigned_reports,
            known: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    /// Signs jobs. When the store has begun another epoch, it gets the keys back that it has lost: other schedulers read them there.
    pub async fn sign(&self, jobs: &mut [FetchJob], store: &dyn Store, now: Timestamp) -> Result<(), StoreError> {
        let mut known = self.known(store, READ_EVERY, now).await?;
        let epochs = jobs.iter().map(|job| job.epochs).max();
        if known.epochs < epochs {
            let read = store.job_keys(&known.stored.keys, &JobKey::fresh(now)).await?;
            known = self.note(read, epochs, now);
        }
        jobs.iter_mut().for_each(|job| known.keys.sign(job, now));
        Ok(())
    }

    /// Reads the keys unless they were read a moment ago. Keys that were read before serve while the store is away.
    pub async fn ready(&self, store: &dyn Store, now: Timestamp) -> Result<(), StoreError> {
        self.known(store, READ_EVERY, now).await.map(drop)
    }

    /// Keeps the reports that are believed.
    pub async fn keep(
        &self,
        reports: &mut Vec<FetchReport>,
        store: &dyn Store,
        metrics: &Metrics,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut known = self.known(store, READ_EVERY, now).await?;
        if !reports.iter().all(|report| known.keys.knows_key_of(report)) {
            known = self.known(store, READ_AGAIN, now).await?;
        }
        let may_be_unsigned = known.stored.unsigned_since.is_some_and(|since| now < since.after(self.unsigned_for));
        reports.retain(|report| match known.keys.verify(report, self.tolerance, now) {
            Ok(()) => true,
            Err(MacError::Missing) if may_be_unsigned => {
                metrics.unsigned_reports.inc();
                true
            }
            Err(error) => {
                metrics.refused_reports.with_label_values(&[error.as_str()]).inc();
                self.log(report, error, now);
                false
            }
        });
        Ok(())
    }

    /// Returns whether a report answers a job that was issued before its feed was added, or before the feed's last poll began. The
    /// store has failed over to a copy that lagged since then: the feed's number and version were given to others. Times in the future
    /// do not count: a clock that was wrong left them, and reports are believed again as soon as it is right.
    pub fn is_of_lost_history(&self, feed: &Feed, report: &FetchReport, now: Timestamp) -> bool {
        let skew = self.tolerance.skew;
        let known = [Some(feed.added), feed.state.last_polled].into_iter().flatten();
        let Some(known) = known.filter(|known| *known <= now.after(skew)).max() else { return false };
        report.mac.as_ref().is_some_and(|mac| mac.issued.after(skew) < known)
    }

    /// Returns the keys, read at most this long ago if the store answers soon.
    async fn known(&self, store: &dyn Store, every: Duration, now: Timestamp) -> Result<Known, StoreError> {
        let before = common::lock(&self.known).clone();
        let Some(before) = before else { return Ok(self.note(read(store, now).await?, None, now)) };
        if !now.is_time_again(before.read, every) {
            return Ok(before);
        }
        match tokio::time::timeout(PATIENCE, read(store, now)).await {
            Ok(Ok(keys)) => Ok(self.note(keys, before.epochs, now)),
            // The store is away or slow, which is logged where it is in the way. The keys are read again a minute later.
            Ok(Err(_)) | Err(_) => {
                let known = Known { read: now, ..before };
                *common::lock(&self.known) = Some(known.clone());
                Ok(known)
            }
        }
    }

    fn note(&self, stored: StoredJobKeys, epochs: Option<u32>, now: Timestamp) -> Known {
        let keys = Arc::new(JobKeys::new(&stored.keys));
        let known = Known { stored: Arc::new(stored), keys, read: now, epochs };
        *common::lock(&self.known) = Some(known.clone());
        known
    }

    fn log(&self, report: &FetchReport, reason: MacError, now: Timestamp) {
        let mut refused = common::lock(&self.refused);
        refused.reports += 1;
        if refused.logged.is_none_or(|logged| now.is_time_again(logged, LOG_EVERY)) {
            refused.logged = Some(now);
            let refused = std::mem::take(&mut refused.reports);
            tracing::error!(
                feed = %report.feed, host = %report.host, %reason, refused,
                "reports that answer no job of this fleet are dropped: a process that publishes forged or very old reports, \
                 or a worker of an earlier version (logged at most once a minute; see feedfleet_refused_reports_total)"
            );
        }
    }
}

async fn read(store: &dyn Store, now: Timestamp) -> Result<StoredJobKeys, StoreError> {
    store.job_keys(&[], &JobKey::fresh(now)).await
}
