//! Decides what is due, applies what came back, serves the operator API. Holds no HTTP client and no feed parser.
//!
//! Read [`dispatch`] (a due feed becomes a job) and [`results`] (a report becomes a stored state) first.

pub mod api;
#[cfg(test)]
mod claims;
#[cfg(test)]
mod crowd_tests;
pub mod dispatch;
pub mod error;
pub mod follow;
pub mod hosts;
#[cfg(test)]
mod life_tests;
pub mod load;
mod maintain;
pub mod moves;
mod new_rules;
pub mod ops;
pub mod orders;
pub mod our_fault;
pub mod pace;
mod pages;
pub mod price;
pub mod push;
pub mod reconcile;
pub mod relay;
mod requeue;
mod reseal;
pub mod results;
mod run;
pub mod schedule;
pub mod store;
pub mod storing;
mod subject;
mod trouble;
pub mod upcoming;
pub mod worst;

pub use run::{Backends, Scheduler};
pub use subject::subject;
