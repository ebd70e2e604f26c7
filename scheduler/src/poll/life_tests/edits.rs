//! What a person edits while a feed lives.

use common::labels::LabelEdit;
use common::policy::{Rule, Terms};
use store::FeedChange;

use super::*;
use crate::ops::{AudienceEdit, EditFeed};

#[tokio::test]
async fn of_two_changes_of_different_fields_at_once_both_survive() {
    let fleet = Fleet::new().await;
    for n in 0..50 {
        let id = fleet.add(&format!("http://h{n}.example/")).await;
        let before = Audience::default();
        let edit = |after| EditFeed { audience: AudienceEdit::between(before, after), ..EditFeed::default() };
        let important = edit(Audience { important: true, ..before });
        let read = edit(Audience { subscribers: 5, active_subscribers: 5, ..before });
        let (one, two) = tokio::join!(fleet.ops.edit(id, &important), fleet.ops.edit(id, &read));
        assert!(one.unwrap().is_some() && two.unwrap().is_some());
        let after = fleet.feed(id).await.audience;
        assert_eq!((after.important, after.subscribers), (true, 5));
    }
}

#[tokio::test]
async fn a_report_that_finds_another_audience_is_decided_again() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/").await;
    let job = &fleet.dispatched().await[0];
    let report = fleet.work(job, not_modified()).await;
    let stale = fleet.feed(id).await;
    fleet.clock.advance(Duration::from_secs(1));
    let sla = Audience { sla: true, ..Audience::default() };
    let edit = EditFeed { audience: AudienceEdit::between(Audience::default(), sla), ..EditFeed::default() };
    fleet.ops.edit(id, &edit).await.unwrap().unwrap();
    // Decided on what was read before the change.
    let verdict = fleet.results.judge(&stale, report.clone(), fleet.clock.now());
    fleet.results.store_verdicts(vec![verdict], &[(id, stale)].into(), fleet.clock.now()).await.unwrap();
    let after = fleet.feed(id).await;
    let promise = fleet.ops.config.policy.category.a.promise;
    assert_eq!(after.version.0, job.version.0 + 1);
    assert!(after.next_due.unwrap().since(report.started) <= promise, "{:?}", after.next_due);
}

#[tokio::test]
async fn an_edit_of_labels_plans_no_poll_anew() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/").await;
    let job = &fleet.dispatched().await[0];
    let report = fleet.work(job, not_modified()).await;
    fleet.settle(report).await;
    let now = fleet.clock.now();
    // Later than any plan would be, so that each new plan would be earlier.
    let late = now.after(Duration::from_secs(100 * 86_400));
    let mut terms = Terms::default();
    terms.push(Rule::Category, late);
    let postponed = FeedChange { next_due: Some((late, terms)), ..FeedChange::default() };
    fleet.ops.store.change_feed(id, &postponed, now).await.unwrap().unwrap();

    let labels = LabelEdit { add: vec!["news".to_owned()], ..LabelEdit::default() };
    let labelled = EditFeed { labels, private: Some(true), ..EditFeed::default() };
    let after = fleet.ops.edit(id, &labelled).await.unwrap().unwrap();
    assert_eq!((after.next_due, after.private), (Some(late), true));
    assert_eq!(after.marks.labels, ["news"]);

    let sla = AudienceEdit::between(Audience::default(), Audience { sla: true, ..Audience::default() });
    let after = fleet.ops.edit(id, &EditFeed { audience: sla, ..EditFeed::default() }).await.unwrap().unwrap();
    assert!(after.next_due.unwrap() < late);
}

#[tokio::test]
async fn a_gone_or_paused_or_erased_feed_is_never_dispatched() {
    let fleet = Fleet::new().await;
    let gone = fleet.add("http://a.example/").await;
    let paused = fleet.add("http://b.example/").await;
    let erased = fleet.add("http://c.example/").await;
    for job in fleet.dispatched().await {
        let outcome = if job.feed == gone { Outcome::Gone } else { not_modified() };
        let report = fleet.work(&job, outcome).await;
        fleet.settle(report).await;
    }
    assert_eq!(fleet.feed(gone).await.status, Status::Gone);
    let pause = EditFeed { status: Some(Status::Paused), ..EditFeed::default() };
    fleet.ops.edit(paused, &pause).await.unwrap().unwrap();
    assert!(fleet.ops.erase(erased).await.unwrap());
    fleet.clock.advance(Duration::from_secs(100 * 86_400));
    assert!(fleet.dispatched().await.is_empty());
    assert_eq!(fleet.ops.schedule.depth(fleet.clock.now()).await.unwrap().feeds, 0);

    let resume = EditFeed { status: Some(Status::Active), ..EditFeed::default() };
    fleet.ops.edit(paused, &resume).await.unwrap().unwrap();
    assert_eq!(fleet.dispatched_ids().await, [paused]);
}
