//! A bar that says how far a long command is. Only on a terminal: files and pipes get results alone.

use std::io::{IsTerminal, Write, stderr};

/// The bar, on standard error.
pub(crate) struct Progress {
    done: usize,
    total: usize,
    shown: bool,
}

/// Characters of the bar.
const WIDTH: usize = 30;

impl Progress {
    /// Returns the number of steps.
    pub(crate) fn new(total: usize) -> Self {
        Progress { done: 0, total: total.max(1), shown: stderr().is_terminal() }
    }

    /// Says what is being done.
    pub(crate) fn say(&self, what: &str) {
        if self.shown {
            let full = WIDTH * self.done.min(self.total) / self.total;
            let bar = format!("{}{}", "█".repeat(full), "░".repeat(WIDTH - full));
            // A bar that cannot be written does not stop the work.
            let _ = write!(stderr(), "\r\x1b[K{bar} {:3} %  {what}", 100 * self.done / self.total);
        }
    }

    /// One more step is done.
    pub(crate) fn step(&mut self) {
        self.done += 1;
    }

    /// Sets the number of steps that are done.
    pub(crate) fn reach(&mut self, done: usize) {
        self.done = done.min(self.total);
    }

    /// Takes the bar away.
    pub(crate) fn clear(&self) {
        if self.shown {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
