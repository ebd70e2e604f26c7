//! `feedfleet feed`: add, list, show, explain, change feeds.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use common::time::{Clock, SystemClock};
use reqwest::Method;
use scheduler::wire::{ExplainView, FeedView, List};
use serde_json::{Value, json};
use store::HistoryEntry;

use crate::audience::AudienceArgs;
use crate::client::{Client, ClientArgs};
use crate::feed_text::{explanation, feed_fields, feed_table, history_table};
use crate::terminal::width;
use crate::{output, values};

/// Adds, lists, shows and changes feeds
#[derive(Debug, Subcommand)]
pub(crate) enum FeedCommand {
    /// Adds feeds; they are polled at once
    Add(crate::add::AddArgs),
    /// Lists feeds
    List(ListArgs),
    /// Shows everything about a feed
    Show(OneArgs),
    /// Says why a feed is due when it is
    Explain(OneArgs),
    /// Shows a feed's last polls
    History(OneArgs),
    /// Changes who reads a feed
    Set(SetArgs),
    /// Adds and removes labels of a feed
    Label(LabelArgs),
    /// Polls a feed as soon as its host allows it, freshness or not
    Refresh(crate::refresh::RefreshArgs),
    /// Stops polling a feed
    Pause(OneArgs),
    /// Polls a paused, blacklisted or quarantined feed again
    Resume(OneArgs),
    /// Drops a feed's validators and content hash, so that its next poll reads it whole
    Forget(OneArgs),
    /// Takes a feed back to where it was before it moved or was merged; the same move is not made again
    Unmove(OneArgs),
    /// Erases a feed with its entries and history
    Remove(OneArgs),
}

/// One feed.
#[derive(Debug, Args)]
pub(crate) struct OneArgs {
    /// The feed's id or URL
    feed: String,
    #[command(flatten)]
    client: ClientArgs,
}

/// `feed set`
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// The feed's id or URL
    feed: String,
    /// Your own id of the feed, which its entries and events carry; an empty text removes it
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
    #[command(flatten)]
    audience: AudienceArgs,
    #[command(flatten)]
    client: ClientArgs,
}

/// `feed label`
#[derive(Debug, Args)]
pub(crate) struct LabelArgs {
    /// The feed's id or URL
    feed: String,
    /// +LABEL adds a label, -LABEL removes it; flags come before the feed
    #[arg(required = true, allow_hyphen_values = true, value_name = "+LABEL|-LABEL")]
    labels: Vec<String>,
    #[command(flatten)]
    client: ClientArgs,
}

/// `feed list`
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only feeds with this in their title or URL
    #[arg(long = "search", value_name = "TEXT")]
    q: Option<String>,
    /// Only feeds of this host, such as example.com:443
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
    /// Only feeds with this label
    #[arg(long)]
    label: Option<String>,
    /// Only feeds with this id of your own
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
    /// Order: id, subscribers or next_due
    #[arg(long)]
    sort: Option<String>,
    /// Continues after the cursor of an earlier list
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// Maximum number to list (1 to 1000)
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = values::number::<u32>)]
    limit: u32,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs one of them.
pub(crate) async fn run(command: FeedCommand) -> anyhow::Result<ExitCode> {
    match command {
        FeedCommand::Add(args) => return crate::add::run(&args).await,
        FeedCommand::List(args) => list(&args).await?,
        FeedCommand::Show(args) => {
            let feed = one(&args, Method::GET, "").await?;
            print_feed(&args, &feed)?;
        }
        FeedCommand::Explain(args) => explain(&args).await?,
        FeedCommand::History(args) => history(&args).await?,
        FeedCommand::Set(args) => set(&args).await?,
        FeedCommand::Label(args) => label(&args).await?,
        FeedCommand::Refresh(args) => return crate::refresh::run(&args).await,
        FeedCommand::Pause(args) => told(&args, &one(&args, Method::POST, "/pause").await?, "paused")?,
        FeedCommand::Resume(args) => told(&args, &one(&args, Method::POST, "/resume").await?, "resumed")?,
        FeedCommand::Forget(args) => {
            told(&args, &one(&args, Method::POST, "/forget").await?, "forgot the validators of")?;
        }
        FeedCommand::Unmove(args) => told(&args, &one(&args, Method::POST, "/unmove").await?, "took back")?,
        FeedCommand::Remove(args) => remove(&args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn one(args: &OneArgs, method: Method, action: &str) -> anyhow::Result<FeedView> {
    let client = Client::new(&args.client)?;
    let id = client.find(&args.feed).await?;
    client.change(method, &format!("/feeds/{id}{action}"), None).await
}

fn told(args: &OneArgs, feed: &FeedView, what: &str) -> anyhow::Result<()> {
    if args.client.json {
        return Ok(output::json(feed)?);
    }
    Ok(output::line(&format!("{what} {} {}", feed.id, feed.url))?)
}

async fn set(args: &SetArgs) -> anyhow::Result<()> {
    let mut body = args.audience.to_json();
    if let Some(id) = &args.external_id {
        let id = Some(id.as_str()).filter(|id| !id.is_empty());
        body.insert("external_id".to_owned(), id.into());
    }
    if body.is_empty() {
        return Err(
            crate::usage::Usage("nothing to set; `feedfleet feed set --help` lists what can be".to_owned()).into()
        );
    }
    let client = Client::new(&args.client)?;
    let id = client.find(&args.feed).await?;
    let feed: FeedView = client.change(Method::PATCH, &format!("/feeds/{id}"), Some(&Value::Object(body))).await?;
    if args.client.json {
        return Ok(output::json(&feed)?);
    }
    Ok(output::line(&format!("set {} {}: category {}", feed.id, feed.url, feed.category))?)
}

async fn label(args: &LabelArgs) -> anyhow::Result<()> {
    let (mut add, mut remove) = (Vec::new(), Vec::new());
    for label in &args.labels {
        match (label.strip_prefix('+'), label.strip_prefix('-')) {
            (Some(name), _) if !name.is_empty() => add.push(name),
            (_, Some(name)) if !name.is_empty() && !name.starts_with('-') => remove.push(name),
            _ => {
                let wrong = format!("'{label}' must be +LABEL or -LABEL; flags come before the feed");
                return Err(crate::usage::Usage(wrong).into());
            }
        }
    }
    let client = Client::new(&args.client)?;
    let id = client.find(&args.feed).await?;
    let body = json!({ "add_labels": add, "remove_labels": remove });
    let feed: FeedView = client.change(Method::PATCH, &format!("/feeds/{id}"), Some(&body)).await?;
    if args.client.json {
        return Ok(output::json(&feed)?);
    }
    let labels = if feed.marks.labels.is_empty() { "none".to_owned() } else { feed.marks.labels.join(", ") };
    Ok(output::line(&format!("labels of {} {}: {}", feed.id, feed.url, output::plain(&labels, 1000)))?)
}

async fn remove(args: &OneArgs) -> anyhow::Result<()> {
    let client = Client::new(&args.client)?;
    let id = client.find(&args.feed).await?;
    let _: Value = client.change(Method::DELETE, &format!("/feeds/{id}"), None).await?;
    if args.client.json {
        return Ok(output::json(&json!({ "id": id, "removed": true }))?);
    }
    Ok(output::line(&format!("removed {id}"))?)
}

async fn list(args: &ListArgs) -> anyhow::Result<()> {
    let client = Client::new(&args.client)?;
    let limit = args.limit.to_string();
    let parameters = [
        ("q", &args.q),
        ("host", &args.host),
        ("category", &args.category),
        ("status", &args.status),
        ("failure", &args.failure),
        ("label", &args.label),
        ("external_id", &args.external_id),
        ("sort", &args.sort),
        ("after", &args.after),
    ];
    let given = parameters.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?)));
    let query: Vec<_> = given.chain([("limit", limit.as_str())]).collect();
    let list: List<FeedView> = client.get("/feeds", &query).await?;
    if args.client.json {
        list.items.iter().try_for_each(output::json)?;
    } else if list.items.is_empty() {
        output::line("no feeds")?;
    } else {
        output::line(&feed_table(&list.items, SystemClock.now(), width()))?;
    }
    if let Some(next) = list.next {
        note!("there are more: --after {next}");
    }
    Ok(())
}

fn print_feed(args: &OneArgs, feed: &FeedView) -> anyhow::Result<()> {
    if args.client.json {
        return Ok(output::json(feed)?);
    }
    Ok(output::line(&feed_fields(feed, SystemClock.now()))?)
}

async fn explain(args: &OneArgs) -> anyhow::Result<()> {
    let client = Client::new(&args.client)?;
    let id = client.find(&args.feed).await?;
    let explained: ExplainView = client.get(&format!("/feeds/{id}/explain"), &[]).await?;
    if args.client.json {
        return Ok(output::json(&explained)?);
    }
    Ok(output::line(&explanation(&explained, SystemClock.now()))?)
}

async fn history(args: &OneArgs) -> anyhow::Result<()> {
    let client = Client::new(&args.client)?;
    let id = client.find(&args.feed).await?;
    let history: List<HistoryEntry> = client.get(&format!("/feeds/{id}/history"), &[]).await?;
    if args.client.json {
        return Ok(history.items.iter().try_for_each(output::json)?);
    }
    if history.items.is_empty() {
        return Ok(output::line("never polled")?);
    }
    Ok(output::line(&history_table(&history.items, width()))?)
}
