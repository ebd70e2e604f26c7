//! `feedfleet tail`: prints events as they are stored, or runs a command for each, and remembers in a file how far it is.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail, ensure};
use clap::Args;
use scheduler::wire::EventView;
use serde::{Deserialize, Serialize};

use crate::client::{Client, ClientArgs};
use crate::entries::{PAGE, Reading, event_line};
use crate::filters::FilterArgs;
use crate::{output, values};

/// Prints events as they are stored, or runs a command for each
#[derive(Debug, Args)]
#[command(after_help = "\
    With --cursor, tail continues after the last event that it handled, even if it was killed; at most that event is repeated. \
    If the command fails, tail exits with code 1. With --cursor, the next start begins with the same event.\n\n\
    Examples:\n  \
    feedfleet tail --kind entry.new --cursor news.cursor --exec 'jq -r .entry.title >> titles'")]
pub(crate) struct TailArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Runs this command with `sh -c` for each event, which is a line of JSON on its standard input
    #[arg(long, value_name = "CMD")]
    exec: Option<String>,
    /// File that stores which event was handled last; created if it does not exist
    #[arg(long, value_name = "FILE")]
    cursor: Option<PathBuf>,
    /// Begins after this seq, 0 for all stored events; with new events if not given. An existing cursor takes precedence
    #[arg(long, value_name = "SEQ", value_parser = values::number::<i64>)]
    after: Option<i64>,
    #[command(flatten)]
    client: ClientArgs,
}

/// What the file contains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Cursor {
    /// The epoch that the number is of.
    epoch: String,
    /// The last event that was dealt with.
    seq: i64,
}

/// Runs it.
pub(crate) async fn run(args: &TailArgs) -> anyhow::Result<ExitCode> {
    let known = match &args.cursor {
        Some(file) => Cursor::read(file)?,
        None => None,
    };
    let client = Client::new(&args.client)?;
    let mut reading = Reading::new(client, "/events", args.filter.to_query());
    let mut stored = known.clone();
    match (known, args.after) {
        (Some(known), _) => reading.start_at(known.seq, Some(known.epoch)),
        (None, Some(after)) => reading.start_at(after, None),
        (None, None) if args.filter.since().is_some() => {}
        (None, None) => reading.start_at_the_end().await?,
    }
    loop {
        let before = reading.after();
        let (events, more) = match reading.next::<EventView>(PAGE).await {
            Err(error) => reading.repair(error)?,
            page => page?,
        };
        let Some(epoch) = reading.epoch() else { continue };
        if stored.is_none() {
            // First: with a file that cannot be written, every start would run the command for the same events.
            remember(args, &mut stored, Cursor { epoch: epoch.clone(), seq: before })?;
        }
        for event in events {
            deal_with(args, &event)?;
            remember(args, &mut stored, Cursor { epoch: epoch.clone(), seq: event.seq })?;
        }
        // Events that do not match are behind it too.
        remember(args, &mut stored, Cursor { epoch, seq: reading.after() })?;
        if !more {
            reading.wait().await;
        }
    }
}

fn deal_with(args: &TailArgs, event: &EventView) -> anyhow::Result<()> {
    let Some(command) = &args.exec else {
        return Ok(output::answer(args.client.json, event, || event_line(event))?);
    };
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env("FEEDFLEET_EVENT_SEQ", event.seq.to_string());
    let mut child =
        shell.env("FEEDFLEET_EVENT_KIND", &event.kind).stdin(Stdio::piped()).spawn().context("cannot run sh")?;
    if let Some(mut input) = child.stdin.take() {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        // A command need not read all of it, or anything.
        let _ = input.write_all(&line);
    }
    let status = child.wait().context("cannot wait for the command")?;
    let next = match &args.cursor {
        Some(_) => "the event is repeated at the next start".to_owned(),
        None => format!("continue with --after {}, or use --cursor FILE", event.seq - 1),
    };
    ensure!(status.success(), "the command failed for event {} ({status}); {next}", event.seq);
    Ok(())
}

fn remember(args: &TailArgs, stored: &mut Option<Cursor>, cursor: Cursor) -> anyhow::Result<()> {
    if let Some(file) = args.cursor.as_deref().filter(|_| stored.as_ref() != Some(&cursor)) {
        cursor.write(file)?;
        *stored = Some(cursor);
    }
    Ok(())
}

impl Cursor {
    fn read(file: &Path) -> anyhow::Result<Option<Self>> {
        let shown = file.display();
        let text = match fs::read_to_string(file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("cannot read {shown}"))?,
        };
        match serde_json::from_str(&text) {
            Ok(cursor) => Ok(Some(cursor)),
            Err(_) => bail!("{shown} is not a cursor of `feedfleet tail`; name another file, or remove this one"),
        }
    }

    /// Replaces the file as a whole: whenever this process is killed, it contains the cursor before or this one.
    fn write(&self, file: &Path) -> anyhow::Result<()> {
        let mut name = file.as_os_str().to_owned();
        name.push(".new");
        let new = PathBuf::from(name);
        let write = || {
            let mut written = File::create(&new)?;
            written.write_all(&serde_json::to_vec(self)?)?;
            written.sync_data()?;
            fs::rename(&new, file)
        };
        write().with_context(|| format!("cannot write {}", file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_nothing_else_is_taken_for_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cursor");
        assert_eq!(Cursor::read(&file).unwrap(), None);
        for seq in [3, 4] {
            let cursor = Cursor { epoch: "e".into(), seq };
            cursor.write(&file).unwrap();
            assert_eq!(Cursor::read(&file).unwrap(), Some(cursor));
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        fs::write(&file, "entries").unwrap();
        assert!(Cursor::read(&file).unwrap_err().to_string().contains("is not a cursor"));
    }
}
