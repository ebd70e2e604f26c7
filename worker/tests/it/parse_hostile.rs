//! What hostile documents try, each on a thread with the stack that a runtime's threads have. A stack that overflows or a
//! memory that is exhausted kills the process and with it this test.

use std::time::Duration;

use common::testing::{assert_linear, processor_time};
use proptest::prelude::*;
use worker::discover::announced;
use worker::parse::{ParseError, ParseLimits, ParsedFeed, parse};

use crate::patterns;

/// What the standard library and the async runtime give their threads.
const STACK: usize = 2 * 1024 * 1024;

fn read(document: impl Into<Vec<u8>>) -> Result<ParsedFeed, ParseError> {
    let bytes = document.into();
    let reading = move || parse(&bytes, None, "https://example.org/feed", &ParseLimits::default());
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(reading);
    let joined = thread.map(std::thread::JoinHandle::join);
    match joined {
        Ok(Ok(result)) => result,
        other => panic!("the parser's thread ended by itself: {}", other.is_ok()),
    }
}

fn item(inside: &str) -> String {
    let namespaces =
        "xmlns:media='http://search.yahoo.com/mrss/' xmlns:itunes='http://www.itunes.com/dtds/podcast-1.0.dtd'";
    format!(
        "<rss version='2.0' {namespaces}><channel><title>t</title><item><title>a</title>{inside}</item></channel></rss>"
    )
}

fn nested(name: &str, bytes: usize) -> String {
    let times = bytes / (2 * name.len() + 5);
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    format!("{}{}", open.repeat(times), close.repeat(times))
}

#[test]
fn nested_elements_of_any_size_are_refused_and_do_not_overflow_the_stack() {
    // In a text they are markup of the text, and cost as much as any.
    let text = read(item(&nested("description", 24 * 1024)));
    assert_eq!(text.map(|feed| (feed.entries.len(), feed.repaired)), Ok((1, true)));
    for name in ["media:group", "media:content", "itunes:category", "div"] {
        for bytes in [24 * 1024, 1024 * 1024] {
            let result = read(item(&nested(name, bytes)));
            assert!(matches!(result, Err(ParseError::TooLarge(_))), "{name} in {bytes} bytes: {result:?}");
        }
    }
    let unclosed = format!("<rss><channel>{}", "<media:group>".repeat(100_000));
    assert!(matches!(read(unclosed), Err(ParseError::TooLarge(_))));
}

#[test]
fn nesting_just_below_the_limit_fits_the_stack() {
    let around = 4;
    for name in ["media:group", "media:content", "itunes:category"] {
        let depth = ParseLimits::default().max_depth - around;
        let result = read(item(&nested(name, depth * (2 * name.len() + 5))));
        assert!(result.is_ok(), "{name}: {result:?}");
    }
}

#[test]
fn groups_do_not_multiply_what_they_inherit() {
    let inherited = "x".repeat(4 * 1024 * 1024);
    let group = "<media:group><media:content url='https://example.org/a'/></media:group>";
    let feed = read(item(&format!("<media:description>{inherited}</media:description>{}", group.repeat(20_000))));
    assert_eq!(feed.map(|feed| feed.entries.len()), Ok(1));
}

#[test]
fn a_long_base_is_not_multiplied_by_the_links_below_it() {
    let long = format!("http://a.example/{}", "b/".repeat(4_000));
    let files: String = (0..64).map(|n| format!("<link rel='enclosure' href='{n}'/>")).collect();
    let entries: String = (0..1_000).map(|n| format!("<entry><id>{n}</id>{files}</entry>")).collect();
    let feed = read(format!("<feed xml:base='{long}'><title>t</title>{entries}</feed>")).unwrap();
    let urls = feed.entries.iter().flat_map(|entry| &entry.enclosures).map(|enclosure| enclosure.url.len());
    let (kept, bytes) = urls.fold((0, 0), |(kept, bytes), length| (kept + 1, bytes + length));
    assert!(kept > 1_000 && bytes < 20 * 1024 * 1024, "{kept} links of {bytes} bytes");
    let nested = format!("<x xml:base='{}'>", "b/".repeat(1_000));
    let feed =
        read(format!("<feed>{}<entry><link href='a'/></entry>{}</feed>", nested.repeat(100), "</x>".repeat(100)));
    assert!(feed.unwrap().entries[0].url.as_ref().is_none_or(|url| url.len() <= 8 * 1024), "bases add up to a limit");
}

#[test]
fn entities_are_neither_expanded_nor_fetched() {
    let secret = tempfile_with("TOP-SECRET");
    let bomb: String = (1..10).map(|n| format!("<!ENTITY l{n} \"{}\">", format!("&l{};", n - 1).repeat(10))).collect();
    let document = format!(
        "<?xml version='1.0'?><!DOCTYPE rss [<!ENTITY l0 'lol'>{bomb}<!ENTITY file SYSTEM 'file://{}'>\
         <!ENTITY % remote SYSTEM 'http://127.0.0.1:9/x.dtd'> %remote;]>\
         <rss version='2.0'><channel><title>&l9;&file;</title></channel></rss>",
        secret.display()
    );
    let title = read(document).map(|feed| feed.title.unwrap_or_default());
    std::fs::remove_file(&secret).unwrap();
    let title = title.unwrap();
    assert!(title.len() < 100 && !title.contains("TOP-SECRET") && !title.contains("lol"), "{title}");
}

fn tempfile_with(text: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("feedfleet-entity-{}", std::process::id()));
    std::fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    path
}

#[test]
fn a_hundred_thousand_attributes_are_refused_at_once() {
    let attributes: String = (0..100_000).map(|n| format!(" a{n}=''")).collect();
    let begun = processor_time();
    for document in
        [item(&format!("<media:group{attributes}/>")), format!("<rss{attributes}/>"), format!("<rss>&<a{attributes}")]
    {
        let result = read(document);
        assert!(matches!(result, Err(ParseError::TooLarge(_) | ParseError::Malformed(_))), "{result:?}");
    }
    let took = processor_time() - begun;
    assert!(took < Duration::from_secs(10), "each with each: {took:?}");
}

#[test]
fn fifty_thousand_items_are_capped() {
    let items: String =
        (0..50_000).map(|n| format!("<item><guid>{n}</guid><title>item {n}</title></item>\n")).collect();
    let document = format!("<rss version='2.0'><channel>{items}<title>behind them all</title></channel></rss>");
    let feed = read(document).unwrap();
    let limit = ParseLimits::default().max_entries;
    assert_eq!(feed.entries.len(), limit);
    assert_eq!(feed.entries[limit - 1].id, (limit - 1).to_string());
    assert_eq!(feed.title.as_deref(), Some("behind them all"), "what follows the items is still read");

    let fat = format!("<item>{}</item>", "<x/>".repeat(60)).repeat(20_000);
    let feed = read(format!("<rss version='2.0'><channel><title>t</title>{fat}</channel></rss>"));
    assert!(feed.is_ok(), "elements of what is left out do not count: {:?}", feed.err());

    let items: Vec<String> = (0..50_000).map(|n| format!("{{\"id\":{n}}}")).collect();
    let document = format!("{{\"version\":\"https://jsonfeed.org/version/1\",\"items\":[{}]}}", items.join(","));
    assert_eq!(read(document).map(|feed| feed.entries.len()), Ok(limit));
}

#[test]
fn more_elements_than_the_limit_are_refused() {
    let many = "<a/>".repeat(ParseLimits::default().max_elements);
    assert!(matches!(read(item(&many)), Err(ParseError::TooLarge(_))));
}

#[test]
fn deep_json_is_read_or_refused_and_never_recursed_into() {
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    for depth in [100, 10_000, 1_000_000] {
        for place in ["\"x\":", "\"title\":", "\"items\":", "\"items\":[{\"id\":1}],\"author\":"] {
            let document = format!("{{\"version\":\"https://jsonfeed.org/version/1\",{place}{}}}", deep(depth));
            let result = read(document);
            assert!(!matches!(result, Err(ParseError::TooLarge(_))), "{depth} {place}: {result:?}");
        }
    }
    assert!(read(deep(1_000_000)).is_err());
    assert!(read("{\"items\":".repeat(200_000)).is_err());
}

#[test]
fn texts_are_cut_and_marked_and_ids_hashed() {
    let limits = ParseLimits::default();
    let long = "é".repeat(limits.max_text_bytes);
    let feed = read(item(&format!("<guid>{}</guid><description>{long}</description>", "g".repeat(5_000)))).unwrap();
    let entry = &feed.entries[0];
    assert!(entry.cut);
    assert_eq!(entry.summary.as_deref().map(str::len), Some(limits.max_text_bytes));
    assert!(entry.id.len() <= 1024, "{}", entry.id.len());
}

#[test]
fn nothing_that_databases_refuse_comes_out() {
    let feed = read(item("<guid>a\0b</guid><description>x\0&#0;&#1;\u{1}y</description><author>\0</author>")).unwrap();
    let entry = &feed.entries[0];
    assert_eq!((entry.id.as_str(), entry.summary.as_deref(), entry.author.as_deref()), ("ab", Some("xy"), None));
    let json =
        "{\"version\":\"https://jsonfeed.org/version/1\",\"items\":[{\"id\":\"a\\u0000b\",\"title\":\"\\u0000\"}]}";
    let feed = read(json).unwrap();
    assert_eq!((feed.entries[0].id.as_str(), feed.entries[0].title.as_deref()), ("ab", None));
}

#[test]
fn authors_are_read_in_whatever_brackets() {
    let feed = read(item("<author>作者（mail@example.org）</author>")).unwrap();
    assert_eq!((feed.entries[0].author.as_deref(), feed.repaired), (Some("作者（mail@example.org）"), false));
}

#[test]
fn time_grows_with_the_document_whatever_is_repeated() {
    for pattern in patterns::all() {
        assert_linear(&pattern.name, &pattern.make, |document| {
            let _whatever = parse(document.as_bytes(), None, "https://example.org/feed", &ParseLimits::default());
        });
    }
}

#[test]
fn time_for_announcements_grows_with_the_page_whatever_is_repeated() {
    let url = url::Url::parse("https://example.org/feed").unwrap();
    for pattern in patterns::all() {
        assert_linear(&format!("announced by {}", pattern.name), &pattern.make, |document| {
            let _whatever = announced(document.as_bytes(), Some("text/html"), &url);
        });
    }
}

#[test]
fn a_page_cannot_multiply_what_it_says() {
    let feed = |inside: String| {
        let page = format!("<!DOCTYPE html><div class=h-feed>{inside}</div>");
        let begun = processor_time();
        let feed = parse(page.as_bytes(), Some("text/html"), "https://example.org/", &ParseLimits::default());
        (feed, page.len(), processor_time() - begun)
    };
    let entries = |inside: &str| format!("<p class=h-entry>{inside}</p>").repeat(1_000);
    let size = |feed: &ParsedFeed| {
        let bytes = |entry: &common::entry::Entry| entry.texts().map(str::len).sum::<usize>();
        feed.entries.iter().map(bytes).sum::<usize>()
    };

    let author = format!("<b class=p-author>{}</b>{}", "x".repeat(1_000_000), entries("x"));
    let nested = format!("<div class=h-entry>{}{}", "<b class=p-category>".repeat(300), "x".repeat(1_000_000));
    let base = format!("<base href='https://a.example/{}'>", "b/".repeat(100_000));
    let links = format!("{base}{}", entries("<a class=u-url href=x>y</a><b class=e-content><a href=z>z</a></b>"));
    let base = format!("<base href='https://a.example/{}'>", "b/".repeat(4_000));
    let links_within_limits = format!("{base}{}", entries(&"<b class=e-content><a href=z>z</a></b>".repeat(10)));
    for (name, page) in [("author", author), ("nested", nested), ("base", links), ("shorter base", links_within_limits)]
    {
        let (feed, length, took) = feed(page);
        let size = feed.as_ref().map_or(0, size);
        assert!(size < 20 * length + 20_000_000, "{name}: {length} bytes became {size}");
        assert!(took < Duration::from_secs(20), "{name}: {took:?}");
    }
}

const SEEDS: [&str; 5] = ["rss20.xml", "atom10.xml", "atom03.xml", "broken.xml", "json11.json"];

fn seed(at: usize) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/feeds").join(SEEDS[at]);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn check(bytes: &[u8]) {
    let limits = ParseLimits { max_text_bytes: 64, max_entries: 2, ..ParseLimits::default() };
    let feed = match parse(bytes, None, "https://example.org/feed", &limits) {
        Ok(feed) => feed,
        Err(error) => {
            assert!(!error.to_string().contains("panicked"), "the barrier is for what nobody thought of");
            return;
        }
    };
    assert!(feed.entries.len() <= 2);
    for entry in &feed.entries {
        assert!(!entry.id.is_empty() && entry.id.len() <= 1024 + 32);
        let texts = [&entry.title, &entry.summary, &entry.content, &entry.url, &entry.author];
        for text in texts.into_iter().flatten().chain([&entry.id]) {
            assert!(!text.contains('\0') && !text.is_empty());
        }
        assert!(entry.summary.as_ref().is_none_or(|summary| summary.len() <= 64));
    }
    assert_eq!(parse(bytes, None, "https://example.org/feed", &limits), Ok(feed), "the same bytes, the same feed");
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        check(&bytes);
    }

    #[test]
    fn arbitrary_markup_never_panics(pieces in proptest::collection::vec(prop_oneof![
        Just("<rss version='2.0'>"), Just("<channel>"), Just("<item>"), Just("</item>"), Just("</channel>"), Just("</rss>"),
        Just("<feed xmlns='http://www.w3.org/2005/Atom'>"), Just("<entry>"), Just("</entry>"), Just("<title>"), Just("</title>"),
        Just("<media:group>"), Just("<media:content url='a'/>"), Just("<enclosure url='b'/>"), Just("<title type='xhtml'>"), Just("<p>"),
        Just("<![CDATA["), Just("]]>"), Just("<!--"), Just("-->"), Just("&amp;"), Just("&"), Just("&nbsp;"), Just("&#0;"), Just("'"), Just("\""),
        Just("<rdf:RDF>"), Just("<?xml version='1.0' encoding='utf-16'?>"), Just("é"), Just("{"), Just("<guid>1</guid>"), Just("xml:base='::'>"), Just("<link"),
    ], 0..60)) {
        check(pieces.concat().as_bytes());
    }

    #[test]
    fn mutated_feeds_never_panic(at in 0..SEEDS.len(), edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 1..12)) {
        let mut bytes = seed(at);
        for (place, byte, kind) in edits {
            if bytes.is_empty() {
                break;
            }
            let place = place.index(bytes.len());
            match kind {
                0 => bytes[place] = byte,
                1 => bytes.insert(place, byte),
                2 => drop(bytes.remove(place)),
                _ => bytes.truncate(place),
            }
        }
        check(&bytes);
    }
}
