//! P23, P31 to P34, P36: what a poll looks like from the other side.

use common::host::{HostConfig, HostRule};
use common::report::Outcome;
use load_tests::{Feed, Script};
use std::time::Duration;

use super::bench::{Bench, document};

#[tokio::test]
async fn p23_a_poll_is_one_request_whatever_the_answer() {
    let bench = Bench::start().await;
    let answers = [200, 401, 403, 404, 406, 429, 500, 503];
    for status in answers {
        let path = format!("/{status}");
        let script = if status == 200 { Script::feed(Feed::rss()) } else { Script::status(status) };
        let mut job = bench.feed(&path, script);
        bench.poll(&mut job).await;
        bench.requests(&path, 1).await;
    }
    assert_eq!(bench.origin.log().len(), answers.len());
}

#[tokio::test]
async fn p31_p32_p33_p34_a_request_has_exactly_these_fields() {
    let bench = Bench::start().await;
    let script = Script::feed(Feed::rss()).header("Set-Cookie", "id=1").header("Cache-Control", "max-age=0");
    let mut job = bench.feed("/feed?b=C%20d", script);
    bench.poll(&mut job).await;
    bench.origin.publish("/feed?b=C%20d", 1);
    bench.poll(&mut job).await;
    let requests = bench.requests("/feed?b=C%20d", 2).await;
    let names = |number: usize| requests[number].headers().map(|(name, _)| name.to_lowercase()).collect::<Vec<_>>();
    assert_eq!(names(0), ["user-agent", "accept", "accept-encoding", "host"]);
    assert_eq!(
        names(1),
        ["user-agent", "accept", "accept-encoding", "if-none-match", "if-modified-since", "a-im", "host"],
        "no cookie, referer or cache field either"
    );
    let version = env!("CARGO_PKG_VERSION");
    let agent = format!("feedfleet/{version} (+https://example.com/bot; 3 subscribers)");
    assert_eq!(requests[0].header("user-agent"), Some(agent));
    assert_eq!(requests[0].header("accept-encoding").as_deref(), Some("gzip, br, zstd, deflate"));
    assert!(requests[0].header("accept").unwrap().starts_with("application/atom+xml, application/rss+xml"));
    assert_eq!((requests[0].method(), requests[0].target()), ("GET", "/feed?b=C%20d"));
}

#[tokio::test]
async fn p36_the_url_is_asked_as_it_was_given() {
    let bench = Bench::start().await;
    for target in ["/a//b/?x=1&&y", "/%7Euser/%E9;v=1", "/q?u=http://x/|{}`'(*)", "/A/B?C=d+e%2B"] {
        let path = target.split('?').next().unwrap();
        let job = bench.feed(path, Script::feed(Feed::rss()));
        let url: common::url::FeedUrl = bench.origin.url(target).parse().unwrap();
        bench.fetch(&common::job::FetchJob { url: url.clone(), ..job }).await;
        let asked = bench.origin.log().pop().unwrap().target().to_owned();
        assert!(url.as_str().ends_with(&asked), "{asked} of {url}");
    }
}

#[tokio::test]
async fn p31_a_host_rule_may_name_us_otherwise() {
    let rule =
        HostRule { r#match: "127.0.0.1".into(), user_agent: Some("feedfleet-test".into()), ..HostRule::default() };
    let bench = Bench::with_hosts(HostConfig::default(), vec![rule], |_| {}).await;
    let mut job = bench.feed("/feed", Script::feed(Feed::rss()));
    bench.poll(&mut job).await;
    assert_eq!(bench.requests("/feed", 1).await[0].header("user-agent").as_deref(), Some("feedfleet-test"));
}

#[tokio::test]
async fn p16_freshness_of_every_kind_of_answer_is_reported() {
    let bench = Bench::start().await;
    let answers = [Script::feed(Feed::rss()), Script::feed(Feed::rss()), Script::status(429)];
    let script = Script::sequence(answers).header("Cache-Control", "max-age=3600").header("Age", "600");
    let mut job = bench.feed("/feed", script);
    for status in [200, 304, 429] {
        let fetched = bench.poll(&mut job).await;
        assert_eq!(fetched.http_status, Some(status));
        assert_eq!(fetched.fresh_for.map(|fresh| fresh.as_secs()), Some(3000), "{status}");
    }
    let mut job = bench.feed("/expires", Script::feed(Feed::rss()).header("Expires", "{date+60}"));
    assert_eq!(bench.poll(&mut job).await.fresh_for.map(|fresh| fresh.as_secs()), Some(60));
}

#[tokio::test]
async fn p17_throttling_carries_the_servers_own_time() {
    let bench = Bench::start().await;
    for (status, value) in [(429, "120"), (503, "120"), (429, "{date+120}"), (503, "{date+120}")] {
        let mut job = bench.feed("/feed", Script::status(status).header("Retry-After", value));
        let before = common::time::Clock::now(&common::time::SystemClock);
        let fetched = bench.poll(&mut job).await;
        let Outcome::Throttled { retry_after: Some(at) } = fetched.outcome else { panic!("{fetched:?}") };
        let delay = at.since(before);
        assert!(delay >= Duration::from_secs(120) && delay < Duration::from_secs(240), "{status} {value}: {delay:?}");
    }
    let mut job = bench.feed("/feed", Script::status(429));
    assert_eq!(bench.poll(&mut job).await.outcome, Outcome::Throttled { retry_after: None });
}

#[tokio::test]
async fn p17_any_status_may_say_when_to_come_back() {
    let bench = Bench::start().await;
    for status in [200, 403, 404, 408, 500, 502, 504, 522] {
        let script = if status == 200 { Script::feed(Feed::rss()) } else { Script::status(status) };
        let job = bench.feed("/feed", script.header("Retry-After", "172800"));
        let before = common::time::Clock::now(&common::time::SystemClock);
        let fetched = bench.fetch(&job).await;
        let asked = fetched.retry_after.map(|at| at.since(before));
        assert!(asked.is_some_and(|delay| delay >= Duration::from_secs(172_800)), "{status}: {fetched:?}");
    }
    let silent = bench.fetch(&bench.feed("/feed", Script::status(502).header("Retry-After", "soon"))).await;
    assert_eq!(silent.retry_after, None);
}

#[tokio::test]
async fn gone_is_gone() {
    let bench = Bench::start().await;
    let mut job = bench.feed("/feed", Script::status(410));
    assert_eq!(bench.poll(&mut job).await.outcome, Outcome::Gone);
}

#[tokio::test]
async fn a_connection_serves_several_polls_of_a_host_that_had_one_before() {
    let bench = Bench::start().await;
    for number in 0..5 {
        let path = format!("/{number}");
        let fetched = bench.fetch(&bench.feed(&path, Script::feed(Feed::rss()))).await;
        assert_eq!(document(&fetched).entries.len(), 3);
    }
    let connections: Vec<u64> = bench.origin.log().iter().map(|record| record.connection).collect();
    assert_ne!(connections[0], connections[1], "one poll says nothing about the next");
    assert_eq!(connections[1..], [connections[1]; 4]);
}

#[tokio::test]
async fn a_connection_is_kept_for_the_next_step_of_a_fetch() {
    let bench = Bench::start().await;
    bench.origin.set("/new", Script::feed(Feed::rss()));
    let fetched = bench.fetch(&bench.feed("/old", Script::redirect(301, "/new"))).await;
    assert_eq!(document(&fetched).entries.len(), 3);
    let connections: Vec<u64> = bench.origin.log().iter().map(|record| record.connection).collect();
    assert_eq!(connections, [connections[0]; 2]);
}

#[tokio::test]
async fn p23_a_connection_that_the_server_closed_costs_no_poll() {
    let bench = Bench::start().await;
    let mut job = bench.feed("/feed", Script::feed(Feed::rss()));
    bench.poll(&mut job).await;
    for round in 0..20 {
        bench.origin.take_down(0).await;
        bench.origin.bring_up(0).await.unwrap();
        let fetched = bench.poll(&mut job).await;
        assert!(matches!(fetched.outcome, Outcome::NotModified { .. }), "round {round}: {fetched:?}");
    }
    bench.requests("/feed", 21).await;
}

#[tokio::test]
async fn freshness_of_a_redirect_is_not_that_of_the_feed() {
    let bench = Bench::start().await;
    bench.origin.set("/feed", Script::feed(Feed::rss()));
    bench.origin.set("/cut", Script::status(200).deliver(load_tests::Delivery::Close));
    for target in ["/feed", "/cut"] {
        let script = Script::redirect(301, target).header("Cache-Control", "max-age=86400");
        assert_eq!(bench.fetch(&bench.feed("/old", script)).await.fresh_for, None, "{target}");
    }
}

#[tokio::test]
async fn a_block_page_is_an_outcome_of_its_own_and_never_a_page_of_the_feed() {
    use common::outcome::{Blocker, FailureKind};
    let bench = Bench::start().await;
    let link = "<link rel=alternate type=application/rss+xml href=/feed>";
    let with =
        |mark: &str, link| format!("<!DOCTYPE html><html><head>{mark}{link}</head><body>Please wait</body></html>");
    let page = |mark: &str| with(mark, link);
    let challenge = "<title>Just a moment...</title>";
    let refused = |status: u16, mark: &str| {
        let page = page(mark);
        let length = page.len();
        Script::raw(format!(
            "HTTP/1.1 {status} No\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n\r\n{page}"
        ))
    };
    let soul = "<script id=\"anubis_challenge\"></script>";
    for (script, by) in [
        (Script::status(403).header("cf-mitigated", "challenge"), Blocker::Cloudflare),
        (refused(403, challenge), Blocker::Cloudflare),
        (refused(403, "errors.edgesuite.net"), Blocker::Akamai),
        (refused(405, "https://geo.captcha-delivery.com/captcha/"), Blocker::DataDome),
        (Script::redirect(302, "https://www.tumblr.com/privacy/consent?x"), Blocker::Tumblr),
    ] {
        let before = bench.origin.log().len();
        let fetched = bench.fetch(&bench.feed("/", script)).await;
        let Outcome::Failed { failure, detail } = &fetched.outcome else { panic!("{fetched:?}") };
        assert_eq!((*failure, fetched.blocked_by), (FailureKind::Blocked, Some(by)), "{detail}");
        assert!(fetched.announced.is_empty() && fetched.outcome.rest() == Some(None));
        assert_eq!(bench.origin.log().len() - before, 1, "nothing else is asked");
    }
    for mark in [challenge, soul] {
        let published = bench.fetch(&bench.feed("/", Script::body("text/html", with(mark, "")))).await;
        assert_eq!(published.outcome.failure(), Some(FailureKind::NotAFeed), "{published:?}");
        assert_eq!((published.outcome.rest(), published.blocked_by), (None, None), "the host answers others as before");
        let announcing = bench.fetch(&bench.feed("/", Script::body("text/html", page(mark)))).await;
        assert_eq!((announcing.announced.len(), announcing.outcome.rest()), (1, None), "{announcing:?}");
    }
    let plain = bench.fetch(&bench.feed("/", refused(403, "<title>No</title>"))).await;
    assert!(
        matches!(plain.outcome, Outcome::Failed { failure: FailureKind::Status, .. }) && plain.blocked_by.is_none()
    );
}
