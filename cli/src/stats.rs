//! `feedfleet stats`: the fleet on one screen.

use common::outcome::FailureKind;
use common::words;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use scheduler::wire::StatsView;

use crate::client::{Client, ClientArgs};
use crate::output::{self, fields};
use crate::when;

/// Prints statistics of the fleet
#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs it.
pub(crate) async fn run(args: &StatsArgs) -> anyhow::Result<ExitCode> {
    let stats: StatsView = Client::new(&args.client)?.get("/stats", &[]).await?;
    output::answer(args.client.json, &stats, || summary(&stats))?;
    Ok(ExitCode::SUCCESS)
}

fn summary(stats: &StatsView) -> String {
    // What waits for a host is counted in its own line.
    let due = stats.due.saturating_sub(stats.parked);
    let late =
        (due > 0).then(|| format!(", the longest for {}", words::duration(Duration::from_secs_f64(stats.oldest_due))));
    fields(&[
        ("polling", Some(if stats.paused { "paused" } else { "running" }.to_owned())),
        (
            "our own network",
            stats.our_fault_since.map(|since| format!("has failed since {}: polls are probes", when::full(since))),
        ),
        ("host gate", stats.gate_closed.clone()),
        ("queue", stats.queue_blocked.clone()),
        ("dispatch", stats.dispatch_stopped.clone()),
        ("schedule", stats.schedule_unavailable.clone()),
        (
            "epoch of events",
            stats.timeline_unreadable.as_ref().map(|why| format!("a failover would go unnoticed: {why}")),
        ),
        ("policy", stats.policy_version.map(|version| format!("version {version}"))),
        ("feeds", Some(stats.feeds.to_string())),
        ("by category", listed(&stats.by_category)),
        ("by status", listed(&stats.by_status)),
        ("penalty box", failures(&stats.penalised)),
        ("due now", Some(format!("{due}{}", late.unwrap_or_default()))),
        ("waiting for a host", Some(stats.parked.to_string())),
        ("held hosts", Some(stats.hosts_held.to_string())),
        ("entries", Some(stats.entries.to_string())),
        (
            "wanted polls",
            Some(format!("{:.2} a second, at a price of {}", stats.demand_per_second, price(stats.poll_price))),
        ),
    ])
}

/// Formats a price with as many digits as are significant.
fn price(price: f64) -> String {
    if price == 0.0 || price >= 0.001 { format!("{price:.3}") } else { format!("{price:.1e}") }
}

fn failures(counts: &BTreeMap<String, u64>) -> Option<String> {
    let named =
        |name: &String| FailureKind::from_name(name).map_or(name.clone(), |kind| words::failure(kind).to_owned());
    listed(&counts.iter().map(|(name, count)| (named(name), *count)).collect())
}

fn listed(counts: &BTreeMap<String, u64>) -> Option<String> {
    let some = counts.iter().filter(|(_, count)| **count > 0).map(|(name, count)| format!("{name} {count}"));
    Some(some.collect::<Vec<_>>().join(", ")).filter(|list| !list.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_price_keeps_its_digits() {
        assert_eq!([0.0, 0.1, 0.001, 0.000_214].map(price), ["0.000", "0.100", "0.001", "2.1e-4"]);
    }

    #[test]
    fn a_summary_leaves_out_what_is_not_there() {
        let stats = StatsView {
            feeds: 3,
            by_category: BTreeMap::from([("A".to_owned(), 1), ("D".to_owned(), 2), ("F".to_owned(), 0)]),
            due: 3,
            parked: 2,
            oldest_due: 90.0,
            poll_price: 0.1,
            demand_per_second: 2.5,
            ..StatsView::default()
        };
        insta::assert_snapshot!(anstream::adapter::strip_str(&summary(&stats)), @r"
        polling             running
        feeds               3
        by category         A 1, D 2
        due now             1, the longest for 1 min 30 s
        waiting for a host  2
        held hosts          0
        entries             0
        wanted polls        2.50 a second, at a price of 0.100
        ");
    }
}
