//! The host rules while a program runs: the configuration's, and over them those that operators set.
//!
//! Schedulers read the operators' rules from the store and show them on the host gate, as text; workers, which have no
//! database, read them there. Whoever holds [`LiveRules`] takes a snapshot for one piece of work and sees a change with the
//! next one. Nothing in here waits or asks anybody.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;

use crate::config::{Config, check_host_rule};
use crate::host::{HostConfig, HostRule, HostRules};
use crate::suggest::field_names;

/// The rules in force.
#[derive(Debug)]
pub struct LiveRules {
    default: HostConfig,
    configured: Vec<HostRule>,
    current: RwLock<Current>,
}

#[derive(Clone, Debug)]
struct Current {
    rules: Arc<HostRules>,
    /// The domains whose rules operators set.
    set: Arc<HashSet<String>>,
}

impl LiveRules {
    /// The configuration's rules; operators' come with [`LiveRules::set`].
    pub fn new(config: &Config) -> Self {
        Self::over(config.host.clone(), config.host_rule.clone())
    }

    /// The same over these.
    pub fn over(default: HostConfig, configured: Vec<HostRule>) -> Self {
        let rules = HostRules::new(default.clone(), configured.iter().cloned());
        let current = Current { rules: Arc::new(rules), set: Arc::default() };
        LiveRules { default, configured, current: RwLock::new(current) }
    }

    /// The rules as they are now.
    pub fn get(&self) -> Arc<HostRules> {
        self.current().rules
    }

    /// Lays operators' rules over the configuration's, in place of the operators' earlier ones. One with the `match` of a
    /// configured rule takes its place.
    pub fn set(&self, operators: &[HostRule]) {
        let set = operators.iter().map(HostRule::domain).collect();
        let current = Current { rules: Arc::new(self.with(operators)), set: Arc::new(set) };
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = current;
    }

    /// The rules as they would be with these of operators.
    pub fn with(&self, operators: &[HostRule]) -> HostRules {
        HostRules::new(self.default.clone(), self.configured.iter().chain(operators).cloned())
    }

    /// Did an operator set the rule of this domain?
    pub fn is_operators(&self, rule: &HostRule) -> bool {
        self.current().set.contains(&rule.domain())
    }

    fn current(&self) -> Current {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Rules as the gate shows them: a JSON list.
pub fn to_text(rules: &[HostRule]) -> String {
    serde_json::to_string(rules).unwrap_or_else(|_| "[]".to_owned())
}

/// Reads what [`to_text`] wrote, perhaps in a newer program. What cannot be read is left out and logged.
pub fn from_text(text: &str) -> Vec<HostRule> {
    let Ok(Value::Array(rules)) = serde_json::from_str(text) else {
        tracing::error!("the host rules on the gate cannot be read; the configuration's are in force alone");
        return Vec::new();
    };
    rules.into_iter().filter_map(from_value).collect()
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

    fn gap(rules: &LiveRules, name: &str) -> u64 {
        rules.get().rule_named(name).and_then(|rule| rule.gap).unwrap_or_default().as_secs()
    }

    #[test]
    fn an_operators_rule_takes_the_place_of_the_configured_one_until_it_is_taken_back() {
        let rules = LiveRules::over(HostConfig::default(), vec![rule("a.org", 5), rule("b.org", 6)]);
        let before = rules.get();
        rules.set(&[rule("A.org", 50), rule("c.org", 7)]);
        assert_eq!([gap(&rules, "x.a.org"), gap(&rules, "b.org"), gap(&rules, "c.org")], [50, 6, 7]);
        assert!(rules.is_operators(&rule("a.org", 0)) && !rules.is_operators(&rule("b.org", 0)));
        assert_eq!(before.rule_named("a.org").unwrap().gap, Some(Duration::from_secs(5)), "a snapshot stays");
        rules.set(&[]);
        assert_eq!([gap(&rules, "a.org"), gap(&rules, "c.org")], [5, 0]);
    }

    #[test]
    fn rules_come_back_equal_and_what_a_newer_program_added_is_passed_over() {
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
        let rules = vec![full, rule("b.org", 1)];
        assert_eq!(from_text(&to_text(&rules)), rules);
        let newer =
            r#"[{"match":"a.org","gap":"3s","colour":"red"},{"match":"b.org","burst":0},{"match":"c.org","gap":3}]"#;
        assert_eq!(from_text(newer), [rule("a.org", 3)]);
        assert!(from_text("?").is_empty());
    }
}
