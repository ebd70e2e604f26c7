//! The conformance suite over a real server, and what only shows over several processes.

use super::*;
use crate::redis::testing::shared;

async fn gate() -> RedisGate {
    RedisGate::new(shared(), Duration::ZERO)
}

crate::host_gate_conformance!(gate);
