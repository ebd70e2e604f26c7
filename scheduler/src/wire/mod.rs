//! The JSON that the API, the exchange and the command line share.
//!
//! Times are RFC 3339 in UTC with milliseconds, durations seconds as numbers. Absent fields have no value. Here is what concerns feeds,
//! entries and events.

pub mod about;
mod events;
mod operations;

use common::archive::ArchiveRead;
use common::calm::CalmGroup;
use common::document::{ContentHash, FeedAbout, FeedHints, Onward};
use common::feed::{Feed, OverQuota};
use common::host::HostRules;
use common::labels::Marks;
use common::last_error::ExplainedError;
use common::outcome::OutcomeKind;
use common::policy::{Category, Penalty, Status};
use common::policy::{ExplainedTerm, category};
use common::push::{FeedPush, PushKind, PushState};
use common::time::Timestamp;
use common::url::{FeedId, Version};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::poll::subject::subject;

pub use self::events::*;
pub use self::operations::*;

/// A feed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Feed")]
pub struct FeedView {
    /// Its id, which is never assigned to another feed.
    pub id: FeedId,
    /// Where it is polled.
    pub url: String,
    /// The host that its requests count against: name and port, or the name of a shared rule.
    pub host: String,
    /// Its title, once it has been polled.
    pub title: Option<String>,
    /// A: has an SLA; B: many subscribers, or important; C: a few; D: one or none; F: its host has an interval rule.
    pub category: Category,
    /// Only active feeds are polled.
    pub status: Status,
    /// Total number of subscribers.
    pub subscribers: u32,
    /// The number of active subscribers.
    pub active_subscribers: u32,
    /// New content must arrive within two minutes.
    pub sla: bool,
    /// Polled like a feed with many subscribers.
    pub important: bool,
    /// Additional subscribers who want it once a day, at their midnight.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calm: Vec<CalmGroup>,
    /// An interval set by an operator, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<f64>,
    /// Whether it is polled with a user name and password.
    pub credentials: bool,
    /// Looks unknown to pings and on the publisher's page, like every feed with credentials.
    pub private: bool,
    /// What the caller notes on it.
    #[serde(flatten)]
    pub marks: Marks,
    /// The last `ETag`, as received.
    pub etag: Option<String>,
    /// The last `Last-Modified`, as received.
    pub last_modified: Option<String>,
    /// The hash of the last accepted body.
    #[schemars(with = "Option<String>")]
    pub content_hash: Option<ContentHash>,
    /// When it is polled next; null if it is not polled.
    pub next_due: Option<Timestamp>,
    /// Start of the last poll.
    pub last_polled: Option<Timestamp>,
    /// Start of the last successful poll.
    pub last_success: Option<Timestamp>,
    /// Start of the last poll with new content.
    pub last_changed: Option<Timestamp>,
    /// The last HTTP status.
    pub last_status: Option<u16>,
    /// The outcome of the last poll.
    pub last_outcome: Option<OutcomeKind>,
    /// Failures since the last success.
    pub consecutive_failures: u32,
    /// The first failure of the current run.
    pub failing_since: Option<Timestamp>,
    /// The feed has failed for so long that its readers should know: from the event `feed.failing` to `feed.recovered`.
    #[serde(default)]
    pub failing: bool,
    /// Why its last poll failed; absent after a good one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<ExplainedError>,
    /// Present while the feed is in the penalty box.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub penalty: Option<Penalty>,
    /// A hold set by its server ends then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_until: Option<Timestamp>,
    /// A refresh or a ping requested a poll by this time, whatever `next_due` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<Timestamp>,
    /// Its URL before it moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_from: Option<String>,
    /// What the feed itself says about when to poll it; absent if it says nothing.
    #[serde(default, skip_serializing_if = "FeedHints::is_empty")]
    pub hints: FeedHints,
    /// It was read, and no entry can have been missed since, or all that may have been missed were recovered.
    #[serde(default)]
    pub complete: bool,
    /// The last good poll before entries may have been missed (event `feed.overflowed`); absent if none may have been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_since: Option<Timestamp>,
    /// The newest entry of a feed that is silent (event `feed.silent`); absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<Timestamp>,
    /// How far its older entries were read; absent when they are not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<ArchiveView>,
    /// Its last document was broken, and read after a repair; absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repaired: bool,
    /// What it says about its further documents and its end; absent if it says nothing.
    #[serde(default, skip_serializing_if = "Onward::is_empty")]
    pub onward: Onward,
    /// What it says about itself.
    #[serde(flatten)]
    pub about: FeedAbout,
    /// The other feeds of the page that this feed was taken from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also_announced: Vec<String>,
    /// The feed that it was merged into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_into: Option<FeedId>,
    /// Its subscription with a hub or a cloud that announces new entries; absent if there is none. Lists do not contain
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push: Option<PushView>,
    /// Increases with each stored poll and each change of URL or status.
    #[schemars(with = "i64")]
    pub version: Version,
    /// Entries stored.
    pub entries: u64,
    /// Content beyond its quotas (`quota.*`); absent if there was none.
    #[serde(default, skip_serializing_if = "OverQuota::is_empty")]
    pub over_quota: OverQuota,
    /// When it was added.
    pub added: Timestamp,
}

impl FeedView {
    /// Returns the feed as callers see it; its category follows from its audience and from `rules`.
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
            // A feed that is polled as another one, or not at all, is not tried again.
            penalty: state.penalty.filter(|_| !matches!(feed.status, Status::Merged | Status::Removed)),
            hold_until: state.hold_until,
            wake_at: feed.wake_at,
            moved_from: feed.moved_from,
            hints: state.hints,
            complete: state.last_success.is_some() && state.gap_since.is_none(),
            gap_since: state.gap_since,
            silent_since: state.silent_since,
            archive: feed.archive.as_ref().map(ArchiveView::of),
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

/// How far a feed's older entries were read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ArchiveView {
    /// The page that is read next.
    pub next: String,
    /// Entries dated before are left out.
    pub since: Timestamp,
    /// Pages read.
    pub pages: u64,
    /// Entries that these pages contained.
    pub entries: u64,
}

impl ArchiveView {
    fn of(archive: &ArchiveRead) -> Self {
        ArchiveView {
            next: archive.next.to_string(),
            since: archive.since,
            pages: archive.read.len() as u64,
            entries: archive.entries,
        }
    }
}

/// A feed's subscription with a hub or a cloud.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct PushView {
    /// The protocol.
    pub kind: PushKind,
    /// The hub, or the cloud as domain:port/path protocol.
    pub hub: String,
    /// What is subscribed there.
    pub topic: String,
    /// Its state; new entries are pushed while it is verified.
    pub state: PushState,
    /// When the lease expires, unless it is renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<Timestamp>,
    /// Its pushes proved reliable: the feed is polled less often.
    pub reliable: bool,
    /// True if the hub accepted the subscription and never sent anything, although there were new entries; otherwise
    /// absent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub silent: bool,
    /// Pushes in a row that announced new entries before a poll found them.
    pub announced: u32,
    /// Polls that found entries which were not announced.
    pub missed: u64,
    /// Deliveries and notifications.
    pub deliveries: u64,
    /// When the last delivery or notification arrived.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AddedFeed")]
pub struct AddedView {
    /// It is polled since this call; otherwise it was known.
    pub new: bool,
    /// It was known but no longer polled, and gets one attempt.
    pub revived: bool,
    /// The feed.
    #[serde(flatten)]
    pub feed: FeedView,
}

/// The outcome of one line of many.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "BulkAnswer")]
pub struct BulkView {
    /// The line's number in the request, from 1.
    pub line: usize,
    /// The feed's id; absent if the line was rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<FeedId>,
    /// It is polled since this line.
    pub new: bool,
    /// It was known but no longer polled, and gets one attempt.
    pub revived: bool,
    /// It was known, and some of its fields changed.
    pub changed: bool,
    /// Why the line was rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{T}List")]
pub struct List<T> {
    /// The items.
    pub items: Vec<T>,
    /// The cursor of the next page, for `after`; null at the end.
    pub next: Option<String>,
}

/// Why a feed is due when it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Explanation")]
pub struct ExplainView {
    /// Its number.
    pub id: FeedId,
    /// Where it is polled.
    pub url: String,
    /// Its category.
    pub category: Category,
    /// Whether it is polled.
    pub status: Status,
    /// What the first term counts from: the last poll, or the time when the feed was added.
    pub base: Timestamp,
    /// When it was last polled; absent if it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_polled: Option<Timestamp>,
    /// When it is due; null if it is not polled.
    pub next_due: Option<Timestamp>,
    /// A refresh or a ping requested a poll by this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<Timestamp>,
    /// The terms in the order in which they were applied; each starts from the due time of the one before.
    pub terms: Vec<ExplainedTerm>,
    /// What else keeps it from being polled at that time, a sentence each.
    pub notes: Vec<String>,
    /// All of it on one line.
    pub text: String,
}
