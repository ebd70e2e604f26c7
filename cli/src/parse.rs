//! `feedfleet parse`: reads a file as the worker reads an answer's body. Exit code 0 a feed, 1 not a feed.

use std::process::ExitCode;

use clap::Args;
use worker::parse::{ParseLimits, ParsedFeed, parse, to_json};

use crate::feed_text::{about_fields, hints_text, onward_fields, repaired_text};
use crate::output::{self, fields, plain, table};
use crate::whole_file;

/// Parses a file as a feed and prints the result; exit code 0 for a feed, 1 otherwise
#[derive(Debug, Args)]
pub(crate) struct ParseArgs {
    /// The file; - reads standard input
    file: String,
    /// Prints one JSON document
    #[arg(long)]
    json: bool,
    /// The Content-Type that the server would have sent
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// The URL that the file came from: relative links are resolved against it
    #[arg(long, value_name = "URL", default_value = "")]
    base: String,
}

/// Runs it.
pub(crate) fn run(args: &ParseArgs) -> anyhow::Result<ExitCode> {
    let bytes = whole_file::read(&args.file)?;
    match parse(&bytes, args.content_type.as_deref(), &args.base, &ParseLimits::default()) {
        Ok(feed) if args.json => output::json(&to_json(&feed))?,
        Ok(feed) => output::line(&summary(&feed))?,
        Err(error) => {
            note!("error: {}: {}", args.file, plain(&error.to_string(), 500));
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn summary(feed: &ParsedFeed) -> String {
    let text = |text: &Option<String>| text.as_deref().map(|text| plain(text, 200));
    let [next, archive, moved, ended] = onward_fields(&feed.onward);
    let about = feed.onward.about.as_deref().map(about_fields).unwrap_or_default();
    let first = [("title", text(&feed.title)), ("link", text(&feed.link)), ("id", text(&feed.id))];
    let rest = [
        ("hints", hints_text(&feed.hints)),
        ("hub", text(&feed.hub)),
        ("cloud", text(&feed.cloud)),
        next,
        archive,
        moved,
        ended,
        ("repaired", repaired_text(feed.repaired)),
        ("cut off", feed.truncated.then(|| "yes: the document ends too early".to_owned())),
        ("entries", Some(feed.entries.len().to_string())),
    ];
    let head = fields(&first.into_iter().chain(about).chain(rest).collect::<Vec<_>>());
    if feed.entries.is_empty() {
        return head;
    }
    let rows = feed.entries.iter().map(|entry| {
        let when = entry.published.or(entry.updated);
        vec![
            when.map_or_else(|| "-".to_owned(), |at| at.to_chrono().format("%Y-%m-%d %H:%M").to_string()),
            plain(entry.display_title(), 80),
            plain(entry.url.as_deref().unwrap_or("-"), 500),
        ]
    });
    format!("{head}\n\n{}", table(&["PUBLISHED (UTC)", "TITLE", "LINK"], &rows.collect::<Vec<_>>()))
}
