//! File descriptors: what the configuration needs against what this process may open, looked at before anything is opened.
//! A process that runs out of them would blame its own trouble on the servers that it polls.

use common::config::{Config, DeliveryConfig};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::usage::Usage;

/// For each fetch: its connection and a second address that is dialled beside it, or the two questions about a name (one for
/// each address family). A fetch may dial up to four addresses; all fetches together dial no more than this budget allows.
const PER_FETCH: u64 = 2;
/// For everything else: the listener and [`LEAST_API`] connections of the API with those that are reserved for health or still
/// closing, [`LEAST_DELIVERIES`] with those that may take long, the database's files and connections, the runtime.
const OTHERS: u64 = 256;
/// Connections of the API that always fit.
const LEAST_API: usize = 64;
/// Requests to subscribers that always fit.
pub(crate) const LEAST_DELIVERIES: usize = 16;

/// Returns the configuration as this process, which fetches, can serve it. Raises the soft limit as far as needed and
/// allowed; keeps fewer idle connections and takes fewer callers if that is not enough; refuses when even the fetches
/// do not fit.
pub(crate) fn fit(mut config: Config) -> anyhow::Result<Config> {
    let concurrency = config.worker.concurrency as u64;
    let busy = OTHERS + concurrency.saturating_mul(PER_FETCH);
    let (idle, api) = (config.fetch.idle_connections as u64, more_than_least(&config));
    let needed = busy.saturating_add(idle).saturating_add(api) + more_deliveries(&config);
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
        let spare = allowed - busy;
        let api = api.min(spare.div_ceil(2)).max(spare.saturating_sub(idle).min(api));
        let kept = idle.min(spare - api);
        let (idle_set, api_set) = (config.fetch.idle_connections, config.api.max_connections);
        let deliveries_set = config.delivery.concurrency;
        config.delivery.concurrency = deliveries_set.min(LEAST_DELIVERIES);
        config.fetch.idle_connections = usize::try_from(kept)?;
        config.api.max_connections = api_set.min(LEAST_API + usize::try_from(api)?);
        // A worker has a few of both anyway.
        let (api, deliveries) = (config.api.max_connections, config.delivery.concurrency);
        let api = (api < api_set).then(|| format!(", {api} of the API, not {api_set} (api.max_connections)"));
        let deliveries = (deliveries < deliveries_set)
            .then(|| format!(", and {deliveries} requests to subscribers (delivery.concurrency)"));
        announce!(
            config.log.format,
            "{allowed} file descriptors are allowed, {needed} would serve: the maximum is {kept} idle connections, not \
             {idle_set} (fetch.idle_connections){}{}",
            api.unwrap_or_default(),
            deliveries.unwrap_or_default()
        );
    }
    Ok(config)
}

/// Returns the configuration as a scheduler, which fetches nothing, can serve it.
pub(crate) fn fit_scheduler(mut config: Config) -> anyhow::Result<Config> {
    let needed = OTHERS + more_than_least(&config) + more_deliveries(&config);
    let allowed = raise(needed);
    if allowed < needed {
        config.delivery.concurrency = config.delivery.concurrency.min(LEAST_DELIVERIES);
        let set = config.api.max_connections;
        config.api.max_connections = set.min(LEAST_API + usize::try_from(allowed.saturating_sub(OTHERS))?);
        announce!(
            config.log.format,
            "{allowed} file descriptors are allowed, {needed} would serve: the maximum is {} connections of the API, not {set} \
             (api.max_connections), and {} requests to subscribers (delivery.concurrency)",
            config.api.max_connections,
            config.delivery.concurrency
        );
    }
    Ok(config)
}

/// Requests to subscribers beyond those that always fit. Few of them dial several addresses at the same time.
fn more_deliveries(config: &Config) -> u64 {
    let least = DeliveryConfig { concurrency: LEAST_DELIVERIES, ..config.delivery.clone() };
    config.delivery.most_requests().saturating_sub(least.most_requests()) as u64
}

/// Connections of the API beyond those that always fit.
fn more_than_least(config: &Config) -> u64 {
    config.api.max_connections.saturating_sub(LEAST_API) as u64
}

/// Raises the soft limit to `needed`, or as far as the hard limit allows; returns the new limit.
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
