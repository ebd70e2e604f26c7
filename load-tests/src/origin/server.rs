//! Connections: reads requests and writes planned responses, byte by byte.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::log::{Begin, Cut, End};
use super::plan::{Plan, Request};
use super::script::Delivery;
use super::shared::{Shared, Wire, Wrap};

/// Maximum length of a request's head.
const MAX_HEAD: usize = 64 * 1024;

/// Accepts connections until `stop`; each connection has a task that ends with `stop`.
pub(super) async fn accept(shared: Arc<Shared>, listener: TcpListener, wrap: Option<Wrap>, stop: CancellationToken) {
    while let Ok(local) = listener.local_addr() {
        let Ok((stream, peer)) = listener.accept().await else {
            // Probably out of file descriptors: wait for other connections to close.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        // Without it, a response of two writes waits for the client's delayed acknowledgement.
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(&shared);
        match wrap.clone() {
            None => drop(tokio::spawn(stop.clone().run_until_cancelled_owned(serve(stream, shared, local, peer)))),
            Some(wrap) => {
                let secure = async move {
                    // A client that rejects the handshake made no request.
                    let Ok(stream) = wrap(stream).await else { return };
                    serve(stream, shared, local, peer).await;
                };
                drop(tokio::spawn(stop.clone().run_until_cancelled_owned(secure)));
            }
        }
    }
}

async fn serve(stream: impl Wire, shared: Arc<Shared>, local: SocketAddr, peer: SocketAddr) {
    Connection { stream, buffer: BytesMut::new(), shared, local, peer }.serve().await;
}

/// One connection over any byte stream.
struct Connection<S> {
    stream: S,
    buffer: BytesMut,
    shared: Arc<Shared>,
    local: SocketAddr,
    peer: SocketAddr,
}

/// Whether the connection can carry another request.
#[derive(PartialEq)]
enum Next {
    Request,
    Close,
}

/// Ends the request's record in any case, even if its connection is dropped because the host goes down.
struct InFlight {
    shared: Arc<Shared>,
    number: usize,
    end: End,
    over: bool,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if !self.over {
            self.end.cut = Some(Cut::ByUs);
        }
        self.shared.log.end(self.number, std::mem::take(&mut self.end));
    }
}

/// A request's head, with the parts that the server itself needs.
struct Head {
    raw: Arc<[u8]>,
    first_byte: Duration,
    content_length: usize,
    close: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    async fn serve(mut self) {
        let id = self.shared.connections.fetch_add(1, Ordering::Relaxed);
        while let Ok(Some(head)) = self.read_head().await {
            let plan = parsed(&head.raw, |request| self.shared.plan(request));
            let Some(plan) = plan else { break };
            let number = self.shared.log.begin(Begin {
                connection: id,
                local: self.local,
                peer: self.peer,
                path: Arc::clone(&plan.path),
                first_byte: head.first_byte,
                request: Arc::clone(&head.raw),
            });
            let mut exchange = InFlight { shared: Arc::clone(&self.shared), number, end: End::default(), over: false };
            let next = self.exchange(&head, plan, &mut exchange.end).await;
            if next.is_err() {
                exchange.end.cut = Some(Cut::ByPeer);
            }
            exchange.over = true;
            let close = head.close || exchange.end.cut.is_some() || !matches!(next, Ok(Next::Request));
            drop(exchange);
            if close {
                break;
            }
        }
        let _ = self.stream.shutdown().await;
    }

    /// Reads the next request's head; `None` when the client is done.
    async fn read_head(&mut self) -> io::Result<Option<Head>> {
        let mut first_byte = self.shared.log.now();
        loop {
            let mut headers = [httparse::EMPTY_HEADER; 128];
            let mut request = httparse::Request::new(&mut headers);
            let parsed = request.parse(&self.buffer).map_err(io::Error::other)?;
            if let httparse::Status::Complete(length) = parsed {
                let value = |name: &str| {
                    let found = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
                    std::str::from_utf8(found.value).ok()
                };
                let content_length = value("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
                let close = value("connection").is_some_and(|text| text.eq_ignore_ascii_case("close"))
                    || value("transfer-encoding").is_some()
                    || request.version == Some(0);
                let raw = self.buffer.split_to(length).as_ref().into();
                return Ok(Some(Head { raw, first_byte, content_length, close }));
            }
            if self.buffer.len() > MAX_HEAD {
                return Err(io::Error::other("request head too long"));
            }
            let fresh = self.buffer.is_empty();
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
            if fresh {
                first_byte = self.shared.log.now();
            }
        }
    }

    /// Reads the request's body, waits according to the plan, and responds.
    async fn exchange(&mut self, head: &Head, plan: Plan, end: &mut End) -> io::Result<Next> {
        while self.buffer.len() < head.content_length {
            self.receive().await?;
        }
        let _ = self.buffer.split_to(head.content_length);
        if !plan.delay.is_zero() {
            self.pause(plan.delay).await?;
        }
        if let Some(gate) = &plan.gate {
            self.unless_gone(gate.passed()).await?;
        }
        self.deliver(&plan, head.close, end).await
    }

    async fn deliver(&mut self, plan: &Plan, close: bool, end: &mut End) -> io::Result<Next> {
        match &plan.delivery {
            Delivery::Silent => {
                self.unless_gone(std::future::pending::<()>()).await?;
                return Ok(Next::Close);
            }
            Delivery::Close => {
                end.cut = Some(Cut::ByUs);
                return Ok(Next::Close);
            }
            Delivery::Raw(bytes) => {
                end.at = Some(self.shared.log.now());
                self.stream.write_all(bytes).await?;
                return Ok(Next::Close);
            }
            _ => {}
        }
        let framed = plan.status >= 200 && plan.status != 204 && plan.status != 304;
        let head = answer_head(plan, close, framed);
        end.status = Some(plan.status);
        end.items.clone_from(&plan.items);
        end.answer.clone_from(&head);
        if !framed || !plan.send_body {
            end.at = Some(self.shared.log.now());
            self.stream.write_all(&head).await?;
            return Ok(Next::Request);
        }
        match plan.delivery {
            Delivery::SlowHead(every) => {
                self.drip(&head, every, &mut 0).await?;
                self.send_body(&[], &plan.body, end).await?;
            }
            Delivery::InterimFlood(count) => {
                for _ in 0..count {
                    self.stream.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </s.css>; rel=preload\r\n\r\n").await?;
                }
                self.send_body(&head, &plan.body, end).await?;
            }
            Delivery::Drip(every) => {
                self.stream.write_all(&head).await?;
                self.drip(&plan.body, every, &mut end.body_bytes).await?;
            }
            Delivery::Truncated(length) => {
                end.cut = Some(Cut::ByUs);
                self.send_body(&head, &plan.body.slice(..length.min(plan.body.len())), end).await?;
            }
            Delivery::Chunked(size) => {
                self.send_chunks(&head, &plan.body, size, end).await?;
                end.at = Some(self.shared.log.now());
                self.stream.write_all(b"0\r\n\r\n").await?;
            }
            Delivery::CutChunks(length) => {
                end.cut = Some(Cut::ByUs);
                self.send_chunks(&head, &plan.body.slice(..length.min(plan.body.len())), 1024, end).await?;
            }
            Delivery::Endless => {
                let body = if plan.body.is_empty() { Bytes::from_static(&[b' '; 1024]) } else { plan.body.clone() };
                self.send_chunks(&head, &[], 1, end).await?;
                loop {
                    self.send_chunks(&[], &body, 16 * 1024, end).await?;
                }
            }
            _ => self.send_body(&head, &plan.body, end).await?,
        }
        Ok(if matches!(plan.delivery, Delivery::UntilClose) { Next::Close } else { Next::Request })
    }

    /// Sends head and body in one write if possible, so that a small response is one packet.
    async fn send_body(&mut self, head: &[u8], body: &[u8], end: &mut End) -> io::Result<()> {
        let first = [head, &body[..body.len().min(16 * 1024)]].concat();
        end.at = Some(self.shared.log.now());
        self.stream.write_all(&first).await?;
        end.body_bytes = first.len().saturating_sub(head.len()) as u64;
        for part in body[body.len().min(16 * 1024)..].chunks(64 * 1024) {
            end.at = Some(self.shared.log.now());
            self.stream.write_all(part).await?;
            end.body_bytes += part.len() as u64;
        }
        Ok(())
    }

    async fn send_chunks(&mut self, head: &[u8], body: &[u8], size: usize, end: &mut End) -> io::Result<()> {
        self.stream.write_all(head).await?;
        for chunk in body.chunks(size.max(1)) {
            let framed = [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat();
            self.stream.write_all(&framed).await?;
            end.body_bytes += chunk.len() as u64;
        }
        Ok(())
    }

    async fn drip(&mut self, bytes: &[u8], every: Duration, sent: &mut u64) -> io::Result<()> {
        for byte in bytes {
            self.pause(every).await?;
            self.stream.write_all(&[*byte]).await?;
            *sent += 1;
        }
        Ok(())
    }

    async fn pause(&mut self, time: Duration) -> io::Result<()> {
        self.unless_gone(tokio::time::sleep(time)).await
    }

    /// Waits for a future, but no longer than the client stays connected.
    async fn unless_gone(&mut self, waiting: impl Future<Output = ()>) -> io::Result<()> {
        tokio::pin!(waiting);
        loop {
            tokio::select! {
                () = &mut waiting => return Ok(()),
                received = self.receive() => received?,
            }
        }
    }

    async fn receive(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// Parses a head again for the parts that responses depend on.
fn parsed<T>(raw: &[u8], then: impl FnOnce(&Request<'_>) -> T) -> Option<T> {
    let mut headers = [httparse::EMPTY_HEADER; 128];
    let mut request = httparse::Request::new(&mut headers);
    request.parse(raw).ok()?;
    let find = |name: &str| request.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
    let value = |name: &str| find(name).map(|header| header.value);
    Some(then(&Request {
        method: request.method.unwrap_or_default(),
        target: request.path.unwrap_or_default(),
        delta: value("a-im").is_some_and(|im| im.eq_ignore_ascii_case(b"feed")),
        none_match: value("if-none-match"),
        modified_since: value("if-modified-since"),
        accept_encoding: String::from_utf8_lossy(value("accept-encoding").unwrap_or_default()),
    }))
}

/// Returns status line and headers, with the framing that the delivery needs unless the script sets its own.
fn answer_head(plan: &Plan, close: bool, framed: bool) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {} {}\r\n", plan.status, reason(plan.status)).into_bytes();
    let mut line = |name: &str, value: &[u8]| {
        head.extend_from_slice(name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value);
        head.extend_from_slice(b"\r\n");
    };
    for (name, value) in &plan.headers {
        line(name, value);
    }
    if let Delivery::HeaderFlood(count) = plan.delivery {
        (0..count).for_each(|number| line(&format!("X-Flood-{number:06}"), &[b'x'; 80]));
    }
    let own = |name: &str| plan.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
    let until_close = matches!(plan.delivery, Delivery::UntilClose);
    match plan.delivery {
        Delivery::Chunked(_) | Delivery::CutChunks(_) | Delivery::Endless if framed => {
            line("Transfer-Encoding", b"chunked");
        }
        _ if framed && !until_close && !own("content-length") => {
            line("Content-Length", plan.body.len().to_string().as_bytes());
        }
        _ => {}
    }
    if (close || until_close) && !own("connection") {
        line("Connection", b"close");
    }
    head.extend_from_slice(b"\r\n");
    head
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        226 => "IM Used",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        403 => "Forbidden",
        404 => "Not Found",
        410 => "Gone",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Scripted",
    }
}
