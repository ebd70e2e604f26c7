//! Feeds whose server shows an actor to known readers only: whether requests to them are signed.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::outcome::FailureKind;
use crate::report::{FetchReport, Outcome};
use crate::time::Timestamp;

/// How long no signature is tried where it did not help: the feed is forbidden, or not an actor.
const USELESS_FOR: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Whether requests to a feed's own URL are signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signing {
    /// Nothing is known: requests are not signed.
    #[default]
    Unknown,
    /// It refused a request without one.
    Wanted,
    /// It refused a request with one too: none is tried until then.
    Useless(Timestamp),
}

impl Signing {
    /// Returns true if nothing is known.
    pub(super) fn is_unknown(&self) -> bool {
        *self == Signing::Unknown
    }

    /// Returns true if the next request after this report is signed because this one was refused without a signature.
    pub fn is_tried_after(self, report: &FetchReport) -> bool {
        report.outcome.failure().is_some()
            && self != Signing::Wanted
            && self.after(report, report.started) == Signing::Wanted
    }

    /// Returns what is known after a report.
    pub(super) fn after(self, report: &FetchReport, polled: Timestamp) -> Self {
        match self {
            Signing::Useless(until) if until > polled => self,
            Signing::Unknown | Signing::Useless(_) => match report.wants_signature {
                true => Signing::Wanted,
                false => Signing::Unknown,
            },
            Signing::Wanted if is_refused(report) => Signing::Useless(polled.after(USELESS_FOR)),
            // It is not an actor: it refused once, for another reason.
            Signing::Wanted if matches!(report.outcome, Outcome::Modified(_)) && !report.wants_signature => {
                Signing::Unknown
            }
            Signing::Wanted => Signing::Wanted,
        }
    }
}

fn is_refused(report: &FetchReport) -> bool {
    let by_status = matches!(report.outcome, Outcome::Failed { failure: FailureKind::Status, .. });
    by_status && matches!(report.http_status, Some(401 | 403)) && !report.wants_signature
}
