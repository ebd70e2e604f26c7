//! A queue and its dead letters as the broker knows them. Declaring them again changes nothing, so everyone who opens a
//! channel does.

use lapin::options::QueueDeclareOptions;
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, ErrorKind};

use super::super::Message;
use super::error::BrokerError;

/// What no message reaches. 3.10 knows no other word for "for ever", and 4.x takes a queue without one for 20.
const NO_LIMIT: i64 = i32::MAX as i64;
/// Dead letters that are kept for a look; older ones go.
const DEAD_LETTERS: i64 = 10_000;
const DEAD_LETTER_BYTES: i64 = 256 << 20;

/// The names and settings of a queue.
#[derive(Clone, Debug)]
pub(super) struct Topology {
    pub(super) queue: ShortString,
    pub(super) dead: ShortString,
    /// How often a message may come back before it goes to the dead letters.
    returns: i64,
}

/// What the broker reports about a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueStats {
    /// Messages that wait.
    pub(super) ready: usize,
    pub(super) consumers: usize,
    /// Messages in the dead letters.
    pub(super) dead: usize,
}

impl Topology {
    pub(super) fn of<T: Message>(namespace: &str) -> Self {
        // The broker counts returns and buries a message at one more than the limit.
        let returns = T::DELIVERY_LIMIT.map_or(NO_LIMIT, |deliveries| i64::from(deliveries).saturating_sub(1));
        let queue = format!("{namespace}.{}", T::QUEUE);
        Topology { dead: format!("{queue}.dead").into(), queue: queue.into(), returns }
    }

    /// Makes sure that both exist.
    pub(super) async fn declare(&self, channel: &Channel) -> Result<(), BrokerError> {
        // The dead letters first: what is buried must find its grave.
        self.declare_one(channel, &self.dead, self.dead_arguments()).await?;
        self.declare_one(channel, &self.queue, self.arguments()).await
    }

    /// Returns the numbers of messages in both; they must exist.
    pub(super) async fn look(&self, channel: &Channel) -> Result<QueueStats, BrokerError> {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let dead = channel.queue_declare(self.dead.clone(), passive, FieldTable::default()).await?;
        let queue = channel.queue_declare(self.queue.clone(), passive, FieldTable::default()).await?;
        Ok(QueueStats {
            ready: queue.message_count() as usize,
            consumers: queue.consumer_count() as usize,
            dead: dead.message_count() as usize,
        })
    }

    async fn declare_one(
        &self,
        channel: &Channel,
        name: &ShortString,
        arguments: FieldTable,
    ) -> Result<(), BrokerError> {
        let declared = channel.queue_declare(name.clone(), QueueDeclareOptions::durable(), arguments).await;
        declared.map(|_| ()).map_err(|error| match error.kind() {
            ErrorKind::ProtocolError(refusal)
                if *refusal.kind() == AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED) =>
            {
                BrokerError::OtherSettings { queue: name.to_string(), reason: refusal.get_message().to_string() }
            }
            _ => error.into(),
        })
    }

    fn arguments(&self) -> FieldTable {
        table([
            ("x-queue-type", text("quorum")),
            ("x-delivery-limit", AMQPValue::LongLongInt(self.returns)),
            ("x-dead-letter-exchange", text("")),
            ("x-dead-letter-routing-key", text(self.dead.as_str())),
            // Without it a dead letter may be lost on its way; it needs the other.
            ("x-dead-letter-strategy", text("at-least-once")),
            ("x-overflow", text("reject-publish")),
        ])
    }

    fn dead_arguments(&self) -> FieldTable {
        table([
            ("x-queue-type", text("quorum")),
            ("x-delivery-limit", AMQPValue::LongLongInt(NO_LIMIT)),
            ("x-max-length", AMQPValue::LongLongInt(DEAD_LETTERS)),
            ("x-max-length-bytes", AMQPValue::LongLongInt(DEAD_LETTER_BYTES)),
        ])
    }
}

fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

fn table<const N: usize>(fields: [(&str, AMQPValue); N]) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in fields {
        table.insert(name.into(), value);
    }
    table
}
