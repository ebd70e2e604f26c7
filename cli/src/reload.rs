//! Reading the configuration again: on SIGHUP, and for `feedfleet config reload`, which asks a scheduler for it.

use std::io::IsTerminal;
use std::sync::Arc;

use common::config::{Config, ConfigError, Loaded};
use scheduler::condition::live_config::ConfigSource;
use scheduler::ops::Ops;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Returns where a process reads its configuration again. `started_with` is what it was first read as.
pub(crate) fn source(
    started_with: &Config,
    read: impl Fn() -> Result<Loaded, ConfigError> + Send + Sync + 'static,
) -> ConfigSource {
    let read = Box::new(move || read().map(|loaded| loaded.config).map_err(|error| error.to_string()));
    ConfigSource { started_with: started_with.clone(), read }
}

/// SIGHUPs from now on. A process in a terminal has none: there the signal means that the terminal is closed.
pub(crate) struct Hangups(Option<Signal>);

impl Hangups {
    /// Catches the signal, which would end the process otherwise.
    pub(crate) fn caught() -> std::io::Result<Self> {
        let in_terminal = std::io::stdin().is_terminal();
        Ok(Hangups(if in_terminal { None } else { Some(signal(SignalKind::hangup())?) }))
    }

    /// Reads the configuration again at each signal, until stopped.
    pub(crate) async fn serve(self, ops: Arc<Ops>, stop: CancellationToken) {
        let Some(mut hangups) = self.0 else { return };
        while let Some(Some(())) = stop.run_until_cancelled(hangups.recv()).await {
            let reloaded = ops.reload_config("signal").await;
            let outcome = if reloaded.is_ok() { "done" } else { "refused" };
            let (who, from, action, on) = ("signal", "-", "SIGHUP", "config");
            tracing::info!(target: "audit", who, from, action, on, outcome, "change requested");
            match reloaded {
                Ok(reloaded) => {
                    let needs_restart = reloaded.needs_restart.join(", ");
                    let (version, changed) = (reloaded.version, reloaded.changed);
                    tracing::info!(version, changed, needs_restart, "the configuration was read again");
                }
                Err(error) => {
                    let error = error.to_string();
                    tracing::error!(
                        error,
                        "the configuration was read again and refused; the one before stays in force"
                    );
                }
            }
        }
    }

    /// Ignores the signal, until stopped: a worker has nothing to read again.
    pub(crate) async fn ignore(self, stop: CancellationToken) {
        let Some(mut hangups) = self.0 else { return };
        while let Some(Some(())) = stop.run_until_cancelled(hangups.recv()).await {
            tracing::info!(
                "SIGHUP does nothing in a worker: it takes the pace of hosts and host rules from its schedulers"
            );
        }
    }
}
