//! Log lines: to standard error, as `[log]` says. Standard output belongs to results.

use std::fmt::Arguments;
use std::io::IsTerminal;

use anyhow::Context;
use common::config::{LogConfig, LogFormat};
use tracing_subscriber::EnvFilter;

use crate::output;
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

/// Writes what the person who started this process should read: as a plain line, or as an `info` event where every line of
/// standard error is JSON. `announce!` formats it.
pub(crate) fn announce(format: LogFormat, text: Arguments<'_>) {
    match format {
        LogFormat::Text => output::note(text),
        LogFormat::Json => tracing::info!("{text}"),
    }
}

/// Returns which lines are written, or why `log.level` is not understood.
pub(crate) fn filter(config: &LogConfig, audit: bool) -> Result<EnvFilter, Usage> {
    let (level, audit) = (&config.level, if audit { "info" } else { "off" });
    // The AMQP client logs errors that our supervisor logs once, and the SQL client whole statements; a filter that names
    // one of them shows its lines.
    // The audit log is written at any level of the rest; `audit=off` turns it off.
    EnvFilter::try_new(format!("lapin=off,sqlx=off,audit={audit},{level}"))
        .map_err(|_| Usage(format!("log.level cannot be \"{level}\": write a list such as info,worker=debug")))
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    /// Returns whether this level writes SQL statements of `debug`, slow ones (`warn`), and our own lines of `debug`.
    fn written(level: &str) -> [bool; 3] {
        let config = LogConfig { format: LogFormat::Text, level: level.to_owned() };
        let lines = tracing_subscriber::fmt().with_env_filter(filter(&config, true).unwrap());
        tracing::subscriber::with_default(lines.with_writer(std::io::sink).finish(), || {
            [
                tracing::enabled!(target: "sqlx::query", Level::DEBUG),
                tracing::enabled!(target: "sqlx::query", Level::WARN),
                tracing::enabled!(target: "worker::log", Level::DEBUG),
            ]
        })
    }

    #[test]
    fn sql_statements_are_logged_only_by_a_level_that_names_the_sql_client() {
        assert_eq!(written("info"), [false, false, false]);
        assert_eq!(written("debug"), [false, false, true]);
        assert_eq!(written("debug,sqlx=warn"), [false, true, true]);
        assert_eq!(written("info,sqlx::query=debug"), [true, true, false]);
    }
}
