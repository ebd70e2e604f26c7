//! Subscriptions from OPML files: the `xmlUrl` of every outline, however deep.

use anyhow::{Context, ensure};
use quick_xml::events::Event;

/// The feed URLs of an OPML document, in its order.
pub(crate) fn feed_urls(document: &[u8]) -> anyhow::Result<Vec<String>> {
    let mut reader = quick_xml::Reader::from_reader(document);
    let (mut urls, mut is_opml) = (Vec::new(), false);
    let mut buffer = Vec::new();
    loop {
        let event = reader.read_event_into(&mut buffer).context("it is not well-formed XML")?;
        if let Event::Start(element) | Event::Empty(element) = &event {
            is_opml |= element.name().as_ref().eq_ignore_ascii_case("opml");
            if element.name().as_ref().eq_ignore_ascii_case("outline") {
                for attribute in element.attributes().with_checks(false) {
                    let attribute = attribute.context("it is not well-formed XML")?;
                    if attribute.key.as_ref().eq_ignore_ascii_case("xmlUrl") {
                        let value =
                            quick_xml::escape::unescape(&attribute.value).context("an xmlUrl is not well-formed")?;
                        urls.push(value.trim().to_owned());
                    }
                }
            }
        }
        if matches!(event, Event::Eof) {
            break;
        }
        buffer.clear();
    }
    ensure!(is_opml, "it has no <opml> element");
    Ok(urls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outline_with_a_feed_is_found_however_deep() {
        let document = br#"<?xml version="1.0"?><opml version="2.0"><body>
            <outline text="folder"><outline type="rss" xmlUrl="http://a.example/?x=1&amp;y=2"/></outline>
            <outline XMLURL=" http://b.example/ "></outline><outline htmlUrl="http://c.example/"/></body></opml>"#;
        assert_eq!(feed_urls(document).unwrap(), ["http://a.example/?x=1&y=2", "http://b.example/"]);
    }

    #[test]
    fn another_document_is_refused() {
        assert!(feed_urls(b"<rss><outline xmlUrl='http://a.example/'/></rss>").is_err());
        assert!(feed_urls(b"<opml><outline").is_err());
        assert!(feed_urls(b"plain text").is_err());
    }
}
