//! What both halves of feedfleet agree on: the domain types, the pure polling policy, the seams between scheduler and
//! worker (queue and host gate), configuration and metrics.
//!
//! Nothing in here knows SQL, HTTP or a schedule. A newcomer reads [`policy::decide`] first.

pub mod accepted;
pub mod archive;
pub mod bot_auth;
pub mod calm;
pub mod causes;
pub mod config;
pub mod delivery;
pub mod document;
pub mod duration;
pub mod entry;
#[cfg(any(test, feature = "conformance"))]
pub mod faults;
pub mod feed;
pub mod host;
pub mod host_gate;
pub mod host_name;
pub mod html;
pub mod input;
pub mod job;
pub mod job_keys;
pub mod job_mac;
pub mod known;
pub mod labels;
pub mod last_error;
pub mod live_rules;
pub mod metrics;
mod named;
pub mod outcome;
pub mod policy;
pub mod push;
pub mod queue;
pub mod redis;
pub mod report;
pub mod secrets;
pub mod server_password;
pub mod suggest;
mod sync;
#[cfg(any(test, feature = "conformance"))]
pub mod testing;
pub mod time;
pub mod url;
pub mod webhook;
pub mod words;

pub use sync::{lock, sleep_or_stop};
