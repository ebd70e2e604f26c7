//! Requeues by request: what is matched, what is refused, and the outcome.

use common::outcome::FailureKind;
use common::policy::{Decision, Status, Terms};
use common::report::{FetchReport, Outcome};

use super::*;
use scheduler::upkeep::requeue::RequeueRunner;
use store::{FeedChange, Verdict};

impl Fleet {
    /// Takes the steps that are allowed by now, as a scheduler does.
    async fn drip(&self) {
        let requeue_runner = RequeueRunner {
            store: self.ops.store.clone(),
            schedule: self.ops.schedule.clone(),
            condition: self.ops.condition.clone(),
        };
        requeue_runner.round(&*self.clock).await.unwrap();
    }

    /// Stores an answer that puts the feed's host on hold until then.
    async fn throttled(&self, id: i64, until: Timestamp) {
        let (feed, now) = (self.ops.feed(&FeedRef::Id(FeedId(id))).await.unwrap().unwrap(), self.clock.now());
        let report = FetchReport::of(feed.id, feed.version, feed.host, now, Outcome::Throttled { retry_after: None });
        let (status, next_due) = (feed.status, feed.next_due);
        let decision = Decision {
            state: feed.state,
            status,
            next_due,
            terms: Terms::default(),
            host_hold: Some(until),
            notices: common::policy::Notices::default(),
        };
        let (category, audience_at) = (common::policy::Category::D, feed.audience_at);
        let verdict = Verdict { report, decision, category, audience_at, push: None, archive: None, seen: None };
        self.ops.store.apply(&[verdict], Duration::from_secs(1), now).await.unwrap();
    }

    async fn waking(&self) -> usize {
        let places = self.ops.store.placements(FeedId(0), 100).await.unwrap();
        places.iter().filter(|place| place.wake).count()
    }
}

/// Six feeds on two hosts, all polled an instant ago; the first is paused.
async fn six_feeds() -> (Fleet, Vec<i64>) {
    let fleet = Fleet::new().await;
    let mut ids = Vec::new();
    for number in 0..6 {
        let host = if number < 4 { "a.example" } else { "b.example:8080" };
        ids.push(fleet.feed(&format!("https://{host}/{number}")).await);
        fleet.polled(ids[number], &["1"]).await;
    }
    fleet.post_action(ids[0], "pause").await;
    (fleet, ids)
}

#[tokio::test]
async fn a_dry_run_tells_what_would_be_polled_and_does_nothing() {
    let (fleet, ids) = six_feeds().await;
    let body = json!({ "filter": { "all": true }, "rate": 2, "dry_run": true });
    let answer = fleet.post("/api/v1/requeue", body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let expected = json!({
        "matched": 6, "queued": 0, "dry_run": true, "pollable": 5, "left_out": { "paused": 1 },
        "by_category": { "D": 5 }, "hosts": 2, "rate": 2.0, "seconds": 2.5,
        "by_host": [{ "host": "a.example:443", "feeds": 3 }, { "host": "b.example:8080", "feeds": 2 }],
    });
    assert_eq!(answer.body, expected);
    let matched = async |filter: Value| {
        let answer = fleet.post("/api/v1/requeue", json!({ "filter": filter, "dry_run": true })).await;
        (answer.body["matched"].as_u64(), answer.body["pollable"].as_u64())
    };
    assert_eq!(matched(json!({ "host": "A.example" })).await, (Some(4), Some(3)));
    assert_eq!(matched(json!({ "host": "b.example" })).await, (Some(2), Some(2)));
    assert_eq!(matched(json!({ "host": "b.example:443" })).await, (Some(0), Some(0)));
    assert_eq!(matched(json!({ "feed": ids[2] })).await, (Some(1), Some(1)));
    assert_eq!(matched(json!({ "status": "paused" })).await, (Some(1), Some(0)));
    assert_eq!(matched(json!({ "category": "a" })).await, (Some(0), Some(0)));
    assert_eq!(matched(json!({ "failure": "dns", "category": "D" })).await, (Some(0), Some(0)));
    assert_eq!(matched(json!({ "overdue": 0 })).await, (Some(0), Some(0)));
    fleet.clock.advance(Duration::from_secs(7000));
    assert_eq!(matched(json!({ "overdue": 900 })).await, (Some(5), Some(5)));
    assert_eq!(matched(json!({ "overdue": 1100 })).await, (Some(0), Some(0)));
    assert_eq!(fleet.get("/api/v1/requeue").await.body["items"], json!([]));
    fleet.drip().await;
    assert_eq!(fleet.waking().await, 0);
}

#[tokio::test]
async fn a_plan_says_which_hosts_are_left_alone_and_until_when() {
    let (fleet, ids) = six_feeds().await;
    let now = fleet.clock.now();
    fleet.throttled(ids[1], now.after(Duration::from_secs(600))).await;
    fleet.post("/api/v1/hosts/a.example/block", json!({ "for": 60 })).await;
    fleet.post("/api/v1/hosts/b.example/block", json!({ "for": 60 })).await;
    let plan = async || {
        let body = json!({ "filter": { "all": true }, "dry_run": true });
        fleet.post("/api/v1/requeue", body).await.body["by_host"].clone()
    };
    let (longer, shorter) = (now.after(Duration::from_secs(600)), now.after(Duration::from_secs(60)));
    let expected = json!([
        { "host": "a.example:443", "feeds": 3, "not_before": longer.to_string() },
        { "host": "b.example:8080", "feeds": 2, "not_before": shorter.to_string() },
    ]);
    assert_eq!(plan().await, expected);
    fleet.clock.advance(Duration::from_secs(601));
    assert!(plan().await.as_array().unwrap().iter().all(|host| host.get("not_before").is_none()));
}

#[tokio::test]
async fn a_requeue_goes_on_at_its_rate_shows_how_far_it_is_and_is_called_off() {
    let (fleet, _) = six_feeds().await;
    let begun = fleet.post("/api/v1/requeue", json!({ "filter": { "all": true }, "rate": 2 })).await;
    assert_eq!((begun.status, &begun.body["queued"]), (202, &json!(5)), "{}", begun.body);
    let path = format!("/api/v1/requeue/{}", begun.body["id"]);
    fleet.clock.advance(Duration::from_secs(1));
    fleet.drip().await;
    let running = fleet.get(&path).await.body;
    assert_eq!(
        (&running["state"], &running["woken"], &running["by"]),
        (&json!("running"), &json!(2), &json!("loopback"))
    );
    assert_eq!(fleet.waking().await, 2);

    // A paused fleet is not woken behind its back.
    fleet.ask("POST", "/api/v1/fleet/pause", None).await;
    fleet.clock.advance(Duration::from_secs(60));
    fleet.drip().await;
    assert_eq!(fleet.waking().await, 2);
    fleet.ask("POST", "/api/v1/fleet/resume", None).await;
    fleet.drip().await;
    assert_eq!(fleet.waking().await, 5, "and then not slower than its rate");

    let again = fleet.post("/api/v1/requeue", json!({ "filter": { "host": "a.example" } })).await.body;
    let path = format!("/api/v1/requeue/{}", again["id"]);
    let cancelled = fleet.ask("POST", &format!("{path}/cancel"), None).await;
    assert_eq!((cancelled.status, &cancelled.body["state"]), (200, &json!("cancelled")));
    assert_eq!(fleet.ask("POST", &format!("{path}/cancel"), None).await.status, 409);
    let states: Vec<Value> = fleet.get("/api/v1/requeue").await.body["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|requeue| requeue["state"].clone())
        .collect();
    assert_eq!(states, ["cancelled", "done"]);
}

#[tokio::test]
async fn who_has_no_chance_of_a_poll_is_counted_and_not_queued() {
    let (fleet, ids) = six_feeds().await;
    for (id, status) in ids.iter().zip([Status::Blacklisted, Status::Quarantined, Status::Gone, Status::Removed]) {
        let change = FeedChange { status: Some(status), ..FeedChange::default() };
        fleet.ops.store.change_feed(FeedId(*id), &change, fleet.clock.now()).await.unwrap();
    }
    let asked = async |lift: bool| {
        let body = json!({ "filter": { "host": "a.example" }, "dry_run": true, "lift_penalties": lift });
        let answer = fleet.post("/api/v1/requeue", body).await.body;
        (answer["pollable"].clone(), answer["left_out"].clone())
    };
    assert_eq!(asked(false).await, (json!(0), json!({ "blacklisted": 1, "quarantined": 1, "gone": 1, "removed": 1 })));
    assert_eq!(asked(true).await, (json!(2), json!({ "gone": 1, "removed": 1 })));
    let none = fleet.post("/api/v1/requeue", json!({ "filter": { "host": "a.example" } })).await;
    assert_eq!((none.status, none.body.get("id"), &none.body["queued"]), (200, None, &json!(0)));
}

#[tokio::test]
async fn what_cannot_be_meant_is_refused_in_words() {
    let fleet = Fleet::new().await;
    let refused = [
        (json!({}), "filter is missing"),
        (json!({ "filter": {} }), "filter says nothing; name feed, feeds"),
        (json!({ "filter": { "all": false } }), "filter says nothing"),
        (json!({ "filter": { "all": true, "feed": 1 } }), "all goes with nothing else"),
        (json!({ "filter": { "al": true } }), "unknown field al; did you mean all?"),
        (json!({ "filter": { "feed": "x" } }), "feed must be a feed's id"),
        (json!({ "filter": { "host": "http://a/" } }), "host: host must be a name"),
        (json!({ "filter": { "status": "fine" } }), "status must be one of active"),
        (
            json!({ "filter": { "failure": "bad" } }),
            &format!("failure must be one of {}", FailureKind::ALL[0].as_str()),
        ),
        (json!({ "filter": { "overdue": -1 } }), "overdue must be a number of seconds"),
        (json!({ "filter": { "all": true }, "rate": 0 }), "rate must be a number of feeds a second"),
        (json!({ "filter": { "all": true }, "rate": 10001 }), "rate must be"),
        (json!({ "filter": { "all": true }, "dry-run": true }), "did you mean dry_run?"),
    ];
    for (body, expected) in refused {
        let answer = fleet.post("/api/v1/requeue", body).await;
        assert_eq!(answer.status, 400, "{expected}");
        assert!(
            answer.body["error"].as_str().unwrap().starts_with(expected)
                || answer.body["error"].as_str().unwrap().ends_with(expected),
            "{expected}: {}",
            answer.body
        );
    }
    assert_eq!(fleet.get("/api/v1/requeue/7").await.status, 404);
    assert_eq!(fleet.get("/api/v1/requeue/x").await.status, 400);
    assert_eq!(fleet.ask("POST", "/api/v1/requeue/7/cancel", None).await.status, 404);
}

#[tokio::test]
async fn every_answer_has_the_headers_that_keep_browsers_in_check() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://example.com/feed.xml").await;
    for path in
        ["/", "/metrics", "/healthz", "/openapi.json", "/nowhere", &format!("/api/v1/feeds/{id}"), "/api/v1/feeds/99"]
    {
        let request = Request::builder().uri(path).header(header::HOST, "127.0.0.1").body(Body::empty()).unwrap();
        let answer = fleet.router.clone().call(request).await.unwrap();
        let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
        // Pages send the origin of a form to themselves, and to no other site.
        let is_page = header("content-type").starts_with("text/html");
        assert_eq!(header("referrer-policy"), if is_page { "same-origin" } else { "no-referrer" }, "{path}");
        assert_eq!(header("cache-control"), "no-store", "{path}");
        assert_eq!(header("x-frame-options"), "DENY", "{path}");
        assert!(header("content-security-policy").starts_with("default-src 'none'"), "{path}");
        assert!(header("content-security-policy").contains("frame-ancestors 'none'"), "{path}");
    }
}
