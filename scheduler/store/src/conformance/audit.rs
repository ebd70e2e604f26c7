//! The audit of requested changes.

use super::{Backend, at};
use crate::audit::{MOST_AUDITED, TRIMMED_EVERY};
use crate::{AuditOutcome, AuditPage, Audited, Store};

fn change(seconds: u64) -> Audited {
    Audited {
        at: at(seconds),
        who: "ann".into(),
        from: "192.0.2.1".into(),
        action: "POST /feeds/{id}/pause".into(),
        on: format!("feeds/{seconds}"),
        outcome: AuditOutcome::InProgress,
        status: 0,
        millis: 0,
    }
}

async fn numbers(store: &dyn Store, page: AuditPage, limit: u32) -> Vec<i64> {
    store.audit(page, limit).await.unwrap().into_iter().map(|line| line.id).collect()
}

pub(crate) async fn changes_are_kept_with_their_outcome_and_read_in_pages(backend: &dyn Backend) {
    let store = backend.open().await;
    let changes: Vec<_> = (0..7).map(change).collect();
    let mut ids = store.write_audit(&changes[..1], &[]).await.unwrap();
    ids.extend(store.write_audit(&changes[1..6], &[]).await.unwrap());
    let ended = Audited {
        who: "eve".into(),
        on: "feeds/9".into(),
        outcome: AuditOutcome::Done,
        status: 303,
        millis: 12,
        ..change(3)
    };
    ids.extend(store.write_audit(&changes[6..], &[(ids[3], ended.clone())]).await.unwrap());
    assert!(ids.is_sorted_by(|one, next| one < next));
    drop(store);
    let store = backend.open().await;
    let all = store.audit(AuditPage::Newest, 100).await.unwrap();
    assert_eq!((all[3].id, &all[3].change), (ids[3], &ended));
    assert_eq!((all[0].id, &all[0].change), (ids[6], &change(6)));
    let newest_first = |from: usize, to: usize| ids[from..to].iter().rev().copied().collect::<Vec<_>>();
    assert_eq!(numbers(&*store, AuditPage::Newest, 3).await, newest_first(4, 7));
    assert_eq!(numbers(&*store, AuditPage::Older(ids[4]), 3).await, newest_first(1, 4));
    assert!(numbers(&*store, AuditPage::Older(ids[0]), 3).await.is_empty());
    assert_eq!(numbers(&*store, AuditPage::Newer(ids[1]), 3).await, newest_first(2, 5), "the nearest ones");
}

pub(crate) async fn old_changes_are_deleted_and_no_more_than_so_many_are_kept(backend: &dyn Backend) {
    let store = backend.open().await;
    let ids = store.write_audit(&(0..5).map(change).collect::<Vec<_>>(), &[]).await.unwrap();
    assert_eq!(store.prune_audit(at(2)).await.unwrap(), 2);
    assert_eq!(store.prune_audit(at(2)).await.unwrap(), 0);
    assert_eq!(numbers(&*store, AuditPage::Newest, 9).await, [ids[4], ids[3], ids[2]]);
    backend.number_audit_from(MOST_AUDITED + ids[3]).await;
    for seconds in 10..10 + 2 * TRIMMED_EVERY as u64 {
        store.write_audit(&[change(seconds)], &[]).await.unwrap();
    }
    let kept = numbers(&*store, AuditPage::Newest, 1_000).await;
    assert_eq!(kept.len() as i64, 2 * TRIMMED_EVERY, "those with lower numbers are gone");
}
