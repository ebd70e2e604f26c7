//! One connection to the broker, kept up by a supervisor of ours.
//!
//! lapin can recover automatically, but gives up after some attempts and replays what it remembers. Here every
//! connection is a new one with a number, its users open new channels, and what belonged to an earlier one fails
//! cleanly.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use lapin::{Connection, Event};
use prometheus::IntGauge;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::backoff::Backoff;
use super::dial::{Addresses, Dialer};
use super::error::BrokerError;
use super::herald::Herald;

/// A connection that lived this long starts a new row of attempts.
const SETTLED: Duration = Duration::from_secs(5);
/// lapin reports errors at once, but not every orderly end.
const LOOK: Duration = Duration::from_millis(200);
/// How long the orderly end of a connection may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// A supervised connection. Its supervisor ends when this is dropped.
pub(super) struct Link {
    view: View,
    stop: watch::Sender<bool>,
    supervisor: Mutex<Option<JoinHandle<()>>>,
}

/// A user's handle to a link. Does not keep it connected.
#[derive(Clone)]
pub(super) struct View(watch::Receiver<State>);

#[derive(Clone)]
enum State {
    Down(String),
    Up(Live),
    Closed,
}

/// A connection that is up.
#[derive(Clone)]
pub(super) struct Live {
    pub(super) connection: Arc<Connection>,
    /// Distinguishes this connection from earlier and later ones of its link.
    number: u64,
    blocked: watch::Receiver<Option<String>>,
}

impl Link {
    /// Starts connecting; `name` is shown by the broker's tools, `blocked_count` counts connections that are blocked.
    pub(super) fn start(
        addresses: &Arc<Addresses>,
        name: String,
        herald: Arc<Herald>,
        blocked_count: IntGauge,
    ) -> Self {
        let (state, view) = watch::channel(State::Down("connecting".into()));
        let (stop, stopped) = watch::channel(false);
        let member = herald.enter();
        let dialer = Dialer::new(Arc::clone(addresses), name);
        let supervisor = Supervisor { state, stopped, herald, member, blocked_count };
        let supervisor = Mutex::new(Some(tokio::spawn(supervisor.run(dialer))));
        Link { view: View(view), stop, supervisor }
    }

    pub(super) fn view(&self) -> View {
        self.view.clone()
    }

    /// Ends the connection in order; what was sent on it has arrived then, if the broker still listens.
    pub(super) async fn close(&self) {
        self.stop.send_replace(true);
        let supervisor = crate::lock(&self.supervisor).take();
        if let Some(supervisor) = supervisor {
            // It never panics; and if it did, it would be over.
            let _ = supervisor.await;
        }
    }
}

impl View {
    /// Returns the connection, if it is up now.
    pub(super) fn live(&self) -> Result<Live, BrokerError> {
        match &*self.0.borrow() {
            State::Up(live) => Ok(live.clone()),
            State::Down(reason) => Err(BrokerError::Unreachable(reason.clone())),
            State::Closed => Err(BrokerError::Closed),
        }
    }

    /// Returns the connection as soon as it is up; fails only when the link was closed.
    pub(super) async fn up(&self) -> Result<Live, BrokerError> {
        let mut state = self.0.clone();
        let state = state.wait_for(|state| !matches!(state, State::Down(_))).await;
        match state.as_deref() {
            Ok(State::Up(live)) => Ok(live.clone()),
            _ => Err(BrokerError::Closed),
        }
    }

    /// Returns when that connection has ended.
    pub(super) async fn over(&self, of: &Live) {
        let mut state = self.0.clone();
        let other = |state: &State| !matches!(state, State::Up(live) if live.number == of.number);
        // An error means that the link itself is gone.
        let _ = state.wait_for(other).await;
    }
}

impl Live {
    #[cfg(test)]
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Fails with the reason if the broker takes no messages on this connection.
    pub(super) fn blocked(&self) -> Result<(), BrokerError> {
        self.blocked.borrow().clone().map_or(Ok(()), |reason| Err(BrokerError::Blocked(reason)))
    }

    /// Returns when the broker takes messages.
    pub(super) async fn unblocked(&self) -> Result<(), BrokerError> {
        let mut blocked = self.blocked.clone();
        let free = blocked.wait_for(Option::is_none).await;
        free.map(|_| ()).map_err(|_| BrokerError::Unreachable("the connection was lost".into()))
    }
}

struct Supervisor {
    state: watch::Sender<State>,
    stopped: watch::Receiver<bool>,
    herald: Arc<Herald>,
    member: usize,
    blocked_count: IntGauge,
}

impl Supervisor {
    async fn run(self, mut dialer: Dialer) {
        let mut backoff = Backoff::new();
        let mut number = 0;
        loop {
            let attempt = tokio::select! {
                attempt = dialer.connect() => attempt,
                () = self.stop_asked() => break,
            };
            let reason = match attempt {
                Ok(connection) => {
                    number += 1;
                    let begun = Instant::now();
                    let Some(reason) = self.serve(connection, number).await else { break };
                    if begun.elapsed() > SETTLED {
                        backoff = Backoff::new();
                    }
                    reason
                }
                Err(reason) => reason,
            };
            self.herald.down(self.member, &reason);
            self.state.send_replace(State::Down(reason));
            tokio::select! {
                () = tokio::time::sleep(backoff.delay()) => {}
                () = self.stop_asked() => break,
            }
        }
        self.state.send_replace(State::Closed);
    }

    /// Returns when the link was closed, or dropped, which is the error.
    async fn stop_asked(&self) {
        let _ = self.stopped.clone().wait_for(|stopped| *stopped).await;
    }

    /// Shows the connection to its users until it ends, and returns why; `None` if we closed it.
    async fn serve(&self, connection: Connection, number: u64) -> Option<String> {
        let mut events = Box::pin(connection.events_listener());
        let connection = Arc::new(connection);
        let (blocked, view) = watch::channel(None);
        self.state.send_replace(State::Up(Live { connection: Arc::clone(&connection), number, blocked: view }));
        self.herald.up(self.member);
        let (mut last_error, mut counted) = (None, None);
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = tokio::time::sleep(LOOK) => None,
                () = self.stop_asked() => {
                    // A connection that is lost at this moment is closed too.
                    let _ = tokio::time::timeout(FAREWELL, connection.close(200, "goodbye".into())).await;
                    return None;
                }
            };
            match event {
                // A channel's error is an event too, and no reason to end the connection of all the others.
                Some(Event::Error(error)) => last_error = Some(error.to_string()),
                Some(Event::ConnectionBlocked(reason)) => {
                    tracing::warn!(reason, "RabbitMQ accepts no messages: one of its nodes has an alarm");
                    counted.get_or_insert_with(|| Counted::in_gauge(&self.blocked_count));
                    blocked.send_replace(Some(reason));
                }
                Some(Event::ConnectionUnblocked) => {
                    tracing::info!("RabbitMQ accepts messages again");
                    counted = None;
                    blocked.send_replace(None);
                }
                _ => {}
            }
            if !connection.status().connected() {
                return last_error.or_else(|| Some("the broker closed the connection".into()));
            }
        }
    }
}

/// Counts in a gauge until it is dropped.
struct Counted(IntGauge);

impl Counted {
    fn in_gauge(gauge: &IntGauge) -> Self {
        gauge.inc();
        Counted(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
