//! The scenario's hosts and feeds: an origin that creates each feed's script at its first request.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::error::ScenarioError;
use super::file::{Answers, Event, Group, Scenario, Tls, What};
use crate::tls::{Authority, secure_hosts};
use crate::{Delivery, Feed, Origin, Pace, Script};

/// The origin and its groups of feeds.
pub(super) struct World {
    pub(super) origin: Origin,
    /// The certificate authority that the fleet has to trust.
    pub(super) root: Option<String>,
    groups: BTreeMap<String, Placed>,
    /// When polling started, since the origin's start.
    go: Arc<OnceLock<Duration>>,
}

/// A group and its first host.
#[derive(Clone)]
struct Placed {
    group: Group,
    first_host: usize,
    /// Alternative responses of its hosts, with their start and end since polling started.
    spells: Vec<(Duration, Duration, Script)>,
}

/// The number of items that every feed has from the start.
const ITEMS: usize = 3;

impl World {
    /// Starts the origin of a scenario.
    pub(super) async fn start(scenario: &Scenario) -> Result<Self, ScenarioError> {
        let (mut groups, mut hosts) = (BTreeMap::new(), 0);
        for (name, group) in &scenario.feeds {
            let spells = scenario.event.values().filter_map(|event| spell(name, event, scenario.duration));
            let mut spells: Vec<_> = spells.collect();
            spells.sort_by_key(|(from, ..)| *from);
            groups.insert(name.clone(), Placed { group: group.clone(), first_host: hosts, spells });
            hosts += group.hosts;
        }
        let addresses = (0..u32::try_from(hosts).unwrap_or(u32::MAX))
            .map(|host| (Ipv4Addr::from(u32::from(Ipv4Addr::LOCALHOST).saturating_add(host)), 0).into());
        let addresses: Vec<SocketAddr> = addresses.collect();
        if addresses.iter().any(|address| !address.ip().is_loopback()) {
            return Err(ScenarioError::Set(format!("{hosts} hosts are more than loopback has addresses")));
        }
        let listening = |error| ScenarioError::Io(format!("listening on {hosts} addresses (`ulimit -n`?)"), error);
        let (origin, root) = match scenario.tls {
            Tls::None => (Origin::listen(&addresses).await.map_err(listening)?, None),
            tls => {
                let root = Authority::new("Load test root")?;
                let hosts = secure_hosts(&root, &addresses, tls == Tls::Full)?;
                (Origin::listen_behind(hosts).await.map_err(listening)?, Some(root.pem()))
            }
        };
        let go = Arc::new(OnceLock::new());
        let (known, began) = (groups.clone(), Arc::clone(&go));
        origin.set_fallback(Box::new(move |path| {
            let (name, _) = split(path)?;
            known.get(name).map(|placed| placed.script(began.get().copied().unwrap_or_default()))
        }));
        Ok(World { origin, root, groups, go })
    }

    /// Marks the start of polling, from which the times of events count.
    pub(super) fn go(&self) -> Duration {
        *self.go.get_or_init(|| self.origin.elapsed())
    }

    /// Returns the URL of a group's feed.
    pub(super) fn url(&self, group: &str, number: usize) -> String {
        let placed = &self.groups[group];
        self.origin.url_on(placed.first_host + number % placed.group.hosts, &format!("/{group}/{number}"))
    }
}

impl Placed {
    fn script(&self, go: Duration) -> Script {
        let mut scripts = Vec::new();
        for (from, until, spell) in &self.spells {
            scripts.push(self.usual().until(go + *from));
            scripts.push(spell.clone().until(go + *until));
        }
        scripts.push(self.usual());
        Script::sequence(scripts)
    }

    fn usual(&self) -> Script {
        let pace = self.group.publishes.map_or(Pace::Manual, Pace::Every);
        let script = Script::feed(Feed::rss().initial(ITEMS).shown(1000).padding(self.group.item_bytes).pace(pace))
            .delay(self.group.delay);
        let script = if self.group.close { script.header("Connection", "close") } else { script };
        match self.group.answers {
            Answers::Well => script,
            Answers::Silent => script.deliver(Delivery::Silent),
            Answers::Drip => script.deliver(Delivery::Drip(Duration::from_secs(1))),
        }
    }
}

/// Returns when an event starts and stops to change a group's responses, and the script.
fn spell(group: &str, event: &Event, end: Duration) -> Option<(Duration, Duration, Script)> {
    let script = match &event.what {
        What::Throttle { feeds, retry_after } if feeds == group => {
            Script::status(429).header("Retry-After", retry_after.to_string())
        }
        What::Fail { feeds, status } if feeds == group => Script::status(*status),
        _ => return None,
    };
    Some((event.at, event.until.unwrap_or(end), script))
}

/// Returns the group and the number in a path.
pub(super) fn split(path: &str) -> Option<(&str, usize)> {
    let (group, number) = path.strip_prefix('/')?.split_once('/')?;
    Some((group, number.parse().ok()?))
}
