//! `feedfleet migrate`: brings the store's schema up to date.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use common::config::without_password;

use crate::run::store_url;
use crate::settings::SettingsArgs;
use crate::usage::Usage;
use crate::{backends, output};

/// Creates the store or updates its schema; `run` does this automatically
#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// Where feeds and entries are kept [default: ./feedfleet-data]
    #[arg(long, value_name = "DIR", value_parser = crate::values::folder)]
    data: Option<String>,
    /// The store was restored from a backup: starts a new epoch, so that consumers start again
    #[arg(long)]
    restored: bool,
    #[command(flatten)]
    settings: SettingsArgs,
}

/// Runs it.
pub(crate) async fn run(args: &MigrateArgs) -> anyhow::Result<ExitCode> {
    let flags: Vec<_> = args.data.iter().map(|data| ("store.url", store_url(data).into())).collect();
    let config = args.settings.load(&flags)?.config;
    crate::logs::start(&config.log, crate::logs::Audit::Logged)?;
    if args.restored
        && let Some(path) = config.store.url.strip_prefix("sqlite://")
        && !Path::new(path).exists()
    {
        anyhow::bail!(Usage(format!("there is no store at {path}; name its folder with --data")));
    }
    let store = backends::store(&config).await?;
    let epoch = if args.restored { Some(store.begin_epoch().await?) } else { None };
    store.close().await;
    output::line(&format!("{} is up to date", without_password(&config.store.url)))?;
    if let Some(epoch) = epoch {
        output::line(&format!("it is restored: its epoch is {epoch} now"))?;
    }
    Ok(ExitCode::SUCCESS)
}
