//! What every [`Queue`](super::Queue) must do, run against each implementation by [`queue_conformance!`].
#![expect(clippy::unwrap_used, reason = "a test suite")]

use std::time::Duration;

use super::Queue;
use crate::feed::{FeedId, FeedUrl, Validators, Version};
use crate::host::HostKey;
use crate::host_gate::Ticket;
use crate::job::FetchJob;
use crate::known::KnownEntries;
use crate::report::{FetchReport, Outcome};
use crate::time::Timestamp;

/// Stamps the suite for one implementation: `$make` is a closure that gives a future of an empty queue.
#[macro_export]
macro_rules! queue_conformance {
    ($make:expr) => {
        $crate::queue_conformance!($make; what_is_published_is_received_in_order);
        $crate::queue_conformance!($make; a_dropped_delivery_comes_again_marked);
        $crate::queue_conformance!($make; depth_counts_waiting_and_unacked_items);
        $crate::queue_conformance!($make; a_job_message_delivered_too_often_is_buried);
        $crate::queue_conformance!($make; a_receiver_that_waits_is_woken);
    };
    ($make:expr; $name:ident) => {
        #[tokio::test]
        async fn $name() {
            $crate::queue::conformance::$name(&$make().await).await;
        }
    };
}

/// A report that differs by `n`.
pub fn report(n: i64) -> FetchReport {
    FetchReport {
        duration: Duration::from_millis(5),
        http_status: Some(304),
        conditional: true,
        ..FetchReport::of(
            FeedId(n),
            Version(0),
            HostKey::new("example.com:80"),
            Timestamp::from_millis(n),
            Outcome::NotModified { validators: Validators::default() },
        )
    }
}

/// A job that differs by `n`.
pub fn job(n: i64) -> FetchJob {
    FetchJob {
        feed: FeedId(n),
        version: Version(0),
        url: "http://example.com/".parse::<FeedUrl>().expect("a constant URL"),
        host: HostKey::new("example.com:80"),
        ticket: Ticket(1),
        expires: Timestamp::from_millis(1000),
        validators: Validators::default(),
        content_hash: None,
        known: KnownEntries::default(),
        wake_at: None,
        subscribers: 1,
    }
}

#[expect(missing_docs, reason = "the names say it")]
pub async fn what_is_published_is_received_in_order(queue: &dyn Queue<FetchReport>) {
    queue.publish(&[report(1), report(2)]).await.unwrap();
    queue.publish(&[report(3)]).await.unwrap();
    let first = queue.receive().await.unwrap();
    assert_eq!(first.items, [report(1), report(2)]);
    assert!(!first.redelivered);
    first.ack().await.unwrap();
    assert_eq!(queue.receive().await.unwrap().items, [report(3)]);
}

#[expect(missing_docs, reason = "the names say it")]
pub async fn a_dropped_delivery_comes_again_marked(queue: &dyn Queue<FetchReport>) {
    queue.publish(&[report(1)]).await.unwrap();
    drop(queue.receive().await.unwrap());
    let again = queue.receive().await.unwrap();
    assert_eq!(again.items, [report(1)]);
    assert!(again.redelivered);
    again.ack().await.unwrap();
    assert_eq!(queue.depth().await.unwrap().items, 0);
}

#[expect(missing_docs, reason = "the names say it")]
pub async fn depth_counts_waiting_and_unacked_items(queue: &dyn Queue<FetchReport>) {
    queue.publish(&[report(1), report(2)]).await.unwrap();
    queue.publish(&[report(3)]).await.unwrap();
    assert_eq!(queue.depth().await.unwrap().items, 3);
    let first = queue.receive().await.unwrap();
    assert_eq!(queue.depth().await.unwrap().items, 3);
    first.ack().await.unwrap();
    assert_eq!(queue.depth().await.unwrap().items, 1);
}

#[expect(missing_docs, reason = "the names say it")]
pub async fn a_job_message_delivered_too_often_is_buried(queue: &dyn Queue<FetchJob>) {
    queue.publish(&[job(1)]).await.unwrap();
    for _ in 0..20 {
        drop(queue.receive().await.unwrap());
    }
    queue.publish(&[job(2)]).await.unwrap();
    assert_eq!(queue.receive().await.unwrap().items, [job(2)]);
}

#[expect(missing_docs, reason = "the names say it")]
pub async fn a_receiver_that_waits_is_woken(queue: &dyn Queue<FetchReport>) {
    let (received, published) = tokio::join!(queue.receive(), async {
        tokio::task::yield_now().await;
        queue.publish(&[report(1)]).await
    });
    published.unwrap();
    assert_eq!(received.unwrap().items, [report(1)]);
}
