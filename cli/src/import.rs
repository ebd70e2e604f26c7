//! `feedfleet import` and `feedfleet export`: a fleet's feeds from a file and into one.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use common::policy::Status;
use common::words;
use scheduler::wire::{BulkView, FeedView, List, StatsView};
use serde_json::{Value, json};

use crate::client::{self, Client, ClientArgs, ServerArgs};
use crate::histories::Histories;
use crate::opml;
use crate::output::{self, plain};
use crate::progress::Progress;
use crate::subscriptions;
use web::opml::Subscription;

/// Adds the feeds of an OPML file or a list of URLs; exit code 1 if a line was refused
///
/// The first polls are spread over policy.import_spread. Folders and categories become labels. A name in the file is the feed's
/// title until the feed has its own.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// An OPML file, or a list with one URL per line; - reads standard input
    #[arg(value_name = "FILE.opml")]
    file: String,
    /// Writes the refused lines to this file, one JSON object per line
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    client: ClientArgs,
}

/// Writes all feeds as OPML, which `feedfleet import` reads again
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The file to write [default: standard output]
    file: Option<PathBuf>,
    /// Writes when the feeds posted, for `simulate --histories`, instead of OPML
    #[arg(long)]
    histories: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Feeds that a request carries: few enough that the bar moves.
const BATCH: usize = 500;
/// Retries while the fleet restarts: the first delay, which doubles, and the number of retries.
const RETRY: Duration = Duration::from_secs(1);
const RETRIES: u32 = 5;
/// Refused lines that are printed; a report has them all.
const SHOWN: usize = 10;
/// The most that the API lists at once.
const PAGE: &str = "1000";

/// The outcome for the feeds.
#[derive(Debug, Default)]
struct Tally {
    added: usize,
    revived: usize,
    known: usize,
    changed: usize,
    refused: Vec<Value>,
}

/// Runs `import`.
pub(crate) async fn import(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    let found = subscriptions::read_file(&args.file)?;
    let client = Client::new(&args.client)?;
    let mut progress = Progress::new(found.len());
    let (mut tally, mut done) = (Tally::default(), 0);
    for batch in found.chunks(BATCH) {
        progress.say(&format!("{done} of {} feeds", found.len()));
        let broke_off = |error: anyhow::Error| match done {
            0 => error,
            _ => error.context(format!("{done} of {} feeds were imported; the same again does the rest", found.len())),
        };
        let answers = send(&client, batch, done > 0).await.map_err(broke_off)?;
        for (subscription, answer) in batch.iter().zip(answers) {
            let shown = !args.client.json && tally.refused.len() < SHOWN;
            if let Some(error) = answer.error.as_deref().filter(|_| shown) {
                progress.clear();
                note!("refused: line {}: {}", subscription.line, plain(error, 300));
            }
            tally.note(subscription, answer);
        }
        done += batch.len();
        batch.iter().for_each(|_| progress.step());
    }
    progress.clear();
    if let Some(file) = &args.report {
        let lines: String = tally.refused.iter().map(|refused| format!("{refused}\n")).collect();
        std::fs::write(file, lines).with_context(|| format!("cannot write the report {}", file.display()))?;
    }
    tell_refused(tally.refused.len(), args);
    tally.tell(args.client.json)?;
    if tally.added > 0 && !args.client.json {
        output::line(&first_polls(&client).await?)?;
    }
    Ok(if tally.refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says where the refused lines are that were not printed.
fn tell_refused(refused: usize, args: &ImportArgs) {
    let left = refused.saturating_sub(SHOWN);
    match &args.report {
        _ if args.client.json => {}
        Some(file) if refused > 0 => note!("refused lines: {}", file.display()),
        None if left > 0 => note!("refused: {} more; --report FILE writes all of them", words::count(left as u64)),
        _ => {}
    }
}

/// Says when feeds that were just imported are first polled, and how to poll one of them sooner.
async fn first_polls(client: &Client) -> anyhow::Result<String> {
    if client.get::<StatsView>("/stats", &[]).await?.paused {
        return Ok("all polling is paused; `feedfleet fleet resume` starts it".to_owned());
    }
    let config: Value = client.get("/config", &[]).await?;
    let spread = config["policy"]["import_spread"].as_str().unwrap_or("a while");
    Ok(format!(
        "first polls are spread over the next {spread} (policy.import_spread); `feedfleet top` shows them; \
         `feedfleet feed refresh ID` polls one of them sooner"
    ))
}

/// Has a batch stored; returns an answer for each.
async fn send(client: &Client, batch: &[Subscription], patient: bool) -> anyhow::Result<Vec<BulkView>> {
    let line = |subscription: &Subscription| subscription.to_json().to_string() + "\n";
    let body: String = batch.iter().map(line).collect();
    let mut tries = 0;
    let answers = loop {
        match client.lines("/feeds/bulk", body.clone()).await {
            Err(error) if patient && tries < RETRIES && client::passes(&error) => {
                tokio::time::sleep(RETRY * 2_u32.pow(tries)).await;
                tries += 1;
            }
            answers => break answers?,
        }
    };
    ensure!(answers.len() == batch.len(), "the fleet answered {} of {} lines", answers.len(), batch.len());
    Ok(answers)
}

impl Tally {
    fn note(&mut self, subscription: &Subscription, answer: BulkView) {
        match answer {
            BulkView { error: Some(error), .. } => {
                self.refused.push(json!({ "line": subscription.line, "url": subscription.url, "error": error }));
            }
            BulkView { new: true, .. } => self.added += 1,
            BulkView { revived: true, .. } => self.revived += 1,
            BulkView { changed, .. } => {
                self.known += 1;
                self.changed += usize::from(changed);
            }
        }
    }

    fn tell(&self, as_json: bool) -> io::Result<()> {
        let Tally { added, revived, known, changed, refused } = self;
        if as_json {
            return output::json(&json!({
                "added": added, "revived": revived, "known": known, "changed": changed, "refused": refused
            }));
        }
        let count = |number: usize| words::count(number as u64);
        let added = words::counted(*added as u64, "feed", "feeds");
        let mut summary = format!("{added} added, {} known", count(*known));
        for (number, what) in [(*changed, "changed"), (*revived, "revived"), (refused.len(), "refused")] {
            if number > 0 {
                summary += &format!(", {} {what}", count(number));
            }
        }
        output::line(&summary)
    }
}

/// Runs `export`.
pub(crate) async fn export(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let client = Client::at(&args.server)?;
    let count = match &args.file {
        None => write(args, &client, &mut io::stdout().lock()).await?,
        Some(file) => {
            to_file(args, &client, file).await.with_context(|| format!("cannot export to {}", file.display()))?
        }
    };
    note!("{} exported", words::counted(count, "feed", "feeds"));
    Ok(ExitCode::SUCCESS)
}

/// Beside the file first: one that is there is replaced by a whole one or not at all.
async fn to_file(args: &ExportArgs, client: &Client, file: &Path) -> anyhow::Result<u64> {
    let mut name = file.file_name().context("it names no file")?.to_owned();
    name.push(".part");
    let part = file.with_file_name(name);
    let mut out = io::BufWriter::new(std::fs::File::create(&part)?);
    let written = write(args, client, &mut out).await;
    let stored = written.and_then(|count| {
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        std::fs::rename(&part, file)?;
        Ok(count)
    });
    if stored.is_err() {
        // It may not be there.
        let _ = std::fs::remove_file(&part);
    }
    stored
}

async fn write(args: &ExportArgs, client: &Client, out: &mut impl Write) -> anyhow::Result<u64> {
    if args.histories {
        let mut histories = Histories::read(Client::at(&args.server)?).await?;
        let count = each_feed(client, |feed| Ok(u64::from(histories.write(feed, out)?))).await?;
        out.flush()?;
        return Ok(count);
    }
    out.write_all(opml::HEAD.as_bytes())?;
    let mut folder = opml::Folder::default();
    let count = each_feed(client, |feed| {
        let moved = folder.move_to(feed.marks.labels.first());
        out.write_all((moved + &opml::outline(feed)).as_bytes())?;
        Ok(1)
    })
    .await?;
    out.write_all((folder.move_to(None) + opml::END).as_bytes())?;
    out.flush()?;
    Ok(count)
}

/// Writes every feed that is, or may again be, polled; returns the sum of what `write` returns.
async fn each_feed(client: &Client, mut write: impl FnMut(&FeedView) -> io::Result<u64>) -> anyhow::Result<u64> {
    let (mut count, mut after) = (0, None::<String>);
    loop {
        let mut query = vec![("limit", PAGE)];
        query.extend(after.as_deref().map(|after| ("after", after)));
        let page: List<FeedView> = client.get("/feeds", &query).await?;
        let over = [Status::Gone, Status::Merged, Status::Removed];
        for feed in page.items.iter().filter(|feed| !over.contains(&feed.status)) {
            count += write(feed)?;
        }
        after = page.next;
        if after.is_none() {
            return Ok(count);
        }
    }
}
