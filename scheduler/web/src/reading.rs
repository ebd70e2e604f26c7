//! The parameters of lists and streams of entries and events.

use axum::http::StatusCode;
use common::labels::read_labels;
use common::policy::Category;
use common::time::Timestamp;
use common::url::FeedId;
use scheduler::events::follow::Follower;
use scheduler::wire::EVENT_KINDS;

use crate::error::ApiError;
use crate::listing::{host_key, named, searched};
use crate::request::{explained, limit, parsed};
use crate::state::Api;
use store::{EventFilter, EventPage, EventQuery, FeedRef};

/// Defines query parameters: those that choose entries or events, and further ones.
macro_rules! parameters {
    ($(#[$about:meta])* $name:ident { $($more:ident),* }) => {
        $(#[$about])*
        #[derive(Debug, Default, serde::Deserialize)]
        pub(crate) struct $name {
            pub(crate) after: Option<String>,
            pub(crate) epoch: Option<String>,
            pub(crate) limit: Option<String>,
            order: Option<String>,
            kind: Option<String>,
            feed: Option<String>,
            host: Option<String>,
            label: Option<String>,
            category: Option<String>,
            language: Option<String>,
            q: Option<String>,
            since: Option<String>,
            part: Option<String>,
            $(pub(crate) $more: Option<String>,)*
        }

        impl $name {
            /// Returns what these parameters choose.
            pub(crate) fn chosen(&self) -> crate::reading::Chosen<'_> {
                crate::reading::Chosen {
                    limit: self.limit.as_deref(),
                    order: self.order.as_deref(),
                    kind: self.kind.as_deref(),
                    feed: self.feed.as_deref(),
                    host: self.host.as_deref(),
                    label: self.label.as_deref(),
                    category: self.category.as_deref(),
                    language: self.language.as_deref(),
                    q: self.q.as_deref(),
                    since: self.since.as_deref(),
                    part: self.part.as_deref(),
                }
            }
        }
    };
}
pub(crate) use parameters;

/// Which entries or events are chosen, as text.
pub(crate) struct Chosen<'a> {
    pub(crate) limit: Option<&'a str>,
    pub(crate) order: Option<&'a str>,
    pub(crate) kind: Option<&'a str>,
    pub(crate) feed: Option<&'a str>,
    pub(crate) host: Option<&'a str>,
    pub(crate) label: Option<&'a str>,
    pub(crate) category: Option<&'a str>,
    pub(crate) language: Option<&'a str>,
    pub(crate) q: Option<&'a str>,
    pub(crate) since: Option<&'a str>,
    pub(crate) part: Option<&'a str>,
}

/// The maximum length of a language tag.
const LONGEST_LANGUAGE: usize = 35;

impl Chosen<'_> {
    /// Reads them, for the items behind `after`.
    pub(crate) async fn query(&self, api: &Api, after: i64) -> Result<EventQuery, ApiError> {
        let newest = match self.order {
            None | Some("oldest") => false,
            Some("newest") => true,
            Some(_) => return Err(ApiError::bad("order must be oldest or newest")),
        };
        let (filter, limit) = (self.filter(api).await?, limit(self.limit, 100, 1000)?);
        Ok(EventQuery { filter, newest, after, limit, look: None })
    }

    /// Reads the conditions.
    pub(crate) async fn filter(&self, api: &Api) -> Result<EventFilter, ApiError> {
        let feed = match self.feed {
            Some(feed) => Some(feed_id(api, feed).await?),
            None => None,
        };
        let label =
            |label: &str| read_labels(&[label.to_owned()]).map_err(|error| ApiError::bad(format!("label: {error}")));
        Ok(EventFilter {
            kinds: self.kind.map_or(Ok(Vec::new()), kinds)?,
            feed,
            host: self.host.map(host_key).transpose()?,
            label: self.label.map(label).transpose()?.and_then(|labels| labels.into_iter().next()),
            visible: api.labels().to_vec(),
            category: named("category", self.category, &Category::ALL, Category::as_str)?,
            language: self.language.map(language).transpose()?,
            text: self.q.filter(|text| !text.is_empty()).map(|text| searched(text.to_owned())).transpose()?,
            part: self.part.map(|part| explained("part", part)).transpose()?,
            since: self.since.map(time).transpose()?,
        })
    }
}

/// Returns the feed that a parameter names: by its id or its URL.
pub(crate) async fn feed_id(api: &Api, text: &str) -> Result<FeedId, ApiError> {
    if let Ok(id) = text.parse() {
        return Ok(FeedId(id));
    }
    let url = api.feed_url(text)?;
    let unknown =
        || ApiError::new(StatusCode::NOT_FOUND, format!("no feed without credentials has the URL {url}; give its id"));
    Ok(api.find(&FeedRef::Url(url.clone())).await?.ok_or_else(unknown)?.id)
}

/// Kinds, separated by commas; `entry.*`, `feed.*`, `host.*` and `subscription.*` each stand for all kinds that begin so.
fn kinds(text: &str) -> Result<Vec<String>, ApiError> {
    let known =
        |kind: &&str| EVENT_KINDS.contains(kind) || ["entry.*", "feed.*", "host.*", "subscription.*"].contains(kind);
    let read = |kind: &str| Some(kind.trim()).filter(known).map(str::to_owned);
    let kinds: Option<Vec<String>> = text.split(',').map(read).collect();
    kinds.ok_or_else(|| {
        let sorts = "entry.*, feed.*, host.*, subscription.*";
        ApiError::bad(format!("kind must be one or more of {sorts}, {}", EVENT_KINDS.join(", ")))
    })
}

fn language(text: &str) -> Result<String, ApiError> {
    let is_tag =
        (1..=LONGEST_LANGUAGE).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    if is_tag {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(ApiError::bad("language must be a language tag, such as en or pt-BR"))
    }
}

pub(crate) fn time(text: &str) -> Result<Timestamp, ApiError> {
    let read = serde_json::from_value(text.into());
    read.map_err(|_| ApiError::bad("since must be a time in RFC 3339, such as 2026-11-22T12:00:00Z"))
}

/// Reads a cursor; without one the list is read from the beginning of its order.
pub(crate) fn cursor(after: Option<&str>) -> Result<i64, ApiError> {
    Ok(seq("after", after)?.unwrap_or(0))
}

/// Reads the number of an event.
pub(crate) fn seq(name: &str, written: Option<&str>) -> Result<Option<i64>, ApiError> {
    parsed(name, written, "a seq: a whole number, 0 for the beginning")
}

/// 410 for a cursor whose next items are unknown: it is from another epoch, older than what is kept, or newer than everything.
pub(crate) async fn refuse_lost<T>(
    api: &Api,
    query: &EventQuery,
    epoch: Option<&str>,
    page: &EventPage<T>,
) -> Result<(), ApiError> {
    let after = query.after;
    let message = if epoch.is_some_and(|epoch| epoch != page.epoch) {
        format!("the store was replaced or restored from a backup; its epoch is {}: start from scratch", page.epoch)
    } else if !query.newest && Follower::missed(after, page) {
        format!("after={after} is older than what is kept; continue after {}", page.oldest - 1)
    } else if after > 0 && (page.items.is_empty() || query.newest) && after > api.ops.store.latest_seq().await? {
        format!("after={after} is newer than anything here: it was read from another store; start from scratch")
    } else {
        return Ok(());
    };
    let refusal = ApiError::new(StatusCode::GONE, message);
    Err(refusal.with("oldest", page.oldest).with("epoch", page.epoch.as_str()))
}
