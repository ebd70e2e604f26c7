//! Receives webhooks: webhook_receiver SECRET [PORT]. Needs aws-lc-rs, axum, base64, serde_json and tokio. See docs/webhooks.md.
use std::{collections::HashSet, sync::Arc, sync::Mutex, time::UNIX_EPOCH};

use aws_lc_rs::hmac;
use axum::{Router, body::Bytes, extract::State, http::HeaderMap, http::StatusCode, routing::post};
use base64::{Engine as _, prelude::BASE64_STANDARD};

pub type Receiver = Arc<(hmac::Key, Mutex<HashSet<String>>)>; // a real one stores processed ids with its results

pub fn receiver(secret: &str) -> Option<Receiver> {
    let key = BASE64_STANDARD.decode(secret.strip_prefix("whsec_")?).ok()?;
    Some(Arc::new((hmac::Key::new(hmac::HMAC_SHA256, &key), Mutex::default())))
}

fn verified(key: &hmac::Key, headers: &HeaderMap, body: &[u8]) -> Option<(String, serde_json::Value)> {
    let text = |name| headers.get(name)?.to_str().ok();
    let (id, at) = (text("webhook-id")?, text("webhook-timestamp")?);
    let is_recent = at.parse::<u64>().ok()?.abs_diff(UNIX_EPOCH.elapsed().ok()?.as_secs()) < 300;
    let signed = [format!("{id}.{at}.").as_bytes(), body].concat();
    let fits = |tag: &str| BASE64_STANDARD.decode(tag).is_ok_and(|tag| hmac::verify(key, &signed, &tag).is_ok());
    let is_signed = text("webhook-signature")?.split(' ').any(|it| it.strip_prefix("v1,").is_some_and(fits));
    (is_recent && is_signed).then_some((id.to_owned(), serde_json::from_slice(body).ok()?))
}

pub async fn receive(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let Some((id, document)) = verified(&receiver.0, &headers, &body) else { return StatusCode::UNAUTHORIZED };
    if receiver.1.lock().unwrap().insert(id) {
        println!("{}", document["data"]["events"]);
    }
    StatusCode::NO_CONTENT
}

#[tokio::main]
async fn main() {
    let [secret, port] = [1, 2].map(|at| std::env::args().nth(at).unwrap_or("8000".to_owned()));
    let receiver = receiver(&secret).expect("a secret: whsec_..");
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await.expect("a free port");
    axum::serve(listener, Router::new().route("/", post(receive)).with_state(receiver)).await.expect("a server");
}
