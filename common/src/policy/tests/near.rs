//! Due times near the end of an adaptive interval, as a scheduler with even minutes places them.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::policy::hot_minute::is_hot;

/// Returns the adaptive rule with hot minutes, as by default.
fn adaptive() -> PolicyConfig {
    PolicyConfig { mode: PolicyMode::Adaptive, hot_minutes: true, ..plain() }
}

/// Returns a feed of which `per_day` items are expected.
fn posting(subscribers: u32, per_day: f32) -> Subject<'static> {
    let state = PollState { rhythm: Rhythm::steady(per_day * 33.0, 30.0, noon()), ..PollState::default() };
    Subject { state, ..readers(subscribers) }
}

/// Returns where each of a hundred draws places the feed, in a fleet whose minutes are even.
fn placed(subject: &Subject<'_>, report: &FetchReport, config: &PolicyConfig) -> Vec<Decision> {
    let policy = Policy { config, load: 0.0, price: config.price };
    let draws = (0..100).map(|draw| Draw { salt: f64::from(draw) / 100.0, minute: f64::from(draw) / 100.0 });
    draws.map(|draw| Minutes::default().decide(subject, report, report.started, [draw; 2], &policy)).collect()
}

fn shortest_and_longest(decisions: &[Decision]) -> (Duration, Duration) {
    let delays = delays(decisions);
    (*delays.iter().min().unwrap(), *delays.iter().max().unwrap())
}

#[test]
fn salt_shortens_an_adaptive_interval_as_often_as_it_lengthens_it() {
    let config = adaptive();
    let decisions = placed(&posting(1, 1.0), &unchanged(), &config);
    let interval = decisions[0].terms[0].due.since(noon());
    assert!(interval > HOUR, "{interval:?}");
    let (shortest, longest) = shortest_and_longest(&decisions);
    assert!(shortest < interval.mul_f64(0.96) && shortest >= interval.mul_f64(0.95), "{shortest:?} of {interval:?}");
    assert!(longest > interval.mul_f64(1.04) && longest <= interval.mul_f64(1.05), "{longest:?} of {interval:?}");
    assert!(decisions.iter().all(|decision| !is_hot(decision.next_due.unwrap())));
}

#[test]
fn salt_never_leads_below_a_floor() {
    let config = adaptive();
    let busy = posting(100, 100.0);
    let (shortest, longest) = shortest_and_longest(&placed(&busy, &unchanged(), &config));
    assert!(shortest >= 15 * MINUTE && longest <= 15 * MINUTE + 45 * SECOND, "{shortest:?} {longest:?}");
    let hints = FeedHints { ttl: Some(2 * HOUR), ..FeedHints::default() };
    let (shortest, _) = shortest_and_longest(&placed(&busy, &hinted(1, hints), &config));
    assert!(shortest >= 2 * HOUR, "a ttl: {shortest:?}");
    let ruled = Subject { host_interval: Some(3 * HOUR), ..busy };
    assert!(shortest_and_longest(&placed(&ruled, &unchanged(), &config)).0 >= 3 * HOUR, "a host's rule");
    let mut strict = adaptive();
    strict.category.b.min = HOUR;
    assert!(shortest_and_longest(&placed(&busy, &unchanged(), &strict)).0 >= HOUR, "the category's bound");
    let fresh = FetchReport { fresh_for: Some(100 * MINUTE), ..unchanged() };
    assert!(shortest_and_longest(&placed(&busy, &fresh, &config)).0 >= 100 * MINUTE, "max-age");
    let wait = FetchReport { retry_after: Some(noon().after(5 * HOUR)), ..unchanged() };
    assert!(shortest_and_longest(&placed(&busy, &wait, &config)).0 >= 5 * HOUR, "Retry-After");
    // One that a person's refresh did not wait for: it ends shortly before the interval does.
    let rare = posting(1, 1.0);
    let interval = placed(&rare, &unchanged(), &config)[0].terms[0].due.since(noon());
    let hold = Duration::from_secs(interval.mul_f64(0.99).as_secs());
    let held = Subject { state: PollState { hold_until: Some(noon().after(hold)), ..rare.state }, ..rare };
    let (shortest, longest) = shortest_and_longest(&placed(&held, &unchanged(), &config));
    assert!(shortest >= hold && longest > interval, "{shortest:?} to {longest:?}, held for {hold:?}");
}

#[test]
fn what_is_due_in_a_hot_minute_waits_for_the_next_four_open_ones() {
    let config = adaptive();
    let report = FetchReport { started: at("2026-10-07T11:45:30Z"), ..unchanged() };
    let decisions = placed(&posting(100, 100.0), &report, &config);
    let minutes: BTreeSet<_> =
        decisions.iter().map(|decision| decision.next_due.unwrap().unix_seconds() / 60 % 60).collect();
    assert_eq!(minutes.into_iter().collect::<Vec<_>>(), [4, 6, 7, 8]);
    assert!(decisions.iter().all(|decision| rules(decision).last() == Some(&Rule::HotMinute)));
}

#[test]
fn intervals_that_are_promises_and_failures_are_placed_as_ever() {
    let config = adaptive();
    let policy = Policy { config: &config, load: 0.0, price: config.price };
    let person = Audience { interval: Some(HOUR), ..Audience::default() };
    let person = Subject { audience: person, ..reader() };
    let classes = PolicyConfig { mode: PolicyMode::Classes, ..adaptive() };
    let draw = Draw { salt: 0.3, minute: 0.7 };
    let cases = [
        (person, unchanged(), policy),
        (reader(), failed(FailureKind::Timeout), policy),
        (reader(), throttled(None), policy),
        (readers(5), unchanged(), Policy { config: &classes, ..policy }),
    ];
    for (subject, report, policy) in cases {
        let wide = decide(&subject, &report, noon(), draw, &policy);
        assert_eq!(Minutes::default().decide(&subject, &report, noon(), [draw; 2], &policy), wide);
    }
}

/// Polls a fleet over a day and a half; returns the polls of the last day by minute of the hour, and the mean gap.
fn day(
    feeds: u32,
    config: &PolicyConfig,
    mut feed: impl FnMut(&mut StdRng) -> Subject<'static>,
) -> ([u32; 60], Duration) {
    let mut random = StdRng::seed_from_u64(13);
    let policy = Policy { config, load: 0.0, price: config.price };
    let mut subjects: Vec<_> = (0..feeds).map(|_| feed(&mut random)).collect();
    let mut due: BinaryHeap<_> = (0..feeds as usize)
        .map(|feed| Reverse((noon().after(random.random_range(Duration::ZERO..HOUR)), feed)))
        .collect();
    let (from, end) = (noon().after(DAY / 2), noon().after(DAY + DAY / 2));
    let (mut minutes, mut polls) = (Minutes::default(), [0; 60]);
    let (mut gaps, mut answer) = ((0.0, 0_u32), unchanged());
    while let Some(Reverse((at, feed))) = due.pop().filter(|Reverse((at, _))| *at < end) {
        if at >= from {
            polls[usize::try_from(at.millis() / 60_000 % 60).unwrap()] += 1;
        }
        answer.started = at;
        let draws = [(); 2].map(|()| Draw { salt: random.random(), minute: random.random() });
        let decision = minutes.decide(&subjects[feed], &answer, at, draws, &policy);
        let rhythm = subjects[feed].state.rhythm;
        subjects[feed] = after(&subjects[feed], &decision);
        // It continues to post as before.
        subjects[feed].state.rhythm = Rhythm::steady(rhythm.items(), 30.0, at);
        gaps = (gaps.0 + delay(&decision).as_secs_f64(), gaps.1 + 1);
        due.push(Reverse((decision.next_due.unwrap(), feed)));
    }
    (polls, Duration::from_secs_f64(gaps.0 / f64::from(gaps.1)))
}

/// Returns the count of the busiest open minute over the mean of the open ones.
fn peak(polls: &[u32; 60]) -> f64 {
    let hot: u32 =
        (0..60_u32).zip(polls).filter(|(minute, _)| *minute < 4 || minute % 5 == 0).map(|(_, polls)| *polls).sum();
    assert_eq!(hot, 0, "{polls:?}");
    f64::from(*polls.iter().max().unwrap()) * 45.0 / f64::from(polls.iter().sum::<u32>())
}

#[test]
fn near_due_times_keep_the_minutes_of_a_fleet_of_one_interval_and_of_a_mixed_one_even() {
    let config = adaptive();
    let (polls, gap) = day(600, &config, |_| posting(100, 1000.0));
    println!("all at the floor: {:.2}, every {gap:?}", peak(&polls));
    // Without room to choose, minutes are as even as in the wide way (1.39), and due times as far (17 min 48 s).
    assert!(peak(&polls) < 1.39, "{polls:?}");
    assert!(gap < 18 * MINUTE, "{gap:?}");
    let mixed = |random: &mut StdRng| posting(random.random_range(1..10), random.random_range(0.05..4.0));
    let (polls, gap) = day(3000, &config, mixed);
    println!("mixed: {:.2}, every {gap:?}", peak(&polls));
    assert!(peak(&polls) < 1.2, "{polls:?}");
}
