//! Pages of the river that are answered before all entries were looked at.

use std::time::Duration;

use common::entry::Entry;
use common::time::Clock;

use super::{RiverParams, page_within};
use crate::state::Api;
use crate::testing::Fleet;

/// The entry that is looked for is older than this many others: more than one look reads.
const OTHERS: u32 = 600;

async fn fleet() -> Fleet {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://a.example/feed").await;
    let entry = |id: u32, title: &str| Entry { id: id.to_string(), title: Some(title.to_owned()), ..Entry::default() };
    fleet.polled_with(id, vec![entry(0, "Harbour")]).await;
    fleet.clock.advance(Duration::from_secs(3600));
    fleet.polled_with(id, (1..=OTHERS).map(|id| entry(id, "Fog")).collect()).await;
    fleet.clock.advance(Duration::from_secs(3600));
    fleet
}

#[tokio::test]
async fn a_search_that_ends_early_says_how_far_back_it_looked_and_its_next_page_finds_the_rest() {
    let fleet = fleet().await;
    let api = Api::new(fleet.ops.clone(), fleet.closing.clone());
    let params = RiverParams { q: Some("Harbour".into()), ..RiverParams::default() };
    let first = page_within(&api, &params, 30, Duration::ZERO).await.unwrap();
    assert!(first.items.is_empty());
    let hour_ago = fleet.clock.now().before(Duration::from_secs(3600));
    assert_eq!(first.searched_to, Some(hour_ago), "when the entries were stored that it looked at");
    drop(first.turn);
    let older = RiverParams { after: first.older.map(|seq| seq.to_string()), ..params };
    let second = page_within(&api, &older, 30, Duration::from_secs(60)).await.unwrap();
    assert_eq!((second.items.len(), second.searched_to), (1, None), "it looked at everything");
}

#[tokio::test]
async fn a_full_page_does_not_say_how_far_back_it_looked() {
    let fleet = fleet().await;
    let api = Api::new(fleet.ops.clone(), fleet.closing.clone());
    let page = page_within(&api, &RiverParams::default(), 30, Duration::ZERO).await.unwrap();
    assert_eq!((page.items.len(), page.searched_to), (30, None));
    assert!(page.older.is_some());
}
