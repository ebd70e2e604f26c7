//! The program's own policies, through the function that decides in production: the adaptive rule ("feedfleet") and the
//! classes ("newsgator").

use std::time::Duration;

use common::config::{PolicyConfig, PolicyMode};
use common::document::{Document, Validators};
use common::entry::Entry;
use common::host::HostKey;
use common::policy::{Audience, Category, Draw, Minutes, Policy, Subject, category, decide};
use common::push::RELIABLE_AFTER;
use common::report::{FetchReport, Outcome};
use common::url::{FeedId, Version};

use super::histories::HOUR;
use super::random::Random;
use super::sample::{ITEMS_SHOWN, SampledFeed};
use super::trial::{Rule, seconds, timestamp};

/// A feed under our own policy.
pub(super) struct Decided<'a> {
    config: &'a PolicyConfig,
    price: f64,
    subject: Subject<'a>,
    /// The minutes of a fleet of this one feed, as in a scheduler.
    minutes: Minutes,
    newsgator: bool,
    /// Its posts are pushed, and this many were so far.
    pushed: Option<u32>,
    unchanged: FetchReport,
    modified: FetchReport,
}

/// Returns the configuration of the adaptive rule.
pub(super) fn adaptive(defaults: &PolicyConfig) -> PolicyConfig {
    PolicyConfig { mode: PolicyMode::Adaptive, ..defaults.clone() }
}

/// Returns the configuration of NewsGator's classes as in the reference: no salt, no hot minutes, all intervals times
/// `factor`.
pub(super) fn classes(defaults: &PolicyConfig, factor: f64) -> PolicyConfig {
    let mut config = PolicyConfig {
        mode: PolicyMode::Classes,
        salt: 0.0,
        hot_minutes: false,
        min_interval: Duration::ZERO,
        ..defaults.clone()
    };
    let (c, d) = (&mut config.category.c, &mut config.category.d);
    let intervals = [
        &mut config.category.b.interval,
        &mut c.interval,
        &mut c.interval_max,
        &mut d.interval,
        &mut d.interval_max,
        &mut d.idle_interval,
        &mut d.idle_interval_max,
    ];
    for interval in intervals {
        *interval = interval.mul_f64(factor);
    }
    config
}

impl<'a> Decided<'a> {
    /// Creates a feed whose first document was read at the start of the simulation. Delays are weighted by all
    /// subscribers, so all count as active; but in NewsGator's classes a single subscriber is active or not, as the
    /// sample says.
    pub(super) fn new(feed: &SampledFeed, config: &'a PolicyConfig, price: f64) -> Self {
        let newsgator = config.mode == PolicyMode::Classes;
        let idle = newsgator && feed.subscribers == 1 && !feed.active;
        let active_subscribers = if idle { 0 } else { feed.subscribers };
        let audience = Audience { subscribers: feed.subscribers, active_subscribers, ..Audience::default() };
        let mut rule = Decided {
            newsgator,
            // NewsGator polled them all.
            pushed: (feed.pushed && !newsgator).then_some(0),
            ..Decided::of(Subject::new(audience, None), config, price)
        };
        rule.decide(feed.start, &feed.shown, [Draw { salt: 0.0, minute: 0.0 }; 2], 0.0);
        rule
    }

    /// Creates a feed that was never polled, under this configuration as it is.
    pub(super) fn of(subject: Subject<'a>, config: &'a PolicyConfig, price: f64) -> Self {
        Decided {
            config,
            price,
            subject,
            minutes: Minutes::default(),
            newsgator: false,
            pushed: None,
            unchanged: unchanged(),
            modified: changed(),
        }
    }

    /// Returns the category that the feed is in.
    pub(super) fn category(&self) -> Category {
        category(&self.subject)
    }

    /// Returns the seconds until the feed is due again.
    fn decide(&mut self, at: f64, new: &[f64], draws: [Draw; 2], load: f64) -> f64 {
        let polled = timestamp(at);
        let first = self.subject.state.last_polled.is_none();
        let report = if new.is_empty() && !first { &mut self.unchanged } else { &mut self.modified };
        report.started = polled;
        if let Outcome::Modified(document) = &mut report.outcome {
            document.entries.clear();
            let dated = |post: &f64| Entry { published: Some(timestamp(*post)), ..Entry::default() };
            document.entries.extend(new.iter().map(dated));
            document.new_entries = u32::try_from(new.len()).unwrap_or(u32::MAX);
            document.all_entries = u32::try_from(ITEMS_SHOWN).unwrap_or(u32::MAX);
            // NewsGator did not look for it.
            document.none_known = !first && !self.newsgator && new.len() >= ITEMS_SHOWN;
        }
        let policy = Policy { config: self.config, load, price: self.price };
        let decision = match self.newsgator {
            true => decide(&self.subject, report, polled, draws[0], &policy),
            false => self.minutes.decide(&self.subject, report, polled, draws, &policy),
        };
        self.subject.state = decision.state;
        decision.next_due.map_or(f64::INFINITY, |due| seconds(due) - seconds(polled))
    }
}

impl Rule for Decided<'_> {
    fn first_within(&self) -> f64 {
        if self.newsgator { 4.0 * HOUR } else { 6.0 * HOUR }
    }

    fn is_pushed(&self) -> bool {
        self.pushed.is_some()
    }

    fn interval(&mut self, at: f64, new: &[f64], random: &mut Random) -> f64 {
        if let Some(announced) = &mut self.pushed {
            *announced = announced.saturating_add(u32::try_from(new.len()).unwrap_or(u32::MAX));
            self.subject.pushed = *announced >= RELIABLE_AFTER;
        }
        if self.newsgator {
            // Its intervals depended on the load, which is not simulated: all loads are equally likely.
            let load = if self.subject.audience.subscribers > 20 { 0.0 } else { random.fraction() };
            return self.decide(at, new, [Draw { salt: 0.0, minute: 0.0 }; 2], load);
        }
        let draws = [(); 2].map(|()| Draw { salt: random.fraction(), minute: random.fraction() });
        self.decide(at, new, draws, 0.0)
    }
}

/// Returns a 304.
pub(super) fn unchanged() -> FetchReport {
    answer(304, Outcome::NotModified { validators: validators() })
}

/// Returns a 200 with new content; the caller fills in the entries.
pub(super) fn changed() -> FetchReport {
    let document = Document { validators: validators(), ..Document::default() };
    answer(200, Outcome::Modified(Box::new(document)))
}

fn validators() -> Validators {
    Validators { etag: Some("\"1\"".into()), ..Validators::default() }
}

fn answer(http_status: u16, outcome: Outcome) -> FetchReport {
    FetchReport {
        http_status: Some(http_status),
        conditional: true,
        ..FetchReport::of(FeedId(1), Version(1), HostKey::new("simulated:443"), timestamp(0.0), outcome)
    }
}
