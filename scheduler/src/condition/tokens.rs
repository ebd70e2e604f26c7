//! The tokens in force: those of this process's own configuration, as it was read last.
//!
//! They do not travel through the store, as the policy does: every reader of the database could then open the API.

use std::sync::{Arc, PoisonError, RwLock};

use common::config::{ApiToken, Config};

/// The tokens in force. Each request is judged by what they are then.
#[derive(Debug)]
pub struct Tokens(RwLock<Arc<[ApiToken]>>);

impl Tokens {
    /// Returns the tokens of a configuration.
    pub fn of(config: &Config) -> Self {
        Tokens(RwLock::new(config.api.tokens.as_slice().into()))
    }

    /// Returns the tokens in force. As long as they are the same, so is what it points at.
    pub fn get(&self) -> Arc<[ApiToken]> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes over the tokens of a configuration that was read again; returns whether they differ. Without any, the ones
    /// before stay: a process that others can reach would answer every caller.
    pub fn replace(&self, config: &Config) -> bool {
        let mut tokens = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let differ = !config.api.tokens.is_empty() && **tokens != *config.api.tokens;
        if differ {
            *tokens = config.api.tokens.as_slice().into();
        }
        differ
    }
}
