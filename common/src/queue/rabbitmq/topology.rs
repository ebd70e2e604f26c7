//! A queue, its dead letters and its exchange as the broker knows them. Schedulers declare them whenever they open a channel, which
//! changes nothing when they exist. Workers have no right to: they look, and wait.
//!
//! Reports go through a separate direct exchange. A right to publish is a right on an exchange, and with the default exchange
//! a worker could publish to every queue of the virtual host.

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::protocol::AMQPSoftError;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Connection, ErrorKind, ExchangeKind};

use super::super::Message;
use super::error::{BrokerError, soft_error};

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
    /// Messages are published through this one; `None`: through the default exchange.
    exchange: Option<ShortString>,
    /// This process declares what is missing.
    declares: bool,
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
    pub(super) fn of<T: Message>(namespace: &str, name: &str, declares: bool) -> Self {
        // The broker counts returns and buries a message at one more than the limit.
        let returns = T::DELIVERY_LIMIT.map_or(NO_LIMIT, |deliveries| i64::from(deliveries).saturating_sub(1));
        let queue = format!("{namespace}.{name}");
        let exchange = T::BY_WORKERS.then(|| queue.as_str().into());
        Topology { dead: format!("{queue}.dead").into(), queue: queue.into(), exchange, declares, returns }
    }

    /// Makes sure that queue, dead letters and exchange exist, or fails because they do not yet.
    pub(super) async fn prepare(&self, channel: &Channel) -> Result<(), BrokerError> {
        if !self.declares {
            let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
            let found = channel.queue_declare(self.queue.clone(), passive, FieldTable::default()).await;
            return found.map(drop).map_err(|error| self.undeclared(error));
        }
        // The dead letters first: what is buried must find its grave.
        self.declare_one(channel, &self.dead, self.dead_arguments()).await?;
        self.declare_one(channel, &self.queue, self.arguments()).await?;
        if let Some(exchange) = &self.exchange {
            let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
            let (direct, none) = (ExchangeKind::Direct, FieldTable::default());
            channel.exchange_declare(exchange.clone(), direct, durable, none.clone()).await?;
            let (queue, key) = (self.queue.clone(), self.queue.clone());
            channel.queue_bind(queue, exchange.clone(), key, QueueBindOptions::default(), none).await?;
        }
        Ok(())
    }

    /// Returns the exchange to publish through. While schedulers of an earlier version declare, there is only the default one,
    /// which a worker with the rights of that version may use.
    pub(super) async fn exchange(&self, connection: &Connection) -> Result<ShortString, BrokerError> {
        let Some(exchange) = self.exchange.clone() else { return Ok("".into()) };
        if self.declares {
            return Ok(exchange);
        }
        // A missing exchange costs the channel on which it was looked for.
        let channel = connection.create_channel().await?;
        let passive = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
        let found =
            channel.exchange_declare(exchange.clone(), ExchangeKind::Direct, passive, FieldTable::default()).await;
        match found {
            Ok(()) => {
                // What is left of it ends with the connection.
                let _ = channel.close(200, "looked".into()).await;
                Ok(exchange)
            }
            Err(error) if soft_error(&error) == Some(AMQPSoftError::NOTFOUND) => Ok("".into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Names what has to be declared before this process can work, if that is the reason.
    pub(super) fn undeclared(&self, error: lapin::Error) -> BrokerError {
        match soft_error(&error) {
            Some(AMQPSoftError::NOTFOUND) if !self.declares => BrokerError::Undeclared(self.queue.to_string()),
            // The default exchange, in place of one that is missing.
            Some(AMQPSoftError::ACCESSREFUSED) if !self.declares && names_default_exchange(&error) => {
                BrokerError::Undeclared(self.queue.to_string())
            }
            _ => error.into(),
        }
    }

    /// Returns the numbers of messages in both; they must exist.
    pub(super) async fn look(&self, channel: &Channel) -> Result<QueueStats, BrokerError> {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let look = async |name: &ShortString| channel.queue_declare(name.clone(), passive, FieldTable::default()).await;
        let dead = look(&self.dead).await.map_err(|error| self.undeclared(error))?;
        let queue = look(&self.queue).await.map_err(|error| self.undeclared(error))?;
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
        declared.map(|_| ()).map_err(|error| match soft_error(&error) {
            Some(AMQPSoftError::PRECONDITIONFAILED) => {
                BrokerError::OtherSettings { queue: name.to_string(), reason: message(&error).to_owned() }
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
            // Without it a dead letter may be lost in transit; it needs the other.
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

/// Returns the broker's own words.
fn message(error: &lapin::Error) -> &str {
    match error.kind() {
        ErrorKind::ProtocolError(refusal) => refusal.get_message().as_str(),
        _ => "",
    }
}

fn names_default_exchange(error: &lapin::Error) -> bool {
    let message = message(error);
    message.contains("amq.default") || message.contains("exchange ''")
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
