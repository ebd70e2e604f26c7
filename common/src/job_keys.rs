//! Message authentication codes that tie a report to the job that it answers.
//!
//! A scheduler signs each job with a key that only schedulers have; the worker echoes the code in its report. A process that can
//! publish reports, and knows no key, can answer the jobs that it was given, and no others. What it reports about those jobs is
//! not covered: only what the schedulers decided is. Where the key is kept is the store's business.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use rand::RngExt;

use crate::host::HostKey;
use crate::job::FetchJob;
use crate::job_mac::JobMac;
use crate::report::{FetchReport, Outcome};
use crate::time::Timestamp;
use crate::url::{FeedId, Version};

/// What is signed begins with these bytes, so that a key used for anything else cannot produce a code for a job.
const PURPOSE: &[u8] = b"feedfleet job 1";

/// A key for signing jobs.
#[derive(Clone, PartialEq, Eq)]
pub struct JobKey {
    /// Its number: later keys have higher ones, and no two have the same.
    pub id: i64,
    /// 32 random bytes.
    pub secret: Vec<u8>,
    /// When it was made.
    pub made: Timestamp,
}

impl std::fmt::Debug for JobKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "JobKey({}, ***)", self.id)
    }
}

/// Random bits of a key's number, below the time when it was made.
const RANDOM_BITS: u32 = 20;

impl JobKey {
    /// Returns a new key. A store that failed over to a standby that lagged does not know its last keys: so numbers are not counted there.
    pub fn fresh(now: Timestamp) -> Self {
        let mut random = rand::rng();
        let id = now.millis() << RANDOM_BITS | random.random_range(0..1 << RANDOM_BITS);
        JobKey { id, secret: random.random::<[u8; 32]>().to_vec(), made: now }
    }
}

/// Why a report does not prove that it answers a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MacError {
    /// The report has no code.
    #[error("it has no authentication code")]
    Missing,
    /// The schedulers do not know the key, or no longer.
    #[error("its authentication code is of an unknown key")]
    UnknownKey,
    /// The code is for another feed, version, host or expiry.
    #[error("its authentication code is for another job")]
    Mismatch,
    /// The job was not there to be started at this time.
    #[error("its time of start is outside of its job's time")]
    Time,
}

impl MacError {
    /// All of them.
    pub const ALL: [MacError; 4] = [MacError::Missing, MacError::UnknownKey, MacError::Mismatch, MacError::Time];

    /// Returns the label of `feedfleet_refused_reports_total`.
    pub fn as_str(self) -> &'static str {
        match self {
            MacError::Missing => "missing",
            MacError::UnknownKey => "unknown_key",
            MacError::Mismatch => "mismatch",
            MacError::Time => "time",
        }
    }
}

/// How far the times of a report may differ from those of its job.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// The maximum difference between two clocks.
    pub skew: Duration,
    /// How long after its expiry the request of a job may start that was begun in time.
    pub after_start: Duration,
}

/// The keys that a scheduler signs and verifies with.
#[derive(Debug)]
pub struct JobKeys {
    keys: BTreeMap<i64, (Timestamp, hmac::Key)>,
}

/// A key is used for signing only after this time, unless it is the only one: by then every scheduler has read it.
const KNOWN_TO_ALL: Duration = Duration::from_secs(600);

impl JobKeys {
    /// Takes the keys over.
    pub fn new(keys: &[JobKey]) -> Self {
        let hashed = |key: &JobKey| (key.id, (key.made, hmac::Key::new(hmac::HMAC_SHA256, &key.secret)));
        JobKeys { keys: keys.iter().map(hashed).collect() }
    }

    /// Returns whether a report's code is of one of the keys, if it has one.
    pub fn knows_key_of(&self, report: &FetchReport) -> bool {
        report.mac.as_ref().is_none_or(|mac| self.keys.contains_key(&mac.key))
    }

    /// Signs a job.
    pub fn sign(&self, job: &mut FetchJob, now: Timestamp) {
        let known = self.keys.iter().rev().find(|(_, (made, _))| made.after(KNOWN_TO_ALL) <= now);
        let Some((id, (_, key))) = known.or_else(|| self.keys.iter().next()) else { return };
        let signed = Signed {
            feed: job.feed,
            version: job.version,
            host: &job.host,
            issued: now,
            expires: job.expires,
            wake_at: job.wake_at,
            pushed: job.pushed.is_some(),
            page: job.page,
        };
        let code = STANDARD_NO_PAD.encode(hmac::sign(key, &signed.bytes()));
        job.mac = Some(JobMac { key: *id, issued: now, expires: job.expires, code });
    }

    /// Checks that a report answers a job that was signed with one of the keys, at a time when it could be answered.
    pub fn verify(&self, report: &FetchReport, tolerance: Tolerance, now: Timestamp) -> Result<(), MacError> {
        let mac = report.mac.as_ref().ok_or(MacError::Missing)?;
        let (_, key) = self.keys.get(&mac.key).ok_or(MacError::UnknownKey)?;
        let signed = Signed {
            feed: report.feed,
            version: report.version,
            host: &report.host,
            issued: mac.issued,
            expires: mac.expires,
            wake_at: report.answers_wake,
            pushed: report.pushed,
            page: report.page,
        };
        let code = STANDARD_NO_PAD.decode(&mac.code).map_err(|_| MacError::Mismatch)?;
        hmac::verify(key, &signed.bytes(), &code).map_err(|_| MacError::Mismatch)?;
        let Tolerance { skew, after_start } = tolerance;
        let early = report.started.after(skew) < mac.issued;
        // A worker may notice at any time that a job came too late.
        let is_fetch = !matches!(report.outcome, Outcome::Deferred { .. });
        let late = is_fetch && report.started > mac.expires.after(after_start + skew);
        let ahead = report.started.after(report.duration) > now.after(skew);
        if early || late || ahead { Err(MacError::Time) } else { Ok(()) }
    }
}

/// What a code covers: what a scheduler decided about the job, as far as the report repeats it.
struct Signed<'a> {
    feed: FeedId,
    version: Version,
    host: &'a HostKey,
    issued: Timestamp,
    expires: Timestamp,
    wake_at: Option<Timestamp>,
    pushed: bool,
    page: bool,
}

impl Signed<'_> {
    /// Everything in a fixed width, the host last: no two jobs have the same bytes.
    fn bytes(&self) -> Vec<u8> {
        let host = self.host.as_str().as_bytes();
        let mut bytes = Vec::with_capacity(PURPOSE.len() + 5 * 8 + 3 + host.len());
        bytes.extend_from_slice(PURPOSE);
        let wake = self.wake_at.map_or(0, Timestamp::millis);
        for number in [self.feed.0, self.version.0, self.issued.millis(), self.expires.millis(), wake] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.extend([self.wake_at.is_some(), self.pushed, self.page].map(u8::from));
        bytes.extend_from_slice(host);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::conformance;

    const TOLERANCE: Tolerance = Tolerance { skew: Duration::from_secs(1), after_start: Duration::from_secs(60) };

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000).after(Duration::from_secs(seconds))
    }

    fn key(id: i64, made: Timestamp) -> JobKey {
        JobKey { id, secret: vec![u8::try_from(id).unwrap(); 32], made }
    }

    /// Returns a job that was signed at 0 s and expires at 60 s, and its report of 10 s.
    fn answered(keys: &JobKeys) -> FetchReport {
        let mut job = FetchJob { expires: at(60), wake_at: Some(at(0)), ..conformance::job(1) };
        keys.sign(&mut job, at(0));
        let report = FetchReport::of(job.feed, job.version, job.host, at(10), Outcome::Gone);
        FetchReport { answers_wake: job.wake_at, mac: job.mac, ..report }
    }

    #[test]
    fn a_report_proves_the_job_that_it_answers_and_no_other() {
        let keys = JobKeys::new(&[key(1, at(0))]);
        let report = answered(&keys);
        assert_eq!(keys.verify(&report, TOLERANCE, at(11)), Ok(()));
        let mac = report.mac.clone().unwrap();
        let forged = [
            FetchReport { feed: FeedId(report.feed.0 + 1), ..report.clone() },
            FetchReport { version: Version(report.version.0 + 1), ..report.clone() },
            FetchReport { host: HostKey::new("victim.example:443"), ..report.clone() },
            FetchReport { answers_wake: None, ..report.clone() },
            FetchReport { pushed: true, ..report.clone() },
            FetchReport { page: true, ..report.clone() },
            FetchReport { mac: Some(JobMac { expires: at(600), ..mac.clone() }), ..report.clone() },
            FetchReport { mac: Some(JobMac { issued: at(5), ..mac.clone() }), ..report.clone() },
            FetchReport { mac: Some(JobMac { code: "AAAA".into(), ..mac.clone() }), ..report.clone() },
            FetchReport { mac: Some(JobMac { code: "*".into(), ..mac.clone() }), ..report.clone() },
        ];
        for forged in forged {
            assert_eq!(keys.verify(&forged, TOLERANCE, at(11)), Err(MacError::Mismatch), "{forged:?}");
        }
        let unsigned = FetchReport { mac: None, ..report.clone() };
        assert_eq!(keys.verify(&unsigned, TOLERANCE, at(11)), Err(MacError::Missing));
        let unknown = FetchReport { mac: Some(JobMac { key: 2, ..mac }), ..report.clone() };
        assert_eq!(keys.verify(&unknown, TOLERANCE, at(11)), Err(MacError::UnknownKey));
        let others = JobKeys::new(&[JobKey { secret: vec![9; 32], ..key(1, at(0)) }]);
        assert_eq!(others.verify(&report, TOLERANCE, at(11)), Err(MacError::Mismatch));
    }

    #[test]
    fn a_report_tells_of_a_time_when_its_job_was_there_and_that_has_passed() {
        let keys = JobKeys::new(&[key(1, at(0))]);
        let report = answered(&keys);
        let started = |started| FetchReport { started, ..report.clone() };
        // However long it waited in the queue.
        assert_eq!(keys.verify(&report, TOLERANCE, at(100_000)), Ok(()));
        assert_eq!(keys.verify(&started(at(120)), TOLERANCE, at(121)), Ok(()));
        let not_started = FetchReport { outcome: Outcome::Deferred { until: at(9_000) }, ..started(at(9_000)) };
        assert_eq!(keys.verify(&not_started, TOLERANCE, at(9_001)), Ok(()));
        for (wrong, now) in [(started(at(130)), at(131)), (started(at(30)), at(20))] {
            assert_eq!(keys.verify(&wrong, TOLERANCE, now), Err(MacError::Time));
        }
        let before = FetchReport { started: Timestamp::from_millis(at(0).millis() - 2_000), ..report.clone() };
        assert_eq!(keys.verify(&before, TOLERANCE, at(11)), Err(MacError::Time));
        let endless = FetchReport { duration: Duration::from_secs(1_000), ..report };
        assert_eq!(keys.verify(&endless, TOLERANCE, at(11)), Err(MacError::Time), "it ends in the future");
    }

    #[test]
    fn a_new_key_signs_only_after_every_scheduler_has_read_it() {
        let keys = JobKeys::new(&[key(1, at(0)), key(2, at(5_000))]);
        let signed_at = |now| {
            let mut job = conformance::job(1);
            keys.sign(&mut job, now);
            job.mac.unwrap().key
        };
        assert_eq!([at(10), at(5_010), at(5_601)].map(signed_at), [1, 1, 2]);
    }
}
