//! `feedfleet subscription`: targets that the fleet sends events to.

use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use common::words;
use reqwest::Method;
use scheduler::delivery::view::SubscriptionView;
use scheduler::wire::List;
use serde_json::{Map, Value, json};
use store::Delivery;

use crate::client::{Client, ClientArgs};
use crate::filters::FilterArgs;
use crate::output::{fields, plain, table};
use crate::{output, values, when};

/// Sends events to programs in signed requests (webhooks), in order, with retries for days
#[derive(Debug, Subcommand)]
pub(crate) enum SubscriptionCommand {
    /// Adds a subscription, and prints its secret, which is not shown again
    Add(AddArgs),
    /// Lists subscriptions
    List(ClientArgs),
    /// Shows a subscription and its last requests
    Show(OneArgs),
    /// Changes a subscription
    Set(SetArgs),
    /// Stops sending; events wait as long as they are kept
    Pause(OneArgs),
    /// Continues sending where it stopped; also enables a disabled subscription
    Resume(OneArgs),
    /// Sends events again
    Replay(ReplayArgs),
    /// Removes a subscription
    Remove(OneArgs),
}

/// `subscription add`
#[derive(Debug, Args)]
#[command(after_help = "\
    Requests are signed as Standard Webhooks defines it: verify them with the `standardwebhooks` library of your language, and skip a \
    webhook-id that you have seen. The packages for Python and JavaScript verify HMAC-SHA256 only, not Ed25519. Any 2xx status \
    accepts a request.\n\n\
    Examples:\n  \
    feedfleet subscription add https://example.com/hook --label news --kind entry.new")]
pub(crate) struct AddArgs {
    /// The URL that receives the requests
    #[arg(value_name = "URL")]
    target: String,
    #[command(flatten)]
    wish: WishArgs,
    /// Begins after this seq, 0 for all stored events; with new events if not given
    #[arg(long, value_name = "SEQ", conflicts_with = "since", value_parser = values::number::<i64>)]
    after: Option<i64>,
    /// The secret: whsec_.. signs with HMAC-SHA256, whsk_.. with Ed25519; generated if not given
    #[arg(long)]
    secret: Option<String>,
    /// How to sign with a generated secret: hmac-sha256 or ed25519
    #[arg(long, conflicts_with = "secret")]
    signature: Option<String>,
    #[command(flatten)]
    client: ClientArgs,
}

/// What a person wants.
#[derive(Debug, Args)]
struct WishArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Format of the events: feedfleet (as in the API; the default of a new subscription), jsonfeed or atom (entries as a JSON Feed
    /// or an Atom feed)
    #[arg(long)]
    format: Option<String>,
    /// Maximum number of events in a request; 100 in a new subscription
    #[arg(long, value_name = "N", value_parser = values::number::<u32>)]
    batch: Option<u32>,
    /// How long an event may wait for others to share its request, such as 10s
    #[arg(long, value_name = "D", value_parser = values::duration)]
    delay: Option<Duration>,
}

/// `subscription set`
#[derive(Debug, Args)]
// A subscription continues where it is; `replay` sends events again.
#[command(mut_arg("since", |since| since.hide(true)), after_help = "\
    The flags of the filter (--feed, --host, --label, --category, --kind, --language, --search, --part) replace the whole filter: \
    give every condition that is to apply. Without any of them the filter stays as it is.")]
pub(crate) struct SetArgs {
    /// Number of the subscription
    #[arg(value_parser = values::number::<i64>)]
    id: i64,
    /// The URL that receives the requests
    #[arg(long, value_name = "URL")]
    target: Option<String>,
    #[command(flatten)]
    wish: WishArgs,
    /// Removes the filter, so that all events are sent
    #[arg(long, conflicts_with_all = ["feed", "host", "label", "category", "kind", "language", "q", "part"])]
    all: bool,
    /// The new secret; the old one also signs for a day
    #[arg(long, conflicts_with = "rotate_secret")]
    secret: Option<String>,
    /// Generates a new secret and prints it; the old one also signs for a day
    #[arg(long)]
    rotate_secret: bool,
    #[command(flatten)]
    client: ClientArgs,
}

/// `subscription replay`
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("from").required(true).args(["after", "since"])))]
pub(crate) struct ReplayArgs {
    /// Number of the subscription
    #[arg(value_parser = values::number::<i64>)]
    id: i64,
    /// Sends the events after this seq, 0 for all stored events
    #[arg(long, value_name = "SEQ", value_parser = values::number::<i64>)]
    after: Option<i64>,
    /// Sends the events since this time, such as 2026-11-22T12:00:00Z, or within this duration, such as 2h
    #[arg(long, value_name = "TIME", value_parser = crate::filters::since)]
    since: Option<String>,
    #[command(flatten)]
    client: ClientArgs,
}

/// One subscription.
#[derive(Debug, Args)]
pub(crate) struct OneArgs {
    /// Number of the subscription
    #[arg(value_parser = values::number::<i64>)]
    id: i64,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs it.
pub(crate) async fn run(command: SubscriptionCommand) -> anyhow::Result<ExitCode> {
    match command {
        SubscriptionCommand::Add(args) => add(&args).await,
        SubscriptionCommand::List(client) => list(&client).await,
        SubscriptionCommand::Show(one) => show(&one).await,
        SubscriptionCommand::Set(args) => set(&args).await,
        SubscriptionCommand::Pause(one) => post(&one.client, one.id, "pause", &json!({})).await,
        SubscriptionCommand::Resume(one) => post(&one.client, one.id, "resume", &json!({})).await,
        SubscriptionCommand::Replay(args) => {
            let body = match (args.after, args.since) {
                (Some(after), _) => json!({ "after": after }),
                (None, since) => json!({ "since": since }),
            };
            post(&args.client, args.id, "replay", &body).await
        }
        SubscriptionCommand::Remove(one) => {
            let client = Client::new(&one.client)?;
            let _: Value = client.change(Method::DELETE, &format!("/subscriptions/{}", one.id), None).await?;
            let removed = json!({ "id": one.id, "removed": true });
            output::answer(one.client.json, &removed, || format!("removed subscription {}", one.id))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn add(args: &AddArgs) -> anyhow::Result<ExitCode> {
    let mut body = args.wish.body();
    body.insert("kind".to_owned(), json!("webhook"));
    body.insert("target".to_owned(), json!(args.target));
    // Where to begin does not belong to the filter.
    let since = args.wish.filter.since();
    body.extend(since.map(|since| ("since".to_owned(), json!(since))));
    body.extend(args.after.map(|after| ("after".to_owned(), json!(after))));
    body.extend(args.secret.as_ref().map(|secret| ("secret".to_owned(), json!(secret))));
    body.extend(args.signature.as_ref().map(|kind| ("signature".to_owned(), json!(kind))));
    let client = Client::new(&args.client)?;
    let added: SubscriptionView = client.change(Method::POST, "/subscriptions", Some(&Value::Object(body))).await?;
    print_subscription(&args.client, &added)
}

async fn set(args: &SetArgs) -> anyhow::Result<ExitCode> {
    if args.wish.filter.since().is_some() {
        let message = "--since is for `subscription add` and `subscription replay`";
        return Err(crate::usage::Usage(message.to_owned()).into());
    }
    let mut body = args.wish.body();
    if args.all {
        body.insert("filter".to_owned(), json!({}));
    }
    body.extend(args.target.as_ref().map(|target| ("target".to_owned(), json!(target))));
    let secret = args.secret.clone().or_else(|| args.rotate_secret.then(|| "new".to_owned()));
    body.extend(secret.map(|secret| ("secret".to_owned(), json!(secret))));
    if body.is_empty() {
        let message = "nothing to set; `feedfleet subscription set --help` lists what can be";
        return Err(crate::usage::Usage(message.to_owned()).into());
    }
    let path = format!("/subscriptions/{}", args.id);
    let client = Client::new(&args.client)?;
    let changed: SubscriptionView = client.change(Method::PATCH, &path, Some(&Value::Object(body))).await?;
    print_subscription(&args.client, &changed)
}

async fn post(client: &ClientArgs, id: i64, action: &str, body: &Value) -> anyhow::Result<ExitCode> {
    let path = format!("/subscriptions/{id}/{action}");
    let changed: SubscriptionView = Client::new(client)?.change(Method::POST, &path, Some(body)).await?;
    print_subscription(client, &changed)
}

async fn list(args: &ClientArgs) -> anyhow::Result<ExitCode> {
    let client = Client::new(args)?;
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let query = [("limit", "1000"), ("after", after.as_str())];
        let query = if after.is_empty() { &query[..1] } else { &query[..] };
        let page: List<SubscriptionView> = client.get("/subscriptions", query).await?;
        all.extend(page.items);
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    if args.json {
        for subscription in &all {
            output::json(subscription)?;
        }
    } else if all.is_empty() {
        output::line("no subscriptions yet; `feedfleet subscription add URL` adds one")?;
    } else {
        let rows: Vec<Vec<String>> = all.iter().map(row).collect();
        output::line(&table(&["ID", "STATE", "DELIVERED", "LAG", "LAST", "TARGET"], &rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn row(it: &SubscriptionView) -> Vec<String> {
    vec![
        it.id.to_string(),
        it.state_text().to_owned(),
        it.delivered.to_string(),
        lag(it).unwrap_or_else(|| "-".to_owned()),
        it.last.as_ref().map_or_else(|| "-".to_owned(), result),
        plain(&it.target, 60),
    ]
}

fn lag(it: &SubscriptionView) -> Option<String> {
    (it.lag > 0.0).then(|| words::duration(Duration::try_from_secs_f64(it.lag).unwrap_or(Duration::MAX)))
}

/// Returns what a request resulted in.
fn result(last: &Delivery) -> String {
    match last.status {
        Some(status) => format!("{} ({status})", last.outcome),
        None => last.outcome.to_string(),
    }
}

async fn show(args: &OneArgs) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.client)?;
    let path = format!("/subscriptions/{}", args.id);
    let it: SubscriptionView = client.get(&path, &[]).await?;
    let deliveries: List<Delivery> = client.get(&format!("{path}/deliveries"), &[]).await?;
    if args.client.json {
        let mut document = serde_json::to_value(&it)?;
        document["deliveries"] = serde_json::to_value(&deliveries.items)?;
        output::json(&document)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(&described(&it))?;
    if !deliveries.items.is_empty() {
        let rows: Vec<Vec<String>> = deliveries.items.iter().map(delivery_row).collect();
        output::line(&format!("\n{}", table(&["AT", "TRY", "EVENTS", "RESULT", "TOOK", "DETAIL"], &rows)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn delivery_row(it: &Delivery) -> Vec<String> {
    vec![
        when::full(it.at),
        it.attempt.to_string(),
        format!("{} ({}..{})", it.events, it.first, it.last),
        result(it),
        format!("{:.0} ms", it.duration * 1000.0),
        plain(&it.detail, 80),
    ]
}

fn print_subscription(args: &ClientArgs, it: &SubscriptionView) -> anyhow::Result<ExitCode> {
    output::answer(args.json, it, || described(it))?;
    Ok(ExitCode::SUCCESS)
}

fn described(it: &SubscriptionView) -> String {
    let filter = serde_json::to_value(&it.filter).unwrap_or_default();
    let conditions: Vec<String> = filter
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| match value {
            Value::String(text) => format!("{name}={}", plain(text, 80)),
            other => format!("{name}={other}"),
        })
        .collect();
    let filter = if conditions.is_empty() { "all events".to_owned() } else { conditions.join(" ") };
    let delay = if it.delay > 0.0 { format!(", {} s", it.delay) } else { String::new() };
    let failing = it.failing_since.map(when::full);
    let failing = failing.map(|since| format!("{} requests in a row, since {since}", it.failures));
    let secret = it.secret.as_ref().map(|secret| format!("{secret} (not shown again)"));
    fields(&[
        ("id", Some(it.id.to_string())),
        ("kind", Some(it.kind.to_string())),
        ("target", Some(plain(&it.target, 2_048))),
        ("topic", it.topic.as_ref().map(|topic| plain(topic, 2_048))),
        ("lease", it.lease_until.map(|until| format!("ends {} unless its subscriber renews it", when::full(until)))),
        ("asks", it.asks.map(|mode| format!("hub.mode={mode}"))),
        ("state", Some(it.state_text().to_owned())),
        ("reason", it.reason.as_ref().map(|why| plain(why, 500))),
        ("filter", Some(filter)),
        ("format", Some(it.format.to_string())),
        ("batch", Some(format!("{}{delay}", words::counted(u64::from(it.batch), "event", "events")))),
        ("signature", it.signature.clone()),
        ("public key", it.public_key.clone()),
        ("secret", secret),
        ("old secret", it.old_secret_until.map(|until| format!("signs too until {}", when::full(until)))),
        ("cursor", Some(it.cursor.to_string())),
        ("delivered", Some(words::counted(it.delivered, "event", "events"))),
        ("lag", lag(it)),
        ("failing", failing),
        ("next try", it.next_try.map(when::full)),
        (
            "lost",
            it.lost_up_to.map(|seq| format!("events up to {seq} were deleted by retention before they were sent")),
        ),
    ])
}

impl WishArgs {
    fn body(&self) -> Map<String, Value> {
        let mut body = Map::new();
        let filter: Map<String, Value> = self
            .filter
            .to_query()
            .into_iter()
            .filter(|(name, _)| *name != "since")
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .collect();
        if !filter.is_empty() {
            body.insert("filter".to_owned(), Value::Object(filter));
        }
        body.extend(self.format.as_ref().map(|format| ("format".to_owned(), json!(format))));
        body.extend(self.batch.map(|batch| ("batch".to_owned(), json!(batch))));
        body.extend(self.delay.map(|delay| ("delay".to_owned(), json!(delay.as_secs_f64()))));
        body
    }
}
