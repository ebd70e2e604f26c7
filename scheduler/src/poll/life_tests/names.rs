//! Feeds that have a permanent URL, and actors that are requested with a signature.

use common::document::Document;
use common::entry::Entry;

use super::*;

const PAGE: &str = "https://social.example/@ada";
const ACTOR: &str = "https://social.example/users/ada";

impl Fleet {
    async fn job_of(&self, id: FeedId) -> FetchJob {
        let jobs = self.dispatched().await;
        jobs.into_iter().find(|job| job.feed == id).expect("the feed is due")
    }
}

#[tokio::test]
async fn a_page_and_its_actor_are_one_feed() {
    let fleet = Fleet::new().await;
    let actor = fleet.add(ACTOR).await;
    let job = fleet.job_of(actor).await;
    let report = fleet.work(&job, not_modified()).await;
    fleet.settle(report).await;
    fleet.clock.advance(GAP);
    let page = fleet.add(PAGE).await;
    let job = fleet.job_of(page).await;
    let entry = Entry { id: "1".into(), ..Entry::default() };
    let document = Document { entries: vec![entry], new_entries: 1, all_entries: 1, ..Document::default() };
    let report = fleet.work(&job, Outcome::Modified(Box::new(document))).await;
    fleet.settle(FetchReport { permanent_url: Some(ACTOR.parse().unwrap()), ..report }).await;
    let merged = fleet.feed(page).await;
    assert_eq!((merged.status, merged.merged_into), (Status::Merged, Some(actor)));
    assert_eq!(fleet.feed(actor).await.audience.subscribers, 2);
    let events = fleet.ops.store.events(0, 100).await.unwrap().items;
    assert!(events.iter().all(|event| event.kind != "entry.new"), "the actor's own polls bring it");
}

#[tokio::test]
async fn a_feed_takes_its_permanent_url_at_once_and_keeps_what_is_known_of_it() {
    let fleet = Fleet::new().await;
    let id = fleet.add(PAGE).await;
    let job = fleet.job_of(id).await;
    let report = fleet.work(&job, not_modified()).await;
    fleet.settle(FetchReport { permanent_url: Some(ACTOR.parse().unwrap()), ..report }).await;
    let moved = fleet.feed(id).await;
    assert_eq!((moved.url.as_str(), moved.moved_from.as_deref()), (ACTOR, Some(PAGE)));
    assert!(moved.state.last_success.is_some());
}

#[tokio::test]
async fn an_actor_that_refuses_us_is_asked_again_soon_with_a_signature_and_once_only() {
    let fleet = Fleet::new().await;
    let id = fleet.add(ACTOR).await;
    let refused = || Outcome::Failed { failure: FailureKind::Status, detail: "HTTP 401".into() };
    let job = fleet.job_of(id).await;
    assert!(!job.signed);
    let report = fleet.work(&job, refused()).await;
    fleet.settle(FetchReport { http_status: Some(401), wants_signature: true, ..report }).await;
    let feed = fleet.feed(id).await;
    let wait = feed.next_due.unwrap().since(fleet.clock.now());
    assert!(feed.state.penalty.is_none() && wait < Duration::from_secs(20 * 60), "{wait:?}");
    fleet.clock.advance(wait);
    let job = fleet.job_of(id).await;
    assert!(job.signed);
    let report = fleet.work(&job, refused()).await;
    fleet.settle(FetchReport { http_status: Some(401), ..report }).await;
    let feed = fleet.feed(id).await;
    let wait = feed.next_due.unwrap().since(fleet.clock.now());
    assert!(feed.state.penalty.is_some() && wait >= Duration::from_secs(24 * 3600), "{wait:?}");
    fleet.clock.advance(wait);
    let job = fleet.job_of(id).await;
    assert!(!job.signed, "a signature was of no use");
    let report = fleet.work(&job, refused()).await;
    fleet.settle(FetchReport { http_status: Some(401), wants_signature: true, ..report }).await;
    assert!(fleet.feed(id).await.state.penalty.is_some(), "for a month");
}

#[tokio::test]
async fn an_actor_that_answers_a_signed_request_is_asked_so_from_then_on() {
    let fleet = Fleet::new().await;
    let id = fleet.add(ACTOR).await;
    let job = fleet.job_of(id).await;
    let refused = Outcome::Failed { failure: FailureKind::Status, detail: "HTTP 403".into() };
    let report = fleet.work(&job, refused).await;
    fleet.settle(FetchReport { http_status: Some(403), wants_signature: true, ..report }).await;
    for _ in 0..3 {
        let due = fleet.feed(id).await.next_due.unwrap();
        fleet.clock.advance(due.since(fleet.clock.now()));
        let job = fleet.job_of(id).await;
        assert!(job.signed);
        let report = fleet.work(&job, not_modified()).await;
        fleet.settle(report).await;
    }
}
