//! Where publishers say that a feed has something new: `POST /ping` and `POST /RPC2`, open to all callers, so bounded
//! in every direction. Nothing is fetched at an address that only a ping named.

use axum::extract::{FromRequest, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Form, Json};
use common::url::FeedUrl;
use serde::Deserialize;
use serde_json::json;

use super::change::run_to_completion;
use super::xml_rpc;
use crate::error::ApiError;
use crate::request::{Accepts, body_bytes, fields, media_type, object};
use crate::state::{Api, State};
use crate::visitors::Visitor;

/// Bytes of a ping: a few addresses.
pub(super) const MAX_BYTES: usize = 16 * 1024;
/// Addresses of one ping that are looked up: services send two or three.
const MOST_URLS: usize = 8;
const KNOWN: &str = "Thanks for the ping.";
const UNKNOWN: &str = "Thanks for the ping. No feed of that address is read here.";
/// XML-RPC's usual numbers of faults.
const NOT_WELL_FORMED: i32 = -32700;
const NO_SUCH_METHOD: i32 = -32601;

/// A ping in JSON.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PingBody {
    url: Option<String>,
}

impl Accepts for PingBody {
    fn accepts(_: &str) -> &'static str {
        "text"
    }
}

/// `POST /ping`: in JSON, or as a form (`rssUrl`, `url`), which is answered as rssCloud does.
pub(super) async fn ping(State(api): State<Api>, caller: Visitor, request: Request) -> Result<Response, ApiError> {
    if let Some(refusal) = too_often(&api, caller) {
        return Ok(refusal);
    }
    match media_type(&request).as_str() {
        "application/json" => {
            let body: PingBody = fields(object(&body_bytes(request, &(), MAX_BYTES).await?)?)?;
            let url = body.url.ok_or_else(|| ApiError::bad("url is missing; it must be the feed's address"))?;
            let url = api.feed_url(&url)?;
            let known = heard(&api, "rest", std::slice::from_ref(&url)).await?;
            Ok(Json(json!({ "url": url.as_str(), "known": known, "message": thanks(known) })).into_response())
        }
        "application/x-www-form-urlencoded" => {
            let Form(given) = Form::<Vec<(String, String)>>::from_request(request, &())
                .await
                .map_err(|rejection| ApiError::new(rejection.status(), rejection.body_text().to_lowercase()))?;
            let named = |name: &'static str| given.iter().filter(move |(field, _)| field.eq_ignore_ascii_case(name));
            let texts = named("rssUrl").chain(named("changesUrl")).chain(named("url")).map(|(_, text)| text.as_str());
            let urls = urls(texts);
            if urls.is_empty() {
                return Err(ApiError::bad(
                    "url or rssUrl must be a feed's address, such as https://example.com/feed.xml",
                ));
            }
            let known = heard(&api, "form", &urls).await?;
            Ok(xml(format!("<?xml version=\"1.0\"?>\n<result success=\"{known}\" msg=\"{}\"/>\n", thanks(known))))
        }
        _ => {
            let message = "the Content-Type header must be application/json or application/x-www-form-urlencoded";
            Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message))
        }
    }
}

/// `POST /RPC2`: `weblogUpdates.ping`, `weblogUpdates.extendedPing` and `rssCloud.ping`.
pub(super) async fn rpc(State(api): State<Api>, caller: Visitor, request: Request) -> Result<Response, ApiError> {
    if let Some(refusal) = too_often(&api, caller) {
        return Ok(refusal);
    }
    let call = match xml_rpc::read(&body_bytes(request, &(), MAX_BYTES).await?) {
        Ok(call) => call,
        Err(wrong) => return Ok(xml(xml_rpc::fault(NOT_WELL_FORMED, &wrong))),
    };
    // The feed's own address comes last where several are given; names are none.
    let urls = urls(call.params.iter().rev().map(String::as_str));
    let answer = match call.method.as_str() {
        "weblogUpdates.ping" | "weblogUpdates.extendedPing" if urls.is_empty() => {
            xml_rpc::weblog_answer(true, "No parameter is an address such as https://example.com/feed.xml.")
        }
        "weblogUpdates.ping" | "weblogUpdates.extendedPing" => {
            xml_rpc::weblog_answer(false, thanks(heard(&api, "weblog_updates", &urls).await?))
        }
        "rssCloud.ping" => xml_rpc::cloud_answer(!urls.is_empty() && heard(&api, "rss_cloud", &urls).await?),
        _ => {
            xml_rpc::fault(NO_SUCH_METHOD, "weblogUpdates.ping, weblogUpdates.extendedPing and rssCloud.ping are known")
        }
    };
    Ok(xml(answer))
}

pub(super) fn urls<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<FeedUrl> {
    texts.filter_map(|text| text.parse().ok()).take(MOST_URLS).collect()
}

/// Has the feed polled soon; false when it is not known.
pub(super) async fn heard(api: &Api, kind: &str, urls: &[FeedUrl]) -> Result<bool, ApiError> {
    api.ops.metrics.pushes.with_label_values(&[kind]).inc();
    let (pings, urls) = (api.pings.clone(), urls.to_vec());
    run_to_completion(async move { pings.ping(&urls).await }).await
}

fn thanks(known: bool) -> &'static str {
    if known { KNOWN } else { UNKNOWN }
}

fn xml(text: String) -> Response {
    ([(header::CONTENT_TYPE, "text/xml; charset=utf-8")], text).into_response()
}

pub(super) fn too_often(api: &Api, caller: Visitor) -> Option<Response> {
    let most = api.ops.config.api.pings_per_minute;
    let wait = api.visitors.admit(caller, most, api.ops.clock.now()).err()?;
    let seconds = wait.as_secs().max(1);
    let message = format!("that is more than {most} pings within a minute; try again in {seconds} s");
    let refusal = ApiError::new(StatusCode::TOO_MANY_REQUESTS, message).with("retry_after", seconds);
    let mut response = refusal.into_response();
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    Some(response)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::Body;
    use axum::http::Request;
    use common::feed::Feed;
    use common::policy::Status;
    use common::time::{Clock, Timestamp};
    use common::url::FeedId;

    use super::*;
    use crate::testing::{Answer, Fleet};
    use scheduler::ops::EditFeed;
    use store::FeedRef;

    const URL: &str = "https://a.example/feed.xml";

    async fn send(fleet: &Fleet, path: &str, media_type: &str, body: String) -> Answer {
        let request = Request::post(path).header("host", "127.0.0.1").header("content-type", media_type);
        fleet.send(request.body(Body::from(body)).unwrap()).await
    }

    async fn rest(fleet: &Fleet, url: &str) -> Answer {
        send(fleet, "/ping", "application/json", json!({ "url": url }).to_string()).await
    }

    async fn call(fleet: &Fleet, method: &str, params: &[&str]) -> String {
        let params: String = params.iter().map(|text| format!("<param><value>{text}</value></param>")).collect();
        let body = format!("<methodCall><methodName>{method}</methodName><params>{params}</params></methodCall>");
        send(fleet, "/RPC2", "text/xml", body).await.body.as_str().unwrap().to_owned()
    }

    async fn feed(fleet: &Fleet, id: i64) -> Feed {
        fleet.ops.feed(&FeedRef::Id(FeedId(id))).await.unwrap().unwrap()
    }

    async fn wake_of(fleet: &Fleet, id: i64) -> Option<Timestamp> {
        feed(fleet, id).await.wake_at
    }

    #[tokio::test]
    async fn many_pings_in_a_window_are_one_wake_within_it() {
        let fleet = Fleet::new().await;
        let id = fleet.feed(URL).await;
        fleet.polled(id, &["1"]).await;
        fleet.clock.advance(Duration::from_secs(30));
        let answer = rest(&fleet, URL).await;
        assert_eq!((answer.status, &answer.body["known"]), (200, &true.into()));
        let (now, wake) = (fleet.clock.now(), wake_of(&fleet, id).await.unwrap());
        assert!(wake.since(now) >= Duration::from_secs(30), "a whole window after the last poll");
        assert!(wake <= now.after(Duration::from_secs(60)));
        for _ in 0..20 {
            assert_eq!(rest(&fleet, URL).await.status, 200);
        }
        assert_eq!(wake_of(&fleet, id).await, Some(wake));
        assert_eq!(fleet.ops.metrics.pushes.with_label_values(&["rest"]).get(), 21);
    }

    #[tokio::test]
    async fn a_ping_in_mid_fetch_is_kept_for_the_next_window() {
        let fleet = Fleet::new().await;
        let id = fleet.feed(URL).await;
        rest(&fleet, URL).await;
        let wake = wake_of(&fleet, id).await;
        // Its fetch has begun, as far as the fleet knows.
        fleet.clock.advance(Duration::from_secs(90));
        for _ in 0..3 {
            rest(&fleet, URL).await;
        }
        assert_eq!(wake_of(&fleet, id).await, wake, "no fetch right after the one under way");
        // A scheduler that stops does not wait for the window's end.
        fleet.ops.quiet.cancel();
        while wake_of(&fleet, id).await != Some(fleet.clock.now()) {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_ping_that_none_follows_does_not_wait_for_the_end_of_its_window() {
        let fleet = Fleet::with(|config| {
            config.policy.ping_spread = Duration::ZERO;
            config.policy.ping_quiet = Duration::from_millis(20);
        })
        .await;
        let id = fleet.feed(URL).await;
        fleet.polled(id, &["1"]).await;
        fleet.clock.advance(Duration::from_secs(30));
        rest(&fleet, URL).await;
        while wake_of(&fleet, id).await != Some(fleet.clock.now()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn unknown_and_private_feeds_are_answered_alike_and_nothing_is_added() {
        let fleet = Fleet::new().await;
        let id = fleet.feed(URL).await;
        fleet.ops.edit(FeedId(id), &EditFeed { private: Some(true), ..EditFeed::default() }).await.unwrap();
        for (url, other) in [(URL, "https://b.example/"), ("http://127.0.0.1/", "http://[::1]/")] {
            let (one, two) = (rest(&fleet, url).await, rest(&fleet, other).await);
            assert_eq!((one.status, &one.body["known"]), (200, &false.into()));
            assert_eq!((two.status, &two.body["message"]), (200, &one.body["message"]));
            let params = ["A", other];
            assert_eq!(
                call(&fleet, "weblogUpdates.ping", &["A", url]).await,
                call(&fleet, "weblogUpdates.ping", &params).await
            );
        }
        assert_eq!(wake_of(&fleet, id).await, None);
        assert_eq!(fleet.ops.schedule.depth(fleet.clock.now()).await.unwrap().feeds, 1);
    }

    #[tokio::test]
    async fn forms_and_calls_wake_the_feed_that_they_name() {
        let fleet = Fleet::new().await;
        let form = "application/x-www-form-urlencoded";
        for (number, kind) in ["form", "weblog", "extended", "cloud"].into_iter().enumerate() {
            let url = format!("https://a.example/{kind}");
            let id = fleet.feed(&url).await;
            let answer = match kind {
                "form" => {
                    let body = format!("name=A+blog&url=https%3A%2F%2Fa.example%2F&rssUrl={url}");
                    send(&fleet, "/ping", form, body).await.body.to_string()
                }
                "weblog" => call(&fleet, "weblogUpdates.ping", &["A blog", &url]).await,
                "extended" => call(&fleet, "weblogUpdates.extendedPing", &["A", "http://a.example/", "x", &url]).await,
                _ => call(&fleet, "rssCloud.ping", &[&url]).await,
            };
            let expected =
                ["success=\\\"true\\\"", "<boolean>0</boolean>", "<boolean>0</boolean>", "<boolean>1</boolean>"];
            assert!(answer.contains(expected[number]), "{answer}");
            assert!(wake_of(&fleet, id).await.is_some(), "{kind}");
        }
        assert!(call(&fleet, "weblogUpdates.ping", &["A blog"]).await.contains("<boolean>1</boolean>"), "refused");
        assert!(call(&fleet, "system.exec", &[URL]).await.contains("<int>-32601</int>"));
        assert!(call(&fleet, "rssCloud.ping", &["&secret;"]).await.contains("<int>-32700</int>"));
        assert_eq!(send(&fleet, "/ping", form, "name=A".to_owned()).await.status, 400);
        assert_eq!(send(&fleet, "/ping", "text/plain", URL.to_owned()).await.status, 415);
        assert_eq!(send(&fleet, "/RPC2", "text/xml", " ".repeat(MAX_BYTES + 1)).await.status, 413);
    }

    /// XML is read for calls alone: what a feed says comes in a worker's report, and from nowhere else.
    #[tokio::test]
    async fn a_feed_in_place_of_a_ping_is_refused_and_not_read() {
        let fleet = Fleet::new().await;
        let id = fleet.feed(URL).await;
        let before = wake_of(&fleet, id).await;
        let item = format!("<item><guid>1</guid><title>a</title><link>{URL}</link></item>");
        let rss = format!("<rss version='2.0'><channel><title>t</title><link>{URL}</link>{item}</channel></rss>");
        let refused = send(&fleet, "/RPC2", "text/xml", rss.clone()).await;
        assert!(refused.body.as_str().unwrap().contains("<fault>"), "{}", refused.body);
        for media_type in ["application/rss+xml", "text/xml", "application/json"] {
            let refused = send(&fleet, "/ping", media_type, rss.clone()).await;
            assert!((400..500).contains(&refused.status), "{media_type}: {}", refused.body);
        }
        assert_eq!(wake_of(&fleet, id).await, before);
        assert_eq!(fleet.get("/api/v1/entries").await.body["items"], json!([]));
    }

    /// Sets a feed's status, as operators do.
    async fn set(fleet: &Fleet, id: i64, status: Status) {
        fleet.ops.edit(FeedId(id), &EditFeed { status: Some(status), ..EditFeed::default() }).await.unwrap();
    }

    #[tokio::test]
    async fn a_retired_feed_is_tried_within_the_spread_whatever_its_last_poll_was_and_a_paused_one_never() {
        for retired in [Status::Blacklisted, Status::Gone] {
            let fleet = Fleet::new().await;
            let id = fleet.feed(URL).await;
            fleet.polled(id, &["1"]).await;
            set(&fleet, id, Status::Paused).await;
            rest(&fleet, URL).await;
            assert_eq!(feed(&fleet, id).await.due(), None, "a person's pause");
            set(&fleet, id, retired).await;
            fleet.clock.advance(Duration::from_secs(61));
            for _ in 0..3 {
                assert_eq!(rest(&fleet, URL).await.body["known"], true);
            }
            let (tried, now) = (feed(&fleet, id).await, fleet.clock.now());
            assert_eq!(tried.status, retired, "its status is what a good answer changes");
            assert!(tried.due().is_some_and(|due| due >= now && due <= now.after(Duration::from_secs(60))));
            let (due, lease) = (now.after(Duration::from_secs(60)), Duration::from_secs(120));
            assert_eq!(fleet.ops.schedule.claim_due(due, 9, lease).await.unwrap().len(), 1);
        }
    }

    #[tokio::test]
    async fn a_ping_of_a_retired_feed_that_was_just_tried_is_remembered_for_the_end_of_its_rest() {
        let fleet = Fleet::new().await;
        let id = fleet.feed(URL).await;
        fleet.polled(id, &["1"]).await;
        set(&fleet, id, Status::Blacklisted).await;
        // Twelve tries without success in a row: the rest is a day by now.
        let before = feed(&fleet, id).await;
        let state = common::policy::PollState { fruitless_wakes: 12, ..before.state };
        fleet.store_state(&before, state).await;
        let polled = fleet.clock.now();
        fleet.clock.advance(Duration::from_secs(3600));
        rest(&fleet, URL).await;
        let day = Duration::from_secs(86_400);
        assert_eq!(feed(&fleet, id).await.due(), Some(polled.after(day)), "one poll, a day after the last");
        fleet.clock.advance(Duration::from_secs(3600));
        rest(&fleet, URL).await;
        assert_eq!(feed(&fleet, id).await.due(), Some(polled.after(day)), "and no more of them");
    }

    #[tokio::test]
    async fn a_ping_that_names_a_site_wakes_its_feeds_up_to_ten_and_no_private_one() {
        let fleet = Fleet::new().await;
        let mut ids = Vec::new();
        for number in 0..12 {
            let id = fleet.feed(&format!("https://a.example/feed{number}")).await;
            let link = ["https://a.example/", "http://a.example"][number % 2].to_owned();
            fleet.read(id, common::document::Document { link: Some(link), ..Default::default() }).await;
            ids.push(id);
        }
        fleet.ops.edit(FeedId(ids[0]), &EditFeed { private: Some(true), ..EditFeed::default() }).await.unwrap();
        fleet.clock.advance(Duration::from_secs(120));
        let answer = call(&fleet, "weblogUpdates.ping", &["A blog", "http://a.example/"]).await;
        assert!(answer.contains("<boolean>0</boolean>"), "{answer}");
        let mut woken = Vec::new();
        for id in &ids {
            woken.extend(wake_of(&fleet, *id).await.map(|_| *id));
        }
        assert_eq!(woken, ids[1..11], "the private one never, and no more than ten");
        assert_eq!(rest(&fleet, "https://b.example/").await.body["known"], false);
    }

    #[tokio::test]
    async fn who_pings_too_often_is_told_when_again() {
        let fleet = Fleet::new().await;
        let most = fleet.ops.config.api.pings_per_minute;
        for _ in 0..most {
            assert_eq!(rest(&fleet, URL).await.status, 200);
        }
        let refused = rest(&fleet, URL).await;
        assert_eq!((refused.status, &refused.body["retry_after"]), (429, &60.into()));
        assert_eq!(send(&fleet, "/RPC2", "text/xml", String::new()).await.status, 429);
        fleet.clock.advance(Duration::from_secs(60));
        assert_eq!(rest(&fleet, URL).await.status, 200);
    }
}
