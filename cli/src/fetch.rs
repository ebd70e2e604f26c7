//! `feedfleet fetch`: one polite fetch outside of the fleet, explained from the request to what would be decided.

use std::process::ExitCode;

use clap::Args;
use common::config::Config;
use common::document::{Document, Validators};
use common::policy::{Audience, Decision, Draw, ExplainedTerm, Minutes, Policy, Subject, category, explain};
use common::report::Outcome;
use common::words;
use rand::RngExt;
use reqwest::header::HeaderValue;
use serde_json::{Value, json};
use worker::parse::{apart, entry_json};
use worker::trace::{Exchange, Field};

use crate::feed_text::{about_fields, hints_text, onward_fields, repaired_text};
use crate::output::{self, fields, plain, table};
use crate::settings::SettingsArgs;
use crate::single::{self, Single};
use crate::terminal::Waiting;
use crate::usage::Usage;
use crate::when;

/// Fetches a feed once, outside of the fleet, and shows requests, responses, and when a fleet would poll it next
///
/// Exit code 0 for a feed or a 304, 1 otherwise. Redirects keep the gaps of their hosts. A running fleet does not know of this
/// fetch.
#[derive(Debug, Args)]
pub(crate) struct FetchArgs {
    /// The feed's URL
    url: String,
    /// Sends this ETag in If-None-Match; include its quotes
    #[arg(long, value_name = "TAG")]
    etag: Option<String>,
    /// Sends this date in If-Modified-Since, as the server wrote it
    #[arg(long, value_name = "DATE")]
    last_modified: Option<String>,
    /// Number of subscribers, for the User-Agent and the category
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = crate::values::number::<u32>)]
    subscribers: u32,
    /// Prints one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: SettingsArgs,
}

/// Runs it.
pub(crate) async fn run(args: &FetchArgs) -> anyhow::Result<ExitCode> {
    for (option, value) in [("--etag", &args.etag), ("--last-modified", &args.last_modified)] {
        if value.as_ref().is_some_and(|value| HeaderValue::from_str(value).is_err()) {
            anyhow::bail!(Usage(format!("the value of {option} cannot be sent in a header")));
        }
    }
    let config = args.settings.load(&[])?.config;
    let asked = crate::typed::feed(&args.url, &config.fetch.at_service);
    let (url, login) = asked.map_err(|error| Usage(error.to_string()))?;
    let validators = Validators { etag: args.etag.clone(), last_modified: args.last_modified.clone(), for_url: None };
    let waiting = Waiting::new(format!("fetching {url}"));
    let fetched = single::fetch(&config, (url, login.as_ref()), validators, args.subscribers, single::POLLED_BEFORE);
    let single = waiting.during(fetched).await?;
    drop(waiting);
    let verdict = decided(&config, &single);
    if args.json {
        output::json(&as_json(&single, verdict.as_ref()))?;
    } else {
        output::line(&report(&single, verdict.as_ref()))?;
    }
    match &single.fetched.outcome {
        Outcome::Modified(_) | Outcome::NotModified { .. } => Ok(ExitCode::SUCCESS),
        outcome => anyhow::bail!("{}: {}{}", single.job.url, output::outcome(outcome), single::hint(outcome)),
    }
}

/// What the policy would say about a first poll with this answer.
struct Verdict {
    decision: Decision,
    terms: Vec<ExplainedTerm>,
}

fn decided(config: &Config, single: &Single) -> Option<Verdict> {
    if matches!(single.fetched.outcome, Outcome::Deferred { .. }) {
        return None;
    }
    let subscribers = single.job.subscribers;
    let audience = Audience { subscribers, active_subscribers: subscribers, ..Audience::default() };
    let subject = Subject::new(audience, single.rules.rule_for(single.job.url.as_url()));
    let report = worker::poll::report(&single.job, single.started, single.fetched.clone());
    let now = single.started.after(single.fetched.duration);
    let mut random = rand::rng();
    let mut draw = || Draw { salt: random.random(), minute: random.random() };
    let draws = [draw(), draw()];
    let policy = Policy { config: &config.policy, load: 0.0, price: config.policy.price };
    // As a fleet whose minutes are even.
    let decision = Minutes::default().decide(&subject, &report, now, draws, &policy);
    let base = decision.state.last_polled.unwrap_or(single.started);
    Some(Verdict { terms: explain(category(&subject), base, &decision.terms), decision })
}

fn as_json(single: &Single, verdict: Option<&Verdict>) -> Value {
    let fetched = &single.fetched;
    json!({
        "url": single.job.url,
        "started": single.started,
        "exchanges": single.exchanges.iter().map(exchange_json).collect::<Vec<_>>(),
        "outcome": fetched.outcome.kind(),
        "failure": fetched.outcome.failure(),
        "detail": match &fetched.outcome { Outcome::Failed { detail, .. } => Some(detail), _ => None },
        "status": fetched.http_status,
        "conditional": fetched.conditional,
        "wire_bytes": fetched.wire_bytes,
        "body_bytes": fetched.body_bytes,
        "duration": fetched.duration.as_secs_f64(),
        "fresh_for": fetched.fresh_for.map(|fresh| fresh.as_secs_f64()),
        "moved_to": fetched.moved_to,
        "document": match &fetched.outcome { Outcome::Modified(document) => document_json(document), _ => Value::Null },
        "announced": fetched.announced.iter().map(|feed| &feed.url).collect::<Vec<_>>(),
        "decision": verdict.map(|verdict| json!({
            "next_due": verdict.decision.next_due,
            "status": verdict.decision.status,
            "notice": verdict.decision.notices.first(),
            "host_hold": verdict.decision.host_hold,
            "terms": verdict.terms,
        })),
    })
}

fn exchange_json(exchange: &Exchange) -> Value {
    let head = exchange.answer.as_ref();
    json!({
        "url": exchange.url,
        "request": exchange.request,
        "status": head.map(|head| head.status),
        "protocol": head.map(|head| head.protocol),
        "answer": head.map(|head| &head.fields),
        "after": exchange.after.as_secs_f64(),
        "took": exchange.took.as_secs_f64(),
    })
}

fn document_json(document: &Document) -> Value {
    let entries = document.entries.iter().rev().map(entry_json);
    let (onward, about) = apart(&document.onward);
    let mut shown = json!({
        "title": document.title,
        "link": document.link,
        "hints": document.hints,
        "hub": document.hub,
        "self_link": document.self_link,
        "cloud": document.cloud,
        "onward": onward,
        "repaired": document.repaired,
        "entries": entries.collect::<Vec<_>>(),
    });
    if let (Some(shown), Value::Object(about)) = (shown.as_object_mut(), about) {
        shown.extend(about);
    }
    shown
}

/// Returns the full report for people.
fn report(single: &Single, verdict: Option<&Verdict>) -> String {
    let mut parts: Vec<String> = single.exchanges.iter().map(exchange_text).collect();
    parts.push(outcome_text(single));
    if let Outcome::Modified(document) = &single.fetched.outcome {
        parts.extend(entries_text(document));
    }
    parts.extend(verdict.map(verdict_text));
    parts.join("\n\n")
}

/// Fields of an answer that say something about polling; the others are counted.
const TELLING: [&str; 16] = [
    "content-type",
    "content-length",
    "content-encoding",
    "transfer-encoding",
    "etag",
    "last-modified",
    "cache-control",
    "expires",
    "age",
    "date",
    "retry-after",
    "location",
    "vary",
    "server",
    "link",
    "im",
];

fn exchange_text(exchange: &Exchange) -> String {
    let url = exchange.url.as_url();
    let line = |(name, value): &Field| format!("> {name}: {}", plain(value, 300));
    let host = url.port().map_or_else(String::new, |port| format!(":{port}"));
    let mut lines = vec![
        format!("> GET {}{}", url.path(), url.query().map_or_else(String::new, |query| format!("?{query}"))),
        format!("> host: {}{host}", url.host_str().unwrap_or_default()),
    ];
    lines.extend(exchange.request.iter().map(line));
    let took = words::duration(exchange.took);
    let Some(head) = &exchange.answer else {
        lines.push(format!("< no answer, after {took}"));
        return lines.join("\n");
    };
    lines.push(format!("< {} {}, after {took}", head.protocol, head.status));
    let (shown, others): (Vec<&Field>, Vec<&Field>) =
        head.fields.iter().partition(|(name, _)| TELLING.contains(&name.as_str()));
    lines.extend(shown.into_iter().map(|(name, value)| format!("< {name}: {}", plain(value, 300))));
    if !others.is_empty() {
        lines.push(format!("< ({} further fields; --json has them)", others.len()));
    }
    lines.join("\n")
}

fn outcome_text(single: &Single) -> String {
    let fetched = &single.fetched;
    let announced = fetched.announced.iter().map(|feed| feed.url.to_string()).collect::<Vec<_>>();
    let conditional = match (fetched.conditional, single.job.validators.is_empty()) {
        (true, _) => "yes",
        (false, true) => "no: no --etag or --last-modified given",
        (false, false) => "no",
    };
    let mut pairs = vec![
        ("outcome", Some(output::outcome(&fetched.outcome))),
        ("conditional", Some(conditional.to_owned())),
        (
            "bytes",
            Some(format!(
                "{} on the wire, {} decoded",
                words::bytes(fetched.wire_bytes as f64),
                words::bytes(fetched.body_bytes as f64)
            )),
        ),
        ("took", Some(words::duration(fetched.duration))),
        ("moved to", fetched.moved_to.as_ref().map(ToString::to_string)),
        ("fresh for", fetched.fresh_for.map(words::duration)),
        ("announces", Some(announced.join(", ")).filter(|list| !list.is_empty())),
    ];
    if let Outcome::Modified(document) = &fetched.outcome {
        let text = |text: &Option<String>| text.as_deref().map(|text| plain(text, 200));
        pairs.extend([("title", text(&document.title)), ("link", text(&document.link))]);
        pairs.extend(document.onward.about.as_deref().map(about_fields).unwrap_or_default());
        pairs.extend([
            ("validators", Some(validators_text(&document.validators))),
            ("hints", hints_text(&document.hints)),
            ("hub", text(&document.hub)),
            ("cloud", text(&document.cloud)),
        ]);
        pairs.extend(onward_fields(&document.onward));
        pairs.extend([
            ("repaired", repaired_text(document.repaired)),
            ("entries", Some(document.all_entries.to_string())),
        ]);
    }
    fields(&pairs)
}

fn validators_text(validators: &Validators) -> String {
    match (&validators.etag, &validators.last_modified) {
        (None, None) => "none: every poll will be a full download".to_owned(),
        (Some(_), None) => "an ETag".to_owned(),
        (None, Some(_)) => "a Last-Modified".to_owned(),
        (Some(_), Some(_)) => "an ETag and a Last-Modified".to_owned(),
    }
}

fn entries_text(document: &Document) -> Option<String> {
    const SHOWN: usize = 10;
    // The report has the document's last entry first.
    let rows = document.entries.iter().rev().take(SHOWN).map(|entry| {
        let published = entry.published.or(entry.updated);
        vec![
            published.map_or_else(|| "-".to_owned(), |at| when::cell(at, "%Y-%m-%d %H:%M")),
            plain(entry.display_title(), 80),
            plain(entry.url.as_deref().unwrap_or("-"), 500),
        ]
    });
    let more = document.entries.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("\n({more} more)") } else { String::new() };
    let rows: Vec<_> = rows.collect();
    (!rows.is_empty()).then(|| table(&[&when::head("PUBLISHED"), "TITLE", "LINK"], &rows) + &more)
}

fn verdict_text(verdict: &Verdict) -> String {
    let base = verdict.decision.state.last_polled.unwrap_or_default();
    let rows: Vec<_> = verdict.terms.iter().map(|term| vec![when::due(term.due, base), term.text.clone()]).collect();
    let next = verdict.decision.next_due.map_or_else(|| "never".to_owned(), |due| when::moment(due, base));
    let head = fields(&[
        ("a fleet would poll it", Some(next)),
        ("its host would rest until", verdict.decision.host_hold.map(|until| when::moment(until, base))),
        ("status", Some(verdict.decision.status.as_str().to_owned())),
    ]);
    if rows.is_empty() { head } else { format!("{head}\n\n{}", table(&[&when::head("DUE"), "BECAUSE"], &rows)) }
}
