//! The host rules while a program runs: the configuration's, and over them those that operators set.
//!
//! Schedulers read the operators' rules and the accepted configuration from the store and show both on the host gate, as text;
//! workers, which have no database, read them there. Each piece of work takes a snapshot of [`LiveRules`], and the next one
//! sees a change. Nothing in here waits or makes requests.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::{Config, check_host_rule};
use crate::duration::text;
use crate::host::{HostConfig, HostRule, HostRules};
use crate::suggest::field_names;

/// The rules in force.
#[derive(Debug)]
pub struct LiveRules(RwLock<Current>);

#[derive(Clone, Debug)]
struct Current {
    rules: Arc<HostRules>,
    configured: Arc<Configured>,
    operators: Arc<[HostRule]>,
    /// The domains whose rules operators set.
    set: Arc<HashSet<String>>,
}

/// What the configuration says about hosts.
#[derive(Debug)]
struct Configured {
    pace: Pace,
    rules: Vec<HostRule>,
}

/// What applies to a host without a rule: the first element of the list on the gate, with [`ALL_HOSTS`] as its `match`. A
/// program of the version before, which knows no such element, leaves it out.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Pace {
    #[serde(flatten)]
    host: HostConfig,
    /// How long a host rests that throttles without saying for how long (`policy.penalty.throttled`).
    #[serde(with = "text")]
    throttled: Duration,
}

/// No rule has this `match`: it is not a domain.
const ALL_HOSTS: &str = "*";

impl LiveRules {
    /// Creates the configuration's rules; operators' come with [`LiveRules::set`].
    pub fn new(config: &Config) -> Self {
        LiveRules(RwLock::new(Current::of(Configured::of(config), Arc::default())))
    }

    /// Returns the rules as they are now.
    pub fn get(&self) -> Arc<HostRules> {
        self.current().rules
    }

    /// Returns how long a host rests that throttles without saying for how long.
    pub fn throttled(&self) -> Duration {
        self.current().configured.pace.throttled
    }

    /// Replaces the operators' rules. One with the `match` of a configured rule takes its place.
    pub fn set(&self, operators: &[HostRule]) {
        self.change(|before| Current::of_shared(before.configured, operators.into()));
    }

    /// Replaces the configuration's rules; the operators' stay.
    pub fn configure(&self, config: &Config) {
        self.change(|before| Current::of(Configured::of(config), before.operators));
    }

    /// Returns the rules as they would be with these of operators.
    pub fn with(&self, operators: &[HostRule]) -> HostRules {
        self.current().configured.with(operators)
    }

    /// Returns true if an operator set the rule of this domain.
    pub fn is_operators(&self, rule: &HostRule) -> bool {
        self.current().set.contains(&rule.domain())
    }

    /// Returns all rules as the gate shows them: a JSON list, of two with the same `match` the later one counts.
    pub fn to_text(&self) -> String {
        let Current { configured, operators, .. } = self.current();
        let pace = serde_json::to_value(&configured.pace).map(|mut pace| {
            pace["match"] = ALL_HOSTS.into();
            pace
        });
        let rules = configured.rules.iter().chain(&*operators).map(serde_json::to_value);
        let all: Vec<Value> = std::iter::once(pace).chain(rules).filter_map(Result::ok).collect();
        Value::Array(all).to_string()
    }

    /// Takes over what the gate shows. A list of a scheduler of the version before has the operators' rules alone.
    pub fn take(&self, text: &str) {
        let Ok(Value::Array(mut list)) = serde_json::from_str(text) else {
            tracing::error!("the host rules on the gate cannot be read; the last ones stay in force");
            return;
        };
        let is_pace = list.first().is_some_and(|first| first["match"] == ALL_HOSTS);
        let pace = is_pace.then(|| serde_json::from_value::<Pace>(list.remove(0)));
        let rules: Vec<HostRule> = list.into_iter().filter_map(from_value).collect();
        match pace {
            None => self.set(&rules),
            Some(Ok(pace)) => self.change(|_| Current::of(Configured { pace, rules }, Arc::default())),
            Some(Err(error)) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, "the pace of hosts on the gate cannot be read; the last one stays in force");
                self.change(|before| {
                    let pace = before.configured.pace.clone();
                    Current::of(Configured { pace, rules }, Arc::default())
                });
            }
        }
    }

    fn change(&self, change: impl FnOnce(Current) -> Current) {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *current = change(current.clone());
    }

    fn current(&self) -> Current {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Current {
    fn of(configured: Configured, operators: Arc<[HostRule]>) -> Self {
        Current::of_shared(Arc::new(configured), operators)
    }

    fn of_shared(configured: Arc<Configured>, operators: Arc<[HostRule]>) -> Self {
        Current {
            rules: Arc::new(configured.with(&operators)),
            set: Arc::new(operators.iter().map(HostRule::domain).collect()),
            configured,
            operators,
        }
    }
}

impl Configured {
    fn of(config: &Config) -> Self {
        let pace = Pace { host: config.host.clone(), throttled: config.policy.penalty.throttled };
        Configured { pace, rules: config.host_rule.clone() }
    }

    fn with(&self, operators: &[HostRule]) -> HostRules {
        HostRules::new(self.pace.host.clone(), self.rules.iter().chain(operators).cloned())
    }
}

/// Reads one rule. Fields that only a newer program knows are passed over; a rule that says something unreadable is left out
/// and logged.
pub fn from_value(mut rule: Value) -> Option<HostRule> {
    if let Some(fields) = rule.as_object_mut() {
        let known = field_names::<HostRule>();
        fields.retain(|field, _| known.contains(&field.as_str()));
    }
    let domain = rule["match"].as_str().unwrap_or("unnamed").to_owned();
    let read = serde_json::from_value::<HostRule>(rule);
    let checked = read.map_err(|error| error.to_string()).and_then(|rule| match check_host_rule(&rule).first() {
        None => Ok(rule),
        Some(refusal) => Err(format!("{} {}", refusal.key, refusal.reason)),
    });
    checked.inspect_err(|reason| tracing::error!(domain, reason, "a host rule is left out")).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn rule(domain: &str, gap: u64) -> HostRule {
        HostRule { r#match: domain.into(), gap: Some(Duration::from_secs(gap)), ..HostRule::default() }
    }

    fn configured(rules: &[HostRule]) -> Config {
        Config { host_rule: rules.to_vec(), ..crate::config::defaults() }
    }

    fn gap(rules: &LiveRules, name: &str) -> u64 {
        rules.get().rule_named(name).and_then(|rule| rule.gap).unwrap_or_default().as_secs()
    }

    #[test]
    fn an_operators_rule_takes_the_place_of_the_configured_one_until_it_is_taken_back() {
        let rules = LiveRules::new(&configured(&[rule("a.org", 5), rule("b.org", 6)]));
        let before = rules.get();
        rules.set(&[rule("A.org", 50), rule("c.org", 7)]);
        assert_eq!([gap(&rules, "x.a.org"), gap(&rules, "b.org"), gap(&rules, "c.org")], [50, 6, 7]);
        assert!(rules.is_operators(&rule("a.org", 0)) && !rules.is_operators(&rule("b.org", 0)));
        assert_eq!(before.rule_named("a.org").unwrap().gap, Some(Duration::from_secs(5)), "a snapshot stays");
        rules.configure(&configured(&[rule("b.org", 60), rule("d.org", 8)]));
        assert_eq!([gap(&rules, "a.org"), gap(&rules, "b.org"), gap(&rules, "d.org")], [50, 60, 8]);
        rules.set(&[]);
        assert_eq!([gap(&rules, "a.org"), gap(&rules, "b.org"), gap(&rules, "c.org")], [0, 60, 0]);
    }

    #[test]
    fn a_worker_takes_over_all_that_a_scheduler_shows_in_place_of_its_own() {
        let full = HostRule {
            shared: true,
            burst: Some(3),
            parallel: Some(2),
            interval: Some(Duration::from_millis(1500)),
            user_agent: Some("ours".into()),
            soft_statuses: vec![404],
            reason: "because".into(),
            ..rule("a.org", 2)
        };
        let mut config = configured(&[full.clone(), rule("b.org", 1)]);
        config.host.gap = Duration::from_millis(2500);
        config.policy.penalty.throttled = Duration::from_secs(7);
        let shown = LiveRules::new(&config);
        shown.set(&[rule("b.org", 9)]);
        let taken = LiveRules::new(&configured(&[rule("gone.org", 1)]));
        taken.take(&shown.to_text());
        assert_eq!(taken.get().rule_named("a.org"), Some(&full));
        assert_eq!([gap(&taken, "b.org"), gap(&taken, "gone.org")], [9, 0]);
        let other = crate::host::HostKey::new("other.org:443");
        assert_eq!(taken.get().limits_of(&other).gap, Duration::from_millis(2500));
        assert_eq!(taken.throttled(), Duration::from_secs(7));
        taken.take("?");
        assert_eq!(gap(&taken, "b.org"), 9, "what cannot be read changes nothing");
    }

    #[test]
    fn programs_of_two_versions_understand_each_other_as_far_as_they_can() {
        let rules = LiveRules::new(&configured(&[rule("own.org", 4)]));
        rules.take(
            r#"[{"match":"a.org","gap":"3s","colour":"red"},{"match":"b.org","burst":0},{"match":"c.org","gap":3}]"#,
        );
        assert_eq!(["own.org", "a.org", "b.org", "c.org"].map(|name| gap(&rules, name)), [4, 3, 0, 0]);
        let first: Value = serde_json::from_str::<Vec<Value>>(&rules.to_text()).unwrap().remove(0);
        assert_eq!(from_value(first), None, "a version that reads rules alone leaves the pace out");
    }
}
