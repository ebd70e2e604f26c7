//! Due times explained in words, for `feed explain` and the API.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Rule, Term};
use crate::policy::Category;
use crate::time::Timestamp;
use crate::words;

/// One term, with its explanation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Term")]
pub struct ExplainedTerm {
    /// The rule.
    #[schemars(with = "String")]
    pub rule: Rule,
    /// The due time after the rule was applied.
    pub due: Timestamp,
    /// How many seconds the rule moved the due time; negative for earlier. The first term counts from `base`.
    pub by: f64,
    /// The explanation, such as "max-age raised it to 2 h".
    pub text: String,
}

/// Explains terms in words. `base` is the poll that they followed ([`crate::policy::PollState::last_polled`]), or the
/// time at which the feed was added if it was never polled.
pub fn explain(category: Category, base: Timestamp, terms: &[Term]) -> Vec<ExplainedTerm> {
    // Leaving skipped time on the way does not change which rule a ceiling limits.
    let (mut before, mut rule_before) = (base, None);
    let explained = terms.iter().map(|term| {
        let later = term.due >= before;
        let by = if later { term.due.since(before) } else { before.since(term.due) };
        let text = match (rule_before, term.rule) {
            (Some(Rule::RetryAfter), Rule::Ceiling) => {
                format!("policy.retry_after_ceiling cut it back to {}", spoken(term.due.since(base)))
            }
            (Some(_), Rule::Calm) => {
                format!("before a midnight of its calm subscribers, after {}", spoken(term.due.since(base)))
            }
            (_, rule) => words(rule, category, term.due.since(base), by, later, term.due),
        };
        before = term.due;
        if term.rule != Rule::Skip {
            rule_before = Some(term.rule);
        }
        let sign = if later { 1.0 } else { -1.0 };
        ExplainedTerm { rule: term.rule, due: term.due, by: sign * by.as_secs_f64(), text }
    });
    explained.collect()
}

/// Names a rule in a word or two, as publishers know it.
pub fn named(rule: Rule) -> &'static str {
    match rule {
        Rule::Category => "category",
        Rule::Adaptive => "posting rate",
        Rule::Person => "an interval that an operator set",
        Rule::NoSubscribers => "no subscribers",
        Rule::HostInterval => "its host's interval",
        Rule::MinInterval => "shortest interval",
        Rule::Ttl => "ttl",
        Rule::UpdatePeriod => "updatePeriod",
        Rule::Freshness => "max-age",
        Rule::Skip => "skipHours or skipDays",
        Rule::NoValidators => "no validators",
        Rule::EqualDownloads => "same bytes again",
        Rule::Stretch => "throttled before",
        Rule::Backoff => "back-off",
        Rule::PenaltyBox => "penalty box",
        Rule::RetryAfter => "Retry-After",
        Rule::Throttled => "throttled",
        Rule::Ceiling => "cut by a ceiling",
        Rule::Salt => "salt",
        Rule::HotMinute => "a busy minute avoided",
        Rule::Added => "added",
        Rule::Late => "late",
        Rule::Calm => "calm delivery",
        Rule::OurFault => "our own fault",
        Rule::HostRefuses => "its host refuses us",
        Rule::Pushed => "new entries are pushed",
        Rule::Overflow => "it overflowed",
        Rule::Archive => "a page of its archive",
    }
}

fn words(rule: Rule, category: Category, interval: Duration, by: Duration, later: bool, due: Timestamp) -> String {
    let to = format!("{} it to {}", if later { "raised" } else { "brought" }, spoken(interval));
    match rule {
        Rule::Category => format!("category {category}: {}", spoken(interval)),
        Rule::Adaptive => format!("category {category}, by its posting rate: {}", spoken(interval)),
        Rule::Calm => format!("once a day, before its subscribers' midnight: {}", spoken(interval)),
        Rule::Person => format!("an operator set its interval: {}", spoken(interval)),
        Rule::NoSubscribers => format!("nobody subscribes: {}", spoken(interval)),
        Rule::HostInterval => format!("the host's rule: {}", spoken(interval)),
        Rule::MinInterval => format!("the shortest interval allowed {to}"),
        Rule::Ttl => format!("the feed's ttl {to}"),
        Rule::UpdatePeriod => format!("the feed's update period {to}"),
        Rule::Freshness => format!("max-age {to}"),
        Rule::Skip => format!("moved out of skipped hours or days +{}", spoken(by)),
        Rule::NoValidators => format!("it cannot be requested conditionally, which {to}"),
        Rule::EqualDownloads => format!("the same bytes again and again {to}"),
        Rule::Stretch => format!("earlier throttling {to}"),
        Rule::Backoff => format!("back-off after a failure {to}"),
        Rule::PenaltyBox => format!("the penalty box {to}"),
        Rule::RetryAfter => format!("the server asked to wait until {due}"),
        Rule::Throttled => format!("the server throttles without saying for how long, which {to}"),
        Rule::Ceiling => format!("policy.hint_ceiling cut it back to {}", spoken(interval)),
        Rule::Salt => format!("salt {}{}", if later { '+' } else { '-' }, spoken(by)),
        Rule::HotMinute => format!("moved off a hot minute +{}", spoken(by)),
        Rule::Added if interval.is_zero() => "just added: at once".to_owned(),
        Rule::Added => format!("just added: at its place in the import's spread, after {}", spoken(interval)),
        Rule::OurFault => format!("our own network failed, which is not held against it: tried again at {due}"),
        Rule::HostRefuses => {
            format!("its host refuses most of our requests, which is not held against the feed: not before {due}")
        }
        Rule::Pushed => format!("its new entries are pushed reliably, which {to}"),
        Rule::Overflow => format!("it posts more between polls than its document holds, which {to}"),
        Rule::Archive => format!("a page of its older entries is read before, at {due}"),
        Rule::Late => {
            "the report came late: at once, or an interval after it if the feed may have been fetched again".to_owned()
        }
    }
}

/// Formats a duration in its two largest units, rounded to the smaller one: 59 min 59.9 s is 1 h.
fn spoken(duration: Duration) -> String {
    const UNITS: [u128; 5] = [86_400_000, 3_600_000, 60_000, 1000, 1];
    let millis = duration.as_millis();
    let largest = UNITS.iter().position(|unit| millis >= *unit).unwrap_or(UNITS.len() - 1);
    let unit = UNITS[(largest + 1).min(UNITS.len() - 1)];
    let rounded = (millis + unit / 2) / unit * unit;
    match u64::try_from(rounded).map(Duration::from_millis) {
        // Below a minute the milliseconds are shown, too.
        Ok(short) if rounded > 1000 && rounded < 60_000 && !rounded.is_multiple_of(1000) => {
            format!("{} {}", words::duration(short), words::duration(short - Duration::from_secs(short.as_secs())))
        }
        Ok(rounded) => words::duration(rounded),
        Err(_) => words::duration(duration),
    }
}
