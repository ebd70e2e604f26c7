//! Why a call to a Redis server failed.

use std::sync::Arc;
use std::time::Duration;

use ::redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::time::ClocksDiffer;

/// Why a call to Redis failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ServerError {
    /// No connection, or it broke.
    #[error("redis cannot be reached")]
    Unreachable(#[source] RedisError),
    /// A connection, but no answer in time. The call may still take effect.
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
    /// It is a node of a cluster, and the URL names it as a single server.
    #[error("redis is a node of a Redis Cluster: write redis-cluster://HOST:PORT,HOST:PORT")]
    Clustered,
    /// No master of the cluster has the slot of a key.
    #[error("no master of the Redis Cluster has slot {0}")]
    Unserved(u16),
    /// A node of a cluster.
    #[error("node {node} of the Redis Cluster")]
    Node {
        /// Its host and port.
        node: Arc<str>,
        /// What it did, or did not do.
        #[source]
        source: Box<ServerError>,
    },
}

impl ServerError {
    /// Returns whether the server, or the node of the cluster, cannot be used at all, so that others may still be.
    pub fn is_away(&self) -> bool {
        match self {
            ServerError::Unreachable(_) | ServerError::Silent(_) | ServerError::Unserved(_) => true,
            ServerError::Node { source, .. } => source.is_away(),
            ServerError::Refused(error) => matches!(
                error.kind(),
                ErrorKind::Server(
                    ServerErrorKind::TryAgain
                        | ServerErrorKind::ClusterDown
                        | ServerErrorKind::MasterDown
                        | ServerErrorKind::BusyLoading
                        | ServerErrorKind::Moved
                        | ServerErrorKind::Ask
                )
            ),
            _ => false,
        }
    }

    /// Returns whether the server answered and refused this very call, although its settings and its clock are right.
    pub fn is_refusal(&self) -> bool {
        match self {
            ServerError::Refused(_) => true,
            ServerError::Node { source, .. } => source.is_refusal(),
            _ => false,
        }
    }
}
