//! What every [`Queue`](super::Queue) must do, run against each implementation by [`queue_conformance!`].
#![expect(clippy::unwrap_used, reason = "a test suite")]
#![expect(missing_docs, reason = "the names say it")]

use std::time::Duration;

use super::Queue;
use crate::document::Validators;
use crate::host::HostKey;
use crate::host_gate::Ticket;
use crate::job::FetchJob;
use crate::report::{FetchReport, Outcome};
use crate::time::Timestamp;
use crate::url::{FeedId, FeedUrl, Version};

/// Stamps the suite for one implementation: `$make` returns a future of something that derefs to an empty queue, `$end`
/// takes that and returns a future that cleans up.
#[macro_export]
macro_rules! queue_conformance {
    ($make:expr, $end:expr) => {
        $crate::queue_conformance!($make, $end; what_is_published_is_received_in_order);
        $crate::queue_conformance!($make, $end; a_dropped_delivery_comes_again_marked);
        $crate::queue_conformance!($make, $end; depth_counts_waiting_and_unacked_items);
        $crate::queue_conformance!($make, $end; a_job_message_delivered_too_often_is_buried);
        $crate::queue_conformance!($make, $end; a_report_is_never_delivered_too_often);
        $crate::queue_conformance!($make, $end; a_receiver_that_waits_is_woken);
        $crate::queue_conformance!($make, $end; a_receiver_that_gave_up_takes_nothing_along);
        $crate::queue_conformance!($make, $end; acks_in_any_order_remove_their_own_messages_only);
        $crate::queue_conformance!($make, $end; receivers_at_once_share_the_messages);
        $crate::queue_conformance!($make, $end; publishers_at_once_lose_nothing);
        $crate::queue_conformance!($make, $end; after_a_pause_what_nobody_took_is_received_and_what_was_taken_is_acked);
    };
    ($make:expr, $end:expr; $name:ident) => {
        #[tokio::test]
        async fn $name() {
            let (make, end) = ($make, $end);
            let made = make().await;
            $crate::queue::conformance::$name(&*made).await;
            end(made).await;
        }
    };
}

/// Returns a report that differs by `n`.
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

/// Returns a job that differs by `n`.
pub fn job(n: i64) -> FetchJob {
    FetchJob {
        subscribers: 1,
        ..FetchJob::of(
            FeedId(n),
            Version(0),
            HostKey::new("example.com:80"),
            "http://example.com/".parse::<FeedUrl>().expect("a constant URL"),
            Ticket(1),
            Timestamp::from_millis(1000),
        )
    }
}

pub async fn what_is_published_is_received_in_order(queue: &dyn Queue<FetchReport>) {
    queue.publish(&[report(1), report(2)]).await.unwrap();
    queue.publish(&[report(3)]).await.unwrap();
    let first = queue.receive().await.unwrap();
    assert_eq!(first.items, [report(1), report(2)]);
    assert!(!first.redelivered);
    first.ack().await.unwrap();
    assert_eq!(queue.receive().await.unwrap().items, [report(3)]);
}

pub async fn a_dropped_delivery_comes_again_marked(queue: &dyn Queue<FetchReport>) {
    queue.publish(&[report(1)]).await.unwrap();
    drop(queue.receive().await.unwrap());
    let again = queue.receive().await.unwrap();
    assert_eq!(again.items, [report(1)]);
    assert!(again.redelivered);
    again.ack().await.unwrap();
    assert_eq!(queue.depth().await.unwrap().items, 0);
}

pub async fn depth_counts_waiting_and_unacked_items(queue: &dyn Queue<FetchReport>) {
    queue.publish(&[report(1), report(2)]).await.unwrap();
    queue.publish(&[report(3)]).await.unwrap();
    assert!(queue.depth().await.unwrap().items >= 3);
    let first = queue.receive().await.unwrap();
    assert!(queue.depth().await.unwrap().items >= 3);
    first.ack().await.unwrap();
    assert!(queue.depth().await.unwrap().items >= 1);
    let second = queue.receive().await.unwrap();
    assert_eq!(queue.depth().await.unwrap().items, 1, "what is in somebody's hands is counted exactly");
    second.ack().await.unwrap();
    assert_eq!(queue.depth().await.unwrap().items, 0);
}

pub async fn a_job_message_delivered_too_often_is_buried(queue: &dyn Queue<FetchJob>) {
    queue.publish(&[job(1)]).await.unwrap();
    for _ in 0..20 {
        drop(queue.receive().await.unwrap());
    }
    queue.publish(&[job(2)]).await.unwrap();
    assert_eq!(queue.receive().await.unwrap().items, [job(2)]);
}

pub async fn a_receiver_that_waits_is_woken(queue: &dyn Queue<FetchReport>) {
    let (received, published) = tokio::join!(queue.receive(), async {
        tokio::task::yield_now().await;
        queue.publish(&[report(1)]).await
    });
    published.unwrap();
    assert_eq!(received.unwrap().items, [report(1)]);
}

pub async fn a_report_is_never_delivered_too_often(queue: &dyn Queue<FetchReport>) {
    queue.publish(&[report(1)]).await.unwrap();
    for _ in 0..30 {
        assert_eq!(queue.receive().await.unwrap().items, [report(1)]);
    }
    queue.receive().await.unwrap().ack().await.unwrap();
    assert_eq!(queue.depth().await.unwrap().items, 0);
}

pub async fn a_receiver_that_gave_up_takes_nothing_along(queue: &dyn Queue<FetchReport>) {
    for n in 0..20 {
        let receiving = queue.receive();
        let given_up = tokio::time::timeout(Duration::from_millis(n), receiving).await;
        assert!(given_up.is_err());
        queue.publish(&[report(1)]).await.unwrap();
        let delivery = queue.receive().await.unwrap();
        assert!(!delivery.redelivered);
        delivery.ack().await.unwrap();
    }
}

pub async fn acks_in_any_order_remove_their_own_messages_only(queue: &dyn Queue<FetchReport>) {
    for n in 0..6 {
        queue.publish(&[report(n)]).await.unwrap();
    }
    let mut held = Vec::new();
    for n in 0..6 {
        let delivery = queue.receive().await.unwrap();
        assert_eq!(delivery.items, [report(n)]);
        held.push(Some(delivery));
    }
    let mut take = |n: usize| held[n].take().unwrap();
    for n in [4, 1, 0] {
        take(n).ack().await.unwrap();
    }
    drop(take(2));
    take(5).ack().await.unwrap();
    let again = queue.receive().await.unwrap();
    assert_eq!((again.items.as_slice(), again.redelivered), ([report(2)].as_slice(), true));
    again.ack().await.unwrap();
    take(3).ack().await.unwrap();
    assert_eq!(queue.depth().await.unwrap().items, 0);
}

pub async fn receivers_at_once_share_the_messages(queue: &dyn Queue<FetchReport>) {
    const MESSAGES: i64 = 40;
    let seen = std::sync::Mutex::new(Vec::new());
    let receiver = async || {
        for _ in 0..MESSAGES / 4 {
            let delivery = queue.receive().await.unwrap();
            seen.lock().unwrap().push(delivery.items[0].feed.0);
            delivery.ack().await.unwrap();
        }
    };
    let publisher = async {
        for n in 0..MESSAGES {
            queue.publish(&[report(n)]).await.unwrap();
        }
    };
    tokio::join!(publisher, receiver(), receiver(), receiver(), receiver());
    let mut seen = seen.into_inner().unwrap();
    seen.sort_unstable();
    assert_eq!(seen, (0..MESSAGES).collect::<Vec<_>>());
}

pub async fn publishers_at_once_lose_nothing(queue: &dyn Queue<FetchReport>) {
    let publisher = async |numbers: std::ops::Range<i64>| {
        for n in numbers {
            queue.publish(&[report(n)]).await.unwrap();
        }
    };
    tokio::join!(publisher(0..20), publisher(20..40), publisher(40..60));
    let mut seen = Vec::new();
    for _ in 0..60 {
        let delivery = queue.receive().await.unwrap();
        seen.push(delivery.items[0].feed.0);
        delivery.ack().await.unwrap();
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..60).collect::<Vec<_>>());
}

pub async fn after_a_pause_what_nobody_took_is_received_and_what_was_taken_is_acked(queue: &dyn Queue<FetchReport>) {
    queue.pause().await;
    for n in 0..6 {
        queue.publish(&[report(n)]).await.unwrap();
    }
    let acked_meanwhile = queue.receive().await.unwrap();
    let acked_later = queue.receive().await.unwrap();
    queue.pause().await;
    queue.pause().await;
    acked_meanwhile.ack().await.unwrap();
    let mut seen = Vec::new();
    for _ in 2..6 {
        let delivery = queue.receive().await.unwrap();
        seen.push(delivery.items[0].feed.0);
        delivery.ack().await.unwrap();
    }
    acked_later.ack().await.unwrap();
    seen.sort_unstable();
    assert_eq!(seen, [2, 3, 4, 5]);
    let (received, ()) = tokio::join!(queue.receive(), async {
        queue.pause().await;
        queue.publish(&[report(6)]).await.unwrap();
    });
    let received = received.unwrap();
    assert_eq!(received.items, [report(6)], "who waited during a pause goes on");
    received.ack().await.unwrap();
    queue.pause().await;
    assert_eq!(queue.depth().await.unwrap().items, 0);
}
