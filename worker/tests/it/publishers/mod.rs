//! Feeds as today's publishers write them, each read in full.
//!
//! We wrote NAME.xml after the publisher's documentation. NAME.json is what `feedfleet parse --json` prints of it with
//! `--base https://NAME.example/feed`, and was read through by a person: every field that the document has is there, or
//! it is one that is not read. A change of the reader shows as a difference, which is either a fault or a better
//! NAME.json.

use std::path::{Path, PathBuf};

use serde_json::Value;
use worker::parse::{ParseLimits, parse, to_json};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/publishers")
}

fn is_read(name: &str) {
    let document = std::fs::read(folder().join(name).with_extension("xml")).unwrap();
    let base = format!("https://{name}.example/feed");
    let read = to_json(&parse(&document, None, &base, &ParseLimits::default()).unwrap());
    let expected = std::fs::read(folder().join(name).with_extension("json")).unwrap();
    let expected: Value = serde_json::from_slice(&expected).unwrap();
    let lines = |value: &Value| serde_json::to_string_pretty(value).unwrap();
    let (read, expected) = (lines(&read), lines(&expected));
    for (read, expected) in read.lines().zip(expected.lines()) {
        assert_eq!(read, expected, "{name}");
    }
    assert_eq!(read, expected, "{name}");
}

macro_rules! publishers {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() {
            is_read($name);
        })*

        #[test]
        fn each_document_has_its_test() {
            let documents = std::fs::read_dir(folder()).unwrap().map(|file| file.unwrap().path());
            let documents = documents.filter(|path| path.extension().is_some_and(|extension| extension == "xml"));
            let mut names: Vec<String> = documents.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
            names.sort();
            let mut tested = [$($name),*];
            tested.sort_unstable();
            assert_eq!(names, tested);
        }
    };
}

publishers! {
    a_podcast_with_every_tag_of_podcasting_2_0: "podcast",
    a_channel_of_youtube: "youtube",
    an_account_at_mastodon: "mastodon",
    a_weblog_of_wordpress: "wordpress",
    a_subreddit: "reddit",
    a_newsletter_of_substack: "substack",
    releases_at_github: "github",
    new_papers_at_arxiv: "arxiv",
    a_search_at_arxiv: "arxiv-query",
    a_channel_of_peertube: "peertube",
}
