//! What schedulers tell each other: their configurations, and what they did of late.

use std::time::Duration;

use super::shards::{Shards, millis};
use crate::schedule::{Rates, ScheduleError};

/// How long the configuration of a scheduler is kept that notes it no more.
const CONFIGURATION_KEPT: Duration = Duration::from_secs(30);
/// The same of its rates, which it notes once a minute.
const RATES_KEPT: Duration = Duration::from_secs(90);

/// See [`ScheduleView::configurations`](crate::schedule::ScheduleView::configurations).
pub(super) async fn configurations(shards: &Shards, own: &str) -> Result<Vec<String>, ScheduleError> {
    let key = format!("{}:schedule:configurations", shards.home.tag);
    let noted = shards.server.eval(shards.home.slot, &shards.scripts.configurations, |call, _| {
        call.key(&key).arg(own).arg(millis(CONFIGURATION_KEPT));
    });
    noted.await.map_err(|error| shards.failed("note a configuration", error))
}

/// See [`ScheduleView::rates`](crate::schedule::ScheduleView::rates).
pub(super) async fn rates(shards: &Shards, own: &str, rates: Rates) -> Result<Vec<Rates>, ScheduleError> {
    let key = format!("{}:schedule:rates", shards.home.tag);
    let text = format!("{} {}", rates.claimed, rates.started);
    let noted = shards.server.eval(shards.home.slot, &shards.scripts.rates, |call, _| {
        call.key(&key).arg(own).arg(&text).arg(millis(RATES_KEPT));
    });
    let all: Vec<String> = noted.await.map_err(|error| shards.failed("note rates", error))?;
    // What another version wrote otherwise is left out.
    Ok(all.iter().filter_map(|text| read(text)).collect())
}

fn read(text: &str) -> Option<Rates> {
    let (claimed, started) = text.split_once(' ')?;
    let number = |text: &str| text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    Some(Rates { claimed: number(claimed)?, started: number(started)? })
}
