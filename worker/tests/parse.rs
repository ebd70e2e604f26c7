//! Whole documents through the whole parser: what the feeds of the world look like, and what hostile ones try.

use worker::parse::{ParseLimits, ParsedFeed, parse};

const BASE: &str = "https://example.org/dir/feed.xml";

fn fixture(name: &str) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/feeds").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn read(bytes: &[u8]) -> ParsedFeed {
    parse(bytes, None, BASE, &ParseLimits::default()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn an_rss_feed_is_read_with_everything_that_it_says() {
    let feed = read(&fixture("rss20.xml"));
    assert_eq!(feed.title.as_deref(), Some("The Harbour & the Hill"));
    assert_eq!(feed.entries.len(), 3);
}
