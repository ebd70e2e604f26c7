//! Wakes: none is lost, and none is answered by a fetch that started before it.

use super::*;

async fn woken(store: &dyn Store, id: FeedId, wake: u64, now: u64) -> (Timestamp, bool) {
    let places = store.wake(&[id], at(wake), at(now)).await.unwrap();
    assert_eq!(places.len(), 1);
    assert_eq!(store.placements(FeedId(0), 10).await.unwrap(), places);
    assert_eq!(store.jobs_for(&[id]).await.unwrap()[0].wake_at.is_some(), places[0].wake);
    (places[0].due, places[0].wake)
}

fn due(applied: &Applied) -> (Option<Timestamp>, bool) {
    match applied {
        Applied::Stored { due, wake, .. } => (*due, *wake),
        Applied::Stale | Applied::Outdated => panic!("the report is stale"),
    }
}

/// Returns a feed that is due at `at(3610)`.
async fn polled_feed(store: &dyn Store) -> FeedId {
    let id = add(store, "https://a.org/feed").await;
    poll(store, id, 10, modified(vec![])).await;
    id
}

pub(crate) async fn a_wake_before_the_fetch_is_answered_by_it(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = polled_feed(&*store).await;
    assert_eq!(woken(&*store, id, 100, 100).await, (at(100), true));
    let applied = poll(&*store, id, 102, unchanged()).await;
    assert_eq!(due(&applied), (Some(at(102 + 3600)), false));
    assert_eq!(feed(&*store, id).await.wake_at, None);
}

pub(crate) async fn a_wake_in_mid_fetch_is_kept(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = polled_feed(&*store).await;
    let fetched = verdict(&*store, id, 100, unchanged()).await;
    woken(&*store, id, 105, 105).await;
    let applied = apply(&*store, &[fetched], 110).await;
    assert_eq!(due(&applied[0]), (Some(at(105)), true));
    assert_eq!(feed(&*store, id).await.due(), Some(at(105)));
}

pub(crate) async fn a_wake_that_two_clocks_may_see_differently_is_kept(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = polled_feed(&*store).await;
    woken(&*store, id, 100, 100).await;
    let applied = poll(&*store, id, 101, unchanged()).await;
    assert_eq!(due(&applied), (Some(at(100)), true), "older than the start by no more than the skew");
    let applied = poll(&*store, id, 102, unchanged()).await;
    assert_eq!(due(&applied), (Some(at(102 + 3600)), false));
}

pub(crate) async fn a_past_wake_that_the_job_knew_of_is_answered_whatever_the_clocks_say(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = polled_feed(&*store).await;
    woken(&*store, id, 100, 100).await;
    let mut fetched = verdict(&*store, id, 100, unchanged()).await;
    fetched.report.answers_wake = Some(at(100));
    assert_eq!(due(&apply(&*store, &[fetched], 101).await[0]), (Some(at(100 + 3600)), false));

    woken(&*store, id, 200, 200).await;
    let mut fetched = verdict(&*store, id, 200, unchanged()).await;
    fetched.report.answers_wake = Some(at(200));
    woken(&*store, id, 201, 201).await;
    assert_eq!(due(&apply(&*store, &[fetched], 202).await[0]), (Some(at(201)), true), "another wish in mid-fetch");
}

pub(crate) async fn a_wake_ahead_of_the_fetch_is_still_owed(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = polled_feed(&*store).await;
    woken(&*store, id, 150, 100).await;
    let mut fetched = verdict(&*store, id, 110, unchanged()).await;
    fetched.report.answers_wake = Some(at(150));
    woken(&*store, id, 140, 112).await;
    assert_eq!(due(&apply(&*store, &[fetched], 115).await[0]), (Some(at(140)), true));
}

pub(crate) async fn a_page_of_older_entries_answers_no_wake(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = polled_feed(&*store).await;
    woken(&*store, id, 100, 100).await;
    for outcome in [modified(vec![entry("1", "one")]), failed(FailureKind::Timeout)] {
        let mut page = verdict(&*store, id, 102, outcome).await;
        (page.report.page, page.report.answers_wake) = (true, Some(at(100)));
        assert_eq!(due(&apply(&*store, &[page], 103).await[0]), (Some(at(100)), true));
        assert_eq!(feed(&*store, id).await.wake_at, Some(at(100)));
    }
    let applied = poll(&*store, id, 104, unchanged()).await;
    assert_eq!(due(&applied), (Some(at(104 + 3600)), false));
}

pub(crate) async fn a_past_wake_moves_up_to_now(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = polled_feed(&*store).await;
    woken(&*store, id, 100, 100).await;
    let fetched = verdict(&*store, id, 110, unchanged()).await;
    assert_eq!(woken(&*store, id, 120, 120).await, (at(120), true));
    let applied = apply(&*store, &[fetched], 130).await;
    assert_eq!(due(&applied[0]), (Some(at(120)), true), "the second wish came after the fetch's start");
    assert_eq!(woken(&*store, id, 999, 140).await, (at(140), true), "a wake that is due is not put off");
}

pub(crate) async fn a_future_wake_is_brought_forward_and_never_postponed(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = polled_feed(&*store).await;
    assert_eq!(woken(&*store, id, 150, 100).await, (at(150), true));
    assert_eq!(woken(&*store, id, 190, 110).await, (at(150), true));
    assert_eq!(woken(&*store, id, 140, 110).await, (at(140), true));
    let applied = poll(&*store, id, 120, unchanged()).await;
    assert_eq!(due(&applied), (Some(at(140)), true), "a fetch before it does not answer it");
}

pub(crate) async fn a_wake_never_comes_before_the_end_of_a_hold(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = polled_feed(&*store).await;
    let mut throttled = verdict(&*store, id, 100, Outcome::Throttled { retry_after: Some(at(900)) }).await;
    throttled.decision.state.hold_until = Some(at(900));
    woken(&*store, id, 105, 105).await;
    let applied = apply(&*store, &[throttled], 110).await;
    assert_eq!(due(&applied[0]), (Some(at(900)), true), "the hold came after the wake");
    assert_eq!(woken(&*store, id, 120, 120).await, (at(900), true), "the wake came after the hold");
    let applied = poll(&*store, id, 902, unchanged()).await;
    assert_eq!(due(&applied), (Some(at(902 + 3600)), false));
}

pub(crate) async fn only_live_feeds_are_woken(backend: &dyn Backend) {
    let store = backend.open().await;
    let (live, paused) = (add(&*store, "https://a.org/1").await, add(&*store, "https://a.org/2").await);
    let pause = FeedChange { status: Some(Status::Paused), ..FeedChange::default() };
    store.change_feed(paused, &pause, at(1)).await.unwrap();
    let places = store.wake(&[paused, FeedId(99), live], at(5), at(5)).await.unwrap();
    assert_eq!(places.iter().map(|place| place.id).collect::<Vec<_>>(), [live]);
    assert_eq!(feed(&*store, paused).await.wake_at, None);
    // A quarantine is not ended by strangers, but by a person; other penalties are ended by both.
    for (kind, pinged) in [(FailureKind::Crashed, 0), (FailureKind::Malformed, 1)] {
        let mut boxed = verdict(&*store, live, 10, failed(kind)).await;
        boxed.decision.state.penalty = Some(Penalty { kind, until: at(900) });
        apply(&*store, &[boxed], 11).await;
        assert_eq!(store.wake_pinged(&[live], at(20), at(20)).await.unwrap().len(), pinged, "{kind:?}");
        assert_eq!(store.wake(&[live], at(20), at(20)).await.unwrap().len(), 1, "{kind:?}");
    }
}

pub(crate) async fn a_ping_has_a_retired_feed_polled_once(backend: &dyn Backend) {
    let store = backend.open().await;
    for status in [Status::Blacklisted, Status::Gone, Status::Paused, Status::Quarantined, Status::Removed] {
        let id = add(&*store, &format!("https://a.org/{}", status.as_str())).await;
        let retire = FeedChange { status: Some(status), ..FeedChange::default() };
        store.change_feed(id, &retire, at(1)).await.unwrap();
        assert!(store.wake(&[id], at(5), at(5)).await.unwrap().is_empty(), "{status:?}: a person resumes it");
        let woken = store.wake_pinged(&[id], at(9), at(5)).await.unwrap();
        let tried = matches!(status, Status::Blacklisted | Status::Gone);
        let places = store.placements(FeedId(id.0 - 1), 1).await.unwrap();
        assert_eq!((woken.len(), woken == places), (usize::from(tried), true), "{status:?}");
        let jobs = store.jobs_for(&[id]).await.unwrap();
        let dues: Vec<_> = jobs.iter().map(|job| (job.due(), job.wake_at)).collect();
        assert_eq!(dues, if tried { vec![(at(9), Some(at(9)))] } else { Vec::new() });
        if !tried {
            continue;
        }
        let read = feed(&*store, id).await;
        assert_eq!((read.status, read.due()), (status, Some(at(9))));
        // A report that leaves it where it is ends the try.
        let mut report = verdict(&*store, id, 10, Outcome::Gone).await;
        report.report.answers_wake = Some(at(9));
        report.decision =
            Decision { status, next_due: None, notices: common::policy::Notices::default(), ..report.decision };
        assert_eq!(due(&apply(&*store, &[report], 11).await[0]), (None, false));
        assert_eq!(feed(&*store, id).await.due(), None);
        assert!(store.jobs_for(&[id]).await.unwrap().is_empty());
        assert!(store.placements(FeedId(id.0 - 1), 1).await.unwrap().is_empty());
    }
}

/// Compares the database with `wake_after`, which the model of the claim protocol uses in its place.
pub(crate) async fn a_row_of_wakes_leaves_what_the_model_says(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = polled_feed(&*store).await;
    let mut before = None;
    for (wake, now) in [(100, 100), (100, 105), (400, 106), (300, 107), (350, 108), (108, 108), (120, 110), (119, 130)]
    {
        woken(&*store, id, wake, now).await;
        let expected = crate::wake_after(before, None, at(wake).millis(), at(now).millis());
        assert_eq!(feed(&*store, id).await.wake_at, Some(Timestamp::from_millis(expected)), "{wake} at {now}");
        before = Some(expected);
    }
}
