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
/// How long a try waits for the answer of a process that is alive.
const ALIVE: Duration = Duration::from_secs(5);
/// How long a try waits for the answer of a process that checks its backends first.
const READY: Duration = Duration::from_secs(10);

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
    let (path, good, longest) = if args.ready { ("/readyz", "ready", READY) } else { ("/healthz", "alive", ALIVE) };
    let client = Client::new(&args.client)?;
    let until = args.wait.map(|wait| Instant::now() + wait);
    while let Err(problem) = check(&client, path, time_of_try(until, longest)).await {
        // Another try must begin before the end.
        if until.is_none_or(|until| Instant::now() + PAUSE >= until) {
            return Err(problem);
        }
        tokio::time::sleep(PAUSE).await;
    }
    output::answer(args.client.json, &json!({ good: true }), || good.to_owned())?;
    Ok(ExitCode::SUCCESS)
}

/// Returns how long the next try may take: what is left of `--wait`, but enough for a process that answers at once.
fn time_of_try(until: Option<Instant>, longest: Duration) -> Duration {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    left.map_or(longest, |left| left.clamp(PAUSE, longest))
}

/// Returns an error unless the process answers within this time that it is well.
async fn check(client: &Client, path: &str, time: Duration) -> anyhow::Result<()> {
    let (status, words) = client.ask_within(path, time).await?;
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
