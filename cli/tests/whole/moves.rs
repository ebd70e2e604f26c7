//! Permanent redirects of healthy feeds (P37), in the server's own log.

use load_tests::{Feed, Origin, Record, Script, loopback};
use serde_json::Value;

use crate::harness::{Fleet, Home, PATIENCE, watch_stalls};

/// A day of sightings in two seconds.
const CONFIG: &str = r#"
[policy]
mode = "classes"
min_interval = "300ms"
salt = 0.0
hot_minutes = false
no_validator_factor = 1.0
import_spread = "0s"
move_after = "2s"
[policy.category.d]
interval = "300ms"
interval_max = "300ms"
[policy.penalty]
bad_feed = "300ms"
[host]
gap = "10ms"
"#;

/// Several times the number of polls that a move needs.
const ENOUGH: usize = 20;

async fn feed_at(fleet: &Fleet, url: &str) -> Option<Value> {
    let page = fleet.get("/api/v1/feeds?limit=100").await;
    page["items"].as_array().unwrap().iter().find(|feed| feed["url"] == url).cloned()
}

/// Waits for `requests` more requests.
async fn more(origin: &Origin, path: &str, requests: usize) {
    let wanted = origin.requests(path).len() + requests;
    assert!(origin.wait_for(path, wanted, PATIENCE).await.len() >= wanted, "{path} is not polled");
}

#[tokio::test(flavor = "multi_thread")]
async fn p37_a_permanent_redirect_moves_the_feed_and_an_undone_one_stays_undone() {
    let origin = Origin::listen(&loopback(2, 0)).await.unwrap();
    let (old, new) = (origin.url("/old"), origin.url_on(1, "/new"));
    origin.set("/new", Script::feed(Feed::rss().initial(2)));
    origin.set("/old", Script::redirect(301, new.clone()));
    let home = Home::new(CONFIG);
    let stalls = watch_stalls(&origin);
    let mut fleet = home.start(&[&old]);
    fleet.watch(&stalls);
    let moved = fleet.wait_for("the move", async |fleet| feed_at(fleet, &new).await).await;
    assert_eq!((&moved["moved_from"], &moved["entries"]), (&Value::from(old.clone()), &Value::from(2)));
    let seen = origin.requests("/old");
    // The first of them may have arrived late.
    let sighted = seen[seen.len() - 1].start - seen[0].start + stalls.seen().near(seen[0].start);
    assert!(seen.len() >= 3 && sighted >= std::time::Duration::from_millis(1500), "{} in {sighted:?}", seen.len());
    // A request in flight may still arrive at the old URL.
    more(&origin, "/new", 2).await;
    let left = origin.requests("/old").len();
    more(&origin, "/new", 5).await;
    assert_eq!(origin.requests("/old").len(), left, "nobody asks the old URL any more");
    let new_ones = origin.requests("/new");
    assert!(new_ones.iter().skip(1).all(Record::is_conditional), "nothing is read twice for the move");

    let id = moved["id"].to_string();
    let unmove = home.command(&["feed", "unmove", &id, "--server", &fleet.api]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&unmove.stdout), format!("took back {id} {old}\n"));
    more(&origin, "/old", ENOUGH).await;
    let back = feed_at(&fleet, &old).await.expect("it stays where the operator wants it");
    assert_eq!((&back["id"], &back["moved_from"], &back["entries"]), (&moved["id"], &Value::Null, &Value::from(2)));
    let again = home.command(&["feed", "unmove", &id, "--server", &fleet.api]).output().unwrap();
    assert_eq!(again.status.code(), Some(1), "there is nothing more to take back");
    // It still moves to another target.
    let elsewhere = origin.url("/elsewhere");
    origin.set("/elsewhere", Script::feed(Feed::rss().initial(2)));
    origin.set("/old", Script::redirect(308, elsewhere.clone()));
    fleet.wait_for("the other move", async |fleet| feed_at(fleet, &elsewhere).await).await;
    fleet.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn p37_temporary_and_refused_redirects_never_move_a_feed_and_a_known_target_takes_it_in() {
    let origin = Origin::listen(&loopback(1, 0)).await.unwrap();
    origin.set("/new", Script::feed(Feed::rss().initial(1)));
    let to_new = origin.url("/new");
    origin.set("/302", Script::redirect(302, to_new.clone()));
    origin.set("/307", Script::redirect(307, to_new.clone()));
    // An address reserved for documentation, which is never dialled.
    origin.set("/refused", Script::redirect(301, "http://192.0.2.1/feed"));
    origin.set("/alias", Script::redirect(301, to_new.clone()));
    let urls = ["/new", "/302", "/307", "/refused", "/alias"].map(|path| origin.url(path));
    let home = Home::new(CONFIG);
    let mut fleet = home.start(&urls.each_ref().map(String::as_str));
    let alias = fleet
        .wait_for("the merge", async |fleet| feed_at(fleet, &urls[4]).await.filter(|feed| feed["status"] == "merged"))
        .await;
    let survivor = feed_at(&fleet, &to_new).await.unwrap();
    assert_eq!((&alias["merged_into"], &survivor["subscribers"]), (&survivor["id"], &Value::from(2)));
    let events = fleet.get("/api/v1/feeds?status=merged").await;
    assert_eq!(events["items"].as_array().unwrap().len(), 1);
    for path in ["/302", "/307"] {
        more(&origin, path, ENOUGH).await;
    }
    for url in &urls[1..4] {
        let feed = feed_at(&fleet, url).await.expect("it stays");
        assert_eq!(feed["moved_from"], Value::Null, "{url}");
    }
    assert!(feed_at(&fleet, &urls[3]).await.unwrap()["failing_since"].is_string());

    // When an operator undoes the merge, the feed gets its subscribers back and is not merged again.
    let id = alias["id"].to_string();
    assert!(home.command(&["feed", "unmove", &id, "--server", &fleet.api]).output().unwrap().status.success());
    more(&origin, "/alias", ENOUGH).await;
    assert_eq!(feed_at(&fleet, &urls[4]).await.unwrap()["status"], "active");
    assert_eq!(feed_at(&fleet, &to_new).await.unwrap()["subscribers"], 1);
    fleet.stop();
}
