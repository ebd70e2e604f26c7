//! `feedfleet run`: the whole fleet in one process. The command line is read here; `all_in_one` does the rest.

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Args;
use toml::Value;

use crate::settings::SettingsArgs;
use crate::{all_in_one, logs, reload, values};

/// Runs the whole fleet in this process: polls feeds, prints new entries as they come, serves the API
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Feeds to add: URLs, or OPML files
    #[arg(value_name = "URL|OPML")]
    sources: Vec<String>,
    /// Where feeds and entries are kept; ":memory:" keeps nothing [default: ./feedfleet-data]
    #[arg(long, value_name = "DIR", value_parser = values::folder)]
    data: Option<String>,
    /// Address of the API [default: 127.0.0.1:7878]
    #[arg(long, value_name = "ADDR", value_parser = values::address)]
    listen: Option<SocketAddr>,
    /// Polls the feeds that are due, and exits
    #[arg(long)]
    once: bool,
    /// At most 4 fetches at once and 1 a second, for a desktop
    #[arg(long)]
    gentle: bool,
    #[command(flatten)]
    settings: SettingsArgs,
}

impl RunArgs {
    /// Returns the flags that are configuration keys under another name.
    fn flags(&self) -> Vec<(&'static str, Value)> {
        let mut flags = Vec::new();
        if let Some(data) = &self.data {
            flags.push(("store.url", Value::String(store_url(data))));
        }
        if let Some(listen) = self.listen {
            flags.push(("api.listen", Value::String(listen.to_string())));
        }
        if self.gentle {
            flags.push(("worker.gentle", Value::Boolean(true)));
        }
        flags
    }
}

/// Returns the store's URL for `--data`.
pub(crate) fn store_url(data: &str) -> String {
    match data {
        ":memory:" => "sqlite::memory:".to_owned(),
        directory => format!("sqlite://{}/feedfleet.db", directory.trim_end_matches('/')),
    }
}

/// Runs it.
pub(crate) async fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let loaded = args.settings.load(&args.flags())?;
    logs::start(&loaded.config.log, logs::Audit::NotOnTerminals)?;
    let (settings, flags) = (args.settings.clone(), args.flags());
    let source = reload::source(&loaded.config, move || settings.load(&flags));
    all_in_one::run(loaded.config, source, &args.sources, args.once).await?;
    Ok(ExitCode::SUCCESS)
}
