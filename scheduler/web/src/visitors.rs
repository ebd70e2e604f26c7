//! The rate limit for anonymous callers: per address and minute, for all their requests. In bounded memory.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::request::Parts;
use common::time::Timestamp;

const WINDOW: Duration = Duration::from_secs(60);
/// The maximum number of addresses counted separately within a minute; all others count as one.
const MAX_ADDRESSES: usize = 50_000;
/// A site may call as often as this many addresses.
const SITE_SHARE: u32 = 8;

/// The callers of this minute.
#[derive(Debug, Default)]
pub(crate) struct Visitors {
    minute: Mutex<Minute>,
}

#[derive(Debug, Default)]
struct Minute {
    began: Option<Timestamp>,
    calls: HashMap<IpAddr, u32>,
    /// Calls of each /48 of IPv6: one site has 65,536 networks, which would otherwise be as many callers.
    sites: HashMap<[u16; 3], u32>,
}

impl Visitors {
    /// Counts a call. When there were `most` before it in this minute: how long it lasts yet.
    pub(crate) fn admit(&self, caller: Visitor, most: u32, now: Timestamp) -> Result<(), Duration> {
        let mut minute = common::lock(&self.minute);
        let began = minute.began.filter(|began| *began <= now && now.since(*began) < WINDOW);
        let began = began.unwrap_or_else(|| {
            *minute = Minute { began: Some(now), calls: HashMap::new(), sites: HashMap::new() };
            now
        });
        let until = WINDOW.saturating_sub(now.since(began));
        // Looked at first, so that a site cannot fill the list of addresses either.
        if let Some(site) = caller.site() {
            let full = minute.sites.len() >= MAX_ADDRESSES && !minute.sites.contains_key(&site);
            let calls = minute.sites.entry(if full { [0; 3] } else { site }).or_default();
            *calls = calls.saturating_add(1);
            if *calls > most.saturating_mul(SITE_SHARE) {
                return Err(until);
            }
        }
        let known = minute.calls.contains_key(&caller.0);
        let counted = if known || minute.calls.len() < MAX_ADDRESSES { caller.0 } else { Visitor::UNKNOWN.0 };
        let calls = minute.calls.entry(counted).or_default();
        *calls = calls.saturating_add(1);
        if *calls > most { Err(until) } else { Ok(()) }
    }
}

/// Where a request comes from: an IPv4 address, or the network of an IPv6 one, in which a caller has all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Visitor(IpAddr);

impl Visitor {
    const UNKNOWN: Visitor = Visitor(IpAddr::V4(Ipv4Addr::UNSPECIFIED));

    /// Returns the /48 of an IPv6 address.
    fn site(self) -> Option<[u16; 3]> {
        match self.0 {
            IpAddr::V6(address) => {
                let [a, b, c, ..] = address.segments();
                Some([a, b, c])
            }
            IpAddr::V4(_) => None,
        }
    }

    /// Returns the caller at this address.
    pub(crate) fn of(address: IpAddr) -> Self {
        Visitor(match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            v4 => v4,
        })
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Visitor {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let connected = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        Ok(connected.map_or(Visitor::UNKNOWN, |ConnectInfo(address)| Visitor::of(address.ip())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(text: &str) -> Visitor {
        Visitor::of(text.parse().unwrap())
    }

    #[test]
    fn each_address_has_its_calls_a_minute() {
        let visitors = Visitors::default();
        let now = Timestamp::from_millis(1_790_000_000_000);
        for _ in 0..3 {
            assert_eq!(visitors.admit(caller("192.0.2.1"), 3, now), Ok(()));
        }
        let later = now.after(Duration::from_secs(20));
        assert_eq!(visitors.admit(caller("192.0.2.1"), 3, later), Err(Duration::from_secs(40)));
        assert_eq!(visitors.admit(caller("::ffff:192.0.2.1"), 3, later), Err(Duration::from_secs(40)));
        assert_eq!(visitors.admit(caller("192.0.2.2"), 3, later), Ok(()));
        assert_eq!(visitors.admit(caller("192.0.2.1"), 3, now.after(WINDOW)), Ok(()));
        assert_eq!(caller("2001:db8::1"), caller("2001:db8::2:0:0:1"), "a network of IPv6 is one caller");
        assert_ne!(caller("2001:db8::1"), caller("2001:db8:0:1::1"));
    }

    #[test]
    fn a_site_of_ipv6_is_limited_and_leaves_room_for_others() {
        let visitors = Visitors::default();
        let now = Timestamp::from_millis(0);
        let own = |network: u16| caller(&format!("2001:db8:7:{network:x}::1"));
        let admitted = (0..u16::MAX).filter(|network| visitors.admit(own(*network), 10, now).is_ok()).count();
        assert_eq!(admitted, 80);
        assert_eq!(visitors.minute.lock().unwrap().calls.len(), 80);
        assert_eq!(visitors.admit(caller("2001:db8:8::1"), 10, now), Ok(()));
    }

    #[test]
    fn more_addresses_than_are_told_apart_take_no_more_memory() {
        let visitors = Visitors::default();
        let now = Timestamp::from_millis(0);
        let refused = (0..100_000)
            .filter(|number| visitors.admit(Visitor(Ipv4Addr::from(number + 1).into()), 100, now).is_err())
            .count();
        assert_eq!(refused, 100_000 - MAX_ADDRESSES - 100);
        assert_eq!(visitors.minute.lock().unwrap().calls.len(), MAX_ADDRESSES + 1);
        assert!(visitors.admit(Visitor(Ipv4Addr::from(7).into()), 100, now).is_ok(), "who was there keeps its count");
    }
}
