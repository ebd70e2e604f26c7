//! What hostile documents cost in processor time and memory, each read by a process of its own whose peak can be measured, and
//! whether they get it to open a file or to call a host. And what documents as large as the limits allow cost, whatever is
//! repeated in them.
//!
//! The process is this test itself; `FEEDFLEET_HOSTILE` names the document that it reads.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic, in its helpers too")]

#[path = "it/patterns.rs"]
mod patterns;
#[path = "it/mutations/targets.rs"]
#[expect(dead_code, reason = "shared with the mutations")]
mod targets;

use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::testing::processor_time;
use worker::decode::{Coding, DecodeLimits, decode};
use worker::discover::announced;
use worker::parse::{ParseLimits, parse};

/// Processor time: other load on the machine must not count. Without optimisation everything takes much longer.
const LONGEST: Duration = Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 1 });
/// Of the whole process, with its program and the document itself.
const MOST_MEMORY_KB: u64 = 150 * 1024;

/// Seconds after which a process that waits is killed.
const PATIENCE: &str = "240";
const CHILD: &str = "a_child_reads_one_document_and_tells_what_it_cost";

fn rss(inside: &str) -> Vec<u8> {
    format!(
        "<rss version='2.0' xmlns:media='http://search.yahoo.com/mrss/'><channel><title>t</title>{inside}</channel></rss>"
    )
    .into_bytes()
}

fn nested(name: &str, bytes: usize) -> Vec<u8> {
    let times = bytes / (2 * name.len() + 5);
    rss(&format!("<item>{}{}</item>", format!("<{name}>").repeat(times), format!("</{name}>").repeat(times)))
}

/// Items with this number of each detail that Podcasting 2.0 lists.
fn podcast(items: usize, times: usize) -> Vec<u8> {
    let each = "<p:person>a</p:person><p:transcript url='/a'/><p:soundbite startTime='1' duration='1'/><category>a</category>\
        <p:alternateEnclosure><p:source uri='/a'/><p:source uri='/b'/></p:alternateEnclosure><media:thumbnail url='/a'/>";
    let (each, recipients) = (each.repeat(times), "<p:valueRecipient type='a' address='b'/>".repeat(times));
    let item = format!("<item>{each}<p:value>{recipients}</p:value></item>");
    format!(
        "<rss xmlns:p='https://podcastindex.org/namespace/1.0'><channel><title>t</title>{}</channel></rss>",
        item.repeat(items)
    )
    .into_bytes()
}

fn with_doctype(doctype: &str, title: &str) -> Vec<u8> {
    format!("<?xml version='1.0'?><!DOCTYPE rss [{doctype}]><rss><channel><title>{title}</title></channel></rss>")
        .into_bytes()
}

fn utf16(text: &str, order: fn(u16) -> [u8; 2]) -> Vec<u8> {
    text.encode_utf16().flat_map(order).collect()
}

/// Pages that cost quadratic time once, in the sizes that were measured then and in the largest that the limits allow.
fn pages() -> Vec<(String, Vec<u8>)> {
    let content =
        |piece: &str, bytes: usize| format!("{}{}", patterns::PAGE, piece.repeat(bytes / piece.len())).into_bytes();
    let attributes = |bytes: usize| {
        let tag: String = (0..)
            .map(|n| format!(" a{n}"))
            .scan(0, |length, attribute| {
                *length += attribute.len();
                (*length < bytes).then_some(attribute)
            })
            .collect();
        format!("<!DOCTYPE html><div class=h-feed><p{tag}>").into_bytes()
    };
    let sizes: [usize; 2] = if cfg!(debug_assertions) { [1_000_000, 1_500_000] } else { [8_000_000, 20_000_000] };
    let mut pages: Vec<(String, Vec<u8>)> = Vec::new();
    for bytes in [200_000, 400_000, 800_000, 1_000_000, sizes[0]] {
        pages.push((format!("h-feed, {} KB of &", bytes / 1000), content("&", bytes)));
    }
    for bytes in [427_000, 889_000, 1_489_000, sizes[1]] {
        pages.push((format!("one tag, {} KB of attributes", bytes / 1000), attributes(bytes)));
    }
    pages.push(("260 KB of no-break space and x".to_owned(), content("\u{a0}x", 260_000)));
    let feed = "<rss><channel><title>t</title><item><guid>1</guid></item></channel></rss>";
    pages.push(("60,000 times <, then x".to_owned(), format!("{}x", "<".repeat(60_000)).into_bytes()));
    pages.push(("60,000 times <, then a feed".to_owned(), format!("{} {feed}", "<".repeat(60_000)).into_bytes()));
    let page = |entry: String| format!("<!DOCTYPE html><div class=h-feed><div class=h-entry>{entry}").into_bytes();
    pages.extend(entries_that_multiply().into_iter().map(|(name, entry)| (name.to_owned(), page(entry))));
    pages
}

/// Entries of pages that multiply a value by the classes of its element, or by the elements around it.
fn entries_that_multiply() -> Vec<(&'static str, String)> {
    let large = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
    let numbered = |class: &str| (0..95_000).map(|n| format!("{class}{n} ")).collect::<String>();
    let classes = |classes: String| format!("<b class='{classes}'>x</b>");
    let picture = |classes: String, url: usize| format!("<img class='{classes}' src='http://a/{}'>", "A".repeat(url));
    let in_categories = |inside: String| format!("{}{inside}", "<b class=p-category>".repeat(300));
    let attributes: String = (0..64).map(|n| format!(" a{n}")).collect();
    let description = format!("<img alt='{}'>", "x".repeat(large));
    let value = format!("<data class=value value='{}'></data>", "x".repeat(large));
    let link = format!("<img src='{}'>", "x".repeat(8_000));
    let element = format!("<span{attributes}></span>");
    let quotes = "\"".repeat(7 * large);
    vec![
        ("a URL of 100 KB and 8,000 classes", picture("u-photo ".repeat(8_000), 100_000)),
        ("a URL of 100 KB and 95,000 different classes", picture(numbered("u-a"), 100_000)),
        ("100 URLs of 8 KB and 1,000 classes each", picture("u-photo ".repeat(1_000), 8_000).repeat(100)),
        ("a category of 95,000 classes", classes("p-category ".repeat(95_000))),
        ("a text of 95,000 different classes", classes(numbered("p-a"))),
        ("seven texts of short classes", classes("p-x ".repeat(large / 4)).repeat(7)),
        ("300 categories around 7 descriptions", in_categories(description.repeat(7))),
        ("300 categories around 7 values", in_categories(value.repeat(7))),
        ("300 categories around 100 URLs", in_categories(link.repeat(100))),
        ("300 categories around many attributes", in_categories(element.repeat(large / 125))),
        ("a text that escaping makes six times as long", format!("<p class='p-summary p-content'>{quotes}")),
    ]
}

/// Returns an outbox of one object.
fn outbox(object: &str) -> Vec<u8> {
    format!(r#"{{"@context":"https://www.w3.org/ns/activitystreams","type":"Collection","items":[{object}]}}"#)
        .into_bytes()
}

/// Returns an author feed of one post, whose record is this, with these things below it.
fn author_feed(record: &str, embed: &str) -> Vec<u8> {
    let author = r#"{"did":"did:plc:a","handle":"a.example"}"#;
    let post = format!(
        r#"{{"uri":"at://did:plc:a/app.bsky.feed.post/1","author":{author},"record":{{{record}}},"embed":{{{embed}}}}}"#
    );
    format!(r#"{{"feed":[{{"post":{post}}}]}}"#).into_bytes()
}

/// Feeds that multiply a value by what repeats or escapes it.
fn feeds_that_multiply() -> Vec<(&'static str, Vec<u8>)> {
    let atom = |entries: String| format!("<feed><title>t</title>{entries}</feed>").into_bytes();
    let ampersands = "&".repeat(20_000_000);
    let picture = |url: &str, alt: &str| {
        author_feed("", &format!(r#""images":[{{"fullsize":"https://a/{url}","alt":"{alt}"}}]"#))
    };
    vec![
        ("a link of 5 MB and 100,000 relations", {
            let (relations, url) = ("enclosure ".repeat(100_000), "A".repeat(5_000_000));
            atom(format!("<entry><link rel='{relations}' href='http://a/{url}'/></entry>"))
        }),
        ("2,000 links of 8 KB and 64 relations each", {
            let (relations, url) = ("related ".repeat(64), "A".repeat(8_000));
            atom(format!("<entry><link rel='{relations}' href='http://a/{url}'/></entry>").repeat(2_000))
        }),
        ("a base of 10 MB and 255 empty ones", {
            let (base, others) = ("&amp;".repeat(2_000_000), " xml:base=''".repeat(255));
            rss(&format!("<x xml:base='{base}'{others}/>"))
        }),
        ("a base of 8 KB, and another one in each of 128,000 links", {
            let files: String = (0..64).map(|n| format!("<enclosure url='{n}' xml:base='x'/>")).collect();
            let items = format!("<item>{files}</item>").repeat(2_000);
            let base = format!("http://e.example/{}/", "b".repeat(8_132));
            format!("<rss xml:base='{base}'><channel><title>t</title>{items}</channel></rss>").into_bytes()
        }),
        ("a language of 1 MB around 100,000 contents", {
            let (language, contents) = ("a".repeat(1_000_000), "<content/>".repeat(100_000));
            atom(format!("<entry><category term='a' xml:lang='{language}'>{contents}</category></entry>"))
        }),
        ("64 authors whose names end in 300 KB of spaces", {
            let (inside, behind) = (" ".repeat(2_000), " ".repeat(300_000));
            let author = |n| format!("<author><name>{n}{inside}x{behind}</name><uri>a</uri></author>");
            atom(format!("<entry>{}</entry>", (10..74).map(author).collect::<String>()))
        }),
        (
            "JSON Feed with a text of 20 MB of &",
            format!(r#"{{"version":"https://jsonfeed.org/version/1.1","items":[{{"content_text":"{ampersands}"}}]}}"#)
                .into_bytes(),
        ),
        (
            "Atom with a text of 20 MB of &",
            atom(format!("<entry><content type='text'><![CDATA[{ampersands}]]></content></entry>")),
        ),
        ("a post of 20 MB of &", author_feed(&format!(r#""text":"{ampersands}""#), "")),
        ("a post with a picture's description of 20 MB of &", picture("1", &ampersands)),
        ("a post with a picture's URL of 20 MB of &", picture(&ampersands, "")),
        (
            "a post with a card's title of 20 MB of &",
            author_feed("", &format!(r#""external":{{"uri":"https://a/","title":"{ampersands}"}}"#)),
        ),
    ]
}

/// Returns the documents; those about files and hosts name this file and this address.
fn documents(file: &Path, address: &str) -> Vec<(&'static str, Vec<u8>)> {
    let items: String = (0..500_000).map(|n| format!("<item><guid>{n}</guid><title>a</title></item>")).collect();
    let attributes: String = (0..100_000).map(|n| format!(" a{n}=''")).collect();
    let laughs: String = (1..10).map(|n| format!("<!ENTITY l{n} '{}'>", format!("&l{};", n - 1).repeat(10))).collect();
    let quadratic = format!("<!ENTITY a '{}'>", "a".repeat(250));
    let xxe = format!("<!ENTITY x SYSTEM 'file://{}'><!ENTITY % y SYSTEM '{}'> %y;", file.display(), file.display());
    let network = format!("<!ENTITY x SYSTEM 'http://{address}/x'><!ENTITY % y SYSTEM 'http://{address}/y.dtd'> %y;");
    let wide = "<?xml version='1.0' encoding='utf-8'?><rss><channel><item><title>a</title></item></channel></rss>";
    let deep_json =
        format!("{{\"version\":\"https://jsonfeed.org/version/1\",\"items\":{}", "[{\"x\":".repeat(1_000_000));
    vec![
        ("media:group nested in 24 KB", nested("media:group", 24 * 1024)),
        ("media:group nested in 1 MB", nested("media:group", 1024 * 1024)),
        ("entities that multiply", with_doctype(&format!("<!ENTITY l0 'lol'>{laughs}"), "&l9;")),
        ("one entity used a million times", with_doctype(&quadratic, &"&a;".repeat(1_000_000))),
        ("entities that are files", with_doctype(&xxe, "&x;")),
        ("entities that are elsewhere", with_doctype(&network, "&x;")),
        ("500,000 items", rss(&items)),
        ("100,000 attributes", rss(&format!("<item{attributes}/>"))),
        ("deep JSON", deep_json.into_bytes()),
        ("a million NULs", rss(&format!("<item><title>a{}b</title></item>", "\0".repeat(1_000_000)))),
        ("UTF-16, little end first, declared as UTF-8", utf16(&wide.repeat(20_000), u16::to_le_bytes)),
        ("UTF-16, big end first, declared as UTF-8", utf16(&wide.repeat(20_000), u16::to_be_bytes)),
        ("ASCII declared as UTF-16", wide.replace("utf-8", "utf-16").into_bytes()),
        ("a base of 8 KB above 100,000 links", {
            let links: String =
                (0..100_000).map(|n| format!("<item><link>{n}</link><enclosure url='{n}'/></item>")).collect();
            format!("<rss xml:base='http://e.example/{}'><channel>{links}</channel></rss>", "b/".repeat(4_000))
                .into_bytes()
        }),
        ("one episode with 100,000 of each detail", podcast(1, 100_000)),
        ("2,000 episodes with 30 of each detail", podcast(2_000, 30)),
        ("200 unknown elements in each of 2,000 items", {
            let unknown: String = (0..200).map(|n| format!("<x:y{n} z=''/>")).collect();
            rss(&format!("<item>{unknown}</item>").repeat(2_000))
        }),
        ("a million authors of a feed and of an entry", {
            let authors = "<author><name>a</name><uri>b</uri></author>".repeat(100_000);
            let names: String = (0..100_000).map(|n| format!("<author>{n}@a.example ({n})</author>")).collect();
            format!("<feed>{authors}<entry>{authors}</entry><entry>{names}</entry></feed>").into_bytes()
        }),
        ("64 files with details in each of 2,000 items", {
            let files: String = (0..64).map(|n| format!("<media:content url='{n}' width='1'/>")).collect();
            rss(&format!("<item>{files}</item>").repeat(2_000))
        }),
        (
            "a million keywords",
            rss(&format!("<item><media:keywords>{}</media:keywords></item>", "a,b,".repeat(1_000_000))),
        ),
        ("JSON Feed with 100,000 authors and attachments", {
            let (authors, files) = (r#"{"name":"a","url":"b"},"#.repeat(100_000), r#"{"url":"a"},"#.repeat(100_000));
            let lists = format!(r#""authors":[{authors}{{}}],"attachments":[{files}{{}}]"#);
            format!(r#"{{"version":"https://jsonfeed.org/version/1.1",{lists},"items":[{{{lists}}}]}}"#).into_bytes()
        }),
        ("JSON Feed with 20,000 attachments in each of 300 items", {
            let item = format!(r#"{{"id":"1","attachments":[{}{{}}]}},"#, "{},".repeat(20_000));
            format!(r#"{{"version":"https://jsonfeed.org/version/1.1","items":[{}{{}}]}}"#, item.repeat(300))
                .into_bytes()
        }),
        ("JSON Feed of 20,000 items with 65 attachments, 64 authors and 64 tags each", {
            let list = |member: &str, times: usize| vec![member; times].join(",");
            let (files, authors, tags) = (list("{}", 65), list("{}", 64), list(r#""""#, 64));
            let item = format!(r#"{{"attachments":[{files}],"authors":[{authors}],"tags":[{tags}]}}"#);
            let items = list(&item, 20_000);
            format!(r#"{{"version":"https://jsonfeed.org/version/1.1","items":[{items}]}}"#).into_bytes()
        }),
        ("100,000 items that begin with the oldest", {
            let item = |n| format!("<item><guid>{n}</guid><title>a</title><pubDate>{n}</pubDate></item>");
            rss(&(1_000_000_000..1_000_100_000).map(item).collect::<String>())
        }),
        ("JSON Feed of 200,000 items that begin with the oldest", {
            let item = |n| format!(r#"{{"id":{n},"date_published":{n}}}"#);
            let items: Vec<String> = (1_000_000_000..1_000_200_000).map(item).collect();
            format!(r#"{{"version":"https://jsonfeed.org/version/1.1","items":[{}]}}"#, items.join(",")).into_bytes()
        }),
        ("RSS-in-JSON of 20,000 items", {
            let items = r#"{"a":[1,1,1,1,1,1,1,1]},"#.repeat(20_000);
            format!(r#"{{"rss":{{"channel":{{"title":"t","item":[{items}{{}}]}}}}}}"#).into_bytes()
        }),
        ("RSS-in-JSON of 40,000 objects that nest", {
            let nested = format!("{}1{}", r#"{"item":"#.repeat(100), "}".repeat(100));
            format!(r#"{{"rss":{{"channel":{{"title":"t","item":[{}{{}}]}}}}}}"#, format!("{nested},").repeat(4_000))
                .into_bytes()
        }),
        ("RSS-in-JSON of 400,000 objects that nest", {
            let nested = format!("{}1{}", r#"{"item":"#.repeat(100), "}".repeat(100));
            format!(r#"{{"rss":{{"channel":{{"title":"t","item":[{}{{}}]}}}}}}"#, format!("{nested},").repeat(4_000))
                .into_bytes()
        }),
        ("an outbox whose objects have long lists", {
            let list = r#"{"url":"a","width":1},"#.repeat(17_000);
            outbox(&format!(r#"{{"type":"Note","id":"1","attachment":[{list}{{}}],"image":[{list}{{}}]}}"#))
        }),
        ("a film of 30,000 files and a picture with a URL of 30 KB", {
            let files = r#"{"mediaType":"image/a","href":"a"},"#.repeat(30_000);
            let image = format!("https://x/{}", "A".repeat(30_000));
            outbox(&format!(r#"{{"type":"Video","id":"1","image":"{image}","url":[{files}{{}}]}}"#))
        }),
        ("a film of 15,000 files and pictures, and a long duration", {
            let files = r#"{"mediaType":"image/a","href":"a"},"#.repeat(15_000);
            let pictures = r#"{"url":"a","width":1},"#.repeat(15_000);
            let duration = "0D".repeat(50_000);
            let said = format!(r#""duration":"P{duration}","image":[{pictures}{{}}]"#);
            outbox(&format!(r#"{{"type":"Video","id":"1",{said},"url":[{files}{{}}]}}"#))
        }),
        ("a megabyte of unclosed tags", rss(&"<item><p>".repeat(120_000))[..1_000_000].to_vec()),
    ]
}

#[test]
#[ignore = "run by the test below, in a process of its own"]
fn a_child_reads_one_document_and_tells_what_it_cost() {
    let bytes = std::fs::read(std::env::var_os("FEEDFLEET_HOSTILE").expect("the document's path")).unwrap();
    let begun = processor_time();
    let result = parse(&bytes, Some("text/xml"), "https://example.org/feed", &ParseLimits::default());
    let took = processor_time() - begun;
    let outcome = match result {
        Ok(feed) => format!("read, {} entries", feed.entries.len()),
        Err(error) => format!("refused: {error}"),
    };
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim();
    println!("\ncost\t{}\t{}\t{outcome}", took.as_micros(), peak.trim_end_matches(" kB"));
}

#[test]
fn hostile_documents_cost_little_and_reach_nothing() {
    let folder = std::env::temp_dir().join(format!("feedfleet-costs-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // A process that opens a pipe for reading waits for a writer, and is killed while it does.
    let pipe = folder.join("secret");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();

    let mut feeds = documents(&pipe, &listener.local_addr().unwrap().to_string());
    feeds.extend(feeds_that_multiply());
    for (name, bytes) in feeds.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).chain(pages()) {
        let path = folder.join("document");
        std::fs::File::create(&path).unwrap().write_all(&bytes).unwrap();
        let child = Command::new("timeout")
            .arg(PATIENCE)
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", CHILD, "--ignored", "--nocapture"])
            .env("FEEDFLEET_HOSTILE", &path)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&child.stdout).into_owned();
        assert!(child.status.success(), "{name}: {}\n{output}", child.status);
        let cost =
            output.lines().find_map(|line| line.strip_prefix("cost\t")).unwrap_or_else(|| panic!("{name}: {output}"));
        let (micros, rest) = cost.split_once('\t').unwrap();
        let (kilobytes, outcome) = rest.split_once('\t').unwrap();
        let (took, peak): (_, u64) = (Duration::from_micros(micros.parse().unwrap()), kilobytes.parse().unwrap());
        println!("{name:46}{:>9} KB {took:>14.3?}{:>8} MB  {outcome}", bytes.len() / 1024, peak / 1024);
        assert!(took < LONGEST && peak < MOST_MEMORY_KB, "{name}: {took:?}, {peak} KB");
        assert!(!outcome.contains("panicked"), "{name}: {outcome}");
    }
    let called = listener.accept();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(called.is_err(), "a document had its parser call {called:?}");
}

/// Bytes of each document of the sweep: as many as `fetch.max_body_bytes` allows. Without optimisation a hundredth.
const LARGE: usize = if cfg!(debug_assertions) { 200_000 } else { 20_000_000 };
/// Bytes of each page: the reader of h-feeds, the most expensive of all, refuses pages of more than 8 MB.
const PAGE: usize = if cfg!(debug_assertions) { 150_000 } else { 7_900_000 };
/// Processor time of each: a second for 20 MB. Small ones may cost more for their size, and everything without optimisation.
const LONGEST_OF_LARGE: Duration = Duration::from_secs(if cfg!(debug_assertions) { 5 } else { 1 });

/// Returns the cost of reading a document, and of looking for the feeds that it announces, as a fetch does with a
/// document that is not a feed.
fn cost(document: &str) -> Duration {
    let url = "https://example.org/feed".parse().unwrap();
    let begun = processor_time();
    let _whatever = parse(document.as_bytes(), None, "https://example.org/feed", &ParseLimits::default());
    let _whatever = announced(document.as_bytes(), Some("text/html"), &url);
    processor_time() - begun
}

/// Prints the most expensive documents, and fails if one of them costs too much.
fn judge(what: &str, mut costs: Vec<(Duration, String)>) {
    costs.sort_by(|one, other| other.cmp(one));
    println!("{} {what}; the most expensive:", costs.len());
    costs.iter().take(12).for_each(|(cost, name)| println!("{cost:>12.3?}  {name}"));
    println!("{:>12.3?}  median", costs[costs.len() / 2].0);
    assert!(costs[0].0 < LONGEST_OF_LARGE, "{:?}: {}", costs[0].0, costs[0].1);
}

#[test]
fn documents_as_large_as_the_limits_allow_cost_a_second_at_most() {
    let costs = patterns::all().into_iter().map(|pattern| (cost(&(pattern.make)(LARGE)), pattern.name));
    judge(&format!("documents of {LARGE} bytes"), costs.collect());
}

#[test]
fn pages_as_large_as_the_limits_allow_cost_a_second_at_most() {
    let costs = patterns::all().into_iter().map(|pattern| (cost(&(pattern.make)(PAGE)), pattern.name));
    judge(&format!("documents of {PAGE} bytes"), costs.collect());
}

/// Bytes on the wire that `fetch.max_wire_bytes` allows.
const WIRE: usize = LARGE / 2;

/// Bytes that no coding makes shorter, bytes that take a few bits each, and bytes that are mostly repeated.
fn bodies() -> [(&'static str, Vec<u8>); 3] {
    let mut state = 1_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    let noise: Vec<u8> = (0..LARGE).map(|_| random()).collect();
    let digits = noise.iter().map(|byte| b'0' + byte % 10).collect();
    // A byte of a hundred differs, so that the ratio stays below the limit.
    let repeated = noise.iter().enumerate().map(|(at, byte)| if at % 100 == 0 { *byte } else { b'x' }).collect();
    [("noise", noise[..WIRE].to_vec()), ("digits", digits), ("repeated", repeated)]
}

#[test]
fn coded_bodies_as_large_as_the_limits_allow_cost_a_second_at_most() {
    let limits = DecodeLimits { max_bytes: LARGE + 1024, max_ratio: 200, deadline: None };
    let mut costs = Vec::new();
    let mut measure = |name: String, wire: Vec<u8>, codings: &[Coding]| {
        let begun = processor_time();
        let result = decode(wire, codings, limits).map(|body| body.len());
        costs.push((processor_time() - begun, format!("{name}: {result:?}")));
    };
    for (name, body) in bodies() {
        for coding in targets::ALL {
            let wire = targets::encoded(coding, &body);
            measure(format!("{name} in {coding:?}"), wire.clone(), &[coding]);
            for outer in targets::ALL {
                let twice = targets::encoded(outer, &wire);
                measure(format!("{name} in {coding:?} in {outer:?}"), twice, &[coding, outer]);
            }
        }
    }
    for coding in targets::ALL {
        let empty = targets::encoded(coding, b"");
        measure(format!("empty {coding:?}, many times"), empty.repeat(WIRE / empty.len()), &[coding]);
    }
    judge(&format!("coded bodies of {LARGE} bytes"), costs);
}
