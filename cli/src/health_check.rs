//! `feedfleet health`: checks a role from outside, for images without another program that could.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use serde_json::json;

use crate::client::{Client, ClientArgs};
use crate::output;

/// Checks whether a scheduler or worker is alive; the exit code is 0 if it is
#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// Asks whether it can do its work, too: whether its servers answer
    #[arg(long)]
    ready: bool,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs it.
pub(crate) async fn run(args: &HealthArgs) -> anyhow::Result<ExitCode> {
    let (path, good) = if args.ready { ("/readyz", "ready") } else { ("/healthz", "alive") };
    let (status, words) = Client::new(&args.client)?.ask(path).await?;
    if !status.is_success() {
        bail!("it answered {status}: {words}");
    }
    if args.client.json {
        output::json(&json!({ good: true }))?;
    } else {
        output::line(good)?;
    }
    Ok(ExitCode::SUCCESS)
}
