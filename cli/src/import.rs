//! `feedfleet import` and `feedfleet export`: a fleet's feeds from a file and into one.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use common::policy::Status;
use common::words;
use scheduler::wire::{BulkView, FeedView, List};
use serde_json::{Value, json};

use crate::client::{self, Client, ClientArgs, ServerArgs};
use crate::fleet::{PAUSED, is_paused};
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

/// Writes all feeds as OPML, which `feedfleet import` reads again; those with a login are left out
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The file to write; - for standard output, which is the default
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
    anyhow::ensure!(!found.is_empty(), "{} names no feed", args.file);
    let client = Client::new(&args.client)?;
    // Before anything is sent: if the report cannot be opened, nothing is imported.
    let report = args.report.as_deref().map(create_report).transpose()?;
    let mut tally = Tally::default();
    let sent = send_all(&client, &found, args, &mut tally).await;
    let is_news = sent.is_ok() || tally.total() > 0;
    let written = report.filter(|_| is_news).map_or(Ok(()), |(path, file)| write_report(path, file, &tally.refused));
    if written.is_ok() {
        tell_refused(tally.refused.len(), args);
    }
    // Also after a failure: what is counted here is in the fleet.
    if is_news {
        tally.tell(args.client.json)?;
    }
    sent?;
    if tally.added > 0 && !args.client.json {
        output::line(&first_polls(&client).await)?;
    }
    written?;
    Ok(if tally.refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Has all feeds stored, in batches, and counts the outcomes.
async fn send_all(client: &Client, found: &[Subscription], args: &ImportArgs, tally: &mut Tally) -> anyhow::Result<()> {
    let (mut progress, mut done) = (Progress::new(found.len()), 0);
    for batch in found.chunks(BATCH) {
        progress.say(&format!("{done} of {} feeds", found.len()));
        let broke_off = |error: anyhow::Error| match done {
            0 => error,
            _ => error.context(format!("{done} of {} feeds were imported; the same again does the rest", found.len())),
        };
        let answers = send(client, batch, done > 0).await.map_err(broke_off)?;
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
    Ok(())
}

fn create_report(path: &Path) -> anyhow::Result<(&Path, File)> {
    // What is in it stays until there is something to write.
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .with_context(|| format!("cannot write the report {}", path.display()))?;
    Ok((path, file))
}

fn write_report(path: &Path, mut file: File, refused: &[Value]) -> anyhow::Result<()> {
    let lines: String = refused.iter().map(|refused| format!("{refused}\n")).collect();
    let emptied = match file.metadata() {
        Ok(found) if found.is_file() => file.set_len(0),
        _ => Ok(()),
    };
    let written = emptied.and_then(|()| file.write_all(lines.as_bytes()));
    written.with_context(|| format!("cannot write the report {}", path.display()))
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
async fn first_polls(client: &Client) -> String {
    if is_paused(client).await {
        return PAUSED.to_owned();
    }
    // A token with labels may not read it.
    let config: Option<Value> = client.get("/config", &[]).await.ok();
    let spread = config.as_ref().and_then(|config| config["policy"]["import_spread"].as_str());
    let over = spread
        .map_or_else(|| "policy.import_spread".into(), |spread| format!("the next {spread} (policy.import_spread)"));
    format!(
        "first polls are spread over {over}; `feedfleet top` shows them; `feedfleet feed refresh ID` polls one of them \
         sooner"
    )
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

    /// Returns the number of lines that were answered.
    fn total(&self) -> usize {
        self.added + self.revived + self.known + self.refused.len()
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
    // Before anything is written: a fleet that does not answer leaves no half of a document.
    let first = page(&client, None).await?;
    let file = args.file.as_deref().filter(|file| *file != Path::new("-"));
    let count = match file {
        None => write(args, &client, first, &mut io::stdout().lock()).await?,
        Some(file) => {
            let written = match replaced(file) {
                Some(file) => replace(args, &client, first, &file).await,
                None => write_into(args, &client, first, file).await,
            };
            written.with_context(|| format!("cannot export to {}", file.display()))?
        }
    };
    note!("{} exported", words::counted(count, "feed", "feeds"));
    Ok(ExitCode::SUCCESS)
}

/// Returns the file that an export replaces, links resolved; `None` if it is written into what is there: a device, a
/// pipe, or a link to one.
fn replaced(file: &Path) -> Option<PathBuf> {
    let Ok(found) = fs::symlink_metadata(file) else { return Some(file.to_owned()) };
    if !found.is_symlink() {
        return found.is_file().then(|| file.to_owned());
    }
    // /dev/stdout leads to a file that another program has open.
    if file.starts_with("/dev") || file.starts_with("/proc") {
        return None;
    }
    fs::canonicalize(file).ok().filter(|target| target.is_file())
}

/// Writes beside the file first: one that is there is replaced by a whole one or not at all. It keeps its permissions.
async fn replace(args: &ExportArgs, client: &Client, first: List<FeedView>, file: &Path) -> anyhow::Result<u64> {
    let mut name = file.file_name().context("it names no file")?.to_owned();
    name.push(".part");
    let part = file.with_file_name(name);
    // A process that was killed may have left one, with other permissions.
    let _ = fs::remove_file(&part);
    let out = File::create_new(&part)?;
    let written = fill(args, client, first, out, fs::metadata(file).ok().map(|found| found.permissions())).await;
    let stored = written.and_then(|count| {
        fs::rename(&part, file)?;
        Ok(count)
    });
    if stored.is_err() {
        // It may not be there.
        let _ = fs::remove_file(&part);
    }
    stored
}

/// Writes a new file that gets these permissions before anything is in it.
async fn fill(
    args: &ExportArgs,
    client: &Client,
    first: List<FeedView>,
    out: File,
    permissions: Option<Permissions>,
) -> anyhow::Result<u64> {
    if let Some(permissions) = permissions {
        out.set_permissions(permissions)?;
    }
    let mut out = io::BufWriter::new(out);
    let count = write(args, client, first, &mut out).await?;
    out.get_ref().sync_all()?;
    Ok(count)
}

/// Writes into what is there and cannot be replaced. Where a link leads nowhere, a new file.
async fn write_into(args: &ExportArgs, client: &Client, first: List<FeedView>, file: &Path) -> anyhow::Result<u64> {
    let mut out = io::BufWriter::new(File::options().write(true).create(true).truncate(true).open(file)?);
    write(args, client, first, &mut out).await
}

/// Writes the feeds of a fleet, whose first page was read, and flushes.
async fn write(args: &ExportArgs, client: &Client, first: List<FeedView>, out: &mut impl Write) -> anyhow::Result<u64> {
    if args.histories {
        let mut histories = Histories::read(Client::at(&args.server)?).await?;
        let count = each_feed(client, first, |feed| Ok(u64::from(histories.write(feed, out)?))).await?;
        out.flush()?;
        return Ok(count);
    }
    out.write_all(opml::HEAD.as_bytes())?;
    let mut folder = opml::Folder::default();
    let mut logins = 0_u64;
    let count = each_feed(client, first, |feed| {
        // The file has no logins: its import would poll another feed.
        if feed.credentials {
            logins += 1;
            return Ok(0);
        }
        let moved = folder.move_to(feed.marks.labels.first());
        out.write_all((moved + &opml::outline(feed)).as_bytes())?;
        Ok(1)
    })
    .await?;
    out.write_all((folder.move_to(None) + opml::END).as_bytes())?;
    out.flush()?;
    if logins > 0 {
        note!("{} with a login left out: an import could not log in", words::counted(logins, "feed", "feeds"));
    }
    Ok(count)
}

/// Returns the feeds after a cursor.
async fn page(client: &Client, after: Option<&str>) -> anyhow::Result<List<FeedView>> {
    let mut query = vec![("limit", PAGE)];
    query.extend(after.map(|after| ("after", after)));
    client.get("/feeds", &query).await
}

/// Writes every feed that is, or may again be, polled; returns the sum of what `write` returns.
async fn each_feed(
    client: &Client,
    first: List<FeedView>,
    mut write: impl FnMut(&FeedView) -> io::Result<u64>,
) -> anyhow::Result<u64> {
    let (mut count, mut feeds) = (0, first);
    loop {
        let over = [Status::Gone, Status::Merged, Status::Removed];
        for feed in feeds.items.iter().filter(|feed| !over.contains(&feed.status)) {
            count += write(feed)?;
        }
        let Some(after) = feeds.next.take() else { return Ok(count) };
        feeds = page(client, Some(after.as_str())).await?;
    }
}
