//! The conformance suite over a real server, and what only shows over several processes.

use common::redis::testing::shared;

use super::*;

crate::schedule_conformance!(|| async { RedisSchedule::new(shared(), 1) });
