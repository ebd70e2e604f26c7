//! What a scheduler shows over HTTP: the API for programs and the pages for people. Holds no loop and decides nothing about
//! polling.

pub mod api;
mod pages;

pub use api::{router, serve};
