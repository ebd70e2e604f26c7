//! One's own fleet: each feed of a file once, with its audience and host rule, under a configuration as it is.

use std::collections::BTreeMap;

use common::config::PolicyConfig;
use common::host::HostRules;
use common::policy::{Category, Subject, weight};
use reqwest::Url;
use serde::Serialize;

use super::decided::Decided;
use super::figures::{Figures, Tally};
use super::histories::{DAY, Series};
use super::random::Random;
use super::sample::ITEMS_SHOWN;
use super::trial::{Rule, is_hot};

/// Hosts that are listed.
const LISTED: usize = 10;

/// What a configuration costs, and how long subscribers wait.
#[derive(Clone, Debug, Serialize)]
pub struct Own {
    /// Feeds that posted.
    pub feeds: usize,
    /// The days that were simulated: the last ones of the histories.
    pub days: f64,
    /// Polls of all feeds in a day, each at the rate of the days since its first post.
    pub polls_per_day: f64,
    /// The figures of all feeds.
    #[serde(flatten)]
    pub figures: Figures,
    /// The share missed of the items that a poll every 15 minutes would have seen.
    pub missed_of_catchable: f64,
    /// The same by category.
    pub categories: Vec<OfCategory>,
    /// The hosts that get the most requests.
    pub hosts: Vec<OfHost>,
}

/// The feeds of a category.
#[derive(Clone, Debug, Serialize)]
pub struct OfCategory {
    /// The category.
    pub category: Category,
    /// Its feeds.
    pub feeds: usize,
    /// Their polls in a day.
    pub polls_per_day: f64,
    /// Their figures.
    #[serde(flatten)]
    pub figures: Figures,
    /// The share missed of the items that a poll every 15 minutes would have seen.
    pub missed_of_catchable: f64,
}

/// The requests that a host receives.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OfHost {
    /// Its name, or "-" for feeds whose name is not a URL.
    pub host: String,
    /// Its feeds.
    pub feeds: usize,
    /// Their polls in a day.
    pub polls_per_day: f64,
}

/// Counters of a group of feeds.
#[derive(Default)]
struct Group {
    feeds: usize,
    feed_days: f64,
    polls_per_day: f64,
    tally: Tally,
}

impl Own {
    /// Polls each feed over the last days of the histories; what was posted before is known. A poll is answered at once and
    /// never fails, nothing is pushed, and the fleet has no load. None if no feed posted.
    pub fn run(histories: &[Series], rules: &HostRules, config: &PolicyConfig, days: u32) -> Option<Self> {
        let first = histories.iter().filter_map(|series| series.times.first()).copied().reduce(f64::min)?;
        let end = histories.iter().filter_map(|series| series.times.last()).copied().reduce(f64::max)?;
        let start = (end - f64::from(days) * DAY).max(first);
        let days = ((end - start) / DAY).max(1.0 / 24.0);
        let mut all = Group::default();
        let mut categories = BTreeMap::<Category, Group>::new();
        let mut hosts = BTreeMap::<String, (usize, f64)>::new();
        for (number, series) in histories.iter().enumerate().filter(|(_, series)| !series.times.is_empty()) {
            let url = Url::parse(&series.name).ok().filter(Url::has_host);
            let rule = url.as_ref().and_then(|url| rules.rule_for(url));
            let mut life = Decided::of(Subject::new(series.audience, rule), config, config.price);
            let mut random = Random::new(number as u64);
            // Its category depends on settings, not on polls.
            let group = categories.entry(life.category()).or_default();
            let polls_per_day = live(&mut life, series, start, end, &mut random, &mut [&mut all, group]);
            let host = url.as_ref().and_then(Url::host_str).unwrap_or("-");
            let (feeds, polls) = hosts.entry(host.to_owned()).or_default();
            (*feeds, *polls) = (*feeds + 1, *polls + polls_per_day);
        }
        let mut hosts: Vec<OfHost> =
            hosts.into_iter().map(|(host, (feeds, polls_per_day))| OfHost { host, feeds, polls_per_day }).collect();
        hosts.sort_by(|one, other| other.polls_per_day.total_cmp(&one.polls_per_day));
        hosts.truncate(LISTED);
        let figures = all.tally.figures(all.feed_days);
        let categories = categories.into_iter().map(|(category, group)| {
            let figures = group.tally.figures(group.feed_days);
            let Group { feeds, polls_per_day, .. } = group;
            OfCategory { category, feeds, polls_per_day, figures, missed_of_catchable: figures.missed_of_catchable }
        });
        Some(Own {
            feeds: all.feeds,
            days,
            polls_per_day: all.polls_per_day,
            figures,
            missed_of_catchable: figures.missed_of_catchable,
            categories: categories.collect(),
            hosts,
        })
    }
}

/// Polls one feed, and counts for all these groups. A feed that first posts later is added then. Returns its polls in a day.
fn live(
    life: &mut Decided<'_>,
    series: &Series,
    start: f64,
    end: f64,
    random: &mut Random,
    groups: &mut [&mut Group; 2],
) -> f64 {
    let posts = &series.times;
    let weight = weight(&series.audience);
    let mut at = start.max(posts[0]);
    let (days, mut polls) = ((end - at) / DAY, 0_u32);
    for group in groups.iter_mut() {
        group.feeds += 1;
        group.feed_days += days;
    }
    let mut seen = posts.partition_point(|post| *post <= at);
    for group in groups.iter_mut() {
        group.tally.counted_uncatchable(&posts[seen..]);
    }
    at += life.interval(at, &posts[seen.saturating_sub(ITEMS_SHOWN)..seen], random);
    while at < end {
        let until = seen + posts[seen..].partition_point(|post| *post <= at);
        let new = &posts[seen..until];
        let shown = &new[new.len().saturating_sub(ITEMS_SHOWN)..];
        seen = until;
        let interval = life.interval(at, shown, random);
        polls += 1;
        for group in groups.iter_mut() {
            group.tally.polled(is_hot(at), interval);
            group.tally.found(new.iter().map(|post| at - post), weight, new.len() - shown.len());
        }
        at += interval;
    }
    // Less than an hour says nothing of a day.
    let polls_per_day = f64::from(polls) / days.max(1.0 / 24.0);
    for group in groups.iter_mut() {
        group.polls_per_day += polls_per_day;
        // The next poll finds what was posted after the last one. A poll that never comes delays no entry.
        group.tally.found(posts[seen..].iter().map(|post| at.min(end + DAY) - post), weight, 0);
    }
    polls_per_day
}

#[cfg(test)]
mod tests {
    use common::config::defaults;
    use common::host::HostRule;
    use common::policy::Audience;

    use super::*;
    use crate::simulate::histories::{generated, read, write};

    fn fleet() -> Vec<Series> {
        let mut fleet = generated(2, 3);
        for (number, series) in fleet.iter_mut().enumerate() {
            series.name = format!("https://{}.example/{number}", if number % 2 == 0 { "even" } else { "odd" });
            let subscribers = [1, 5, 50][number % 3];
            series.audience = Audience { subscribers, active_subscribers: subscribers, ..Audience::default() };
        }
        fleet
    }

    fn run(config: &PolicyConfig, rules: &HostRules) -> Own {
        Own::run(&fleet(), rules, config, 30).unwrap()
    }

    #[test]
    fn polls_delays_and_requests_are_counted_by_category_and_host() {
        let config = defaults().policy;
        let own = run(&config, &HostRules::default());
        assert_eq!((own.feeds, own.days), (21, 30.0));
        let names: Vec<_> = own.categories.iter().map(|of| (of.category, of.feeds)).collect();
        assert_eq!(names, [(Category::B, 7), (Category::C, 7), (Category::D, 7)]);
        let (many, one) = (&own.categories[0].figures, &own.categories[2].figures);
        assert!(many.weighted_mean_minutes < one.weighted_mean_minutes, "{own:?}");
        let by_host: f64 = own.hosts.iter().map(|host| host.polls_per_day).sum();
        let by_category: f64 = own.categories.iter().map(|of| of.polls_per_day).sum();
        for sum in [by_host, by_category] {
            assert!((sum - own.polls_per_day).abs() < 1e-6, "{own:?}");
        }
        assert_eq!(own.hosts.len(), 2);
    }

    #[test]
    fn a_change_of_configuration_changes_the_figures_in_its_direction() {
        let config = defaults().policy;
        let now = run(&config, &HostRules::default());
        let dear = run(&PolicyConfig { price: config.price * 10.0, ..config.clone() }, &HostRules::default());
        assert!(dear.polls_per_day < now.polls_per_day, "{} {}", dear.polls_per_day, now.polls_per_day);
        assert!(dear.figures.weighted_mean_minutes > now.figures.weighted_mean_minutes);
        let rule = HostRule {
            r#match: "even.example".to_owned(),
            interval: Some(std::time::Duration::from_secs(86_400)),
            ..HostRule::default()
        };
        let ruled = run(&config, &HostRules::new(defaults().host, [rule]));
        assert_eq!(ruled.categories.last().map(|of| (of.category, of.feeds)), Some((Category::F, 11)));
        assert!(ruled.polls_per_day < now.polls_per_day);
    }

    #[test]
    fn audiences_are_written_and_read() {
        let fleet = fleet();
        assert_eq!(read(&write(&fleet)).unwrap(), fleet);
        let text = "a\tblog:s\t1 2\t{\"subscribers\": -1}";
        assert!(read(text).unwrap_err().to_string().starts_with("line 1: no audience"), "{:?}", read(text));
    }
}
