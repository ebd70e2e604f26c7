//! `feedfleet feed`: add, list, show, explain, change feeds.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use common::policy::Rule;
use common::time::{Clock, SystemClock, Timestamp};
use reqwest::Method;
use scheduler::api::view::{AddedView, ExplainView, FeedView, HistoryView, List};
use scheduler::store::HistoryEntry;
use serde_json::{Map, Value, json};

use crate::client::{Client, ClientArgs};
use crate::output::{self, bytes, fields, moment, plain, relative, table, words};

/// Adds, lists, shows and changes feeds
#[derive(Debug, Subcommand)]
pub(crate) enum FeedCommand {
    /// Adds feeds; they are polled at once
    Add(AddArgs),
    /// Lists feeds
    List(ListArgs),
    /// Shows everything about a feed
    Show(OneArgs),
    /// Says why a feed is due when it is
    Explain(OneArgs),
    /// Shows a feed's last polls
    History(OneArgs),
    /// Changes who reads a feed
    Set(SetArgs),
    /// Stops polling a feed
    Pause(OneArgs),
    /// Polls a paused, blacklisted or quarantined feed again
    Resume(OneArgs),
    /// Erases a feed with its entries and history
    Remove(OneArgs),
}

/// One feed.
#[derive(Debug, Args)]
pub(crate) struct OneArgs {
    /// The feed's id or URL
    feed: String,
    #[command(flatten)]
    client: ClientArgs,
}

/// Who reads a feed.
#[derive(Debug, Args)]
struct AudienceArgs {
    /// Subscribers in all; decides the category
    #[arg(long, value_name = "N")]
    subscribers: Option<u32>,
    /// Of these, the ones that read at present; all of them if not given
    #[arg(long, value_name = "N")]
    active_subscribers: Option<u32>,
    /// Content has to arrive within two minutes (category A)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    sla: Option<bool>,
    /// Polled like a feed with many subscribers (category B)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    important: Option<bool>,
    /// Not named to anybody who asks from outside
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    private: Option<bool>,
    /// Polls at this interval instead of the category's, such as 30m; "none" takes it away
    #[arg(long, value_name = "DURATION", value_parser = interval)]
    interval: Option<Interval>,
}

/// An interval, or none.
#[derive(Clone, Copy, Debug)]
struct Interval(Option<f64>);

fn interval(text: &str) -> Result<Interval, String> {
    if text == "none" {
        return Ok(Interval(None));
    }
    let duration = humantime::parse_duration(text).map_err(|_| "such as 30m, 1h 30m, or none")?;
    Ok(Interval(Some(duration.as_secs_f64())))
}

impl AudienceArgs {
    /// The fields that were given, as the API reads them.
    fn to_json(&self) -> Map<String, Value> {
        let fields = [
            ("subscribers", self.subscribers.map(Value::from)),
            ("active_subscribers", self.active_subscribers.map(Value::from)),
            ("sla", self.sla.map(Value::from)),
            ("important", self.important.map(Value::from)),
            ("private", self.private.map(Value::from)),
            ("interval", self.interval.map(|interval| json!(interval.0))),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

/// `feed add`
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// The feeds' URLs
    #[arg(required = true)]
    url: Vec<String>,
    #[command(flatten)]
    audience: AudienceArgs,
    #[command(flatten)]
    client: ClientArgs,
}

/// `feed set`
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// The feed's id or URL
    feed: String,
    #[command(flatten)]
    audience: AudienceArgs,
    #[command(flatten)]
    client: ClientArgs,
}

/// `feed list`
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only feeds with this in their title or URL
    #[arg(long = "search", value_name = "TEXT")]
    q: Option<String>,
    /// Only feeds of this host, such as example.com:443
    #[arg(long)]
    host: Option<String>,
    /// Only feeds of this category: A, B, C, D or F
    #[arg(long)]
    category: Option<String>,
    /// Only feeds with this status, such as active, paused, gone
    #[arg(long)]
    status: Option<String>,
    /// Only feeds that fail in this way, such as dns, timeout, not_a_feed
    #[arg(long, value_name = "KIND")]
    failure: Option<String>,
    /// Order: id, subscribers or next_due
    #[arg(long)]
    sort: Option<String>,
    /// Goes on after an earlier list's cursor
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// At most so many, up to 1000
    #[arg(long, default_value_t = 100, value_name = "N")]
    limit: u32,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs one of them.
pub(crate) async fn run(command: FeedCommand) -> anyhow::Result<ExitCode> {
    match command {
        FeedCommand::Add(args) => return add(&args).await,
        FeedCommand::List(args) => list(&args).await?,
        FeedCommand::Show(args) => {
            let feed = one(&args, Method::GET, "").await?;
            print_feed(&args, &feed)?;
        }
        FeedCommand::Explain(args) => explain(&args).await?,
        FeedCommand::History(args) => history(&args).await?,
        FeedCommand::Set(args) => set(&args).await?,
        FeedCommand::Pause(args) => told(&args, &one(&args, Method::POST, "/pause").await?, "paused")?,
        FeedCommand::Resume(args) => told(&args, &one(&args, Method::POST, "/resume").await?, "resumed")?,
        FeedCommand::Remove(args) => remove(&args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn one(args: &OneArgs, method: Method, action: &str) -> anyhow::Result<FeedView> {
    let client = Client::new(&args.client)?;
    let id = client.find(&args.feed).await?;
    client.change(method, &format!("/feeds/{id}{action}"), None).await
}

fn told(args: &OneArgs, feed: &FeedView, what: &str) -> anyhow::Result<()> {
    if args.client.json {
        return Ok(output::json(feed)?);
    }
    Ok(output::line(&format!("{what} {} {}", feed.id, feed.url))?)
}

/// Each URL is tried, whatever became of the others.
async fn add(args: &AddArgs) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.client)?;
    let mut code = ExitCode::SUCCESS;
    for url in &args.url {
        let mut body = args.audience.to_json();
        body.insert("url".to_owned(), url.as_str().into());
        match client.change::<AddedView>(Method::POST, "/feeds", Some(&Value::Object(body))).await {
            Ok(added) if args.client.json => output::json(&added)?,
            Ok(added) => {
                let what = match (added.new, added.revived) {
                    (true, _) => "added",
                    (_, true) => "revived",
                    _ => "known",
                };
                output::line(&format!("{what} {} {}", added.feed.id, added.feed.url))?;
            }
            Err(error) if args.url.len() > 1 && error.is::<crate::Refused>() => {
                eprintln!("error: {error}");
                code = ExitCode::FAILURE;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(code)
}

async fn set(args: &SetArgs) -> anyhow::Result<()> {
    let body = args.audience.to_json();
    if body.is_empty() {
        return Err(crate::Usage("nothing to set; `feedfleet feed set --help` lists what can be".to_owned()).into());
    }
    let client = Client::new(&args.client)?;
    let id = client.find(&args.feed).await?;
    let feed: FeedView = client.change(Method::PATCH, &format!("/feeds/{id}"), Some(&Value::Object(body))).await?;
    if args.client.json {
        return Ok(output::json(&feed)?);
    }
    Ok(output::line(&format!("set {} {}: category {}", feed.id, feed.url, feed.category))?)
}

async fn remove(args: &OneArgs) -> anyhow::Result<()> {
    let client = Client::new(&args.client)?;
    let id = client.find(&args.feed).await?;
    let _: Value = client.change(Method::DELETE, &format!("/feeds/{id}"), None).await?;
    if args.client.json {
        return Ok(output::json(&json!({ "id": id, "removed": true }))?);
    }
    Ok(output::line(&format!("removed {id}"))?)
}

async fn list(args: &ListArgs) -> anyhow::Result<()> {
    let client = Client::new(&args.client)?;
    let limit = args.limit.to_string();
    let parameters = [
        ("q", &args.q),
        ("host", &args.host),
        ("category", &args.category),
        ("status", &args.status),
        ("failure", &args.failure),
        ("sort", &args.sort),
        ("after", &args.after),
    ];
    let given = parameters.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?)));
    let query: Vec<_> = given.chain([("limit", limit.as_str())]).collect();
    let list: List<FeedView> = client.get("/feeds", &query).await?;
    if args.client.json {
        list.items.iter().try_for_each(output::json)?;
    } else if list.items.is_empty() {
        output::line("no feeds")?;
    } else {
        output::line(&feed_table(&list.items, SystemClock.now()))?;
    }
    if let Some(next) = list.next {
        eprintln!("there are more: --after {next}");
    }
    Ok(())
}

fn feed_table(feeds: &[FeedView], now: Timestamp) -> String {
    let row = |feed: &FeedView| {
        let last = match (feed.last_outcome, feed.last_polled) {
            (Some(outcome), Some(at)) => format!("{outcome} {}", relative(at, now)),
            _ => "never".to_owned(),
        };
        vec![
            feed.id.to_string(),
            feed.category.to_string(),
            feed.status.as_str().to_owned(),
            feed.next_due.map_or_else(|| "-".to_owned(), |due| relative(due, now)),
            last,
            feed.entries.to_string(),
            feed.url.clone(),
            plain(feed.title.as_deref().unwrap_or_default(), 50),
        ]
    };
    let rows: Vec<_> = feeds.iter().map(row).collect();
    table(&["ID", "CAT", "STATUS", "NEXT POLL", "LAST POLL", "ENTRIES", "URL", "TITLE"], &rows)
}

fn print_feed(args: &OneArgs, feed: &FeedView) -> anyhow::Result<()> {
    if args.client.json {
        return Ok(output::json(feed)?);
    }
    Ok(output::line(&feed_fields(feed, SystemClock.now()))?)
}

fn feed_fields(feed: &FeedView, now: Timestamp) -> String {
    let when = |at: Option<Timestamp>| at.map(|at| moment(at, now));
    let yes = |flag: bool| flag.then(|| "yes".to_owned());
    let outcome = feed.last_outcome.map(|outcome| match feed.last_status {
        Some(status) => format!("{outcome} (HTTP {status})"),
        None => outcome.to_string(),
    });
    let failures = (feed.consecutive_failures > 0).then(|| match feed.failing_since {
        Some(since) => format!("{} in a row, since {}", feed.consecutive_failures, moment(since, now)),
        None => feed.consecutive_failures.to_string(),
    });
    let penalty = feed.penalty.map(|penalty| format!("{} until {}", penalty.kind, moment(penalty.until, now)));
    fields(&[
        ("id", Some(feed.id.to_string())),
        ("url", Some(feed.url.clone())),
        ("host", Some(feed.host.clone())),
        ("title", feed.title.as_deref().map(|title| plain(title, 200))),
        ("status", Some(feed.status.as_str().to_owned())),
        ("category", Some(feed.category.to_string())),
        ("subscribers", Some(format!("{} ({} active)", feed.subscribers, feed.active_subscribers))),
        ("sla", yes(feed.sla)),
        ("important", yes(feed.important)),
        ("private", yes(feed.private)),
        ("interval", feed.interval.map(|seconds| words(std::time::Duration::from_secs_f64(seconds)))),
        ("next poll", when(feed.next_due)),
        ("wanted", when(feed.wake_at)),
        ("held until", when(feed.hold_until)),
        ("last poll", when(feed.last_polled)),
        ("outcome", outcome),
        ("last success", when(feed.last_success)),
        ("last change", when(feed.last_changed)),
        ("failures", failures),
        ("penalty box", penalty),
        ("entries", Some(feed.entries.to_string())),
        ("etag", feed.etag.as_deref().map(|etag| plain(etag, 200))),
        ("last-modified", feed.last_modified.as_deref().map(|date| plain(date, 200))),
        ("content hash", feed.content_hash.map(|hash| hash.to_string())),
        ("moved from", feed.moved_from.clone()),
        ("added", when(Some(feed.added))),
        ("version", Some(feed.version.to_string())),
    ])
}

async fn explain(args: &OneArgs) -> anyhow::Result<()> {
    let client = Client::new(&args.client)?;
    let id = client.find(&args.feed).await?;
    let explained: ExplainView = client.get(&format!("/feeds/{id}/explain"), &[]).await?;
    if args.client.json {
        return Ok(output::json(&explained)?);
    }
    Ok(output::line(&explanation(&explained, SystemClock.now()))?)
}

/// When, then each term with the time that it led to.
fn explanation(explained: &ExplainView, now: Timestamp) -> String {
    let next = explained.next_due.map_or_else(|| "never".to_owned(), |due| moment(due, now));
    let since =
        if explained.terms.first().is_some_and(|term| term.rule == Rule::Added) { "added" } else { "last poll" };
    let head = fields(&[
        ("feed", Some(format!("{} {}", explained.id, explained.url))),
        ("next poll", Some(next)),
        (since, Some(moment(explained.base, now))),
    ]);
    let clock = |at: Timestamp| at.to_chrono().format("%m-%d %H:%M:%S").to_string();
    let rows: Vec<_> = explained.terms.iter().map(|term| vec![clock(term.due), term.text.clone()]).collect();
    let notes = explained.notes.iter().map(|note| format!("note: {note}"));
    [head, table(&["DUE (UTC)", "BECAUSE"], &rows)].into_iter().chain(notes).collect::<Vec<_>>().join("\n\n")
}

async fn history(args: &OneArgs) -> anyhow::Result<()> {
    let client = Client::new(&args.client)?;
    let id = client.find(&args.feed).await?;
    let history: HistoryView = client.get(&format!("/feeds/{id}/history"), &[]).await?;
    if args.client.json {
        return Ok(history.items.iter().try_for_each(output::json)?);
    }
    if history.items.is_empty() {
        return Ok(output::line("never polled")?);
    }
    Ok(output::line(&history_table(&history.items))?)
}

fn history_table(polls: &[HistoryEntry]) -> String {
    let row = |poll: &HistoryEntry| {
        let outcome = poll.failure.map_or_else(|| poll.outcome.to_string(), |failure| format!("failed: {failure}"));
        let rules = poll.reasons.iter().filter_map(|rule| serde_json::to_value(rule).ok()?.as_str().map(str::to_owned));
        vec![
            poll.at.to_chrono().format("%Y-%m-%d %H:%M:%S").to_string(),
            outcome,
            poll.status.map_or_else(|| "-".to_owned(), |status| status.to_string()),
            bytes(poll.bytes),
            words(std::time::Duration::from_secs_f64(poll.duration.max(0.0))),
            poll.next_due.map_or_else(|| "-".to_owned(), |due| format!("+{}", words(due.since(poll.at)))),
            rules.collect::<Vec<_>>().join(", "),
        ]
    };
    let rows: Vec<_> = polls.iter().map(row).collect();
    table(&["TIME (UTC)", "OUTCOME", "HTTP", "SIZE", "TOOK", "NEXT", "REASONS"], &rows)
}
