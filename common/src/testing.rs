//! What tests of several crates need of the machine.
#![expect(clippy::unwrap_used, reason = "for tests")]

pub mod draw;
mod linear;
pub mod mutations;
mod numbers;

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::RngExt;
use tokio::task::JoinHandle;

pub use linear::{assert_linear, pieces, processor_time};

/// Below the ports that the system gives out to clients: none of those takes it while its server is away.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// A port on loopback that no other test takes until this is dropped. `dev/services` marks its ports in the same way.
pub struct Port {
    number: u16,
    mark: PathBuf,
}

impl Port {
    /// Returns one without a listener.
    pub fn reserved() -> Self {
        loop {
            let number = rand::rng().random_range(PORTS);
            let mark = std::env::temp_dir().join(format!(".feedfleet-port-{number}"));
            if std::fs::create_dir(&mark).is_err() {
                continue;
            }
            let port = Port { number, mark };
            if TcpListener::bind(("127.0.0.1", number)).is_ok() {
                return port;
            }
        }
    }

    /// Returns its number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// `127.0.0.1:PORT`
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.number)
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        std::fs::remove_dir(&self.mark).unwrap();
    }
}

/// Measures how long a test's runtime stalls on a busy machine. Everything that a test measures is late by the same
/// time, through no fault of what it measures.
pub struct Stalls {
    micros: Arc<AtomicU64>,
    watch: JoinHandle<()>,
}

impl Stalls {
    /// Begins to watch the runtime that this is called in.
    pub fn watched() -> Self {
        const PAUSE: Duration = Duration::from_millis(10);
        let micros = Arc::new(AtomicU64::new(0));
        let sum = Arc::clone(&micros);
        let watch = tokio::spawn(async move {
            loop {
                let begun = Instant::now();
                tokio::time::sleep(PAUSE).await;
                let late = begun.elapsed().saturating_sub(PAUSE).as_micros();
                sum.fetch_add(u64::try_from(late).unwrap(), Ordering::Relaxed);
            }
        });
        Stalls { micros, watch }
    }

    /// Returns the sum of all stalls so far, without those that a pause hides.
    pub fn so_far(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.watch.abort();
    }
}
