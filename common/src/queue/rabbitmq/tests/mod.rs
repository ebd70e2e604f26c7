//! Against a real broker: `dev/test`, or `eval "$(dev/services urls)"` after `dev/services up`.

mod cluster;
mod dead_letters;
mod ends;
mod exchange;
mod outages;
mod own_broker;
mod rights;
mod several;
mod tls;
mod traffic;

use std::ops::Deref;

use lapin::options::{ExchangeDeleteOptions, QueueDeleteOptions};
use lapin::{Channel, Connection, ConnectionProperties};

use super::*;

crate::queue_conformance!(TestQueue::make, TestQueue::end);

pub(super) fn url() -> String {
    std::env::var("FEEDFLEET_TEST_RABBITMQ").unwrap_or_else(|_| {
        panic!("this test needs RabbitMQ: run dev/test, or `eval \"$(dev/services urls)\"` after `dev/services up`")
    })
}

/// Returns a unique namespace.
pub(super) fn namespace() -> String {
    format!("test-{:016x}", rand::Rng::next_u64(&mut rand::rng()))
}

/// A queue in a separate namespace.
pub(super) struct TestQueue<T> {
    pub(super) broker: Broker,
    pub(super) namespace: String,
    pub(super) metrics: Metrics,
    queue: RabbitQueue<T>,
}

impl<T: Message> TestQueue<T> {
    pub(super) async fn make() -> Self {
        Self::with_prefetch(Prefetch::Unacked(50)).await
    }

    pub(super) async fn with_prefetch(prefetch: Prefetch) -> Self {
        Self::of(namespace(), prefetch).await
    }

    /// Returns a further process with the queue of this namespace.
    pub(super) async fn over(namespace: String) -> Self {
        Self::of(namespace, Prefetch::Unacked(50)).await
    }

    async fn of(namespace: String, prefetch: Prefetch) -> Self {
        let metrics = Metrics::new();
        let broker = connected(&namespace, &metrics).await;
        let queue = broker.queue(prefetch);
        TestQueue { broker, namespace, metrics, queue }
    }

    /// Another process with the same queue.
    pub(super) async fn another(&self, prefetch: u16) -> (Broker, RabbitQueue<T>) {
        let broker = connected(&self.namespace, &self.metrics).await;
        let queue = broker.queue(Prefetch::Unacked(prefetch));
        (broker, queue)
    }

    pub(super) async fn end(self) {
        self.broker.close().await;
        let (_connection, channel) = bare().await;
        for queue in ["jobs", "reports"].map(|name| format!("{}.{name}", self.namespace)) {
            for queue in [format!("{queue}.dead"), queue.clone()] {
                channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await.unwrap();
            }
            channel.exchange_delete(queue.into(), ExchangeDeleteOptions::default()).await.unwrap();
        }
    }
}

impl<T> Deref for TestQueue<T> {
    type Target = RabbitQueue<T>;

    fn deref(&self) -> &RabbitQueue<T> {
        &self.queue
    }
}

/// Returns a connection with long time limits: tests that are not about limits must not reach them on a busy machine.
pub(super) fn patient(url: &str, namespace: &str, metrics: &Metrics) -> Broker {
    let mut broker = Broker::connect(&ServerConfig::at(url), namespace, metrics).unwrap();
    let patience = Duration::from_secs(120);
    broker.limits = Limits { answer: patience, publish: patience, ..Limits::default() };
    broker
}

async fn connected(namespace: &str, metrics: &Metrics) -> Broker {
    let broker = patient(&url(), namespace, metrics);
    broker.links.publishing.view().up().await.unwrap();
    broker.links.consuming.view().up().await.unwrap();
    broker
}

/// Returns the broker without us in between.
pub(super) async fn bare() -> (Connection, Channel) {
    let connection = Connection::connect(&url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    (connection, channel)
}
