//! Query plans of lists, in a fleet where every filter matches more feeds than a call scans: each must use its index.

use crate::counts::Counts;
use crate::listing;
use crate::row::FeedRow;
use crate::source::{Dialect, Source};
use crate::statement::Statement;
use crate::texts::Trigrams;
use crate::{FeedQuery, FeedSort, StoreError};

use common::host::HostKey;
use common::outcome::FailureKind;
use common::policy::{Category, Status};

/// Filters, order, and the expected index; empty: the table's own order.
const LISTS: [(&str, FeedSort, &str); 30] = [
    ("", FeedSort::Id, ""),
    ("", FeedSort::Subscribers, "feeds_by_readers"),
    ("q", FeedSort::Id, ""),
    ("host", FeedSort::Id, "feeds_by_host"),
    ("host", FeedSort::Subscribers, "feeds_by_readers"),
    ("hosts", FeedSort::Category, "feeds_by_category"),
    ("category", FeedSort::Id, "feeds_by_category"),
    ("category", FeedSort::Subscribers, "feeds_by_category_readers"),
    ("status", FeedSort::Id, "feeds_by_status"),
    ("status", FeedSort::Subscribers, "feeds_by_status_readers"),
    ("failure", FeedSort::Id, "feeds_by_failure"),
    ("failure", FeedSort::Subscribers, "feeds_by_failure_readers"),
    ("failing", FeedSort::Id, ""),
    ("failing", FeedSort::Subscribers, "feeds_by_readers"),
    ("penalised", FeedSort::Id, ""),
    ("penalised", FeedSort::Subscribers, "feeds_by_readers"),
    ("penalised failure", FeedSort::Id, "feeds_by_penalty"),
    ("penalised failure", FeedSort::Subscribers, "feeds_by_readers"),
    ("", FeedSort::Category, "feeds_by_category"),
    ("category", FeedSort::Category, "feeds_by_category"),
    ("host", FeedSort::Category, "feeds_by_host"),
    ("status", FeedSort::Category, "feeds_by_status"),
    ("q", FeedSort::Category, "feeds_by_category"),
    ("penalised", FeedSort::Category, "feeds_by_category"),
    ("penalised failure", FeedSort::Category, "feeds_by_penalty"),
    ("", FeedSort::LastPolled, "feeds_by_last_poll"),
    ("host", FeedSort::LastPolled, "feeds_by_last_poll"),
    ("category failure", FeedSort::LastPolled, "feeds_by_last_poll"),
    ("category failure", FeedSort::Id, "feeds_by_failure"),
    ("category failure host q status", FeedSort::Subscribers, "feeds_by_failure_readers"),
];

/// A database that can also explain a statement's plan.
pub(crate) trait Explains: Source {
    fn explain(&mut self, statement: Statement) -> impl Future<Output = String> + Send;
}

/// Records the plans of its statements.
struct Noting<'a, S>(&'a mut S, Vec<(String, String)>);

impl<S: Explains> Noting<'_, S> {
    async fn note(&mut self, statement: &Statement) {
        let plan = self.0.explain(statement.clone()).await;
        self.1.push((statement.sql.clone(), plan));
    }
}

/// Reads two pages of each list, the first and a later one; `table` is how a plan names the table's own order.
pub(crate) async fn every_list_follows_its_index(source: &mut impl Explains, table: &str) {
    for ((filters, sort, index), reversed) in LISTS.into_iter().flat_map(|list| [(list, false), (list, true)]) {
        let has = |filter: &str| filters.split(' ').any(|word| word == filter);
        let hosts = ["a.org:443", "a.org:8080"].map(HostKey::new);
        let query = FeedQuery {
            text: has("q").then(|| "zebra".to_owned()),
            hosts: hosts[..if has("hosts") { 2 } else { usize::from(has("host")) }].to_vec(),
            category: has("category").then_some(Category::C),
            status: has("status").then_some(Status::Paused),
            failure: has("failure").then_some(FailureKind::Dns),
            failing: has("failing"),
            penalised: has("penalised"),
            sort,
            reversed,
            limit: 100,
            ..FeedQuery::default()
        };
        let mut noting = Noting(&mut *source, Vec::new());
        let after = listing::list(&mut noting, &query).await.unwrap().next;
        assert!(after.is_some(), "{filters} by {sort:?}, {reversed}");
        listing::list(&mut noting, &FeedQuery { after, ..query }).await.unwrap();
        let plans = noting.1;
        assert!(plans.len() >= 2, "{filters} by {sort:?}, {reversed}");
        for (sql, plan) in plans {
            let whole = format!("{filters} by {sort:?}, {reversed}: {sql}\n{plan}");
            let index = if index.is_empty() { table } else { index };
            assert!(plan.split([' ', '\n', '(']).any(|word| word == index), "{whole}");
            for wrong in ["Seq Scan", "Sort", "TEMP B-TREE", "Bitmap", "Join Filter"] {
                assert!(!plan.contains(wrong), "{wrong}: {whole}");
            }
        }
    }
}

/// Reads two pages of the feeds with a label, with one of several, with a caller's id, and on several hosts, of which there are more
/// than are put in order.
pub(crate) async fn labels_ids_and_several_hosts_follow_their_indexes(source: &mut impl Explains) {
    let label = FeedQuery { label: Some("green".into()), limit: 100, ..FeedQuery::default() };
    let id = FeedQuery { external_id: Some("7".into()), limit: 100, ..FeedQuery::default() };
    let labels = FeedQuery { visible: vec!["blue".into(), "green".into()], limit: 100, ..FeedQuery::default() };
    let hosts = ["a.org:443", "a.org:8080"].map(HostKey::new).to_vec();
    let hosts = FeedQuery { hosts, limit: 100, ..FeedQuery::default() };
    let turned = |query: &FeedQuery| FeedQuery { reversed: true, ..query.clone() };
    for (query, index) in [
        (turned(&label), "feed_labels"),
        (turned(&id), "feeds_by_external_id"),
        (turned(&labels), "feed_labels"),
        (turned(&hosts), "feeds_by_host"),
        (hosts, "feeds_by_host"),
        (labels, "feed_labels"),
        (label, "feed_labels"),
        (id, "feeds_by_external_id"),
    ] {
        let mut noting = Noting(&mut *source, Vec::new());
        let first = listing::list(&mut noting, &query).await.unwrap();
        let (reversed, labels) = (query.reversed, query.visible.len());
        let second = listing::list(&mut noting, &FeedQuery { after: first.next, ..query }).await.unwrap();
        assert_eq!((first.items.len(), second.items.len()), (100, 100), "{index}");
        let ids: Vec<i64> = first.items.iter().chain(&second.items).map(|feed| feed.id.0).collect();
        assert!(ids.windows(2).all(|pair| (pair[1] - pair[0]).abs() == 1), "none is left out: {index}, {ids:?}");
        assert!((first.items[99].id > second.items[0].id) == reversed && second.next.is_some());
        let plans = noting.1.iter().filter(|(sql, _)| !sql.contains("moved_from"));
        assert_eq!(plans.clone().count(), 4);
        for (sql, plan) in plans {
            let is_look = |step: &&str| step.contains(index) && (step.contains("Scan") || step.contains("SEARCH"));
            assert_eq!(
                plan.lines().filter(is_look).count(),
                labels.max(1),
                "each label and each host is looked up: {sql}\n{plan}"
            );
            // The first feeds of several labels are sorted.
            let wrong = ["Seq Scan", "Bitmap", "Sort", "TEMP B-TREE"];
            for wrong in &wrong[..if labels > 1 { 2 } else { 4 }] {
                assert!(!plan.contains(wrong), "{wrong}: {sql}\n{plan}");
            }
        }
    }
}

impl<S: Explains> Source for Noting<'_, S> {
    fn dialect(&self) -> Dialect {
        self.0.dialect()
    }

    async fn rows(&mut self, statement: Statement) -> Result<Vec<FeedRow>, StoreError> {
        self.note(&statement).await;
        self.0.rows(statement).await
    }

    async fn position(&mut self, statement: Statement) -> Result<Option<(i64, i64)>, StoreError> {
        self.note(&statement).await;
        self.0.position(statement).await
    }

    async fn numbers(&mut self, statement: Statement) -> Result<Vec<i64>, StoreError> {
        self.note(&statement).await;
        self.0.numbers(statement).await
    }

    async fn counts(&mut self) -> Result<Counts, StoreError> {
        self.0.counts().await
    }

    async fn of_host(&mut self, host: &str) -> Result<u64, StoreError> {
        self.0.of_host(host).await
    }

    fn trigrams(&self, _: &str) -> Option<Trigrams> {
        // Only the scan matters here.
        None
    }

    async fn texts(&mut self, from: u64, feeds: u32) -> Result<Vec<String>, StoreError> {
        self.0.texts(from, feeds).await
    }

    async fn with_text(&mut self, text: &str, trigrams: &Trigrams) -> Result<Vec<i64>, StoreError> {
        self.0.with_text(text, trigrams).await
    }
}
