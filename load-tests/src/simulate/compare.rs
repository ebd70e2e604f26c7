//! Compares policies at the same number of polls: each has one parameter, and a search finds its value.

use std::fmt;
use std::str::FromStr;

use common::config::PolicyConfig;

use super::decided::{Decided, adaptive, classes};
use super::figures::Figures;
use super::oracle;
use super::published::{Commafeed, Fixed, Miniflux, Newsblur, SquareRoot};
use super::sample::SampledFeed;
use super::trial::run;

/// A policy that can be simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simulated {
    /// Our adaptive rule.
    Feedfleet,
    /// Our classes, at uniformly drawn loads.
    Newsgator,
    /// The same interval for all feeds.
    Fixed,
    /// miniflux' entry frequency.
    Miniflux,
    /// NewsBlur's rule.
    Newsblur,
    /// CommaFeed's empirical interval.
    Commafeed,
    /// The square-root rule at an estimated rate.
    SquareRoot,
    /// Knows every posting time in advance.
    Oracle,
}

impl Simulated {
    /// All policies, ours first.
    pub const ALL: [Simulated; 8] = [
        Simulated::Feedfleet,
        Simulated::Newsgator,
        Simulated::Fixed,
        Simulated::Miniflux,
        Simulated::Newsblur,
        Simulated::Commafeed,
        Simulated::SquareRoot,
        Simulated::Oracle,
    ];

    /// Returns the name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Simulated::Feedfleet => "feedfleet",
            Simulated::Newsgator => "newsgator",
            Simulated::Fixed => "fixed",
            Simulated::Miniflux => "miniflux",
            Simulated::Newsblur => "newsblur",
            Simulated::Commafeed => "commafeed",
            Simulated::SquareRoot => "square-root",
            Simulated::Oracle => "oracle",
        }
    }

    /// Returns the range of its parameter, and whether a higher value means more polls.
    fn knob(self) -> Knob {
        let (least, most, more_polls) = match self {
            Simulated::Feedfleet => (1e-4, 1e5, false),
            Simulated::Newsgator => (0.02, 100.0, false),
            Simulated::Fixed => (60.0, 864_000.0, false),
            Simulated::Miniflux => (0.01, 50_000.0, true),
            Simulated::Newsblur | Simulated::Commafeed => (0.002, 200.0, false),
            Simulated::SquareRoot => (0.5, 1e9, false),
            Simulated::Oracle => (1.0, 1e8, false),
        };
        Knob { least, most, more_polls }
    }

    /// Runs it on a sample with its parameter at `knob`.
    pub fn run(self, sample: &[SampledFeed], defaults: &PolicyConfig, knob: f64) -> Figures {
        let decided = |config: PolicyConfig, price: f64| run(sample, |feed| Decided::new(feed, &config, price));
        match self {
            Simulated::Feedfleet => decided(adaptive(defaults), knob),
            Simulated::Newsgator => decided(classes(defaults, knob), defaults.price),
            Simulated::Fixed => run(sample, |_| Fixed { interval: knob }),
            Simulated::Miniflux => run(sample, |feed| Miniflux::new(feed, knob)),
            Simulated::Newsblur => run(sample, |feed| Newsblur::new(feed, knob)),
            Simulated::Commafeed => run(sample, |feed| Commafeed::new(feed, knob)),
            Simulated::SquareRoot => run(sample, |feed| SquareRoot::new(feed, knob)),
            Simulated::Oracle => oracle::run(sample, knob),
        }
    }

    /// Runs it at this number of polls per feed and day, or as close as possible: the oracle cannot use many.
    pub fn at_polls(self, sample: &[SampledFeed], defaults: &PolicyConfig, polls_per_feed_day: f64) -> Figures {
        self.search(sample, defaults, |figures| figures.polls_per_feed_day / polls_per_feed_day)
    }

    /// Runs it with as many polls as it needs for this weighted mean delay.
    pub fn at_mean(self, sample: &[SampledFeed], defaults: &PolicyConfig, minutes: f64) -> Figures {
        self.search(sample, defaults, |figures| minutes / figures.weighted_mean_minutes)
    }

    /// Searches for the parameter at which `excess`, which grows with the polls, is 1.
    fn search(self, sample: &[SampledFeed], defaults: &PolicyConfig, excess: impl Fn(&Figures) -> f64) -> Figures {
        let Knob { mut least, mut most, more_polls } = self.knob();
        let mut found = Figures::default();
        for _ in 0..STEPS {
            let knob = (least * most).sqrt();
            found = self.run(sample, defaults, knob);
            let excess = excess(&found);
            if (excess - 1.0).abs() < TOLERANCE {
                break;
            }
            *(if (excess > 1.0) == more_polls { &mut most } else { &mut least }) = knob;
        }
        found
    }
}

/// The tolerance of a search; rules that round may not get closer.
const TOLERANCE: f64 = 0.002;
const STEPS: usize = 22;

/// The range of a policy's parameter.
struct Knob {
    least: f64,
    most: f64,
    more_polls: bool,
}

impl fmt::Display for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Simulated {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|policy| policy.as_str() == name);
        found.ok_or_else(|| format!("no such policy; there are {}", Self::ALL.map(Self::as_str).join(", ")))
    }
}
