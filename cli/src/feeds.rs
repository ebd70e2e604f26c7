//! Commands on several feeds: each is tried, whatever the outcome of the others.

use std::io::{IsTerminal, Write, stderr, stdin};
use std::process::ExitCode;

use clap::Args;
use common::url::{FeedId, without_login};
use common::words::counted;
use reqwest::Method;
use scheduler::wire::FeedView;
use serde_json::{Value, json};

use crate::client::{Client, ClientArgs, Refused};
use crate::output::{self, plain};
use crate::typed;
use crate::usage::Usage;

/// One or more feeds.
#[derive(Debug, Args)]
pub(crate) struct FeedsArgs {
    /// The feeds' ids or URLs
    #[arg(required = true, value_name = "FEED")]
    pub(crate) feed: Vec<String>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// `feed remove`
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    #[command(flatten)]
    feeds: FeedsArgs,
    /// Does not ask before it removes several feeds
    #[arg(long, short)]
    yes: bool,
    /// Only shows what would be removed
    #[arg(long)]
    dry_run: bool,
}

/// Does something to each of these feeds. With several, a feed that is refused is reported, and the others are done.
pub(crate) async fn each(feeds: &[String], act: impl AsyncFn(&str) -> anyhow::Result<()>) -> anyhow::Result<ExitCode> {
    // Before anything is changed.
    if let Some(wrong) = feeds.iter().find(|feed| !typed::may_be_feed(feed)) {
        let wrong = without_login(wrong);
        let message = format!("'{wrong}' is neither a feed's id nor a URL such as https://example.com/feed.xml");
        return Err(Usage(message).into());
    }
    let mut failed = false;
    for feed in feeds {
        match act(feed).await {
            Err(error) if feeds.len() > 1 && error.is::<Refused>() => {
                output::error(&error);
                failed = true;
            }
            done => done?,
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Sends `POST /feeds/{id}{action}` for each feed, and prints what was done.
pub(crate) async fn act(args: &FeedsArgs, action: &str, done: &str) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.client)?;
    each(&args.feed, async |feed| {
        let id = client.find(feed).await?;
        let feed: FeedView = client.change(Method::POST, &format!("/feeds/{id}{action}"), None).await?;
        Ok(output::answer(args.client.json, &feed, || format!("{done} {} {}", feed.id, feed.url))?)
    })
    .await
}

/// Runs `remove`. Several feeds are removed only after a person agreed, or with `--yes`.
pub(crate) async fn remove(args: &RemoveArgs) -> anyhow::Result<ExitCode> {
    let RemoveArgs { feeds: FeedsArgs { feed: feeds, client: flags }, yes, dry_run } = args;
    let client = Client::new(flags)?;
    if *dry_run {
        return each(feeds, async |feed| {
            let feed = look_up(&client, feed).await?;
            Ok(output::answer(flags.json, &feed, || format!("would remove {}", described(&feed)))?)
        })
        .await;
    }
    if feeds.len() > 1 && !yes && !agreed(&client, feeds).await? {
        note!("nothing was removed");
        return Ok(ExitCode::FAILURE);
    }
    each(feeds, async |feed| {
        let id = client.find(feed).await?;
        let _: Value = client.change(Method::DELETE, &format!("/feeds/{id}"), None).await?;
        Ok(output::answer(flags.json, &json!({ "id": id, "removed": true }), || format!("removed {id}"))?)
    })
    .await
}

/// Prompts the person at the terminal. Unknown feeds are reported first, and end the command.
async fn agreed(client: &Client, feeds: &[String]) -> anyhow::Result<bool> {
    if !stdin().is_terminal() || !stderr().is_terminal() {
        let message = format!("this removes {} feeds with their entries; give --yes to do so", feeds.len());
        return Err(Usage(message).into());
    }
    for feed in feeds {
        note!("{}", described(&look_up(client, feed).await?));
    }
    let count = counted(feeds.len() as u64, "feed", "feeds");
    let _ = write!(stderr(), "Remove {count} with all entries? This cannot be undone. [y/N] ");
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

async fn look_up(client: &Client, feed: &str) -> anyhow::Result<FeedView> {
    let id: FeedId = client.find(feed).await?;
    client.get(&format!("/feeds/{id}"), &[]).await
}

fn described(feed: &FeedView) -> String {
    let title = feed.title.as_deref().map_or_else(String::new, |title| format!("{}, ", plain(title, 100)));
    format!("{} {} ({title}{})", feed.id, feed.url, counted(feed.entries, "entry", "entries"))
}
