//! Bodies: codings, limits, and what of them gets into a report.

use load_tests::{Coding, Delivery, Feed, Format, Script};

use super::bench::{Bench, document};

#[tokio::test]
async fn every_format_gives_its_entries_with_titles_and_links() {
    let bench = Bench::start().await;
    for (path, format) in [("/rss", Format::Rss), ("/atom", Format::Atom), ("/json", Format::Json)] {
        let mut job = bench.feed(path, Script::feed(Feed::new(format)));
        let fetched = bench.poll(&mut job).await;
        let entries = &document(&fetched).entries;
        let truth = bench.origin.truth(path);
        assert_eq!(entries.len(), truth.len());
        for item in &truth {
            let entry = entries.iter().find(|entry| entry.id == item.id).expect("every item is reported");
            assert_eq!((entry.title.as_deref(), entry.url.as_deref()), (Some(&*item.title), Some(&*item.link)));
        }
        assert_eq!(document(&fetched).title.as_deref(), Some("A scripted feed"));
    }
}

#[tokio::test]
async fn p33_every_coding_and_framing_gives_the_same_document() {
    let bench = Bench::start().await;
    let codings = [Coding::Identity, Coding::Gzip, Coding::Br, Coding::Zstd, Coding::Deflate, Coding::RawDeflate];
    let framings = [Delivery::Whole, Delivery::Chunked(7), Delivery::UntilClose];
    let mut hashes = std::collections::BTreeSet::new();
    for coding in codings {
        for framing in &framings {
            let script = Script::feed(Feed::rss().padding(500)).force(coding).deliver(framing.clone());
            let fetched = bench.fetch(&bench.feed("/feed", script)).await;
            let document = document(&fetched);
            hashes.insert(document.content_hash.unwrap().0);
            assert_eq!(document.entries.len(), 3);
            let record = bench.origin.requests("/feed").pop().unwrap();
            assert_eq!(fetched.wire_bytes, record.body_bytes, "{coding:?} {framing:?}");
            assert!(coding == Coding::Identity || fetched.body_bytes > fetched.wire_bytes);
        }
    }
    assert_eq!(hashes.len(), 1, "the hash is that of the document, however it travelled");
}
