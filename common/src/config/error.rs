//! What can be wrong with a configuration, in sentences that name the key, where it came from and what would be accepted.
//!
//! Values of secrets are never repeated.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::refusal::Refusal;

/// Where a setting came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `config.default.toml`.
    Default,
    /// A file.
    File {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// An environment variable, by its name.
    Environment(String),
    /// The command line; the dotted key that it set.
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("the defaults"),
            Source::File { path, line } => write!(f, "line {line} of {}", path.display()),
            Source::Environment(name) => f.write_str(name),
            Source::Flag(_) => f.write_str("the command line"),
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The file cannot be read.
    #[error("the configuration file {} cannot be read: {source}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not valid TOML.
    #[error("{}, line {line}, is not valid TOML: {message}", path.display())]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The parser's words.
        message: String,
    },
    /// This key does not exist.
    #[error("unknown key {name} in {}; {}", place(from), hint(nearest.as_deref()))]
    UnknownKey {
        /// As it was typed; for the environment the variable.
        name: String,
        /// Where it was typed.
        from: Source,
        /// The key, or variable, that may have been meant.
        nearest: Option<String>,
    },
    /// The key's value is of the wrong type or form.
    #[error("{key} in {from} {reason}")]
    Value {
        /// Which key.
        key: String,
        /// Where it was typed.
        from: Source,
        /// What would be accepted.
        reason: String,
    },
    /// The value would break a promise that feedfleet makes.
    #[error("{key} in {from} {reason}")]
    Refused {
        /// Which key.
        key: String,
        /// Where it was typed.
        from: Source,
        /// What would be accepted.
        reason: String,
    },
}

impl Problem {
    /// Returns that a file is not valid TOML.
    pub(super) fn syntax(path: &Path, text: &str, error: &toml::de::Error) -> Self {
        let line = line_at(text, error.span().map_or(0, |span| span.start));
        Problem::Syntax { path: path.to_owned(), line, message: error.message().to_owned() }
    }

    /// Returns whether a refusal may follow from this: the values were judged without the one that is wrong.
    pub(super) fn explains(&self, refusal: &Refusal) -> bool {
        let key = match self {
            Problem::Unreadable { .. } | Problem::Syntax { .. } => return true,
            Problem::UnknownKey { nearest: None, .. } => return false,
            Problem::UnknownKey { nearest: Some(nearest), name, .. } => match name.rsplit_once('.') {
                Some((rule, _)) if rule.starts_with("host_rule") => format!("{rule}.{nearest}"),
                _ => key_of(nearest),
            },
            Problem::Value { key, .. } | Problem::Refused { key, .. } => key.clone(),
        };
        refusal.key == key || refusal.reason.contains(&key)
    }
}

/// Returns the key that an environment variable sets; a key is itself.
pub(super) fn key_of(variable: &str) -> String {
    match variable.strip_prefix("FEEDFLEET_") {
        Some(name) => name.to_ascii_lowercase().replace("__", "."),
        None => variable.to_owned(),
    }
}

/// Returns the lines of the keys in a file, by dotted key; the tables of a list are `key[0]` and so on.
pub(super) fn lines_of(text: &str) -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    if let Ok(table) = DeTable::parse(text) {
        add_lines("", table.get_ref(), text, &mut lines);
    }
    lines
}

fn add_lines(prefix: &str, table: &DeTable<'_>, text: &str, lines: &mut BTreeMap<String, usize>) {
    for (name, value) in table {
        let key = format!("{prefix}{}", name.get_ref());
        lines.insert(key.clone(), line_at(text, name.span().start));
        match value.get_ref() {
            DeValue::Table(inner) => add_lines(&format!("{key}."), inner, text, lines),
            DeValue::Array(items) => {
                for (position, item) in items.iter().enumerate() {
                    let key = format!("{key}[{position}]");
                    lines.insert(key.clone(), line_at(text, item.span().start));
                    if let DeValue::Table(inner) = item.get_ref() {
                        add_lines(&format!("{key}."), inner, text, lines);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Returns the line of a byte, counted from 1.
fn line_at(text: &str, byte: usize) -> usize {
    text.get(..byte).unwrap_or_default().matches('\n').count() + 1
}

/// Returns where a key is; a variable is its own name already.
fn place(from: &Source) -> String {
    match from {
        Source::Environment(_) => "the environment".to_owned(),
        other => other.to_string(),
    }
}

fn hint(nearest: Option<&str>) -> String {
    match nearest {
        Some(name) => format!("did you mean {name}?"),
        None => "`feedfleet config print` lists all of them".to_owned(),
    }
}

/// Everything that is wrong with a configuration, a line each.
#[derive(Debug)]
pub struct ConfigError {
    /// At least one.
    pub problems: Vec<Problem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.problems.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ConfigError {}
