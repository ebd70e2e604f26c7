//! The waits that hosts requested, and who knows of each: the judge excuses none that somebody who is alive still knows.

use common::time::Timestamp;

/// The wait that a host requested of a worker.
#[derive(Debug)]
pub(crate) struct Hold {
    /// The request that it answered.
    pub(crate) flight: u64,
    pub(crate) until: Timestamp,
    /// The worker's life.
    life: u32,
    /// The worker could not tell the gate before its permit ended: it was stopped, or cut off from it. It binds others as soon as the
    /// gate has it.
    private: bool,
    /// The gate knew of it once, or a report carried it: it no longer depends on that worker's life.
    known: bool,
    /// Since when the gate has it.
    at_gate: Option<Timestamp>,
    /// A report in the queue carries it.
    reported: bool,
    stored: Stored,
}

/// What the store knows of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stored {
    Never,
    Since(Timestamp),
    /// The store failed over to a copy without it.
    Lost,
}

impl Hold {
    pub(crate) fn new(flight: u64, until: Timestamp, life: u32) -> Self {
        let stored = Stored::Never;
        Hold { flight, until, life, private: false, known: false, at_gate: None, reported: false, stored }
    }

    /// Its worker cannot tell the gate before its permit ends.
    pub(crate) fn stays_private(&mut self) {
        self.private |= !self.known;
    }

    /// Returns whether this life may request nothing there, if the gate permitted its request at this time.
    pub(crate) fn binds(&self, life: u32, permitted: Timestamp) -> bool {
        !self.private || self.life == life || self.at_gate.is_some_and(|since| since <= permitted)
    }

    pub(crate) fn is_known(&self) -> bool {
        self.known
    }

    pub(crate) fn reaches_gate(&mut self, now: Timestamp) {
        self.known = true;
        self.at_gate.get_or_insert(now);
    }

    pub(crate) fn is_reported(&mut self) {
        (self.known, self.reported) = (true, true);
    }

    /// A report that carries it was applied, or changed nothing.
    pub(crate) fn is_settled(&mut self, stored: Option<Timestamp>) {
        self.reported = false;
        if let Some(since) = stored {
            self.stored = Stored::Since(since);
        }
    }

    /// The gate was opened with what the store has.
    pub(crate) fn is_loaded(&mut self, now: Timestamp) {
        if matches!(self.stored, Stored::Since(_)) {
            self.at_gate.get_or_insert(now);
        }
    }

    /// Returns whether anything still knows of it after the gate lost its memory.
    pub(crate) fn outlives_gate(&mut self) -> bool {
        self.at_gate = None;
        self.outlives()
    }

    /// Returns whether anything still knows of it after the store failed over to a copy from this time.
    pub(crate) fn outlives_store(&mut self, copied: Timestamp) -> bool {
        if !matches!(self.stored, Stored::Since(since) if since <= copied) {
            self.stored = Stored::Lost;
        }
        self.outlives()
    }

    /// Returns whether anything but the worker that it was requested of has it.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.at_gate.is_some() || self.reported || matches!(self.stored, Stored::Since(_))
    }

    fn outlives(&self) -> bool {
        self.stored != Stored::Lost || !self.known || self.at_gate.is_some() || self.reported
    }
}
