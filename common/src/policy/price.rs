//! The price controller: it fits the fleet's polls to its capacity.
//!
//! Overload shows at once in the number of feeds that become due and in the backlog, but a feed follows a new price
//! only at its next decision, an interval later. A controller that looked at due feeds alone would raise the price all
//! that time, and oscillate. So it predicts the demand: the feeds that become due now were planned at an older price,
//! and the mean lengthening of intervals in this minute's decisions shows what demand will return.
//!
//! Pure, like the rest: the scheduler measures demand, calls this function periodically and stores the price.

use std::time::Duration;

/// What a scheduler measured since it last adjusted the price.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// Feeds that became due, per second.
    pub newly_due: f64,
    /// Feeds that are due, except those that wait for their host.
    pub backlog: f64,
    /// How decisions changed intervals.
    pub planned: Lengthening,
}

/// By how much decisions made intervals longer or shorter than before: the mean of the logarithms, in which daily
/// patterns cancel out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lengthening {
    logs: f64,
    decisions: u32,
}

/// The fraction of the distance to the right price that one minute covers when it counts many polls. The demand is
/// predicted, so there is no delay that would make this oscillate; what remains is the noise of one minute's count,
/// which a higher gain would follow.
const GAIN: f64 = 0.07;
/// A fleet with this many polls a minute uses half of [`GAIN`], and one with fewer uses less, so that noise changes
/// intervals by less than a tenth, however small the fleet is.
const FEW_POLLS: f64 = 10.0;
/// The maximum ratio of demand to capacity that counts: no minute raises the price by more than a half.
const FAR_OFF: f64 = 4.0;
/// The time in which the backlog is to be worked off, beside what becomes due. The effect shows only an interval later;
/// a shorter time would raise the price all that while, and oscillate.
const DRAIN_SECONDS: f64 = 5400.0;
/// The maximum share of the capacity for the backlog. Half of it works the backlog off, because what becomes due falls
/// by as much; so the demand stays within a tenth of the capacity, and an outage of hours does not cause long
/// intervals.
const DRAIN_SHARE: f64 = 0.1;
/// The maximum ratio of the price to the configured one: intervals a hundred times as long.
const DEAREST: f64 = 10_000.0;

impl Lengthening {
    /// Records a decision on a feed whose last interval was `before`.
    pub fn note(&mut self, before: Duration, after: Duration) {
        let log = (after.as_secs_f64() / before.as_secs_f64()).ln();
        if log.is_finite() {
            self.logs += log;
            self.decisions = self.decisions.saturating_add(1);
        }
    }

    fn factor(self) -> f64 {
        if self.decisions == 0 { 1.0 } else { (self.logs / f64::from(self.decisions)).exp() }
    }
}

impl Demand {
    /// Returns the polls per second that are wanted once all feeds know the present price, plus a part of the backlog.
    pub fn per_second(&self, affordable: Option<f64>) -> f64 {
        let room = affordable.map_or(f64::INFINITY, |affordable| affordable * DRAIN_SHARE);
        self.newly_due.max(0.0) / self.planned.factor() + (self.backlog / DRAIN_SECONDS).min(room)
    }
}

/// Returns the price for the next minute. `affordable` is the number of polls per second that the fleet can make;
/// `None`: more than are wanted. Demand is proportional to one over the square root of the price. The correction is
/// linear in the demand, so that the noise of counts does not bias it. Each of the `schedulers` that correct the price makes its part of
/// the correction. The price never falls below the configured one: spare capacity stays unused.
pub fn adjusted(price: f64, configured: f64, demand: f64, affordable: Option<f64>, schedulers: usize) -> f64 {
    let excess = affordable.map_or(0.0, |affordable| demand / affordable).min(FAR_OFF);
    let gain = affordable.map_or(GAIN, |affordable| GAIN / (1.0 + FEW_POLLS / (affordable * 60.0)));
    let part = gain / schedulers.max(1) as f64;
    (price * (2.0 * part * (excess - 1.0)).exp()).clamp(configured, configured * DEAREST)
}
