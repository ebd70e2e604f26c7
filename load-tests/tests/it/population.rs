//! A population on an origin, polled by a polite and by an impolite client, and judged.

use std::time::Duration;

use crate::client::get;
use load_tests::{Fault, Kind, Origin, Plan, Population, Rules, judge, loopback};

const NAME: &str = "User-Agent: a test";

/// Rules for a run that takes milliseconds: the client's rate is not judged.
fn rules() -> Rules {
    Rules {
        gap: Duration::ZERO,
        freshness_ceiling: Duration::ZERO,
        retry_after_ceiling: Duration::ZERO,
        ..Rules::default()
    }
}

async fn started(plan: &Plan) -> (Origin, Population) {
    let population = Population::generate(plan).expect("bombs can be made");
    let hosts = u16::try_from(plan.hosts_needed()).expect("few hosts");
    let origin = Origin::listen(&loopback(hosts, 0)).await.expect("loopback");
    population.install(&origin);
    (origin, population)
}

#[tokio::test]
async fn good_feeds_show_their_items_and_answer_304_to_a_polite_client() {
    let (origin, population) = started(&Plan { feeds: 60, hosts: 8, ..Plan::default() }).await;
    let mut not_modified = 0;
    for member in population.of_kind(Kind::Good) {
        let address = origin.address(member.host);
        let first = get(address, &member.path, &[NAME]).await;
        assert_eq!(first.status, 200);
        let newest = origin.truth(member.items_at.as_deref().unwrap()).pop().unwrap();
        assert!(first.text().contains(&newest.id), "{}: {}", member.path, first.head);
        let conditions: Vec<String> = [("If-None-Match", "etag"), ("If-Modified-Since", "last-modified")]
            .iter()
            .filter_map(|(condition, validator)| Some(format!("{condition}: {}", first.header(validator)?)))
            .collect();
        let headers: Vec<&str> = conditions.iter().map(String::as_str).chain([NAME]).collect();
        not_modified += usize::from(get(address, &member.path, &headers).await.status == 304);
    }
    assert!(not_modified > 30, "{not_modified}");
    let card = judge(&origin.log(), &rules());
    assert!(card.is_clean(), "{card}");
    assert_eq!(card.not_modified, not_modified);
}

#[tokio::test]
async fn a_rude_client_is_found_out() {
    let (origin, population) = started(&Plan { feeds: 40, hosts: 4, troubled: 0.5, ..Plan::default() }).await;
    for member in &population.members {
        for _ in 0..2 {
            get(origin.address(member.host), &member.path, &["Cookie: a=b"]).await;
        }
    }
    let card = judge(&origin.log(), &Rules::default());
    assert_eq!((card.count(Fault::Cookie), card.count(Fault::UserAgent)), (80, 80));
    assert!(card.count(Fault::UnconditionalRepeat) > 10, "{card}");
    for fault in [Fault::EarlyPoll, Fault::Gap] {
        assert!(card.count(fault) > 0, "{card}");
    }
    assert_eq!(card.count(Fault::InventedValidator) + card.count(Fault::HostOverlap), 0, "{card}");
}
