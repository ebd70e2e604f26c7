//! HEAD before GET: P44.

use std::time::Duration;

use load_tests::{Conditions, Feed, Pace, Record, Script};
use serde_json::json;

use super::GAP;
use super::case::{Case, sent};

fn methods(requests: &[Record]) -> Vec<&str> {
    requests.iter().map(Record::method).collect()
}

pub(crate) async fn p44(case: &Case<'_>) {
    saves(case).await;
    wastes(case).await;
    refuses(case).await;
}

/// Validators, no 304, and a large body that stays the same: HEAD is tried automatically, and continues.
async fn saves(case: &Case<'_>) {
    let large = Feed::rss().padding(15_000).conditions(Conditions::Ignored);
    let feed = case.feed(Script::feed(large)).await;
    let requests = case.requests(&feed.path, 7).await;
    let expected = ["GET", "GET", "GET", "GET", "HEAD", "HEAD", "HEAD"];
    case.expect("methods at a server that sends the same again", expected.to_vec(), methods(&requests));
    let bytes: Vec<_> = requests.iter().map(|request| request.body_bytes).collect();
    case.require("a HEAD costs no body", bytes.iter().skip(4).all(|bytes| *bytes == 0), &bytes);
    let conditional = requests.iter().skip(1).all(Record::is_conditional);
    case.require("each is conditional", conditional, &sent(&requests, "if-none-match"));

    case.stage.origin.publish(&feed.path, 1);
    let is_get = |request: &Record| request.method() == "GET";
    let requests = case.until(&feed.path, |requests| requests.iter().skip(4).any(is_get)).await;
    if let Some(get) = requests.iter().skip(4).position(is_get) {
        let both = &requests[get + 3..get + 5];
        case.expect("the poll that brings something", vec!["HEAD", "GET"], methods(both));
        case.require_distance("its two requests", GAP, both);
    }
    let entries = case.wait_for_field(&feed, "entries", &json!(4)).await;
    case.expect("entries after it", json!(4), entries);
}

/// Adds a feed at a host name for which a rule allows HEAD.
async fn ruled(case: &Case<'_>, name: &str, script: Script) -> String {
    let address = case.stage.origin.address(case.host());
    case.stage.names.set(name, &[address.ip()]);
    let path = case.path();
    case.stage.origin.set(&path, script);
    case.add(&format!("http://{name}:{}{path}", address.port()), json!({})).await;
    path
}

/// A rule allows HEAD, and each poll has new content: HEAD is given up.
async fn wastes(case: &Case<'_>) {
    let new_each_time = Feed::rss().pace(Pace::Every(Duration::from_secs(1))).conditions(Conditions::Ignored);
    let path = ruled(case, "head.test", Script::feed(new_each_time)).await;
    let end = |requests: &[Record]| requests.iter().rev().take(3).filter(|request| request.method() == "GET").count();
    let requests = case.until(&path, |requests| requests.len() > 6 && end(requests) == 3).await;
    let heads = methods(&requests).into_iter().filter(|method| *method == "HEAD").count();
    case.require("it begins with the second poll", methods(&requests).get(1) == Some(&"HEAD"), &methods(&requests));
    case.require("it ends when it does not save", heads <= 8 && end(&requests) == 3, &methods(&requests));
    case.require_distance("HEAD and GET are two starts", GAP, &requests);
}

/// A rule allows HEAD, and the server does not support it: the same poll continues with a GET, the next ones start with
/// it.
async fn refuses(case: &Case<'_>) {
    let feed = || Script::feed(Feed::rss());
    let path = ruled(case, "refuses.head.test", feed().then(Script::status(405)).then(feed())).await;
    let requests = case.requests(&path, 5).await;
    case.expect("methods around a 405", vec!["GET", "HEAD", "GET", "GET", "GET"], methods(&requests));
    case.require_distance("the GET after a 405", GAP, &requests);
}
