//! Sound feeds are read by feed-rs as well, which knows nothing of our reader: both must find the same entries.

use worker::parse::{ParseLimits, parse};

const BASE: &str = "https://harbour.example/feed.xml";

/// Title, link and id of each entry.
type Story = Vec<(Option<String>, Option<String>, String)>;

fn ours(feed: &[u8]) -> Story {
    let feed = parse(feed, None, BASE, &ParseLimits::default()).expect("a feed to us");
    assert!(!feed.repaired, "a sound feed");
    feed.entries.into_iter().map(|entry| (entry.title, entry.url, entry.id)).collect()
}

fn theirs(feed: &[u8]) -> Story {
    let parser = feed_rs::parser::Builder::new().base_uri(Some(BASE)).sanitize_content(false).build();
    let feed = parser.parse(feed).expect("a feed to feed-rs");
    let page = |links: Vec<feed_rs::model::Link>| {
        let mut links = links.into_iter();
        links.find(|link| link.rel.as_deref().is_none_or(|rel| rel == "alternate")).map(|link| link.href)
    };
    let story =
        feed.entries.into_iter().map(|entry| (entry.title.map(|title| title.content), page(entry.links), entry.id));
    story.collect()
}

fn rss(number: usize) -> String {
    let item = |n: usize| {
        format!(
            "<item><title>Title {n} &amp; more</title><link>https://harbour.example/{n}?a=1&amp;b=2</link><guid isPermaLink='false'>id-{n}</guid>\
             <description><![CDATA[<p>Text {n}</p>]]></description><pubDate>Mon, 02 Nov 2026 08:30:00 GMT</pubDate></item>"
        )
    };
    let items: String = (0..number).map(item).collect();
    format!(
        "<?xml version='1.0'?><rss version='2.0'><channel><title>t</title><link>https://harbour.example/</link>{items}</channel></rss>"
    )
}

fn atom(number: usize) -> String {
    let entry = |n: usize| {
        format!(
            "<entry><id>tag:harbour.example,2026:{n}</id><title>Title {n}</title><updated>2026-11-02T08:30:00Z</updated>\
             <link rel='self' href='/self/{n}'/><link href='{n}'/><content type='html'>&lt;p&gt;{n}&lt;/p&gt;</content></entry>"
        )
    };
    let entries: String = (0..number).map(entry).collect();
    format!(
        "<feed xmlns='http://www.w3.org/2005/Atom' xml:base='https://harbour.example/base/'><id>f</id><title>t</title>{entries}</feed>"
    )
}

#[test]
fn both_find_the_same_entries_in_sound_feeds() {
    for number in [0, 1, 2, 30] {
        for feed in [rss(number), atom(number)] {
            let ours = ours(feed.as_bytes());
            assert_eq!(ours, theirs(feed.as_bytes()), "{feed}");
            assert_eq!(ours.len(), number);
        }
    }
    for name in ["rss092.xml", "rss10.rdf"] {
        let feed = std::fs::read(format!("{}/tests/feeds/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let titles_and_links =
            |story: Story| story.into_iter().map(|(title, link, _)| (title, link)).collect::<Vec<_>>();
        assert_eq!(titles_and_links(ours(&feed)), titles_and_links(theirs(&feed)), "{name}");
    }
}
