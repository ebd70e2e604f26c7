//! The origin's responses and records, as seen by a raw client.

use std::time::Duration;

use crate::client::{get, parse, send};
use load_tests::{Conditions, Cut, Delivery, Feed, Gate, Origin, Script, Stamp, Tag, loopback};

const SOON: Duration = Duration::from_secs(120);

#[tokio::test]
async fn each_format_shows_every_published_item_newest_first() {
    let origin = Origin::start().await.unwrap();
    for (path, feed) in [("/rss", Feed::rss()), ("/atom", Feed::atom()), ("/json", Feed::json())] {
        origin.set(path, Script::feed(feed.shown(2)));
        origin.publish(path, 1);
        let truth = origin.truth(path);
        assert_eq!(truth.len(), 4);
        let text = get(origin.address(0), path, &[]).await.text();
        let newest = text.find(&truth[3].id).expect("the newest item");
        assert!(newest < text.find(&truth[2].id).expect("the second newest"));
        assert!(text.contains(&truth[3].link) && text.contains(&truth[3].title));
        assert!(!text.contains(&truth[1].id), "only two are shown");
        assert_eq!(origin.requests(path)[0].items, Some(2..4));
    }
}

#[tokio::test]
async fn validators_lead_to_304_until_something_is_published_or_touched() {
    let origin = Origin::start().await.unwrap();
    origin.set("/f", Script::feed(Feed::rss()).header("Cache-Control", "max-age=60"));
    let first = get(origin.address(0), "/f", &[]).await;
    let condition = format!("If-None-Match: {}", first.header("etag").unwrap());
    let since = format!("If-Modified-Since: {}", first.header("last-modified").unwrap());

    for conditions in [vec![condition.as_str()], vec![since.as_str()], vec![condition.as_str(), since.as_str()]] {
        let same = get(origin.address(0), "/f", &conditions).await;
        assert_eq!((same.status, same.body.len()), (304, 0));
        assert_eq!(same.header("etag"), first.header("etag"));
        assert_eq!(same.header("cache-control"), Some("max-age=60"));
        assert_eq!(same.header("content-length"), None);
    }
    origin.touch("/f");
    let touched = get(origin.address(0), "/f", &[&condition, &since]).await;
    assert_eq!((touched.status, &touched.body), (200, &first.body));
    assert_ne!(touched.header("last-modified"), first.header("last-modified"));
    origin.publish("/f", 1);
    let changed = get(origin.address(0), "/f", &[&since]).await;
    assert_eq!(changed.status, 200);
    assert_ne!(changed.body, first.body);
}

#[tokio::test]
async fn tags_and_dates_that_are_not_equal_byte_for_byte_do_not_match() {
    let origin = Origin::start().await.unwrap();
    origin.set("/f", Script::feed(Feed::rss().tag(Tag::Weak)));
    let first = get(origin.address(0), "/f", &[]).await;
    let tag = first.header("etag").unwrap();
    let strong = format!("If-None-Match: {}", tag.trim_start_matches("W/"));
    assert_eq!(get(origin.address(0), "/f", &[&strong]).await.status, 200);
    let list = format!("If-None-Match: \"other\", {tag}");
    assert_eq!(get(origin.address(0), "/f", &[&list]).await.status, 304);
    let later = "If-Modified-Since: Fri, 31 Dec 2100 23:59:59 GMT";
    assert_eq!(get(origin.address(0), "/f", &[later]).await.status, 200);
    assert_eq!(get(origin.address(0), "/f", &["If-None-Match: *"]).await.status, 304);
    let date = format!("If-Modified-Since: {}", first.header("last-modified").unwrap());
    assert_eq!(get(origin.address(0), "/f", &["If-None-Match: \"other\"", &date]).await.status, 200);
    // If both are sent the tag decides, unless the server requires both to match.
    let tag = format!("If-None-Match: {tag}");
    assert_eq!(get(origin.address(0), "/f", &[&tag, later]).await.status, 304);
    origin.set("/f", Script::feed(Feed::rss().tag(Tag::Weak).conditions(Conditions::All)));
    assert_eq!(get(origin.address(0), "/f", &[&tag, later]).await.status, 200);
    origin.set("/f", Script::feed(Feed::rss().tag(Tag::Weak).conditions(Conditions::Ignored)));
    assert_eq!(get(origin.address(0), "/f", &[&tag]).await.status, 200);
}

#[tokio::test]
async fn every_change_moves_the_date_even_within_one_second() {
    let origin = Origin::start().await.unwrap();
    origin.set("/f", Script::feed(Feed::rss()));
    let mut dates = std::collections::BTreeSet::new();
    for _ in 0..4 {
        origin.publish("/f", 1);
        let answer = get(origin.address(0), "/f", &[]).await;
        dates.insert(answer.header("last-modified").unwrap().to_owned());
    }
    assert_eq!(dates.len(), 4);
}

#[tokio::test]
async fn odd_validators_are_sent_and_compared_as_they_were_given() {
    let origin = Origin::start().await.unwrap();
    let feed = Feed::rss().tag(Tag::Text(b"no quotes, r{}".to_vec())).stamp(Stamp::Text(b"yesterday".to_vec()));
    origin.set("/f", Script::feed(feed));
    let first = get(origin.address(0), "/f", &[]).await;
    assert!(first.header("etag").unwrap().starts_with("no quotes, r"));
    assert_eq!(first.header("last-modified"), Some("yesterday"));
    let tag = format!("If-None-Match: {}", first.header("etag").unwrap());
    assert_eq!(get(origin.address(0), "/f", &[&tag]).await.status, 304);
    assert_eq!(get(origin.address(0), "/f", &["If-Modified-Since: yesterday"]).await.status, 304);
    assert_eq!(get(origin.address(0), "/f", &["If-Modified-Since: Yesterday"]).await.status, 200);

    origin.set("/none", Script::feed(Feed::rss().tag(Tag::None).stamp(Stamp::None)));
    let bare = get(origin.address(0), "/none", &["If-None-Match: \"x\""]).await;
    assert_eq!((bare.status, bare.header("etag"), bare.header("last-modified")), (200, None, None));
}

#[tokio::test]
async fn a_304_can_bring_a_fresh_tag_that_alone_is_good_from_then_on() {
    let origin = Origin::start().await.unwrap();
    origin.set("/f", Script::feed(Feed::rss().tag(Tag::FreshOn304)));
    let first = get(origin.address(0), "/f", &[]).await.header("etag").unwrap().to_owned();
    let second = get(origin.address(0), "/f", &[&format!("If-None-Match: {first}")]).await;
    assert_eq!(second.status, 304);
    assert_ne!(second.header("etag"), Some(first.as_str()));
    assert_eq!(get(origin.address(0), "/f", &[&format!("If-None-Match: {first}")]).await.status, 200);
}

#[tokio::test]
async fn sequences_are_played_in_order_and_the_last_step_repeats() {
    let origin = Origin::start().await.unwrap();
    let busy = Script::status(503).header("Retry-After", "120").times(2);
    origin.set("/f", Script::sequence([busy, Script::redirect(302, "/g"), Script::feed(Feed::rss())]));
    let mut seen = Vec::new();
    for _ in 0..5 {
        seen.push(get(origin.address(0), "/f", &[]).await.status);
    }
    assert_eq!(seen, [503, 503, 302, 200, 200]);
    let log = origin.requests("/f");
    assert_eq!(log[0].answer_header("retry-after").as_deref(), Some("120"));
    assert_eq!(log[2].answer_header("location").as_deref(), Some("/g"));
    assert_eq!(get(origin.address(0), "/nowhere", &[]).await.status, 404);
}

#[tokio::test]
async fn the_log_keeps_order_and_spelling_and_tells_hosts_apart() {
    let origin = Origin::listen(&loopback(3, 0)).await.unwrap();
    origin.set("/f", Script::status(410));
    let request = b"GET /f?a=b HTTP/1.1\r\nHOST: x\r\nx-Odd:  two  \r\nconnection: close\r\n\r\n";
    assert_eq!(parse(&send(origin.address(2), request).await).status, 410);
    let log = origin.log();
    let record = &log[0];
    assert_eq!((record.method(), record.target(), &*record.path), ("GET", "/f?a=b", "/f"));
    let headers: Vec<(&str, &[u8])> = record.headers().collect();
    assert_eq!(headers, [("HOST", b"x".as_slice()), ("x-Odd", b"two"), ("connection", b"close")]);
    assert_eq!(record.local, origin.address(2));
    assert_ne!(origin.address(1).ip(), origin.address(2).ip());
    assert!(record.end.unwrap() >= record.start && record.is_complete());
}

#[tokio::test]
async fn a_connection_carries_many_requests_and_each_is_recorded() {
    let origin = Origin::start().await.unwrap();
    origin.set("/f", Script::feed(Feed::rss()));
    let pipelined =
        "GET /f HTTP/1.1\r\nHost: x\r\n\r\n".repeat(3) + "GET /f HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let received = send(origin.address(0), pipelined.as_bytes()).await;
    assert_eq!(String::from_utf8_lossy(&received).matches("HTTP/1.1 200 OK").count(), 4);
    let log = origin.log();
    assert_eq!(log.len(), 4);
    assert!(log.iter().all(|record| record.connection == log[0].connection && record.body_bytes > 0));
}

#[tokio::test]
async fn a_closed_gate_keeps_a_request_in_flight_until_it_opens() {
    let origin = Origin::start().await.unwrap();
    let gate = Gate::closed();
    origin.set("/f", Script::status(200).gate(&gate));
    let (address, asked) = (origin.address(0), origin.wait_for_start("/f", 1, SOON));
    let (answer, ()) = tokio::join!(get(address, "/f", &[]), async {
        assert_eq!(asked.await[0].end, None);
        gate.open();
    });
    assert_eq!(answer.status, 200);
    assert!(origin.wait_for("/f", 1, SOON).await[0].is_complete());
}

#[tokio::test]
async fn a_silent_server_notes_when_the_client_leaves() {
    let origin = Origin::start().await.unwrap();
    origin.set("/f", Script::silent());
    let address = origin.address(0);
    let asking = tokio::spawn(async move { get(address, "/f", &[]).await.status });
    origin.wait_for_start("/f", 1, SOON).await;
    asking.abort();
    let record = origin.wait_for("/f", 1, SOON).await.remove(0);
    assert_eq!((record.status, record.cut), (None, Some(Cut::ByPeer)));
}

#[tokio::test]
async fn truncated_and_cut_bodies_end_early_and_are_recorded_as_cut_by_us() {
    let origin = Origin::start().await.unwrap();
    origin.set("/short", Script::feed(Feed::rss()).deliver(Delivery::Truncated(100)));
    origin.set("/chunks", Script::feed(Feed::rss()).deliver(Delivery::CutChunks(100)));
    let short = get(origin.address(0), "/short", &[]).await;
    assert!(short.header("content-length").unwrap().parse::<usize>().unwrap() > short.body.len());
    assert_eq!(short.body.len(), 100);
    let chunks = get(origin.address(0), "/chunks", &[]).await;
    assert_eq!(chunks.header("transfer-encoding"), Some("chunked"));
    assert!(!chunks.text().ends_with("0\r\n\r\n"));
    for record in origin.log() {
        assert_eq!((record.cut, record.body_bytes), (Some(Cut::ByUs), 100));
    }
}
