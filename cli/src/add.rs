//! `feedfleet feed add`: adds feeds, and reports the results of their first polls. The fleet sends the requests: a
//! request from this process would ignore the limits of its hosts.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use reqwest::Method;
use scheduler::wire::AddedView;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::audience::AudienceArgs;
use crate::client::{Client, ClientArgs, Refused, is_invalid};
use crate::first_poll::{FirstPoll, has_settings};
use crate::output;
use crate::usage::Usage;

/// `feed add`
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// URLs of feeds, or of pages: the first feed that a page announces is added
    #[arg(required = true)]
    url: Vec<String>,
    /// How long to wait for the first polls and report their results; 0s does not wait [default: 10s; with --json 0s]
    #[arg(long, value_name = "DURATION", value_parser = crate::values::duration)]
    wait: Option<Duration>,
    /// A label for new feeds; may be repeated
    #[arg(long, value_name = "LABEL")]
    label: Vec<String>,
    /// Your own id for a new feed, which its entries and events carry
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
    #[command(flatten)]
    audience: AudienceArgs,
    #[command(flatten)]
    client: ClientArgs,
}

/// Enough for a page whose site is looked through for a feed, a request a second.
const WAIT: Duration = Duration::from_secs(10);

/// Runs it. Each URL is tried, whatever the outcome of the others.
pub(crate) async fn run(args: &AddArgs) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.client)?;
    let settings = settings(args)?;
    let (mut added, mut failed) = (Vec::new(), false);
    for url in &args.url {
        match add(&client, url, &settings).await {
            Ok(view) => {
                if !args.client.json {
                    output::line(&format!("{} {} {}", verb(&view), view.feed.id, view.feed.url))?;
                }
                failed |= !view.new && !has_settings(&view.feed, &settings)?;
                added.push(view);
            }
            Err(error) if args.url.len() > 1 && error.is::<Refused>() => {
                output::error(&error);
                failed = true;
            }
            Err(error) => return Err(error),
        }
    }
    let wait = args.wait.unwrap_or(if args.client.json { Duration::ZERO } else { WAIT });
    let deadline = (!wait.is_zero()).then(|| Instant::now() + wait);
    let first_poll = FirstPoll { client: &client, json: args.client.json, settings: &settings, deadline };
    for view in &mut added {
        failed |= !first_poll.report(view).await?;
    }
    if args.client.json {
        added.iter().try_for_each(output::json)?;
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Returns what the command line sets of new feeds.
fn settings(args: &AddArgs) -> Result<Map<String, Value>, Usage> {
    let mut settings = args.audience.to_json()?;
    if !args.label.is_empty() {
        settings.insert("labels".to_owned(), args.label.clone().into());
    }
    if let Some(id) = &args.external_id {
        settings.insert("external_id".to_owned(), id.as_str().into());
    }
    Ok(settings)
}

/// Adds a feed; what is not a URL is tried as a host and path.
async fn add(client: &Client, url: &str, settings: &Map<String, Value>) -> anyhow::Result<AddedView> {
    let mut body = settings.clone();
    body.insert("url".to_owned(), url.into());
    let added = client.change(Method::POST, "/feeds", Some(&Value::Object(body.clone()))).await;
    match (added, crate::typed::with_scheme(url)) {
        (Err(error), Some(with_scheme)) if is_invalid(&error) => {
            body.insert("url".to_owned(), with_scheme.into());
            let again = client.change(Method::POST, "/feeds", Some(&Value::Object(body))).await;
            // The text that was given is what the refusal is about.
            again.map_err(|other| if is_invalid(&other) { error } else { other })
        }
        (added, _) => added,
    }
}

fn verb(added: &AddedView) -> &'static str {
    match (added.new, added.revived) {
        (true, _) => "added",
        (_, true) => "revived",
        _ => "known",
    }
}
