//! `feedfleet entries`: what the feeds announced, in the order in which it was stored.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use scheduler::wire::{EntryList, EntryView};
use store::StoredEntry;

use crate::client::{Client, ClientArgs, Refused, passes};
use crate::output::{self, plain};
use crate::values;

/// Prints entries, oldest first
#[derive(Debug, Args)]
pub(crate) struct EntriesArgs {
    /// Only entries of this feed (id or URL)
    #[arg(long, value_name = "X")]
    feed: Option<String>,
    /// Only entries stored after this one (its seq)
    #[arg(long, value_name = "SEQ", default_value_t = 0, value_parser = values::number::<i64>)]
    after: i64,
    /// Maximum number to list; all if not given
    #[arg(long, value_name = "N", value_parser = values::number::<u64>)]
    limit: Option<u64>,
    /// Goes on printing entries as they come
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    client: ClientArgs,
}

/// Entries asked for at once.
const PAGE: u64 = 500;

/// How often new ones are asked for.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// Runs it.
pub(crate) async fn run(args: &EntriesArgs) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.client)?;
    let path = match &args.feed {
        Some(feed) => format!("/feeds/{}/entries", client.find(feed).await?),
        None => "/entries".to_owned(),
    };
    let mut reading = Reading { client, path, after: args.after, epoch: None, away: false };
    let mut left = args.limit.unwrap_or(u64::MAX);
    while left > 0 {
        let entries = match reading.next(left.min(PAGE)).await {
            Err(error) if args.follow => reading.mend(error)?,
            entries => entries?,
        };
        entries.iter().try_for_each(|entry| print_entry(args, entry))?;
        left -= (entries.len() as u64).min(left);
        if entries.is_empty() {
            if !args.follow {
                break;
            }
            tokio::time::sleep(FOLLOW_EVERY).await;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// How far a list of entries has been read.
struct Reading {
    client: Client,
    path: String,
    /// The cursor: the last seq that was read.
    after: i64,
    /// The store's epoch; `None` before the first answer.
    epoch: Option<String>,
    /// The fleet did not answer the last time, and that was said.
    away: bool,
}

impl Reading {
    async fn next(&mut self, wanted: u64) -> anyhow::Result<Vec<EntryView>> {
        let query = [("after", self.after.to_string()), ("limit", wanted.to_string())];
        let query = query.each_ref().map(|(name, value)| (*name, value.as_str()));
        let list: EntryList = self.client.get(&self.path, &query).await?;
        if std::mem::take(&mut self.away) {
            note!("the fleet answers again; going on after {}", self.after);
        }
        if self.epoch.as_ref().is_some_and(|epoch| *epoch != list.epoch) {
            note!("warning: the store was replaced or restored from a backup; beginning anew");
            (self.after, self.epoch) = (0, Some(list.epoch));
            return Ok(Vec::new());
        }
        (self.after, self.epoch) = (list.next, Some(list.epoch));
        Ok(list.items)
    }

    /// What a follower does about an error: it waits for a fleet that answered before, and leaves out what retention took.
    fn mend(&mut self, error: anyhow::Error) -> anyhow::Result<Vec<EntryView>> {
        let oldest = error.downcast_ref::<Refused>().and_then(|refused| refused.answer["oldest"].as_i64());
        if let Some(oldest) = oldest {
            let epoch = error.downcast_ref::<Refused>().and_then(|refused| refused.answer["epoch"].as_str());
            let known = self.epoch.as_deref().is_none_or(|known| Some(known) == epoch);
            note!("warning: {error}");
            // The cursor is invalid in another epoch; the next page starts from the beginning.
            self.after = if known { oldest - 1 } else { 0 };
            return Ok(Vec::new());
        }
        if self.epoch.is_none() || !passes(&error) {
            return Err(error);
        }
        if !std::mem::replace(&mut self.away, true) {
            note!("warning: {error:#}; waiting for it");
        }
        Ok(Vec::new())
    }
}

fn print_entry(args: &EntriesArgs, entry: &EntryView) -> anyhow::Result<()> {
    if args.client.json {
        return Ok(output::json(entry)?);
    }
    Ok(output::line(&entry_line(&entry.stored))?)
}

/// `SEQ  TIME  feed ID  TITLE  URL`
fn entry_line(stored: &StoredEntry) -> String {
    let entry = &stored.entry;
    let when = entry.published.or(entry.updated).unwrap_or(stored.seen).to_chrono().format("%Y-%m-%d %H:%M");
    let title = plain(entry.display_title(), 100);
    let url = plain(entry.url.as_deref().unwrap_or_default(), 500);
    format!("{}  {when}  feed {}  {title}  {url}", stored.seq, stored.feed_id).trim_end().to_owned()
}
