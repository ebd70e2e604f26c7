//! HEAD before GET (P44): when a poll that starts with HEAD saves bytes.
//!
//! A server that ignores conditional requests sends a large document again and again. If it sends validators all the
//! same, the answer to a HEAD shows, for a few hundred bytes, that nothing is new. When something is new, those bytes
//! are wasted and the poll takes two requests instead of one. So HEAD is tried after several large downloads in a row
//! without new content, or where a host rule says so, and continues until it has wasted more bytes than its credit.
//! Reasons: `docs/decisions/0019-head-before-get.md`.

use serde::{Deserialize, Serialize};

use crate::report::{FetchReport, Outcome, Probe};

/// Downloads in a row that HEAD would have saved before it is tried; doubled each time that it was given up.
const IN_VAIN: u16 = 3;
/// The smallest document that is worth a second request.
const LARGE: u64 = 32 * 1024;
/// Bytes that HEAD may waste since its last success: about five requests.
const CREDIT: u32 = 4096;
/// After this many successful HEADs in a row the next poll is a GET, whose body shows whether the validators can be
/// trusted.
const LONGEST_RUN: u16 = 50;
/// The maximum of `given_up`: from then on, HEAD is tried again only after some hundred downloads.
const MOST_GIVEN_UP: u8 = 8;
/// The validators stayed the same while there were new entries. HEAD would hide these, so it is never tried again.
const NEVER: u8 = u8::MAX;

/// What is known about starting polls of a feed's server with HEAD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeadFirst {
    /// Large downloads in a row without new content although the request carried the current validators.
    in_vain: u16,
    /// Bytes of body on the wire of the last such download, or of the last one that followed a HEAD.
    full_bytes: u64,
    /// Bytes that HEAD may still waste; 0: HEAD is off.
    credit: u32,
    /// Successful HEADs in a row.
    run: u16,
    /// How often HEAD was given up.
    given_up: u8,
}

impl HeadFirst {
    /// Returns true if there is nothing to store.
    pub fn is_unknown(&self) -> bool {
        *self == HeadFirst::default()
    }

    /// Returns whether the next poll starts with HEAD; `None` leaves that to the host rule.
    pub fn advice(&self) -> Option<bool> {
        match self {
            HeadFirst { run: LONGEST_RUN.., .. } => Some(false),
            HeadFirst { credit: 1.., .. } => Some(true),
            HeadFirst { given_up: 1.., .. } => Some(false),
            _ => None,
        }
    }

    /// Returns the state after this report.
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
            // The server answers 304: HEAD cannot save anything.
            _ if report.http_status == Some(304) => HeadFirst { in_vain: 0, run: 0, credit: 0, ..self },
            // There was new content, or new validators.
            (_, outcome) if is_good(outcome) => HeadFirst { in_vain: 0, run: 0, ..self },
            _ => self,
        }
    }

    /// Accounts for a HEAD that showed nothing new. It saved nothing if a GET would have been answered with 304 as
    /// well.
    fn enough(self, spent: u32, length: Option<u64>, would_be_304: bool) -> Self {
        let known = Some(self.full_bytes).filter(|bytes| *bytes > 0);
        let spared = known.or(length).filter(|_| !would_be_304).unwrap_or(0);
        HeadFirst { run: self.run.saturating_add(1), ..self.booked(spared, spent) }
    }

    /// Adds saved bytes to the credit, subtracts spent ones, and gives HEAD up when the credit is used up.
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

    /// Accounts for a download that HEAD would have saved.
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
