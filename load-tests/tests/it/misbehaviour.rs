//! The origin's deliberate faults, as seen by a raw client.

use std::time::{Duration, Instant};

use crate::client::{get, parse, send};
use load_tests::{Coding, Cut, Delivery, Feed, Origin, Pace, Script, Tag, bodies};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const SOON: Duration = Duration::from_secs(120);

async fn origin_with(script: Script) -> Origin {
    let origin = Origin::start().await.expect("loopback");
    origin.set("/f", script);
    origin
}

#[tokio::test]
async fn codings_are_negotiated_or_forced_and_the_decoded_body_is_the_feed() {
    let origin = origin_with(Script::feed(Feed::rss()).offer([Coding::Zstd, Coding::Gzip])).await;
    let plain = get(origin.address(0), "/f", &[]).await;
    assert_eq!((plain.header("content-encoding"), plain.header("vary")), (None, Some("Accept-Encoding")));
    let coded = get(origin.address(0), "/f", &["Accept-Encoding: gzip, br, zstd"]).await;
    assert_eq!(coded.header("content-encoding"), Some("zstd"));
    assert_eq!(zstd::stream::decode_all(coded.body.as_slice()).unwrap(), plain.body);
    assert_eq!(origin.log()[1].body_bytes, coded.body.len() as u64);
    let gzip = get(origin.address(0), "/f", &["Accept-Encoding: gzip"]).await;
    assert_eq!(gzip.header("content-encoding"), Some("gzip"));

    origin.set("/f", Script::feed(Feed::rss()).force(Coding::RawDeflate));
    let forced = get(origin.address(0), "/f", &[]).await;
    assert_eq!(forced.header("content-encoding"), Some("deflate"));
    assert_eq!(forced.body, Coding::RawDeflate.encode(&plain.body).unwrap());
}

#[tokio::test]
async fn a_coded_answer_is_made_anew_when_an_item_is_published() {
    let origin = origin_with(Script::feed(Feed::json()).force(Coding::Gzip)).await;
    let first = get(origin.address(0), "/f", &[]).await.body;
    assert_eq!(get(origin.address(0), "/f", &[]).await.body, first);
    origin.publish("/f", 1);
    assert_ne!(get(origin.address(0), "/f", &[]).await.body, first);
}

#[tokio::test]
async fn a_suffixed_tag_is_never_matched_but_the_bare_one_is() {
    let feed = Feed::rss().tag(Tag::Suffix("-gzip"));
    let origin = origin_with(Script::feed(feed).offer([Coding::Gzip])).await;
    let first = get(origin.address(0), "/f", &["Accept-Encoding: gzip"]).await;
    let tag = first.header("etag").unwrap();
    assert!(tag.ends_with("-gzip\""), "{tag}");
    let alone = format!("If-None-Match: {tag}");
    assert_eq!(get(origin.address(0), "/f", &["Accept-Encoding: gzip", &alone]).await.status, 200);
    let both = format!("If-None-Match: {tag}, {}", tag.replace("-gzip", ""));
    assert_eq!(get(origin.address(0), "/f", &["Accept-Encoding: gzip", &both]).await.status, 304);
}

#[tokio::test]
async fn bodies_come_chunked_or_until_close_and_are_whole() {
    let origin = origin_with(Script::body("text/plain", "twelve bytes").deliver(Delivery::Chunked(5))).await;
    assert_eq!(get(origin.address(0), "/f", &[]).await.text(), "5\r\ntwelv\r\n5\r\ne byt\r\n2\r\nes\r\n0\r\n\r\n");
    origin.set("/f", Script::body("text/plain", "twelve bytes").deliver(Delivery::UntilClose));
    let open = parse(&send(origin.address(0), b"GET /f HTTP/1.1\r\nHost: x\r\n\r\n").await);
    assert_eq!((open.text().as_str(), open.header("content-length")), ("twelve bytes", None));
    assert!(origin.log().iter().all(|record| record.is_complete() && record.body_bytes == 12));
}

#[tokio::test]
async fn endless_and_silent_answers_last_until_the_client_leaves() {
    let origin = origin_with(Script::body("application/rss+xml", bodies::html_page()).deliver(Delivery::Endless)).await;
    let mut stream = TcpStream::connect(origin.address(0)).await.unwrap();
    stream.write_all(b"GET /f HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut received = vec![0; 300_000];
    stream.read_exact(&mut received).await.unwrap();
    drop(stream);
    let record = origin.wait_for("/f", 1, SOON).await.remove(0);
    assert_eq!((record.status, record.cut), (Some(200), Some(Cut::ByPeer)));
    assert!(record.body_bytes > 200_000);
}

#[tokio::test]
async fn slow_heads_and_dripped_bodies_take_their_time() {
    let pause = Duration::from_millis(1);
    for delivery in [Delivery::Drip(pause), Delivery::SlowHead(pause)] {
        let origin = origin_with(Script::body("text/plain", "x".repeat(60)).deliver(delivery)).await;
        let before = Instant::now();
        let answer = get(origin.address(0), "/f", &[]).await;
        assert!(before.elapsed() >= pause * 60, "a byte at a time");
        assert_eq!((answer.status, answer.body.len()), (200, 60));
    }
    let origin = origin_with(Script::status(204).delay(Duration::from_millis(30))).await;
    let before = Instant::now();
    assert_eq!(get(origin.address(0), "/f", &[]).await.status, 204);
    assert!(before.elapsed() >= Duration::from_millis(30));
}

#[tokio::test]
async fn floods_of_headers_and_of_interim_answers_precede_a_good_one() {
    let origin = origin_with(Script::feed(Feed::rss()).deliver(Delivery::HeaderFlood(500))).await;
    let flood = get(origin.address(0), "/f", &[]).await;
    assert_eq!(flood.head.matches("X-Flood-").count(), 500);
    assert!(flood.head.len() > 45_000);
    origin.set("/f", Script::feed(Feed::rss()).deliver(Delivery::InterimFlood(50)));
    let received = send(origin.address(0), b"GET /f HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    let text = String::from_utf8_lossy(&received);
    assert_eq!((text.matches("HTTP/1.1 103").count(), text.matches("HTTP/1.1 200").count()), (50, 1));
}

#[tokio::test]
async fn connections_close_without_an_answer_or_with_bytes_that_are_none() {
    let origin = origin_with(Script::status(200).deliver(Delivery::Close)).await;
    let request = b"GET /f HTTP/1.1\r\nHost: x\r\n\r\n";
    assert_eq!(send(origin.address(0), request).await, b"");
    assert_eq!((origin.log()[0].status, origin.log()[0].cut), (None, Some(Cut::ByUs)));
    origin.set("/f", Script::raw(bodies::garbage(100)));
    assert_eq!(send(origin.address(0), request).await, bodies::garbage(100));
    assert_eq!(origin.log()[1].status, None);
}

#[tokio::test]
async fn bad_documents_are_served_as_they_are() {
    let origin = Origin::start().await.unwrap();
    let page = bodies::html_page();
    for (path, body) in [("/nested", bodies::nested(900)), ("/page", page), ("/empty", Vec::new())] {
        origin.set(path, Script::body("application/rss+xml", body.clone()));
        let answer = get(origin.address(0), path, &[]).await;
        assert_eq!((answer.status, answer.body), (200, body));
        assert_eq!(answer.head.matches("Content-Type").count(), 1);
    }
    origin.set("/bomb", Script::bomb(Coding::Br, 64).unwrap());
    let bomb = get(origin.address(0), "/bomb", &[]).await;
    assert_eq!(bomb.header("content-encoding"), Some("br"));
    assert!(bomb.body.len() < 64 * 1024);
}

#[tokio::test]
async fn headers_given_replace_the_servers_own_and_can_carry_dates() {
    let script = Script::feed(Feed::atom()).header("Content-Type", "text/html").header("content-length", "7");
    let origin = origin_with(script.header("Expires", "{date+3600}").header("X-Braces", "{other}")).await;
    let answer = get(origin.address(0), "/f", &[]).await;
    let (types, lengths) = (answer.head.matches("ontent-").count(), answer.header("content-length"));
    assert_eq!((types, lengths, answer.header("content-type")), (2, Some("7"), Some("text/html")));
    let date = |name: &str| httpdate::parse_http_date(answer.header(name).unwrap()).unwrap();
    assert_eq!(date("expires").duration_since(date("date")).unwrap(), Duration::from_secs(3600));
    assert_eq!(answer.header("x-braces"), Some("{other}"));
}

#[tokio::test]
async fn head_gets_the_length_and_no_body() {
    let origin = origin_with(Script::feed(Feed::rss())).await;
    let full = get(origin.address(0), "/f", &[]).await;
    let head = parse(&send(origin.address(0), b"HEAD /f HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await);
    assert_eq!(head.header("content-length"), full.header("content-length"));
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[tokio::test]
async fn items_appear_by_themselves_as_the_pace_says() {
    let origin = Origin::start().await.unwrap();
    let past: Vec<Duration> = (1..=5).map(Duration::from_nanos).collect();
    origin.set("/at", Script::feed(Feed::rss().initial(0).pace(Pace::At(past.into()))));
    origin.set("/every", Script::feed(Feed::rss().initial(1).pace(Pace::Every(Duration::from_millis(1)))));
    let random = Pace::Random { mean: Duration::from_micros(1), seed: 7 };
    origin.set("/random", Script::feed(Feed::rss().initial(0).pace(random)));
    while origin.truth("/every").len() < 6 || origin.truth("/random").len() < 5 {
        tokio::task::yield_now().await;
    }
    let answer = get(origin.address(0), "/at", &[]).await;
    assert_eq!((origin.truth("/at").len(), answer.text().matches("<item>").count()), (5, 5));
}

#[tokio::test]
async fn a_new_script_keeps_the_items_and_a_step_can_last_for_a_time() {
    let origin = origin_with(Script::feed(Feed::rss())).await;
    origin.publish("/f", 1);
    let before = origin.truth("/f");
    let down = Script::status(500).until(origin.elapsed() + Duration::from_secs(3600));
    origin.set("/f", down.then(Script::feed(Feed::rss())));
    assert_eq!(get(origin.address(0), "/f", &[]).await.status, 500);
    origin.set("/f", Script::status(500).until(Duration::ZERO).then(Script::feed(Feed::rss())));
    assert_eq!(get(origin.address(0), "/f", &[]).await.status, 200);
    assert_eq!(origin.truth("/f"), before);
}

#[tokio::test]
async fn a_host_that_is_down_refuses_cuts_what_is_in_flight_and_comes_back_on_its_port() {
    let origin = origin_with(Script::silent()).await;
    let address = origin.address(0);
    let asking = tokio::spawn(async move { send(address, b"GET /f HTTP/1.1\r\nHost: x\r\n\r\n").await });
    origin.wait_for_start("/f", 1, SOON).await;
    origin.take_down(0).await;
    assert_eq!(asking.await.unwrap(), b"");
    assert_eq!(origin.wait_for("/f", 1, SOON).await[0].cut, Some(Cut::ByUs));
    assert!(TcpStream::connect(address).await.is_err());
    origin.bring_up(0).await.unwrap();
    origin.set("/f", Script::status(410));
    assert_eq!(get(address, "/f", &[]).await.status, 410);
}

#[tokio::test]
async fn dropping_the_origin_closes_its_connections() {
    let origin = origin_with(Script::silent()).await;
    let address = origin.address(0);
    let asking = tokio::spawn(async move { send(address, b"GET /f HTTP/1.1\r\nHost: x\r\n\r\n").await });
    origin.wait_for_start("/f", 1, SOON).await;
    drop(origin);
    assert_eq!(asking.await.unwrap(), b"");
}
