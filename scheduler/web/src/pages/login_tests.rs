//! Who may open and send what: logins, roles, forged requests.

use axum::http::{HeaderMap, header};
use common::config::{ApiRole, ApiToken};
use serde_json::json;

use crate::api::audit::tests::Lines;
use crate::testing::Fleet;

const WRITE: &str = "0123456789abcdef";
const READ: &str = "fedcba9876543210";

async fn fleet() -> Fleet {
    let tokens = vec![ApiToken::new("ann", WRITE, ApiRole::Write), ApiToken::new("eve", READ, ApiRole::Read)];
    let fleet = Fleet::with_tokens(tokens).await;
    let body = json!({ "url": "https://example.com/feed.xml" }).to_string();
    let fields = [("authorization", "Bearer 0123456789abcdef"), ("content-type", "application/json")];
    assert_eq!(fleet.call("POST", "/api/v1/feeds", &fields, &body).await.0, 201);
    fleet
}

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const HTML: (&str, &str) = ("accept", "text/html,application/xhtml+xml");
const OURS: (&str, &str) = ("sec-fetch-site", "same-origin");

/// Logs in; returns the cookie as a browser sends it back.
async fn cookie(fleet: &Fleet, token: &str) -> String {
    let sent = format!("token={token}&next=feeds%2F1%3Fdone%3Dpause");
    let (status, headers, _) = fleet.call("POST", "/login", &[FORM, OURS], &sent).await;
    assert_eq!((status, &headers[header::LOCATION]), (303, &"./feeds/1?done=pause".parse().unwrap()));
    headers[header::SET_COOKIE].to_str().unwrap().split(';').next().unwrap().to_owned()
}

fn location(headers: &HeaderMap) -> &str {
    headers[header::LOCATION].to_str().unwrap()
}

#[tokio::test]
async fn without_a_login_public_pages_are_shown_and_others_lead_to_the_login() {
    let fleet = fleet().await;
    let lines = Lines::listen();
    for (path, to) in [("/", "./login"), ("/feeds/1", "../login?next=feeds%2F1"), ("/audit", "./login?next=audit")] {
        let (status, headers, _) = fleet.call("GET", path, &[HTML], "").await;
        assert_eq!((status, location(&headers)), (303, to), "{path}");
    }
    assert_eq!(fleet.call("POST", "/feeds/1/pause", &[FORM, OURS, HTML], "").await.0, 401);
    assert!(lines.take().iter().all(|line| line["who"] == "nobody" && line["outcome"] == "refused"));
    assert_eq!(fleet.ops.store.audit(&store::AuditQuery::newest(9)).await.unwrap().len(), 1, "nobody is not stored");
    for path in ["/status", "/login", "/healthz"] {
        assert_eq!(fleet.call("GET", path, &[HTML], "").await.0, 200, "{path}");
    }
    let basic = ("authorization", "Basic YW55Ym9keTowMTIzNDU2Nzg5YWJjZGVm");
    assert_eq!(fleet.call("GET", "/feeds", &[basic], "").await.0, 303, "a password opens no page");
    let bearer = ("authorization", "Bearer fedcba9876543210");
    assert_eq!(fleet.call("GET", "/feeds", &[bearer], "").await.0, 200);
}

#[tokio::test]
async fn a_login_opens_pages_within_its_role_and_not_the_api() {
    let fleet = fleet().await;
    let (writer, reader) = (cookie(&fleet, WRITE).await, cookie(&fleet, READ).await);
    for login in [&writer, &reader] {
        let with = [HTML, ("cookie", login.as_str())];
        for path in ["/", "/entries", "/feeds", "/feeds/1", "/entries.atom"] {
            assert_eq!(fleet.call("GET", path, &with, "").await.0, 200, "{path}");
        }
        assert_eq!(fleet.call("GET", "/api/v1/feeds", &with, "").await.0, 401, "programs show a token");
        let (_, _, page) = fleet.call("GET", "/feeds/1", &with, "").await;
        assert!(page.contains("Log out") && page.contains("Refresh now") == (*login == writer), "{page}");
        let (_, headers, _) = fleet.call("GET", "/login?next=feeds", &with, "").await;
        assert_eq!(location(&headers), "./feeds", "whoever is logged in goes on");
    }
    let send = async |login: &str, path: &str, body: &str| {
        fleet.call("POST", path, &[FORM, OURS, HTML, ("cookie", login)], body).await
    };
    let (status, _, page) = send(&reader, "/feeds/1/pause", "").await;
    assert!(status == 403 && page.contains("this token may only read") && page.contains("<nav"), "{page}");
    let lines = Lines::listen();
    let (status, headers, _) = send(&writer, "/feeds/1/pause", "").await;
    assert_eq!((status, location(&headers)), (303, "../1?done=pause"));
    assert_eq!(send(&writer, "/logout", "").await.1[header::SET_COOKIE].to_str().unwrap()[..11], *"feedfleet=;");
    assert_eq!(send("", "/login", "token=0123456789abcdef").await.0, 303);
    assert_eq!(send("", "/login", "token=guessed").await.0, 403);
    let shown: Vec<String> = lines
        .take()
        .iter()
        .map(|line| format!("{} {} {}", line["who"], line["action"], line["outcome"]).replace('"', ""))
        .collect();
    let expected = [
        "ann POST /feeds/{id}/pause done",
        "ann POST /logout done",
        "ann POST /login done",
        "nobody POST /login refused",
    ];
    assert_eq!(shown, expected);
}

#[tokio::test]
async fn a_form_that_another_sites_page_sends_is_refused() {
    let (with_tokens, without) = (fleet().await, Fleet::new().await);
    without.feed("https://example.com/feed.xml").await;
    let login = cookie(&with_tokens, WRITE).await;
    let forged: [&[(&str, &str)]; 6] = [
        &[("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")],
        &[("sec-fetch-site", "same-site"), ("origin", "http://127.0.0.1:9999")],
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
        &[("origin", "http://127.0.0.1:7878.evil.example")],
        &[("sec-fetch-site", "cross-site")],
    ];
    for fleet in [&with_tokens, &without] {
        for fields in forged {
            for path in ["/feeds/1/pause", "/feeds/remove", "/fleet/pause", "/login", "/logout"] {
                let mut headers = vec![FORM, HTML, ("cookie", login.as_str())];
                headers.extend(fields);
                let (status, _, _) = fleet.call("POST", path, &headers, "id=1&sure=yes&token=0123456789abcdef").await;
                assert_eq!(status, 403, "{path}: {fields:?}");
            }
        }
        assert!(!fleet.ops.store.paused().await.unwrap());
    }
    let send = async |fields: &[(&'static str, &'static str)]| {
        let mut headers = vec![FORM, ("cookie", login.as_str())];
        headers.extend(fields);
        with_tokens.call("POST", "/fleet/pause", &headers, "").await.0
    };
    assert_eq!(send(&[]).await, 403, "a login comes from a browser, and browsers say from where");
    assert_eq!(send(&[("origin", "http://127.0.0.1:7878")]).await, 303);
    assert_eq!(send(&[OURS]).await, 303);
    assert_eq!(without.call("POST", "/fleet/pause", &[FORM], "").await.0, 303, "a program on this machine");
}

#[tokio::test]
async fn a_link_from_another_site_loads_once_more_and_then_has_its_login() {
    let fleet = fleet().await;
    let (status, headers, page) = fleet.call("GET", "/feeds/1", &[HTML, ("sec-fetch-site", "cross-site")], "").await;
    assert!(
        status == 200 && page.contains("http-equiv=\"refresh\" content=\"0\"") && !page.contains("login"),
        "{page}"
    );
    assert_eq!(headers[header::CACHE_CONTROL], "no-store");
    let (status, headers, _) = fleet.call("GET", "/feeds?q=a&host=b", &[HTML, OURS], "").await;
    assert_eq!((status, location(&headers)), (303, "./login?next=feeds%3Fq%3Da%26host%3Db"));
}

#[tokio::test]
async fn tokens_are_not_tried_out_on_the_login() {
    let fleet = fleet().await;
    let send = async |token: &str| fleet.call("POST", "/login", &[FORM, OURS], &format!("token={token}")).await.0;
    for _ in 0..20 {
        assert_eq!(send("guessed").await, 403);
    }
    assert_eq!(send("guessed").await, 429);
    assert_eq!(send(WRITE).await, 303, "whoever has a token is let in, whatever others behind the same proxy try");
    fleet.clock.advance(std::time::Duration::from_secs(61));
    assert_eq!(send("guessed").await, 403);
    assert_eq!(fleet.ops.metrics.rejected_tokens.get(), 22);
}

#[tokio::test]
async fn what_is_not_there_is_a_page_for_browsers_and_a_problem_for_programs() {
    let (fleet, guarded) = (Fleet::new().await, fleet().await);
    for (path, status) in
        [("/nosuch", 404), ("/feeds/99", 404), ("/feeds?limit=0", 400), ("/entries/7", 404), ("/logout", 405)]
    {
        let (answered, _, page) = fleet.call("GET", path, &[HTML], "").await;
        assert!(answered == status && page.contains("<html") && page.contains("<nav"), "{path}: {answered} {page}");
        let (answered, _, problem) = fleet.call("GET", path, &[("accept", "application/json")], "").await;
        assert!(answered == status && (problem.starts_with('{') || path.contains("limit")), "{path}: {problem}");
    }
    let (status, _, page) = guarded.call("GET", "/nosuch", &[HTML], "").await;
    assert!(status == 404 && !page.contains("<nav"), "publishers see no way that they cannot go: {page}");
    let (status, _, problem) = fleet.call("GET", "/api/v1/feeds/99", &[HTML], "").await;
    assert!(status == 404 && problem.starts_with('{'), "{problem}");
}

#[tokio::test]
async fn what_is_live_ends_with_the_login_that_opened_it() {
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tower_service::Service;

    let fleet = fleet().await;
    let login = cookie(&fleet, READ).await;
    let open = async |fields: [(&str, &str); 1]| {
        let mut request = Request::get("/live").header(header::HOST, "127.0.0.1:7878");
        for (name, value) in fields {
            request = request.header(name, value);
        }
        let response = fleet.router.clone().call(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), 200);
        response.into_body()
    };
    let whole = async |body: Body| String::from_utf8(to_bytes(body, 1 << 20).await.unwrap().to_vec()).unwrap();
    // A caller that is not logged in ends nothing.
    let stream = open([("cookie", &login)]).await;
    assert_eq!(fleet.call("POST", "/logout", &[FORM, OURS, HTML], "").await.0, 303);
    let ended = tokio::time::timeout(std::time::Duration::from_millis(200), whole(stream)).await;
    assert!(ended.is_err(), "{ended:?}");
    let bearer = format!("Bearer {READ}");
    let streams = [open([("cookie", &login)]).await, open([("authorization", &bearer)]).await];
    // Everybody's stream ends, and only who is still logged in opens another one.
    assert_eq!(fleet.call("POST", "/logout", &[FORM, OURS, HTML, ("cookie", &login)], "").await.0, 303);
    for stream in streams {
        assert_eq!(whole(stream).await, "event: again\ndata: now\n\n");
    }
    let stream = open([("cookie", &login)]).await;
    fleet.clock.advance(std::time::Duration::from_secs(12 * 3600));
    assert!(whole(stream).await.starts_with("event: again"));
    assert_eq!(fleet.call("GET", "/live", &[("cookie", &login)], "").await.0, 401);
}

#[tokio::test]
async fn somebody_who_is_logged_in_finds_the_way_from_public_pages_to_the_others() {
    let fleet = fleet().await;
    let login = cookie(&fleet, READ).await;
    for path in ["/status", "/docs/api", "/nosuch"] {
        let (_, _, page) = fleet.call("GET", path, &[HTML, ("cookie", &login)], "").await;
        assert!(page.contains("<nav aria-label=\"Pages\">") && page.contains("Log out"), "{path}: {page}");
        let (_, _, page) = fleet.call("GET", path, &[HTML], "").await;
        assert!(!page.contains("<nav") && !page.contains("Log out"), "{path}: {page}");
    }
}

#[tokio::test]
async fn logging_out_again_and_again_pushes_nobody_out_of_the_audit() {
    let fleet = fleet().await;
    let login = cookie(&fleet, READ).await;
    for _ in 0..100 {
        assert_eq!(fleet.call("POST", "/logout", &[FORM, OURS, HTML, ("cookie", &login)], "").await.0, 303);
    }
    let lines = fleet.ops.store.audit(&store::AuditQuery::newest(200)).await.unwrap();
    assert!((2..=31).contains(&lines.len()), "{} lines are stored", lines.len());
}

#[tokio::test]
async fn strangers_push_no_login_out_of_the_audit() {
    let fleet = fleet().await;
    for _ in 0..100 {
        assert_eq!(fleet.call("POST", "/api/v1/feeds", &[], "{}").await.0, 401);
        fleet.call("POST", "/login", &[FORM, OURS, HTML], "token=guessed").await;
    }
    cookie(&fleet, READ).await;
    let lines = fleet.ops.store.audit(&store::AuditQuery::newest(200)).await.unwrap();
    let actions: Vec<_> = lines.iter().map(|line| line.change.action.as_str()).collect();
    // Below it is the feed that the fleet begins with.
    assert_eq!(actions, ["POST /login", "POST /api/v1/feeds"]);
}

#[tokio::test]
async fn the_audit_has_who_did_what_and_is_the_same_for_all_schedulers() {
    let fleet = fleet().await;
    let (writer, reader) = (cookie(&fleet, WRITE).await, cookie(&fleet, READ).await);
    fleet.call("POST", "/feeds/1/pause", &[FORM, OURS, HTML, ("cookie", &writer)], "").await;
    for _ in 0..40 {
        fleet.call("POST", "/feeds/1/remove", &[FORM, OURS, HTML, ("cookie", &reader)], "").await;
    }
    // Another scheduler over the same store.
    let other = crate::router(fleet.ops.clone(), fleet.closing.clone());
    let lines = fleet.ops.store.audit(&store::AuditQuery::newest(100)).await.unwrap();
    let in_words = |line: &store::AuditLine| {
        let change = &line.change;
        format!("{} {} {} {}", change.who, change.action, change.on, change.outcome)
    };
    let shown: Vec<String> = lines.iter().rev().map(in_words).collect();
    let expected = [
        "ann POST /api/v1/feeds feeds/1 done",
        "ann POST /login login done",
        "eve POST /login login done",
        "ann POST /feeds/{id}/pause feeds/1 done",
    ];
    assert_eq!(shown[..4], expected);
    let logins = 2;
    assert_eq!(shown.len(), 4 + 30 - logins, "what a role forbids does not push out the rest");
    assert!(shown[4..].iter().all(|line| line == "eve POST /feeds/{id}/remove feeds/1 refused"), "{shown:?}");
    let page = Fleet { router: other, ..fleet }.call("GET", "/audit", &[HTML, ("cookie", &reader)], "").await.2;
    assert!(page.contains("POST /feeds/{id}/pause") && page.contains("eve"), "{page}");
}
