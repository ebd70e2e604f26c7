//! Decides what is due and applies what came back. Holds no HTTP client, no feed parser, no SQL and no HTTP server.
//!
//! Read [`poll::dispatch`] (a due feed becomes a job) and [`poll::results`] (a report becomes a stored state) first.

#[cfg(test)]
mod claims;
pub mod condition;
pub mod delivery;
pub mod error;
pub mod events;
pub mod ops;
pub mod poll;
pub mod push;
mod run;
pub mod schedule;
pub mod upkeep;
pub mod wire;

pub use run::{Backends, LoopEnded, Scheduler};
