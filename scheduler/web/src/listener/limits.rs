//! The limits of a listener.

use std::time::Duration;

use super::proxies::Proxies;

/// Connections beyond the limit that are answered for health and metrics while all others are busy.
pub const RESERVED: usize = 32;
/// Connections that may still be closing after they gave way to others.
const CLOSING: usize = 32;

/// The limits of one listener.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections in total.
    pub connections: usize,
    /// Connections of one address (IPv6: of one /64) that is one caller's.
    pub per_address: usize,
    /// Addresses that many callers share.
    pub proxies: Proxies,
    /// From the first byte of a request's head, or from connecting, to the head's end.
    pub head: Duration,
    /// From a response's end to the next request.
    pub idle: Duration,
    /// How long a caller may take next to nothing of a response that waits for it.
    pub stalled: Duration,
}

impl Limits {
    /// Returns the limits with the usual timeouts.
    pub fn new(connections: usize, per_address: usize) -> Self {
        let (head, idle) = (Duration::from_secs(10), Duration::from_secs(60));
        Limits { connections, per_address, proxies: Proxies::default(), head, idle, stalled: Duration::from_secs(30) }
    }

    /// Returns the largest number of file descriptors that connections take.
    pub fn descriptors(&self) -> usize {
        self.connections + RESERVED + CLOSING
    }
}
