//! `apply`: one transaction, versions, what each outcome may change.

use common::document::FeedAbout;

use super::*;

pub(crate) async fn a_report_of_another_version_changes_nothing(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let late = verdict(&*store, id, 10, modified(vec![entry("late", "late")])).await;
    poll(&*store, id, 20, modified(vec![entry("1", "one")])).await;
    let (before, events) = (feed(&*store, id).await, store.events(0, 10).await.unwrap().items);

    let mut held = late.clone();
    held.decision.host_hold = Some(at(9000));
    held.decision.notices = Notice::Penalised.into();
    let mut early = late;
    early.report.version = Version(before.version.0 + 1);
    assert_eq!(apply(&*store, &[held, early], 30).await, [Applied::Stale, Applied::Stale]);
    assert_eq!(feed(&*store, id).await, before);
    assert_eq!(store.events(0, 10).await.unwrap().items, events);
    assert_eq!(store.holds(at(30)).await.unwrap(), []);
    assert_eq!(store.history(id).await.unwrap().unwrap().len(), 1);
}

pub(crate) async fn of_two_reports_on_one_feed_the_second_is_stale(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let first = verdict(&*store, id, 10, modified(vec![entry("1", "one")])).await;
    let second = verdict(&*store, id, 11, modified(vec![entry("2", "two")])).await;
    let applied = apply(&*store, &[first, second], 12).await;
    assert_eq!(new_entries(&applied[0]), (1, 0));
    assert_eq!(applied[1], Applied::Stale);
    assert_eq!(feed(&*store, id).await.version, Version(2));
    assert_eq!(published(&*store).await, [("entry.new".into(), Some("one".into()))]);
}

pub(crate) async fn a_report_on_an_unknown_feed_is_stale(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let verdict = verdict(&*store, id, 10, modified(vec![entry("1", "one")])).await;
    store.erase_feed(id, at(9_000)).await.unwrap();
    assert_eq!(apply(&*store, &[verdict], 12).await, [Applied::Stale]);
    assert_eq!(apply(&*store, &[], 12).await, []);
}

pub(crate) async fn stale_reports_do_not_stop_the_others_of_their_batch(backend: &dyn Backend) {
    let store = backend.open().await;
    let (a, b) = (add(&*store, "https://a.org/feed").await, add(&*store, "https://b.org/feed").await);
    let mut stale = verdict(&*store, a, 10, modified(vec![entry("1", "one")])).await;
    stale.report.version = Version(77);
    let fresh = verdict(&*store, b, 10, modified(vec![entry("2", "two")])).await;
    let applied = apply(&*store, &[stale, fresh], 12).await;
    assert_eq!((&applied[0], new_entries(&applied[1])), (&Applied::Stale, (1, 0)));
    assert_eq!((feed(&*store, a).await.entries, feed(&*store, b).await.entries), (0, 1));
}

pub(crate) async fn a_row_that_changed_since_its_report_was_decided_is_read_once_more(backend: &dyn Backend) {
    let store = backend.open().await;
    let (a, b) = (add(&*store, "https://a.org/feed").await, add(&*store, "https://b.org/feed").await);
    // Read once, so that there is nothing rare about them.
    let verdict = async |id, started, outcome| {
        let mut verdict = verdict(&*store, id, started, outcome).await;
        verdict.decision.state.last_success = Some(at(10));
        verdict
    };
    let first = [verdict(a, 10, unchanged()).await, verdict(b, 10, unchanged()).await];
    apply(&*store, &first, 11).await;
    let second = [verdict(a, 20, unchanged()).await, verdict(b, 20, failed(FailureKind::Timeout)).await];
    store.wake(&[a], at(25), at(25)).await.unwrap();
    let applied = apply(&*store, &second, 30).await;
    let woken = |applied: &Applied| matches!(applied, Applied::Stored { wake: true, .. });
    assert_eq!(applied.iter().map(woken).collect::<Vec<_>>(), [true, false]);
    let rows = [feed(&*store, a).await, feed(&*store, b).await];
    assert_eq!(
        rows.each_ref().map(|feed| (feed.version, feed.wake_at)),
        [(Version(3), Some(at(25))), (Version(3), None)]
    );
    assert_eq!(rows.map(|feed| feed.last_error.is_some()), [false, true]);
    apply(&*store, &[verdict(b, 40, unchanged()).await], 41).await;
    assert_eq!((feed(&*store, b).await.last_error, store.history(b).await.unwrap().unwrap().len()), (None, 3));
    assert_eq!(store.history(a).await.unwrap().unwrap().len(), 2);
}

pub(crate) async fn a_refused_row_takes_its_whole_batch_back(backend: &dyn Backend) {
    let store = backend.open().await;
    let (a, b) = (add(&*store, "https://a.org/feed").await, add(&*store, "https://b.org/feed").await);
    let mut good = verdict(&*store, a, 10, modified(vec![entry("1", "one")])).await;
    good.decision.host_hold = Some(at(500));
    let mut bad = verdict(&*store, b, 10, modified(vec![entry("2", "two")])).await;
    bad.decision.next_due = None;
    let before = (feed(&*store, a).await, feed(&*store, b).await);

    let refused = store.apply(&[good.clone(), bad], SKEW, at(12)).await.unwrap_err();
    assert!(refused.refuses_data(), "a live feed without a due time is refused as data: {refused:?}");
    assert_eq!((feed(&*store, a).await, feed(&*store, b).await), before);
    assert_eq!((published(&*store).await, store.holds(at(12)).await.unwrap()), (vec![], vec![]));
    assert_eq!(store.stats(at(12)).await.unwrap().entries, 0);

    assert_eq!(new_entries(&apply(&*store, &[good], 13).await[0]), (1, 0));
}

pub(crate) async fn failures_keep_what_the_last_good_answer_left(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    poll(&*store, id, 10, modified(vec![entry("1", "one")])).await;
    let good = feed(&*store, id).await;
    let job = store.jobs_for(&[id]).await.unwrap().remove(0);
    let bad = [failed(FailureKind::Truncated), Outcome::Throttled { retry_after: Some(at(90)) }];
    for (started, outcome) in [20, 30].into_iter().zip(bad) {
        let kind = outcome.kind();
        poll(&*store, id, started, outcome).await;
        let after = feed(&*store, id).await;
        assert_eq!((&after.validators, after.content_hash), (&good.validators, good.content_hash), "after {kind}");
        assert_eq!((&after.title, after.entries), (&good.title, good.entries), "after {kind}");
        assert_eq!(store.jobs_for(&[id]).await.unwrap()[0].known, job.known, "after {kind}");
        assert_eq!(after.state.last_outcome, Some(kind));
    }
    assert_eq!(feed(&*store, id).await.version, Version(4));
}

pub(crate) async fn a_304_replaces_the_validators_and_keeps_the_document(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    poll(&*store, id, 10, modified(vec![entry("1", "one")])).await;
    let before = feed(&*store, id).await;
    let validators = Validators { etag: Some("W/\"ü 2\"".into()), ..Validators::default() };
    poll(&*store, id, 20, not_modified(validators.clone())).await;
    let after = feed(&*store, id).await;
    assert_eq!(after.validators, validators);
    assert_eq!((after.content_hash, &after.title, after.entries), (before.content_hash, &before.title, 1));
    let job = store.jobs_for(&[id]).await.unwrap().remove(0);
    assert_eq!((job.validators, job.content_hash, job.known.len()), (validators, before.content_hash, 1));
    assert_eq!(published(&*store).await.len(), 1);
}

pub(crate) async fn a_job_says_what_is_known_of_asking_with_head_first(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let advice = async || store.jobs_for(&[id]).await.unwrap()[0].head_first;
    assert_eq!(advice().await, None);
    for (started, json, expected) in
        [(10, r#"{"credit":4000}"#, Some(true)), (20, r#"{"given_up":1}"#, Some(false)), (30, r#"{"in_vain":2}"#, None)]
    {
        let mut verdict = verdict(&*store, id, started, unchanged()).await;
        verdict.decision.state.head_first = serde_json::from_str(json).unwrap();
        let expected_state = verdict.decision.state;
        apply(&*store, &[verdict], started + 1).await;
        assert_eq!(advice().await, expected, "{json}");
        assert_eq!(feed(&*store, id).await.state.head_first, expected_state.head_first);
    }
}

pub(crate) async fn what_a_feed_says_about_its_end_is_kept_until_it_says_otherwise(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let link = |path: &str| Some(format!("https://a.org/{path}?a='\"ü"));
    let about = FeedAbout { description: Some("of fog".into()), generator: link("g"), ..FeedAbout::default() };
    let about = Some(Box::new(about));
    let onward =
        Onward { next: link("2"), prev_archive: link("2025"), new_feed_url: link("new"), expired: true, about };
    let ending = Document { onward: onward.clone(), ..document(vec![]) };
    poll(&*store, id, 10, Outcome::Modified(Box::new(ending))).await;
    poll(&*store, id, 20, unchanged()).await;
    poll(&*store, id, 30, failed(FailureKind::Timeout)).await;
    assert_eq!(feed(&*store, id).await.onward, onward);
    assert_eq!(store.states_for(&[id]).await.unwrap()[0].onward, onward);
    assert_eq!(store.feeds(&FeedQuery { limit: 1, ..FeedQuery::default() }).await.unwrap().items[0].onward, onward);
    poll(&*store, id, 40, modified(vec![])).await;
    assert_eq!(feed(&*store, id).await.onward, Onward::default());
}

pub(crate) async fn a_new_document_replaces_all_but_a_title_that_it_does_not_repeat(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    poll(&*store, id, 10, modified(vec![entry("1", "one")])).await;
    let title = feed(&*store, id).await.title;
    poll(&*store, id, 20, Outcome::Modified(Box::default())).await;
    let after = feed(&*store, id).await;
    assert_eq!((after.validators, after.content_hash), (Validators::default(), None));
    assert!(title.is_some() && after.title == title, "an outbox's page does not name its actor");
    assert_eq!(after.entries, 1, "an entry that the document no longer has stays");
}

pub(crate) async fn one_throttled_feed_holds_its_host_for_an_hour_and_a_second_one_in_full(backend: &dyn Backend) {
    let store = backend.open().await;
    let throttled = |feed: &Feed, started, until| {
        let mut verdict = verdict_on(feed, started, Outcome::Throttled { retry_after: Some(at(until)) });
        verdict.decision.host_hold = Some(at(until));
        verdict.decision.state.hold_until = Some(at(until));
        verdict
    };
    let held = |applied: &Applied| match applied {
        Applied::Stored { host_hold, .. } => *host_hold,
        Applied::Stale | Applied::Outdated => panic!("the report is stale"),
    };
    let ids = [add(&*store, "https://a.org/1").await, add(&*store, "https://a.org/2").await];
    let feeds = [feed(&*store, ids[0]).await, feed(&*store, ids[1]).await];
    let host = feeds[0].host.clone();

    let applied = apply(&*store, &[throttled(&feeds[0], 10, 50_000)], 10).await;
    assert_eq!(held(&applied[0]), Some(at(10 + 3600)), "one feed alone");
    assert_eq!(store.holds(at(20)).await.unwrap(), [(host.clone(), at(10 + 3600))]);
    let applied = apply(&*store, &[throttled(&feeds[1], 30, 50_000)], 30).await;
    assert_eq!(held(&applied[0]), Some(at(50_000)), "a second feed of the host");
    assert_eq!(store.holds(at(49_999)).await.unwrap(), [(host, at(50_000))]);
    assert_eq!(store.holds(at(50_000)).await.unwrap(), []);

    let other = backend.another();
    let store = other.open().await;
    let ids = [add(&*store, "https://a.org/1").await, add(&*store, "https://a.org/2").await];
    let feeds = [feed(&*store, ids[0]).await, feed(&*store, ids[1]).await];
    let batch = [throttled(&feeds[0], 10, 50_000), throttled(&feeds[1], 10, 50_000)];
    let applied = apply(&*store, &batch, 10).await;
    assert_eq!(applied.iter().map(held).collect::<Vec<_>>(), [Some(at(3610)), Some(at(50_000))], "both in one batch");

    let other = backend.another();
    let store = other.open().await;
    let ids = [add(&*store, "https://a.org/1").await, add(&*store, "https://a.org/2").await];
    let feeds = [feed(&*store, ids[0]).await, feed(&*store, ids[1]).await];
    let applied = apply(&*store, &[throttled(&feeds[0], 10, 50_000)], 10).await;
    assert_eq!(held(&applied[0]), Some(at(3610)));
    let applied = apply(&*store, &[throttled(&feeds[1], 3610, 9000)], 3610).await;
    assert_eq!(held(&applied[0]), Some(at(50_000)), "after the first one's hour, before its time is over");
    let again = feed(&*store, ids[0]).await;
    let applied = apply(&*store, &[throttled(&again, 50_000, 90_000)], 50_000).await;
    assert_eq!(held(&applied[0]), Some(at(53_600)), "alone again");
}

pub(crate) async fn a_used_up_limit_holds_its_host_for_an_hour_whichever_feeds_show_it(backend: &dyn Backend) {
    let store = backend.open().await;
    let answered = |feed: &Feed, started, outcome| {
        let mut verdict = verdict_on(feed, started, outcome);
        verdict.decision.host_hold = Some(at(50_000));
        verdict.decision.state.hold_until = Some(at(50_000));
        verdict
    };
    let ids = [add(&*store, "https://a.org/1").await, add(&*store, "https://a.org/2").await];
    let feeds = [feed(&*store, ids[0]).await, feed(&*store, ids[1]).await];
    let host = feeds[0].host.clone();
    apply(&*store, &[answered(&feeds[0], 10, unchanged())], 10).await;
    assert_eq!(store.holds(at(20)).await.unwrap(), [(host.clone(), at(3610))]);
    apply(&*store, &[answered(&feeds[1], 3610, unchanged())], 3610).await;
    assert_eq!(store.holds(at(3620)).await.unwrap(), [(host.clone(), at(7210))], "another feed, not in full");
    let second = feed(&*store, ids[1]).await;
    apply(&*store, &[answered(&second, 7210, Outcome::Throttled { retry_after: Some(at(50_000)) })], 7210).await;
    assert_eq!(store.holds(at(7220)).await.unwrap(), [(host, at(50_000))], "the first one's time stays known");
}

pub(crate) async fn the_host_that_answered_is_held(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let mut throttled = verdict(&*store, id, 10, Outcome::Throttled { retry_after: Some(at(99)) }).await;
    throttled.decision.host_hold = Some(at(99));
    throttled.report.answered_by = Some(HostKey::new("cdn.net:443"));
    apply(&*store, &[throttled], 10).await;
    assert_eq!(store.holds(at(20)).await.unwrap(), [(HostKey::new("cdn.net:443"), at(99))]);
    assert_eq!(feed(&*store, id).await.host.as_str(), "a.org:443");
}

pub(crate) async fn a_feed_that_is_gone_is_told_and_not_due(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    store.wake(&[id], at(15), at(15)).await.unwrap();
    let mut gone = verdict(&*store, id, 10, Outcome::Gone).await;
    gone.decision = Decision { status: Status::Gone, next_due: None, notices: Notice::Gone.into(), ..gone.decision };
    let applied = apply(&*store, &[gone], 20).await;
    let stored = Applied::Stored {
        due: None,
        wake: false,
        new_entries: 0,
        updated_entries: 0,
        host_hold: None,
        over_quota: OverQuota::default(),
    };
    assert_eq!(applied, [stored]);
    let after = feed(&*store, id).await;
    assert_eq!((after.status, after.next_due, after.due()), (Status::Gone, None, None));
    assert_eq!(store.placements(FeedId(0), 10).await.unwrap(), []);
    assert_eq!(store.jobs_for(&[id]).await.unwrap(), []);
    assert_eq!(published(&*store).await, [("feed.gone".into(), None)]);
}

pub(crate) async fn a_batch_of_hundreds_is_stored(backend: &dyn Backend) {
    let store = backend.open().await;
    let new: Vec<NewFeed> = (0..500).map(|number| new_feed(&format!("https://h{number}.org/feed"))).collect();
    let ids: Vec<FeedId> = store.add_feeds(&new, at(0)).await.unwrap().iter().map(|added| added.id).collect();
    let feeds = store.states_for(&ids).await.unwrap();
    let outcome = |number: i64| match number % 4 {
        0 => modified(vec![entry("1", &format!("of {number}")), entry("2", "two")]),
        1 => unchanged(),
        2 => failed(FailureKind::Status),
        _ => Outcome::Throttled { retry_after: None },
    };
    let mut verdicts: Vec<Verdict> = feeds.iter().map(|feed| verdict_on(feed, 10, outcome(feed.id.0))).collect();
    for verdict in &mut verdicts {
        let failed = verdict.report.outcome.kind() == OutcomeKind::Failed;
        verdict.decision.host_hold = failed.then_some(at(100));
        verdict.decision.notices = Notices::of(failed.then_some(Notice::Penalised), None);
    }
    let applied = apply(&*store, &verdicts, 12).await;
    assert!(applied.iter().all(|applied| *applied != Applied::Stale));
    let mut stored = store.states_for(&ids).await.unwrap();
    stored.sort_by_key(|feed| feed.id);
    verdicts.sort_by_key(|verdict| verdict.report.feed);
    for (feed, verdict) in stored.iter().zip(&verdicts) {
        assert_eq!((feed.id, feed.version), (verdict.report.feed, Version(2)));
        assert_eq!((feed.next_due, feed.state), (verdict.decision.next_due, verdict.decision.state));
        assert_eq!(feed.entries, if feed.id.0 % 4 == 0 { 2 } else { 0 });
    }
    assert_eq!(store.holds(at(12)).await.unwrap().len(), 125);
    let events = store.events(500, 1000).await.unwrap().items;
    assert_eq!(events.len(), 125 * 2 + 125);
    assert!(events.iter().zip(501..).all(|(event, seq)| event.seq == seq));
}
