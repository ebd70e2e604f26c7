//! The keys with which schedulers sign jobs: how long each is used, and how they are read.

use std::time::Duration;

use common::job_keys::JobKey;
use common::time::Timestamp;

/// A new key is made after this time.
const RENEWED_AFTER: Duration = Duration::from_secs(30 * 24 * 3600);
/// A key is deleted after this time: reports that waited longer are refused.
const KEPT_FOR: Duration = Duration::from_secs(60 * 24 * 3600);

/// What schedulers sign and verify with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredJobKeys {
    /// Oldest first, at least one.
    pub keys: Vec<JobKey>,
    /// When a fleet that had worked without keys got them; `None`: it always had them.
    pub unsigned_since: Option<Timestamp>,
}

pub(crate) type KeyRow = (i64, Vec<u8>, i64);

/// All keys, oldest first.
pub(crate) const KEYS: &str = "SELECT id, secret, made_at FROM job_keys ORDER BY id";
/// Deletes old keys, the newest excepted.
pub(crate) const DELETE: &str = "DELETE FROM job_keys WHERE made_at < $1 AND id < (SELECT max(id) FROM job_keys)";
/// Stores a key.
pub(crate) const KEEP: &str = "INSERT INTO job_keys (id, secret, made_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
/// When the fleet got keys.
pub(crate) const UNSIGNED: &str = "SELECT unsigned_since FROM store";

impl StoredJobKeys {
    pub(crate) fn of(rows: Vec<KeyRow>, unsigned_since: Option<i64>) -> Self {
        let key = |(id, secret, made): KeyRow| JobKey { id, secret, made: Timestamp::from_millis(made) };
        StoredJobKeys {
            keys: rows.into_iter().map(key).collect(),
            unsigned_since: unsigned_since.map(Timestamp::from_millis),
        }
    }
}

/// Returns what has to be stored: the caller's keys that the store has lost, and `fresh` if the newest key is old.
pub(crate) fn missing<'a>(rows: &[KeyRow], known: &'a [JobKey], fresh: &'a JobKey) -> Vec<&'a JobKey> {
    let (now, is_stored) = (fresh.made, |key: &JobKey| rows.iter().any(|(id, ..)| *id == key.id));
    let mut missing: Vec<&JobKey> =
        known.iter().filter(|key| !is_stored(key) && key.made.millis() >= deleted_before(now)).collect();
    let made = rows.iter().map(|(.., made)| *made).chain(missing.iter().map(|key| key.made.millis()));
    if made.max().is_none_or(|made| made < before(now, RENEWED_AFTER)) {
        missing.push(fresh);
    }
    missing
}

/// Returns whether a key is to be deleted.
pub(crate) fn has_old(rows: &[KeyRow], now: Timestamp) -> bool {
    rows.len() > 1 && rows.iter().any(|(.., made)| *made < deleted_before(now))
}

/// Keys made before this are deleted, the newest excepted.
pub(crate) fn deleted_before(now: Timestamp) -> i64 {
    before(now, KEPT_FOR)
}

fn before(now: Timestamp, by: Duration) -> i64 {
    now.millis().saturating_sub(i64::try_from(by.as_millis()).unwrap_or(i64::MAX))
}
