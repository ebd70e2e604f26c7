//! Trouble that lasts is told when it begins and when it is over, not at each new try.

/// Whether something that is tried again and again fails at present.
#[derive(Debug)]
pub struct Trouble {
    what: &'static str,
    lasts: bool,
}

impl Trouble {
    /// None yet; `what` completes "... failed".
    pub fn with(what: &'static str) -> Self {
        Trouble { what, lasts: false }
    }

    /// Gives what came of a try, if it worked; tells when that is other than before.
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
