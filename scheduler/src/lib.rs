//! Decides what is due and applies what came back. Holds no HTTP client, no feed parser, no SQL and no HTTP server.
//!
//! Read [`poll::dispatch`] (a due feed becomes a job) and [`poll::results`] (a report becomes a stored state) first.

pub mod about;
#[cfg(test)]
mod claims;
pub mod condition;
pub mod delivery;
pub mod documents;
pub mod error;
pub mod events;
#[cfg(test)]
mod life_tests;
pub mod ops;
pub mod poll;
pub mod push;
mod run;
pub mod schedule;
pub mod sender;
pub mod upkeep;
pub mod wire;

pub use run::{Backends, LoopEnded, Scheduler};
