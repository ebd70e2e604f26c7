//! `feedfleet feed refresh`: has a feed polled now, and with `--wait` shows the outcome.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use common::outcome::{FailureKind, OutcomeKind};
use common::time::{Clock, SystemClock};
use common::words::{counted, relative};
use reqwest::Method;
use scheduler::wire::{ExplainView, FeedView, List};
use store::HistoryEntry;
use tokio::time::Instant;

use crate::client::{Client, ClientArgs};
use crate::output;

/// `feed refresh`
#[derive(Debug, Args)]
pub(crate) struct RefreshArgs {
    /// The feed's id or URL
    feed: String,
    /// Waits for the poll, at most this long (30s if not given), and shows its outcome; exit code 1 if it failed or did
    /// not happen
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "30s", require_equals = true,
        value_parser = crate::values::duration)]
    wait: Option<Duration>,
    #[command(flatten)]
    client: ClientArgs,
}

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Runs it.
pub(crate) async fn run(args: &RefreshArgs) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.client)?;
    let path = format!("/feeds/{}", client.find(&args.feed).await?);
    let before: FeedView = client.get(&path, &[]).await?;
    let mut feed: FeedView = client.change(Method::POST, &format!("{path}/refresh"), None).await?;
    if !args.client.json {
        output::line(&format!("refreshing {} {}", feed.id, feed.url))?;
    }
    // A fetch that had begun before may end first: the refresh is answered when its wake is gone.
    let is_polled = |feed: &FeedView| feed.version != before.version && feed.wake_at.is_none();
    let deadline = Instant::now() + args.wait.unwrap_or_default();
    while args.wait.is_some() && !is_polled(&feed) && Instant::now() < deadline {
        tokio::time::sleep(LOOK_EVERY).await;
        feed = client.get(&path, &[]).await?;
    }
    if args.client.json {
        output::json(&feed)?;
    }
    match (args.wait.is_some(), is_polled(&feed)) {
        (true, true) => outcome(args, &client, &before, &feed).await,
        (false, _) => {
            notes(&client, &feed).await?;
            Ok(ExitCode::SUCCESS)
        }
        (true, false) => {
            notes(&client, &feed).await?;
            note!("{}: it is not polled yet; see `feedfleet feed show {}`", feed.id, feed.id);
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Says what keeps it waiting: a hold, a block, a pause of the fleet. The first note is the refresh itself, unless it is done.
async fn notes(client: &Client, feed: &FeedView) -> anyhow::Result<()> {
    let explained: ExplainView = client.get(&format!("/feeds/{}/explain", feed.id), &[]).await?;
    let others = explained.notes.iter().skip(usize::from(explained.wake_at.is_some()));
    others.for_each(|note| note!("note: {note}"));
    Ok(())
}

async fn outcome(args: &RefreshArgs, client: &Client, before: &FeedView, feed: &FeedView) -> anyhow::Result<ExitCode> {
    let next = feed.next_due.map_or_else(|| "never".to_owned(), |due| relative(due, SystemClock.now()));
    let good = match feed.last_outcome {
        Some(OutcomeKind::Modified) => {
            let new = feed.entries.saturating_sub(before.entries);
            Some(format!("read, {}", counted(new, "new entry", "new entries")))
        }
        Some(OutcomeKind::NotModified) => Some("not modified".to_owned()),
        _ => None,
    };
    if let Some(good) = good {
        if !args.client.json {
            output::line(&format!("{} {good}; next poll {next}", feed.id))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let history: List<HistoryEntry> = client.get(&format!("/feeds/{}/history", feed.id), &[]).await?;
    let poll = history.items.first();
    let kind = match (poll.and_then(|poll| poll.failure), feed.last_outcome) {
        (Some(failure), _) => format!("failed ({})", FailureKind::as_str(failure)),
        (None, Some(OutcomeKind::Gone)) => "is gone".to_owned(),
        (None, _) => "is throttled".to_owned(),
    };
    let status = poll.and_then(|poll| poll.status).map_or_else(String::new, |status| format!(", HTTP {status}"));
    note!("{} {kind}{status}; next poll {next}", feed.id);
    Ok(ExitCode::FAILURE)
}
