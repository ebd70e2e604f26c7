//! A network between the servers of a test that can be cut as a lost route cuts it: no connection is closed, and bytes wait.
//!
//! In front of each server is a proxy, and the server announces the proxy's address. Each server connects from its own address, so a
//! proxy knows which server a connection comes from. A connection from any other address belongs to a client.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The network. Dropping it closes all connections.
#[derive(Default)]
pub struct Network {
    cut: watch::Sender<Option<Cut>>,
    doors: Mutex<JoinSet<()>>,
}

/// The proxy in front of a port of a server.
pub struct Door {
    /// Where it listens.
    pub port: u16,
    inside: Arc<OnceLock<u16>>,
}

/// A server that no other server reaches.
struct Cut {
    server: u8,
    clients: Clients,
}

/// The clients that still reach a server that was cut off from the others.
#[derive(Clone, Debug)]
pub enum Clients {
    /// None.
    None,
    /// Those of these processes.
    Of(Vec<u32>),
    /// All.
    All,
}

/// Where a connection comes from.
#[derive(Clone, Copy)]
enum Source {
    Server(u8),
    /// With the id of its process, if that is known.
    Client(Option<u32>),
}

/// A connection between two ends.
#[derive(Clone, Copy)]
struct Line {
    from: Source,
    to: u8,
}

impl Network {
    /// Returns the address that this server has to connect from (`bind-source-addr`).
    pub fn source(server: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, 0, 9, server)
    }

    /// Opens a proxy in front of this server. Must be called in a runtime.
    pub fn door(&self, server: u8) -> Door {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let (port, inside) = (listener.local_addr().unwrap().port(), Arc::new(OnceLock::new()));
        let (cut, target) = (self.cut.subscribe(), Arc::clone(&inside));
        let listener = TcpListener::from_std(listener).unwrap();
        crate::lock(&self.doors).spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((from, address)) = listener.accept().await {
                let target = *target.get().expect("a door leads to a port before anybody connects");
                connections.spawn(carry(from, address, port, (server, target), cut.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        Door { port, inside }
    }

    /// Cuts a server off from all other servers. Only these clients still reach it.
    pub fn cut_off(&self, server: u8, clients: Clients) {
        self.cut.send_replace(Some(Cut { server, clients }));
    }

    /// Connects all again; what waited is delivered.
    pub fn heal(&self) {
        self.cut.send_replace(None);
    }
}

impl Door {
    /// Sets the port of the server that this leads to.
    pub fn lead_to(&self, port: u16) {
        self.inside.set(port).unwrap();
    }
}

impl Line {
    fn is_open(self, cut: Option<&Cut>) -> bool {
        let Some(cut) = cut else { return true };
        match self.from {
            Source::Server(server) => cut.server != server && cut.server != self.to,
            Source::Client(process) => cut.server != self.to || cut.clients.contain(process),
        }
    }
}

impl Clients {
    fn contain(&self, process: Option<u32>) -> bool {
        match self {
            Clients::None => false,
            Clients::Of(processes) => process.is_some_and(|process| processes.contains(&process)),
            Clients::All => true,
        }
    }
}

async fn carry(from: TcpStream, address: SocketAddr, door: u16, to: (u8, u16), mut cut: watch::Receiver<Option<Cut>>) {
    let (to, target) = to;
    let source = match address.ip() {
        IpAddr::V4(ip) if ip == Network::source(ip.octets()[3]) => Source::Server(ip.octets()[3]),
        _ => Source::Client(tokio::task::spawn_blocking(move || process_at(address.port(), door)).await.unwrap()),
    };
    let line = Line { from: source, to };
    // One that begins during a cut gets no further.
    if cut.wait_for(|cut| line.is_open(cut.as_ref())).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect(("127.0.0.1", target)).await else { return };
    let _ = (from.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = from.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::join!(pass(from_client, to_server, line, cut.clone()), pass(from_server, to_client, line, cut));
}

/// Passes bytes in one direction, and then the end of the stream.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, line: Line, mut cut: watch::Receiver<Option<Cut>>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = from.read(&mut buffer).await.unwrap_or(0);
        if cut.wait_for(|cut| line.is_open(cut.as_ref())).await.is_err() {
            return;
        }
        if count == 0 || to.write_all(&buffer[..count]).await.is_err() {
            let _ = to.shutdown().await;
            return;
        }
    }
}

/// Returns the process on this machine that has the end at `port` of a connection to `door`.
fn process_at(port: u16, door: u16) -> Option<u32> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let [here, there] = [port, door].map(|port| format!(":{port:04X}"));
    let inode = table.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words[1].ends_with(&here) && words[2].ends_with(&there)).then(|| words[9].to_owned())
    })?;
    let socket = format!("socket:[{inode}]");
    let has_it = |process: &u32| {
        let files = std::fs::read_dir(format!("/proc/{process}/fd"));
        files.is_ok_and(|files| {
            let mut targets = files.flatten().filter_map(|file| std::fs::read_link(file.path()).ok());
            targets.any(|target| target.as_os_str() == socket.as_str())
        })
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(has_it)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::TcpSocket;
    use tokio::time::timeout;

    use super::*;

    /// A stream that echoes through the door, from this server or as a client.
    async fn stream(door: &Door, from: Option<u8>) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        if let Some(server) = from {
            socket.bind((Network::source(server), 0).into()).unwrap();
        }
        socket.connect(([127, 0, 0, 1], door.port).into()).await.unwrap()
    }

    async fn echoes(stream: &mut TcpStream) -> bool {
        stream.write_all(b"x").await.unwrap();
        let mut answer = [0];
        timeout(Duration::from_millis(300), stream.read_exact(&mut answer)).await.is_ok_and(|read| read.is_ok())
    }

    /// Whether clients, another server, and a new connection of that server get through to the first server.
    async fn reached(door: &Door, client: &mut TcpStream, peer: &mut TcpStream) -> [bool; 3] {
        [echoes(client).await, echoes(peer).await, echoes(&mut stream(door, Some(2)).await).await]
    }

    #[tokio::test]
    async fn a_server_that_is_cut_off_is_reached_by_the_chosen_clients_only_until_it_is_healed() {
        let network = Network::default();
        let echo = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let [door, other] = [1, 3].map(|server| {
            let door = network.door(server);
            door.lead_to(echo.local_addr().unwrap().port());
            door
        });
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = echo.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        let (mut client, mut peer) = (stream(&door, None).await, stream(&door, Some(2)).await);
        let mut outward = stream(&other, Some(1)).await;
        assert_eq!(reached(&door, &mut client, &mut peer).await, [true; 3]);
        assert!(echoes(&mut outward).await);
        let us = std::process::id();
        for (clients, reach) in [
            (Clients::All, true),
            (Clients::Of(vec![us]), true),
            (Clients::Of(vec![us + 1]), false),
            (Clients::None, false),
        ] {
            network.cut_off(1, clients);
            assert_eq!(reached(&door, &mut client, &mut peer).await, [reach, false, false]);
            assert!(!echoes(&mut outward).await, "it reaches no other server either");
            // The others reach each other, and clients reach them.
            assert!(echoes(&mut stream(&other, Some(2)).await).await && echoes(&mut stream(&other, None).await).await);
            network.heal();
            // What was sent during the cut arrives first.
            for (stream, waiting) in [(&mut client, usize::from(!reach)), (&mut peer, 1), (&mut outward, 1)] {
                stream.read_exact(&mut vec![0; waiting]).await.unwrap();
            }
        }
        assert_eq!(reached(&door, &mut client, &mut peer).await, [true; 3]);
    }
}
