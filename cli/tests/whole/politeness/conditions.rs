//! Conditional requests: P1 to P13, P40, P41, P43.

use std::time::Duration;

use common::time::Timestamp;
use load_tests::{Coding, Conditions, Delivery, Feed, Record, Script, Stamp, Tag};
use serde_json::json;

use super::OWN_RULES;
use super::case::{Case, Subscribed, sent, some};

/// The only path that is refreshed manually.
pub(crate) const REFRESHED: &str = "/P1/0";

const RSS: &str = "application/rss+xml";
const DOCUMENT: &str =
    "<rss version=\"2.0\"><channel><title>Same</title><item><guid>1</guid><title>One</title></item></channel></rss>";

fn fixed(etag: &str) -> Script {
    Script::body(RSS, DOCUMENT).header("ETag", etag)
}

pub(crate) async fn p1(case: &Case<'_>) {
    let feed = case.feed(Script::feed(Feed::rss())).await;
    assert_eq!(feed.path, REFRESHED);
    case.requests(&feed.path, 2).await;
    case.refresh(&feed).await;
    let polls = case.requests(&feed.path, 6).await;
    let conditional: Vec<bool> = polls.iter().map(load_tests::Record::is_conditional).collect();
    case.expect("which of six polls were conditional", vec![false, true, true, true, true, true], conditional);
    let statuses: Vec<_> = polls.iter().filter_map(|poll| poll.status).collect();
    case.expect("statuses", vec![200, 304, 304, 304, 304, 304], statuses);
}

pub(crate) async fn p2(case: &Case<'_>) {
    let odd: [(&[u8], &[u8]); 8] = [
        (b"W/\"we ird\"", b"Sun, 06 Nov 1994 08:49:37 GMT"),
        (b"w/\"small\"", b"Sunday, 06-Nov-94 08:49:37 GMT"),
        (b"no quotes at all", b"yesterday, about noon"),
        (b"\"caf\xc3\xa9 \xe9\xff\"", b"Sun Nov  6 08:49:37 1994"),
        (b"\"a\", \"b\"", b"1994-11-06"),
        (b"\"in \"the\" middle\"", b"Sun, 6 Nov 1994 8:49:37 +0100"),
        (b"\"\"", b"0"),
        (b"\"tab\there\"", b"sun, 06 nov 1994 08:49:37 gmt"),
    ];
    for (tag, stamp) in odd {
        let feed = Feed::rss().tag(Tag::Text(tag.to_vec())).stamp(Stamp::Text(stamp.to_vec()));
        let feed = case.feed(Script::feed(feed.conditions(Conditions::All))).await;
        let polls = case.requests(&feed.path, 2).await;
        let Some(second) = polls.get(1) else { continue };
        case.expect("If-None-Match", Some(tag), second.header_bytes("if-none-match"));
        case.expect("If-Modified-Since", Some(stamp), second.header_bytes("if-modified-since"));
        case.expect("its answer", Some(304), second.status);
    }
}

pub(crate) async fn p3(case: &Case<'_>) {
    let longest = format!("\"{}\"", "x".repeat(8190));
    let too_long = format!("\"{}\"", "x".repeat(8191));
    for (given, expected) in [(longest.as_str(), Some(longest.as_str())), (&too_long, None), ("*", None), ("", None)] {
        let feed = Feed::rss().tag(Tag::Text(given.into())).stamp(Stamp::None);
        let feed = case.feed(Script::feed(feed)).await;
        let polls = case.requests(&feed.path, 2).await;
        let came = sent(&polls, "if-none-match");
        case.expect("If-None-Match of the second poll", Some(&expected.map(str::to_owned)), came.get(1));
    }
}

pub(crate) async fn p4(case: &Case<'_>) {
    let feed = case.feed(Script::feed(Feed::atom())).await;
    let polls = case.requests(&feed.path, 3).await;
    for name in ["etag", "last-modified"] {
        let given = polls.first().and_then(|poll| poll.answer_header(name));
        let field = if name == "etag" { "if-none-match" } else { "if-modified-since" };
        case.require("the origin gave it", given.is_some(), &name);
        case.expect(field, vec![None, given.clone(), given], sent(&polls, field));
    }
}

pub(crate) async fn p5(case: &Case<'_>) {
    let feed = case.feed(fixed("\"1\"").then(fixed("\"2\"")).then(fixed("\"3\""))).await;
    let polls = case.requests(&feed.path, 4).await;
    let expected = vec![None, some("\"1\""), some("\"2\""), some("\"3\"")];
    case.expect("If-None-Match while the body stays the same", expected, sent(&polls, "if-none-match"));
}

pub(crate) async fn p6(case: &Case<'_>) {
    let first = fixed("\"a\"").header("Last-Modified", "one");
    let tag = Script::status(304).header("ETag", "\"b\"");
    let date = Script::status(304).header("Last-Modified", "two");
    let feed = case.feed(first.then(tag).then(date)).await;
    let polls = case.requests(&feed.path, 4).await;
    let tags = vec![None, some("\"a\""), some("\"b\""), some("\"b\"")];
    case.expect("If-None-Match", tags, sent(&polls, "if-none-match"));
    let dates = vec![None, some("one"), some("one"), some("two")];
    case.expect("If-Modified-Since", dates, sent(&polls, "if-modified-since"));
}

pub(crate) async fn p7(case: &Case<'_>) {
    let both = fixed("\"a\"").header("Last-Modified", "one");
    let feed = case.feed(both.then(fixed("\"b\""))).await;
    let polls = case.requests(&feed.path, 3).await;
    case.expect("If-None-Match", vec![None, some("\"a\""), some("\"b\"")], sent(&polls, "if-none-match"));
    case.expect("If-Modified-Since", vec![None, some("one"), None], sent(&polls, "if-modified-since"));
    let none = case.feed(fixed("\"a\"").then(Script::body(RSS, DOCUMENT))).await;
    let polls = case.requests(&none.path, 3).await;
    case.expect("conditions after a 200 without any", vec![None, some("\"a\""), None], sent(&polls, "if-none-match"));
}

pub(crate) async fn p8(case: &Case<'_>) {
    let feed = case.feed(Script::feed(Feed::rss().tag(Tag::FreshOn304))).await;
    let polls = case.requests(&feed.path, 5).await;
    let mut given: Vec<_> = polls.iter().map(|poll| poll.answer_header("etag")).collect();
    given.insert(0, None);
    given.truncate(polls.len());
    case.expect("If-None-Match", given, sent(&polls, "if-none-match"));
    let statuses: Vec<_> = polls.iter().filter_map(|poll| poll.status).collect();
    case.expect("only the newest tag is good", vec![200, 304, 304, 304, 304], statuses);
}

pub(crate) async fn p9(case: &Case<'_>) {
    let good = || fixed("\"good\"").header("Last-Modified", "good");
    let bad = |script: Script| script.header("ETag", "\"bad\"").header("Last-Modified", "bad");
    let broken = [
        ("a 500", Script::status(500)),
        ("a 404", Script::status(404)),
        ("a 403", Script::status(403)),
        ("no feed", Script::body("text/plain", "no feed at all")),
        ("half a feed", Script::body(RSS, &DOCUMENT.as_bytes()[..60])),
        ("a cut body", Script::body(RSS, DOCUMENT).deliver(Delivery::Truncated(80))),
        ("cut chunks", Script::body(RSS, DOCUMENT).deliver(Delivery::CutChunks(80))),
        ("a coding that is not there", Script::body(RSS, DOCUMENT).header("Content-Encoding", "gzip")),
        ("an unknown coding", Script::body(RSS, "coded as nobody knows").header("Content-Encoding", "x-unknown")),
        ("too many bytes", Script::body(RSS, "x".repeat(400_000))),
        ("a 226 that is no delta", Script::status(226)),
        ("a 429", Script::status(429).header("Retry-After", "1")),
    ];
    for (what, broken) in broken {
        let feed = case.feed(good().then(bad(broken)).then(good())).await;
        let polls = case.requests(&feed.path, 3).await;
        let what = format!("{what} between two good answers");
        case.expect(&what, vec![None, some("\"good\""), some("\"good\"")], sent(&polls, "if-none-match"));
        case.expect(&what, vec![None, some("good"), some("good")], sent(&polls, "if-modified-since"));
    }
}

/// The fleet was killed and restarted: its requests to every feed that had validators carry them. (The judge checks, as
/// for all feeds, that none comes too early.)
pub(crate) async fn p12(case: &Case<'_>) {
    let log = case.stage.origin.log();
    let started: Timestamp = super::now();
    let mut seen = 0;
    for line in ["P1", "P4", "P15", "P22"] {
        let feed = Subscribed { id: 0, path: format!("/{line}/0"), host: 0 };
        let before = log.iter().filter(|request| *request.path == *feed.path).count();
        let polls = case.requests(&feed.path, before + 2).await;
        let after: Vec<_> = polls[before.min(polls.len())..].iter().filter(|poll| poll.wall > started).collect();
        case.require(&format!("{} is polled on", feed.path), !after.is_empty(), &polls.len());
        case.require("conditionally", after.iter().all(|poll| poll.is_conditional()), &feed.path);
        case.require("and answered 304", after.iter().all(|poll| poll.status == Some(304)), &feed.path);
        seen += after.len();
    }
    case.require("polls after the new start", seen >= 5, &seen);
}

pub(crate) async fn p13(case: &Case<'_>) {
    let target = case.path();
    let there = case.host();
    case.stage.origin.set(&target, Script::feed(Feed::rss()));
    let feed = case.feed(Script::redirect(302, case.stage.origin.url_on(there, &target))).await;
    let first_hop = case.requests(&feed.path, 3).await;
    case.expect("conditions at the hop that gave no validators", vec![None; 3], sent(&first_hop, "if-none-match"));
    case.expect("conditions at the hop that gave no validators", vec![None; 3], sent(&first_hop, "if-modified-since"));
    let hops = case.requests(&target, 3).await;
    let tag = hops.first().and_then(|hop| hop.answer_header("etag"));
    case.expect("conditions at the hop that gave them", vec![None, tag.clone(), tag], sent(&hops, "if-none-match"));
    let outcomes: Vec<_> = case.remembered(&feed, 2).await.into_iter().skip(1).map(|poll| poll.outcome).collect();
    let not_modified = outcomes.iter().all(|outcome| outcome == "not_modified");
    case.require("a 304 at the end of redirects is a 304", not_modified, &outcomes);

    // The redirect's target changes to another host with the same path: the first one's validators must not be sent to
    // it.
    let (here, elsewhere) = (case.host(), case.host());
    let turned = format!("/P13{OWN_RULES}turned");
    case.stage.origin.set(&turned, Script::feed(Feed::rss()));
    let to = |host| Script::redirect(302, case.stage.origin.url_on(host, &turned));
    // The judge treats a path as one document wherever it is, so this case is judged here.
    case.feed(to(here).then(to(elsewhere))).await;
    let hops = case.requests(&turned, 2).await;
    case.expect("conditions at another host's same path", vec![None, None], sent(&hops, "if-none-match"));
}

pub(crate) async fn p40(case: &Case<'_>) {
    let kinds = [(Coding::Gzip, "-gzip"), (Coding::Gzip, ";gzip"), (Coding::Br, "-br"), (Coding::Zstd, "-zstd")];
    for (coding, suffix) in kinds {
        let script = Feed::rss().tag(Tag::Suffix(suffix)).stamp(Stamp::None).padding(200);
        let feed = case.feed(Script::feed(script).offer([coding])).await;
        let polls = case.requests(&feed.path, 3).await;
        let tag = polls.first().and_then(|poll| poll.answer_header("etag")).unwrap_or_default();
        case.require("the origin marked its tag", tag.ends_with(&format!("{suffix}\"")), &tag);
        let list = Some(format!("{tag}, {}", tag.replace(suffix, "")));
        case.expect("If-None-Match", vec![None, list], sent(&polls[..2.min(polls.len())], "if-none-match"));
        let statuses: Vec<_> = polls.iter().filter_map(|poll| poll.status).collect();
        case.expect("statuses", vec![200, 304, 304], statuses);
    }
}

pub(crate) async fn p41(case: &Case<'_>) {
    let feed = case.feed(Script::status(304).header("ETag", "\"x\"").times(2).then(Script::feed(Feed::rss()))).await;
    let polls = case.requests(&feed.path, 3).await;
    case.expect("the 304's tag is not kept", vec![None, None, None], sent(&polls, "if-none-match"));
    let history = case.remembered(&feed, 3).await;
    let outcomes: Vec<_> =
        history.iter().take(3).map(|poll| (poll.outcome.as_str(), poll.failure.as_deref())).collect();
    let failed = ("failed", Some("status"));
    case.expect("outcomes", vec![failed, failed, ("modified", None)], outcomes);
    case.require_distance("back-off", Duration::from_secs(1), &polls);
}

pub(crate) async fn p42(case: &Case<'_>) {
    let feed = case.feed(Script::status(226).header("IM", "feed").then(Script::feed(Feed::rss()))).await;
    let polls = case.requests(&feed.path, 3).await;
    case.expect("A-IM goes with conditions", vec![None, None, some("feed")], sent(&polls, "a-im"));
    let history = case.remembered(&feed, 2).await;
    let outcomes: Vec<_> = history.iter().take(2).map(|poll| poll.outcome.as_str()).collect();
    case.expect("a 226 that was not asked for", vec!["failed", "modified"], outcomes);

    // Entries that a delta leaves out stay, and its validators are used for the next poll.
    let feed = case.feed(Script::feed(Feed::atom().deltas().initial(5))).await;
    case.requests(&feed.path, 2).await;
    case.expect("entries before the delta", json!(5), case.wait_for_field(&feed, "entries", &json!(5)).await);
    case.stage.origin.publish(&feed.path, 2);
    let statuses = |requests: &[Record]| requests.iter().filter_map(|poll| poll.status).collect::<Vec<_>>();
    let polls = case.until(&feed.path, |polls| statuses(polls).ends_with(&[226, 304])).await;
    let delta = polls.iter().find(|poll| poll.status == Some(226)).and_then(|poll| poll.items.clone());
    case.expect("items in the delta", Some(5..7), delta);
    case.expect("entries after the delta", json!(7), case.wait_for_field(&feed, "entries", &json!(7)).await);
    // The whole document again, without new entries.
    case.stage.origin.set(&feed.path, Script::feed(Feed::atom().initial(5).conditions(Conditions::Ignored)));
    let whole = case.stage.origin.requests(&feed.path).len() + 1;
    case.requests(&feed.path, whole + 1).await;
    case.remembered(&feed, whole + 1).await;
    case.expect("entries after the whole document", json!(7), case.view(&feed).await["entries"].clone());
}

pub(crate) async fn p43(case: &Case<'_>) {
    let plain = Feed::rss().tag(Tag::None).stamp(Stamp::None);
    let feed = case.feed(Script::feed(plain).offer([Coding::Gzip])).await;
    case.requests(&feed.path, 4).await;
    let history = case.remembered(&feed, 4).await;
    let polls: Vec<_> = history.iter().take(4).map(|poll| (poll.status, poll.outcome.as_str())).collect();
    let same = (Some(200), "not_modified");
    case.expect("four downloads of the same bytes", vec![(Some(200), "modified"), same, same, same], polls);
    case.expect("entries", json!(3), case.view(&feed).await["entries"].clone());
}
