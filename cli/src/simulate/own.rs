//! `feedfleet simulate --own`: what a configuration costs one's own fleet, and a change of it.

use std::process::ExitCode;

use common::config::Config;
use common::host::HostRules;
use common::words;
use load_tests::simulate::histories::Series;
use load_tests::simulate::{Figures, OfHost, Own};
use serde::Serialize;

use crate::output;
use crate::settings::SettingsArgs;
use crate::usage::Usage;

/// The fleet as it is configured, and as it would be with `--set`.
#[derive(Serialize)]
struct Outcome {
    now: Own,
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<Own>,
}

/// Runs the last days of the histories under the configuration of `settings`, and under the same without `--set`.
pub(super) fn run(histories: &[Series], days: u32, settings: &SettingsArgs, as_json: bool) -> anyhow::Result<ExitCode> {
    let simulated = |config: &Config| {
        let rules = HostRules::new(config.host.clone(), config.host_rule.iter().cloned());
        Own::run(histories, &rules, &config.policy, days).ok_or_else(|| Usage("the file has no feeds".to_owned()))
    };
    let last = simulated(&settings.load(&[])?.config)?;
    let outcome = match settings.without_set() {
        None => Outcome { now: last, changed: None },
        Some(without) => Outcome { now: simulated(&without.load(&[])?.config)?, changed: Some(last) },
    };
    if as_json {
        output::json(&outcome)?;
    } else {
        print(&outcome)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(outcome: &Outcome) -> std::io::Result<()> {
    let sides: Vec<(&str, &Own)> = [("now", Some(&outcome.now)), ("with --set", outcome.changed.as_ref())]
        .into_iter()
        .filter_map(|(name, own)| Some((name, own?)))
        .collect();
    let now = &outcome.now;
    let feeds = words::counted(now.feeds as u64, "feed", "feeds");
    output::line(&format!("{feeds}, the last {:.1} days of their posts", now.days))?;
    let mut rows = Vec::new();
    for (side, own) in &sides {
        rows.push(row(side, "all", own.feeds, own.polls_per_day, &own.figures));
        for of in &own.categories {
            let polls = of.figures.polls_per_feed_day * of.feeds as f64;
            rows.push(row(side, of.category.as_str(), of.feeds, polls, &of.figures));
        }
    }
    output::line("")?;
    output::line(&output::table(&HEAD, &rows))?;
    let hosts = sides.iter().flat_map(|(side, own)| own.hosts.iter().map(|host| of_host(side, host)));
    output::line("")?;
    output::line(&output::table(&["", "HOST", "FEEDS", "POLLS/DAY"], &hosts.collect::<Vec<_>>()))
}

const HEAD: [&str; 8] = ["", "CATEGORY", "FEEDS", "POLLS/DAY", "MEAN DELAY min", "P95 min", "MISSED %", "CATCHABLE %"];

fn row(side: &str, category: &str, feeds: usize, polls: f64, figures: &Figures) -> Vec<String> {
    vec![
        side.to_owned(),
        category.to_owned(),
        words::count(feeds as u64),
        format!("{polls:.0}"),
        format!("{:.1}", figures.weighted_mean_minutes),
        format!("{:.1}", figures.weighted_p95_minutes),
        format!("{:.2}", 100.0 * figures.missed_share),
        format!("{:.2}", 100.0 * figures.missed_of_catchable),
    ]
}

fn of_host(side: &str, host: &OfHost) -> Vec<String> {
    vec![
        side.to_owned(),
        output::plain(&host.host, 60),
        words::count(host.feeds as u64),
        format!("{:.0}", host.polls_per_day),
    ]
}
