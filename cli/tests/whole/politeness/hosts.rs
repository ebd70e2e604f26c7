//! Host limits over the whole fleet: P27 to P30, P45.

use std::time::Duration;

use load_tests::{Feed, Rules, Script, judge};
use serde_json::json;

use super::case::{Case, Subscribed};
use super::{GAP, INTERVAL, OWN_RULES, SLOW_GAP};
use crate::harness::Home;

/// Targets of redirects from other hosts. One hop may wait for its host and the next one not: only the distance between
/// polls is guaranteed.
pub(crate) const HOPS: [&str; 2] = ["/P30/2", "/P30/3"];

async fn feeds_at(case: &Case<'_>, host: usize, count: usize, script: &Script) -> Vec<Subscribed> {
    let mut feeds = Vec::new();
    for _ in 0..count {
        feeds.push(case.feed_at(host, script.clone()).await);
    }
    feeds
}

/// Returns the requests to these paths, in order of arrival.
fn asked(case: &Case<'_>, of: impl Fn(&str) -> bool) -> Vec<load_tests::Record> {
    let mut requests = case.stage.origin.log();
    requests.retain(|request| of(&request.path));
    requests.sort_by_key(|request| request.start);
    requests
}

pub(crate) async fn p27(case: &Case<'_>) {
    // Responses that take longer than the gap: the next request waits for the response.
    let slow = Script::feed(Feed::rss()).delay(GAP + Duration::from_millis(150));
    for feed in feeds_at(case, case.host(), 4, &slow).await {
        case.requests(&feed.path, 3).await;
    }
    bursting(case).await;
    shared(case).await;
    at_long_gap(case).await;
}

/// Checks that a rule that allows a burst of 4 and 4 at once is used, and not exceeded.
async fn bursting(case: &Case<'_>) {
    let host = case.host();
    case.stage.names.set("burst.test", &[case.stage.origin.address(host).ip()]);
    let paths: Vec<String> = (0..8).map(|number| format!("/P27{OWN_RULES}burst/{number}")).collect();
    for path in &paths {
        case.stage.origin.set(path, Script::feed(Feed::rss()).delay(Duration::from_millis(500)));
        let url = format!("http://burst.test:{}{path}", case.stage.origin.address(host).port());
        // Once during the test: only the import matters here.
        case.add(&url, json!({"interval": 3600})).await;
    }
    for path in &paths {
        case.requests(path, 1).await;
    }
    let requests = asked(case, |path| path.contains("/burst/"));
    let rules =
        Rules { gap: Duration::from_secs(2), burst: 4, parallel: 4, slack: case.stage.noise(), ..Rules::default() };
    let card = judge(&requests, &rules);
    case.require("a bucket of 4, refilled every two seconds", card.is_clean(), &card.violations);
    let bursts = requests.windows(2).filter(|pair| pair[1].start - pair[0].start < rules.gap).count();
    case.require("the burst is used", bursts > 0, &bursts);
}

/// A gap so long that late arrivals are a small part of it.
async fn at_long_gap(case: &Case<'_>) {
    let host = case.host();
    let address = case.stage.origin.address(host);
    case.stage.names.set("slow.test", &[address.ip()]);
    let paths: Vec<String> = (0..3).map(|number| format!("/P27{OWN_RULES}slow/{number}")).collect();
    for path in &paths {
        case.stage.origin.set(path, Script::feed(Feed::rss()));
        case.add(&format!("http://slow.test:{}{path}", address.port()), json!({})).await;
    }
    for path in &paths {
        case.requests(path, 1).await;
    }
    case.until(&paths[0], |requests| requests.len() >= 2).await;
    let requests = asked(case, |path| path.contains("/slow/"));
    case.require("all three and one of them again", requests.len() >= 4, &requests.len());
    case.require_distance("a rule's long gap", SLOW_GAP, &requests);
}

/// A rule that treats all names below a domain as one host.
async fn shared(case: &Case<'_>) {
    let mut paths = Vec::new();
    for name in ["a.shared.test", "b.shared.test", "shared.test"] {
        let host = case.host();
        let address = case.stage.origin.address(host);
        case.stage.names.set(name, &[address.ip()]);
        for number in 0..2 {
            let path = format!("/P27{OWN_RULES}shared/{name}/{number}");
            case.stage.origin.set(&path, Script::feed(Feed::rss()));
            case.add(&format!("http://{name}:{}{path}", address.port()), json!({})).await;
            paths.push(path);
        }
    }
    for path in &paths {
        case.requests(path, 2).await;
    }
    let requests = asked(case, |path| path.contains("/shared/"));
    case.require_distance("three names, one host", Duration::from_millis(1500), &requests);
}

pub(crate) async fn p28(case: &Case<'_>) {
    for status in [429, 503] {
        let host = case.host();
        let feed = Script::feed(Feed::rss());
        let busy = feed.clone().then(Script::status(status).header("Retry-After", "4")).then(feed.clone());
        let throttled = case.feed_at(host, busy).await;
        let others = feeds_at(case, host, 4, &feed).await;
        let answers = case.requests(&throttled.path, 2).await;
        let Some(end) = answers.get(1).and_then(|answer| answer.end) else { continue };
        let until = end + Duration::from_secs(4);
        for other in others.iter().chain([&throttled]) {
            let before = case.stage.origin.requests(&other.path).iter().filter(|request| request.start < until).count();
            case.requests(&other.path, before + 1).await;
        }
        let local = case.stage.origin.address(host);
        let mut after = case.stage.origin.log();
        after.retain(|request| request.local == local && request.start > end);
        after.sort_by_key(|request| request.start);
        let during: Vec<_> =
            after.iter().filter(|request| request.start < until).map(|request| &request.path).collect();
        case.require(&format!("nobody asks during the hold of a {status}"), during.is_empty(), &during);
        case.require_distance(&format!("the release of a {status}"), GAP, &after);
    }
}

pub(crate) async fn p29(case: &Case<'_>) {
    const IMPORTED: usize = 12;
    let neighbour = case.feed(Script::feed(Feed::rss())).await;
    case.requests(&neighbour.path, 2).await;
    let feeds = feeds_at(case, case.host(), IMPORTED, &Script::feed(Feed::rss())).await;
    let before = case.stage.origin.requests(&neighbour.path).len();
    let mut firsts = Vec::new();
    for feed in &feeds {
        firsts.extend(case.requests(&feed.path, 1).await);
    }
    let meanwhile = case.stage.origin.requests(&neighbour.path).len() - before;
    firsts.sort_by_key(|request| request.start);
    case.require_distance("first polls of an import", GAP, &firsts);
    let took = firsts.last().zip(firsts.first()).map(|(last, first)| last.start - first.start).unwrap_or_default();
    let least = GAP * u32::try_from(IMPORTED - 1).unwrap();
    case.require("the import takes all its gaps", took + case.stage.noise() >= least, &took);
    case.require("the neighbour is polled meanwhile", meanwhile >= 2, &meanwhile);
}

pub(crate) async fn p30(case: &Case<'_>) {
    // A busy host, to which another host's feeds redirect: the judge checks its gap, which hops must keep as well.
    let busy = case.host();
    let feeds = feeds_at(case, busy, 2, &Script::feed(Feed::rss())).await;
    let targets = [case.path(), case.path()];
    assert_eq!(targets, HOPS);
    for target in &targets {
        case.stage.origin.set(target, Script::feed(Feed::rss()));
        case.feed(Script::redirect(307, case.stage.origin.url_on(busy, target))).await;
    }
    // A page that announces a feed on its own host.
    let found = case.path();
    case.stage.origin.set(&found, Script::feed(Feed::atom()));
    let link = format!("<!doctype html><link rel=alternate type=application/atom+xml href={found}>");
    case.feed(Script::body("text/html", link)).await;
    // A page that announces nothing: well-known paths are tried once, at the host's pace.
    let bare = case.feed(Script::body("text/html", "<!doctype html><title>Nothing</title>")).await;
    for path in feeds.iter().map(|feed| &feed.path).chain(&targets).chain([&found, &bare.path]) {
        case.requests(path, 2).await;
    }
    let log = case.stage.origin.log();
    let unwanted: Vec<_> = log.iter().map(load_tests::Record::target).filter(|target| is_unwanted(target)).collect();
    case.require("no robots.txt, no icons", unwanted.is_empty(), &unwanted);
}

fn is_unwanted(target: &str) -> bool {
    target.contains("robots.txt") || target.contains("favicon") || target.contains("touch-icon")
}

/// Uses a separate fleet and stage, because the limit applies to the whole fleet.
pub(crate) async fn p45(case: &Case<'_>) {
    let home = Home::new("[worker]\ngentle = true\n[host]\ngap = \"10ms\"\n");
    let fleet = home.start(&[]);
    case.stage.play_before(&fleet.api).await;
    let mut feeds = Vec::new();
    let begun = case.stage.origin.elapsed();
    for _ in 0..10 {
        // Slow enough that five would be in flight at once without the limit.
        feeds.push(case.feed(Script::feed(Feed::rss()).delay(INTERVAL * 3)).await);
    }
    for feed in &feeds {
        case.requests(&feed.path, 1).await;
    }
    let log = case.stage.origin.log();
    let everybody: Vec<_> = log.iter().collect();
    for request in &everybody {
        let at_once = everybody.iter().filter(|other| {
            other.start <= request.start && other.end.is_none_or(|end| end > request.start + Duration::from_millis(5))
        });
        let at_once = at_once.count();
        case.require("at most 4 in flight", at_once <= 4, &at_once);
        let started = everybody.iter().filter(|other| other.start <= request.start).count();
        let allowed = 4.0 + (request.start - begun).as_secs_f64();
        case.require("a burst of 4, then one a second", started as f64 <= allowed, &(started, allowed));
    }
    let logged = fleet.stderr().contains("FEEDFLEET_FETCH__USER_AGENT_URL=");
    case.require("a missing info URL is logged", logged, &fleet.stderr());
    let agent = log.first().and_then(|request| request.header("user-agent"));
    let expected = format!("feedfleet/{} (1 subscriber)", env!("CARGO_PKG_VERSION"));
    case.expect("User-Agent without an info URL", Some(expected), agent);
    fleet.stop();
}
