//! Moves that an operator takes back.

use super::*;

#[tokio::test]
async fn a_move_is_taken_back_once() {
    let fleet = Fleet::new().await;
    let (old, new) = ("https://a.org/feed", "https://b.org/feed");
    let id = fleet.feed(old).await;
    fleet.moved(id, new).await;
    let path = format!("/api/v1/feeds/{id}/unmove");
    assert_eq!(fleet.get(&format!("/api/v1/feeds/{id}")).await.body["moved_from"], old);
    let back = fleet.ask("POST", &path, None).await;
    assert_eq!((back.status, &back.body["url"], &back.body["moved_from"]), (200, &json!(old), &Value::Null));
    assert_eq!(back.body["host"], "a.org:443");
    let again = fleet.ask("POST", &path, None).await;
    assert_eq!(again.status, 409, "{}", again.body);
    assert_eq!(fleet.ask("POST", "/api/v1/feeds/99/unmove", None).await.status, 404);
}

#[tokio::test]
async fn a_feed_whose_old_url_was_given_away_stays_where_it_is() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://a.org/feed").await;
    fleet.moved(id, "https://b.org/feed").await;
    let other = fleet.feed("https://a.org/feed").await;
    let refused = fleet.ask("POST", &format!("/api/v1/feeds/{id}/unmove"), None).await;
    assert_eq!(refused.status, 409);
    let expected = format!("the URL that feed {id} had before is feed {other}'s now; remove that one first");
    assert_eq!(refused.body["error"], expected);
}

#[tokio::test]
async fn a_merged_feed_is_taken_out_again_with_its_readers() {
    let fleet = Fleet::new().await;
    let survivor = fleet.feed("https://a.org/feed").await;
    let id = fleet.feed("https://b.org/feed").await;
    fleet.moved(id, "https://a.org/feed").await;
    let readers = async |id: i64| fleet.get(&format!("/api/v1/feeds/{id}")).await.body["subscribers"].clone();
    assert_eq!(readers(survivor).await, 2);
    let back = fleet.ask("POST", &format!("/api/v1/feeds/{id}/unmove"), None).await;
    assert_eq!((back.status, &back.body["status"], &back.body["merged_into"]), (200, &json!("active"), &Value::Null));
    assert_eq!((readers(survivor).await, readers(id).await), (json!(1), json!(1)));
    assert_eq!(fleet.ops.schedule.depth(fleet.clock.now()).await.unwrap().feeds, 2);
}
