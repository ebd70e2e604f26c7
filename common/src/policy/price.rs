//! The controller of the price: how the fleet's polls are made to fit what it can afford.
//!
//! Overload shows at once in the feeds that become due and in the backlog, but a feed follows a new price only at its next
//! decision, an interval later. A controller that looked at due feeds alone would go on raising the price all that while,
//! and swing. So the demand is reckoned ahead: the feeds that become due now were planned at an older price, and by how much
//! the minute's decisions lengthened intervals says what demand comes back.
//!
//! Pure like the rest: who measures, how often, and where the price is kept is the scheduler's part.

use std::time::Duration;

/// What a scheduler saw since it last looked at the price.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// Feeds that became due, a second.
    pub newly_due: f64,
    /// Feeds that are due, and not because they wait for their host.
    pub backlog: f64,
    /// What the decisions did to intervals.
    pub planned: Lengthening,
}

/// By how much decisions made intervals longer or shorter than the ones before: the mean of the logarithms, in which what
/// comes and goes with the hour cancels out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lengthening {
    logs: f64,
    decisions: u32,
}

/// How much of the way to the right price a fleet goes in a minute that counts many polls. The demand is reckoned ahead, so there
/// is no delay that would make this swing; what is left is the noise of a minute's count, which a higher gain would follow.
const GAIN: f64 = 0.07;
/// A fleet with so many polls a minute goes half of that, and one with fewer less: so the noise moves intervals by less than a
/// tenth, however small the fleet.
const FEW_POLLS: f64 = 10.0;
/// A demand further off than this counts as this far: no minute raises the price by more than a half.
const FAR_OFF: f64 = 4.0;
/// So much of a backlog is wanted beside what becomes due. It is seen only an interval later what that did: a shorter time would
/// raise the price all that while, and swing.
const DRAIN_SECONDS: f64 = 5400.0;
/// It is at most this part of what the fleet can do. Half of it works the backlog off, because what becomes due falls by as
/// much; so the demand stays within a tenth of what can be done, and an outage of hours is no reason for long intervals.
const DRAIN_SHARE: f64 = 0.1;
/// The price is at most so many times the configured one: intervals a hundred times as long.
const DEAREST: f64 = 10_000.0;

impl Lengthening {
    /// Notes a decision on a feed whose last interval was `before`.
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
    /// Polls a second that are wanted once all feeds know the present price, and part of the backlog beside them.
    pub fn per_second(&self, affordable: Option<f64>) -> f64 {
        let room = affordable.map_or(f64::INFINITY, |affordable| affordable * DRAIN_SHARE);
        self.newly_due.max(0.0) / self.planned.factor() + (self.backlog / DRAIN_SECONDS).min(room)
    }
}

/// The price for the next minute. `affordable`: polls a second that the fleet can make; `None`: more than are wanted.
/// Demand goes with one over the root of the price. The correction is linear in the demand, so that the noise of counts does not
/// pull it to one side. Never below the configured price: what a fleet can do beyond that, it leaves undone.
pub fn adjusted(price: f64, configured: f64, demand: f64, affordable: Option<f64>) -> f64 {
    let excess = affordable.map_or(0.0, |affordable| demand / affordable).min(FAR_OFF);
    let gain = affordable.map_or(GAIN, |affordable| GAIN / (1.0 + FEW_POLLS / (affordable * 60.0)));
    (price * (2.0 * gain * (excess - 1.0)).exp()).clamp(configured, configured * DEAREST)
}
