//! Log lines: to standard error, as `[log]` says. Standard output belongs to results.

use anyhow::Context;
use common::config::{LogConfig, LogFormat};
use tracing_subscriber::EnvFilter;

use crate::usage::Usage;

/// Starts logging for this process.
pub(crate) fn start(config: &LogConfig) -> anyhow::Result<()> {
    let filter = filter(config)?;
    let lines =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    let started = match config.format {
        LogFormat::Text => lines.with_ansi(false).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!(error)).context("logging could not be started")
}

/// Which lines are written, or why `log.level` is not understood.
pub(crate) fn filter(config: &LogConfig) -> Result<EnvFilter, Usage> {
    let level = &config.level;
    // The AMQP client logs errors that our supervisor logs once; a filter that names it shows them.
    // The audit log is written at any level of the rest; `audit=off` turns it off.
    EnvFilter::try_new(format!("lapin=off,audit=info,{level}"))
        .map_err(|_| Usage(format!("log.level cannot be \"{level}\"; such as info, or info,worker=debug")))
}
