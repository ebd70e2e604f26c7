//! The same entry has the same identity at every poll, whatever its publisher does around it; a worker distinguishes
//! old, new and edited entries by identity.

use std::collections::BTreeSet;

use common::document::Document;
use common::known::KnownEntries;
use worker::parse::{ParseLimits, parse};

fn document(text: &str, base: &str, known: &KnownEntries) -> Document {
    let feed =
        parse(text.as_bytes(), None, base, &ParseLimits::default()).unwrap_or_else(|error| panic!("{error}: {text}"));
    let mut document = Document::default();
    document.keep_news(feed.entries, known);
    document
}

const BASE: &str = "https://harbour.example/feed.xml";

/// Items of every sort of identity: a guid, an id that is not an address, a link alone, title and date, text alone.
fn items() -> Vec<(String, String)> {
    (0..12)
        .map(|n| {
            let identity = match n % 5 {
                0 => format!("<guid>https://harbour.example/{n}</guid>"),
                1 => format!("<guid isPermaLink='false'>{n}</guid><link>/post/{n}</link>"),
                2 => format!("<link>https://harbour.example/post/{n}</link>"),
                3 => format!(
                    "<title>Only a title, {n}</title><pubDate>Mon, {:02} Nov 2026 08:30:00 GMT</pubDate>",
                    n + 1
                ),
                _ => String::new(),
            };
            (identity, format!("<description>Text of number {n}</description>"))
        })
        .collect()
}

fn feed(items: &[(String, String)]) -> String {
    let items: String = items.iter().map(|(identity, text)| format!("<item>{identity}{text}</item>\n")).collect();
    format!("<rss version='2.0'><channel><title>The Harbour</title><ttl>60</ttl>{items}</channel></rss>")
}

#[test]
fn the_same_feed_read_twice_brings_nothing_the_second_time() {
    let first = document(&feed(&items()), BASE, &KnownEntries::default());
    assert_eq!((first.new_entries, first.entries.len()), (12, 12));
    let second = document(&feed(&items()), BASE, &first.known);
    assert_eq!((second.new_entries, second.entries.len(), second.all_entries), (0, 0, 12));
}

#[test]
fn reordered_moved_and_disappearing_items_are_no_news() {
    let first = document(&feed(&items()), BASE, &KnownEntries::default());
    let mut reversed = items();
    reversed.reverse();
    let mut rotated = items();
    rotated.rotate_left(5);
    for (what, items) in [("reversed", reversed), ("rotated", rotated), ("fewer", items().split_off(7))] {
        let next = document(&feed(&items), BASE, &first.known);
        assert_eq!((next.new_entries, next.entries.len()), (0, 0), "{what}");
    }
    // Everything around the items may change as well.
    let restyled = feed(&items())
        .replace('\n', "\r\n   ")
        .replace("<ttl>60</ttl>", "<generator>new</generator>")
        .replace('\'', "\"");
    let next = document(&restyled, BASE, &first.known);
    assert_eq!((next.new_entries, next.entries.len()), (0, 0), "restyled");
}

#[test]
fn a_new_item_among_old_ones_is_the_only_news() {
    let first = document(&feed(&items()), BASE, &KnownEntries::default());
    let mut more = items();
    more.insert(0, ("<guid>brand-new</guid>".to_owned(), "<description>News</description>".to_owned()));
    let next = document(&feed(&more), BASE, &first.known);
    assert_eq!(next.new_entries, 1);
    assert_eq!(next.entries.iter().map(|entry| entry.id.as_str()).collect::<Vec<_>>(), ["brand-new"]);
}

#[test]
fn an_edited_text_is_an_update_and_no_new_entry() {
    let first = document(&feed(&items()), BASE, &KnownEntries::default());
    let mut edited = items();
    for (identity, text) in &mut edited {
        // What has neither id, nor link, nor title is its text.
        if !identity.is_empty() {
            *text = text.replace("Text", "Better text");
        }
    }
    let with_identity = edited.iter().filter(|(identity, _)| !identity.is_empty()).count();
    let next = document(&feed(&edited), BASE, &first.known);
    assert_eq!((next.new_entries, next.entries.len()), (0, with_identity));
    let ids = |document: &Document| document.entries.iter().map(|entry| entry.id.clone()).collect::<BTreeSet<_>>();
    assert!(ids(&next).is_subset(&ids(&first)));
    let again = document(&feed(&edited), BASE, &next.known);
    assert!(again.entries.is_empty(), "an update is told once");
}

#[test]
fn what_readers_do_not_read_is_no_update() {
    let item = |category: &str| {
        let text = "<item><guid>1</guid><title>a</title>";
        document(&format!("<rss><channel>{text}{category}</item></channel></rss>"), BASE, &KnownEntries::default())
    };
    let (one, other) =
        (item("<category>x</category><category>y</category>"), item("<category>y</category><category>x</category>"));
    assert_eq!(one.known, other.known, "the order of categories");
}

#[test]
fn ids_do_not_depend_on_where_the_feed_lies() {
    let entry =
        "<entry><id>/post/1</id><title>a</title><link href='/post/1'/></entry><entry><id>tag:x,2026:2</id></entry>";
    let text = format!("<feed xmlns='http://www.w3.org/2005/Atom'><title>t</title>{entry}</feed>");
    let ids = |base: &str| -> Vec<String> {
        document(&text, base, &KnownEntries::default()).entries.into_iter().map(|entry| entry.id).collect()
    };
    assert_eq!(ids("http://harbour.example/feed"), ids("https://www.harbour.example/new/feed.xml"));
}

#[test]
fn what_is_broken_beside_an_entry_is_no_edit_of_it() {
    const DIV: &str = "<div xmlns='http://www.w3.org/1999/xhtml'>";
    let entry = format!(
        "<entry><id>1</id><title type='xhtml'>{DIV}a &amp; <b>b</b></div></title><summary>c &amp;amp; d</summary>\
         <content type='xhtml'>{DIV}<p>1 &lt; 2</p><p/><![CDATA[<x></entry>]]><!--</entry>--></div></content></entry>"
    );
    let item = "<item><guid>1</guid><title>a<b>b</b></title><description><p>1 &lt; 2 &amp;amp; 3<br/></p><![CDATA[<i></item>]]></description>\
                <content:encoded><![CDATA[<p>&lt;</p>]]></content:encoded></item>";
    let broken = [("<title>a & b</title>", false), ("<title>no end", false), ("<p></q>", false), ("<title>cut", true)];
    let atom = ("<feed xmlns='http://www.w3.org/2005/Atom'>", entry.as_str(), "entry", "</feed>");
    for (begin, good, name, end) in [atom, ("<rss><channel>", item, "item", "</channel></rss>")] {
        let known = document(&format!("{begin}{good}{end}"), BASE, &KnownEntries::default()).known;
        for (inside, is_cut) in broken {
            let other = format!("<{name}>{inside}{}", if is_cut { String::new() } else { format!("</{name}>{end}") });
            let beside = document(&format!("{begin}{good}{other}"), BASE, &known);
            assert_eq!(
                (beside.new_entries, beside.entries.len()),
                (u32::from(!is_cut), usize::from(!is_cut)),
                "{other}"
            );
            if !is_cut {
                let before = other.strip_suffix(end).unwrap_or_default();
                let beside = document(&format!("{begin}{before}{good}{end}"), BASE, &known);
                assert_eq!((beside.new_entries, beside.entries.len()), (1, 1), "{other}");
            }
        }
    }
}
