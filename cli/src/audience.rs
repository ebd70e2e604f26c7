//! The options that `feed add` and `feed set` share: a feed's subscribers, priority and interval.

use clap::Args;
use common::calm::CalmGroup;
use serde_json::{Map, Value, json};

use crate::values;

/// Who reads a feed.
#[derive(Debug, Args)]
pub(crate) struct AudienceArgs {
    /// Subscribers in all; decides the category
    #[arg(long, value_name = "N", value_parser = values::number::<u32>)]
    subscribers: Option<u32>,
    /// Of these, the ones that read at present; all of them if not given
    #[arg(long, value_name = "N", value_parser = values::number::<u32>)]
    active_subscribers: Option<u32>,
    /// Content has to arrive within two minutes (category A)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    sla: Option<bool>,
    /// Polled like a feed with many subscribers (category B)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    important: Option<bool>,
    /// Not named to anybody who asks from outside
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    private: Option<bool>,
    /// Subscribers who want the feed at their midnight: an IANA zone, and how many if there are several. Can be repeated;
    /// "none" removes all of them. Without --subscribers there are no others
    #[arg(long, value_name = "ZONE[=N]", value_parser = calm)]
    calm: Vec<Calm>,
    /// Polls at this interval instead of the category's, such as 30m; "none" takes it away
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
    let duration = humantime::parse_duration(text).map_err(|_| "such as 30m, 1h 30m, or none")?;
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
    let subscribers = subscribers.parse().map_err(|_| "such as Europe/Paris=3, or none".to_owned())?;
    Ok(Calm(Some(CalmGroup { zone: zone.parse()?, subscribers })))
}

impl AudienceArgs {
    /// Returns the fields that were given, as the API reads them.
    pub(crate) fn to_json(&self) -> Map<String, Value> {
        let fields = [
            ("subscribers", self.subscribers.map(Value::from)),
            ("active_subscribers", self.active_subscribers.map(Value::from)),
            ("sla", self.sla.map(Value::from)),
            ("important", self.important.map(Value::from)),
            ("private", self.private.map(Value::from)),
            (
                "calm",
                (!self.calm.is_empty()).then(|| json!(self.calm.iter().filter_map(|calm| calm.0).collect::<Vec<_>>())),
            ),
            ("interval", self.interval.map(|interval| json!(interval.0))),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}
