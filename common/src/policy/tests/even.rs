//! Load over many feeds: salt fills its interval, hot minutes stay empty, open minutes fill evenly. Seeds are fixed.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

/// Returns Pearson's chi-squared statistic of counts that should all be equal.
fn chi_square(counts: &[u32]) -> f64 {
    let expected = f64::from(counts.iter().sum::<u32>()) / f64::from(u32::try_from(counts.len()).unwrap());
    counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum()
}

fn draw(random: &mut StdRng) -> Draw {
    Draw { salt: random.random(), minute: random.random() }
}

#[test]
fn salt_fills_its_interval_evenly() {
    let mut random = StdRng::seed_from_u64(7);
    let config = plain();
    let policy = Policy { config: &config, load: 0.0, price: config.price };
    let mut bins = [0; 20];
    for _ in 0..20_000 {
        let decision = decide(&reader(), &unchanged(), noon(), draw(&mut random), &policy);
        let salt = delay(&decision) - HOUR;
        bins[usize::try_from(salt.as_millis() * 20 / (6 * MINUTE).as_millis()).unwrap()] += 1;
    }
    // 43.8: the value that uniform draws exceed once in a thousand times, at 19 degrees of freedom.
    assert!(chi_square(&bins) < 43.8, "{bins:?}");
}

#[test]
fn a_move_off_a_hot_minute_reaches_every_open_minute_of_the_next_fifteen_and_no_other() {
    let mut random = StdRng::seed_from_u64(7);
    let config = PolicyConfig { hot_minutes: true, salt: 0.0, ..plain() };
    let policy = Policy { config: &config, load: 0.0, price: config.price };
    for minutes in [15, 60, 720] {
        let audience = Audience { interval: Some(minutes * MINUTE), ..Audience::default() };
        let started = at("2026-10-07T12:20:00Z").before(minutes * MINUTE);
        let report = FetchReport { started, ..unchanged() };
        let mut by_minute = std::collections::BTreeMap::new();
        let mut by_second = [0; 60];
        for _ in 0..24_000 {
            let subject = Subject { audience, ..reader() };
            let due = decide(&subject, &report, report.started, draw(&mut random), &policy).next_due.unwrap();
            let second = due.unix_seconds() % 3600;
            *by_minute.entry(second / 60).or_insert(0) += 1;
            by_second[usize::try_from(second % 60).unwrap()] += 1;
        }
        let reached: Vec<_> = by_minute.keys().copied().collect();
        assert_eq!(reached, [21, 22, 23, 24, 26, 27, 28, 29, 31, 32, 33, 34]);
        let fewest = f64::from(*by_minute.values().min().unwrap()) / 2000.0;
        assert!(fewest > 0.2, "{minutes}: {by_minute:?}");
        // 98.3: the value that uniform draws exceed once in a thousand times, at 59 degrees of freedom.
        assert!(chi_square(&by_second) < 98.3, "{by_second:?}");
    }
}

#[test]
fn a_second_move_is_as_wide_as_the_first() {
    let mut random = StdRng::seed_from_u64(7);
    let config = PolicyConfig { hot_minutes: true, salt: 0.0, ..plain() };
    let policy = Policy { config: &config, load: 0.0, price: config.price };
    // Due at 13:55, next to a skipped hour: what moves into the hour moves again to its end.
    let report = FetchReport {
        started: at("2026-10-07T12:55:00Z"),
        ..hinted(1, FeedHints { skip_hours: 1 << 14, ..FeedHints::default() })
    };
    let due = |random: &mut StdRng| decide(&reader(), &report, report.started, draw(random), &policy).next_due.unwrap();
    let second_moves = (0..5000).map(|_| due(&mut random)).filter(|due| *due > at("2026-10-07T15:00:00Z"));
    let minutes: std::collections::BTreeSet<_> = second_moves.map(|due| due.unix_seconds() / 60 % 60).collect();
    assert_eq!(minutes.into_iter().collect::<Vec<_>>(), [4, 6, 7, 8, 9, 11, 12, 13, 14]);
}

/// Returns the polls of `feeds` feeds in each minute of the hour, over a day, after half a day to settle.
fn polls_by_minute(feeds: u32, config: &PolicyConfig, mut interval: impl FnMut(&mut StdRng) -> Duration) -> [u32; 60] {
    let mut random = StdRng::seed_from_u64(11);
    let policy = Policy { config, load: 0.0, price: config.price };
    let (counted_from, end) = (noon().after(DAY / 2), noon().after(DAY + DAY / 2));
    let mut polls = [0; 60];
    let mut answer = unchanged();
    for _ in 0..feeds {
        let interval = interval(&mut random);
        let mut subject =
            Subject { audience: Audience { interval: Some(interval), ..Audience::default() }, ..reader() };
        let mut due = noon().after(Duration::from_secs_f64(interval.as_secs_f64() * random.random::<f64>()));
        while due < end {
            if due >= counted_from {
                polls[usize::try_from(due.millis() / 60_000 % 60).unwrap()] += 1;
            }
            answer.started = due;
            let decision = decide(&subject, &answer, due, draw(&mut random), &policy);
            subject = after(&subject, &decision);
            due = decision.next_due.unwrap();
        }
    }
    polls
}

/// Returns the count of the busiest open minute over the mean of the open ones; the hot ones must be empty.
fn peak(polls: &[u32; 60]) -> f64 {
    let (hot, open): (Vec<_>, Vec<_>) = (0..60_u32).zip(polls).partition(|(minute, _)| *minute < 4 || minute % 5 == 0);
    // Feeds start anywhere in their first interval, hot minutes included; half a day later all have been moved.
    assert_eq!(hot.iter().map(|(_, count)| **count).sum::<u32>(), 0, "{polls:?}");
    assert_eq!(open.len(), 45);
    let mean = f64::from(open.iter().map(|(_, count)| **count).sum::<u32>()) / 45.0;
    f64::from(open.iter().map(|(_, count)| **count).max().unwrap()) / mean
}

#[test]
fn no_open_minute_gets_more_than_one_and_a_half_times_its_share() {
    let config = PolicyConfig { hot_minutes: true, ..plain() };
    let mixed = peak(&polls_by_minute(12_000, &config, |random| random.random_range(15 * MINUTE..4 * HOUR)));
    assert!(mixed < 1.5, "{mixed}");
    let classes = peak(&polls_by_minute(8_000, &config, |random| match random.random_range(0..5) {
        0 => 15 * MINUTE,
        _ => random.random_range(HOUR..2 * HOUR),
    }));
    assert!(classes < 1.5, "{classes}");
}

#[test]
fn nor_does_one_where_all_feeds_have_the_same_interval() {
    let config = PolicyConfig { hot_minutes: true, ..plain() };
    for minutes in [15, 20, 30, 60, 90, 120] {
        let peak = peak(&polls_by_minute(1200, &config, |_| minutes * MINUTE));
        assert!(peak < 1.5, "{minutes} minutes: {peak}");
    }
}
