//! Receives webhooks: webhook_receiver SECRET [PORT]. Needs the crates aws-lc-rs, axum, base64, serde_json and tokio. See
//! docs/webhooks.md.
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use axum::{Router, body::Bytes, extract::State, http::HeaderMap, http::StatusCode, routing::post};
use base64::{Engine as _, prelude::BASE64_STANDARD};

pub struct Receiver {
    key: hmac::Key,
    pub processed: Mutex<HashSet<String>>, // a real receiver stores these with its results
}

pub fn receiver(secret: &str) -> Option<Arc<Receiver>> {
    let key = BASE64_STANDARD.decode(secret.strip_prefix("whsec_")?).ok()?;
    Some(Arc::new(Receiver { key: hmac::Key::new(hmac::HMAC_SHA256, &key), processed: Mutex::default() }))
}

fn is_signed(key: &hmac::Key, headers: &HeaderMap, body: &[u8]) -> Option<bool> {
    let text = |name| headers.get(name)?.to_str().ok();
    let (id, at) = (text("webhook-id")?, text("webhook-timestamp")?);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
    let is_recent = at.parse::<u64>().ok()?.abs_diff(now) < 300;
    let signed = [format!("{id}.{at}.").as_bytes(), body].concat();
    let fits = |tag: &str| BASE64_STANDARD.decode(tag).is_ok_and(|tag| hmac::verify(key, &signed, &tag).is_ok());
    Some(is_recent && text("webhook-signature")?.split(' ').any(|it| it.strip_prefix("v1,").is_some_and(fits)))
}

async fn receive(State(receiver): State<Arc<Receiver>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let (Some(true), Ok(document)) =
        (is_signed(&receiver.key, &headers, &body), serde_json::from_slice::<serde_json::Value>(&body))
    else {
        return StatusCode::UNAUTHORIZED;
    };
    if receiver.processed.lock().unwrap().insert(headers["webhook-id"].to_str().unwrap_or_default().to_owned()) {
        for event in document["data"]["events"].as_array().into_iter().flatten() {
            println!("{} {} {}", event["seq"], event["kind"], event["entry"]["title"]);
        }
    }
    StatusCode::NO_CONTENT
}

pub fn router(receiver: Arc<Receiver>) -> Router {
    Router::new().route("/", post(receive)).with_state(receiver)
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let port = arguments.get(2).map_or(8000, |port| port.parse().expect("a port"));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.expect("a free port");
    axum::serve(listener, router(receiver(&arguments[1]).expect("a secret: whsec_.."))).await.expect("a server");
}
