//! Outboxes of ActivityStreams: from an actor to its posts, at the pace and under the guard of redirects.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::host::HostConfig;
use common::outcome::FailureKind;
use common::report::Outcome;
use load_tests::{Feed, Script};

use super::bench::{Bench, document, failure, not_modified};

const ACTIVITY: &str = "application/activity+json; charset=utf-8";

fn json(body: &str) -> Script {
    Script::body(ACTIVITY, format!("{{\"@context\": \"https://www.w3.org/ns/activitystreams\", {body}}}"))
}

fn actor(outbox: &str) -> Script {
    json(&format!(
        "\"type\": \"Person\", \"name\": \"Ada Quay\", \"url\": \"https://a.example/@ada\", \"outbox\": \"{outbox}\""
    ))
}

fn collection(first: &str) -> Script {
    json(&format!("\"type\": \"OrderedCollection\", \"totalItems\": 1, \"first\": \"{first}\""))
}

fn posts(ids: &[u32]) -> Script {
    let note = |id| format!("{{\"type\": \"Note\", \"id\": \"https://a.example/{id}\", \"content\": \"note {id}\"}}");
    let notes: Vec<String> = ids.iter().map(note).collect();
    json(&format!("\"type\": \"OrderedCollectionPage\", \"orderedItems\": [{}]", notes.join(", ")))
}

fn asked(bench: &Bench) -> Vec<String> {
    bench.origin.log().iter().map(|record| record.target().to_owned()).collect()
}

/// Returns an actor at `/ada` whose posts are at `/outbox?page=true`.
fn served(bench: &Bench) -> common::job::FetchJob {
    bench.origin.set("/outbox", collection("?page=true"));
    bench.origin.set("/outbox?page=true", posts(&[2, 1]).header("ETag", "\"two\"").then(Script::status(304)));
    bench.feed("/ada", actor("/outbox"))
}

#[tokio::test]
async fn an_actor_leads_to_its_posts_and_later_polls_begin_there() {
    let bench = Bench::start().await;
    let mut job = served(&bench);
    let first = bench.poll(&mut job).await;
    let read = document(&first);
    assert_eq!((read.entries.len(), read.title.as_deref()), (2, Some("Ada Quay")));
    assert_eq!(read.link.as_deref(), Some("https://a.example/@ada"));
    assert_eq!(first.moved_to, None);
    let posts = format!("{}#posts", bench.origin.url("/outbox?page=true"));
    assert_eq!(job.validators.for_url.as_deref(), Some(&*posts));

    let second = bench.poll(&mut job).await;
    assert!(not_modified(&second) && second.conditional, "{second:?}");
    assert_eq!(job.validators.for_url.as_deref(), Some(&*posts), "a 304 does not forget it");
    let requests = ["/ada", "/outbox", "/outbox?page=true", "/outbox?page=true"];
    assert_eq!(asked(&bench), requests, "one request a poll from then on");
    let log = bench.origin.log();
    let accepts: Vec<String> = log.iter().filter_map(|record| record.header("accept")).collect();
    assert!(!accepts[0].contains("activity+json"), "feeds are asked for as ever: {}", accepts[0]);
    assert!(accepts[1..].iter().all(|accept| accept.starts_with("application/activity+json")), "{accepts:?}");
    assert!(log.iter().all(|record| record.header("signature").is_none()));
}

#[tokio::test]
async fn a_page_whose_author_is_an_actor_leads_there_unless_it_has_a_feed() {
    let bench = Bench::start().await;
    served(&bench);
    let page = |more: &str| {
        let html = format!("<!DOCTYPE html><link rel=alternate type=application/activity+json href=/ada>{more}");
        Script::body("text/html", html)
    };
    let mut job = bench.feed("/@ada", page(""));
    assert_eq!(document(&bench.poll(&mut job).await).entries.len(), 2);

    let with_feed = "<link rel=alternate type=application/rss+xml href=/rss>";
    let fetched = bench.fetch(&bench.feed("/both", page(with_feed))).await;
    assert_eq!(failure(&fetched).0, FailureKind::NotAFeed);
    let announced: Vec<&str> = fetched.announced.iter().map(|feed| feed.url.as_url().path()).collect();
    assert_eq!(announced, ["/rss", "/ada"]);

    served(&bench);
    let same_address =
        Script::body("text/html", "<!DOCTYPE html><link rel=alternate type=application/activity+json href=/same>");
    let mut job = bench.feed("/same", same_address.then(actor("/outbox")));
    assert_eq!(document(&bench.poll(&mut job).await).entries.len(), 2, "told apart by what is asked for");
}

#[tokio::test]
async fn posts_that_moved_are_found_again_from_the_actor() {
    let bench = Bench::start().await;
    let mut job = served(&bench);
    bench.poll(&mut job).await;
    bench.origin.set("/outbox", collection("/new"));
    bench.origin.set("/outbox?page=true", Script::status(404));
    bench.origin.set("/new", posts(&[3, 2, 1]));
    let fetched = bench.poll(&mut job).await;
    assert_eq!(document(&fetched).new_entries, 1);
    assert_eq!(job.validators.for_url, Some(format!("{}#posts", bench.origin.url("/new"))));
    // while the actor is gone as well, that is what is said
    bench.origin.set("/new", Script::status(404));
    bench.origin.set("/ada", Script::status(410));
    assert_eq!(bench.poll(&mut job).await.outcome, Outcome::Gone);
}

#[tokio::test]
async fn posts_whose_place_redirects_to_something_else_are_found_again_from_the_actor() {
    let page = || Script::body("text/html", "<!DOCTYPE html><p>log in");
    for (target, script, is_interrupted) in [
        ("/gone", Script::status(404), false),
        ("/gone", Script::status(404), true),
        ("/login", page(), false),
        ("/login", page(), true),
        ("/ada", actor("/outbox"), false),
    ] {
        let bench = Bench::start().await;
        let mut job = served(&bench);
        bench.poll(&mut job).await;
        bench.origin.set("/outbox", collection("/new"));
        bench.origin.set("/new", posts(&[3, 2, 1]));
        bench.origin.set(target, script);
        let moved = Script::redirect(302, target);
        // A worker does not wait for the next request to the host, and the next fetch continues there.
        let moved = if is_interrupted { moved.header("Retry-After", "30") } else { moved };
        bench.origin.set("/outbox?page=true", moved);
        if is_interrupted {
            let first = bench.poll(&mut job).await;
            assert!(matches!(first.outcome, Outcome::Deferred { .. }), "{target}: {first:?}");
        }
        let fetched = bench.poll(&mut job).await;
        assert_eq!(document(&fetched).new_entries, 1, "{target}");
        assert_eq!(job.validators.for_url, Some(format!("{}#posts", bench.origin.url("/new"))));
    }
}

#[tokio::test]
async fn posts_that_are_still_missing_are_looked_for_once() {
    let bench = Bench::start().await;
    served(&bench);
    let mut job = bench.feed("/outbox", collection("?page=true"));
    assert_eq!(document(&bench.poll(&mut job).await).entries.len(), 2);
    bench.origin.set("/outbox?page=true", Script::status(404));
    let fetched = bench.poll(&mut job).await;
    assert_eq!((failure(&fetched).0, fetched.http_status), (FailureKind::Status, Some(404)));
    assert_eq!(asked(&bench)[2..], ["/outbox?page=true", "/outbox", "/outbox?page=true"]);
}

#[tokio::test]
async fn p17_p30_posts_that_moved_are_found_in_later_fetches_where_no_request_may_follow() {
    let hour = Duration::from_secs(3600);
    let later = Script::status(404).header("Retry-After", "3600");
    for (gap, missing, deferred) in [(hour, Script::status(404), 3), (Duration::ZERO, later, 1)] {
        let mut bench = Bench::with_hosts(HostConfig { gap, ..HostConfig::default() }, Vec::new(), |_| {}).await;
        bench.origin.set("/outbox?page=true", missing);
        bench.origin.set("/outbox", collection("/new"));
        bench.origin.set("/new", posts(&[2, 1]));
        let mut job = bench.feed("/ada", actor("/outbox"));
        job.validators.for_url = Some(format!("{}#posts", bench.origin.url("/outbox?page=true")));
        for requests in 1..=deferred {
            let fetched = bench.poll(&mut job).await;
            assert!(matches!(fetched.outcome, Outcome::Deferred { .. }), "{fetched:?}");
            assert_eq!(asked(&bench).len(), requests);
            bench.end_gaps().await;
        }
        assert_eq!(document(&bench.poll(&mut job).await).entries.len(), 2);
        assert_eq!(asked(&bench), ["/outbox?page=true", "/ada", "/outbox", "/new"]);
        assert_eq!(job.validators.for_url, Some(format!("{}#posts", bench.origin.url("/new"))));
    }
}

#[tokio::test]
async fn a_search_for_posts_that_was_interrupted_is_not_started_again_where_it_finds_none() {
    let page = "<!DOCTYPE html><link rel=alternate type=application/activity+json href=/ada>";
    for (own, next) in [(Script::body("text/html", page), "/ada"), (collection("/posts"), "/posts")] {
        let bench = Bench::start().await;
        bench.origin.set("/posts", Script::status(404));
        bench.origin.set("/ada", Script::status(404));
        let mut job = bench.feed("/own", own.header("Retry-After", "3600"));
        job.validators.for_url = Some(format!("{}#posts", bench.origin.url("/posts")));
        let first = bench.poll(&mut job).await;
        assert!(matches!(first.outcome, Outcome::Deferred { .. }), "{first:?}");
        let second = bench.poll(&mut job).await;
        assert_eq!((failure(&second).0, second.http_status), (FailureKind::Status, Some(404)));
        assert_eq!(asked(&bench), ["/posts", "/own", next]);
    }
}

#[tokio::test]
async fn p17_the_next_step_to_the_posts_waits_as_long_as_the_last_answer_says() {
    let bench = Bench::start().await;
    served(&bench);
    let limited = actor("/outbox").header("RateLimit-Remaining", "0").header("RateLimit-Reset", "60");
    let mut job = bench.feed("/ada", limited);
    let first = bench.poll(&mut job).await;
    let Outcome::Deferred { until } = first.outcome else { panic!("{first:?}") };
    assert_eq!((first.retry_after, first.limited_until), (Some(until), Some(until)));
    bench.requests("/outbox", 0).await;
    assert_eq!(document(&bench.poll(&mut job).await).entries.len(), 2, "the next fetch continues there");
    bench.requests("/ada", 1).await;
}

#[tokio::test]
async fn an_outbox_that_is_gone_is_not_the_actors_end() {
    let bench = Bench::start().await;
    bench.origin.set("/outbox", Script::status(410));
    let fetched = bench.fetch(&bench.feed("/ada", actor("/outbox"))).await;
    assert_eq!(failure(&fetched).0, FailureKind::Status);
}

#[tokio::test]
async fn p30_each_request_on_the_way_waits_for_its_hosts_gap() {
    let gap = Duration::from_millis(300);
    let bench = Bench::with_hosts(HostConfig { gap, ..HostConfig::default() }, Vec::new(), |_| {}).await;
    let mut job = served(&bench);
    assert_eq!(document(&bench.poll(&mut job).await).entries.len(), 2);
    let starts: Vec<Duration> = bench.origin.log().iter().map(|record| record.start).collect();
    assert_eq!(starts.len(), 3);
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] > gap / 2), "{starts:?}");
}

#[tokio::test]
async fn a_host_that_has_no_time_for_the_next_request_is_asked_there_later() {
    let gap = Duration::from_secs(3600);
    let bench = Bench::with_hosts(HostConfig { gap, ..HostConfig::default() }, Vec::new(), |_| {}).await;
    let job = served(&bench);
    let fetched = bench.fetch(&job).await;
    assert!(matches!(fetched.outcome, Outcome::Deferred { .. }), "{fetched:?}");
    bench.requests("/ada", 1).await;
    bench.requests("/outbox", 0).await;
}

#[tokio::test]
async fn armour_no_lead_goes_past_the_guard_or_on_without_end() {
    let bench = Bench::with(|fetch| fetch.allow_networks = vec!["127.0.0.1/32".parse().unwrap()]).await;
    for outbox in [&*bench.origin.url_on(1, "/outbox"), "http://169.254.169.254/outbox"] {
        let fetched = bench.fetch(&bench.feed("/ada", actor(outbox))).await;
        assert_eq!(failure(&fetched).0, FailureKind::RefusedAddress, "{outbox}");
    }
    for outbox in ["javascript:1", "", "http://me:pw@a.example/", "file:///etc/passwd"] {
        let fetched = bench.fetch(&bench.feed("/ada", actor(outbox))).await;
        assert_eq!(failure(&fetched).0, FailureKind::NotAFeed, "'{outbox}'");
    }
    for n in 0..9 {
        bench.origin.set(&format!("/{n}"), collection(&format!("/{}", n + 1)));
    }
    let before = bench.origin.log().len();
    assert_eq!(failure(&bench.fetch(&bench.job(&bench.origin.url("/0"))).await).0, FailureKind::NotAFeed);
    assert_eq!(bench.origin.log().len() - before, 4, "the feed's own URL and three leads");
    let fetched = bench.fetch(&bench.feed("/round", collection("/round"))).await;
    assert_eq!(failure(&fetched).0, FailureKind::NotAFeed);
    bench.requests("/round", 2).await;
}

#[tokio::test]
async fn an_ordinary_feed_is_not_disturbed() {
    let bench = Bench::start().await;
    let mut job = bench.feed("/feed", Script::feed(Feed::rss()));
    bench.poll(&mut job).await;
    assert_eq!(job.validators.for_url, None);
    bench.poll(&mut job).await;
    bench.requests("/feed", 2).await;
}

#[tokio::test]
async fn requests_for_activities_are_signed_with_the_configured_key() {
    let folder = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("key.pem"), key.serialize_pem()).unwrap();
    std::fs::write(path("public.pem"), key.public_key_pem()).unwrap();
    let bench = Bench::with(|fetch| fetch.activitypub_key = path("key.pem")).await;
    let mut job = served(&bench);
    assert_eq!(document(&bench.poll(&mut job).await).entries.len(), 2);
    let log = bench.origin.log();
    assert_eq!(log[0].header("signature"), None, "the first request is for a feed of any kind");
    for record in &log[1..] {
        let header = |name: &str| record.header(name).unwrap();
        let signature = header("signature");
        let (start, encoded) = signature.trim_end_matches('"').split_once("signature=\"").unwrap();
        let parameters = "keyId=\"https://example.com/bot#main-key\",algorithm=\"rsa-sha256\",headers=\"(request-target) host date\",";
        assert_eq!(start, parameters);
        let signed =
            format!("(request-target): get {}\nhost: {}\ndate: {}", record.target(), header("host"), header("date"));
        std::fs::write(path("signature"), STANDARD.decode(encoded).unwrap()).unwrap();
        assert!(verified(&path("public.pem"), &path("signature"), &signed), "{signed}");
        assert!(!verified(&path("public.pem"), &path("signature"), &signed.replace("get", "post")));
    }
}

/// Returns whether OpenSSL's command accepts a signature: a verifier that shares nothing with ours.
fn verified(public_key: &str, signature: &str, signed: &str) -> bool {
    let mut openssl = Command::new("openssl")
        .args(["dgst", "-sha256", "-verify", public_key, "-signature", signature])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("openssl cannot be run ({error}); run dev/install"));
    openssl.stdin.take().unwrap().write_all(signed.as_bytes()).unwrap();
    openssl.wait().unwrap().success()
}

#[tokio::test]
async fn a_key_that_cannot_be_used_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let elliptic = folder.path().join("elliptic.pem");
    std::fs::write(&elliptic, rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
    for path in [elliptic.to_str().unwrap(), "/nowhere/key.pem"] {
        let mut config = super::bench::config();
        config.activitypub_key = path.to_owned();
        let rules = common::host::HostRules::new(HostConfig::default(), Vec::new());
        let error = worker::fetch::Fetcher::new(&config, &rules).err().unwrap().to_string();
        assert!(error.starts_with(&format!("fetch.activitypub_key: {path} cannot be used: ")), "{error}");
    }
}

/// Returns a bench whose fetcher has a key for requests to actors.
async fn signing(folder: &tempfile::TempDir) -> Bench {
    let key = rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap();
    let path = folder.path().join("key.pem").to_str().unwrap().to_owned();
    std::fs::write(&path, key.serialize_pem()).unwrap();
    Bench::with(|fetch| fetch.activitypub_key = path).await
}

#[tokio::test]
async fn an_actor_that_refuses_an_unsigned_request_is_read_with_a_signed_one() {
    let folder = tempfile::tempdir().unwrap();
    for status in [401, 403] {
        let bench = signing(&folder).await;
        served(&bench);
        bench.origin.set("/ada", Script::status(status).then(actor("/outbox")));
        let mut job = bench.job(&bench.origin.url("/ada"));
        let refused = bench.poll(&mut job).await;
        assert_eq!((failure(&refused).0, refused.wants_signature), (FailureKind::Status, true));
        job.signed = true;
        assert_eq!(document(&bench.poll(&mut job).await).entries.len(), 2);
        let signed: Vec<bool> = bench.origin.log().iter().map(|record| record.header("signature").is_some()).collect();
        assert_eq!(signed, [false, true, true, true]);
    }
    let bench = signing(&folder).await;
    let mut job = bench.feed("/closed", Script::status(401));
    job.signed = true;
    assert!(!bench.poll(&mut job).await.wants_signature, "it was signed");
    let bench = Bench::start().await;
    let mut job = bench.feed("/closed", Script::status(401));
    assert!(!bench.poll(&mut job).await.wants_signature, "there is no key");
}

#[tokio::test]
async fn a_feed_that_was_refused_once_and_is_no_actor_stays_an_ordinary_feed() {
    let folder = tempfile::tempdir().unwrap();
    let bench = signing(&folder).await;
    let mut job = bench.feed("/feed", Script::status(403).then(Script::feed(Feed::rss())));
    assert!(bench.poll(&mut job).await.wants_signature);
    job.signed = true;
    let read = bench.poll(&mut job).await;
    assert_eq!((document(&read).entries.len(), read.wants_signature), (3, false));
    assert_eq!(job.validators.for_url, None, "its URL is not remembered as that of posts");
    job.signed = false;
    bench.poll(&mut job).await;
    let signed: Vec<bool> = bench.origin.log().iter().map(|record| record.header("signature").is_some()).collect();
    assert_eq!(signed, [false, true, false]);
    job.signed = true;
    bench.origin.set("/feed", Script::status(410));
    assert!(matches!(bench.poll(&mut job).await.outcome, Outcome::Gone));
}

#[tokio::test]
async fn a_signed_feed_that_is_missing_fails_after_one_request() {
    let folder = tempfile::tempdir().unwrap();
    let bench = signing(&folder).await;
    for (path, script) in [("/missing", Script::status(404)), ("/page", Script::body("text/html", "<p>moved"))] {
        let mut job = bench.feed(path, script);
        job.signed = true;
        let fetched = bench.poll(&mut job).await;
        assert!(fetched.outcome.failure().is_some(), "{fetched:?}");
        assert_eq!(bench.origin.requests(path).len(), 1);
    }
}

#[tokio::test]
async fn the_feed_of_an_actors_page_is_named_by_the_actors_own_url() {
    let bench = Bench::start().await;
    served(&bench);
    let url = bench.origin.url("/ada");
    let own = format!("\"type\": \"Person\", \"id\": \"{url}\", \"outbox\": \"/outbox\"");
    bench.origin.set("/ada", json(&own));
    let page = "<!DOCTYPE html><link rel=alternate type=application/activity+json href=/ada>";
    let of_page = bench.fetch(&bench.feed("/@ada", Script::body("text/html", page))).await;
    assert_eq!(of_page.permanent_url.map(|url| url.to_string()), Some(url.clone()));
    served(&bench);
    bench.origin.set("/ada", json(&own));
    assert_eq!(bench.fetch(&bench.job(&url)).await.permanent_url, None, "it has that URL");
    bench
        .origin
        .set("/ada", json("\"type\": \"Person\", \"id\": \"https://else.example/ada\", \"outbox\": \"/outbox\""));
    let foreign = bench.fetch(&bench.feed("/@ada", Script::body("text/html", page))).await;
    assert_eq!(foreign.permanent_url, None, "only the document at a URL says that it is its own");
    // The same document at another origin: a stranger's link and a temporary redirect lead there.
    bench.origin.set("/ada", json(&own));
    let elsewhere =
        bench.fetch(&bench.feed("/@eve", Script::redirect(302, url.replace("127.0.0.1", "one.test")))).await;
    assert_eq!(elsewhere.permanent_url, None, "another origin renames nothing");
}
