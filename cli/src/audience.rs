//! The options that `feed add` and `feed set` share: a feed's subscribers, priority and interval.

use clap::Args;
use common::calm::CalmGroup;
use serde_json::{Map, Value, json};

use crate::usage::Usage;
use crate::values;

/// Who reads a feed.
#[derive(Debug, Args)]
pub(crate) struct AudienceArgs {
    /// Total number of subscribers; decides the category
    #[arg(long, value_name = "N", value_parser = values::number::<u32>)]
    subscribers: Option<u32>,
    /// Number of active subscribers among them; all if only --subscribers is given
    #[arg(long, value_name = "N", value_parser = values::number::<u32>)]
    active_subscribers: Option<u32>,
    /// New content must arrive within two minutes (category A)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    sla: Option<bool>,
    /// Polls the feed like one with many subscribers (category B)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    important: Option<bool>,
    /// Hides the feed from callers without a token (/status, pings, the hub)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    private: Option<bool>,
    /// Subscribers who want entries once a day, at midnight in this IANA time zone; =N is their number. May be repeated; "none"
    /// removes all. Without --subscribers, a feed that has no count yet has no other subscribers
    #[arg(long, value_name = "ZONE[=N]", value_parser = calm)]
    calm: Vec<Calm>,
    /// Polls at this interval instead of the category's, such as 30m, at most 365d; "none" removes it
    #[arg(long, value_name = "DURATION", value_parser = interval)]
    interval: Option<Interval>,
}

/// An interval, or none.
#[derive(Clone, Copy, Debug)]
struct Interval(Option<f64>);

fn interval(text: &str) -> Result<Interval, String> {
    if text == "none" {
        return Ok(Interval(None));
    }
    let duration =
        humantime::parse_duration(text).map_err(|_| "it must be a duration, such as 30m or 1h 30m, or none")?;
    Ok(Interval(Some(duration.as_secs_f64())))
}

/// A group of calm subscribers, or none.
#[derive(Clone, Copy, Debug)]
struct Calm(Option<CalmGroup>);

fn calm(text: &str) -> Result<Calm, String> {
    if text == "none" {
        return Ok(Calm(None));
    }
    let (zone, subscribers) = text.split_once('=').unwrap_or((text, "1"));
    let accepted = "it must be a time zone and a number, such as Europe/Paris=3, or none";
    let subscribers = subscribers.parse().map_err(|_| accepted)?;
    Ok(Calm(Some(CalmGroup { zone: zone.parse()?, subscribers })))
}

/// Returns the groups, or `None` if nothing is said about them. Each zone has one group.
fn calm_groups(given: &[Calm]) -> Result<Option<Vec<CalmGroup>>, Usage> {
    let groups: Vec<CalmGroup> = given.iter().filter_map(|calm| calm.0).collect();
    if !groups.is_empty() && groups.len() < given.len() {
        return Err(Usage("--calm none removes all groups; give it alone, or only time zones".to_owned()));
    }
    for (index, group) in groups.iter().enumerate() {
        if groups[..index].iter().any(|other| other.zone == group.zone) {
            return Err(Usage(format!("--calm names {} twice; give each time zone once", group.zone)));
        }
    }
    Ok((!given.is_empty()).then_some(groups))
}

impl AudienceArgs {
    /// Returns the fields that were given, as the API reads them.
    pub(crate) fn to_json(&self) -> Result<Map<String, Value>, Usage> {
        let calm = calm_groups(&self.calm)?;
        let fields = [
            ("subscribers", self.subscribers.map(Value::from)),
            ("active_subscribers", self.active_subscribers.map(Value::from)),
            ("sla", self.sla.map(Value::from)),
            ("important", self.important.map(Value::from)),
            ("private", self.private.map(Value::from)),
            ("calm", calm.map(|groups| json!(groups))),
            ("interval", self.interval.map(|interval| json!(interval.0))),
        ];
        Ok(fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
    }
}
