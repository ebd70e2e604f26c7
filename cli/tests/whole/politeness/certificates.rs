//! Certificates in the whole program: an invalid one is never accepted, each kind has its own failure name, and no
//! request falls back to an unverified connection.

use std::time::Duration;

use common::time::{Clock, SystemClock};
use load_tests::tls::{Authority, CertificateParams, Front, date_time_ymd, self_signed_server};
use load_tests::{Feed, Origin, Script};
use serde_json::json;

use super::case::{Case, Stage};
use crate::harness::Home;

const CONFIG: &str = r#"
[policy]
mode = "classes"
min_interval = "500ms"
hot_minutes = false
[policy.category.d]
interval = "500ms"
interval_max = "500ms"
[policy.penalty]
transient_first = "500ms"
box_after = 100
[host]
gap = "10ms"
"#;

/// Returns the name of each failure, with a server that causes it.
async fn servers(known: &Authority, origin: &Origin) -> Vec<(&'static str, Front)> {
    let unknown = Authority::new("unknown").unwrap();
    let for_clients = |params: &mut CertificateParams| {
        params.extended_key_usages = vec![load_tests::tls::ExtendedKeyUsagePurpose::ClientAuth];
    };
    let servers = [
        ("certificate expired", known.server("tls.test", |params| params.not_after = date_time_ymd(2020, 1, 1))),
        ("certificate not valid yet", known.server("tls.test", |params| params.not_before = date_time_ymd(2100, 1, 1))),
        ("self-signed certificate", self_signed_server("tls.test")),
        ("certificate of another name", known.server("other.test", |_| {})),
        ("certificate of an unknown issuer", unknown.server("tls.test", |_| {})),
        ("certificate for another purpose", known.server("tls.test", for_clients)),
    ];
    let mut fronts = Vec::new();
    for (class, server) in servers {
        fronts.push((class, Front::start(server.unwrap(), origin.address(0)).await.unwrap()));
    }
    fronts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_certificate_is_accepted_by_nobody_and_each_kind_has_its_own_name() {
    let stage = Stage::open(16).await;
    stage.names.set("tls.test", &["127.0.0.1".parse().unwrap()]);
    let known = Authority::new("known").unwrap();
    let fetch = format!("name_servers = [\"{}\"]\nuser_agent_url = \"https://fleet.example/bot\"\n", stage.name_server);
    let mut home = Home::with_fetch(CONFIG, &fetch);
    std::fs::write(home.path("roots.pem"), known.pem()).unwrap();
    let roots = home.path("roots.pem");
    home.set("SSL_CERT_FILE", roots.to_str().unwrap());
    let fleet = home.start(&[]);
    stage.play_before(&fleet.api).await;
    let case = Case::new(&stage, "tls");

    let good = Front::start(known.server("tls.test", |_| {}).unwrap(), stage.origin.address(0)).await.unwrap();
    stage.origin.set("/tls/good", Script::feed(Feed::rss()));
    case.add(&format!("https://tls.test:{}/tls/good", good.port), json!({})).await;
    let fronts = servers(&known, &stage.origin).await;
    let mut feeds = Vec::new();
    for (class, front) in &fronts {
        let secret = format!("https://tls.test:{}/tls/{}", front.port, class.replace(' ', "-"));
        let direct = case.add(&secret, json!({})).await;
        // Also as the target of a redirect from plain HTTP.
        let hop = case.feed(Script::redirect(301, secret.clone())).await;
        feeds.push((class, front, secret, [direct, hop.id]));
    }
    let begun = SystemClock.now();
    for (class, front, secret, ids) in &feeds {
        for id in ids {
            let feed = super::case::Subscribed { id: *id, path: secret.clone(), host: 0 };
            let polls = case.remembered(&feed, 3).await;
            let tls = polls
                .iter()
                .all(|poll| poll.failure.as_deref() == Some("tls") && poll.status.is_none_or(|status| status == 301));
            case.require(&format!("{class}: a failure of TLS"), tls, &polls);
            let delays: Vec<Duration> = polls.iter().filter_map(|poll| Some(poll.next_due?.since(poll.at))).collect();
            case.require("backs off", delays.iter().all(|delay| *delay >= Duration::from_millis(500)), &delays);
        }
        let log = fleet.stderr();
        let named = log.lines().any(|line| {
            line.contains(&format!("TLS: {class}")) && ids.iter().any(|id| line.contains(&format!("feed={id} ")))
        });
        case.require(&format!("{class}: is logged by this name"), named, &log);
        case.require(&format!("{class}: was tried"), front.connections() >= 6, &front.connections());
        case.expect(&format!("{class}: accepted"), 0, front.accepted());
        case.expect(&format!("{class}: tried without TLS"), 0, front.plain());
        let path = format!("/tls/{}", class.replace(' ', "-"));
        case.expect(&format!("{class}: requests that came through"), 0, stage.origin.requests(&path).len());
    }
    let polls = case.requests("/tls/good", 3).await;
    let statuses: Vec<_> = polls.iter().filter_map(|poll| poll.status).collect();
    case.expect("a good certificate", vec![200, 304, 304], statuses);
    let took = SystemClock.now().since(begun);
    fleet.stop();
    let tried: usize = fronts.iter().map(|(_, front)| front.connections()).sum();
    println!("{} kinds of wrong certificates, {tried} handshakes, 0 accepted, within {took:?}", fronts.len());
    let breaches = case.into_breaches();
    assert!(breaches.is_empty(), "{breaches:#?}");
}
