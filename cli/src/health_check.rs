//! `feedfleet health`: checks a role from outside, for images without another program that could.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::client::{Client, ClientArgs};
use crate::output;

/// Checks whether a scheduler or worker is alive; the exit code is 0 if it is
#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// Also checks whether its backends (PostgreSQL, Redis, RabbitMQ) respond
    #[arg(long)]
    ready: bool,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs it.
pub(crate) async fn run(args: &HealthArgs) -> anyhow::Result<ExitCode> {
    let (path, good) = if args.ready { ("/readyz", "ready") } else { ("/healthz", "alive") };
    let client = Client::new(&args.client)?;
    let (status, words) = client.ask(path).await?;
    if !status.is_success() {
        // A scheduler answers with JSON, a worker with a line; neither answers with a page.
        let problem: Value = serde_json::from_str(&words).unwrap_or_default();
        let line = Some(&*words).filter(|line| status == StatusCode::SERVICE_UNAVAILABLE && !line.starts_with('<'));
        match problem["error"].as_str().or(line) {
            Some(why) => bail!("it answered {status}: {why}"),
            None => bail!("{} is not a feedfleet process: it answered {status}", client.name()),
        }
    }
    if args.client.json {
        output::json(&json!({ good: true }))?;
    } else {
        output::line(good)?;
    }
    Ok(ExitCode::SUCCESS)
}
