//! User names and passwords: where they are sent, and where they never are.

use common::outcome::FailureKind;
use common::secrets::Login;
use load_tests::{Feed, Script};

use super::bench::{Bench, document, failure, not_modified};

const SENT: &str = "Basic YW5uOnNlY3JldA==";

async fn bench() -> Bench {
    let mut bench = Bench::start().await;
    bench.login = Some(Login::new("ann", "secret").unwrap());
    bench
}

#[tokio::test]
async fn a_login_is_sent_with_every_request_for_the_feed() {
    let bench = bench().await;
    let mut job = bench.feed("/feed", Script::feed(Feed::rss()));
    assert_eq!(document(&bench.poll(&mut job).await).entries.len(), 3);
    assert!(not_modified(&bench.poll(&mut job).await));
    for request in bench.requests("/feed", 2).await {
        assert_eq!(request.header("authorization").as_deref(), Some(SENT));
    }
}

#[tokio::test]
async fn a_login_stays_at_its_origin_over_redirects() {
    let bench = bench().await;
    bench.origin.set("/feed", Script::feed(Feed::rss()));
    let there = bench.origin.url_on(1, "/there");
    bench.origin.set("/there", Script::redirect(301, bench.origin.url("/feed")));
    bench.origin.set("/step", Script::redirect(302, there));
    let mut job = bench.feed("/old", Script::redirect(301, "/step"));
    assert_eq!(document(&bench.poll(&mut job).await).entries.len(), 3);
    for (path, sent) in [("/old", true), ("/step", true), ("/there", false), ("/feed", true)] {
        let request = bench.requests(path, 1).await.remove(0);
        assert_eq!(request.header("authorization").is_some(), sent, "{path}");
        assert_eq!(request.header("cookie"), None);
    }
}

#[tokio::test]
async fn whoever_is_refused_elsewhere_is_told_that_the_login_stayed_behind() {
    let bench = bench().await;
    let there = bench.origin.url_on(1, "/there");
    bench.origin.set("/there", Script::status(401));
    let mut job = bench.feed("/old", Script::redirect(302, there));
    let fetched = bench.poll(&mut job).await;
    let (kind, detail) = failure(&fetched);
    assert_eq!(kind, FailureKind::Status);
    assert!(detail.contains("401") && detail.contains("not sent to"), "{detail}");
    assert_eq!(bench.requests("/there", 1).await[0].header("authorization"), None);
    assert!(!format!("{fetched:?}").contains("secret"));
}

#[tokio::test]
async fn a_trace_shows_that_there_was_a_login_and_not_which() {
    let bench = bench().await;
    let job = bench.feed("/feed", Script::feed(Feed::rss()));
    let (fetched, trace) = bench.fetch_traced(&job).await;
    assert_eq!(document(&fetched).entries.len(), 3);
    assert!(trace[0].request.contains(&("authorization".to_owned(), "***".to_owned())), "{trace:?}");
}
