//! Lays the file, the environment and the flags over the defaults, and remembers where each value came from.
//!
//! Each overriding value is tried alone on the defaults, so that each mistake is reported under its own key, all of them
//! at once. What the values mean together is judged by [`Config::check`]. Reads no environment and no clock itself.

use std::collections::BTreeMap;
use std::path::Path;

use toml::{Table, Value};

use super::api::{token_mistake, wrong_token_place};
use super::error::{ConfigError, Problem, Source, key_of, lines_of};
use super::host_rules::host_rule_key;
use super::masked::{SECRETS, masked};
use super::{Config, DEFAULT_TOML, HostRule, default_table};
use crate::suggest::{field_names, nearest};

/// Variables with our prefix that do not set configuration keys: other flags read them.
const OTHER_VARIABLES: [&str; 6] = [
    "FEEDFLEET_SERVER",
    "FEEDFLEET_TOKEN",
    "FEEDFLEET_ADMIN_URL",
    "FEEDFLEET_CONFIG",
    "FEEDFLEET_SERVICES",
    "FEEDFLEET_DURABLE",
];
/// Variables of the tests begin so.
const TEST_VARIABLES: &str = "FEEDFLEET_TEST_";

/// A configuration, and where each of its values came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The values, checked.
    pub config: Config,
    /// Every key in alphabetical order; each host rule is one.
    pub settings: Vec<Setting>,
}

/// One key for people to see.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The dotted key, such as `policy.salt`.
    pub key: String,
    /// Its value; tokens and passwords are masked.
    pub value: Value,
    /// Where it came from.
    pub source: Source,
}

/// Loads the configuration from the defaults, then `file`, then those of the `env` variables that start with
/// `FEEDFLEET_`, then `flags` (dotted key and value). Text for a key that does not hold text is read as TOML, or as a
/// comma list.
pub fn load(
    file: Option<&Path>,
    env: impl Iterator<Item = (String, String)>,
    flags: &[(&str, Value)],
) -> Result<Loaded, ConfigError> {
    let mut layers = Layers::of_defaults()?;
    if let Some(path) = file {
        layers.lay_file(path);
    }
    let mut variables: Vec<_> = env.filter(|(name, _)| is_ours(name)).collect();
    variables.sort();
    for (name, text) in variables {
        layers.lay(&key_of(&name), Value::String(text), &Source::Environment(name));
    }
    for (key, value) in flags {
        layers.lay(key, value.clone(), &Source::Flag((*key).to_owned()));
    }
    layers.finish()
}

/// Returns whether the variable is meant as configuration. Kubernetes puts variables named after its services beside
/// ours.
fn is_ours(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("FEEDFLEET_") else { return false };
    let of_kubernetes = !rest.contains("__")
        && (rest.ends_with("SERVICE_HOST")
            || rest.contains("SERVICE_PORT")
            || rest.split("PORT").nth(1).is_some_and(|after| after.is_empty() || after.starts_with('_')));
    !of_kubernetes && !OTHER_VARIABLES.contains(&name) && !name.starts_with(TEST_VARIABLES)
}

/// The values so far, by dotted key; host rules apart, because they add up.
struct Layers {
    defaults: BTreeMap<String, Value>,
    values: BTreeMap<String, (Value, Source)>,
    /// Each with its place among the lines, such as `host_rule[0]`.
    rules: Vec<(Table, Source, String)>,
    /// Of the keys in the file.
    lines: BTreeMap<String, usize>,
    problems: Vec<Problem>,
}

impl Layers {
    fn of_defaults() -> Result<Self, ConfigError> {
        let table: Table = default_table().map_err(|error| ConfigError {
            problems: vec![Problem::syntax(Path::new("config.default.toml"), DEFAULT_TOML, &error)],
        })?;
        let mut defaults = BTreeMap::new();
        collect_leaves("", &table, &mut defaults);
        let rules = match defaults.get("host_rule") {
            Some(Value::Array(rules)) => rules.iter().filter_map(Value::as_table).cloned().collect(),
            _ => Vec::new(),
        };
        let values = defaults.iter().map(|(key, value)| (key.clone(), (value.clone(), Source::Default)));
        Ok(Layers {
            values: values.collect(),
            defaults,
            rules: rules.into_iter().map(|rule| (rule, Source::Default, String::new())).collect(),
            lines: BTreeMap::new(),
            problems: Vec::new(),
        })
    }

    fn lay_file(&mut self, path: &Path) {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(source) => return self.problems.push(Problem::Unreadable { path: path.to_owned(), source }),
        };
        match toml::from_str::<Table>(&text) {
            Ok(table) => {
                let mut leaves = BTreeMap::new();
                collect_leaves("", &table, &mut leaves);
                self.lines = lines_of(&text);
                let start = Source::File { path: path.to_owned(), line: 1 };
                for (key, value) in leaves {
                    self.lay(&key, value, &self.at(&start, &key));
                }
            }
            Err(error) => self.problems.push(Problem::syntax(path, &text, &error)),
        }
    }

    /// Returns the source of a key; of one in the file with its line.
    fn at(&self, from: &Source, key: &str) -> Source {
        match (from, self.lines.get(key)) {
            (Source::File { path, .. }, Some(line)) => Source::File { path: path.clone(), line: *line },
            _ => from.clone(),
        }
    }

    /// Puts one value over what is there, if it can be one.
    fn lay(&mut self, key: &str, value: Value, from: &Source) {
        let Some(default) = self.defaults.get(key) else { return self.lay_unknown(key, &value, from) };
        let value = match value {
            Value::String(text) => read_text(text, default),
            other => other,
        };
        if key == "host_rule" {
            return self.lay_rules(value, from);
        }
        match self.refusal(key, &value, default) {
            None => {
                self.values.insert(key.to_owned(), (value, from.clone()));
            }
            Some(reason) => {
                let place = if key == "api.tokens" { wrong_token_place(&value) } else { key.to_owned() };
                self.problems.push(Problem::Value { key: key.to_owned(), from: self.at(from, &place), reason });
            }
        }
    }

    fn lay_unknown(&mut self, key: &str, value: &Value, from: &Source) {
        let section = format!("{key}.");
        let inside = self.defaults.keys().find(|known| known.starts_with(&section));
        match (inside, value) {
            (Some(_), Value::Table(_)) => {}
            (Some(inside), _) => {
                let reason = format!("is a section; set one of its keys, such as {inside}");
                self.problems.push(Problem::Value { key: key.to_owned(), from: from.clone(), reason });
            }
            (None, _) => self.problems.push(unknown_key(key, from, self.defaults.keys().map(String::as_str))),
        }
    }

    /// Adds rules; one with the `match` of an earlier rule takes its place.
    fn lay_rules(&mut self, value: Value, from: &Source) {
        let refused = |key: &str, from: &Source, reason: &str| Problem::Value {
            key: key.to_owned(),
            from: from.clone(),
            reason: reason.to_owned(),
        };
        let Value::Array(rules) = value else {
            return self.problems.push(refused("host_rule", from, "must be a list of tables: [[host_rule]]"));
        };
        for (position, rule) in rules.into_iter().enumerate() {
            let place = format!("host_rule[{position}]");
            let from = self.at(from, &place);
            let Value::Table(mut rule) = rule else {
                self.problems.push(refused(&place, &from, "must be a table with at least `match`"));
                continue;
            };
            let problems = rule_problems(&rule, &place, |field| self.at(&from, &format!("{place}.{field}")));
            let is_good = problems.is_empty();
            for (field, problem) in problems {
                rule.remove(field.as_str());
                self.problems.push(problem);
            }
            // What else is wrong with it is found without those fields, if it still says which hosts it is for.
            if is_good || !rule_match(&rule).is_empty() {
                self.rules.retain(|(earlier, ..)| rule_match(earlier) != rule_match(&rule));
                self.rules.push((rule, from, place));
            }
        }
    }

    /// Returns why the key cannot have the value, judged with every other key at its default.
    fn refusal(&self, key: &str, value: &Value, default: &Value) -> Option<String> {
        let mut tree = tree_of(self.defaults.iter());
        insert(&mut tree, key, value.clone());
        let error = tree.try_into::<Config>().err()?;
        if key == "api.tokens" {
            return Some(format!(
                "must be tables with name, role (\"read\" or \"write\"), token or token_hash, and perhaps expires (a time in quotes) and labels (a list of texts){}",
                token_mistake(value)
            ));
        }
        let example = match key {
            "fetch.allow_networks" | "fetch.address_exempt" | "api.trusted_proxies" => "[\"127.0.0.0/8\"]".to_owned(),
            "fetch.name_servers" => "[\"192.0.2.53:53\"]".to_owned(),
            _ => default.to_string(),
        };
        let same_type = std::mem::discriminant(value) == std::mem::discriminant(default);
        Some(match default {
            _ if key.starts_with(SECRETS) => {
                format!("must be {}", if default.is_array() { "a list of texts" } else { "text" })
            }
            Value::String(_) | Value::Array(_) if same_type => {
                format!("cannot be {value}: {}; such as {example}", error.message().trim_end())
            }
            Value::String(_) => format!("must be text, such as {example}"),
            Value::Integer(_) => format!("must be a whole number, such as {example}"),
            Value::Float(_) => format!("must be a number, such as {example}"),
            Value::Boolean(_) => "must be true or false".to_owned(),
            _ => format!("must be a list, such as {example}"),
        })
    }

    fn finish(mut self) -> Result<Loaded, ConfigError> {
        let mut tree = tree_of(self.values.iter().map(|(key, (value, _))| (key, value)));
        let rules = self.rules.iter().map(|(rule, ..)| Value::Table(rule.clone()));
        tree.insert("host_rule".to_owned(), Value::Array(rules.collect()));
        match tree.try_into::<Config>() {
            Ok(config) => {
                let refusals = self.refused(&config);
                self.problems.extend(refusals);
                if self.problems.is_empty() {
                    return Ok(Loaded { config, settings: self.settings() });
                }
            }
            Err(error) => {
                let reason = format!("does not fit together: {}", error.message());
                self.problems.push(Problem::Value { key: "it".to_owned(), from: Source::Default, reason });
            }
        }
        Err(ConfigError { problems: self.problems })
    }

    /// Returns what is wrong with the values that could be laid, but for what may follow from the others.
    fn refused(&self, config: &Config) -> Vec<Problem> {
        let refusals = config.check().into_iter();
        let refusals = refusals.filter(|refusal| !self.problems.iter().any(|problem| problem.explains(refusal)));
        let refused = refusals.map(|refusal| {
            let from = self.source_of(&refusal.key);
            Problem::Refused { key: without_item(&refusal.key).to_owned(), from, reason: refusal.reason }
        });
        refused.collect()
    }

    fn source_of(&self, key: &str) -> Source {
        let of_rule = || {
            let (rule, field) = key.rsplit_once('.')?;
            let found = self.rules.iter().find(|(table, ..)| rule == host_rule_key(&rule_match(table)));
            found.map(|(_, source, place)| self.at(source, &format!("{place}.{field}")))
        };
        let of_value = self.values.get(without_item(key)).map(|(_, source)| self.at(source, key));
        of_value.or_else(of_rule).unwrap_or(Source::Default)
    }

    fn settings(self) -> Vec<Setting> {
        let values = self.values.into_iter().filter(|(key, _)| key != "host_rule");
        let values = values.map(|(key, (value, source))| Setting { value: masked(&key, value), key, source });
        let rules = self.rules.into_iter().map(|(mut rule, source, _)| {
            let key = host_rule_key(&rule_match(&rule));
            rule.remove("match");
            Setting { key, value: Value::Table(rule), source }
        });
        let mut settings: Vec<Setting> = values.chain(rules).collect();
        settings.sort_by(|left, right| left.key.cmp(&right.key));
        settings
    }
}

/// Returns a key without the number of a token.
fn without_item(key: &str) -> &str {
    if key.starts_with("api.tokens[") { "api.tokens" } else { key }
}

/// Flattens tables to dotted keys; arrays and empty tables stay whole.
fn collect_leaves(prefix: &str, table: &Table, leaves: &mut BTreeMap<String, Value>) {
    for (name, value) in table {
        let key = format!("{prefix}{name}");
        match value {
            Value::Table(inner) if !inner.is_empty() => collect_leaves(&format!("{key}."), inner, leaves),
            leaf => {
                leaves.insert(key, leaf.clone());
            }
        }
    }
}

fn tree_of<'a>(leaves: impl Iterator<Item = (&'a String, &'a Value)>) -> Table {
    let mut tree = Table::new();
    for (key, value) in leaves {
        insert(&mut tree, key, value.clone());
    }
    tree
}

fn insert(tree: &mut Table, key: &str, value: Value) {
    match key.split_once('.') {
        None => {
            tree.insert(key.to_owned(), value);
        }
        Some((section, rest)) => {
            let inner = tree.entry(section).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}

/// Text from the environment or a flag as the type that the default has; text that cannot be read stays text, and is
/// refused as such.
fn read_text(text: String, default: &Value) -> Value {
    let as_toml = |text: &str| toml::from_str::<Table>(&format!("value = {text}")).ok()?.remove("value");
    match default {
        // A quoted text, as written in a file, means the text without its quotes.
        Value::String(_) if text.trim_start().starts_with(['"', '\'']) => match as_toml(&text) {
            Some(quoted @ Value::String(_)) => quoted,
            _ => Value::String(text),
        },
        Value::String(_) => Value::String(text),
        Value::Array(_) if !text.trim_start().starts_with('[') => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            Value::Array(items.map(|item| Value::String(item.to_owned())).collect())
        }
        _ => as_toml(&text).unwrap_or(Value::String(text)),
    }
}

fn rule_match(rule: &Table) -> String {
    rule.get("match").and_then(Value::as_str).unwrap_or_default().trim_start_matches("*.").to_ascii_lowercase()
}

/// Returns the fields of a rule that it cannot have, and why.
fn rule_problems(rule: &Table, place: &str, from: impl Fn(&str) -> Source) -> Vec<(String, Problem)> {
    let name = match rule_match(rule) {
        unnamed if unnamed.is_empty() => place.to_owned(),
        domain => host_rule_key(&domain),
    };
    let known = field_names::<HostRule>();
    let judge = |(field, value): (&String, &Value)| {
        if !known.contains(&field.as_str()) {
            let nearest = nearest(field, known.iter().copied()).map(str::to_owned);
            let problem = Problem::UnknownKey { name: format!("{name}.{field}"), from: from(field), nearest };
            return Some((field.clone(), problem));
        }
        let alone = Table::from_iter([(field.clone(), value.clone())]);
        let error = alone.try_into::<HostRule>().err()?;
        let reason = format!("cannot be {value}: {}", error.message().trim_end());
        Some((field.clone(), Problem::Value { key: format!("{name}.{field}"), from: from(field), reason }))
    };
    rule.iter().filter_map(judge).collect()
}

fn unknown_key<'a>(key: &str, from: &Source, known: impl Iterator<Item = &'a str>) -> Problem {
    let found = nearest(key, known);
    let (name, nearest) = match from {
        Source::Environment(variable) => (variable.clone(), found.map(variable_of)),
        _ => (key.to_owned(), found.map(str::to_owned)),
    };
    Problem::UnknownKey { name, from: from.clone(), nearest }
}

/// Returns the environment variable that sets a key.
fn variable_of(key: &str) -> String {
    format!("FEEDFLEET_{}", key.replace('.', "__").to_ascii_uppercase())
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
