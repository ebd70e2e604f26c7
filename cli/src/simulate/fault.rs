//! Fault injection on a virtual fleet: a day to settle, the fault, and the recovery.

use std::collections::HashSet;
use std::time::Duration;

use common::time::Timestamp;
use common::words;
use load_tests::simulate::SampledFeed;
use serde::Serialize;

use super::answers::on_one_calendar;
use super::fleet::{Minute, VirtualFleet};
use crate::output;
use crate::progress::Progress;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Fault {
    // No fault, for comparison.
    None,
    // The whole fleet is down for six hours.
    Outage,
    // From now on only half as many polls are possible.
    Capacity,
    // A fifth of the hosts refuse connections for six hours.
    Hosts,
}

/// One hour of a run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Hour {
    /// Hours since the fault; negative before it.
    pub(super) hour: i64,
    /// Polls per minute that the fleet could make.
    pub(super) capacity_per_minute: f64,
    /// Polls per minute.
    pub(super) polls_per_minute: f64,
    /// Polls in the busiest minute.
    pub(super) busiest_minute: usize,
    /// Feeds that became due per minute.
    pub(super) demand_per_minute: f64,
    /// The price of a poll at the end of the hour, in subscriber-hours.
    pub(super) price: f64,
    /// Feeds that are due and waiting at the end of the hour.
    pub(super) backlog: usize,
    /// How long the oldest of them has waited by then.
    pub(super) oldest_seconds: f64,
}

/// A run and its results.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Course {
    /// Hour by hour.
    pub(super) hours: Vec<Hour>,
    /// The median time between two polls of a feed before the fault, in hours.
    pub(super) median_interval_hours: f64,
    /// Minutes from the fault's end (with `capacity`: its start) until nothing waits longer than a minute.
    pub(super) caught_up_after_minutes: Option<usize>,
    /// The mean wait after an outage until the first poll, in minutes, of feeds that became due during it, with more
    /// than 20, 2 to 20, and 1 subscriber.
    pub(super) first_poll_after_minutes: [f64; 3],
    /// The shortest time between the starts of two requests to one host.
    pub(super) shortest_gap_seconds: f64,
    /// Polls that followed another poll of the same feed sooner than the minimum interval allows.
    pub(super) polls_under_floor: usize,
}

impl Course {
    /// Formats the run as text.
    pub(super) fn text(&self) -> String {
        let row = |hour: &Hour| {
            vec![
                hour.hour.to_string(),
                format!("{:.1}", hour.capacity_per_minute),
                format!("{:.1}", hour.polls_per_minute),
                hour.busiest_minute.to_string(),
                format!("{:.1}", hour.demand_per_minute),
                format!("{:.3}", hour.price),
                hour.backlog.to_string(),
                words::duration(Duration::from_secs_f64(hour.oldest_seconds)),
            ]
        };
        let head = ["HOUR", "CAPACITY/min", "POLLS/min", "BUSIEST", "DUE/min", "PRICE", "WAITING", "OLDEST"];
        let table = output::table(&head, &self.hours.iter().map(row).collect::<Vec<_>>());
        let minutes = |minutes: f64| Some(format!("{minutes:.0} min"));
        let [many, some, one] = self.first_poll_after_minutes;
        let summary = output::fields(&[
            ("median interval", Some(format!("{:.2} h", self.median_interval_hours))),
            ("caught up after", self.caught_up_after_minutes.and_then(|after| minutes(after as f64))),
            ("first poll, over 20 subscribers", minutes(many)),
            ("first poll, 2 to 20", minutes(some)),
            ("first poll, 1", minutes(one)),
            ("shortest gap at a host", Some(format!("{:.1} s", self.shortest_gap_seconds))),
            ("polls under the floor", Some(self.polls_under_floor.to_string())),
        ]);
        format!("{table}\n\n{summary}")
    }
}

/// Hours before the fault, and hours that a temporary fault lasts.
pub(super) const BEFORE: usize = 24;
pub(super) const DURING: usize = 6;
/// Polls per feed and day that the fleet can make: NewsGator's figure.
const POLLS_PER_FEED_DAY: f64 = 15.3;
/// Feeds per host.
const FEEDS_PER_HOST: usize = 3;

/// The parameters of a run.
pub(super) struct Setting {
    pub(super) fault: Fault,
    /// Hours before it.
    pub(super) before: usize,
    /// Hours after the start of the fault.
    pub(super) hours: usize,
    pub(super) seed: u64,
    pub(super) start: Timestamp,
}

/// Runs the simulation.
pub(super) async fn run(
    mut sample: Vec<SampledFeed>,
    setting: &Setting,
    progress: &mut Progress,
) -> anyhow::Result<Course> {
    on_one_calendar(&mut sample, setting.start);
    let capacity = sample.len() as f64 * POLLS_PER_FEED_DAY / 86_400.0;
    let hosts = sample.len() / FEEDS_PER_HOST;
    let mut fleet = VirtualFleet::new(sample, hosts, capacity, setting.seed, setting.start).await?;
    let mut minutes = Vec::new();
    let mut hours = Vec::new();
    let mut affordable = capacity;
    let mut missed = HashSet::new();
    for hour in 0..setting.before + setting.hours {
        let fault = hour.checked_sub(setting.before);
        affordable = strike(&mut fleet, setting.fault, fault, affordable);
        if fault == Some(DURING) {
            missed = fleet.due().await?;
        }
        let working = setting.fault != Fault::Outage || fault.is_none_or(|since| since >= DURING);
        let first = minutes.len();
        for _ in 0..60 {
            minutes.push(fleet.minute(working).await?);
        }
        hours.push(summary(hour as i64 - setting.before as i64, &minutes[first..], affordable, fleet.price()));
        progress.step();
        progress.say(&format!("hour {hour} of {}", setting.before + setting.hours));
    }
    Ok(Course {
        median_interval_hours: median_interval(&minutes[..setting.before * 60], fleet.feeds()),
        caught_up_after_minutes: caught_up(&minutes, setting),
        first_poll_after_minutes: first_polls(
            minutes.get((setting.before + DURING) * 60..).unwrap_or_default(),
            missed,
            &fleet,
        ),
        shortest_gap_seconds: fleet.shortest_gap.as_secs_f64(),
        polls_under_floor: fleet.polls_under_floor,
        hours,
    })
}

/// Applies what changes at the start of an hour; returns the capacity.
fn strike(fleet: &mut VirtualFleet, fault: Fault, since: Option<usize>, capacity: f64) -> f64 {
    match (fault, since) {
        (Fault::Capacity, Some(0)) => {
            fleet.set_capacity(capacity / 2.0);
            return capacity / 2.0;
        }
        (Fault::Hosts, Some(0)) => fleet.set_hosts_down(0.2),
        (Fault::Hosts, Some(DURING)) => fleet.set_hosts_down(0.0),
        _ => {}
    }
    capacity
}

fn summary(hour: i64, minutes: &[Minute], capacity: f64, price: f64) -> Hour {
    let polls: usize = minutes.iter().map(|minute| minute.polled.len()).sum();
    let due: f64 = minutes.iter().map(|minute| minute.became_due).sum();
    let last = minutes.last();
    Hour {
        hour,
        capacity_per_minute: capacity * 60.0,
        polls_per_minute: polls as f64 / minutes.len() as f64,
        busiest_minute: minutes.iter().map(|minute| minute.polled.len()).max().unwrap_or(0),
        demand_per_minute: due / minutes.len() as f64,
        price,
        backlog: last.map_or(0, |minute| minute.backlog),
        oldest_seconds: last.map_or(0.0, |minute| minute.oldest.as_secs_f64()),
    }
}

/// Returns the median over the feeds of the mean time between polls in the second half of these minutes.
fn median_interval(minutes: &[Minute], feeds: usize) -> f64 {
    let half = &minutes[minutes.len() / 2..];
    let mut polls = vec![0_u32; feeds];
    half.iter().flat_map(|minute| &minute.polled).for_each(|number| polls[*number] += 1);
    polls.sort_unstable();
    half.len() as f64 / 60.0 / f64::from(polls[feeds / 2].max(1))
}

fn caught_up(minutes: &[Minute], setting: &Setting) -> Option<usize> {
    let end = (setting.before + if setting.fault == Fault::Capacity { 0 } else { DURING }) * 60;
    let after = minutes.get(end..)?;
    let late = |minute: &Minute| minute.oldest > Duration::from_secs(60);
    let first_late = after.iter().position(late)?;
    after[first_late..].iter().position(|minute| !late(minute)).map(|more| first_late + more)
}

fn first_polls(minutes: &[Minute], mut missed: HashSet<usize>, fleet: &VirtualFleet) -> [f64; 3] {
    let mut waits = [(0.0, 0.0); 3];
    for (minute, what) in minutes.iter().enumerate() {
        for number in &what.polled {
            if missed.remove(number) {
                let class = match fleet.subscribers(*number) {
                    21.. => 0,
                    2.. => 1,
                    _ => 2,
                };
                waits[class].0 += minute as f64;
                waits[class].1 += 1.0;
            }
        }
    }
    waits.map(|(sum, count)| sum / f64::max(count, 1.0))
}

#[cfg(test)]
mod tests {
    use load_tests::simulate::histories::generated;
    use load_tests::simulate::{Recipe, sample};

    use super::*;

    const BEFORE: usize = 18;

    async fn course(fault: Fault, hours: usize) -> Course {
        let recipe = Recipe { feeds: 200, days: 9, ..Recipe::default() };
        let sample = sample(&generated(1, 25), &recipe).unwrap();
        let start = Timestamp::from_millis(super::super::START);
        let setting = Setting { fault, before: BEFORE, hours, seed: 1, start };
        run(sample, &setting, &mut Progress::new(1)).await.unwrap()
    }

    fn after(course: &Course, hour: i64) -> impl Iterator<Item = &Hour> {
        course.hours.iter().filter(move |of| of.hour >= hour)
    }

    #[tokio::test]
    async fn after_an_outage_the_cap_and_the_gaps_are_kept_and_all_is_caught_up() {
        let course = course(Fault::Outage, DURING + 3).await;
        assert!(after(&course, 0).take(DURING).all(|hour| hour.polls_per_minute == 0.0));
        let end = DURING as i64;
        assert!(after(&course, end).all(|hour| hour.busiest_minute as f64 <= hour.capacity_per_minute + 2.0));
        let caught_up: Vec<f64> = after(&course, end).map(|hour| hour.oldest_seconds).collect();
        assert!(caught_up[2] < 6.0 * 3600.0, "what waited through the outage was polled: {caught_up:?}");
        assert!(course.shortest_gap_seconds >= 1.0, "{}", course.shortest_gap_seconds);
        assert_eq!(course.polls_under_floor, 0);
        let [many, some, one] = course.first_poll_after_minutes;
        assert!(many < some && some < one, "{many} {some} {one}");
    }

    #[tokio::test]
    async fn half_the_capacity_binds_at_once_and_the_same_seed_is_the_same_run() {
        let first = course(Fault::Capacity, 3).await;
        for hour in after(&first, 0) {
            assert!(hour.busiest_minute as f64 <= hour.capacity_per_minute + 2.0, "{hour:?}");
            assert!(hour.polls_per_minute <= hour.capacity_per_minute * 1.02, "{hour:?}");
        }
        assert_eq!(first.polls_under_floor, 0);
        let text = first.text();
        assert_eq!(course(Fault::Capacity, 3).await.text(), text);
    }
}
