//! Protection against hostile servers: exceeding any limit is an outcome with its own name, and leads to backoff.
//! (`hostile.rs` covers memory, `address_guard.rs` addresses, and `certificates.rs` certificates.)

use std::time::Duration;

use load_tests::{Coding, Delivery, Feed, Script, Stamp, Tag, bodies};

use super::INTERVAL;
use super::case::Case;

const RSS: &str = "application/rss+xml";

fn breaching() -> Vec<(&'static str, &'static str, Script)> {
    // Without validators: the judge cannot know that the client rejected it.
    let feed = || Script::feed(Feed::rss().tag(Tag::None).stamp(Stamp::None));
    let drip = Duration::from_millis(400);
    vec![
        ("silence", "timeout", Script::silent()),
        ("a byte at a time", "timeout", feed().deliver(Delivery::Drip(drip))),
        ("a head a byte at a time", "timeout", feed().deliver(Delivery::SlowHead(drip))),
        ("more bytes than allowed", "too_large", Script::body(RSS, vec![b'x'; 400_000])),
        ("an endless body", "too_large", Script::body(RSS, vec![b'x'; 60_000]).deliver(Delivery::Endless)),
        ("a gzip bomb", "too_large", Script::bomb(Coding::Gzip, 100).unwrap()),
        ("a br bomb", "too_large", Script::bomb(Coding::Br, 100).unwrap()),
        ("a zstd bomb", "too_large", Script::bomb(Coding::Zstd, 100).unwrap()),
        ("a deflate bomb", "too_large", Script::bomb(Coding::Deflate, 100).unwrap()),
        ("a flood of fields", "too_large", feed().deliver(Delivery::HeaderFlood(1000))),
        ("a flood of 1xx", "too_large", feed().deliver(Delivery::InterimFlood(1000))),
        ("fewer bytes than announced", "truncated", feed().deliver(Delivery::Truncated(100))),
        ("cut chunks", "truncated", feed().deliver(Delivery::CutChunks(100))),
        ("an unknown coding", "malformed", Script::body(RSS, "x").header("Content-Encoding", "x-snow")),
        (
            "a coding that is not there",
            "malformed",
            Script::body(RSS, "this is no gzip at all").header("Content-Encoding", "gzip"),
        ),
        ("no HTTP", "malformed", Script::raw("220 mail.example ESMTP\r\n")),
        ("no feed", "not_a_feed", Script::body("text/plain", "nothing to read here")),
        ("elements nested deep", "too_large", Script::body(RSS, bodies::nested(5000))),
        ("garbage", "not_a_feed", Script::body(RSS, bodies::garbage(5000))),
        ("a loop", "redirects", Script::redirect(302, "")),
        ("an address inside", "refused_address", Script::redirect(302, "http://10.0.0.1:8080/")),
        ("a file", "redirects", Script::redirect(302, "file:///etc/passwd")),
    ]
}

pub(crate) async fn breaches(case: &Case<'_>) {
    let mut feeds = Vec::new();
    for (what, name, script) in breaching() {
        feeds.push((what, name, case.feed(script).await));
    }
    for (what, name, feed) in feeds {
        let history = case.remembered(&feed, 2).await;
        for poll in history.iter().take(2) {
            case.expect(what, ("failed", Some(name)), (poll.outcome.as_str(), poll.failure.as_deref()));
            let delay = poll.next_due.map(|due| due.since(poll.at)).unwrap_or_default();
            case.require(&format!("{what}: backs off"), delay >= INTERVAL, &delay);
        }
        case.expect(&format!("{what}: nothing is stored"), Some(0), case.view(&feed).await["entries"].as_u64());
    }
}
