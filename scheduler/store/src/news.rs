//! The events that consumers get of what people do to feeds: `feed.added`, `feed.changed` and `feed.removed`.
//!
//! A transaction that changes a row of a feed reads what people set before and after, and publishes the difference. A
//! change that changes nothing therefore publishes nothing, whichever way it came.

use common::host::HostKey;
use common::labels::Marks;
use common::time::Timestamp;
use serde::{Deserialize, Serialize};
use sqlx_macros::FromRow;

use super::Added;
use super::columns::read_marks;

/// The columns of a [`Known`].
macro_rules! known_columns {
    () => {
        "id, status, url, host, category, title, subscribers, active_subscribers, sla, important, interval_ms, private, calm, \
         labels, external_id, credentials"
    };
}
pub(crate) use known_columns;

/// What people set of a feed, and what a consumer needs to recognise it.
#[derive(Clone, Debug, FromRow)]
pub(crate) struct Known {
    id: i64,
    status: String,
    url: String,
    host: String,
    category: String,
    title: Option<String>,
    subscribers: i64,
    active_subscribers: i64,
    sla: bool,
    important: bool,
    interval_ms: Option<i64>,
    private: bool,
    calm: Option<String>,
    labels: Option<String>,
    external_id: Option<String>,
    /// The name of its login.
    credentials: Vec<u8>,
}

/// An event to be published.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct News {
    pub(crate) kind: &'static str,
    pub(crate) feed: i64,
    /// An [`About`] as JSON.
    pub(crate) about: Option<String>,
}

/// What an event says beside its kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct About {
    /// The settings that changed, by their names in the API.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) changed: Vec<String>,
    /// The feed as it was when it was removed: its row may be erased.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) feed: Option<Removed>,
    /// Since when there is what happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<Timestamp>,
    /// The labels to which the subscription is limited.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) limited_to: Vec<String>,
}

/// A feed that was removed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Removed {
    pub(crate) url: String,
    pub(crate) host: HostKey,
    pub(crate) category: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    #[serde(flatten)]
    pub(crate) marks: Marks,
}

impl News {
    /// Returns an event that says no more than its kind.
    pub(crate) fn of(kind: &'static str, feed: i64) -> Self {
        News { kind, feed, about: None }
    }

    /// Returns feeds that were added, or added again after they had ended, by number.
    pub(crate) fn added(feeds: impl IntoIterator<Item = i64>) -> Vec<News> {
        let mut feeds: Vec<i64> = feeds.into_iter().collect();
        feeds.sort_unstable();
        feeds.into_iter().map(|feed| News::of("feed.added", feed)).collect()
    }
}

impl About {
    pub(crate) fn since(since: Timestamp) -> Self {
        About { since: Some(since), ..About::default() }
    }

    /// Returns its JSON: texts and numbers, which JSON can hold.
    pub(crate) fn packed(&self) -> Option<String> {
        serde_json::to_string(self).ok()
    }

    pub(crate) fn read(text: Option<&str>) -> About {
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}

impl Known {
    const REMOVED: &str = "removed";

    pub(crate) fn id(&self) -> i64 {
        self.id
    }

    fn removed(&self) -> News {
        let feed = Removed {
            url: self.url.clone(),
            host: HostKey::new(&self.host),
            category: self.category.clone(),
            title: self.title.clone(),
            marks: read_marks(self.labels.as_deref(), self.external_id.clone()),
        };
        let about = About { feed: Some(feed), ..About::default() };
        News { about: about.packed(), ..News::of("feed.removed", self.id) }
    }

    /// Returns the settings that changed.
    fn changes(&self, after: &Known) -> Vec<String> {
        let settings = [
            ("status", self.status != after.status),
            ("subscribers", self.subscribers != after.subscribers),
            ("active_subscribers", self.active_subscribers != after.active_subscribers),
            ("sla", self.sla != after.sla),
            ("important", self.important != after.important),
            ("interval", self.interval_ms != after.interval_ms),
            ("private", self.private != after.private),
            ("calm", self.calm != after.calm),
            ("labels", self.labels != after.labels),
            ("external_id", self.external_id != after.external_id),
            ("credentials", self.credentials != after.credentials),
        ];
        settings.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name.to_owned()).collect()
    }

    fn news(&self, after: Option<&Known>) -> Option<News> {
        let was_removed = self.status == Self::REMOVED;
        match after {
            None if was_removed => None,
            None => Some(self.removed()),
            Some(after) if after.status == Self::REMOVED && !was_removed => Some(after.removed()),
            Some(after) if was_removed && after.status != Self::REMOVED => Some(News::of("feed.added", self.id)),
            Some(after) => {
                let changed = self.changes(after);
                let about = About { changed, ..About::default() };
                (!about.changed.is_empty()).then(|| News { about: about.packed(), ..News::of("feed.changed", self.id) })
            }
        }
    }
}

/// Returns what changed, in the order of `before`. `after` has the rows that are left, in any order.
pub(crate) fn news(before: &[Known], after: &[Known]) -> Vec<News> {
    let after: std::collections::HashMap<i64, &Known> = after.iter().map(|row| (row.id, row)).collect();
    before.iter().filter_map(|row| row.news(after.get(&row.id).copied())).collect()
}

/// Returns the feeds that are polled since a call.
pub(crate) fn ids_of_new(added: &[Added]) -> impl Iterator<Item = i64> + '_ {
    added.iter().filter(|added| added.new || added.revived).map(|added| added.id.0)
}
