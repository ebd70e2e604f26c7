//! Reading the configuration again while the fleet runs.
//!
//! The scheduler that receives the request reads its own file, environment and flags, and checks all of it. What is
//! accepted goes to the store as the fleet's next version, and every scheduler takes it up from there
//! ([`crate::upkeep::orders`]).

use std::sync::Arc;

use common::accepted;

use crate::error::BackendError;
use crate::ops::Ops;
use store::NewPolicy;

/// The outcome of a reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reloaded {
    /// The version in force, and the hash of its sections.
    pub version: i64,
    /// The hash of the accepted sections.
    pub hash: String,
    /// The sections differ from those that were in force before.
    pub changed: bool,
    /// The tokens of the API differ from those that were in force before.
    pub tokens: bool,
    /// Keys outside of these sections that have other values than at the start.
    pub needs_restart: Vec<String>,
}

/// Why nothing was reloaded. Nothing changed.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// This process was started without anything to read again.
    #[error("this process cannot read its configuration again")]
    NoSource,
    /// The configuration is not accepted.
    #[error("{0}")]
    Refused(String),
    /// It could not be stored.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// Reads the configuration again, makes its sections those of the fleet, and takes over its tokens.
pub async fn reload(ops: &Arc<Ops>, by: &str) -> Result<Reloaded, ReloadError> {
    let _turn = ops.reloading.lock().await;
    let reloaded = accept(ops, by).await;
    let now = ops.clock.now();
    let outcome = match &reloaded {
        Ok((own_hash, _)) => Ok(own_hash.clone()),
        Err(error) => Err(error.to_string()),
    };
    ops.metrics.config_reload_successful.set(i64::from(outcome.is_ok()));
    ops.condition.config.reloaded(now, outcome);
    if reloaded.is_ok() {
        ops.metrics.config_reloaded_at.set(now.millis() as f64 / 1000.0);
    }
    Ok(reloaded?.1)
}

async fn accept(ops: &Arc<Ops>, by: &str) -> Result<(String, Reloaded), ReloadError> {
    let reader = Arc::clone(ops);
    // Files are read where nothing else waits.
    let read = tokio::task::spawn_blocking(move || {
        let source = reader.config_source.get().ok_or(ReloadError::NoSource)?;
        let config = (source.read)().map_err(ReloadError::Refused)?;
        Ok::<_, ReloadError>((accepted::needs_restart(&source.started_with, &config), config))
    });
    let (mut needs_restart, config) = match read.await {
        Ok(read) => read?,
        Err(panicked) => return Err(ReloadError::Refused(panicked.to_string())),
    };
    let text = accepted::text(&config);
    let own_hash = accepted::hash(&text);
    let before = ops.condition.config.in_force().accepted;
    // With the sections that need a restart as they are now.
    accepted::laid_over(ops.condition.config.own(), &text).map_err(ReloadError::Refused)?;
    let offered = NewPolicy { text: &text, hash: &own_hash, by, decided: true };
    let policy = ops.store.accept_policy(&offered, ops.clock.now()).await.map_err(BackendError::from)?;
    // It is stored, and in force: what could not be carried on yet is tried again every second.
    let looked = ops.orders.look(ops.clock.now()).await;
    if let Err(error) = &looked {
        let error = error as &dyn std::error::Error;
        tracing::warn!(
            error,
            "the configuration is accepted; carrying it to schedule and gate is tried again until it works"
        );
    }
    // Unless it was looked at, the reason is that of the configuration before.
    if let Some(why) = ops.condition.config.in_force().refused.filter(|_| looked.is_ok()) {
        return Err(ReloadError::Refused(why));
    }
    let tokens = ops.condition.tokens.replace(&config);
    // Also for tokens that came after the start.
    let stay = config.api.tokens.is_empty() && !ops.condition.tokens.get().is_empty();
    if stay && !needs_restart.iter().any(|key| key == "api.tokens") {
        needs_restart.push("api.tokens".to_owned());
    }
    if tokens {
        tracing::info!(tokens = config.api.tokens.len(), "the tokens of the API are those of the configuration now");
    }
    let changed = before.is_none_or(|before| before.hash != policy.hash);
    let (version, hash) = (policy.version, policy.hash);
    Ok((own_hash, Reloaded { version, hash, changed, tokens, needs_restart }))
}
