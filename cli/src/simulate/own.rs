//! `feedfleet simulate --own`: what a configuration costs one's own fleet, and a change of it.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use common::config::Config;
use common::host::HostRules;
use common::words;
use load_tests::simulate::histories::Series;
use load_tests::simulate::{Figures, Line, OfHost, Own, chart};
use serde::Serialize;

use crate::output;
use crate::settings::SettingsArgs;
use crate::usage::Usage;

/// The fleet as it is configured, and as it would be with `--set`.
#[derive(Serialize)]
struct Comparison {
    now: Own,
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<Own>,
}

/// Runs the last days of the histories under the configuration of `settings`, and under the same without `--set`. Draws both into the
/// file `plot`, at several prices of a poll.
pub(super) fn run(
    histories: &[Series],
    days: u32,
    settings: &SettingsArgs,
    plot: Option<&Path>,
    as_json: bool,
) -> anyhow::Result<ExitCode> {
    let simulated = |config: &Config| {
        let rules = HostRules::new(config.host.clone(), config.host_rule.iter().cloned());
        Own::run(histories, &rules, &config.policy, days).ok_or_else(|| Usage("the file has no feeds".to_owned()))
    };
    let last = settings.load(&[])?.config;
    let without = settings.without_set().map(|without| without.load(&[])).transpose()?.map(|loaded| loaded.config);
    let comparison = match &without {
        None => Comparison { now: simulated(&last)?, changed: None },
        Some(without) => Comparison { now: simulated(without)?, changed: Some(simulated(&last)?) },
    };
    if let Some(file) = plot {
        let (now, changed) = without.map_or((last.clone(), None), |without| (without, Some(last)));
        let line = |name, is_changed, config: &Config| -> anyhow::Result<Line> {
            let at = |factor: f64| {
                let mut config = config.clone();
                config.policy.price *= factor;
                simulated(&config).map(|own| (own.figures.polls_per_feed_day, own.figures.weighted_mean_minutes))
            };
            let points = PRICES.map(at).into_iter().collect::<Result<Vec<_>, _>>()?;
            Ok(Line::of_own(name, is_changed, points))
        };
        let mut lines = vec![line("now", false, &now)?];
        lines.extend(changed.map(|changed| line("with --set", true, &changed)).transpose()?);
        let title = format!("Own fleet: {}, a quarter to four times policy.price", now_of(&comparison.now));
        std::fs::write(file, chart(&lines, &title)).with_context(|| format!("{} cannot be written", file.display()))?;
    }
    if as_json {
        output::json(&comparison)?;
    } else {
        print(&comparison)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Multiples of `policy.price` that are drawn.
const PRICES: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];

/// Returns how many feeds, and how many days.
fn now_of(own: &Own) -> String {
    format!("{}, the last {:.1} days of their posts", words::counted(own.feeds as u64, "feed", "feeds"), own.days)
}

/// What cannot be derived from the history.
const LEFT_OUT: &str = "not simulated: failures, pushes, logins, what feeds say about when to poll them, and rules of `host set` (write those \
    into --config); documents show 15 entries";

fn print(comparison: &Comparison) -> std::io::Result<()> {
    let sides: Vec<(&str, &Own)> = [("now", Some(&comparison.now)), ("with --set", comparison.changed.as_ref())]
        .into_iter()
        .filter_map(|(name, own)| Some((name, own?)))
        .collect();
    output::line(&now_of(&comparison.now))?;
    note!("{LEFT_OUT}");
    let mut rows = Vec::new();
    for (side, own) in &sides {
        rows.push(row(side, "all", own.feeds, own.polls_per_day, &own.figures));
        for of in &own.categories {
            rows.push(row(side, of.category.as_str(), of.feeds, of.polls_per_day, &of.figures));
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
