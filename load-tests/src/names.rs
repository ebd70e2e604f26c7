//! A scripted name server: its answer to each name can change over time, and with each query.
//!
//! No recursion; all answers have a TTL of zero. Names without an entry do not exist. Uses UDP, and TCP for answers
//! that do not fit into a datagram.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// The maximum length of a UDP answer in bytes.
const DATAGRAM: usize = 1232;

/// The names; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Names(Arc<Mutex<HashMap<String, Entry>>>);

/// The answers for one name, and its number of queries.
#[derive(Debug, Default)]
struct Entry {
    /// Used in turn, separately for each record type; the last one repeats.
    turns: Vec<Vec<IpAddr>>,
    asked: HashMap<RecordType, usize>,
}

impl Names {
    /// Serves this address (port 0: a free one) as long as the runtime exists; returns the address.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub async fn serve(&self, address: SocketAddr) -> io::Result<SocketAddr> {
        let (socket, listener) = bind(address).await?;
        let address = socket.local_addr()?;
        let names = self.clone();
        tokio::spawn(async move {
            let mut buffer = [0; 1500];
            while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
                if let Some(answer) = names.answer(&buffer[..length], DATAGRAM) {
                    // The client may have disconnected.
                    let _ = socket.send_to(&answer, peer).await;
                }
            }
        });
        let names = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(names.clone().serve_stream(stream));
            }
        });
        Ok(address)
    }

    /// Answers length-prefixed queries until the client disconnects.
    async fn serve_stream(self, mut stream: TcpStream) -> io::Result<()> {
        loop {
            let mut question = vec![0; usize::from(stream.read_u16().await?)];
            stream.read_exact(&mut question).await?;
            let answer = self.answer(&question, usize::from(u16::MAX)).unwrap_or_default();
            stream.write_u16(u16::try_from(answer.len()).unwrap_or(0)).await?;
            stream.write_all(&answer).await?;
        }
    }

    /// Sets a name's addresses, IPv4 and IPv6 together. Without addresses the name exists, but has none.
    pub fn set(&self, name: &str, addresses: &[IpAddr]) {
        self.set_turns(name, vec![addresses.to_vec()]);
    }

    /// Sets a name's answers to the first, the second, .. query of each record type; the last one repeats.
    pub fn set_turns(&self, name: &str, turns: Vec<Vec<IpAddr>>) {
        let entry = Entry { turns, asked: HashMap::new() };
        self.entries().insert(format!("{}.", name.to_ascii_lowercase()), entry);
    }

    /// Returns the number of queries for a name.
    pub fn queries(&self, name: &str) -> usize {
        let entries = self.entries();
        entries.get(&format!("{}.", name.to_ascii_lowercase())).map_or(0, |entry| entry.asked.values().sum())
    }

    /// Returns the answer, or a truncated one if it is longer than `most`.
    fn answer(&self, question: &[u8], most: usize) -> Option<Vec<u8>> {
        let question = Message::from_vec(question).ok()?;
        let query = question.queries.first()?.clone();
        let mut answer = Message::response(question.metadata.id, question.metadata.op_code);
        match self.entries().get_mut(&text_of(query.name())) {
            None => answer.metadata.response_code = ResponseCode::NXDomain,
            Some(entry) => {
                let wanted =
                    entry.turn(query.query_type()).iter().filter_map(|address| match (address, query.query_type()) {
                        (IpAddr::V4(address), RecordType::A) => Some(RData::A(A(*address))),
                        (IpAddr::V6(address), RecordType::AAAA) => Some(RData::AAAA(AAAA(*address))),
                        _ => None,
                    });
                answer.answers.extend(wanted.map(|data| Record::from_rdata(query.name().clone(), 0, data)));
            }
        }
        answer.queries.push(query);
        let whole = answer.to_vec().ok()?;
        if whole.len() <= most {
            return Some(whole);
        }
        answer.answers.clear();
        answer.metadata.truncation = true;
        answer.to_vec().ok()
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        common::lock(&self.0)
    }
}

/// Returns the name as it was sent, in lower case: the library's text form escapes some characters.
fn text_of(name: &Name) -> String {
    let labels = name.iter().map(|label| format!("{}.", String::from_utf8_lossy(label)));
    labels.collect::<String>().to_lowercase()
}

impl Entry {
    fn turn(&mut self, kind: RecordType) -> &[IpAddr] {
        let asked = self.asked.entry(kind).or_default();
        let turn = (*asked).min(self.turns.len().saturating_sub(1));
        *asked += 1;
        self.turns.get(turn).map_or(&[], Vec::as_slice)
    }
}

/// Binds one port for datagrams and for connections. With port 0 the system chooses it for datagrams, and another program may
/// have it for connections: then it chooses again.
async fn bind(address: SocketAddr) -> io::Result<(UdpSocket, TcpListener)> {
    loop {
        let socket = UdpSocket::bind(address).await?;
        match TcpListener::bind(socket.local_addr()?).await {
            Err(error) if address.port() == 0 && error.kind() == io::ErrorKind::AddrInUse => {}
            listener => return Ok((socket, listener?)),
        }
    }
}
