//! Counters and search texts, compared with a full recount.

use common::testing::draw::Draw;

use super::*;
use crate::{Move, Unmove};

fn random_url(draw: &mut Draw) -> String {
    format!("https://h{}.org/{}", draw.below(9), draw.below(150))
}

pub(crate) async fn counters_and_texts_are_those_of_a_recount_whatever_happened(backend: &dyn Backend) {
    let store = backend.open().await;
    let mut draw = Draw(20_261_122);
    let mut ids = vec![add(&*store, "https://a.org/").await];
    for step in 0..300 {
        match draw.below(10) {
            0 | 1 => {
                let new: Vec<NewFeed> = (0..1 + draw.below(12)).map(|_| new_feed(&random_url(&mut draw))).collect();
                ids.extend(store.add_feeds(&new, at(step)).await.unwrap().iter().map(|added| added.id));
            }
            2..6 => poll_some(&*store, &mut draw, &ids, step).await,
            6 => change_one(&*store, &mut draw, &ids, step).await,
            7 => move_one(&*store, &mut draw, &ids, step).await,
            8 => {
                store.erase_feed(draw.of(&ids), at(9_000)).await.unwrap();
            }
            _ => store.fold_counts().await.unwrap(),
        }
        if step % 10 == 9 {
            is_right(backend, step).await;
        }
    }
    let stats = store.stats(at(400)).await.unwrap();
    assert!(stats.feeds.len() > 6 && !stats.penalised.is_empty(), "the draws reach what they are to reach: {stats:?}");
}

async fn is_right(backend: &dyn Backend, step: u64) {
    let Audit { kept, right } = backend.audit().await;
    assert_eq!(kept, right, "after step {step}");
}

/// Applies a batch of verdicts that change feeds' counted properties.
async fn poll_some(store: &dyn Store, draw: &mut Draw, ids: &[FeedId], step: u64) {
    let mut verdicts = Vec::new();
    for _ in 0..1 + draw.below(8) {
        let Some(feed) = store.feed(&FeedRef::Id(draw.of(ids))).await.unwrap() else { continue };
        let failure = draw.of(&[FailureKind::Dns, FailureKind::Tls, FailureKind::Status]);
        let outcome = match draw.below(4) {
            0 => failed(failure),
            1 => unchanged(),
            _ => {
                let title = (draw.below(3) > 0).then(|| format!("title \"{}\" \u{dc}ber", draw.below(5)));
                Outcome::Modified(Box::new(Document { title, ..document(vec![]) }))
            }
        };
        let fails = outcome.failure().is_some();
        let mut verdict = verdict_on(&feed, step, outcome);
        verdict.category = draw.of(&Category::ALL);
        verdict.report.host = HostKey::new(&format!("h{}.org:443", draw.below(9)));
        let penalty = Penalty { kind: failure, until: at(900) };
        verdict.decision.state.penalty = (fails && draw.below(2) == 0).then_some(penalty);
        let state = &mut verdict.decision.state;
        let mut some = |share: usize| (draw.below(share) > 0).then(|| at(step));
        (state.last_success, state.gap_since, state.silent_since) = (some(5), some(2), some(2));
        let ends = fails && feed.status == Status::Active && draw.below(3) == 0;
        if ends {
            verdict.decision.status = draw.of(&[Status::Gone, Status::Blacklisted, Status::Quarantined]);
            verdict.decision.next_due = None;
        }
        verdicts.push(verdict);
    }
    apply(store, &verdicts, step).await;
}

async fn change_one(store: &dyn Store, draw: &mut Draw, ids: &[FeedId], step: u64) {
    let statuses = [Status::Active, Status::Paused, Status::Removed];
    let change = FeedChange {
        status: (draw.below(3) > 0).then(|| draw.of(&statuses)),
        audience: (draw.below(3) > 0).then(|| (Audience::default(), draw.of(&Category::ALL))),
        ..FeedChange::default()
    };
    let many: Vec<_> = (0..3).map(|_| (draw.of(ids), change.clone())).collect();
    store.change_feeds(&many, at(step)).await.unwrap();
}

async fn move_one(store: &dyn Store, draw: &mut Draw, ids: &[FeedId], step: u64) {
    let Some(feed) = store.feed(&FeedRef::Id(draw.of(ids))).await.unwrap() else { return };
    if draw.below(3) == 0 {
        let back = Unmove { host: feed.host, category: draw.of(&Category::ALL), state: feed.state };
        store.unmove_feed(feed.id, feed.version, &back, at(step)).await.unwrap();
        return;
    }
    let NewFeed { url, host, .. } = new_feed(&random_url(draw));
    let to = Move { url, host, category: draw.of(&Category::ALL), same: draw.below(2) == 0, others: Vec::new() };
    store.move_feed(feed.id, feed.version, &to, at(step)).await.unwrap();
}
