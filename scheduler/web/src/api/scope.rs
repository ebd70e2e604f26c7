//! Tokens that are limited to labels: what such a caller may open, see and change.
//!
//! Two things hold them. Routes that are not listed here are refused, so that a new one shows nothing by accident. And the handlers of
//! those that are listed work on an [`Api`] that knows its caller ([`State`](crate::state::State)): it finds, lists and changes only feeds
//! with one of the labels.

use axum::extract::{MatchedPath, Request};
use axum::http::{Method, StatusCode};
use common::feed::Feed;
use common::labels::Marks;
use common::url::FeedId;
use scheduler::ops::AddFeed;
use store::{FeedRef, Subscription};

use crate::error::ApiError;
use crate::session::Caller;
use crate::state::Api;

/// The routes that a token with labels may use.
pub(crate) const OPEN: [&str; 52] = [
    "/api/v1/feeds",
    "/api/v1/feeds/bulk",
    "/api/v1/feeds/lookup",
    "/api/v1/feeds/{id}",
    "/api/v1/feeds/{id}/explain",
    "/api/v1/feeds/{id}/history",
    "/api/v1/feeds/{id}/entries",
    "/api/v1/feeds/{id}/pause",
    "/api/v1/feeds/{id}/resume",
    "/api/v1/feeds/{id}/refresh",
    "/api/v1/feeds/{id}/forget",
    "/api/v1/feeds/{id}/backfill",
    "/api/v1/entries",
    "/api/v1/entries/lookup",
    "/api/v1/entries/{seq}",
    "/api/v1/events",
    "/api/v1/events/stream",
    "/api/v1/subscriptions",
    "/api/v1/subscriptions/{id}",
    "/api/v1/subscriptions/{id}/pause",
    "/api/v1/subscriptions/{id}/resume",
    "/api/v1/subscriptions/{id}/replay",
    "/api/v1/subscriptions/{id}/deliveries",
    "/entries.atom",
    "/entries.json",
    "/entries",
    "/feeds",
    "/feeds/add",
    "/feeds/import",
    "/feeds/refresh",
    "/feeds/pause",
    "/feeds/resume",
    "/feeds/label",
    "/feeds/unlabel",
    "/feeds/remove",
    "/feeds/{id}",
    "/feeds/{id}/refresh",
    "/feeds/{id}/pause",
    "/feeds/{id}/resume",
    "/feeds/{id}/forget",
    "/feeds/{id}/change",
    "/feeds/{id}/remove",
    "/subscriptions",
    "/subscriptions/add",
    "/subscriptions/{id}",
    "/subscriptions/{id}/pause",
    "/subscriptions/{id}/resume",
    "/subscriptions/{id}/rotate",
    "/subscriptions/{id}/change",
    "/subscriptions/{id}/replay",
    "/subscriptions/{id}/remove",
    // Leads to the first page that it may open.
    HOME,
];

/// The page of the fleet.
const HOME: &str = "/";

/// Returns true for a caller with labels that opens the page of the fleet: it is redirected.
pub(crate) fn leads_home(caller: &Caller, request: &Request) -> bool {
    caller.is_limited() && request.uri().path() == HOME && request.method() == Method::GET
}

/// Refuses a route that is not for tokens with labels.
pub(crate) fn within_labels(caller: &Caller, request: &Request) -> Result<(), ApiError> {
    let matched = request.extensions().get::<MatchedPath>();
    // A path without a route is a 404 for all callers.
    if !caller.is_limited() || matched.is_none_or(|path| OPEN.contains(&path.as_str())) {
        return Ok(());
    }
    let message =
        format!("this token is limited to feeds labelled {}; this needs a token without labels", named(&caller.labels));
    Err(ApiError::new(StatusCode::FORBIDDEN, message).coded("token_limited"))
}

fn named(labels: &[String]) -> String {
    labels.join(" or ")
}

impl Api {
    /// Returns the labels that the caller is limited to; none: it sees everything.
    pub(crate) fn labels(&self) -> &[String] {
        &self.caller.labels
    }

    /// Returns whether the caller may see a feed with these labels.
    pub(crate) fn shows(&self, marks: &Marks) -> bool {
        !self.caller.is_limited() || self.labels().iter().any(|label| marks.labels.contains(label))
    }

    /// Returns the feed, if the caller may see it.
    pub(crate) async fn find(&self, which: &FeedRef) -> Result<Option<Feed>, ApiError> {
        Ok(self.ops.feed(which).await?.filter(|feed| self.shows(&feed.marks)))
    }

    /// 404 for a feed that the caller may not see, as for one that there is not.
    pub(crate) async fn may_touch(&self, id: FeedId) -> Result<(), ApiError> {
        if self.caller.is_limited() { self.feed(id).await.map(drop) } else { Ok(()) }
    }

    /// Returns whether the caller may see a subscription: one that gets nothing that the caller could not read.
    pub(crate) fn owns(&self, subscription: &Subscription) -> bool {
        let visible = &subscription.wish.filter.visible;
        !self.caller.is_limited() || !visible.is_empty() && visible.iter().all(|label| self.labels().contains(label))
    }

    /// Returns the labels of a new feed. Without any of its own it gets the caller's.
    pub(crate) fn labels_for_new(&self, wanted: Vec<String>) -> Result<Vec<String>, ApiError> {
        if self.caller.is_limited() && wanted.is_empty() {
            return Ok(self.labels().to_vec());
        }
        self.may_label(&[], &wanted)?;
        Ok(wanted)
    }

    /// Refuses a change of labels that are not the caller's, and one that would leave none of these: the feed would be lost to it.
    pub(crate) fn may_label(&self, before: &[String], after: &[String]) -> Result<(), ApiError> {
        if !self.caller.is_limited() {
            return Ok(());
        }
        let own = |label: &String| self.labels().contains(label);
        let added = after.iter().filter(|label| !before.contains(label));
        let mut changed = before.iter().filter(|label| !after.contains(label)).chain(added);
        if changed.all(own) && after.iter().any(own) {
            return Ok(());
        }
        let message = format!(
            "this token may add and remove only the labels {}, and must leave a feed one of them",
            named(self.labels())
        );
        Err(ApiError::new(StatusCode::FORBIDDEN, message).coded("token_limited"))
    }

    /// Refuses to add a URL that others have: it would change their feed, or show it.
    pub(crate) async fn may_add(&self, feed: &AddFeed) -> Result<(), ApiError> {
        if !self.caller.is_limited() || feed.login.is_some() {
            return Ok(());
        }
        let known = self.ops.feed(&FeedRef::Url(feed.url.clone())).await?;
        match known.filter(|known| !self.shows(&known.marks)) {
            Some(_) => Err(self.of_others()),
            None => Ok(()),
        }
    }

    /// 409 for a URL that others have.
    pub(crate) fn of_others(&self) -> ApiError {
        let message = format!(
            "this URL was added without the label {}, which this token is limited to; ask the operator to label it",
            named(self.labels())
        );
        ApiError::new(StatusCode::CONFLICT, message).coded("feed_of_others")
    }
}
