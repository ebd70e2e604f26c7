//! `feedfleet feed`: add, list, show, explain, change feeds.

use std::cell::Cell;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use common::time::{Clock, SystemClock};
use common::url::FeedId;
use reqwest::Method;
use scheduler::wire::{ExplainView, FeedView, List};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use store::HistoryEntry;

use crate::audience::AudienceArgs;
use crate::client::{Client, ClientArgs, quoted};
use crate::feed_text::{error_lines, explanation, feed_fields, feed_table, history_table};
use crate::feeds::{FeedsArgs, RemoveArgs, act, each, remove};
use crate::terminal::width;
use crate::usage::Usage;
use crate::{output, values};

/// Adds, lists, shows and changes feeds
#[derive(Debug, Subcommand)]
pub(crate) enum FeedCommand {
    /// Adds feeds; they are polled at once
    Add(crate::add::AddArgs),
    /// Lists feeds
    List(ListArgs),
    /// Shows everything about feeds
    Show(FeedsArgs),
    /// Shows, step by step, how the next poll time of feeds was computed
    Explain(FeedsArgs),
    /// Shows the last polls of feeds
    History(FeedsArgs),
    /// Changes settings of feeds: audience, interval, privacy, external id
    Set(SetArgs),
    /// Adds and removes labels of feeds
    Label(LabelArgs),
    /// Polls feeds as soon as their hosts' limits allow, even if the publisher says that they are still fresh
    Refresh(crate::refresh::RefreshArgs),
    /// Stops polling feeds
    Pause(FeedsArgs),
    /// Polls paused, blacklisted or quarantined feeds again
    Resume(FeedsArgs),
    /// Drops the validators and content hashes of feeds, so that their next polls download the whole document
    Forget(FeedsArgs),
    /// Reads the older entries that feeds link to (RFC 5005), page by page
    Backfill(BackfillArgs),
    /// Returns feeds to the URLs that they had before they moved or were merged; the same moves are not repeated
    Unmove(FeedsArgs),
    /// Erases feeds with their entries and history
    Remove(RemoveArgs),
}

/// `feed set`
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    #[command(flatten)]
    feeds: FeedsArgs,
    /// Your own id for the feed, which its entries and events carry; an empty text removes it
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
    #[command(flatten)]
    audience: AudienceArgs,
}

/// `feed label`
#[derive(Debug, Args)]
pub(crate) struct LabelArgs {
    /// The feeds' ids or URLs; then +LABEL adds a label, -LABEL removes it. Flags come before the feeds
    #[arg(required = true, num_args = 2.., allow_hyphen_values = true, value_name = "FEED|+LABEL|-LABEL")]
    what: Vec<String>,
    #[command(flatten)]
    client: ClientArgs,
}

/// `feed backfill`
#[derive(Debug, Args)]
pub(crate) struct BackfillArgs {
    #[command(flatten)]
    feeds: FeedsArgs,
    /// Leaves out entries that are older than this time, such as 2026-01-01T00:00:00Z, or this age, such as 30days
    #[arg(long, value_name = "TIME", value_parser = crate::filters::since)]
    since: String,
}

/// The default number of feeds that are listed at once.
const LIMIT: u32 = 100;

/// `feed list`
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only feeds with this in their title or URL
    #[arg(long = "search", value_name = "TEXT")]
    q: Option<String>,
    /// Only feeds of this host: a name, at any port, or NAME:PORT
    #[arg(long)]
    host: Option<String>,
    /// Only feeds of this category: A, B, C, D or F
    #[arg(long)]
    category: Option<String>,
    /// Only feeds with this status, such as active, paused, gone
    #[arg(long)]
    status: Option<String>,
    /// Only feeds that fail in this way, such as dns, timeout, not_a_feed
    #[arg(long, value_name = "KIND")]
    failure: Option<String>,
    /// Only feeds whose last poll failed
    #[arg(long)]
    failing: bool,
    /// Only feeds in the penalty box; with --failure, only those in it because of this failure
    #[arg(long)]
    penalised: bool,
    /// Only feeds with this label
    #[arg(long)]
    label: Option<String>,
    /// Only feeds with this external id
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
    /// Order: id, subscribers, next_due, category or last_polled
    #[arg(long)]
    sort: Option<String>,
    /// Continues after the cursor of an earlier list
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// Maximum number to list (1 to 1000)
    #[arg(long, default_value_t = LIMIT, value_name = "N", value_parser = values::number::<u32>)]
    limit: u32,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs one of them.
pub(crate) async fn run(command: FeedCommand) -> anyhow::Result<ExitCode> {
    match command {
        FeedCommand::Add(args) => crate::add::run(&args).await,
        FeedCommand::List(args) => list(&args).await,
        FeedCommand::Show(args) => print_each(&args, "", |feed: &FeedView| feed_fields(feed, SystemClock.now())).await,
        FeedCommand::Explain(args) => {
            print_each(&args, "/explain", |explained: &ExplainView| explanation(explained, SystemClock.now())).await
        }
        FeedCommand::History(args) => history(&args).await,
        FeedCommand::Set(args) => set(&args).await,
        FeedCommand::Label(args) => label(&args).await,
        FeedCommand::Refresh(args) => crate::refresh::run(&args).await,
        FeedCommand::Pause(args) => act(&args, "/pause", "paused").await,
        FeedCommand::Resume(args) => act(&args, "/resume", "resumed").await,
        FeedCommand::Forget(args) => act(&args, "/forget", "forgot the validators of").await,
        FeedCommand::Backfill(args) => backfill(&args).await,
        FeedCommand::Unmove(args) => act(&args, "/unmove", "took back").await,
        FeedCommand::Remove(args) => remove(&args).await,
    }
}

/// Prints what `GET /feeds/{id}{path}` says of each feed, with an empty line between two of them.
async fn print_each<T: DeserializeOwned + Serialize>(
    args: &FeedsArgs,
    path: &str,
    text: impl Fn(&T) -> String,
) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.client)?;
    let printed = Cell::new(false);
    each(&args.feed, async |feed| {
        let id = client.find(feed).await?;
        let found: T = client.get(&format!("/feeds/{id}{path}"), &[]).await?;
        if args.client.json {
            return Ok(output::json(&found)?);
        }
        let gap = if printed.replace(true) { "\n" } else { "" };
        Ok(output::line(&format!("{gap}{}", text(&found)))?)
    })
    .await
}

async fn set(args: &SetArgs) -> anyhow::Result<ExitCode> {
    let mut body = args.audience.to_json()?;
    if let Some(id) = &args.external_id {
        let id = Some(id.as_str()).filter(|id| !id.is_empty());
        body.insert("external_id".to_owned(), id.into());
    }
    if body.is_empty() {
        return Err(Usage("nothing to set; `feedfleet feed set --help` lists what can be".to_owned()).into());
    }
    change(&args.feeds.feed, &args.feeds.client, &Value::Object(body), |feed| {
        format!("set {} {}: category {}", feed.id, feed.url, feed.category)
    })
    .await
}

async fn backfill(args: &BackfillArgs) -> anyhow::Result<ExitCode> {
    let flags = &args.feeds.client;
    let client = Client::new(flags)?;
    each(&args.feeds.feed, async |feed| {
        let id = client.find(feed).await?;
        let body = json!({ "since": args.since });
        let feed: FeedView = client.change(Method::POST, &format!("/feeds/{id}/backfill"), Some(&body)).await?;
        match flags.json {
            true => output::json(&feed)?,
            false => output::line(&format!("reading older entries of {} {}", feed.id, feed.url))?,
        }
        Ok(())
    })
    .await
}

async fn label(args: &LabelArgs) -> anyhow::Result<ExitCode> {
    let (mut add, mut remove, mut feeds) = (Vec::new(), Vec::new(), Vec::new());
    for word in &args.what {
        match (word.strip_prefix('+'), word.strip_prefix('-')) {
            (None, None) => feeds.push(word.clone()),
            (Some(name), _) if !name.is_empty() => add.push(name),
            (_, Some(name)) if !name.is_empty() && !name.starts_with('-') => remove.push(name),
            _ => return Err(Usage(format!("'{word}' must be +LABEL or -LABEL; flags come before the feeds")).into()),
        }
    }
    if feeds.is_empty() || add.is_empty() && remove.is_empty() {
        return Err(Usage("name the feeds, then +LABEL to add a label or -LABEL to remove one".to_owned()).into());
    }
    change(&feeds, &args.client, &json!({ "add_labels": add, "remove_labels": remove }), |feed| {
        let labels = if feed.marks.labels.is_empty() { "none".to_owned() } else { feed.marks.labels.join(", ") };
        format!("labels of {} {}: {}", feed.id, feed.url, output::plain(&labels, 1000))
    })
    .await
}

/// Sends the same change for each feed, and prints what follows.
async fn change(
    feeds: &[String],
    flags: &ClientArgs,
    body: &Value,
    summary: impl Fn(&FeedView) -> String,
) -> anyhow::Result<ExitCode> {
    let client = Client::new(flags)?;
    each(feeds, async |feed| {
        let id = client.find(feed).await?;
        let feed: FeedView = client.change(Method::PATCH, &format!("/feeds/{id}"), Some(body)).await?;
        if flags.json { Ok(output::json(&feed)?) } else { Ok(output::line(&summary(&feed))?) }
    })
    .await
}

impl ListArgs {
    /// Returns the parameters of the request, with the flags that give them.
    fn parameters(&self) -> Vec<(&'static str, &'static str, String)> {
        let given = [
            ("q", "--search", &self.q),
            ("host", "--host", &self.host),
            ("category", "--category", &self.category),
            ("status", "--status", &self.status),
            ("failure", "--failure", &self.failure),
            ("label", "--label", &self.label),
            ("external_id", "--external-id", &self.external_id),
            ("sort", "--sort", &self.sort),
        ];
        let given = given.into_iter().filter_map(|(name, flag, value)| Some((name, flag, value.clone()?)));
        let flags = [("failing", "--failing", self.failing), ("penalised", "--penalised", self.penalised)];
        let flags = flags.into_iter().filter(|(.., is_on)| *is_on);
        given.chain(flags.map(|(name, flag, _)| (name, flag, "true".to_owned()))).collect()
    }

    /// Returns the command that shows what comes after a cursor.
    fn continued(&self, cursor: &str) -> String {
        let mut command = "feedfleet feed list".to_owned();
        for (name, flag, value) in self.parameters() {
            let takes_value = !matches!(name, "failing" | "penalised");
            command += &if takes_value { format!(" {flag} {}", quoted(&value)) } else { format!(" {flag}") };
        }
        if self.limit != LIMIT {
            command += &format!(" --limit {}", self.limit);
        }
        format!("{command}{} --after {cursor}", self.client.flags())
    }
}

async fn list(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.client)?;
    let (limit, parameters) = (args.limit.to_string(), args.parameters());
    let given = parameters.iter().map(|(name, _, value)| (*name, value.as_str()));
    let after = args.after.iter().map(|after| ("after", after.as_str()));
    let query: Vec<_> = given.chain(after).chain([("limit", limit.as_str())]).collect();
    let list: List<FeedView> = client.get("/feeds", &query).await?;
    if args.client.json {
        list.items.iter().try_for_each(output::json)?;
    } else if list.items.is_empty() {
        output::line("no feeds")?;
    } else {
        output::line(&feed_table(&list.items, SystemClock.now(), width()))?;
    }
    if let Some(next) = list.next {
        note!("there are more: {}", args.continued(&next));
    }
    Ok(ExitCode::SUCCESS)
}

/// A poll in JSON, with its feed: a command may name several.
#[derive(Serialize)]
struct HistoryLine<'a> {
    feed: FeedId,
    #[serde(flatten)]
    poll: &'a HistoryEntry,
}

async fn history(args: &FeedsArgs) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.client)?;
    let printed = Cell::new(false);
    each(&args.feed, async |feed| {
        let id = client.find(feed).await?;
        let history: List<HistoryEntry> = client.get(&format!("/feeds/{id}/history"), &[]).await?;
        if args.client.json {
            let mut lines = history.items.iter().map(|poll| HistoryLine { feed: id, poll });
            return Ok(lines.try_for_each(|line| output::json(&line))?);
        }
        let feed: FeedView = client.get(&format!("/feeds/{id}"), &[]).await?;
        let gap = if printed.replace(true) { "\n" } else { "" };
        let head = if args.feed.len() > 1 { format!("{gap}{} {}\n", feed.id, feed.url) } else { String::new() };
        if history.items.is_empty() {
            return Ok(output::line(&format!("{head}never polled"))?);
        }
        let last = error_lines(&feed).map(|lines| format!("\n\n{lines}")).unwrap_or_default();
        Ok(output::line(&format!("{head}{}{last}", history_table(&history.items, width())))?)
    })
    .await
}
