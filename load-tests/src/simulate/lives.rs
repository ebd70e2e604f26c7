//! One feed's life: it is polled from its first post on, reads documents as workers do, and reads its archive after an overflow.

use common::archive::{ArchiveLimits, ArchiveRead};
use common::config::PolicyConfig;
use common::document::{Document, Validators};
use common::entry::Entry;
use common::known::KnownEntries;
use common::policy::{Audience, Decision, Draw, Notice, Policy, Subject, decide};
use common::report::{FetchReport, Outcome};
use common::time::Timestamp;
use common::url::FeedUrl;

use super::decided::{changed, unchanged};
use super::histories::DAY;
use super::random::Random;
use super::trial::{seconds, timestamp};

/// Entries of a document, and of a page of older ones.
const WINDOW: usize = 20;
/// Where the feed is; its pages of older entries have a query with their number.
const URL: &str = "http://a.example/feed";

/// What happened in it.
#[derive(Default)]
pub(super) struct Life {
    /// Times of `feed.silent`.
    pub(super) silent: Vec<f64>,
    /// Events `feed.overflowed`.
    pub(super) overflows: usize,
    /// Of these, how many came with a document before which nothing was lost.
    pub(super) false_overflows: usize,
    /// Polls before which entries were pushed out of the document.
    pub(super) losses: usize,
    /// Of these, how many followed directly on another overflow, which was published.
    pub(super) continued: usize,
    /// Of these, how many neither published `feed.overflowed` nor continued one.
    pub(super) unnamed: usize,
    /// Entries that no document and no page had.
    pub(super) lost: usize,
    /// Pages that were read.
    pub(super) pages: usize,
}

/// A feed, and what is stored of it.
struct Feed<'a> {
    posts: &'a [f64],
    /// It links to pages of older entries.
    has_archive: bool,
    stored: Vec<bool>,
}

/// Polls a feed from its first post on, until this time.
pub(super) fn live(posts: &[f64], until: f64, has_archive: bool, config: &PolicyConfig, random: &mut Random) -> Life {
    let mut feed = Feed { posts, has_archive, stored: vec![false; posts.len()] };
    let mut subject = Subject::new(Audience::default(), None);
    let (mut same, mut other) = (unchanged(), changed());
    let (mut at, mut seen, mut known) = (posts[0], 0, KnownEntries::default());
    let mut life = Life::default();
    // What was posted before the first poll is not lost.
    feed.stored[..posts.partition_point(|post| *post <= at)].fill(true);
    while at < until {
        let all = seen + posts[seen..].partition_point(|post| *post <= at);
        let is_loss = seen > 0 && all - seen > WINDOW;
        let report = if all == seen {
            &mut same
        } else {
            let mut document = feed.page(all, 0, &known);
            document.validators = validators();
            feed.store(&document);
            known = document.known.clone();
            other.outcome = Outcome::Modified(Box::new(document));
            &mut other
        };
        report.started = timestamp(at);
        let draw = Draw { salt: random.fraction(), minute: random.fraction() };
        let before = subject.state;
        let mut decision =
            decide(&subject, report, report.started, draw, &Policy { config, load: 0.0, price: config.price });
        let is_published = decision.notices.iter().any(|notice| notice == Notice::Overflowed);
        life.silent.extend(decision.notices.iter().filter(|notice| *notice == Notice::Silent).map(|_| at));
        life.overflows += usize::from(is_published);
        life.false_overflows += usize::from(is_published && !is_loss);
        if is_loss {
            let continues = before.overflowing && decision.state.overflowing;
            life.losses += 1;
            life.continued += usize::from(!is_published && continues);
            life.unnamed += usize::from(!is_published && !continues);
        }
        life.pages += feed.recover(all, report, before.last_success, &mut decision, config);
        (seen, subject.state) = (all, decision.state);
        at = decision.next_due.map_or(f64::INFINITY, seconds);
    }
    life.lost = feed.stored[..seen].iter().filter(|is_stored| !**is_stored).count();
    life
}

impl Feed<'_> {
    /// Returns the page with this number of a feed that has posted this many entries, 0 for the feed itself.
    fn page(&self, posted: usize, number: usize, known: &KnownEntries) -> Document {
        let end = posted.saturating_sub(number * WINDOW);
        let start = end.saturating_sub(WINDOW);
        let entry = |post: usize| Entry {
            id: post.to_string(),
            published: Some(timestamp(self.posts[post])),
            ..Entry::default()
        };
        let mut document = Document::default();
        document.onward.next = (self.has_archive && start > 0).then(|| format!("{URL}?{}", number + 1));
        document.keep_news((start..end).rev().map(entry).collect(), known);
        document
    }

    fn store(&mut self, document: &Document) {
        for entry in &document.entries {
            let post: usize = entry.id.parse().unwrap_or(usize::MAX);
            self.stored.iter_mut().skip(post).take(1).for_each(|is_stored| *is_stored = true);
        }
    }

    /// Reads the archive after an overflow, as schedulers do, but at once. Returns the number of pages.
    fn recover(
        &mut self,
        posted: usize,
        report: &FetchReport,
        known_at: Option<Timestamp>,
        decision: &mut Decision,
        config: &PolicyConfig,
    ) -> usize {
        let Outcome::Modified(document) = &report.outcome else { return 0 };
        let is_over = document.none_known && config.archive_pages > 0;
        let (true, Some(known_at), Ok(url)) = (is_over, known_at, URL.parse::<FeedUrl>()) else { return 0 };
        let limits =
            ArchiveLimits { pages: config.archive_pages, bytes: config.archive_bytes, entries: config.archive_entries };
        let since = timestamp(seconds(decision.state.gap_since.unwrap_or(known_at)) - DAY);
        let mut reading = ArchiveRead::recovery(None, &url, document, (since, known_at), report.started);
        let mut pages = 0;
        while let Some(read) = reading {
            let number = read.next.as_url().query().and_then(|number| number.parse().ok()).unwrap_or(0);
            let mut page = self.page(posted, number, &read.before);
            let step = read.after(&mut page, 0, limits);
            self.store(&page);
            pages += 1;
            let closes = |gap: &Timestamp| step.overlaps && step.gap.is_none_or(|own| own <= *gap);
            decision.state.gap_since = decision.state.gap_since.filter(|gap| !closes(gap));
            reading = step.next;
        }
        pages
    }
}

fn validators() -> Validators {
    Validators { etag: Some("\"1\"".to_owned()), ..Validators::default() }
}
