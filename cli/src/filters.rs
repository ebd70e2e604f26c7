//! The flags that choose entries and events.

use clap::Args;
use common::time::{Clock, SystemClock, Timestamp};
use serde_json::Value;

/// Which entries or events to read: those that meet all conditions.
#[derive(Debug, Args)]
pub(crate) struct FilterArgs {
    /// Only from this feed (id or URL)
    #[arg(long, value_name = "X")]
    pub(crate) feed: Option<String>,
    /// Only from feeds on this host, such as example.com:443
    #[arg(long)]
    host: Option<String>,
    /// Only from feeds with this label
    #[arg(long)]
    label: Option<String>,
    /// Only from feeds in this category: A, B, C, D or F
    #[arg(long)]
    category: Option<String>,
    /// Only of these kinds, separated by commas, such as entry.new,feed.gone or entry.*
    #[arg(long, value_name = "KINDS")]
    kind: Option<String>,
    /// Only entries in this language, such as en
    #[arg(long)]
    language: Option<String>,
    /// Only entries with this in their title, authors, categories or text
    #[arg(long = "search", value_name = "TEXT")]
    q: Option<String>,
    /// Only what was stored since this time, such as 2026-11-22T12:00:00Z, or within this duration, such as 2h
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<String>,
    /// Only from feeds in part K of N, such as 1/4, so that N readers share the work
    #[arg(long, value_name = "K/N")]
    part: Option<String>,
}

impl FilterArgs {
    /// Returns the parameters of a request.
    pub(crate) fn to_query(&self) -> Vec<(&'static str, String)> {
        let feed = self.feed.as_deref().map(crate::typed::id_or_url);
        let all = [
            ("feed", &feed),
            ("host", &self.host),
            ("label", &self.label),
            ("category", &self.category),
            ("kind", &self.kind),
            ("language", &self.language),
            ("q", &self.q),
            ("since", &self.since),
            ("part", &self.part),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect()
    }

    /// Returns the time since which something was stored, in RFC 3339.
    pub(crate) fn since(&self) -> Option<String> {
        self.since.clone()
    }
}

/// Parses a time, or how long ago it was.
pub(crate) fn since(text: &str) -> Result<String, &'static str> {
    if let Ok(ago) = humantime::parse_duration(text) {
        return Ok(SystemClock.now().before(ago).to_string());
    }
    let at: Result<Timestamp, _> = serde_json::from_value(Value::from(text));
    at.map(|at| at.to_string())
        .map_err(|_| "it must be a time, such as 2026-11-22T12:00:00Z, or how long ago, such as 2h")
}
