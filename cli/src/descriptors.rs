//! File descriptors: what the configuration needs against what this process may open, looked at before anything is opened.
//! A process that runs out of them would blame its own trouble on the servers that it polls.

use common::config::Config;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Usage;

/// For each fetch: its connection and a second address that is dialled beside it, or the two questions about a name (one for
/// each address family). A fetch may dial up to four addresses; all fetches together dial no more than this budget allows.
const PER_FETCH: u64 = 2;
/// For everything else: the API's connections and listener, the database's files, the runtime.
const OTHERS: u64 = 256;

/// The configuration as this process can serve it. Raises the soft limit as far as needed and allowed; keeps fewer idle
/// connections if that is not enough; refuses when even the fetches do not fit.
pub(crate) fn fit(mut config: Config) -> anyhow::Result<Config> {
    let concurrency = config.worker.concurrency as u64;
    let busy = OTHERS + concurrency.saturating_mul(PER_FETCH);
    let needed = busy.saturating_add(config.fetch.idle_connections as u64);
    let allowed = raise(needed);
    if allowed < busy {
        let most = allowed.saturating_sub(OTHERS) / PER_FETCH;
        let advice = match most {
            0 => String::new(),
            _ => format!(", or set worker.concurrency to {most} or less"),
        };
        return Err(Usage(format!(
            "worker.concurrency = {concurrency} needs {busy} file descriptors and {allowed} are allowed: raise the limit \
             (ulimit -Hn, or LimitNOFILE of a systemd unit){advice}"
        ))
        .into());
    }
    if allowed < needed {
        let kept = allowed - busy;
        eprintln!(
            "{allowed} file descriptors are allowed, {needed} would serve: {kept} idle connections are kept at most, not \
             {} (fetch.idle_connections)",
            config.fetch.idle_connections
        );
        config.fetch.idle_connections = usize::try_from(kept)?;
    }
    Ok(config)
}

/// Raises the soft limit to `needed`, or as far as the hard limit allows; gives what is allowed then.
fn raise(needed: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // None: no limit.
    let (soft, hard) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    let wanted = needed.min(hard);
    if soft >= wanted {
        return soft;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum }) {
        Ok(()) => wanted,
        Err(_) => soft,
    }
}
