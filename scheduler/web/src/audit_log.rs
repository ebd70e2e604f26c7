//! The newest changes that were requested from this scheduler, for the page that shows them. The log has all of them.

use std::collections::VecDeque;
use std::sync::Mutex;

use common::time::Timestamp;

/// Lines that are kept.
pub(crate) const KEPT: usize = 500;

/// A change that was requested.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) at: Timestamp,
    /// A token's name, or what the audit calls others.
    pub(crate) who: String,
    /// The caller's address.
    pub(crate) from: String,
    /// Method and route.
    pub(crate) action: String,
    /// What it was about.
    pub(crate) on: String,
    pub(crate) outcome: &'static str,
    pub(crate) status: u16,
}

/// The newest lines, oldest first.
#[derive(Debug, Default)]
pub(crate) struct AuditLog(Mutex<VecDeque<Entry>>);

impl AuditLog {
    /// Adds a line.
    pub(crate) fn note(&self, entry: Entry) {
        let mut kept = common::lock(&self.0);
        while kept.len() >= KEPT {
            kept.pop_front();
        }
        kept.push_back(entry);
    }

    /// Returns the lines, the newest first.
    pub(crate) fn newest(&self) -> Vec<Entry> {
        common::lock(&self.0).iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept() {
        let log = AuditLog::default();
        for number in 0..KEPT + 3 {
            let text = || number.to_string();
            let entry = Entry {
                at: Timestamp::EPOCH,
                who: text(),
                from: text(),
                action: text(),
                on: text(),
                outcome: "done",
                status: 200,
            };
            log.note(entry);
        }
        let newest = log.newest();
        assert_eq!((newest.len(), newest[0].who.as_str(), newest[KEPT - 1].who.as_str()), (KEPT, "502", "3"));
    }
}
