//! What can be wrong with a configuration, in sentences that name the key, where it came from and what would be accepted.
//!
//! Values of secrets are never repeated.

use std::fmt;
use std::path::PathBuf;

/// Where a setting came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `config.default.toml`.
    Default,
    /// A file.
    File(PathBuf),
    /// An environment variable, by its name.
    Environment(String),
    /// The command line; the dotted key that it set.
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("the defaults"),
            Source::File(path) => write!(f, "{}", path.display()),
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
