//! The bundled internet: a few hundred feeds on loopback listeners of this process, each with a script, and outages.
//!
//! It runs on its own thread, so that the fleet cannot delay the servers' log, from which the fleet's behaviour is
//! judged. Nothing here is random: each run is the same.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use common::policy::Audience;
use load_tests::{Coding, Conditions, Delivery, Feed, Format, Origin, Pace, Script, StallWatch, Stamp, Tag, bodies};
use tokio::runtime::{Builder, Runtime};

use super::names;

/// Hosts with many feeds each.
const PLATFORMS: usize = 4;
const FEEDS_ON_PLATFORMS: usize = 64;
/// Hosts with a few feeds each.
const SITES: usize = 52;
/// The maximum duration of a demo. It bounds the scripts and the log of all requests that the judge reads.
pub(super) const LONGEST: Duration = Duration::from_secs(600);
/// A platform goes down at this second, and again after each period; an outage lasts `OUTAGE_LASTS` seconds.
const OUTAGE_AT: u64 = 15;
const OUTAGE_PERIOD: u64 = 40;
const OUTAGE_LASTS: u64 = 6;

/// The running internet. Stops when dropped.
pub(super) struct Internet {
    /// The servers, and their log.
    pub(super) origin: Arc<Origin>,
    /// Records stalls of the fleet and of the servers, which the judge must not count against the fleet.
    pub(super) stalls: StallWatch,
    /// All feeds.
    pub(super) sites: Vec<Site>,
    by_path: HashMap<String, usize>,
    host_names: HashMap<SocketAddr, String>,
    runtime: Option<Runtime>,
}

/// One feed.
pub(super) struct Site {
    /// The name shown in the demo.
    pub(super) name: String,
    /// The URL that the fleet polls.
    pub(super) url: String,
    /// Its audience.
    pub(super) audience: Audience,
}

/// A feed before it has an address.
struct Draft {
    name: String,
    host: usize,
    path: String,
    scripts: Vec<(String, Script)>,
}

impl Internet {
    /// Starts the listeners.
    pub(super) async fn open() -> anyhow::Result<Self> {
        let drafts = drafts()?;
        let hosts = drafts.iter().map(|draft| draft.host + 1).max().unwrap_or(1);
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("internet").enable_all().build()?;
        let addresses = vec![SocketAddr::from(([127, 0, 0, 1], 0)); hosts];
        let listening = runtime.spawn(async move { Origin::listen(&addresses).await });
        let origin = listening.await?.with_context(|| format!("cannot listen on {hosts} loopback ports"))?;
        let origin = Arc::new(origin);
        let stalls = StallWatch::since(Instant::now() - origin.elapsed());
        runtime.spawn(stalls.clone().watch_runtime());
        tokio::spawn(stalls.clone().watch_runtime());
        let mut internet = Internet {
            host_names: (0..hosts).map(|host| (origin.address(host), names::host(host))).collect(),
            origin: Arc::clone(&origin),
            stalls,
            sites: Vec::with_capacity(drafts.len()),
            by_path: HashMap::new(),
            runtime: None,
        };
        for (number, draft) in drafts.into_iter().enumerate() {
            internet.sites.push(Site {
                url: origin.url_on(draft.host, &draft.path),
                name: draft.name,
                audience: audience(number),
            });
            for (path, script) in draft.scripts {
                origin.set(&path, script);
                internet.by_path.insert(path, number);
            }
        }
        runtime.spawn(outages(origin));
        internet.runtime = Some(runtime);
        Ok(internet)
    }

    /// Returns the index of the feed at a path.
    pub(super) fn at_path(&self, path: &str) -> Option<usize> {
        self.by_path.get(path).copied()
    }

    /// Returns the name of the host at an address such as `127.0.0.1:4711`.
    pub(super) fn host_name(&self, address: &str) -> String {
        let known = address.parse().ok().and_then(|address: SocketAddr| self.host_names.get(&address));
        known.cloned().unwrap_or_else(|| address.to_owned())
    }

    /// Returns the number of hosts.
    pub(super) fn hosts(&self) -> usize {
        self.host_names.len()
    }
}

impl Drop for Internet {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Does not wait: a runtime must not block another one's thread.
            runtime.shutdown_background();
        }
    }
}

/// Returns the host that is down at this time since the start.
pub(super) fn down_at(elapsed: Duration) -> Option<String> {
    let since_first = elapsed.as_secs().checked_sub(OUTAGE_AT)?;
    (since_first % OUTAGE_PERIOD < OUTAGE_LASTS).then(|| names::host(platform(since_first / OUTAGE_PERIOD)))
}

fn platform(round: u64) -> usize {
    usize::try_from(round).map_or(0, |round| round % PLATFORMS)
}

async fn outages(origin: Arc<Origin>) {
    for round in 0.. {
        let start = Duration::from_secs(OUTAGE_AT + round * OUTAGE_PERIOD);
        tokio::time::sleep(start.saturating_sub(origin.elapsed())).await;
        origin.take_down(platform(round)).await;
        let end = start + Duration::from_secs(OUTAGE_LASTS);
        tokio::time::sleep(end.saturating_sub(origin.elapsed())).await;
        if let Err(error) = origin.bring_up(platform(round)).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "a host of the demo stays down");
        }
    }
}

fn drafts() -> anyhow::Result<Vec<Draft>> {
    let hostile = hostile()?;
    let ordinary = names::MOST - hostile.len();
    let mut drafts: Vec<Draft> = (0..ordinary).map(draft).collect();
    for (number, (name, script)) in hostile.into_iter().enumerate() {
        let path = format!("/hostile/{number}");
        let scripts = vec![(path.clone(), script)];
        drafts.push(Draft { name: name.to_owned(), host: PLATFORMS + SITES + number, path, scripts });
    }
    Ok(drafts)
}

/// Returns the n-th ordinary feed: its location and its script.
fn draft(number: usize) -> Draft {
    let host = match number.checked_sub(FEEDS_ON_PLATFORMS) {
        None => number % PLATFORMS,
        Some(rest) => PLATFORMS + (rest * 7 + rest / SITES) % SITES,
    };
    let path = format!("/feeds/{number}");
    let good = good(number);
    let seconds = |seconds: usize| Duration::from_secs(seconds as u64);
    // 37 and 100 are coprime: the shares hold in every hundred feeds, and neighbours differ.
    let script = match number * 37 % 100 {
        0..=71 => good,
        72..=78 => spells(&good, 6 + number % 20, 35, |from| {
            Script::status(if number.is_multiple_of(2) { 503 } else { 500 }).until(seconds(from + 5))
        }),
        79..=83 => spells(&good, 4 + number % 18, 24, |from| {
            let wait = 3 + (number + from) % 4;
            Script::status(429).header("Retry-After", wait.to_string())
        }),
        84..=88 => Script::status([404, 404, 403, 401, 500][number % 5]),
        89..=91 => {
            let target = format!("/moved/{number}");
            let redirect = Script::redirect(301, target.clone());
            let scripts = vec![(path.clone(), redirect), (target, good)];
            return Draft { name: names::feed(number), host, path, scripts };
        }
        92..=94 => good.until(seconds(5 + number % 45)).then(Script::status(410)),
        95 => Script::body("application/rss+xml", bodies::html_page()),
        96 => good.header("Content-Type", "text/html"),
        97 => Script::body("application/atom+xml", bodies::garbage(2000)),
        _ => good.deliver(Delivery::Truncated(300)),
    };
    let scripts = vec![(path.clone(), script)];
    Draft { name: names::feed(number), host, path, scripts }
}

/// Returns the script `good`, interrupted at intervals by another one.
fn spells(good: &Script, first: usize, period: usize, spell: impl Fn(usize) -> Script) -> Script {
    let starts = (first..).step_by(period).take_while(|start| Duration::from_secs(*start as u64) < LONGEST);
    let steps = starts.flat_map(|start| [good.clone().until(Duration::from_secs(start as u64)), spell(start)]);
    Script::sequence(steps.chain([good.clone()]))
}

/// Returns a healthy feed, with validators, conditional requests, codings and freshness as on the web.
fn good(number: usize) -> Script {
    let (tag, stamp, conditions) = match number % 20 {
        0..=11 => (Tag::Strong, Stamp::Date, Conditions::Exact),
        12..=13 => (Tag::Weak, Stamp::Date, Conditions::All),
        14 => (Tag::Text(b"no quotes {}".to_vec()), Stamp::None, Conditions::Exact),
        15 => (Tag::FreshOn304, Stamp::None, Conditions::Exact),
        16 => (Tag::Suffix("-gzip"), Stamp::None, Conditions::Exact),
        17..=18 => (Tag::None, Stamp::Date, Conditions::Exact),
        _ => (Tag::None, Stamp::None, Conditions::Ignored),
    };
    // From one item every ten seconds (six a day in real time) to one every twenty minutes.
    let mean = Duration::from_secs_f64(10.0 * 120_f64.powf((number * 61 % 97) as f64 / 97.0));
    let feed = Feed::new([Format::Rss, Format::Rss, Format::Atom, Format::Json][number % 4])
        .title(names::feed(number))
        .headlines(names::headlines(number))
        .initial(3 + number % 11)
        .shown(15 + number % 20)
        .pace(Pace::Random { mean, seed: number as u64 })
        .padding(200 + number * 53 % 1200)
        .tag(tag)
        .stamp(stamp)
        .conditions(conditions);
    let script = Script::feed(feed).delay(Duration::from_millis(5 + (number * 29 % 110) as u64));
    let script = match number % 4 {
        0 => script,
        _ => script.offer([[Coding::Gzip, Coding::Br, Coding::Zstd][number % 3]]),
    };
    match number % 6 {
        0 => script.header("Cache-Control", format!("max-age={}", 2 + number % 9)),
        _ => script,
    }
}

/// Returns the hostile feeds, by attack.
fn hostile() -> anyhow::Result<Vec<(&'static str, Script)>> {
    // These are bodies, not feeds: whether a client heeds their headers is up to it, and not judged.
    let rss = || Script::body("application/rss+xml", "<rss><channel><title>Slow</title></channel></rss>");
    let driving = ["\\u001b[2J\\u001b[31mwipes your screen\\u0007", "\\u202egnp.sgnirts\\u202c runs backwards"];
    let escapes = Feed::json().title("Control characters").headlines(driving.map(str::to_owned));
    Ok(vec![
        ("A bomb of 100 MB (gzip)", Script::bomb(Coding::Gzip, 100)?),
        ("A bomb of 100 MB (br)", Script::bomb(Coding::Br, 100)?),
        ("A bomb of 100 MB (zstd)", Script::bomb(Coding::Zstd, 100)?),
        ("Nested 20,000 deep", Script::body("application/rss+xml", bodies::nested(20_000))),
        ("An endless body", rss().deliver(Delivery::Endless)),
        ("Never answers", Script::silent()),
        ("A byte a second", rss().deliver(Delivery::Drip(Duration::from_secs(1)))),
        ("20,000 header fields", rss().deliver(Delivery::HeaderFlood(20_000))),
        ("2,000 interim answers", rss().deliver(Delivery::InterimFlood(2_000))),
        ("Control characters", Script::feed(escapes.pace(Pace::Every(Duration::from_secs(12))))),
    ])
}

/// Returns a feed's audience: most have one subscriber, some have many, four are under an SLA.
fn audience(number: usize) -> Audience {
    let subscribers: u32 = match number * 41 % 100 {
        0..=4 => 25 + u32::try_from(number).unwrap_or(0),
        5..=24 => 2 + u32::try_from(number % 8).unwrap_or(0),
        _ => 1,
    };
    Audience { subscribers, active_subscribers: subscribers, sla: number % 80 == 70, ..Audience::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_platform_is_down_now_and_then() {
        assert_eq!(down_at(Duration::from_secs(14)), None);
        assert_eq!(down_at(Duration::from_secs(15)), Some("bigblogs.example".to_owned()));
        assert_eq!(down_at(Duration::from_secs(21)), None);
        assert_eq!(down_at(Duration::from_secs(56)), Some("podhaus.example".to_owned()));
    }
}
