//! A page in place of a feed that announces none: where feeds usually are is tried once, at the host's pace.

use std::time::Duration;

use common::host::{HostConfig, HostRules};
use common::job::FetchJob;
use common::outcome::{Blocker, FailureKind};
use common::report::Outcome;
use common::url::Version;
use load_tests::{Delivery, Feed, Script};

use super::bench::{Bench, document, failure};

fn page(inside: &str) -> Script {
    Script::body("text/html", format!("<!DOCTYPE html><html><body>{inside}</body></html>"))
}

fn asked(bench: &Bench) -> Vec<String> {
    bench.origin.log().iter().map(|record| record.target().to_owned()).collect()
}

#[tokio::test]
async fn a_page_that_announces_nothing_is_told_with_what_is_found_at_the_usual_places() {
    let bench = Bench::start().await;
    bench.origin.set("/feed", page("no feed either"));
    bench.origin.set("/feed.xml", Script::redirect(301, "/feeds/all"));
    bench.origin.set("/feeds/all", Script::feed(Feed::rss()));
    let job = bench.feed("/about/", page("hello"));
    let fetched = bench.fetch(&job).await;
    assert_eq!((failure(&fetched).0, fetched.http_status), (FailureKind::NotAFeed, Some(200)), "the page stays a page");
    let found: Vec<String> = fetched.announced.iter().map(|feed| feed.url.to_string()).collect();
    assert_eq!(found, [bench.origin.url("/feeds/all")]);
    assert_eq!(asked(&bench), ["/about/", "/feed", "/feed.xml", "/feeds/all"], "and no further");
}

#[tokio::test]
async fn each_place_is_asked_once_and_only_when_a_feed_is_new() {
    let bench = Bench::start().await;
    let job = bench.feed("/", page("hello"));
    let fetched = bench.fetch(&job).await;
    assert!(fetched.announced.is_empty());
    assert_eq!(asked(&bench), ["/", "/feed", "/feed.xml", "/rss.xml", "/atom.xml", "/index.xml", "/rss"]);
    bench.fetch(&FetchJob { version: Version(2), ..job }).await;
    assert_eq!(asked(&bench).len(), 8, "a page that was looked through is not again");
    bench.fetch(&bench.feed("/other", page("hello"))).await;
    assert_eq!(asked(&bench).len(), 9, "nor is its site, whatever page of it is added");
}

#[tokio::test]
async fn a_page_of_a_site_that_was_searched_waits_for_nothing() {
    let mut bench = Bench::start().await;
    bench.fetch(&bench.feed("/", page("hello"))).await;
    let gap = Duration::from_secs(3600);
    bench.rules = HostRules::new(HostConfig { gap, ..HostConfig::default() }, Vec::new());
    bench.end_gaps().await;
    // Within the gap: a search would wait for it.
    let job = bench.feed("/other", page("hello").header("Retry-After", "60"));
    let fetched = tokio::time::timeout(Duration::from_secs(30), bench.fetch(&job)).await.expect("no wait");
    assert_eq!((failure(&fetched).0, fetched.http_status), (FailureKind::NotAFeed, Some(200)));
    assert_eq!(asked(&bench).len(), 8, "a page, six guesses, and the other page");
}

#[tokio::test]
async fn nothing_is_guessed_for_an_import_or_asked_of_a_host_that_nobody_named() {
    let bench = Bench::start().await;
    let job = bench.feed("/", page("parked"));
    bench.fetch(&FetchJob { search: false, ..job }).await;
    assert_eq!(asked(&bench), ["/"]);

    // A site that sends every client to the login page of another host.
    let login = bench.origin.url_on(1, "/login");
    bench.origin.set("/login", page("log in"));
    bench.fetch(&bench.feed("/members", Script::redirect(302, login.clone()))).await;
    assert_eq!(asked(&bench), ["/", "/members", "/login"], "the page is not the given host's");
    bench.origin.set("/feed", Script::redirect(302, login));
    bench.fetch(&bench.job(&bench.origin.url("/"))).await;
    let guesses = ["/", "/feed", "/feed.xml", "/rss.xml", "/atom.xml", "/index.xml", "/rss"];
    assert_eq!(asked(&bench)[3..], guesses, "no guess is followed to another host");
}

#[tokio::test]
async fn p37_a_link_to_a_refused_address_does_not_hide_the_good_one_behind_it() {
    let bench = Bench::with(|fetch| fetch.allow_networks = vec!["127.0.0.1/32".parse().unwrap()]).await;
    let link = |url: &str| format!("<link rel=alternate type=application/rss+xml href='{url}'>");
    let good = bench.origin.url("/good");
    let refused = [bench.origin.url_on(1, "/feed"), format!("http://two.test:{}/feed", bench.origin.address(1).port())];
    let links = [link(&refused[0]), link(&refused[1]), link(&good)].concat();
    let fetched = bench.fetch(&bench.feed("/", page(&links))).await;
    let announced: Vec<String> = fetched.announced.iter().map(|feed| feed.url.to_string()).collect();
    assert_eq!(announced, [good]);
    let fetched = bench.fetch(&bench.feed("/", page(&link(&refused[0])))).await;
    assert_eq!((fetched.announced.len(), asked(&bench).len()), (0, 2), "and a page that announces is not searched");
}

#[tokio::test]
async fn whoever_says_where_the_feed_is_or_is_no_page_is_not_guessed_at() {
    let bench = Bench::start().await;
    for script in [
        page("<link rel=alternate type=application/rss+xml href=/a>"),
        page("<p class=h-entry>one<p class=h-entry>two"),
        Script::body("text/plain", "hello"),
        Script::body("application/json", "{}"),
        Script::status(404),
        Script::feed(Feed::rss()),
    ] {
        let before = bench.origin.log().len();
        bench.fetch(&bench.feed("/x", script)).await;
        assert_eq!(bench.origin.log().len() - before, 1);
    }
}

#[tokio::test]
async fn p30_guesses_wait_for_the_hosts_gap_and_end_where_the_host_has_enough() {
    let gap = Duration::from_millis(200);
    let bench = Bench::with_hosts(HostConfig { gap, ..HostConfig::default() }, Vec::new(), |_| {}).await;
    bench.origin.set("/rss.xml", Script::status(429).header("Retry-After", "600"));
    let fetched = bench.fetch(&bench.feed("/", page("hello"))).await;
    assert!(matches!(fetched.outcome, Outcome::Throttled { retry_after: Some(_) }), "{fetched:?}");
    assert_eq!(asked(&bench), ["/", "/feed", "/feed.xml", "/rss.xml"]);
    let starts: Vec<Duration> = bench.origin.log().iter().map(|record| record.start).collect();
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] > gap / 2), "{starts:?}");

    let slow = HostConfig { gap: Duration::from_secs(3600), ..HostConfig::default() };
    let bench = Bench::with_hosts(slow, Vec::new(), |_| {}).await;
    let fetched = bench.fetch(&bench.feed("/", page("hello"))).await;
    assert_eq!(failure(&fetched).0, FailureKind::NotAFeed, "a slow host's page is a page all the same");
    assert_eq!(asked(&bench), ["/"]);
}

#[tokio::test]
async fn p30_a_host_that_blocks_a_guess_gets_no_further_one_and_rests() {
    let bench = Bench::start().await;
    bench.origin.set("/feed", Script::status(403).header("cf-mitigated", "challenge"));
    let fetched = bench.fetch(&bench.feed("/", page("hello"))).await;
    assert_eq!(asked(&bench), ["/", "/feed"]);
    assert_eq!((failure(&fetched).0, fetched.blocked_by), (FailureKind::Blocked, Some(Blocker::Cloudflare)));
    assert_eq!(fetched.outcome.rest(), Some(None), "its other feeds wait too");
}

#[tokio::test]
async fn p30_guesses_end_where_the_host_refuses_or_fails_and_continue_after_any_other_answer() {
    let refusals = [401, 403, 451, 500, 503, 599].map(Script::status);
    let closes = Script::status(200).deliver(Delivery::Close);
    let cut = Script::body("text/html", "<html>").deliver(Delivery::Truncated(3));
    for script in refusals.into_iter().chain([closes, cut]) {
        let bench = Bench::start().await;
        bench.origin.set("/feed", script.clone());
        let fetched = bench.fetch(&bench.feed("/", page("hello"))).await;
        assert_eq!((failure(&fetched).0, fetched.http_status), (FailureKind::NotAFeed, Some(200)), "{script:?}");
        assert_eq!(asked(&bench), ["/", "/feed"], "{script:?}");
    }
    for status in [400, 404, 405, 410] {
        let bench = Bench::start().await;
        bench.origin.set("/feed", Script::status(status));
        bench.fetch(&bench.feed("/", page("hello"))).await;
        assert_eq!(asked(&bench).len(), 7, "{status}");
    }
}

#[tokio::test]
async fn p17_a_limit_that_is_used_up_ends_the_guesses_and_is_reported() {
    let guesses = ["/", "/feed", "/feed.xml", "/rss.xml", "/atom.xml", "/index.xml", "/rss"];
    for last in [0, 1, 6] {
        let bench = Bench::start().await;
        let limited = |script: Script| script.header("RateLimit-Remaining", "0").header("RateLimit-Reset", "60");
        bench.origin.set(guesses[last], limited(Script::status(404)));
        let first = if last == 0 { limited(page("hello")) } else { page("hello") };
        let fetched = bench.fetch(&bench.feed("/", first)).await;
        assert_eq!((failure(&fetched).0, fetched.http_status), (FailureKind::NotAFeed, Some(200)), "{last}");
        assert_eq!(asked(&bench), guesses[..=last]);
        assert!(fetched.limited_until.is_some() && fetched.retry_after == fetched.limited_until, "{fetched:?}");
    }
}

#[tokio::test]
async fn an_account_of_the_at_protocol_is_asked_of_its_service() {
    let bench = Bench::start().await;
    let feed = include_str!("../kinds/authorfeed.json");
    bench.origin.set("/xrpc/app.bsky.feed.getAuthorFeed", Script::body("application/json; charset=utf-8", feed));
    for account in ["at://ada.example", "https://bsky.app/profile/ada.example"] {
        let url = common::input::feed_url(account, &bench.origin.url("")).unwrap();
        let fetched = bench.fetch(&bench.job(url.as_str())).await;
        let read = document(&fetched);
        assert_eq!((read.entries.len(), read.title.as_deref()), (3, Some("Ada Quay (@ada.example)")));
    }
    let target = "/xrpc/app.bsky.feed.getAuthorFeed?actor=ada.example&filter=posts_and_author_threads";
    assert_eq!(asked(&bench), [target; 2]);
}
