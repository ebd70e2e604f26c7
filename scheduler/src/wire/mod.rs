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
use serde::{Deserialize, Serialize};

use crate::poll::subject::subject;

pub use self::events::*;
pub use self::operations::*;

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
    /// An interval that a person set, in seconds.
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
    /// A refresh or a ping requested a poll by this time, whatever `next_due` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_from: Option<String>,
    /// What the feed itself says about when to poll it.
    #[serde(default, skip_serializing_if = "FeedHints::is_empty")]
    pub hints: FeedHints,
    /// It was read, and no entry can have been missed since, or all that were missed have been recovered.
    #[serde(default)]
    pub complete: bool,
    /// The last good poll before entries may have been missed: see the event `feed.overflowed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_since: Option<Timestamp>,
    /// The newest entry of a feed that is silent: see the event `feed.silent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<Timestamp>,
    /// Its older entries are being read; absent when they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<ArchiveView>,
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
    /// What exceeded its quotas; absent when nothing ever did.
    #[serde(default, skip_serializing_if = "OverQuota::is_empty")]
    pub over_quota: OverQuota,
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArchiveView {
    /// The page that is read next.
    pub next: String,
    /// Entries dated before are left out.
    pub since: Timestamp,
    /// Pages read.
    pub pages: u64,
    /// Entries that they contained.
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

/// The outcome of one line of many.
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

/// Why a feed is due when it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// When it should be polled next; null when it is not polled.
    pub next_due: Option<Timestamp>,
    /// A refresh or a ping requested a poll by this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<Timestamp>,
    /// The terms in the order in which they were applied; each starts from the due time of the one before.
    pub terms: Vec<ExplainedTerm>,
    /// What else keeps it from being polled at that time, a sentence each.
    pub notes: Vec<String>,
    /// All of it as one line for people.
    pub text: String,
}
