//! A very large number of feeds on one clock: how even their polls are, and how fast they are decided.

use std::time::{Duration, Instant};

use load_tests::simulate::histories::Series;
use load_tests::simulate::{Crowd, Recipe};
use serde::Serialize;

use crate::output;
use crate::progress::Progress;

/// The result of a run.
#[derive(Debug, Serialize)]
pub(super) struct CrowdReport {
    feeds: usize,
    days: u32,
    polls: u64,
    polls_per_feed_day: f64,
    weighted_mean_minutes: f64,
    hot_share: f64,
    /// For each day after the first: the busiest open minute over the mean of the day's open minutes.
    busiest_open_minute: Vec<f64>,
    /// The same by minute of the hour, summed over the day.
    busiest_minute_of_the_hour: Vec<f64>,
    polls_under_floor: u64,
    /// For each day after the second: the correlation of its minutes with those of the day before, without each hour's
    /// mean.
    resemblance: Vec<f64>,
    bytes_per_feed: usize,
    seconds: f64,
    nanoseconds_per_poll: f64,
}

/// Runs the feeds at `price`, or at the configured one; returns `None` if no history is long enough.
pub(super) fn run(histories: &[Series], recipe: &Recipe, price: Option<f64>) -> Option<CrowdReport> {
    let config = common::config::defaults().policy;
    let mut crowd = Crowd::new(histories, recipe, &config, price.unwrap_or(config.price))?;
    let Recipe { feeds, days, .. } = *recipe;
    let hours = days as usize * 24;
    let mut progress = Progress::new(hours);
    let started = Instant::now();
    for hour in 0..hours {
        progress.say(&format!("hour {hour} of {hours}"));
        crowd.run(Duration::from_secs(3600));
        progress.step();
    }
    let seconds = started.elapsed().as_secs_f64();
    drop(progress);
    let measured = &crowd.measured;
    Some(CrowdReport {
        feeds,
        days,
        polls: measured.polls,
        polls_per_feed_day: measured.polls as f64 / feeds as f64 / f64::from(days),
        weighted_mean_minutes: measured.weighted_mean_minutes(),
        hot_share: measured.hot_share(),
        busiest_open_minute: (1..days as usize).map(|day| measured.busiest_open_minute(day)).collect(),
        busiest_minute_of_the_hour: (1..days as usize).map(|day| measured.busiest_minute_of_the_hour(day)).collect(),
        polls_under_floor: measured.under_floor,
        resemblance: (2..days as usize).map(|day| measured.resemblance(day)).collect(),
        bytes_per_feed: crowd.bytes_per_feed(),
        seconds,
        nanoseconds_per_poll: seconds * 1e9 / measured.polls.max(1) as f64,
    })
}

impl CrowdReport {
    /// Formats the result as text.
    pub(super) fn text(&self) -> String {
        let list = |values: &[f64], least_days: u32| match values {
            [] => format!("needs --days {least_days} or more: the first day is not counted"),
            values => values.iter().map(|value| format!("{value:.2}")).collect::<Vec<_>>().join(" "),
        };
        output::fields(&[
            ("feeds", Some(self.feeds.to_string())),
            ("days", Some(self.days.to_string())),
            ("polls", Some(format!("{} ({:.2} a feed and day)", self.polls, self.polls_per_feed_day))),
            ("mean delay by subscribers", Some(format!("{:.1} min", self.weighted_mean_minutes))),
            ("polls in hot minutes", Some(format!("{:.2} %", 100.0 * self.hot_share))),
            ("busiest open minute over their mean, by day", Some(list(&self.busiest_open_minute, 2))),
            ("the same by minute of the hour", Some(list(&self.busiest_minute_of_the_hour, 2))),
            ("polls under the floor", Some(self.polls_under_floor.to_string())),
            ("likeness to the day before, by day", Some(list(&self.resemblance, 3))),
            ("memory", Some(format!("{} bytes a feed", self.bytes_per_feed))),
            ("time", Some(format!("{:.1} s, {:.0} ns a poll", self.seconds, self.nanoseconds_per_poll))),
        ])
    }
}
