//! What a step costs in instructions, which no load of the machine moves: `dev/bench instructions` runs this under callgrind.
//!
//! `instructions STEP` does a step many times, in a function that callgrind counts alone; without an argument it prints the
//! steps and how many times each is done.

use std::hint::black_box;

use anyhow::bail;
use common::document::Validators;
use common::host::HostKey;
use common::policy::{Audience, Draw, Policy, Subject, decide};
use common::queue::{decode, encode};
use common::report::{FetchReport, Outcome};
use common::time::Timestamp;
use common::url::{FeedId, Version};
use http::{HeaderMap, HeaderValue, StatusCode};
use worker::classify::{Asked, head};
use worker::headers::{freshness, validators};
use worker::parse::{ParseLimits, parse};

const TIMES: usize = 200;
const STEPS: [&str; 5] = ["decide", "headers", "parse", "encode", "decode"];
/// A message as it is on the queue.
const REPORTS: &[u8] = include_bytes!("../../common/src/queue/golden/reports.v1.json");

fn main() -> anyhow::Result<()> {
    match std::env::args().nth(1).as_deref() {
        None => println!("{} {TIMES}", STEPS.join(" ")),
        Some("decide") => prepared_decide(),
        Some("headers") => prepared_headers()?,
        Some("parse") => {
            let document = document();
            for _ in 0..TIMES {
                counted_parse(black_box(&document))?;
            }
        }
        Some("encode") => {
            let reports: Vec<FetchReport> = decode(REPORTS)?;
            for _ in 0..TIMES {
                counted_encode(black_box(&reports))?;
            }
        }
        Some("decode") => {
            for _ in 0..TIMES {
                counted_decode(black_box(REPORTS))?;
            }
        }
        Some(other) => bail!("no step {other}; there are: {}", STEPS.join(" ")),
    }
    Ok(())
}

fn prepared_decide() {
    let config = common::config::defaults().policy;
    let policy = Policy { config: &config, load: 0.0, price: config.price };
    let start = Timestamp::from_millis(1_790_000_000_000);
    let validators = Validators { etag: Some("\"1\"".to_owned()), ..Validators::default() };
    let report = FetchReport {
        http_status: Some(304),
        conditional: true,
        ..FetchReport::of(
            FeedId(1),
            Version(1),
            HostKey::new("example.com:443"),
            start,
            Outcome::NotModified { validators },
        )
    };
    let subject = Subject::new(Audience { subscribers: 5, active_subscribers: 5, ..Audience::default() }, None);
    for _ in 0..TIMES {
        counted_decide(black_box(&subject), black_box(&report), &policy);
    }
}

fn prepared_headers() -> anyhow::Result<()> {
    let lines = [
        ("date", "Mon, 21 Sep 2026 14:13:20 GMT"),
        ("server", "nginx"),
        ("content-type", "application/rss+xml; charset=utf-8"),
        ("etag", "W/\"5f-18a-6b1\""),
        ("last-modified", "Mon, 21 Sep 2026 13:00:00 GMT"),
        ("cache-control", "public, max-age=900, stale-while-revalidate=60"),
        ("expires", "Mon, 21 Sep 2026 14:28:20 GMT"),
        ("vary", "Accept-Encoding"),
    ];
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.insert(name, HeaderValue::from_static(value));
    }
    for _ in 0..TIMES {
        counted_headers(black_box(&headers));
    }
    Ok(())
}

#[inline(never)]
fn counted_decide(subject: &Subject<'_>, report: &FetchReport, policy: &Policy<'_>) {
    black_box(decide(subject, report, report.started, Draw { salt: 0.3, minute: 0.6 }, policy));
}

#[inline(never)]
fn counted_headers(headers: &HeaderMap) {
    let received = Timestamp::from_millis(1_790_000_000_000);
    let asked = Asked { conditional: true, delta: false, permanent: true, received };
    black_box((head(StatusCode::NOT_MODIFIED, headers, asked), validators(headers), freshness(headers, received)));
}

#[inline(never)]
fn counted_parse(document: &str) -> anyhow::Result<()> {
    let limits = ParseLimits::default();
    black_box(parse(document.as_bytes(), Some("application/rss+xml"), "https://harbour.example/feed.xml", &limits)?);
    Ok(())
}

#[inline(never)]
fn counted_encode(reports: &[FetchReport]) -> anyhow::Result<()> {
    black_box(encode(reports)?);
    Ok(())
}

#[inline(never)]
fn counted_decode(bytes: &[u8]) -> anyhow::Result<()> {
    black_box(decode::<FetchReport>(bytes)?);
    Ok(())
}

/// Returns a feed of 20 items with texts as people write them.
fn document() -> String {
    let item = |number: usize| {
        format!(
            "<item><title>Ferry notes &amp; tides, part {number}</title><link>https://harbour.example/2026/{number}</link>\
             <guid isPermaLink=\"false\">note-{number}</guid><pubDate>Mon, 02 Nov 2026 08:{number:02}:00 GMT</pubDate>\
             <description><![CDATA[<p>The ferry of <a href=\"/quays/{number}\">quay {number}</a> leaves with the tide.</p>]]>\
             </description></item>"
        )
    };
    let items: String = (1..=20).map(item).collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><rss version=\"2.0\"><channel><title>The Harbour</title>\
         <link>https://harbour.example/</link><description>Notes</description><ttl>60</ttl>{items}</channel></rss>"
    )
}
