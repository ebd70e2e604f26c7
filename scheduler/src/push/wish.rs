//! What a feed announces, as the subscription that is wanted: pure, apart from ids and secrets, which are random.
//!
//! Deviations of large hubs are here and in `request`; `docs/push.md` names their sources.

use std::sync::Arc;

use common::config::Config;
use common::feed::Feed;
use common::host::HostRules;
use common::policy::Status;
use common::push::{FeedPush, PushKind};
use common::report::{FetchReport, Outcome};
use common::secrets::{Keyring, Sealed};
use common::time::Timestamp;
use common::url::{FeedId, FeedUrl};
use rand::RngExt;
use store::{NewPush, PushSubscription, PushWish, Store, Subscribed, Unpushed};
use url::Url;

use crate::error::BackendError;

/// Makes wishes.
pub struct Wishes {
    config: Arc<Config>,
    secrets: Arc<Keyring>,
}

/// What is announced, and its source.
#[derive(Clone, Copy, Debug)]
struct Announced<'a> {
    feed: FeedId,
    url: &'a FeedUrl,
    private: bool,
    hub: Option<&'a str>,
    self_link: Option<&'a str>,
    cloud: Option<&'a str>,
}

/// What is to be subscribed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    kind: PushKind,
    hub: String,
    topic: String,
}

/// YouTube's feeds announce no hub; its documentation names one, and the topic of each channel.
const YOUTUBE_HUB: &str = "https://pubsubhubbub.appspot.com/subscribe";
const YOUTUBE_TOPIC: &str = "https://www.youtube.com/xml/feeds/videos.xml";
/// Hubs that feeds announce with http and that also answer over https, where they get a secret.
const ALSO_HTTPS: [&str; 3] = ["pubsubhubbub.appspot.com", "pubsubhubbub.superfeedr.com", "push.superfeedr.com"];
/// The longest cloud that is registered with, in bytes.
const LONGEST_CLOUD: usize = 512;
/// The longest host of a hub that is subscribed at, in bytes, with port and login: the store finds what is due by hosts.
const LONGEST_HUB_HOST: usize = FeedUrl::MAX_HOST + ":65535".len();

impl Wishes {
    /// By the configuration at the start.
    pub fn new(config: Arc<Config>, secrets: Arc<Keyring>) -> Self {
        Wishes { config, secrets }
    }

    /// Returns whether subscriptions of any kind are made.
    pub fn are_on(&self) -> bool {
        PushKind::ALL.into_iter().any(|kind| is_on(&self.config, kind))
    }

    /// Returns what follows from a good poll: `None` if the feed has what it announces.
    pub(crate) fn after(&self, feed: &Feed, report: &FetchReport, rules: &HostRules) -> Option<PushWish> {
        let Outcome::Modified(document) = &report.outcome else { return None };
        if report.pushed || !self.are_on() {
            return None;
        }
        let announced = Announced {
            feed: feed.id,
            url: &feed.url,
            private: feed.is_private(),
            hub: document.hub.as_deref(),
            self_link: document.self_link.as_deref(),
            cloud: document.cloud.as_deref(),
        };
        self.wish(announced, feed.push.as_ref(), rules)
    }

    /// Returns what follows from what was stored before pushes were on.
    pub(crate) fn of_stored(&self, feed: &Unpushed, rules: &HostRules) -> Option<PushWish> {
        let url: FeedUrl = feed.url.parse().ok()?;
        let announced = Announced {
            feed: FeedId(feed.id),
            url: &url,
            private: feed.private,
            hub: feed.hub.as_deref(),
            self_link: feed.self_link.as_deref(),
            cloud: feed.cloud.as_deref(),
        };
        self.wish(announced, None, rules)
    }

    /// Returns what follows for a feed that has a subscription: `None` if it is the one that the feed announces.
    pub(crate) fn of_subscribed(&self, row: &Subscribed, rules: &HostRules) -> Option<PushWish> {
        let feed = FeedId(row.feed_id);
        let is_kept = row.status.as_deref().and_then(|status| status.parse().ok()).is_some_and(is_kept);
        let url: Option<FeedUrl> = row.url.as_deref().and_then(|url| url.parse().ok()).filter(|_| is_kept);
        let Some(url) = url else { return Some(PushWish { feed, wanted: None }) };
        let announced = Announced {
            feed,
            url: &url,
            private: row.private.unwrap_or(true),
            hub: row.hub.as_deref(),
            self_link: row.self_link.as_deref(),
            cloud: row.cloud.as_deref(),
        };
        let wanted = wanted(announced, &self.config, rules);
        let there = (row.kind.as_str(), &row.subscribed_hub, &row.topic);
        let is_same = wanted.as_ref().is_some_and(|new| (new.kind.as_str(), &new.hub, &new.topic) == there);
        (!is_same).then(|| PushWish { feed, wanted: wanted.map(|wanted| self.new_push(wanted)) })
    }

    fn wish(&self, of: Announced<'_>, there: Option<&FeedPush>, rules: &HostRules) -> Option<PushWish> {
        let wanted = wanted(of, &self.config, rules);
        let same = match (&wanted, there) {
            (None, None) => true,
            (Some(wanted), Some(there)) => {
                (wanted.kind, &wanted.hub, &wanted.topic) == (there.kind, &there.hub, &there.topic)
            }
            _ => false,
        };
        (!same).then(|| PushWish { feed: of.feed, wanted: wanted.map(|wanted| self.new_push(wanted)) })
    }

    fn new_push(&self, wanted: Wanted) -> NewPush {
        let Wanted { kind, hub, topic } = wanted;
        let secret = self.new_secret(kind, &hub);
        NewPush { id: format!("{:032x}", rand::rng().random::<u128>()), kind, hub, topic, secret }
    }

    /// Returns whether a hub gets a secret: deliveries of one without any only cause polls.
    pub(super) fn may_have_secret(&self, kind: PushKind, hub: &str) -> bool {
        kind == PushKind::WebSub && (hub.starts_with("https:") || self.config.push.secret_over_http)
    }

    /// Returns a new secret for a hub, if it gets one.
    pub(super) fn new_secret(&self, kind: PushKind, hub: &str) -> Option<Sealed> {
        if !self.may_have_secret(kind, hub) {
            return None;
        }
        let secret = format!("{:032x}", rand::rng().random::<u128>());
        // Without a key of ours nothing can be sealed: deliveries then only cause polls.
        self.secrets.seal_push(&secret).ok()
    }
}

/// Returns whether subscriptions of this kind are made: only where callbacks can arrive.
pub(crate) fn is_on(config: &Config, kind: PushKind) -> bool {
    let is_on = match kind {
        PushKind::WebSub => config.push.websub,
        PushKind::RssCloud => config.push.rsscloud,
    };
    is_on && !config.api.public_url.is_empty()
}

/// Returns whether subscriptions of feeds in this status are kept.
fn is_kept(status: Status) -> bool {
    matches!(status, Status::Active | Status::Paused | Status::Blacklisted | Status::Quarantined)
}

/// Returns whether hubs may know this feed at all.
pub(crate) fn may_be_subscribed(feed: &Feed) -> bool {
    is_kept(feed.status) && !feed.is_private()
}

/// Returns whether a subscription may stay: its kind is on, hubs may know its feed, and no host rule is against it.
pub(crate) fn may_stay(of: &PushSubscription, feed: &Feed, config: &Config, rules: &HostRules) -> bool {
    let is_refused = |url: &Url| rules.rule_for(url).is_some_and(|rule| rule.push == Some(false));
    let hub = match of.kind {
        PushKind::WebSub => Url::parse(&of.hub).ok(),
        PushKind::RssCloud => super::cloud::Cloud::parse(&of.hub).map(|cloud| cloud.url),
    };
    let is_refused = is_refused(feed.url.as_url()) || hub.as_ref().is_some_and(is_refused);
    is_on(config, of.kind) && may_be_subscribed(feed) && !is_refused
}

/// A hub goes before a cloud: it sends the entries themselves. The URL of a private feed is sent to neither.
fn wanted(of: Announced<'_>, config: &Config, rules: &HostRules) -> Option<Wanted> {
    let is_refused = |url: &Url| rules.rule_for(url).is_some_and(|rule| rule.push == Some(false));
    if of.private || is_refused(of.url.as_url()) {
        return None;
    }
    let hub = || {
        let (hub, topic) = youtube(of.url.as_url()).or_else(|| announced_hub(of))?;
        let wanted = Wanted { kind: PushKind::WebSub, hub: hub.to_string(), topic };
        (is_on(config, PushKind::WebSub) && !is_refused(&hub)).then_some(wanted)
    };
    let cloud = || {
        let cloud = of.cloud.filter(|cloud| cloud.len() <= LONGEST_CLOUD)?;
        let place = super::cloud::Cloud::parse(cloud)?;
        let wanted = Wanted { kind: PushKind::RssCloud, hub: cloud.to_owned(), topic: of.url.to_string() };
        (is_on(config, PushKind::RssCloud) && !is_refused(&place.url)).then_some(wanted)
    };
    hub().or_else(cloud)
}

fn announced_hub(of: Announced<'_>) -> Option<(Url, String)> {
    let is_web = |url: &Url| matches!(url.scheme(), "http" | "https") && url.as_str().len() <= FeedUrl::MAX_LENGTH;
    let is_short = |url: &Url| url.authority().len() <= LONGEST_HUB_HOST;
    let mut hub = Url::parse(of.hub?).ok().filter(is_web).filter(is_short)?;
    hub.set_fragment(None);
    if hub.scheme() == "http" && hub.port().is_none() && hub.host_str().is_some_and(|host| ALSO_HTTPS.contains(&host)) {
        // Cannot fail: both schemes are special.
        let _ = hub.set_scheme("https");
    }
    let own = of.self_link.and_then(|own| Url::parse(own).ok()).filter(is_web);
    Some((hub, own.map_or_else(|| of.url.to_string(), String::from)))
}

/// Returns the hub and topic of a channel's feed.
fn youtube(url: &Url) -> Option<(Url, String)> {
    let is_feed =
        matches!(url.host_str(), Some("www.youtube.com" | "youtube.com")) && url.path() == "/feeds/videos.xml";
    let (_, channel) = url.query_pairs().find(|(name, _)| name == "channel_id").filter(|_| is_feed)?;
    let topic = Url::parse_with_params(YOUTUBE_TOPIC, [("channel_id", channel)]).ok()?;
    Some((Url::parse(YOUTUBE_HUB).ok()?, topic.into()))
}

/// Leaves the subscriptions of feeds that hubs may no longer know.
pub(crate) async fn leave_unfit(store: &dyn Store, feeds: &[Feed], now: Timestamp) -> Result<(), BackendError> {
    let unfit = feeds.iter().filter(|feed| !may_be_subscribed(feed));
    let wishes: Vec<PushWish> = unfit.map(|feed| PushWish { feed: feed.id, wanted: None }).collect();
    if !wishes.is_empty() {
        store.want_pushes(&wishes, now).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use common::host::{HostConfig, HostRule};

    use super::*;

    const FEED: &str = "https://a.example/feed";

    fn config() -> Config {
        let mut config = common::config::defaults();
        config.api.public_url = "https://fleet.example".into();
        config
    }

    fn announced<'a>(url: &'a FeedUrl, links: [Option<&'a str>; 3]) -> Announced<'a> {
        let [hub, self_link, cloud] = links;
        Announced { feed: FeedId(1), url, private: false, hub, self_link, cloud }
    }

    fn found(url: &str, links: [Option<&str>; 3]) -> Option<(PushKind, String, String)> {
        let url = url.parse().unwrap();
        let wanted = wanted(announced(&url, links), &config(), &HostRules::default())?;
        Some((wanted.kind, wanted.hub, wanted.topic))
    }

    fn websub(hub: &str, topic: &str) -> Option<(PushKind, String, String)> {
        Some((PushKind::WebSub, hub.to_owned(), topic.to_owned()))
    }

    #[test]
    fn the_self_link_is_the_topic_and_a_hub_goes_before_a_cloud() {
        let (hub, own, cloud) =
            (Some("https://hub.example/"), Some("https://a.example/own"), Some("c.example:80/r http-post"));
        assert_eq!(found(FEED, [hub, own, cloud]), websub("https://hub.example/", "https://a.example/own"));
        assert_eq!(found(FEED, [hub, None, None]), websub("https://hub.example/", FEED));
        let expected = Some((PushKind::RssCloud, "c.example:80/r http-post".to_owned(), FEED.to_owned()));
        assert_eq!(found(FEED, [None, own, cloud]), expected);
        assert_eq!(found(FEED, [Some("ftp://hub.example/"), own, None]), None);
        assert_eq!(found(FEED, [hub, Some("mailto:a@a.example"), None]), websub("https://hub.example/", FEED));
        assert_eq!(found(FEED, [None, own, Some("c.example")]), None);
        let long = |name: usize| format!("https://{}.example/", "a".repeat(name));
        assert!(found(FEED, [Some(&long(240)), own, None]).is_some());
        assert_eq!(found(FEED, [Some(&long(3_000)), own, None]), None, "no index has room for it");
        assert_eq!(found(FEED, [Some(&format!("https://{}@hub.example/", "a".repeat(3_000))), own, None]), None);
    }

    #[test]
    fn large_hubs_are_asked_as_they_are_documented() {
        let (hub, topic) = (
            "https://pubsubhubbub.appspot.com/subscribe",
            "https://www.youtube.com/xml/feeds/videos.xml?channel_id=UC1",
        );
        for announced in [None, Some("https://other.example/")] {
            let url = "https://www.youtube.com/feeds/videos.xml?channel_id=UC1";
            assert_eq!(found(url, [announced, None, None]), websub(hub, topic));
        }
        assert_eq!(found("https://www.youtube.com/feeds/videos.xml?playlist_id=PL1", [None; 3]), None);
        let blogger = [Some("http://pubsubhubbub.appspot.com/"), Some("https://b.example/feeds/posts/default"), None];
        let expected = websub("https://pubsubhubbub.appspot.com/", "https://b.example/feeds/posts/default");
        assert_eq!(found("https://b.example/feeds/posts/default?alt=rss", blogger), expected);
    }

    #[test]
    fn switches_of_the_fleet_and_of_hosts_are_kept_and_private_feeds_stay_private() {
        let url: FeedUrl = FEED.parse().unwrap();
        let links = [Some("https://hub.example/"), None, Some("c.example:80/r http-post")];
        let kinds = |config: &Config, rules: &HostRules, private| {
            wanted(Announced { private, ..announced(&url, links) }, config, rules).map(|wanted| wanted.kind)
        };
        let none = HostRules::default();
        assert_eq!(kinds(&config(), &none, true), None);
        let without = |change: fn(&mut Config)| {
            let mut config = config();
            change(&mut config);
            kinds(&config, &none, false)
        };
        assert_eq!(without(|config| config.push.websub = false), Some(PushKind::RssCloud));
        assert_eq!(without(|config| (config.push.websub, config.push.rsscloud) = (false, false)), None);
        assert_eq!(without(|config| config.api.public_url.clear()), None);
        let never = |host: &str| {
            let rule = HostRule { r#match: host.into(), push: Some(false), ..HostRule::default() };
            kinds(&config(), &HostRules::new(HostConfig::default(), [rule]), false)
        };
        assert_eq!([never("a.example"), never("hub.example")], [None, Some(PushKind::RssCloud)]);
    }

    #[test]
    fn secrets_only_go_to_hubs_over_https_unless_that_is_configured() {
        let url: FeedUrl = FEED.parse().unwrap();
        let has_secret = |hub: &str, over_http: bool, keys: Keyring| {
            let mut config = config();
            config.push.secret_over_http = over_http;
            let wishes = Wishes::new(Arc::new(config), Arc::new(keys));
            let wish = wishes.wish(announced(&url, [Some(hub), None, None]), None, &HostRules::default()).unwrap();
            let new = wish.wanted.unwrap();
            assert_eq!(new.id.len(), 32);
            new.secret.is_some()
        };
        assert!(has_secret("https://hub.example/", false, Keyring::fresh()));
        assert!(!has_secret("http://hub.example/", false, Keyring::fresh()));
        assert!(has_secret("http://hub.example/", true, Keyring::fresh()));
        assert!(!has_secret("https://hub.example/", true, Keyring::default()), "nothing seals it");
    }
}
