//! Which feeds may miss entries, and which are silent.

use common::archive::ArchiveRead;
use common::config::QuotaConfig;
use common::document::Onward;
use common::known::KnownEntries;
use common::outcome::FailureKind;
use common::policy::{Notice, Notices, PollState, Rule};
use common::report::Outcome;
use common::url::Version;

use super::{Backend, add, apply, at, entry, feed, modified, poll, unchanged, verdict};
use crate::{Applied, Store};

/// Incomplete and silent feeds, and the share of complete ones in percent.
async fn counted(store: &dyn Store) -> (u64, u64, u64) {
    let stats = store.stats(at(0)).await.unwrap();
    let share = format!("{:.0}", 100.0 * stats.complete_ratio());
    (stats.incomplete, stats.silent, share.parse().unwrap())
}

pub(crate) async fn feeds_that_may_miss_entries_and_silent_ones_are_counted(backend: &dyn Backend) {
    let store = backend.open().await;
    assert_eq!(counted(&*store).await, (0, 0, 100));
    let ids = [add(&*store, "https://a.org/1").await, add(&*store, "https://a.org/2").await];
    assert_eq!(counted(&*store).await, (2, 0, 0), "neither was read");
    for id in ids {
        let mut read = verdict(&*store, id, 10, unchanged()).await;
        read.decision.state.last_success = Some(at(10));
        apply(&*store, &[read], 10).await;
    }
    assert_eq!(counted(&*store).await, (0, 0, 100));
    let mut overflowed = verdict(&*store, ids[0], 20, modified(vec![])).await;
    overflowed.decision.state.gap_since = Some(at(10));
    overflowed.decision.state.silent_since = Some(at(9));
    apply(&*store, &[overflowed], 20).await;
    assert_eq!(counted(&*store).await, (1, 1, 50));
    poll(&*store, ids[0], 30, unchanged()).await;
    let state = feed(&*store, ids[0]).await.state;
    assert_eq!((state.gap_since, state.silent_since), (Some(at(10)), Some(at(9))), "they stay");
    store.erase_feed(ids[0], at(40)).await.unwrap();
    assert_eq!(counted(&*store).await, (0, 0, 100));
}

pub(crate) async fn an_overflow_and_a_silence_are_published_with_their_time(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/1").await;
    let mut verdict = verdict(&*store, id, 20, unchanged()).await;
    (verdict.decision.state.gap_since, verdict.decision.state.silent_since) = (Some(at(10)), Some(at(9)));
    verdict.decision.notices = Notices::of(Some(Notice::Overflowed), Some(Notice::Silent));
    apply(&*store, &[verdict], 20).await;
    let events = store.events(0, 10).await.unwrap().items;
    let seen: Vec<_> = events.iter().map(|event| (event.kind.as_str(), event.since)).collect();
    assert_eq!(seen, [("feed.added", None), ("feed.overflowed", Some(at(10))), ("feed.silent", Some(at(9)))]);
}

fn archive() -> ArchiveRead {
    let onward = Onward { next: Some("https://a.org/1?paged=2".into()), ..Onward::default() };
    ArchiveRead::begin(&"https://a.org/1".parse().unwrap(), &onward, at(5), KnownEntries::default(), at(9_000)).unwrap()
}

pub(crate) async fn a_page_of_older_entries_changes_nothing_of_its_feed_but_its_entries(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/1").await;
    let mut read = verdict(&*store, id, 10, modified(vec![entry("9", "nine")])).await;
    (read.decision.state.last_success, read.archive) = (Some(at(10)), Some(archive()));
    apply(&*store, &[read], 10).await;
    let before = feed(&*store, id).await;
    assert_eq!(before.archive, Some(archive()));
    assert_eq!(store.jobs_for(&[id]).await.unwrap()[0].archive, Some(archive()));
    let history = store.history(id).await.unwrap();

    let mut page = verdict(&*store, id, 20, modified(vec![entry("9", "changed"), entry("8", "eight")])).await;
    (page.report.page, page.decision.state, page.archive) = (true, before.state, None);
    let Outcome::Modified(document) = &mut page.report.outcome else { panic!() };
    document.title = Some("of the page".into());
    let applied = apply(&*store, &[page], 20).await;
    assert!(matches!(applied[0], Applied::Stored { new_entries: 1, updated_entries: 0, .. }), "{applied:?}");
    let after = feed(&*store, id).await;
    assert_eq!((after.archive, after.entries, after.version), (None, 2, Version(before.version.0 + 1)));
    assert_eq!(
        (after.title, after.validators, after.content_hash),
        (before.title, before.validators, before.content_hash)
    );
    assert_eq!((after.state, after.last_error), (before.state, None));
    assert_eq!(store.history(id).await.unwrap(), history);

    let outcome = Outcome::Failed { failure: FailureKind::Timeout, detail: "why".into() };
    let mut failed = verdict(&*store, id, 30, outcome).await;
    (failed.report.page, failed.decision.state, failed.archive) = (true, before.state, Some(archive()));
    apply(&*store, &[failed], 30).await;
    let after = feed(&*store, id).await;
    assert_eq!((after.archive, after.entries, after.last_error), (Some(archive()), 2, None));
    assert_eq!(store.history(id).await.unwrap(), history);
}

pub(crate) async fn an_archive_is_begun_on_the_version_that_was_read(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/1").await;
    poll(&*store, id, 10, unchanged()).await;
    let version = feed(&*store, id).await.version;
    assert_eq!(store.begin_archive(id, Version(version.0 + 1), &archive(), at(20)).await.unwrap(), None);
    let place = store.begin_archive(id, version, &archive(), at(20)).await.unwrap().unwrap();
    assert_eq!((place.id, place.due, place.wake), (id, at(20), false));
    let begun = feed(&*store, id).await;
    assert_eq!((begun.archive, begun.next_due, begun.version.0), (Some(archive()), Some(at(20)), version.0 + 1));
}

pub(crate) async fn a_page_beyond_the_quotas_ends_the_archive_and_closes_no_gap(backend: &dyn Backend) {
    let store = backend.open_within(QuotaConfig { entries_per_day: 2, ..QuotaConfig::NONE }).await;
    let id = add(&*store, "https://a.org/1").await;
    let mut read = verdict(&*store, id, 10, modified(vec![entry("9", "nine")])).await;
    (read.decision.state.last_success, read.decision.state.gap_since) = (Some(at(10)), Some(at(5)));
    read.archive = Some(archive());
    apply(&*store, &[read], 10).await;
    let before = feed(&*store, id).await;
    assert_eq!((before.archive, before.state.gap_since), (Some(archive()), Some(at(5))));

    // It would close the gap, and an earlier wish would have the next page read.
    let older = modified(vec![entry("8", "eight"), entry("7", "seven"), entry("6", "six")]);
    let mut page = verdict(&*store, id, 20, older).await;
    (page.report.page, page.archive, page.decision.next_due) = (true, Some(archive()), Some(at(30)));
    page.decision.state = PollState { gap_since: None, ..before.state };
    page.decision.terms.push(Rule::Archive, at(30));
    let applied = apply(&*store, &[page], 20).await.remove(0);
    let Applied::Stored { due, new_entries, over_quota, .. } = applied else { panic!("{applied:?}") };
    assert_eq!((due, new_entries, over_quota.entries), (Some(archive().poll_due), 1, 2));
    let after = feed(&*store, id).await;
    assert_eq!((after.archive, after.state.gap_since), (None, Some(at(5))));
    assert_eq!((after.next_due, counted(&*store).await.0), (Some(archive().poll_due), 1));
    assert!(after.terms.iter().all(|term| term.rule != Rule::Archive), "{:?}", after.terms);

    // Another reading of the archive, within the quotas.
    let mut page = verdict(&*store, id, 90_000, modified(vec![entry("7", "seven")])).await;
    (page.report.page, page.decision.state) = (true, PollState { gap_since: None, ..after.state });
    apply(&*store, &[page], 90_000).await;
    assert_eq!((feed(&*store, id).await.state.gap_since, counted(&*store).await.0), (None, 0));
}
