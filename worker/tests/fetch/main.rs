//! Fetches against a scripted origin that records every byte of every request. Each test is named after the rule of
//! manners or the piece of armour that it watches.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

mod activities;
mod armour;
mod bench;
mod bodies;
mod conditional;
mod credentials;
mod discovery;
mod head_first;
mod manners;
mod names;
mod redirects;
mod signatures;
mod tls;
