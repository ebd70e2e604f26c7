//! `feedfleet entries`: what the feeds announced, in the order in which it was stored.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use scheduler::api::view::EntryList;
use scheduler::store::StoredEntry;

use crate::client::{Client, ClientArgs};
use crate::output::{self, plain};

/// Prints entries, oldest first
#[derive(Debug, Args)]
pub(crate) struct EntriesArgs {
    /// Only entries of this feed (id or URL)
    #[arg(long, value_name = "X")]
    feed: Option<String>,
    /// Only entries stored after this one (its seq)
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    after: i64,
    /// At most so many; all if not given
    #[arg(long, value_name = "N")]
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
    let mut after = args.after;
    let mut left = args.limit.unwrap_or(u64::MAX);
    while left > 0 {
        let wanted = left.min(PAGE);
        let query = [("after", after.to_string()), ("limit", wanted.to_string())];
        let query = query.each_ref().map(|(name, value)| (*name, value.as_str()));
        let list: EntryList = client.get(&path, &query).await?;
        for entry in &list.items {
            print_entry(args, entry)?;
        }
        after = list.next;
        left -= (list.items.len() as u64).min(left);
        if list.items.is_empty() {
            if !args.follow {
                break;
            }
            tokio::time::sleep(FOLLOW_EVERY).await;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print_entry(args: &EntriesArgs, entry: &StoredEntry) -> anyhow::Result<()> {
    if args.client.json {
        return Ok(output::json(entry)?);
    }
    Ok(output::line(&entry_line(entry))?)
}

/// `SEQ  TIME  feed ID  TITLE  URL`
fn entry_line(stored: &StoredEntry) -> String {
    let entry = &stored.entry;
    let when = entry.published.or(entry.updated).unwrap_or(stored.seen).to_chrono().format("%Y-%m-%d %H:%M");
    let title = plain(entry.title.as_deref().or(entry.summary.as_deref()).unwrap_or("(no title)"), 100);
    let url = plain(entry.url.as_deref().unwrap_or_default(), 500);
    format!("{}  {when}  feed {}  {title}  {url}", stored.seq, stored.feed_id).trim_end().to_owned()
}
