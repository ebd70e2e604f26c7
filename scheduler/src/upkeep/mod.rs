//! The loops that keep schedule, gate and store in line, and the ones that take their time.

pub(crate) mod configurations;
pub(crate) mod maintain;
pub mod orders;
pub mod reconcile;
pub mod requeue;
pub mod reseal;
pub(crate) mod watch;
