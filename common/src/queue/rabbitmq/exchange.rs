//! A durable topic exchange: messages for every queue that is bound to it; without one they are dropped.

use std::sync::Arc;

use async_trait::async_trait;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, ExchangeKind, PublisherConfirm};

use super::super::announce::{Announce, Announcement, Published};
use super::error::BrokerError;
use super::link::Link;
use super::publisher::PERSISTENT;

/// A topic exchange of a broker. Publishing over it is for one at a time: order is kept on one channel only.
pub struct Exchange {
    link: Arc<Link>,
    name: ShortString,
    channel: Option<Channel>,
    /// A queue refused the last message that was sent: the next one goes alone, so that those behind it do not overtake it again.
    refused: bool,
}

impl Exchange {
    pub(super) fn new(link: Arc<Link>, name: &str) -> Self {
        Exchange { link, name: name.into(), channel: None, refused: false }
    }

    async fn send(&mut self, messages: &[Announcement], confirmed: &mut usize) -> Result<(), BrokerError> {
        // Taken out: after an error, or when the future is dropped, no channel with messages in flight is left behind.
        let channel = match self.channel.take().filter(|channel| channel.status().connected()) {
            Some(channel) => channel,
            None => self.open().await?,
        };
        let (alone, others) = messages.split_at(usize::from(self.refused).min(messages.len()));
        for messages in [alone, others] {
            let mut confirmations = Vec::with_capacity(messages.len());
            for message in messages {
                confirmations.push(self.send_one(&channel, message).await?);
            }
            for confirmation in confirmations {
                match confirmation.await? {
                    Confirmation::Ack(_) => *confirmed += 1,
                    Confirmation::Nack(_) | Confirmation::NotRequested => {
                        self.refused = true;
                        return Err(BrokerError::Refused);
                    }
                }
            }
        }
        (self.channel, self.refused) = (Some(channel), false);
        Ok(())
    }

    async fn send_one(&self, channel: &Channel, message: &Announcement) -> Result<PublisherConfirm, BrokerError> {
        // A text that is too long is left out: `into` would panic.
        let short = |text: &str| ShortString::try_new(text).ok();
        let mut headers = FieldTable::default();
        for (name, value) in &message.headers {
            if let Some(name) = short(name) {
                headers.insert(name, AMQPValue::LongString(value.as_str().into()));
            }
        }
        let properties = BasicProperties::default()
            .with_headers(headers)
            .with_delivery_mode(PERSISTENT)
            .with_content_type("application/json".into())
            .with_message_id(short(&message.id).unwrap_or_default())
            .with_type(short(&message.kind).unwrap_or_default());
        let (key, options) = (short(&message.key).unwrap_or_default(), BasicPublishOptions::default());
        Ok(channel.basic_publish(self.name.clone(), key, options, &message.body, properties).await?)
    }

    async fn open(&self) -> Result<Channel, BrokerError> {
        let live = self.link.view().up().await?;
        live.unblocked().await?;
        let channel = live.connection.create_channel().await?;
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        channel.exchange_declare(self.name.clone(), ExchangeKind::Topic, durable, FieldTable::default()).await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(channel)
    }
}

#[async_trait]
impl Announce for Exchange {
    async fn publish(&mut self, messages: &[Announcement]) -> Published {
        let mut confirmed = 0;
        let sent = self.send(messages, &mut confirmed).await;
        let trouble = sent.err().map(|trouble| trouble.while_doing("announce events"));
        Published { confirmed, trouble }
    }
}
