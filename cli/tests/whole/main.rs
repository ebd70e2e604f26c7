//! The whole program, as users run it: real processes, real servers, real kills.
#![expect(clippy::unwrap_used, reason = "tests")]

mod address_guard;
mod clients;
mod cluster;
mod demo;
mod harness;
mod hostile;
mod house;
mod imports;
mod kills;
mod life;
mod minutes;
mod moves;
mod our_fault;
mod pings;
mod politeness;
mod previous;
mod push;
mod readme;
mod redirects;
mod release;
mod requeue;
mod rescue;
mod scenarios;
mod secrets;
mod tail;
mod traits;
mod web_servers;
mod webhooks;
mod week;
