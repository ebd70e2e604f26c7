//! What the fetches of a process share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::bot_auth::BotKey;
use common::config::FetchConfig;
use common::host::HostRules;
use common::time::Timestamp;
use tokio::sync::Semaphore;

use crate::address::AddressGuard;
use crate::body::BodySlots;
use crate::client::{self, Client};
use crate::decode::DecodeLimits;
use crate::document::ReadLimits;
use crate::parse::ParseLimits;
use crate::request::UserAgent;
use crate::searched::Searched;
use crate::setup::{FetchSetup, FetchSetupError};
use crate::signature::Signer;

/// Connections, limits, and what is remembered from one fetch to the next.
pub(super) struct Shared {
    pub(super) client: Client,
    pub(super) guard: AddressGuard,
    pub(super) user_agent: UserAgent,
    pub(super) signer: Option<Signer>,
    pub(super) bot_key: Option<Arc<BotKey>>,
    pub(super) delta_encoding: bool,
    pub(super) timeout: Duration,
    pub(super) idle_timeout: Duration,
    pub(super) max_redirects: usize,
    pub(super) max_header_bytes: usize,
    pub(super) max_headers: usize,
    pub(super) max_informational: u32,
    pub(super) max_wire_bytes: usize,
    pub(super) large_body_bytes: usize,
    pub(super) large_bodies: Arc<BodySlots>,
    pub(super) max_place_wait: Duration,
    pub(super) parsers: Arc<Semaphore>,
    pub(super) limits: ReadLimits,
    pub(super) searched: Mutex<Searched>,
    /// When a shortage of this machine was last logged.
    shortage_logged: Mutex<Timestamp>,
}

impl Shared {
    /// By the configuration; `rules` are only checked here.
    pub(super) fn new(config: &FetchConfig, rules: &HostRules, setup: &FetchSetup) -> Result<Self, FetchSetupError> {
        let guard = AddressGuard::new(&config.allow_networks, &config.allow_ports)?;
        let parsers = match config.parsers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            parsers => parsers,
        };
        Ok(Shared {
            client: client::build(config, guard.clone(), setup)?,
            guard,
            user_agent: client::user_agent(config, rules)?,
            signer: Signer::of(config)?,
            bot_key: setup.bot_key.clone(),
            delta_encoding: config.delta_encoding,
            timeout: config.timeout,
            idle_timeout: config.idle_timeout,
            max_redirects: config.max_redirects,
            max_header_bytes: config.max_header_bytes,
            max_headers: config.max_headers,
            max_informational: config.max_informational,
            max_wire_bytes: config.max_wire_bytes,
            large_body_bytes: config.large_body_bytes,
            large_bodies: BodySlots::new(config.large_bodies),
            max_place_wait: config.max_place_wait(),
            parsers: Arc::new(Semaphore::new(parsers)),
            limits: ReadLimits {
                decode: DecodeLimits { max_bytes: config.max_body_bytes, max_ratio: config.max_ratio, deadline: None },
                parse: ParseLimits { max_entries: config.max_entries, ..ParseLimits::default() },
                max_report_bytes: config.max_report_bytes,
            },
            searched: Mutex::default(),
            shortage_logged: Mutex::new(Timestamp::EPOCH),
        })
    }

    pub(super) fn searched(&self) -> std::sync::MutexGuard<'_, Searched> {
        common::lock(&self.searched)
    }

    /// Returns whether a shortage is to be logged; it then counts as logged.
    pub(super) fn shortage_is_news(&self, now: Timestamp) -> bool {
        const EVERY: Duration = Duration::from_secs(60);
        let mut logged = common::lock(&self.shortage_logged);
        let news = now.is_time_again(*logged, EVERY);
        if news {
            *logged = now;
        }
        news
    }
}
