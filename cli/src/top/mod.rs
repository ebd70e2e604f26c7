//! `feedfleet top`: shows the fleet on a refreshing screen, from its API and its metrics.

mod counted;
mod view;

use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use common::time::{Clock, SystemClock};
use common::url::FeedId;
use scheduler::wire::{FeedView, List, StatsView};

use crate::client::{Client, ClientArgs, passes};
use crate::output;
use crate::stop_signals::StopSignals;
use crate::terminal::{Canvas, Keys, Screen, Suspension, is_capable, size};
use counted::Counted;
use view::{Look, frame};

/// The number of samples in the sparkline.
const REMEMBERED: usize = 300;
/// The length of a list; a screen shows as many rows as fit.
const ROWS: &str = "40";
/// The frame when standard output is not a terminal.
const PLAIN: Canvas = Canvas { width: 100, height: 30, colour: false };

/// Shows the fleet's state on a screen that refreshes; q quits
///
/// If standard output is not a terminal, it prints one screen and exits.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    client: ClientArgs,

    /// Refresh interval
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = every)]
    every: Duration,
}

fn every(text: &str) -> Result<Duration, &'static str> {
    let time = humantime::parse_duration(text).map_err(|_| "it must be a duration, such as 2s")?;
    let least = Duration::from_millis(250);
    if time < least { Err("it must be at least 250ms: each refresh sends four requests") } else { Ok(time) }
}

/// Runs the command.
pub(crate) async fn run(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.client)?;
    let mut look = Look::default();
    renew(&client, &mut look).await?;
    if args.client.json {
        output::json(&look.stats)?;
    } else if is_capable() {
        watch(&client, &mut look, args.every).await?;
    } else {
        let (width, height) = size().unwrap_or((PLAIN.width, PLAIN.height));
        let lines = frame(&look, Canvas { width, height, ..PLAIN });
        output::line(lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n").trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn watch(client: &Client, look: &mut Look, every: Duration) -> anyhow::Result<()> {
    let screen = Screen::enter()?;
    let mut keys = Keys::take()?;
    let mut shown = pin!(show(client, look, every, &screen));
    let (mut signals, mut suspension) = (StopSignals::caught()?, Suspension::caught()?);
    loop {
        tokio::select! {
            ended = &mut shown => return ended,
            () = keys.quit() => return Ok(()),
            () = signals.next() => return Ok(()),
            () = suspension.pressed() => {
                screen.leave()?;
                keys.release()?;
                Suspension::stop()?;
                keys.resume()?;
                screen.resume()?;
            }
        }
    }
}

async fn show(client: &Client, look: &mut Look, every: Duration, screen: &Screen) -> anyhow::Result<()> {
    let mut looks = tokio::time::interval(every);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    looks.tick().await;
    loop {
        screen.draw(&frame(look, screen.canvas()))?;
        looks.tick().await;
        // A transient error is shown above the last numbers; a permanent one, such as a revoked token, ends the
        // command.
        look.trouble = match renew(client, look).await {
            Ok(()) => None,
            Err(error) if passes(&error) => Some(format!("{error:#}")),
            Err(error) => return Err(error),
        };
    }
}

/// Requests everything that is shown.
async fn renew(client: &Client, look: &mut Look) -> anyhow::Result<()> {
    look.stats = client.get("/stats", &[]).await?;
    let (_, metrics) = client.ask("/metrics").await?;
    look.count(Counted::read(&metrics), SystemClock.now(), REMEMBERED);
    look.next = feeds(client, &[("status", "active"), ("sort", "next_due"), ("limit", ROWS)]).await?;
    look.failing = failing(client, &look.stats).await?;
    look.now = SystemClock.now();
    Ok(())
}

/// Returns feeds in the penalty box, alternating between the kinds of failure.
async fn failing(client: &Client, stats: &StatsView) -> anyhow::Result<Vec<FeedView>> {
    let mut all: Vec<(usize, FeedView)> = Vec::new();
    for (kind, _) in stats.penalised.iter().filter(|(_, feeds)| **feeds > 0) {
        let query = [("status", "active"), ("penalised", "true"), ("failure", kind.as_str()), ("limit", "8")];
        let some = feeds(client, &query).await?;
        all.extend(some.into_iter().enumerate());
    }
    all.sort_by_key(|(turn, feed): &(usize, FeedView)| (*turn, feed.id));
    all.dedup_by_key(|(_, feed)| -> FeedId { feed.id });
    Ok(all.into_iter().map(|(_, feed)| feed).collect())
}

async fn feeds(client: &Client, query: &[(&str, &str)]) -> anyhow::Result<Vec<FeedView>> {
    let list: List<FeedView> = client.get("/feeds", query).await?;
    Ok(list.items)
}
