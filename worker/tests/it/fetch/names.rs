//! Host names: what the name server says decides, and one refused address refuses the name.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use common::outcome::FailureKind;
use load_tests::{Feed, Names, Script};
use tokio::net::UdpSocket;

use super::bench::{Bench, document, failure};

/// How late a name server answers, and a feed.
const LATE: Duration = Duration::from_millis(300);

fn set(names: &Names, name: &str, addresses: &[&str]) {
    names.set(name, &addresses.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>());
}

async fn bench(names: &Names) -> Bench {
    let server = names.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let bench = Bench::with(|fetch| {
        fetch.name_servers = vec![server];
        fetch.allow_networks = vec!["127.0.0.1/32".parse().unwrap()];
    })
    .await;
    bench.origin.set("/feed", Script::feed(Feed::rss()).header("Connection", "close"));
    bench
}

fn url(bench: &Bench, name: &str) -> String {
    format!("http://{name}:{}/feed", bench.origin.address(0).port())
}

#[tokio::test]
async fn a_name_is_asked_of_the_configured_server() {
    let names = Names::default();
    set(&names, "good.example", &["127.0.0.1"]);
    let bench = bench(&names).await;
    assert_eq!(document(&bench.fetch(&bench.job(&url(&bench, "good.example"))).await).entries.len(), 3);
    assert_eq!(document(&bench.fetch(&bench.job(&url(&bench, "Good.Example."))).await).entries.len(), 3);
}

#[tokio::test]
async fn armour_a_name_that_does_not_exist_is_a_failure_of_its_own() {
    let names = Names::default();
    set(&names, "empty.example", &[]);
    let bench = bench(&names).await;
    let missing = bench.fetch(&bench.job(&url(&bench, "missing.example"))).await;
    let text = "the name missing.example was not resolved: there is no such name";
    assert_eq!(failure(&missing), (FailureKind::Dns, text));
    let empty = bench.fetch(&bench.job(&url(&bench, "empty.example"))).await;
    assert_eq!(failure(&empty), (FailureKind::Dns, "the name empty.example was not resolved: it has no address"));
}

#[tokio::test]
async fn armour_a_name_server_that_is_silent_is_waited_for_no_longer_than_for_a_connection() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let bench = Bench::with(|fetch| {
        fetch.name_servers = vec![silent.local_addr().unwrap()];
        fetch.connect_timeout = Duration::from_millis(600);
    })
    .await;
    let begin = Instant::now();
    let fetched = bench.fetch(&bench.job(&url(&bench, "any.example"))).await;
    assert_eq!(failure(&fetched).0, FailureKind::Dns);
    // Its own patience would be a quarter of a minute.
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn the_time_until_the_first_request_goes_out_is_known() {
    let names = Names::default();
    set(&names, "late.example", &["127.0.0.1"]);
    let server = names.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let late = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let name_server = late.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut question, mut answer) = ([0; 1500], [0; 1500]);
        while let Ok((length, client)) = late.recv_from(&mut question).await {
            tokio::time::sleep(LATE).await;
            let relay = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            relay.send_to(&question[..length], server).await.unwrap();
            let length = relay.recv(&mut answer).await.unwrap();
            late.send_to(&answer[..length], client).await.unwrap();
        }
    });
    let bench = Bench::with(|fetch| fetch.name_servers = vec![name_server]).await;
    bench.origin.set("/feed", Script::redirect(302, "/there"));
    bench.origin.set("/there", Script::feed(Feed::rss()).header("Cache-Control", "max-age=60").delay(LATE));
    let fetched = bench.fetch(&bench.job(&url(&bench, "late.example"))).await;
    assert_eq!(document(&fetched).entries.len(), 3);
    let asked_after = fetched.asked_after.unwrap();
    assert!(LATE <= asked_after && asked_after + LATE <= fetched.duration, "{asked_after:?}, {fetched:?}");
    let fresh_for = fetched.fresh_for.unwrap();
    assert!(fresh_for >= asked_after + Duration::from_secs(60), "{fresh_for:?}, {fetched:?}");
    let refused = bench.fetch(&bench.job("http://10.0.0.1/feed")).await;
    assert_eq!(refused.asked_after, None, "{refused:?}");
}

#[tokio::test]
async fn armour_one_refused_answer_refuses_the_name() {
    let names = Names::default();
    let bench = bench(&names).await;
    for (name, other) in [("v4.example", "10.0.0.1"), ("v6.example", "::1"), ("meta.example", "169.254.169.254")] {
        set(&names, name, &["127.0.0.1", other]);
        let fetched = bench.fetch(&bench.job(&url(&bench, name))).await;
        let (kind, detail) = failure(&fetched);
        assert_eq!(kind, FailureKind::RefusedAddress);
        assert!(detail.contains(other), "{detail}");
    }
    assert!(bench.origin.log().is_empty());
}

#[tokio::test]
async fn armour_a_name_that_changes_its_answer_is_judged_again() {
    let names = Names::default();
    set(&names, "turncoat.example", &["127.0.0.1"]);
    let bench = bench(&names).await;
    let job = bench.job(&url(&bench, "turncoat.example"));
    assert_eq!(document(&bench.fetch(&job).await).entries.len(), 3);
    set(&names, "turncoat.example", &["127.0.0.2"]);
    assert_eq!(failure(&bench.fetch(&job).await).0, FailureKind::RefusedAddress);
}

#[tokio::test]
async fn many_names_are_asked_for_at_once() {
    let names = Names::default();
    let bench = bench(&names).await;
    let jobs: Vec<_> = (0..200)
        .map(|number| {
            let name = format!("n{number}.example");
            set(&names, &name, &["127.0.0.1"]);
            bench.job(&url(&bench, &name))
        })
        .collect();
    let fetched = futures_util::future::join_all(jobs.iter().map(|job| bench.fetch(job))).await;
    assert!(fetched.iter().all(|fetched| document(fetched).entries.len() == 3));
}

#[tokio::test]
async fn names_with_underscores_and_leading_hyphens_are_resolved() {
    let names = Names::default();
    let bench = bench(&names).await;
    for name in ["a_b.example", "_real.host_name.example", "-lead.example"] {
        set(&names, name, &["127.0.0.1"]);
        assert_eq!(document(&bench.fetch(&bench.job(&url(&bench, name))).await).entries.len(), 3, "{name}");
    }
    let twice = bench.fetch(&bench.job(&url(&bench, "a_b.example.."))).await;
    assert_eq!(failure(&twice).0, FailureKind::Dns, "two final dots are not one");
}

#[tokio::test]
async fn armour_a_name_with_more_addresses_than_any_honest_one_is_not_dialled() {
    let names = Names::default();
    let server = names.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let bench = Bench::with(|fetch| fetch.name_servers = vec![server]).await;
    let addresses = |count: u8| (10..10 + count).map(|last| IpAddr::from([127, 9, 0, last])).collect::<Vec<_>>();
    for (name, answer, kind) in [
        ("copies.example", vec![IpAddr::from([127, 9, 0, 1]); 80], FailureKind::Connect),
        ("many.example", addresses(64), FailureKind::Connect),
        ("crowd.example", addresses(65), FailureKind::Dns),
    ] {
        names.set(name, &answer);
        let fetched = bench.fetch(&bench.job(&url(&bench, name))).await;
        assert_eq!(failure(&fetched).0, kind, "{fetched:?}");
    }
}
