//! What [`decide`] guarantees: for all inputs in `properties`; over many feeds in `even` and `near`; by example in the others.

mod calm;
mod categories;
mod completeness;
mod consent;
mod even;
mod failing;
mod head_first;
mod moves;
mod near;
mod order;
mod our_fault;
mod planned;
mod price;
mod properties;
mod pushed;
mod rhythm;
mod signing;
mod state;
mod table;
mod throttling;
mod words;

use std::time::Duration;

use super::*;
use crate::config::PolicyMode;
use crate::document::{Document, FeedHints, Validators};
use crate::host::HostKey;
use crate::outcome::FailureKind;
use crate::report::{FetchReport, Outcome};
use crate::url::{FeedId, Version};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

/// No salt, and the middle of the open minutes where it matters.
const NO_SALT: Draw = Draw { salt: 0.0, minute: 0.5 };

/// Returns a Wednesday in an open minute: 2026-10-07T12:07:00Z.
fn noon() -> Timestamp {
    at("2026-10-07T12:07:00Z")
}

fn at(text: &str) -> Timestamp {
    serde_json::from_str(&format!("\"{text}\"")).unwrap()
}

/// Returns the defaults in classes mode, without hot minutes, so that expected values are simple numbers.
fn plain() -> PolicyConfig {
    PolicyConfig { mode: PolicyMode::Classes, hot_minutes: false, ..crate::config::defaults().policy }
}

/// Returns a feed with one subscriber that was never polled.
fn reader() -> Subject<'static> {
    Subject::new(Audience::default(), None)
}

fn readers(subscribers: u32) -> Subject<'static> {
    Subject::new(Audience { subscribers, active_subscribers: subscribers, ..Audience::default() }, None)
}

fn report(outcome: Outcome, http_status: Option<u16>) -> FetchReport {
    FetchReport {
        duration: SECOND,
        http_status,
        conditional: true,
        ..FetchReport::of(FeedId(1), Version(1), HostKey::new("example.com:443"), noon(), outcome)
    }
}

fn validators() -> Validators {
    Validators { etag: Some("\"1\"".into()), ..Validators::default() }
}

/// Returns a 304.
fn unchanged() -> FetchReport {
    report(Outcome::NotModified { validators: validators() }, Some(304))
}

/// Returns a 200 with the bytes that are already known.
fn same_bytes(validators: Validators) -> FetchReport {
    report(Outcome::NotModified { validators }, Some(200))
}

/// Returns a 200 with `new_entries` new entries.
fn news(new_entries: u32) -> FetchReport {
    hinted(new_entries, FeedHints::default())
}

fn hinted(new_entries: u32, hints: FeedHints) -> FetchReport {
    let document = Document { new_entries, validators: validators(), hints, ..Document::default() };
    report(Outcome::Modified(Box::new(document)), Some(200))
}

fn failed(failure: FailureKind) -> FetchReport {
    report(Outcome::Failed { failure, detail: "as told".into() }, None)
}

fn answered(status: u16) -> FetchReport {
    FetchReport { http_status: Some(status), ..failed(FailureKind::Status) }
}

fn throttled(retry_after: Option<Timestamp>) -> FetchReport {
    report(Outcome::Throttled { retry_after }, Some(429))
}

/// Decides on a report that arrives immediately, without salt.
fn ask(subject: &Subject<'_>, report: &FetchReport, config: &PolicyConfig) -> Decision {
    decide(subject, report, report.started, NO_SALT, &Policy { config, load: 0.0, price: config.price })
}

/// Returns the time from the poll to the next one.
fn delay(decision: &Decision) -> Duration {
    decision.next_due.unwrap().since(decision.state.last_polled.unwrap())
}

fn rules(decision: &Decision) -> Vec<Rule> {
    decision.terms.iter().map(|term| term.rule).collect()
}

/// Returns the feed after the decision.
fn after<'a>(subject: &Subject<'a>, decision: &Decision) -> Subject<'a> {
    Subject { state: decision.state, status: decision.status, ..*subject }
}

/// Runs a feed through these reports: each arrives when the feed is due, the first at noon. Returns all decisions.
fn live(subject: &Subject<'_>, reports: impl IntoIterator<Item = FetchReport>, config: &PolicyConfig) -> Vec<Decision> {
    let (mut subject, mut due) = (*subject, noon());
    let decided = reports.into_iter().map(|report| {
        let decision = ask(&subject, &FetchReport { started: due, ..report }, config);
        subject = after(&subject, &decision);
        due = decision.next_due.unwrap_or(due);
        decision
    });
    decided.collect()
}

fn delays(decisions: &[Decision]) -> Vec<Duration> {
    decisions.iter().map(delay).collect()
}

fn again(report: &FetchReport, times: usize) -> Vec<FetchReport> {
    vec![report.clone(); times]
}
