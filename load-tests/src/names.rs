//! A scripted name server: what it answers to each name can change between two questions, and with each of them.
//!
//! No recursion, every answer with a life of zero seconds. Names without an entry do not exist. By UDP, and by TCP what does not
//! fit into a datagram.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// Bytes of an answer by UDP.
const DATAGRAM: usize = 1232;

/// The names; clones are the same ones.
#[derive(Clone, Debug, Default)]
pub struct Names(Arc<Mutex<HashMap<String, Entry>>>);

/// What one name answers, and how often it was asked.
#[derive(Debug, Default)]
struct Entry {
    /// Taken in turn, each kind of question by itself; the last one stays.
    turns: Vec<Vec<IpAddr>>,
    asked: HashMap<RecordType, usize>,
}

impl Names {
    /// Answers on this address (port 0: a free one) while the runtime lives; gives the address.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn serve(&self, address: SocketAddr) -> io::Result<SocketAddr> {
        let socket = UdpSocket::bind(address).await?;
        let address = socket.local_addr()?;
        let listener = TcpListener::bind(address).await?;
        let names = self.clone();
        tokio::spawn(async move {
            let mut buffer = [0; 1500];
            while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
                if let Some(answer) = names.answer(&buffer[..length], DATAGRAM) {
                    // A client that has left is no concern.
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

    /// Answers questions with their lengths in front, until the client leaves.
    async fn serve_stream(self, mut stream: TcpStream) -> io::Result<()> {
        loop {
            let mut question = vec![0; usize::from(stream.read_u16().await?)];
            stream.read_exact(&mut question).await?;
            let answer = self.answer(&question, usize::from(u16::MAX)).unwrap_or_default();
            stream.write_u16(u16::try_from(answer.len()).unwrap_or(0)).await?;
            stream.write_all(&answer).await?;
        }
    }

    /// Sets a name's addresses, v4 and v6 together. None: the name exists, but has no address.
    pub fn set(&self, name: &str, addresses: &[IpAddr]) {
        self.set_turns(name, vec![addresses.to_vec()]);
    }

    /// Sets what a name answers to the first, the second, .. question of each kind; the last stays.
    pub fn set_turns(&self, name: &str, turns: Vec<Vec<IpAddr>>) {
        let entry = Entry { turns, asked: HashMap::new() };
        self.entries().insert(format!("{}.", name.to_ascii_lowercase()), entry);
    }

    /// The answer, or one that says that it is longer than this.
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name as it was sent, in lower case: the library's text form escapes some characters.
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
