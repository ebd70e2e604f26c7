//! What every store must do, as tests over `dyn Store`. [`stamp!`] makes a module of them for a backend.
//!
//! What only one backend has (files, locks, schema versions) is tested beside that backend.

pub(crate) mod life;

use std::time::Duration;

use async_trait::async_trait;
use common::entry::Entry;
use common::feed::{Audience, Category, ContentHash, Feed, FeedId, PollState, Status, Validators, Version};
use common::host::HostKey;
use common::known::KnownEntries;
use common::policy::{Decision, Rule, Terms};
use common::report::{Document, FetchReport, Outcome};
use common::time::Timestamp;

use super::{Applied, FeedRef, NewFeed, Store, Verdict};

/// A backend under test, and the data that it keeps.
#[async_trait]
pub(crate) trait Backend: Send + Sync {
    /// Opens the store, with what earlier handles stored.
    async fn open(&self) -> Box<dyn Store>;
}

/// Makes the suite's tests for the backend that the expression gives; each test gets its own.
macro_rules! stamp {
    ($backend:expr) => {
        crate::store::conformance::stamp! { $backend =>
            life {
                a_feed_is_added_polled_and_read_back;
            }
        }
    };
    ($backend:expr => $($module:ident { $($test:ident;)+ })+) => {
        $(mod $module {
            use super::*;
            $(
                #[tokio::test]
                async fn $test() {
                    crate::store::conformance::$module::$test(&$backend).await;
                }
            )+
        })+
    };
}
pub(crate) use stamp;

/// The allowed difference of two clocks in these tests.
const SKEW: Duration = Duration::from_secs(1);

/// When these tests play: `seconds` after some time.
fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_790_000_000_000).after(Duration::from_secs(seconds))
}

fn new_feed(url: &str) -> NewFeed {
    let url: common::feed::FeedUrl = url.parse().unwrap();
    NewFeed {
        host: HostKey::new(&format!("{}:443", url.as_url().host_str().unwrap())),
        url,
        audience: Audience::default(),
        category: Category::D,
        private: false,
        first_due: at(0),
    }
}

async fn add(store: &dyn Store, url: &str) -> FeedId {
    store.add_feeds(&[new_feed(url)], at(0)).await.unwrap()[0].id
}

async fn feed(store: &dyn Store, id: FeedId) -> Feed {
    store.feed(&FeedRef::Id(id)).await.unwrap().expect("the feed exists")
}

fn entry(id: &str, title: &str) -> Entry {
    Entry { id: id.into(), title: Some(title.into()), ..Entry::default() }
}

/// What a worker that knows nothing yet makes of a document with these entries.
fn document(entries: Vec<Entry>) -> Document {
    let mut document = Document {
        title: Some("a title".into()),
        validators: Validators {
            etag: Some("\"1\"".into()),
            last_modified: Some("yesterday".into()),
            for_url: Some("https://cdn.a.org/feed".into()),
        },
        content_hash: Some(ContentHash(u128::MAX - 5)),
        ..Document::default()
    };
    document.keep_news(entries, &KnownEntries::default());
    document
}

fn modified(entries: Vec<Entry>) -> Outcome {
    Outcome::Modified(Box::new(document(entries)))
}

/// A verdict on a fetch of this feed as it is now, that began at `at(started)`; due again an hour later.
async fn verdict(store: &dyn Store, id: FeedId, started: u64, outcome: Outcome) -> Verdict {
    let feed = feed(store, id).await;
    verdict_on(&feed, started, outcome)
}

fn verdict_on(feed: &Feed, started: u64, outcome: Outcome) -> Verdict {
    let due = at(started + 3600);
    let mut terms = Terms::default();
    terms.push(Rule::Category, due);
    let state = PollState { last_polled: Some(at(started)), last_outcome: Some(outcome.kind()), ..feed.state };
    Verdict {
        report: FetchReport {
            feed: feed.id,
            version: feed.version,
            host: feed.host.clone(),
            started: at(started),
            duration: Duration::from_millis(250),
            outcome,
            http_status: Some(200),
            conditional: true,
            wire_bytes: 1000,
            body_bytes: 3000,
            fresh_for: None,
            answered_by: None,
            moved_to: None,
        },
        decision: Decision { state, status: feed.status, next_due: Some(due), terms, host_hold: None, notice: None },
        category: Category::D,
    }
}

/// Applies at `at(now)`.
async fn apply(store: &dyn Store, verdicts: &[Verdict], now: u64) -> Vec<Applied> {
    store.apply(verdicts, SKEW, at(now)).await.unwrap()
}
