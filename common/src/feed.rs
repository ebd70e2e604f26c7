//! A feed, with everything that the store keeps of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::archive::ArchiveRead;
use crate::calm::{CalmGroup, calm_subscribers};
use crate::document::{ContentHash, Onward, Validators};
use crate::entry::json_bytes;
use crate::host::HostKey;
use crate::labels::Marks;
use crate::last_error::LastError;
use crate::outcome::FailureKind;
use crate::policy::{Audience, Category, PollState, Status, Term, Terms};
use crate::push::FeedPush;
use crate::secrets::Sealed;
use crate::time::Timestamp;
use crate::url::{FeedId, FeedUrl, Version};

/// A feed as the store knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Feed {
    /// Its number.
    pub id: FeedId,
    /// Where it is polled.
    pub url: FeedUrl,
    /// The user name and password that it is fetched with.
    pub credentials: Option<Sealed>,
    /// The unit of politeness that its requests are charged to.
    pub host: HostKey,
    /// The title that the feed gives itself.
    pub title: Option<String>,
    /// Whether it is polled.
    pub status: Status,
    /// The stored category. The rules may have changed since: [`category()`](crate::policy::category()) returns the
    /// current one.
    pub category: Category,
    /// Its readers.
    pub audience: Audience,
    /// When a person set that last.
    pub audience_at: Timestamp,
    /// Further readers, who want it once a day.
    pub calm: Vec<CalmGroup>,
    /// The caller's labels, sorted, and the caller's own id.
    pub marks: Marks,
    /// A person hid it from pings and the publisher's page; see [`Feed::is_private`].
    pub private: bool,
    /// See [`Version`].
    pub version: Version,
    /// For the next conditional request; of the last accepted answer.
    pub validators: Validators,
    /// Of the last accepted body.
    pub content_hash: Option<ContentHash>,
    /// What the policy remembers.
    pub state: PollState,
    /// Why the last poll failed; `None` after a good one.
    pub last_error: Option<LastError>,
    /// When it should be polled next; `None` for feeds that are not polled.
    pub next_due: Option<Timestamp>,
    /// The poll time that a ping, refresh or requeue requested; may be in the past.
    pub wake_at: Option<Timestamp>,
    /// The terms that made `next_due`, in order.
    pub terms: Vec<Term>,
    /// Its URL before it moved.
    pub moved_from: Option<String>,
    /// What it says about its further documents and its end.
    pub onward: Onward,
    /// Of a feed that was taken from a page: what else the page announces, the likeliest first.
    pub also_announced: Vec<String>,
    /// The feed that it turned out to be, when it is merged.
    pub merged_into: Option<FeedId>,
    /// Entries stored.
    pub entries: u64,
    /// What exceeded its quotas.
    pub over_quota: OverQuota,
    /// Its subscription with a hub or a cloud that notifies of new entries.
    pub push: Option<FeedPush>,
    /// How far its older entries were read, while they are.
    pub archive: Option<ArchiveRead>,
    /// When it was added.
    pub added: Timestamp,
}

/// What was left out or removed because a feed exceeded `[quota]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct OverQuota {
    /// Entries skipped because of the daily number.
    pub entries: u64,
    /// Entries skipped because of the daily size.
    pub bytes: u64,
    /// Deleted old identities.
    pub rows: u64,
    /// When this last happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Timestamp>,
}

impl OverQuota {
    /// Returns whether nothing ever was.
    pub fn is_empty(&self) -> bool {
        (self.entries, self.bytes, self.rows) == (0, 0, 0)
    }
}

impl Feed {
    /// Returns true if the feed is hidden from callers without a token. A feed with credentials is always private.
    pub fn is_private(&self) -> bool {
        self.private || self.credentials.is_some()
    }

    /// Returns about the number of bytes of text in it that its publisher chose, for size limits.
    pub fn text_bytes(&self) -> usize {
        let about = self.onward.about.as_ref().map_or(0, json_bytes);
        let onward = [&self.onward.next, &self.onward.prev_archive, &self.onward.new_feed_url];
        let texts = [&self.title, &self.moved_from].into_iter().chain(onward).flatten().chain(&self.also_announced);
        texts.map(String::len).sum::<usize>() + about
    }

    /// Returns true if a ping causes a poll of it. Nobody outside of the fleet ends a quarantine, which is a kind of penalty: see
    /// [`Status::hears_pings`] for the rest.
    pub fn hears_pings(&self) -> bool {
        let is_quarantined = self.state.penalty.is_some_and(|penalty| penalty.kind == FailureKind::Crashed);
        self.status.hears_pings() && !is_quarantined
    }

    /// Returns the number of subscribers, calm ones included.
    pub fn all_subscribers(&self) -> u32 {
        self.audience.subscribers.saturating_add(calm_subscribers(&self.calm))
    }

    /// Returns when the feed itself is polled, unless it is woken before: pages of its archive may be read earlier.
    pub fn poll_due(&self) -> Option<Timestamp> {
        self.archive.as_ref().map_or(self.next_due, |archive| Some(archive.poll_due))
    }

    /// Returns what a new plan of its own polls changes: its due time, unless a page of its archive is read before, and how its
    /// archive is read.
    pub fn replanned(&self, plan: (Timestamp, Terms)) -> (Option<(Timestamp, Terms)>, Option<ArchiveRead>) {
        let Some(archive) = &self.archive else { return (Some(plan), None) };
        let due = Some(plan).filter(|(due, _)| self.next_due.is_none_or(|page_due| *due <= page_due));
        let is_earlier = plan.0 < archive.poll_due;
        (due, is_earlier.then(|| ArchiveRead { poll_due: plan.0, ..archive.clone() }))
    }

    /// Returns the time at which the schedule should hold it: the earlier of `next_due` and `wake_at`; of a feed that is polled
    /// for pings alone `wake_at`; `None` when it is not polled.
    pub fn due(&self) -> Option<Timestamp> {
        match (self.status, self.next_due) {
            (Status::Active, Some(next_due)) => Some(self.wake_at.map_or(next_due, |wake| wake.min(next_due))),
            (Status::Blacklisted | Status::Gone, _) => self.wake_at,
            _ => None,
        }
    }
}
