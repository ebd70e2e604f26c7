//! Log lines: to standard error, as `[log]` says. Standard output belongs to results.

use std::io::IsTerminal;

use anyhow::Context;
use common::config::{LogConfig, LogFormat};
use tracing_subscriber::EnvFilter;

use crate::usage::Usage;

/// Whether the audit log is written when `log.level` does not name it.
#[derive(Clone, Copy)]
pub(crate) enum Audit {
    /// It is: the log may be read later.
    Logged,
    /// It is not where it would appear between the lines that a person reads.
    NotOnTerminals,
}

/// Starts logging for this process.
pub(crate) fn start(config: &LogConfig, audit: Audit) -> anyhow::Result<()> {
    let filter = filter(config, matches!(audit, Audit::Logged) || !std::io::stderr().is_terminal())?;
    let lines =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    let started = match config.format {
        LogFormat::Text => lines.with_ansi(false).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!(error)).context("logging could not be started")
}

/// Returns which lines are written, or why `log.level` is not understood.
pub(crate) fn filter(config: &LogConfig, audit: bool) -> Result<EnvFilter, Usage> {
    let (level, audit) = (&config.level, if audit { "info" } else { "off" });
    // The AMQP client logs errors that our supervisor logs once; a filter that names it shows them.
    // The audit log is written at any level of the rest; `audit=off` turns it off.
    EnvFilter::try_new(format!("lapin=off,audit={audit},{level}"))
        .map_err(|_| Usage(format!("log.level cannot be \"{level}\": write a list such as info,worker=debug")))
}
