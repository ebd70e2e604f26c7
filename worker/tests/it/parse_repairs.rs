//! What the decoder and the repair fix, a document each: the reason, the document, and what is read in it.

use worker::parse::{ParseLimits, ParsedFeed, parse};

fn read(reason: &str, bytes: &[u8], content_type: Option<&str>) -> ParsedFeed {
    let read = parse(bytes, content_type, "https://e.example/feed", &ParseLimits::default());
    read.unwrap_or_else(|error| panic!("{reason}: {error}"))
}

fn titles(feed: &ParsedFeed) -> String {
    let titles = feed.entries.iter().map(|entry| entry.title.as_deref().unwrap_or("-"));
    std::iter::once(feed.title.as_deref().unwrap_or("-")).chain(titles).collect::<Vec<_>>().join("|")
}

const WHOLE: bool = false;
const CUT: bool = true;

/// Reason, document, titles of the feed and its entries, whether the document ends too early.
const BROKEN: &[(&str, &str, &str, bool)] = &[
    (
        "a warning of the publishing program before the document",
        "<br />\n<b>Warning</b>: Undefined index in <b>/www/feed.php</b><br />\n<?xml version='1.0'?><rss><channel><title>t</title><item><title>a</title></item></channel></rss>",
        "t|a",
        WHOLE,
    ),
    (
        "a page's HTML around the feed",
        "<html><body><pre><rss><channel><title>t</title><item><title>a</title></item></channel></rss></pre></body></html>",
        "t|a",
        WHOLE,
    ),
    (
        "an ampersand that begins no reference, in text and in an address",
        "<rss><channel><title>Fish & chips</title><item><title>Q&A</title><link>/?a=1&b=2</link></item></channel></rss>",
        "Fish & chips|Q&A",
        WHOLE,
    ),
    (
        "names of HTML for characters, with something else broken",
        "<rss><channel><title>caf&eacute;&nbsp;&copy;</title><item><title>&nosuch; & &hellip;</title></item></channel></rss>",
        "caf\u{e9} \u{a9}|&nosuch; & \u{2026}",
        WHOLE,
    ),
    (
        "a less-than sign in text",
        "<rss><channel><title>1 < 2</title><item><title>a <3 b</title></item></channel></rss>",
        "1 < 2|a <3 b",
        WHOLE,
    ),
    (
        "HTML that was not escaped and whose tags do not match",
        "<rss><channel><title>t</title><item><title>a</title><description><p>x<br>y</description></item></channel></rss>",
        "t|a",
        WHOLE,
    ),
    (
        "XHTML that is none",
        "<feed><title>t</title><entry><title type='xhtml'><div>a <br> b</div></title></entry></feed>",
        "t|a b",
        WHOLE,
    ),
    (
        "tags that cross",
        "<rss><channel><title>t</title><item><author><name>x</author></name><title>a</title></item></channel></rss>",
        "t|a",
        WHOLE,
    ),
    (
        "an end tag without a beginning",
        "<rss><channel><title>t</title></image><item><title>a</title></item></channel></rss>",
        "t|a",
        WHOLE,
    ),
    (
        "an item that is not closed before the next",
        "<rss><channel><title>t</title><item><title>a</title><item><title>b</title></item></channel></rss>",
        "t|a|b",
        WHOLE,
    ),
    (
        "a title that is not closed before the first item",
        "<rss><channel><title>t<item><title>a</title></item></channel></rss>",
        "t|a",
        WHOLE,
    ),
    (
        "an attribute whose quote is not closed before the next item",
        "<rss><channel><title>t</title><item><title>a</title><enclosure url=\"/a.mp3/></item><item><title>b</title><enclosure url=\"/b.mp3\"/></item></channel></rss>",
        "t|a|b",
        WHOLE,
    ),
    (
        "CDATA that is not closed before the next item",
        "<rss><channel><title>t</title><item><title>a</title><description><![CDATA[x</description></item><item><title>b</title></item></channel></rss>",
        "t|a|b",
        WHOLE,
    ),
    (
        "CDATA that is not closed before that of the next item",
        "<rss><channel><title>t</title><item><title>a</title><description><![CDATA[x</description></item><item><title><![CDATA[b]]></title></item></channel></rss>",
        "t|a|b",
        WHOLE,
    ),
    (
        "CDATA in the feed's title that is not closed before the first item",
        "<rss><channel><title><![CDATA[t</title><item><title>a</title></item></channel></rss>",
        "t|a",
        WHOLE,
    ),
    (
        "CDATA in the feed's title that is not closed before that of the first item",
        "<rss><channel><title><![CDATA[t</title><item><title><![CDATA[a]]></title></item></channel></rss>",
        "t|a",
        WHOLE,
    ),
    (
        "CDATA that is not closed in an item that is not closed either",
        "<rss><channel><title>t</title><item><title><![CDATA[a</title><item><title>b</title></item></channel></rss>",
        "t|a|b",
        WHOLE,
    ),
    (
        "a comment that is not closed before the next item",
        "<rss><channel><title>t</title><item><title>a</title><!-- x</item><item><title>b</title></item></channel></rss>",
        "t|a|b",
        WHOLE,
    ),
    (
        "a comment that is not closed before that of the next item",
        "<rss><channel><title>t</title><item><title>a</title><description>d<!-- x</description></item><item><title>b</title><!-- y --></item></channel></rss>",
        "t|a|b",
        WHOLE,
    ),
    (
        "an attribute whose quote is not closed, in elements with a prefix",
        "<a:feed xmlns:a='http://www.w3.org/2005/Atom'><a:title>t</a:title><a:entry><a:title>a</a:title><a:link href=\"/1/></a:entry><a:entry><a:title>b</a:title><a:link href=\"/2\"/></a:entry></a:feed>",
        "t|a|b",
        WHOLE,
    ),
    (
        "an entity of the document's own, with something else broken",
        "<?xml version='1.0'?><!DOCTYPE rss [<!ENTITY me 'a'>]><rss><channel><title>t & u</title><item><title>&me;</title></item></channel></rss>",
        "t & u|a",
        WHOLE,
    ),
    (
        "tags closed in another case than opened",
        "<rss><channel><title>t</TITLE><Item><title>a</title></item></channel></RSS>",
        "t|a",
        WHOLE,
    ),
    (
        "attributes without quotes, twice, and of no name",
        "<rss version=2.0><channel><title>t</title><item><title a=1 a=2 '=3>a</title></item></channel></rss>",
        "t|a",
        WHOLE,
    ),
    (
        "two dashes inside of a comment, and an unclosed comment behind the last item",
        "<rss><channel><title>t</title><!-- a -- b --><item><title>a</title></item><!-- ",
        "t|a",
        CUT,
    ),
    (
        "a document that ends inside of an item: the whole ones are kept",
        "<rss><channel><title>t</title><item><title>a</title></item><item><title>half",
        "t|a",
        CUT,
    ),
    (
        "a document that ends inside of a tag",
        "<feed><title>t</title><entry><title>a</title></entry><entry><link hre",
        "t|a",
        CUT,
    ),
    (
        "a document that ends inside of CDATA",
        "<rss><channel><title>t</title><item><title>a</title></item><item><title><![CDATA[half",
        "t|a",
        CUT,
    ),
    (
        "a document whose last character is missing",
        "<rss><channel><title>t</title><item><title>a</title></item></channel></rss",
        "t|a",
        WHOLE,
    ),
    (
        "JSON with commas before brackets and raw line breaks in texts",
        "{\"version\":\"https://jsonfeed.org/version/1\",\"title\":\"t\",\"items\":[{\"id\":1,\"title\":\"a\nb\",},],}",
        "t|a b",
        WHOLE,
    ),
    (
        "JSON that ends inside of an item",
        "{\"version\":\"https://jsonfeed.org/version/1\",\"title\":\"t\",\"items\":[{\"id\":1,\"title\":\"a\"},{\"id\":2,\"ti",
        "t|a",
        CUT,
    ),
    (
        "a reference to a number that is no character's, with something else broken",
        "<rss><channel><title>t & u</title><item><title>a&#x110000;&#xD800;</title></item></channel></rss>",
        "t & u|a",
        WHOLE,
    ),
    (
        "a prefix before the feed's own elements",
        "<a:feed xmlns:a='http://www.w3.org/2005/Atom'><a:title>t & u</a:title><a:entry><a:title>a</a:title></a:entry></a:feed>",
        "t & u|a",
        WHOLE,
    ),
    (
        "Atom 0.3 with markup that does not match",
        "<feed version='0.3' xmlns='http://purl.org/atom/ns#'><title>t</title><entry><title mode='xml'><b>a<br></b> & b</title></entry></feed>",
        "t|a & b",
        WHOLE,
    ),
    (
        "CDATA beside something broken",
        "<rss><channel><title>t & u</title><item><title><![CDATA[a <b>&amp; c</b>]]></title></item></channel></rss>",
        "t & u|a & c",
        WHOLE,
    ),
    (
        "JSON with a backslash that escapes nothing",
        "{\"version\":\"https://jsonfeed.org/version/1\",\"title\":\"t\",\"items\":[{\"id\":1,\"title\":\"a\\q\"}]}",
        "t|a\\q",
        WHOLE,
    ),
    (
        "JSON with half of a surrogate pair",
        "{\"version\":\"https://jsonfeed.org/version/1\",\"title\":\"t\",\"items\":[{\"id\":1,\"title\":\"a\\ud83d\"}]}",
        "t|a\u{fffd}",
        WHOLE,
    ),
];

#[test]
fn what_is_broken_is_mended_and_says_so() {
    for (reason, document, expected, cut) in BROKEN {
        let feed = read(reason, document.as_bytes(), None);
        assert_eq!(titles(&feed), *expected, "{reason}");
        assert_eq!((feed.repaired, feed.truncated), (true, *cut), "{reason}");
    }
}

#[test]
fn a_document_whose_root_alone_is_not_closed_is_whole() {
    let item = "<item><title>a</title></item>";
    for (document, is_cut) in [
        (format!("<rss><channel><title>t</title>{item}</channel>\n"), false),
        (format!("<rss><channel><title>t</title>{item}"), true),
        (format!("<rss><channel><title>t</title></channel>{item}<item><title>b"), true),
        (format!("<rdf:RDF><channel><title>t</title></channel>{item}"), true),
    ] {
        assert_eq!(read("no </rss>", document.as_bytes(), None).truncated, is_cut, "{document}");
    }
}

#[test]
fn attributes_without_quotes_are_read() {
    let item = "<item><title>a</title><guid isPermaLink=false>http://e.example/g</guid>\
                <enclosure url=http://e.example/b.mp3 length=12 type=audio/mpeg></enclosure></item>";
    let feed = read("quotes", format!("<rss><channel><title>t</title>{item}</channel></rss>").as_bytes(), None);
    let entry = &feed.entries[0];
    assert_eq!((entry.id.as_str(), &entry.url), ("http://e.example/g", &None));
    let file = &entry.enclosures[0];
    assert_eq!((file.url.as_str(), file.media_type.as_deref()), ("http://e.example/b.mp3", Some("audio/mpeg")));
    let atom = "<feed xmlns='http://www.w3.org/2005/Atom'><title>t</title>\
                <entry><id>1</id><link rel=alternate href=http://e.example/1 /></entry></feed>";
    assert_eq!(read("quotes", atom.as_bytes(), None).entries[0].url.as_deref(), Some("http://e.example/1"));
}

#[test]
fn an_empty_element_that_is_not_closed_takes_nothing_from_its_entry() {
    for empty in [
        "<enclosure url='http://e.example/b.mp3' length='12' type='audio/mpeg'>",
        "<media:thumbnail url='http://e.example/b.png'>",
        "<itunes:image href='http://e.example/b.png'>",
        "<atom:link rel='self' href='http://e.example/'>",
    ] {
        let item = format!("<item><title>a</title>{empty}<link>http://e.example/1</link><guid>g1</guid></item>");
        let feed = read(empty, format!("<rss><channel><title>t</title>{item}</channel></rss>").as_bytes(), None);
        let entry = &feed.entries[0];
        assert_eq!((entry.id.as_str(), entry.url.as_deref()), ("g1", Some("http://e.example/1")), "{empty}");
    }
}

#[test]
fn an_element_that_is_not_closed_ends_where_its_neighbour_begins() {
    let item = "<title>a</title><link>https://e.example/1</link><guid>g</guid><pubDate>Mon, 02 Nov 2026 08:30:00 GMT</pubDate>\
                <description>d &lt;b></description><category>c</category>";
    let rss = ["<rss><channel><title>t</title><item>", item, "</item></channel></rss>"];
    let entry = "<title>a</title><link href='/1'></link><id>g</id><updated>2026-11-02T08:30:00Z</updated><summary>d</summary>\
                 <author><name>n</name></author>";
    let atom = ["<feed><title>t</title><entry>", entry, "</entry></feed>"];
    for ([begin, whole, end], elements) in [
        (rss, ["title", "link", "guid", "pubDate", "description"]),
        (atom, ["title", "link", "id", "updated", "summary"]),
    ] {
        let sound = read("sound", [begin, whole, end].concat().as_bytes(), None);
        for element in elements {
            let broken = whole.replace(&format!("</{element}>"), "");
            let broken = read(element, [begin, &broken, end].concat().as_bytes(), None);
            assert!(broken.repaired && !sound.repaired, "{element}");
            assert_eq!(broken.entries, sound.entries, "{element}");
        }
    }
}

#[test]
fn markup_in_an_element_that_is_closed_does_not_end_it() {
    let rss = |item: &str| format!("<rss><channel><title>t</title><item>{item}</item></channel></rss>");
    let atom = |entry: &str| format!("<feed><title>t</title><entry>{entry}</entry></feed>");
    let rest = "<guid>g</guid><link>https://e.example/1</link>";
    let rest_of_atom = "<id>g</id><link href='https://e.example/1'/>";
    for (title, document) in [
        ("GET /users/<id>: fix & more", rss(&format!("<title>GET /users/<id>: fix & more</title>{rest}"))),
        ("A & B <link> tag", rss(&format!("<title>A & B <link> tag</title>{rest}"))),
        ("A & B", rss(&format!("<title>A & B</title><description>x <id> y</description>{rest}"))),
        ("How to use <id> & co", atom(&format!("<title>How to use <id> & co</title>{rest_of_atom}"))),
        ("<category> & <author>", atom(&format!("<title><category> & <author></title>{rest_of_atom}"))),
    ] {
        let found = read(title, document.as_bytes(), None);
        assert!(found.repaired, "{title}");
        let [entry] = &found.entries[..] else { panic!("{title}: {found:?}") };
        let fields = (entry.id.as_str(), entry.url.as_deref(), entry.title.as_deref());
        assert_eq!(fields, ("g", Some("https://e.example/1"), Some(title)), "{document}");
    }
    let text = "<p>See <link>http://foo</link></p> <category>x</category> tail";
    let broken = rss(&format!("<title>A & B</title><description>{text}</description>{rest}"));
    assert_eq!(read("text", broken.as_bytes(), None).entries[0].summary.as_deref(), Some(text));
}

/// Reason and document; each is `t` with the entry `a`, and sound.
const ODD: &[(&str, &str)] = &[
    ("no version", "<rss><channel><title>t</title><item><title>a</title></item></channel></rss>"),
    (
        "a version that never was",
        "<rss version='0.94'><channel><title>t</title><item><title>a</title></item></channel></rss>",
    ),
    (
        "a namespace that RSS does not have",
        "<rss xmlns='http://backend.userland.com/rss2'><channel><title>t</title><item><title>a</title></item></channel></rss>",
    ),
    (
        "the namespace of RSS 0.90",
        "<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#' xmlns='http://my.netscape.com/rdf/simple/0.9/'><channel><title>t</title></channel><item><title>a</title></item></rdf:RDF>",
    ),
    (
        "Atom 0.3",
        "<feed version='0.3' xmlns='http://purl.org/atom/ns#'><title mode='escaped'>t</title><entry><title>a</title></entry></feed>",
    ),
    ("a namespace of one's own", "<feed xmlns='urn:my-own'><title>t</title><entry><title>a</title></entry></feed>"),
    ("no namespace", "<feed><title>t</title><entry><title>a</title></entry></feed>"),
    (
        "a prefix that nobody declared",
        "<rss><channel><title>t</title><item><dc:title>a</dc:title><x:y>z</x:y></item></channel></rss>",
    ),
    ("capitals", "<RSS><CHANNEL><TITLE>t</TITLE><ITEM><TITLE>a</TITLE></ITEM></CHANNEL></RSS>"),
    ("items behind the channel", "<rss><channel><title>t</title></channel><item><title>a</title></item></rss>"),
    ("items without a channel", "<rss><title>t</title><item><title>a</title></item></rss>"),
    ("two channels", "<rss><channel><title>t</title></channel><channel><item><title>a</title></item></channel></rss>"),
    ("CDF", "<CHANNEL HREF='/'><TITLE>t</TITLE><ITEM HREF='/1' LASTMOD='2026-11-02'><TITLE>a</TITLE></ITEM></CHANNEL>"),
    (
        "a name of HTML for a character",
        "<rss><channel><title>t&shy;</title><item><title>&zwj;a</title></item></channel></rss>",
    ),
    (
        "an attribute with a less-than sign",
        "<rss><channel><title>t</title><item><title x='<'>a</title></item></channel></rss>",
    ),
    (
        "control characters",
        "<rss><channel><title>\u{1}t\u{8}</title><item><title>a\0\u{b}&#2;</title></item></channel></rss>",
    ),
    (
        "white space before the declaration",
        "\n\n <?xml version='1.0'?><rss><channel><title>t</title><item><title>a</title></item></channel></rss>",
    ),
    ("words before the document", "hello <rss><channel><title>t</title><item><title>a</title></item></channel></rss>"),
    (
        "something behind the document",
        "<rss><channel><title>t</title><item><title>a</title></item></channel></rss><!-- 0.1 s --><script>x()</script>",
    ),
    ("a title in base64", "<feed><title mode='base64'>dA==</title><entry><title>a</title></entry></feed>"),
    (
        "an entity of the document's own",
        "<!DOCTYPE rss [<!ENTITY me 'a'>]><rss><channel><title>t</title><item><title>&me;</title></item></channel></rss>",
    ),
    (
        "a number as id, and no title",
        "{\"version\":\"https://jsonfeed.org/version/1\",\"title\":\"t\",\"items\":[{\"id\":7,\"title\":\"a\"}]}",
    ),
    (
        "a name several times in an object of JSON",
        "{\"version\":\"https://jsonfeed.org/version/1\",\"title\":\"no\",\"title\":\"t\",\"items\":[{\"title\":7,\"title\":\"a\"}]}",
    ),
    (
        "a version of JSON Feed that never was",
        "{\"version\":\"jsonfeed.org/9\",\"title\":\"t\",\"items\":[{\"title\":\"a\",\"url\":{},\"tags\":7}]}",
    ),
];

#[test]
fn what_is_odd_but_sound_needs_no_repair() {
    for (reason, document) in ODD {
        let feed = read(reason, document.as_bytes(), None);
        assert_eq!(titles(&feed).replace(['\u{ad}', '\u{200d}'], ""), "t|a", "{reason}");
        assert!(!feed.repaired && !feed.truncated, "{reason}");
    }
}

#[test]
fn every_encoding_is_read_with_and_without_the_right_label() {
    let feed = |label: &str| {
        format!("<?xml version='1.0' encoding='{label}'?><rss><channel><title>Žluť</title></channel></rss>")
    };
    // The bytes of the first and of the last letter.
    let in_code_page = |label: &str, first: u8, last: u8| {
        let text = feed(label);
        let (before, after) = text.split_once("Žluť").unwrap();
        [before.as_bytes(), &[first], b"lu", &[last], after.as_bytes()].concat()
    };
    let utf16 = |order: fn(u16) -> [u8; 2]| feed("utf-8").encode_utf16().flat_map(order).collect::<Vec<u8>>();
    let utf32 = |order: fn(u32) -> [u8; 4]| feed("utf-8").chars().flat_map(|c| order(c.into())).collect::<Vec<u8>>();
    let table = [
        ("UTF-8 with a mark", ["\u{feff}".as_bytes(), feed("utf-8").as_bytes()].concat(), None),
        ("UTF-8 declared as Latin-1 by the server", feed("utf-8").into_bytes(), Some("text/xml; charset=iso-8859-1")),
        ("UTF-8 declared as UTF-16", feed("utf-16").into_bytes(), None),
        ("UTF-16, declared as UTF-8", utf16(u16::to_le_bytes), None),
        ("UTF-16, the other way round", utf16(u16::to_be_bytes), Some("text/xml; charset=utf-8")),
        ("UTF-32", utf32(u32::to_be_bytes), None),
        ("UTF-32, the other way round", utf32(u32::to_le_bytes), None),
        (
            "Windows' own page, by the server's word alone",
            in_code_page("utf-8", 0x8E, 0x9D),
            Some("text/xml; charset=windows-1250"),
        ),
        ("Windows' own page under an old name", in_code_page("ms-ee", 0x8E, 0x9D), None),
        ("a page of DOS", in_code_page("cp852", 0xA6, 0x9C), None),
        ("a page of the Macintosh", in_code_page("maclatin2", 0xEB, 0xE9), None),
    ];
    for (reason, bytes, content_type) in table {
        let feed = read(reason, &bytes, content_type);
        assert_eq!((feed.title.as_deref(), feed.repaired), (Some("Žluť"), false), "{reason}");
    }
}

#[test]
fn markup_that_was_not_escaped_and_is_never_closed_costs_no_feed() {
    let lines = "line<br>".repeat(400);
    for element in ["description", "content", "itunes:summary", "media:description"] {
        for title in ["a", "a & b"] {
            let item = format!("<item><title>{title}</title><{element}>{lines}</{element}></item>");
            let feed = read(element, format!("<rss><channel><title>t</title>{item}</channel></rss>").as_bytes(), None);
            assert_eq!(titles(&feed), format!("t|{title}"), "{element}");
        }
    }
    let quotes = format!("{}x{}", "<blockquote>".repeat(140), "</blockquote>".repeat(140));
    let feed = format!(
        "<feed xmlns='http://www.w3.org/2005/Atom'><title>t</title><entry><title>a</title><content type='xhtml'>{quotes}</content></entry></feed>"
    );
    assert_eq!(titles(&read("deep XHTML", feed.as_bytes(), None)), "t|a");
}

#[test]
fn utf8_is_utf8_whatever_a_label_says() {
    for label in ["gb2312", "gbk", "shift_jis", "euc-kr", "big5"] {
        for title in
            ["China\u{2019}s economy", "\u{65e5}\u{672c}\u{8a9e}\u{30cb}\u{30e5}\u{30fc}\u{30b9}", "\u{4e2d}\u{6587}"]
        {
            let feed =
                format!("<?xml version='1.0' encoding='{label}'?><rss><channel><title>{title}</title></channel></rss>");
            assert_eq!(titles(&read(label, feed.as_bytes(), None)), title, "{label}");
        }
    }
}
