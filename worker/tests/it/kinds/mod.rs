//! Feeds that are neither XML nor JSON Feed, through the whole parser. Each document beside this file says why it is
//! there, or a comment below does.

mod hfeed;
mod rss_json;
mod social;

use common::entry::Entry;
use worker::parse::{ParseError, ParseLimits, ParsedFeed, parse};

const BASE: &str = "https://harbour.example/people/ada/";

fn fixture(name: &str) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/kinds").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn try_read(bytes: &[u8], content_type: &str) -> Result<ParsedFeed, ParseError> {
    parse(bytes, Some(content_type), BASE, &ParseLimits::default())
}

fn read(bytes: &[u8], content_type: &str) -> ParsedFeed {
    try_read(bytes, content_type).unwrap_or_else(|error| panic!("{error} in {}", String::from_utf8_lossy(bytes)))
}

fn published(entry: &Entry) -> String {
    entry.published.map_or_else(String::new, |at| at.to_string())
}

fn enclosures(entry: &Entry) -> Vec<(&str, Option<&str>)> {
    entry.enclosures.iter().map(|file| (file.url.as_str(), file.media_type.as_deref())).collect()
}
