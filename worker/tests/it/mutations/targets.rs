//! What strangers send us, by the reader that takes it: each function here takes any bytes and panics when something does not
//! hold that must. The seeded mutations beside this file call them, and so does libFuzzer (`worker/fuzz`).

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use common::html::{Tree, TreeLimits};
use common::time::Timestamp;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use url::Url;
use worker::decode::{Coding, DecodeLimits, codings, decode};
use worker::discover::{MAX_ANNOUNCED, announced};
use worker::headers::{freshness, has_retry_after, retry_after, to_value, validators};
use worker::parse::{ParseLimits, parse};

/// Reads header fields, one a line.
pub(crate) fn headers(bytes: &[u8]) {
    let mut map = HeaderMap::new();
    for line in bytes.split(|byte| *byte == b'\n').take(200) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) =
            (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_bytes(line[colon + 1..].trim_ascii()));
        if let (Ok(name), Ok(value)) = (name, value) {
            map.append(name, value);
        }
    }
    // 2026-09-21, and the end of time
    for received in [Timestamp::from_millis(1_790_000_000_000), Timestamp::MAX] {
        // RFC 9111 lets no freshness count for more than 2^31 seconds.
        let longest = Duration::from_secs((1 << 31) + 1);
        assert!(freshness(&map, received).is_none_or(|fresh| fresh <= longest));
        assert!(retry_after(&map, received).is_none_or(|at| at >= received));
    }
    assert_eq!(has_retry_after(&map), map.contains_key(header::RETRY_AFTER));
    let kept = validators(&map);
    for (kept, name) in [(kept.etag, header::ETAG), (kept.last_modified, header::LAST_MODIFIED)] {
        if let Some(kept) = kept {
            assert_eq!(to_value(&kept).as_ref(), map.get(name), "not echoed byte for byte");
        }
    }
    let _ = codings(&map).map(|codings| assert!(codings.known.len() <= 3));
}

pub(crate) const ALL: [Coding; 4] = [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd];
const MAX_BYTES: usize = 1 << 20;

/// Undoes the codings that the first byte chooses, up to three, from the bytes that follow.
pub(crate) fn body(bytes: &[u8]) {
    let Some((choice, wire)) = bytes.split_first() else { return };
    let (count, choice) = (usize::from(choice & 3), usize::from(choice >> 2));
    let chosen: Vec<Coding> = (0..count).map(|place| ALL[choice >> (2 * place) & 3]).collect();
    let limits = DecodeLimits { max_bytes: MAX_BYTES, max_ratio: 200, deadline: None };
    if let Ok(document) = decode(wire.to_vec(), &chosen, limits) {
        assert!(document.len() <= MAX_BYTES);
    }
}

/// Reads a feed; whether it was one, and whether it had to be repaired.
pub(crate) fn feed(bytes: &[u8]) -> Option<bool> {
    match parse(bytes, None, "https://example.org/feed", &ParseLimits::default()) {
        Ok(feed) => Some(feed.repaired),
        Err(error) => {
            assert!(!error.to_string().contains("panicked"), "{error}");
            None
        }
    }
}

/// Reads a page: as a feed, as a tree that is written out and read again, and for the feeds that it announces.
pub(crate) fn html(bytes: &[u8]) {
    let limits = TreeLimits { max_nodes: 50_000, max_depth: 300, max_bytes: 4_000_000, deadline: None };
    let url = Url::parse("https://example.org/page").unwrap();
    let read = parse(bytes, Some("text/html"), url.as_str(), &ParseLimits::default());
    assert!(read.map_or(0, |feed| feed.entries.len()) <= 2_000);
    assert!(announced(bytes, Some("text/html"), &url).len() <= MAX_ANNOUNCED);
    if let Ok(tree) = Tree::of_document(&String::from_utf8_lossy(bytes), limits) {
        let html = tree.write_inside(tree.root(), usize::MAX, |_| None);
        // as the standard warns, what is written out may be read as something else, but it can be read
        assert!(html.len() <= 6 * tree.size() + 1000);
        let _within_limits_or_not = Tree::of_fragment(&html, limits);
    }
}

/// Pages, and pieces that pages of strangers are made of.
pub(crate) fn html_seeds() -> Vec<Vec<u8>> {
    let page = "<!DOCTYPE html><html lang=en><head><title>Notes</title><base href=/notes/>\
        <link rel=alternate type=application/rss+xml href=/rss title='Posts &amp; pages'></head><body class=h-feed>\
        <article class=h-entry><a class='u-url p-name' href=1>One</a><time class=dt-published datetime=2026-01-02>2 Jan</time>\
        <div class=e-content><p>Some <b>bold <i>and</b> crossed</i> text &copy; <img src=a.png alt=a></div></article>\
        <article class=h-entry><p class='p-summary p-category'>two<p class='p-author h-card'><img class=u-photo src=b.jpg></article>";
    let odd = "<table><b><tr><td>x</table><svg><style><p a=1></style><![CDATA[x]]></svg><script>if (a<b c) '</scr'</script \
        x><textarea></p></textarea><!-- <a b --><select><option>x<template><td>y</template><math><mi>z<plaintext>&amp;&notin;&#0;";
    [page, odd, "<frameset><frame src=x></frameset>", "<p a0 a1 a2 a3='>' a4=\"<\" a0 =b/c/>"]
        .map(|html| html.as_bytes().to_vec())
        .into()
}

/// Our own feeds, of each format.
pub(crate) fn feed_seeds() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|folder| folder.ends_with("worker"));
    let folder = folder.expect("below the crate").join("tests/feeds");
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = files.flatten().map(|file| file.path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// The same in each coding, and in two on top of each other, behind the byte that says so.
pub(crate) fn body_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (number, feed) in feed_seeds().into_iter().enumerate() {
        let (first, second) = (number % 4, (number + 1) % 4);
        let once = encoded(ALL[first], &feed);
        let twice = encoded(ALL[second], &once);
        let byte = |count: usize, inner: usize, outer: usize| u8::try_from(count | inner << 2 | outer << 4).unwrap();
        seeds.push([&[byte(1, first, 0)], &*once].concat());
        seeds.push([&[byte(2, first, second)], &*twice].concat());
    }
    seeds
}

/// Bytes in a coding.
pub(crate) fn encoded(coding: Coding, bytes: &[u8]) -> Vec<u8> {
    match coding {
        Coding::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        Coding::Deflate => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        Coding::Brotli => {
            let mut encoded = Vec::new();
            let mut encoder = brotli::CompressorWriter::new(&mut encoded, 4096, 1, 20);
            encoder.write_all(bytes).unwrap();
            drop(encoder);
            encoded
        }
        Coding::Zstd => zstd::bulk::compress(bytes, 1).unwrap(),
    }
}

/// Answers' fields as servers send them, good and bad.
pub(crate) fn header_seeds() -> Vec<Vec<u8>> {
    let blocks = [
        "ETag: \"abc\"\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\nCache-Control: public, max-age=3600\nAge: 600",
        "ETag: W/\"we ird-gzip\"\nContent-Encoding: gzip\nVary: Accept-Encoding\nExpires: 0",
        "ETag: \"caf\u{e9}\", \"b\"\nLast-Modified: yesterday\nCache-Control: no-cache=\"set-cookie, max-age=1\", max-age=7",
        "Retry-After: 120\nDate: Mon, 21 Sep 2026 14:13:20 GMT",
        "Retry-After: Mon, 21 Sep 2026 14:15:20 GMT\nRetry-After: 99999999999999999999",
        "Retry-After: Monday, 21-Sep-26 14:15:20 GMT\nCache-Control: max-age=\"60\", s-maxage=9",
        "Retry-After: Mon Sep 21 14:15:20 2026\nExpires: Mon, 21 Sep 2026 15:13:20 GMT",
        "Retry-After: -5\nRetry-After: 2.000001\nAge: old\nCache-Control: max-age=99999999999999999999",
        "Content-Encoding: br, gzip\nContent-Encoding: zstd, x-gzip, identity, deflate\nETag: *",
    ];
    blocks.iter().map(|block| block.as_bytes().to_vec()).collect()
}
