//! The configuration in force: this scheduler's own, except for the sections that all schedulers of the fleet share
//! ([`common::accepted`]).

use std::sync::{Arc, PoisonError, RwLock};

use common::accepted;
use common::config::Config;
use common::time::Timestamp;
use store::AcceptedPolicy;

/// Reads the configuration again, as at the start. An error says what is wrong with it, in lines for people.
pub struct ConfigSource {
    /// As it was read at the start.
    pub started_with: Config,
    /// Reads it.
    pub read: Box<dyn Fn() -> Result<Config, String> + Send + Sync>,
}

/// The configuration in force, and its source. Each decision takes a snapshot.
#[derive(Debug)]
pub struct LiveConfig {
    /// As this scheduler was started.
    own: Arc<Config>,
    state: RwLock<InForce>,
}

/// What is in force.
#[derive(Clone, Debug)]
pub struct InForce {
    /// All of it.
    pub config: Arc<Config>,
    /// Its sections as the fleet accepted them; `None` until the store was read.
    pub accepted: Option<Accepted>,
    /// The hash of the sections as this scheduler read them last from its own file, environment and flags.
    pub own_hash: String,
    /// Why the accepted sections are not in force here, if they cannot be.
    pub refused: Option<String>,
    /// The last time that this scheduler read its configuration again.
    pub last_reload: Option<Reload>,
}

/// Which sections the fleet accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Counts the changes.
    pub version: i64,
    /// The hash of the sections.
    pub hash: String,
    /// When they were accepted.
    pub at: Timestamp,
    /// Their source.
    pub by: String,
}

/// An attempt to read the configuration again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reload {
    /// When.
    pub at: Timestamp,
    /// What is wrong with it; nothing changed then.
    pub error: Option<String>,
}

impl LiveConfig {
    /// Creates the configuration that a scheduler is started with.
    pub fn new(config: &Config) -> Self {
        let own = Arc::new(config.clone());
        let state = InForce {
            config: Arc::clone(&own),
            accepted: None,
            own_hash: accepted::hash(&accepted::text(config)),
            refused: None,
            last_reload: None,
        };
        LiveConfig { own, state: RwLock::new(state) }
    }

    /// Returns the configuration in force.
    pub fn get(&self) -> Arc<Config> {
        Arc::clone(&self.read().config)
    }

    /// Returns the configuration in force and its source.
    pub fn in_force(&self) -> InForce {
        self.read().clone()
    }

    /// Returns the configuration that this scheduler was started with.
    pub(crate) fn own(&self) -> &Config {
        &self.own
    }

    /// Takes over what the fleet accepted. Returns the configuration that is in force then; `None` if it cannot be, and the
    /// one before stays.
    pub(crate) fn adopt(&self, policy: &AcceptedPolicy) -> Option<Arc<Config>> {
        let laid = accepted::laid_over(&self.own, &policy.text);
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let AcceptedPolicy { version, hash, accepted: at, by, .. } = policy.clone();
        match laid {
            Ok(config) => {
                state.config = Arc::new(config);
                state.refused = None;
                state.accepted = Some(Accepted { version, hash, at, by });
                Some(Arc::clone(&state.config))
            }
            Err(why) => {
                tracing::error!(
                    version,
                    why,
                    "the policy that the fleet accepted cannot be in force here; the one before stays"
                );
                state.refused = Some(why);
                None
            }
        }
    }

    /// Replaces the configuration, for a simulation.
    pub fn replace(&self, config: Arc<Config>) {
        self.state.write().unwrap_or_else(PoisonError::into_inner).config = config;
    }

    /// Records that the configuration was read again.
    pub(crate) fn reloaded(&self, at: Timestamp, outcome: Result<String, String>) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.last_reload = Some(Reload { at, error: outcome.as_ref().err().cloned() });
        if let Ok(own_hash) = outcome {
            state.own_hash = own_hash;
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, InForce> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }
}
