//! Logs a persistent failure when it starts and when it ends, not on every retry.

/// Remembers whether a repeated action fails at present.
#[derive(Debug)]
pub struct FailureLog {
    what: &'static str,
    lasts: bool,
}

impl FailureLog {
    /// Returns a log without a failure so far; `what` completes "... failed".
    pub fn new(what: &'static str) -> Self {
        FailureLog { what, lasts: false }
    }

    /// Returns the result of a try if it worked; logs when success and failure alternate.
    pub fn note<T, E: std::error::Error + 'static>(&mut self, outcome: Result<T, E>) -> Option<T> {
        match outcome {
            Ok(done) => {
                if std::mem::take(&mut self.lasts) {
                    tracing::info!("{} works again", self.what);
                }
                Some(done)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.lasts, true) {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(error, "{} failed; it is tried again until it works", self.what);
                }
                None
            }
        }
    }
}
