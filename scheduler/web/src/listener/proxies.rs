//! Proxies, and the callers behind them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::http::HeaderMap;
use ipnet::IpNet;

/// The header that proxies append the address of their caller to.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// The networks of trusted proxies (`api.trusted_proxies`).
#[derive(Clone, Debug, Default)]
pub struct Proxies(Arc<[IpNet]>);

impl Proxies {
    /// Trusts the proxies in these networks.
    pub fn new(networks: &[IpNet]) -> Self {
        Proxies(networks.into())
    }

    fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// Returns whether many callers share one address: that of a trusted proxy, and loopback, which a proxy on this
    /// machine and other programs on it use.
    pub(super) fn stands_for_many(&self, address: IpAddr) -> bool {
        address.to_canonical().is_loopback() || self.trusts(address)
    }

    /// Returns the caller of a request: the address that a trusted proxy names, or else the connected one. Each proxy
    /// appends to the list, so that only what comes before the last untrusted address could have been made up.
    pub(super) fn caller(&self, connected: SocketAddr, headers: &HeaderMap) -> SocketAddr {
        // A listener at [::] sees callers of IPv4 as ::ffff:192.0.2.1.
        let connected = SocketAddr::new(connected.ip().to_canonical(), connected.port());
        if !self.trusts(connected.ip()) {
            return connected;
        }
        let lists = headers.get_all(FORWARDED_FOR).iter().rev();
        let named = lists.flat_map(|list| list.to_str().unwrap_or_default().rsplit(','));
        let mut caller = connected;
        for name in named {
            let Some(address) = address(name.trim()) else { break };
            caller = SocketAddr::new(address.to_canonical(), 0);
            if !self.trusts(address) {
                break;
            }
        }
        caller
    }
}

/// Reads an address, which some proxies write with a port.
fn address(text: &str) -> Option<IpAddr> {
    let with_port = || text.parse::<SocketAddr>().map(|address| address.ip()).ok();
    text.parse().ok().or_else(with_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies() -> Proxies {
        Proxies::new(&["10.0.0.0/8".parse().unwrap(), "2001:db8:1::/48".parse().unwrap()])
    }

    fn caller(connected: &str, lists: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for list in lists {
            headers.append(FORWARDED_FOR, list.parse().unwrap());
        }
        proxies().caller(SocketAddr::new(connected.parse().unwrap(), 1), &headers).ip().to_string()
    }

    #[test]
    fn a_trusted_proxy_names_the_caller_and_nobody_else_does() {
        let table: [(&str, &[&str], &str); 12] = [
            ("192.0.2.1", &["198.51.100.7"], "192.0.2.1"),
            ("127.0.0.1", &["198.51.100.7"], "127.0.0.1"),
            ("::ffff:192.0.2.1", &["198.51.100.7"], "192.0.2.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.7"], "198.51.100.7"),
            ("::ffff:10.0.0.1", &["198.51.100.7:4711"], "198.51.100.7"),
            ("10.0.0.1", &["1.1.1.1, 198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", &["1.1.1.1", "198.51.100.7 , 10.2.3.4"], "198.51.100.7"),
            ("10.0.0.1", &["10.9.9.9"], "10.9.9.9"),
            ("10.0.0.1", &["198.51.100.7, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.7, , 10.2.3.4"], "10.2.3.4"),
            ("2001:db8:1::1", &["[2001:db8:2::7]:80"], "2001:db8:2::7"),
        ];
        for (connected, lists, expected) in table {
            assert_eq!(caller(connected, lists), expected, "{connected} {lists:?}");
        }
    }

    #[test]
    fn loopback_and_trusted_proxies_stand_for_many_callers() {
        let many = |address: &str| proxies().stands_for_many(address.parse().unwrap());
        assert!(["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "10.1.2.3"].into_iter().all(many));
        assert!(!["192.0.2.1", "2001:db8::1", "0.0.0.0"].into_iter().any(many));
    }
}
