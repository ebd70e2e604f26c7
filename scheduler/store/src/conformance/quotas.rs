//! Quotas: what exceeds a feed's quotas is left out and counted, the newest entries stay.

use super::*;

const DAY: u64 = 86_400;
const ENTRIES: QuotaConfig = QuotaConfig { entries_per_day: 10, ..QuotaConfig::NONE };

fn numbered(numbers: std::ops::Range<usize>) -> Outcome {
    modified(numbers.map(|number| entry(&number.to_string(), &number.to_string())).collect())
}

async fn stored(store: &dyn Store, id: FeedId) -> Vec<String> {
    let page = store.entries(Some(id), 0, 1000).await.unwrap();
    page.items.into_iter().map(|item| item.entry.id).collect()
}

fn over(applied: &Applied) -> (u64, u64, u64) {
    match applied {
        Applied::Stored { over_quota, .. } => (over_quota.entries, over_quota.bytes, over_quota.rows),
        Applied::Stale | Applied::Outdated => panic!("the report is stale"),
    }
}

pub(crate) async fn beyond_a_day_s_entries_the_newest_are_stored_and_the_rest_is_counted(backend: &dyn Backend) {
    let store = backend.open_within(ENTRIES).await;
    let ids = [add(&*store, "https://a.org/1").await, add(&*store, "https://a.org/2").await];
    let applied = poll(&*store, ids[0], 10, numbered(0..15)).await;
    assert_eq!((new_entries(&applied), over(&applied)), ((10, 0), (5, 0, 0)));
    let newest: Vec<String> = (5..15).map(|number| number.to_string()).collect();
    assert_eq!(stored(&*store, ids[0]).await, newest, "documents' newest entries stand last here");
    let applied = poll(&*store, ids[0], 20, numbered(15..18)).await;
    assert_eq!((new_entries(&applied), over(&applied)), ((0, 0), (3, 0, 0)));
    let applied = poll(&*store, ids[0], 20 + DAY / 2, numbered(18..30)).await;
    assert_eq!((new_entries(&applied), over(&applied)), ((5, 0), (7, 0, 0)), "half a day is half the allowance");
    let feed = feed(&*store, ids[0]).await;
    let expected = OverQuota { entries: 15, bytes: 0, rows: 0, last: Some(at(20 + DAY / 2)) };
    assert_eq!((feed.over_quota, feed.entries), (expected, 15));
    let applied = poll(&*store, ids[1], 30, numbered(0..10)).await;
    assert_eq!((new_entries(&applied), over(&applied)), ((10, 0), (0, 0, 0)), "each feed has its own");
    assert_eq!(store.stats(at(30)).await.unwrap().entries, 25);
}

pub(crate) async fn dates_say_which_entries_are_the_newest(backend: &dyn Backend) {
    let store = backend.open_within(ENTRIES).await;
    let id = add(&*store, "https://a.org/feed").await;
    // The oldest comes last, as in documents that begin with it.
    let dated = |number: u64| Entry { published: Some(at(1000 - number)), ..entry(&number.to_string(), "dated") };
    poll(&*store, id, 2000, modified((0..15).map(dated).collect())).await;
    let expected: Vec<String> = (0..10).rev().map(|number| number.to_string()).collect();
    assert_eq!(stored(&*store, id).await, expected, "numbered by their dates");
}

pub(crate) async fn large_entries_are_limited_by_their_bytes_and_changes_count_too(backend: &dyn Backend) {
    let store = backend.open_within(QuotaConfig { bytes_per_day: 10_000, ..QuotaConfig::NONE }).await;
    let id = add(&*store, "https://a.org/feed").await;
    let large = |text: &str| {
        let large = |number: usize| Entry { content: Some(text.repeat(3_000)), ..entry(&number.to_string(), "large") };
        modified((0..3).map(large).collect())
    };
    let applied = poll(&*store, id, 10, large("a")).await;
    assert_eq!((new_entries(&applied), over(&applied)), ((3, 0), (0, 0, 0)));
    let applied = poll(&*store, id, 20, large("b")).await;
    assert_eq!((new_entries(&applied), over(&applied)), ((0, 0), (0, 3, 0)));
    assert_eq!(stored(&*store, id).await.len(), 3, "the forms that were stored stay");
}

pub(crate) async fn beyond_its_rows_a_feed_loses_the_oldest_with_their_identities(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    poll(&*store, id, 10, numbered(0..15)).await;
    store.close().await;
    drop(store);
    let store = backend.open_within(QuotaConfig { rows_per_feed: 20, ..QuotaConfig::NONE }).await;
    // What was stored before there were quotas counts. Changed entries keep their rows.
    let mut changed: Vec<Entry> = (15..25).map(|number| entry(&number.to_string(), "new")).collect();
    changed.push(entry("0", "changed"));
    let applied = poll(&*store, id, 20, modified(changed)).await;
    assert_eq!((new_entries(&applied), over(&applied)), ((10, 1), (0, 0, 7)));
    let mut left: Vec<String> = (8..25).map(|number| number.to_string()).collect();
    left.push("0".to_owned());
    let mut found = stored(&*store, id).await;
    found.sort_by_key(|id| id.parse::<u32>().unwrap());
    left.sort_by_key(|id| id.parse::<u32>().unwrap());
    assert_eq!(found, left);
    assert_eq!((feed(&*store, id).await.entries, store.stats(at(20)).await.unwrap().entries), (18, 18));
    let applied = poll(&*store, id, 30, numbered(1..2)).await;
    assert_eq!((new_entries(&applied), over(&applied)), ((1, 0), (0, 0, 0)), "its identity left as well");
    assert_eq!(feed(&*store, id).await.over_quota.rows, 7);
}

pub(crate) async fn rows_that_leave_without_a_new_entry_are_counted(backend: &dyn Backend) {
    let store = backend.open_within(QuotaConfig { rows_per_feed: 100, ..QuotaConfig::NONE }).await;
    let id = add(&*store, "https://a.org/feed").await;
    poll(&*store, id, 10, numbered(0..30)).await;
    store.close().await;
    drop(store);
    // The allowance of a day was none until now, and refills slowly.
    let store = backend.open_within(QuotaConfig { rows_per_feed: 20, ..ENTRIES }).await;
    let applied = poll(&*store, id, 20, numbered(30..35)).await;
    assert_eq!((new_entries(&applied), over(&applied)), ((0, 0), (5, 0, 12)));
    let rows = stored(&*store, id).await.len() as u64;
    assert_eq!((rows, feed(&*store, id).await.entries, store.stats(at(20)).await.unwrap().entries), (18, 18, 18));
}

pub(crate) async fn feeds_of_one_batch_are_counted_each_on_its_own(backend: &dyn Backend) {
    let store = backend.open().await;
    let mut feeds = Vec::new();
    for (number, entries) in [15, 3, 0].into_iter().enumerate() {
        let id = add(&*store, &format!("https://{number}.org/feed")).await;
        poll(&*store, id, 10, numbered(0..entries)).await;
        feeds.push(id);
    }
    store.close().await;
    drop(store);
    let store = backend.open_within(QuotaConfig { rows_per_feed: 20, ..QuotaConfig::NONE }).await;
    for (began, driven_out) in [(20, [5, 0, 0]), (40, [0, 0, 0])] {
        let mut verdicts = Vec::new();
        for id in &feeds {
            // The first time 8 entries, then nothing new.
            verdicts.push(verdict(&*store, *id, began, numbered(100..108)).await);
        }
        let applied = apply(&*store, &verdicts, began).await;
        assert_eq!(applied.iter().map(|applied| over(applied).2).collect::<Vec<_>>(), driven_out);
    }
    let mut left = Vec::new();
    for id in feeds {
        left.push(stored(&*store, id).await.len());
    }
    assert_eq!(left, [18, 11, 8]);
}

pub(crate) async fn what_still_stands_in_the_document_stays(backend: &dyn Backend) {
    let store = backend.open_within(QuotaConfig { rows_per_feed: 20, ..QuotaConfig::NONE }).await;
    let id = add(&*store, "https://a.org/feed").await;
    let entries =
        |numbers: std::ops::Range<usize>| numbers.map(|number| entry(&number.to_string(), &number.to_string()));
    poll(&*store, id, 10, modified(entries(0..15).collect())).await;
    // The oldest three are never taken out, and not reported again.
    let known = KnownEntries::default().after_document(entries(0..15).map(|entry| entry.fingerprint()));
    let mut second = document(Vec::new());
    second.keep_news(entries(15..25).chain(entries(0..3)).collect(), &known);
    let applied = poll(&*store, id, 20, Outcome::Modified(Box::new(second))).await;
    assert_eq!((new_entries(&applied), over(&applied)), ((10, 0), (0, 0, 7)));
    let mut found: Vec<u32> = stored(&*store, id).await.iter().map(|id| id.parse().unwrap()).collect();
    found.sort_unstable();
    assert_eq!(found, (0..3).chain(10..25).collect::<Vec<_>>());
    let applied = poll(&*store, id, 30, modified(vec![entry("0", "changed")])).await;
    assert_eq!(new_entries(&applied), (0, 1), "an update, and not a new one");
}

pub(crate) async fn a_delivery_beside_a_poll_of_its_feed_counts(backend: &dyn Backend) {
    let store = backend.open_within(ENTRIES).await;
    let id = add(&*store, "https://a.org/feed").await;
    poll(&*store, id, 10, numbered(0..10)).await;
    let mut pushed = verdict(&*store, id, 20, numbered(10..12)).await;
    pushed.report.pushed = true;
    let polled = verdict(&*store, id, 20, unchanged()).await;
    let applied = apply(&*store, &[pushed, polled], 20).await;
    assert_eq!((new_entries(&applied[0]), over(&applied[0])), ((0, 0), (2, 0, 0)));
    assert_eq!((&applied[1], stored(&*store, id).await.len()), (&Applied::Stale, 10));
}

pub(crate) async fn a_delivery_takes_no_identity_of_what_may_stand_in_the_document(backend: &dyn Backend) {
    let store = backend.open_within(QuotaConfig { rows_per_feed: 20, ..QuotaConfig::NONE }).await;
    let id = add(&*store, "https://a.org/feed").await;
    poll(&*store, id, 10, numbered(0..5)).await;
    let entries =
        |numbers: std::ops::Range<usize>| numbers.map(|number| entry(&number.to_string(), &number.to_string()));
    poll(&*store, id, 20, modified(entries(5..20).collect())).await;
    // The document holds 5 to 19, and a push adds one more.
    let known = KnownEntries::default().after_document(entries(5..20).map(|entry| entry.fingerprint()));
    let mut delivered = document(Vec::new());
    delivered.keep_news(entries(20..28).collect(), &known);
    let mut pushed = verdict(&*store, id, 30, Outcome::Modified(Box::new(delivered))).await;
    pushed.report.pushed = true;
    let applied = apply(&*store, &[pushed], 30).await.remove(0);
    assert_eq!((new_entries(&applied), over(&applied)), ((8, 0), (0, 0, 5)), "only what left the document goes");
    let applied = poll(&*store, id, 40, modified(vec![entry("5", "changed")])).await;
    assert_eq!(new_entries(&applied), (0, 1), "an update, and not a new one");
}
