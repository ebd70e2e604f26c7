//! The tools for testing a politeness rule: feeds at separate hosts, the origin's log, the API's responses, and the
//! list of breaches.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::time::Timestamp;
use load_tests::signed::Keys;
use load_tests::{Names, Origin, Record, Rules, ScoreCard, Script, StallWatch, judge, loopback};
use serde_json::{Value, json};

use crate::harness::{PATIENCE, client, watch_stalls};

/// The scripted internet of a run, and the address of the fleet's API.
pub(crate) struct Stage {
    pub(crate) origin: Origin,
    pub(crate) names: Names,
    pub(crate) name_server: SocketAddr,
    /// Changes when the fleet is restarted.
    api: Mutex<String>,
    client: reqwest::Client,
    next_host: AtomicUsize,
    stalls: StallWatch,
    /// The key that the fleet signs with, created outside of it.
    pub(crate) keys: Keys,
    _folder: tempfile::TempDir,
}

/// A politeness rule under test.
pub(crate) struct Case<'a> {
    pub(crate) stage: &'a Stage,
    /// The rule's number, such as `P27`; also the first part of its paths.
    pub(crate) line: &'static str,
    breaches: Mutex<Vec<String>>,
    next_path: AtomicUsize,
}

/// A feed that the fleet polls.
#[derive(Clone, Debug)]
pub(crate) struct Subscribed {
    pub(crate) id: i64,
    pub(crate) path: String,
    pub(crate) host: usize,
}

/// One poll in the feed's history.
#[derive(Clone, Debug)]
pub(crate) struct Polled {
    pub(crate) at: Timestamp,
    pub(crate) next_due: Option<Timestamp>,
    pub(crate) outcome: String,
    pub(crate) failure: Option<String>,
    pub(crate) status: Option<u64>,
}

/// The difference allowed between the start of a poll and its arrival at the origin, in addition to process stalls.
const NOISE: Duration = Duration::from_millis(300);

impl Stage {
    /// Opens a stage with `hosts` hosts, each with its own loopback address.
    pub(crate) async fn open(hosts: u16) -> Self {
        let origin = Origin::listen(&loopback(hosts, 0)).await.unwrap();
        let names = Names::default();
        let name_server = names.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let stalls = watch_stalls(&origin);
        let folder = tempfile::tempdir().unwrap();
        Stage {
            stalls,
            keys: Keys::make(folder.path()).unwrap(),
            _folder: folder,
            origin,
            names,
            name_server,
            api: Mutex::default(),
            client: client(),
            next_host: AtomicUsize::new(0),
        }
    }

    /// Returns by how much any request of the run may have been delayed.
    pub(crate) fn noise(&self) -> Duration {
        NOISE + self.stalls.seen().longest()
    }

    /// Returns the same for a request that arrived at this time since the origin's start.
    pub(crate) fn noise_at(&self, seen: Duration) -> Duration {
        NOISE + self.stalls.seen().near(seen)
    }

    /// Judges a log, allowing for the noise at each request.
    pub(crate) fn judge(&self, log: &[Record], rules: &Rules) -> ScoreCard {
        judge(log, &Rules { slack: NOISE, stalls: self.stalls.seen(), ..rules.clone() })
    }

    /// Takes the stalls of a process of the fleet into account until it ends.
    pub(crate) fn watch(&self, address: &str) {
        tokio::spawn(self.stalls.clone().watch_process(self.client.clone(), address.to_owned()));
    }

    /// Waits until the fleet is ready. Its stalls count from its start on, because it polls what is overdue at once.
    pub(crate) async fn play_before(&self, api: &str) {
        self.watch(api);
        let deadline = Instant::now() + PATIENCE;
        let ready = async || {
            self.client.get(format!("{api}/readyz")).send().await.is_ok_and(|answer| answer.status().is_success())
        };
        while !ready().await {
            assert!(Instant::now() < deadline, "{api} does not get ready");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        api.clone_into(&mut self.api.lock().unwrap());
    }

    async fn call(&self, method: reqwest::Method, path: &str, body: Option<Value>) -> Value {
        let url = format!("{}/api/v1{path}", self.api.lock().unwrap());
        let body = body.map(|body| body.to_string());
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut request = self.client.request(method.clone(), &url);
            if let Some(body) = &body {
                request = request.header("Content-Type", "application/json").body(body.clone());
            }
            let answer = request.send().await.unwrap();
            let status = answer.status();
            let text = answer.text().await.unwrap();
            // A busy fleet says that nothing was changed.
            let is_busy = status.as_u16() == 503 && text.contains("try again");
            assert!(status.is_success() || is_busy && Instant::now() < deadline, "{path}: {status}: {text}");
            if status.is_success() {
                return serde_json::from_str(&text).unwrap();
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Sends a GET to a path outside of the API.
    pub(crate) async fn read(&self, path: &str) -> reqwest::Response {
        let url = format!("{}{path}", self.api.lock().unwrap());
        self.client.get(url).send().await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.call(reqwest::Method::GET, path, None).await
    }
}

impl<'a> Case<'a> {
    pub(crate) fn new(stage: &'a Stage, line: &'static str) -> Self {
        Case { stage, line, breaches: Mutex::default(), next_path: AtomicUsize::new(0) }
    }

    /// Returns an unused host.
    pub(crate) fn host(&self) -> usize {
        let host = self.stage.next_host.fetch_add(1, Ordering::Relaxed);
        assert!(host < self.stage.origin.addresses().len(), "the stage has too few hosts");
        host
    }

    /// Returns an unused path.
    pub(crate) fn path(&self) -> String {
        format!("/{}/{}", self.line, self.next_path.fetch_add(1, Ordering::Relaxed))
    }

    /// Adds a feed at an unused host.
    pub(crate) async fn feed(&self, script: Script) -> Subscribed {
        self.feed_at(self.host(), script).await
    }

    /// Adds a feed at this host.
    pub(crate) async fn feed_at(&self, host: usize, script: Script) -> Subscribed {
        let path = self.path();
        self.stage.origin.set(&path, script);
        self.subscribe(host, &path, json!({})).await
    }

    /// Subscribes the fleet to a path, with further fields of `POST /feeds`.
    pub(crate) async fn subscribe(&self, host: usize, path: &str, fields: Value) -> Subscribed {
        let url = self.stage.origin.url_on(host, path);
        Subscribed { id: self.add(&url, fields).await, path: path.to_owned(), host }
    }

    /// Adds a URL to the fleet; returns the feed's id.
    pub(crate) async fn add(&self, url: &str, mut fields: Value) -> i64 {
        fields["url"] = url.into();
        let added = self.stage.call(reqwest::Method::POST, "/feeds", Some(fields)).await;
        added["id"].as_i64().unwrap()
    }

    /// Refreshes a feed manually.
    pub(crate) async fn refresh(&self, feed: &Subscribed) {
        self.stage.call(reqwest::Method::POST, &format!("/feeds/{}/refresh", feed.id), None).await;
    }

    /// Sets or removes the rule of a host.
    pub(crate) async fn rule(&self, host: usize, rule: Option<Value>) {
        let path = format!("/hosts/{}", self.stage.origin.address(host).ip());
        let method = if rule.is_some() { reqwest::Method::PUT } else { reqwest::Method::DELETE };
        self.stage.call(method, &path, rule).await;
    }

    /// Returns the feed from the API.
    pub(crate) async fn view(&self, feed: &Subscribed) -> Value {
        self.stage.get(&format!("/feeds/{}", feed.id)).await
    }

    /// Returns a field of the feed once it has this value, or after a timeout.
    pub(crate) async fn wait_for_field(&self, feed: &Subscribed, field: &str, wanted: &Value) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let came = self.view(feed).await[field].clone();
            if came == *wanted || Instant::now() > deadline {
                return came;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Returns its polls, oldest first.
    pub(crate) async fn history(&self, feed: &Subscribed) -> Vec<Polled> {
        let list = self.stage.get(&format!("/feeds/{}/history", feed.id)).await;
        let text = |poll: &Value, key: &str| poll[key].as_str().map(str::to_owned);
        let time = |poll: &Value, key: &str| serde_json::from_value(poll[key].clone()).ok();
        let polls = list["items"].as_array().unwrap().iter().rev().map(|poll| Polled {
            at: time(poll, "at").unwrap(),
            next_due: time(poll, "next_due"),
            outcome: text(poll, "outcome").unwrap(),
            failure: text(poll, "failure"),
            status: poll["status"].as_u64(),
        });
        polls.collect()
    }

    /// Returns its polls once there are `count`; a breach if there are not.
    pub(crate) async fn remembered(&self, feed: &Subscribed, count: usize) -> Vec<Polled> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let history = self.history(feed).await;
            if history.len() >= count || Instant::now() > deadline {
                self.require(&format!("{} was polled", feed.path), history.len() >= count, &history.len());
                return history;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Returns the first requests to its path, once `count` of them have ended; a breach if there are fewer.
    pub(crate) async fn requests(&self, path: &str, count: usize) -> Vec<Record> {
        let mut requests = self.stage.origin.wait_for(path, count, PATIENCE).await;
        self.require(&format!("{path} was asked {count} times"), requests.len() >= count, &requests.len());
        requests.truncate(count);
        requests
    }

    /// Returns all requests to its path once they satisfy the predicate; a timeout is a breach.
    pub(crate) async fn until(&self, path: &str, are_so: impl Fn(&[Record]) -> bool) -> Vec<Record> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut requests = self.stage.origin.requests(path);
            requests.retain(|request| request.end.is_some());
            let enough = are_so(&requests);
            if enough || Instant::now() > deadline {
                self.require(&format!("{path} was asked as it should be"), enough, &requests.len());
                return requests;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Adds a breach unless both are equal.
    #[expect(clippy::needless_pass_by_value, reason = "lines write both in place")]
    pub(crate) fn expect<T: PartialEq + Debug>(&self, what: &str, expected: T, came: T) {
        if expected != came {
            self.breach(format!("{what}: expected {expected:?}, came {came:?}"));
        }
    }

    /// Adds a breach unless the condition holds.
    pub(crate) fn require(&self, what: &str, holds: bool, came: &dyn Debug) {
        if !holds {
            self.breach(format!("{what}: expected, but came {came:?}"));
        }
    }

    /// Adds a breach for each request that started less than `least` after the one before it.
    pub(crate) fn require_distance(&self, what: &str, least: Duration, requests: &[Record]) {
        for pair in requests.windows(2) {
            let distance = pair[1].start.saturating_sub(pair[0].start);
            let enough = distance + self.stage.noise_at(pair[0].start) >= least;
            self.require(
                &format!("{what}, request {}: at least {least:?} after the last", pair[1].path),
                enough,
                &distance,
            );
        }
    }

    fn breach(&self, text: String) {
        // Printed immediately, to be watched; the score card contains it too.
        println!("{}: {text}", self.line);
        self.breaches.lock().unwrap().push(text);
    }

    pub(crate) fn into_breaches(self) -> Vec<String> {
        self.breaches.into_inner().unwrap()
    }
}

/// Returns the header field's value in each request.
pub(crate) fn sent(requests: &[Record], name: &str) -> Vec<Option<String>> {
    requests.iter().map(|request| request.header(name)).collect()
}

/// Returns an owned `Some`, for comparisons.
pub(crate) fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}
