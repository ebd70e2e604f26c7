//! The WebSub hub as subscribers see it: the hub tests of websub.rocks and cases of the PubSubHubbub project's own suite, replayed from
//! their public descriptions, and a subscriber written by others (Flask-WebSub, from PyPI).

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use common::testing::Port;
use common::webhook::hub_signature;
use serde_json::Value;

use super::examples::installed;
use super::{busy, home, operator};
use crate::harness::{Fleet, Home};

/// What a path answers to the question whether it wants a subscription.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Says {
    /// The challenge.
    Challenge,
    /// A good status with something else.
    Nonsense,
    /// This status.
    Status(u16),
    /// A redirect to a path that answers with the challenge.
    Redirect,
}

/// A request that the subscriber got.
#[derive(Clone, Debug)]
pub(super) struct Got {
    method: Method,
    path: String,
    query: HashMap<String, String>,
    headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Got {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(super) fn asks(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }
}

/// A subscriber whose answers are scripted.
#[derive(Clone)]
pub(super) struct Subscriber {
    address: SocketAddr,
    inside: Arc<Mutex<Inside>>,
}

#[derive(Default)]
struct Inside {
    log: Vec<Got>,
    says: HashMap<String, Says>,
    /// Statuses for notifications, in turn; the last one stays.
    statuses: HashMap<String, Vec<u16>>,
}

impl Subscriber {
    pub(super) async fn listen() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let subscriber = Subscriber { address: listener.local_addr().unwrap(), inside: Arc::default() };
        let router = Router::new().fallback(receive).with_state(subscriber.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        subscriber
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn say(&self, path: &str, says: Says) {
        self.inside.lock().unwrap().says.insert(path.to_owned(), says);
    }

    /// Requests of a method to a path.
    pub(super) fn got(&self, method: &Method, path: &str) -> Vec<Got> {
        let inside = self.inside.lock().unwrap();
        inside.log.iter().filter(|got| got.method == method && got.path == path).cloned().collect()
    }

    /// Waits for this number of questions at a path.
    pub(super) async fn asked(&self, fleet: &mut Fleet, path: &str, count: usize) -> Vec<Got> {
        fleet.wait_for("a question", async |_| at_least(self.got(&Method::GET, path), count)).await
    }

    /// Waits for this number of notifications at a path.
    pub(super) async fn notified(&self, fleet: &mut Fleet, path: &str, count: usize) -> Vec<Got> {
        fleet.wait_for("a notification", async |_| at_least(self.got(&Method::POST, path), count)).await
    }
}

fn at_least(got: Vec<Got>, count: usize) -> Option<Vec<Got>> {
    (got.len() >= count).then_some(got)
}

async fn receive(
    State(subscriber): State<Subscriber>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let query = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    let got = Got { method, path: uri.path().to_owned(), query, headers, body };
    let mut inside = subscriber.inside.lock().unwrap();
    inside.log.push(got.clone());
    let status = |status| StatusCode::from_u16(status).unwrap();
    if got.method == Method::POST {
        let statuses = inside.statuses.entry(got.path).or_default();
        let code = if statuses.len() > 1 { statuses.remove(0) } else { statuses.first().copied().unwrap_or(204) };
        return status(code).into_response();
    }
    match inside.says.get(&got.path).copied().unwrap_or(Says::Challenge) {
        Says::Challenge => got.asks("hub.challenge").to_owned().into_response(),
        Says::Nonsense => "yes".into_response(),
        Says::Status(code) => (status(code), got.asks("hub.challenge").to_owned()).into_response(),
        Says::Redirect => {
            Redirect::temporary(&format!("/elsewhere?{}", uri.query().unwrap_or_default())).into_response()
        }
    }
}

/// Lines of the section `delivery` that open a hub.
pub(super) const OPEN_HUB: &str = "hub = \"open\"\nhub_lease_min = \"1s\"\n[api]\npublic_url = \"http://hub.example\"";

/// Returns a home with an open hub.
pub(super) fn hub_home() -> Home {
    home(OPEN_HUB)
}

/// Sends a request to the hub; returns its status.
pub(super) async fn ask(fleet: &Fleet, fields: &[(&str, &str)]) -> u16 {
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let request = fleet.client.post(format!("{}/hub", fleet.api));
    let request = request.header("content-type", "application/x-www-form-urlencoded").body(body);
    request.send().await.unwrap().status().as_u16()
}

pub(super) fn wish<'a>(mode: &'a str, topic: &'a str, callback: &'a str) -> [(&'static str, &'a str); 3] {
    [("hub.mode", mode), ("hub.topic", topic), ("hub.callback", callback)]
}

/// Waits until no verification is pending; returns the subscriptions.
pub(super) async fn settled(home: &Home, fleet: &mut Fleet) -> Vec<Value> {
    fleet
        .wait_for("the end of questions", async |fleet| {
            let output = home.command(&["subscription", "list", "--json"]).env("FEEDFLEET_SERVER", &fleet.api).output();
            let text = String::from_utf8(output.unwrap().stdout).unwrap();
            let all: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            all.iter().all(|it| it["asks"].is_null()).then_some(all)
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_tests_of_websub_rocks_pass() {
    let (home, subscriber) = (hub_home(), Subscriber::listen().await);
    let (_origin, urls) = busy(1).await;
    let topic = &urls[0];
    let mut fleet = home.start(&[]);

    // 100: only the required parameters; notifications are not signed.
    let typical = subscriber.url("/typical?key=1");
    assert_eq!(ask(&fleet, &wish("subscribe", topic, &typical)).await, 202);
    let asked = subscriber.asked(&mut fleet, "/typical", 1).await.remove(0);
    assert_eq!((asked.asks("hub.mode"), asked.asks("hub.topic"), asked.asks("key")), ("subscribe", &topic[..], "1"));
    assert_eq!(asked.asks("hub.lease_seconds"), (10 * 86_400).to_string());
    let got = subscriber.notified(&mut fleet, "/typical", 2).await.remove(1);
    assert_eq!((got.header("x-hub-signature"), got.asks("key")), ("", "1"));
    assert_eq!(got.header("link"), format!("<http://hub.example/hub>; rel=\"hub\", <{topic}>; rel=\"self\""));
    assert_eq!(got.header("content-type"), "application/atom+xml");
    let text = String::from_utf8(got.body.to_vec()).unwrap();
    assert!(text.contains("last_status=\"200\"") && text.contains("<entry>"), "{text}");

    // 101: with a secret, notifications are signed. 102: unknown parameters are ignored.
    let secret = [("hub.secret", "a s3cret"), ("foo", "bar"), ("hub.verify_token", "x"), ("hub.lease_seconds", "600")];
    let signed = subscriber.url("/signed");
    let fields = [&wish("subscribe", topic, &signed)[..], &secret].concat();
    assert_eq!(ask(&fleet, &fields).await, 202);
    let got = subscriber.notified(&mut fleet, "/signed", 1).await.remove(0);
    assert_eq!(got.header("x-hub-signature"), hub_signature("a s3cret", &got.body));
    assert_eq!(subscriber.got(&Method::GET, "/signed")[0].asks("hub.lease_seconds"), "600");

    // 103: a second subscription request renews: there is one subscription per topic and callback.
    assert_eq!(ask(&fleet, &wish("subscribe", topic, &signed)).await, 202);
    subscriber.asked(&mut fleet, "/signed", 2).await;
    let all = settled(&home, &mut fleet).await;
    assert_eq!(all.iter().filter(|it| it["target"] == signed).count(), 1);
    let renewed = all.iter().find(|it| it["target"] == signed).unwrap();
    assert_eq!((&renewed["signature"], &renewed["topic"]), (&Value::Null, &topic.as_str().into()));

    // 104: after an unsubscription nothing arrives any more.
    assert_eq!(ask(&fleet, &wish("unsubscribe", topic, &typical)).await, 202);
    let asked = subscriber.asked(&mut fleet, "/typical", 2).await.remove(1);
    assert_eq!((asked.asks("hub.mode"), asked.asks("hub.lease_seconds")), ("unsubscribe", ""));
    settled(&home, &mut fleet).await;
    let (left, others) =
        (subscriber.got(&Method::POST, "/typical").len(), subscriber.got(&Method::POST, "/signed").len());
    subscriber.notified(&mut fleet, "/signed", others + 3).await;
    assert_eq!(subscriber.got(&Method::POST, "/typical").len(), left);
    assert_eq!(ask(&fleet, &wish("unsubscribe", topic, &typical)).await, 404);
    fleet.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn cases_of_the_pubsubhubbub_suite_pass() {
    let (home, subscriber) = (hub_home(), Subscriber::listen().await);
    let (_origin, urls) = busy(2).await;
    let topic = &urls[0];
    let mut fleet = home.start(&[]);

    // Only its subscriber can make a subscription.
    for (path, says) in [
        ("/refuses", Says::Status(404)),
        ("/nonsense", Says::Nonsense),
        ("/redirects", Says::Redirect),
        ("/teapot", Says::Status(418)),
    ] {
        subscriber.say(path, says);
        assert_eq!(ask(&fleet, &wish("subscribe", topic, &subscriber.url(path))).await, 202);
        subscriber.asked(&mut fleet, path, 1).await;
    }
    assert_eq!(settled(&home, &mut fleet).await, Vec::<Value>::new());
    assert!(subscriber.got(&Method::GET, "/elsewhere").is_empty(), "redirects are not followed");
    let known = format!("{}/api/v1/feeds/lookup?url={topic}", fleet.api);
    assert_eq!(fleet.client.get(&known).send().await.unwrap().status(), 404, "nobody confirmed");

    // One in trouble is verified again. Paths differ in case.
    subscriber.say("/Trouble", Says::Status(503));
    for path in ["/Trouble", "/trouble"] {
        assert_eq!(ask(&fleet, &wish("subscribe", topic, &subscriber.url(path))).await, 202);
    }
    subscriber.asked(&mut fleet, "/Trouble", 1).await;
    subscriber.say("/Trouble", Says::Challenge);
    subscriber.notified(&mut fleet, "/Trouble", 1).await;
    let mut targets: Vec<String> = settled(&home, &mut fleet).await.iter().map(|it| it["target"].to_string()).collect();
    targets.sort();
    assert_eq!(targets.len(), 2);
    assert!(targets[0] != targets[1] && targets[0].eq_ignore_ascii_case(&targets[1]), "{targets:?}");

    // A notification that fails is repeated, and delays no other subscriber.
    subscriber.inside.lock().unwrap().statuses.insert("/fails".into(), vec![500, 500, 202]);
    assert_eq!(ask(&fleet, &wish("subscribe", topic, &subscriber.url("/fails"))).await, 202);
    let got = subscriber.notified(&mut fleet, "/fails", 3).await;
    let ids: Vec<&str> = got[..3].iter().map(|got| got.header("webhook-id")).collect();
    assert_eq!(ids, [ids[0]; 3], "a retry has its id");

    // A subscriber that is gone gets no further questions, and a further topic is a further subscription.
    subscriber.inside.lock().unwrap().statuses.insert("/gone".into(), vec![410]);
    for topic in &urls {
        assert_eq!(ask(&fleet, &wish("subscribe", topic, &subscriber.url("/gone"))).await, 202);
    }
    fleet
        .wait_for("disabled subscriptions", async |fleet| {
            let all = fleet.client.get(format!("{}/api/v1/subscriptions", fleet.api)).send().await.unwrap();
            let all: Value = serde_json::from_str(&all.text().await.unwrap()).unwrap();
            let is_disabled = |it: &&Value| it["state"] == "disabled" && it["reason"].to_string().contains("410");
            (all["items"].as_array().unwrap().iter().filter(is_disabled).count() == 2).then_some(())
        })
        .await;

    // A lease that is not renewed ends.
    let callback = subscriber.url("/short");
    let short = [&wish("subscribe", &urls[1], &callback)[..], &[("hub.lease_seconds", "30")]].concat();
    assert_eq!(ask(&fleet, &short).await, 202);
    subscriber.notified(&mut fleet, "/short", 1).await;
    fleet
        .wait_for("the end of a lease", async |fleet| {
            let output = home.command(&["subscription", "list"]).env("FEEDFLEET_SERVER", &fleet.api).output().unwrap();
            (!String::from_utf8(output.stdout).unwrap().contains("/short")).then_some(())
        })
        .await;
    fleet.stop();
}

/// The subscriber of Flask-WebSub. Killed when dropped.
struct Flask {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Flask {
    fn start(home: &Home, port: &Port, hub: &str, topic: &str) -> Self {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/whole/webhooks");
        let mut command = Command::new(installed("cli/tests/whole/webhooks/flask-websub.txt"));
        command.arg(here.join("flask_subscriber.py")).args([&port.number().to_string(), hub, topic]);
        command.current_dir(home.path("")).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let lines = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                seen.lock().unwrap().push(line);
            }
        });
        Flask { child, lines }
    }

    fn order(&mut self, what: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{what}").unwrap();
    }

    /// Waits until it has printed this number of lines that begin so.
    async fn printed(&self, fleet: &mut Fleet, beginning: &str, count: usize) -> Vec<String> {
        fleet
            .wait_for("Flask-WebSub", async |_| {
                let lines = self.lines.lock().unwrap();
                let found: Vec<String> = lines.iter().filter(|line| line.starts_with(beginning)).cloned().collect();
                (found.len() >= count).then_some(found)
            })
            .await
    }
}

impl Drop for Flask {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_written_by_others_subscribes_receives_renews_and_leaves() {
    let home = hub_home();
    let (_origin, urls) = busy(1).await;
    let mut fleet = home.start(&[]);
    let port = Port::reserved();
    let mut flask = Flask::start(&home, &port, &format!("{}/hub", fleet.api), &urls[0]);
    flask.order("subscribe");
    flask.printed(&mut fleet, "subscribe ", 1).await;
    let got = flask.printed(&mut fleet, "got ", 2).await;
    assert!(got.iter().all(|line| line.ends_with(&urls[0]) && !line.starts_with("got 0")), "{got:?}");
    let lease = |all: &[Value]| all[0]["lease_until"].as_str().unwrap().to_owned();
    let before = lease(&settled(&home, &mut fleet).await);
    flask.order("renew");
    flask.printed(&mut fleet, "subscribe ", 2).await;
    let all = settled(&home, &mut fleet).await;
    assert!(all.len() == 1 && lease(&all) > before, "{all:?}");
    let received = flask.printed(&mut fleet, "got ", 1).await.len();
    flask.printed(&mut fleet, "got ", received + 1).await;
    flask.order("unsubscribe");
    flask.printed(&mut fleet, "unsubscribe ", 1).await;
    assert_eq!(settled(&home, &mut fleet).await, Vec::<Value>::new());
    fleet
        .wait_for("the release of the feed", async |fleet| {
            let known = format!("{}/api/v1/feeds/lookup?url={}", fleet.api, urls[0]);
            (fleet.client.get(known).send().await.unwrap().status() == 404).then_some(())
        })
        .await;
    assert!(flask.lines.lock().unwrap().iter().all(|line| !line.starts_with("error")));
    assert_eq!(operator(&home, &fleet, &["stats"])["feeds"], 0);
    fleet.stop();
}
