//! The authentication code of a job, which its report echoes. How it is made and verified: [`crate::job_keys`].

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// The code of a job, and what it covers beyond the fields that reports have anyway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobMac {
    /// The number of the key.
    pub key: i64,
    /// When the job was signed.
    pub issued: Timestamp,
    /// The job's expiry.
    pub expires: Timestamp,
    /// HMAC-SHA-256, in base64.
    pub code: String,
}
