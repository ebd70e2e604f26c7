//! `feedfleet requeue`: polls many feeds soon, at a rate; shows the progress, and cancels it.

use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use common::time::{Clock, SystemClock, Timestamp};
use common::words;
use reqwest::Method;
use scheduler::wire::List;
use scheduler::wire::{HostShare, RequeuedView};
use serde_json::{Map, Value, json};
use store::{Requeue, RequeueState};

use crate::client::{Client, ClientArgs};
use crate::fleet::{PAUSED, is_paused};
use crate::output::{fields, table};
use crate::progress::Progress;
use crate::{output, values, when};

/// Schedules many feeds for polling, at a limited rate
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Only feeds that meet all conditions are polled. Polls stay conditional, hosts' gaps are kept, and feeds of a held \
                  host are polled when the hold ends. Feeds in the penalty box stay there unless --lift-penalties is given. A \
                  requeue continues after a restart of the fleet.\n\n\
                  Examples:\n  \
                  feedfleet requeue --host example.com --dry-run\n  \
                  feedfleet requeue --failure dns --lift-penalties --rate 50/s"
)]
#[command(group(ArgGroup::new("filter").args(["feed", "host", "category", "status", "failure", "overdue", "all"]).multiple(true)))]
pub(crate) struct RequeueArgs {
    #[command(subcommand)]
    command: Option<RequeueCommand>,
    /// One feed, by id or URL
    #[arg(long, value_name = "X")]
    feed: Option<String>,
    /// Feeds of a host: a name, for all of its ports; NAME:PORT; or *.DOMAIN if the names of a domain share their limits
    #[arg(long, value_name = "H")]
    host: Option<String>,
    /// Feeds of a category, A to D or F
    #[arg(long, value_name = "C")]
    category: Option<String>,
    /// Feeds with a status, such as active or blacklisted
    #[arg(long, value_name = "S")]
    status: Option<String>,
    /// Feeds whose last poll failed in this way, such as dns
    #[arg(long, value_name = "K")]
    failure: Option<String>,
    /// Feeds that have been due for longer than this, such as 15m
    #[arg(long, value_name = "D", value_parser = values::duration)]
    overdue: Option<Duration>,
    /// All feeds
    #[arg(long, conflicts_with_all = ["feed", "host", "category", "status", "failure", "overdue"])]
    all: bool,
    /// Feeds per second, minute or hour, such as 50/s, 600/m or 1000/h [default: 10/s]
    #[arg(long, value_name = "N/s", value_parser = rate)]
    rate: Option<f64>,
    /// Only shows what would be polled
    #[arg(long)]
    dry_run: bool,
    /// Also polls feeds in the penalty box, and blacklisted and quarantined feeds once
    #[arg(long)]
    lift_penalties: bool,
    /// Waits until it is done
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    client: ClientArgs,
}

/// What else there is to do.
#[derive(Debug, Subcommand)]
enum RequeueCommand {
    /// Lists running requeues and the last 100 that ended
    List(ClientArgs),
    /// Shows the progress of a requeue
    Show(ShowArgs),
    /// Cancels a requeue; feeds that it has already woken are still polled
    Cancel(OneArgs),
}

/// `requeue show`
#[derive(Debug, Args)]
struct ShowArgs {
    /// Number of the requeue
    #[arg(value_parser = values::number::<i64>)]
    id: i64,
    /// Waits until it is done
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    client: ClientArgs,
}

/// One requeue.
#[derive(Debug, Args)]
struct OneArgs {
    /// Number of the requeue
    #[arg(value_parser = values::number::<i64>)]
    id: i64,
    #[command(flatten)]
    client: ClientArgs,
}

/// Between two looks at a requeue that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Parses a number of feeds a second: `50/s`, `600/m`, `1000/h`, or a bare number.
fn rate(text: &str) -> Result<f64, &'static str> {
    let (number, unit) = text.split_once('/').unwrap_or((text, "s"));
    let seconds = match unit.trim() {
        "s" | "sec" | "second" => 1.0,
        "m" | "min" | "minute" => 60.0,
        "h" | "hour" => 3600.0,
        _ => return Err("it must be a number of feeds a second, minute or hour, such as 50/s"),
    };
    let number: Option<f64> = number.trim().parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.map(|number| number / seconds).ok_or("it must be a number of feeds more than 0, such as 50/s")
}

/// Runs it.
pub(crate) async fn run(args: &RequeueArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        None => begin(args).await,
        Some(RequeueCommand::List(client)) => list(client).await,
        Some(RequeueCommand::Show(show)) => {
            let client = Client::new(&show.client)?;
            let requeue = if show.wait { ended(&client, show.id).await? } else { one(&client, show.id).await? };
            print_requeue(&show.client, &requeue)
        }
        Some(RequeueCommand::Cancel(of)) => {
            let path = format!("/requeue/{}/cancel", of.id);
            let requeue: Requeue = Client::new(&of.client)?.change(Method::POST, &path, None).await?;
            let cancelled = || format!("cancelled requeue {} after {}", of.id, feeds(requeue.woken));
            output::answer(of.client.json, &requeue, cancelled)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn begin(args: &RequeueArgs) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.client)?;
    let mut filter = Map::new();
    if let Some(feed) = &args.feed {
        filter.insert("feed".to_owned(), json!(client.find(feed).await?));
    }
    let texts =
        [("host", &args.host), ("category", &args.category), ("status", &args.status), ("failure", &args.failure)];
    for (name, text) in texts {
        filter.extend(text.as_ref().map(|text| (name.to_owned(), json!(text))));
    }
    filter.extend(args.overdue.map(|overdue| ("overdue".to_owned(), json!(overdue.as_secs_f64()))));
    filter.extend(args.all.then(|| ("all".to_owned(), json!(true))));
    if filter.is_empty() {
        let message = "say which feeds: --feed, --host, --category, --status, --failure, --overdue or --all";
        return Err(crate::usage::Usage(message.to_owned()).into());
    }
    let mut body = json!({ "filter": filter, "dry_run": args.dry_run, "lift_penalties": args.lift_penalties });
    if let Some(rate) = args.rate {
        body["rate"] = json!(rate);
    }
    let begun: RequeuedView = client.change(Method::POST, "/requeue", Some(&body)).await?;
    if let Some(id) = begun.id.filter(|_| args.wait) {
        if !args.client.json {
            note!("{}", plan(&begun));
        }
        return print_requeue(&args.client, &ended(&client, id).await?);
    }
    output::answer(args.client.json, &begun, || plan(&begun))?;
    if begun.id.is_some() {
        note_pause(&client).await;
    }
    Ok(ExitCode::SUCCESS)
}

/// Says that nothing is polled, if all polling is paused. The requeue has begun, whether or not the fleet answers now.
async fn note_pause(client: &Client) {
    if is_paused(client).await {
        note!("{PAUSED}");
    }
}

/// Returns a rate in the first unit in which it is at least 1, and the unit: a second, a minute or an hour.
fn in_unit(rate: f64) -> (f64, &'static str) {
    let every = |seconds: f64| (rate * seconds * 1e6).round() / 1e6;
    let units = [(every(1.0), "second"), (every(60.0), "minute")];
    units.into_iter().find(|(number, _)| *number >= 1.0).unwrap_or((every(3600.0), "hour"))
}

/// Returns a rate as `--rate` takes it, such as `50/s` or `30/m`.
fn short_rate(rate: f64) -> String {
    let (number, unit) = in_unit(rate);
    format!("{number}/{}", &unit[..1])
}

fn feeds(count: u64) -> String {
    words::counted(count, "feed", "feeds")
}

/// Returns what a requeue does or would do.
fn plan(begun: &RequeuedView) -> String {
    let share = format!("{} of {}", feeds(begun.pollable), words::counted(begun.hosts, "host", "hosts"));
    let (number, unit) = in_unit(begun.rate);
    let article = if unit == "hour" { "an" } else { "a" };
    let seconds = Duration::try_from_secs_f64(begun.seconds).unwrap_or(Duration::MAX);
    let pace = format!("{number} {article} {unit}, in {}", words::duration(seconds));
    let mut lines = vec![match begun.id {
        Some(id) => {
            format!("requeue {id}: {share}, {pace} at least; `feedfleet requeue show {id}` shows its progress")
        }
        None if begun.pollable == 0 => "no feed would be polled".to_owned(),
        None => format!("would poll {share}, {pace} at least"),
    }];
    if !begun.left_out.is_empty() {
        let reasons: Vec<String> = begun.left_out.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        let boxed =
            ["penalised", "blacklisted", "quarantined"].iter().any(|reason| begun.left_out.contains_key(*reason));
        let hint = if boxed { "; --lift-penalties polls penalised, blacklisted and quarantined ones too" } else { "" };
        lines.push(format!("left out: {}{hint}", reasons.join(", ")));
    }
    if begun.dry_run && begun.pollable > 0 {
        let rows: Vec<Vec<String>> =
            begun.by_category.iter().map(|(category, count)| vec![category.clone(), count.to_string()]).collect();
        lines.push(table(&["CATEGORY", "FEEDS"], &rows));
        lines.push(hosts(&begun.by_host));
        let unnamed = begun.hosts.saturating_sub(begun.by_host.len() as u64);
        lines.extend(
            (unnamed > 0).then(|| format!("and {} with fewer feeds", words::counted(unnamed, "host", "hosts"))),
        );
    }
    lines.join("\n")
}

/// Returns hosts and their feeds, and until when a host is on hold.
fn hosts(shares: &[HostShare]) -> String {
    let now = SystemClock.now();
    let waits =
        |share: &HostShare| share.not_before.map_or_else(|| "-".to_owned(), |until| words::relative(until, now));
    let any = shares.iter().any(|share| share.not_before.is_some());
    let row = |share: &HostShare| {
        let columns = [share.feeds.to_string(), share.host.clone()].into_iter();
        columns.chain(any.then(|| waits(share))).collect()
    };
    let rows: Vec<Vec<String>> = shares.iter().map(row).collect();
    table(if any { &["FEEDS", "HOST", "ASKED AGAIN"] } else { &["FEEDS", "HOST"] }, &rows)
}

async fn one(client: &Client, id: i64) -> anyhow::Result<Requeue> {
    client.get(&format!("/requeue/{id}"), &[]).await
}

/// Returns the requeue when it has ended, with a bar until then. A fleet that restarts continues it.
async fn ended(client: &Client, id: i64) -> anyhow::Result<Requeue> {
    let mut requeue = one(client, id).await?;
    if requeue.state == RequeueState::Running {
        note_pause(client).await;
    }
    let mut bar = Progress::new(usize::try_from(requeue.queued).unwrap_or(usize::MAX));
    while requeue.state == RequeueState::Running {
        bar.reach(usize::try_from(requeue.woken).unwrap_or(usize::MAX));
        bar.say(&format!("{} of {}", requeue.woken, feeds(requeue.queued)));
        tokio::time::sleep(LOOK_EVERY).await;
        match one(client, id).await {
            Ok(now) => requeue = now,
            Err(error) if crate::client::passes(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(requeue)
}

fn print_requeue(args: &ClientArgs, requeue: &Requeue) -> anyhow::Result<ExitCode> {
    if args.json {
        output::json(requeue)?;
        return Ok(ExitCode::SUCCESS);
    }
    let now = SystemClock.now();
    let left = requeue.queued.saturating_sub(requeue.woken);
    let rest = Duration::try_from_secs_f64(left as f64 / requeue.rate).unwrap_or(Duration::MAX);
    let rest = (requeue.state == RequeueState::Running)
        .then(|| format!("{}, {} at least", feeds(left), words::duration(rest)));
    output::line(&fields(&[
        ("requeue", Some(requeue.id.to_string())),
        ("state", Some(requeue.state.as_str().to_owned())),
        ("feeds", Some(filter(requeue))),
        ("rate", Some(short_rate(requeue.rate))),
        ("penalties", requeue.lift_penalties.then(|| "lifted".to_owned())),
        ("by", Some(requeue.by.clone())),
        ("begun", Some(when::moment(requeue.created, now))),
        ("ended", requeue.ended.map(|ended| when::moment(ended, now))),
        ("woken", Some(format!("{} of {}", requeue.woken, requeue.queued))),
        ("left", rest),
    ]))?;
    Ok(ExitCode::SUCCESS)
}

/// The most feeds or hosts that are named; more are counted.
const MOST_NAMED: usize = 10;

/// Returns which feeds, in words.
fn filter(requeue: &Requeue) -> String {
    let Ok(Value::Object(parts)) = serde_json::to_value(&requeue.filter) else { return String::new() };
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let part = |(name, value): (&String, &Value)| match (name.replace('_', " "), value) {
        (name, Value::Array(items)) if items.len() > MOST_NAMED => {
            format!("{} {name}", words::count(items.len() as u64))
        }
        (name, Value::Array(items)) => format!("{name} {}", items.iter().map(text).collect::<Vec<_>>().join(" ")),
        (name, value) => format!("{name} {}", text(value)),
    };
    let parts: Vec<String> = parts.iter().map(part).collect();
    if parts.is_empty() { "all".to_owned() } else { parts.join(", ") }
}

async fn list(args: &ClientArgs) -> anyhow::Result<ExitCode> {
    let list: List<Requeue> = Client::new(args)?.get("/requeue", &[]).await?;
    if args.json {
        list.items.iter().try_for_each(output::json)?;
        return Ok(ExitCode::SUCCESS);
    }
    if list.items.is_empty() {
        output::line("no requeues")?;
        return Ok(ExitCode::SUCCESS);
    }
    let now: Timestamp = SystemClock.now();
    let row = |requeue: &Requeue| {
        vec![
            requeue.id.to_string(),
            requeue.state.as_str().to_owned(),
            format!("{} of {}", requeue.woken, requeue.queued),
            short_rate(requeue.rate),
            words::relative(requeue.created, now),
            requeue.by.clone(),
            filter(requeue),
        ]
    };
    let rows: Vec<Vec<String>> = list.items.iter().map(row).collect();
    output::line(&table(&["ID", "STATE", "WOKEN", "RATE", "BEGUN", "BY", "FEEDS"], &rows))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_feeds_a_second_a_minute_or_an_hour() {
        assert_eq!((rate("50/s"), rate("50"), rate("0.5")), (Ok(50.0), Ok(50.0), Ok(0.5)));
        assert_eq!((rate("600/m"), rate("1800 / h")), (Ok(10.0), Ok(0.5)));
        for wrong in ["", "0", "-1/s", "fast", "50/d", "nan", "inf/s", "50/s/s"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_slow_rate_is_shown_a_minute_or_an_hour() {
        for text in ["50/s", "2.5/s", "30/m", "1/m", "10/h", "1/h"] {
            assert_eq!(short_rate(rate(text).unwrap()), text);
        }
        assert_eq!(short_rate(rate("120/m").unwrap()), "2/s");
        assert_eq!(short_rate(rate("0.5/h").unwrap()), "0.5/h");
    }

    #[test]
    fn every_part_of_a_filter_is_shown() {
        let shown = |filter: Value| {
            let requeue = json!({
                "id": 1, "state": "running", "filter": filter, "rate": 1.0, "lift_penalties": false, "by": "ann",
                "created": "2026-11-22T12:00:00Z", "matched": 1, "queued": 1, "woken": 0,
            });
            super::filter(&serde_json::from_value(requeue).unwrap())
        };
        assert_eq!(shown(json!({ "feed": 3 })), "feed 3");
        assert_eq!(shown(json!({ "feeds": [3, 7] })), "feeds 3 7");
        assert_eq!(shown(json!({ "feeds": (1..=11).collect::<Vec<_>>() })), "11 feeds");
        assert_eq!(shown(json!({ "hosts": ["a.org:443", "a.org:8080"] })), "hosts a.org:443 a.org:8080");
        assert_eq!(shown(json!({ "http_statuses": [403, 429] })), "http statuses 403 429");
        assert_eq!(shown(json!({})), "all");
    }
}
