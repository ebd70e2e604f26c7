//! The worker from outside, in one program: fetches against a scripted origin, the parser on whole documents, and
//! mutations of both. What must be measured in a separate process is `parse_costs.rs`.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic, in its helpers too")]

mod fetch;
mod kinds;
mod mutations;
mod parse;
mod parse_fields;
mod parse_hostile;
mod parse_repairs;
mod parse_second_opinion;
mod parse_stability;
mod patterns;
mod publishers;
