//! Feeds, and what the worker and the policy would say of them.

use std::time::Duration;

use common::config::Config;
use common::document::{ContentHash, Document, Validators};
use common::entry::Fingerprint;
use common::host::HostKey;
use common::known::KnownEntries;
use common::policy::{Audience, Category, Draw, Policy, PollState, Subject, decide};
use common::report::{FetchReport, Outcome};
use common::time::{Clock, SystemClock, Timestamp};
use common::url::{FeedId, FeedUrl, Version};
use store::{NewFeed, Store, Verdict};

/// Feeds of one host.
const PER_HOST: usize = 4;
/// Nothing is due while a benchmark runs.
const FAR: Duration = Duration::from_secs(30 * 86_400);
/// What a feed carries.
const ENTRIES: u64 = 20;
/// Added in one transaction.
const ADDED_AT_ONCE: usize = 1_000;

/// This number of feeds, numbered from 1.
pub(crate) struct BenchFeeds {
    config: Config,
    states: Vec<PollState>,
    version: i64,
    added: Timestamp,
}

impl BenchFeeds {
    pub(crate) fn new(feeds: usize) -> anyhow::Result<Self> {
        let config = common::config::load(None, std::iter::empty(), &[])?.config;
        Ok(BenchFeeds { config, states: vec![PollState::default(); feeds], version: 1, added: SystemClock.now() })
    }

    /// Adds them to an empty store.
    pub(crate) async fn add(&self, store: &dyn Store) -> anyhow::Result<()> {
        let now = self.added;
        let numbers: Vec<usize> = (0..self.states.len()).collect();
        for numbers in numbers.chunks(ADDED_AT_ONCE) {
            let feeds: Vec<NewFeed> = numbers.iter().map(|number| new_feed(*number, now)).collect::<Result<_, _>>()?;
            store.add_feeds(&feeds, now).await?;
        }
        Ok(())
    }

    /// Returns a first answer from each feed.
    pub(crate) fn first_answers(&mut self) -> Vec<Verdict> {
        let order: Vec<usize> = (0..self.states.len()).collect();
        self.answers(&order, |number| {
            let prints = (0..ENTRIES).map(|entry| Fingerprint(entry << 32 | number as u64));
            Outcome::Modified(Box::new(Document {
                title: Some(format!("The feed with number {number}")),
                link: Some(format!("https://h{}.example/", number / PER_HOST)),
                validators: validators(number),
                content_hash: Some(ContentHash(number as u128)),
                all_entries: 20,
                known: KnownEntries::default().after_document(prints),
                ..Document::default()
            }))
        })
    }

    /// Returns a 304 from each feed, in an order without neighbours, as polls come.
    pub(crate) fn unchanged_answers(&mut self) -> Vec<Verdict> {
        let feeds = self.states.len();
        // Has no divisor in common with a power of ten: each feed comes once.
        let order: Vec<usize> = (0..feeds).map(|turn| turn * 61_803 % feeds).collect();
        self.answers(&order, |number| Outcome::NotModified { validators: validators(number) })
    }

    fn answers(&mut self, order: &[usize], outcome: impl Fn(usize) -> Outcome) -> Vec<Verdict> {
        let now = SystemClock.now();
        let version = Version(self.version);
        self.version += 1;
        let policy = Policy { config: &self.config.policy, load: 0.0, price: self.config.policy.price };
        let verdicts = order.iter().map(|number| {
            let report = report(*number, version, now, outcome(*number));
            let subject = Subject { state: self.states[*number], ..Subject::new(Audience::default(), None) };
            let decision = decide(&subject, &report, now, Draw { salt: 0.5, minute: 0.5 }, &policy);
            self.states[*number] = decision.state;
            Verdict {
                report,
                decision,
                category: Category::D,
                audience_at: self.added,
                push: None,
                archive: None,
                seen: None,
            }
        });
        verdicts.collect()
    }
}

fn host(number: usize) -> String {
    format!("h{}.example", number / PER_HOST)
}

fn new_feed(number: usize, now: Timestamp) -> anyhow::Result<NewFeed> {
    let url: FeedUrl = format!("https://{}/feed-{number}.xml", host(number)).parse()?;
    let first_due = now.after(FAR);
    let (audience, category) = (Audience::default(), Category::D);
    let host = HostKey::new(&host(number));
    Ok(NewFeed { audience, ..NewFeed::of(host, url, category, first_due) })
}

fn validators(number: usize) -> Validators {
    let last_modified = Some("Fri, 20 Nov 2026 12:00:00 GMT".to_owned());
    Validators { etag: Some(format!("\"{number:016x}\"")), last_modified, for_url: None }
}

fn report(number: usize, version: Version, now: Timestamp, outcome: Outcome) -> FetchReport {
    FetchReport {
        duration: Duration::from_millis(80),
        http_status: Some(304),
        conditional: true,
        ..FetchReport::of(FeedId(number as i64 + 1), version, HostKey::new(&host(number)), now, outcome)
    }
}
