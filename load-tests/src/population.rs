//! Populations of scripted feeds, chosen by a seed: a mix of formats, validators, change rates and failures as on the
//! web. For busy runs and for observing a fleet.
//!
//! The same plan produces the same population, byte for byte except for dates. It does not model any particular real
//! host.

use std::io;
use std::time::Duration;

use crate::origin::mix::mix;
use crate::{Coding, Conditions, Delivery, Feed, Format, Origin, Pace, Script, Stamp, Tag, bodies};

/// The parameters of a population.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Determines all random choices.
    pub seed: u64,
    /// The number of feeds, without hostile ones.
    pub feeds: usize,
    /// The number of hosts; some get many feeds, most get few.
    pub hosts: usize,
    /// Mean time between two items of the busiest feed.
    pub fastest: Duration,
    /// Mean time between two items of the quietest feed.
    pub slowest: Duration,
    /// The minimum number of newest items that each feed shows.
    pub least_shown: usize,
    /// The share of feeds with failures, 0 to 1.
    pub troubled: f64,
    /// The maximum `Retry-After` and `max-age`, in whole seconds.
    pub longest_wait: Duration,
    /// The number of hostile feeds, each on a separate host after the others.
    pub hostile: usize,
}

impl Default for Plan {
    /// Returns 100 feeds on 20 hosts, an item every 30 seconds to every hour, 15 % with failures, waits up to a minute,
    /// none hostile.
    fn default() -> Self {
        Plan {
            seed: 1,
            feeds: 100,
            hosts: 20,
            fastest: Duration::from_secs(30),
            slowest: Duration::from_secs(3600),
            least_shown: 10,
            troubled: 0.15,
            longest_wait: Duration::from_secs(60),
            hostile: 0,
        }
    }
}

impl Plan {
    /// Returns the number of hosts that an origin needs for this plan.
    pub fn hosts_needed(&self) -> usize {
        self.hosts.max(1) + self.hostile
    }
}

/// The behaviour of a feed in a population.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Always responds correctly.
    Good,
    /// Fails a few times at first, then is good.
    Flaky,
    /// 429 with `Retry-After` a few times at first, then is good.
    Throttling,
    /// Always fails.
    Failing,
    /// A permanent redirect to a good feed.
    Moved,
    /// Good for a few polls, then 410.
    Gone,
    /// A web page.
    NotAFeed,
    /// Always truncated.
    Truncated,
    /// Attacks the client: a bomb, an endless body, nested elements, silence, floods.
    Hostile,
}

/// One feed of a population.
#[derive(Clone, Debug)]
pub struct Member {
    /// The index of its host, as in [`Origin::url_on`].
    pub host: usize,
    /// The path to poll.
    pub path: String,
    /// Its behaviour.
    pub kind: Kind,
    /// The path of its items, for [`Origin::truth`]: its own, or the one it moved to. `None` if it has no items.
    pub items_at: Option<String>,
    scripts: Vec<(String, Script)>,
}

impl Member {
    /// Returns its absolute URL on this origin.
    pub fn url(&self, origin: &Origin) -> String {
        origin.url_on(self.host, &self.path)
    }
}

/// Many scripted feeds.
#[derive(Clone, Debug)]
pub struct Population {
    /// All feeds, hostile ones last.
    pub members: Vec<Member>,
}

impl Population {
    /// Generates the population of a plan.
    ///
    /// # Errors
    /// If a bomb cannot be created, which does not happen when writing to memory.
    pub fn generate(plan: &Plan) -> io::Result<Self> {
        let mut dice = Dice(plan.seed);
        let mut members: Vec<Member> = (0..plan.feeds).map(|number| member(plan, number, &mut dice)).collect();
        for number in 0..plan.hostile {
            members.push(hostile(plan, number)?);
        }
        Ok(Population { members })
    }

    /// Installs all scripts on an origin.
    pub fn install(&self, origin: &Origin) {
        for (path, script) in self.members.iter().flat_map(|member| &member.scripts) {
            origin.set(path, script.clone());
        }
    }

    /// Returns all URLs to poll.
    pub fn urls(&self, origin: &Origin) -> Vec<String> {
        self.members.iter().map(|member| member.url(origin)).collect()
    }

    /// Returns the members of one kind.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(move |member| member.kind == kind)
    }
}

fn member(plan: &Plan, number: usize, dice: &mut Dice) -> Member {
    // The square of a fraction favours small numbers: the first hosts are the big platforms.
    let host = dice.fraction().powi(2) * as_float(plan.hosts.max(1));
    let host = as_index(host);
    let format = *dice.pick(&[Format::Rss, Format::Rss, Format::Rss, Format::Atom, Format::Atom, Format::Json]);
    let ending = if format == Format::Json { "json" } else { "xml" };
    let path = format!("/feeds/{number}.{ending}");
    let kind = kind(plan, dice);
    let good = good_script(plan, format, number, dice);
    let waiting = dice.whole_seconds(plan.longest_wait).to_string();
    let few = 1 + dice.below(3);
    let one = |script: Script| vec![(path.clone(), script)];
    let (scripts, items_at) = match kind {
        Kind::Good | Kind::Hostile => (one(good), Some(path.clone())),
        Kind::Flaky => {
            let status = *dice.pick(&[500, 502, 503, 504]);
            (one(Script::status(status).times(few).then(good)), Some(path.clone()))
        }
        Kind::Throttling => {
            let throttled = Script::status(429).header("Retry-After", waiting).times(few);
            (one(throttled.then(good)), Some(path.clone()))
        }
        Kind::Failing => (one(Script::status(*dice.pick(&[404, 404, 403, 401, 500, 503]))), None),
        Kind::Moved => {
            let target = format!("/moved/{number}.{ending}");
            let redirect = Script::redirect(*dice.pick(&[301, 308]), target.clone());
            (vec![(path.clone(), redirect), (target.clone(), good)], Some(target))
        }
        Kind::Gone => (one(good.times(few).then(Script::status(410))), Some(path.clone())),
        Kind::NotAFeed => (one(Script::body("text/html; charset=utf-8", bodies::html_page())), None),
        Kind::Truncated => (one(good.deliver(Delivery::Truncated(100))), None),
    };
    Member { host, path, kind, items_at, scripts }
}

fn kind(plan: &Plan, dice: &mut Dice) -> Kind {
    if dice.fraction() >= plan.troubled {
        return Kind::Good;
    }
    match dice.below(20) {
        0..=4 => Kind::Flaky,
        5..=8 => Kind::Throttling,
        9..=12 => Kind::Failing,
        13..=15 => Kind::Moved,
        16..=17 => Kind::Gone,
        18 => Kind::NotAFeed,
        _ => Kind::Truncated,
    }
}

fn good_script(plan: &Plan, format: Format, number: usize, dice: &mut Dice) -> Script {
    let spread = plan.slowest.as_secs_f64() / plan.fastest.as_secs_f64().max(0.001);
    let mean = plan.fastest.mul_f64(spread.max(1.0).powf(dice.fraction()));
    let (tag, stamp, conditions) = match dice.below(20) {
        0..=10 => (Tag::Strong, Stamp::Date, Conditions::Exact),
        11..=12 => (Tag::Weak, Stamp::Date, Conditions::All),
        13 => (Tag::Text(b"no quotes {}".to_vec()), Stamp::None, Conditions::Exact),
        14 => (Tag::FreshOn304, Stamp::None, Conditions::Exact),
        15 => (Tag::Suffix("-gzip"), Stamp::None, Conditions::Exact),
        16..=17 => (Tag::None, Stamp::Date, Conditions::Exact),
        18 => (Tag::Strong, Stamp::Date, Conditions::Ignored),
        _ => (Tag::None, Stamp::None, Conditions::Ignored),
    };
    let feed = Feed::new(format)
        .title(format!("Feed number {number}"))
        .initial(1 + dice.below(15))
        .shown(plan.least_shown + dice.below(30))
        .pace(Pace::Random { mean, seed: dice.next() })
        .padding(dice.below(600))
        .tag(tag)
        .stamp(stamp)
        .conditions(conditions);
    let codings = [Coding::Gzip, Coding::Br, Coding::Zstd, Coding::Deflate];
    let script = match dice.below(4) {
        0 => Script::feed(feed),
        _ => Script::feed(feed).offer([*dice.pick(&codings)]),
    };
    match dice.below(5) {
        0 => script.header("Cache-Control", format!("max-age={}", dice.whole_seconds(plan.longest_wait))),
        _ => script,
    }
}

/// Returns one of the attacks, in rotation.
fn hostile(plan: &Plan, number: usize) -> io::Result<Member> {
    let rss = || Script::feed(Feed::rss());
    let script = match number % 12 {
        0 => Script::body("application/rss+xml", bodies::nested(900)),
        1 => Script::bomb(Coding::Gzip, 1024)?,
        2 => rss().deliver(Delivery::Endless),
        3 => Script::silent(),
        4 => Script::bomb(Coding::Br, 1024)?,
        5 => Script::bomb(Coding::Zstd, 1024)?,
        6 => Script::bomb(Coding::Deflate, 1024)?,
        7 => rss().deliver(Delivery::Drip(Duration::from_secs(1))),
        8 => rss().deliver(Delivery::HeaderFlood(20_000)),
        9 => rss().deliver(Delivery::InterimFlood(1_000_000)),
        10 => Script::raw(bodies::garbage(4096)),
        _ => rss().deliver(Delivery::SlowHead(Duration::from_secs(1))),
    };
    let path = format!("/hostile/{number}.xml");
    let scripts = vec![(path.clone(), script)];
    Ok(Member { host: plan.hosts.max(1) + number, path, kind: Kind::Hostile, items_at: None, scripts })
}

/// Random numbers determined by the seed.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }

    fn below(&mut self, limit: usize) -> usize {
        as_index(self.fraction() * as_float(limit))
    }

    /// Returns a number of at least 0 and less than 1.
    #[expect(clippy::cast_precision_loss, reason = "53 random bits are what a fraction holds")]
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// Returns a number from 1 to `longest`, at least 1.
    fn whole_seconds(&mut self, longest: Duration) -> usize {
        1 + self.below(usize::try_from(longest.as_secs()).unwrap_or(usize::MAX))
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of feeds and hosts are far below 2^53")]
fn as_float(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounding down a small count is meant")]
fn as_index(position: f64) -> usize {
    position as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(population: &Population) -> Vec<(usize, String, Kind)> {
        population.members.iter().map(|member| (member.host, member.path.clone(), member.kind)).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_population_and_another_seed_another_one() {
        let plan = Plan { feeds: 300, hostile: 12, ..Plan::default() };
        let population = Population::generate(&plan).unwrap();
        assert_eq!(paths(&population), paths(&Population::generate(&plan).unwrap()));
        let other = Population::generate(&Plan { seed: 2, ..plan }).unwrap();
        assert_ne!(paths(&population), paths(&other));
    }

    #[test]
    fn hosts_shares_and_kinds_are_as_planned() {
        let plan = Plan { feeds: 2000, hosts: 50, hostile: 12, ..Plan::default() };
        let population = Population::generate(&plan).unwrap();
        assert_eq!(population.members.len(), 2012);
        assert!(population.members.iter().all(|member| member.host < plan.hosts_needed()));
        let good = population.of_kind(Kind::Good).count();
        assert!((1600..1800).contains(&good), "{good} of 2,000 are good");
        let kinds =
            [Kind::Flaky, Kind::Throttling, Kind::Failing, Kind::Moved, Kind::Gone, Kind::NotAFeed, Kind::Truncated];
        assert!(kinds.iter().all(|kind| population.of_kind(*kind).next().is_some()));
        let on_first = population.members.iter().filter(|member| member.host == 0).count();
        assert!(on_first > 4 * 2000 / 50, "the first host is a platform: {on_first}");
    }

    #[test]
    fn no_trouble_means_that_all_are_good_and_plans_may_be_tiny() {
        let plan = Plan {
            feeds: 50,
            hosts: 0,
            troubled: 0.0,
            fastest: Duration::ZERO,
            slowest: Duration::ZERO,
            ..Plan::default()
        };
        let population = Population::generate(&plan).unwrap();
        assert_eq!(population.of_kind(Kind::Good).count(), 50);
        assert!(population.members.iter().all(|member| member.host == 0));
    }
}
