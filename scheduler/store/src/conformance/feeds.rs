//! Changes to feeds by people.

use super::*;

fn status(status: Status) -> FeedChange {
    FeedChange { status: Some(status), ..FeedChange::default() }
}

/// Returns a feed that `decide` retired, with a poll history.
async fn retired(store: &dyn Store, url: &str, to: Status) -> FeedId {
    let id = add(store, url).await;
    let mut last = verdict(store, id, 10, failed(FailureKind::Status)).await;
    last.decision.status = to;
    last.decision.next_due = None;
    last.decision.state.consecutive_failures = 90;
    apply(store, &[last], 10).await;
    id
}

pub(crate) async fn adding_a_url_twice_answers_the_same_feed_and_changes_nothing(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let before = feed(&*store, id).await;
    let again = NewFeed {
        audience: Audience { subscribers: 500, sla: true, ..Audience::default() },
        category: Category::A,
        private: true,
        first_due: at(99),
        ..new_feed("https://a.org/feed")
    };
    let other = new_feed("https://a.org/FEED");
    let added = store.add_feeds(&[again, other], at(5)).await.unwrap();
    assert_eq!(added[0], Added { id, new: false, revived: false });
    assert!(added[1].new && added[1].id != id, "URLs are compared byte for byte");
    assert_eq!(feed(&*store, id).await, before);
    let found = store.feed(&FeedRef::Url("https://a.org/feed".parse().unwrap())).await.unwrap();
    assert_eq!(found, Some(before));
    assert_eq!(store.feed(&FeedRef::Url("https://a.org/none".parse().unwrap())).await.unwrap(), None);
}

pub(crate) async fn the_same_url_twice_in_one_batch_is_one_feed(backend: &dyn Backend) {
    let store = backend.open().await;
    let batch = ["https://a.org/1", "https://a.org/2", "https://a.org/1"].map(new_feed);
    let added = store.add_feeds(&batch, at(0)).await.unwrap();
    assert_eq!(added.iter().map(|added| added.new).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(added[0].id, added[2].id);
    assert_eq!(store.add_feeds(&[], at(0)).await.unwrap(), []);
}

pub(crate) async fn urls_as_long_as_they_may_be_are_told_apart(backend: &dyn Backend) {
    let store = backend.open().await;
    // Pseudo-random digits, which do not compress in an index.
    let digits: String =
        (1_u64..).map(|number| number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_string()).take(500).collect();
    let long = format!("https://a.org/{}", &digits[..common::url::FeedUrl::MAX_LENGTH - 15]);
    let urls = [format!("{long}1"), format!("{long}2"), format!("{long}1")];
    let added = store.add_feeds(&urls.map(|url| new_feed(&url)), at(0)).await.unwrap();
    assert_eq!(added.iter().map(|added| added.new).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(feed(&*store, added[1].id).await.url.as_str().len(), common::url::FeedUrl::MAX_LENGTH);
}

pub(crate) async fn thousands_of_feeds_are_answered_in_order(backend: &dyn Backend) {
    let store = backend.open().await;
    add(&*store, "https://a.org/1700").await;
    let batch: Vec<NewFeed> = (0..2500).map(|number| new_feed(&format!("https://a.org/{number}"))).collect();
    let added = store.add_feeds(&batch, at(0)).await.unwrap();
    assert_eq!(added.iter().filter(|added| !added.new).count(), 1);
    for (added, new) in added.iter().zip(&batch).step_by(97) {
        assert_eq!(feed(&*store, added.id).await.url, new.url);
    }
    assert_eq!(store.stats(at(0)).await.unwrap().feeds, [(Category::D, Status::Active, 2500)]);
}

pub(crate) async fn adding_a_retired_feed_revives_it_for_one_try(backend: &dyn Backend) {
    let store = backend.open().await;
    for to in [Status::Gone, Status::Blacklisted, Status::Quarantined, Status::Removed] {
        let url = format!("https://a.org/{to:?}");
        let id = retired(&*store, &url, to).await;
        let before = feed(&*store, id).await;
        assert_eq!((before.status, before.due()), (to, None));
        let new = |by_hand| NewFeed { first_due: at(77), by_hand, ..new_feed(&url) };
        if to != Status::Removed {
            let listed = store.add_feeds(&[new(false)], at(50)).await.unwrap();
            assert_eq!(listed, [Added { id, new: false, revived: false }], "{to:?} is final for lists");
            assert_eq!(feed(&*store, id).await, before);
        }
        let added = store.add_feeds(&[new(to != Status::Removed)], at(50)).await.unwrap();
        assert_eq!(added, [Added { id, new: false, revived: true }], "{to:?}");
        let after = feed(&*store, id).await;
        assert_eq!((after.status, after.due()), (Status::Active, Some(at(77))));
        assert_eq!(after.version, Version(before.version.0 + 1));
        assert_eq!(after.state, before.state, "it remembers its failures: the next one ends it");
    }
}

pub(crate) async fn a_hold_is_kept_without_its_report_and_a_longer_one_stays(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/1").await;
    let (a, b) = (HostKey::new("a.org:443"), HostKey::new("b.org:443"));
    store.keep_holds(&[(b.clone(), at(60), id), (a.clone(), at(90), id)]).await.unwrap();
    store.keep_holds(&[(a.clone(), at(70), id), (b.clone(), at(80), id)]).await.unwrap();
    let mut holds = store.holds(at(10)).await.unwrap();
    holds.sort();
    assert_eq!(holds, [(a, at(90)), (b, at(80))]);
}

pub(crate) async fn a_job_goes_on_where_its_feeds_last_fetch_was_interrupted(backend: &dyn Backend) {
    let store = backend.open().await;
    let ids = [add(&*store, "https://a.org/1").await, add(&*store, "https://a.org/2").await];
    let detour = |way: &str| common::job::Detour {
        next: "https://b.org/x?y='\"".parse().unwrap(),
        way: way.to_owned(),
        page: false,
        not_before: None,
    };
    let version = feed(&*store, ids[0]).await.version;
    let interruption =
        |feed: FeedId, version, way: &str| Interruption { feed, version, detour: Some(detour(way)), wait: None };
    let kept = [interruption(ids[0], version, "{\"a\":1}"), interruption(ids[1], Version(99), "of another version")];
    store.interrupt(&kept).await.unwrap();
    let ways = async || {
        let mut jobs = store.jobs_for(&ids).await.unwrap();
        jobs.sort_by_key(|job| job.id);
        jobs.into_iter().map(|job| job.detour).collect::<Vec<_>>()
    };
    assert_eq!(ways().await, [Some(detour("{\"a\":1}")), None]);
    let before = feed(&*store, ids[0]).await;
    store.interrupt(&[interruption(ids[0], version, "later")]).await.unwrap();
    assert_eq!(ways().await, [Some(detour("later")), None]);
    assert_eq!(feed(&*store, ids[0]).await, before, "it is due as before");
    poll(&*store, ids[0], 10, Outcome::NotModified { validators: Validators::default() }).await;
    assert_eq!(ways().await, [None, None], "it ends with the version");
}

pub(crate) async fn a_fetch_that_waits_puts_off_its_feed_and_the_wakes_that_are_there(backend: &dyn Backend) {
    let store = backend.open().await;
    let ids = [add(&*store, "https://a.org/1").await, add(&*store, "https://a.org/2").await];
    store.wake(&ids, at(5), at(5)).await.unwrap();
    let version = feed(&*store, ids[0]).await.version;
    let terms = |until| {
        let mut terms = Terms::default();
        terms.push(Rule::RetryAfter, until);
        terms
    };
    let wait = |feed, version, until| Interruption { feed, version, detour: None, wait: Some((until, terms(until))) };
    store.interrupt(&[wait(ids[0], version, at(900)), wait(ids[1], Version(99), at(900))]).await.unwrap();
    let waits = feed(&*store, ids[0]).await;
    assert_eq!((waits.next_due, waits.wake_at, waits.due()), (Some(at(900)), Some(at(900)), Some(at(900))));
    assert_eq!(waits.terms, *terms(at(900)));
    assert_eq!(feed(&*store, ids[1]).await.wake_at, Some(at(5)), "of another version");
    store.interrupt(&[wait(ids[0], version, at(800))]).await.unwrap();
    assert_eq!(feed(&*store, ids[0]).await, waits, "no wait is shortened");
}

pub(crate) async fn a_revived_feed_waits_for_the_end_of_its_hold(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let mut throttled = verdict(&*store, id, 10, Outcome::Throttled { retry_after: Some(at(900)) }).await;
    throttled.decision.state.hold_until = Some(at(900));
    apply(&*store, &[throttled], 10).await;
    store.change_feed(id, &status(Status::Removed), at(20)).await.unwrap();
    assert!(store.add_feeds(&[new_feed("https://a.org/feed")], at(30)).await.unwrap()[0].revived);
    assert_eq!(feed(&*store, id).await.due(), Some(at(900)));
    let sooner = FeedChange { next_due: Some((at(40), Terms::default())), ..FeedChange::default() };
    let changed = store.change_feed(id, &sooner, at(40)).await.unwrap().unwrap();
    assert_eq!(changed.due(), Some(at(900)));
}

pub(crate) async fn adding_a_paused_feed_leaves_it_paused(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let paused = store.change_feed(id, &status(Status::Paused), at(1)).await.unwrap().unwrap();
    let added = store.add_feeds(&[new_feed("https://a.org/feed")], at(30)).await.unwrap();
    assert_eq!(added, [Added { id, new: false, revived: false }]);
    assert_eq!(feed(&*store, id).await, paused);
}

pub(crate) async fn only_a_change_of_status_raises_the_version(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let audience = Audience {
        subscribers: 70,
        active_subscribers: 7,
        sla: true,
        important: true,
        interval: Some(Duration::from_millis(1500)),
    };
    let mut terms = Terms::default();
    terms.push(Rule::Category, at(5));
    let change = FeedChange {
        labels: None,
        external_id: None,
        credentials: None,
        audience: Some((audience, Category::A)),
        calm: Some(midnight(3)),
        private: Some(true),
        status: Some(Status::Active),
        next_due: Some((at(5), terms)),
        archive: None,
        expects: None,
    };
    let changed = store.change_feed(id, &change, at(2)).await.unwrap().unwrap();
    assert_eq!((changed.audience, changed.private, changed.version), (audience, true, Version(1)));
    assert_eq!((changed.next_due, &changed.terms[..]), (Some(at(5)), &terms[..]));
    assert_eq!(changed.calm, midnight(3));
    assert_eq!(store.placements(FeedId(0), 1).await.unwrap()[0].category, Category::A);
    let plain = FeedChange { audience: Some((Audience::default(), Category::D)), ..FeedChange::default() };
    assert_eq!(store.change_feed(id, &plain, at(3)).await.unwrap().unwrap().audience, Audience::default());
    assert_eq!(feed(&*store, id).await.calm, midnight(3), "another change leaves it");
    let none = FeedChange { calm: Some(vec![]), ..FeedChange::default() };
    assert_eq!(store.change_feed(id, &none, at(4)).await.unwrap().unwrap().calm, []);
    let same = store.change_feed(id, &FeedChange::default(), at(4)).await.unwrap().unwrap();
    assert_eq!(same, feed(&*store, id).await);
    let paused = store.change_feed(id, &status(Status::Paused), at(5)).await.unwrap().unwrap();
    assert_eq!(paused.version, Version(2));
    assert_eq!(store.change_feed(FeedId(99), &plain, at(6)).await.unwrap(), None);
}

pub(crate) async fn a_paused_feed_is_not_polled_and_is_due_as_before_when_it_is_resumed(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let under_way = verdict(&*store, id, 10, modified(vec![entry("1", "one")])).await;
    poll(&*store, id, 20, modified(vec![])).await;
    let paused = store.change_feed(id, &status(Status::Paused), at(30)).await.unwrap().unwrap();
    assert_eq!((paused.next_due, paused.due()), (None, None));
    assert_eq!(store.jobs_for(&[id]).await.unwrap(), []);
    assert_eq!(store.placements(FeedId(0), 9).await.unwrap(), []);
    assert_eq!(apply(&*store, &[under_way], 40).await, [Applied::Stale]);
    let resumed = store.change_feed(id, &status(Status::Active), at(50)).await.unwrap().unwrap();
    assert_eq!((resumed.due(), resumed.version), (Some(at(3620)), Version(4)), "not early");
}

pub(crate) async fn a_retired_feed_that_is_resumed_is_due(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = retired(&*store, "https://a.org/feed", Status::Blacklisted).await;
    let resumed = store.change_feed(id, &status(Status::Active), at(50)).await.unwrap().unwrap();
    assert_eq!((resumed.due(), &resumed.terms[..]), (Some(at(50)), &[Term { rule: Rule::Added, due: at(50) }][..]));
}

pub(crate) async fn an_erased_feed_takes_its_entries_along_and_its_number_is_not_given_again(backend: &dyn Backend) {
    let store = backend.open().await;
    let kept = add(&*store, "https://a.org/kept").await;
    poll(&*store, kept, 10, modified(vec![entry("1", "kept")])).await;
    let id = add(&*store, "https://a.org/feed").await;
    poll(&*store, id, 10, modified(vec![entry("1", "one"), entry("2", "two")])).await;
    assert!(store.erase_feed(id, at(9_000)).await.unwrap());
    assert!(!store.erase_feed(id, at(9_000)).await.unwrap());
    assert_eq!(store.feed(&FeedRef::Id(id)).await.unwrap(), None);
    assert_eq!(store.history(id).await.unwrap(), None);
    let entries = store.entries(None, 0, 10).await.unwrap().items;
    assert_eq!(entries.iter().map(|entry| entry.feed_id).collect::<Vec<_>>(), [kept]);
    assert_eq!(store.stats(at(10)).await.unwrap().entries, 1);
    let again = add(&*store, "https://a.org/feed").await;
    assert_ne!(again, id);
    assert_eq!(new_entries(&poll(&*store, again, 20, modified(vec![entry("1", "one")])).await), (1, 0));
}

pub(crate) async fn forgotten_validators_do_not_come_back_with_a_fetch_under_way(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    poll(&*store, id, 10, modified(vec![entry("1", "one")])).await;
    let under_way = verdict(&*store, id, 20, not_modified(Validators::default())).await;
    let mut under_way = under_way;
    under_way.report.outcome = unchanged();
    assert!(store.forget_validators(id).await.unwrap());
    assert!(!store.forget_validators(FeedId(99)).await.unwrap());
    let job = store.jobs_for(&[id]).await.unwrap().remove(0);
    assert_eq!((job.validators, job.content_hash, job.known.len()), (Validators::default(), None, 1));
    apply(&*store, &[under_way], 21).await;
    assert!(feed(&*store, id).await.validators.is_empty());
    poll(&*store, id, 30, modified(vec![entry("1", "one")])).await;
    assert!(!feed(&*store, id).await.validators.is_empty());
}

pub(crate) async fn an_audience_set_in_mid_fetch_has_the_report_decided_again(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let fetched = verdict(&*store, id, 10, modified(vec![])).await;
    let audience = Audience { sla: true, ..Audience::default() };
    let change = FeedChange { audience: Some((audience, Category::A)), ..FeedChange::default() };
    let change = FeedChange { next_due: Some((at(12), Terms::default())), ..change };
    let edited = store.change_feed(id, &change, at(12)).await.unwrap().unwrap();
    assert_eq!(apply(&*store, std::slice::from_ref(&fetched), 14).await, [Applied::Outdated]);
    assert_eq!(feed(&*store, id).await, edited, "the person's change stands, due time and all");
    let place = store.placements(FeedId(0), 1).await.unwrap().remove(0);
    assert_eq!((place.category, edited.audience), (Category::A, audience));
    let again = Verdict { audience_at: edited.audience_at, category: Category::A, ..fetched };
    assert!(matches!(apply(&*store, &[again], 14).await[..], [Applied::Stored { .. }]));
    let mut later = verdict(&*store, id, 20, unchanged()).await;
    later.category = Category::F;
    later.report.host = HostKey::new("*.a.org");
    apply(&*store, &[later], 22).await;
    let place = store.placements(FeedId(0), 1).await.unwrap().remove(0);
    assert_eq!(
        (place.category, place.host.as_str()),
        (Category::F, "*.a.org"),
        "rules that changed since reach the row"
    );
}

pub(crate) async fn a_change_that_was_made_from_an_older_state_changes_nothing(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let before = feed(&*store, id).await;
    let change = |expects, subscribers| FeedChange {
        audience: Some((Audience { subscribers, ..Audience::default() }, Category::C)),
        expects: Some(expects),
        ..FeedChange::default()
    };
    let first = change((before.version, before.audience), 7);
    let changed = store.change_feed(id, &first, at(1)).await.unwrap().unwrap();
    assert_eq!(changed.audience.subscribers, 7);
    let late = [first, change((Version(9), changed.audience), 8)];
    for change in late {
        let refused = store.change_feed(id, &change, at(2)).await;
        assert!(matches!(refused, Err(StoreError::Outdated)), "{refused:?}");
        let refused = store.change_feeds(&[(id, change)], at(2)).await;
        assert!(matches!(refused, Err(StoreError::Outdated)), "{refused:?}");
    }
    assert_eq!(feed(&*store, id).await, changed);
    let good = change((changed.version, changed.audience), 9);
    assert_eq!(store.change_feed(id, &good, at(3)).await.unwrap().unwrap().audience.subscribers, 9);
    assert_eq!(store.change_feed(FeedId(99), &good, at(3)).await.unwrap(), None);
}

pub(crate) async fn many_feeds_are_changed_at_once_and_unknown_ones_left_out(backend: &dyn Backend) {
    let store = backend.open().await;
    let ids = [add(&*store, "https://a.org/1").await, add(&*store, "https://a.org/2").await];
    let read_by = |subscribers| FeedChange {
        audience: Some((Audience { subscribers, ..Audience::default() }, Category::C)),
        ..FeedChange::default()
    };
    let changes = [(ids[1], read_by(7)), (FeedId(99), read_by(1)), (ids[0], status(Status::Paused))];
    let mut changed = store.change_feeds(&changes, at(3)).await.unwrap();
    changed.sort_by_key(|feed| feed.id);
    assert_eq!(changed, [feed(&*store, ids[0]).await, feed(&*store, ids[1]).await]);
    assert_eq!((changed[0].status, changed[0].audience.subscribers), (Status::Paused, 1));
    assert_eq!((changed[1].status, changed[1].audience.subscribers), (Status::Active, 7));
    assert_eq!(store.change_feeds(&[], at(4)).await.unwrap(), []);
}

pub(crate) async fn a_site_has_its_public_feeds_and_no_more_than_are_wanted(backend: &dyn Backend) {
    let store = backend.open().await;
    let site = |link: &str| Document { link: Some(link.to_owned()), ..document(vec![]) };
    let mut ids = Vec::new();
    for (name, link) in
        [("1", "https://a.org/"), ("2", "http://a.org"), ("3", "https://a.org/"), ("4", "https://b.org/")]
    {
        let id = add(&*store, &format!("https://a.org/{name}")).await;
        poll(&*store, id, 10, Outcome::Modified(Box::new(site(link)))).await;
        ids.push(id);
    }
    let links = ["https://a.org/", "https://a.org", "http://a.org/", "http://a.org"].map(str::to_owned);
    let found = async |limit| {
        let feeds = store.feeds_of_site(&links, limit).await.unwrap();
        feeds.iter().map(|feed| feed.id).collect::<Vec<_>>()
    };
    assert_eq!(found(10).await, ids[..3]);
    assert_eq!(found(2).await, ids[..2]);
    let private = FeedChange { private: Some(true), ..FeedChange::default() };
    store.change_feed(ids[0], &private, at(20)).await.unwrap();
    store.change_feed(ids[1], &status(Status::Paused), at(20)).await.unwrap();
    store.change_feed(ids[2], &status(Status::Gone), at(20)).await.unwrap();
    assert_eq!(found(10).await, ids[2..3], "a ping has it polled once");
}
