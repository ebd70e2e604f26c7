//! Deliveries and forgeries in great number: nothing forged is stored, other requests do not wait, and memory stays
//! bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use common::testing::Port;
use common::time::{Clock, SystemClock, Timestamp};
use load_tests::{Feed, Origin, Script, loopback};
use store::Feeds as _;
use tokio::sync::mpsc;

use super::{INTERVAL, config};
use crate::harness::{Home, PATIENCE, client};
use crate::hostile::percentile;

/// Returns how many deliveries, and as many forgeries.
fn size() -> usize {
    if is_long() { 10_000 } else { 300 }
}

fn is_long() -> bool {
    std::env::var_os("SOAK").is_some()
}

/// How long they take to be sent, if they are answered as quickly.
const SENT_WITHIN: Duration = Duration::from_secs(10);
/// Feeds that have nothing to do with them, and how much later than before these may be polled, at p99.
const OTHERS: usize = 40;
const MOST_LAG: f64 = 1.2;
const NOISE: Duration = Duration::from_millis(10);

/// A subscription as a hub has it.
#[derive(Clone, Debug)]
struct Asked {
    callback: String,
    topic: String,
    secret: String,
}

/// Starts a hub that verifies every subscription request, and hands it to the test.
async fn hub() -> (String, mpsc::UnboundedReceiver<Asked>) {
    let (sender, asked) = mpsc::unbounded_channel();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hub", listener.local_addr().unwrap());
    let subscribe = async |State(sender): State<mpsc::UnboundedSender<Asked>>, body: String| {
        let form: std::collections::HashMap<String, String> =
            url::form_urlencoded::parse(body.as_bytes()).into_owned().collect();
        let field = |name: &str| form.get(name).cloned().unwrap_or_default();
        let asked = Asked { callback: field("hub.callback"), topic: field("hub.topic"), secret: field("hub.secret") };
        tokio::spawn(async move {
            let query = [
                ("hub.mode", "subscribe"),
                ("hub.topic", &asked.topic),
                ("hub.challenge", "c-1"),
                ("hub.lease_seconds", "1000"),
            ];
            let url = url::Url::parse_with_params(&asked.callback, query).unwrap();
            let answer = client().get(url).send().await.unwrap();
            assert_eq!((answer.status().as_u16(), answer.text().await.unwrap()), (200, "c-1".to_owned()));
            let _ = sender.send(asked);
        });
        axum::http::StatusCode::ACCEPTED
    };
    let router = Router::new().route("/hub", post(subscribe)).with_state(sender);
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, asked)
}

fn signature(secret: &str, body: &str) -> String {
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, secret.as_bytes());
    let tag = aws_lc_rs::hmac::sign(&key, body.as_bytes());
    format!("sha256={}", tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_flood_of_deliveries_and_forgeries_only_what_is_signed_is_stored() {
    let size = size();
    let port = Port::reserved();
    // More than a feed may store in a day.
    let home = Home::new(&format!("{}[quota]\nentries_per_day = 0\n", config(&port.address())));
    let (hub, mut asked) = hub().await;
    let origin = Origin::listen(&loopback(1, 0)).await.unwrap();
    let links = format!("<{hub}>; rel=hub, <{}>; rel=self", origin.url("/pushed"));
    origin.set("/pushed", Script::feed(Feed::atom().initial(1)).header("Link", links));
    let mut fleet = home.start_at(&port.address(), &[&origin.url("/pushed")]);
    let of = tokio::time::timeout(PATIENCE, asked.recv()).await.unwrap().unwrap();
    assert_eq!(of.topic, origin.url("/pushed"));

    let others: Vec<String> = (0..OTHERS).map(|number| format!("/other{number}")).collect();
    for path in &others {
        origin.set(path, Script::feed(Feed::atom().initial(1)));
    }
    super::add(&fleet, &origin, &others).await;
    // The first round, in which all are due at once, does not count.
    tokio::time::sleep(INTERVAL * 2).await;
    let calm = SystemClock.now();
    tokio::time::sleep(SENT_WITHIN).await;

    let next = Arc::new(AtomicUsize::new(0));
    let (flooded, began) = (SystemClock.now(), Instant::now());
    let senders = (0..16).map(|_| {
        let (next, of) = (Arc::clone(&next), of.clone());
        tokio::spawn(async move {
            let client = reqwest::Client::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= 2 * size {
                    return;
                }
                let due = SENT_WITHIN.mul_f64(number as f64 / (2 * size) as f64);
                tokio::time::sleep_until((began + due).into()).await;
                let is_forged = number % 2 == 1;
                let kind = if is_forged { "forged" } else { "right" };
                let body = format!(
                    "<feed xmlns='http://www.w3.org/2005/Atom'><title>t</title><entry><id>urn:{kind}:{number}</id><title>{kind}</title></entry></feed>"
                );
                let secret = if is_forged { "guessed" } else { &of.secret };
                loop {
                    let request = client.post(&of.callback).header("x-hub-signature", signature(secret, &body));
                    let request = request.header("content-type", "application/atom+xml").body(body.clone());
                    let Ok(answer) = request.send().await else { continue };
                    match answer.status().as_u16() {
                        202 => break,
                        503 => tokio::time::sleep(Duration::from_millis(20)).await,
                        status => panic!("{status}"),
                    }
                }
            }
        })
    });
    for sender in senders.collect::<Vec<_>>() {
        sender.await.unwrap();
    }
    let ended = SystemClock.now();
    println!("{size} deliveries and {size} forgeries in {:?}", began.elapsed());
    fleet
        .wait_for("all deliveries", async |fleet| {
            let feed = fleet.get("/api/v1/feeds/1").await;
            (feed["entries"].as_u64() >= Some(size as u64 + 1)).then_some(())
        })
        .await;
    assert_eq!(fleet.metric("feedfleet_pushes_total{kind=\"websub_forged\"}").await, size as f64);
    let entries = super::stored(&fleet).await;
    assert!(!entries.keys().any(|id| id.contains("forged")), "nothing forged is stored");
    assert_eq!(entries.keys().filter(|id| id.contains("right")).count(), size);
    let memory = fleet.peak_memory();
    fleet.stop();
    let (before, during) = (lags(&home, calm, flooded).await, lags(&home, flooded, ended).await);
    let (p99_before, p99_during) = (percentile(&before, 0.99), percentile(&during, 0.99));
    println!(
        "lag of the other feeds, p99: {p99_before:?} before ({} polls), {p99_during:?} during ({}); peak memory {} MB",
        before.len(),
        during.len(),
        memory >> 20,
    );
    assert!(memory < 500 << 20);
    assert!(during.len() >= OTHERS * 2, "{} polls of {OTHERS} feeds during the flood", during.len());
    // A program that is not optimised has no time to spare on two cores.
    assert!(!is_long() || p99_during <= p99_before.mul_f64(MOST_LAG) + NOISE, "{p99_during:?}, before {p99_before:?}");
}

/// Returns how late the other feeds were polled between two times, ascending.
async fn lags(home: &Home, from: Timestamp, until: Timestamp) -> Vec<Duration> {
    let store = home.store().await;
    let mut lags = Vec::new();
    for feed in home.feeds_of(&store).await.iter().filter(|feed| feed.url.as_str().contains("/other")) {
        let polls = store.history(feed.id).await.unwrap().unwrap();
        let pairs = polls.windows(2).filter(|pair| pair[0].at >= from && pair[0].at < until);
        lags.extend(pairs.map(|pair| pair[0].at.since(pair[1].next_due.unwrap())));
    }
    lags.sort();
    lags
}
