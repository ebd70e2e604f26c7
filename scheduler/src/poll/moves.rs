//! Follows feeds that turn out to be somewhere else: pages in place of feeds, and permanent redirects of feeds that are
//! well. The policy decides when a redirect is believed ([`move_is_settled`]).

use std::collections::HashMap;
use std::sync::Arc;

use common::config::PolicyConfig;
use common::document::Validators;
use common::feed::Feed;
use common::known::KnownEntries;
use common::live_rules::LiveRules;
use common::outcome::FailureKind;
use common::policy::{Status, Subject, category, move_is_settled, move_target};
use common::report::{FetchReport, Outcome};
use common::time::Timestamp;
use common::url::{FeedId, FeedUrl, Version};

use crate::error::BackendError;
use crate::poll::subject::{new_subject, slot};
use crate::schedule::{Band, Schedule, ScheduleError, Slot};
use store::{Applied, FeedChange, FeedRef, Move, Moved, Store, Verdict};

/// A feed that was merged into one that was merged, and so on: so far they are followed.
const MERGES: usize = 5;

/// Returns whether a permanent redirect to there may be remembered. Credentials never go to another origin.
pub(crate) fn may_move(subject: &Subject<'_>, feed: &Feed, to: &FeedUrl) -> bool {
    !subject.credentials || feed.url.as_url().origin() == to.as_url().origin()
}

/// Follows moves.
pub struct Moves {
    /// Gives feeds other URLs.
    pub store: Arc<dyn Store>,
    /// Receives their due times then.
    pub schedule: Arc<dyn Schedule>,
    /// Which host a URL belongs to.
    pub rules: Arc<LiveRules>,
}

impl Moves {
    /// Moves the feeds whose reports say that they are elsewhere. If this is not reached, the next poll does it. Returns the feeds that
    /// others were merged into.
    pub(crate) async fn follow(
        &self,
        verdicts: &[Verdict],
        applied: &[Applied],
        feeds: &HashMap<FeedId, Feed>,
        policy: &PolicyConfig,
        now: Timestamp,
    ) -> Result<Vec<FeedId>, BackendError> {
        let mut survivors = Vec::new();
        for (verdict, applied) in verdicts.iter().zip(applied) {
            let Some(feed) = feeds.get(&verdict.report.feed).filter(|_| matches!(applied, Applied::Stored { .. }))
            else {
                continue;
            };
            let announced = announced_instead(feed, &verdict.report);
            let (to, same) = match announced.split_first() {
                Some((first, _)) => (Some(first.clone()), false),
                None if is_settled(verdict, policy) => {
                    (self.living_at(feed, verdict.report.moved_to.as_ref()).await?, true)
                }
                None => (self.living_at(feed, permanent_url(feed, verdict)).await?, true),
            };
            if let Some(to) = to {
                let others = announced.iter().skip(1).cloned().collect();
                survivors.extend(self.move_to(feed, to, (same, others), now).await?);
            }
        }
        Ok(survivors)
    }

    /// Leaves the entries of a new feed to the known feed that it turns out to be: they would be published twice. If the two are
    /// not merged after all, its next poll reads them.
    pub(crate) async fn without_entries_of_another(
        &self,
        feed: &Feed,
        report: &mut FetchReport,
    ) -> Result<(), BackendError> {
        let Outcome::Modified(document) = &mut report.outcome else { return Ok(()) };
        let Some(url) = report.permanent_url.as_ref().filter(|url| **url != feed.url) else { return Ok(()) };
        if feed.state.last_success.is_some() || feed.credentials.is_some() {
            return Ok(());
        }
        let there = self.store.feed(&FeedRef::Url(url.clone())).await?;
        if there.is_some_and(|there| there.status == Status::Active && feed.marks.may_become(&there.marks)) {
            (document.entries, document.new_entries, document.known) = (Vec::new(), 0, KnownEntries::default());
            (document.content_hash, document.validators) = (None, Validators::default());
        }
        Ok(())
    }

    /// Returns the URL to move to: where the target's own feed is by now, if that was merged into another. `None` when
    /// a person paused that one, or when it is this very feed.
    async fn living_at(&self, feed: &Feed, to: Option<&FeedUrl>) -> Result<Option<FeedUrl>, BackendError> {
        let Some(to) = to else { return Ok(None) };
        // The feeds that others have there, without this one's login, are other feeds.
        if feed.credentials.is_some() {
            return Ok(Some(to.clone()));
        }
        let mut known = self.store.feed(&FeedRef::Url(to.clone())).await?;
        for _ in 0..MERGES {
            match known {
                None => return Ok(Some(to.clone())),
                Some(there) if there.id == feed.id || there.status == Status::Paused => return Ok(None),
                Some(there) => match there.merged_into.filter(|_| there.status == Status::Merged) {
                    Some(survivor) => known = self.store.feed(&FeedRef::Id(survivor)).await?,
                    None => return Ok(Some(there.url)),
                },
            }
        }
        Ok(None)
    }

    /// Moves a feed there. Returns the feed that it was merged into, if another one is there.
    async fn move_to(
        &self,
        feed: &Feed,
        url: FeedUrl,
        (same, others): (bool, Vec<FeedUrl>),
        now: Timestamp,
    ) -> Result<Option<FeedId>, BackendError> {
        let rules = self.rules.get();
        let category = category(&new_subject(&rules, &url, feed.audience, &feed.calm, feed.credentials.is_some()));
        let to = Move { host: rules.for_url(url.as_url()).key, url, category, same, others };
        // What was just applied raised the version by one.
        let version = Version(feed.version.0 + 1);
        let why = if same { "its permanent URL is another one" } else { "it is a page that announces a feed" };
        // First: after the merge a process that dies would leave no feed that is polled there. A feed with a login is not merged into
        // the one that others have there.
        if feed.credentials.is_none() {
            let there = self.store.feed(&FeedRef::Url(to.url.clone())).await?;
            match there.filter(|there| there.id != feed.id) {
                // A page is merged without its readers then, and changes nothing of a feed that is polled.
                Some(there) if !feed.marks.may_become(&there.marks) && (same || there.status != Status::Active) => {
                    return Ok(None);
                }
                Some(there) => self.revive(there.id, same, now).await?,
                None => {}
            }
        }
        match self.store.move_feed(feed.id, version, &to, now).await? {
            Moved::Stale => Ok(None),
            Moved::Here => {
                if !same {
                    let band = Band::of(category, false);
                    // If the server asked for a later request, the store says so, and the dispatcher puts it back.
                    let slot = Slot { feed: feed.id, due_at: now, band };
                    self.schedule.put(&[slot], now).await.or_else(ScheduleError::unless_part_away)?;
                }
                tracing::info!(feed = %feed.id, host = %to.host, why, "a feed moved");
                Ok(None)
            }
            Moved::Into(survivor) => {
                self.schedule.remove(&[feed.id]).await.or_else(ScheduleError::unless_part_away)?;
                self.revive(survivor, same, now).await?;
                tracing::info!(feed = %feed.id, %survivor, why, "a feed became another one");
                Ok(Some(survivor))
            }
        }
    }

    /// A feed that others turn out to be is polled again: if its URL `answers` whatever ended it before, but for what killed
    /// workers; if a page merely announces it, only after a person took it out.
    async fn revive(&self, survivor: FeedId, answers: bool, now: Timestamp) -> Result<(), BackendError> {
        let Some(there) = self.store.feed(&FeedRef::Id(survivor)).await? else { return Ok(()) };
        let may = match there.status {
            // An older program erased its survivor.
            Status::Merged if there.merged_into.is_none() => true,
            Status::Active | Status::Paused | Status::Merged | Status::Quarantined => false,
            Status::Gone | Status::Blacklisted => answers,
            Status::Removed => true,
        };
        if !may {
            return Ok(());
        }
        let change = FeedChange { status: Some(Status::Active), ..FeedChange::default() };
        let Some(feed) = self.store.change_feed(survivor, &change, now).await? else { return Ok(()) };
        let slots: Vec<Slot> = feed.due().map(|due_at| slot(&self.rules.get(), &feed, due_at)).into_iter().collect();
        Ok(self.schedule.put(&slots, now).await.or_else(ScheduleError::unless_part_away)?)
    }
}

fn is_settled(verdict: &Verdict, policy: &PolicyConfig) -> bool {
    let live = verdict.decision.status == Status::Active;
    live && verdict.report.moved_to.is_some() && move_is_settled(&verdict.decision.state, policy)
}

/// Returns the permanent URL that the document names, unless an operator declined it. Credentials never go to another
/// origin.
fn permanent_url<'a>(feed: &Feed, verdict: &'a Verdict) -> Option<&'a FeedUrl> {
    let live = verdict.decision.status == Status::Active;
    verdict.report.permanent_url.as_ref().filter(|url| {
        let declined = feed.state.declined == Some(move_target(url));
        let leaves = feed.credentials.is_some() && feed.url.as_url().origin() != url.as_url().origin();
        live && **url != feed.url && !declined && !leaves
    })
}

/// Returns the feed to take instead of a page that was added as a feed, and the other feeds of the page. Only in place
/// of a feed that was never read, and only once: a site that shows a page instead of its feed for a while has not
/// moved, and a page that announces a page is left to a person, as is one that an operator took back.
pub(crate) fn announced_instead<'a>(feed: &Feed, report: &'a FetchReport) -> &'a [FeedUrl] {
    let is_page = matches!(report.outcome.failure(), Some(FailureKind::NotAFeed | FailureKind::Malformed));
    let never_was_one = feed.state.last_success.is_none() && feed.moved_from.is_none();
    let declined = |url: &FeedUrl| feed.state.declined == Some(move_target(url));
    match report.announced.first() {
        Some(url) if is_page && never_was_one && *url != feed.url && !declined(url) => &report.announced,
        _ => &[],
    }
}
