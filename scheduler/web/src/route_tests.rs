//! Every route that there is, sent what must be refused: a new route cannot be forgotten here.

use std::collections::BTreeSet;

use axum::http::header;
use common::bot_auth::DIRECTORY_PATH;
use common::config::{ApiRole, ApiToken};
use serde_json::json;

use crate::testing::Fleet;
use crate::{api, pages};

const WRITE: &str = "0123456789abcdef";
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const HTML: (&str, &str) = ("accept", "text/html,application/xhtml+xml");
const OURS: (&str, &str) = ("sec-fetch-site", "same-origin");

/// What every caller may request; everything else needs a login or a token.
const PUBLIC: [&str; 16] = [
    // Protocols of others: their own tests cover which callers are allowed.
    "/hub",
    "/websub/{token}",
    "/rsscloud/{token}",
    "/status",
    "/docs/api",
    "/assets/{name}",
    "/login",
    "/logout",
    "/openapi.json",
    "/healthz",
    "/readyz",
    "/readyz/api",
    "/metrics",
    "/ping",
    "/RPC2",
    DIRECTORY_PATH,
];

/// A route: its path as it is declared, a path that it matches, and a method.
pub(crate) struct Route {
    pub(crate) declared: String,
    path: String,
    pub(crate) method: String,
}

impl Route {
    /// A path that it matches, with this id and this number of an event.
    pub(crate) fn path_with(&self, id: &str, seq: &str) -> String {
        path_of(&self.declared, id, seq)
    }

    pub(crate) fn is_public(&self) -> bool {
        PUBLIC.contains(&self.declared.as_str())
    }

    pub(crate) fn is_api(&self) -> bool {
        self.declared.starts_with(api::PREFIX)
    }
}

fn path_of(declared: &str, id: &str, seq: &str) -> String {
    let path = declared.replace("{id}", id).replace("{seq}", seq);
    path.replace("{host}", "example.com").replace("{name}", "pages.css")
}

pub(crate) async fn routes() -> Vec<Route> {
    let local = Fleet::new().await;
    let versioned = api::versioned().paths.into_iter().map(|path| format!("{}{path}", api::PREFIX));
    let all: BTreeSet<String> = versioned.chain(api::outer().paths).chain(pages::served().paths).collect();
    let mut routes = Vec::new();
    for declared in all {
        let path = path_of(&declared, "1", "1");
        for method in local.methods_of(&path).await {
            routes.push(Route { declared: declared.clone(), path: path.clone(), method });
        }
    }
    let forms = routes.iter().filter(|route| route.method == "POST").count();
    assert!(routes.len() > 90 && forms > 50, "{} routes, {forms} of them POST", routes.len());
    routes
}

async fn fleet() -> Fleet {
    let fleet = Fleet::with_tokens(vec![ApiToken::new("ann", WRITE, ApiRole::Write)]).await;
    let fields = [("authorization", "Bearer 0123456789abcdef"), ("content-type", "application/json")];
    let body = json!({ "url": "https://example.com/feed.xml" }).to_string();
    assert_eq!(fleet.call("POST", "/api/v1/feeds", &fields, &body).await.0, 201);
    fleet
}

#[tokio::test]
async fn without_a_login_every_route_but_the_public_ones_is_refused() {
    let fleet = fleet().await;
    for route in routes().await {
        let Route { path, method, .. } = &route;
        if route.is_public() {
            continue;
        }
        for cookie in ["", "feedfleet=1790009999.YW5u.AAAA"] {
            let headers = [FORM, OURS, HTML, ("cookie", cookie)];
            let (status, headers, body) = fleet.call(method, path, &headers, "id=1&sure=yes").await;
            let led = headers.get(header::LOCATION).map_or("", |to| to.to_str().unwrap());
            let to_login = method == "GET" && status == 303 && led.contains("login");
            assert!(status == 401 || to_login, "{method} {path}: {status} {body}");
            assert!(!body.contains("example.com/feed.xml"), "{method} {path}: {body}");
        }
    }
    let feeds = fleet.ops.store.stats(common::time::Clock::now(&*fleet.clock)).await.unwrap().feeds;
    assert_eq!(feeds.iter().map(|(.., feeds)| feeds).sum::<u64>(), 1, "the feed is still there");
}

#[tokio::test]
async fn a_change_that_another_sites_page_sends_is_refused_on_every_route() {
    let (with_tokens, without) = (fleet().await, Fleet::new().await);
    let (_, headers, _) = with_tokens.call("POST", "/login", &[FORM, OURS], &format!("token={WRITE}")).await;
    let login = headers[header::SET_COOKIE].to_str().unwrap().split(';').next().unwrap().to_owned();
    let forged: [&[(&str, &str)]; 3] = [
        &[("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")],
        &[("sec-fetch-site", "same-site")],
        &[("origin", "https://evil.example")],
    ];
    for route in routes().await {
        let Route { declared, path, method } = &route;
        // Hubs call these from anywhere, without a token or login; their addresses cannot be guessed.
        let is_callback = matches!(declared.as_str(), "/websub/{token}" | "/rsscloud/{token}");
        if method == "GET" || is_callback {
            continue;
        }
        for fields in forged {
            let mut headers = vec![FORM, HTML, ("cookie", login.as_str())];
            headers.extend(fields);
            let body = format!("id=1&sure=yes&token={WRITE}");
            // Without tokens everything is for this machine's own programs and pages.
            let (status, ..) = without.call(method, path, &headers, &body).await;
            assert_eq!(status, 403, "{method} {path}: {fields:?}");
            // Every caller may send a ping, from anywhere; a login changes nothing about it.
            if matches!(declared.as_str(), "/ping" | "/RPC2" | "/hub") {
                continue;
            }
            let (status, ..) = with_tokens.call(method, path, &headers, &body).await;
            // The API takes tokens and no login.
            assert_eq!(status, if route.is_api() { 401 } else { 403 }, "{method} {path}: {fields:?}");
        }
    }
    for fleet in [&with_tokens, &without] {
        assert!(!fleet.ops.store.paused().await.unwrap());
    }
}
