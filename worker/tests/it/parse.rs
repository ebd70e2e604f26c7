//! Whole documents through the whole parser: every dialect of feeds, and what the publishers of the world make of them.
//! What hostile ones try is in `parse_hostile.rs`.

use std::time::Duration;

use common::document::FeedHints;
use common::entry::Entry;
use worker::parse::{ParseError, ParseLimits, ParsedFeed, parse, to_json};

const BASE: &str = "https://harbour.example/dir/feed.xml";

fn fixture(name: &str) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/feeds").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn try_read(bytes: &[u8]) -> Result<ParsedFeed, ParseError> {
    parse(bytes, None, BASE, &ParseLimits::default())
}

fn read(bytes: &[u8]) -> ParsedFeed {
    try_read(bytes).unwrap_or_else(|error| panic!("{error} in {}", String::from_utf8_lossy(bytes)))
}

fn rss(inside: &str) -> String {
    format!(
        "<rss version='2.0' xmlns:media='http://search.yahoo.com/mrss/'><channel><title>t</title>{inside}</channel></rss>"
    )
}

fn only_entry(bytes: &[u8]) -> Entry {
    let mut feed = read(bytes);
    assert_eq!(feed.entries.len(), 1, "{feed:?}");
    feed.entries.remove(0)
}

#[test]
fn every_dialect_tells_the_same_story() {
    for name in [
        "rss090.rdf",
        "rss091.xml",
        "rss092.xml",
        "rss10.rdf",
        "atom03.xml",
        "atom10.xml",
        "json10.json",
        "json11.json",
    ] {
        let feed = read(&fixture(name));
        assert_eq!(feed.title.as_deref(), Some("The Harbour & the Hill"), "{name}");
        assert_eq!(feed.link.as_deref(), Some("https://harbour.example/"), "{name}");
        let titles: Vec<_> = feed.entries.iter().map(|entry| entry.title.as_deref().unwrap_or("")).collect();
        assert_eq!(titles, ["Ferries late again", "Café reopens"], "{name}");
        let links: Vec<_> = feed.entries.iter().map(|entry| entry.url.as_deref().unwrap_or("")).collect();
        assert_eq!(links, ["https://harbour.example/2026/ferries", "https://harbour.example/2026/cafe"], "{name}");
        let dated = !name.starts_with("rss09");
        let published = feed.entries[0].published.map(|at| at.to_string());
        let expected = (dated).then_some("2026-11-02T08:30:00.000Z");
        assert_eq!(published.as_deref(), expected, "{name}");
        assert!(!feed.repaired, "{name}");
    }
}

#[test]
fn an_rss_feed_is_read_with_everything_that_it_says() {
    let feed = read(&fixture("rss20.xml"));
    assert_eq!(feed.language.as_deref(), Some("en-gb"));
    assert_eq!(feed.hints.ttl, Some(Duration::from_secs(90 * 60)));
    assert_eq!(feed.hints.update_period, Some(Duration::from_secs(30 * 60)));
    assert_eq!(feed.hints.skip_hours, 1 | 1 << 1 | 1 << 23);
    assert_eq!(feed.hints.skip_days, 1 << 5 | 1 << 6);
    assert_eq!(feed.hub.as_deref(), Some("https://hub.example/"));
    assert_eq!(feed.self_link.as_deref(), Some("https://harbour.example/feed.xml"));
    assert_eq!(feed.cloud.as_deref(), Some("cloud.example:5337/rsscloud/pleaseNotify http-post"));
    assert_eq!(feed.entries.len(), 3);

    let first = &feed.entries[0];
    assert_eq!(first.id, "tag:harbour.example,2026:17");
    assert_eq!(first.url.as_deref(), Some("https://harbour.example/2026/ferries"));
    assert_eq!(first.title.as_deref(), Some("Ferries late again"));
    assert_eq!(first.author.as_deref(), Some("Ada Quay"));
    assert_eq!(first.summary.as_deref(), Some("Fog <i>again</i>."));
    assert_eq!(first.content.as_deref(), Some("<p>Fog <i>again</i>, and <a href=\"/tides\">tides</a>.</p>"));
    assert_eq!((first.updated, first.cut), (None, false));
    let enclosures: Vec<_> =
        first.enclosures.iter().map(|one| (one.url.as_str(), one.media_type.as_deref(), one.length)).collect();
    assert_eq!(
        enclosures,
        [
            ("https://harbour.example/audio/17.mp3", Some("audio/mpeg"), Some(4096)),
            ("https://harbour.example/fog.jpg", Some("image/jpeg"), None),
        ]
    );
    assert_eq!(feed.entries[1].url.as_deref(), Some("https://harbour.example/2026/second"), "a guid is a link");
    assert_eq!(feed.entries[1].published.map(|at| at.to_string()).as_deref(), Some("2026-11-01T10:00:00.000Z"));
    assert!(feed.entries[2].id.starts_with("xxh3:"), "no id, no link");
}

#[test]
fn an_atom_feed_is_read_with_everything_that_it_says() {
    let feed = read(&fixture("atom10.xml"));
    assert_eq!(feed.id.as_deref(), Some("tag:harbour.example,2026:feed"));
    assert_eq!(feed.hub.as_deref(), Some("https://hub.example/"));
    assert_eq!(feed.self_link.as_deref(), Some("https://harbour.example/atom.xml"));
    let first = &feed.entries[0];
    assert_eq!(first.author.as_deref(), Some("Ada Quay, Bo Hill"));
    assert_eq!(first.updated.map(|at| at.to_string()).as_deref(), Some("2026-11-02T09:00:00.000Z"));
    assert_eq!(first.content.as_deref(), Some("<p>Fog &amp; <i>more</i></p>"));
    assert_eq!(first.enclosures.len(), 1);
    assert_eq!(first.enclosures[0].url, "https://harbour.example/audio/17.mp3");
    assert_eq!(feed.entries[1].published, None, "a change is no publication");
}

#[test]
fn a_json_feed_is_read_with_everything_that_it_says() {
    let feed = read(&fixture("json11.json"));
    assert_eq!(feed.hub.as_deref(), Some("https://hub.example/"));
    assert_eq!(feed.self_link.as_deref(), Some("https://harbour.example/feed.json"));
    let first = &feed.entries[0];
    assert_eq!(first.author.as_deref(), Some("Ada Quay, Bo Hill"));
    assert_eq!(first.summary.as_deref(), Some("Fog."));
    assert_eq!(first.content.as_deref(), Some("<p>Fog &amp; <i>more</i></p>"));
    assert_eq!(first.enclosures.len(), 1);
    assert_eq!(feed.entries[1].author.as_deref(), Some("Ada Quay"), "the feed's author is every entry's");
    assert_eq!(read(&fixture("json10.json")).entries[0].id, "17", "a number is an id");
}

#[test]
fn a_broken_document_is_repaired_and_its_half_entry_left_out() {
    let feed = read(&fixture("broken.xml"));
    assert!(feed.repaired && feed.truncated);
    assert_eq!(feed.title.as_deref(), Some("The Harbour & the Hill"));
    assert_eq!(feed.entries.len(), 2);
    assert_eq!(feed.entries[0].url.as_deref(), Some("https://harbour.example/2026/ferries?a=1&b=2"));
    assert_eq!(feed.entries[0].summary.as_deref(), Some("<p>Fog & <br>more"));
    assert_eq!(feed.entries[1].title.as_deref(), Some("Café reopens"));
}

#[test]
fn a_broken_json_feed_is_repaired_and_its_half_entry_left_out() {
    let document = "{\"version\":\"https://jsonfeed.org/version/1\",\"title\":\"a\tb\",\"items\":[{\"id\":1,},{\"id\":2},{\"id\":3";
    let feed = read(document.as_bytes());
    assert!(feed.repaired && feed.truncated);
    assert_eq!((feed.title.as_deref(), feed.entries.len()), (Some("a b"), 2));
}

#[test]
fn hints_are_read_from_every_dialect_and_only_from_the_feed_itself() {
    let hints = |document: String| read(document.as_bytes()).hints;
    let hour = Duration::from_secs(60 * 60);
    let update = |text: &str| hints(rss(text)).update_period;
    assert_eq!(
        update("<sy:updatePeriod>daily</sy:updatePeriod><sy:updateFrequency>4</sy:updateFrequency>"),
        Some(hour * 6)
    );
    assert_eq!(update("<sy:updatePeriod> Weekly </sy:updatePeriod>"), Some(hour * 24 * 7));
    assert_eq!(update("<sy:updateFrequency>2</sy:updateFrequency>"), Some(hour * 12));
    assert_eq!(update("<sy:updatePeriod>often</sy:updatePeriod>"), None);
    assert_eq!(
        update("<sy:updatePeriod>hourly</sy:updatePeriod><sy:updateFrequency>0</sy:updateFrequency>"),
        Some(hour)
    );
    assert_eq!(hints(rss("<ttl><![CDATA[60]]></ttl><ttl>5</ttl>")).ttl, Some(hour));
    assert_eq!(hints(rss("<ttl>never</ttl>")), FeedHints::default());
    assert_eq!(hints(rss("<item><ttl>5</ttl><skipHours><hour>3</hour></skipHours></item>")), FeedHints::default());
    assert_eq!(hints(rss("<opening><day>Monday</day><hour>9</hour></opening>")), FeedHints::default());
    assert_eq!(hints(rss("<skipHours><hour>24</hour><hour>x</hour></skipHours>")).skip_hours, 1);
    let rdf = String::from_utf8_lossy(&fixture("rss10.rdf")).into_owned();
    assert_eq!(hints(rdf).update_period, Some(hour * 24 * 7));

    let cloud = |attributes: &str| read(rss(&format!("<cloud {attributes}/>")).as_bytes()).cloud;
    assert_eq!(
        cloud("domain='c.example' path='RPC2' protocol='XML-RPC'").as_deref(),
        Some("c.example:80/RPC2 xml-rpc")
    );
    assert_eq!(cloud("domain='c.example' port='99999' path='/' protocol='http-post'"), None);
    assert_eq!(cloud(""), None);
    let linked = read(
        rss("<atom:link rel='next hub' href='/hub'/><atom:link rel='HUB' href='/other'/><link rel='self'/>").as_bytes(),
    );
    assert_eq!((linked.hub.as_deref(), linked.self_link), (Some("https://harbour.example/hub"), None));
}

#[test]
fn versions_namespaces_and_types_that_nobody_knows_cost_nothing() {
    let table = [
        "<rss><channel><title>t</title><item><title>a</title></item></channel></rss>",
        "<rss version='0.94'><channel><title>t</title><item><title>a</title></item></channel></rss>",
        "<rss version='2.00' xmlns='http://backend.userland.com/rss2'><channel><title>t</title><item><title>a</title></item></channel></rss>",
        "<rss version='2.0'><channel><title>t</title></channel><item><title>a</title></item></rss>",
        "<RSS VERSION='2.0'><CHANNEL><TITLE>t</TITLE><ITEM><TITLE>a</TITLE></ITEM></CHANNEL></RSS>",
        "<feed xmlns='http://www.w3.org/2005/atom'><title>t</title><entry><title>a</title></entry></feed>",
        "<feed><title>t</title><entry><title type='text/plain'>a</title></entry></feed>",
        "<feed xmlns='urn:my-own'><title>t</title><entry><title>a</title></entry></feed>",
        "<a:feed xmlns:a='http://www.w3.org/2005/Atom'><a:title>t</a:title><a:entry><a:title>a</a:title></a:entry></a:feed>",
        "{\"version\":\"https://jsonfeed.org/version/2\",\"title\":\"t\",\"items\":[{\"title\":\"a\"}]}",
        "<r:rss version='2.0' xmlns:r='http://backend.userland.com/rss2'><r:channel><r:title>t</r:title><r:item><r:title>a</r:title></r:item></r:channel></r:rss>",
        "{\"title\":\"t\",\"items\":[{\"title\":\"a\",\"authors\":{},\"url\":[],\"attachments\":7}]}",
    ];
    for document in table {
        let feed = read(document.as_bytes());
        assert_eq!(feed.title.as_deref(), Some("t"), "{document}");
        assert_eq!(feed.entries.len(), 1, "{document}");
        assert_eq!(feed.entries[0].title.as_deref(), Some("a"), "{document}");
    }
}

#[test]
fn encodings_are_read_whatever_is_declared() {
    let body = "<rss version=\"2.0\"><channel><title>Привет</title></channel></rss>";
    let declared = |label: &str| format!("<?xml version=\"1.0\" encoding=\"{label}\"?>{body}");
    let cyrillic = |label: &str| encoding_rs::WINDOWS_1251.encode(&declared(label)).0.into_owned();
    let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<u8>>();
    let table = [
        (declared("utf-8").into_bytes(), None),
        (declared("utf-16").into_bytes(), None),
        (declared("iso-8859-1").into_bytes(), Some("text/xml; charset=iso-8859-1")),
        (cyrillic("windows-1251"), None),
        (cyrillic("utf-8"), Some("application/rss+xml; charset=windows-1251")),
        (utf16(&declared("utf-16")), None),
        (utf16(&format!("\u{FEFF}{}", declared("utf-8"))), Some("text/xml; charset=utf-8")),
    ];
    for (at, (bytes, content_type)) in table.iter().enumerate() {
        let feed = parse(bytes, *content_type, BASE, &ParseLimits::default());
        assert_eq!(feed.map(|feed| feed.title), Ok(Some("Привет".into())), "row {at}");
    }
}

#[test]
fn the_bytes_decide_what_a_document_is_and_not_its_declared_type() {
    let limits = ParseLimits::default();
    for content_type in [None, Some("text/html"), Some("application/json"), Some("image/png"), Some("nonsense")] {
        for name in ["rss20.xml", "json11.json", "atom10.xml"] {
            assert!(parse(&fixture(name), content_type, BASE, &limits).is_ok(), "{name} as {content_type:?}");
        }
    }
}

#[test]
fn what_is_no_feed_is_told_from_what_is_broken() {
    let no_feeds = [
        "",
        " \n\t",
        "hello",
        "<!DOCTYPE html><html><head><title>x</title></head><body><p>a<br>b</body></html>",
        "<html><body><a href='?a&b'>x</a></body></html>",
        "<?xml version='1.0'?><opml version='2.0'><body/></opml>",
        "{}",
        "{\"error\":\"not found\"}",
        "{not json",
        "[1,2]",
        "<",
        "%PDF-1.7",
    ];
    for document in no_feeds {
        assert!(
            matches!(try_read(document.as_bytes()), Err(ParseError::NotAFeed(_))),
            "{document}: {:?}",
            try_read(document.as_bytes())
        );
    }
    let broken = ["<rss version='2.0'", "{\"version\":\"https://jsonfeed.org/version/1\",\"items\":["];
    for document in broken {
        assert!(
            matches!(try_read(document.as_bytes()), Err(ParseError::Malformed(_))),
            "{document}: {:?}",
            try_read(document.as_bytes())
        );
    }
}

#[test]
fn reading_twice_gives_equal_ids_and_fingerprints() {
    for name in ["rss20.xml", "rss10.rdf", "rss090.rdf", "atom10.xml", "atom03.xml", "json10.json", "broken.xml"] {
        let (one, other) = (read(&fixture(name)), read(&fixture(name)));
        let prints = |feed: &ParsedFeed| feed.entries.iter().map(Entry::fingerprint).collect::<Vec<_>>();
        assert_eq!(prints(&one), prints(&other), "{name}");
        assert_eq!(one, other, "{name}");
    }
}

#[test]
fn the_order_of_items_does_not_change_their_ids() {
    let items = [
        "<item><guid>a</guid></item>",
        "<item><link>https://e.example/1</link></item>",
        "<item><title>no id</title><pubDate>Mon, 02 Nov 2026 08:30:00 GMT</pubDate></item>",
        "<item><description>nothing but this</description></item>",
        "<item><guid>same</guid><link>https://e.example/2</link></item>",
        "<item><guid>same</guid><link>https://e.example/3</link></item>",
    ];
    let ids = |items: &mut dyn Iterator<Item = &&str>| {
        let text: String = items.copied().collect();
        let mut ids: Vec<String> = read(rss(&text).as_bytes()).entries.into_iter().map(|entry| entry.id).collect();
        ids.sort();
        ids
    };
    let forward = ids(&mut items.iter());
    assert_eq!(forward, ids(&mut items.iter().rev()));
    assert_eq!(forward.len(), items.len());
}

#[test]
fn of_one_id_the_different_are_kept_and_the_equal_dropped() {
    let item = |guid: &str, link: &str, title: &str| {
        format!("<item><guid>{guid}</guid><link>https://e.example/{link}</link><title>{title}</title></item>")
    };
    let ids = |items: &[String]| -> Vec<String> {
        read(rss(&items.concat()).as_bytes()).entries.into_iter().map(|entry| entry.id).collect()
    };
    assert_eq!(ids(&[item("x", "1", "a"), item("x", "1", "a")]), ["x"], "listed twice");
    let by_link = ids(&[item("x", "1", "a"), item("x", "2", "a"), item("y", "1", "a")]);
    assert_eq!(by_link.len(), 3);
    assert!(by_link[0].starts_with("x#") && by_link[1].starts_with("x#") && by_link[0] != by_link[1]);
    assert_eq!(by_link[2], "y", "the others keep their ids");
    let by_title = ids(&[item("x", "1", "a"), item("x", "1", "b")]);
    assert_eq!(by_title.len(), 2, "the same link, other titles");
}

#[test]
fn titles_become_plain_text_and_content_stays_as_it_was_written() {
    let entry = only_entry(rss("<item><title><![CDATA[ Tom &amp; <b>Jerry</b>\n Vec<T> ]]></title><description>&lt;b&gt;x&lt;/b&gt; &amp;amp;</description></item>").as_bytes());
    assert_eq!(entry.title.as_deref(), Some("Tom & Jerry Vec<T>"));
    assert_eq!(entry.summary.as_deref(), Some("<b>x</b> &amp;"));
    let atom = "<feed xmlns='http://www.w3.org/2005/Atom'><entry><id>1</id><title>&lt;b> is &amp;amp; bold</title></entry></feed>";
    assert_eq!(only_entry(atom.as_bytes()).title.as_deref(), Some("<b> is &amp; bold"), "Atom's plain text is plain");
}

#[test]
fn a_text_that_is_said_to_be_plain_is_given_as_html_that_shows_it() {
    const SHOWN: &str = "1 &lt; 2 &amp; &lt;b&gt;no tag&lt;/b&gt;<br>\n&lt;a href=&quot;https://no.example/&quot;&gt;";
    let json = |fields: &str| {
        only_entry(format!("{{\"version\":\"https://jsonfeed.org/version/1.1\",\"items\":[{{{fields}}}]}}").as_bytes())
    };
    let text = r#""1 < 2 & <b>no tag</b>\n<a href=\"https://no.example/\">""#;
    let plain = json(&format!("\"content_text\":{text}"));
    assert_eq!((plain.content.as_deref(), &plain.summary), (Some(SHOWN), &None));
    assert_eq!(plain.display_title(), "1 < 2 & <b>no tag</b> <a href=\"https://no.example/\">");
    assert!(plain.links.is_empty(), "{:?}", plain.links);
    assert_eq!(json(&format!("\"summary\":{text},\"title\":\"t\"")).summary.as_deref(), Some(SHOWN));
    let both = json(&format!("\"content_html\":\"<p>1 &lt; 2</p>\",\"content_text\":{text}"));
    assert_eq!((both.content.as_deref(), both.summary.as_deref()), (Some("<p>1 &lt; 2</p>"), Some(SHOWN)));

    let text = "1 &lt; 2 &amp;amp; &lt;b&gt;";
    let atom = |inside: &str| {
        only_entry(format!("<feed xmlns='http://www.w3.org/2005/Atom'><entry>{inside}</entry></feed>").as_bytes())
    };
    for (kind, shown) in [
        ("", "1 &lt; 2 &amp;amp; &lt;b&gt;"),
        ("type='text'", "1 &lt; 2 &amp;amp; &lt;b&gt;"),
        ("type='text/plain'", "1 &lt; 2 &amp;amp; &lt;b&gt;"),
        ("type='html'", "1 < 2 &amp; <b>"),
    ] {
        let entry = atom(&format!("<summary {kind}>{text}</summary><content {kind}>{text}</content>"));
        assert_eq!((entry.summary.as_deref(), entry.content.as_deref()), (Some(shown), Some(shown)), "{kind}");
    }
    let rss = only_entry(rss(&format!("<item><description>{text}</description></item>")).as_bytes());
    assert_eq!(rss.summary.as_deref(), Some("1 < 2 &amp; <b>"), "RSS says nothing, and means HTML");
}

#[test]
fn links_are_resolved_and_those_that_would_run_are_dropped() {
    let link = |link: &str| only_entry(rss(&format!("<item><guid>1</guid><link>{link}</link></item>")).as_bytes()).url;
    assert_eq!(link("../a?b#c").as_deref(), Some("https://harbour.example/a?b#c"));
    assert_eq!(link(" \n https://e.example/x \n").as_deref(), Some("https://e.example/x"));
    assert_eq!(link("//e.example/x").as_deref(), Some("https://e.example/x"));
    assert_eq!(link("JavaScript:alert(1)"), None);
    assert_eq!(link("data:text/html,x"), None);
    assert_eq!(link(&format!("/{}", "a".repeat(9_000))), None);
    let feed = parse(rss("<item><link>/a</link></item>").as_bytes(), None, "", &ParseLimits::default());
    assert_eq!(
        feed.map(|feed| feed.entries[0].url.clone()),
        Ok(Some("/a".into())),
        "no base, nothing to resolve against"
    );
}

#[test]
fn entries_have_categories_languages_and_links() {
    let rss_entry = only_entry(
        rss("<language>EN-gb</language><item><category>a</category><category> b \n c </category><category>a</category><category/>\
             <dc:subject>d</dc:subject><description>&lt;a href='/x'&gt;x&lt;/a&gt;</description></item>")
        .as_bytes(),
    );
    assert_eq!(rss_entry.categories, ["a", "b c", "d"]);
    assert_eq!(rss_entry.language.as_deref(), Some("en-gb"), "the feed's");
    assert_eq!(rss_entry.links, ["https://harbour.example/x"]);

    let atom = "<feed xmlns='http://www.w3.org/2005/Atom' xml:lang='en'><entry xml:lang='fr'><category term='a' label='A'/>\
                <content type='xhtml' xml:base='https://o.example/'><div><p>1</p><p>2</p></div></content></entry>\
                <entry><id>2</id></entry></feed>";
    let feed = read(atom.as_bytes());
    assert_eq!(
        (feed.entries[0].categories.as_slice(), feed.entries[0].language.as_deref()),
        (&["a".to_owned()][..], Some("fr"))
    );
    assert_eq!(feed.entries[0].content.as_deref(), Some("<p>1</p><p>2</p>"));
    assert_eq!(feed.entries[1].language.as_deref(), Some("en"));

    let json = "{\"version\":\"https://jsonfeed.org/version/1.1\",\"language\":\"de\",\"items\":[{\"id\":\"1\",\"tags\":[\"x\",7,{},\"x\"],\
                \"language\":\"de-AT\"}]}";
    let json_entry = only_entry(json.as_bytes());
    assert_eq!(
        (json_entry.categories, json_entry.language.as_deref()),
        (vec!["x".to_owned(), "7".to_owned()], Some("de-at"))
    );
}

#[test]
fn an_entry_without_a_title_is_shown_by_its_first_words() {
    let shown = |item: &str| only_entry(rss(&format!("<item>{item}</item>")).as_bytes()).display_title().to_owned();
    assert_eq!(shown("<title>a</title><description>b</description>"), "a");
    assert_eq!(shown("<description>&lt;p&gt;Just &lt;b&gt;this&lt;/b&gt;.&lt;/p&gt;</description>"), "Just this.");
    assert_eq!(shown("<link>https://e.example/1</link>"), "https://e.example/1");
    assert_eq!(shown("<guid>x</guid>"), "x");
}

#[test]
fn a_feed_says_where_it_goes_on_where_it_went_and_that_it_ended() {
    let feed = read(
        rss("<atom:link rel='next' href='?page=2'/><atom:link rel='prev-archive' href='/2025.xml'/>\
             <itunes:new-feed-url> https://new.example/feed </itunes:new-feed-url><itunes:complete>Yes</itunes:complete>")
        .as_bytes(),
    );
    assert_eq!(feed.onward.next.as_deref(), Some("https://harbour.example/dir/feed.xml?page=2"));
    assert_eq!(feed.onward.prev_archive.as_deref(), Some("https://harbour.example/2025.xml"));
    assert_eq!(feed.onward.new_feed_url.as_deref(), Some("https://new.example/feed"));
    assert!(feed.onward.expired);
    let json = "{\"version\":\"https://jsonfeed.org/version/1.1\",\"title\":\"t\",\"items\":[],\"expired\":true,\"next_url\":\"/2\",\
                \"hubs\":[{\"type\":\"rssCloud\",\"url\":\"https://no.example/\"},{\"type\":\"WebSub\",\"url\":\"https://hub.example/\"}]}";
    let feed = read(json.as_bytes());
    assert_eq!(
        (feed.onward.next.as_deref(), feed.hub.as_deref()),
        (Some("https://harbour.example/2"), Some("https://hub.example/"))
    );
    assert!(feed.onward.expired);
}

#[test]
fn a_word_counts_where_it_stands_and_the_feeds_own_before_those_of_extensions() {
    let entry = only_entry(
        rss("<image><title>no</title><link>https://no.example/</link></image><item><media:group><media:title>media</media:title>\
             <media:content url='/v.mp4' type='video/mp4' fileSize='7'><media:title>no</media:title></media:content></media:group>\
             <source url='x'><title>no</title></source><dc:title>dc</dc:title><title>own</title><itunes:title>no</itunes:title>\
             <description>own</description><media:description>no</media:description><comments>https://no.example/</comments>\
             <dc:creator>Ann</dc:creator><author>ann@e.example (Ann)</author><itunes:author>No</itunes:author>\
             <dc:date>2026-11-01T00:00:00Z</dc:date><pubDate>Mon, 02 Nov 2026 08:30:00 GMT</pubDate></item>")
        .as_bytes(),
    );
    assert_eq!((entry.title.as_deref(), entry.summary.as_deref()), (Some("own"), Some("own")));
    assert_eq!((entry.author.as_deref(), entry.url.as_deref()), (Some("Ann"), None));
    assert_eq!(entry.published.map(|at| at.to_string()).as_deref(), Some("2026-11-02T08:30:00.000Z"));
    assert_eq!(entry.enclosures.len(), 1);
    assert_eq!(entry.enclosures[0].length, Some(7));
    let fallbacks = rss("<item><media:title>media</media:title><dc:title>dc</dc:title></item>");
    assert_eq!(only_entry(fallbacks.as_bytes()).title.as_deref(), Some("dc"));
}

#[test]
fn the_json_form_is_the_one_that_the_contract_shows() {
    let document = "<feed xmlns='http://www.w3.org/2005/Atom'><title>t</title><entry><id>1</id><updated>2026-11-02T08:30:00.5Z</updated></entry></feed>";
    let expected = serde_json::json!({
        "title": "t", "link": null, "id": null,
        "entries": [{ "id": "1", "title": null, "link": null, "published": null, "updated": "2026-11-02T08:30:00.500Z",
            "display_title": "1" }],
    });
    let mut found = to_json(&read(document.as_bytes()));
    let announced: Vec<String> =
        found.as_object().unwrap().keys().filter(|key| expected.get(key).is_none()).cloned().collect();
    announced.iter().for_each(|key| drop(found.as_object_mut().unwrap().remove(key)));
    assert_eq!(found, expected);
    assert_eq!(announced, ["cloud", "hints", "hub", "language", "onward", "repaired", "self_link", "truncated"]);
}

#[test]
fn a_namespace_that_nobody_else_has_and_a_base_for_guids_lose_nothing() {
    let item = "<item><title>a</title><guid isPermaLink='true'>post/1</guid></item>";
    for (rss, channel) in [
        ("xml:base='http://b.example/dir/'", ""),
        ("", "xmlns='http://own.example/x' xml:base='http://b.example/dir/'"),
    ] {
        let feed = try_read(format!("<rss {rss}><channel {channel}><title>t</title>{item}</channel></rss>").as_bytes());
        let feed = feed.unwrap();
        assert_eq!((feed.title.as_deref(), feed.entries.len()), (Some("t"), 1));
        assert_eq!(feed.entries[0].url.as_deref(), Some("http://b.example/dir/post/1"));
    }
    let other = "<rss><channel><title>t</title><x xmlns='http://own.example/x'><title>u</title></x></channel></rss>";
    assert_eq!(try_read(other.as_bytes()).unwrap().title.as_deref(), Some("t"));
}
