//! `feedfleet discover`: the feeds that a page announces.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use common::config::Config;
use common::document::Validators;
use common::outcome::FailureKind;
use common::report::Outcome;
use common::secrets::Login;
use common::url::{FeedUrl, without_login};
use reqwest::Url;
use serde_json::json;
use worker::discover::{AnnouncedFeed, announced};

use crate::output::{self, plain, table};
use crate::settings::SettingsArgs;
use crate::single;
use crate::terminal::Waiting;
use crate::usage::Usage;

/// Prints the feeds that a page announces; exit code 1 if there is none
#[derive(Debug, Args)]
pub(crate) struct DiscoverArgs {
    /// The page: a URL, a file, or - to read standard input
    #[arg(value_name = "URL|FILE")]
    page: String,
    /// The URL that a file came from: relative links are resolved against it
    #[arg(long, value_name = "URL", default_value = "http://localhost/")]
    base: Url,
    /// Prints JSON, one feed a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: SettingsArgs,
}

/// Runs it.
pub(crate) async fn run(args: &DiscoverArgs) -> anyhow::Result<ExitCode> {
    let feeds = if args.page == "-" || Path::new(&args.page).is_file() {
        announced(&crate::whole_file::read(&args.page)?, Some("text/html"), &args.base)
    } else {
        let config = args.settings.load(&[])?.config;
        let (url, login) = page_url(&args.page, &config.fetch.at_service)?;
        of_url(&config, url, login.as_ref()).await?
    };
    if feeds.is_empty() {
        anyhow::bail!("{} announces no feed", plain(&without_login(&args.page), 500));
    }
    if args.json {
        feeds.iter().try_for_each(|feed| output::json(&as_json(feed)))?;
    } else {
        output::line(&listing(&feeds))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn page_url(text: &str, at_service: &str) -> Result<(FeedUrl, Option<Login>), Usage> {
    crate::typed::feed_or_file(text, at_service).map_err(|error| match text.contains("://") {
        true => Usage(error.to_string()),
        false => Usage(format!("'{}' is neither a URL such as https://example.com/ nor a file", without_login(text))),
    })
}

/// Returns the feeds of the page at this URL; a URL that is a feed itself announces itself.
async fn of_url(config: &Config, url: FeedUrl, login: Option<&Login>) -> anyhow::Result<Vec<AnnouncedFeed>> {
    let waiting = Waiting::new(format!("reading {url}"));
    let fetched = single::fetch(config, (url, login), Validators::default(), 1, single::NEW);
    let single = waiting.during(fetched).await?;
    drop(waiting);
    match &single.fetched.outcome {
        Outcome::Modified(document) => {
            let media_type = single.field("content-type").unwrap_or_default().split(';').next().unwrap_or_default();
            Ok(vec![AnnouncedFeed {
                url: single.last_url().clone(),
                media_type: media_type.trim().to_owned(),
                title: document.title.clone(),
            }])
        }
        Outcome::Failed { failure: FailureKind::NotAFeed | FailureKind::Malformed, .. } => Ok(single.fetched.announced),
        outcome => {
            anyhow::bail!("{} could not be read: {}{}", single.job.url, output::outcome(outcome), single::hint(outcome))
        }
    }
}

fn as_json(feed: &AnnouncedFeed) -> serde_json::Value {
    json!({ "url": feed.url, "type": feed.media_type, "title": feed.title })
}

fn listing(feeds: &[AnnouncedFeed]) -> String {
    let row = |feed: &AnnouncedFeed| {
        let title = feed.title.as_deref().unwrap_or("-");
        vec![feed.url.to_string(), plain(&feed.media_type, 60), plain(title, 80)]
    };
    table(&["URL", "TYPE", "TITLE"], &feeds.iter().map(row).collect::<Vec<_>>())
}
