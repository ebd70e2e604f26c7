//! Waits for the first poll of an added feed and reports how it ended.

use std::time::Duration;

use anyhow::anyhow;
use common::last_error::{ErrorKind, ExplainedError};
use common::outcome::{FailureKind, OutcomeKind};
use common::policy::Status;
use common::time::{Clock, SystemClock};
use common::words;
use reqwest::Method;
use scheduler::wire::{AddedView, FeedView};
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::client::Client;
use crate::fleet::is_paused;
use crate::output::{self, plain};
use crate::terminal::{Ink, Waiting, paint};
use crate::when;

/// Returns whether a known feed has these settings. Reports it if not, because adding a known feed changes none.
pub(crate) fn has_settings(feed: &FeedView, settings: &Map<String, Value>) -> anyhow::Result<bool> {
    let has = serde_json::to_value(feed)?;
    let is_so = |(name, wanted): (&String, &Value)| match (wanted, &has[name]) {
        (Value::Array(wanted), Value::Array(has)) => wanted.iter().all(|one| has.contains(one)),
        (wanted, has) => wanted == has,
    };
    let all = settings.iter().all(is_so);
    if !all {
        let id = feed.id;
        let commands = format!("use `feedfleet feed set {id}` and `feedfleet feed label {id}`");
        output::error(&anyhow!("feed {id} is already known; its settings were not changed ({commands})"));
    }
    Ok(all)
}

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a failed poll may still turn out to be a page whose feed is taken, on a busy machine.
const PAGE_SETTLES: Duration = Duration::from_secs(1);

/// Waits for first polls.
pub(crate) struct FirstPoll<'a> {
    pub(crate) client: &'a Client,
    /// A program reads the result: nothing else is printed, and nothing is removed.
    pub(crate) json: bool,
    /// What the command sets of new feeds, apart from their URLs.
    pub(crate) settings: &'a Map<String, Value>,
    /// Until when to wait; `None` does not wait at all.
    pub(crate) deadline: Option<Instant>,
}

impl FirstPoll<'_> {
    /// Reports how the first poll of a feed ended; returns false if it failed for a reason that will last. A feed whose turn
    /// comes after the deadline is still looked at.
    pub(crate) async fn report(&self, added: &mut AddedView) -> anyhow::Result<bool> {
        if !added.new && !added.revived {
            self.known(&added.feed);
            return Ok(true);
        }
        let Some(deadline) = self.deadline else { return Ok(true) };
        let waiting = Waiting::new(format!("waiting for the first poll of {}", added.feed.url));
        let asked = added.feed.clone();
        let mut failing: Option<Instant> = None;
        loop {
            waiting.tick();
            added.feed = self.client.get(&format!("/feeds/{}", added.feed.id), &[]).await?;
            let feed = &added.feed;
            let polled = feed.version > asked.version;
            let over = polled && feed.last_success.is_some() || feed.status != Status::Active;
            let failed = matches!(feed.last_outcome, Some(OutcomeKind::Failed | OutcomeKind::Throttled)) && polled;
            // A page is a failed poll for a moment, until the fleet has taken the feed that it announces.
            let settled = failed && failing.get_or_insert_with(Instant::now).elapsed() >= PAGE_SETTLES;
            if over || settled {
                drop(waiting);
                return self.outcome(added, &asked.url).await;
            }
            // A failed poll is reported a moment later.
            if Instant::now() >= deadline && !failed {
                drop(waiting);
                return self.not_yet(feed, polled).await;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// A known feed is not polled for this command: reports what keeps it from being read.
    fn known(&self, feed: &FeedView) {
        if self.json {
            return;
        }
        let id = feed.id;
        match feed.status {
            Status::Active => {}
            Status::Paused => note!("{id} is paused and not polled; `feedfleet feed resume {id}` has it polled again"),
            status => note!("{id} is {} and not polled; see `feedfleet feed explain {id}`", status.as_str()),
        }
        let Some(error) = feed.last_error.as_ref() else { return };
        note!("{}: its last poll failed: {}; {}", feed.id, when::said(&error.error.detail), next_poll(feed));
    }

    /// `polled`: it was polled since it was added. Otherwise its error is an older one.
    async fn not_yet(&self, feed: &FeedView, polled: bool) -> anyhow::Result<bool> {
        let id = feed.id;
        match (is_paused(self.client).await, &feed.last_error) {
            (true, _) => note!("{id}: all polling is paused; see `feedfleet feed explain {id}`"),
            (false, Some(error)) if polled => {
                note!("{id}: {}; see `feedfleet feed show {id}`", when::said(&error.error.detail));
            }
            (false, _) => note!("{id}: it is not read yet; see `feedfleet feed explain {id}`"),
        }
        Ok(true)
    }

    async fn outcome(&self, added: &AddedView, asked: &str) -> anyhow::Result<bool> {
        let feed = &added.feed;
        if let Some(survivor) = feed.merged_into {
            let survivor: FeedView = self.client.get(&format!("/feeds/{survivor}"), &[]).await?;
            let what = format!("its feed is {}, which is known as feed {}", survivor.url, survivor.id);
            let taken_out = self.take_out(added).await?;
            let kept = if taken_out { "; nothing was added" } else { "" };
            self.line(&format!("{} is a page; {what}{kept}", feed.id))?;
            self.others(feed)?;
            return Ok(!taken_out || has_settings(&survivor, self.settings)?);
        }
        if feed.last_success.is_some() {
            let page = if feed.url == asked { String::new() } else { format!("is a page; took {}, ", feed.url) };
            let title = feed.title.as_deref().map_or_else(|| "without a title".to_owned(), |title| plain(title, 100));
            let entries = words::counted(feed.entries, "entry", "entries");
            let repaired = if feed.repaired { "; the document is broken, and was repaired before parsing" } else { "" };
            self.line(&format!("{} {page}read: {}, {entries}{repaired}", feed.id, paint(Ink::Bold, &title)))?;
            self.others(feed)?;
            return Ok(true);
        }
        match &feed.last_error {
            Some(error) if error.error.is_lasting() => self.lasting(added, error).await,
            Some(error) => {
                note!("{}: its first poll failed: {}; {}", feed.id, when::said(&error.error.detail), next_poll(feed));
                Ok(true)
            }
            None => {
                note!("{}: it is {}; see `feedfleet feed show {}`", feed.id, feed.status.as_str(), feed.id);
                Ok(true)
            }
        }
    }

    /// Reports a failure that waiting does not fix. What is not a feed at all is taken out again.
    async fn lasting(&self, added: &AddedView, error: &ExplainedError) -> anyhow::Result<bool> {
        let (feed, ExplainedError { error, remedy }) = (&added.feed, error);
        let is_no_feed = error.kind == ErrorKind::Failed(FailureKind::NotAFeed);
        let taken_out = is_no_feed && self.take_out(added).await?;
        let also = if is_no_feed { ", and it announces none" } else { "" };
        note!("{} {}: {}{also}", paint(Ink::Bad, "error:"), feed.url, when::said(&error.detail));
        if let Some(remedy) = remedy {
            note!("  what helps: {remedy}");
        }
        match taken_out {
            true => note!("  it was not added"),
            false if feed.status != Status::Active => note!(
                "  {}; `feedfleet feed remove {id}` removes it, `feedfleet feed add` with its address tries it once more",
                next_poll(feed),
                id = feed.id
            ),
            false => note!(
                "  {}; `feedfleet feed refresh {id}` polls it now, `feedfleet feed remove {id}` removes it",
                next_poll(feed),
                id = feed.id
            ),
        }
        Ok(false)
    }

    /// Removes what this command added and what turned out not to be a separate feed. Only its number remains.
    async fn take_out(&self, added: &AddedView) -> anyhow::Result<bool> {
        if self.json || !added.new {
            return Ok(false);
        }
        let _: Value = self.client.change(Method::DELETE, &format!("/feeds/{}", added.feed.id), None).await?;
        Ok(true)
    }

    /// Names the other feeds of a page.
    fn others(&self, feed: &FeedView) -> anyhow::Result<()> {
        if !feed.also_announced.is_empty() {
            self.line(&format!("  the page also announces {}", feed.also_announced.join(", ")))?;
        }
        Ok(())
    }

    fn line(&self, text: &str) -> anyhow::Result<()> {
        if !self.json {
            output::line(text)?;
        }
        Ok(())
    }
}

fn next_poll(feed: &FeedView) -> String {
    match feed.next_due.filter(|_| feed.status == Status::Active) {
        Some(due) => format!("the next poll is {}", words::relative(due, SystemClock.now())),
        None => format!("it is {} and not polled", feed.status.as_str()),
    }
}
