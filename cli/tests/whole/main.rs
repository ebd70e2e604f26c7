//! The whole program, as its users run it: real processes, real servers, real kills.
#![expect(clippy::unwrap_used, reason = "tests")]

mod cluster;
mod demo;
mod harness;
mod hostile;
mod house;
mod kills;
mod life;
mod moves;
mod our_fault;
mod readme;
mod release;
mod secrets;
mod week;
