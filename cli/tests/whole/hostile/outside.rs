//! Hostile servers that the scripted origin cannot be: in HTTP/2's frames, in the TLS handshake, and in the answers of the
//! name server. Each has a separate address and a separate name.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use load_tests::Names;
use load_tests::hostile_tls::{Attack, Attacker, Frames, calming, floods, long_chain};
use load_tests::tls::Authority;

/// The HTTP/2 attacks that take part. A test of the worker has all of them.
const FRAMES: [&str; 7] = [
    "h2-resets",
    "h2-resets-of-nothing",
    "h2-continuations",
    "h2-large-continuations",
    "h2-zero-windows",
    "h2-tiny-windows",
    "h2-window-updates",
];
/// Names with more addresses than a name may have, and with as many as it may have, at which nothing listens.
const CROWDS: [(&str, usize); 2] = [("crowd", 500), ("many", 64)];
/// The first address of the servers, and of those that do not exist. The origin's hosts have the ones before.
const SERVERS: Ipv4Addr = Ipv4Addr::new(127, 64, 0, 1);
const NOBODY: Ipv4Addr = Ipv4Addr::new(127, 128, 0, 1);

/// What the polls of a feed at a server result in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Failure,
    /// The server asks for fewer requests.
    Throttling,
}

enum Kind {
    Frames(Frames),
    SlowHandshake,
    LongChain,
}

/// Returns the kinds of servers with TLS, by name.
fn kinds() -> Vec<(&'static str, Kind, Ending)> {
    let floods = floods().into_iter().filter(|(name, _)| FRAMES.contains(name));
    let floods = floods.map(|(name, frames)| (name, Kind::Frames(frames), Ending::Failure));
    let calming = calming().into_iter().map(|(name, frames)| (name, Kind::Frames(frames), Ending::Throttling));
    let handshakes =
        [("slow-handshake", Kind::SlowHandshake, Ending::Failure), ("long-chain", Kind::LongChain, Ending::Failure)];
    floods.chain(calming).chain(handshakes).collect()
}

/// Returns the number of kinds of servers with TLS.
pub(super) fn kinds_with_tls() -> usize {
    kinds().len()
}

/// Returns the number of all kinds.
pub(super) fn all_kinds() -> usize {
    kinds_with_tls() + CROWDS.len()
}

/// Hostile servers, and the name server.
pub(super) struct Outside {
    servers: Vec<(&'static str, Attacker, Ending)>,
    names: Names,
    crowds: Vec<String>,
    pub(super) name_server: SocketAddr,
    /// The certificate that all servers' certificates descend from, as PEM.
    pub(super) roots: String,
}

impl Outside {
    /// Starts this many servers of each kind.
    pub(super) async fn start(of_each_kind: u16) -> Self {
        let root = Authority::new("hostile").unwrap();
        let names = Names::default();
        let name_server = names.serve((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
        let crowds = crowds(&names, of_each_kind);
        let mut outside = Outside { servers: Vec::new(), names, crowds, name_server, roots: root.pem() };
        if of_each_kind == 0 {
            return outside;
        }
        let chain = long_chain(&root).unwrap();
        for (name, kind, ending) in kinds() {
            for _ in 0..of_each_kind {
                let address = nth(SERVERS, outside.servers.len());
                let certificate = |authority: &Authority| authority.server(&address.to_string(), |_| {}).unwrap();
                let attack = match &kind {
                    Kind::Frames(frames) => Attack::frames(certificate(&root), frames.clone()),
                    Kind::SlowHandshake => Attack::SlowHandshake(Duration::from_secs(1)),
                    Kind::LongChain => Attack::Handshake(Arc::new(certificate(&chain))),
                };
                let attacker = Attacker::start((address, 0).into(), attack).await.unwrap();
                outside.servers.push((name, attacker, ending));
            }
        }
        outside
    }

    /// Returns the URLs of all feeds at these servers.
    pub(super) fn urls(&self) -> Vec<(String, Ending)> {
        let servers = self.servers.iter().map(|(name, server, ending)| (url(name, server), *ending));
        let crowds = self.crowds.iter().map(|name| (format!("http://{name}:9/feed"), Ending::Failure));
        servers.chain(crowds).collect()
    }

    /// Returns the servers and names that the fleet did not ask.
    pub(super) fn unasked(&self) -> Vec<String> {
        let servers = self.servers.iter().filter(|(_, server, _)| server.connections() == 0);
        let names = self.crowds.iter().filter(|name| self.names.queries(name) == 0).cloned();
        servers.map(|(name, server, _)| url(name, server)).chain(names).collect()
    }
}

fn url(name: &str, server: &Attacker) -> String {
    format!("https://{}/{name}", server.address())
}

/// Sets the names with many addresses, and returns them. Each is a registrable domain, because names of one domain share a
/// budget of requests.
fn crowds(names: &Names, of_each_kind: u16) -> Vec<String> {
    let mut all = Vec::new();
    for (kind, addresses) in CROWDS {
        for number in 0..of_each_kind {
            let name = format!("{kind}{number}.example");
            let addresses: Vec<IpAddr> = (0..addresses).map(|n| nth(NOBODY, n)).collect();
            names.set(&name, &addresses);
            all.push(name);
        }
    }
    all
}

/// Returns the address this far after the first.
fn nth(first: Ipv4Addr, number: usize) -> IpAddr {
    Ipv4Addr::from(u32::from(first) + u32::try_from(number).unwrap()).into()
}
