//! `parse`: exit code 0 for a feed, 1 for other input, 2 for wrong usage.

use serde_json::{Value, json};

use crate::program::{run, run_with_input};

const FEED: &[u8] = b"<rss version=\"2.0\"><channel><title>Harbour \x1b[31mnews</title><link>/home</link>\
    <item><title>Crane repaired</title><link>/crane</link><guid>c1</guid>\
    <pubDate>Tue, 02 Jan 2024 10:00:00 GMT</pubDate></item></channel></rss>";

#[test]
fn a_feed_is_printed_as_one_json_document() {
    let ran = run_with_input(&["parse", "-", "--json", "--base", "https://harbour.example/feed"], FEED);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert_eq!(ran.out.lines().count(), 1);
    let feed: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        feed["entries"],
        json!([{
            "id": "c1",
            "title": "Crane repaired",
            "display_title": "Crane repaired",
            "link": "https://harbour.example/crane",
            "url": "https://harbour.example/crane",
            "published": "2024-01-02T10:00:00.000Z",
            "updated": null,
        }])
    );
}

#[test]
fn people_get_a_table_without_control_characters() {
    let ran = run_with_input(&["parse", "-"], FEED);
    assert_eq!(ran.code, Some(0));
    assert!(ran.out.contains("Crane repaired") && ran.out.contains("2024-01-02 10:00"), "{}", ran.out);
    assert!(!ran.out.contains('\u{1b}'));
}

#[test]
fn what_a_feed_says_about_its_end_and_what_had_to_be_mended_is_shown() {
    let feed = b"{\"version\":\"https://jsonfeed.org/version/1.1\",\"title\":\"T\",\"expired\":true,\"next_url\":\"/2\",\"items\":[],}";
    let base = ["--base", "https://harbour.example/feed"];
    let parsed: Value =
        serde_json::from_str(&run_with_input(&["parse", "-", "--json", base[0], base[1]], feed).out).unwrap();
    assert_eq!(parsed["onward"], json!({ "next": "https://harbour.example/2", "expired": true }));
    assert_eq!((&parsed["repaired"], &parsed["truncated"]), (&json!(true), &json!(false)));
    let shown = run_with_input(&["parse", "-", base[0], base[1]], feed).out;
    for line in ["next page", "https://harbour.example/2", "says it has ended", "repaired"] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
}

#[test]
fn what_a_feed_says_about_itself_is_shown() {
    let feed = b"<rss version='2.0' xmlns:podcast='https://podcastindex.org/namespace/1.0'><channel><title>T</title>\
        <description>Ships &amp; \x1b[31mfog</description><language>en</language><generator>Quay 1</generator><category>sea</category>\
        <podcast:locked>yes</podcast:locked><podcast:funding url='https://give.example/'>Give</podcast:funding></channel></rss>";
    let parsed: Value = serde_json::from_str(&run_with_input(&["parse", "-", "--json"], feed).out).unwrap();
    assert_eq!((&parsed["description"], &parsed["categories"]), (&json!("Ships & [31mfog"), &json!(["sea"])));
    assert_eq!(
        parsed["podcast"],
        json!({"locked": true, "funding": [{"url": "https://give.example/", "title": "Give"}]})
    );
    let shown = run_with_input(&["parse", "-"], feed).out;
    let shown: Vec<String> = shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in
        ["categories sea", "language en", "generator Quay 1", "funding Give (https://give.example/)", "locked yes"]
    {
        assert!(shown.iter().any(|shown| shown == line), "{line}: {shown:?}");
    }
}

#[test]
fn a_page_and_a_missing_file_are_no_feeds() {
    let page = run_with_input(&["parse", "-", "--json"], b"<html><body>hello</body></html>");
    assert_eq!((page.code, page.out.as_str()), (Some(1), ""));
    assert!(page.err.starts_with("error: "), "{}", page.err);
    let missing = run(&["parse", "/no/such/file"]);
    assert_eq!(missing.code, Some(1));
    assert!(missing.err.contains("cannot read /no/such/file"), "{}", missing.err);
    let endless = run(&["parse", "/dev/zero"]);
    assert_eq!(endless.code, Some(1));
    assert!(endless.err.contains("is larger than 256 MiB"), "{}", endless.err);
    assert_eq!(run(&["parse"]).code, Some(2));
}
