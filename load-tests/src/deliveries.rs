//! Compares deliveries to webhooks with a bare reqwest loop that posts the same body to the same receiver, and polls of a fleet with
//! many subscriptions that match nothing with those of one that has none. Sides alternate; the result is medians.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use load_tests::{Feed, Origin, Pace, Script, loopback};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::measure::{Figures, Folder, Running, measure, median};
use crate::settings;

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// What is compared.
    #[arg(long, value_enum, default_value_t = Part::Embedded)]
    part: Part,
    /// feedfleet; built by dev/bench.
    #[arg(long, default_value = "target/release/feedfleet")]
    binary: PathBuf,
    /// Targets, each on a separate host; for polls the number of feeds.
    #[arg(long, default_value_t = 100)]
    targets: u16,
    /// Events for each target, a request each.
    #[arg(long, default_value_t = 3000)]
    events: usize,
    /// Subscriptions that match nothing.
    #[arg(long, default_value_t = 1000)]
    subscriptions: usize,
    /// What these are filtered by; several take turns.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "label")]
    filters: Vec<Filter>,
    /// How often each feed has a new entry while polls are measured; never if not given.
    #[arg(long)]
    publish: Option<humantime::Duration>,
    /// How long each measurement takes.
    #[arg(long, default_value = "5s")]
    time: humantime::Duration,
    /// How many rounds.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Deliveries of one process.
    Embedded,
    /// Deliveries of a cluster over the servers that FEEDFLEET_TEST_* name.
    Cluster,
    /// Polls of one process.
    Polls,
}

/// A filter that matches nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Filter {
    /// A label that no feed has.
    Label,
    /// A text that no entry has.
    Q,
    /// A category without feeds.
    Category,
    /// One of 1,024 parts of the feeds, and a text that no entry has.
    Part,
}

impl Filter {
    fn of(self, number: usize) -> Value {
        let nowhere = "nobody writes this";
        match self {
            Filter::Label => json!({ "label": "nobody" }),
            Filter::Q => json!({ "q": nowhere }),
            Filter::Category => json!({ "category": "A" }),
            Filter::Part => json!({ "part": format!("{}/1024", number % 1024 + 1), "q": nowhere }),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// Without subscriptions, or with those that are delivered to.
    Ours,
    /// With subscriptions that match nothing.
    Watched,
    /// A loop.
    Bare,
}

/// Requests to one fleet.
struct Api {
    client: reqwest::Client,
    base: String,
}

/// How long a fleet may take until it is ready.
const START: Duration = Duration::from_secs(30);
/// How long the events of the first polls may be compared with subscriptions before polls are measured: later ones have none.
const FIRST_EVENTS: Duration = Duration::from_secs(10);
/// Requests at once of the bare loop: as many as `delivery.concurrency`.
const CONCURRENCY: usize = 256;

impl Api {
    async fn of(address: &str) -> anyhow::Result<Self> {
        let api = Api { client: reqwest::Client::builder().no_proxy().build()?, base: format!("http://{address}") };
        let patience = Instant::now() + START;
        let ready = format!("{}/readyz", api.base);
        while !api.client.get(&ready).send().await.is_ok_and(|answer| answer.status().is_success()) {
            ensure!(Instant::now() < patience, "the fleet was not ready within {START:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(api)
    }

    async fn post(&self, path: &str, kind: &str, body: String) -> anyhow::Result<()> {
        let request = self.client.post(format!("{}/api/v1{path}", self.base)).header("Content-Type", kind).body(body);
        let answer = request.send().await?;
        ensure!(answer.status().is_success(), "{path}: {}", answer.text().await?);
        Ok(())
    }

    async fn add(&self, urls: impl Iterator<Item = String>) -> anyhow::Result<()> {
        let lines: Vec<String> = urls.map(|url| json!({ "url": url }).to_string()).collect();
        for lines in lines.chunks(5_000) {
            self.post("/feeds/bulk", "application/x-ndjson", lines.join("\n")).await?;
        }
        Ok(())
    }

    async fn subscribe(&self, target: &str, filter: Value) -> anyhow::Result<()> {
        let body = json!({ "kind": "webhook", "target": target, "filter": filter, "batch": 1, "after": 0 });
        self.post("/subscriptions", "application/json", body.to_string()).await
    }

    /// Returns a request's body as subscriptions get it, with one event.
    async fn body(&self) -> anyhow::Result<String> {
        let list = self.client.get(format!("{}/api/v1/events?limit=1", self.base)).header("Accept", "application/json");
        let list: Value = serde_json::from_slice(&list.send().await?.error_for_status()?.bytes().await?)?;
        let event = list["items"].get(0).context("there is no event")?;
        Ok(json!({ "type": "events", "timestamp": event["at"], "data": { "events": [event] } }).to_string())
    }
}

fn config(options: &Options) -> String {
    let polls = if options.part == Part::Polls { settings::config(128) } else { settings::config(1) };
    format!(
        "{polls}[secrets]\nkey = \"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\"\n\
         [delivery]\nconcurrency = {CONCURRENCY}\ntarget_gap = \"1ms\"\n"
    )
}

/// Runs the benchmark and prints a table.
pub(crate) async fn bench(options: &Options) -> anyhow::Result<()> {
    let binary = std::fs::canonicalize(&options.binary).with_context(|| format!("{:?}", options.binary))?;
    let folder = Folder::new()?;
    let origin =
        Origin::listen(&loopback(options.targets, 0)).await.context("cannot listen on an address for each target")?;
    let is_polls = options.part == Part::Polls;
    let feed = match options.publish {
        Some(period) => Feed::rss().pace(Pace::Every(period.into())),
        None => Feed::rss(),
    };
    origin.set("/hook", if is_polls { Script::feed(feed) } else { Script::status(204) });
    let urls: Vec<String> = (0..usize::from(options.targets)).map(|host| origin.url_on(host, "/hook")).collect();
    let sides = if is_polls { [Side::Ours, Side::Watched] } else { [Side::Ours, Side::Bare] };
    let names = if is_polls { ["no subscriptions", "with subscriptions"] } else { ["feedfleet", "bare reqwest"] };
    println!("{:>5}  {:>22}  {:>22}", "round", names[0], names[1]);
    let (mut rounds, mut body) = (Vec::new(), String::new());
    for number in 1..=options.rounds {
        let mut round = Vec::new();
        // The other side is first in every second round; the bare loop needs the body that the first round reads.
        let swapped = is_polls && number % 2 == 0;
        for side in if swapped { [sides[1], sides[0]] } else { sides } {
            let running = match side {
                Side::Bare => bare(&folder.0, &urls, &body, &origin)?,
                side => {
                    let (running, api) = started(options, &binary, &folder.0, number, &origin).await?;
                    prepare(options, &api, side, &urls).await?;
                    if !is_polls && body.is_empty() {
                        body = api.body().await?;
                    }
                    running
                }
            };
            if is_polls {
                tokio::time::sleep(FIRST_EVENTS).await;
            }
            round.push(measure(&running, &origin, urls.len(), options.time.into()).await?);
        }
        if swapped {
            round.reverse();
        }
        print(&number.to_string(), &round);
        rounds.push(round);
    }
    let ratio = |of: fn(&Figures) -> f64| median(rounds.iter().map(|round| of(&round[0]) / of(&round[1])));
    let (rate, cpu) = (ratio(|side| side.polls_per_second), ratio(|side| side.cpu_micros_per_poll));
    println!("{} over {}, medians: rate {rate:.3}, CPU each {cpu:.3}", names[0], names[1]);
    Ok(())
}

fn print(name: &str, round: &[Figures]) {
    let cell = |side: &Figures| format!("{:.0}/s {:6.1} us CPU", side.polls_per_second, side.cpu_micros_per_poll);
    let cells: String = round.iter().map(|side| format!("  {:>22}", cell(side))).collect();
    println!("{name:>5}{cells}");
}

/// Starts an empty fleet; waits until it is ready.
async fn started(
    options: &Options,
    binary: &Path,
    folder: &Path,
    round: usize,
    origin: &Origin,
) -> anyhow::Result<(Running, Api)> {
    if options.part == Part::Cluster {
        let cluster = Cluster::new(binary, folder, round)?;
        std::fs::write(folder.join("config.toml"), config(options))?;
        let running = Running::start(&mut cluster.roles(), origin)?;
        return Ok((running, Api::of(cluster.address()).await?));
    }
    let _ = std::fs::remove_dir_all(folder.join("data"));
    std::fs::write(folder.join("config.toml"), config(options))?;
    // Free until the fleet binds it, most likely.
    let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let mut command = Command::new(binary);
    command.args(["run", "--data", "data", "--config", "config.toml", "--listen", &address]).current_dir(folder);
    let running = Running::start(&mut [command], origin)?;
    Ok((running, Api::of(&address).await?))
}

/// Gives a fleet its work: feeds that it polls, or events that it delivers while it polls nothing.
async fn prepare(options: &Options, api: &Api, side: Side, urls: &[String]) -> anyhow::Result<()> {
    if options.part == Part::Polls {
        let watching = if side == Side::Watched { options.subscriptions } else { 0 };
        for number in 0..watching {
            let filter = options.filters[number % options.filters.len()].of(number);
            api.subscribe(&format!("http://127.0.0.1:9/{number}"), filter).await?;
        }
        return api.add(urls.iter().cloned()).await;
    }
    api.post("/fleet/pause", "application/json", String::new()).await?;
    // Each feed that is added is an event.
    api.add((0..options.events).map(|number| format!("http://127.0.0.1:9/{number}"))).await?;
    for url in urls {
        api.subscribe(url, json!({ "kind": "feed.added" })).await?;
    }
    Ok(())
}

fn bare(folder: &Path, urls: &[String], body: &str, origin: &Origin) -> anyhow::Result<Running> {
    std::fs::write(folder.join("urls"), urls.join("\n"))?;
    std::fs::write(folder.join("body"), body)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("bare").arg("--urls").arg(folder.join("urls")).arg("--post").arg(folder.join("body"));
    command.args(["--concurrency", &CONCURRENCY.to_string()]);
    Running::start(&mut [command], origin)
}
