//! `feedfleet backup`: a consistent copy of the store; the fleet may be running.

use common::words;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use store::sqlite::SqliteStore;

use crate::output;
use crate::run::store_url;
use crate::settings::SettingsArgs;
use crate::stop_signals::StopSignals;
use crate::usage::Usage;

/// Copies the store into a file; the fleet may be running
///
/// To restore a copy: stop the fleet, put the file into a separate folder as feedfleet.db, and run the fleet with
/// --data on that folder. The copy has a new epoch, so that consumers of entries start again.
#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// The new file; it must not exist
    file: PathBuf,
    /// Where feeds and entries are kept [default: ./feedfleet-data]
    #[arg(long, value_name = "DIR", value_parser = crate::values::folder)]
    data: Option<String>,
    /// Prints one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: SettingsArgs,
}

/// Runs it.
pub(crate) async fn run(args: &BackupArgs) -> anyhow::Result<ExitCode> {
    let flags: Vec<_> = args.data.iter().map(|data| ("store.url", store_url(data).into())).collect();
    let config = args.settings.load(&flags)?.config;
    if config.store.url.starts_with("postgres") {
        let instead = "copy it with pg_dump -Fc DATABASE > FILE, or see docs/operations.md, \"Backup and restore\"";
        anyhow::bail!(Usage(format!("the store is a PostgreSQL database; {instead}")));
    }
    let mut signals = StopSignals::caught()?;
    let backup = tokio::select! {
        // A copy that has its name already is reported.
        biased;
        backup = SqliteStore::backup(&config.store.url, &args.file) => backup?,
        () = signals.next() => anyhow::bail!("interrupted; {} was not written", args.file.display()),
    };
    if args.json {
        let report = json!({
            "file": args.file,
            "feeds": backup.feeds,
            "entries": backup.entries,
            "bytes": backup.bytes,
        });
        output::json(&report)?;
    } else {
        let size = words::bytes(backup.bytes as f64);
        let feeds = words::counted(backup.feeds, "feed", "feeds");
        let entries = words::counted(backup.entries, "entry", "entries");
        output::line(&format!("{} holds {feeds} and {entries} ({size})", args.file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
