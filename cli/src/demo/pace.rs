//! The demo's configuration: the defaults, with a day compressed into a minute.
//!
//! What the policy counts in hours is divided by [`FASTER`]. What a server or a wire sets the pace of is not: HTTP counts
//! in whole seconds, and a connection is as fast as it is. Nothing else is changed, so that what is seen is what `run` does.

use std::net::SocketAddr;
use std::time::Duration;

use common::config::{Config, PenaltyConfig, PolicyConfig, defaults};

/// The acceleration: a minute is a day.
pub(super) const FASTER: u32 = 24 * 60;
/// The gap between two requests to a host. A second divided by `FASTER` would be less than a millisecond, too short to
/// measure.
pub(super) const GAP: Duration = Duration::from_millis(200);
/// The judge's tolerance: how much later than it was sent a request may arrive on a busy machine.
pub(super) const SLACK: Duration = Duration::from_millis(80);
/// The fetch timeout; also the longest that Ctrl-C waits.
pub(super) const TIMEOUT: Duration = Duration::from_secs(3);

/// Returns the configuration of the demo's fleet.
pub(super) fn config(listen: SocketAddr) -> Config {
    let mut config = defaults();
    hasten(&mut config.policy);
    config.store.url = "sqlite::memory:".to_owned();
    config.api.listen = listen;
    config.host.gap = GAP;
    let fetch = &mut config.fetch;
    fetch.connect_timeout = TIMEOUT / 3;
    fetch.idle_timeout = TIMEOUT * 2 / 3;
    fetch.timeout = TIMEOUT;
    // Endless bodies arrive over loopback at a gigabyte a second; a small limit shows enough.
    fetch.max_wire_bytes = 2_000_000;
    fetch.allow_networks = "127.0.0.0/8".parse().into_iter().collect();
    fetch.allow_ports = vec!["1-65535".to_owned()];
    // That some feeds of this internet cannot be read is part of the show.
    "error".clone_into(&mut config.log.level);
    config
}

fn hasten(policy: &mut PolicyConfig) {
    let c = &mut policy.category;
    for time in [
        &mut policy.min_interval,
        &mut policy.default_interval,
        &mut policy.hint_ceiling,
        &mut policy.retry_after_ceiling,
        &mut policy.blacklist_after,
        &mut policy.import_spread,
        &mut policy.ping_spread,
        &mut policy.ping_quiet,
        &mut policy.stretch_ceiling,
        &mut c.b.interval,
        &mut c.b.min,
        &mut c.b.max,
        &mut c.c.interval,
        &mut c.c.interval_max,
        &mut c.c.min,
        &mut c.c.max,
        &mut c.d.interval,
        &mut c.d.interval_max,
        &mut c.d.idle_interval,
        &mut c.d.idle_interval_max,
        &mut c.d.min,
        &mut c.d.max,
    ] {
        *time /= FASTER;
    }
    hasten_penalties(&mut policy.penalty);
    // An interval grows with the square root of the price.
    policy.price /= f64::from(FASTER).powi(2);
    // The promise of two minutes covers network and queues, which are not accelerated.
    c.a.interval = Duration::from_secs(1);
    // Wall-clock minutes have no meaning for accelerated feeds.
    policy.hot_minutes = false;
}

fn hasten_penalties(penalty: &mut PenaltyConfig) {
    for time in [
        &mut penalty.transient_first,
        &mut penalty.first_box,
        &mut penalty.server_error,
        &mut penalty.not_found,
        &mut penalty.client_error,
        &mut penalty.bad_feed,
        &mut penalty.throttled,
        &mut penalty.ceiling,
    ] {
        *time /= FASTER;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_a_minute_and_the_configuration_is_one_that_run_would_take() {
        let config = config(([127, 0, 0, 1], 0).into());
        assert_eq!(config.check(), []);
        assert_eq!(config.fetch.allow_networks.len(), 1);
        assert_eq!(config.policy.default_interval, Duration::from_secs(60));
        assert_eq!(config.policy.penalty.not_found, Duration::from_secs(60));
    }
}
