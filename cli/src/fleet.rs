//! `feedfleet fleet`: stops and starts all polling.

use std::process::ExitCode;

use clap::Subcommand;
use reqwest::Method;
use scheduler::wire::StatsView;
use serde_json::Value;

use crate::client::{Client, ClientArgs};
use crate::output;

/// Stops and starts all polling
#[derive(Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Stops all polling; fetches in progress are finished
    Pause(ClientArgs),
    /// Starts polling again
    Resume(ClientArgs),
}

/// What is said to people who wait for polls meanwhile.
pub(crate) const PAUSED: &str = "all polling is paused; `feedfleet fleet resume` starts it";

/// Returns whether a person paused all polling, as far as the fleet says so: a token with labels may not ask, and what
/// a command did before counts whether or not the fleet answers now.
pub(crate) async fn is_paused(client: &Client) -> bool {
    client.get::<StatsView>("/stats", &[]).await.is_ok_and(|stats| stats.paused)
}

/// Runs one of them.
pub(crate) async fn run(command: FleetCommand) -> anyhow::Result<ExitCode> {
    let (args, path, done) = match &command {
        FleetCommand::Pause(args) => (args, "/fleet/pause", "polling is paused"),
        FleetCommand::Resume(args) => (args, "/fleet/resume", "polling resumed"),
    };
    let answer: Value = Client::new(args)?.change(Method::POST, path, None).await?;
    output::answer(args.json, &answer, || done.to_owned())?;
    Ok(ExitCode::SUCCESS)
}
