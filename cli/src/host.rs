//! `feedfleet host`: what is known of hosts, the rules that operators set, blocks.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use common::outcome::FailureKind;
use common::time::{Clock, SystemClock, Timestamp};
use common::words;
use reqwest::Method;
use scheduler::wire::{HostView, List, RefusingView};
use serde_json::{Map, Value, json};

use crate::client::{Client, ClientArgs};
use crate::output::{Cell, coloured_table, fields, plain};
use crate::terminal::{Ink, width};
use crate::usage::Usage;
use crate::{output, values, when};

/// Shows hosts, sets their rules, blocks them
#[derive(Debug, Subcommand)]
pub(crate) enum HostCommand {
    /// Lists hosts with feeds, holds, blocks or operators' rules
    List(ListArgs),
    /// Shows the limits, holds, blocks and the rule of a host
    Show(OneArgs),
    /// Sets keys of a host's rule
    #[command(
        after_help = "Keys: shared, gap, burst, parallel, interval, user_agent, soft_statuses, reason and the others of \
                            [[host_rule]]; `feedfleet config print` shows the rules of the configuration. Keys that are not \
                            named stay as they are; KEY=none removes one. A rule needs a reason.\n\n\
                            Examples:\n  \
                            feedfleet host set example.com gap=5s interval=2h reason=\"asked for fewer requests\""
    )]
    Set(SetArgs),
    /// Removes an operator's rule; the configuration's rule applies again
    Unset(OneArgs),
    /// Stops all requests to a host for a given time
    Block(BlockArgs),
    /// Removes a block; a hold that the server requested stays
    Unblock(OneArgs),
}

/// `host list`
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Continues after the cursor of an earlier list
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// Maximum number to list (1 to 1000)
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = values::number::<u32>)]
    limit: u32,
    #[command(flatten)]
    client: ClientArgs,
}

/// One host.
#[derive(Debug, Args)]
pub(crate) struct OneArgs {
    /// A name, for all ports where the fleet knows it; NAME:PORT; or *.DOMAIN if the names of a domain share their limits
    host: String,
    #[command(flatten)]
    client: ClientArgs,
}

/// `host set`
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// A name; the rule applies to it and to all names below it
    host: String,
    /// What to set, such as gap=5s
    #[arg(required = true, value_name = "KEY=VALUE")]
    keys: Vec<String>,
    #[command(flatten)]
    client: ClientArgs,
}

/// `host block`
#[derive(Debug, Args)]
pub(crate) struct BlockArgs {
    /// A name, for all ports where the fleet knows it; NAME:PORT; or *.DOMAIN if the names of a domain share their limits
    host: String,
    /// How long, such as 12h
    #[arg(long = "for", value_name = "DURATION", value_parser = values::duration)]
    duration: Duration,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs one of them.
pub(crate) async fn run(command: HostCommand) -> anyhow::Result<ExitCode> {
    match command {
        HostCommand::List(args) => list(&args).await?,
        HostCommand::Show(args) => {
            let host = one(&args.client, Method::GET, &args.host, "", None).await?;
            print_host(&args.client, &host, &host_fields(&host, SystemClock.now()))?;
        }
        HostCommand::Set(args) => set(&args).await?,
        HostCommand::Unset(args) => {
            let host = one(&args.client, Method::DELETE, &args.host, "", None).await?;
            print_host(&args.client, &host, &format!("removed the rule of {}: {}", args.host, pace(&host)))?;
        }
        HostCommand::Block(args) => {
            let body = json!({ "for": args.duration.as_secs_f64() });
            let host = one(&args.client, Method::POST, &args.host, "/block", Some(&body)).await?;
            let until = host.blocked_until.map_or_else(String::new, |until| format!(" until {}", when::full(until)));
            // A block may be set before the first feed; a name with a typo looks the same.
            let nobody = if host.feeds == 0 { " (no feed of this fleet is on it)" } else { "" };
            print_host(&args.client, &host, &format!("blocked {}{until}{nobody}", host.host))?;
        }
        HostCommand::Unblock(args) => {
            // The answer is the host after the change.
            let before = one(&args.client, Method::GET, &args.host, "", None).await?;
            let host = one(&args.client, Method::POST, &args.host, "/unblock", None).await?;
            let done = match before.blocked_until {
                Some(_) => format!("unblocked {}", host.host),
                None => format!("{} was not blocked", host.host),
            };
            let held = host.hold_until.map(|until| format!("; it is on hold until {}", when::full(until)));
            print_host(&args.client, &host, &(done + &held.unwrap_or_default()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn one(
    args: &ClientArgs,
    method: Method,
    host: &str,
    action: &str,
    body: Option<&Value>,
) -> anyhow::Result<HostView> {
    // One part of the path, whatever was typed.
    let host = host.replace('%', "%25").replace('/', "%2F");
    Client::new(args)?.change(method, &format!("/hosts/{host}{action}"), body).await
}

fn print_host(args: &ClientArgs, host: &HostView, text: &str) -> anyhow::Result<()> {
    if args.json {
        return Ok(output::json(host)?);
    }
    Ok(output::line(text)?)
}

async fn list(args: &ListArgs) -> anyhow::Result<()> {
    let limit = args.limit.to_string();
    let after = args.after.as_deref().map(|after| ("after", after));
    let query: Vec<_> = after.into_iter().chain([("limit", limit.as_str())]).collect();
    let list: List<HostView> = Client::new(&args.client)?.get("/hosts", &query).await?;
    if args.client.json {
        list.items.iter().try_for_each(output::json)?;
    } else if list.items.is_empty() {
        output::line("no hosts")?;
    } else {
        let now = SystemClock.now();
        let rows: Vec<Vec<Cell>> = list.items.iter().map(|host| row(host, now)).collect();
        output::line(&coloured_table((Ink::Dim, &HEAD), &rows, width()))?;
    }
    if let Some(next) = list.next {
        let (limit, flags) = (args.limit, args.client.flags());
        note!("there are more: feedfleet host list --limit {limit}{flags} --after {next}");
    }
    Ok(())
}

/// What a list and a host show, in the same words.
const HEAD: [&str; 6] = ["HOST", "FEEDS", "HOLD ENDS", "BLOCK ENDS", "PACE", "RULE"];

/// Returns a line of the list.
fn row(host: &HostView, now: Timestamp) -> Vec<Cell> {
    let until = |at: Option<Timestamp>, ink| match at {
        Some(at) => Cell::new(ink, words::relative(at, now)),
        None => Cell::new(Ink::Dim, "-"),
    };
    vec![
        Cell::from(host.host.as_str()),
        Cell::from(host.feeds.to_string()),
        until(host.hold_until, Ink::Warn),
        until(host.blocked_until, Ink::Bad),
        Cell::from(pace(host)),
        Cell::new(Ink::Dim, reason(host)),
    ]
}

/// Applies the keys to the current rule, and sets it.
async fn set(args: &SetArgs) -> anyhow::Result<()> {
    let before = one(&args.client, Method::GET, &args.host, "", None).await?;
    let domain = args.host.trim().trim_start_matches("*.").trim_end_matches('.');
    let own = |rule: &Map<String, Value>| rule["match"].as_str().is_some_and(|name| name.eq_ignore_ascii_case(domain));
    let mut rule = before.rule.filter(own).unwrap_or_default();
    rule.remove("source");
    for key in &args.keys {
        let wrong = || Usage(format!("'{key}' sets nothing; write KEY=VALUE, such as gap=5s"));
        let (name, value) = key.split_once('=').ok_or_else(wrong)?;
        let (name, value) = (name.trim(), value.trim());
        match value {
            "none" => rule.remove(name),
            _ => rule.insert(name.to_owned(), read_value(name, value)?),
        };
    }
    let host = one(&args.client, Method::PUT, &args.host, "", Some(&Value::Object(rule))).await?;
    print_host(&args.client, &host, &format!("set the rule of {domain}: {}", pace(&host)))
}

/// Returns a key's value as the API reads it. What is not known here is for the fleet to judge.
fn read_value(name: &str, text: &str) -> anyhow::Result<Value> {
    let number = || text.parse::<Value>().ok().filter(|value| value.is_number() || value.is_boolean());
    Ok(match name {
        "reason" | "user_agent" | "match" => text.into(),
        "gap" | "interval" | "soft_for" => {
            let duration = values::duration(text).map_err(|accepted| Usage(format!("{name}: {accepted}")))?;
            duration.as_secs_f64().into()
        }
        "soft_statuses" => {
            let statuses = text.trim_matches(['[', ']']).split(',').map(|status| status.trim().parse::<u16>());
            let statuses: Result<Vec<u16>, _> = statuses.collect();
            statuses.map_err(|_| Usage("soft_statuses: it must be statuses, such as 404,410".to_owned()))?.into()
        }
        _ => number().unwrap_or_else(|| text.into()),
    })
}

/// Returns its limits, in words.
fn pace(host: &HostView) -> String {
    let mut parts = vec![format!("every {}", words::seconds(host.gap))];
    parts.extend((host.burst > 1).then(|| format!("burst {}", host.burst)));
    parts.extend((host.parallel > 1).then(|| format!("{} at once", host.parallel)));
    parts.join(", ")
}

fn reason(host: &HostView) -> String {
    let rule = host.rule.as_ref();
    let text = |field: &str| rule.and_then(|rule| rule.get(field)).and_then(Value::as_str).unwrap_or_default();
    match rule {
        None => String::new(),
        Some(_) => format!("{}: {}", text("match"), plain(text("reason"), 60)),
    }
}

/// Returns how and since when the host refuses us, and what happens next.
fn refusing_text(refusing: &RefusingView, now: Timestamp) -> String {
    let RefusingView { since, until, tries, failure, status, .. } = refusing;
    let how = match (failure, status) {
        (FailureKind::Status, Some(status)) => format!("HTTP {status}"),
        (failure, Some(status)) => format!("{}, HTTP {status}", words::failure(*failure)),
        (failure, None) => words::failure(*failure).to_owned(),
    };
    format!("{how}, since {}; rest {tries}, one feed is tried {}", when::moment(*since, now), when::moment(*until, now))
}

fn host_fields(host: &HostView, now: Timestamp) -> String {
    let when = |at: Option<Timestamp>| at.map(|at| when::moment(at, now));
    let mut lines = fields(&[
        ("host", Some(host.host.clone())),
        ("feeds", Some(host.feeds.to_string())),
        ("hold ends", when(host.hold_until)),
        ("block ends", when(host.blocked_until)),
        ("pace", Some(pace(host))),
        ("refuses us", host.refusing.as_ref().map(|refusing| refusing_text(refusing, now))),
        ("what helps", host.refusing.as_ref().map(|refusing| refusing.advice.clone())),
    ]);
    if let Some(rule) = &host.rule {
        let of = |(name, value): (&String, &Value)| match (name.as_str(), value) {
            (_, Value::Array(list)) if list.is_empty() => None,
            ("gap" | "interval" | "soft_for", value) => {
                Some(format!("  {name} = {}", words::seconds(value.as_f64().unwrap_or(0.0))))
            }
            (_, Value::String(text)) => Some(format!("  {name} = {}", plain(text, 500))),
            (_, value) => Some(format!("  {name} = {value}")),
        };
        let shown: Vec<String> = rule.iter().filter_map(of).collect();
        lines = format!("{lines}\nrule\n{}", shown.join("\n"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_shown_in_the_words_of_the_list() {
        let until = "2026-11-27T20:32:20.000Z";
        let host: HostView = serde_json::from_value(json!({
            "host": "a.org:443", "feeds": 2, "hold_until": until, "blocked_until": until, "gap": 5.0, "burst": 1, "parallel": 1,
            "rule": { "match": "a.org", "gap": 5.0, "reason": "asked by mail" },
        }))
        .unwrap();
        let shown = host_fields(&host, host.hold_until.unwrap());
        for name in HEAD {
            assert!(shown.contains(&name.to_lowercase()), "{name}: {shown}");
        }
    }
}
