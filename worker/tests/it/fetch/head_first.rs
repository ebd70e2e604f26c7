//! P44: HEAD before GET where the job or the host's rule wants it, and what a report says about it.

use std::time::{Duration, Instant};

use common::host::{HostConfig, HostRule};
use common::host_gate::HostGate as _;
use common::job::FetchJob;
use common::outcome::FailureKind;
use common::report::{Outcome, Probe};
use common::time::{Clock as _, SystemClock};
use load_tests::{Conditions, Feed, Gate, Script, StallWatch, Tag};

use super::bench::{Bench, PATIENCE, document, failure, not_modified};

const GAP: Duration = Duration::from_millis(200);

async fn bench(head_first: Option<bool>) -> Bench {
    let rule = HostRule { r#match: "127.0.0.1".into(), head_first, ..HostRule::default() };
    let host = HostConfig { gap: GAP, ..HostConfig::default() };
    Bench::with_hosts(host, vec![rule], |_| {}).await
}

/// Validators that are never looked at.
fn ignoring() -> Feed {
    Feed::rss().conditions(Conditions::Ignored).padding(2000)
}

/// Returns the path's methods so far.
async fn methods(bench: &Bench, path: &str, count: usize) -> Vec<String> {
    bench.requests(path, count).await.iter().map(|request| request.method().to_owned()).collect()
}

/// Returns a feed that was read once.
async fn known(bench: &Bench, path: &str, script: Script) -> FetchJob {
    let mut job = bench.feed(path, script);
    let first = bench.poll(&mut job).await;
    assert_eq!((document(&first).entries.len(), first.probe), (3, None), "nothing is known yet");
    job
}

#[tokio::test]
async fn p44_a_head_is_enough_while_the_validators_are_the_known_ones() {
    let bench = bench(Some(true)).await;
    let stalls = StallWatch::since(Instant::now() - bench.origin.elapsed());
    tokio::spawn(stalls.clone().watch_runtime());
    let mut job = known(&bench, "/feed", Script::feed(ignoring())).await;
    let second = bench.poll(&mut job).await;
    assert!(not_modified(&second), "{second:?}");
    let length = bench.requests("/feed", 2).await[0].body_bytes;
    let Some(Probe::Enough { spent, length: shown }) = second.probe else { panic!("{second:?}") };
    assert!(shown == Some(length) && (300..2000).contains(&spent), "{spent} {shown:?}");
    assert_eq!((second.wire_bytes, second.http_status, second.conditional), (0, Some(200), true));

    bench.origin.publish("/feed", 1);
    let third = bench.poll(&mut job).await;
    assert_eq!((document(&third).entries.len(), document(&third).new_entries), (1, 1));
    assert!(matches!(third.probe, Some(Probe::NotEnough { .. })), "{:?}", third.probe);
    assert_eq!(methods(&bench, "/feed", 4).await, ["GET", "HEAD", "HEAD", "GET"]);
    let requests = bench.requests("/feed", 4).await;
    // The first of them may have arrived late.
    let apart = requests[3].start - requests[2].start + stalls.seen().near(requests[2].start);
    assert!(apart > GAP / 2, "each of the two is a start at the host: {apart:?}");
    for name in ["if-none-match", "if-modified-since", "accept", "accept-encoding", "user-agent"] {
        assert_eq!(requests[2].header(name), requests[3].header(name), "{name}");
    }
    assert_eq!((requests[2].header("a-im"), requests[3].header("a-im").as_deref()), (None, Some("feed")));
    assert!(matches!(bench.poll(&mut job).await.probe, Some(Probe::Enough { .. })), "the new validators are known");
}

#[tokio::test]
async fn p44_a_head_that_is_refused_is_followed_by_a_get() {
    let bench = bench(Some(true)).await;
    for status in [405, 501, 403, 404, 410, 500, 503] {
        let path = format!("/{status}");
        let feed = || Script::feed(ignoring());
        let mut job = known(&bench, &path, feed().then(Script::status(status)).then(feed())).await;
        let second = bench.poll(&mut job).await;
        assert!(not_modified(&second) && second.probe == Some(Probe::Refused), "{status}: {second:?}");
        assert_eq!(methods(&bench, &path, 3).await, ["GET", "HEAD", "GET"]);
    }
}

#[tokio::test]
async fn p44_what_a_head_showed_is_reported_by_the_later_fetch_that_sends_the_get() {
    let rule = HostRule { r#match: "127.0.0.1".into(), head_first: Some(true), ..HostRule::default() };
    let host = HostConfig { gap: GAP, ..HostConfig::default() };
    let bench = Bench::with_hosts(host, vec![rule], |config| config.timeout = Duration::from_secs(2)).await;
    let head = Gate::closed();
    let refuses = Script::status(405).gate(&head);
    let mut job = known(&bench, "/feed", Script::feed(ignoring()).then(refuses).then(Script::feed(ignoring()))).await;
    let hold_it_meanwhile = async {
        bench.origin.wait_for_start("/feed", 2, PATIENCE).await;
        let now = SystemClock.now();
        bench.gate.hold(&[(job.host.clone(), now.after(Duration::from_secs(3)))], now).await.unwrap();
        head.open();
    };
    let (second, ()) = tokio::join!(bench.fetch(&job), hold_it_meanwhile);
    assert!(matches!(second.outcome, Outcome::Deferred { .. }), "{second:?}");
    job.detour = second.detour;
    let third = bench.poll(&mut job).await;
    assert!(not_modified(&third) && third.probe == Some(Probe::Refused), "{third:?}");
    assert_eq!(methods(&bench, "/feed", 3).await, ["GET", "HEAD", "GET"]);
}

#[tokio::test]
async fn p44_a_head_that_is_throttled_is_followed_by_nothing() {
    let bench = bench(Some(true)).await;
    for status in [429, 503] {
        let path = format!("/{status}");
        let busy = Script::status(status).header("Retry-After", "60");
        let mut job = known(&bench, &path, Script::feed(ignoring()).then(busy)).await;
        let second = bench.poll(&mut job).await;
        assert!(matches!(second.outcome, Outcome::Throttled { retry_after: Some(_) }), "{second:?}");
        assert_eq!(methods(&bench, &path, 2).await, ["GET", "HEAD"]);
    }
}

#[tokio::test]
async fn p17_the_get_after_a_head_waits_as_long_as_the_head_says_and_is_then_sent() {
    let bench = bench(Some(true)).await;
    let limit: [(&str, &str); 2] = [("RateLimit-Remaining", "0"), ("RateLimit-Reset", "60")];
    for (path, fields, is_limited) in [("/limit", &limit[..], true), ("/later", &[("Retry-After", "60")][..], false)] {
        let waits = fields.iter().fold(Script::feed(ignoring()), |script, (name, value)| script.header(name, *value));
        let mut job = known(&bench, path, Script::feed(ignoring()).then(waits)).await;
        bench.origin.publish(path, 1);
        let second = bench.poll(&mut job).await;
        let Outcome::Deferred { until } = second.outcome else { panic!("{path}: {second:?}") };
        assert_eq!((second.retry_after, second.limited_until.is_some()), (Some(until), is_limited), "{path}");
        assert_eq!(methods(&bench, path, 2).await, ["GET", "HEAD"]);
        // Its answer asks for the same wait: that is for the next poll.
        let third = bench.poll(&mut job).await;
        assert_eq!(document(&third).new_entries, 1);
        assert!(matches!(third.probe, Some(Probe::NotEnough { .. })) && third.retry_after.is_some(), "{third:?}");
        assert_eq!(methods(&bench, path, 3).await, ["GET", "HEAD", "GET"]);
    }
}

#[tokio::test]
async fn p17_a_head_that_asks_for_less_than_the_gap_delays_nothing() {
    let rule = HostRule { r#match: "127.0.0.1".into(), head_first: Some(true), ..HostRule::default() };
    let host = HostConfig { gap: Duration::from_millis(1500), ..HostConfig::default() };
    let bench = Bench::with_hosts(host, vec![rule], |_| {}).await;
    let waits = Script::feed(ignoring()).header("Retry-After", "1");
    let mut job = known(&bench, "/feed", Script::feed(ignoring()).then(waits)).await;
    bench.origin.publish("/feed", 1);
    assert_eq!(document(&bench.poll(&mut job).await).new_entries, 1);
    assert_eq!(methods(&bench, "/feed", 3).await, ["GET", "HEAD", "GET"]);
}

#[tokio::test]
async fn p44_a_head_without_an_answer_fails_the_poll_and_blames_the_head() {
    let bench = bench(Some(true)).await;
    let closes = Script::status(200).deliver(load_tests::Delivery::Close);
    let mut job = known(&bench, "/feed", Script::feed(ignoring()).then(closes)).await;
    let second = bench.poll(&mut job).await;
    assert_eq!((failure(&second).0, second.probe), (FailureKind::Truncated, Some(Probe::Refused)));
    assert_eq!(methods(&bench, "/feed", 2).await, ["GET", "HEAD"], "P23: no second request for that");
}

#[tokio::test]
async fn p44_a_304_to_a_head_is_a_304() {
    let bench = bench(Some(true)).await;
    let mut job = known(&bench, "/feed", Script::feed(Feed::rss())).await;
    let second = bench.poll(&mut job).await;
    assert!(not_modified(&second) && second.http_status == Some(304), "{second:?}");
    assert!(matches!(second.probe, Some(Probe::Enough { .. })));
}

#[tokio::test]
async fn p44_a_redirect_is_followed_by_get_and_its_target_asked_with_head() {
    let bench = bench(Some(true)).await;
    bench.origin.set("/feed", Script::feed(ignoring()));
    let mut job = known(&bench, "/old", Script::redirect(302, "/feed")).await;
    assert!(not_modified(&bench.poll(&mut job).await));
    assert_eq!(methods(&bench, "/old", 2).await, ["GET", "GET"]);
    assert_eq!(methods(&bench, "/feed", 2).await, ["GET", "HEAD"], "where the validators came from");
    bench.origin.set("/feed", Script::redirect(302, "/new"));
    bench.origin.set("/new", Script::feed(ignoring()));
    bench.poll(&mut job).await;
    assert_eq!(methods(&bench, "/feed", 4).await, ["GET", "HEAD", "HEAD", "GET"]);
    assert_eq!(methods(&bench, "/new", 1).await, ["GET"], "one HEAD a poll");
}

#[tokio::test]
async fn p44_the_rule_forbids_the_job_begins_and_experience_is_believed_over_a_rule() {
    for (rule, experience, second) in [
        (None, None, "GET"),
        (None, Some(true), "HEAD"),
        (None, Some(false), "GET"),
        (Some(true), None, "HEAD"),
        (Some(true), Some(false), "GET"),
        (Some(false), Some(true), "GET"),
    ] {
        let bench = bench(rule).await;
        let mut job = known(&bench, "/feed", Script::feed(ignoring())).await;
        job.head_first = experience;
        assert!(not_modified(&bench.poll(&mut job).await));
        assert_eq!(methods(&bench, "/feed", 2).await, ["GET", second], "{rule:?} {experience:?}");
    }
}

#[tokio::test]
async fn p44_no_head_without_validators_or_where_the_gap_leaves_no_time_for_two_requests() {
    let bench = bench(Some(true)).await;
    let bare = ignoring().tag(Tag::None).stamp(load_tests::Stamp::None);
    let mut job = known(&bench, "/bare", Script::feed(bare)).await;
    assert!(not_modified(&bench.poll(&mut job).await));
    assert_eq!(methods(&bench, "/bare", 2).await, ["GET", "GET"]);

    let rule = HostRule { r#match: "127.0.0.1".into(), head_first: Some(true), ..HostRule::default() };
    let slow = HostConfig { gap: Duration::from_secs(3), ..HostConfig::default() };
    let bench = Bench::with_hosts(slow, vec![rule], |config| config.timeout = Duration::from_secs(9)).await;
    let mut job = known(&bench, "/feed", Script::feed(ignoring())).await;
    assert!(not_modified(&bench.poll(&mut job).await));
    assert_eq!(methods(&bench, "/feed", 2).await, ["GET", "GET"]);
}

#[tokio::test]
async fn p44_a_whole_answer_under_the_known_validators_says_that_a_head_would_have_told() {
    let bench = bench(None).await;
    let mut job = known(&bench, "/feed", Script::feed(ignoring())).await;
    assert_eq!(bench.poll(&mut job).await.probe, Some(Probe::Known));
    bench.origin.publish("/feed", 1);
    assert_eq!(bench.poll(&mut job).await.probe, None, "the validators changed with it");
    let stuck = ignoring().tag(Tag::Text(b"\"always\"".to_vec())).stamp(load_tests::Stamp::None);
    let mut job = known(&bench, "/stuck", Script::feed(stuck)).await;
    bench.origin.publish("/stuck", 1);
    let second = bench.poll(&mut job).await;
    assert_eq!((document(&second).new_entries, second.probe), (1, Some(Probe::Known)), "a HEAD would have hidden it");
}
