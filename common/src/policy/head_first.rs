//! HEAD before GET (P44): when asking a feed's server so saves bytes.
//!
//! A server that ignores conditions sends a large document again and again. If it sends validators all the same, the answer
//! to a HEAD tells that nothing is new, for a few hundred bytes. It costs as much for nothing when something is, and two requests
//! in place of one. So it is tried where several large downloads in a row were in vain, or where a host rule says so, and goes on
//! while an account of the bytes that it saved and spent is not used up. Reasons: `docs/decisions/0019-head-before-get.md`.

use serde::{Deserialize, Serialize};

use crate::report::{FetchReport, Outcome, Probe};

/// Downloads in a row that HEAD would have spared, until it is tried; twice as many for each time that it was given up.
const IN_VAIN: u16 = 3;
/// Less is not worth a second request.
const LARGE: u64 = 32 * 1024;
/// Bytes that HEAD may waste from its last success on: about five requests.
const CREDIT: u32 = 4096;
/// After so many HEADs in a row that were enough the next poll is a GET, whose body tells whether the validators can be
/// trusted.
const LONGEST_RUN: u16 = 50;
/// The most that counts of having been given up: after that, it takes some hundred downloads until HEAD is tried again.
const MOST_GIVEN_UP: u8 = 8;
/// Validators stayed the same over new entries: HEAD would hide these, and is never tried again.
const NEVER: u8 = u8::MAX;

/// What is known of asking a feed's server with HEAD first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeadFirst {
    /// Large downloads in a row that brought nothing new under the validators that the request carried.
    in_vain: u16,
    /// Bytes of body on the wire of the last such download, or of one that had to follow a HEAD.
    full_bytes: u64,
    /// Bytes that it may still waste; 0: it is off.
    credit: u32,
    /// HEADs in a row that were enough.
    run: u16,
    /// How often it was given up.
    given_up: u8,
}

impl HeadFirst {
    /// Is there nothing to remember?
    pub fn is_unknown(&self) -> bool {
        *self == HeadFirst::default()
    }

    /// Should the next poll begin with HEAD? `None`: that is for the host's rule to say.
    pub fn advice(&self) -> Option<bool> {
        match self {
            HeadFirst { run: LONGEST_RUN.., .. } => Some(false),
            HeadFirst { credit: 1.., .. } => Some(true),
            HeadFirst { given_up: 1.., .. } => Some(false),
            _ => None,
        }
    }

    /// After this report.
    pub(super) fn after(self, report: &FetchReport) -> Self {
        match (report.probe, &report.outcome) {
            (Some(Probe::Enough { spent, length }), _) => self.enough(spent, length, report.http_status == Some(304)),
            (Some(Probe::NotEnough { spent }), outcome) => HeadFirst {
                full_bytes: if is_good(outcome) { report.wire_bytes } else { self.full_bytes },
                run: 0,
                ..self.booked(0, spent)
            },
            (Some(Probe::Refused), _) => self.ended(),
            (Some(Probe::Known), Outcome::Modified(document)) if document.new_entries > 0 => {
                HeadFirst { given_up: NEVER, ..HeadFirst::default() }
            }
            (Some(Probe::Known), outcome) if is_good(outcome) => self.in_vain(report.wire_bytes),
            // It answers 304: nothing that HEAD could spare.
            _ if report.http_status == Some(304) => HeadFirst { in_vain: 0, run: 0, credit: 0, ..self },
            // Something was new, or its validators were.
            (_, outcome) if is_good(outcome) => HeadFirst { in_vain: 0, run: 0, ..self },
            _ => self,
        }
    }

    /// A HEAD told that nothing is new. A 304 would have been the answer to a GET as well.
    fn enough(self, spent: u32, length: Option<u64>, would_be_304: bool) -> Self {
        let known = Some(self.full_bytes).filter(|bytes| *bytes > 0);
        let spared = known.or(length).filter(|_| !would_be_304).unwrap_or(0);
        HeadFirst { run: self.run.saturating_add(1), ..self.booked(spared, spent) }
    }

    /// What was saved fills the account up, what was spent empties it, and an empty one ends it.
    fn booked(self, saved: u64, spent: u32) -> Self {
        if self.credit == 0 && self.given_up > 0 {
            return self;
        }
        let before = if self.credit == 0 { CREDIT } else { self.credit };
        let credit = u64::from(before).saturating_add(saved).saturating_sub(u64::from(spent)).min(u64::from(CREDIT));
        let credit = u32::try_from(credit).unwrap_or(CREDIT);
        if credit == 0 { self.ended() } else { HeadFirst { credit, ..self } }
    }

    fn ended(self) -> Self {
        let given_up = self.given_up.saturating_add(1).min(MOST_GIVEN_UP);
        HeadFirst { given_up, in_vain: 0, credit: 0, run: 0, ..self }
    }

    /// A download that HEAD would have spared.
    fn in_vain(self, wire_bytes: u64) -> Self {
        let full_bytes = if self.credit > 0 { wire_bytes } else { self.full_bytes };
        let after = HeadFirst { run: 0, full_bytes, ..self };
        if self.given_up == NEVER || wire_bytes < LARGE {
            return after;
        }
        let in_vain = self.in_vain.saturating_add(1);
        let enough = in_vain >= IN_VAIN << self.given_up;
        HeadFirst { in_vain, full_bytes: wire_bytes, credit: if enough { CREDIT } else { self.credit }, ..after }
    }
}

fn is_good(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Modified(_) | Outcome::NotModified { .. })
}
