//! An HTTP server that receives webhooks: what each path answers is set by the test.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use common::time::{Clock, SystemClock, Timestamp};
use load_tests::loopback;
use serde_json::Value;

/// What a path answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reply {
    /// This status.
    Status(u16),
    /// This status, and a number of seconds as `Retry-After`.
    RetryAfter(u16, u64),
    /// Nothing, ever.
    Hang,
    /// A body, a byte at a time, after a good status.
    Drip,
}

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) at: Timestamp,
    /// What was answered.
    pub(crate) reply: Reply,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Returns its events.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.json()["data"]["events"].as_array().unwrap().clone()
    }

    pub(crate) fn is_accepted(&self) -> bool {
        matches!(self.reply, Reply::Status(200..300) | Reply::Drip)
    }
}

/// The server, on one host or several.
#[derive(Clone)]
pub(crate) struct Receiver {
    addresses: Arc<[SocketAddr]>,
    state: Arc<Mutex<Inside>>,
    /// Of each host.
    in_flight: Arc<[Arc<InFlight>]>,
}

/// Requests that are being answered.
#[derive(Default)]
struct InFlight {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// Counts a request until its response was sent or its client is gone.
struct Answering(Arc<InFlight>);

impl Answering {
    fn begin(in_flight: &Arc<InFlight>) -> Self {
        let now = in_flight.now.fetch_add(1, Ordering::SeqCst) + 1;
        in_flight.most.fetch_max(now, Ordering::SeqCst);
        Answering(Arc::clone(in_flight))
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Default)]
struct Inside {
    /// The requests to each path.
    logs: HashMap<String, Vec<Received>>,
    /// The replies of a path, the last of which stays.
    replies: HashMap<String, Vec<Reply>>,
}

impl Receiver {
    pub(crate) async fn listen() -> Self {
        Receiver::on_hosts(1).await
    }

    /// Listens on this number of hosts.
    pub(crate) async fn on_hosts(hosts: usize) -> Self {
        let mut listeners = Vec::new();
        for address in loopback(u16::try_from(hosts).unwrap(), 0) {
            listeners.push(tokio::net::TcpListener::bind(address).await.unwrap());
        }
        let addresses = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        let in_flight = listeners.iter().map(|_| Arc::default()).collect();
        let receiver = Receiver { addresses, state: Arc::default(), in_flight };
        for (host, listener) in listeners.into_iter().enumerate() {
            let router = Router::new().fallback(receive).with_state((receiver.clone(), host));
            tokio::spawn(async move { axum::serve(listener, router).await });
        }
        receiver
    }

    pub(crate) fn url(&self, path: &str) -> String {
        self.url_on(0, path)
    }

    pub(crate) fn url_on(&self, host: usize, path: &str) -> String {
        format!("http://{}{path}", self.addresses[host])
    }

    /// Answers these in turn, and the last one from then on.
    pub(crate) fn set(&self, path: &str, replies: &[Reply]) {
        self.state.lock().unwrap().replies.insert(path.to_owned(), replies.to_vec());
    }

    /// Returns the largest number of requests that were answered at once by one host.
    pub(crate) fn most_at_once(&self) -> usize {
        self.in_flight.iter().map(|host| host.most.load(Ordering::SeqCst)).max().unwrap_or(0)
    }

    /// Returns the requests to a path, in order.
    pub(crate) fn log(&self, path: &str) -> Vec<Received> {
        self.state.lock().unwrap().logs.get(path).cloned().unwrap_or_default()
    }

    fn note(&self, uri: &Uri, headers: HeaderMap, body: Bytes) -> Reply {
        let mut state = self.state.lock().unwrap();
        let replies = state.replies.entry(uri.path().to_owned()).or_default();
        let reply = match replies.len() {
            0 => Reply::Status(204),
            1 => replies[0],
            _ => replies.remove(0),
        };
        let log = state.logs.entry(uri.path().to_owned()).or_default();
        log.push(Received { headers, body, at: SystemClock.now(), reply });
        reply
    }
}

async fn receive(
    State((receiver, host)): State<(Receiver, usize)>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let status = |status| StatusCode::from_u16(status).unwrap();
    let answering = Answering::begin(&receiver.in_flight[host]);
    match receiver.note(&uri, headers, body) {
        Reply::Status(code @ 300..400) => (status(code), [("location", "/elsewhere")]).into_response(),
        Reply::Status(code) => (status(code), format!("answered {code}\u{1b}[31m")).into_response(),
        Reply::RetryAfter(code, seconds) => (status(code), [("retry-after", seconds.to_string())]).into_response(),
        Reply::Hang => std::future::pending().await,
        Reply::Drip => {
            let drops = futures_util::stream::unfold(answering, |answering| async {
                tokio::time::sleep(Duration::from_millis(200)).await;
                Some((Ok::<_, std::io::Error>(Bytes::from_static(b".")), answering))
            });
            axum::body::Body::from_stream(drops).into_response()
        }
    }
}
