//! Who reads a feed, and what follows from it: its category, its weight, and the base interval (rule 1).
//!
//! The categories are NewsGator's, A to D and F; its E, the penalty box, is a state on top of the category (see `penalty`).
//! Calm delivery stands in place of the base interval where nobody else reads.

use std::time::Duration;

use super::plan::{Plan, scaled};
use super::{Policy, Rule, Subject, adaptive};
use crate::calm::next_window;
use crate::config::{PolicyConfig, PolicyMode};
use crate::policy::{Audience, Category};
use crate::time::Timestamp;

/// What a subscriber who does not read at present counts.
const IDLE_WEIGHT: f64 = 0.1;
/// A feed under an SLA counts like this many feeds of its subscribers, an important one like that many.
const SLA_WEIGHT: f64 = 10.0;
const IMPORTANT_WEIGHT: f64 = 3.0;
/// In a crowd that waits for one host, a doubling of a feed's weight is worth so much waiting.
const RANK_BONUS: Duration = Duration::from_secs(600);

/// The category that a feed's audience puts it in.
pub fn category(subject: &Subject<'_>) -> Category {
    match subject.audience.sla {
        true => Category::A,
        false if subject.host_interval.is_some() => Category::F,
        false => natural(subject),
    }
}

/// The category without SLA and host rule.
fn natural(subject: &Subject<'_>) -> Category {
    let Audience { subscribers, important, .. } = subject.audience;
    if important || subscribers > 20 {
        Category::B
    } else if subject.credentials || subscribers >= 2 {
        Category::C
    } else {
        Category::D
    }
}

/// How much a feed's delay counts, in subscribers: active ones full, idle ones a tenth, an SLA or importance many times.
/// Never zero.
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

/// The order of feeds that wait for one host, lowest first, in milliseconds: the due time less ten minutes for each
/// doubling of the weight, so that a well-read feed goes first and an old one is not forgotten.
pub fn rank(due: Timestamp, weight: f64) -> i64 {
    let bonus = scaled(RANK_BONUS, (1.0 + weight.max(0.0)).log2());
    due.millis().saturating_sub(i64::try_from(bonus.as_millis()).unwrap_or(i64::MAX))
}

/// The feed has an SLA, and with this due time it cannot be kept: a publisher's floor, a hold or a failure wins over it.
pub fn sla_unmet(audience: &Audience, last_polled: Timestamp, next_due: Timestamp, config: &PolicyConfig) -> bool {
    let a = &config.category.a;
    audience.sla && next_due.since(last_polled).saturating_add(a.fetch_allowance) > a.promise
}

/// Rule 1: the interval before anybody else has a say, and our own floors under it.
pub(super) fn base(subject: &Subject<'_>, category: Category, polled: Timestamp, policy: &Policy<'_>) -> Plan {
    let config = policy.config;
    let calm = only_calm(subject).then(|| next_window(subject.calm, polled)).flatten();
    let (rule, interval) = match calm {
        Some((start, _)) => (Rule::Calm, start.since(polled)),
        None => own_interval(subject, category, polled, policy),
    };
    let mut plan = Plan::new(polled, rule, interval);
    plan.midnight = calm.map(|(_, midnight)| midnight);
    if let Some(interval) = subject.host_interval {
        plan.at_least(Rule::HostInterval, interval);
    }
    let shortest = match category {
        Category::A => config.min_interval.min(config.category.a.interval),
        _ => config.min_interval,
    };
    plan.at_least(Rule::MinInterval, shortest);
    plan
}

/// Nobody waits for it but at midnight, and no person asked for an interval.
fn only_calm(subject: &Subject<'_>) -> bool {
    let Audience { subscribers, sla, important, interval, .. } = subject.audience;
    subscribers == 0 && !sla && !important && interval.is_none()
}

fn own_interval(subject: &Subject<'_>, category: Category, polled: Timestamp, policy: &Policy<'_>) -> (Rule, Duration) {
    let Policy { config, load, .. } = *policy;
    let audience = &subject.audience;
    if let Some(interval) = audience.interval {
        return (Rule::Person, interval);
    }
    if audience.subscribers == 0 && !audience.sla && !audience.important {
        return (Rule::NoSubscribers, config.default_interval);
    }
    match (config.mode, category, subject.host_interval) {
        (_, Category::A, _) => (Rule::Category, config.category.a.interval),
        (PolicyMode::Classes, _, Some(interval)) => (Rule::HostInterval, interval),
        (PolicyMode::Classes, ..) => (Rule::Category, class_interval(subject, load, config)),
        (PolicyMode::Adaptive, ..) => (Rule::Adaptive, adaptive_interval(subject, polled, policy)),
    }
}

/// NewsGator's intervals.
fn class_interval(subject: &Subject<'_>, load: f64, config: &PolicyConfig) -> Duration {
    let categories = &config.category;
    let by_load = |idle: Duration, loaded: Duration| {
        idle.saturating_add(scaled(loaded.saturating_sub(idle), load.clamp(0.0, 1.0)))
    };
    match natural(subject) {
        Category::A | Category::B => categories.b.interval,
        Category::C | Category::F => by_load(categories.c.interval, categories.c.interval_max),
        Category::D if subject.audience.active_subscribers == 0 => {
            by_load(categories.d.idle_interval, categories.d.idle_interval_max)
        }
        Category::D => by_load(categories.d.interval, categories.d.interval_max),
    }
}

/// The interval after which the waiting is worth a poll, inside the category's bounds.
fn adaptive_interval(subject: &Subject<'_>, polled: Timestamp, policy: &Policy<'_>) -> Duration {
    let categories = &policy.config.category;
    let (b, c, d) = (&categories.b, &categories.c, &categories.d);
    let (least, most) = match natural(subject) {
        Category::A | Category::B => (b.min, b.max),
        Category::C | Category::F => (c.min, c.max),
        Category::D => (d.min, d.max),
    };
    let weight = weight(&subject.audience);
    adaptive::interval(&subject.state.rhythm, polled, weight, policy.price, most).min(most).max(least)
}
