//! `feedfleet entries` and `feedfleet events`: what the feeds published, and what happened to them, in the order in which it was stored.

use std::process::ExitCode;

use clap::Args;
use scheduler::wire::{EntryView, EventView};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use store::StoredEntry;

use crate::bell::Bell;
use crate::client::{Client, ClientArgs, Refused, passes};
use crate::filters::FilterArgs;
use crate::output::{self, plain};
use crate::terminal::{Ink, paint};
use crate::{values, when};

/// Prints entries, oldest first
#[derive(Debug, Args)]
#[command(mut_arg("kind", |kind| {
    kind.help("Only of these kinds, separated by commas, such as entry.new").value_parser(entry_kinds)
}))]
pub(crate) struct EntriesArgs {
    /// Prints the newest N entries, the newest first
    #[arg(long, value_name = "N", conflicts_with_all = ["follow", "after", "limit"], value_parser = values::number::<u64>)]
    last: Option<u64>,
    #[command(flatten)]
    reading: ReadingArgs,
}

/// Prints events, oldest first: new and changed entries, and what happened to feeds
#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    #[command(flatten)]
    reading: ReadingArgs,
}

/// What both have.
#[derive(Debug, Args)]
struct ReadingArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Only what was stored after this seq
    #[arg(long, value_name = "SEQ", default_value_t = 0, value_parser = values::number::<i64>)]
    after: i64,
    /// Maximum number to list; all if not given
    #[arg(long, value_name = "N", value_parser = values::number::<u64>)]
    limit: Option<u64>,
    /// Keeps printing new ones as they are stored
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    client: ClientArgs,
}

/// Parses kinds of entries: other kinds of events have none.
fn entry_kinds(text: &str) -> Result<String, &'static str> {
    match text.split(',').all(|kind| kind.trim().starts_with("entry.")) {
        true => Ok(text.to_owned()),
        false => Err("it must be kinds of entries, such as entry.new; `feedfleet events` prints the other kinds"),
    }
}

/// The number of items requested at once.
pub(crate) const PAGE: u64 = 500;

/// Runs `entries`.
pub(crate) async fn run(args: &EntriesArgs) -> anyhow::Result<ExitCode> {
    let order = args.last.map(|_| ("order", "newest".to_owned()));
    print::<EntryView>(&args.reading, "/entries", (order, args.last), |entry| entry_line(&entry.stored)).await
}

/// Runs `events`.
pub(crate) async fn events(args: &EventsArgs) -> anyhow::Result<ExitCode> {
    print::<EventView>(&args.reading, "/events", (None, None), event_line).await
}

async fn print<T: DeserializeOwned + Serialize>(
    args: &ReadingArgs,
    path: &'static str,
    (order, last): (Option<(&'static str, String)>, Option<u64>),
    line: fn(&T) -> String,
) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.client)?;
    let mut query = args.filter.to_query();
    query.extend(order);
    let mut reading = Reading::new(client, path, query);
    reading.start_at(args.after, None);
    let mut left = last.or(args.limit).unwrap_or(u64::MAX);
    while left > 0 {
        let (items, more) = match reading.next::<T>(left.min(PAGE)).await {
            Err(error) if args.follow => reading.repair(error)?,
            page => page?,
        };
        for item in &items {
            if args.client.json {
                output::json(item)?;
            } else {
                output::line(&line(item))?;
            }
        }
        left -= (items.len() as u64).min(left);
        if !more {
            if !args.follow {
                break;
            }
            reading.wait().await;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A part of a list.
#[derive(Deserialize)]
struct Page<T> {
    epoch: String,
    items: Vec<T>,
    next: i64,
    more: bool,
}

/// How far a list has been read.
pub(crate) struct Reading {
    client: Client,
    path: &'static str,
    query: Vec<(&'static str, String)>,
    /// The cursor: the last seq that was read.
    after: i64,
    /// The store's epoch; `None` before the first answer.
    epoch: Option<String>,
    /// The fleet did not answer the last time, and that was said.
    away: bool,
    bell: Bell,
}

impl Reading {
    /// Reads from the beginning.
    pub(crate) fn new(client: Client, path: &'static str, query: Vec<(&'static str, String)>) -> Self {
        Reading { client, path, query, after: 0, epoch: None, away: false, bell: Bell::default() }
    }

    /// Continues after this number, of this epoch if that is known.
    pub(crate) fn start_at(&mut self, after: i64, epoch: Option<String>) {
        (self.after, self.epoch) = (after, epoch);
    }

    /// Reads what is stored from now on.
    pub(crate) async fn start_at_the_end(&mut self) -> anyhow::Result<()> {
        let list: Page<serde_json::Value> = self.client.list(self.path, &[("after", "latest"), ("limit", "1")]).await?;
        self.start_at(list.next, Some(list.epoch));
        Ok(())
    }

    /// Returns the last number that was looked at.
    pub(crate) fn after(&self) -> i64 {
        self.after
    }

    /// Returns the store's epoch, once it has answered.
    pub(crate) fn epoch(&self) -> Option<String> {
        self.epoch.clone()
    }

    /// Returns the next items, and whether there may be more at once.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self, wanted: u64) -> anyhow::Result<(Vec<T>, bool)> {
        let cursor = [("after", self.after.to_string()), ("limit", wanted.to_string())];
        let query: Vec<(&str, &str)> =
            self.query.iter().chain(&cursor).map(|(name, value)| (*name, value.as_str())).collect();
        let list: Page<T> = self.client.list(self.path, &query).await?;
        self.answered();
        if self.epoch.as_ref().is_some_and(|epoch| *epoch != list.epoch) {
            self.start_over(list.epoch);
            return Ok((Vec::new(), true));
        }
        (self.after, self.epoch) = (list.next, Some(list.epoch));
        Ok((list.items, list.more))
    }

    /// Waits until there may be something new.
    pub(crate) async fn wait(&mut self) {
        self.bell.wait(&self.client, &self.query, self.after).await;
    }

    /// Says that the fleet is back, if it was away.
    fn answered(&mut self) {
        if std::mem::take(&mut self.away) {
            note!("the fleet answers again; continuing after {}", self.after);
        }
    }

    /// Starts from the beginning of another store.
    fn start_over(&mut self, epoch: String) {
        note!("warning: the store was replaced or restored from a backup; starting from the beginning");
        (self.after, self.epoch) = (0, Some(epoch));
    }

    /// Returns what a follower does about an error: it waits for a fleet that answered before, and leaves out what
    /// retention took. A start behind everything that is stored fails.
    pub(crate) fn repair<T>(&mut self, error: anyhow::Error) -> anyhow::Result<(Vec<T>, bool)> {
        let oldest = error.downcast_ref::<Refused>().and_then(|refused| refused.answer["oldest"].as_i64());
        if let Some(oldest) = oldest {
            let epoch = error.downcast_ref::<Refused>().and_then(|refused| refused.answer["epoch"].as_str());
            self.answered();
            // A cursor is valid in its own epoch only.
            match epoch.filter(|epoch| self.epoch.as_deref().is_some_and(|known| known != *epoch)) {
                Some(other) => self.start_over(other.to_owned()),
                // Given by hand: everything from the beginning is not what was meant.
                None if self.epoch.is_none() && self.after >= oldest => return Err(error),
                None => {
                    note!("warning: {error}");
                    self.after = oldest - 1;
                }
            }
            return Ok((Vec::new(), true));
        }
        if self.epoch.is_none() || !passes(&error) {
            return Err(error);
        }
        if !std::mem::replace(&mut self.away, true) {
            note!("warning: {error:#}; waiting for it");
        }
        Ok((Vec::new(), false))
    }
}

/// `SEQ  TIME  FEED  TITLE  URL`
fn entry_line(stored: &StoredEntry) -> String {
    let entry = &stored.entry;
    let when = when::cell(entry.published.or(entry.updated).unwrap_or(stored.seen), "%Y-%m-%d %H:%M %Z");
    let feed =
        stored.feed.feed_title.as_deref().map_or_else(|| format!("feed {}", stored.feed_id), |title| plain(title, 50));
    let title = plain(entry.display_title(), 100);
    let url = plain(entry.url.as_deref().unwrap_or_default(), 500);
    let (title, url) = (paint(Ink::Bold, &title), paint(Ink::Dim, &url));
    format!("{}  {when}  {feed}  {title}  {url}", stored.seq).trim_end().to_owned()
}

/// `SEQ  TIME  KIND  FEED  TITLE`
pub(crate) fn event_line(event: &EventView) -> String {
    let when = when::full(event.at);
    let feed = [&event.feed.feed_title, &event.feed.feed_url].into_iter().find_map(|name| name.as_deref());
    let feed = feed.map_or_else(|| format!("feed {}", event.feed_id), |name| plain(name, 50));
    let title = match (&event.entry, &event.error) {
        (Some(entry), _) => plain(&entry.display_title, 100),
        (None, Some(error)) => paint(Ink::Bad, &plain(&when::said(&error.error.detail), 200)),
        (None, None) => event.changed.join(", "),
    };
    format!("{}  {when}  {}  {feed}  {title}", event.seq, event.kind).trim_end().to_owned()
}
