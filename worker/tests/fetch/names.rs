//! Host names: what the name server says decides, and one refused address refuses the name.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::report::FailureKind;
use hickory_resolver::proto::op::{Message, MessageType, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA};
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use load_tests::{Feed, Script};
use tokio::net::UdpSocket;

use crate::bench::{Bench, document, failure};

/// A name server: what it answers to each name can change; names without an entry do not exist.
#[derive(Clone, Default)]
struct Names(Arc<Mutex<std::collections::HashMap<String, Vec<IpAddr>>>>);

impl Names {
    async fn serve(&self) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let names = self.clone();
        tokio::spawn(async move {
            let mut buffer = [0; 1500];
            while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
                let answer = names.answer(&buffer[..length]);
                socket.send_to(&answer, peer).await.unwrap();
            }
        });
        address
    }

    fn set(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        self.0.lock().unwrap().insert(format!("{name}."), addresses);
    }

    fn answer(&self, question: &[u8]) -> Vec<u8> {
        let question = Message::from_vec(question).unwrap();
        let query = question.queries[0].clone();
        let mut answer = Message::response(question.metadata.id, question.metadata.op_code);
        assert_eq!(answer.metadata.message_type, MessageType::Response);
        match self.0.lock().unwrap().get(&query.name().to_ascii().to_lowercase()) {
            None => answer.metadata.response_code = ResponseCode::NXDomain,
            Some(addresses) => {
                let wanted = addresses.iter().filter_map(|address| match (address, query.query_type()) {
                    (IpAddr::V4(address), RecordType::A) => Some(RData::A(A(*address))),
                    (IpAddr::V6(address), RecordType::AAAA) => Some(RData::AAAA(AAAA(*address))),
                    _ => None,
                });
                answer.answers.extend(wanted.map(|data| Record::from_rdata(query.name().clone(), 0, data)));
            }
        }
        answer.queries.push(query);
        answer.to_vec().unwrap()
    }
}

async fn bench(names: &Names) -> Bench {
    let server = names.serve().await;
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
    names.set("good.example", &["127.0.0.1"]);
    let bench = bench(&names).await;
    assert_eq!(document(&bench.fetch(&bench.job(&url(&bench, "good.example"))).await).entries.len(), 3);
    assert_eq!(document(&bench.fetch(&bench.job(&url(&bench, "Good.Example."))).await).entries.len(), 3);
}

#[tokio::test]
async fn armour_a_name_that_does_not_exist_is_a_failure_of_its_own() {
    let names = Names::default();
    names.set("empty.example", &[]);
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
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn armour_one_refused_answer_refuses_the_name() {
    let names = Names::default();
    let bench = bench(&names).await;
    for (name, other) in [("v4.example", "10.0.0.1"), ("v6.example", "::1"), ("meta.example", "169.254.169.254")] {
        names.set(name, &["127.0.0.1", other]);
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
    names.set("turncoat.example", &["127.0.0.1"]);
    let bench = bench(&names).await;
    let job = bench.job(&url(&bench, "turncoat.example"));
    assert_eq!(document(&bench.fetch(&job).await).entries.len(), 3);
    names.set("turncoat.example", &["127.0.0.2"]);
    assert_eq!(failure(&bench.fetch(&job).await).0, FailureKind::RefusedAddress);
}

#[tokio::test]
async fn many_names_are_asked_for_at_once() {
    let names = Names::default();
    let bench = bench(&names).await;
    let jobs: Vec<_> = (0..200)
        .map(|number| {
            let name = format!("n{number}.example");
            names.set(&name, &["127.0.0.1"]);
            bench.job(&url(&bench, &name))
        })
        .collect();
    let fetched = futures_util::future::join_all(jobs.iter().map(|job| bench.fetch(job))).await;
    assert!(fetched.iter().all(|fetched| document(fetched).entries.len() == 3));
}
