//! Reading the configuration again: on SIGHUP, and for `feedfleet config reload`, which requests it from a scheduler.

use std::io::IsTerminal;
use std::sync::Arc;

use common::config::{Config, ConfigError, Loaded};
use scheduler::condition::live_config::ConfigSource;
use scheduler::ops::{Ops, config};
use store::{AuditOutcome, Audited};
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

/// Logs and stores the source of the reload.
async fn audited(ops: &Ops, done: bool) {
    let outcome = if done { AuditOutcome::Done } else { AuditOutcome::Refused };
    let text = str::to_owned;
    let (who, from, action, on) = (text("signal"), text("-"), text("SIGHUP"), text("config"));
    tracing::info!(target: "audit", who, from, action, on, outcome = outcome.as_str(), "change requested");
    let change = Audited { at: ops.clock.now(), who, from, action, on, outcome, status: 0, millis: 0 };
    if let Err(error) = ops.store.write_audit(&[change], &[]).await {
        let error = &error as &dyn std::error::Error;
        tracing::error!(error, "the audit lacks a reload of the configuration; the log has it (target audit)");
    }
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
            let reloaded = config::reload(&ops, "signal").await;
            audited(&ops, reloaded.is_ok()).await;
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
