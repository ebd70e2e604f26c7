//! Whether all polling is paused: the state that was last read from the store, or a later change by this process, which applies at once.

use std::sync::{Mutex, MutexGuard};

/// Whether a person paused all polling. Shared by the dispatcher and the code that pauses.
#[derive(Debug, Default)]
pub struct Pause(Mutex<State>);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    paused: bool,
    /// How often this process changed it.
    changes: u64,
}

impl Pause {
    /// Returns whether polling is paused.
    pub fn is_set(&self) -> bool {
        self.state().paused
    }

    /// Returns how often this process changed it: to be known before the store is read.
    pub(crate) fn changes(&self) -> u64 {
        self.state().changes
    }

    /// Notes what this process stored.
    pub(crate) fn set(&self, paused: bool) {
        let mut state = self.state();
        *state = State { paused, changes: state.changes + 1 };
    }

    /// Notes what the store said, unless this process changed it since `changes` was read: the store's word may be older.
    pub(crate) fn read(&self, paused: bool, changes: u64) {
        let mut state = self.state();
        if state.changes == changes {
            state.paused = paused;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        common::lock(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_store_said_before_a_change_does_not_undo_it() {
        let pause = Pause::default();
        let changes = pause.changes();
        pause.set(true);
        pause.read(false, changes);
        assert!(pause.is_set(), "the store was read before");
        pause.read(false, pause.changes());
        assert!(!pause.is_set(), "another process resumed");
    }
}
