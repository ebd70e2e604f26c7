//! The part of the configuration that may change while a fleet runs, as the schedulers agree on it: `[policy]`, `[host]` and
//! `[[host_rule]]`, as one text in the store.

use serde_json::{Map, Value, json};

use crate::config::{Config, defaults};
use crate::document::ContentHash;
use crate::host::HostRule;
use crate::live_rules;

/// The sections that may change while a fleet runs.
pub const SECTIONS: [&str; 3] = ["policy", "host", "host_rule"];

/// What each process takes over from its own file.
const TOKENS: &str = "api.tokens";

/// Returns what these sections of a configuration set otherwise than this program's defaults. Equal configurations have equal
/// texts, and a program with other defaults has the same text for the same file.
pub fn text(config: &Config) -> String {
    let usual = defaults();
    let rules = config.host_rule.iter().filter(|rule| !usual.host_rule.contains(rule));
    json!({
        "policy": changed(json!(config.policy), &json!(usual.policy)),
        "host": changed(json!(config.host), &json!(usual.host)),
        "host_rule": rules.collect::<Vec<_>>(),
    })
    .to_string()
}

/// Returns a hash of the text, by which schedulers recognise it.
pub fn hash(text: &str) -> String {
    format!("{:032x}", ContentHash::of(text.as_bytes(), 0).0)[..16].to_owned()
}

/// Returns the configuration with these sections set by the text, checked as a whole. Keys that only another version knows are
/// ignored, keys that the text lacks have this program's defaults, and rules are added to the shipped ones.
///
/// # Errors
///
/// Why the text cannot be in force here.
pub fn laid_over(own: &Config, text: &str) -> Result<Config, String> {
    let unreadable = |error: serde_json::Error| error.to_string();
    let accepted: Value = serde_json::from_str(text).map_err(unreadable)?;
    let mut config = own.clone();
    let usual = defaults();
    config.policy = serde_json::from_value(laid(json!(usual.policy), &accepted["policy"])).map_err(unreadable)?;
    config.host = serde_json::from_value(laid(json!(usual.host), &accepted["host"])).map_err(unreadable)?;
    config.host_rule = usual.host_rule;
    let rules = accepted["host_rule"].as_array().into_iter().flatten().cloned();
    rules.filter_map(live_rules::from_value).for_each(|rule| add(&mut config.host_rule, rule));
    let refusals: Vec<String> =
        config.check().into_iter().map(|refusal| format!("{} {}", refusal.key, refusal.reason)).collect();
    if refusals.is_empty() { Ok(config) } else { Err(refusals.join("; ")) }
}

/// Returns the keys outside of these sections in which two configurations differ: they need a restart.
pub fn needs_restart(before: &Config, after: &Config) -> Vec<String> {
    let (secrets_before, secrets_after) = (&before.secrets, &after.secrets);
    let (before_has_no_tokens, after_has_no_tokens) = (before.api.tokens.is_empty(), after.api.tokens.is_empty());
    let (Ok(before), Ok(after)) = (serde_json::to_value(before), serde_json::to_value(after)) else {
        return Vec::new();
    };
    let mut different = Vec::new();
    compare("", &before, &after, &mut different);
    different.retain(|key| !SECTIONS.iter().any(|section| key.split('.').next() == Some(section)));
    // They are masked when they are written.
    let masked = [
        ("secrets.key", secrets_before.key != secrets_after.key),
        ("secrets.old_keys", secrets_before.old_keys != secrets_after.old_keys),
    ];
    different.retain(|key| !key.starts_with("secrets."));
    different.extend(masked.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key.to_owned()));
    // Tokens are taken over, unless none are left: then the addresses on which others are answered must change too.
    different.retain(|key| key != TOKENS);
    if after_has_no_tokens && !before_has_no_tokens {
        different.push(TOKENS.to_owned());
    }
    different
}

/// Returns the values that differ from `usual`.
fn changed(values: Value, usual: &Value) -> Value {
    match (values, usual) {
        (Value::Object(values), Value::Object(usual)) => {
            let all = values.into_iter().map(|(key, value)| {
                let usual = usual.get(&key).unwrap_or(&Value::Null);
                (key, changed(value, usual))
            });
            let different = all.filter(|(_, value)| !value.is_null()).collect::<Map<_, _>>();
            if different.is_empty() { Value::Null } else { Value::Object(different) }
        }
        (value, usual) if value == *usual => Value::Null,
        (value, _) => value,
    }
}

/// Adds a rule, in place of one of the same match.
fn add(rules: &mut Vec<HostRule>, rule: HostRule) {
    match rules.iter_mut().find(|known| known.domain() == rule.domain()) {
        Some(known) => *known = rule,
        None => rules.push(rule),
    }
}

fn laid(mut base: Value, over: &Value) -> Value {
    lay(&mut base, over);
    base
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

    #[test]
    fn a_text_brings_its_sections_and_no_others() {
        let mut other = defaults();
        other.policy.category.d.min *= 2;
        other.policy.salt = 0.25;
        other.host.gap = Duration::from_millis(1500);
        other.host_rule[0].gap = Some(Duration::from_secs(77));
        other.worker.concurrency = 7;
        let text = text(&other);
        assert_ne!(hash(&text), hash(&super::text(&defaults())));
        let laid = laid_over(&defaults(), &text).unwrap();
        assert_eq!((super::text(&laid), laid.worker.concurrency), (text, defaults().worker.concurrency));
        assert_eq!(laid.host_rule, other.host_rule);
        assert_eq!(needs_restart(&defaults(), &other), ["worker.concurrency"]);
    }

    #[test]
    fn a_secret_that_is_replaced_needs_a_restart_although_it_is_written_masked() {
        let with = |key: &str, old: &str| {
            let mut config = defaults();
            (config.secrets.key, config.secrets.old_keys) = (key.into(), vec![old.into()]);
            config
        };
        assert_eq!(needs_restart(&with("a", "b"), &with("b", "a")), ["secrets.key", "secrets.old_keys"]);
        assert_eq!(needs_restart(&defaults(), &with("a", "b")), ["secrets.key", "secrets.old_keys"]);
        assert_eq!(needs_restart(&with("a", "b"), &with("a", "b")), Vec::<String>::new());
    }

    /// A new program with other defaults, and the same file, has decided nothing: a reload stays in force.
    #[test]
    fn a_text_holds_what_was_set_and_no_defaults() {
        let mut other = defaults();
        other.policy.salt = 0.25;
        let text = text(&other);
        assert_eq!(text, r#"{"host":null,"host_rule":[],"policy":{"salt":0.25}}"#);
        let mut own = defaults();
        own.policy.min_interval *= 2;
        assert_eq!(laid_over(&own, &text).unwrap().policy.min_interval, defaults().policy.min_interval);
    }

    #[test]
    fn a_text_of_another_version_counts_as_far_as_it_is_understood() {
        let text = r#"{"policy": {"salt": 0.3, "moon": {"phase": 1}, "penalty": {"box": "9h"}}, "tides": 1,
                       "host_rule": [{"match": "a.example", "gap": "9s", "colour": "red"}]}"#;
        let laid = laid_over(&defaults(), text).unwrap();
        assert_eq!((laid.policy.salt, laid.policy.penalty.first_box), (0.3, Duration::from_secs(9 * 3600)));
        assert_eq!(laid.policy.min_interval, defaults().policy.min_interval);
        assert_eq!(laid.host_rule.len(), defaults().host_rule.len() + 1);
        assert_eq!(laid.host_rule.last().unwrap().gap, Some(Duration::from_secs(9)));
    }

    #[test]
    fn a_text_that_would_break_a_promise_is_refused_with_the_key() {
        let refused = laid_over(&defaults(), r#"{"policy": {"salt": 7.0}}"#).unwrap_err();
        assert!(refused.contains("policy.salt"), "{refused}");
        assert!(laid_over(&defaults(), "?").is_err());
        assert!(laid_over(&defaults(), r#"{"policy": {"salt": "much"}}"#).is_err());
    }
}
