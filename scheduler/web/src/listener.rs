//! The accept loop: HTTP/1.1 with a limit for everything that a caller could hold on to.
//!
//! A connection is *waiting* until the head of a request has arrived, and again when its response has been sent;
//! otherwise it is *busy*. Waiting connections end by a timeout, and when the limit of connections is reached, the one
//! that has waited longest gives way to a new one: callers that open connections and send nothing displace each other,
//! and a request that arrives with its connection is answered: what has arrived is read before the next connection is
//! admitted. When all connections are busy, [`RESERVED`] more are taken for health and metrics.
//!
//! HTTP/2 is off (`docs/decisions/0023-http-1-only.md`).

mod admission;
mod limits;
mod proxies;
mod watched;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use crate::until_sent::until_sent;
use admission::{Admission, Admitted};
use watched::{Answered, Watched};

pub use limits::{Limits, RESERVED};
pub use proxies::Proxies;

/// How long a stop waits for requests in progress: a caller that never finishes its request must not hold it up.
pub(crate) const DRAIN: Duration = Duration::from_secs(2);

/// How long a connection that was opened for a request may still send it after a stop.
const FIRST_REQUEST: Duration = Duration::from_millis(300);

/// Bytes that a connection reads ahead at most, and so the longest head of a request, and bytes of a response that wait to be
/// sent before more of it is made. hyper's own limit is three times as much; an event stream holds as much twice (SECURITY.md).
const BUFFERED: usize = 128 << 10;

/// How long to wait after the operating system refused to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Serves until `stop`; requests in progress are then finished, as far as two seconds allow.
pub async fn serve(listener: TcpListener, router: Router, limits: Limits, stop: CancellationToken) -> io::Result<()> {
    let admission = Arc::new(Admission::new(limits.clone()));
    // Accepting stops before the file descriptors run out: callers wait in the kernel's queue.
    let most = u32::try_from(limits.descriptors().min(Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
    let open = Arc::new(Semaphore::new(most as usize));
    loop {
        let accepted = async {
            let permit = Arc::clone(&open).acquire_owned().await.map_err(io::Error::other)?;
            let (stream, address) = listener.accept().await?;
            Ok((stream, address, permit))
        };
        let (stream, address, permit) = tokio::select! {
            // First: another server may accept on the same socket by then, and know more.
            biased;
            () = stop.cancelled() => break,
            accepted = accepted => match accepted {
                Ok(accepted) => accepted,
                Err(error) if is_of_connection(&error) => continue,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection; trying again");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        // A new connection can be written to, so this waits only until the system reports its state. A stop must not end it: what was
        // accepted is answered here.
        let Ok(ready) = stream.ready(Interest::READABLE | Interest::WRITABLE).await else { continue };
        let Some(admitted) = admission.admit(address.ip()) else { continue };
        let (router, limits, stop) = (router.clone(), limits.clone(), stop.clone());
        let (first_look, looked_at) = oneshot::channel();
        tokio::spawn(async move {
            connection(stream, address, router, &limits, &admitted, &stop, first_look).await;
            drop((admitted, permit));
        });
        // Until its request has been read, it looks like one that waits, and many connections at once would displace it.
        if ready.is_readable() {
            let _ = looked_at.await;
        }
    }
    drop(listener);
    // Callers that are not done by then are cut off when the process exits.
    let _ = tokio::time::timeout(DRAIN, open.acquire_many(most)).await;
    Ok(())
}

/// The caller hung up before it was accepted.
fn is_of_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Serves one connection to its end, its timeout, or until it gives way. Drops `first_look` when it has read what had arrived.
async fn connection(
    stream: TcpStream,
    address: SocketAddr,
    router: Router,
    limits: &Limits,
    admitted: &Admitted,
    stop: &CancellationToken,
    first_look: oneshot::Sender<()>,
) {
    // Responses are written whole; waiting for more to send would only delay them.
    let _ = stream.set_nodelay(true);
    let activity = admitted.activity();
    let io = TokioIo::new(Watched::new(stream, Arc::clone(activity)));
    let reserved = admitted.is_reserved();
    let service = service_fn(|request: Request<Incoming>| {
        let answered = activity.answering();
        let caller = limits.proxies.caller(address, request.headers());
        respond(router.clone(), request, caller, reserved, answered)
    });
    let mut http = http1::Builder::new();
    // The deadlines below are wider for an idle connection than for half a head.
    http.timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(BUFFERED);
    let mut served = std::pin::pin!(http.serve_connection(io, service));
    if futures_util::poll!(served.as_mut()).is_ready() {
        return;
    }
    drop(first_look);
    let (mut shutdown_at, mut is_shut_down) = (None, false);
    loop {
        let deadline = activity.deadline(limits);
        let shutdown = async {
            match shutdown_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // An error is the caller's: it hung up, or sent something else than HTTP.
            _ = served.as_mut() => return,
            () = admitted.gave_way() => return,
            // hyper closes a connection at once on which no byte has arrived.
            () = stop.cancelled(), if shutdown_at.is_none() => {
                let left = if activity.awaits_request() { FIRST_REQUEST } else { Duration::ZERO };
                shutdown_at = Some(tokio::time::Instant::now() + left);
            }
            () = shutdown, if !is_shut_down => {
                is_shut_down = true;
                served.as_mut().graceful_shutdown();
            }
            () = tokio::time::sleep_until(deadline) => {
                if activity.deadline(limits) <= tokio::time::Instant::now() {
                    return;
                }
            }
        }
    }
}

async fn respond(
    mut router: Router,
    request: Request<Incoming>,
    caller: SocketAddr,
    reserved: bool,
    answered: Answered,
) -> Result<Response, Infallible> {
    let mut request = request.map(Body::new);
    let mut response = if reserved && !is_vital(request.uri().path()) {
        (StatusCode::SERVICE_UNAVAILABLE, "all connections are in use; try again\n").into_response()
    } else {
        request.extensions_mut().insert(ConnectInfo(caller));
        router.call(request).await?
    };
    if reserved {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(until_sent(response, answered))
}

/// Returns true for requests that are answered even under overload.
fn is_vital(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz" | "/readyz/api" | "/metrics")
}

#[cfg(test)]
mod tests;
