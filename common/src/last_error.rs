//! Why a feed's last poll failed: one sentence that is stored with the feed until a poll succeeds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::outcome::{FailureKind, OutcomeKind};
use crate::report::{FetchReport, Outcome};
use crate::words;

/// The maximum length of the sentence, in bytes.
const LONGEST: usize = 200;

/// How a poll ended that was not good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ErrorKind {
    /// It failed.
    Failed(FailureKind),
    /// The server throttled it, or said that the feed is gone.
    Refused(OutcomeKind),
}

/// Why a feed's last poll failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LastError {
    /// Which sort of error.
    #[schemars(with = "String", extend("enum" = ErrorKind::names()))]
    pub kind: ErrorKind,
    /// The HTTP status, if there was a response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// One sentence of at most 200 bytes, without control characters, logins and queries of URLs.
    pub detail: String,
}

/// Why a feed's last poll failed; in an event, why the feed failed then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LastError")]
pub struct ExplainedError {
    /// The error.
    #[serde(flatten)]
    pub error: LastError,
    /// What helps; absent when there is nothing to do but wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl ErrorKind {
    /// Returns the names of all kinds.
    fn names() -> Vec<&'static str> {
        let refused = [OutcomeKind::Throttled, OutcomeKind::Gone].map(OutcomeKind::as_str);
        FailureKind::ALL.into_iter().map(FailureKind::as_str).chain(refused).collect()
    }
}

impl From<LastError> for ExplainedError {
    fn from(error: LastError) -> Self {
        ExplainedError { remedy: error.remedy().map(str::to_owned), error }
    }
}

impl LastError {
    /// Returns why the poll was not good; `None` for a good one.
    pub fn of(report: &FetchReport) -> Option<Self> {
        let status = report.http_status;
        let answered = |status: u16| format!("the server answered {}", words::status(status));
        let (kind, detail) = match &report.outcome {
            Outcome::Failed { failure, detail } => (ErrorKind::Failed(*failure), cleaned(detail)),
            Outcome::Throttled { retry_after } => {
                let said = status.map_or_else(|| "the server asked for fewer requests".to_owned(), answered);
                let until = retry_after.map(|at| format!(": no requests before {}", words::full(at)));
                (ErrorKind::Refused(OutcomeKind::Throttled), said + &until.unwrap_or_default())
            }
            Outcome::Gone => {
                let said = answered(status.unwrap_or(410));
                (ErrorKind::Refused(OutcomeKind::Gone), format!("{said}: the feed is gone for good"))
            }
            Outcome::Modified(_) | Outcome::NotModified { .. } | Outcome::Deferred { .. } => return None,
        };
        Some(LastError { kind, status, detail })
    }

    /// Returns it in two or three words: `404 Not Found`, `not a feed`.
    pub fn short(&self) -> String {
        match (self.kind, self.status) {
            (ErrorKind::Failed(FailureKind::Status) | ErrorKind::Refused(_), Some(status)) => words::status(status),
            (ErrorKind::Failed(kind), _) => words::failure(kind).to_owned(),
            (ErrorKind::Refused(kind), None) => kind.as_str().to_owned(),
        }
    }

    /// Returns whether the same request is likely to fail again until a person fixes something.
    pub fn is_lasting(&self) -> bool {
        use FailureKind as Kind;
        match self.kind {
            ErrorKind::Failed(Kind::Connect | Kind::Timeout | Kind::Truncated | Kind::Crashed) => false,
            ErrorKind::Failed(Kind::Status) => !matches!(self.status, Some(408 | 421 | 425 | 429 | 500..)),
            ErrorKind::Failed(_) => true,
            ErrorKind::Refused(kind) => kind == OutcomeKind::Gone,
        }
    }

    /// Returns what the operator can do, if anything.
    pub fn remedy(&self) -> Option<&'static str> {
        use FailureKind as Kind;
        let kind = match self.kind {
            ErrorKind::Failed(kind) => kind,
            ErrorKind::Refused(OutcomeKind::Gone) => return Some("look for the feed's new address, or remove it"),
            ErrorKind::Refused(_) => return None,
        };
        match (kind, self.status) {
            (Kind::Dns, _) => Some("check the spelling of the host's name"),
            (Kind::Connect, _) => Some("check the address and port, and that the server accepts connections"),
            (Kind::Tls, _) => Some("open the address in a browser to see its certificate; its webmaster has to fix it"),
            (Kind::Status, Some(401)) => Some("add it with its user name and password (docs/credentials.md)"),
            (Kind::Status, Some(403)) => {
                Some("set fetch.user_agent_url to a page that says who polls, and ask the webmaster to allow it")
            }
            (Kind::Status, Some(404)) => {
                Some("check the address; feedfleet discover finds the feeds that a page announces")
            }
            (Kind::TooLarge, _) => Some(
                "if the feed is really this large, raise the limit that it exceeds: fetch.max_wire_bytes (bytes as received) or \
                 fetch.max_body_bytes (decoded)",
            ),
            (Kind::NotAFeed, _) => Some("give the feed's own address; feedfleet discover finds what a page announces"),
            (Kind::Malformed, _) => Some("feedfleet fetch shows the response; its webmaster has to fix the document"),
            (Kind::Redirects, _) => Some("open the address in a browser, and add the address where it ends"),
            (Kind::RefusedAddress, _) => Some(
                "if the server is yours, open its network or port (fetch.allow_networks, fetch.allow_ports), restart, and \
                 refresh the feed",
            ),
            (Kind::Blocked, _) => {
                Some("sign the requests (docs/identity.md), or ask the webmaster to let them through")
            }
            (Kind::Crashed, _) => Some("this is a fault of feedfleet: please report it with the feed's address"),
            (Kind::Status | Kind::Timeout | Kind::Truncated, _) => None,
        }
    }
}

/// Returns the text on one line, without control characters and without what may be secret, in at most [`LONGEST`] bytes.
fn cleaned(text: &str) -> String {
    let invisible = |c: char| c.is_control() || words::turns_text(c);
    let visible: String = without_secrets(text).chars().map(|c| if invisible(c) { ' ' } else { c }).collect();
    let line = visible.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.len() <= LONGEST {
        return line;
    }
    let end = line.floor_char_boundary(LONGEST - '…'.len_utf8());
    format!("{}…", line[..end].trim_end())
}

/// Returns the text without the logins, queries and fragments of the URLs in it, which may be secret.
fn without_secrets(text: &str) -> String {
    let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ')' | '>' | ',');
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, address) = rest.split_at(at + 3);
        let (address, after) = address.split_at(address.find(ends).unwrap_or(address.len()));
        let authority = address.find(['/', '?', '#']).unwrap_or(address.len());
        let host = address[..authority].rfind('@').map_or(0, |at| at + 1);
        let address = &address[host..];
        let secret = address.find(['?', '#']).map_or(address.len(), |at| at + 1);
        shown.push_str(before);
        shown.push_str(&address[..secret]);
        rest = after;
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostKey;
    use crate::time::Timestamp;
    use crate::url::{FeedId, Version};

    fn error(outcome: Outcome, http_status: Option<u16>) -> Option<LastError> {
        let report = FetchReport::of(FeedId(1), Version(1), HostKey::new("a.example:443"), Timestamp::EPOCH, outcome);
        LastError::of(&FetchReport { http_status, ..report })
    }

    fn failed(failure: FailureKind, detail: &str, status: Option<u16>) -> LastError {
        error(Outcome::Failed { failure, detail: detail.to_owned() }, status).unwrap()
    }

    #[test]
    fn a_good_poll_has_no_error_and_any_other_one_a_sentence() {
        assert_eq!(error(Outcome::NotModified { validators: Default::default() }, Some(304)), None);
        let missing = failed(FailureKind::Status, "the server answered 404 Not Found", Some(404));
        assert_eq!((missing.short().as_str(), missing.is_lasting()), ("404 Not Found", true));
        let until = Some(Timestamp::from_millis(1_790_000_000_000));
        let throttled = error(Outcome::Throttled { retry_after: until }, Some(429)).unwrap();
        let sentence = "the server answered 429 Too Many Requests: no requests before 2026-09-21 14:13:20 UTC";
        assert_eq!((throttled.detail.as_str(), throttled.is_lasting()), (sentence, false));
        let gone = error(Outcome::Gone, Some(410)).unwrap();
        assert_eq!(gone.detail, "the server answered 410 Gone: the feed is gone for good");
        assert_eq!((gone.short().as_str(), gone.is_lasting()), ("410 Gone", true));
        assert!(!failed(FailureKind::Status, "x", Some(503)).is_lasting());
    }

    #[test]
    fn a_sentence_is_short_and_holds_no_secret_and_no_control_character() {
        let long = failed(FailureKind::NotAFeed, &"é\u{1b}[31m\u{202e}\n".repeat(500), Some(200));
        assert!(long.detail.len() <= LONGEST && long.detail.ends_with('…'), "{}", long.detail);
        assert!(!long.detail.chars().any(|c| c.is_control() || c == '\u{202e}'), "{}", long.detail);
        let secret =
            "http://ann:SECRET@a.example/f?auth=SECRET redirects to (https://b.example?SECRET#SECRET), which fails";
        let shown = "http://a.example/f? redirects to (https://b.example?), which fails";
        assert_eq!(failed(FailureKind::Redirects, secret, None).detail, shown);
        for plain in ["why?", "a://", "no answer", "user@example.com", ""] {
            assert_eq!(without_secrets(plain), plain);
        }
    }

    #[test]
    fn an_error_is_read_again_as_it_was_written() {
        for error in [
            failed(FailureKind::Dns, "no address", None),
            error(Outcome::Gone, Some(410)).unwrap(),
            error(Outcome::Throttled { retry_after: None }, Some(429)).unwrap(),
        ] {
            let explained = ExplainedError::from(error);
            let text = serde_json::to_string(&explained).unwrap();
            assert_eq!(serde_json::from_str::<ExplainedError>(&text).unwrap(), explained);
        }
        let text = serde_json::to_value(failed(FailureKind::Dns, "no address", None)).unwrap();
        assert_eq!(text, serde_json::json!({ "kind": "dns", "detail": "no address" }));
    }
}
