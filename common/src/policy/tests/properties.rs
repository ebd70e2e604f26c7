//! Invariants for every feed, every answer and every draw.
//!
//! Each case is the life of one feed: any audience and host rule, any sequence of answers, polled when due, earlier by
//! a person or later because of a backlog. Every decision of that life is checked.

use proptest::prelude::*;

use super::*;
use crate::policy::Category;

/// One poll of a life.
#[derive(Clone, Debug)]
struct Step {
    report: FetchReport,
    /// When it is polled, as a fraction of the time until it is due: below 1 a person refreshes, above 1 there is a
    /// backlog.
    asked: f64,
    /// From the fetch to the decision.
    decided: Duration,
    draw: Draw,
}

#[derive(Clone, Debug)]
struct Life {
    subject: Subject<'static>,
    config: PolicyConfig,
    load: f64,
    /// Decided as a scheduler does whose minutes are even.
    near: bool,
    steps: Vec<Step>,
}

impl Life {
    fn decide(&self, subject: &Subject<'_>, report: &FetchReport, now: Timestamp, draw: Draw) -> Decision {
        let policy = Policy { config: &self.config, load: self.load, price: self.config.price };
        match self.near {
            true => Minutes::default().decide(subject, report, now, [draw; 2], &policy),
            false => decide(subject, report, now, draw, &policy),
        }
    }
}

fn any_hints() -> impl Strategy<Value = FeedHints> {
    let duration = || proptest::option::weighted(0.3, (0_u64..200_000).prop_map(Duration::from_secs));
    let skip_hours = prop_oneof![6 => Just(0), 2 => 0_u32..1 << 24, 1 => Just(u32::MAX)];
    let skip_days = prop_oneof![6 => Just(0), 2 => 0_u8..1 << 7, 1 => Just(u8::MAX)];
    (duration(), duration(), skip_hours, skip_days).prop_map(|(ttl, update_period, skip_hours, skip_days)| FeedHints {
        ttl,
        update_period,
        skip_hours,
        skip_days,
    })
}

fn any_failure() -> impl Strategy<Value = FetchReport> {
    let kinds: Vec<_> = FailureKind::ALL.iter().copied().filter(|kind| *kind != FailureKind::Crashed).collect();
    prop_oneof![
        2 => proptest::sample::select(kinds).prop_map(failed),
        1 => (200_u16..600).prop_map(answered),
    ]
}

fn any_answer() -> impl Strategy<Value = FetchReport> {
    let retry_after = proptest::option::of(
        (0_i64..4_000_000).prop_map(|seconds| Timestamp::from_millis(noon().millis() + seconds * 1000)),
    );
    let good = prop_oneof![
        Just(unchanged()),
        any::<bool>().prop_map(|kept| same_bytes(if kept { validators() } else { Validators::default() })),
        (0_u32..50, any_hints()).prop_map(|(new_entries, hints)| hinted(new_entries, hints)),
    ];
    prop_oneof![4 => good, 4 => any_failure(), 1 => retry_after.prop_map(throttled)]
}

fn any_step(answer: impl Strategy<Value = FetchReport>) -> impl Strategy<Value = Step> {
    let fresh_for = proptest::option::weighted(0.2, (0_u64..3_000_000).prop_map(Duration::from_secs));
    let asked = prop_oneof![6 => Just(1.0), 1 => 0.0..1.0, 1 => 1.0..3.0];
    let decided = prop_oneof![6 => Just(0), 1 => 0_u64..100_000].prop_map(Duration::from_secs);
    (answer, fresh_for, any::<bool>(), asked, decided, (0.0..1.0, 0.0..1.0)).prop_map(
        |(report, fresh_for, conditional, asked, decided, (salt, minute))| Step {
            report: FetchReport { fresh_for, conditional, ..report },
            asked,
            decided,
            draw: Draw { salt, minute },
        },
    )
}

fn any_subject() -> impl Strategy<Value = Subject<'static>> {
    let subscribers = prop_oneof![Just(0_u32), Just(1), 2_u32..=20, 21_u32..100_000];
    let interval = |weight| proptest::option::weighted(weight, (0_u64..700_000).prop_map(Duration::from_secs));
    let flags = (proptest::bool::weighted(0.1), proptest::bool::weighted(0.1), any::<bool>(), any::<bool>());
    (subscribers, interval(0.2), interval(0.15), flags).prop_map(
        |(subscribers, interval, host_interval, (sla, important, credentials, reading))| {
            let active_subscribers = if reading { subscribers } else { 0 };
            let audience = Audience { subscribers, active_subscribers, sla, important, interval };
            Subject { credentials, host_interval, soft_statuses: &[404], ..Subject::new(audience, None) }
        },
    )
}

fn any_life(answer: impl Strategy<Value = FetchReport>, polls: usize) -> impl Strategy<Value = Life> {
    let config = (any::<bool>(), any::<bool>(), prop_oneof![Just(0.0), Just(0.1), Just(1.0)], any::<bool>());
    (any_subject(), config, 0.0..1.0, proptest::collection::vec(any_step(answer), 1..polls)).prop_map(
        |(subject, (adaptive, hot_minutes, salt, near), load, steps)| {
            let mode = if adaptive { PolicyMode::Adaptive } else { PolicyMode::Classes };
            Life { subject, config: PolicyConfig { mode, hot_minutes, salt, ..plain() }, load, near, steps }
        },
    )
}

/// One poll to check: the feed before it, the report, and the decision.
struct Judged<'a> {
    before: Subject<'static>,
    report: FetchReport,
    now: Timestamp,
    draw: Draw,
    decision: Decision,
    due: Timestamp,
    life: &'a Life,
}

impl Judged<'_> {
    fn category(&self) -> Category {
        category(&self.before)
    }

    fn config(&self) -> &PolicyConfig {
        &self.life.config
    }

    fn is_failure(&self) -> bool {
        matches!(self.report.outcome, Outcome::Failed { .. })
    }

    /// Returns the earliest due time that any floor allows, ignoring skipped time, calculated independently.
    fn floor(&self) -> Timestamp {
        let config = self.config();
        let capped = |asked: Option<Duration>| asked.unwrap_or_default().min(config.hint_ceiling);
        let hints = &self.decision.state.hints;
        let own = if self.category() == Category::A { config.category.a.interval } else { config.min_interval };
        let fresh_for = if self.is_failure() { None } else { self.report.fresh_for };
        let host = self.before.host_interval.unwrap_or_default();
        let longest = [own, host, capped(hints.ttl), capped(hints.update_period), capped(fresh_for)].into_iter().max();
        let interval = self.report.started.after(longest.unwrap());
        let says_nothing = self.report.http_status == Some(304) && self.report.fresh_for.is_none();
        let still_fresh = self.before.state.fresh_until.filter(|_| says_nothing || self.is_failure());
        let hold = self.decision.state.hold_until;
        [Some(interval), Some(self.now), still_fresh, hold].into_iter().flatten().max().unwrap()
    }

    /// Returns the latest due time that any ceiling allows, before salt, hot minutes and skipped time.
    fn ceiling(&self) -> Timestamp {
        let config = self.config();
        let audience = &self.before.audience;
        let categories = &config.category;
        let own = match (audience.interval, category(&Subject { host_interval: None, ..self.before })) {
            (Some(interval), _) => interval,
            (None, Category::A) => categories.a.interval,
            (None, _) if audience.subscribers == 0 && !audience.important => config.default_interval,
            (None, Category::B) => categories.b.max,
            (None, Category::C) => categories.c.max,
            (None, _) => categories.d.max,
        };
        let host = self.before.host_interval.unwrap_or_default();
        let (hints, stretch, penalty) = (config.hint_ceiling, config.stretch_ceiling, config.penalty.ceiling);
        let longest = [own, host, config.min_interval, hints, stretch, penalty].into_iter().max().unwrap();
        let hold = self.decision.state.hold_until.unwrap_or(self.now);
        self.report.started.after(longest).max(self.now).max(hold)
    }
}

/// Runs a life and checks each decision after which the feed is still polled.
fn judge(life: &Life, mut verdict: impl FnMut(&Judged<'_>) -> Result<(), TestCaseError>) -> Result<(), TestCaseError> {
    let (mut subject, mut last, mut due) = (life.subject, noon(), noon());
    for step in &life.steps {
        let wait = Duration::from_secs_f64(due.since(last).as_secs_f64() * step.asked);
        let started = last.after(wait);
        let (now, draw) = (started.after(step.decided), step.draw);
        let retry_after_from_now = |until: Timestamp| started.after(until.since(noon()));
        let mut report = FetchReport { started, ..step.report.clone() };
        if let Outcome::Throttled { retry_after } = &mut report.outcome {
            *retry_after = retry_after.map(retry_after_from_now);
        }
        let decision = life.decide(&subject, &report, now, draw);
        let Some(next_due) = decision.next_due else {
            prop_assert!(decision.status != Status::Active);
            return Ok(());
        };
        verdict(&Judged { before: subject, report, now, draw, decision, due: next_due, life })?;
        subject = after(&subject, &decision);
        (last, due) = (now, next_due);
    }
    Ok(())
}

fn is_skipped(hints: &FeedHints, at: Timestamp) -> bool {
    use chrono::{Datelike, Timelike};
    let time = at.to_chrono();
    let hour = hints.skip_hours & 0xff_ffff != 0xff_ffff && hints.skip_hours >> time.hour() & 1 == 1;
    let day = hints.skip_days & 0x7f != 0x7f && hints.skip_days >> time.weekday().num_days_from_monday() & 1 == 1;
    hour || day
}

fn is_hot(at: Timestamp) -> bool {
    use chrono::Timelike;
    let minute = at.to_chrono().minute();
    minute < 4 || minute.is_multiple_of(5)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_due_in_the_past_or_under_a_floor(life in any_life(any_answer(), 25)) {
        judge(&life, |poll| {
            prop_assert!(poll.due >= poll.floor(), "{} under {}: {:?}", poll.due, poll.floor(), poll.decision);
            prop_assert!(!is_skipped(&poll.decision.state.hints, poll.due), "{} is skipped", poll.due);
            Ok(())
        })?;
    }

    #[test]
    fn a_retry_after_our_own_fault_is_neither_skipped_nor_held_nor_under_our_floors(life in any_life(any_answer(), 25)) {
        judge(&life, |poll| {
            let (subject, now) = (after(&poll.before, &poll.decision), poll.now);
            let policy = Policy { config: poll.config(), load: poll.life.load, price: poll.config().price };
            let own = if poll.category() == Category::A { Duration::ZERO } else { poll.config().min_interval };
            let own = own.max(subject.host_interval.unwrap_or_default());
            for (floor, spared) in [
                (Duration::ZERO, spare(&subject, now, poll.draw, &policy)),
                (own, spare_arrived(&subject, now, poll.draw, &policy)),
            ] {
                let due = spared.next_due.unwrap();
                prop_assert!(!is_skipped(&subject.state.hints, due), "{due} is skipped");
                prop_assert!(due >= now.after(floor.max(subject.state.failure_delay)), "{due} under {floor:?}");
                prop_assert!(subject.state.hold_until.is_none_or(|hold| due >= hold));
                prop_assert_eq!(spared.terms.last().map(|term| term.due), Some(due));
            }
            Ok(())
        })?;
    }

    #[test]
    fn no_ceiling_is_passed_but_by_salt_hot_minutes_and_skipped_time(life in any_life(any_answer(), 25)) {
        judge(&life, |poll| {
            let ceiling = poll.ceiling();
            let salt = ceiling.since(poll.report.started).as_secs_f64() * poll.config().salt;
            let mut latest = ceiling.after(Duration::from_secs_f64(salt)).after(15 * MINUTE);
            if poll.decision.terms.iter().any(|term| term.rule == Rule::Skip) {
                latest = latest.after(14 * DAY);
            } else {
                let moves = [Rule::Salt, Rule::HotMinute];
                let settled = poll.decision.terms.iter().rfind(|term| !moves.contains(&term.rule)).unwrap().due;
                prop_assert!(settled <= ceiling, "{settled} over {ceiling}: {:?}", poll.decision);
            }
            prop_assert!(poll.due <= latest, "{} after {latest}: {:?}", poll.due, poll.decision);
            Ok(())
        })?;
    }

    #[test]
    fn more_failures_never_mean_earlier(life in any_life(any_answer(), 40)) {
        judge(&life, |poll| {
            let (before, state) = (&poll.before.state, &poll.decision.state);
            if state.consecutive_failures > 0 {
                prop_assert!(state.failure_delay >= before.failure_delay);
                prop_assert!(poll.due >= poll.report.started.after(before.failure_delay));
                prop_assert!(before.penalty.is_none() || state.penalty.is_some());
            } else {
                prop_assert_eq!((state.failure_delay, state.penalty), (Duration::ZERO, None));
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_feed_that_has_failed_more_often_waits_at_least_as_long(life in any_life(any_failure(), 20)) {
        // The same last failure, after a longer and after a shorter run with the same start.
        let mut shorter = life.clone();
        let Some(last) = shorter.steps.pop() else { return Ok(()) };
        let last_delay = |life: &Life| {
            let mut delay = None;
            judge(life, |poll| {
                delay = Some(poll.decision.state.failure_delay);
                Ok(())
            })?;
            Ok::<_, TestCaseError>(delay)
        };
        let fewer = last_delay(&Life { steps: vec![last], ..life.clone() })?;
        let more = last_delay(&life)?;
        if let (Some(fewer), Some(more)) = (fewer, more) {
            prop_assert!(more >= fewer, "{more:?} after more failures, {fewer:?} after one");
        }
    }

    #[test]
    fn the_same_input_gives_the_same_output(life in any_life(any_answer(), 10)) {
        judge(&life, |poll| {
            prop_assert_eq!(poll.life.decide(&poll.before, &poll.report, poll.now, poll.draw), poll.decision);
            Ok(())
        })?;
    }

    #[test]
    fn hot_minutes_stay_empty(life in any_life(any_answer(), 25)) {
        judge(&life, |poll| {
            let avoids = poll.config().hot_minutes && poll.category() != Category::A;
            prop_assert!(!avoids || !is_hot(poll.due), "{}", poll.due);
            Ok(())
        })?;
    }

    #[test]
    fn the_terms_lead_step_by_step_to_the_due_time(life in any_life(any_answer(), 25)) {
        judge(&life, |poll| {
            let terms = &poll.decision.terms;
            prop_assert_eq!(terms.last().map(|term| term.due), Some(poll.due));
            prop_assert!(terms.windows(2).all(|pair| pair[0].due != pair[1].due), "a term that moved nothing: {terms:?}");
            let later = [Rule::Salt, Rule::HotMinute, Rule::Skip, Rule::Late, Rule::RetryAfter];
            // A full list keeps its end, not its middle.
            let kept = terms.len().min(Terms::CAPACITY - 1);
            for pair in terms[..kept].windows(2).filter(|pair| later.contains(&pair[1].rule)) {
                let both_ways = poll.life.near && pair[1].rule == Rule::Salt && terms[0].rule == Rule::Adaptive;
                prop_assert!(both_ways || pair[1].due > pair[0].due, "{terms:?}");
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_replanned_feed_is_due_earlier_but_never_under_a_floor(
        life in any_life(any_answer(), 15), now_in in 0_u64..100_000, other in any_subject(),
    ) {
        judge(&life, |poll| {
            let audience = other.audience;
            let changed = Subject { audience, ..after(&poll.before, &poll.decision) };
            let now = poll.now.after(Duration::from_secs(now_in));
            let policy = Policy { config: poll.config(), load: poll.life.load, price: poll.config().price };
            let Some((due, _)) = replan(&changed, poll.due, now, poll.draw, &policy) else { return Ok(()) };
            prop_assert!(due < poll.due && due >= now);
            let state = &poll.decision.state;
            prop_assert!(state.hold_until.is_none_or(|hold| due >= hold));
            prop_assert!(state.fresh_until.is_none_or(|fresh| due >= fresh));
            prop_assert!(!is_skipped(&state.hints, due));
            let floor = Judged { before: changed, now, decision: poll.decision, report: poll.report.clone(), ..*poll }.floor();
            prop_assert!(due >= floor, "{due} under {floor}");
            Ok(())
        })?;
    }
}
