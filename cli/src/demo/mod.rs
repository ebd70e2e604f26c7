//! `feedfleet demo`: runs the embedded fleet on a bundled internet where a day passes in a minute.
//!
//! The fleet is the one of `run` with accelerated defaults ([`pace`]). The internet ([`internet`]) consists of
//! listeners in this process, and logs every request. [`watch`] observes both; [`view`] draws what it sees, or [`log`]
//! writes it line by line. Nothing is stored on disk, and no packet leaves the machine.

mod internet;
mod log;
mod names;
mod pace;
mod picture;
mod requests;
mod view;
mod watch;

use std::io::{self, IsTerminal};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use common::url::FeedId;
use scheduler::ops::{AddFeed, Ops};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::all_in_one::{self, Fleet};
use crate::stop_signals::StopSignals;
use crate::terminal::{Screen, is_capable, width, wrapped};
use crate::{descriptors, logs, output};
use internet::Internet;
use watch::Watch;

/// The port at which operator commands look for a fleet.
const USUAL_PORT: u16 = 7878;
/// How often the picture is updated.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long fetches in flight may continue at the end; only those from servers that never respond need longer.
const GRACE: Duration = Duration::from_millis(500);

/// Shows the fleet at work on a bundled internet, a day in a minute; needs no network, keeps nothing
#[derive(Debug, Args)]
#[command(
    after_help = "A few hundred feeds on loopback listeners change, answer 304, throttle, fail, move, vanish, lie \
                        about their type, and a few are hostile. The fleet that polls them is the one of `feedfleet run`, \
                        its intervals divided by 1,440. The servers log every request; the summary checks this log \
                        against the politeness rules.\n\n\
                        While it runs, in another terminal:\n  \
                        feedfleet feed list\n  \
                        feedfleet feed explain 7\n  \
                        feedfleet stats"
)]
pub(crate) struct DemoArgs {
    /// Ends automatically after this time, such as 60s; at most 10m
    #[arg(long = "for", value_name = "TIME", default_value = "10m", value_parser = limit)]
    limit: Duration,
    /// Prints lines instead of the live view, as when standard output is not a terminal
    #[arg(long)]
    plain: bool,
    /// Address of the API [default: 127.0.0.1:7878, or a free port if that is taken]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
}

fn limit(text: &str) -> Result<Duration, &'static str> {
    let time = humantime::parse_duration(text).map_err(|_| "it must be a duration, such as 60s")?;
    match time {
        Duration::ZERO => Err("it must be longer than 0s"),
        time if time > internet::LONGEST => Err("a demo keeps every request in memory, so it lasts at most 10m"),
        time => Ok(time),
    }
}

/// Runs the demo.
pub(crate) async fn run(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    let listener = listener(args.listen).await?;
    let address = listener.local_addr()?;
    let config = Arc::new(descriptors::fit(pace::config(address))?);
    let log_format = config.log.format;
    let live = !args.plain && is_capable();
    if !live || !io::stderr().is_terminal() {
        logs::start(&config.log, logs::Audit::NotOnTerminals)?;
    }
    let internet = Arc::new(Internet::open().await?);
    let fleet = Fleet::open(config, false).await?;
    let ids = subscribe(fleet.ops(), &internet).await?;
    let address = format!("http://{address}");
    let mut watch = Watch::new(Arc::clone(&internet), Arc::clone(fleet.ops()), &ids, address, args.limit);

    let mut work = fleet.start(listener);
    let mut signals = StopSignals::caught()?;
    let shown = tokio::select! {
        shown = show(&mut watch, live, args.limit) => shown,
        () = signals.next() => Ok(()),
        failure = work.failure() => return Err(failure),
    };
    signals.end(log_format, work.end(GRACE)).await?;
    shown?;
    watch.look().await?;
    let (card, _) = watch::judged(&internet);
    let summary = log::summary(&watch.picture, &card);
    output::line(&width().map_or(summary.clone(), |columns| wrapped(&summary, columns)))?;
    fleet.close().await;
    Ok(ExitCode::SUCCESS)
}

/// Binds the API's listener: to the requested address, else to the port that operator commands use, else to any free
/// port.
async fn listener(asked: Option<SocketAddr>) -> anyhow::Result<TcpListener> {
    if let Some(address) = asked {
        return all_in_one::bind(address).await;
    }
    match TcpListener::bind((Ipv4Addr::LOCALHOST, USUAL_PORT)).await {
        Ok(listener) => Ok(listener),
        Err(_) => all_in_one::bind((Ipv4Addr::LOCALHOST, 0).into()).await,
    }
}

/// Adds all feeds as an import does, spread over the configured time.
async fn subscribe(ops: &Ops, internet: &Internet) -> anyhow::Result<Vec<FeedId>> {
    let mut feeds = Vec::with_capacity(internet.sites.len());
    for site in &internet.sites {
        feeds.push(AddFeed { audience: site.audience, ..AddFeed::of(site.url.parse()?) });
    }
    // Multiples of the golden ratio are spread as evenly as possible, and identical in each run.
    let places: Vec<f64> = (0..feeds.len()).map(|number| (number as f64 * 0.618_034).fract()).collect();
    let added = ops.add(&feeds, Some(&places)).await?;
    Ok(added.into_iter().map(|added| added.id).collect())
}

/// Shows the fleet until the time limit.
async fn show(watch: &mut Watch, live: bool, limit: Duration) -> anyhow::Result<()> {
    let screen = if live { Some(Screen::enter()?) } else { None };
    let mut log = log::Log::default();
    if screen.is_none() {
        output::line(&log::greeting(&watch.picture))?;
    }
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let end = Instant::now() + limit;
    while looks.tick().await < end {
        let news = watch.look().await?;
        match &screen {
            Some(screen) => screen.draw(&view::frame(&watch.picture, screen.canvas()))?,
            None => log.write(&news, &watch.picture)?,
        }
    }
    Ok(())
}
