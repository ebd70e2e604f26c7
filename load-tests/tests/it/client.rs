//! A minimal client: one request on one connection, the unprocessed response.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A response as received, with chunk framing and coding.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let line = self
            .head
            .lines()
            .skip(1)
            .find(|line| line.split(':').next().is_some_and(|own| own.eq_ignore_ascii_case(name)))?;
        Some(line.split_once(':')?.1.trim())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Sends these bytes and reads until the end of the connection.
pub(crate) async fn send(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.expect("the origin accepts");
    stream.write_all(bytes).await.expect("the origin reads");
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received).await;
    received
}

/// Sends one GET on a separate connection, with these extra header lines.
pub(crate) async fn get(address: SocketAddr, target: &str, headers: &[&str]) -> Answer {
    let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    let request = format!("GET {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{lines}\r\n");
    parse(&send(address, request.as_bytes()).await)
}

/// Splits received bytes at the end of the head.
pub(crate) fn parse(received: &[u8]) -> Answer {
    let end = received.windows(4).position(|part| part == b"\r\n\r\n").expect("a whole head");
    let head = String::from_utf8_lossy(&received[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Answer { status, head, body: received[end + 4..].to_vec() }
}
