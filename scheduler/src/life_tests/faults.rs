//! Calls that fail in the middle of a round.

use common::faults::{Fault, Faults, Faulty};

use super::*;

#[tokio::test]
async fn jobs_that_are_in_the_queue_stay_hidden_when_others_of_their_round_could_not_be_published() {
    let mut fleet = Fleet::new().await;
    let batch = fleet.dispatcher.config.worker.job_batch;
    let mut feeds = Vec::new();
    for n in 0..batch + 3 {
        feeds.push(fleet.add(&format!("https://h{n}.org/feed")).await);
    }
    // The queue's depth is asked for first, then come the messages.
    let faults = Faults::at([(2, Fault::Before)]);
    let queue: Arc<dyn Queue<FetchJob>> = fleet.jobs.clone();
    fleet.dispatcher.jobs = Arc::new(Faulty::new(queue, &faults));
    fleet.dispatcher.round(fleet.clock.now(), usize::MAX).await.unwrap_err();
    assert_eq!(faults.struck().len(), 1);
    let published = fleet.jobs.receive().await.unwrap();
    let hidden: Vec<FeedId> = published.items.iter().map(|job| job.feed).collect();
    assert_eq!(hidden.len(), batch);
    published.ack().await.unwrap();
    // The claims of those that were not published end soon, and theirs alone.
    fleet.clock.advance(fleet.dispatcher.config.scheduler.claim_lease + GAP);
    let mut again = fleet.dispatched_ids().await;
    again.sort_unstable();
    feeds.retain(|feed| !hidden.contains(feed));
    assert_eq!(again, feeds);
}
