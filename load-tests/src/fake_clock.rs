//! Processes whose wall clock is off, by libfaketime. Their timers are right.

use std::io;
use std::path::PathBuf;

/// The library's place in Debian, by architecture.
const LIBRARIES: [&str; 2] =
    ["/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1", "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1"];

/// A clock that the processes started with its variables have, and that can be set while they run.
#[derive(Debug)]
pub struct FakeClock {
    library: &'static str,
    /// How far it is ahead; each process reads it once a second.
    file: String,
}

impl FakeClock {
    /// Returns a clock that is right so far, and is set by this file.
    ///
    /// # Errors
    ///
    /// Returns an error if libfaketime is missing, or the file cannot be written.
    pub fn right(file: PathBuf) -> io::Result<Self> {
        let found = LIBRARIES.into_iter().find(|library| std::path::Path::new(library).exists());
        let missing = "libfaketime is missing: dev/install installs it";
        let library = found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, missing))?;
        let file = file.into_os_string().into_string();
        let file = file.map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the path of a clock is UTF-8"))?;
        let clock = FakeClock { library, file };
        clock.set(0.0)?;
        Ok(clock)
    }

    /// Sets it ahead by these seconds, or behind; within two seconds all processes notice.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written.
    pub fn set(&self, seconds: f64) -> io::Result<()> {
        std::fs::write(&self.file, format!("{seconds:+}\n"))
    }

    /// Returns the environment variables of a process with this clock.
    pub fn variables(&self) -> [(&str, &str); 4] {
        [
            ("LD_PRELOAD", self.library),
            ("FAKETIME_TIMESTAMP_FILE", &self.file),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("FAKETIME_CACHE_DURATION", "1"),
        ]
    }
}
