//! Hostile servers behind TLS: what they do in HTTP/2's frames and in the handshake ends within the deadlines, as a failure
//! with a name.

use std::time::{Duration, Instant};

use common::outcome::FailureKind;
use common::report::Outcome;
use load_tests::hostile_tls::{Attack, Attacker, calming, floods, long_chain};
use load_tests::tls::{Authority, Front};
use load_tests::{Feed, Script};
use worker::fetch::{Fetched, Fetcher};
use worker::setup::FetchSetup;

use super::bench::{Bench, document, failure};

/// How long a fetch may take here.
const PATIENCE: Duration = Duration::from_secs(3);
/// What a loaded machine adds.
const SLACK: Duration = Duration::from_secs(20);

async fn bench(authority: &Authority) -> Bench {
    let mut bench = Bench::with(|fetch| {
        (fetch.timeout, fetch.connect_timeout, fetch.idle_timeout) = (PATIENCE, PATIENCE, PATIENCE);
    })
    .await;
    let (extra_roots, hosts) = (vec![authority.certificate()], "127.0.0.1 one.test\n".to_owned());
    let setup = FetchSetup { extra_roots, hosts, ..FetchSetup::default() };
    bench.fetcher = Fetcher::with_setup(&bench.config, &bench.rules, &setup).unwrap();
    bench
}

<<<<<<< HEAD
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;
/// `:status: 200` and `:status: 103`, as HPACK writes them.
const OK: &[u8] = &[0x88];
const EARLY_HINTS: &[u8] = &[0x08, 3, b'1', b'0', b'3'];

/// What a server sends once, and then again and again.
fn kinds() -> Vec<(&'static str, Vec<u8>, Vec<u8>)> {
    let ok = frame(HEADERS, END_HEADERS, 1, OK);
    let field = [&[0x00, 1, b'x', 100][..], &[b'y'; 100]].concat();
    let many_fields = field.repeat(100);
    vec![
        ("resets", Vec::new(), frame(RST_STREAM, 0, 1, &[0, 0, 0, 8])),
        ("resets of what nobody opened", Vec::new(), frame(RST_STREAM, 0, 9, &[0, 0, 0, 8])),
        ("continuations without end", frame(HEADERS, 0, 1, OK), frame(CONTINUATION, 0, 1, &[0x00])),
        ("large continuations without end", frame(HEADERS, 0, 1, OK), frame(CONTINUATION, 0, 1, &many_fields)),
        ("empty data without end", ok.clone(), frame(DATA, 0, 1, &[])),
        ("data byte by byte", ok.clone(), frame(DATA, 0, 1, b"x")),
        ("padding without data", ok.clone(), frame(DATA, 8, 1, &[200; 201])),
        ("settings without end", Vec::new(), frame(SETTINGS, 0, 0, &[])),
        ("tiny windows", Vec::new(), frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1])),
        ("tiny window updates", Vec::new(), frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])),
        ("pings without end", Vec::new(), frame(PING, 0, 0, &[7; 8])),
        ("interim answers without end", Vec::new(), frame(HEADERS, END_HEADERS, 1, EARLY_HINTS)),
        ("silence", Vec::new(), Vec::new()),
        ("frames larger than allowed", Vec::new(), frame(DATA, 0, 1, &[0; 20_000])),
        ("no frames at all", b"HTTP/1.1 200 OK\r\n\r\n".repeat(10), Vec::new()),
    ]
}

/// Speaks HTTP/2 of this kind to every client; returns the port.
async fn hostile(mut config: ServerConfig, once: Vec<u8>, again: Vec<u8>) -> u16 {
    config.alpn_protocols = vec![b"h2".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(stream).await {
                tokio::spawn(play(stream, once.clone(), again.clone()));
            }
        }
    });
    port
}

async fn play(stream: TlsStream<TcpStream>, once: Vec<u8>, again: Vec<u8>) -> std::io::Result<()> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    // The client's preface, settings and request.
    let mut buffer = [0; 4096];
    reader.read_exact(&mut buffer[..24]).await?;
    writer.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    // Its length is the client's business.
    let _settings_and_request = reader.read(&mut buffer).await?;
    tokio::spawn(async move { while reader.read(&mut buffer).await.is_ok_and(|read| read > 0) {} });
    writer.write_all(&once).await?;
    writer.flush().await?;
    let burst = again.repeat(4096 / again.len().max(1) + 1);
    loop {
        match again.is_empty() {
            true => tokio::time::sleep(PATIENCE).await,
            false => writer.write_all(&burst).await?,
        }
    }
}

=======
>>>>>>> hard
fn is_named(fetched: &Fetched) -> bool {
    match &fetched.outcome {
        Outcome::Failed { failure, .. } => matches!(
            failure,
            FailureKind::Timeout
                | FailureKind::Truncated
                | FailureKind::Malformed
                | FailureKind::TooLarge
                | FailureKind::Tls
        ),
        _ => false,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn armour_hostile_http2_ends_within_the_deadline_as_a_failure_with_a_name() {
    let authority = Authority::new("known").unwrap();
    let bench = bench(&authority).await;
    for (kind, frames) in floods() {
        let is_endless = !frames.again.is_empty();
        let attack = Attack::frames(authority.server("one.test", |_| {}).unwrap(), frames);
        let attacker = Attacker::start("127.0.0.1:0".parse().unwrap(), attack).await.unwrap();
        let port = attacker.address().port();
        let begin = Instant::now();
        let fetched = bench.fetch(&bench.job(&format!("https://one.test:{port}/feed"))).await;
        println!("{kind}: {:?} after {:?}", fetched.outcome, begin.elapsed());
        assert!(is_named(&fetched), "{kind}: {fetched:?}");
        let waited = failure(&fetched).0 == FailureKind::Timeout;
        assert!(!(is_endless && waited), "{kind}: was read until the deadline");
        assert!(begin.elapsed() < PATIENCE + SLACK, "{kind}: {:?}", begin.elapsed());
        assert!(fetched.wire_bytes <= bench.config.max_wire_bytes as u64 + 20_000, "{kind}: {}", fetched.wire_bytes);
    }
    let good = bench.fetch(&bench.feed("/good", Script::feed(Feed::rss()))).await;
    assert_eq!(document(&good).entries.len(), 3, "nobody else notices");
}

#[tokio::test]
async fn http2_a_server_that_asks_for_calm_and_says_nothing_more_is_throttling() {
    let authority = Authority::new("known").unwrap();
    let bench = bench(&authority).await;
    for (kind, frames) in calming() {
        let attack = Attack::frames(authority.server("one.test", |_| {}).unwrap(), frames);
        let attacker = Attacker::start("127.0.0.1:0".parse().unwrap(), attack).await.unwrap();
        let fetched = bench.fetch(&bench.job(&format!("https://one.test:{}/feed", attacker.address().port()))).await;
        assert_eq!(fetched.outcome, Outcome::Throttled { retry_after: None }, "{kind}");
    }
}

#[tokio::test]
async fn armour_a_handshake_byte_by_byte_ends_at_the_deadline() {
    let authority = Authority::new("known").unwrap();
    let bench = bench(&authority).await;
    let attack = Attack::SlowHandshake(Duration::from_millis(100));
    let attacker = Attacker::start("127.0.0.1:0".parse().unwrap(), attack).await.unwrap();
    let port = attacker.address().port();
    let begin = Instant::now();
    let fetched = bench.fetch(&bench.job(&format!("https://one.test:{port}/feed"))).await;
    let (kind, detail) = failure(&fetched);
    assert!(matches!(kind, FailureKind::Timeout | FailureKind::Tls), "{kind} {detail}");
    assert!(begin.elapsed() < PATIENCE + SLACK, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn armour_certificates_of_a_hundred_kilobytes_are_refused() {
    let authority = Authority::new("known").unwrap();
    let bench = bench(&authority).await;
    let server = long_chain(&authority).unwrap().server("one.test", |_| {}).unwrap();
    let port = Front::start(server, bench.origin.address(0)).await.unwrap().port;
    let fetched = bench.fetch(&bench.job(&format!("https://one.test:{port}/feed"))).await;
    assert_eq!(failure(&fetched).0, FailureKind::Tls, "{fetched:?}");
}
