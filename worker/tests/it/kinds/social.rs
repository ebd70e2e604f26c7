//! What social networks answer: outboxes (outbox.json: each activity that is read or passed over, an edit before its
//! original, a repetition by address alone) and author feeds (authorfeed.json: a repost, marked ranges of which two are
//! wrong, a quotation beside a picture, a card without words).

use common::entry::{Entry, Number};
use common::url::FeedUrl;
use serde_json::{Value, json};
use worker::parse::{ParseLimits, parse};

use super::{enclosures, fixture, published, read, try_read};

const ACTIVITY: &str = "application/activity+json; charset=utf-8";

#[test]
fn an_outbox_is_read_with_creations_repetitions_and_edits() {
    let feed = read(&fixture("outbox.json"), ACTIVITY);
    assert_eq!(feed.id.as_deref(), Some("https://social.example/users/ada/outbox?page=true"));
    let [repeated, edited, article] = &feed.entries[..] else { panic!("{feed:?}") };

    assert_eq!(repeated.id, "https://social.example/users/ada/statuses/3/activity");
    assert_eq!(repeated.url.as_deref(), Some("https://other.example/users/bo/statuses/77"));
    assert_eq!((published(repeated).as_str(), &repeated.author), ("2026-11-03T07:00:00.000Z", &None));

    assert_eq!(edited.id, "https://social.example/users/ada/statuses/2");
    assert_eq!(edited.url.as_deref(), Some("https://social.example/@ada/2"));
    assert_eq!(edited.content.as_deref(), Some("<p>Low tide; the wreck can be seen, twice.</p>"));
    assert_eq!((edited.title.as_deref(), edited.author.as_deref()), (None, Some("ada@social.example")));
    assert_eq!(edited.updated.unwrap().to_string(), "2026-11-02T09:00:00.000Z");

    assert_eq!(article.title.as_deref(), Some("Ferries late again"));
    assert_eq!((article.summary.as_deref(), article.content.as_deref()), (None, Some("<p>Fog <i>again</i>.</p>")));
    assert_eq!(article.url.as_deref(), Some("https://social.example/fog"));
    assert_eq!(article.author.as_deref(), Some("Ada Quay"), "a number is no name");
    assert_eq!((&*article.categories, article.language.as_deref()), (&["fog".to_owned()][..], Some("en")));
    let files =
        [("https://files.example/fog.png", Some("image/png")), ("https://files.example/fog.mp4", Some("video/mp4"))];
    assert_eq!(enclosures(article), files);
}

#[test]
fn collections_are_read_in_each_of_their_forms_and_other_documents_are_not() {
    let context = "\"@context\": \"https://www.w3.org/ns/activitystreams\"";
    let note = "{\"type\": \"Note\", \"id\": \"https://a.example/1\", \"content\": \"one\"}";
    let entries = |inside: &str| {
        try_read(format!("{{{context}, {inside}}}").as_bytes(), ACTIVITY).map(|feed| feed.entries.len()).ok()
    };
    assert_eq!(entries(&format!("\"type\": \"OrderedCollection\", \"orderedItems\": [{note}]")), Some(1));
    assert_eq!(entries(&format!("\"type\": \"Collection\", \"items\": [{note}, {note}]")), Some(1), "each once");
    let page = format!("{{\"type\": \"OrderedCollectionPage\", \"orderedItems\": [{note}]}}");
    assert_eq!(entries(&format!("\"type\": \"OrderedCollection\", \"first\": {page}")), Some(1), "its page inside");
    assert_eq!(entries("\"type\": \"OrderedCollection\", \"orderedItems\": []"), Some(0), "nothing said yet");
    assert_eq!(
        entries("\"type\": \"OrderedCollection\", \"orderedItems\": [\"https://a.example/bo\"]"),
        None,
        "followers"
    );
    assert_eq!(
        entries("\"type\": \"OrderedCollection\", \"first\": \"https://a.example/page\""),
        None,
        "goes on elsewhere"
    );
    assert_eq!(entries("\"type\": \"OrderedCollection\", \"totalItems\": 3"), None, "shows nothing");
    assert_eq!(entries("\"type\": \"Person\", \"outbox\": \"https://a.example/outbox\""), None, "an actor");
    let foreign = format!("{{\"@context\": \"https://schema.org\", \"type\": \"Collection\", \"items\": [{note}]}}");
    assert!(try_read(foreign.as_bytes(), ACTIVITY).is_err());
}

#[test]
fn an_author_feed_is_read_with_reposts_quotations_and_cards() {
    let feed = read(&fixture("authorfeed.json"), "application/json; charset=utf-8");
    assert_eq!(feed.title.as_deref(), Some("Ada Quay (@ada.example)"));
    assert_eq!(feed.link.as_deref(), Some("https://bsky.app/profile/did:plc:ada"));
    let [repost, post, card] = &feed.entries[..] else { panic!("{feed:?}") };

    assert_eq!(repost.id, "at://did:plc:ada/app.bsky.feed.repost/3krepost");
    assert_eq!(repost.url.as_deref(), Some("https://bsky.app/profile/did:plc:bo/post/3kbo"));
    assert_eq!(
        (repost.author.as_deref(), published(repost).as_str()),
        (Some("@bo.example"), "2026-11-03T07:00:00.000Z")
    );

    assert_eq!(post.id, "at://did:plc:ada/app.bsky.feed.post/3kada2");
    assert_eq!((post.title.as_deref(), post.author.as_deref()), (None, Some("Ada Quay (@ada.example)")));
    let content = "<p>Fähre &lt;late&gt; again: <a href=\"https://example.com/?a=1&amp;b=&quot;2&quot;\">example.com</a><br>by \
                   <a href=\"https://bsky.app/profile/did:plc:bo\">@bo.example</a></p>\
                   <blockquote><p><a href=\"https://bsky.app/profile/did:plc:bo/post/3kquote\">@bo.example</a></p>\
                   <p>Quoted &amp; said.</p></blockquote>\
                   <p><img src=\"https://cdn.example/f\" alt=\"&quot;fog&quot;\"></p>";
    assert_eq!(post.content.as_deref(), Some(content));
    assert_eq!(enclosures(post), [("https://cdn.example/f", Some("image/jpeg"))]);
    assert_eq!((&*post.categories, post.language.as_deref()), (&["fog".to_owned()][..], Some("en")));

    let content = "<p><a href=\"https://harbour.example/\">The Harbour</a><br>All about it</p>";
    assert_eq!(
        (card.id.as_str(), card.content.as_deref()),
        ("at://did:plc:ada/app.bsky.feed.post/3kada1", Some(content))
    );
}

#[test]
fn an_author_feed_without_posts_is_a_feed_at_its_own_url_only() {
    let entries = |document: &str, url: &str| {
        let read = parse(document.as_bytes(), Some("application/json"), url, &ParseLimits::default());
        read.map(|feed| feed.entries.len()).ok()
    };
    let own = "https://api.example/xrpc/app.bsky.feed.getAuthorFeed?actor=ada.example";
    assert_eq!(entries(r#"{"feed":[]}"#, own), Some(0));
    for document in [r#"{"feed":[{}]}"#, r#"{"feed":{}}"#, r#"{"error":"InvalidRequest"}"#, "{}"] {
        assert_eq!(entries(document, own), None, "{document}");
    }
    for other in ["https://api.example/xrpc/app.bsky.feed.getTimeline", "https://api.example/feed.json", ""] {
        assert_eq!(entries(r#"{"feed":[]}"#, other), None, "{other}");
    }
}

#[test]
fn objects_of_activities_keep_their_details() {
    let entries = read(&fixture("outbox.json"), ACTIVITY).entries;
    let [edited, article] = [&entries[1], &entries[2]].map(worker::parse::entry_json);
    let expected = json!({
        "authors": [{"name": "ada@social.example", "url": "https://social.example/users/ada"}], "comments_count": 4,
        "in_reply_to": ["https://other.example/users/bo/statuses/70"], "related": ["https://other.example/q"],
        "geo": {"lat": 53.5, "lon": -8}, "content_type": "html",
    });
    has_fields(&edited, &expected);
    let expected = json!({
        "authors": [{"name": "Ada Quay", "url": "https://social.example/@ada", "avatar": "https://files.example/l.png"}],
        "image": "https://files.example/banner.png", "rights": "CC BY 4.0", "external_url": "https://elsewhere.example/page",
        "enclosures": [
            {"url": "https://files.example/fog.png", "media_type": "image/png", "type": "image/png", "alt": "fog", "width": 640, "height": 480},
            {"url": "https://files.example/fog.mp4", "media_type": "video/mp4", "type": "video/mp4", "duration": 61, "thumbnails": ["https://files.example/banner.png"]},
        ],
    });
    has_fields(&article, &expected);
}

#[test]
fn posts_of_an_author_feed_keep_their_details() {
    let feed = read(&fixture("authorfeed.json"), "application/json");
    let [repost, post, card] = [0, 1, 2].map(|at| worker::parse::entry_json(&feed.entries[at]));
    has_fields(&repost, &json!({"authors": [{"name": "@bo.example", "url": "https://bsky.app/profile/did:plc:bo"}]}));
    let expected = json!({
        "authors": [{"name": "Ada Quay (@ada.example)", "url": "https://bsky.app/profile/did:plc:ada", "avatar": "https://cdn.example/ada.jpg"}],
        "in_reply_to": ["at://did:plc:bo/app.bsky.feed.post/3kparent"], "comments_count": 2, "content_type": "html",
        "related": ["https://bsky.app/profile/did:plc:bo/post/3kquote"], "image": "https://cdn.example/f",
        "enclosures": [{"url": "https://cdn.example/f", "media_type": "image/jpeg", "type": "image/jpeg", "alt": "\"fog\"", "width": 640, "height": 480,
            "thumbnails": ["https://cdn.example/t"]}],
    });
    has_fields(&post, &expected);
    has_fields(&card, &json!({"external_url": "https://harbour.example/"}));
    let authors = &feed.onward.about.unwrap().authors;
    assert_eq!(authors[0].url.as_deref(), Some("https://bsky.app/profile/did:plc:ada"));
}

/// Returns the only entry of an author feed, whose post has this text and these things below it.
fn post_of(text: &str, embed: &Value) -> Entry {
    let post = json!({
        "uri": "at://did:plc:ada/app.bsky.feed.post/1", "author": {"did": "did:plc:ada", "handle": "ada.example"},
        "record": {"text": text}, "embed": embed,
    });
    let mut feed = read(json!({"feed": [{"post": post}]}).to_string().as_bytes(), "application/json");
    assert_eq!(feed.entries.len(), 1);
    feed.entries.remove(0)
}

#[test]
fn a_post_keeps_a_limited_number_of_pictures_and_is_marked_as_cut() {
    let kept = |count: usize| {
        let images: Vec<Value> = (0..count).map(|n| json!({"fullsize": format!("https://a.example/{n}")})).collect();
        let entry = post_of("", &json!({"images": images}));
        (entry.enclosures.len(), entry.cut, entry.content.unwrap().matches("<img").count())
    };
    assert_eq!([kept(64), kept(65), kept(1_000)], [(64, false, 64), (64, true, 65), (64, true, 65)]);
}

#[test]
fn long_texts_of_a_post_are_cut_and_marked() {
    let max = ParseLimits::default().max_text_bytes;
    let long = "\"".repeat(max + 10);
    let card = json!({"external": {"uri": "https://a.example/", "title": long}});
    let author = json!({"did": "did:plc:bo", "handle": "bo.example"});
    let quote = json!({"record": {"uri": "at://did:plc:bo/x/1", "author": author, "value": {"text": long}}});
    let picture = json!({"images": [{"fullsize": "https://a.example/1", "alt": long}]});
    for (text, embed) in [(long.as_str(), &Value::Null), ("", &card), ("", &quote), ("a", &picture)] {
        let entry = post_of(text, embed);
        assert_eq!((entry.content.unwrap().len(), entry.cut), (max, true));
    }
    let too_long = format!("https://a.example/{}", "x".repeat(FeedUrl::MAX_LENGTH));
    let entry = post_of("short", &json!({"images": [{"fullsize": too_long}], "external": {"uri": too_long}}));
    assert_eq!((entry.content.as_deref(), entry.cut), (Some("<p>short</p>"), false));
}

fn has_fields(entry: &Value, expected: &Value) {
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&entry[name], value, "{name}");
    }
}

#[test]
fn counts_of_likes_are_no_edits() {
    let before = fixture("authorfeed.json");
    let after = String::from_utf8(before.clone()).unwrap().replace("\"likeCount\": 3", "\"likeCount\": 4");
    assert_eq!(read(&before, "").entries, read(after.as_bytes(), "").entries);
}

/// Returns the only entry of a collection of this object.
fn entry_of(object: &Value) -> Entry {
    let document =
        json!({"@context": "https://www.w3.org/ns/activitystreams", "type": "Collection", "items": [object]});
    let mut feed = read(document.to_string().as_bytes(), ACTIVITY);
    assert_eq!(feed.entries.len(), 1, "{document}");
    feed.entries.remove(0)
}

#[test]
fn an_object_keeps_a_limited_number_of_files_and_its_entry_is_marked_as_cut() {
    let kept = |count: usize| {
        let file = |n| json!({"type": "Image", "mediaType": "image/png", "url": format!("https://a.example/{n}.png")});
        let files: Vec<Value> = (0..count).map(file).collect();
        let entry = entry_of(&json!({"type": "Note", "id": "1", "attachment": files}));
        (entry.enclosures.len(), entry.cut)
    };
    assert_eq!([kept(64), kept(65), kept(1_000)], [(64, false), (64, true), (64, true)]);
}

#[test]
fn files_of_a_film_have_its_duration_and_picture_unless_they_have_their_own() {
    let film = |image: &str| {
        let film = json!({
            "type": "Video", "id": "1", "duration": "PT61S", "image": image, "icon": "https://a.example/i.png",
            "url": [
                {"mediaType": "video/mp4", "href": "https://a.example/f.mp4"},
                {"mediaType": "video/mp4", "href": "/g.mp4", "duration": "PT5S", "icon": "https://a.example/g.png"},
            ],
        });
        let files = entry_of(&film).enclosures;
        files.into_iter().map(|file| (file.duration.map(Number::get), file.thumbnails)).collect::<Vec<_>>()
    };
    let own = (Some(5.0), vec!["https://a.example/g.png".to_owned()]);
    let short = "https://a.example/p.png";
    assert_eq!(film(short), [(Some(61.0), vec![short.to_owned()]), own.clone()]);
    let too_long = format!("https://a.example/{}", "p".repeat(FeedUrl::MAX_LENGTH));
    assert_eq!(film(&too_long), [(Some(61.0), vec!["https://a.example/i.png".to_owned()]), own]);
}

#[test]
fn documents_of_millions_of_values_are_not_taken_apart() {
    let many = "1,".repeat(3_000_000);
    let outbox = format!(
        "{{\"@context\": \"https://www.w3.org/ns/activitystreams\", \"type\": \"OrderedCollection\", \"orderedItems\": [{many}{{}}]}}"
    );
    assert!(try_read(outbox.as_bytes(), ACTIVITY).is_err());
    let feed = format!("{{\"app.bsky.feed.x\": 1, \"feed\": [{many}1]}}");
    assert!(try_read(feed.as_bytes(), "application/json").is_err());
}
