//! Errors of the operating system that are this machine's own: it has run out of file descriptors, ports or memory for
//! sockets. No server is to blame for them, so they defer a job instead of failing its feed.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use rustix::io::Errno;

/// Returns whether this error of a connection attempt is a shortage of ours.
pub(crate) fn is_our_shortage(error: &io::Error, address: IpAddr) -> bool {
    match Errno::from_io_error(error) {
        Some(Errno::ADDRNOTAVAIL) => has_source_for(address),
        Some(errno) => is_shortage(errno),
        None => false,
    }
}

/// Returns whether this error of opening a socket is a shortage of ours.
pub(crate) fn is_socket_shortage(error: &io::Error) -> bool {
    Errno::from_io_error(error).is_some_and(is_shortage)
}

fn is_shortage(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
}

/// The system reports a lack of ports and a lack of any address of the family (IPv6 in many containers) by the same
/// error. In the first case a datagram socket, which uses separate ports, can still be connected.
fn has_source_for(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    const DISCARD: u16 = 9;
    // Connecting a datagram socket sends nothing.
    UdpSocket::bind(SocketAddr::new(any, 0)).and_then(|socket| socket.connect((address, DISCARD))).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_descriptors_ports_or_memory_is_ours_and_a_refusal_is_not() {
        let loopback: IpAddr = [127, 0, 0, 1].into();
        let ours = |errno: Errno| is_our_shortage(&errno.into(), loopback);
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::ADDRNOTAVAIL] {
            assert!(ours(errno), "{errno}");
        }
        for errno in [Errno::CONNREFUSED, Errno::NETUNREACH, Errno::TIMEDOUT, Errno::HOSTUNREACH] {
            assert!(!ours(errno), "{errno}");
        }
        assert!(!is_our_shortage(&io::ErrorKind::AddrNotAvailable.into(), loopback), "not the system's");
    }
}
