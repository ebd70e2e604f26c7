//! The audit of requested changes.

use super::{Backend, at};
use crate::audit::{MOST_AUDITED, TRIMMED_EVERY};
use crate::{AuditOutcome, AuditQuery, AuditSort, Audited, Store};

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

async fn numbers(store: &dyn Store, query: AuditQuery) -> Vec<i64> {
    store.audit(&query).await.unwrap().into_iter().map(|line| line.id).collect()
}

/// Later pages in each order, and the index that each must follow.
pub(crate) fn further_pages() -> Vec<(AuditQuery, &'static str)> {
    let page = |sort: AuditSort, reversed| {
        let index = match sort {
            AuditSort::At => "PRIMARY KEY",
            AuditSort::Who => "audit_by_who",
            AuditSort::Action => "audit_by_action",
            AuditSort::On => "audit_by_subject",
            AuditSort::Outcome => "audit_by_outcome",
        };
        (AuditQuery { sort, reversed, after: Some(("token 3".into(), 9_000)), limit: 100 }, index)
    };
    AuditSort::ALL.into_iter().flat_map(|sort| [page(sort, false), page(sort, true)]).collect()
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
    let all = store.audit(&AuditQuery::newest(100)).await.unwrap();
    assert_eq!((all[3].id, &all[3].change), (ids[3], &ended));
    assert_eq!((all[0].id, &all[0].change), (ids[6], &change(6)));
    let newest_first = |from: usize, to: usize| ids[from..to].iter().rev().copied().collect::<Vec<_>>();
    let older = |than: i64| AuditQuery { after: Some((String::new(), than)), ..AuditQuery::newest(3) };
    assert_eq!(numbers(&*store, AuditQuery::newest(3)).await, newest_first(4, 7));
    assert_eq!(numbers(&*store, older(ids[4])).await, newest_first(1, 4));
    assert!(numbers(&*store, older(ids[0])).await.is_empty());
    let newer = AuditQuery { reversed: true, ..older(ids[1]) };
    assert_eq!(numbers(&*store, newer).await, ids[2..5], "the nearest ones");
}

pub(crate) async fn changes_are_listed_by_each_column_in_both_directions(backend: &dyn Backend) {
    let store = backend.open().await;
    let outcomes = [AuditOutcome::Done, AuditOutcome::Failed, AuditOutcome::Done, AuditOutcome::Refused];
    let changes = outcomes.into_iter().zip(["eve", "ann", "", "ann"]).zip(0..).map(|((outcome, who), number)| {
        Audited { who: who.into(), action: format!("POST /{}", number % 2), outcome, ..change(9 - number) }
    });
    let ids = store.write_audit(&changes.collect::<Vec<_>>(), &[]).await.unwrap();
    assert_eq!(store.count_audit().await.unwrap(), 4);
    for (sort, order) in [
        (AuditSort::At, [3, 2, 1, 0]),
        (AuditSort::Who, [2, 3, 1, 0]),
        (AuditSort::Action, [2, 0, 3, 1]),
        (AuditSort::On, [3, 2, 1, 0]),
        (AuditSort::Outcome, [2, 0, 1, 3]),
    ] {
        for (limit, reversed) in [(1, false), (3, false), (9, false), (1, true), (3, true), (9, true)] {
            let (mut seen, mut after) = (Vec::new(), None);
            loop {
                let lines = store.audit(&AuditQuery { sort, reversed, after, limit }).await.unwrap();
                assert!(lines.len() <= limit as usize);
                seen.extend(lines.iter().map(|line| line.id));
                let Some(last) = lines.last() else { break };
                after = Some((sort.value(last).to_owned(), last.id));
            }
            if reversed {
                seen.reverse();
            }
            assert_eq!(seen, order.map(|number: usize| ids[number]), "{sort}, {limit}, {reversed}");
        }
    }
}

pub(crate) async fn old_changes_are_deleted_and_no_more_than_so_many_are_kept(backend: &dyn Backend) {
    let store = backend.open().await;
    let ids = store.write_audit(&(0..5).map(change).collect::<Vec<_>>(), &[]).await.unwrap();
    assert_eq!(store.prune_audit(at(2)).await.unwrap(), 2);
    assert_eq!(store.prune_audit(at(2)).await.unwrap(), 0);
    assert_eq!(numbers(&*store, AuditQuery::newest(9)).await, [ids[4], ids[3], ids[2]]);
    backend.number_audit_from(MOST_AUDITED + ids[3]).await;
    for seconds in 10..10 + 2 * TRIMMED_EVERY as u64 {
        store.write_audit(&[change(seconds)], &[]).await.unwrap();
    }
    let kept = numbers(&*store, AuditQuery::newest(1_000)).await;
    assert_eq!(kept.len() as i64, 2 * TRIMMED_EVERY, "those with lower numbers are gone");
}
