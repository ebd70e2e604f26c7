//! Where a feed's hub and topic are found: the discovery scenarios of websub.rocks (100 to 104), from their public description.

use load_tests::{Feed, Script};

use super::bench::{Bench, document};

const HUB: &str = "https://hub.example/";
const TOPIC: &str = "https://topic.example/";

/// Returns what a response announces.
async fn found(script: Script) -> (Option<String>, Option<String>) {
    let bench = Bench::start().await;
    let job = bench.feed("/topic", script);
    let fetched = bench.fetch(&job).await;
    let document = document(&fetched);
    (document.hub.clone(), document.self_link.clone())
}

fn both() -> (Option<String>, Option<String>) {
    (Some(HUB.to_owned()), Some(TOPIC.to_owned()))
}

fn headers() -> String {
    format!("<{HUB}>; rel=\"hub\", <{TOPIC}>; rel=\"self\"")
}

fn page(head: &str) -> Script {
    let entry = "<div class=h-entry><a class='u-url p-name' href=/1>one</a></div>";
    let html = format!("<!DOCTYPE html><html><head>{head}</head><body class=h-feed>{entry}</body></html>");
    Script::body("text/html; charset=utf-8", html)
}

fn links(hub: &str, own: &str) -> String {
    format!("<link rel=\"hub\" href=\"{hub}\"/><link rel=\"self\" href=\"{own}\"/>")
}

fn atom(links: &str) -> Script {
    let entry = "<entry><id>urn:1</id><title>one</title></entry>";
    let feed = format!("<feed xmlns=\"http://www.w3.org/2005/Atom\"><title>t</title>{links}{entry}</feed>");
    Script::body("application/atom+xml", feed)
}

#[tokio::test]
async fn rocks_100_link_headers() {
    assert_eq!(found(Script::feed(Feed::rss()).header("Link", headers())).await, both());
    let two = page("").header("Link", format!("<{HUB}>; rel=hub")).header("Link", format!("<{TOPIC}>; rel=self"));
    assert_eq!(found(two).await, both());
}

#[tokio::test]
async fn a_link_header_with_a_byte_beyond_ascii_is_read() {
    let mut links = headers().into_bytes();
    links.extend(b"; title=\"caf\xe9\"");
    assert_eq!(found(Script::feed(Feed::rss()).header("Link", links)).await, both());
}

#[tokio::test]
async fn rocks_101_html_links() {
    assert_eq!(found(page(&links(HUB, TOPIC))).await, both());
}

#[tokio::test]
async fn rocks_102_atom_links() {
    assert_eq!(found(atom(&links(HUB, TOPIC))).await, both());
}

#[tokio::test]
async fn rocks_103_rss_links() {
    let links = links(HUB, TOPIC).replace("<link", "<atom:link");
    let rss = format!(
        "<rss version=\"2.0\" xmlns:atom=\"http://www.w3.org/2005/Atom\"><channel><title>t</title>{links}\
         <item><guid>1</guid><title>one</title></item></channel></rss>"
    );
    assert_eq!(found(Script::body("application/rss+xml", rss)).await, both());
}

#[tokio::test]
async fn rocks_104_headers_take_precedence_over_the_document() {
    let wrong = links("https://wrong.example/hub", "https://wrong.example/topic");
    assert_eq!(found(atom(&wrong).header("Link", headers())).await, both());
    assert_eq!(found(page(&wrong).header("Link", headers())).await, both());
    // What the header does not say, the document does.
    let hub_alone = found(atom(&wrong).header("Link", format!("<{HUB}>; rel=hub"))).await;
    assert_eq!(hub_alone, (Some(HUB.to_owned()), Some("https://wrong.example/topic".to_owned())));
}

/// websub.rocks 201 and 202 begin with a redirect: what is at its end counts.
#[tokio::test]
async fn rocks_201_and_202_the_last_response_of_a_redirect_counts() {
    for status in [301, 302, 307, 308] {
        let bench = Bench::start().await;
        bench.origin.set("/there", Script::feed(Feed::atom()).header("Link", headers()));
        let elsewhere = "<https://wrong.example/>; rel=hub".to_owned();
        let job = bench.feed("/topic", Script::redirect(status, "/there").header("Link", elsewhere));
        let fetched = bench.fetch(&job).await;
        let document = document(&fetched);
        assert_eq!((document.hub.clone(), document.self_link.clone()), both(), "{status}");
    }
}

/// A delivery is read like the document that polls find: with the same ids, and links relative to the same place.
#[tokio::test]
async fn a_delivery_has_the_ids_and_links_of_polls() {
    let bench = Bench::start().await;
    let entry = |name: &str| {
        let link = format!("<link href=\"{name}\"/>");
        format!("<entry><id>urn:shared</id><title>{name}</title>{link}</entry>")
    };
    let feed = |entries: &[&str]| {
        let entries: String = entries.iter().map(|name| entry(name)).collect();
        format!("<feed xmlns=\"http://www.w3.org/2005/Atom\"><title>t</title>{entries}</feed>")
    };
    let there = Script::body("application/atom+xml", feed(&["c", "b", "a"])).header("ETag", "\"1\"");
    bench.origin.set("/deep/feed", there);
    let mut job = bench.feed("/feed", Script::redirect(302, bench.origin.url("/deep/feed")));
    let polled = bench.fetch(&job).await;
    let polled = document(&polled);
    job.validators = polled.validators.clone();
    job.known = polled.known.clone();

    let pushed = common::push::PushedBody {
        content_type: Some("application/atom+xml".into()),
        body: feed(&["d", "c"]).into_bytes(),
    };
    let delivered = worker::fetch::FetchFeed::read_pushed(&bench.fetcher, &job, &pushed).await;
    let delivered = document(&delivered);
    let urls: Vec<_> = delivered.entries.iter().map(|entry| entry.url.clone().unwrap()).collect();
    assert_eq!(urls, [bench.origin.url("/deep/d")], "relative to the end of the redirects, and c is known");

    let alone = common::push::PushedBody { body: feed(&["b"]).into_bytes(), ..pushed };
    let alone = worker::fetch::FetchFeed::read_pushed(&bench.fetcher, &job, &alone).await;
    assert!(document(&alone).entries.is_empty(), "alone with its id, and yet the one that polls know");
}
