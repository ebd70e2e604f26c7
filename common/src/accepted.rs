//! The part of the configuration that may change while a fleet runs, as the schedulers agree on it: `[policy]`, `[host]` and
//! `[[host_rule]]`, as one text in the store.

use serde_json::{Value, json};

use crate::config::Config;
use crate::document::ContentHash;
use crate::host::HostRule;
use crate::live_rules;

/// The sections that may change while a fleet runs.
pub const SECTIONS: [&str; 3] = ["policy", "host", "host_rule"];

/// Returns the text of these sections. Equal configurations have equal texts.
pub fn text(config: &Config) -> String {
    json!({ "policy": config.policy, "host": config.host, "host_rule": config.host_rule }).to_string()
}

/// Returns a hash of the text, by which schedulers recognise it.
pub fn hash(text: &str) -> String {
    format!("{:032x}", ContentHash::of(text.as_bytes(), 0).0)[..16].to_owned()
}

/// Returns the configuration with these sections of the text, checked as a whole. Keys that only another version knows are
/// passed over, and keys that the text lacks keep their own value.
///
/// # Errors
///
/// Why the text cannot be in force here.
pub fn laid_over(own: &Config, text: &str) -> Result<Config, String> {
    let unreadable = |error: serde_json::Error| error.to_string();
    let accepted: Value = serde_json::from_str(text).map_err(unreadable)?;
    let section = |name: &str, own: Value| {
        let mut section = own;
        lay(&mut section, &accepted[name]);
        section
    };
    let policy = section("policy", serde_json::to_value(&own.policy).map_err(unreadable)?);
    let host = section("host", serde_json::to_value(&own.host).map_err(unreadable)?);
    let rules: Option<Vec<HostRule>> = accepted["host_rule"]
        .as_array()
        .map(|rules| rules.iter().cloned().filter_map(live_rules::from_value).collect());
    let config = Config {
        policy: serde_json::from_value(policy).map_err(unreadable)?,
        host: serde_json::from_value(host).map_err(unreadable)?,
        host_rule: rules.unwrap_or_else(|| own.host_rule.clone()),
        ..own.clone()
    };
    let refusals: Vec<String> =
        config.check().into_iter().map(|refusal| format!("{} {}", refusal.key, refusal.reason)).collect();
    if refusals.is_empty() { Ok(config) } else { Err(refusals.join("; ")) }
}

/// Returns the keys outside of these sections in which two configurations differ: they need a restart.
pub fn needs_restart(before: &Config, after: &Config) -> Vec<String> {
    let (Ok(before), Ok(after)) = (serde_json::to_value(before), serde_json::to_value(after)) else {
        return Vec::new();
    };
    let mut different = Vec::new();
    compare("", &before, &after, &mut different);
    different.retain(|key| !SECTIONS.iter().any(|section| key.split('.').next() == Some(section)));
    different
}

/// Puts the values of `over` in place of those of `base`, as far as `base` has their keys.
fn lay(base: &mut Value, over: &Value) {
    match (base, over) {
        (_, Value::Null) => {}
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in base {
                over.get(key).into_iter().for_each(|over| lay(value, over));
            }
        }
        (base, over) => *base = over.clone(),
    }
}

fn compare(prefix: &str, before: &Value, after: &Value, different: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (key, value) in before {
                let key_here = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                compare(&key_here, value, after.get(key).unwrap_or(&Value::Null), different);
            }
        }
        (before, after) if before != after => different.push(prefix.to_owned()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::defaults;

    #[test]
    fn a_text_brings_its_sections_and_no_others() {
        let mut other = defaults();
        other.policy.category.d.min *= 2;
        other.policy.salt = 0.25;
        other.host.gap = Duration::from_millis(1500);
        other.host_rule.truncate(1);
        other.worker.concurrency = 7;
        let text = text(&other);
        assert_ne!(hash(&text), hash(&super::text(&defaults())));
        let laid = laid_over(&defaults(), &text).unwrap();
        assert_eq!((super::text(&laid), laid.worker.concurrency), (text, defaults().worker.concurrency));
        assert_eq!(needs_restart(&defaults(), &other), ["worker.concurrency"]);
    }

    #[test]
    fn a_text_of_another_version_counts_as_far_as_it_is_understood() {
        let text = r#"{"policy": {"salt": 0.3, "moon": {"phase": 1}, "penalty": {"box": "9h"}}, "tides": 1,
                       "host_rule": [{"match": "a.org", "gap": "9s", "colour": "red"}]}"#;
        let laid = laid_over(&defaults(), text).unwrap();
        assert_eq!((laid.policy.salt, laid.policy.penalty.first_box), (0.3, Duration::from_secs(9 * 3600)));
        assert_eq!(laid.policy.min_interval, defaults().policy.min_interval);
        assert_eq!((laid.host_rule.len(), laid.host_rule[0].gap), (1, Some(Duration::from_secs(9))));
    }

    #[test]
    fn a_text_that_would_break_a_promise_is_refused_with_the_key() {
        let refused = laid_over(&defaults(), r#"{"policy": {"salt": 7.0}}"#).unwrap_err();
        assert!(refused.contains("policy.salt"), "{refused}");
        assert!(laid_over(&defaults(), "?").is_err());
        assert!(laid_over(&defaults(), r#"{"policy": {"salt": "much"}}"#).is_err());
    }
}
