//! P1 to P13, P40, P41, P43: conditional requests.

use std::time::Duration;

use common::document::Validators;
use common::host::{HostConfig, HostRule};
use common::outcome::FailureKind;
use common::report::Outcome;
use load_tests::{Coding, Conditions, Feed, Script, Stamp, Tag};

use super::bench::{Bench, document, failure, not_modified};

#[tokio::test]
async fn p1_only_the_first_fetch_is_unconditional() {
    let bench = Bench::start().await;
    let mut job = bench.feed("/feed", Script::feed(Feed::rss()));
    let first = bench.poll(&mut job).await;
    assert_eq!(document(&first).entries.len(), 3);
    assert!(!first.conditional);
    for _ in 0..3 {
        let later = bench.poll(&mut job).await;
        assert!(not_modified(&later) && later.conditional, "{later:?}");
        assert_eq!((later.http_status, later.body_bytes), (Some(304), 0));
    }
    bench.origin.publish("/feed", 1);
    let changed = bench.poll(&mut job).await;
    assert_eq!(document(&changed).entries.len(), 1, "the known entries are not reported again");
    assert!(changed.conditional);
    assert!(not_modified(&bench.poll(&mut job).await));

    let requests = bench.requests("/feed", 6).await;
    assert_eq!(requests.iter().filter(|request| !request.is_conditional()).count(), 1);
    assert_eq!(
        requests.iter().filter_map(|request| request.status).collect::<Vec<_>>(),
        [200, 304, 304, 304, 200, 304]
    );
}

#[tokio::test]
async fn p2_p3_p4_both_validators_are_echoed_byte_for_byte() {
    let odd: [(&[u8], &[u8]); 4] = [
        (b"W/\"we ird\"", b"Sun, 06 Nov 1994 08:49:37 GMT"),
        (b"no quotes at all", b"yesterday"),
        (b"\"caf\xc3\xa9 \xe9\xff\"", b"Sunday, 06-Nov-94 08:49:37 GMT"),
        (b"\"a\", \"b\"", b"1994-11-06"),
    ];
    let bench = Bench::start().await;
    for (number, (tag, stamp)) in odd.into_iter().enumerate() {
        let path = format!("/{number}");
        let feed = Feed::rss().tag(Tag::Text(tag.to_vec())).stamp(Stamp::Text(stamp.to_vec()));
        let mut job = bench.feed(&path, Script::feed(feed.conditions(Conditions::All)));
        bench.poll(&mut job).await;
        assert!(not_modified(&bench.poll(&mut job).await));
        let second = &bench.requests(&path, 2).await[1];
        assert_eq!(second.header_bytes("if-none-match"), Some(tag));
        assert_eq!(second.header_bytes("if-modified-since"), Some(stamp));
    }
}

#[tokio::test]
async fn p3_unsendable_validators_are_dropped_not_repaired() {
    let bench = Bench::start().await;
    let long = vec![b'x'; 9000];
    let feed = Feed::rss().tag(Tag::Text(long)).stamp(Stamp::None);
    let mut job = bench.feed("/long", Script::feed(feed));
    let first = bench.poll(&mut job).await;
    assert_eq!(document(&first).validators, Validators::default());
    bench.poll(&mut job).await;
    assert!(!bench.requests("/long", 2).await[1].is_conditional());
}

#[tokio::test]
async fn p5_validators_of_an_equal_body_are_stored() {
    let bench = Bench::start().await;
    let mut job = bench.feed("/feed", Script::feed(Feed::rss().conditions(Conditions::Ignored).stamp(Stamp::None)));
    bench.poll(&mut job).await;
    let before = job.validators.clone();
    bench.origin.touch("/feed");
    let touched = bench.poll(&mut job).await;
    assert!(not_modified(&touched), "the same bytes: {touched:?}");
    assert_ne!(job.validators, before);
    bench.poll(&mut job).await;
    let requests = bench.requests("/feed", 3).await;
    assert_eq!(requests[2].header("if-none-match"), requests[1].answer_header("etag"));
}

#[tokio::test]
async fn p7_a_validator_absent_from_a_new_200_is_forgotten() {
    let bench = Bench::start().await;
    let both = Script::feed(Feed::rss());
    let tag_only = Script::feed(Feed::rss().stamp(Stamp::None).conditions(Conditions::Ignored));
    let mut job = bench.feed("/feed", both.then(tag_only));
    bench.poll(&mut job).await;
    assert!(job.validators.last_modified.is_some());
    bench.origin.publish("/feed", 1);
    bench.poll(&mut job).await;
    assert!(job.validators.etag.is_some() && job.validators.last_modified.is_none());
    bench.poll(&mut job).await;
    assert_eq!(bench.requests("/feed", 3).await[2].header("if-modified-since"), None);
}

#[tokio::test]
async fn p6_p8_a_304_replaces_the_validators_that_it_carries() {
    let bench = Bench::start().await;
    let mut job = bench.feed("/feed", Script::feed(Feed::rss().tag(Tag::FreshOn304)));
    bench.poll(&mut job).await;
    for _ in 0..3 {
        assert!(not_modified(&bench.poll(&mut job).await), "only the newest tag is good");
    }
    assert!(job.validators.last_modified.is_some());
}

#[tokio::test]
async fn p9_validators_of_errors_and_broken_answers_are_not_stored() {
    let bench = Bench::start().await;
    let good = || Script::feed(Feed::rss());
    let bad = [
        Script::status(404).header("ETag", "\"of-404\""),
        Script::status(500).header("ETag", "\"of-500\"").header("Last-Modified", "{date}"),
        Script::body("text/html", "<html></html>").header("ETag", "\"of-a-page\""),
        Script::body("application/rss+xml", "<rss").header("ETag", "\"of-a-wreck\"").header("Content-Encoding", "gzip"),
    ];
    let mut job = bench.feed("/feed", Script::sequence([good()].into_iter().chain(bad).chain([good()])));
    bench.poll(&mut job).await;
    let stored = job.validators.clone();
    for _ in 0..4 {
        let fetched = bench.poll(&mut job).await;
        assert!(matches!(fetched.outcome, Outcome::Failed { .. }), "{fetched:?}");
        assert_eq!(job.validators, stored);
    }
    assert!(not_modified(&bench.poll(&mut job).await));
    let requests = bench.requests("/feed", 6).await;
    assert!(requests[1..].iter().all(|request| request.header("if-none-match") == stored.etag));
}

#[tokio::test]
async fn p40_apaches_marked_tag_is_sent_with_and_without_its_mark() {
    let bench = Bench::start().await;
    for (coding, suffix) in
        [(Coding::Gzip, "-gzip"), (Coding::Br, "-br"), (Coding::Zstd, "-zstd"), (Coding::Gzip, ";gzip")]
    {
        let path = format!("/{}", suffix.trim_matches(['-', ';']));
        let feed = Feed::rss().tag(Tag::Suffix(suffix)).stamp(Stamp::None).padding(200);
        let mut job = bench.feed(&path, Script::feed(feed).offer([coding]));
        bench.poll(&mut job).await;
        assert!(job.validators.etag.as_deref().is_some_and(|etag| etag.ends_with(&format!("{suffix}\""))));
        assert!(not_modified(&bench.poll(&mut job).await), "{suffix}");
    }
}

#[tokio::test]
async fn p41_a_304_to_an_unconditional_request_is_an_error() {
    let bench = Bench::start().await;
    let mut job = bench.feed("/feed", Script::status(304).header("ETag", "\"x\""));
    let fetched = bench.poll(&mut job).await;
    assert_eq!(failure(&fetched).0, FailureKind::Status);
    assert_eq!(fetched.http_status, Some(304));
    assert_eq!(job.validators, Validators::default());
}

#[tokio::test]
async fn p42_a_226_that_nobody_asked_for_is_an_error() {
    let bench = Bench::start().await;
    let mut job = bench.feed("/feed", Script::status(226).header("IM", "feed"));
    assert_eq!(failure(&bench.poll(&mut job).await).0, FailureKind::Status);
}

#[tokio::test]
async fn p42_a_delta_brings_what_is_new_and_takes_nothing_away() {
    let bench = Bench::start().await;
    let mut job = bench.feed("/feed", Script::feed(Feed::atom().deltas().initial(5)));
    let first = bench.poll(&mut job).await;
    assert_eq!(document(&first).entries.len(), 5);
    assert!(not_modified(&bench.poll(&mut job).await));
    let (known, tag) = (job.known.len(), job.validators.etag.clone());
    let new = bench.origin.publish("/feed", 2);
    let delta = bench.poll(&mut job).await;
    assert_eq!((delta.http_status, document(&delta).all_entries, document(&delta).new_entries), (Some(226), 2, 2));
    let titles: Vec<_> = document(&delta).entries.iter().filter_map(|entry| entry.title.clone()).collect();
    assert_eq!(titles, new.iter().map(|item| item.title.clone()).collect::<Vec<_>>());
    assert_eq!(job.known.len(), known + 2, "what the delta leaves out is known as before");
    assert_ne!(job.validators.etag, tag, "the validators of a 226 are stored");
    assert_eq!(document(&delta).content_hash, None, "a part is no document to compare the next one with");
    assert!(not_modified(&bench.poll(&mut job).await), "and good for the next request");

    bench.origin.set("/feed", Script::feed(Feed::atom().initial(5).conditions(Conditions::Ignored)));
    let whole = bench.poll(&mut job).await;
    assert_eq!((whole.http_status, document(&whole).all_entries, document(&whole).entries.len()), (Some(200), 7, 0));
    let asked: Vec<_> = bench.requests("/feed", 5).await.iter().map(|request| request.header("a-im")).collect();
    let feed = Some("feed".to_owned());
    assert_eq!(
        asked,
        [None, feed.clone(), feed.clone(), feed.clone(), feed],
        "what was never read whole is asked for whole"
    );
}

#[tokio::test]
async fn p42_deltas_are_not_asked_for_where_they_are_switched_off() {
    let rule = HostRule { r#match: "one.test".to_owned(), delta_encoding: Some(false), ..HostRule::default() };
    let off = Bench::with(|config| config.delta_encoding = false).await;
    let by_rule =
        Bench::with_hosts(HostConfig { gap: Duration::ZERO, ..HostConfig::default() }, vec![rule], |_| {}).await;
    for (bench, ruled) in [(off, false), (by_rule, true)] {
        let script = Script::feed(Feed::rss().deltas());
        let mut job = bench.feed("/feed", script);
        if ruled {
            job = bench.job(&job.url.as_str().replace("127.0.0.1", "one.test"));
        }
        bench.poll(&mut job).await;
        bench.origin.publish("/feed", 1);
        assert_eq!(bench.poll(&mut job).await.http_status, Some(200));
        let requests = bench.requests("/feed", 2).await;
        assert!(requests[1].is_conditional() && requests[1].header("a-im").is_none());
    }
}

#[tokio::test]
async fn p42_a_226_of_another_kind_is_an_error_and_leaves_the_validators() {
    let bench = Bench::start().await;
    let other = Script::status(226).header("IM", "vcdiff").header("ETag", "\"of-a-diff\"");
    let mut job = bench.feed("/feed", Script::feed(Feed::rss()).then(other));
    bench.poll(&mut job).await;
    let stored = job.validators.clone();
    let refused = bench.poll(&mut job).await;
    assert_eq!((failure(&refused).0, refused.unusable_delta), (FailureKind::Status, true));
    assert_eq!(job.validators, stored);
}

#[tokio::test]
async fn p42_a_server_whose_deltas_are_of_no_use_is_asked_for_whole_documents() {
    let bench = Bench::start().await;
    let html = "HTTP/1.1 226 IM Used\r\nIM: feed\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>";
    for (number, delta) in [
        Script::status(226).header("IM", "feed, gzip"),
        Script::status(226),
        Script::status(226).header("IM", "feed"),
        Script::raw(html),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/{number}");
        let mut job = bench.feed(&path, Script::feed(Feed::rss()).then(delta).then(Script::feed(Feed::rss())));
        assert!(!bench.poll(&mut job).await.unusable_delta);
        assert!(bench.poll(&mut job).await.unusable_delta, "{number}");
        job.without_delta = true;
        assert!(!bench.poll(&mut job).await.unusable_delta);
        let asked: Vec<_> = bench.requests(&path, 3).await.iter().map(|request| request.header("a-im")).collect();
        assert_eq!(asked, [None, Some("feed".to_owned()), None]);
    }
}

#[tokio::test]
async fn p43_the_same_bytes_are_not_modified() {
    let bench = Bench::start().await;
    let plain = Feed::rss().tag(Tag::None).stamp(Stamp::None);
    let mut job = bench.feed("/feed", Script::feed(plain).offer([Coding::Gzip, Coding::Br]));
    let first = bench.poll(&mut job).await;
    assert!(document(&first).content_hash.is_some());
    let second = bench.poll(&mut job).await;
    assert!(not_modified(&second));
    assert_eq!(second.http_status, Some(200));
    assert!(second.wire_bytes > 0 && second.body_bytes == first.body_bytes);
}
