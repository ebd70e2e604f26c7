//! The console: each form, sent as a browser without a script sends it, and what follows from it.

use axum::http::header;
use common::document::Document;
use common::entry::Entry;
use common::known::KnownEntries;
use serde_json::json;
use store::{AuditLine, AuditQuery};

use super::tests::leads_to;
use crate::testing::Fleet;

/// Sends a form and opens the page that it leads to; returns where that is, and its text.
pub(super) async fn send(fleet: &Fleet, path: &str, fields: &[(&str, &str)]) -> (String, String) {
    let (status, to, text) = sent(fleet, path, fields).await;
    assert_eq!(status, 303, "{path}: {text}");
    let (status, _, page) = fleet.call("GET", &to, &[("accept", "text/html")], "").await;
    assert_eq!(status, 200, "{path} leads to {to}: {page}");
    (to, page)
}

/// Sends a form; returns the status, where it leads, and what it answers itself.
pub(super) async fn sent(fleet: &Fleet, path: &str, fields: &[(&str, &str)]) -> (u16, String, String) {
    let pairs = fields.iter().map(|(name, value)| format!("{name}={}", super::query::encoded(value)));
    let body = pairs.collect::<Vec<_>>().join("&");
    let headers = [("content-type", "application/x-www-form-urlencoded"), ("sec-fetch-site", "same-origin")];
    let (status, headers, text) = fleet.call("POST", path, &headers, &body).await;
    let to = headers.get(header::LOCATION).map_or("", |to| to.to_str().unwrap());
    let base: common::url::FeedUrl = format!("http://127.0.0.1:7878{path}").parse().unwrap();
    let to = base.as_url().join(to).unwrap();
    (status, to.as_str()["http://127.0.0.1:7878".len()..].to_owned(), text)
}

#[tokio::test]
async fn feeds_are_added_by_their_addresses() {
    let fleet = Fleet::new().await;
    let (to, page) =
        send(&fleet, "/feeds/add", &[("url", " https://a.example/feed "), ("labels", "news, harbour")]).await;
    assert_eq!(to, "/feeds/1?done=added");
    assert!(page.contains("The feed is added.") && page.contains(">harbour</a>"), "{page}");
    let (to, _) = send(&fleet, "/feeds/add", &[("url", "https://a.example/feed")]).await;
    assert_eq!(to, "/feeds/1?done=known");
    let several = "https://b.example/\n\nftp://c.example/\nhttps://d.example/";
    let (status, _, page) = sent(&fleet, "/feeds/add", &[("url", several)]).await;
    assert!(status == 200 && page.contains("2 added, 0 known already, 1 refused."), "{page}");
    assert!(page.contains("scheme ftp") && page.contains(">ftp://c.example/\n</textarea>"), "what is left: {page}");
    assert_eq!(sent(&fleet, "/feeds/add", &[("url", " ")]).await.0, 400);
}

#[tokio::test]
async fn an_opml_file_is_uploaded() {
    let fleet = Fleet::new().await;
    let document = "<opml><body><outline text=\"Cooking\"><outline text=\"My &lt;b&gt;name\" xmlUrl=\"https://a.example/\"/>\
                    </outline><outline xmlUrl=\"ftp://b.example/&lt;x&gt;\"/></body></opml>";
    let upload = async |document: &str, name: &str| {
        let body = format!(
            "--xyz\r\ncontent-disposition: form-data; name=\"{name}\"; filename=\"a.opml\"\r\ncontent-type: text/xml\r\n\r\n{document}\r\n--xyz--\r\n"
        );
        fleet.call("POST", "/feeds/import", &[("content-type", "multipart/form-data; boundary=xyz")], &body).await
    };
    let (status, _, page) = upload(document, "file").await;
    assert!(status == 200 && page.contains("1 added, 0 known already, 1 refused."), "{page}");
    assert!(page.contains("line 1: ftp://b.example/&#60;x&#62;") && page.contains("spread over 1 h"), "{page}");
    let (_, _, page) = fleet.call("GET", "/feeds?label=Cooking", &[], "").await;
    assert!(page.contains("My &#60;b&#62;name"), "folders are labels, names titles: {page}");
    let own = "<opml><body><outline xmlUrl=\"https://s.example/\" feedfleet:sla=\"true\" feedfleet:subscribers=\"99\" \
               feedfleet:labels='[\"a\"]'/></body></opml>";
    assert_eq!(upload(own, "file").await.0, 200);
    let of_stranger = fleet.get("/api/v1/feeds/lookup?url=https://s.example/").await.body;
    assert_eq!((&of_stranger["sla"], &of_stranger["subscribers"]), (&json!(false), &json!(1)), "a stranger's file");
    let ticked =
        format!("yes\r\n--xyz\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.opml\"\r\n\r\n{own}");
    assert_eq!(upload(&ticked, "settings").await.0, 200);
    let own = fleet.get("/api/v1/feeds/lookup?url=https://s.example/").await.body;
    assert_eq!((&own["sla"], &own["subscribers"], &own["labels"]), (&json!(true), &json!(99), &json!(["a"])));
    let many = format!("<opml>{}</opml>", "<outline xmlUrl='https://m.example/'/>".repeat(10_001));
    let (status, _, page) = upload(&many, "file").await;
    assert!(status == 400 && page.contains("it has more than 10000 feeds"), "{page}");
    for (document, name) in [("no opml", "file"), ("", "file"), (document, "other")] {
        assert_eq!(upload(document, name).await.0, 400, "{document}");
    }
    assert_eq!(upload(&"x".repeat(super::add::MAX_FILE + 1), "file").await.0, 400);
    let (status, ..) = fleet.call("POST", "/feeds/import", &[("content-type", "text/xml")], document).await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn a_feeds_settings_are_changed_on_its_page() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://a.example/feed").await;
    let all = [
        ("subscribers", "30"),
        ("active_subscribers", "7"),
        ("labels", "green, blue,"),
        ("external_id", "x-1"),
        ("interval", "15m"),
        ("sla", "on"),
    ];
    let (to, page) = send(&fleet, "/feeds/1/change", &all).await;
    assert_eq!(to, "/feeds/1?done=change");
    for shown in
        ["The settings are saved.", "value=\"30\"", "value=\"7\"", "blue, green", "value=\"x-1\"", "value=\"15m\""]
    {
        assert!(page.contains(shown), "{shown} is missing: {page}");
    }
    let feed = fleet.get(&format!("/api/v1/feeds/{id}")).await.body;
    assert_eq!(
        (&feed["interval"], &feed["sla"], &feed["labels"]),
        (&json!(900.0), &json!(true), &json!(["blue", "green"]))
    );
    send(&fleet, "/feeds/1/change", &[("subscribers", "3"), ("interval", ""), ("labels", "")]).await;
    let feed = fleet.get(&format!("/api/v1/feeds/{id}")).await.body;
    assert_eq!((&feed["interval"], &feed["sla"], &feed["labels"]), (&json!(null), &json!(false), &json!([])));
    send(&fleet, "/feeds/1/change", &[("subscribers", "3"), ("labels", "green")]).await;
    send(&fleet, "/feeds/1/change", &[("subscribers", "4"), ("labels", "a, b"), ("labels_before", "a, b")]).await;
    let feed = fleet.get(&format!("/api/v1/feeds/{id}")).await.body;
    assert_eq!(
        (&feed["subscribers"], &feed["labels"]),
        (&json!(4), &json!(["green"])),
        "labels that nobody edited stay"
    );
    for wrong in [("interval", "soon"), ("subscribers", "many"), ("labels", "a\u{1}b")] {
        let (status, _, page) = sent(&fleet, "/feeds/1/change", &[wrong]).await;
        assert!(status == 400 && page.contains(wrong.0) && page.contains("../../feeds/1\">Back"), "{wrong:?}: {page}");
    }
}

#[tokio::test]
async fn a_feed_is_refreshed_paused_resumed_forgotten_moved_back_and_removed() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://a.example/feed").await;
    fleet.polled(id, &["1"]).await;
    for (action, said) in [
        ("refresh", "It will be polled as soon as"),
        ("forget", "Its next poll will read it in full."),
        ("pause", "It is paused."),
        ("resume", "It is polled again."),
        ("requeue", "Its penalty is lifted"),
    ] {
        let (to, page) = send(&fleet, &format!("/feeds/1/{action}"), &[]).await;
        assert_eq!(to, format!("/feeds/1?done={action}"));
        assert!(page.contains(said), "{action}: {page}");
    }
    assert_eq!(sent(&fleet, "/feeds/1/unmove", &[]).await.0, 409);
    fleet.moved(id, "https://b.example/feed").await;
    let (_, page) = send(&fleet, "/feeds/1/unmove", &[]).await;
    assert!(page.contains("The move is undone.") && page.contains("https://a.example/feed"), "{page}");
    let (status, _, page) = sent(&fleet, "/feeds/1/remove", &[]).await;
    assert!(status == 400 && page.contains("tick the box first"), "{page}");
    let (to, page) = send(&fleet, "/feeds/1/remove", &[("sure", "yes")]).await;
    assert!(to == "/feeds?done=remove.1.0" && page.contains("Removed: 1 feed."), "{page}");
    assert_eq!(sent(&fleet, "/feeds/1/pause", &[]).await.0, 404);
}

#[tokio::test]
async fn several_feeds_are_ticked_in_the_list_and_changed_at_once() {
    let fleet = Fleet::new().await;
    for number in 1..=4 {
        fleet.feed(&format!("https://a.example/{number}")).await;
    }
    let ticked = [("id", "1"), ("id", "3"), ("id", "99"), ("back", "q=a.example&done=pause.1.1")];
    let (to, page) = send(&fleet, "/feeds/pause", &ticked).await;
    assert_eq!(to, "/feeds?q=a.example&done=pause.2.1");
    assert!(page.contains("Paused: 2 feeds. Left as it was: 1 feed."), "{page}");
    assert_eq!(page.matches("<span class=\"chip\" title=\"paused\">paused</span>").count(), 2, "{page}");
    let label = [("id", "1"), ("id", "2"), ("label", "green")];
    send(&fleet, "/feeds/label", &label).await;
    assert_eq!(fleet.get("/api/v1/feeds?label=green").await.body["items"].as_array().unwrap().len(), 2);
    send(&fleet, "/feeds/unlabel", &label).await;
    assert_eq!(fleet.get("/api/v1/feeds?label=green").await.body["items"].as_array().unwrap().len(), 0);
    for wrong in [&[("back", "")][..], &[("id", "x")], &[("id", "1")]] {
        assert_eq!(sent(&fleet, "/feeds/remove", wrong).await.0, 400, "{wrong:?}");
    }
    send(&fleet, "/feeds/remove", &[("id", "1"), ("id", "2"), ("sure", "yes")]).await;
    assert_eq!(fleet.get("/api/v1/stats").await.body["feeds"], 2);
    let (to, _) = send(&fleet, "/feeds/refresh", &[("id", "4"), ("back", "//evil.example/\u{7}")]).await;
    assert_eq!(to, "/feeds?done=refresh.1.0");
}

#[tokio::test]
async fn the_audit_names_the_feeds_of_a_form_and_what_became_of_it() {
    let fleet = Fleet::new().await;
    sent(&fleet, "/feeds/add", &[("url", "https://b.example/\nftp://c.example/\nhttps://d.example/")]).await;
    send(&fleet, "/feeds/pause", &[("id", "1"), ("id", "2"), ("id", "99")]).await;
    send(&fleet, "/feeds/pause", &[("id", "99")]).await;
    send(&fleet, "/feeds/resume", &[("id", "2")]).await;
    send(&fleet, "/feeds/requeue", &[("id", "1"), ("id", "2")]).await;
    let many: Vec<String> = (1..=1_000).map(|number| number.to_string()).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|number| ("id", number.as_str())).collect();
    assert_eq!(sent(&fleet, "/feeds/label", &many).await.0, 400, "no label");
    let lines = fleet.ops.store.audit(&AuditQuery::newest(9)).await.unwrap();
    let shown: Vec<String> = lines
        .iter()
        .map(|AuditLine { change, .. }| format!("{} {} {}", change.action, change.on, change.outcome.as_str()))
        .collect();
    assert!(shown[0].starts_with("POST /feeds/label feeds/1,2,3,") && shown[0].ends_with("… refused"), "{}", shown[0]);
    assert!(shown[0].len() < 300, "a line is bounded: {}", shown[0]);
    let expected = [
        "POST /feeds/requeue requeue/1 done",
        "POST /feeds/resume feeds/2 done",
        "POST /feeds/pause feeds/99 refused",
        "POST /feeds/pause feeds/1,2 done",
        "POST /feeds/add feeds/1,2 done",
    ];
    assert_eq!(shown[1..], expected);
}

#[test]
fn what_there_was_no_time_for_is_said() {
    let said = super::actions::said_of_several("remove.400.1.599", false).unwrap();
    assert_eq!(said, "Removed: 400 feeds. Left as it was: 1 feed. There was no time for 599 feeds: tick them again.");
    assert_eq!(super::actions::said_of_several("remove.1.0.x", false), None);
}

#[tokio::test]
async fn feeds_that_are_ticked_are_requeued_as_one_requeue() {
    let fleet = Fleet::new().await;
    for number in 1..=30 {
        fleet.feed(&format!("https://a.example/{number}")).await;
    }
    send(&fleet, "/feeds/3/pause", &[]).await;
    let numbers: Vec<String> = (1..=29).map(|number| number.to_string()).collect();
    let mut ticked: Vec<(&str, &str)> = numbers.iter().map(|number| ("id", number.as_str())).collect();
    ticked.push(("id", "5"));
    let (to, page) = send(&fleet, "/feeds/requeue", &ticked).await;
    assert_eq!(to, "/feeds?done=requeue.28.1");
    assert!(page.contains("Requeued without penalty: 28 feeds. Left as it was: 1 feed."), "{page}");
    let requeues = fleet.get("/api/v1/requeue").await.body;
    let [requeue] = &requeues["items"].as_array().unwrap()[..] else { panic!("{requeues}") };
    assert_eq!((&requeue["queued"], requeue["filter"]["feeds"].as_array().unwrap().len()), (&json!(28), 29));
    assert_eq!(requeue["filter"]["feed"], json!(null));
    let (_, _, page) = fleet.call("GET", "/requeues", &[], "").await;
    assert!(page.contains("29 selected feeds, without penalties"), "{page}");
    let (status, _, page) = sent(&fleet, "/feeds/3/requeue", &[]).await;
    assert!(status == 409 && page.contains("feed 3 is paused, and is not polled by a requeue"), "{page}");
    assert_eq!(sent(&fleet, "/feeds/99/requeue", &[]).await.0, 404);
    for wrong in [json!([]), json!([1, "x"])] {
        let refused = fleet.post("/api/v1/requeue", json!({ "filter": { "feeds": wrong } })).await;
        assert_eq!(refused.status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn a_page_of_entries_counts_as_one_until_it_is_sent() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://a.example/1").await;
    fleet.polled(id, &["1"]).await;
    for path in ["/entries", "/entries.atom", "/entries.json", "/api/v1/entries/lookup?feed=1&id=1"] {
        let mut unread = Vec::new();
        for _ in 0..8 {
            let response = fleet.respond(path).await;
            assert_eq!(response.status(), 200, "{path}");
            unread.push(response);
        }
        assert_eq!(fleet.respond(path).await.status(), 503, "{path}");
        unread.pop();
        assert_eq!(fleet.respond(path).await.status(), 200, "{path}");
    }
}

#[tokio::test]
async fn the_fleet_is_paused_and_resumed_on_its_page() {
    let fleet = Fleet::new().await;
    let (_, page) = send(&fleet, "/fleet/pause", &[]).await;
    assert!(
        page.contains("All polling is paused.") && page.contains("Resume polling") && !page.contains("Pause all"),
        "{page}"
    );
    let (_, page) = send(&fleet, "/fleet/resume", &[]).await;
    assert!(page.contains("Polling is resumed.") && page.contains("Pause all"), "{page}");
}

#[tokio::test]
async fn a_host_is_blocked_and_paced_on_its_page() {
    let fleet = Fleet::new().await;
    fleet.feed("https://a.example/feed").await;
    let host = "/hosts/a.example%3A443";
    let (to, page) = send(&fleet, &format!("{host}/block"), &[("for", "2h")]).await;
    assert_eq!(to, "/hosts/a.example%3A443?done=block");
    assert!(page.contains("It is blocked: no request") && page.contains(">in 2 h</time>"), "{page}");
    let (_, _, list) = fleet.call("GET", "/hosts", &[], "").await;
    assert!(list.contains("Not polled at present") && list.contains(">blocked</span>"), "{list}");
    let (_, page) = send(&fleet, &format!("{host}/unblock"), &[]).await;
    assert!(page.contains("It is not blocked any more.") && !page.contains("Unblock</button>"), "{page}");
    let rule = [("gap", "5s"), ("burst", "2"), ("parallel", ""), ("interval", "1h"), ("reason", "asked <b>us</b>")];
    let (_, page) = send(&fleet, "/hosts/a.example/rule", &rule).await;
    for shown in
        ["The rule is in force.", "1 request per 5 s", "asked &#60;b&#62;us", "value=\"1h\"", "Remove the rule"]
    {
        assert!(page.contains(shown), "{shown} is missing: {page}");
    }
    let (_, page) = send(&fleet, "/hosts/a.example/remove-rule", &[]).await;
    assert!(page.contains("The rule is removed.") && page.contains("the defaults"), "{page}");
    for (path, fields) in [
        ("/hosts/a.example/block", ("for", "soon")),
        ("/hosts/a.example/rule", ("gap", "5s")),
        ("/hosts/a.example/remove-rule", ("", "")),
    ] {
        let (status, _, page) = sent(&fleet, path, &[fields]).await;
        assert!((400..410).contains(&status) && page.contains("<nav"), "{path}: {status} {page}");
    }
    let (status, headers, _) = fleet.call("GET", "/hosts?host=b.example", &[], "").await;
    assert_eq!((status, headers[header::LOCATION].to_str().unwrap()), (303, "./hosts/b.example"));
}

#[tokio::test]
async fn a_requeue_is_tried_first_then_started_watched_and_cancelled() {
    let fleet = Fleet::new().await;
    for number in 0..3 {
        fleet.feed(&format!("https://a.example/{number}")).await;
    }
    let filter = [("host", "a.example"), ("rate", "0.5"), ("category", ""), ("overdue", "")];
    let (status, _, page) = sent(&fleet, "/requeues/plan", &filter).await;
    assert!(status == 200 && page.contains("3 feeds match; 3 feeds on 1 host would be polled, within 6 s"), "{page}");
    assert!(
        page.contains("id=\"start\"") && page.contains("value=\"a.example\"") && page.contains("No requeues yet"),
        "{page}"
    );
    let (to, page) = send(&fleet, "/requeues/start", &filter).await;
    assert!(to == "/requeues?done=1" && page.contains("Requeue 1 is started.") && page.contains("0 of 3"), "{page}");
    let (_, _, page) = fleet.call("GET", "/requeues?sort=rate", &[], "").await;
    assert!(
        page.contains("1 requeue<")
            && page.contains("aria-sort=\"descending\"><a href=\"./requeues?sort=rate&#38;order=asc\""),
        "{page}"
    );
    assert_eq!(fleet.call("GET", "/requeues?sort=size", &[], "").await.0, 400);
    let (_, page) = send(&fleet, "/requeues/1/cancel", &[]).await;
    assert!(page.contains("The requeue is cancelled.") && page.contains("<td>cancelled</td>"), "{page}");
    assert_eq!(sent(&fleet, "/requeues/1/cancel", &[]).await.0, 409);
    assert_eq!(sent(&fleet, "/requeues/plan", &[]).await.0, 400, "an empty filter is no wish");
    let (_, _, page) = sent(&fleet, "/requeues/plan", &[("failure", "dns")]).await;
    assert!(page.contains("0 feeds match") && !page.contains("id=\"start\""), "{page}");
}

#[tokio::test]
async fn the_audit_and_the_configuration_are_shown_and_read_again() {
    let fleet = Fleet::new().await;
    let (_, _, empty) = fleet.call("GET", "/audit", &[], "").await;
    assert!(empty.contains("No changes yet."), "{empty}");
    send(&fleet, "/fleet/pause", &[]).await;
    fleet.post("/api/v1/feeds", json!({ "url": "https://a.example/" })).await;
    sent(&fleet, "/feeds/7/pause", &[]).await;
    let (_, _, page) = fleet.call("GET", "/audit", &[], "").await;
    let at = |part: &str| page.find(part).unwrap_or_else(|| panic!("{part} is missing: {page}"));
    assert!(
        at("POST /feeds/{id}/pause") < at("POST /api/v1/feeds") && at("POST /api/v1/feeds") < at("POST /fleet/pause")
    );
    assert!(page.contains("feeds/7") && page.contains(">refused</span>") && page.contains("loopback"), "{page}");
    let pages = async |path: &str| fleet.call("GET", path, &[], "").await.2;
    for _ in 0..100 {
        assert_eq!(fleet.post("/api/v1/feeds/1/refresh", json!({})).await.status, 202);
    }
    let newest = pages("/audit").await;
    assert!(!newest.contains("POST /fleet/pause") && newest.contains("id=\"count\">103 changes<"), "{newest}");
    let older = pages(&leads_to(&newest, "next").unwrap()).await;
    assert!(older.contains("POST /fleet/pause") && older.matches("<tr><td>").count() == 3, "{older}");
    assert_eq!(pages(&leads_to(&older, "prev").unwrap()).await.matches("<tr><td>").count(), 100);
    for wrong in ["after=1", "after=x.y", "sort=size", "order=up"] {
        assert_eq!(fleet.call("GET", &format!("/audit?{wrong}"), &[], "").await.0, 400, "{wrong}");
    }
    let oldest = pages("/audit?order=asc").await;
    let first = |page: &str| page.split("<tr><td>").nth(1).unwrap().to_owned();
    assert!(first(&oldest).contains("POST /fleet/pause") && oldest.contains("aria-sort=\"ascending\""), "{oldest}");
    let by_outcome = pages("/audit?sort=outcome&order=desc").await;
    assert!(first(&by_outcome).contains(">refused</span>") && leads_to(&by_outcome, "next").is_some(), "{by_outcome}");
    let (to, page) = send(&fleet, "/config/reload", &[]).await;
    assert!(to.starts_with("/config?reloaded=") && page.contains("was read again"), "{page}");
    assert!(
        page.contains("<dt>category.a.interval</dt><dd>1 min</dd>") && page.contains("is in force in the whole fleet"),
        "{page}"
    );
}

/// Titles, labels, reasons and names of hosts that want to be more than words.
#[tokio::test]
async fn hostile_words_are_only_words_on_the_console() {
    const HOSTILE: &str = "</title><script>alert('x')</script><img src=x onerror=\"x\">";
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://a.example/feed").await;
    let mut document = Document { title: Some(HOSTILE.into()), ..Document::default() };
    document.keep_news(
        vec![Entry { id: "1".into(), title: Some(HOSTILE.into()), ..Entry::default() }],
        &KnownEntries::default(),
    );
    fleet.read(id, document).await;
    let settings = [("subscribers", "1"), ("labels", HOSTILE), ("external_id", HOSTILE)];
    send(&fleet, "/feeds/1/change", &settings).await;
    send(&fleet, "/hosts/a.example/rule", &[("gap", "5s"), ("reason", HOSTILE)]).await;
    let label = super::query::encoded(HOSTILE);
    let mut pages = Vec::new();
    for path in [
        "/",
        "/feeds",
        "/feeds/1",
        "/feeds/add",
        "/entries",
        "/hosts",
        "/hosts/a.example",
        "/requeues",
        "/audit",
        "/config",
    ] {
        pages.push(fleet.call("GET", path, &[], "").await.2);
    }
    for path in [
        format!("/hosts/{label}"),
        format!("/feeds?label={label}&done={label}"),
        format!("/requeues?done={label}"),
        format!("/config?reloaded=changed&restart={label}"),
        format!("/entries?label={label}"),
    ] {
        pages.push(fleet.call("GET", &path, &[("accept", "text/html")], "").await.2);
    }
    pages.push(sent(&fleet, "/feeds/add", &[("url", HOSTILE), ("labels", HOSTILE)]).await.2);
    pages.push(sent(&fleet, "/requeues/plan", &[("host", "a.example"), ("rate", HOSTILE)]).await.2);
    pages.push(sent(&fleet, "/requeues/plan", &[("host", HOSTILE)]).await.2);
    for page in pages {
        let scripts: Vec<&str> = page.split("<script").skip(1).collect();
        assert!(scripts.iter().all(|script| script.starts_with(" src=\"")), "{page}");
        for broken in ["<img", "onerror=\"", " style=", "<style", "javascript:"] {
            assert!(!page.contains(broken), "{broken}: {page}");
        }
    }
}
