//! `feedfleet feed refresh`: has feeds polled now, and with `--wait` shows the outcomes.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use common::outcome::OutcomeKind;
use common::time::{Clock, SystemClock};
use common::words::{counted, relative};
use reqwest::Method;
use scheduler::wire::{ExplainView, FeedView};
use tokio::time::Instant;

use crate::client::{Client, Refused};
use crate::feeds::FeedsArgs;
use crate::output;
use crate::terminal::Waiting;
use crate::when;

/// `feed refresh`
#[derive(Debug, Args)]
pub(crate) struct RefreshArgs {
    #[command(flatten)]
    feeds: FeedsArgs,
    /// Waits for the polls, at most this long (30s if not given), and shows their outcomes; exit code 1 if one failed or did
    /// not happen
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "30s", require_equals = true,
        value_parser = crate::values::duration)]
    wait: Option<Duration>,
}

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A feed that is being refreshed.
struct Refreshed {
    before: FeedView,
    feed: FeedView,
}

impl Refreshed {
    /// A fetch that had begun before may end first: the refresh is answered when its wake is gone.
    fn is_polled(&self) -> bool {
        self.feed.version != self.before.version && self.feed.wake_at.is_none()
    }
}

/// Runs it: all are woken before the first one is waited for.
pub(crate) async fn run(args: &RefreshArgs) -> anyhow::Result<ExitCode> {
    let (flags, wait) = (&args.feeds.client, args.wait);
    let client = Client::new(flags)?;
    let (mut woken, mut failed) = (Vec::new(), false);
    for feed in &args.feeds.feed {
        match wake(&client, feed).await {
            Ok(refreshed) => {
                if !flags.json {
                    output::line(&format!("refreshing {} {}", refreshed.feed.id, refreshed.feed.url))?;
                }
                woken.push(refreshed);
            }
            Err(error) if args.feeds.feed.len() > 1 && error.is::<Refused>() => {
                output::error(&error);
                failed = true;
            }
            Err(error) => return Err(error),
        }
    }
    let deadline = Instant::now() + wait.unwrap_or_default();
    for refreshed in &mut woken {
        if wait.is_some() {
            wait_for(&client, refreshed, deadline).await?;
        }
        if flags.json {
            output::json(&refreshed.feed)?;
        }
        failed |= !report(&client, refreshed, wait.is_some(), flags.json).await?;
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn wake(client: &Client, feed: &str) -> anyhow::Result<Refreshed> {
    let path = format!("/feeds/{}", client.find(feed).await?);
    let before: FeedView = client.get(&path, &[]).await?;
    let feed: FeedView = client.change(Method::POST, &format!("{path}/refresh"), None).await?;
    Ok(Refreshed { before, feed })
}

async fn wait_for(client: &Client, refreshed: &mut Refreshed, deadline: Instant) -> anyhow::Result<()> {
    let waiting = Waiting::new(format!("waiting for the poll of {}", refreshed.feed.url));
    while !refreshed.is_polled() && Instant::now() < deadline {
        waiting.tick();
        tokio::time::sleep(LOOK_EVERY).await;
        refreshed.feed = client.get(&format!("/feeds/{}", refreshed.feed.id), &[]).await?;
    }
    Ok(())
}

/// Reports the outcome of a refresh; returns false if it failed.
async fn report(client: &Client, refreshed: &Refreshed, waited: bool, json: bool) -> anyhow::Result<bool> {
    if waited && refreshed.is_polled() {
        return outcome(refreshed, json);
    }
    notes(client, &refreshed.feed).await?;
    if waited {
        let id = refreshed.feed.id;
        note!("{id}: it is not polled yet; see `feedfleet feed explain {id}`");
    }
    Ok(!waited)
}

/// Says what keeps it waiting: a hold, a block, a pause of the fleet. The first note is the refresh itself, unless it is done.
async fn notes(client: &Client, feed: &FeedView) -> anyhow::Result<()> {
    let explained: ExplainView = client.get(&format!("/feeds/{}/explain", feed.id), &[]).await?;
    let others = explained.notes.iter().skip(usize::from(explained.wake_at.is_some()));
    others.for_each(|note| note!("note: {}", when::said(note)));
    Ok(())
}

fn outcome(refreshed: &Refreshed, json: bool) -> anyhow::Result<bool> {
    let Refreshed { before, feed } = refreshed;
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
        if !json {
            output::line(&format!("{} {good}; next poll {next}", feed.id))?;
        }
        return Ok(true);
    }
    let why = feed.last_error.as_ref().map_or_else(|| "it failed".to_owned(), |error| when::said(&error.error.detail));
    note!("{}: {why}; next poll {next}", feed.id);
    if let Some(remedy) = feed.last_error.as_ref().and_then(|error| error.remedy.as_ref()) {
        note!("  what helps: {remedy}");
    }
    Ok(false)
}
