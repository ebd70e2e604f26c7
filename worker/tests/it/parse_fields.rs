//! What entries keep beside their texts, read from documents that we wrote as examples of today's publishers.

use common::entry::{Entry, EntryDetails, Number};
use common::url::FeedUrl;
use serde_json::{Value, json};
use worker::parse::{ParseLimits, entry_json, parse};

fn read(document: &str) -> Vec<Entry> {
    parse(document.as_bytes(), None, "https://feed.example/feed", &ParseLimits::default()).unwrap().entries
}

fn rss(inside: &str) -> String {
    const NAMESPACES: &str = "xmlns:itunes='http://www.itunes.com/dtds/podcast-1.0.dtd' \
        xmlns:podcast='https://podcastindex.org/namespace/1.0' xmlns:media='http://search.yahoo.com/mrss/' \
        xmlns:slash='http://purl.org/rss/1.0/modules/slash/' xmlns:wfw='http://wellformedweb.org/CommentAPI/' \
        xmlns:dc='http://purl.org/dc/elements/1.1/' xmlns:georss='http://www.georss.org/georss' \
        xmlns:geo='http://www.w3.org/2003/01/geo/wgs84_pos#' xmlns:feedburner='http://rssnamespace.org/feedburner/ext/1.0'";
    format!(
        "<rss version='2.0' {NAMESPACES}><channel><title>t</title><item><guid>1</guid>{inside}</item></channel></rss>"
    )
}

fn atom(inside: &str) -> String {
    const NAMESPACES: &str = "xmlns='http://www.w3.org/2005/Atom' xmlns:thr='http://purl.org/syndication/thread/1.0' \
        xmlns:media='http://search.yahoo.com/mrss/' xmlns:yt='http://www.youtube.com/xml/schemas/2015'";
    format!("<feed {NAMESPACES}><title>t</title><entry><id>1</id>{inside}</entry></feed>")
}

/// Returns the first entry's fields of these names.
fn fields<const N: usize>(document: &str, names: [&str; N]) -> [Value; N] {
    let entry = entry_json(&read(document)[0]);
    names.map(|name| entry[name].clone())
}

#[test]
fn an_episode_keeps_what_apple_and_podcasting_2_0_say() {
    let document = rss("<itunes:image href='/cover.jpg'/><itunes:duration>1:02:03</itunes:duration>\
        <itunes:episode>7</itunes:episode><itunes:season>2</itunes:season><itunes:episodeType>Full</itunes:episodeType>\
        <itunes:explicit>false</itunes:explicit><itunes:keywords>tides, fog,</itunes:keywords><itunes:subtitle>short</itunes:subtitle>\
        <enclosure url='/7.mp3' length='5' type='audio/mpeg'/>\
        <podcast:transcript url='/7.vtt' type='text/vtt' language='en' rel='captions'/><podcast:transcript url='javascript:x' type='x'/>\
        <podcast:chapters url='/7.json' type='application/json+chapters'/>\
        <podcast:person role='guest' group='cast' img='/ann.jpg' href='https://ann.example/'>Ann</podcast:person>\
        <podcast:alternateEnclosure type='audio/opus' length='3' bitrate='32000' title='Small'>\
          <podcast:source uri='/7.opus'/><podcast:source uri='ipfs://x'/></podcast:alternateEnclosure>\
        <podcast:soundbite startTime='73.5' duration='60'>Fog</podcast:soundbite>\
        <podcast:value type='lightning' method='keysend' suggested='0.00000005'>\
          <podcast:valueRecipient name='Ann' type='node' address='02d5' split='99'/><podcast:valueRecipient type='node' address='03' split='1' fee='true'/>\
        </podcast:value>\
        <podcast:license url='https://a.example/l'>cc-by-4.0</podcast:license>\
        <podcast:location geo='geo:30.2672,97.7431' osm='R113314'>Austin</podcast:location>\
        <podcast:socialInteract protocol='activitypub' uri='https://a.example/1'/>");
    let [image, podcast, categories, extensions] = fields(&document, ["image", "podcast", "categories", "extensions"]);
    assert_eq!(image, "https://feed.example/cover.jpg");
    assert_eq!(categories, json!(["tides", "fog"]));
    let expected = json!({
        "episode": 7, "season": 2, "type": "full", "explicit": false, "duration": 3723,
        "transcripts": [{"url": "https://feed.example/7.vtt", "type": "text/vtt", "language": "en", "rel": "captions"}],
        "chapters": {"url": "https://feed.example/7.json", "type": "application/json+chapters"},
        "persons": [{"name": "Ann", "role": "guest", "group": "cast", "image": "https://feed.example/ann.jpg", "url": "https://ann.example/"}],
        "alternate_enclosures": [{"type": "audio/opus", "length": 3, "bitrate": 32000, "title": "Small", "sources": ["https://feed.example/7.opus"]}],
        "soundbites": [{"start": 73.5, "duration": 60, "title": "Fog"}],
        "value": {"type": "lightning", "method": "keysend", "suggested": 5e-8, "recipients": [
            {"name": "Ann", "type": "node", "address": "02d5", "split": 99}, {"type": "node", "address": "03", "split": 1, "fee": true}]},
        "license": {"name": "cc-by-4.0", "url": "https://a.example/l"},
        "location": {"name": "Austin", "geo": "geo:30.2672,97.7431", "osm": "R113314"},
    });
    assert_eq!(podcast, expected);
    let expected = json!({
        "itunes:subtitle": ["short"],
        "podcast:socialInteract": [{"protocol": "activitypub", "uri": "https://a.example/1"}],
    });
    assert_eq!(extensions, expected);
}

#[test]
fn a_video_and_a_picture_keep_their_size_and_description() {
    let youtube = atom(
        "<yt:videoId>abc</yt:videoId><link rel='alternate' href='https://video.example/watch?v=abc'/>\
        <media:group><media:title>T</media:title>\
        <media:content url='https://video.example/v/abc' type='video/mp4' width='640' height='390' duration='61.5' medium='video'/>\
        <media:thumbnail url='https://i.example/abc.jpg' width='480' height='360'/><media:description>About</media:description>\
        <media:community><media:statistics views='7'/></media:community></media:group>",
    );
    let [image, enclosures, extensions] = fields(&youtube, ["image", "enclosures", "extensions"]);
    assert_eq!(image, "https://i.example/abc.jpg");
    let expected = json!([{"url": "https://video.example/v/abc", "media_type": "video/mp4", "type": "video/mp4", "duration": 61.5, "width": 640, "height": 390, "medium": "video"}]);
    assert_eq!(enclosures, expected);
    assert_eq!(extensions["yt:videoId"], json!(["abc"]));

    let mastodon = rss("<media:content url='https://m.example/a.png' type='image/png' fileSize='9' medium='image'>\
        <media:rating scheme='urn:simple'>nonadult</media:rating><media:description type='plain'>A &amp; B</media:description>\
        <media:thumbnail url='https://m.example/t.png'/></media:content><category>fog</category>");
    let [image, enclosures] = fields(&mastodon, ["image", "enclosures"]);
    assert_eq!(image, "https://m.example/t.png");
    let expected = json!([{"url": "https://m.example/a.png", "media_type": "image/png", "type": "image/png", "length": 9, "medium": "image",
        "alt": "A & B", "thumbnails": ["https://m.example/t.png"]}]);
    assert_eq!(enclosures, expected);
}

#[test]
fn comments_sources_places_and_rights_are_kept() {
    let wordpress = rss(
        "<comments>/p#comments</comments><slash:comments>12</slash:comments><wfw:commentRss>/p/feed</wfw:commentRss>\
        <dc:rights>CC BY</dc:rights><georss:point>45.256 -71.92</georss:point><source url='https://o.example/rss'>Other</source>",
    );
    let names = ["comments_url", "comments_count", "rights", "geo", "source", "extensions"];
    let [url, count, rights, geo, source, extensions] = fields(&wordpress, names);
    assert_eq!((url, count), (json!("https://feed.example/p#comments"), json!(12)));
    assert_eq!((rights, geo), (json!("CC BY"), json!({"lat": 45.256, "lon": -71.92})));
    assert_eq!(source, json!({"title": "Other", "url": "https://o.example/rss"}));
    assert_eq!(extensions, json!({"wfw:commentRss": ["/p/feed"]}));

    let planet = atom(
        "<link href='https://a.example/p'/><link rel='via' href='https://v.example/'/><link rel='related' href='/r'/>\
        <link rel='replies' type='text/html' href='/replies' thr:count='3'/><thr:in-reply-to ref='tag:1' href='https://q.example/1'/>\
        <author><name>Ann</name><uri>https://ann.example/</uri><email>ann@a.example</email></author><author><name>Ben</name></author>\
        <source><id>urn:o</id><title>Other</title><link rel='self' href='https://o.example/atom'/><link href='https://o.example/'/></source>\
        <rights type='html'>&amp;copy; Ann</rights><content type='html'>x</content>",
    );
    let names =
        ["related", "comments_url", "comments_count", "in_reply_to", "authors", "source", "rights", "content_type"];
    let [related, url, count, reply, authors, source, rights, content_type] = fields(&planet, names);
    assert_eq!(related, json!(["https://v.example/", "https://feed.example/r"]));
    assert_eq!((url, count, reply), (json!("https://feed.example/replies"), json!(3), json!(["tag:1"])));
    assert_eq!(
        authors,
        json!([{"name": "Ann", "url": "https://ann.example/", "email": "ann@a.example"}, {"name": "Ben"}])
    );
    assert_eq!(source, json!({"title": "Other", "url": "https://o.example/", "id": "urn:o"}));
    assert_eq!((rights, content_type), (json!("© Ann"), json!("html")));
}

#[test]
fn authors_are_a_list_and_those_of_an_atom_or_json_feed_are_its_entries_too() {
    let two = atom("<author><name>Ann</name></author><author><name>Ben, MD</name></author>");
    assert_eq!(fields(&two, ["authors"]), [json!([{"name": "Ann"}, {"name": "Ben, MD"}])]);
    let inherited = "<feed xmlns='http://www.w3.org/2005/Atom'><author><name>Ann</name><uri>/ann</uri></author><entry><id>1</id></entry>\
        <entry><id>2</id><author><name>Ben</name></author></entry></feed>";
    assert_eq!(fields(inherited, ["authors"]), [json!([{"name": "Ann", "url": "https://feed.example/ann"}])]);
    assert_eq!(entry_json(&read(inherited)[1])["authors"], json!([{"name": "Ben"}]));
    let json_feed = r#"{"version":"https://jsonfeed.org/version/1.1","title":"t","authors":[{"name":"Ann","avatar":"/a.png"},{"name":"Ben"}],"items":[{"id":"1"}]}"#;
    let ann = json!({"name": "Ann", "avatar": "https://feed.example/a.png"});
    assert_eq!(fields(json_feed, ["authors"]), [json!([ann, {"name": "Ben"}])]);
}

#[test]
fn an_entry_without_authors_has_only_the_beginning_of_a_feeds_long_list() {
    let author = |n| format!("<author><name>{n}</name><uri>https://a.example/{n}/{}</uri></author>", "x".repeat(400));
    let authors: String = (10..74).map(author).collect();
    let document = format!(
        "<feed xmlns='http://www.w3.org/2005/Atom'>{authors}<entry><id>1</id></entry><entry><id>2</id>{authors}</entry></feed>"
    );
    let feed = parse(document.as_bytes(), None, "https://feed.example/feed", &ParseLimits::default()).unwrap();
    let kept = |entry: &Entry| entry.details.as_ref().map(|details| details.authors.len());
    assert_eq!([kept(&feed.entries[0]), kept(&feed.entries[1])], [Some(4), Some(64)]);
    assert_eq!(feed.onward.about.map(|about| about.authors.len()), Some(64));
}

#[test]
fn each_relation_of_a_link_counts_once_and_a_link_that_is_too_long_not_at_all() {
    let long = format!("https://a.example/{}", "x".repeat(FeedUrl::MAX_LENGTH));
    let document = atom(&format!(
        "<link rel='related http://a.example/related Related via' href='/r'/><link rel='related' href='{long}'/>\
         <link rel='a b c d e f g h related' href='/s'/><link rel='enclosure Enclosure' href='/f' length='5'/>"
    ));
    let [related, enclosures] = fields(&document, ["related", "enclosures"]);
    assert_eq!(related, json!(["https://feed.example/r", "https://feed.example/r"]));
    assert_eq!(enclosures, json!([{"url": "https://feed.example/f", "length": 5}]));
}

#[test]
fn an_element_with_several_bases_has_the_first() {
    let links = |attributes: &str| {
        let content = format!("<content type='html' {attributes}>&lt;a href='x'>y&lt;/a></content>");
        fields(&atom(&content), ["links"])
    };
    assert_eq!(links("xml:base='/a/' xml:base='b/'"), [json!(["https://feed.example/a/x"])]);
    let long = "b/".repeat(FeedUrl::MAX_LENGTH);
    assert_eq!(links(&format!("xml:base='{long}' xml:base='/&amp;/'")), [json!(["https://feed.example/&/x"])]);
}

#[test]
fn an_atom_entry_without_authors_has_those_of_its_source_before_the_feeds() {
    let entry = |inside: &str| {
        let document = format!(
            "<feed xmlns='http://www.w3.org/2005/Atom'><author><name>Planet</name></author><entry><id>1</id>{inside}</entry></feed>"
        );
        fields(&document, ["author", "authors", "source"])
    };
    let source = "<source><id>o</id><author><name>Ann</name><uri>/ann</uri></author><title>Other</title></source>";
    let kept = json!({"id": "o", "title": "Other"});
    let ann = json!([{"name": "Ann", "url": "https://feed.example/ann"}]);
    assert_eq!(entry(source), [json!("Ann"), ann, kept.clone()]);
    let own = "<author><name>Ben</name></author>";
    for inside in [format!("{own}{source}"), format!("{source}{own}")] {
        assert_eq!(entry(&inside), [json!("Ben"), json!([{"name": "Ben"}]), kept.clone()], "{inside}");
    }
    let [author, ..] = entry("<source><id>o</id><title>Other</title></source>");
    assert_eq!(author, "Planet");
}

#[test]
fn the_last_of_several_values_of_one_name_counts_in_a_json_feed() {
    let lists = r#"{"version":"https://jsonfeed.org/version/1.1","title":"t","items":[{"id":"1","tags":[],"tags":["a"]},{"id":"2"}]}"#;
    assert_eq!((read(lists).len(), fields(lists, ["categories"])), (2, [json!(["a"])]));
    let everywhere = r#"{"version":"https://jsonfeed.org/version/1.1","title":"no","title":"t","items":[{"id":"no"}],"_x":1,"_x":2,
        "hubs":[{"type":"rssCloud","type":"WebSub","url":"https://no.example/","url":"https://hub.example/"}],
        "items":[{"id":"no","id":"1","author":{"name":"no","name":"Ann"},
        "attachments":[{"url":"/no.mp3","url":"/a.mp3","mime_type":"no","mime_type":"audio/mpeg"}]}]}"#;
    let feed = parse(everywhere.as_bytes(), None, "https://feed.example/feed", &ParseLimits::default()).unwrap();
    let [entry] = &feed.entries[..] else { panic!("{feed:?}") };
    assert_eq!((feed.title.as_deref(), feed.hub.as_deref()), (Some("t"), Some("https://hub.example/")));
    assert_eq!((entry.id.as_str(), entry.author.as_deref()), ("1", Some("Ann")));
    let file = &entry.enclosures[0];
    assert_eq!((file.url.as_str(), file.media_type.as_deref()), ("https://feed.example/a.mp3", Some("audio/mpeg")));
}

#[test]
fn attributes_without_a_field_of_their_own_are_kept() {
    let document = rss("<podcast:season name='Crossings'>2</podcast:season><podcast:episode>3</podcast:episode>\
        <podcast:value type='lightning' method='keysend'><podcast:valueRecipient type='node' address='a' customKey='7' split='1'/>\
        <podcast:valueRecipient type='node' address='b' split='1'/><podcast:valueTimeSplit startTime='60'/></podcast:value>");
    let [extensions, podcast] = fields(&document, ["extensions", "podcast"]);
    let expected = json!({
        "podcast:season": [{"name": "Crossings"}],
        "podcast:valueRecipient": [{"type": "node", "address": "a", "customKey": "7", "split": "1"}],
        "podcast:valueTimeSplit": [{"startTime": "60"}],
    });
    assert_eq!(extensions, expected);
    assert_eq!((&podcast["season"], podcast["value"]["recipients"].as_array().map(Vec::len)), (&json!(2), Some(2)));
}

#[test]
fn a_json_feed_keeps_pictures_authors_and_durations() {
    let document = r#"{"version":"https://jsonfeed.org/version/1.1","title":"t","items":[{"id":"1","url":"/1","external_url":"https://e.example/?utm_source=x",
        "image":"/i.png","authors":[{"name":"Ann","url":"/ann","avatar":"/ann.png"}],
        "attachments":[{"url":"/a.mp3","mime_type":"audio/mpeg","duration_in_seconds":61.5}]}]}"#;
    let [image, external, authors, enclosures] = fields(document, ["image", "external_url", "authors", "enclosures"]);
    assert_eq!(image, "https://feed.example/i.png");
    assert_eq!(external, "https://e.example/?utm_source=x");
    assert_eq!(
        authors,
        json!([{"name": "Ann", "url": "https://feed.example/ann", "avatar": "https://feed.example/ann.png"}])
    );
    assert_eq!(enclosures[0]["duration"], 61.5);
}

#[test]
fn a_json_feed_keeps_a_limited_number_of_attachments_and_the_entry_is_marked_as_cut() {
    let kept = |count: usize| {
        let attachments: Vec<Value> = (0..count).map(|n| json!({"url": format!("/{n}")})).collect();
        let item = json!({"id": "1", "attachments": attachments});
        let document = json!({"version": "https://jsonfeed.org/version/1.1", "title": "t", "items": [item]});
        let entry = &read(&document.to_string())[0];
        (entry.enclosures.len(), entry.cut)
    };
    assert_eq!([kept(64), kept(65), kept(1_000)], [(64, false), (64, true), (64, true)]);
}

#[test]
fn links_of_content_are_resolved_against_the_base_in_force() {
    let [links, base] = fields(
        &atom(
            "<link href='https://a.example/p'/><content type='html' xml:base='https://b.example/'>&lt;a href='x'>y&lt;/a></content>",
        ),
        ["links", "base_url"],
    );
    assert_eq!((links, base), (json!(["https://b.example/x"]), json!("https://b.example/")));
    let xhtml =
        "<content type='xhtml' xml:base='https://b.example/'><div xml:base='c/'><a href='x'>y</a></div></content>";
    let [content, links, base] = fields(&atom(xhtml), ["content", "links", "base_url"]);
    assert_eq!((content, links), (json!("<a href='x'>y</a>"), json!(["https://b.example/c/x"])));
    assert_eq!(base, "https://b.example/c/");
    let two = "<content type='xhtml' xml:base='https://b.example/'><div xml:base='c/'><a href='x'>y</a></div><p><a href='z'>y</a></p></content>";
    let [links, base] = fields(&atom(two), ["links", "base_url"]);
    assert!(links.as_array().is_some_and(|links| links.contains(&json!("https://b.example/z"))), "{links}");
    assert_eq!(base, "https://b.example/", "the `div` stays");
    let [links, base] = fields(
        &rss("<link>https://a.example/p/</link><description>&lt;a href='x'>y&lt;/a></description>"),
        ["links", "base_url"],
    );
    assert_eq!((links, base), (json!(["https://a.example/p/x"]), Value::Null));
}

#[test]
fn the_original_link_goes_before_feedburners() {
    let document = rss(
        "<link>http://feedproxy.google.com/~r/x</link><feedburner:origLink>https://fb.example/x?utm_medium=feed</feedburner:origLink>",
    );
    let [url, canonical] = fields(&document, ["url", "canonical_url"]);
    assert_eq!((url, canonical), (json!("https://fb.example/x?utm_medium=feed"), json!("https://fb.example/x")));
}

#[test]
fn dates_before_1970_nested_categories_and_text_that_claims_to_be_base64_are_read() {
    let [published, categories] = fields(
        &rss(
            "<pubDate>Mon, 20 Jul 1925 20:17:00 GMT</pubDate><category><itunes:category text='Arts'/></category><category>b <x>c</x></category>",
        ),
        ["published", "categories"],
    );
    assert_eq!((published, categories), (json!("1925-07-20T20:17:00.000Z"), json!(["b"])));
    let [content] = fields(&atom("<content type='application/html'>PGI+eDwvYj4=</content>"), ["content"]);
    assert_eq!(content, "<b>x</b>");
}

#[test]
fn an_entry_without_them_has_no_details() {
    let entries =
        read(&rss("<title>a</title><link>https://a.example/</link><description>x</description><author>Ann</author>"));
    assert_eq!(entries[0].details, None);
}

#[test]
fn what_an_entry_keeps_is_bounded() {
    let many = |element: &dyn Fn(usize) -> String| (0..5_000).map(element).collect::<String>();
    let document = rss(&[
        many(&|n| format!("<x:a{n} b='{n}'>{}</x:a{n}>", "y".repeat(500))),
        many(&|n| format!("<podcast:transcript url='/{n}'/><podcast:person>{n}</podcast:person><podcast:soundbite startTime='1' duration='2'/>")),
        many(&|n| format!("<podcast:alternateEnclosure><podcast:source uri='/{n}'/></podcast:alternateEnclosure>")),
        many(&|n| format!("<itunes:keywords>{n},{n}x</itunes:keywords>")),
    ]
    .concat());
    let entry = &read(&document)[0];
    let details = serde_json::to_string(entry.details.as_ref().unwrap()).unwrap();
    assert!(details.len() < 32 * 1024, "{}", details.len());
    assert!(entry.categories.len() <= 64);
}

#[test]
fn nothing_that_databases_refuse_is_in_details() {
    let bad = "a\u{0}b&#0;&#1;c";
    let document = rss(&format!(
        "<itunes:image href='/{bad}'/><podcast:person role='{bad}'>{bad}</podcast:person><dc:rights>{bad}</dc:rights>\
         <podcast:soundbite startTime='1' duration='2'>{bad}</podcast:soundbite><podcast:license>{bad}</podcast:license>\
         <podcast:location geo='{bad}'>{bad}</podcast:location><podcast:value type='{bad}' method='{bad}'>\
         <podcast:valueRecipient name='{bad}' type='{bad}' address='{bad}' split='1'/></podcast:value>\
         <podcast:transcript url='/x' type='{bad}' language='{bad}' rel='{bad}'/><itunes:episodeType>{bad}</itunes:episodeType>\
         <podcast:alternateEnclosure type='{bad}' title='{bad}' lang='{bad}'/><source url='/x'>{bad}</source>\
         <media:content url='/y' medium='{bad}'/><x:y z='{bad}'>{bad}</x:y>"
    ));
    for entry in read(&document) {
        let json = serde_json::to_string(&entry).unwrap();
        assert!(!json.contains("\\u0000") && !json.contains("\\u0001"), "{json}");
    }
}

#[test]
fn durations_are_seconds_however_they_are_written() {
    let table = [("3723", 3723.0), ("62:03", 3723.0), ("1:02:03", 3723.0), ("01:02:03.5", 3723.5), (" 61 ", 61.0)];
    for (written, seconds) in table {
        let entries = read(&rss(&format!("<itunes:duration>{written}</itunes:duration>")));
        let podcast = entries[0].details.as_deref().and_then(|details: &EntryDetails| details.podcast.clone());
        assert_eq!(podcast.and_then(|podcast| podcast.duration).map(Number::get), Some(seconds), "{written}");
    }
    for nonsense in ["0", "-5", "1:2:3:4", "an hour", "", "NaN", "inf"] {
        let entries = read(&rss(&format!("<itunes:duration>{nonsense}</itunes:duration>")));
        assert_eq!(entries[0].details, None, "{nonsense}");
    }
}

#[test]
fn a_feed_keeps_what_it_says_about_itself() {
    let about = |document: &str| {
        let feed = parse(document.as_bytes(), None, "https://feed.example/feed", &ParseLimits::default()).unwrap();
        worker::parse::to_json(&feed)
    };
    let podcast = about(
        "<rss version='2.0' xmlns:itunes='http://www.itunes.com/dtds/podcast-1.0.dtd' xmlns:podcast='https://podcastindex.org/namespace/1.0'>\
         <channel><title>t</title><description>About &lt;b>fog&lt;/b></description><language>EN-gb</language>\
         <image><url>/rss.png</url><title>no</title><link>no</link></image><itunes:image href='/itunes.jpg'/><generator>Gen</generator>\
         <copyright>© Ann</copyright><itunes:author>Ann</itunes:author><managingEditor>ben@a.example (Ben)</managingEditor>\
         <itunes:category text='Arts'><itunes:category text='Books'/></itunes:category><category>fog</category>\
         <podcast:guid>g-1</podcast:guid><podcast:locked>yes</podcast:locked><podcast:medium>Music</podcast:medium>\
         <podcast:funding url='/give'>Give</podcast:funding><podcast:updateFrequency rrule='x'>weekly</podcast:updateFrequency>\
         <item><guid>1</guid><title>a</title></item></channel></rss>",
    );
    assert_eq!(podcast["title"], "t");
    assert_eq!((&podcast["description"], &podcast["language"]), (&json!("About fog"), &json!("en-gb")));
    assert_eq!((&podcast["image"], &podcast["generator"]), (&json!("https://feed.example/rss.png"), &json!("Gen")));
    assert_eq!(podcast["copyright"], "© Ann");
    assert_eq!(podcast["authors"], json!([{"name": "Ann"}, {"name": "Ben", "email": "ben@a.example"}]));
    assert_eq!(podcast["categories"], json!(["Arts", "Books", "fog"]));
    let expected = json!({"guid": "g-1", "locked": true, "medium": "music", "update_frequency": "weekly",
        "funding": [{"url": "https://feed.example/give", "title": "Give"}]});
    assert_eq!(podcast["podcast"], expected);
    assert_eq!(podcast["entries"][0].get("author"), None, "a channel's people are not its items' authors");

    let atom = about(
        "<feed xmlns='http://www.w3.org/2005/Atom'><title>t</title><subtitle type='html'>a &amp;amp; b</subtitle>\
        <logo>/logo.png</logo><icon>/icon.png</icon><category term='fog'/><rights>CC</rights><author><name>Ann</name></author><entry><id>1</id></entry></feed>",
    );
    assert_eq!((&atom["description"], &atom["copyright"]), (&json!("a & b"), &json!("CC")));
    assert_eq!(
        (&atom["image"], &atom["icon"]),
        (&json!("https://feed.example/logo.png"), &json!("https://feed.example/icon.png"))
    );
    assert_eq!((&atom["categories"], &atom["entries"][0]["author"]), (&json!(["fog"]), &json!("Ann")));
    let json_feed = about(
        r#"{"version":"https://jsonfeed.org/version/1.1","title":"t","description":"d","icon":"/i","favicon":"/f","items":[]}"#,
    );
    assert_eq!(
        (&json_feed["description"], &json_feed["image"], &json_feed["icon"]),
        (&json!("d"), &json!("https://feed.example/i"), &json!("https://feed.example/f"))
    );
}

#[test]
fn addresses_of_an_entry_are_resolved_whatever_comes_first_in_it() {
    let author = "<author><name>ann</name><uri>me</uri></author>";
    let links = "<link rel='related' href='rel'/><link href='https://o.example/p'/>";
    for inside in [format!("{author}{links}"), format!("{links}{author}")] {
        let document = atom(&inside).replace("<feed ", "<feed xml:base='https://blog.example/dir/' ");
        let entry = &read(&document)[0];
        let details = entry.details.as_deref().unwrap();
        assert_eq!(details.authors[0].url.as_deref(), Some("https://blog.example/dir/me"), "{inside}");
        assert!(json!(details).to_string().contains("https://blog.example/dir/rel"), "{details:?}");
    }
}

#[test]
fn links_of_a_summary_and_with_colons_are_resolved_like_those_of_content() {
    let summary = "<link href='https://o.example/p'/><summary type='html'>&lt;a href='q'>q&lt;/a></summary>";
    let based = |base: &str| atom(summary).replace("<feed ", &format!("<feed xml:base='{base}' "));
    assert_eq!(
        fields(&based("https://blog.example/dir/"), ["links", "base_url"]),
        [json!(["https://blog.example/dir/q"]), json!("https://blog.example/dir/")]
    );
    assert_eq!(
        fields(&based("javascript:alert(1)"), ["links", "base_url"]),
        [json!(["https://o.example/q"]), Value::Null]
    );
    let wiki = "<link>https://wiki.example/a</link><description>&lt;a href='/wiki/Talk:X'>a&lt;/a> &lt;a href='?t=1:2'></description>";
    assert_eq!(
        fields(&rss(wiki), ["links"]),
        [json!(["https://wiki.example/wiki/Talk:X", "https://wiki.example/a?t=1:2"])]
    );
}

#[test]
fn one_date_shows_the_order_of_all_dates_of_a_document() {
    let item = |date: &str| format!("<item><guid>{date}</guid><pubDate>{date}</pubDate></item>");
    let dates = |dates: &[&str]| -> Vec<Value> {
        let items: String = dates.iter().map(|date| item(date)).collect();
        let entries = read(&format!("<rss><channel><title>t</title>{items}</channel></rss>"));
        entries.iter().map(|entry| entry_json(entry)["published"].clone()).collect()
    };
    assert_eq!(dates(&["05/06/2021", "13/05/2021"]), ["2021-06-05T00:00:00.000Z", "2021-05-13T00:00:00.000Z"]);
    assert_eq!(dates(&["05/06/2021", "05/13/2021"]), ["2021-05-06T00:00:00.000Z", "2021-05-13T00:00:00.000Z"]);
}
