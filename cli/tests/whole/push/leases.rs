//! Leases of five seconds: each is renewed before it ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use common::testing::Port;
use load_tests::{Feed, Origin, Script, loopback};

use super::config;
use crate::harness::{Home, client, watch_stalls};

const LEASE: Duration = Duration::from_secs(5);
const FEEDS: usize = 20;

/// For each topic, when its leases began, as the hub counts them.
type Leases = Arc<Mutex<HashMap<String, Vec<Instant>>>>;

/// Two minutes in `dev/soak`.
fn length() -> Duration {
    Duration::from_secs(if std::env::var_os("SOAK").is_some() { 120 } else { 20 })
}

/// Returns a hub that grants five seconds, whatever is requested.
async fn hub() -> (String, Leases) {
    let leases = Leases::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hub", listener.local_addr().unwrap());
    let subscribe = async |State((leases, client)): State<(Leases, reqwest::Client)>, body: String| {
        let form: HashMap<String, String> = url::form_urlencoded::parse(body.as_bytes()).into_owned().collect();
        let field = |name: &str| form.get(name).cloned().unwrap_or_default();
        let (topic, callback, mode) = (field("hub.topic"), field("hub.callback"), field("hub.mode"));
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let lease = LEASE.as_secs().to_string();
            let query =
                [("hub.mode", &*mode), ("hub.topic", &topic), ("hub.challenge", "c-1"), ("hub.lease_seconds", &lease)];
            let asked = Instant::now();
            let url = url::Url::parse_with_params(&callback, query).unwrap();
            if client.get(url).send().await.is_ok_and(|answer| answer.status().is_success()) {
                leases.lock().unwrap().entry(topic).or_default().push(asked);
            }
        });
        StatusCode::ACCEPTED
    };
    let router = Router::new().route("/hub", post(subscribe)).with_state((Arc::clone(&leases), client()));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, leases)
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_of_five_seconds_are_renewed_without_a_gap() {
    let port = Port::reserved();
    let home = Home::new(&config(&port.address()));
    let (hub, leases) = hub().await;
    let origin = Origin::listen(&loopback(1, 0)).await.unwrap();
    let paths: Vec<String> = (0..FEEDS).map(|number| format!("/feed{number}")).collect();
    for path in &paths {
        let links = format!("<{hub}>; rel=hub, <{}>; rel=self", origin.url(path));
        origin.set(path, Script::feed(Feed::atom().initial(1)).header("Link", links));
    }
    let stalls = watch_stalls(&origin);
    let mut fleet = home.start_at(&port.address(), &[]);
    fleet.watch(&stalls);
    super::add(&fleet, &origin, &paths).await;
    super::subscribed(&mut fleet, FEEDS).await;
    tokio::time::sleep(length()).await;
    let end = Instant::now();
    // A renewal is sent at half of the lease's time, unless a process stalls.
    let most = LEASE + stalls.seen().longest();
    let (mut renewals, mut gaps, mut longest) = (0, 0, Duration::ZERO);
    for begun in leases.lock().unwrap().values() {
        renewals += begun.len() - 1;
        let next = begun[1..].iter().copied().chain([end]);
        for (begun, next) in begun.iter().zip(next) {
            let without = next.saturating_duration_since(*begun);
            longest = longest.max(without);
            gaps += usize::from(without > most);
        }
    }
    println!(
        "{renewals} renewals of {FEEDS} leases in {:?}: {gaps} gaps; the longest time between two {longest:?}",
        length()
    );
    assert_eq!((leases.lock().unwrap().len(), gaps), (FEEDS, 0), "the longest time between two renewals: {longest:?}");
    let least = FEEDS * usize::try_from(length().as_secs() / LEASE.as_secs()).unwrap();
    assert!(renewals >= least, "{renewals} renewals, not {least}");
    fleet.stop();
}
