//! Hosts: rules and blocks over the API.

use common::host::{HostKey, HostLimits};
use common::host_gate::{LoadMark, Reservation, ReserveRequest};

use super::*;

const REASON: &str = "asked us by mail";

impl Fleet {
    async fn put(&self, path: &str, body: Value) -> Answer {
        self.ask("PUT", path, Some(body)).await
    }

    async fn open_gate(&self) {
        let opened = self.ops.gate.open(&LoadMark(String::new()), self.clock.now()).await;
        assert!(opened.unwrap());
    }

    /// Returns until when the gate refuses a request at this host.
    async fn refused_until(&self, host: &str) -> Option<Timestamp> {
        let limits = HostLimits { gap: Duration::ZERO, burst: 1, parallel: 99 };
        let now = self.clock.now();
        let request = ReserveRequest { host: HostKey::new(host), limits, expires: now };
        match self.ops.gate.reserve(&[request], now).await.unwrap()[0] {
            Reservation::Ticket(_) => None,
            Reservation::Refused { until } => Some(until),
        }
    }

    fn gap(&self, host: &str) -> Duration {
        self.ops.rules.get().limits_of(&HostKey::new(host)).gap
    }
}

#[tokio::test]
async fn a_rule_is_set_seen_in_force_and_taken_back() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://www.example.com/feed").await;
    let path = "/api/v1/hosts/Example.com";
    let rule = json!({ "gap": 2.5, "interval": 7200, "soft_statuses": [404], "user_agent": "us", "reason": REASON });
    let set = fleet.put(path, rule.clone()).await;
    assert_eq!(set.status, 200, "{}", set.body);
    let shown = fleet.get(path).await;
    assert_eq!(shown.body, set.body);
    assert_eq!((&shown.body["gap"], &shown.body["rule"]["source"]), (&json!(2.5), &json!("operator")));
    for (field, value) in rule.as_object().unwrap() {
        let shown = &shown.body["rule"][field];
        assert!(shown == value || shown.as_f64().is_some() && shown.as_f64() == value.as_f64(), "{field}: {shown}");
    }
    assert_eq!(fleet.gap("www.example.com:443"), Duration::from_millis(2500), "for all names below");
    assert_eq!(fleet.get(&format!("/api/v1/feeds/{id}")).await.body["category"], "F");
    assert!(fleet.ops.gate.shown_rules(None).await.unwrap().unwrap().contains("example.com"), "workers see it");

    let again = fleet.put(path, json!({ "burst": 3, "reason": REASON })).await;
    assert_eq!((&again.body["gap"], &again.body["burst"]), (&json!(1.0), &json!(3)), "the whole rule is replaced");
    let removed = fleet.ask("DELETE", path, None).await;
    assert_eq!((removed.status, &removed.body["rule"]), (200, &Value::Null));
    assert_eq!(fleet.ask("DELETE", path, None).await.status, 404);
}

#[tokio::test]
async fn a_configured_rule_gives_way_to_an_operators_and_comes_back() {
    let fleet = Fleet::new().await;
    let path = "/api/v1/hosts/reddit.com";
    assert_eq!(fleet.get(path).await.body["rule"]["source"], "configuration");
    assert_eq!(fleet.ask("DELETE", path, None).await.status, 404, "it is changed in the configuration");
    let set = fleet.put(path, json!({ "shared": true, "gap": 120, "reason": REASON })).await;
    assert_eq!((set.status, &set.body["host"]), (200, &json!("*.reddit.com")));
    assert_eq!(fleet.gap("*.reddit.com"), Duration::from_secs(120));
    assert_eq!(fleet.ask("DELETE", path, None).await.status, 200);
    assert_eq!(fleet.gap("*.reddit.com"), Duration::from_secs(60));
}

#[tokio::test]
async fn bad_rules_say_what_would_be_accepted_and_change_nothing() {
    let fleet = Fleet::new().await;
    let wrong = [
        (json!({ "gap": 1 }), "reason is missing"),
        (json!({ "reason": " " }), "reason is missing"),
        (json!({ "gap": "1s", "reason": REASON }), "gap must be a number of seconds"),
        (json!({ "gap": -1, "reason": REASON }), "gap must be a number of seconds"),
        (json!({ "gap": 1e9, "reason": REASON }), "gap must not be longer than 365 days"),
        (json!({ "interval": 1e9, "reason": REASON }), "interval must not be longer than 365 days"),
        (json!({ "burst": 0, "reason": REASON }), "burst must be at least 1"),
        (json!({ "parallel": 1.5, "reason": REASON }), "parallel must be a whole number"),
        (json!({ "interval": 0, "reason": REASON }), "interval must be longer than nothing"),
        (json!({ "soft_statuses": [200], "reason": REASON }), "soft_statuses must be statuses from 400 to 599"),
        (json!({ "user_agent": "a\nb", "reason": REASON }), "user_agent must be printable ASCII"),
        (json!({ "gab": 1, "reason": REASON }), "unknown field gab; did you mean gap?"),
        (json!({ "match": "other.com", "reason": REASON }), "match must be the host of the path"),
        (json!([]), "the body must be a JSON object"),
    ];
    for (body, expected) in wrong {
        let answer = fleet.put("/api/v1/hosts/example.com", body.clone()).await;
        assert_eq!(answer.status, 400, "{body}: {}", answer.body);
        assert!(answer.body["error"].as_str().unwrap().starts_with(expected), "{body}: {}", answer.body);
    }
    for path in ["/api/v1/hosts/example.com:443", "/api/v1/hosts/a%20b", "/api/v1/hosts/a%2Fb"] {
        let answer = fleet.put(path, json!({ "reason": REASON })).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.body);
    }
    assert_eq!(fleet.get("/api/v1/hosts").await.body["items"], json!([]));
    assert!(fleet.ops.store.host_orders(Some(0)).await.unwrap().is_none(), "nothing was written");
}

#[tokio::test]
async fn a_block_holds_every_port_and_lifting_it_leaves_what_the_server_asked() {
    let fleet = Fleet::new().await;
    fleet.open_gate().await;
    fleet.feed("http://example.com:8080/feed").await;
    let (path, now) = ("/api/v1/hosts/example.com", fleet.clock.now());
    for wrong in [json!({}), json!({ "for": 0 }), json!({ "for": "1h" }), json!({ "for": 1e12 }), json!({ "until": 1 })]
    {
        assert_eq!(fleet.post(&format!("{path}/block"), wrong).await.status, 400);
    }
    let blocked = fleet.post(&format!("{path}/block"), json!({ "for": 3600 })).await;
    let until = now.after(Duration::from_secs(3600));
    assert_eq!((blocked.status, &blocked.body["blocked_until"]), (200, &json!(until.to_string())));
    assert_eq!((&blocked.body["host"], &blocked.body["feeds"]), (&json!("example.com"), &json!(1)));
    for host in ["example.com:443", "example.com:80", "example.com:8080"] {
        assert_eq!(fleet.refused_until(host).await, Some(until), "{host}");
    }
    assert_eq!(fleet.refused_until("www.example.com:443").await, None);
    let held = now.after(Duration::from_secs(60));
    fleet.ops.gate.hold(&[(HostKey::new("example.com:80"), held)], now).await.unwrap();
    let lifted = fleet.ask("POST", &format!("{path}/unblock"), None).await;
    assert_eq!((lifted.status, &lifted.body["blocked_until"]), (200, &Value::Null));
    assert_eq!(fleet.refused_until("example.com:8080").await, None);
    for host in ["example.com:80", "example.com:443"] {
        assert_eq!(fleet.refused_until(host).await, Some(held), "both schemes of a name are one host: {host}");
    }
}

#[tokio::test]
async fn a_rule_that_would_forget_a_hold_waits_for_its_end() {
    let fleet = Fleet::new().await;
    let blocked = fleet.post("/api/v1/hosts/a.example.com:443/block", json!({ "for": 60 })).await;
    assert_eq!(blocked.status, 200);
    let shared = json!({ "shared": true, "reason": REASON });
    let refused = fleet.put("/api/v1/hosts/example.com", shared.clone()).await;
    assert_eq!(refused.status, 409, "{}", refused.body);
    assert!(refused.body["error"].as_str().unwrap().starts_with("a.example.com:443 allows no requests before"));
    assert_eq!(fleet.put("/api/v1/hosts/example.com", json!({ "gap": 9, "reason": REASON })).await.status, 200);
    fleet.clock.advance(Duration::from_secs(61));
    assert_eq!(fleet.put("/api/v1/hosts/example.com", shared).await.status, 200);
}

#[tokio::test]
async fn hosts_are_listed_in_pages_with_what_is_known_of_them() {
    let fleet = Fleet::new().await;
    for host in ["a", "b", "old.reddit"] {
        fleet.feed(&format!("https://{host}.com/feed")).await;
    }
    let first = fleet.get("/api/v1/hosts?limit=2").await.body;
    let names =
        |body: &Value| body["items"].as_array().unwrap().iter().map(|item| item["host"].clone()).collect::<Vec<_>>();
    assert_eq!(names(&first), ["*.reddit.com", "a.com:443"]);
    assert_eq!(first["items"][0]["rule"]["match"], "reddit.com");
    let rest = fleet.get(&format!("/api/v1/hosts?limit=2&after={}", first["next"].as_str().unwrap())).await.body;
    assert_eq!((names(&rest), &rest["next"]), (vec![json!("b.com:443")], &Value::Null));
    assert_eq!(fleet.get("/api/v1/hosts?after=%3F").await.status, 400);
    let unknown = fleet.get("/api/v1/hosts/nobody.example").await;
    assert_eq!((unknown.status, &unknown.body["feeds"]), (200, &json!(0)));
}
