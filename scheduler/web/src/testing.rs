//! A fleet for the tests of the API and the pages: the embedded backends, called without a network.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, header};
use axum::response::Response;
use common::config::{ApiToken, Config};
use common::document::Document;
use common::entry::Entry;
use common::known::KnownEntries;
use common::metrics::Metrics;
use common::policy::{Decision, Notices, Rule, Terms};
use common::report::{FetchReport, Outcome};
use common::time::{Clock, ManualClock, Timestamp};
use common::url::FeedId;
use scheduler::condition::live_config::ConfigSource;
use scheduler::ops::Ops;
use scheduler::{Backends, Scheduler};
use serde_json::{Value, json};
use store::sqlite::SqliteStore;
use store::{FeedRef, Move, Verdict};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use crate::router;

/// A fleet without loops: what the API reads and writes.
pub(crate) struct Fleet {
    pub(crate) ops: Arc<Ops>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) router: Router,
    /// Ends its streams.
    pub(crate) closing: CancellationToken,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Fleet {
    pub(crate) async fn with_tokens(tokens: Vec<ApiToken>) -> Self {
        Self::with(|config| config.api.tokens = tokens).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = common::config::defaults();
        change(&mut config);
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
        let backends = Backends::in_memory(Arc::new(SqliteStore::open("sqlite::memory:").await.unwrap()));
        let shared_clock: Arc<dyn Clock> = clock.clone();
        let started_with = config.clone();
        let ops = Scheduler::new(&backends, &Arc::new(config), &Arc::new(Metrics::new()), &shared_clock).ops;
        let again = started_with.clone();
        let read = Box::new(move || Ok(again.clone()));
        assert!(ops.config_source.set(ConfigSource { started_with, read }).is_ok());
        let closing = CancellationToken::new();
        Fleet { router: router(ops.clone(), closing.clone()), ops, clock, closing }
    }

    pub(crate) async fn new() -> Self {
        Self::with_tokens(Vec::new()).await
    }

    /// One that can store secrets.
    pub(crate) async fn with_secrets() -> Self {
        Self::with(|config| config.secrets.key = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, [7; 32]))
            .await
    }

    /// Returns the answer with its headers, before its body was read.
    pub(crate) async fn respond(&self, path: &str) -> Response {
        let request = Request::get(path).header(header::HOST, "127.0.0.1:7878").body(Body::empty()).unwrap();
        self.router.clone().call(request).await.unwrap()
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().call(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
        Answer { status, body: serde_json::from_slice(&bytes).unwrap_or_else(|_| text()) }
    }

    /// Returns the answer to a GET with these headers.
    pub(crate) async fn send_with(&self, path: &str, headers: &[(header::HeaderName, &str)]) -> Answer {
        let mut request = Request::get(path).header(header::HOST, "127.0.0.1:7878");
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        self.send(request.body(Body::empty()).unwrap()).await
    }

    /// Status, headers and body of the answer to a request with these headers.
    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (u16, HeaderMap, String) {
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, "127.0.0.1:7878");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let (head, body) = self.router.clone().call(request).await.unwrap().into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap();
        (head.status.as_u16(), head.headers, String::from_utf8_lossy(&body).into_owned())
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        let request = Request::builder().method(method).uri(path).header(header::HOST, "127.0.0.1:7878");
        let request = request.header(header::ACCEPT, "application/json");
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        self.send(request.header(header::CONTENT_TYPE, "application/json").body(body).unwrap()).await
    }

    /// Returns the methods that a path takes, as the response to a wrong one lists them; HEAD comes with GET.
    pub(crate) async fn methods_of(&self, path: &str) -> Vec<String> {
        let request = Request::builder().method("TRACE").uri(path).header(header::HOST, "127.0.0.1:7878");
        let response = self.router.clone().call(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), 405, "{path}");
        let allowed = response.headers()[header::ALLOW].to_str().unwrap();
        allowed.split(',').map(|method| method.trim().to_owned()).filter(|method| method != "HEAD").collect()
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.ask("POST", path, Some(body)).await
    }

    /// Adds a feed and returns its id.
    pub(crate) async fn feed(&self, url: &str) -> i64 {
        let added = self.post("/api/v1/feeds", json!({ "url": url })).await;
        assert_eq!(added.status, 201, "{}", added.body);
        added.body["id"].as_i64().unwrap()
    }

    /// Stores a good poll of the feed with these entries.
    pub(crate) async fn polled(&self, id: i64, entries: &[&str]) {
        let entries = entries.iter().map(|id| Entry { id: (*id).to_owned(), ..Entry::default() }).collect();
        self.polled_with(id, entries).await;
    }

    /// Moves the feed to another URL, as permanent redirects do.
    pub(crate) async fn moved(&self, id: i64, url: &str) {
        let feed = self.ops.feed(&FeedRef::Id(FeedId(id))).await.unwrap().unwrap();
        let url: common::url::FeedUrl = url.parse().unwrap();
        let host = self.ops.rules.get().for_url(url.as_url()).key;
        let to = Move { url, host, category: common::policy::Category::D, same: true, others: Vec::new() };
        self.ops.store.move_feed(feed.id, feed.version, &to, self.clock.now()).await.unwrap();
    }

    pub(crate) async fn polled_with(&self, id: i64, entries: Vec<Entry>) {
        let mut document = Document::default();
        document.keep_news(entries, &KnownEntries::default());
        self.read(id, document).await;
    }

    /// Stores a poll that failed and left the feed with this state and its status.
    pub(crate) async fn store_state(&self, feed: &common::feed::Feed, state: common::policy::PollState) {
        let outcome = Outcome::Failed { failure: common::outcome::FailureKind::Status, detail: String::new() };
        self.store_poll(feed, state, outcome, Some(404)).await;
    }

    /// Adds a feed whose last poll failed with this status; returns its id.
    pub(crate) async fn failing(&self, url: &str, http_status: u16, is_boxed: bool) -> i64 {
        use common::outcome::{FailureKind, OutcomeKind};
        use common::policy::{Penalty, PollState};
        let id = self.feed(url).await;
        let feed = self.ops.feed(&FeedRef::Id(FeedId(id))).await.unwrap().unwrap();
        let (now, failure) = (self.clock.now(), FailureKind::Status);
        let until = now.after(Duration::from_secs(3600));
        let state = PollState {
            last_polled: Some(now),
            last_status: Some(http_status),
            last_outcome: Some(OutcomeKind::Failed),
            consecutive_failures: 1,
            failing_since: Some(now),
            penalty: is_boxed.then_some(Penalty { kind: failure, until }),
            ..feed.state
        };
        let outcome = Outcome::Failed { failure, detail: String::new() };
        self.store_poll(&feed, state, outcome, Some(http_status)).await;
        id
    }

    /// Stores a poll that ended so and left the feed with this state and its status.
    pub(crate) async fn store_poll(
        &self,
        feed: &common::feed::Feed,
        state: common::policy::PollState,
        outcome: Outcome,
        http_status: Option<u16>,
    ) {
        let now = self.clock.now();
        let report =
            FetchReport { http_status, ..FetchReport::of(feed.id, feed.version, feed.host.clone(), now, outcome) };
        let (terms, next_due) = (Terms::default(), feed.next_due);
        let decision =
            Decision { state, status: feed.status, next_due, terms, host_hold: None, notices: Notices::default() };
        let (category, audience_at) = (common::policy::Category::D, feed.audience_at);
        let verdict = Verdict { report, decision, category, audience_at, push: None, archive: None, seen: None };
        self.ops.store.apply(&[verdict], Duration::from_secs(1), now).await.unwrap();
    }

    /// Stores a good poll of the feed with this document.
    pub(crate) async fn read(&self, id: i64, document: Document) {
        let feed = self.ops.feed(&FeedRef::Id(FeedId(id))).await.unwrap().unwrap();
        let now = self.clock.now();
        let validators = common::document::Validators { etag: Some("\"1\"".to_owned()), ..Default::default() };
        let outcome = Outcome::Modified(Box::new(Document { validators, ..document }));
        let mut terms = Terms::default();
        terms.push(Rule::Category, now.after(Duration::from_secs(6000)));
        let state = common::policy::PollState {
            last_polled: Some(now),
            last_success: Some(now),
            last_outcome: Some(outcome.kind()),
            ..feed.state
        };
        let report = FetchReport {
            duration: Duration::from_millis(250),
            http_status: Some(200),
            wire_bytes: 1000,
            body_bytes: 3000,
            ..FetchReport::of(feed.id, feed.version, feed.host.clone(), now, outcome)
        };
        let next_due = terms.last().map(|term| term.due);
        let decision = Decision {
            state,
            status: feed.status,
            next_due,
            terms,
            host_hold: None,
            notices: common::policy::Notices::default(),
        };
        let (category, audience_at) = (common::policy::Category::D, feed.audience_at);
        let verdict = Verdict { report, decision, category, audience_at, push: None, archive: None, seen: None };
        self.ops.store.apply(&[verdict], Duration::from_secs(1), now).await.unwrap();
    }
}
