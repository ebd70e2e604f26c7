//! The fake internet from outside: the origin's responses and records, a judged population, and the simulator compared
//! with its reference.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic, in its helpers too")]

mod client;
mod misbehaviour;
mod origin;
mod population;
mod reference;
