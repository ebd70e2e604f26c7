//! RSS-in-JSON: whatever RSS says as XML it says as JSON too.

use serde_json::{Value, json};

use super::*;

const JSON: &str = "application/json";

/// One feed in both forms; `xmlns` is the namespace of `itunes`, which JSON need not declare.
const AS_XML: &str = r##"<rss version="2.0" xmlns:itunes="http://www.itunes.com/dtds/podcast-1.0.dtd"><channel>
  <title>Harbour</title><link>https://harbour.example/</link><description>Ships &amp; fog</description><language>en</language>
  <managingEditor>ann@harbour.example (Ann)</managingEditor><category>sea</category><ttl>90</ttl><generator>Quay 1</generator>
  <image><url>https://harbour.example/i.png</url><title>x</title><link>https://x.example/</link></image>
  <skipHours><hour>1</hour><hour>2</hour></skipHours>
  <cloud domain="rpc.example" port="80" path="/RPC2" registerProcedure="" protocol="http-post"/>
  <item><title>Fog "again"</title><link>https://harbour.example/1</link><guid isPermaLink="false">urn:1</guid>
    <description>&lt;p&gt;Fog &amp;amp; &lt;a href="/tides"&gt;tides&lt;/a&gt;&lt;/p&gt;</description>
    <pubDate>Mon, 02 Nov 2026 08:30:00 GMT</pubDate><author>ben@harbour.example (Ben)</author><comments>/1#c</comments>
    <category domain="x">fog</category><category>tides</category>
    <enclosure url="/1.mp3" length="7" type="audio/mpeg"/><source url="https://o.example/rss">Other</source>
    <itunes:duration>61</itunes:duration><itunes:image href="/1.png"/></item>
  <item><guid>https://harbour.example/2</guid><title>Low tide</title></item>
</channel></rss>"##;

fn as_json() -> Value {
    json!({"rss": {"version": "2.0", "channel": {
        "title": "Harbour", "link": "https://harbour.example/", "description": "Ships & fog", "language": "en",
        "managingEditor": "ann@harbour.example (Ann)", "category": "sea", "ttl": 90, "generator": "Quay 1",
        "image": {"url": "https://harbour.example/i.png", "title": "x", "link": "https://x.example/"},
        "skipHours": {"hour": [1, 2]},
        "cloud": {"domain": "rpc.example", "port": 80, "path": "/RPC2", "registerProcedure": "", "protocol": "http-post"},
        "item": [
            {"title": "Fog \"again\"", "link": "https://harbour.example/1", "guid": {"isPermaLink": false, "#value": "urn:1"},
             "description": "<p>Fog &amp; <a href=\"/tides\">tides</a></p>", "pubDate": "Mon, 02 Nov 2026 08:30:00 GMT",
             "author": "ben@harbour.example (Ben)", "comments": "/1#c",
             "category": [{"domain": "x", "#value": "fog"}, "tides"],
             "enclosure": {"url": "/1.mp3", "length": 7, "type": "audio/mpeg"},
             "source": {"url": "https://o.example/rss", "#value": "Other"},
             "itunes:duration": 61, "itunes:image": {"href": "/1.png"}},
            {"guid": "https://harbour.example/2", "title": "Low tide"},
        ],
    }}})
}

#[test]
fn it_reads_as_the_same_feed_in_xml() {
    let xml = read(AS_XML.as_bytes(), "application/rss+xml");
    assert_eq!((xml.entries.len(), xml.title.as_deref()), (2, Some("Harbour")));
    assert_eq!(read(as_json().to_string().as_bytes(), JSON), xml);
}

#[test]
fn attributes_and_texts_are_known_in_the_forms_of_converters() {
    let guids = [
        json!({"@isPermaLink": "false", "#text": "urn:1"}),
        json!({"-isPermaLink": "false", "#text": "urn:1"}),
        json!({"$": {"isPermaLink": "false"}, "_": "urn:1"}),
        json!({"@attributes": {"isPermaLink": "false"}, "$t": "urn:1"}),
    ];
    let expected = read(as_json().to_string().as_bytes(), JSON);
    for guid in guids {
        let mut document = as_json();
        document["rss"]["channel"]["item"][0]["guid"] = guid;
        assert_eq!(read(document.to_string().as_bytes(), JSON), expected, "{document}");
    }
    let mut listed = as_json();
    listed["rss"]["channel"] = json!([listed["rss"]["channel"]]);
    listed["rss"]["channel"][0]["title"] = json!(["Harbour"]);
    assert_eq!(read(listed.to_string().as_bytes(), JSON), expected, "each element in a list");
}

#[test]
fn json_that_only_looks_like_it_is_no_feed() {
    for document in [r#"{"rss": 1}"#, r#"{"rss": {"channel": []}}"#, r#"{"rss": {"channel": "x"}}"#, r#"{"x": "rss"}"#]
    {
        assert!(no_feed(document.as_bytes()).starts_with("not a feed"), "{document}");
    }
}

#[test]
fn what_it_becomes_is_bounded() {
    let nested = |times: usize| format!("{}1{}", "{\"media:group\":".repeat(times), "}".repeat(times));
    let item =
        format!(r#"{{"rss":{{"channel":{{"title":"t","item":[{{"title":"a","media:group":{}}}]}}}}}}"#, nested(100));
    assert_eq!(read(item.as_bytes(), JSON).entries.len(), 1);
    let growing = format!(
        r#"{{"rss":{{"channel":{{"title":"t","item":[{{"{}":[{}1]}}]}}}}}}"#,
        "x".repeat(64),
        "1,".repeat(400_000)
    );
    assert!(no_feed(growing.as_bytes()).starts_with("not a feed"));
    let markup = json!({"rss": {"channel": {"title": "\u{0}a<b", "item": [{"title": "]]>", "a b": "no", "<x": 1, "description": "</item>\"&"}]}}});
    let feed = read(markup.to_string().as_bytes(), JSON);
    assert_eq!((feed.entries.len(), feed.entries[0].title.as_deref()), (1, Some("]]>")));
    assert_eq!(feed.entries[0].content.as_deref().or(feed.entries[0].summary.as_deref()), Some("</item>\"&"));
}

fn no_feed(document: &[u8]) -> String {
    try_read(document, JSON).expect_err("no feed").to_string()
}
