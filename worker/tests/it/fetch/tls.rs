//! TLS: verified certificates, a name for each failure, HTTP/2 where both sides speak it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::config::FetchConfig;
use common::job::FetchJob;
use common::outcome::FailureKind;
use common::url::FeedUrl;
use hyper_util::rt::{TokioExecutor, TokioIo};
use load_tests::tls::{Authority, Front, date_time_ymd, self_signed_server};
use load_tests::{Feed, Script};
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use worker::fetch::Fetcher;
use worker::setup::FetchSetup;

use super::bench::{Bench, document, failure, not_modified};

/// Ends TLS in front of a plain server, to which it forwards connections; returns its port.
async fn front(config: ServerConfig, behind: SocketAddr) -> u16 {
    Front::start(config, behind).await.unwrap().port
}

async fn bench(authority: &Authority) -> Bench {
    bench_with(authority, |_| {}).await
}

async fn bench_with(authority: &Authority, change: impl FnOnce(&mut FetchConfig)) -> Bench {
    let mut bench = Bench::with(change).await;
    let setup = FetchSetup {
        extra_roots: vec![authority.certificate()],
        hosts: "127.0.0.1 one.test\n127.0.0.1 two.test\n".to_owned(),
        ..FetchSetup::default()
    };
    bench.fetcher = Fetcher::with_setup(&bench.config, &bench.rules, &setup).unwrap();
    bench.origin.set("/feed", Script::feed(Feed::rss()));
    bench
}

fn job(bench: &Bench, port: u16) -> FetchJob {
    bench.job(&format!("https://one.test:{port}/feed"))
}

#[tokio::test]
async fn a_certificate_of_a_known_authority_is_good() {
    let authority = Authority::new("known").unwrap();
    let bench = bench(&authority).await;
    let port = front(authority.server("one.test", |_| {}).unwrap(), bench.origin.address(0)).await;
    let mut job = job(&bench, port);
    assert_eq!(document(&bench.poll(&mut job).await).entries.len(), 3);
    assert!(not_modified(&bench.poll(&mut job).await));
    let absolute = bench.fetch(&bench.job(&format!("https://one.test.:{port}/feed"))).await;
    assert_eq!(document(&absolute).entries.len(), 3, "with the final dot");
}

#[tokio::test]
async fn armour_each_failure_of_a_handshake_is_a_named_class() {
    let (known, unknown) = (Authority::new("known").unwrap(), Authority::new("unknown").unwrap());
    let bench = bench(&known).await;
    let servers = [
        (unknown.server("one.test", |_| {}).unwrap(), "certificate of an unknown issuer"),
        (self_signed_server("one.test").unwrap(), "self-signed certificate"),
        (known.server("two.test", |_| {}).unwrap(), "certificate of another name"),
        (
            known.server("one.test", |params| params.not_after = date_time_ymd(2020, 1, 1)).unwrap(),
            "certificate expired",
        ),
        (
            known.server("one.test", |params| params.not_before = date_time_ymd(2100, 1, 1)).unwrap(),
            "certificate not valid yet",
        ),
    ];
    for (server, class) in servers {
        let port = front(server, bench.origin.address(0)).await;
        let fetched = bench.fetch(&job(&bench, port)).await;
        let (kind, detail) = failure(&fetched);
        assert_eq!(kind, FailureKind::Tls);
        assert!(detail.starts_with(&format!("TLS: {class}")), "{detail} for {class}");
        assert_eq!(fetched.http_status, None);
    }
    assert!(bench.origin.log().is_empty(), "nothing was asked over an unverified connection");

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut plain, _) = listener.accept().await.unwrap();
        plain.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").await.unwrap();
        // kept open until the client leaves
        let _ = plain.read_to_end(&mut Vec::new()).await;
    });
    let plain = bench.fetch(&job(&bench, port)).await;
    let (kind, detail) = failure(&plain);
    assert_eq!(kind, FailureKind::Tls);
    assert!(detail.starts_with("TLS: the server does not speak TLS"), "{detail}");
}

#[tokio::test]
async fn armour_a_handshake_that_never_ends_is_a_timeout_and_one_that_breaks_is_not() {
    let authority = Authority::new("known").unwrap();
    let mut bench = bench(&authority).await;
    bench.config.connect_timeout = Duration::from_millis(300);
    let setup = FetchSetup { hosts: "127.0.0.1 one.test\n".to_owned(), ..FetchSetup::default() };
    bench.fetcher = Fetcher::with_setup(&bench.config, &bench.rules, &setup).unwrap();

    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fetched = bench.fetch(&job(&bench, mute.local_addr().unwrap().port())).await;
    assert_eq!(failure(&fetched), (FailureKind::Timeout, "no connection within 300ms"));

    let bench = self::bench(&authority).await;
    let closing = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = closing.local_addr().unwrap().port();
    tokio::spawn(async move { while closing.accept().await.is_ok() {} });
    let fetched = bench.fetch(&job(&bench, port)).await;
    let (kind, detail) = failure(&fetched);
    assert_eq!(kind, FailureKind::Tls);
    assert!(detail.starts_with("TLS: connection lost in the handshake"), "{detail}");
}

#[tokio::test]
async fn p37_a_redirect_from_https_to_http_is_followed_but_is_no_move() {
    let authority = Authority::new("known").unwrap();
    let bench = bench(&authority).await;
    let port = front(authority.server("one.test", |_| {}).unwrap(), bench.origin.address(0)).await;
    bench.origin.set("/old", Script::redirect(301, bench.origin.url("/feed")));
    let fetched = bench.fetch(&bench.job(&format!("https://one.test:{port}/old"))).await;
    assert_eq!(document(&fetched).entries.len(), 3);
    assert_eq!(fetched.moved_to, None);

    let secure: FeedUrl = format!("https://one.test:{port}/feed").parse().unwrap();
    bench.origin.set("/upgrade", Script::redirect(301, secure.to_string()));
    let fetched = bench.fetch(&bench.job(&bench.origin.url("/upgrade"))).await;
    assert_eq!(fetched.moved_to, Some(secure));
}

type Answer = Result<http::Response<http_body_util::Full<bytes::Bytes>>, std::convert::Infallible>;

/// A server that speaks only HTTP/2 and always returns the same feed.
async fn http2_server(mut config: ServerConfig) -> u16 {
    config.alpn_protocols = vec![b"h2".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(secure) = acceptor.accept(stream).await else { continue };
            let service = hyper::service::service_fn(|request| std::future::ready(answer_http2(&request)));
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(connection.serve_connection(TokioIo::new(secure), service));
        }
    });
    port
}

fn answer_http2(request: &http::Request<hyper::body::Incoming>) -> Answer {
    let feed =
        "<rss version=\"2.0\"><channel><title>Two</title><item><guid>1</guid><title>One</title></item></channel></rss>";
    let mut answer = http::Response::new(http_body_util::Full::new(bytes::Bytes::from_static(feed.as_bytes())));
    answer.headers_mut().insert(http::header::ETAG, http::HeaderValue::from_static("\"two\""));
    if request.headers().get(http::header::IF_NONE_MATCH).is_some_and(|tag| tag == "\"two\"") {
        *answer.body_mut() = http_body_util::Full::default();
        *answer.status_mut() = http::StatusCode::NOT_MODIFIED;
    }
    let long = |bytes: usize| http::HeaderValue::from_bytes(&vec![b'x'; bytes]).unwrap();
    match request.uri().path() {
        "/long" => drop(answer.headers_mut().insert("x-long", long(100_000))),
        "/longer" => drop(answer.headers_mut().insert("x-long", long(180_000))),
        "/longest" => drop(answer.headers_mut().insert("x-long", long(1_000_000))),
        "/many" => (0..3000).for_each(|number| {
            let name: http::HeaderName = format!("x-{number}").parse().unwrap();
            answer.headers_mut().insert(name, long(1));
        }),
        _ => {}
    }
    Ok(answer)
}

#[tokio::test]
async fn http2_is_spoken_where_the_server_offers_it() {
    let authority = Authority::new("known").unwrap();
    let bench = bench(&authority).await;
    let port = http2_server(authority.server("one.test", |_| {}).unwrap()).await;
    let mut two = job(&bench, port);
    let first = bench.poll(&mut two).await;
    assert_eq!(document(&first).title.as_deref(), Some("Two"));
    assert!(not_modified(&bench.poll(&mut two).await));

    for (path, expected) in [
        ("/long", FailureKind::TooLarge),
        ("/longer", FailureKind::TooLarge),
        ("/longest", FailureKind::Malformed),
        ("/many", FailureKind::TooLarge),
    ] {
        let fetched = bench.fetch(&bench.job(&format!("https://one.test:{port}{path}"))).await;
        let (kind, detail) = failure(&fetched);
        assert_eq!(kind, expected, "{path}: {detail}");
    }
}

#[tokio::test]
async fn http2_a_kept_connection_takes_any_number_of_requests() {
    let authority = Authority::new("known").unwrap();
    let bench = bench_with(&authority, |fetch| fetch.address_rate = 0.0).await;
    let port = http2_server(authority.server("one.test", |_| {}).unwrap()).await;
    let mut job = job(&bench, port);
    assert_eq!(document(&bench.poll(&mut job).await).title.as_deref(), Some("Two"));
    // More responses than one response may have frames.
    for number in 0..250 {
        assert!(not_modified(&bench.fetch(&job).await), "request {number}");
    }
}

#[tokio::test]
async fn http2_a_server_that_asks_for_calm_is_throttling() {
    let authority = Authority::new("known").unwrap();
    let bench = bench(&authority).await;
    let mut config = authority.server("one.test", |_| {}).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let mut connection = h2::server::handshake(acceptor.accept(stream).await.unwrap()).await.unwrap();
            let (request, mut stream) = connection.accept().await.unwrap().unwrap();
            match request.uri().path() {
                "/reset" => stream.send_reset(h2::Reason::ENHANCE_YOUR_CALM),
                _ => connection.abrupt_shutdown(h2::Reason::ENHANCE_YOUR_CALM),
            }
            while connection.accept().await.is_some() {}
        }
    });
    for path in ["/goaway", "/reset"] {
        let fetched = bench.fetch(&bench.job(&format!("https://one.test:{port}{path}"))).await;
        assert_eq!(fetched.outcome, common::report::Outcome::Throttled { retry_after: None }, "{path}");
    }
}

#[tokio::test]
async fn armour_http2_a_stream_without_a_head_is_silent_on_a_connection_that_is_not() {
    const IDLE: Duration = Duration::from_secs(1);
    let authority = Authority::new("known").unwrap();
    let bench = bench_with(&authority, |fetch| fetch.idle_timeout = IDLE).await;
    let mut config = authority.server("one.test", |_| {}).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(acceptor.accept(stream).await.unwrap()).await.unwrap();
        let mut pings = connection.ping_pong().unwrap();
        let _request = connection.accept().await.unwrap().unwrap();
        let pinging = async {
            while pings.ping(h2::Ping::opaque()).await.is_ok() {
                tokio::time::sleep(IDLE / 5).await;
            }
        };
        tokio::join!(pinging, async { while connection.accept().await.is_some() {} });
    });
    let fetched = bench.fetch(&job(&bench, port)).await;
    assert_eq!(failure(&fetched), (FailureKind::Timeout, "silence for 1s"));
}
