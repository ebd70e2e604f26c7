//! `feedfleet ping`: sends a fleet the pings that publishers send.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use reqwest::StatusCode;
use serde_json::Value;

use crate::client::{Client, ClientArgs, Refused};
use crate::output;

/// Announces new content of feeds, so that they are polled soon; exit code 1 if one is unknown
#[derive(Debug, Args)]
pub(crate) struct PingArgs {
    /// The feeds' URLs
    #[arg(required = true)]
    url: Vec<String>,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs it.
pub(crate) async fn run(args: &PingArgs) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.client)?;
    let mut all_known = true;
    for url in &args.url {
        let url = crate::typed::id_or_url(url);
        let answer = patiently(&client, &url).await?;
        let known = answer["known"] == true;
        all_known &= known;
        let heard = if known { "heard" } else { "unknown" };
        output::answer(args.client.json, &answer, || format!("{heard} {url}"))?;
    }
    Ok(if all_known { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Waits while the fleet accepts no more pings in this minute.
async fn patiently(client: &Client, url: &str) -> anyhow::Result<Value> {
    loop {
        let error = match client.ping(url).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let refused = error.downcast_ref::<Refused>();
        let too_often = refused.filter(|refused| refused.status == StatusCode::TOO_MANY_REQUESTS);
        let Some(wait) = too_often.and_then(|refused| refused.answer["retry_after"].as_u64()) else {
            return Err(error);
        };
        tokio::time::sleep(Duration::from_secs(wait.clamp(1, 60))).await;
    }
}
