//! A sample of feeds with their subscribers: the reference simulation's recipe, draw by draw, so that the same
//! histories and seed produce the same fleet.

use super::histories::{DAY, HOUR, Series};
use super::random::{Random, cumulated};

/// The number of newest items in a response.
pub const ITEMS_SHOWN: usize = 15;

/// The share of each kind of feed.
pub(super) const MIX: [(&str, f64); 7] = [
    ("blog", 0.52),
    ("weekly", 0.09),
    ("release", 0.19),
    ("commits", 0.09),
    ("news", 0.07),
    ("planet", 0.02),
    ("auto", 0.02),
];
/// Subscribers are Zipf-distributed with this exponent.
pub(super) const ZIPF: f64 = -1.9;
/// A series must be longer than the simulated time by this factor.
const SPARE: f64 = 1.3;
/// The minimum history before a feed's start, as a part of the simulated time.
const HISTORY: f64 = 0.2;
/// If only the day is known, posts scatter around the feed's usual hour with this deviation.
const DAY_SCATTER: f64 = 2.0 * HOUR;

/// The parameters of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recipe {
    /// Determines all random choices.
    pub seed: u64,
    /// The number of feeds.
    pub feeds: usize,
    /// The number of simulated days.
    pub days: u32,
    /// The maximum number of subscribers of a feed: with more, a single feed can dominate the weighted mean.
    pub max_subscribers: u32,
    /// The share of feeds whose posts are pushed.
    pub pushed: f64,
}

impl Default for Recipe {
    /// Returns 300 feeds, 60 days, up to 100 subscribers.
    fn default() -> Self {
        Recipe { seed: 1, feeds: 300, days: 60, max_subscribers: 100, pushed: 0.0 }
    }
}

/// A feed of a sample.
#[derive(Clone, Debug)]
pub struct SampledFeed {
    /// Its subscribers, which weight its delays.
    pub subscribers: u32,
    /// Whether they are active. NewsGator polled a single subscriber's feed accordingly.
    pub active: bool,
    /// The start of the simulated time.
    pub start: f64,
    /// Its end.
    pub end: f64,
    /// The newest items at the start, as the first document shows them.
    pub shown: Vec<f64>,
    /// The posts in the simulated time, ascending.
    pub posts: Vec<f64>,
    /// The seed of its own random numbers.
    pub seed: f64,
    /// A hub pushes its posts, all of them and at once.
    pub pushed: bool,
}

impl SampledFeed {
    /// Chooses the feeds that are pushed without a separate draw, so that all else stays as it is.
    fn is_pushed(seed: f64, share: f64) -> bool {
        (seed * 7919.0).fract() < share
    }
}

/// Creates the sample; `None` if no series is long enough for it.
pub fn sample(histories: &[Series], recipe: &Recipe) -> Option<Vec<SampledFeed>> {
    let mut random = Random::new(recipe.seed);
    let length = f64::from(recipe.days) * DAY;
    let of_kind = |kind: &str| -> Vec<&Series> {
        histories.iter().filter(|series| series.kind == kind && span(series) > length * SPARE).collect()
    };
    let kinds: Vec<(Vec<&Series>, f64)> = MIX.iter().map(|(kind, share)| (of_kind(kind), *share)).collect();
    let kinds: Vec<_> = kinds.into_iter().filter(|(series, _)| !series.is_empty()).collect();
    if kinds.is_empty() {
        return None;
    }
    let shares = cumulated(kinds.iter().map(|(_, share)| *share));
    let zipf = cumulated((1..=recipe.max_subscribers.max(1)).map(|count| f64::from(count).powf(ZIPF)));
    let subscribers: Vec<usize> = (0..recipe.feeds).map(|_| 1 + random.weighted(&zipf)).collect();
    let feeds = subscribers.into_iter().map(|subscribers| {
        let series = &kinds[random.weighted(&shares)].0;
        let series = series[random.below(series.len())];
        feed(series, u32::try_from(subscribers).unwrap_or(u32::MAX), length, &mut random)
    });
    let pushed = |feed: SampledFeed| SampledFeed { pushed: SampledFeed::is_pushed(feed.seed, recipe.pushed), ..feed };
    Some(feeds.map(pushed).collect())
}

fn span(series: &Series) -> f64 {
    match (series.times.first(), series.times.last()) {
        (Some(first), Some(last)) => last - first,
        _ => 0.0,
    }
}

fn feed(series: &Series, subscribers: u32, length: f64, random: &mut Random) -> SampledFeed {
    let first = series.times.first().copied().unwrap_or(0.0);
    let last = first + span(series);
    let start = random.uniform(first + HISTORY * length, last - length);
    let end = start + length;
    let times = if series.days_only {
        let hour = random.uniform(0.0, 24.0);
        let mut times: Vec<f64> = series.times.iter().map(|at| at + hour * HOUR + random.normal(DAY_SCATTER)).collect();
        times.sort_by(f64::total_cmp);
        times
    } else {
        series.times.clone()
    };
    let (from, to) = (times.partition_point(|at| *at <= start), times.partition_point(|at| *at <= end));
    SampledFeed {
        subscribers,
        start,
        end,
        shown: times[from.saturating_sub(ITEMS_SHOWN)..from].to_vec(),
        posts: times[from..to].to_vec(),
        seed: random.fraction(),
        active: random.fraction() < 0.5,
        pushed: false,
    }
}
