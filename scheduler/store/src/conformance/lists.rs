//! Lists and pages.

use common::push::{PushKind, PushState, RELIABLE_AFTER};

use super::*;
use crate::{NewPush, PushClaim, PushSubscription, PushWish};

/// Returns all pages of a query; `between` runs before each further page.
async fn pages(store: &dyn Store, query: &FeedQuery, between: impl AsyncFn()) -> Vec<FeedId> {
    let mut query = query.clone();
    let mut found = Vec::new();
    loop {
        let page = store.feeds(&query).await.unwrap();
        assert!(page.items.len() <= query.limit as usize);
        found.extend(page.items.iter().map(|feed| feed.id));
        query.after = page.next;
        if query.after.is_none() {
            return found;
        }
        between().await;
    }
}

async fn found(store: &dyn Store, query: FeedQuery) -> Vec<String> {
    let page = store.feeds(&FeedQuery { limit: 50, ..query }).await.unwrap();
    page.items.into_iter().map(|feed| feed.url.to_string()).collect()
}

fn subscribed(url: &str, subscribers: u32) -> NewFeed {
    NewFeed { audience: Audience { subscribers, ..Audience::default() }, ..new_feed(url) }
}

pub(crate) async fn pages_are_complete_without_duplicates_while_feeds_are_added(backend: &dyn Backend) {
    for (sort, reversed) in FeedSort::ALL.into_iter().flat_map(|sort| [(sort, false), (sort, true)]) {
        let backend = backend.another();
        let store = backend.open().await;
        let new: Vec<NewFeed> = (0..23).map(|n| subscribed(&format!("https://a.org/{n}"), n % 3)).collect();
        let ids: Vec<FeedId> = store.add_feeds(&new, at(0)).await.unwrap().iter().map(|added| added.id).collect();
        let count = std::sync::atomic::AtomicU32::new(0);
        let query = FeedQuery { sort, reversed, limit: 4, ..FeedQuery::default() };
        let listed = pages(&*store, &query, async || {
            let number = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let new = subscribed(&format!("https://b.org/{number}"), number % 3);
            store.add_feeds(&[new], at(1)).await.unwrap();
        })
        .await;
        let mut unique = listed.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), listed.len(), "no feed twice by {sort:?}, {reversed}");
        assert!(ids.iter().all(|id| listed.contains(id)), "no feed is missing by {sort:?}, {reversed}");
    }
}

pub(crate) async fn a_page_is_ordered_as_asked(backend: &dyn Backend) {
    let store = backend.open().await;
    let mut new = [5, 70, 5, 1].map(|subscribers| subscribed(&format!("https://a.org/{subscribers}"), subscribers));
    for (number, (new, due)) in new.iter_mut().zip([30, 10, 20, 10]).enumerate() {
        new.url = format!("https://a.org/{number}").parse().unwrap();
        new.first_due = at(due);
    }
    let ids: Vec<FeedId> = store.add_feeds(&new, at(0)).await.unwrap().iter().map(|added| added.id).collect();
    for (number, second, due, category) in [(2, 9, 20, Category::A), (1, 8, 10, Category::B), (3, 7, 10, Category::C)] {
        let mut polled = verdict(&*store, ids[number], second, unchanged()).await;
        (polled.category, polled.decision.next_due) = (category, Some(at(due)));
        assert!(matches!(apply(&*store, &[polled], second).await[..], [Applied::Stored { .. }]));
    }
    let pause = FeedChange { status: Some(Status::Paused), ..FeedChange::default() };
    store.change_feed(ids[1], &pause, at(10)).await.unwrap();
    for (sort, order) in [
        (FeedSort::Id, [0, 1, 2, 3]),
        (FeedSort::Subscribers, [1, 0, 2, 3]),
        (FeedSort::NextDue, [3, 2, 0, 1]),
        (FeedSort::Category, [2, 1, 3, 0]),
        (FeedSort::LastPolled, [0, 3, 1, 2]),
    ] {
        let query = FeedQuery { sort, limit: 2, ..FeedQuery::default() };
        let mut order = order.map(|number| ids[number]);
        assert_eq!(pages(&*store, &query, async || ()).await, order, "{sort:?}");
        let query = FeedQuery { reversed: true, ..query };
        order.reverse();
        assert_eq!(pages(&*store, &query, async || ()).await, order, "{sort:?}, reversed");
    }
    let exactly = store.feeds(&FeedQuery { limit: 4, ..FeedQuery::default() }).await.unwrap();
    assert_eq!((exactly.items.len(), exactly.next), (4, None), "a full last page has no next one");
}

pub(crate) async fn a_list_holds_what_the_filters_let_through(backend: &dyn Backend) {
    let store = backend.open().await;
    let urls = ["https://a.org/50%25_off", "https://a.org/500xoff", "https://b.org/Rust"];
    let mut new = urls.map(new_feed);
    new[1].category = Category::B;
    let ids: Vec<FeedId> = store.add_feeds(&new, at(0)).await.unwrap().iter().map(|added| added.id).collect();
    poll(&*store, ids[0], 10, modified(vec![])).await;
    poll(&*store, ids[1], 10, failed(FailureKind::Dns)).await;
    poll(&*store, ids[2], 10, failed(FailureKind::Tls)).await;
    let pause = FeedChange { status: Some(Status::Paused), ..FeedChange::default() };
    store.change_feed(ids[2], &pause, at(20)).await.unwrap();

    let text = |text: &str| FeedQuery { text: Some(text.into()), ..FeedQuery::default() };
    assert_eq!(found(&*store, text("%25_off")).await, [urls[0]]);
    assert_eq!(found(&*store, text("rUST")).await, [urls[2]]);
    assert_eq!(found(&*store, text("A TITLE")).await, [urls[0]], "the title counts as well");
    assert_eq!(found(&*store, text("\\")).await, [""; 0]);
    let title = Some("Über die Brücke [*] НОВОСТИ".to_owned());
    let titled = Outcome::Modified(Box::new(Document { title, ..document(vec![]) }));
    poll(&*store, ids[0], 10, titled).await;
    for of_title in ["über", "ÜBER", "BRÜCKE [*]", "новости", "ü", "r d"] {
        assert_eq!(found(&*store, text(of_title)).await, [urls[0]], "{of_title}");
    }
    for other in ["*ü", "[ü]", "b?ü", "ブ"] {
        assert_eq!(found(&*store, text(other)).await, [""; 0], "{other}");
    }
    let host = FeedQuery { hosts: vec![HostKey::new("b.org:443")], ..FeedQuery::default() };
    assert_eq!(found(&*store, host).await, [urls[2]]);
    let hosts = ["b.org:443", "a.org:443", "a.org:8080"].map(HostKey::new).to_vec();
    assert_eq!(found(&*store, FeedQuery { hosts, ..FeedQuery::default() }).await, urls);
    let status = FeedQuery { status: Some(Status::Paused), ..FeedQuery::default() };
    assert_eq!(found(&*store, status).await, [urls[2]]);
    let failure = FeedQuery { failure: Some(FailureKind::Dns), ..FeedQuery::default() };
    assert_eq!(found(&*store, failure).await, [urls[1]]);
    let all = FeedQuery {
        hosts: vec![HostKey::new("a.org:443")],
        category: Some(Category::D),
        status: Some(Status::Active),
        ..text("a.org")
    };
    assert_eq!(found(&*store, all).await.len(), 2, "the verdicts said D of both");
    let failing = FeedQuery { failing: true, ..FeedQuery::default() };
    assert_eq!(found(&*store, failing.clone()).await, [urls[1], urls[2]]);
    assert_eq!(found(&*store, FeedQuery { status: Some(Status::Active), ..failing.clone() }).await, [urls[1]]);
    poll(&*store, ids[1], 30, unchanged()).await;
    assert_eq!(found(&*store, failing).await, [urls[2]], "it failed before, not at the last poll");
    let failure = FeedQuery { failure: Some(FailureKind::Dns), ..FeedQuery::default() };
    assert_eq!(found(&*store, failure).await, [""; 0], "it failed before, not at the last poll");
}

pub(crate) async fn a_list_of_the_penalty_box_has_the_feeds_in_it_and_no_others(backend: &dyn Backend) {
    let store = backend.open().await;
    let urls = ["https://a.org/fails", "https://a.org/dns", "https://a.org/tls", "https://b.org/throttled"];
    let added = store.add_feeds(&urls.map(new_feed), at(0)).await.unwrap();
    poll(&*store, added[0].id, 10, failed(FailureKind::Dns)).await;
    for (added, kind) in added[1..].iter().zip([FailureKind::Dns, FailureKind::Tls, FailureKind::Dns]) {
        let mut boxed = verdict(&*store, added.id, 10, failed(kind)).await;
        boxed.decision.state.penalty = Some(Penalty { kind, until: at(900) });
        apply(&*store, &[boxed], 10).await;
    }
    // A throttled response does not end the penalty, and is not a failure.
    poll(&*store, added[3].id, 20, Outcome::Throttled { retry_after: None }).await;

    let penalised = FeedQuery { penalised: true, ..FeedQuery::default() };
    let of = |failure| FeedQuery { failure: Some(failure), ..penalised.clone() };
    assert_eq!(found(&*store, penalised.clone()).await, urls[1..]);
    assert_eq!(found(&*store, FeedQuery { reversed: true, ..penalised.clone() }).await, [urls[3], urls[2], urls[1]]);
    assert_eq!(found(&*store, of(FailureKind::Dns)).await, [urls[1], urls[3]]);
    assert_eq!(found(&*store, of(FailureKind::Tls)).await, [urls[2]]);
    assert_eq!(found(&*store, of(FailureKind::Timeout)).await, [""; 0]);
    assert_eq!(found(&*store, FeedQuery { failing: true, ..penalised.clone() }).await, urls[1..3]);
    let host = FeedQuery { hosts: vec![HostKey::new("b.org:443")], ..penalised.clone() };
    assert_eq!(found(&*store, host).await, [urls[3]]);
    let failure = FeedQuery { failure: Some(FailureKind::Dns), ..FeedQuery::default() };
    assert_eq!(found(&*store, failure).await, urls[..2], "without the filter, the failure is the last poll's");
    let first = store.feeds(&FeedQuery { limit: 2, ..penalised.clone() }).await.unwrap();
    let second = store.feeds(&FeedQuery { limit: 2, after: first.next, ..penalised.clone() }).await.unwrap();
    assert_eq!((first.items.len(), second.items.len(), second.next), (2, 1, None));

    let mut read = verdict(&*store, added[1].id, 30, unchanged()).await;
    read.decision.state.penalty = None;
    apply(&*store, &[read], 30).await;
    assert_eq!(found(&*store, penalised).await, urls[2..], "a good response ends the penalty");
}

pub(crate) async fn a_cursor_of_another_list_is_refused(backend: &dyn Backend) {
    let store = backend.open().await;
    store.add_feeds(&["https://a.org/1", "https://a.org/2"].map(new_feed), at(0)).await.unwrap();
    let page = store.feeds(&FeedQuery { limit: 1, ..FeedQuery::default() }).await.unwrap();
    let other = FeedQuery { sort: FeedSort::NextDue, after: page.next, limit: 1, ..FeedQuery::default() };
    assert!(matches!(store.feeds(&other).await, Err(StoreError::Cursor(_))));
    let turned = FeedQuery { sort: FeedSort::Id, reversed: true, ..other };
    assert!(matches!(store.feeds(&turned).await, Err(StoreError::Cursor(_))));
    let invented = FeedQuery { after: Some("7".into()), limit: 1, ..FeedQuery::default() };
    assert!(matches!(store.feeds(&invented).await, Err(StoreError::Cursor(_))));
}

pub(crate) async fn placements_come_in_pages_of_live_feeds(backend: &dyn Backend) {
    let store = backend.open().await;
    let new: Vec<NewFeed> = (0..10).map(|number| new_feed(&format!("https://a.org/{number}"))).collect();
    let ids: Vec<FeedId> = store.add_feeds(&new, at(0)).await.unwrap().iter().map(|added| added.id).collect();
    let pause = FeedChange { status: Some(Status::Paused), ..FeedChange::default() };
    store.change_feed(ids[3], &pause, at(1)).await.unwrap();
    let mut found = Vec::new();
    let mut after = FeedId(0);
    loop {
        let page = store.placements(after, 4).await.unwrap();
        assert!(page.len() <= 4);
        let Some(last) = page.last() else { break };
        after = last.id;
        found.extend(page);
    }
    let live: Vec<FeedId> = ids.iter().copied().filter(|id| *id != ids[3]).collect();
    assert_eq!(found.iter().map(|place| place.id).collect::<Vec<_>>(), live);
    assert!(found.iter().all(|place| place.due == at(0) && place.host.as_str() == "a.org:443" && !place.wake));
}

pub(crate) async fn slas_that_cannot_be_kept_are_counted(backend: &dyn Backend) {
    let store = backend.open().await;
    let new =
        [Category::A, Category::A, Category::D].map(|category| NewFeed { category, ..new_feed("https://a.org/") });
    let urls = ["https://a.org/never-polled", "https://a.org/late", "https://a.org/no-sla"];
    let new = new.into_iter().zip(urls).map(|(new, url)| NewFeed { url: url.parse().unwrap(), ..new });
    let ids = store.add_feeds(&new.collect::<Vec<_>>(), at(0)).await.unwrap();
    for added in &ids[1..] {
        let mut late = verdict(&*store, added.id, 10, modified(vec![])).await;
        late.category = if added.id == ids[1].id { Category::A } else { Category::D };
        store.apply(&[late], SKEW, at(11)).await.unwrap();
    }
    assert_eq!(store.sla_unmet(Duration::from_secs(3599)).await.unwrap(), 1);
    assert_eq!(store.sla_unmet(Duration::from_secs(3600)).await.unwrap(), 0);

    // Its entries are pushed, and after some of them that is why it is polled less often.
    let unmet = async || store.sla_unmet(Duration::from_secs(3599)).await.unwrap();
    let late = ids[1].id;
    let wanted = NewPush {
        id: "a".to_owned(),
        kind: PushKind::WebSub,
        hub: "https://hub.example/".to_owned(),
        topic: urls[1].to_owned(),
        secret: None,
    };
    store.want_pushes(&[PushWish { feed: late, wanted: Some(wanted) }], at(12)).await.unwrap();
    let asked = store.push("a").await.unwrap().unwrap();
    let verified = PushSubscription { state: PushState::Verified, lease_until: Some(at(9999)), ..asked };
    assert!(store.store_push(&verified).await.unwrap());
    for number in 1..=RELIABLE_AFTER {
        assert_eq!(unmet().await, 1, "before push {number}");
        let (found, seconds) = (modified(vec![entry(&number.to_string(), "new")]), 20 + u64::from(number));
        let push = Some(PushClaim { since: Some(at(0)) });
        let pushed = Verdict { category: Category::A, push, ..verdict(&*store, late, seconds, found).await };
        store.apply(&[pushed], SKEW, at(seconds)).await.unwrap();
    }
    assert_eq!(unmet().await, 0);
    let reliable = store.push("a").await.unwrap().unwrap();
    assert!(store.store_push(&PushSubscription { lease_until: Some(at(20)), ..reliable }).await.unwrap());
    assert_eq!(unmet().await, 1, "its lease had expired at the last poll");
}
