//! One channel that consumes: what came on it, and the telling of what became of that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::try_join_all;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions, BasicRejectOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Consumer};
use tokio::sync::Notify;

use super::error::Trouble;
use super::link::{Live, View};
use super::tags::{Settling, Tags, Words};
use super::topology::Topology;

/// A channel and its deliveries. Whoever holds one of them holds this.
pub(super) struct Session {
    channel: Channel,
    settled: Mutex<Settled>,
    news: Notify,
    told: Notify,
    retired: AtomicBool,
    ended: AtomicBool,
}

#[derive(Default)]
struct Settled {
    tags: Tags,
    /// Words are on their way to the socket.
    telling: bool,
}

impl Session {
    /// Consumes over a new channel of this connection.
    pub(super) async fn open(
        live: &Live,
        view: &View,
        topology: &Topology,
        prefetch: u16,
    ) -> Result<(Arc<Self>, Consumer), Trouble> {
        let channel = live.connection.create_channel().await?;
        topology.declare(&channel).await?;
        // Per consumer: the other kind is gone from newer brokers.
        channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
        let session = Session {
            channel,
            settled: Mutex::default(),
            news: Notify::new(),
            told: Notify::new(),
            retired: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        };
        let session = Arc::new(session);
        tokio::spawn(tell(Arc::clone(&session), live.clone(), view.clone()));
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
    pub(super) async fn consume(&self, topology: &Topology) -> Result<Consumer, Trouble> {
        let (queue, options) = (topology.queue.clone(), BasicConsumeOptions::default());
        Ok(self.channel.basic_consume(queue, "".into(), options, FieldTable::default()).await?)
    }

    /// Stops the broker from sending more; what it sent before still comes out of the consumer, then its end.
    pub(super) async fn cancel(&self, consumer: &Consumer) -> Result<(), Trouble> {
        Ok(self.channel.basic_cancel(consumer.tag(), lapin::options::BasicCancelOptions::default()).await?)
    }

    /// A delivery arrived.
    pub(super) fn arrived(&self, tag: u64) {
        self.lock().tags.arrived(tag);
    }

    /// The broker shall know what became of a delivery. Returns at once: AMQP answers nothing to it.
    pub(super) fn settle(&self, tag: u64, settling: Settling) -> Result<(), Trouble> {
        if self.is_over() {
            return Err(Trouble::ReceiptGone);
        }
        self.lock().tags.settle(tag, settling);
        self.news.notify_one();
        Ok(())
    }

    /// Everything that was settled is on its way to the broker.
    pub(super) async fn flush(&self) {
        loop {
            let told = self.told.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            {
                let settled = self.lock();
                if self.is_over() || settled.tags.quiet() && !settled.telling {
                    return;
                }
            }
            told.await;
        }
    }

    /// Nothing more will come: the channel ends once everything is settled.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        self.news.notify_one();
    }

    /// What is unsettled comes again, to anyone.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.news.notify_one();
        self.told.notify_waiters();
    }

    pub(super) fn is_over(&self) -> bool {
        self.ended.load(Ordering::Acquire) || !self.channel.status().connected()
    }

    /// Retired, and everything is told.
    fn is_done(&self) -> bool {
        self.retired.load(Ordering::Acquire) && self.lock().tags.none_left()
    }

    fn lock(&self) -> MutexGuard<'_, Settled> {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What to tell now; notes that it is being told.
    fn words(&self) -> Words {
        let mut settled = self.lock();
        settled.telling = true;
        settled.tags.words()
    }

    async fn send(&self, words: Words) -> Result<(), lapin::Error> {
        let channel = &self.channel;
        let given_back = words.given_back.into_iter().map(|(tag, settling)| async move {
            match settling {
                Settling::Unseen => channel.basic_nack(tag, BasicNackOptions { requeue: true, multiple: false }).await,
                settling => {
                    let requeue = settling == Settling::Returned;
                    channel.basic_reject(tag, BasicRejectOptions { requeue }).await
                }
            }
        });
        try_join_all(given_back).await?;
        if let Some(tag) = words.acked_up_to {
            channel.basic_ack(tag, BasicAckOptions { multiple: true }).await?;
        }
        try_join_all(words.acked.into_iter().map(|tag| channel.basic_ack(tag, BasicAckOptions::default()))).await?;
        Ok(())
    }
}

/// Tells the broker what was settled, for as long as the channel lives. While some words are on their way, others
/// gather: the busier the queue, the more acks go in one.
async fn tell(session: Arc<Session>, live: Live, view: View) {
    loop {
        tokio::select! {
            () = session.news.notified() => {}
            () = view.over(&live) => break,
        }
        // Whoever settled this may be about to settle more.
        tokio::task::yield_now().await;
        if session.is_over() {
            break;
        }
        let words = session.words();
        let sent = session.send(words).await;
        session.lock().telling = false;
        session.told.notify_waiters();
        if sent.is_err() || session.is_done() {
            break;
        }
    }
    session.end();
}
