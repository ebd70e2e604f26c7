//! The bare part: one channel that publishes with confirms in a window, one that consumes and acks by many.

use anyhow::ensure;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
    ConfirmSelectOptions, QueueDeleteOptions,
};
use lapin::types::{FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};

use crate::{MESSAGES, PREFETCH, WINDOW};

/// Messages acked at once; divides a round.
const ACKED: usize = 100;

/// Two connections, as ours has.
pub(crate) struct Bare {
    publishing: Connection,
    consuming: Connection,
    queue: ShortString,
}

impl Bare {
    pub(crate) async fn open(url: &str, queue: &str) -> anyhow::Result<Self> {
        let publishing = Connection::connect(url, ConnectionProperties::default()).await?;
        let consuming = Connection::connect(url, ConnectionProperties::default()).await?;
        Ok(Bare { publishing, consuming, queue: queue.into() })
    }

    /// Publishes and receives a round at the same time.
    pub(crate) async fn round(&self, bytes: &[u8]) -> anyhow::Result<()> {
        let publisher =
            tokio::spawn(publish(self.publishing.create_channel().await?, self.queue.clone(), bytes.to_vec()));
        let receiver = tokio::spawn(receive(self.consuming.create_channel().await?, self.queue.clone()));
        publisher.await??;
        receiver.await?
    }

    /// Deletes the queues of these namespaces.
    pub(crate) async fn delete(&self, namespaces: &[&str]) -> anyhow::Result<()> {
        let channel = self.consuming.create_channel().await?;
        for namespace in namespaces {
            for queue in ["jobs", "jobs.dead"] {
                channel.queue_delete(format!("{namespace}.{queue}").into(), QueueDeleteOptions::default()).await?;
            }
        }
        Ok(())
    }
}

async fn publish(channel: Channel, queue: ShortString, bytes: Vec<u8>) -> anyhow::Result<()> {
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let mut window = FuturesUnordered::new();
    for _ in 0..MESSAGES {
        let properties = BasicProperties::default().with_delivery_mode(2);
        window.push(channel.basic_publish("".into(), queue.clone(), options, &bytes, properties).await?);
        if window.len() == WINDOW {
            confirmed(window.next().await.as_ref())?;
        }
    }
    while let Some(confirmation) = window.next().await {
        confirmed(Some(&confirmation))?;
    }
    channel.close(200, "done".into()).await?;
    Ok(())
}

fn confirmed(confirmation: Option<&lapin::Result<Confirmation>>) -> anyhow::Result<()> {
    ensure!(matches!(confirmation, Some(Ok(Confirmation::Ack(None)))), "a message was not confirmed");
    Ok(())
}

async fn receive(channel: Channel, queue: ShortString) -> anyhow::Result<()> {
    channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
    let consumed = channel.basic_consume(queue, "".into(), BasicConsumeOptions::default(), FieldTable::default());
    let mut consumer = consumed.await?;
    for n in 1..=MESSAGES {
        let Some(delivery) = consumer.next().await else { anyhow::bail!("the consumer was cancelled") };
        if n % ACKED == 0 {
            delivery?.acker.ack(BasicAckOptions { multiple: true }).await?;
        }
    }
    channel.basic_cancel(consumer.tag(), BasicCancelOptions::default()).await?;
    channel.close(200, "done".into()).await?;
    Ok(())
}
