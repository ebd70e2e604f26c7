//! Callers that hold on to connections, over real sockets.

use std::time::Instant;

use axum::routing::get;
use common::testing::Stalls;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;

use super::*;

const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
const HALF: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: loc";
/// The most that a response may take which nothing should hold up: half of the time after which half-open requests are closed.
const SOON: Duration = Duration::from_secs(5);
/// How long something may take that is to come.
const PATIENCE: Duration = Duration::from_secs(60);
const LARGE: usize = 64 << 20;
/// The limits of [`quick`], with seconds between them for stalls of the machine, and a response that takes longer than both.
const HEAD: Duration = Duration::from_millis(1_500);
const IDLE: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_secs(5);

/// A listener, stopped when dropped.
struct Served {
    address: SocketAddr,
    /// A permit for each request of `/slow` that has reached its handler.
    slow: Arc<Semaphore>,
    stop: CancellationToken,
    serving: JoinHandle<io::Result<()>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn served(limits: Limits) -> Served {
    served_on(TcpListener::bind("127.0.0.1:0").await.unwrap(), limits)
}

fn served_on(listener: TcpListener, limits: Limits) -> Served {
    let slow = Arc::new(Semaphore::new(0));
    let arrived = Arc::clone(&slow);
    let never = async move || {
        arrived.add_permits(1);
        std::future::pending::<&'static str>().await
    };
    let router = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/caller", get(async |ConnectInfo(from): ConnectInfo<SocketAddr>| from.ip().to_string()))
        .route("/slow", get(never))
        .route("/pause", get(async || tokio::time::sleep(PAUSE).await))
        .route("/large", get(async || vec![b'x'; LARGE]))
        .route("/turn", get(async move || until_sent(vec![b'x'; LARGE].into_response(), turn().lock_owned().await)));
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    let serving = tokio::spawn(serve(listener, router, limits, stop.clone()));
    Served { address, slow, stop, serving }
}

impl Served {
    async fn sent(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream
    }

    /// Returns the first line of the response to a request on a separate connection.
    async fn asked(&self, request: &[u8]) -> String {
        first_line(&mut self.sent(request).await).await
    }
}

/// Returns what a response of `/turn` holds; used by one test only.
fn turn() -> Arc<tokio::sync::Mutex<()>> {
    static TURN: std::sync::LazyLock<Arc<tokio::sync::Mutex<()>>> = std::sync::LazyLock::new(Arc::default);
    Arc::clone(&TURN)
}

async fn first_line(stream: &mut TcpStream) -> String {
    let mut read = vec![0; 4096];
    let bytes = tokio::time::timeout(PATIENCE, stream.read(&mut read)).await.unwrap().unwrap();
    String::from_utf8_lossy(&read[..bytes]).lines().next().unwrap_or_default().to_owned()
}

/// Returns how long it took until the connection was closed.
async fn closed(stream: &mut TcpStream) -> Duration {
    let (begun, mut read) = (Instant::now(), Vec::new());
    // A reset closes it as well.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut read)).await.expect("it is closed");
    begun.elapsed()
}

fn quick() -> Limits {
    Limits { head: HEAD, idle: IDLE, stalled: Duration::from_millis(300), ..Limits::new(100, 100) }
}

/// One thread, so that the stop comes at a certain point between the arrival of a connection and its first request.
#[tokio::test]
async fn a_connection_that_arrives_at_a_stop_is_answered_by_this_server_or_the_next() {
    for steps in 0..20 {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let server = || served_on(TcpListener::from_std(socket.try_clone().unwrap()).unwrap(), Limits::new(40, 20));
        let first = server();
        assert_eq!(first.asked(HEALTH).await, "HTTP/1.1 200 OK");
        let mut stream = TcpStream::connect(first.address).await.unwrap();
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
        first.stop.cancel();
        let next = server();
        stream.write_all(HEALTH).await.unwrap();
        assert_eq!(first_line(&mut stream).await, "HTTP/1.1 200 OK", "{steps} steps after it was opened");
        drop(next);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn half_open_requests_beyond_the_limit_leave_health_answering() {
    let served = served(Limits::new(40, 20)).await;
    let mut half_open = Vec::new();
    for _ in 0..400 {
        half_open.push(served.sent(HALF).await);
    }
    let (begun, stalls) = (Instant::now(), Stalls::watched());
    assert_eq!(served.asked(HEALTH).await, "HTTP/1.1 200 OK");
    let took = begun.elapsed().saturating_sub(stalls.so_far());
    assert!(took < SOON, "{took:?}");
    assert!(closed(&mut half_open[0]).await < PATIENCE, "the first of them gave way");
}

/// One thread, so that all connections have arrived before the listener sees the first.
#[tokio::test]
async fn a_request_that_arrives_with_its_connection_is_answered_however_many_connections_follow_at_once() {
    let served = served(Limits::new(4, 1_000)).await;
    let sent = |bytes: &[u8]| {
        let mut stream = std::net::TcpStream::connect(served.address).unwrap();
        std::io::Write::write_all(&mut stream, bytes).unwrap();
        stream.set_nonblocking(true).unwrap();
        TcpStream::from_std(stream).unwrap()
    };
    let mut asking: Vec<_> = (0..4).map(|_| sent(HEALTH)).collect();
    let _half_open: Vec<_> = (0..60).map(|_| sent(HALF)).collect();
    for stream in &mut asking {
        assert_eq!(first_line(stream).await, "HTTP/1.1 200 OK");
    }
}

#[tokio::test]
async fn a_request_through_a_trusted_proxy_has_the_address_that_the_proxy_names() {
    let asked = b"GET /caller HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 192.0.2.7\r\nConnection: close\r\n\r\n";
    for (trusted, expected) in [("127.0.0.0/8", "192.0.2.7"), ("10.0.0.0/8", "127.0.0.1")] {
        let proxies = Proxies::new(&[trusted.parse().unwrap()]);
        let served = served(Limits { proxies, ..quick() }).await;
        let mut read = String::new();
        served.sent(asked).await.read_to_string(&mut read).await.unwrap();
        assert!(read.ends_with(expected), "{read}");
    }
}

#[tokio::test]
async fn silent_connections_are_closed_and_slow_responses_are_not() {
    let served = served(quick()).await;
    let (mut silent, mut half) = (served.sent(b"").await, served.sent(HALF).await);
    let mut kept = served.sent(HEALTH).await;
    let mut pausing = served.sent(b"GET /pause HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert_eq!(first_line(&mut kept).await, "HTTP/1.1 200 OK");
    closed(&mut silent).await;
    closed(&mut half).await;
    kept.write_all(HEALTH).await.unwrap();
    assert_eq!(first_line(&mut kept).await, "HTTP/1.1 200 OK", "an idle connection lives longer than half a head");
    closed(&mut kept).await;
    assert_eq!(first_line(&mut pausing).await, "HTTP/1.1 200 OK");
}

#[tokio::test]
async fn a_head_that_is_longer_than_the_buffer_of_a_connection_is_refused() {
    let served = served(Limits::new(4, 4)).await;
    let head =
        |bytes: usize| format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: {}\r\n\r\n", "x".repeat(bytes));
    assert_eq!(served.asked(head(BUFFERED / 2).as_bytes()).await, "HTTP/1.1 200 OK");
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    // The listener may close the connection before all of it is sent.
    let _ = stream.write_all(head(2 * BUFFERED).as_bytes()).await;
    let mut read = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut read)).await.expect("it is closed");
    assert!(!read.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&read));
}

#[tokio::test]
async fn a_caller_that_reads_nothing_is_cut_off() {
    let served = served(quick()).await;
    let mut stream = served.sent(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    // In steps: after a stall of this process the listener runs before this test reads.
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut read = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut read)).await.expect("it was closed");
    assert!(read.len() < LARGE, "{} bytes", read.len());
}

/// Buffers are small, so that the listener sees of each little read that there is room again.
#[tokio::test]
async fn a_caller_that_reads_a_little_now_and_then_is_cut_off() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_send_buffer_size(4096).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let served = served_on(socket.listen(16).unwrap(), quick());
    let caller = TcpSocket::new_v4().unwrap();
    caller.set_recv_buffer_size(4096).unwrap();
    let mut stream = caller.connect(served.address).await.unwrap();
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let cut_off = async {
        let mut little = [0; 1024];
        // At most 15 KB in the time in which 64 KB are to be taken.
        while stream.read(&mut little).await.is_ok_and(|bytes| bytes > 0) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, cut_off).await.expect("it is cut off");
}

#[tokio::test]
async fn what_a_response_holds_is_held_until_its_caller_has_taken_it() {
    let served = served(Limits::new(1, 1_000)).await;
    let mut stream = served.sent(b"GET /turn HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    assert_eq!(first_line(&mut stream).await, "HTTP/1.1 200 OK");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(turn().try_lock().is_err(), "the response is under way");
    let other = served.asked(b"GET /pause HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert_eq!(other, "HTTP/1.1 503 Service Unavailable", "a connection under way does not give way");
    let mut rest = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert!(rest.len() > LARGE - 4096, "{} bytes", rest.len());
    drop(tokio::time::timeout(PATIENCE, turn().lock_owned()).await.expect("it is free again"));
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_answered_while_all_connections_are_busy() {
    let served = served(Limits::new(4, 1_000)).await;
    let slow = b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut busy = Vec::new();
    for _ in 0..4 {
        busy.push(served.sent(slow).await);
        // Until its request has arrived, a connection is waiting, and would give way to the next.
        tokio::time::timeout(PATIENCE, served.slow.acquire()).await.unwrap().unwrap().forget();
    }
    let other = served.asked(b"GET /pause HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert_eq!(other, "HTTP/1.1 503 Service Unavailable");
    assert_eq!(served.asked(HEALTH).await, "HTTP/1.1 200 OK");
}

#[tokio::test]
async fn http_2_is_refused() {
    let served = served(quick()).await;
    let answer = served.asked(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00").await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
}

#[tokio::test]
async fn a_stop_ends_idle_connections_at_once() {
    let mut served = served(Limits::new(100, 100)).await;
    let mut idle = served.sent(HEALTH).await;
    first_line(&mut idle).await;
    let (begun, stalls) = (Instant::now(), Stalls::watched());
    served.stop.cancel();
    let ended = tokio::time::timeout(PATIENCE, &mut served.serving).await;
    ended.expect("it ends").unwrap().unwrap();
    let took = begun.elapsed().saturating_sub(stalls.so_far());
    assert!(took < DRAIN / 2, "nothing is in progress, but it took {took:?}");
}
