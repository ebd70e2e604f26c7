//! A request to the target of a subscription, and its response: what a scheduler, which has no HTTP client, and the worker's client
//! agree on.

use url::Url;

use crate::outcome::DeliveryOutcome;
use crate::time::Timestamp;

/// A request to a target.
#[derive(Clone, Debug)]
pub struct DeliveryRequest {
    /// Where it goes.
    pub url: Url,
    /// Header fields beside those of the client.
    pub fields: Vec<(&'static str, String)>,
    /// The body of a POST; `None`: a GET.
    pub body: Option<Vec<u8>>,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryAnswer {
    /// The kind of result.
    pub outcome: DeliveryOutcome,
    /// The status code of the response.
    pub status: Option<u16>,
    /// The time before which the target accepts no further request.
    pub retry_after: Option<Timestamp>,
    /// Where a redirect leads, as the `Location` field has it.
    pub location: Option<String>,
    /// Why it failed, or how the response's body begins; without control characters.
    pub detail: String,
    /// The body that `detail` shows was read to its end, or as far as it is looked at.
    pub is_whole: bool,
}

impl DeliveryAnswer {
    /// Returns a request without a response.
    pub fn unanswered(outcome: DeliveryOutcome, detail: impl Into<String>) -> Self {
        DeliveryAnswer {
            outcome,
            status: None,
            retry_after: None,
            location: None,
            detail: detail.into(),
            is_whole: true,
        }
    }
}

impl DeliveryOutcome {
    /// Returns the outcome that a status code stands for.
    pub fn of_status(status: u16) -> Self {
        match status {
            200..=299 => DeliveryOutcome::Delivered,
            300..=399 => DeliveryOutcome::Redirect,
            410 => DeliveryOutcome::Gone,
            429 | 503 => DeliveryOutcome::Throttled,
            500..=599 => DeliveryOutcome::ServerError,
            _ => DeliveryOutcome::Rejected,
        }
    }
}
