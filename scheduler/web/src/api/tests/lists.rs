//! Lists of more feeds than a call looks at.

use std::time::Duration;

use common::document::{Document, FeedAbout, Onward};
use common::time::Clock;
use scheduler::ops::AddFeed;

use crate::testing::Fleet;

#[tokio::test]
async fn the_api_and_the_search_page_list_a_fleet_of_any_size_by_due_time() {
    const FEEDS: usize = 2_300;
    let fleet = Fleet::new().await;
    let new = |n: usize| AddFeed::of(format!("https://h{n}.example/").parse().unwrap());
    let feeds: Vec<AddFeed> = (0..FEEDS).map(new).collect();
    let places: Vec<f64> = (0..FEEDS).map(|n| (n * 617 % FEEDS) as f64 / FEEDS as f64).collect();
    fleet.ops.add(&feeds, Some(&places)).await.unwrap();
    fleet.ops.schedule.claim_due(fleet.clock.now(), 1, Duration::from_secs(60)).await.unwrap();
    let (mut due, mut after) = (Vec::new(), String::new());
    loop {
        let page = fleet.get(&format!("/api/v1/feeds?sort=next_due&limit=1000{after}")).await;
        assert_eq!(page.status, 200, "{:?}", page.body);
        let items = page.body["items"].as_array().unwrap();
        due.extend(items.iter().map(|feed| feed["next_due"].as_str().unwrap().to_owned()));
        let Some(next) = page.body["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(due.len(), FEEDS);
    assert!(due.is_sorted());
    let nowhere = fleet.get("/api/v1/feeds?sort=next_due&q=//h2").await;
    assert_eq!(nowhere.body["items"].as_array().unwrap().len(), 100);
    assert_eq!(fleet.get("/feeds?sort=next_due").await.status, 200);
    assert_eq!(fleet.get("/api/v1/feeds?sort=next_due&after=x").await.status, 400);
}

#[tokio::test]
async fn feeds_in_the_penalty_box_are_listed_by_a_filter() {
    let fleet = Fleet::new().await;
    let fails = fleet.failing("https://a.example/", 502, false).await;
    let boxed =
        [fleet.failing("https://b.example/", 502, true).await, fleet.failing("https://c.example/", 404, true).await];
    let new = fleet.feed("https://d.example/").await;
    let ids = async |query: &str| -> Vec<i64> {
        let page = fleet.get(&format!("/api/v1/feeds?{query}")).await;
        assert_eq!(page.status, 200, "{query}: {}", page.body);
        page.body["items"].as_array().unwrap().iter().map(|feed| feed["id"].as_i64().unwrap()).collect()
    };
    assert_eq!(ids("penalised=true").await, boxed);
    assert_eq!(ids("penalised=true&failure=status&status=active").await, boxed);
    assert_eq!(ids("penalised=true&host=c.example:443").await, [boxed[1]]);
    assert_eq!(ids("penalised=true&failure=dns").await, [0; 0]);
    assert_eq!(ids("penalised=false").await, [fails, boxed[0], boxed[1], new]);
    let wrong = fleet.get("/api/v1/feeds?penalised=yes").await;
    let said = wrong.body["error"].as_str().unwrap();
    assert!(wrong.status == 400 && said.contains("penalised must be one of true, false"), "{said}");
}

#[tokio::test]
async fn a_page_of_feeds_ends_at_its_bytes_and_leaves_nothing_out() {
    let fleet = Fleet::new().await;
    for n in 0..5 {
        let id = fleet.feed(&format!("https://h{n}.example/")).await;
        let about = FeedAbout { description: Some("x".repeat(3 << 20)), ..FeedAbout::default() };
        let onward = Onward { about: Some(Box::new(about)), ..Onward::default() };
        fleet.read(id, Document { onward, ..Document::default() }).await;
    }
    for sort in ["id", "next_due", "subscribers", "category", "last_polled"] {
        let (mut ids, mut sizes, mut after) = (Vec::new(), Vec::new(), String::new());
        loop {
            let page = fleet.get(&format!("/api/v1/feeds?sort={sort}{after}")).await;
            let items = page.body["items"].as_array().unwrap();
            sizes.push(items.len());
            ids.extend(items.iter().map(|feed| feed["id"].as_i64().unwrap()));
            let Some(next) = page.body["next"].as_str() else { break };
            after = format!("&after={next}");
        }
        assert_eq!(sizes, [2, 2, 1], "by {sort}");
        ids.sort_unstable();
        assert_eq!(ids, [1, 2, 3, 4, 5], "by {sort}");
    }
}
