//! The state that the connections of an origin share, and the types of its connections.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};

use common::time::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::bodies;
use super::items::FeedState;
use super::log::Log;
use super::script::Script;

/// A connection to a host, after an optional TLS handshake.
pub trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Wire for S {}

/// Adds TLS to a host's connection, or rejects it.
pub type Wrap = Arc<dyn Fn(TcpStream) -> Pin<Box<dyn Future<Output = io::Result<Box<dyn Wire>>> + Send>> + Send + Sync>;

/// Creates the script of a path without one at its first request.
pub type Fallback = Box<dyn Fn(&str) -> Option<Script> + Send + Sync>;

/// The state that all connections of an origin share.
pub(super) struct Shared {
    /// The number of accepted connections, which numbers them in the log.
    pub(super) connections: AtomicU64,
    pub(super) log: Log,
    pub(super) routes: Mutex<HashMap<Arc<str>, Route>>,
    pub(super) fallback: OnceLock<Fallback>,
}

/// A path: its script, the current step, its items.
pub(super) struct Route {
    pub(super) script: Script,
    pub(super) step: usize,
    pub(super) served_in_step: usize,
    pub(super) feed: Option<FeedState>,
    /// The last encoded body, with what it was made from: step, revision, coding.
    pub(super) coded: Option<((usize, u64, bodies::Coding), bytes::Bytes)>,
}

impl Route {
    pub(super) fn new(path: &Arc<str>, script: Script, kept: Option<FeedState>, started: Timestamp) -> Self {
        let first = || script.first_feed().map(|feed| FeedState::new(Arc::clone(path), feed, started));
        let feed = kept.or_else(first);
        Route { script, step: 0, served_in_step: 0, feed, coded: None }
    }
}
