//! Feed documents: RSS 2.0, Atom 1.0 and JSON Feed 1.1, newest item first.

use std::fmt::Write as _;

use common::time::Timestamp;

use super::feed::{Feed, Format, Item};
use super::items::http_date;

/// Renders these items. Deterministic: same items and time of change, same bytes.
pub(super) fn document(feed: &Feed, path: &str, items: &[Item], modified: Timestamp) -> String {
    let padding = "lorem ipsum ".repeat(feed.padding.div_ceil(12));
    match feed.format {
        Format::Rss => rss(feed, path, items, padding.trim_end()),
        Format::Atom => atom(feed, path, items, modified, padding.trim_end()),
        Format::Json => json(feed, path, items, padding.trim_end()),
    }
}

fn rss(feed: &Feed, path: &str, items: &[Item], padding: &str) -> String {
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<rss version=\"2.0\" xmlns:atom=\"http://www.w3.org/2005/Atom\" \
         xmlns:media=\"http://search.yahoo.com/mrss/\" xmlns:sy=\"http://purl.org/rss/1.0/modules/syndication/\">\n\
         <channel><title>{}</title><link>https://example.org{path}</link><description>Scripted</description>{}\n",
        feed.title, feed.extra
    );
    for item in items.iter().rev() {
        let _ = writeln!(
            text,
            "<item><title>{}</title><link>{}</link><guid isPermaLink=\"false\">{}</guid><pubDate>{}</pubDate>\
             <description>{padding}</description></item>",
            item.title,
            item.link,
            item.id,
            http_date(item.published)
        );
    }
    text.push_str("</channel></rss>\n");
    text
}

fn atom(feed: &Feed, path: &str, items: &[Item], modified: Timestamp, padding: &str) -> String {
    let newest = items.last().map_or(modified, |item| item.published);
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<feed xmlns=\"http://www.w3.org/2005/Atom\" \
         xmlns:atom=\"http://www.w3.org/2005/Atom\" xmlns:media=\"http://search.yahoo.com/mrss/\" \
         xmlns:sy=\"http://purl.org/rss/1.0/modules/syndication/\">\n<title>{}</title><id>urn:scripted:feed:{path}</id>\
         <link href=\"https://example.org{path}\"/><updated>{newest}</updated>{}\n",
        feed.title, feed.extra
    );
    for item in items.iter().rev() {
        let _ = writeln!(
            text,
            "<entry><title>{}</title><link href=\"{}\"/><id>{}</id><published>{at}</published><updated>{at}</updated>\
             <summary>{padding}</summary></entry>",
            item.title,
            item.link,
            item.id,
            at = item.published
        );
    }
    text.push_str("</feed>\n");
    text
}

fn json(feed: &Feed, path: &str, items: &[Item], padding: &str) -> String {
    let members: Vec<String> = items
        .iter()
        .rev()
        .map(|item| {
            format!(
                r#"{{"id":"{}","title":"{}","url":"{}","date_published":"{}","content_text":"{padding}"}}"#,
                item.id, item.title, item.link, item.published
            )
        })
        .collect();
    let extra = if feed.extra.is_empty() { String::new() } else { format!("{},", feed.extra) };
    format!(
        "{{\"version\":\"https://jsonfeed.org/version/1.1\",\"title\":\"{}\",\"home_page_url\":\"https://example.org{path}\",{extra}\
         \"items\":[\n{}\n]}}\n",
        feed.title,
        members.join(",\n")
    )
}
