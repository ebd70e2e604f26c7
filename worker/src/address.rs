//! Which addresses and ports may be dialled: the guard against being sent into our own network.
//!
//! The addresses themselves are checked, when they are about to be dialled and again when the connection is
//! established, so that neither a name that changes its answers nor an odd spelling of an address gets around it. Host
//! names are never judged by their text; nothing here resolves names or opens connections.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use url::{Host, Url};

/// The guard as configured by `fetch.allow_networks` and `fetch.allow_ports`.
#[derive(Clone, Debug)]
pub struct AddressGuard {
    networks: Vec<IpNet>,
    ports: Vec<RangeInclusive<u16>>,
}

/// Why something may not be dialled. The text is for people and names the key that would allow it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Not a public address.
    #[error("{0} is not a public address (fetch.allow_networks can open it)")]
    Address(IpAddr),
    /// A port that feeds are not served on.
    #[error("port {0} is not allowed; add it to fetch.allow_ports")]
    Port(u16),
}

/// `fetch.allow_ports` holds something else than ports and ranges.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fetch.allow_ports: '{0}' is neither a port such as \"80\" nor a range such as \"8000-8999\"")]
pub struct InvalidPorts(String);

impl AddressGuard {
    /// Returns a guard that opens `networks` beside the public ones, and the ports in `ports` (`"80"`, `"8000-8999"`).
    pub fn new(networks: &[IpNet], ports: &[String]) -> Result<Self, InvalidPorts> {
        let ports = ports.iter().map(|text| parse_ports(text)).collect::<Result<_, _>>()?;
        Ok(AddressGuard { networks: networks.to_vec(), ports })
    }

    /// Checks whether this address may be dialled.
    pub fn check(&self, address: IpAddr) -> Result<(), Refused> {
        let opened = |address: IpAddr| self.networks.iter().any(|network| network.contains(&address));
        let inner = translated(address).map(IpAddr::V4);
        if opened(address) || inner.is_some_and(opened) || is_public(address) {
            return Ok(());
        }
        Err(Refused::Address(address))
    }

    /// Checks whether a name with these addresses may be dialled. One refused address refuses the name.
    pub fn check_all(&self, addresses: &[IpAddr]) -> Result<(), Refused> {
        addresses.iter().try_for_each(|address| self.check(*address))
    }

    /// Checks what can be judged before a name is resolved: the port, and an address in place of a name.
    pub fn check_url(&self, url: &Url) -> Result<(), Refused> {
        let port = url.port_or_known_default().unwrap_or(0);
        if !self.ports.iter().any(|range| range.contains(&port)) {
            return Err(Refused::Port(port));
        }
        match url.host() {
            Some(Host::Ipv4(address)) => self.check(address.into()),
            Some(Host::Ipv6(address)) => self.check(address.into()),
            Some(Host::Domain(_)) | None => Ok(()),
        }
    }
}

fn parse_ports(text: &str) -> Result<RangeInclusive<u16>, InvalidPorts> {
    let invalid = || InvalidPorts(text.to_owned());
    let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(invalid);
    match text.split_once('-') {
        None => port(text).map(|port| port..=port),
        Some((first, last)) => {
            let (first, last) = (port(first)?, port(last)?);
            if first > last { Err(invalid()) } else { Ok(first..=last) }
        }
    }
}

/// Returns whether this is an ordinary address of the public Internet, by the IANA special-purpose address registries
/// (RFC 6890 and its updates): everything in them is refused, even the few that are reachable, because no feed is
/// there.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match translated(address.into()) {
            Some(inner) => is_public_v4(inner),
            None => is_public_v6(address),
        },
    }
}

/// Returns the IPv4 address that a connection to this address ends at: IPv4-mapped (RFC 4291, 2.5.5.2) and NAT64's
/// well-known prefix (RFC 6052), which DNS64 makes of every IPv4 site.
pub(crate) fn translated(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(address) = address else { return None };
    let nat64 = || {
        let [head @ .., a, b, c, d] = address.octets();
        (head == [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0]).then(|| Ipv4Addr::new(a, b, c, d))
    };
    address.to_ipv4_mapped().or_else(nat64)
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(a: u16, b: u16, c: u16, prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), prefix)
}

const REFUSED_V4: [Ipv4Net; 18] = [
    v4(0, 0, 0, 0, 8),        // this network
    v4(10, 0, 0, 0, 8),       // private
    v4(100, 64, 0, 0, 10),    // shared (carrier NAT); metadata of Alibaba Cloud
    v4(127, 0, 0, 0, 8),      // loopback
    v4(168, 63, 129, 16, 32), // metadata of Azure: a public address that is answered inside
    v4(169, 254, 0, 0, 16),   // link-local; metadata of most clouds
    v4(172, 16, 0, 0, 12),    // private
    v4(192, 0, 0, 0, 24),     // protocol assignments; metadata of Oracle Cloud
    v4(192, 0, 2, 0, 24),     // documentation
    v4(192, 31, 196, 0, 24),  // AS112
    v4(192, 52, 193, 0, 24),  // AMT
    v4(192, 88, 99, 0, 24),   // 6to4 relays
    v4(192, 168, 0, 0, 16),   // private
    v4(192, 175, 48, 0, 24),  // AS112
    v4(198, 18, 0, 0, 15),    // benchmarks
    v4(198, 51, 100, 0, 24),  // documentation
    v4(203, 0, 113, 0, 24),   // documentation
    v4(224, 0, 0, 0, 3),      // multicast, reserved, broadcast
];

fn is_public_v4(address: Ipv4Addr) -> bool {
    !REFUSED_V4.iter().any(|network| network.contains(&address))
}

/// All addresses that are assigned for ordinary use. What is outside (loopback, unique local, link-local, multicast,
/// IPv4-compatible, local-use NAT64, the unassigned rest) is refused without being listed.
const GLOBAL_UNICAST_V6: Ipv6Net = v6(0x2000, 0, 0, 3);

const REFUSED_V6: [Ipv6Net; 5] = [
    v6(0x2001, 0, 0, 23),         // protocol assignments: Teredo, benchmarks, ORCHID and others
    v6(0x2001, 0xdb8, 0, 32),     // documentation
    v6(0x2002, 0, 0, 16),         // 6to4
    v6(0x2620, 0x4f, 0x8000, 48), // AS112
    v6(0x3fff, 0, 0, 20),         // documentation
];

fn is_public_v6(address: Ipv6Addr) -> bool {
    GLOBAL_UNICAST_V6.contains(&address) && !REFUSED_V6.iter().any(|network| network.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: &[&str] = &[
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.1",
        "100.100.100.200",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",
        "169.254.0.1",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.1",
        "192.0.0.192",
        "192.0.2.1",
        "192.31.196.1",
        "192.52.193.1",
        "192.88.99.1",
        "192.168.0.1",
        "192.175.48.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::7f00:1",
        "::808:808",
        "::ffff:127.0.0.1",
        "::ffff:10.1.2.3",
        "::ffff:169.254.169.254",
        "::ffff:0:808:808",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::808:808",
        "100::1",
        "100:0:0:1::1",
        "2001::1",
        "2001:0:808:808::f7f7:f7f7",
        "2001:1::1",
        "2001:2::1",
        "2001:3::1",
        "2001:4:112::1",
        "2001:10::1",
        "2001:20::1",
        "2001:30::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:808:808::1",
        "2620:4f:8000::1",
        "3fff::1",
        "3fff:fff:ffff::1",
        "4000::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fd20:ce::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "ff0e::1",
    ];

    const PUBLIC: &[&str] = &[
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "128.0.0.1",
        "168.63.129.15",
        "169.253.255.255",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "192.167.255.255",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "2001:200::1",
        "2001:4860:4860::8888",
        "2003::1",
        "2606:4700::1111",
        "2620:4f:7fff::1",
        "2a00:1450::1",
        "3ffe::1",
    ];

    fn guard(networks: &[&str], ports: &[&str]) -> AddressGuard {
        let networks: Vec<IpNet> = networks.iter().map(|text| text.parse().unwrap()).collect();
        AddressGuard::new(&networks, &ports.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn special_purpose_addresses_are_refused_and_their_neighbours_are_not() {
        for text in REFUSED {
            assert!(!is_public(text.parse().unwrap()), "{text} must be refused");
        }
        for text in PUBLIC {
            assert!(is_public(text.parse().unwrap()), "{text} must be public");
        }
    }

    #[test]
    fn an_opened_network_opens_its_mapped_spelling_and_nothing_else() {
        let guard = guard(&["127.0.0.0/8", "fd00::/8"], &["80"]);
        for text in ["127.0.0.1", "::ffff:127.0.0.1", "fd00::1", "8.8.8.8"] {
            assert_eq!(guard.check(text.parse().unwrap()), Ok(()), "{text}");
        }
        for text in ["10.0.0.1", "::1", "::7f00:1", "fc00::1"] {
            assert_eq!(guard.check(text.parse().unwrap()), Err(Refused::Address(text.parse().unwrap())), "{text}");
        }
    }

    #[test]
    fn one_refused_answer_refuses_the_name() {
        let guard = guard(&[], &["80"]);
        let answers = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        assert!(guard.check_all(&answers(&["8.8.8.8", "2606:4700::1111"])).is_ok());
        assert!(guard.check_all(&answers(&["8.8.8.8", "10.0.0.1"])).is_err());
        assert!(guard.check_all(&answers(&["8.8.8.8", "::1"])).is_err());
    }

    #[test]
    fn every_spelling_of_an_address_in_a_url_is_seen() {
        let guard = guard(&[], &["80"]);
        let spellings = [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f.1",
            "0x7f000001",
            "017700000001",
            "127.0.0.1.",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[::127.0.0.1]",
            "[64:ff9b::127.0.0.1]",
            "%31%32%37.0.0.1",
            "１２７.0.0.1",
        ];
        for host in spellings {
            let url = format!("http://{host}/").parse().unwrap();
            assert!(guard.check_url(&url).is_err(), "{host}");
        }
        assert_eq!(guard.check_url(&"http://134744072/".parse().unwrap()), Ok(()));
        assert_eq!(guard.check_url(&"http://localhost/".parse().unwrap()), Ok(()), "names are judged when resolved");
    }

    #[test]
    fn ports_are_judged_apart_from_addresses() {
        let guard = guard(&["127.0.0.0/8"], &["80", "443", " 8000 - 8999 "]);
        let check = |url: &str| guard.check_url(&url.parse().unwrap());
        for url in ["http://127.0.0.1/", "https://127.0.0.1/", "http://127.0.0.1:8000/", "http://127.0.0.1:8999/"] {
            assert_eq!(check(url), Ok(()), "{url}");
        }
        assert_eq!(check("http://127.0.0.1:7999/"), Err(Refused::Port(7999)));
        assert_eq!(check("http://8.8.8.8:22/"), Err(Refused::Port(22)));
        assert_eq!(check("http://127.0.0.1:0/"), Err(Refused::Port(0)));
    }

    #[test]
    fn a_wrong_port_names_its_key() {
        for wrong in ["", "http", "0", "65536", "9-8", "1-", "80,81", "-1"] {
            let error = AddressGuard::new(&[], &[wrong.to_owned()]).unwrap_err().to_string();
            assert!(error.contains("fetch.allow_ports") && error.contains(&format!("'{wrong}'")), "{error}");
        }
    }
}
