//! The shape of a request: P31 to P37.

use load_tests::{Feed, Record, Script};
use serde_json::json;

use super::case::{Case, sent, some};
use super::{HEADS, MOVE_AFTER};

fn names(request: &Record) -> Vec<String> {
    let mut names: Vec<String> = request.headers().map(|(name, _)| name.to_ascii_lowercase()).collect();
    names.sort();
    names
}

pub(crate) async fn p31(case: &Case<'_>) {
    for (subscribers, text) in [(1, "1 subscriber"), (7, "7 subscribers"), (0, "0 subscribers")] {
        let path = case.path();
        case.stage.origin.set(&path, Script::feed(Feed::rss()));
        case.subscribe(case.host(), &path, json!({"subscribers": subscribers})).await;
        let requests = case.requests(&path, 1).await;
        let expected = format!("feedfleet/{} (+https://fleet.example/bot; {text})", env!("CARGO_PKG_VERSION"));
        case.expect("User-Agent", vec![Some(expected)], sent(&requests, "user-agent"));
    }
}

pub(crate) async fn p32(case: &Case<'_>) {
    let cookies = |script: Script| script.header("Set-Cookie", "id=1; Path=/").header("Cache-Control", "no-cache");
    let (first, second) = (format!("{}?a=b%20c&&d", case.path()), format!("{}?to=1", case.path()));
    case.stage.origin.set(&second, cookies(Script::feed(Feed::rss())));
    case.stage.origin.set(&first, cookies(Script::redirect(302, format!("{second}#there"))));
    case.subscribe(case.host(), &format!("{first}#here"), json!({})).await;
    // These scripts only answer the exact target, including the query.
    let (first, second) = (case.requests(&first, 3).await, case.requests(&second, 3).await);
    // The signature is tested by P46.
    let signed = ["signature", "signature-agent", "signature-input"];
    let bare = [&["accept", "accept-encoding", "host"][..], &signed, &["user-agent"]].concat();
    let bare: Vec<String> = bare.into_iter().map(str::to_owned).collect();
    let conditions = ["if-modified-since", "if-none-match"].map(str::to_owned);
    let conditional = [&["a-im".to_owned()], &bare[..3], &conditions, &bare[3..]].concat();
    case.expect("fields of the first hop", vec![bare.clone(); 3], first.iter().map(names).collect());
    let expected = vec![bare, conditional.clone(), conditional];
    case.expect("fields of the second hop", expected, second.iter().map(names).collect());
}

pub(crate) async fn p33(case: &Case<'_>) {
    let feed = case.feed(Script::feed(Feed::json())).await;
    let requests = case.requests(&feed.path, 2).await;
    let codings = some("gzip, br, zstd, deflate");
    case.expect("Accept-Encoding", vec![codings.clone(), codings], sent(&requests, "accept-encoding"));
    for accept in sent(&requests, "accept").into_iter().flatten() {
        let kinds: Vec<&str> =
            accept.split(',').map(|kind| kind.split(';').next().unwrap_or_default().trim()).collect();
        let first =
            kinds.iter().take(3).all(|kind| kind.contains("atom") || kind.contains("rss") || kind.contains("feed"));
        case.require("Accept names feed types first", first, &kinds);
        case.require("Accept refuses nothing", kinds.contains(&"*/*"), &kinds);
    }
}

pub(crate) async fn p34(case: &Case<'_>) {
    let feed = case.feed(Script::feed(Feed::rss()).then(Script::status(405)).then(Script::feed(Feed::rss()))).await;
    case.requests(&feed.path, 3).await;
    let log = case.stage.origin.log();
    let others = log.iter().filter(|request| request.method() != "GET" && !request.path.starts_with(HEADS));
    let others: Vec<&str> = others.map(Record::method).collect();
    case.require("every method of the whole run is GET, P44 aside", others.is_empty(), &others);
}

pub(crate) async fn p36(case: &Case<'_>) {
    for end in ["//b/?x=1&&y", "/%7Euser/%E9;v=1", "/q?u=http://x/%7C", "/A/B?C=d+e%2B&", "/?", "/caf%c3%a9/feed.XML"] {
        let target = format!("{}{end}", case.path());
        case.stage.origin.set(&target, Script::feed(Feed::rss()));
        case.subscribe(case.host(), &target, json!({})).await;
        let requests = case.requests(&target, 2).await;
        let asked: Vec<&str> = requests.iter().map(Record::target).collect();
        case.expect("targets", vec![target.as_str(); 2], asked);
    }
}

pub(crate) async fn p37(case: &Case<'_>) {
    // Each hop has a separate host, so that none waits for a gap.
    let chain: Vec<(usize, String)> = (0..7).map(|_| (case.host(), case.path())).collect();
    for pair in chain.windows(2) {
        let next = case.stage.origin.url_on(pair[1].0, &pair[1].1);
        case.stage.origin.set(&pair[0].1, Script::redirect(302, next));
    }
    case.stage.origin.set(&chain[6].1, Script::feed(Feed::rss()));
    let six = case.subscribe(chain[0].0, &chain[0].1, json!({})).await;
    let history = case.remembered(&six, 1).await;
    let failure = history.first().and_then(|poll| poll.failure.as_deref());
    case.expect("six hops", Some("redirects"), failure);
    case.expect("requests to the fifth hop's target", 1, case.stage.origin.requests(&chain[5].1).len().min(1));
    case.expect("requests to the sixth hop's target", 0, case.stage.origin.requests(&chain[6].1).len());

    let ends = case.path();
    case.stage.origin.set(&ends, Script::redirect(302, ends.clone()));
    let circle = case.subscribe(case.host(), &ends, json!({})).await;
    let history = case.remembered(&circle, 1).await;
    case.expect("a loop", Some("redirects"), history.first().and_then(|poll| poll.failure.as_deref()));
    let requests = case.requests(&ends, 2).await;
    case.require_distance("a loop ends at once", super::INTERVAL, &requests);

    for status in [302, 303, 307] {
        let target = case.path();
        let there = case.host();
        case.stage.origin.set(&target, Script::feed(Feed::rss()));
        let feed = case.feed(Script::redirect(status, case.stage.origin.url_on(there, &target))).await;
        case.requests(&target, 4).await;
        case.requests(&feed.path, 4).await;
        let url = case.view(&feed).await["url"].as_str().map(str::to_owned);
        case.expect(
            &format!("the URL after four {status}"),
            Some(case.stage.origin.url_on(feed.host, &feed.path)),
            url,
        );
    }
}

/// Checks that permanent redirects change the stored URL, but only after several sightings over `policy.move_after`.
pub(crate) async fn p37_moves(case: &Case<'_>) {
    for status in [301, 308] {
        let target = case.path();
        let there = case.host();
        case.stage.origin.set(&target, Script::feed(Feed::rss()));
        let new = case.stage.origin.url_on(there, &target);
        let feed = case.feed(Script::redirect(status, new.clone())).await;
        let first = case.requests(&feed.path, 3).await;
        let url = case.wait_for_field(&feed, "url", &json!(new)).await;
        case.expect(&format!("the URL after a {status} that lasts"), json!(new), url);
        let seen = case.stage.origin.requests(&feed.path);
        let over = seen.last().zip(first.first()).map(|(last, first)| last.start - first.start).unwrap_or_default();
        case.require(
            &format!("a {status} is seen for long"),
            seen.len() >= 3 && over + case.stage.noise() >= MOVE_AFTER,
            &(seen.len(), over),
        );
        let hops = case.requests(&target, 4).await;
        let conditional = hops.iter().skip(1).all(Record::is_conditional);
        case.require("the move reads nothing twice", conditional, &sent(&hops, "if-none-match"));
    }
}
