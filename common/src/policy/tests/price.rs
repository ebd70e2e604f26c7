//! The price controller: on its own, and over a fleet in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::policy::price::{Demand, Lengthening, adjusted};

#[test]
fn a_price_that_nothing_presses_is_the_configured_one() {
    assert_eq!(adjusted(0.1, 0.1, 5.0, None, 1), 0.1);
    assert_eq!(adjusted(0.1, 0.1, 5.0, Some(10.0), 1), 0.1, "a cap that does not bind");
    assert_eq!(adjusted(0.02, 0.1, 5.0, Some(10.0), 1), 0.1, "the configuration changed");
    let mut price = 6.4;
    for _ in 0..35 {
        price = adjusted(price, 0.1, 5.0, None, 1);
    }
    assert_eq!(price, 0.1, "and comes back to it within half an hour");
}

#[test]
fn no_demand_however_strange_leads_out_of_the_bounds() {
    for demand in [0.0, f64::INFINITY, 1e300, 1e-300] {
        for affordable in [None, Some(1e-9), Some(1e9)] {
            let price = adjusted(0.1, 0.1, demand, affordable, 1);
            assert!((0.1..=0.153).contains(&price), "{demand} {affordable:?}: {price}");
        }
    }
    assert_eq!(adjusted(1000.0, 0.1, 9.0, Some(1.0), 1), 1000.0, "the dearest");
}

#[test]
fn lengthening_is_a_mean_that_alternation_does_not_move() {
    let mut planned = Lengthening::default();
    for _ in 0..10 {
        planned.note(HOUR, 4 * HOUR);
        planned.note(4 * HOUR, HOUR);
    }
    planned.note(Duration::ZERO, HOUR);
    let demand = Demand { newly_due: 3.0, backlog: 5400.0, planned };
    assert!((demand.per_second(None) - 4.0).abs() < 1e-9);
    assert!((demand.per_second(Some(2.0)) - 3.2).abs() < 1e-9, "a part of two a second is kept for the backlog");
}

#[test]
fn intervals_that_are_four_times_as_long_leave_a_quarter_of_the_demand() {
    let mut planned = Lengthening::default();
    planned.note(HOUR, 2 * HOUR);
    planned.note(HOUR, 8 * HOUR);
    let demand = Demand { newly_due: 8.0, backlog: 10_800.0, planned }.per_second(None);
    assert!((demand - 4.0).abs() < 1e-9, "a quarter of eight, and two for the backlog: {demand}");
}

#[test]
fn a_minutes_correction_is_by_the_demand_the_size_of_the_fleet_and_the_number_of_schedulers() {
    // Three times of what is affordable; at 30 polls a minute the gain is 0.0525, of which each of two schedulers makes half.
    let price = adjusted(1.0, 0.1, 1.5, Some(0.5), 2);
    assert!((price - 0.105_f64.exp()).abs() < 1e-9, "{price}");
}

/// What a fleet did in one minute.
#[derive(Clone, Copy, Debug)]
struct Minute {
    started: u32,
    newly_due: u32,
    backlog: usize,
    price: f64,
    oldest: Duration,
}

/// Runs feeds with many rates and audiences for `hours`, with a cap on polls a minute, through `decide` and the
/// controller.
fn run(feeds: usize, hours: u32, cap: impl Fn(u32) -> u32) -> Vec<Minute> {
    let mut random = StdRng::seed_from_u64(5);
    let config = PolicyConfig { mode: PolicyMode::Adaptive, ..plain() };
    let start = at("2026-10-05T00:00:00Z");
    let mut subjects: Vec<_> = (0..feeds)
        .map(|_| {
            let per_day = 0.2 * 100_f32.powf(random.random());
            posting(readers(random.random_range(1..6)), per_day, start)
        })
        .collect();
    let mut ahead: BinaryHeap<_> =
        (0..feeds).map(|feed| Reverse((start.after(random.random_range(Duration::ZERO..4 * HOUR)), feed))).collect();
    let (mut waiting, mut price, mut minutes) = (BinaryHeap::new(), config.price, Vec::new());
    let mut last_backlog = 0;
    for minute in 0..hours * 60 {
        let now = start.after((minute + 1) * MINUTE);
        let mut newly_due = 0;
        while let Some(due) = ahead.peek().copied().filter(|Reverse((due, _))| *due <= now) {
            ahead.pop();
            waiting.push(due);
            newly_due += 1;
        }
        let (mut started, mut planned) = (0, Lengthening::default());
        while started < cap(minute)
            && let Some(Reverse((due, feed))) = waiting.pop()
        {
            started += 1;
            let polled = due.max(now.before(MINUTE));
            let draw = Draw { salt: random.random(), minute: random.random() };
            let policy = Policy { config: &config, load: 0.0, price };
            let decision =
                decide(&subjects[feed], &FetchReport { started: polled, ..unchanged() }, polled, draw, &policy);
            if let Some(last) = subjects[feed].state.last_polled {
                planned.note(due.since(last), delay(&decision));
            }
            let rhythm = subjects[feed].state.rhythm;
            subjects[feed] = after(&subjects[feed], &decision);
            subjects[feed].state.rhythm = Rhythm::steady(rhythm.items(), 30.0, polled);
            ahead.push(Reverse((decision.next_due.unwrap(), feed)));
        }
        let affordable = f64::from(cap(minute)) / 60.0;
        // As a scheduler measures it: the polls started, plus the growth of the backlog.
        let measured = f64::from(started) + waiting.len() as f64 - last_backlog as f64;
        last_backlog = waiting.len();
        let demand = Demand { newly_due: measured / 60.0, backlog: waiting.len() as f64, planned };
        if started > 0 {
            price = adjusted(price, config.price, demand.per_second(Some(affordable)), Some(affordable), 1);
        }
        let oldest = waiting.peek().map_or(Duration::ZERO, |Reverse((due, _))| now.since(*due));
        minutes.push(Minute { started, newly_due, backlog: waiting.len(), price, oldest });
    }
    minutes
}

fn posting(subject: Subject<'static>, per_day: f32, at: Timestamp) -> Subject<'static> {
    let rhythm = Rhythm::steady(per_day * 34.0 - 0.4, 30.0, at);
    Subject { state: PollState { rhythm, ..PollState::default() }, ..subject }
}

/// Returns the mean number of feeds that became due per minute.
fn demanded(minutes: &[Minute]) -> f64 {
    f64::from(minutes.iter().map(|minute| minute.newly_due).sum::<u32>()) / minutes.len() as f64
}

#[test]
fn half_the_capacity_is_met_within_an_interval_and_without_swinging() {
    const FEEDS: usize = 5000;
    const HALVED: u32 = 12 * 60;
    let free = run(FEEDS, 12, |_| 10_000);
    assert!(free.iter().all(|minute| minute.price == 0.1), "a cap that does not bind");
    let wanted = demanded(&free[600..]);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some tens a minute")]
    let half = (wanted / 2.0).round() as u32;
    let minutes = run(FEEDS, 48, |minute| if minute < HALVED { 10_000 } else { half });
    let after = &minutes[HALVED as usize..];
    assert!(after.iter().all(|minute| minute.started <= half), "the cap binds at once");
    // Before, a feed was polled every 47 minutes on average.
    let shares: Vec<f64> = (0..36).map(|hour| demanded(&after[hour * 60..][..60]) / f64::from(half)).collect();
    println!("demand by hour: {shares:.2?}");
    assert!(shares[1..].iter().all(|share| (0.9..=1.1).contains(share)), "{shares:?}");
    for (hours, lag) in [(4, 25), (8, 15), (12, 10)] {
        assert!(after[hours * 60].oldest < lag * MINUTE, "the lag after {hours} h: {:?}", after[hours * 60]);
    }
}

#[test]
fn after_an_outage_the_backlog_goes_at_the_cap_and_intervals_stay_near_what_they_were() {
    let free = run(2000, 8, |_| 10_000);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some tens a minute")]
    let cap = (demanded(&free[240..]) * 1.3) as u32;
    let outage = 8 * 60..14 * 60;
    let minutes = run(2000, 48, |minute| if outage.contains(&minute) { 0 } else { cap });
    let after = &minutes[14 * 60..];
    let caught_up = after.iter().position(|minute| minute.backlog < cap as usize).unwrap();
    assert!(after[..caught_up].iter().all(|minute| minute.started == cap), "at the cap");
    let dearest = after.iter().map(|minute| minute.price).fold(0.0, f64::max);
    assert!(dearest < 0.4, "no interval doubles: {dearest}");
    assert_eq!(after.last().unwrap().price, 0.1);
}
