//! The conformance suite over a real server, and what only shows over several processes.

use super::*;

/// A server for tests; each has a namespace of its own.
fn server() -> RedisServer {
    let url = std::env::var("FEEDFLEET_TEST_REDIS").expect(
        "FEEDFLEET_TEST_REDIS is not set: run dev/test, or `eval \"$(dev/services urls)\"` after `dev/services up`",
    );
    RedisServer::connect(&url, &format!("test-{:016x}", rand::rng().random::<u64>())).unwrap()
}

crate::schedule_conformance!(|| async { RedisSchedule::new(server(), 1) });
