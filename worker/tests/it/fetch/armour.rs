//! Deadlines, limits, broken answers: each breach is an outcome with its own name.

use std::time::{Duration, Instant};

use common::job::FetchJob;
use common::outcome::FailureKind;
use common::report::Outcome;
use common::testing::Stalls;
use load_tests::{Coding, Delivery, Feed, Script, bodies};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;

use super::bench::{Bench, document, failure};

const SHORT: Duration = Duration::from_secs(1);

/// Returns a good feed of about this number of bytes.
fn feed_of(bytes: usize) -> Feed {
    Feed::rss().initial(10).padding(bytes / 10)
}

async fn kind_of(bench: &Bench, script: Script) -> FailureKind {
    let fetched = bench.fetch(&bench.feed("/feed", script)).await;
    failure(&fetched).0
}

#[tokio::test]
async fn armour_nobody_there_is_a_failure_to_connect() {
    let bench = Bench::start().await;
    let job = bench.feed("/feed", Script::feed(Feed::rss()));
    bench.origin.take_down(0).await;
    let fetched = bench.fetch(&job).await;
    assert_eq!(failure(&fetched).0, FailureKind::Connect);
    assert_eq!(fetched.http_status, None);
}

#[tokio::test]
async fn armour_a_connection_that_does_not_come_about_times_out() {
    let bench = Bench::with(|fetch| fetch.connect_timeout = SHORT).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let full = socket.listen(0).unwrap();
    let address = full.local_addr().unwrap();
    // the kernel queues a connection or two that are not accepted, and leaves further ones unanswered
    let fill = || tokio::time::timeout(SHORT, TcpStream::connect(address));
    let mut queued = Vec::new();
    while let Ok(connected) = fill().await {
        queued.push(connected.unwrap());
    }
    let fetched = bench.fetch(&bench.job(&format!("http://{address}/"))).await;
    assert_eq!(failure(&fetched), (FailureKind::Timeout, "no connection within 1s"));
}

#[tokio::test]
async fn armour_silence_ends_at_the_idle_deadline() {
    let bench = Bench::with(|fetch| fetch.idle_timeout = SHORT * 3).await;
    let (begin, stalls) = (Instant::now(), Stalls::watched());
    let fetched = bench.fetch(&bench.feed("/feed", Script::silent())).await;
    assert_eq!(failure(&fetched), (FailureKind::Timeout, "silence for 3s"));
    assert!(begin.elapsed() >= SHORT * 3 && fetched.duration >= SHORT * 3);
    let took = fetched.duration.saturating_sub(stalls.so_far());
    assert!(took < SHORT * 6, "the request did not start the time twice: {took:?}");
    let bench = Bench::with(|fetch| fetch.idle_timeout = SHORT).await;

    let drip = Script::feed(Feed::rss()).deliver(Delivery::Drip(SHORT * 2));
    let fetched = bench.fetch(&bench.feed("/feed", drip)).await;
    assert_eq!(failure(&fetched), (FailureKind::Timeout, "silence for 1s"));
    assert_eq!(fetched.http_status, Some(200));
}

#[tokio::test]
async fn armour_the_idle_deadline_is_not_that_of_the_whole() {
    let bench = Bench::with(|fetch| fetch.idle_timeout = SHORT).await;
    let slow = Script::feed(Feed::rss().initial(1)).deliver(Delivery::SlowHead(Duration::from_millis(10)));
    let fetched = bench.fetch(&bench.feed("/feed", slow)).await;
    assert_eq!(document(&fetched).entries.len(), 1);
    assert!(fetched.duration > SHORT, "slow, but never silent: {:?}", fetched.duration);
}

#[tokio::test]
async fn armour_a_trickle_ends_at_the_deadline_of_the_whole() {
    let bench = Bench::with(|fetch| fetch.timeout = Duration::from_millis(500)).await;
    let pause = Duration::from_millis(20);
    for delivery in [Delivery::Drip(pause), Delivery::SlowHead(pause)] {
        let fetched = bench.fetch(&bench.feed("/feed", Script::feed(Feed::rss()).deliver(delivery))).await;
        assert_eq!(failure(&fetched), (FailureKind::Timeout, "no complete answer within 500ms"));
    }
}

#[tokio::test]
async fn armour_too_many_bytes_on_the_wire_are_an_error_never_a_cut_feed() {
    let bench = Bench::with(|fetch| fetch.max_wire_bytes = 50_000).await;
    for delivery in [Delivery::Whole, Delivery::Chunked(1000), Delivery::UntilClose, Delivery::Endless] {
        let script = Script::feed(feed_of(60_000)).deliver(delivery);
        assert_eq!(kind_of(&bench, script).await, FailureKind::TooLarge);
    }
    let fits = bench.fetch(&bench.feed("/fits", Script::feed(feed_of(40_000)))).await;
    assert_eq!(document(&fits).entries.len(), 10);
}

#[tokio::test]
async fn armour_an_announced_length_beyond_the_limit_is_not_read_at_all() {
    let bench = Bench::with(|fetch| fetch.max_wire_bytes = 50_000).await;
    let fetched = bench.fetch(&bench.feed("/feed", Script::feed(feed_of(5_000_000)))).await;
    assert_eq!((failure(&fetched).0, fetched.wire_bytes), (FailureKind::TooLarge, 0));
}

#[tokio::test]
async fn armour_a_decompression_bomb_is_too_large() {
    let bench = Bench::start().await;
    for coding in [Coding::Gzip, Coding::Br, Coding::Zstd, Coding::Deflate] {
        assert_eq!(kind_of(&bench, Script::bomb(coding, 8).unwrap()).await, FailureKind::TooLarge, "{coding:?}");
    }
    let small = Bench::with(|fetch| fetch.max_body_bytes = 20_000).await;
    assert_eq!(kind_of(&small, Script::feed(feed_of(60_000)).force(Coding::Gzip)).await, FailureKind::TooLarge);
    assert_eq!(kind_of(&small, Script::feed(feed_of(60_000))).await, FailureKind::TooLarge, "uncoded");
}

#[tokio::test]
async fn armour_header_bytes_and_count_are_limited() {
    let bench = Bench::start().await;
    let flood = |lines| Script::feed(Feed::rss()).deliver(Delivery::HeaderFlood(lines));
    for lines in [250, 1000, 20_000] {
        let fetched = bench.fetch(&bench.feed("/feed", flood(lines))).await;
        assert_eq!(failure(&fetched), (FailureKind::TooLarge, "the answer's header is too large"), "{lines} lines");
    }
    assert_eq!(document(&bench.fetch(&bench.feed("/feed", flood(100))).await).entries.len(), 3);
    let long = Script::feed(Feed::rss()).header("X-Long", vec![b'x'; 100_000]);
    assert_eq!(kind_of(&bench, long).await, FailureKind::TooLarge);
}

#[tokio::test]
async fn armour_a_flood_of_interim_answers_ends() {
    let bench = Bench::start().await;
    let flood = |answers| Script::feed(Feed::rss()).deliver(Delivery::InterimFlood(answers));
    let fetched = bench.fetch(&bench.feed("/feed", flood(100_000))).await;
    assert_eq!(failure(&fetched), (FailureKind::TooLarge, "more than 16 interim answers"));
    assert_eq!(document(&bench.fetch(&bench.feed("/few", flood(3))).await).entries.len(), 3);
}

#[tokio::test]
async fn armour_fewer_bytes_than_announced_are_truncated() {
    let bench = Bench::start().await;
    for delivery in [Delivery::Truncated(100), Delivery::CutChunks(100), Delivery::Close] {
        let script = Script::feed(Feed::rss()).deliver(delivery.clone());
        assert_eq!(kind_of(&bench, script).await, FailureKind::Truncated, "{delivery:?}");
    }
    let whole = Coding::Gzip.encode(&bodies::garbage(5000)).unwrap();
    let cut = Script::body("application/rss+xml", whole[..3000].to_vec()).header("Content-Encoding", "gzip");
    assert_eq!(kind_of(&bench, cut).await, FailureKind::Truncated, "a coding that ends early");
}

#[tokio::test]
async fn armour_what_is_no_http_is_malformed() {
    let bench = Bench::start().await;
    let answers: [&[u8]; 4] = [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 two hundred\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnot a size\r\n",
    ];
    for answer in answers {
        let text = String::from_utf8_lossy(answer);
        assert_eq!(kind_of(&bench, Script::raw(answer)).await, FailureKind::Malformed, "{text}");
    }
    assert_eq!(kind_of(&bench, Script::raw(Vec::new())).await, FailureKind::Truncated);
}

#[tokio::test]
async fn habits_of_old_servers_are_understood() {
    let bench = Bench::start().await;
    let feed = "<rss version=\"2.0\"><channel><title>Old</title><item><guid>1</guid></item></channel></rss>";
    let heads = [
        "HTTP/1.0 200 OK\r\n",
        "HTTP/1.1 200\r\nContent-Length : {}\r\n",
        "HTTP/1.1 200 OK\r\nNo Colon Here\r\nX-Folded: a\r\n b\r\nContent-Length: {}\r\n",
    ];
    for head in heads {
        let answer = format!("{}\r\n{feed}", head.replace("{}", &feed.len().to_string()));
        let fetched = bench.fetch(&bench.feed("/feed", Script::raw(answer))).await;
        assert_eq!(document(&fetched).entries.len(), 1, "{head}");
    }
}

#[tokio::test]
async fn a_folded_validator_is_sent_back_on_one_line() {
    let bench = Bench::start().await;
    let feed = "<rss version=\"2.0\"><channel><title>Old</title><item><guid>1</guid></item></channel></rss>";
    let head = format!("HTTP/1.1 200 OK\r\nETag: \"a\r\n b\"\r\nContent-Length: {}\r\n", feed.len());
    let mut job = bench.feed("/feed", Script::raw(format!("{head}\r\n{feed}")));
    for _ in 0..2 {
        bench.poll(&mut job).await;
    }
    // RFC 9112, section 5.2.
    assert_eq!(bench.origin.requests("/feed")[1].header("if-none-match").as_deref(), Some("\"a b\""));
}

#[tokio::test]
async fn a_coding_that_is_none_hides_no_feed() {
    let bench = Bench::start().await;
    for coding in ["utf-8", "none", "binary", "8bit", "iso-8859-1", "aws-chunked", "compress", "identity, utf-8"] {
        let script = Script::feed(Feed::rss()).header("Content-Encoding", coding);
        assert_eq!(document(&bench.fetch(&bench.feed("/feed", script)).await).entries.len(), 3, "{coding}");
    }
    let snow = Script::body("application/rss+xml", "x").header("Content-Encoding", "x-snow");
    let fetched = bench.fetch(&bench.feed("/feed", snow)).await;
    assert_eq!(failure(&fetched), (FailureKind::Malformed, "the content coding 'x-snow' is unknown"));
}

#[tokio::test]
async fn armour_codings_that_cannot_be_undone_are_malformed() {
    let bench = Bench::start().await;
    for coding in ["gzip", "br", "zstd", "gzip, gzip, gzip, gzip"] {
        let script = Script::feed(Feed::rss()).header("Content-Encoding", coding);
        assert_eq!(kind_of(&bench, script).await, FailureKind::Malformed, "{coding}");
    }
}

#[tokio::test]
async fn armour_bodies_that_are_no_feeds_are_named() {
    let bench = Bench::start().await;
    for body in [bodies::html_page(), bodies::garbage(2000), Vec::new()] {
        assert_eq!(kind_of(&bench, Script::body("application/rss+xml", body)).await, FailureKind::NotAFeed);
    }
    let nested = bench.fetch(&bench.feed("/nested", Script::body("text/xml", bodies::nested(900)))).await;
    assert_eq!(failure(&nested).0, FailureKind::TooLarge, "and nothing aborted");
}

/// Returns a server whose body is so large that it must have been read, at least in part, when `sent` is signalled;
/// then it stops until `end`, and hangs up.
async fn hog(sent: oneshot::Sender<()>, end: oneshot::Receiver<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 1000];
        assert!(stream.read(&mut request).await.unwrap() > 0);
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 40000000\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        // more than the kernel's buffers of both sides take
        stream.write_all(&vec![b' '; 30_000_000]).await.unwrap();
        sent.send(()).unwrap();
        end.await.unwrap();
    });
    format!("http://{address}/")
}

#[tokio::test]
async fn armour_large_bodies_wait_for_a_place_and_small_ones_do_not() {
    let bench = Bench::with(|fetch| {
        fetch.max_wire_bytes = 50_000_000;
        fetch.large_body_bytes = 10_000;
        fetch.large_bodies = 1;
    })
    .await;
    let large = bench.feed("/large", Script::feed(feed_of(60_000)));
    let mut small = bench.feed("/small", Script::feed(Feed::rss()));
    let (sent, place_taken) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    let hog = bench.job(&hog(sent, ended).await);

    let hogging = async { assert_eq!(failure(&bench.fetch(&hog).await).0, FailureKind::Truncated) };
    let others = async {
        place_taken.await.unwrap();
        assert_eq!(document(&bench.poll(&mut small).await).entries.len(), 3);
        let mut waiting = Box::pin(bench.fetch(&large));
        // All of it has left the server when it could end, if it did not wait.
        tokio::select! {
            fetched = &mut waiting => panic!("there was no place: {fetched:?}"),
            _ = bench.requests("/large", 1) => {}
        }
        assert!(tokio::time::timeout(SHORT, &mut waiting).await.is_err(), "there is no place");
        end.send(()).unwrap();
        assert_eq!(document(&waiting.await).entries.len(), 10);
    };
    tokio::join!(hogging, others);
}

#[tokio::test]
async fn armour_without_a_place_a_body_is_read_later_without_its_redirects() {
    let bench = Bench::with(|fetch| {
        fetch.max_wire_bytes = 50_000_000;
        fetch.large_body_bytes = 10_000;
        fetch.large_bodies = 1;
        fetch.timeout = std::time::Duration::from_secs(6);
    })
    .await;
    bench.origin.set("/large", Script::feed(feed_of(60_000)));
    let mut large = bench.feed("/old", Script::redirect(302, "/large"));
    let (sent, place_taken) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    let hog = bench.job(&hog(sent, ended).await);
    let others = async {
        place_taken.await.unwrap();
        let fetched = bench.poll(&mut large).await;
        assert!(matches!(fetched.outcome, Outcome::Deferred { .. }), "{fetched:?}");
        end.send(()).unwrap();
    };
    tokio::join!(bench.fetch(&hog), others);
    assert_eq!(document(&bench.poll(&mut large).await).entries.len(), 10);
    bench.requests("/old", 1).await;
}

#[tokio::test]
async fn armour_ports_are_refused_unless_opened() {
    let bench = Bench::with(|fetch| fetch.allow_ports = vec!["80".to_owned(), "443".to_owned()]).await;
    let fetched = bench.fetch(&bench.feed("/feed", Script::feed(Feed::rss()))).await;
    let (kind, detail) = failure(&fetched);
    assert_eq!(kind, FailureKind::RefusedAddress);
    assert!(detail.contains("fetch.allow_ports"), "{detail}");
    assert!(bench.origin.log().is_empty());
}

#[tokio::test]
async fn armour_private_addresses_are_refused_by_default() {
    let bench = Bench::with(|fetch| fetch.allow_networks.clear()).await;
    let by_address = bench.feed("/feed", Script::feed(Feed::rss()));
    let by_name = bench.job(&format!("http://one.test:{}/feed", bench.origin.address(0).port()));
    let localhost = bench.job(&format!("http://localhost:{}/feed", bench.origin.address(0).port()));
    for job in [by_address, by_name, localhost] {
        let fetched = bench.fetch(&job).await;
        let (kind, detail) = failure(&fetched);
        assert_eq!(kind, FailureKind::RefusedAddress);
        assert!(detail.contains("fetch.allow_networks"), "{detail}");
        assert!(!matches!(fetched.outcome, Outcome::Modified(_)));
    }
    assert!(bench.origin.log().is_empty());
}

/// Returns whether one of the next polls uses the connection of the poll before it. A connection that is not kept counts until it has
/// closed.
async fn keeps_a_connection(bench: &Bench, job: &mut FetchJob, polls: usize) -> bool {
    let path = job.url.as_url().path().to_owned();
    for _ in 0..polls {
        bench.poll(job).await;
        let requests: Vec<_> = bench.origin.log().into_iter().filter(|record| *record.path == *path).collect();
        if let [.., before, last] = &requests[..]
            && before.connection == last.connection
        {
            return true;
        }
    }
    false
}

#[tokio::test]
async fn armour_idle_connections_are_bounded_by_number() {
    for (most, kept) in [(1, false), (2, true)] {
        let bench = Bench::with(|fetch| fetch.idle_connections = most).await;
        let [mut first, mut second] = [0, 1].map(|host| {
            let path = format!("/{host}");
            bench.origin.set(&path, Script::feed(Feed::rss()));
            bench.job(&bench.origin.url_on(host, &path))
        });
        assert!(keeps_a_connection(&bench, &mut first, 50).await, "the first connection is kept");
        let polls = if kept { 50 } else { 4 };
        assert_eq!(keeps_a_connection(&bench, &mut second, polls).await, kept, "the second one of {most}");
    }
}
