//! Lists of more feeds than a call looks at, beside a plain filter over all of them.

use std::time::Duration;

use common::feed::Feed;
use common::host::HostKey;
use common::outcome::FailureKind;
use common::policy::{Audience, Category, Penalty, PollState, Status};
use common::policy::{Decision, Rule, Terms};
use common::report::{FetchReport, Outcome};
use common::time::Timestamp;
use common::url::{FeedId, FeedUrl};
use store::never;
use store::sqlite::SqliteStore;
use store::testing::Schema;
use store::{FeedChange, FeedQuery, FeedSort, NewFeed, Store, Verdict};

use super::upcoming;
use crate::poll::subject::placement_slot;
use crate::schedule::memory::MemorySchedule;
use crate::schedule::{Band, Parking, Schedule};

/// The allowed difference of two clocks.
const SKEW: Duration = Duration::from_secs(1);

/// A good deal more than a call looks at.
const FEEDS: usize = 9_500;

/// Some feeds are due.
fn now() -> Timestamp {
    at(1_100)
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_790_000_000_000).after(Duration::from_secs(seconds))
}

fn number(url: &str) -> usize {
    url.rsplit('/').next().unwrap().parse().unwrap()
}

/// One of the feeds as the test knows it.
struct Known {
    feed: Feed,
    category: Category,
    failure: Option<FailureKind>,
}

fn new_feed(url: &str) -> NewFeed {
    let url: FeedUrl = url.parse().unwrap();
    NewFeed::of(HostKey::new(&format!("{}:443", url.as_url().host_str().unwrap())), url, Category::D, at(0))
}

/// A failed poll of this feed that puts it into category B, and some of them into the penalty box.
fn failed(feed: &Feed, failure: FailureKind) -> Verdict {
    let outcome = Outcome::Failed { failure, detail: "why".into() };
    let due = at(10 + 3600);
    let mut terms = Terms::default();
    terms.push(Rule::Category, due);
    // Each kind on another day.
    let days = if failure == FailureKind::Dns { 3 } else { 0 };
    let polled = at(10).before(Duration::from_secs(days * 86_400));
    let is_boxed = number(feed.url.as_str()) % 120 == 3;
    let penalty = is_boxed.then_some(Penalty { kind: failure, until: due });
    let state = PollState { last_polled: Some(polled), last_outcome: Some(outcome.kind()), penalty, ..feed.state };
    Verdict {
        report: FetchReport::of(feed.id, feed.version, feed.host.clone(), at(10), outcome),
        decision: Decision {
            state,
            status: feed.status,
            next_due: Some(due),
            terms,
            host_hold: None,
            notices: common::policy::Notices::default(),
        },
        category: Category::B,
        audience_at: feed.audience_at,
        push: None,
        archive: None,
        seen: None,
    }
}

async fn fill(store: &dyn Store) -> Vec<Known> {
    let new = (0..FEEDS).map(|n| {
        let host = if n % 2 == 0 { "large.org".to_owned() } else { format!("h{}.org", n / 8) };
        let category = if n < 4_500 { Category::D } else { Category::C };
        // The special characters of LIKE.
        let path = if n % 400 == 21 { r"?zeb_ra%25\yak/" } else { "" };
        let audience = Audience { subscribers: u32::try_from(n % 11).unwrap(), ..Audience::default() };
        let first_due = at(1_000 + (n * 7_919 % FEEDS) as u64);
        NewFeed { audience, category, first_due, ..new_feed(&format!("https://{host}/{path}{n}")) }
    });
    let ids = store.add_feeds(&new.collect::<Vec<_>>(), at(0)).await.unwrap();
    let pause = FeedChange { status: Some(Status::Paused), ..FeedChange::default() };
    let remove = FeedChange { status: Some(Status::Removed), ..FeedChange::default() };
    let paused = ids.iter().skip(5).step_by(70).map(|added| (added.id, pause.clone()));
    let removed = ids.iter().skip(6).step_by(70).map(|added| (added.id, remove.clone()));
    store.change_feeds(&paused.chain(removed).collect::<Vec<_>>(), at(1)).await.unwrap();
    for ids in ids.iter().skip(3).step_by(40).collect::<Vec<_>>().chunks(60) {
        let ids: Vec<FeedId> = ids.iter().map(|added| added.id).collect();
        let failing = store.states_for(&ids).await.unwrap().into_iter().map(|feed| {
            let failure = if number(feed.url.as_str()) % 80 == 3 { FailureKind::Dns } else { FailureKind::Tls };
            failed(&feed, failure)
        });
        store.apply(&failing.collect::<Vec<_>>(), SKEW, at(10)).await.unwrap();
    }
    let ids: Vec<FeedId> = ids.iter().map(|added| added.id).collect();
    let woken: Vec<FeedId> = ids.iter().skip(17).step_by(500).copied().collect();
    store.wake(&woken, at(900), at(20)).await.unwrap();
    let known = |feed: Feed| {
        let n = number(feed.url.as_str());
        let fails = n % 40 == 3;
        let failure = fails.then_some(if n % 80 == 3 { FailureKind::Dns } else { FailureKind::Tls });
        let category = if n < 4_500 { Category::D } else { Category::C };
        Known { feed, category: if fails { Category::B } else { category }, failure }
    };
    store.states_for(&ids).await.unwrap().into_iter().map(known).collect()
}

fn wanted(known: &[Known], query: &FeedQuery) -> Vec<usize> {
    let lets = |known: &&Known| {
        let Known { feed, category, failure } = known;
        let has = |text: &String| feed.url.as_str().contains(text.as_str());
        query.text.as_ref().is_none_or(has)
            && (query.hosts.is_empty() || query.hosts.contains(&feed.host))
            && query.category.is_none_or(|wanted| wanted == *category)
            && query.status.is_none_or(|status| status == feed.status)
            && query.failure.is_none_or(|failing| Some(failing) == *failure)
            && (!query.penalised || feed.state.penalty.is_some())
    };
    let mut found: Vec<&Known> = known.iter().filter(lets).collect();
    let value = |Known { feed, category, .. }: &Known| match query.sort {
        FeedSort::Id => 0,
        FeedSort::Subscribers => -i64::from(feed.audience.subscribers),
        FeedSort::NextDue => feed.due().map_or_else(|| never(feed.status), Timestamp::millis),
        FeedSort::Category => *category as i64,
        FeedSort::LastPolled => feed.state.last_polled.map_or(0, Timestamp::millis),
    };
    found.sort_by_key(|known| (value(known), known.feed.id));
    if query.reversed {
        found.reverse();
    }
    found.into_iter().map(|known| number(known.feed.url.as_str())).collect()
}

/// A schedule of the fleet in which some feeds are claimed, and some of these wait for their host.
async fn schedule(store: &dyn Store) -> MemorySchedule {
    let schedule = MemorySchedule::default();
    let places = store.placements(FeedId(0), u32::MAX >> 1).await.unwrap();
    let slots: Vec<_> = places.iter().map(placement_slot).collect();
    schedule.put(&slots, now()).await.unwrap();
    let claims = schedule.claim_due(now(), 40, SKEW).await.unwrap();
    assert_eq!(claims.len(), 40);
    let host = HostKey::new("large.org:443");
    let parkings = claims.iter().skip(20).zip(0..).map(|(claim, rank)| {
        let band = Band::Steady;
        Parking { feed: claim.feed, host: host.clone(), until: at(5_000), band, rank }
    });
    schedule.park(&parkings.collect::<Vec<_>>()).await.unwrap();
    schedule
}

/// All pages of a list, in order; those that are not full are to be few.
async fn listed(store: &dyn Store, schedule: &dyn Schedule, query: &FeedQuery) -> Vec<usize> {
    let mut query = FeedQuery { limit: 1_000, ..query.clone() };
    let (mut found, mut pages) = (Vec::new(), 0);
    // By due time the kinds that are never due have separate pages; by category, each category has.
    let kinds = if matches!(query.sort, FeedSort::NextDue | FeedSort::Category) { 5 } else { 2 };
    let most = kinds + FEEDS / FeedQuery::MOST_SORTED as usize;
    loop {
        let page =
            upcoming::feeds(store, schedule, &query, now()).await.unwrap_or_else(|error| panic!("{query:?}: {error}"));
        assert!(page.items.len() <= 1_000, "{query:?}");
        found.extend(page.items.iter().map(|feed| number(feed.url.as_str())));
        pages += 1;
        assert!(pages <= most + found.len() / 1_000, "{pages} pages: {query:?}");
        query.after = page.next;
        if query.after.is_none() {
            return found;
        }
    }
}

#[tokio::test]
async fn lists_of_a_large_fleet_are_complete_and_in_order_by_every_filter_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/feedfleet.db", folder.path().display());
    lists_are_complete_and_in_order_by_every_filter(&SqliteStore::open(&url).await.unwrap()).await;
}

#[tokio::test]
async fn lists_of_a_large_fleet_are_complete_and_in_order_by_every_filter_in_postgresql() {
    let schema = Schema::default();
    lists_are_complete_and_in_order_by_every_filter(&schema.store().await).await;
}

async fn lists_are_complete_and_in_order_by_every_filter(store: &dyn Store) {
    let known = fill(store).await;
    let schedule = schedule(store).await;
    let none = FeedQuery::default();
    let [large, few] = ["large.org:443", "h3.org:443"].map(HostKey::new);
    let queries = [
        none.clone(),
        FeedQuery { hosts: vec![large.clone()], ..none.clone() },
        FeedQuery { hosts: vec![few.clone()], ..none.clone() },
        FeedQuery { hosts: vec![few.clone(), large.clone()], ..none.clone() },
        FeedQuery { hosts: vec![few, HostKey::new("h5.org:443")], ..none.clone() },
        FeedQuery { category: Some(Category::C), ..none.clone() },
        FeedQuery { category: Some(Category::B), ..none.clone() },
        FeedQuery { category: Some(Category::A), ..none.clone() },
        FeedQuery { status: Some(Status::Active), ..none.clone() },
        FeedQuery { status: Some(Status::Paused), ..none.clone() },
        FeedQuery { failure: Some(FailureKind::Dns), ..none.clone() },
        FeedQuery { penalised: true, ..none.clone() },
        FeedQuery { penalised: true, failure: Some(FailureKind::Tls), ..none.clone() },
        FeedQuery { penalised: true, status: Some(Status::Active), ..none.clone() },
        FeedQuery { category: Some(Category::C), hosts: vec![large], ..none.clone() },
        FeedQuery {
            category: Some(Category::D),
            status: Some(Status::Active),
            text: Some("/77".into()),
            ..none.clone()
        },
        FeedQuery { text: Some("large.org".into()), ..none.clone() },
        FeedQuery { text: Some("h1000.org".into()), ..none.clone() },
        FeedQuery { text: Some("h1000.org".into()), category: Some(Category::C), ..none.clone() },
        FeedQuery { text: Some("//h1000.org/800".into()), ..none.clone() },
        FeedQuery { text: Some("/9".into()), ..none.clone() },
        FeedQuery { text: Some("nowhere".into()), ..none.clone() },
        FeedQuery { text: Some("zeb_ra".into()), ..none.clone() },
        FeedQuery { text: Some("ra%25".into()), ..none.clone() },
        FeedQuery { text: Some(r"zeb_ra%25\yak".into()), ..none.clone() },
        FeedQuery { text: Some("zeb%ra".into()), ..none.clone() },
        FeedQuery { text: Some("\" OR text:x*".into()), ..none.clone() },
        FeedQuery { text: Some("a\0bcd".into()), ..none.clone() },
    ];
    for query in queries {
        for sort in FeedSort::ALL {
            for reversed in [false, true] {
                let query = FeedQuery { sort, reversed, ..query.clone() };
                let wanted = wanted(&known, &query);
                assert_eq!(listed(store, &schedule, &query).await, wanted, "{query:?}");
            }
        }
    }
}
