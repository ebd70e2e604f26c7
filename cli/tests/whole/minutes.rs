//! P21 and the publishers' floors over a day in virtual time: the whole fleet against scripted feeds (`week.rs`), once
//! with the hot-minutes rule and once without.
//!
//! With it, no open minute of the hour gets more than 1.5 times its share, and hardly any due time is in a hot minute.
//! Without it all 60 minutes are alike. Either way no feed is polled sooner than it requests.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use common::policy::Audience;
use common::time::{Clock, ManualClock, Timestamp};
use common::url::FeedId;
use load_tests::{Feed, Origin, Pace, Rules, Script, loopback};
use scheduler::ops::AddFeed;
use store::sqlite::SqliteStore;

use crate::week::{Fleet, config};

const HOUR: Duration = Duration::from_secs(3600);
/// Chi-square with 59 degrees of freedom is beyond this in one of a million runs: each draws its salt at random.
const CHI_SQUARE: f64 = 126.054;

/// Returns the number of feeds: few among all tests, 2,000 in `dev/soak`.
fn feeds() -> u16 {
    match std::env::var("SOAK_DAY_FEEDS") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("SOAK_DAY_FEEDS must be a number below 65536, not {text}")),
        Err(_) => 200,
    }
}

/// Returns how a feed requests rare polls, and the interval that it requests.
fn asking(number: u16, pace: Pace) -> (Script, Duration) {
    let feed = Feed::rss().shown(60).pace(pace);
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    match number % 8 {
        0 => (Script::feed(feed).header("Cache-Control", "max-age=4200"), minutes(70)),
        1 => (Script::feed(feed).header("Cache-Control", "max-age=6000").header("Age", "1200"), minutes(80)),
        2 => (Script::feed(feed).header("Expires", "{date+3900}"), minutes(65)),
        3 => (Script::feed(feed.extra("<ttl>40</ttl>")), minutes(40)),
        4 => (
            Script::feed(
                feed.extra("<sy:updatePeriod>hourly</sy:updatePeriod><sy:updateFrequency>2</sy:updateFrequency>"),
            ),
            minutes(30),
        ),
        _ => (Script::feed(feed), minutes(15)),
    }
}

/// The result of a day.
struct Day {
    /// Polls in each minute of the hour, without first polls.
    polls: [u32; 60],
    /// Due times in each minute of the hour.
    due: [u32; 60],
    card: load_tests::ScoreCard,
}

fn minute(at: Timestamp) -> usize {
    usize::try_from(at.millis().rem_euclid(3_600_000) / 60_000).unwrap()
}

/// Returns true for the first four minutes of an hour, and the first of each five.
fn is_hot(minute: usize) -> bool {
    minute < 4 || minute.is_multiple_of(5)
}

async fn day(hot_minutes: bool) -> Day {
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
    let start = clock.now();
    let hosts = (feeds() / 4).max(1);
    let origin = Origin::listen_by(&loopback(hosts, 0), clock.clone()).await.unwrap();
    let (mut added, mut floors) = (Vec::new(), HashMap::new());
    for number in 0..feeds() {
        let mean = HOUR * (1 + u32::from(number) % 40);
        let (script, floor) = asking(number, Pace::Random { mean, seed: number.into() });
        let path = format!("/day/{number}");
        origin.set(&path, script);
        let readers = if number % 3 == 0 { 30 } else { 5 };
        let audience = Audience { subscribers: readers, active_subscribers: readers, ..Audience::default() };
        let url = origin.url_on(usize::from(number), &path).parse().unwrap();
        added.push(AddFeed { audience, ..AddFeed::of(url) });
        floors.insert(path, floor);
    }
    let mut config = config();
    config.policy.hot_minutes = hot_minutes;
    let store = Arc::new(SqliteStore::open("sqlite::memory:").await.unwrap());
    let mut fleet = Fleet::over(store, Arc::clone(&clock), Timestamp::EPOCH, config).await;
    let places: Vec<f64> = (0..added.len()).map(|number| number as f64 / added.len() as f64).collect();
    let added = fleet.add(&added, &places).await;

    let mut due = BTreeMap::<(FeedId, Timestamp), Timestamp>::new();
    for hours in (3..=24).step_by(3) {
        fleet.live_until(start.after(HOUR * hours)).await;
        // A feed's history covers less than a day.
        for feed in &added {
            for poll in fleet.history(*feed).await {
                due.extend(poll.next_due.map(|next_due| ((*feed, poll.at), next_due)));
            }
        }
    }
    let mut day = Day { polls: [0; 60], due: [0; 60], card: load_tests::ScoreCard::default() };
    due.values().for_each(|at| day.due[minute(*at)] += 1);
    let (log, mut seen) = (origin.log(), HashSet::new());
    for request in log.iter().filter(|request| !seen.insert(Arc::clone(&request.path))) {
        day.polls[minute(request.wall)] += 1;
    }
    // Both sides use one clock, which does not advance in the meantime.
    day.card = load_tests::judge(&log, &Rules { floors, slack: Duration::ZERO, ..Rules::default() });
    day
}

fn mean(counts: impl ExactSizeIterator<Item = u32>) -> f64 {
    let bins = counts.len() as f64;
    f64::from(counts.sum::<u32>()) / bins
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_a_day_no_minute_gets_more_than_its_share_and_no_floor_is_broken() {
    let avoiding = day(true).await;
    let open: Vec<u32> = (0..60).filter(|minute| !is_hot(*minute)).map(|minute| avoiding.polls[minute]).collect();
    let share = mean(open.iter().copied());
    let busiest = f64::from(*open.iter().max().unwrap()) / share;
    // With few feeds, chance alone makes some minute busier: six standard deviations are more than that.
    let most = 1.5_f64.max(1.0 + 6.0 / share.sqrt());
    let all: u32 = avoiding.due.iter().sum();
    let hot: u32 = (0..60).filter(|minute| is_hot(*minute)).map(|minute| avoiding.due[minute]).sum();
    let hot_share = f64::from(hot) / f64::from(all);

    let anywhere = day(false).await;
    let expected = mean(anywhere.due.iter().copied());
    let chi_square: f64 = anywhere.due.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
    println!(
        "{} feeds, a day: {} polls, busiest open minute of the hour {busiest:.2} times the open ones' mean, {hot} of {all} \
         due times in hot minutes ({:.2} %); without the rule: {} due times, chi-square over 60 minutes {chi_square:.1} \
         (p > 0.000001 below {CHI_SQUARE})\nwith the rule: {}without: {}",
        feeds(),
        avoiding.card.requests,
        hot_share * 100.0,
        anywhere.due.iter().sum::<u32>(),
        avoiding.card,
        anywhere.card,
    );
    assert!(avoiding.card.requests > 8 * usize::from(feeds()), "the day was idle");
    assert!(avoiding.card.is_clean() && anywhere.card.is_clean());
    assert!(busiest <= most, "{:?}", avoiding.polls);
    assert!(hot_share <= 0.002, "{:?}", avoiding.due);
    assert!(chi_square < CHI_SQUARE, "{:?}", anywhere.due);
}

/// Returns the number of requests since `before` and how many of them came in hot minutes.
fn hot_share(origin: &Origin, before: usize) -> (usize, usize) {
    let log = origin.log_from(before);
    (log.len(), log.iter().filter(|request| is_hot(minute(request.wall))).count())
}

/// An import, an hour in which nothing is polled because the fleet is paused, and a restart after half an hour of downtime.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_poll_is_in_a_hot_minute_after_an_import_a_pause_or_a_restart() {
    // 5,000 in `dev/soak`.
    let feeds = usize::from(feeds()) * 5 / 2;
    // Half past: the next full hour is within the import.
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
    let start = clock.now();
    let origin = Origin::listen_by(&loopback(u16::try_from(feeds / 4).unwrap(), 0), clock.clone()).await.unwrap();
    let mut added = Vec::new();
    for number in 0..feeds {
        let path = format!("/crowd/{number}");
        let mean = HOUR * (1 + u32::try_from(number).unwrap() % 40);
        origin.set(&path, Script::feed(Feed::rss().shown(60).pace(Pace::Random { mean, seed: number as u64 })));
        let url = origin.url_on(number, &path).parse().unwrap();
        let audience = Audience { subscribers: 5, active_subscribers: 5, ..Audience::default() };
        added.push(AddFeed { audience, ..AddFeed::of(url) });
    }
    let store = Arc::new(SqliteStore::open("sqlite::memory:").await.unwrap());
    let mut fleet = Fleet::over(store, Arc::clone(&clock), Timestamp::EPOCH, config()).await;
    let places: Vec<f64> = (0..feeds).map(|number| number as f64 / feeds as f64).collect();
    fleet.add(&added, &places).await;

    let mut shares = Vec::new();
    let mut before = 0;
    let mut measured = |what: &str| {
        let (polls, hot) = hot_share(&origin, before);
        before = origin.request_count();
        println!("{what}: {hot} of {polls} polls in hot minutes ({:.2} %)", 100.0 * hot as f64 / polls as f64);
        shares.push((polls, hot));
    };
    fleet.live_until(start.after(HOUR * 2)).await;
    measured("import and the hour after it");
    // What the dispatcher does while the fleet is paused: nothing.
    clock.advance(HOUR);
    fleet.live_until(start.after(HOUR * 4)).await;
    measured("the hour after a pause of an hour");
    clock.advance(HOUR / 2);
    let mut fleet = fleet.restart().await;
    fleet.live_until(start.after(HOUR * 11 / 2)).await;
    measured("the hour after half an hour of downtime and a restart");
    assert!(shares[0].0 >= feeds && shares.iter().all(|(polls, _)| *polls > feeds / 4), "{shares:?}");
    let (polls, hot) = shares.iter().fold((0, 0), |sum, share| (sum.0 + share.0, sum.1 + share.1));
    assert!(hot * 500 <= polls, "{hot} of {polls}: more than 0.2 %");
}
