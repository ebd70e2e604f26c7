//! The second, wider budget beside that of hosts: the requests of this worker to one address, and to all names of one
//! domain.
//!
//! A host is a name. A server with a thousand names, or a domain under which anyone can create names, would get a
//! thousand requests a second by the pace of hosts alone. Addresses are counted when they are dialled, IPv6 by /64; a
//! domain is what is registered under a public suffix, and counts where no host rule covers it. What exceeds the budget
//! is postponed, each request a little later than the one before.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use common::config::FetchConfig;
use ipnet::IpNet;
use tokio::time::Instant;

use crate::address::translated;

/// Whose requests are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Unit {
    /// An IPv4 address, or the /64 of an IPv6 one.
    Address(IpAddr),
    /// A registrable domain.
    Domain(Arc<str>),
}

/// Over the budget; the request may be made after this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("requests to its address exceed this worker's budget")]
pub(crate) struct Busy(pub(crate) Duration);

/// The budgets of all addresses and domains.
#[derive(Debug)]
pub(crate) struct Budgets {
    /// Time between starts that the budget allows in the long run.
    gap: Duration,
    /// Starts at once after a rest, and requests in flight.
    parallel: u32,
    exempt: Vec<IpNet>,
    units: Mutex<HashMap<Unit, Usage>>,
}

#[derive(Debug)]
struct Usage {
    /// The generic cell rate algorithm's theoretical arrival time.
    arrival: Instant,
    /// When the last postponed request may start.
    promised: Instant,
    in_flight: u32,
}

/// A request in flight, until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlight {
    budgets: Arc<Budgets>,
    unit: Unit,
}

/// When a request is tried again while too many are in flight.
const RETRY: Duration = Duration::from_secs(1);
/// Starts at once after a rest: those of a second.
const BURST: Duration = Duration::from_secs(1);
/// Units are swept from this number on.
const SWEEP_FROM: usize = 4096;

impl Budgets {
    /// Returns the budgets by the configuration. Networks that are opened on purpose are our own, and exempt.
    pub(crate) fn new(config: &FetchConfig) -> Arc<Self> {
        let exempt = config.address_exempt.iter().chain(&config.allow_networks).copied().collect();
        let gap = match config.address_rate {
            rate if rate > 0.0 => Duration::from_secs_f64(1.0 / rate),
            _ => Duration::ZERO,
        };
        Arc::new(Budgets { gap, parallel: config.address_parallel, exempt, units: Mutex::default() })
    }

    /// Returns the unit that counts an address; `None`: it is exempt.
    pub(crate) fn address(&self, address: IpAddr) -> Option<Unit> {
        // Behind NAT64 every IPv4 site has an address in the same /64.
        let address = translated(address).map_or(address, IpAddr::V4);
        if self.gap.is_zero() || self.exempt.iter().any(|network| network.contains(&address)) {
            return None;
        }
        Some(Unit::Address(match address {
            IpAddr::V4(_) => address,
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
        }))
    }

    /// Returns the unit that counts a name; `None` for a public suffix itself.
    pub(crate) fn domain(&self, name: &str) -> Option<Unit> {
        let domain = psl::domain_str(name).filter(|_| !self.gap.is_zero())?;
        Some(Unit::Domain(domain.into()))
    }

    /// Counts a start that is about to happen, or puts it off.
    pub(crate) fn start(&self, unit: &Unit, now: Instant) -> Result<(), Busy> {
        let mut units = self.units();
        let usage = usage(&mut units, unit, now);
        if usage.in_flight >= self.parallel {
            return Err(Busy(RETRY));
        }
        let allowed = usage.arrival.checked_sub(BURST.saturating_sub(self.gap)).unwrap_or(now);
        if allowed > now {
            usage.promised = usage.promised.max(allowed) + self.gap;
            return Err(Busy(usage.promised - now));
        }
        usage.arrival = usage.arrival.max(now) + self.gap;
        Ok(())
    }

    /// Counts a start that has happened already, on a kept connection; false when it exceeded the budget.
    pub(crate) fn started(&self, unit: &Unit, now: Instant) -> bool {
        let mut units = self.units();
        let usage = usage(&mut units, unit, now);
        usage.arrival = usage.arrival.max(now) + self.gap;
        usage.arrival <= now + BURST
    }

    /// Counts a request in flight.
    pub(crate) fn enter(self: &Arc<Self>, unit: Unit) -> InFlight {
        usage(&mut self.units(), &unit, Instant::now()).in_flight += 1;
        InFlight { budgets: Arc::clone(self), unit }
    }

    fn units(&self) -> MutexGuard<'_, HashMap<Unit, Usage>> {
        common::lock(&self.units)
    }
}

fn usage<'a>(units: &'a mut HashMap<Unit, Usage>, unit: &Unit, now: Instant) -> &'a mut Usage {
    // One look more for a new unit, none for a known one: units are cloned only when they are kept.
    if !units.contains_key(unit) {
        if units.len() >= SWEEP_FROM && units.len() == units.capacity() {
            units.retain(|_, usage| usage.in_flight > 0 || usage.arrival > now || usage.promised > now);
        }
        units.insert(unit.clone(), Usage { arrival: now, promised: now, in_flight: 0 });
    }
    units.get_mut(unit).expect("inserted above")
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(usage) = self.budgets.units().get_mut(&self.unit) {
            usage.in_flight = usage.in_flight.saturating_sub(1);
        }
    }
}

impl InFlight {
    /// Takes the start back, because the request was not made after all.
    pub(crate) fn undo(self) {
        if let Some(usage) = self.budgets.units().get_mut(&self.unit) {
            usage.arrival = usage.arrival.checked_sub(self.budgets.gap).unwrap_or(usage.arrival);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budgets(rate: f64, parallel: u32) -> Arc<Budgets> {
        let mut config = common::config::defaults().fetch;
        (config.address_rate, config.address_parallel) = (rate, parallel);
        config.address_exempt = vec!["198.51.100.0/24".parse().unwrap()];
        config.allow_networks = vec!["127.0.0.0/8".parse().unwrap()];
        Budgets::new(&config)
    }

    fn address(budgets: &Budgets, text: &str) -> Option<Unit> {
        budgets.address(text.parse().unwrap())
    }

    #[test]
    fn an_address_is_counted_by_itself_and_ipv6_by_64() {
        let budgets = budgets(20.0, 16);
        let same = |one: &str, other: &str| address(&budgets, one) == address(&budgets, other);
        assert!(same("203.0.113.1", "::ffff:203.0.113.1") && !same("203.0.113.1", "203.0.113.2"));
        assert!(same("203.0.113.1", "64:ff9b::203.0.113.1"));
        assert!(!same("64:ff9b::203.0.113.1", "64:ff9b::203.0.113.2"));
        assert!(same("2001:db8:1:2::1", "2001:db8:1:2:ffff::9") && !same("2001:db8:1:2::1", "2001:db8:1:3::1"));
        for exempt in ["198.51.100.7", "127.9.9.9", "::ffff:127.0.0.1"] {
            assert_eq!(address(&budgets, exempt), None, "{exempt}");
        }
        assert_eq!(address(&super::tests::budgets(0.0, 16), "203.0.113.1"), None, "0 is no limit");
    }

    #[test]
    fn a_domain_is_what_is_registered_under_a_public_suffix() {
        let budgets = budgets(20.0, 16);
        let domain = |name: &str| match budgets.domain(name) {
            Some(Unit::Domain(domain)) => Some(domain.to_string()),
            _ => None,
        };
        for (name, expected) in [
            ("a.b.example.com", Some("example.com")),
            ("example.co.uk", Some("example.co.uk")),
            ("x.y.example.co.uk", Some("example.co.uk")),
            ("ann.github.io", Some("ann.github.io")),
            ("co.uk", None),
            ("com", None),
        ] {
            assert_eq!(domain(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn starts_beyond_the_rate_are_put_off_one_after_the_other() {
        let (budgets, unit, now) = (budgets(20.0, 1000), Unit::Domain("example.com".into()), Instant::now());
        let all: Vec<_> = (0..150).map(|_| budgets.start(&unit, now)).collect();
        let granted = all.iter().filter(|start| start.is_ok()).count();
        assert_eq!(granted, 20, "those of a second");
        let waits: Vec<Duration> = all.iter().filter_map(|start| start.err()).map(|Busy(wait)| wait).collect();
        assert!(waits.windows(2).all(|pair| pair[1] - pair[0] == Duration::from_millis(50)), "{waits:?}");
        assert!(*waits.last().unwrap() < Duration::from_secs(7));
        let seconds = (1..=10).map(|second| now + Duration::from_secs(second));
        let late = seconds.map(|now| (0..100).filter(|_| budgets.start(&unit, now).is_ok()).count());
        assert_eq!(late.sum::<usize>(), 200, "the rate, however often one asks");
        assert!(budgets.start(&Unit::Domain("example.org".into()), now).is_ok());
    }

    #[test]
    fn requests_in_flight_are_limited_and_kept_connections_are_counted() {
        let (budgets, unit, now) = (budgets(20.0, 2), Unit::Domain("example.com".into()), Instant::now());
        let flights = [budgets.enter(unit.clone()), budgets.enter(unit.clone())];
        assert_eq!(budgets.start(&unit, now), Err(Busy(RETRY)));
        drop(flights);
        let later = now + Duration::from_secs(60);
        assert!(budgets.start(&unit, later).is_ok());
        let within = (0..100).filter(|_| budgets.started(&unit, later)).count();
        assert_eq!(within, 19, "with the one before: those of a second");
        assert!(budgets.start(&unit, later).is_err(), "and they count for those who ask before");
    }

    #[test]
    fn a_start_that_is_taken_back_leaves_room_for_another_one() {
        let (budgets, unit, now) = (budgets(0.01, 16), Unit::Domain("example.com".into()), Instant::now());
        assert!(budgets.start(&unit, now).is_ok());
        let flight = budgets.enter(unit.clone());
        assert!(budgets.start(&unit, now).is_err());
        flight.undo();
        assert_eq!(budgets.units()[&unit].in_flight, 0);
        assert!(budgets.start(&unit, now).is_ok());
        assert!(budgets.start(&unit, now).is_err(), "one, not two");
    }

    #[test]
    fn memory_follows_what_is_used_and_not_what_ever_was() {
        let (budgets, begin) = (budgets(20.0, 16), Instant::now());
        for number in 0..100_000u32 {
            let now = begin + Duration::from_millis(u64::from(number));
            let _ = budgets.start(&Unit::Address(IpAddr::V4(number.into())), now);
        }
        assert!(budgets.units().len() < 20_000, "{}", budgets.units().len());
    }
}
