//! Queries about a queue, on a separate channel.

use std::time::Duration;

use lapin::Channel;
use tokio::sync::Mutex;

use super::error::BrokerError;
use super::link::View;
use super::topology::{QueueStats, Topology};

/// Queries one queue.
pub(super) struct Control {
    publishing: View,
    consuming: View,
    topology: Topology,
    /// How long an answer may take.
    patience: Duration,
    channel: Mutex<Option<Channel>>,
}

impl Control {
    pub(super) fn new(publishing: View, consuming: View, topology: Topology, patience: Duration) -> Self {
        Control { publishing, consuming, topology, patience, channel: Mutex::default() }
    }

    /// Returns what the broker sees; fails at once when it is away.
    pub(super) async fn look(&self) -> Result<QueueStats, BrokerError> {
        tokio::time::timeout(self.patience, self.ask()).await.unwrap_or(Err(BrokerError::Silent))
    }

    /// Messages can be published and received.
    pub(super) async fn check(&self) -> Result<(), BrokerError> {
        self.publishing.live()?.blocked()?;
        self.look().await.map(|_| ())
    }

    /// Returns why the broker takes no messages of ours, as far as it said so.
    pub(super) fn blocked(&self) -> Option<String> {
        self.publishing.live().ok()?.blocked().err().map(|trouble| trouble.to_string())
    }

    async fn ask(&self) -> Result<QueueStats, BrokerError> {
        let live = self.consuming.live()?;
        let mut place = self.channel.lock().await;
        // Taken out, so that a channel whose answer did not come is not used again.
        let channel = match place.take().filter(|channel| channel.status().connected()) {
            Some(channel) => channel,
            None => {
                let channel = live.connection.create_channel().await?;
                self.topology.prepare(&channel).await?;
                channel
            }
        };
        let seen = self.topology.look(&channel).await?;
        *place = Some(channel);
        Ok(seen)
    }
}
