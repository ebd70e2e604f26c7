//! `feedfleet health`: checks a role from outside, for images without another program that could.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::{Client, ClientArgs};
use crate::output;
use crate::values;

/// How long to wait between two tries.
const PAUSE: Duration = Duration::from_millis(500);

/// Checks whether a scheduler or worker is alive; the exit code is 0 if it is
#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// Also checks whether its backends (PostgreSQL, Redis, RabbitMQ) respond
    #[arg(long)]
    ready: bool,
    /// Tries again until it is, at most this long (30s if not given): for a process that was just started
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "30s", require_equals = true,
        value_parser = values::duration)]
    wait: Option<Duration>,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs it.
pub(crate) async fn run(args: &HealthArgs) -> anyhow::Result<ExitCode> {
    let (path, good) = if args.ready { ("/readyz", "ready") } else { ("/healthz", "alive") };
    let client = Client::new(&args.client)?;
    let until = args.wait.map(|wait| Instant::now() + wait);
    while let Err(problem) = check(&client, path).await {
        if until.is_none_or(|until| Instant::now() >= until) {
            return Err(problem);
        }
        tokio::time::sleep(PAUSE).await;
    }
    if args.client.json {
        output::json(&json!({ good: true }))?;
    } else {
        output::line(good)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns an error unless the process answers that it is well.
async fn check(client: &Client, path: &str) -> anyhow::Result<()> {
    let (status, words) = client.ask(path).await?;
    if status.is_success() {
        return Ok(());
    }
    // A scheduler answers with JSON, a worker with a line; neither answers with a page.
    let problem: Value = serde_json::from_str(&words).unwrap_or_default();
    let line = Some(&*words).filter(|line| status == StatusCode::SERVICE_UNAVAILABLE && !line.starts_with('<'));
    match problem["error"].as_str().or(line) {
        Some(why) => bail!("it answered {status}: {why}"),
        None => bail!("{} is not a feedfleet process: it answered {status}", client.name()),
    }
}
