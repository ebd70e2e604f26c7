//! The command line from outside: exit codes, help, messages about errors, and the operator's commands against a
//! running fleet.

#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod browser;
mod configuration;
mod descriptors;
mod durable;
mod feeds;
mod fleet;
mod health;
mod help;
mod hostile_pages;
mod hosts;
mod import;
mod keyboard;
mod logs;
mod mistakes;
mod operator;
mod pages;
mod parse;
mod pings;
mod program;
mod reasons;
mod reload;
mod requeue;
mod signals;
mod simulate;
mod single;
mod states;
mod top;
mod unreachable;
