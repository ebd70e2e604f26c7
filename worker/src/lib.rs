//! The worker: fetches politely, reads what came, reports honestly.
//!
//! It holds no SQL, no schedule and no credentials of either; the code that touches hostile bytes lives here.

pub mod address;
mod blocked;
mod body;
mod budget;
pub mod classify;
mod client;
mod connection;
pub mod decode;
mod dial;
pub mod discover;
mod document;
mod failure;
pub mod fetch;
mod go_away;
pub mod headers;
mod isolation;
mod links;
mod log;
mod owed;
pub mod own_holds;
pub mod parse;
pub mod poll;
pub mod post;
mod recent;
pub mod redirect;
mod reporting;
pub mod request;
mod resolve;
mod rules;
pub mod run;
mod searched;
mod sessions;
pub mod setup;
mod shortage;
mod signature;
mod tls;
pub mod trace;
mod watch;
