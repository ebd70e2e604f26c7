//! The JSON that the API, the exchange and the command line share.
//!
//! Times are RFC 3339 in UTC with milliseconds, durations seconds as numbers. Absent fields have no value.

use std::collections::BTreeMap;

use common::calm::CalmGroup;
use common::document::{ContentHash, FeedAbout, FeedHints, Onward};
use common::entry::canonical_url;
use common::feed::{Feed, OverQuota};
use common::host::HostRule;
use common::host::{HostKey, HostRules};
use common::labels::Marks;
use common::last_error::ExplainedError;
use common::outcome::{FailureKind, OutcomeKind};
use common::policy::{Category, Penalty, Status};
use common::policy::{ExplainedTerm, category};
use common::push::{FeedPush, PushKind, PushState};
use common::time::Timestamp;
use common::url::{FeedId, Version};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::condition::live_config::InForce;
use crate::condition::price::Price;
use crate::ops::config::Reloaded;
use crate::ops::hosts::HostState;
use crate::poll::subject::subject;
use crate::schedule::Depth;
use store::reaches;
use store::{EntryFeed, Event, HostRefusal, RequeuePlan, StoreStats, StoredEntry};

/// A feed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are the ones of common::feed::Feed and its PollState")]
pub struct FeedView {
    pub id: FeedId,
    pub url: String,
    pub host: String,
    pub title: Option<String>,
    pub category: Category,
    pub status: Status,
    pub subscribers: u32,
    pub active_subscribers: u32,
    pub sla: bool,
    pub important: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calm: Vec<CalmGroup>,
    /// An interval that a person asked for, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<f64>,
    /// It is fetched with a user name and password.
    pub credentials: bool,
    pub private: bool,
    #[serde(flatten)]
    pub marks: Marks,
    pub etag: Option<String>,
    pub last_modified: Option<String>,
    pub content_hash: Option<ContentHash>,
    pub next_due: Option<Timestamp>,
    pub last_polled: Option<Timestamp>,
    pub last_success: Option<Timestamp>,
    pub last_changed: Option<Timestamp>,
    pub last_status: Option<u16>,
    pub last_outcome: Option<OutcomeKind>,
    pub consecutive_failures: u32,
    pub failing_since: Option<Timestamp>,
    /// It has failed for so long that readers should know: see the event `feed.failing`.
    #[serde(default)]
    pub failing: bool,
    /// Why its last poll failed; absent after a good one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<ExplainedError>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub penalty: Option<Penalty>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_until: Option<Timestamp>,
    /// A refresh or a ping wants it polled by this time, whatever `next_due` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_from: Option<String>,
    /// What the feed itself says about when to poll it.
    #[serde(default, skip_serializing_if = "FeedHints::is_empty")]
    pub hints: FeedHints,
    /// Its last document was broken, and read after a repair.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repaired: bool,
    /// What it says about its further documents and its end.
    #[serde(default, skip_serializing_if = "Onward::is_empty")]
    pub onward: Onward,
    /// What it says about itself.
    #[serde(flatten)]
    pub about: FeedAbout,
    /// What else the page announces that it was taken from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also_announced: Vec<String>,
    /// The feed that it turned out to be, when it is merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_into: Option<FeedId>,
    /// Its subscription with a hub or a cloud; lists do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push: Option<PushView>,
    pub version: Version,
    pub entries: u64,
    /// What it brought beyond its quotas; absent when it never did.
    #[serde(default, skip_serializing_if = "OverQuota::is_empty")]
    pub over_quota: OverQuota,
    pub added: Timestamp,
}

impl FeedView {
    /// The feed as callers see it; its category follows from its audience and from `rules`.
    pub fn of(feed: Feed, rules: &HostRules) -> Self {
        let category = category(&subject(rules, &feed));
        let private = feed.is_private();
        let Feed { audience, validators, state, mut onward, .. } = feed;
        let about = onward.about.take().map(|about| *about).unwrap_or_default();
        FeedView {
            id: feed.id,
            url: feed.url.to_string(),
            host: feed.host.to_string(),
            title: feed.title,
            category,
            status: feed.status,
            subscribers: audience.subscribers,
            active_subscribers: audience.active_subscribers,
            sla: audience.sla,
            important: audience.important,
            calm: feed.calm,
            interval: audience.interval.map(|interval| interval.as_secs_f64()),
            credentials: feed.credentials.is_some(),
            private,
            marks: feed.marks,
            etag: validators.etag,
            last_modified: validators.last_modified,
            content_hash: feed.content_hash,
            next_due: feed.next_due,
            last_polled: state.last_polled,
            last_success: state.last_success,
            last_changed: state.last_changed,
            last_status: state.last_status,
            last_outcome: state.last_outcome,
            consecutive_failures: state.consecutive_failures,
            failing_since: state.failing_since,
            failing: state.failing,
            last_error: feed.last_error.map(ExplainedError::from),
            // A feed that is polled as another one, or by nobody, is not tried again.
            penalty: state.penalty.filter(|_| !matches!(feed.status, Status::Merged | Status::Removed)),
            hold_until: state.hold_until,
            wake_at: feed.wake_at,
            moved_from: feed.moved_from,
            hints: state.hints,
            repaired: state.repaired,
            onward,
            about,
            also_announced: feed.also_announced,
            merged_into: feed.merged_into,
            push: feed.push.map(PushView::of),
            version: feed.version,
            entries: feed.entries,
            over_quota: feed.over_quota,
            added: feed.added,
        }
    }
}

/// A feed's subscription with a hub or a cloud.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PushView {
    /// The protocol.
    pub kind: PushKind,
    /// The hub or the cloud.
    pub hub: String,
    /// What is subscribed there.
    pub topic: String,
    /// The state.
    pub state: PushState,
    /// When the lease expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<Timestamp>,
    /// Its pushes proved reliable: it is polled less often.
    pub reliable: bool,
    /// The hub accepted the subscription and never sent anything.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub silent: bool,
    /// Pushes in a row that announced new entries.
    pub announced: u32,
    /// Polls that found entries which were not announced.
    pub missed: u64,
    /// Deliveries and notifications.
    pub deliveries: u64,
    /// When the last of them arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_at: Option<Timestamp>,
}

impl PushView {
    fn of(push: FeedPush) -> Self {
        PushView {
            reliable: push.is_reliable(),
            silent: push.is_silent(),
            kind: push.kind,
            hub: push.hub,
            topic: push.topic,
            state: push.state,
            lease_until: push.lease_until,
            announced: push.announced,
            missed: push.missed,
            deliveries: push.deliveries,
            heard_at: push.heard_at,
        }
    }
}

/// The answer to adding a feed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AddedView {
    /// It is polled since this call; otherwise it was known.
    pub new: bool,
    /// It was known but not polled any more, and gets one try.
    pub revived: bool,
    /// The feed.
    #[serde(flatten)]
    pub feed: FeedView,
}

/// What became of one line of many.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BulkView {
    /// Its number in the request, from 1.
    pub line: usize,
    /// The feed; absent where the line was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<FeedId>,
    /// It is polled since this line.
    pub new: bool,
    /// It was known but not polled any more, and gets one try.
    pub revived: bool,
    /// It was known, and fields of it have other values since this line.
    pub changed: bool,
    /// Why the line was refused: it changed nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct List<T> {
    /// The items.
    pub items: Vec<T>,
    /// The cursor of the next part (`after=`); null at the end.
    pub next: Option<String>,
}

/// An entry as callers see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EntryView {
    /// The entry, its texts as the publisher wrote them.
    #[serde(flatten)]
    pub stored: StoredEntry,
    /// What to show as its title: its title, else the first words of its text, else its address.
    #[serde(default)]
    pub display_title: String,
    /// Its address without tracking, where that is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canonical_url: Option<String>,
    /// Its summary as HTML that may be shown, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary_html: Option<String>,
    /// The same of its content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_html: Option<String>,
}

impl EntryView {
    /// The entry alone.
    pub fn of(mut stored: StoredEntry) -> Self {
        stored.entry.name_authors();
        stored.entry.name_types();
        let display_title = stored.entry.display_title().to_owned();
        let canonical_url = stored.entry.url.as_deref().and_then(canonical_url);
        EntryView { stored, display_title, canonical_url, summary_html: None, content_html: None }
    }
}

/// A part of the entries, in the order in which they were stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EntryList {
    /// Changes when the store was restored from a backup: cursors of another epoch mean nothing.
    pub epoch: String,
    /// The oldest `seq` that is kept; 0 while there is none.
    pub oldest: i64,
    /// The entries, by `seq`.
    pub items: Vec<EntryView>,
    /// The cursor to go on with (`after=`), now or when there is more.
    pub next: i64,
    /// There may be further ones now, even if there are fewer than `limit`, or none.
    #[serde(default)]
    pub more: bool,
}

/// An event for consumers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventView {
    /// Its place in the order of all events, and the cursor after it.
    pub seq: i64,
    /// The epoch in which that number was given; absent in lists, which have it once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
    /// What happened: `entry.new`, `entry.updated`, `feed.added`, `feed.changed`, `feed.removed`, `feed.gone`, `feed.moved`, `feed.penalised`, `feed.failing`,
    /// `feed.recovered`, `feed.blacklisted`, `feed.quarantined`, `host.refusing`, `host.recovered`,
    /// `subscription.disabled`.
    pub kind: String,
    /// To which feed; zero for `subscription.*`.
    pub feed_id: FeedId,
    /// To which subscription, for `subscription.*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscription: Option<i64>,
    /// The feed as it is now; when it was erased, its URL and title are absent, except in `feed.removed`.
    #[serde(flatten)]
    pub feed: EntryFeed,
    /// The host that the feed is polled at now; absent when it was erased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The feed that it turned out to be, when it is merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_into: Option<FeedId>,
    /// When it was stored.
    pub at: Timestamp,
    /// The settings that changed, for `feed.changed`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// Why the feed failed, if that is what happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ExplainedError>,
    /// For `entry.*` the entry as it is now, its `seq` that of its newest form; absent when it is not kept any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryView>,
}

impl EventView {
    /// The event in a list.
    pub fn of(event: Event) -> Self {
        let Event { seq, kind, feed_id, subscription, at, feed, host, merged_into, changed, error, entry, category: _ } =
            event;
        let (error, entry) = (error.map(ExplainedError::from), entry.map(EntryView::of));
        EventView { seq, epoch: None, kind, feed_id, subscription, feed, host, merged_into, at, changed, error, entry }
    }

    /// The event alone.
    pub fn in_epoch(event: Event, epoch: &str) -> Self {
        EventView { epoch: Some(epoch.to_owned()), ..Self::of(event) }
    }
}

/// A part of the events, in the order in which they were stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventList {
    /// Changes when the store was restored from a backup: cursors of another epoch mean nothing.
    pub epoch: String,
    /// The oldest `seq` that may still be there.
    pub oldest: i64,
    /// The events, by `seq`.
    pub items: Vec<EventView>,
    /// The cursor to go on with (`after=`), now or when there is more.
    pub next: i64,
    /// There may be further ones now, even if there are fewer than `limit`, or none.
    #[serde(default)]
    pub more: bool,
}

/// Why a feed is due when it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExplainView {
    /// Its number.
    pub id: FeedId,
    /// Where it is polled.
    pub url: String,
    /// Its category.
    pub category: Category,
    /// Is it polled?
    pub status: Status,
    /// What the first term counts from: the last poll, or the time when the feed was added.
    pub base: Timestamp,
    /// When it should be polled next; null when it is not polled.
    pub next_due: Option<Timestamp>,
    /// A refresh or a ping wants it polled by this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<Timestamp>,
    /// The terms in the order in which they were applied; each starts from the due time of the one before.
    pub terms: Vec<ExplainedTerm>,
    /// What else keeps it from being polled at that time, a sentence each.
    pub notes: Vec<String>,
    /// All of it as one line for people.
    pub text: String,
}

/// The fleet in numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatsView {
    /// All polling is paused by a person.
    pub paused: bool,
    /// Feeds in all.
    pub feeds: u64,
    /// Of these, by category.
    pub by_category: BTreeMap<String, u64>,
    /// The same, by status.
    pub by_status: BTreeMap<String, u64>,
    /// Feeds in the penalty box, by kind of failure.
    pub penalised: BTreeMap<String, u64>,
    /// Entries stored.
    pub entries: u64,
    /// Events stored.
    pub events: u64,
    /// Feeds in the schedule.
    pub scheduled: u64,
    /// Of these, due now.
    pub due: u64,
    /// Of these, waiting for a busy host.
    pub parked: u64,
    /// Seconds since the oldest due time that has passed.
    pub oldest_due: f64,
    /// Hosts that are held now.
    pub hosts_held: u64,
    /// What a poll has to be worth in adaptive mode, in subscriber-hours of expected waiting.
    pub poll_price: f64,
    /// Polls a second that the feeds want at that price.
    pub demand_per_second: f64,
    /// Since when most hosts fail because of our own network, as this scheduler sees it; absent while all is well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub our_fault_since: Option<Timestamp>,
    /// The version of policy and host rules in force; absent until the store was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_version: Option<i64>,
    /// Why no request starts: the host gate is closed; absent while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate_closed: Option<String>,
}

impl StatsView {
    /// The numbers of store, schedule and price, put together.
    pub fn of(store: &StoreStats, depth: &Depth, price: &Price, paused: bool, now: Timestamp) -> Self {
        let mut view = StatsView {
            paused,
            entries: store.entries,
            events: store.events,
            scheduled: depth.feeds as u64,
            due: depth.due as u64,
            parked: depth.parked as u64,
            hosts_held: store.hosts_held,
            poll_price: price.get(),
            demand_per_second: price.demand(),
            ..StatsView::default()
        };
        let oldest = depth.oldest.iter().flatten().min();
        view.oldest_due = oldest.map_or(0.0, |oldest| now.since(*oldest).as_secs_f64());
        for (category, status, feeds) in &store.feeds {
            view.feeds += feeds;
            *view.by_category.entry(category.to_string()).or_default() += feeds;
            *view.by_status.entry(status.as_str().to_owned()).or_default() += feeds;
        }
        for (kind, feeds) in &store.penalised {
            *view.penalised.entry(kind.to_string()).or_default() += feeds;
        }
        view
    }
}

/// A host as callers see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostView {
    /// Its name: as in feeds, or a bare name for all ports together.
    pub host: String,
    /// Feeds there, polled or not.
    pub feeds: u64,
    /// The server asked to be left alone until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_until: Option<Timestamp>,
    /// An operator blocked it until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_until: Option<Timestamp>,
    /// Shortest time between two starts, in seconds.
    pub gap: f64,
    /// Starts at once after a rest.
    pub burst: u32,
    /// Requests in flight at once.
    pub parallel: u32,
    /// It refuses us on most of its feeds; absent while it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusing: Option<RefusingView>,
    /// The rule that speaks of it, with `match`, and `source`: who made it, "operator" or "configuration".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<Map<String, Value>>,
}

impl HostView {
    /// The host as it is known.
    pub fn of(state: HostState) -> Self {
        let HostState { row, limits, rule, by_operator, refusal } = state;
        HostView {
            host: row.host.to_string(),
            feeds: row.feeds,
            hold_until: row.hold_until,
            blocked_until: row.blocked_until,
            gap: limits.gap.as_secs_f64(),
            burst: limits.burst,
            parallel: limits.parallel,
            refusing: refusal.as_ref().map(RefusingView::of),
            rule: rule.map(|rule| rule_fields(&rule, if by_operator { "operator" } else { "configuration" })),
        }
    }
}

/// A host that refuses us.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RefusingView {
    /// Since when.
    pub since: Timestamp,
    /// The end of its rest: one feed is tried then.
    pub until: Timestamp,
    /// Rests so far.
    pub tries: u32,
    /// How it refused us last.
    pub failure: FailureKind,
    /// The HTTP status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What an operator can do.
    pub advice: String,
}

/// What helps with a host that refuses us.
const REFUSING_ADVICE: &str = "look at a feed of the host with `feedfleet fetch URL`; set fetch.user_agent_url to a page that says \
    who polls, sign the requests (docs/identity.md), and ask the webmaster to let them through; slow down (`feedfleet host set`) if \
    they say that it was too much";

impl RefusingView {
    /// What is known of the refusal.
    pub fn of(refusal: &HostRefusal) -> Self {
        let HostRefusal { since, until, tries, failure, status, .. } = *refusal;
        RefusingView { since, until, tries, failure, status, advice: REFUSING_ADVICE.to_owned() }
    }
}

/// The fields of a rule that are durations: text in configuration, seconds in JSON.
pub const RULE_DURATIONS: [&str; 3] = ["gap", "interval", "soft_for"];

/// A rule as JSON, with durations in seconds.
fn rule_fields(rule: &HostRule, source: &str) -> Map<String, Value> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(rule) else { return Map::new() };
    for (field, value) in RULE_DURATIONS.into_iter().zip([rule.gap, rule.interval, rule.soft_for]) {
        if let Some(value) = value {
            fields.insert(field.to_owned(), json!(value.as_secs_f64()));
        }
    }
    fields.insert("source".to_owned(), source.into());
    fields
}

/// Policy and host rules in force, as one scheduler has them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfigView {
    /// Counts the changes that the fleet accepted; null until the store was read.
    pub version: Option<i64>,
    /// The hash of the accepted sections; the same in every scheduler of a fleet.
    pub hash: Option<String>,
    /// When they were accepted.
    pub accepted: Option<Timestamp>,
    /// Who brought them: a token's name, `signal` or `start`.
    pub accepted_by: Option<String>,
    /// The hash of the sections in this scheduler's own file, environment and flags, as they were read last.
    pub own_hash: String,
    /// Why the accepted sections are not in force in this scheduler; absent while they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The last time that this scheduler read its configuration again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reload: Option<LastReload>,
    /// `[policy]`
    pub policy: Value,
    /// `[host]`
    pub host: Value,
    /// `[[host_rule]]`, without those that operators set.
    pub host_rule: Value,
}

/// An attempt to read the configuration again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastReload {
    /// When.
    pub at: Timestamp,
    /// Why it was refused; absent if it was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl ConfigView {
    /// What is in force.
    pub fn of(in_force: &InForce) -> Self {
        let InForce { config, accepted, own_hash, refused, last_reload } = in_force.clone();
        // They consist of texts, numbers and lists.
        let value = |value: serde_json::Result<Value>| value.unwrap_or_default();
        let (version, hash, at, by) = match accepted {
            Some(accepted) => (Some(accepted.version), Some(accepted.hash), Some(accepted.at), Some(accepted.by)),
            None => (None, None, None, None),
        };
        ConfigView {
            version,
            hash,
            accepted: at,
            accepted_by: by,
            own_hash,
            refused,
            last_reload: last_reload.map(|reload| LastReload { at: reload.at, error: reload.error }),
            policy: value(serde_json::to_value(&config.policy)),
            host: value(serde_json::to_value(&config.host)),
            host_rule: value(serde_json::to_value(&config.host_rule)),
        }
    }
}

/// What became of reading the configuration again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReloadView {
    /// The version in force.
    pub version: i64,
    /// The hash of its sections.
    pub hash: String,
    /// Something is different from before.
    pub changed: bool,
    /// The tokens of the API are others than before, in this process.
    #[serde(default)]
    pub tokens: bool,
    /// Keys that have other values than at the start, and need a restart.
    pub needs_restart: Vec<String>,
}

impl ReloadView {
    /// The answer to a reload.
    pub fn of(reloaded: Reloaded) -> Self {
        let Reloaded { version, hash, changed, tokens, needs_restart } = reloaded;
        ReloadView { version, hash, changed, tokens, needs_restart }
    }
}

/// What a requeue would do, or does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequeuedView {
    /// Its number, if it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    /// Feeds that fit the filter.
    pub matched: u64,
    /// Feeds that will be polled: none in a dry run.
    pub queued: u64,
    /// Nothing was done.
    pub dry_run: bool,
    /// Of those that fit the filter the ones that can be polled.
    pub pollable: u64,
    /// The others, by the reason.
    pub left_out: BTreeMap<String, u64>,
    /// Pollable ones by category.
    pub by_category: BTreeMap<String, u64>,
    /// Their hosts.
    pub hosts: u64,
    /// The hundred hosts with most of them.
    pub by_host: Vec<HostShare>,
    /// Feeds a second.
    pub rate: f64,
    /// How long it takes at that rate at least.
    pub seconds: f64,
}

/// A host's share of a requeue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostShare {
    /// Which host.
    pub host: String,
    /// Pollable feeds there.
    pub feeds: u64,
    /// The host is held, or blocked, until then: its feeds are polled afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
}

impl RequeuedView {
    /// The plan of a requeue in numbers; `waits` are the holds and blocks of its hosts.
    pub fn of(
        plan: &RequeuePlan,
        waits: &BTreeMap<HostKey, Timestamp>,
        lift_penalties: bool,
        rate: f64,
        dry_run: bool,
    ) -> Self {
        let (mut matched, mut pollable) = (0, 0);
        let (mut left_out, mut by_category) = (BTreeMap::new(), BTreeMap::new());
        for &(category, status, penalised, feeds) in &plan.classes {
            matched += feeds;
            if reaches(status, penalised, lift_penalties) {
                pollable += feeds;
                *by_category.entry(category.as_str().to_owned()).or_insert(0) += feeds;
            } else {
                let reason = if status == Status::Active { "penalised" } else { status.as_str() };
                *left_out.entry(reason.to_owned()).or_insert(0) += feeds;
            }
        }
        let share = |(host, feeds): &(HostKey, u64)| HostShare {
            host: host.to_string(),
            feeds: *feeds,
            not_before: waits.get(host).copied(),
        };
        RequeuedView {
            id: None,
            matched,
            queued: if dry_run { 0 } else { pollable },
            dry_run,
            pollable,
            left_out,
            by_category,
            hosts: plan.hosts,
            by_host: plan.largest.iter().map(share).collect(),
            rate,
            seconds: pollable as f64 / rate,
        }
    }
}
