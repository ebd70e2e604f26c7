//! What a worker learns from the host gate, whether it has jobs or not: the rules that operators set, which schedulers show there, and
//! which server is the gate.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::poll::Poller;

/// How often a change is looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Keeps a poller's rules as the gate shows them.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    known: Option<String>,
    asked: bool,
}

impl Follower {
    /// Returns once the rules were read from the gate: before that no request may be sent by rules that may be older.
    pub(crate) async fn begin(&mut self, poller: &Poller, stop: &CancellationToken) {
        while !self.asked && !stop.is_cancelled() {
            self.look(poller).await;
            if !self.asked {
                common::sleep_or_stop(LOOK_EVERY, stop).await;
            }
        }
    }

    /// Looks until stopped. A gate that does not answer changes nothing; nothing is fetched without it either.
    pub(crate) async fn run(mut self, poller: &Poller, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            self.look(poller).await;
            common::sleep_or_stop(LOOK_EVERY, stop).await;
        }
    }

    async fn look(&mut self, poller: &Poller) {
        // A worker without jobs would not notice that another server is the gate for a while, and would use the first one again.
        if let Err(error) = poller.time().await {
            tracing::debug!(error = &error as &dyn std::error::Error, "the host gate was not checked");
        }
        match poller.gate.shown_rules(self.known.as_deref()).await {
            Ok(shown) => {
                self.asked = true;
                if let Some(text) = shown {
                    poller.rules.take(&text);
                    self.known = Some(text);
                }
            }
            Err(error) => tracing::debug!(error = &error as &dyn std::error::Error, "the host rules were not read"),
        }
    }
}
