//! The table of policies and budgets, and the ratios that the policy must meet, over several samples.

use common::config::PolicyConfig;
use serde::Serialize;

use super::compare::Simulated;
use super::figures::Figures;
use super::sample::SampledFeed;

/// One row: a policy at a budget.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Row {
    /// The policy.
    #[serde(serialize_with = "name")]
    pub policy: Simulated,
    /// The fraction of the polls that NewsGator makes with its own intervals.
    pub budget: f64,
    /// The results over all samples.
    #[serde(flatten)]
    pub figures: Figures,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn name<S: serde::Serializer>(policy: &Simulated, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(policy)
}

/// Samples, and NewsGator's results on each.
pub struct Comparison {
    samples: Vec<Vec<SampledFeed>>,
    own: Vec<Figures>,
    defaults: PolicyConfig,
}

/// The ratios G1 to G3, and further conditions.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Goals {
    /// G1: our weighted mean delay at NewsGator's own number of polls, as a fraction of NewsGator's.
    pub mean_at_equal_polls: f64,
    /// G2: our polls at NewsGator's weighted mean delay, as a fraction of NewsGator's.
    pub polls_at_equal_mean: f64,
    /// G3: our weighted mean delay at a quarter of NewsGator's polls, as a fraction of the better of NewsBlur's and
    /// CommaFeed's at the same number.
    pub mean_at_a_quarter: f64,
    /// Items missed at NewsGator's own number of polls, as a fraction of NewsGator's.
    pub missed: f64,
    /// The same, of the items that a poll every 15 minutes would have seen.
    pub missed_of_catchable: f64,
    /// The largest share of our polls in hot minutes.
    pub hot_share: f64,
    /// Our polls less than 15 minutes after the one before.
    pub polls_under_floor: f64,
    /// Our polls per feed and day at the configured price.
    pub polls_per_feed_day: f64,
}

impl Comparison {
    /// Creates a comparison over these samples, with these settings for everything except a policy's parameter.
    pub fn new(samples: Vec<Vec<SampledFeed>>, defaults: PolicyConfig) -> Self {
        let own = samples.iter().map(|sample| Simulated::Newsgator.run(sample, &defaults, 1.0)).collect();
        Comparison { samples, own, defaults }
    }

    /// Runs a policy at a fraction of NewsGator's polls.
    pub fn row(&self, policy: Simulated, budget: f64) -> Row {
        let each = self.samples.iter().zip(&self.own).map(|(sample, own)| {
            if policy == Simulated::Newsgator && budget == 1.0 {
                return *own;
            }
            policy.at_polls(sample, &self.defaults, own.polls_per_feed_day * budget)
        });
        Row { policy, budget, figures: Figures::pooled(&each.collect::<Vec<_>>()) }
    }

    /// Returns the ratios. Calls `done` after each of [`Self::GOAL_STEPS`] steps.
    pub fn goals(&self, mut done: impl FnMut()) -> Goals {
        let own = Figures::pooled(&self.own);
        let mut step = |policy: Simulated, budget: f64| {
            let figures = self.row(policy, budget).figures;
            done();
            figures
        };
        let ours = step(Simulated::Feedfleet, 1.0);
        let ours_quarter = step(Simulated::Feedfleet, 0.25);
        let (newsblur, commafeed) = (step(Simulated::Newsblur, 0.25), step(Simulated::Commafeed, 0.25));
        let at_mean = self
            .samples
            .iter()
            .zip(&self.own)
            .map(|(sample, own)| Simulated::Feedfleet.at_mean(sample, &self.defaults, own.weighted_mean_minutes));
        let ours_at_mean = Figures::pooled(&at_mean.collect::<Vec<_>>());
        done();
        let price = self.defaults.price;
        let at_price = self.samples.iter().map(|sample| Simulated::Feedfleet.run(sample, &self.defaults, price));
        let at_price = Figures::pooled(&at_price.collect::<Vec<_>>());
        let all = [ours, ours_quarter, ours_at_mean];
        Goals {
            mean_at_equal_polls: ours.weighted_mean_minutes / own.weighted_mean_minutes,
            polls_at_equal_mean: ours_at_mean.polls_per_feed_day / own.polls_per_feed_day,
            mean_at_a_quarter: ours_quarter.weighted_mean_minutes
                / newsblur.weighted_mean_minutes.min(commafeed.weighted_mean_minutes),
            missed: ours.missed / own.missed.max(1.0),
            missed_of_catchable: if own.missed_of_catchable > 0.0 {
                ours.missed_of_catchable / own.missed_of_catchable
            } else {
                0.0
            },
            hot_share: all.iter().map(|figures| figures.hot_share).fold(0.0, f64::max),
            polls_under_floor: all.iter().map(|figures| figures.under_floor).sum(),
            polls_per_feed_day: at_price.polls_per_feed_day,
        }
    }

    /// The number of steps of [`Self::goals`].
    pub const GOAL_STEPS: usize = 5;
}
