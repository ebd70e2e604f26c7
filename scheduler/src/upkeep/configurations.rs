//! Compares the configurations of the schedulers of a fleet, and logs when they begin and cease to differ.
//!
//! Policy and host rules are shared through the store; what is left to differ are the sections that a process reads at its start,
//! and the defaults of its version.

use crate::schedule::{Schedule, ScheduleError};

/// The configurations of others, as they were seen last.
#[derive(Debug, Default)]
pub(crate) struct Configurations {
    others: Vec<String>,
}

impl Configurations {
    /// Shows the others which configuration this scheduler has, and looks at theirs.
    pub(crate) async fn compare(&mut self, own: &str, schedule: &dyn Schedule) -> Result<(), ScheduleError> {
        let mut others = schedule.configurations(own).await?;
        others.retain(|other| other != own);
        if others != self.others {
            if others.is_empty() {
                tracing::info!(own, "all schedulers of this fleet have the same configuration again");
            } else {
                tracing::warn!(
                    own,
                    others = others.join(", "),
                    "another scheduler of this fleet has a different configuration, and each decides by its own; give all of them \
                     the same file and version (these are the hashes of feedfleet_config_hash)"
                );
            }
            self.others = others;
        }
        Ok(())
    }

    /// Returns whether others differ.
    #[cfg(test)]
    pub(crate) fn differ(&self) -> bool {
        !self.others.is_empty()
    }
}
