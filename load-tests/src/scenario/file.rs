//! A scenario file: the question, the set-up, the events, and the expected figures.
//!
//! A file may contain tables `short`, `planted` and `baseline`: each overrides the rest, key by key, for a short form,
//! for a form with a fault that the checks must detect, and for a run to compare with.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use toml::{Table, Value};

use super::callers::Numbers;
use super::error::ScenarioError;

/// One scenario, after its forms have been applied.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The question that the run answers.
    pub question: String,
    /// One process, or separate roles.
    pub deployment: Deployment,
    /// The number of schedulers of a cluster.
    #[serde(default = "one")]
    pub schedulers: usize,
    /// The initial number of workers of a cluster.
    #[serde(default = "one")]
    pub workers: usize,
    /// The time from the start of polling to the start of measurement.
    #[serde(default, deserialize_with = "duration")]
    pub settle: Duration,
    /// The time from the start of polling to the end.
    #[serde(deserialize_with = "duration")]
    pub duration: Duration,
    /// The hosts' gap: the fleet's setting, and the judge's rule.
    #[serde(default = "second", deserialize_with = "duration")]
    pub gap: Duration,
    /// The time that connecting and the machine may take before the judge counts a difference, in addition to the
    /// judge's own pauses.
    #[serde(default = "noise", deserialize_with = "duration")]
    pub noise: Duration,
    /// How long after its fetch started a request may reach the origin; the next one may follow that much sooner than
    /// an interval.
    #[serde(default, deserialize_with = "duration")]
    pub arrival: Duration,
    /// A feed that is overdue by more than this counts as lost.
    #[serde(default = "silence", deserialize_with = "duration")]
    pub silence: Duration,
    /// The size of a new tmpfs for the embedded store, in megabytes.
    #[serde(default)]
    pub disk_megabytes: Option<u32>,
    /// Whether the origin uses TLS.
    #[serde(default)]
    pub tls: Tls,
    /// Groups of feeds by name.
    pub feeds: BTreeMap<String, Group>,
    /// Events by name.
    #[serde(default)]
    pub event: BTreeMap<String, Event>,
    /// Sections of feedfleet's configuration.
    #[serde(default)]
    pub config: Table,
    /// Bounds of figures, such as `"<= 5"`.
    pub expect: BTreeMap<String, Bound>,
}

/// How the fleet is deployed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Deployment {
    /// `feedfleet run`.
    Embedded,
    /// `feedfleet scheduler` and `feedfleet worker` with the servers that `dev/services urls` names.
    Cluster,
}

/// The origin's use of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tls {
    /// Plain HTTP.
    #[default]
    None,
    /// TLS 1.3; sessions are resumed.
    Resumed,
    /// TLS 1.3; every connection is a full handshake.
    Full,
}

/// A group of similar feeds.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// The number of feeds.
    pub count: usize,
    /// The number of hosts, which belong to this group alone; feeds are assigned in turn.
    pub hosts: usize,
    /// The time between two polls.
    #[serde(deserialize_with = "duration")]
    pub interval: Duration,
    /// The time over which the first polls are spread; the interval, if not given.
    #[serde(default, deserialize_with = "some_duration")]
    pub spread: Option<Duration>,
    /// Category A.
    #[serde(default)]
    pub sla: bool,
    /// Determines the category of the others.
    #[serde(default = "subscriber")]
    pub subscribers: u32,
    /// How the hosts behave.
    #[serde(default)]
    pub answers: Answers,
    /// The delay before each response.
    #[serde(default, deserialize_with = "duration")]
    pub delay: Duration,
    /// The time between two items; no items appear if not given.
    #[serde(default, deserialize_with = "some_duration")]
    pub publishes: Option<Duration>,
    /// Bytes of the text of each item.
    #[serde(default)]
    pub item_bytes: usize,
    /// Whether the server closes each connection after its response.
    #[serde(default)]
    pub close: bool,
}

/// How hosts behave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answers {
    /// Respond correctly.
    #[default]
    Well,
    /// Read the request and never respond.
    Silent,
    /// Send one byte of the body per second.
    Drip,
}

/// An event; times count from the start of polling.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Table")]
pub struct Event {
    /// When it starts.
    pub at: Duration,
    /// When it ends; at the run's end, if not given.
    pub until: Option<Duration>,
    /// What happens.
    pub what: What,
}

impl TryFrom<Table> for Event {
    type Error = String;

    fn try_from(mut table: Table) -> Result<Self, String> {
        let mut time = |name: &str| {
            let Some(value) = table.remove(name) else { return Ok(None) };
            let text = value.as_str().ok_or_else(|| format!("{name} must be a duration such as \"30s\""))?;
            humantime::parse_duration(text).map(Some).map_err(|error| format!("{name}: {error}"))
        };
        let (at, until) = (time("at")?, time("until")?);
        let at = at.ok_or("an event needs a time: at")?;
        let what = table.try_into().map_err(|error: toml::de::Error| error.to_string())?;
        Ok(Event { at, until, what })
    }
}

/// The kinds of events.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum What {
    /// Changes the number of workers, permanently.
    Workers {
        /// The new number.
        count: usize,
    },
    /// A group's hosts respond with 429.
    Throttle {
        /// The group.
        feeds: String,
        /// Seconds of `Retry-After`.
        retry_after: u64,
    },
    /// A group's hosts respond with this status.
    Fail {
        /// The group.
        feeds: String,
        /// The status, such as 503.
        status: u16,
    },
    /// All traffic with the database is delayed.
    SlowStore {
        /// The delay in each direction.
        #[serde(deserialize_with = "duration")]
        delay: Duration,
    },
    /// No byte is left on the store's disk.
    FillDisk,
    /// Callers hold on to the API. It needs an end, at which they are counted.
    Callers(Numbers),
    /// The clocks of some processes are set to another time.
    Jump {
        /// The offset in seconds; negative ones are in the past.
        seconds: i64,
        /// The processes, such as `scheduler 1`; an embedded fleet is `run`.
        processes: Vec<String>,
    },
}

/// A bound of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// The bound as written in the file.
    pub text: String,
    relation: Relation,
    limit: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Relation {
    AtMost,
    AtLeast,
    Equal,
}

impl Bound {
    /// Returns whether a figure meets the bound.
    pub fn holds(&self, figure: f64) -> bool {
        match self.relation {
            Relation::AtMost => figure <= self.limit,
            Relation::AtLeast => figure >= self.limit,
            Relation::Equal => (figure - self.limit).abs() < 1e-9,
        }
    }
}

impl std::str::FromStr for Bound {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || format!("{text:?} is no bound; accepted are \"<= N\", \">= N\" and \"= N\"");
        let (relation, limit) = text.split_once(' ').ok_or_else(refused)?;
        let relation = match relation {
            "<=" => Relation::AtMost,
            ">=" => Relation::AtLeast,
            "=" => Relation::Equal,
            _ => return Err(refused()),
        };
        let limit = limit.parse().map_err(|_| refused())?;
        Ok(Bound { text: text.to_owned(), relation, limit })
    }
}

impl<'de> Deserialize<'de> for Bound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The requested form of a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Form {
    /// Applies `short`.
    pub short: bool,
    /// Applies `planted`.
    pub planted: bool,
}

/// Reads a file: the scenario, and the one to compare with, if the file contains one.
///
/// # Errors
/// If the file cannot be read, is not valid TOML, has an unknown key, or is inconsistent.
pub fn read(path: &Path, form: Form) -> Result<(Scenario, Option<Scenario>), ScenarioError> {
    let text = std::fs::read_to_string(path).map_err(|error| ScenarioError::Read(path.into(), error))?;
    parse(&text, form).map_err(|why| ScenarioError::File(path.into(), why))
}

pub(super) fn parse(text: &str, form: Form) -> Result<(Scenario, Option<Scenario>), String> {
    let mut table: Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let mut take = |name: &str| match table.remove(name) {
        None => Ok(None),
        Some(Value::Table(overlay)) => Ok(Some(overlay)),
        Some(_) => Err(format!("{name} must be a table")),
    };
    let (short, planted, baseline) = (take("short")?, take("planted")?, take("baseline")?);
    if form.short {
        lay_over(&mut table, short.ok_or("the file has no table short")?);
    }
    if form.planted {
        lay_over(&mut table, planted.ok_or("the file has no table planted")?);
    }
    let baseline = baseline.map(|overlay| {
        let mut other = table.clone();
        lay_over(&mut other, overlay);
        scenario(other)
    });
    Ok((scenario(table)?, baseline.transpose()?))
}

fn scenario(table: Table) -> Result<Scenario, String> {
    let scenario: Scenario = table.try_into().map_err(|error: toml::de::Error| error.to_string())?;
    for (name, group) in &scenario.feeds {
        if group.hosts == 0 || group.interval.is_zero() {
            return Err(format!("feeds.{name} needs at least one host and an interval"));
        }
        if name.contains('/') {
            return Err(format!("feeds.{name}: a name is part of a path and must not hold a slash"));
        }
    }
    for (name, event) in &scenario.event {
        let group = match &event.what {
            What::Throttle { feeds, .. } | What::Fail { feeds, .. } => Some(feeds),
            _ => None,
        };
        if let Some(group) = group.filter(|group| !scenario.feeds.contains_key(*group)) {
            return Err(format!("event.{name} speaks of feeds.{group}, which there is not"));
        }
    }
    Ok(scenario)
}

/// Merges tables and replaces everything else; an empty table removes the table that it overrides.
pub(super) fn lay_over(table: &mut Table, overlay: Table) {
    for (key, value) in overlay {
        match (table.get_mut(&key), value) {
            (Some(Value::Table(_)), Value::Table(above)) if above.is_empty() => drop(table.remove(&key)),
            (Some(Value::Table(below)), Value::Table(above)) => lay_over(below, above),
            (_, value) => drop(table.insert(key, value)),
        }
    }
}

fn one() -> usize {
    1
}

fn subscriber() -> u32 {
    1
}

fn second() -> Duration {
    Duration::from_secs(1)
}

fn noise() -> Duration {
    Duration::from_millis(300)
}

fn silence() -> Duration {
    Duration::from_secs(30)
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    humantime::parse_duration(&text).map_err(|error| serde::de::Error::custom(format!("{text:?}: {error}")))
}

fn some_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    duration(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        question = "does it work?"
        deployment = "cluster"
        duration = "10m"
        [feeds.good]
        count = 1000
        hosts = 10
        interval = "1m"
        [event.wave]
        at = "1m"
        until = "2m"
        do = "throttle"
        feeds = "good"
        retry_after = 30
        [expect]
        early = "= 0"
        lag_p99 = "<= 5"
        [short]
        duration = "20s"
        feeds.good.count = 10
        event.wave = {}
        [planted]
        config.host.gap = "10ms"
        [baseline]
        feeds.good.hosts = 20
    "#;

    #[test]
    fn forms_are_laid_over_key_by_key() {
        let (long, _) = parse(FILE, Form::default()).unwrap();
        assert_eq!((long.duration.as_secs(), long.feeds["good"].count, long.event.len()), (600, 1000, 1));
        let (short, baseline) = parse(FILE, Form { short: true, planted: true }).unwrap();
        assert_eq!((short.duration.as_secs(), short.feeds["good"].count, short.feeds["good"].hosts), (20, 10, 10));
        assert!(short.event.is_empty());
        assert_eq!(short.config["host"]["gap"].as_str(), Some("10ms"));
        let baseline = baseline.unwrap();
        assert_eq!((baseline.feeds["good"].count, baseline.feeds["good"].hosts), (10, 20));
    }

    #[test]
    fn bounds_hold_or_do_not() {
        let holds = |bound: &str, figure: f64| bound.parse::<Bound>().unwrap().holds(figure);
        assert!(holds("<= 5", 5.0) && !holds("<= 5", 5.1));
        assert!(holds(">= 0.9", 0.9) && !holds(">= 0.9", 0.89));
        assert!(holds("= 0", 0.0) && !holds("= 0", 1.0));
        assert!(!holds("<= 5", f64::NAN) && !holds(">= 5", f64::NAN) && !holds("= 5", f64::NAN));
        assert!("< 5".parse::<Bound>().is_err() && "<= five".parse::<Bound>().is_err());
    }

    #[test]
    fn what_does_not_fit_together_is_refused_by_name() {
        let refused = |from: &str, to: &str| parse(&FILE.replace(from, to), Form::default()).unwrap_err();
        assert!(refused("feeds = \"good\"", "feeds = \"bad\"").contains("event.wave"));
        assert!(refused("hosts = 10", "hosts = 0").contains("feeds.good"));
        assert!(refused("duration =", "duratoin =").contains("duratoin"));
    }
}
