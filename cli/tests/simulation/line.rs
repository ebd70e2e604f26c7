//! The connection from one process to one server. Every call goes through it, and the weather decides the outcome.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::life::{Kind, Life, Server};
use crate::world::{Sabotage, World};

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fate {
    /// It is answered.
    Good,
    /// It fails and has no effect.
    Before,
    /// It takes effect, and its answer is lost.
    After,
    /// It reaches the server after this time, whether or not the caller still waits.
    Late(Duration),
    /// It takes effect at once, and its answer comes after this time, if the caller still waits.
    LateAnswer(Duration),
    /// It never arrives and is never answered: the caller waits until its patience ends.
    Silent,
}

/// A call that is about to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) server: Server,
    pub(crate) name: &'static str,
}

/// Decides the outcome of calls.
pub(crate) trait Weather: Send {
    fn fate(&mut self, call: &Call, now: Instant) -> Fate;

    /// Returns how long a message is in transit.
    fn transit(&mut self) -> Duration;

    /// Returns how long connecting to an origin takes, and its answer.
    fn fetch_times(&mut self) -> [Duration; 2];
}

/// The way from one life to one server.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) world: Arc<World>,
    pub(crate) life: Arc<Life>,
    pub(crate) server: Server,
}

impl Line {
    /// Makes a call: `run` takes effect at the server, `lost` is what the caller gets without an answer.
    pub(crate) async fn call<T: Send + 'static, E: Send + 'static>(
        &self,
        name: &'static str,
        lost: fn() -> E,
        run: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        self.call_within(self.server.patience(), name, lost, run).await
    }

    /// The same, of a caller with this patience.
    pub(crate) async fn call_within<T: Send + 'static, E: Send + 'static>(
        &self,
        patience: Duration,
        name: &'static str,
        lost: fn() -> E,
        run: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        self.life.running().await;
        let call = Call { kind: self.life.kind, server: self.server, name };
        let stuck = common::lock(&self.life.stuck).contains(&self.server);
        let way = self.life.has_way(self.server) && !stuck;
        let fate = if way { self.world.fate(&self.life, call) } else { Fate::Silent };
        if fate == Fate::Silent && self.world.is_sabotaged(Sabotage::KeptLinks) {
            common::lock(&self.life.stuck).push(self.server);
        }
        let deadline = Instant::now() + patience;
        let answer = match fate {
            Fate::Before => {
                sleep(self.world.transit()).await;
                Err(lost())
            }
            Fate::Silent => {
                sleep(patience).await;
                Err(lost())
            }
            Fate::Late(by) => {
                // In transit it outlives its sender.
                let under_way = tokio::spawn(async move {
                    sleep(by).await;
                    run()
                });
                match timeout(patience, under_way).await {
                    Ok(Ok(answer)) => answer,
                    Ok(Err(_)) | Err(_) => Err(lost()),
                }
            }
            Fate::Good | Fate::After | Fate::LateAnswer(_) => {
                sleep(self.world.transit()).await;
                // A process that was killed meanwhile sent nothing.
                self.life.running().await;
                let answer = run();
                match fate {
                    Fate::After => {
                        sleep(self.world.transit()).await;
                        Err(lost())
                    }
                    Fate::LateAnswer(by) if Instant::now() + by > deadline => {
                        tokio::time::sleep_until(deadline).await;
                        Err(lost())
                    }
                    Fate::LateAnswer(by) => {
                        sleep(by).await;
                        answer
                    }
                    _ => {
                        sleep(self.world.transit()).await;
                        answer
                    }
                }
            }
        };
        self.life.running().await;
        answer
    }
}
