//! Fetches against a scripted origin that records every byte of every request. Each test is named after the rule of
//! manners or the piece of armour that it watches.

mod activities;
mod armour;
pub(crate) mod bench;
mod bodies;
mod conditional;
mod credentials;
mod discovery;
mod faults;
mod head_first;
mod hostile_tls;
mod hubs;
mod manners;
mod names;
mod redirects;
mod signatures;
mod tls;
