//! Why a feed fails: what is kept of it, and for how long.

use super::*;
use crate::Move;

fn missing() -> Outcome {
    let detail = "the server answered 404 Not Found at https://a.org/?key=SECRET \u{0}\u{1b}[2J".to_owned();
    Outcome::Failed { failure: FailureKind::Status, detail }
}

pub(crate) async fn an_error_stays_with_its_feed_and_its_event_until_a_good_poll(backend: &dyn Backend) {
    let store = backend.open().await;
    let (id, other) = (add(&*store, "https://a.org/feed").await, add(&*store, "https://b.org/feed").await);
    assert_eq!(feed(&*store, id).await.last_error, None);
    let mut failed = verdict(&*store, id, 10, missing()).await;
    failed.report.http_status = Some(404);
    failed.decision.notices = Notice::Penalised.into();
    let good = verdict(&*store, other, 10, modified(vec![entry("1", "one")])).await;
    apply(&*store, &[failed, good], 12).await;

    let error = feed(&*store, id).await.last_error.unwrap();
    assert_eq!((error.short().as_str(), error.status), ("404 Not Found", Some(404)));
    assert_eq!(error.detail, "the server answered 404 Not Found at https://a.org/? [2J");
    assert_eq!(feed(&*store, other).await.last_error, None);
    let events = store.events(2, 10).await.unwrap().items;
    let published = events.iter().map(|event| (event.kind.as_str(), event.error.as_ref())).collect::<Vec<_>>();
    assert_eq!(published, [("feed.penalised", Some(&error)), ("entry.new", None)]);

    poll(&*store, id, 30, unchanged()).await;
    assert_eq!(feed(&*store, id).await.last_error, None);
    assert_eq!(store.events(2, 1).await.unwrap().items[0].error, Some(error), "an event says what was, not what is");
    poll(&*store, id, 40, Outcome::Gone).await;
    let gone = feed(&*store, id).await.last_error.unwrap();
    assert!(gone.is_lasting() && gone.detail.ends_with("the feed is gone for good"), "{gone:?}");
}

pub(crate) async fn a_feed_taken_from_a_page_keeps_a_few_of_the_pages_other_feeds(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/").await;
    poll(&*store, id, 10, failed(FailureKind::NotAFeed)).await;
    let others: Vec<_> = (0..9).map(|number| format!("https://a.org/{number}").parse().unwrap()).collect();
    let NewFeed { url, host, .. } = new_feed("https://a.org/feed");
    let to = Move { url, host, category: Category::D, same: false, others };
    store.move_feed(id, feed(&*store, id).await.version, &to, at(20)).await.unwrap();
    let moved = feed(&*store, id).await;
    assert_eq!((moved.also_announced.len(), moved.also_announced[0].as_str()), (5, "https://a.org/0"));
    assert_eq!(moved.last_error, None, "that was the page's");
    poll(&*store, id, 30, modified(vec![])).await;
    assert_eq!(feed(&*store, id).await.also_announced.len(), 5);
}
