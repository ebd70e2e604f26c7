//! Why a Redis server did not do what it was asked.

use std::time::Duration;

use ::redis::RedisError;

use crate::time::ClocksDiffer;

/// Why Redis did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ServerError {
    /// No connection, or it broke.
    #[error("redis cannot be reached")]
    Unreachable(#[source] RedisError),
    /// A connection, but no answer in time. What was asked may still happen.
    #[error("redis did not answer within {0:?}")]
    Silent(Duration),
    /// It answered, and refused.
    #[error("redis refused")]
    Refused(#[source] RedisError),
    /// Times in it would mean different things to us and to others.
    #[error("redis is not used")]
    Clock(#[from] ClocksDiffer),
    /// Its settings would lose what is kept there.
    #[error("redis has maxmemory-policy {0}, which forgets keys at will; set it to noeviction")]
    Evicts(String),
    /// Its memory is full, it is a replica, or its disk is.
    #[error("redis accepts no writes: {0}; if its memory is full, raise maxmemory or remove what else is in it")]
    ReadOnly(String),
}
