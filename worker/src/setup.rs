//! What the worker's configuration does not hold, and why a configuration is refused.

use std::sync::Arc;

use common::bot_auth::BotKey;
use rustls::pki_types::CertificateDer;

use crate::address::InvalidPorts;

/// What the fetcher's own part of the configuration does not hold.
#[derive(Clone, Debug, Default)]
pub struct FetchSetup {
    /// Root certificates beside the machine's.
    pub extra_roots: Vec<CertificateDer<'static>>,
    /// Names that are resolved without a query, in the format of `/etc/hosts`.
    pub hosts: String,
    /// Signs every request.
    pub bot_key: Option<Arc<BotKey>>,
    /// Fetches at the same time (`worker.concurrency`). For each of them one more address may be dialled beside the first.
    /// `None`: no limit.
    pub concurrency: Option<usize>,
}

/// The configuration does not allow a fetcher. Names the key.
#[derive(Debug, thiserror::Error)]
pub enum FetchSetupError {
    /// `fetch.allow_ports`
    #[error(transparent)]
    Ports(#[from] InvalidPorts),
    /// A limit that would stop every fetch.
    #[error("{key}: {value} is too little, at least {least} is needed")]
    TooSmall {
        /// Which key.
        key: &'static str,
        /// Its value.
        value: usize,
        /// What would be accepted.
        least: usize,
    },
    /// A text that cannot be sent.
    #[error("{key}: '{value}' cannot be sent in a header field; use printable ASCII")]
    UserAgent {
        /// Which key.
        key: String,
        /// Its value.
        value: String,
    },
    /// A key that cannot be used.
    #[error("{key}: {path} cannot be used: {why}")]
    Key {
        /// Which key of the configuration.
        key: &'static str,
        /// Its value.
        path: String,
        /// What is wrong, or what would be accepted.
        why: String,
    },
    /// TLS could not be set up.
    #[error("TLS could not be set up")]
    Tls(#[from] rustls::Error),
    /// The resolver could not be set up.
    #[error("the name resolver could not be set up: {0}")]
    Resolver(String),
}
