//! A feed's audience and what follows from it: its category, its weight, and the base interval (rule 1).
//!
//! The categories are NewsGator's, A to D and F; its E, the penalty box, is a state in addition to the category (see
//! `penalty`). Calm subscribers count for the category like others, because their midnight must not be missed in a backlog.
//! They do not count for the interval: they gain nothing from polls at other times. A feed that only has calm subscribers
//! is polled before their midnights alone; one that has others too is polled before those midnights besides, which only the
//! finished interval can show to be missed.

use std::time::Duration;

use super::plan::{Plan, scaled};
use super::{Policy, Rule, Subject, adaptive, consent, hot_minute};
use crate::calm::{Window, calm_subscribers, next_open_window, next_window_but};
use crate::config::{PolicyConfig, PolicyMode};
use crate::policy::{Audience, Category};
use crate::time::Timestamp;

/// The weight of a subscriber who is not currently active.
const IDLE_WEIGHT: f64 = 0.1;
/// Factors on the weight of a feed under an SLA and of an important feed.
const SLA_WEIGHT: f64 = 10.0;
const IMPORTANT_WEIGHT: f64 = 3.0;
/// Among feeds that wait for the same host, doubling a feed's weight is worth this much waiting.
const RANK_BONUS: Duration = Duration::from_secs(600);

/// Returns the category that a feed's audience puts it in.
pub fn category(subject: &Subject<'_>) -> Category {
    match subject.audience.sla {
        true => Category::A,
        false if subject.host_interval.is_some() => Category::F,
        false => natural(subject, subject.audience.subscribers.saturating_add(calm_subscribers(subject.calm))),
    }
}

/// Returns the category of a feed with this number of subscribers, leaving the SLA and the host rule out of account.
fn natural(subject: &Subject<'_>, subscribers: u32) -> Category {
    let important = subject.audience.important;
    if important || subscribers > 20 {
        Category::B
    } else if subject.credentials || subscribers >= 2 {
        Category::C
    } else {
        Category::D
    }
}

/// Returns how much a feed's delay counts, in subscribers: an active one counts as 1, an idle one as a tenth, and an
/// SLA or importance multiplies the sum. Never zero.
pub fn weight(audience: &Audience) -> f64 {
    let active = audience.active_subscribers.min(audience.subscribers);
    let idle = audience.subscribers - active;
    let heads = (f64::from(active) + IDLE_WEIGHT * f64::from(idle)).max(IDLE_WEIGHT);
    let standing = match audience {
        Audience { sla: true, .. } => SLA_WEIGHT,
        Audience { important: true, .. } => IMPORTANT_WEIGHT,
        _ => 1.0,
    };
    heads * standing
}

/// Returns the rank of a feed among those that wait for one host, lowest first, in milliseconds: the due time less ten
/// minutes for each doubling of the weight, so that a popular feed goes first and an old one is not starved.
pub fn rank(due: Timestamp, weight: f64) -> i64 {
    let bonus = scaled(RANK_BONUS, (1.0 + weight.max(0.0)).log2());
    due.millis().saturating_sub(i64::try_from(bonus.as_millis()).unwrap_or(i64::MAX))
}

/// Returns true if the feed has an SLA that this due time breaks: a publisher's floor, a hold or a failure overrides
/// it.
pub fn sla_unmet(audience: &Audience, last_polled: Timestamp, next_due: Timestamp, config: &PolicyConfig) -> bool {
    let a = &config.category.a;
    audience.sla && next_due.since(last_polled).saturating_add(a.fetch_allowance) > a.promise
}

/// Applies rule 1: the interval before any other rule, and our own floors under it.
pub(super) fn base(
    subject: &Subject<'_>,
    category: Category,
    polled: Timestamp,
    fresh_for: Option<Duration>,
    policy: &Policy<'_>,
) -> Plan {
    let config = policy.config;
    let shortest = match category {
        Category::A => config.min_interval.min(config.category.a.interval),
        _ => consent::shortest(subject, fresh_for, config),
    };
    let (rule, interval) = own_interval(subject, category, polled, shortest, policy);
    let is_calm_only = subject.audience.subscribers == 0 && rule != Rule::Person;
    let window = calm_window(subject, polled, policy.load).filter(|_| is_calm_only);
    let mut plan = match window {
        Some(window) => Plan::new(polled, Rule::Calm, window.start.since(polled)),
        None => Plan::new(polled, rule, interval),
    };
    plan.window = window;
    if let Some(interval) = subject.host_interval {
        plan.at_least(Rule::HostInterval, interval);
    }
    plan.at_least(Rule::MinInterval, shortest);
    if category != Category::A {
        plan.retry_floor = plan.retry_floor.max(config.min_interval);
    }
    plan.least = adaptive_bounds(subject, shortest, config).0;
    plan
}

/// Moves a poll of a feed that has other subscribers too into the window before the next midnight of its calm ones, if it is the
/// last one that could be in time. Moves a poll for calm subscribers alone that misses its window into a later one. Expects the
/// interval as all rules before salt made it; floors hold, and a midnight within one is missed.
pub(super) fn before_midnight(plan: &mut Plan, subject: &Subject<'_>, policy: &Policy<'_>) {
    if let Some(window) = plan.window {
        if plan.due >= window.end() {
            before_later_midnight(plan, subject, policy.load);
        }
        return;
    }
    if is_a_persons(plan) {
        return;
    }
    let Some(window) = calm_window(subject, plan.base, policy.load) else { return };
    let earliest = plan.unskipped(window.start.max(plan.base.after(plan.floor)));
    if earliest >= window.end() || !is_last_chance(plan, window, policy.config) {
        return;
    }
    if !(window.start..window.end()).contains(&plan.due) {
        plan.set(Rule::Calm, earliest.since(plan.base));
    }
    plan.window = Some(window);
}

/// Moves a poll that a publisher's floor, or skipped time, keeps out of its window into the first one that it can reach. A poll
/// between two windows serves nobody.
fn before_later_midnight(plan: &mut Plan, subject: &Subject<'_>, load: f64) {
    let Some(window) = next_open_window(subject.calm, plan.due, load) else { return };
    let earliest = plan.unskipped(window.start.max(plan.due));
    if earliest < window.end() {
        plan.not_before(Rule::Calm, earliest);
        plan.window = Some(window);
    }
}

/// Returns true if the plan started with an interval that a person set, for the feed or for all feeds.
pub(super) fn is_a_persons(plan: &Plan) -> bool {
    plan.terms.first().is_some_and(|term| term.rule == Rule::Person)
}

/// Returns true if the poll, at its largest salt and moved out of a hot minute, comes so late that our own floor leaves no time for
/// another one before the window ends.
fn is_last_chance(plan: &Plan, window: Window, config: &PolicyConfig) -> bool {
    let moved = if config.hot_minutes { hot_minute::REACH } else { Duration::ZERO };
    let latest = plan.due.after(scaled(plan.interval, config.salt)).after(moved);
    latest.after(plan.floor.min(config.min_interval)) >= window.end()
}

/// Returns the next window before a midnight of calm subscribers. An SLA and importance stay as they are.
fn calm_window(subject: &Subject<'_>, polled: Timestamp, load: f64) -> Option<Window> {
    let audience = &subject.audience;
    if audience.sla || audience.important {
        return None;
    }
    next_window_but(subject.calm, polled, subject.state.window, load)
}

fn own_interval(
    subject: &Subject<'_>,
    category: Category,
    polled: Timestamp,
    shortest: Duration,
    policy: &Policy<'_>,
) -> (Rule, Duration) {
    let Policy { config, load, .. } = *policy;
    let audience = &subject.audience;
    if let Some(interval) = audience.interval {
        return (Rule::Person, interval);
    }
    if audience.subscribers == 0 && !audience.sla && !audience.important {
        return (Rule::NoSubscribers, config.default_interval);
    }
    if !config.interval.is_zero() && !audience.sla {
        return (Rule::Person, config.interval);
    }
    match (config.mode, category, subject.host_interval) {
        (_, Category::A, _) => (Rule::Category, config.category.a.interval),
        (PolicyMode::Classes, _, Some(interval)) => (Rule::HostInterval, interval),
        (PolicyMode::Classes, ..) => (Rule::Category, class_interval(subject, load, config)),
        (PolicyMode::Adaptive, ..) => (Rule::Adaptive, adaptive_interval(subject, polled, shortest, policy)),
    }
}

/// Returns the interval of NewsGator's classes.
fn class_interval(subject: &Subject<'_>, load: f64, config: &PolicyConfig) -> Duration {
    let categories = &config.category;
    let by_load = |idle: Duration, loaded: Duration| {
        idle.saturating_add(scaled(loaded.saturating_sub(idle), load.clamp(0.0, 1.0)))
    };
    match natural(subject, subject.audience.subscribers) {
        Category::A | Category::B => categories.b.interval,
        Category::C | Category::F => by_load(categories.c.interval, categories.c.interval_max),
        Category::D if subject.audience.active_subscribers == 0 => {
            by_load(categories.d.idle_interval, categories.d.idle_interval_max)
        }
        Category::D => by_load(categories.d.interval, categories.d.interval_max),
    }
}

/// Returns the interval after which the expected waiting is worth a poll, within the category's bounds.
fn adaptive_interval(subject: &Subject<'_>, polled: Timestamp, shortest: Duration, policy: &Policy<'_>) -> Duration {
    let (least, most) = adaptive_bounds(subject, shortest, policy.config);
    let weight = weight(&subject.audience);
    adaptive::interval(&subject.state.rhythm, polled, weight, policy.price, most).min(most).max(least)
}

/// Returns the shortest and the longest interval of the category in adaptive mode. If the configured shortest interval is at
/// most `min_interval`, it is lowered to `shortest` where a publisher consents to that.
fn adaptive_bounds(subject: &Subject<'_>, shortest: Duration, config: &PolicyConfig) -> (Duration, Duration) {
    let categories = &config.category;
    let (b, c, d) = (&categories.b, &categories.c, &categories.d);
    let (least, most) = match natural(subject, subject.audience.subscribers) {
        Category::A | Category::B => (b.min, b.max),
        Category::C | Category::F => (c.min, c.max),
        Category::D => (d.min, d.max),
    };
    (if least <= config.min_interval { least.min(shortest) } else { least }, most)
}
