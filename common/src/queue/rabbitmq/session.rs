//! One channel that consumes: its deliveries, and their settlement.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::future::try_join_all;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions, BasicRejectOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Consumer};
use tokio::sync::Notify;

use super::error::BrokerError;
use super::link::{Live, View};
use super::tags::{Settlements, Settling, Tags};
use super::topology::Topology;

/// A channel and its deliveries, each of which holds it.
pub(super) struct Session {
    channel: Channel,
    settled: Mutex<Settled>,
    news: Notify,
    sent: Notify,
    retired: AtomicBool,
    ended: AtomicBool,
}

#[derive(Default)]
struct Settled {
    tags: Tags,
    /// Settlements are being written to the socket.
    sending: bool,
}

impl Session {
    /// Consumes over a new channel of this connection.
    pub(super) async fn open(
        live: &Live,
        view: &View,
        topology: &Topology,
        prefetch: u16,
    ) -> Result<(Arc<Self>, Consumer), BrokerError> {
        let channel = live.connection.create_channel().await?;
        topology.prepare(&channel).await?;
        // Per consumer: the other kind is gone from newer brokers.
        channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
        let session = Session {
            channel,
            settled: Mutex::default(),
            news: Notify::new(),
            sent: Notify::new(),
            retired: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        };
        let session = Arc::new(session);
        tokio::spawn(send_settlements(Arc::clone(&session), live.clone(), view.clone()));
        match session.consume(topology).await {
            Ok(consumer) => Ok((session, consumer)),
            Err(trouble) => {
                // Otherwise its task would wait for the end of the connection.
                session.end();
                Err(trouble)
            }
        }
    }

    /// The broker sends as many messages as it may.
    pub(super) async fn consume(&self, topology: &Topology) -> Result<Consumer, BrokerError> {
        let (queue, options) = (topology.queue.clone(), BasicConsumeOptions::default());
        Ok(self.channel.basic_consume(queue, "".into(), options, FieldTable::default()).await?)
    }

    /// Stops the broker from sending more; what it sent before still comes out of the consumer, then its end.
    pub(super) async fn cancel(&self, consumer: &Consumer) -> Result<(), BrokerError> {
        Ok(self.channel.basic_cancel(consumer.tag(), lapin::options::BasicCancelOptions::default()).await?)
    }

    /// A delivery arrived.
    pub(super) fn arrived(&self, tag: u64) {
        self.lock().tags.arrived(tag);
    }

    /// Reports the outcome of a delivery to the broker. Returns at once: AMQP has no reply to it.
    pub(super) fn settle(&self, tag: u64, settling: Settling) -> Result<(), BrokerError> {
        if self.is_over() {
            return Err(BrokerError::ReceiptGone);
        }
        self.lock().tags.settle(tag, settling);
        self.news.notify_one();
        Ok(())
    }

    /// Waits until everything that was settled is sent to the broker.
    pub(super) async fn flush(&self) {
        loop {
            let sent = self.sent.notified();
            tokio::pin!(sent);
            sent.as_mut().enable();
            {
                let settled = self.lock();
                if self.is_over() || settled.tags.quiet() && !settled.sending {
                    return;
                }
            }
            sent.await;
        }
    }

    /// Nothing more will come: the channel ends once everything is settled.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        self.news.notify_one();
    }

    /// Nothing is settled any more, and the channel is closed: what is unsettled comes again, to anyone, also what somebody
    /// still works on.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.news.notify_one();
        self.sent.notify_waiters();
    }

    pub(super) fn is_over(&self) -> bool {
        self.ended.load(Ordering::Acquire) || !self.channel.status().connected()
    }

    /// Returns whether it is retired and everything is sent.
    fn is_done(&self) -> bool {
        self.retired.load(Ordering::Acquire) && self.lock().tags.none_left()
    }

    fn lock(&self) -> MutexGuard<'_, Settled> {
        crate::lock(&self.settled)
    }

    /// Returns what to send now, and notes that it is being sent.
    fn settlements(&self) -> Settlements {
        let mut settled = self.lock();
        settled.sending = true;
        settled.tags.settlements()
    }

    async fn send(&self, settlements: Settlements) -> Result<(), lapin::Error> {
        let channel = &self.channel;
        let returned = settlements.returned.into_iter().map(|(tag, settling)| async move {
            match settling {
                Settling::Unseen => channel.basic_nack(tag, BasicNackOptions { requeue: true, multiple: false }).await,
                settling => {
                    let requeue = settling == Settling::Returned;
                    channel.basic_reject(tag, BasicRejectOptions { requeue }).await
                }
            }
        });
        try_join_all(returned).await?;
        if let Some(tag) = settlements.acked_up_to {
            channel.basic_ack(tag, BasicAckOptions { multiple: true }).await?;
        }
        try_join_all(settlements.acked.into_iter().map(|tag| channel.basic_ack(tag, BasicAckOptions::default())))
            .await?;
        Ok(())
    }
}

/// Sends settlements to the broker for as long as the channel is open. While some are being written, others gather: the
/// busier the queue, the more acks go in one. Closes the channel at the end: otherwise the broker would keep what is unsettled
/// for it, and send no more.
async fn send_settlements(session: Arc<Session>, live: Live, view: View) {
    loop {
        tokio::select! {
            () = session.news.notified() => {}
            () = view.over(&live) => break,
        }
        // The task that settled this may be about to settle more.
        tokio::task::yield_now().await;
        if session.is_over() {
            break;
        }
        let settlements = session.settlements();
        let sent = session.send(settlements).await;
        session.lock().sending = false;
        session.sent.notify_waiters();
        if sent.is_err() || session.is_done() {
            break;
        }
    }
    session.end();
    tokio::select! {
        // An error means that it is closed already.
        _ = session.channel.close(200, "what is unsettled comes again".into()) => {}
        () = view.over(&live) => {}
    }
}
