//! A line that says what a command waits for, and for how long. Only on a terminal.

use std::io::{IsTerminal, Write, stderr};
use std::time::Instant;

use common::words;

/// The line, on standard error; it disappears when this is dropped.
pub(crate) struct Waiting {
    what: String,
    since: Instant,
    shown: bool,
}

impl Waiting {
    /// Begins to wait; nothing is shown before the first [`Waiting::tick`].
    pub(crate) fn new(what: impl Into<String>) -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Waiting { what: what.into(), since: Instant::now(), shown: stderr().is_terminal() && !dumb }
    }

    /// Shows the line with the time so far.
    pub(crate) fn tick(&self) {
        const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
        if self.shown {
            let elapsed = self.since.elapsed();
            let frame = FRAMES[usize::try_from(elapsed.as_millis() / 100).unwrap_or(0) % FRAMES.len()];
            let room = super::size().map_or(80, |(width, _)| width).saturating_sub(12);
            let what = super::cut(&self.what, room);
            // A line that cannot be written does not stop the work.
            let _ = write!(stderr(), "\r\u{1b}[K{frame} {what} {} s", words::count(elapsed.as_secs()));
        }
    }

    /// Waits for the future, and shows the line meanwhile.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = tokio::time::sleep(std::time::Duration::from_millis(100)) => self.tick(),
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(stderr(), "\r\u{1b}[K");
        }
    }
}
