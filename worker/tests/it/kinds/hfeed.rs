//! h-feed: pages that are feeds by their microformats.

use common::entry::Entry;
use common::testing::processor_time;
use worker::parse::{ParseLimits, parse};

use super::{enclosures, fixture, published, read, try_read};

const HTML: &str = "text/html; charset=utf-8";

#[test]
fn a_page_of_notes_is_read_as_the_feed_that_it_is() {
    let feed = read(&fixture("pages/notes.html"), HTML);
    assert_eq!(feed.title.as_deref(), Some("Notes from the harbour"));
    assert_eq!(feed.link.as_deref(), Some("https://harbour.example/people/ada/notes"));
    assert_eq!(feed.hub.as_deref(), Some("https://hub.example/"));
    assert_eq!(feed.self_link.as_deref(), Some("https://harbour.example/people/ada/notes"));
    assert_eq!(feed.language.as_deref(), Some("en"));
    let [article, note, repost] = &feed.entries[..] else { panic!("{feed:?}") };

    assert_eq!(article.id, "https://harbour.example/people/ada/2026/ferries");
    assert_eq!(article.url.as_ref(), Some(&article.id));
    assert_eq!(article.title.as_deref(), Some("Ferries late again"));
    assert_eq!(article.summary.as_deref(), Some("Fog &lt;again&gt;."));
    assert_eq!(published(article), "2026-11-02T08:30:00.000Z");
    assert_eq!(article.updated.unwrap().to_string(), "2026-11-02T10:00:00.000Z");
    assert_eq!(article.author.as_deref(), Some("Ada Quay"), "the feed's, by its picture's description");
    let content = article.content.as_deref().unwrap();
    assert!(
        content.starts_with("<p>Fog <i>again</i>, and <a href=\"https://harbour.example/people/ada/tides\">tides</a>.")
    );
    assert!(content.contains("<script>"), "the text stays as it was written");
    let files = [
        ("https://harbour.example/people/ada/horn.mp3", Some("audio/mpeg")),
        ("https://harbour.example/fog.jpg", Some("image/jpeg")),
    ];
    assert_eq!(enclosures(article), files);
    assert_eq!(article.categories, ["fog"]);

    assert_eq!((note.title.as_deref(), note.author.as_deref()), (None, Some("A guest")));
    assert_eq!(note.content.as_deref(), Some("Low tide; the wreck can be seen."));
    assert_eq!(published(note), "2026-11-01T20:15:00.000Z");
    assert_eq!(repost.id, "https://harbour.example/people/ada/2026/repost-1");
    assert_eq!(repost.title, None, "what is repeated has its own name");
}

/// Returns the only entry of a feed with this inside of an `h-entry`.
fn entry(inside: &str) -> Entry {
    entry_at(&format!("<div class=h-entry>{inside}</div>"))
}

fn entry_at(html: &str) -> Entry {
    let page = format!("<!DOCTYPE html><div class=h-feed>{html}</div>");
    let mut feed = read(page.as_bytes(), HTML);
    assert_eq!(feed.entries.len(), 1, "{page}");
    feed.entries.remove(0)
}

#[test]
fn texts_are_read_by_the_rules_of_microformats2() {
    let table = [
        ("<p class=p-name>plain</p>", "plain"),
        ("<abbr class=p-name title='the title'>no</abbr>", "the title"),
        ("<data class=p-name value='the value'>no</data>", "the value"),
        ("<input class=p-name value='the input'>", "the input"),
        ("<img class=p-name alt='the picture' src=x>", "the picture"),
        ("<p class=p-name>a <script>no</script><style>no</style>b</p>", "a b"),
        ("<p class=p-name>a<img src=x alt=c>b</p>", "a c b"),
        ("<p class=p-name>no <b class=value>one</b> no <b class=value>two</b></p>", "onetwo"),
        ("<p class=p-name><b class=value-title title='from a title'></b>no</p>", "from a title"),
        ("<p class=p-name>first</p><p class=p-name>second</p>", "first"),
        ("<p class='p-name h-card'><b class=p-name>nested</b> no</p>", "nested"),
        ("<div><section><p class=p-name>deep</p></section></div>", "deep"),
        ("<div class=h-full><p class=p-name>below a style's name</p></div>", "below a style's name"),
    ];
    for (html, title) in table {
        assert_eq!(entry(html).title.as_deref(), Some(title), "{html}");
    }
}

#[test]
fn links_are_read_by_the_rules_of_microformats2() {
    let table = [
        ("<a class=u-url href=/a>x</a>", "https://harbour.example/a"),
        ("<link class=u-url href=?b>", "https://harbour.example/people/ada/?b"),
        ("<area class=u-url href=https://else.example/c>", "https://else.example/c"),
        ("<img class=u-url src=d.png>", "https://harbour.example/people/ada/d.png"),
        ("<object class=u-url data=/e></object>", "https://harbour.example/e"),
        ("<abbr class=u-url title=/f>no</abbr>", "https://harbour.example/f"),
        ("<data class=u-url value=/g></data>", "https://harbour.example/g"),
        ("<p class=u-url>no <b class=value>/h</b></p>", "https://harbour.example/h"),
        ("<p class=u-url> /i </p>", "https://harbour.example/i"),
        ("<div class='u-url h-cite'><a class=u-url href=/j>x</a></div>", "https://harbour.example/j"),
    ];
    for (html, url) in table {
        assert_eq!(entry(&format!("<b class=p-name>n</b>{html}")).url.as_deref(), Some(url), "{html}");
    }
}

#[test]
fn dates_are_read_by_the_rules_of_microformats2() {
    let table = [
        ("<time class=dt-published datetime='2026-11-02T08:30:00Z'>x</time>", "2026-11-02T08:30:00.000Z"),
        ("<ins class=dt-published datetime='2026-11-02 08:30+02:00'>x</ins>", "2026-11-02T06:30:00.000Z"),
        ("<time class=dt-published>2026-11-02</time>", "2026-11-02T00:00:00.000Z"),
        ("<abbr class=dt-published title=2026-11-02>x</abbr>", "2026-11-02T00:00:00.000Z"),
        (
            "<p class=dt-published><b class=value>8:30 am</b> <b class=value>2026-11-02</b></p>",
            "2026-11-02T08:30:00.000Z",
        ),
        (
            "<p class=dt-published><time class=value datetime=2026-11-02>x</time> <b class=value>20:30</b> \
             <b class=value>+01:00</b></p>",
            "2026-11-02T19:30:00.000Z",
        ),
        ("<p class=dt-published>soon</p>", ""),
    ];
    for (html, date) in table {
        assert_eq!(published(&entry(&format!("<b class=p-name>n</b>{html}"))), date, "{html}");
    }
}

#[test]
fn what_an_entry_does_not_say_is_implied() {
    let linked = entry_at("<a class=h-entry href=/a>The whole entry</a>");
    assert_eq!(
        (linked.title.as_deref(), linked.url.as_deref()),
        (Some("The whole entry"), Some("https://harbour.example/a"))
    );
    let pictured = entry_at("<div class=h-entry><a href=/b><img src=/b.png alt='A picture'></a></div>");
    assert_eq!(
        (pictured.title.as_deref(), pictured.url.as_deref()),
        (Some("A picture"), Some("https://harbour.example/b"))
    );
    assert_eq!(enclosures(&pictured), [("https://harbour.example/b.png", Some("image/png"))]);
    let two_links = entry("<a href=/a>one</a> <a href=/b>two</a>");
    assert_eq!((two_links.title.as_deref(), two_links.url), (Some("one two"), None));
    let with_content = entry("<div class=e-content>A note.</div>");
    assert_eq!(with_content.title, None, "content is not implied to be a name");
}

#[test]
fn a_name_that_repeats_the_content_is_no_title() {
    let cut = entry("<b class=p-name>The wreck can  be…</b><div class=e-content>The wreck <i>can</i> be seen.</div>");
    assert_eq!((cut.title, cut.content.as_deref()), (None, Some("The wreck <i>can</i> be seen.")));
    let other = entry("<b class=p-name>The wreck</b><div class=e-content>Can be seen.</div>");
    assert_eq!(other.title.as_deref(), Some("The wreck"));
}

#[test]
fn players_without_a_file_of_their_own_have_it_below() {
    let film = entry(
        "<b class=p-name>n</b><video class=u-video poster=p.png><source src=f.webm></video><img class=u-photo src=a.gif>",
    );
    let files = [
        ("https://harbour.example/people/ada/f.webm", Some("video/webm")),
        ("https://harbour.example/people/ada/a.gif", Some("image/gif")),
    ];
    assert_eq!(enclosures(&film), files);
}

#[test]
fn an_entry_keeps_a_limited_number_of_files_and_is_marked_as_cut() {
    let kept = |count: usize| {
        let photos: String = (0..count).map(|n| format!("<img class='u-photo u-photo' src={n}.png>")).collect();
        let entry = entry(&photos);
        (entry.enclosures.len(), entry.cut)
    };
    assert_eq!([kept(64), kept(65), kept(1_000)], [(64, false), (64, true), (64, true)]);
}

#[test]
fn a_class_that_is_repeated_does_not_take_the_place_of_other_files() {
    let repeated = "u-photo u-x ".repeat(100);
    let entry = entry(&format!("<img class='{repeated}' src=/a.gif><img class=u-photo src=/b.gif>"));
    let gif = Some("image/gif");
    assert_eq!(enclosures(&entry), [("https://harbour.example/a.gif", gif), ("https://harbour.example/b.gif", gif)]);
}

#[test]
fn long_texts_are_cut_whatever_escaping_adds_to_them() {
    let limits = ParseLimits { max_text_bytes: 100, ..ParseLimits::default() };
    for class in ["p-summary", "p-content", "e-content"] {
        let kept = |text: String| {
            let entry = format!("<div class=h-entry><b class=p-name>n</b><p class={class}>{text}</div>");
            let page = format!("<!DOCTYPE html><div class=h-feed>{entry}</div>");
            let mut feed = parse(page.as_bytes(), Some(HTML), "https://harbour.example/", &limits).unwrap();
            let entry = feed.entries.remove(0);
            (entry.content.or(entry.summary).map(|text| text.len()), entry.cut)
        };
        for (length, cut) in [(99, false), (100, false), (101, true), (1_000, true)] {
            assert_eq!(kept("x".repeat(length)), (Some(length.min(100)), cut), "{class}, {length} bytes");
        }
        assert_eq!(kept("&".repeat(50)), (Some(100), true), "{class}");
        assert_eq!(kept("é".repeat(51)), (Some(100), true), "{class}");
    }
}

#[test]
fn pages_that_are_no_feed_stay_pages() {
    let no_feed = |page: &[u8]| try_read(page, HTML).unwrap_err().to_string();
    assert!(no_feed(&fixture("pages/entry.html")).starts_with("not a feed"), "an entry's own page");
    assert!(no_feed(b"<!DOCTYPE html><div class=h-feed><p class=p-name>empty</p></div>").starts_with("not a feed"));
    assert!(
        no_feed(b"<!DOCTYPE html><pre>class=\"h-entry\" is how an h-entry is marked</pre>").starts_with("not a feed")
    );
    let two = b"<!DOCTYPE html><p class=h-entry>one<p class=h-entry>two";
    assert_eq!(read(two, HTML).entries.len(), 2, "entries without a feed around them, but several");
    let announcing = b"<!DOCTYPE html><link rel=alternate type=application/rss+xml href=/rss><p class=h-entry>one<p class=h-entry>two";
    assert!(no_feed(announcing).starts_with("not a feed"), "what it announces is better");
    assert!(try_read(two, "application/octet-stream").is_ok(), "known by its beginning");
    assert!(try_read(&two[15..], "text/plain").is_err(), "not everything with a tag is a page");
}

#[test]
fn the_same_page_gives_the_same_entries_wherever_they_stand() {
    let page = |order: [u8; 2]| {
        let entry = |n| format!("<div class=h-entry><p class=e-content>Note {n}</p></div>");
        format!("<!DOCTYPE html><main class=h-feed>{}{}</main>", entry(order[0]), entry(order[1]))
    };
    let ids = |page: String| read(page.as_bytes(), HTML).entries.into_iter().map(|entry| entry.id).collect::<Vec<_>>();
    let (one, mut other) = (ids(page([1, 2])), ids(page([2, 1])));
    other.reverse();
    assert_eq!(one, other);
}

#[test]
fn pages_that_multiply_themselves_are_given_up() {
    let many = |count: usize, make: &dyn Fn(usize) -> String| (0..count).map(make).collect::<String>();
    for hostile in [
        many(300, &|n| format!("<b id={n}>")) + &"<p class=h-entry>x".repeat(60_000),
        "<div class=h-entry>".repeat(60_000),
        "<div class='h-feed h-entry p-name e-content'>x".repeat(300),
    ] {
        let page = format!("<!DOCTYPE html><div class=h-feed>{hostile}");
        let started = processor_time();
        let read = try_read(page.as_bytes(), HTML);
        let took = processor_time() - started;
        assert!(took.as_secs() < 20, "{took:?}");
        let text: usize = read.map_or(0, |feed| feed.entries.iter().map(Entry::text_bytes).sum());
        assert!(text < 20 * page.len(), "{text}");
    }
}

#[test]
fn an_entry_keeps_who_wrote_it_where_and_in_reply_to_what() {
    let entry = entry(
        "<b class=p-name>n</b><div class=e-content>Fog</div><div class='p-author h-card'><b class=p-name>Ada</b><img class=u-photo src=/ada.jpg>\
        <a class=u-url href='/ada'></a><a class=u-email href='mailto:ada@harbour.example'></a></div>\
        <div class='u-in-reply-to h-cite'><a class=u-url href='https://else.example/1'>x</a></div><a class=u-in-reply-to href='/2'></a>\
        <a class=u-bookmark-of href='https://mark.example/'></a><a class=u-syndication href='https://copy.example/'></a>\
        <img class=u-photo src=/fog.jpg alt='a wall of fog' width=640 height=480>\
        <div class='p-location h-card'><data class=p-latitude value=53.5></data><data class=p-longitude value='-8'></data></div>",
    );
    let shown = worker::parse::entry_json(&entry);
    let expected = serde_json::json!({
        "authors": [{"name": "Ada", "url": "https://harbour.example/ada", "email": "ada@harbour.example", "avatar": "https://harbour.example/ada.jpg"}],
        "in_reply_to": ["https://else.example/1", "https://harbour.example/2"],
        "external_url": "https://mark.example/", "related": ["https://copy.example/"], "content_type": "html",
        "image": "https://harbour.example/fog.jpg", "geo": {"lat": 53.5, "lon": -8},
        "enclosures": [{"url": "https://harbour.example/fog.jpg", "media_type": "image/jpeg", "type": "image/jpeg", "alt": "a wall of fog", "width": 640, "height": 480}],
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&shown[name], value, "{name}");
    }
}

#[test]
fn a_page_says_what_it_is_about_and_who_writes_it() {
    let page = b"<!DOCTYPE html><html><head><title>t</title><meta name=Description content='Ships and fog'><link rel='shortcut icon' href=/i.png></head>\
        <div class=h-feed><b class=p-name>N</b><img class=u-photo src=/banner.jpg><a class='p-author h-card' href='/ada'>Ada</a>\
        <div class=h-entry><b class=p-name>n</b></div></div>";
    let about = read(page, HTML).onward.about.unwrap();
    assert_eq!(about.description.as_deref(), Some("Ships and fog"));
    assert_eq!(about.image.as_deref(), Some("https://harbour.example/banner.jpg"));
    assert_eq!(about.icon.as_deref(), Some("https://harbour.example/i.png"));
    assert_eq!(
        (about.authors[0].name.as_str(), about.authors[0].url.as_deref()),
        ("Ada", Some("https://harbour.example/ada"))
    );
}
