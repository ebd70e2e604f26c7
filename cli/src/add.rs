//! `feedfleet feed add`: adds feeds, and reports the results of their first polls. The fleet does the asking: a second request
//! from here, outside of its hosts' pace, would be one too many.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use common::outcome::{FailureKind, OutcomeKind};
use common::policy::Status;
use common::time::{Clock, SystemClock};
use common::words;
use reqwest::Method;
use scheduler::wire::{AddedView, FeedView, List, StatsView};
use serde_json::Value;
use store::HistoryEntry;
use tokio::time::Instant;

use crate::audience::AudienceArgs;
use crate::client::{Client, ClientArgs, Refused};
use crate::output::{self, plain};

/// `feed add`
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// The feeds' URLs; of a page the first feed that it announces is taken
    #[arg(required = true)]
    url: Vec<String>,
    /// How long to wait for the first polls and report their results; 0s does not wait [default: 10s; with --json 0s]
    #[arg(long, value_name = "DURATION", value_parser = crate::values::duration)]
    wait: Option<Duration>,
    /// A label to give to the feeds; may be repeated
    #[arg(long, value_name = "LABEL")]
    label: Vec<String>,
    /// Your own id of the feed, which its entries and events carry
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
    #[command(flatten)]
    audience: AudienceArgs,
    #[command(flatten)]
    client: ClientArgs,
}

/// Enough for a page whose site is looked through for a feed, a request a second.
const WAIT: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a failed poll may still turn out to be a page whose feed is taken, on a busy machine.
const PAGE_SETTLES: Duration = Duration::from_secs(1);

/// Runs it. Each URL is tried, whatever became of the others.
pub(crate) async fn run(args: &AddArgs) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.client)?;
    let (mut added, mut failed) = (Vec::new(), false);
    for url in &args.url {
        let mut body = args.audience.to_json();
        body.insert("url".to_owned(), url.as_str().into());
        if !args.label.is_empty() {
            body.insert("labels".to_owned(), args.label.clone().into());
        }
        if let Some(id) = &args.external_id {
            body.insert("external_id".to_owned(), id.as_str().into());
        }
        match client.change::<AddedView>(Method::POST, "/feeds", Some(&Value::Object(body))).await {
            Ok(view) => {
                if !args.client.json {
                    output::line(&format!("{} {} {}", verb(&view), view.feed.id, view.feed.url))?;
                }
                added.push(view);
            }
            Err(error) if args.url.len() > 1 && error.is::<Refused>() => {
                note!("error: {error}");
                failed = true;
            }
            Err(error) => return Err(error),
        }
    }
    let deadline = Instant::now() + args.wait.unwrap_or(if args.client.json { Duration::ZERO } else { WAIT });
    for view in &mut added {
        failed |= !first_poll(args, &client, view, deadline).await?;
    }
    if args.client.json {
        added.iter().try_for_each(output::json)?;
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn verb(added: &AddedView) -> &'static str {
    match (added.new, added.revived) {
        (true, _) => "added",
        (_, true) => "revived",
        _ => "known",
    }
}

/// Waits for the first poll of a feed and reports it; returns false if the URL is not a feed.
async fn first_poll(args: &AddArgs, client: &Client, added: &mut AddedView, deadline: Instant) -> anyhow::Result<bool> {
    if deadline <= Instant::now() || !(added.new || added.revived) {
        return Ok(true);
    }
    let url = added.feed.url.clone();
    let before = added.feed.version;
    let mut failing: Option<Instant> = None;
    loop {
        let feed: FeedView = client.get(&format!("/feeds/{}", added.feed.id), &[]).await?;
        added.feed = feed;
        let feed = &added.feed;
        let read = feed.last_success.is_some() && feed.version > before;
        let over = read || feed.status != Status::Active;
        let failed =
            matches!(feed.last_outcome, Some(OutcomeKind::Failed | OutcomeKind::Throttled)) && feed.version > before;
        // A page is a failed poll for a moment, until the fleet has taken the feed that it announces.
        let settled = failed && failing.get_or_insert_with(Instant::now).elapsed() >= PAGE_SETTLES;
        if over || settled {
            return told(args, client, feed, &url).await;
        }
        if Instant::now() >= deadline {
            let paused = client.get::<StatsView>("/stats", &[]).await?.paused;
            let why = if paused { "all polling is paused" } else { "it is not read yet" };
            note!("{}: {why}; see `feedfleet feed show {}`", feed.id, feed.id);
            return Ok(true);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn told(args: &AddArgs, client: &Client, feed: &FeedView, asked: &str) -> anyhow::Result<bool> {
    let id = feed.id;
    let line = |text: String| if args.client.json { Ok(()) } else { output::line(&text) };
    if let Some(survivor) = feed.merged_into {
        let survivor: FeedView = client.get(&format!("/feeds/{survivor}"), &[]).await?;
        line(format!("{id} is a page; its feed is {}, which is known as feed {}", survivor.url, survivor.id))?;
        return Ok(true);
    }
    if feed.last_success.is_some() {
        let page = if feed.url == asked { String::new() } else { format!("is a page; took {}, ", feed.url) };
        let title = feed.title.as_deref().map_or_else(|| "without a title".to_owned(), |title| plain(title, 100));
        line(format!("{id} {page}read: {title}, {}", words::counted(feed.entries, "entry", "entries")))?;
        return Ok(true);
    }
    if feed.status != Status::Active {
        note!("{id}: it is {} by its first poll", feed.status.as_str());
        return Ok(true);
    }
    let history: List<HistoryEntry> = client.get(&format!("/feeds/{id}/history"), &[]).await?;
    let failure = history.items.first().and_then(|poll| poll.failure);
    if failure == Some(FailureKind::NotAFeed) {
        note!("error: {} is not a feed and announces none; `feedfleet feed remove {id}` removes it", feed.url);
        return Ok(false);
    }
    let why = failure.map_or("throttled", FailureKind::as_str);
    let next = feed.next_due.map_or_else(|| "never".to_owned(), |due| words::relative(due, SystemClock.now()));
    note!("{id}: its first poll failed ({why}); the next one is {next}");
    Ok(true)
}
