//! Older entries: bursts of 50 in feeds that show 20, with and without an archive; and what a person has read.

use std::collections::HashMap;

use common::archive::ArchiveRead;
use common::config::QuotaConfig;
use common::document::{ContentHash, Document};
use common::entry::Entry;
use common::job::Detour;
use common::policy::Rule;

use store::JobRow;

use super::*;
use crate::ops::backfill::{self, Backfill};
use crate::ops::{AudienceEdit, EditFeed};
use crate::poll::archive::page_or_feed;

/// Entries of a page.
const WINDOW: usize = 20;
const MINUTE: Duration = Duration::from_secs(60);

/// The feeds of an origin, and what they have posted so far, oldest first.
struct Origin {
    start: Timestamp,
    /// Nothing more is posted.
    is_over: bool,
    posts: HashMap<FeedId, Vec<Timestamp>>,
    /// All entries have other ids in each response.
    renames: bool,
    /// Entries of a page.
    window: usize,
    /// Entries have no dates.
    undated: bool,
    /// Entries are dated with their day only.
    days: bool,
    /// Pages of an archive, the feed's own among them.
    pages_there: usize,
    /// How often the second page still breaks off in its middle.
    broken: usize,
    /// Those that link to pages of older entries.
    archived: Vec<FeedId>,
    /// Requests for pages, in order, with their feeds.
    pages: Vec<(FeedId, Timestamp)>,
    polls: usize,
}

impl Origin {
    fn new(start: Timestamp) -> Self {
        Origin {
            start,
            is_over: false,
            renames: false,
            window: WINDOW,
            undated: false,
            days: false,
            pages_there: usize::MAX,
            broken: 0,
            posts: HashMap::new(),
            archived: Vec::new(),
            pages: Vec::new(),
            polls: 0,
        }
    }

    /// Posts 50 entries in an hour, every ten hours, and another one every two hours; each feed at different times.
    fn post(&mut self, now: Timestamp) {
        if self.is_over {
            return;
        }
        let minute = now.since(self.start).as_secs() / 60;
        for (feed, posts) in &mut self.posts {
            let minute = minute + 37 * feed.0.unsigned_abs();
            let is_burst = minute % 600 < 50;
            if is_burst || minute.is_multiple_of(120) {
                posts.push(now);
            }
        }
    }

    /// Returns the response to a job.
    fn response(&mut self, job: &FetchJob, now: Timestamp) -> Outcome {
        let query = job.url.as_url().query().and_then(|query| query.strip_prefix("paged="));
        let page: usize = query.map_or(1, |number| number.parse().unwrap());
        assert_eq!(job.page, page > 1);
        match job.page {
            true => self.pages.push((job.feed, now)),
            false => self.polls += 1,
        }
        let posts = &self.posts[&job.feed];
        let all: Vec<Entry> = posts.iter().rev().map(|at| dated(*at)).collect();
        let named = |entry: Entry| Entry {
            id: if self.renames { format!("{} {now}", entry.id) } else { entry.id },
            published: entry.published.filter(|_| !self.undated).map(|at| if self.days { day(at) } else { at }),
            ..entry
        };
        let mut shown: Vec<Entry> =
            all.iter().skip((page - 1) * self.window).take(self.window).cloned().map(named).collect();
        let mut document = Document { content_hash: Some(ContentHash(1)), ..Document::default() };
        if page == 2 && self.broken > 0 {
            self.broken -= 1;
            shown.truncate(self.window / 2);
            document.content_hash = None;
        }
        document.validators.etag = Some("\"1\"".into());
        let is_last = all.len() <= page * self.window || page >= self.pages_there;
        if self.archived.contains(&job.feed) && !is_last {
            document.onward.next =
                Some(format!("http://{}/feed?paged={}", job.url.as_url().host_str().unwrap(), page + 1));
        }
        document.keep_news(shown, &job.known);
        Outcome::Modified(Box::new(document))
    }
}

fn dated(at: Timestamp) -> Entry {
    Entry { id: at.to_string(), published: Some(at), ..Entry::default() }
}

/// Returns the day of a time.
fn day(at: Timestamp) -> Timestamp {
    Timestamp::from_millis(at.millis().div_euclid(86_400_000) * 86_400_000)
}

/// Lets a fleet and an origin run for this many minutes.
async fn run(fleet: &Fleet, origin: &mut Origin, minutes: u64) {
    for _ in 0..minutes {
        origin.post(fleet.clock.now());
        for _ in 0..4 {
            for job in fleet.dispatched().await {
                let outcome = origin.response(&job, fleet.clock.now());
                let report = FetchReport { page: job.page, ..fleet.work(&job, outcome).await };
                fleet.settle(report).await;
            }
            fleet.clock.advance(MINUTE / 4);
        }
    }
}

async fn stored(fleet: &Fleet, feed: FeedId) -> usize {
    let entries = fleet.ops.store.entries(Some(feed), 0, 10_000).await.unwrap().items;
    entries.iter().map(|stored| &stored.entry.id).collect::<std::collections::HashSet<_>>().len()
}

#[tokio::test]
async fn with_an_archive_no_entry_is_lost_and_every_feed_that_loses_some_is_named() {
    let fleet = Fleet::new().await;
    let mut origin = Origin::new(fleet.clock.now());
    for number in 0..12 {
        let id = fleet.add(&format!("http://a{number}.example/feed")).await;
        // What was posted before the first poll.
        origin.posts.insert(id, vec![fleet.clock.now().before(MINUTE * 600)]);
        if number % 2 == 0 {
            origin.archived.push(id);
        }
    }
    run(&fleet, &mut origin, 3 * 24 * 60).await;
    // What was posted last is polled, and recovered, before it is counted.
    origin.is_over = true;
    fleet.ops.wake(&origin.posts.keys().copied().collect::<Vec<_>>()).await.unwrap();
    run(&fleet, &mut origin, 120).await;
    let events = fleet.ops.store.events(0, 1_000_000).await.unwrap().items;
    let named: Vec<FeedId> =
        events.iter().filter(|event| event.kind == "feed.overflowed").map(|event| event.feed_id).collect();
    let (mut lost, mut feeds_that_lost) = (0, 0);
    for (feed, posts) in &origin.posts {
        let missing = posts.len() - stored(&fleet, *feed).await;
        let state = fleet.feed(*feed).await;
        if origin.archived.contains(feed) {
            assert_eq!(missing, 0, "feed {feed} has an archive: {:?}", state.archive);
            assert!(named.contains(feed), "it overflowed");
            assert_eq!((state.state.gap_since, state.archive), (None, None), "and was recovered");
        } else {
            lost += missing;
            feeds_that_lost += usize::from(missing > 0);
            assert!(missing == 0 || named.contains(feed), "feed {feed} lost {missing}");
            assert!(missing == 0 || state.state.gap_since.is_some());
        }
    }
    println!(
        "{lost} entries lost by {feeds_that_lost} feeds without an archive; {} pages of archives",
        origin.pages.len()
    );
    assert!(feeds_that_lost >= 4 && lost > 50, "{lost} entries of {feeds_that_lost} feeds");
    for pair in origin.pages.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        assert!(pair[1].1.since(pair[0].1) >= Duration::from_secs(10), "pages are paced");
    }
}

/// Returns a feed with an archive of five pages, polled once.
async fn with_pages() -> (Fleet, Origin, FeedId) {
    with_pages_in(Fleet::new().await).await
}

async fn with_pages_in(fleet: Fleet) -> (Fleet, Origin, FeedId) {
    let mut origin = Origin::new(fleet.clock.now());
    let id = fleet.add("http://a.example/feed").await;
    let posts = (1..=100).rev().map(|hours| fleet.clock.now().before(MINUTE * 60 * hours)).collect();
    origin.posts.insert(id, posts);
    origin.archived.push(id);
    let job = &fleet.dispatched().await[0];
    let outcome = origin.response(job, fleet.clock.now());
    let report = fleet.work(job, outcome).await;
    fleet.settle(report).await;
    (fleet, origin, id)
}

#[tokio::test]
async fn a_person_has_older_entries_read_back_to_a_time_and_the_feed_is_polled_as_planned() {
    let (fleet, mut origin, id) = with_pages().await;
    let planned = fleet.feed(id).await;
    assert_eq!((stored(&fleet, id).await, planned.archive.as_ref()), (20, None));
    let since = fleet.clock.now().before(MINUTE * 60 * 70);
    let Some(Backfill::Begun(begun)) = backfill::backfill(&fleet.ops, id, since).await.unwrap() else {
        panic!("it did not begin")
    };
    assert_eq!(begun.next_due, Some(fleet.clock.now()));
    let ArchiveRead { poll_due, .. } = begun.archive.unwrap();
    assert_eq!(Some(poll_due), planned.next_due);
    let mut clock = 0;
    while fleet.feed(id).await.archive.is_some() && clock < 60 {
        for job in fleet.dispatched().await {
            assert!(job.page && job.validators.is_empty() && job.content_hash.is_none());
            let outcome = origin.response(&job, fleet.clock.now());
            let report = FetchReport { page: true, ..fleet.work(&job, outcome).await };
            fleet.settle(report).await;
        }
        fleet.clock.advance(Duration::from_secs(5));
        clock += 1;
    }
    let read = fleet.feed(id).await;
    assert_eq!((stored(&fleet, id).await, origin.pages.len(), origin.polls), (70, 4, 1), "the fifth page is older");
    assert_eq!((read.next_due, read.state, read.terms), (planned.next_due, planned.state, planned.terms));
}

/// Posts this many entries, a minute apart, up to now.
fn burst(fleet: &Fleet, origin: &mut Origin, id: FeedId, count: u32) {
    let posts = (0..count).rev().map(|number| fleet.clock.now().before(Duration::from_secs(number.into())));
    origin.posts.get_mut(&id).unwrap().extend(posts);
}

/// Returns whether nothing is known to be missing, and how many entries are.
async fn verdict(fleet: &Fleet, origin: &Origin, id: FeedId, before: usize) -> (bool, usize) {
    let feed = fleet.feed(id).await;
    assert_eq!(feed.archive, None, "it was read to its end");
    (feed.state.gap_since.is_none(), origin.posts[&id].len() - before - stored(fleet, id).await)
}

/// Returns a feed whose archive is read after bursts, polled once: entries that were posted before the first poll and
/// that it did not show.
async fn quiet_with_pages() -> (Fleet, Origin, FeedId, usize) {
    quiet_with_pages_in(Fleet::new().await).await
}

async fn quiet_with_pages_in(fleet: Fleet) -> (Fleet, Origin, FeedId, usize) {
    let (fleet, mut origin, id) = with_pages_in(fleet).await;
    origin.is_over = true;
    let unseen = origin.posts[&id].len() - stored(&fleet, id).await;
    fleet.clock.advance(MINUTE * 30);
    (fleet, origin, id, unseen)
}

#[tokio::test]
async fn a_burst_is_recovered_and_one_whose_archive_ends_too_early_stays_known_as_a_gap() {
    for (pages_there, expected) in [(usize::MAX, (true, 0)), (2, (false, 30))] {
        let (fleet, mut origin, id, unseen) = quiet_with_pages().await;
        origin.pages_there = pages_there;
        burst(&fleet, &mut origin, id, 70);
        run(&fleet, &mut origin, 180).await;
        assert_eq!(verdict(&fleet, &origin, id, unseen).await, expected);
    }
}

#[tokio::test]
async fn a_page_that_breaks_off_is_read_again_and_one_that_always_does_leaves_a_gap() {
    // Entries of the second page and of those behind it.
    for (broken, pages, expected) in [(2, 6, (true, 0)), (usize::MAX, 6, (false, WINDOW / 2))] {
        let (fleet, mut origin, id, unseen) = quiet_with_pages().await;
        origin.broken = broken;
        burst(&fleet, &mut origin, id, 70);
        run(&fleet, &mut origin, 24 * 60).await;
        assert_eq!(verdict(&fleet, &origin, id, unseen).await, expected, "{broken}");
        assert!(origin.pages.len() <= pages, "{:?}", origin.pages);
    }
}

#[tokio::test]
async fn what_quotas_leave_out_of_an_archive_stays_known_as_a_gap() {
    let store = SqliteStore::open("sqlite::memory:").await.unwrap();
    let store = store.within(QuotaConfig { entries_per_day: 60, ..QuotaConfig::NONE });
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
    let fleet = Fleet::over(config(), Arc::new(store), clock, Timestamp::EPOCH).await;
    let (fleet, mut origin, id, unseen) = quiet_with_pages_in(fleet).await;
    burst(&fleet, &mut origin, id, 70);
    run(&fleet, &mut origin, 180).await;
    let (is_complete, missing) = verdict(&fleet, &origin, id, unseen).await;
    assert!(!is_complete && missing > 0, "{missing} are missing");
}

#[tokio::test]
async fn feeds_without_dates_and_with_few_entries_are_recovered_each_time() {
    for (window, undated) in [(WINDOW, true), (3, false)] {
        let (fleet, mut origin, id, _) = quiet_with_pages().await;
        (origin.window, origin.undated) = (window, undated);
        run(&fleet, &mut origin, 120).await;
        let unseen = origin.posts[&id].len() - stored(&fleet, id).await;
        for round in 0..3 {
            burst(&fleet, &mut origin, id, 10 * u32::try_from(window).unwrap() / 3);
            run(&fleet, &mut origin, 180).await;
            assert_eq!(verdict(&fleet, &origin, id, unseen).await, (true, 0), "{window} entries, burst {round}");
        }
    }
}

#[tokio::test]
async fn a_persons_wish_and_a_recovery_do_not_end_each_other() {
    // Within what is being recovered, and further back than that.
    for back in [MINUTE, MINUTE * 60 * 60] {
        let (fleet, mut origin, id, unseen) = quiet_with_pages().await;
        burst(&fleet, &mut origin, id, 150);
        while origin.pages.is_empty() {
            run(&fleet, &mut origin, 1).await;
        }
        let since = fleet.clock.now().before(back);
        assert!(matches!(backfill::backfill(&fleet.ops, id, since).await.unwrap(), Some(Backfill::Begun(_))));
        run(&fleet, &mut origin, 240).await;
        let wished = origin.posts[&id].iter().filter(|at| **at >= since).count();
        let (is_whole, missing) = verdict(&fleet, &origin, id, 0).await;
        assert!(is_whole && missing <= unseen && stored(&fleet, id).await >= wished, "{missing} of {unseen}, {wished}");
    }
    // The other way round: an overflow while a wish is read.
    let (fleet, mut origin, id, _) = quiet_with_pages().await;
    assert!(matches!(backfill::backfill(&fleet.ops, id, Timestamp::EPOCH).await.unwrap(), Some(Backfill::Begun(_))));
    burst(&fleet, &mut origin, id, 70);
    fleet.ops.wake(&[id]).await.unwrap();
    run(&fleet, &mut origin, 240).await;
    let (_, missing) = verdict(&fleet, &origin, id, 0).await;
    assert_eq!(missing, 0, "all that was ever posted was wanted");
}

#[tokio::test]
async fn a_feed_that_renames_its_entries_is_not_read_back_at_each_poll() {
    let (fleet, mut origin, _) = with_pages().await;
    (origin.is_over, origin.renames) = (true, true);
    run(&fleet, &mut origin, 2 * 24 * 60).await;
    assert!(origin.polls > 5, "{} polls", origin.polls);
    assert!(origin.pages.len() <= 2, "{} pages in {} polls", origin.pages.len(), origin.polls);
}

#[tokio::test]
async fn neither_days_without_a_time_nor_dates_in_the_future_have_an_archive_read_at_each_poll() {
    for in_future in [false, true] {
        let (fleet, mut origin, id) = with_pages().await;
        (origin.is_over, origin.renames, origin.days) = (true, true, !in_future);
        if in_future {
            let ahead = |at: &mut Timestamp| *at = at.after(MINUTE * 60 * 24 * 365);
            origin.posts.get_mut(&id).unwrap().iter_mut().for_each(ahead);
        }
        run(&fleet, &mut origin, 2 * 24 * 60).await;
        assert!(origin.polls > 5, "{} polls", origin.polls);
        assert!(origin.pages.len() <= 4, "{} pages in {} polls", origin.pages.len(), origin.polls);
        assert!(fleet.feed(id).await.state.gap_since.is_some(), "nothing proves that none is missing");
    }
}

#[tokio::test]
async fn the_recovery_of_a_later_burst_closes_no_earlier_gap() {
    let (fleet, mut origin, id, unseen) = quiet_with_pages().await;
    origin.pages_there = 2;
    burst(&fleet, &mut origin, id, 70);
    run(&fleet, &mut origin, 180).await;
    let gap = fleet.feed(id).await.state.gap_since;
    assert_eq!(verdict(&fleet, &origin, id, unseen).await, (false, 30));
    origin.pages_there = usize::MAX;
    let read = origin.pages.len();
    burst(&fleet, &mut origin, id, 50);
    run(&fleet, &mut origin, 180).await;
    assert!(origin.pages.len() > read);
    assert_eq!(verdict(&fleet, &origin, id, unseen).await, (false, 30));
    assert_eq!(fleet.feed(id).await.state.gap_since, gap);
}

#[tokio::test]
async fn a_page_that_fails_is_no_failure_of_its_feed_and_is_given_up_after_three() {
    let (fleet, mut origin, id) = with_pages().await;
    backfill::backfill(&fleet.ops, id, Timestamp::EPOCH).await.unwrap();
    let mut failed = 0;
    for _ in 0..3_000 {
        for job in fleet.dispatched().await {
            let outcome = match job.page {
                true => Outcome::Failed { failure: FailureKind::Status, detail: "404".into() },
                false => origin.response(&job, fleet.clock.now()),
            };
            failed += usize::from(job.page);
            let report = FetchReport { page: job.page, ..fleet.work(&job, outcome).await };
            fleet.settle(report).await;
            let feed = fleet.feed(id).await;
            assert_eq!((feed.last_error, feed.state.consecutive_failures, feed.state.penalty), (None, 0, None));
        }
        fleet.clock.advance(MINUTE);
    }
    assert_eq!((failed, fleet.feed(id).await.archive), (3, None));
    assert!(origin.polls > 3, "it is polled as ever");
}

/// Returns the job for the next page, within two days. Polls of the feed itself are answered.
async fn next_page(fleet: &Fleet, origin: &mut Origin) -> FetchJob {
    for _ in 0..3_000 {
        for job in fleet.dispatched().await {
            if job.page {
                return job;
            }
            let outcome = origin.response(&job, fleet.clock.now());
            let report = fleet.work(&job, outcome).await;
            fleet.settle(report).await;
        }
        fleet.clock.advance(MINUTE);
    }
    panic!("no page is requested")
}

#[tokio::test]
async fn the_next_page_waits_as_long_as_a_page_that_was_read_asks_for() {
    let (fleet, mut origin, id) = with_pages().await;
    let planned = fleet.feed(id).await.next_due;
    backfill::backfill(&fleet.ops, id, Timestamp::EPOCH).await.unwrap();
    let job = next_page(&fleet, &mut origin).await;
    let until = fleet.clock.now().after(MINUTE * 5);
    assert!(planned > Some(until));
    let outcome = origin.response(&job, fleet.clock.now());
    let report = fleet.work(&job, outcome).await;
    fleet.settle(FetchReport { page: true, retry_after: Some(until), ..report }).await;
    let feed = fleet.feed(id).await;
    assert_eq!((feed.state.hold_until, feed.next_due, feed.poll_due()), (Some(until), Some(until), planned));
    next_page(&fleet, &mut origin).await;
    assert_eq!((fleet.clock.now(), origin.polls), (until, 1));
}

#[tokio::test]
async fn nothing_polls_a_feed_before_the_end_of_the_wait_that_a_page_asks_for() {
    let day = MINUTE * 60 * 24;
    for (is_throttled, days, rule) in
        [(true, 1, Rule::RetryAfter), (false, 1, Rule::RetryAfter), (true, 40, Rule::Ceiling)]
    {
        let (fleet, mut origin, id) = with_pages().await;
        let planned = fleet.feed(id).await.next_due;
        backfill::backfill(&fleet.ops, id, Timestamp::EPOCH).await.unwrap();
        let job = next_page(&fleet, &mut origin).await;
        let asked = Some(fleet.clock.now().after(day * days));
        let until = fleet.clock.now().after((day * days).min(config().policy.retry_after_ceiling));
        assert!(planned < Some(until));
        let outcome = match is_throttled {
            true => Outcome::Throttled { retry_after: asked },
            false => Outcome::Failed { failure: FailureKind::Status, detail: "500".into() },
        };
        let retry_after = asked.filter(|_| !is_throttled);
        let report = fleet.work(&job, outcome).await;
        fleet.settle(FetchReport { page: true, retry_after, ..report }).await;
        let feed = fleet.feed(id).await;
        assert_eq!((feed.state.hold_until, feed.next_due, feed.poll_due()), (Some(until), Some(until), Some(until)));
        assert_eq!(feed.terms.last().map(|term| (term.rule, term.due)), Some((rule, until)));
        assert_eq!((feed.state.consecutive_failures, feed.state.penalty, feed.state.throttles), (0, None, 0));
        assert_eq!(feed.archive.map(|archive| archive.failures), Some(u8::from(!is_throttled)));

        assert_eq!(fleet.ops.wake(&[id]).await.unwrap(), 1, "a refresh");
        fleet.clock.advance(until.since(fleet.clock.now()) - Duration::from_millis(1));
        assert!(fleet.dispatched().await.is_empty());
        fleet.clock.advance(Duration::from_millis(1));
        assert_eq!(fleet.dispatched().await.iter().map(|job| job.page).collect::<Vec<_>>(), [false]);
    }
}

#[tokio::test]
async fn a_page_that_is_throttled_does_not_count_as_failed_unless_no_time_is_given() {
    for (wait, expected) in [(Some(MINUTE * 60), Some(0)), (None, None)] {
        let (fleet, mut origin, id) = with_pages().await;
        backfill::backfill(&fleet.ops, id, Timestamp::EPOCH).await.unwrap();
        for _ in 0..3 {
            let job = next_page(&fleet, &mut origin).await;
            let retry_after = wait.map(|wait| fleet.clock.now().after(wait));
            let report = fleet.work(&job, Outcome::Throttled { retry_after }).await;
            fleet.settle(FetchReport { page: true, ..report }).await;
        }
        assert_eq!(fleet.feed(id).await.archive.map(|archive| archive.failures), expected);
    }
}

#[tokio::test]
async fn a_page_that_is_throttled_for_a_week_is_given_up() {
    let (fleet, mut origin, id) = with_pages().await;
    backfill::backfill(&fleet.ops, id, Timestamp::EPOCH).await.unwrap();
    let begun = fleet.clock.now();
    let mut requests = 0;
    while fleet.feed(id).await.archive.is_some() {
        let job = next_page(&fleet, &mut origin).await;
        requests += 1;
        assert!(requests < 20, "it never ends");
        let until = fleet.clock.now().after(MINUTE * 60 * 24);
        let report = fleet.work(&job, Outcome::Throttled { retry_after: Some(until) }).await;
        fleet.settle(FetchReport { page: true, ..report }).await;
        fleet.clock.advance(MINUTE * 60 * 24);
    }
    assert!((4..=9).contains(&requests), "{requests}");
    let took = fleet.clock.now().since(begun);
    assert!(took >= MINUTE * 60 * 24 * 7, "{took:?}");
    assert_eq!(stored(&fleet, id).await, WINDOW);
}

#[tokio::test]
async fn what_a_person_changes_counts_while_pages_are_read() {
    let (fleet, mut origin, id) = with_pages().await;
    backfill::backfill(&fleet.ops, id, Timestamp::EPOCH).await.unwrap();
    let sla = Audience { sla: true, ..Audience::default() };
    let edit = EditFeed { audience: AudienceEdit::between(Audience::default(), sla), ..EditFeed::default() };
    let edited = fleet.ops.edit(id, &edit).await.unwrap().unwrap();
    let due = edited.poll_due().unwrap();
    assert!(due <= fleet.clock.now().after(MINUTE * 2), "{due}");
    // Each page that is read or fails before that leaves the feed's own poll as it is planned now.
    let mut pages = 0;
    loop {
        let jobs = fleet.dispatched().await;
        let Some(job) = jobs.first() else {
            fleet.clock.advance(Duration::from_secs(1));
            continue;
        };
        if !job.page {
            break;
        }
        pages += 1;
        let outcome = match pages {
            1 => origin.response(job, fleet.clock.now()),
            _ => Outcome::Failed { failure: FailureKind::Status, detail: "404".into() },
        };
        let report = FetchReport { page: true, ..fleet.work(job, outcome).await };
        fleet.settle(report).await;
        assert_eq!(fleet.feed(id).await.poll_due(), Some(due));
    }
    assert!(pages > 1, "{pages}");
    assert!(fleet.clock.now().since(due) <= Duration::from_secs(1), "{}", fleet.clock.now());
}

#[tokio::test]
async fn a_feed_without_a_link_or_that_is_not_polled_has_nothing_to_backfill() {
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/feed").await;
    let wish = |id| backfill::backfill(&fleet.ops, id, Timestamp::EPOCH);
    assert!(matches!(wish(id).await.unwrap(), Some(Backfill::NoArchive(_))));
    let pause = store::FeedChange { status: Some(Status::Paused), ..Default::default() };
    fleet.ops.store.change_feed(id, &pause, fleet.clock.now()).await.unwrap();
    assert!(matches!(wish(id).await.unwrap(), Some(Backfill::NotPolled(_))));
    assert!(wish(FeedId(99)).await.unwrap().is_none());
}

#[tokio::test]
async fn a_page_is_read_until_it_is_the_feeds_turn_and_a_fetch_that_began_continues_as_what_it_was() {
    let (fleet, _, id) = with_pages().await;
    backfill::backfill(&fleet.ops, id, Timestamp::EPOCH).await.unwrap();
    let row = fleet.ops.store.jobs_for(&[id]).await.unwrap().remove(0);
    let poll_due = row.archive.as_ref().unwrap().poll_due;
    let now = poll_due.before(MINUTE);
    let turn = |row: &JobRow, now: Timestamp| page_or_feed(row.clone(), now).page;
    assert_eq!([turn(&row, now), turn(&row, poll_due)], [true, false]);
    let woken = JobRow { wake_at: Some(now), ..row.clone() };
    assert_eq!([turn(&woken, now.before(MINUTE)), turn(&woken, now)], [true, false], "a wake is for the feed");
    let on_its_way = |page: bool, not_before: Option<Timestamp>| {
        let next = "http://a.example/feed?paged=3".parse().unwrap();
        JobRow { detour: Some(Detour { next, way: String::new(), page, not_before }), ..woken.clone() }
    };
    for (page, wait, is_page, continues) in [
        (true, None, true, true),
        (true, Some(now), true, true),
        (true, Some(now.after(MINUTE)), false, false),
        (false, None, false, true),
    ] {
        let row = page_or_feed(on_its_way(page, wait), now);
        assert_eq!((row.page, row.detour.is_some()), (is_page, continues), "{page} {wait:?}");
    }
}

#[tokio::test]
async fn a_page_that_the_database_refuses_is_tried_again_and_keeps_no_other_from_being_stored() {
    for refused_first in [false, true] {
        let (fleet, file, _folder) = Fleet::over_a_file().await;
        let (fleet, mut origin, good) = with_pages_in(fleet).await;
        let refused = fleet.add("http://b.example/feed").await;
        origin.posts.insert(refused, origin.posts[&good].clone());
        origin.archived.push(refused);
        for job in fleet.dispatched().await {
            let outcome = origin.response(&job, fleet.clock.now());
            fleet.settle(fleet.work(&job, outcome).await).await;
        }
        fleet.clock.advance(MINUTE);
        let refuses = format!(
            "CREATE TRIGGER refuses BEFORE INSERT ON entries WHEN new.feed_id = {refused} \
             BEGIN SELECT raise(ABORT, 'refused'); END;"
        );
        file.execute_batch(&refuses).unwrap();
        let mut batch = Vec::new();
        for feed in [good, refused] {
            backfill::backfill(&fleet.ops, feed, Timestamp::EPOCH).await.unwrap();
        }
        for job in fleet.dispatched().await {
            let outcome = origin.response(&job, fleet.clock.now());
            batch.push(FetchReport { page: true, ..fleet.work(&job, outcome).await });
        }
        batch.sort_by_key(|report| (report.feed == refused) != refused_first);
        assert_eq!(batch.len(), 2);
        assert_eq!(fleet.results.settle(batch, fleet.clock.now()).await.unwrap(), []);
        assert_eq!([stored(&fleet, good).await, stored(&fleet, refused).await], [2 * WINDOW, WINDOW]);
        let archive = fleet.feed(refused).await.archive.unwrap();
        assert_eq!((archive.failures, archive.read.len()), (1, 0));
    }
}
