//! libFuzzer's way to the reader of OPML.
#![no_main]

#[path = "../../../scheduler/web/src/opml.rs"]
#[expect(dead_code, reason = "only the reader is called")]
mod opml;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let document = String::from_utf8_lossy(bytes);
    if let Ok(found) = opml::read(&document) {
        // `<outline xmlUrl=''>` is the shortest.
        assert!(found.len() * 19 <= document.len(), "{} feeds in {} bytes", found.len(), document.len());
        let lines = document.bytes().filter(|byte| *byte == b'\n').count() + 1;
        for feed in &found {
            assert!((1..=lines).contains(&feed.line) && feed.url.len() <= document.len());
            assert!(feed.to_json().is_object());
        }
    }
    assert!(opml::read_at_most(&document, 2).map_or(0, |found| found.len()) <= 2);
});
