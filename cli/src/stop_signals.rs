//! Ctrl-C and SIGTERM: the first one starts a shutdown, and the second one skips the rest of it.

use std::io;

use common::config::LogFormat;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Both signals, from when they were first caught: one that arrives between two waits is not lost.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// Catches both signals from now on.
    pub(crate) fn caught() -> io::Result<Self> {
        Ok(StopSignals { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next signal, or returns at once if one has arrived since the last wait.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Shuts down, or skips the rest of it at the next signal: every step may be interrupted, as by a power failure.
    pub(crate) async fn end(
        &mut self,
        log: LogFormat,
        shutdown: impl Future<Output = anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        tokio::select! {
            ended = shutdown => ended,
            () = self.next() => {
                announce!(log, "stopped without waiting; unfinished fetches will be repeated");
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Sends this process a signal that both tests and the program catch.
    fn interrupt() {
        let id = std::process::id().to_string();
        assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    }

    #[tokio::test]
    async fn a_second_signal_skips_the_rest_of_a_shutdown_also_if_it_arrives_before_that_begins() {
        let mut signals = StopSignals::caught().unwrap();
        interrupt();
        signals.next().await;
        interrupt();
        tokio::time::sleep(Duration::from_millis(100)).await;
        signals.end(LogFormat::Text, std::future::pending()).await.unwrap();
    }
}
