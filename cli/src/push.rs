//! `feedfleet push`: notifications from hubs.

use std::process::ExitCode;

use clap::Subcommand;
use reqwest::Method;
use scheduler::push::check::PushCheck;

use crate::client::{Client, ClientArgs};
use crate::output;

/// Checks notifications from hubs (WebSub, rssCloud)
#[derive(Debug, Subcommand)]
pub(crate) enum PushCommand {
    /// Checks whether hubs can reach the fleet at api.public_url
    ///
    /// The scheduler that answers sends one request to the fleet's own public URL. If that request does not arrive, the output
    /// says why, and which paths a proxy must pass to the schedulers, and the exit code is 1.
    Check(ClientArgs),
}

/// Runs one of them.
pub(crate) async fn run(command: PushCommand) -> anyhow::Result<ExitCode> {
    let PushCommand::Check(args) = command;
    let check: PushCheck = Client::new(&args)?.change(Method::POST, "/push/check", None).await?;
    if args.json {
        output::json(&check)?;
    } else {
        output::line(&check.detail)?;
        if !check.public_url.is_empty() {
            check.paths.iter().try_for_each(|path| output::line(&format!("  {path}")))?;
        }
    }
    Ok(if check.reachable { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
