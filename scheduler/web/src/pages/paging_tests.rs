//! The way forth and back through lists.

use std::time::Duration;

use common::entry::Entry;
use common::host::{HostKey, HostRule};
use common::host_name::HostName;
use common::live_rules;
use scheduler::ops;
use serde_json::json;

use super::tests::{leads_to, page};
use crate::testing::Fleet;

#[tokio::test]
async fn lists_and_the_filtered_river_lead_back_page_by_page() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://a.example/1").await;
    for number in 2..=7 {
        fleet.feed(&format!("https://a.example/{number}")).await;
    }
    let entry = |n: usize| Entry {
        id: n.to_string(),
        title: Some(format!("{} {n}", if n.is_multiple_of(3) { "fog" } else { "snow" })),
        ..Entry::default()
    };
    fleet.polled_with(id, (1..=21).map(entry).collect()).await;
    for first in [
        "/feeds?limit=2",
        "/feeds?limit=2&sort=subscribers&order=asc",
        "/feeds?limit=2&sort=next_due",
        "/feeds?limit=2&sort=next_due&order=desc",
        "/feeds?limit=2&sort=category",
        "/feeds?limit=2&sort=last_polled&order=desc",
        "/entries?limit=2&q=fog",
    ] {
        let shown = async |path: &str| {
            let page = fleet.call("GET", path, &[], "").await.2;
            let body = page.split_once("</form>").unwrap().1.split_once("<nav class=\"pages\"").unwrap().0.to_owned();
            // The list leads back to where a form was sent from.
            let body = body.lines().filter(|line| !line.contains("name=\"back\"")).collect::<Vec<_>>().join("\n");
            (body, leads_to(&page, "next"), leads_to(&page, "prev"))
        };
        let mut pages = vec![shown(first).await];
        while let Some(next) = &pages[pages.len() - 1].1 {
            let next = shown(next).await;
            pages.push(next);
        }
        assert_eq!(pages.len(), 4, "{first}");
        assert_eq!(pages[0].2, None, "{first}");
        let mut at = 3;
        while let Some(previous) = pages[at].2.clone() {
            at -= 1;
            let (body, _, before) = shown(&previous).await;
            assert_eq!(body, pages[at].0, "{first}, page {at}");
            pages[at].2 = before;
        }
        assert_eq!(at, 0, "{first}");
    }
}

#[tokio::test]
async fn hosts_and_subscriptions_lead_back_page_by_page() {
    let fleet = Fleet::with_secrets().await;
    for number in 0..201 {
        fleet.feed(&format!("https://h{number:03}.example/feed")).await;
        let target = json!({ "kind": "webhook", "target": format!("https://t{number:03}.example/hook") }).to_string();
        let sent = fleet.call("POST", "/api/v1/subscriptions", &[("content-type", "application/json")], &target).await;
        assert_eq!(sent.0, 201, "{}", sent.2);
    }
    ops::hosts::block(&fleet.ops, &HostName::Key(HostKey::new("h150.example:443")), Duration::from_secs(3600))
        .await
        .unwrap();
    for path in [
        "/hosts",
        "/hosts?order=desc",
        "/hosts?sort=feeds",
        "/hosts?sort=feeds&order=asc",
        "/hosts?sort=pace",
        "/hosts?sort=state",
        "/hosts?sort=state&order=desc",
        "/subscriptions",
        "/subscriptions?sort=target",
        "/subscriptions?sort=last&order=asc",
    ] {
        let mut pages = vec![(path.to_owned(), page(&fleet, path).await.1)];
        while let Some(next) = leads_to(&pages[pages.len() - 1].1, "next") {
            let text = page(&fleet, &next).await.1;
            pages.push((next, text));
        }
        assert_eq!(pages.len(), 3, "{path}");
        let rows = |page: &str| page.split("<tr>").skip(1).map(str::to_owned).collect::<Vec<_>>();
        let mut shown = pages.pop().unwrap().1;
        while let Some((address, before)) = pages.pop() {
            let previous = leads_to(&shown, "prev").unwrap();
            shown = page(&fleet, &previous).await.1;
            assert_eq!(rows(&shown), rows(&before), "{previous} beside {address}");
        }
        assert_eq!(leads_to(&shown, "prev"), None, "{path}");
    }
}

#[tokio::test]
async fn hosts_and_subscriptions_are_sorted_by_column() {
    let fleet = Fleet::with_secrets().await;
    for (host, feeds) in [("a", 1), ("b", 3), ("c", 2)] {
        for feed in 0..feeds {
            fleet.feed(&format!("https://{host}.example/{feed}")).await;
        }
    }
    for target in ["https://b.example/hook", "https://a.example/hook"] {
        let body = json!({ "kind": "webhook", "target": target }).to_string();
        let sent = fleet.call("POST", "/api/v1/subscriptions", &[("content-type", "application/json")], &body).await;
        assert_eq!(sent.0, 201, "{}", sent.2);
    }
    let order = async |path: &str, all: &[&str]| {
        let page = page(&fleet, path).await.1;
        let list = page.rsplit_once("<tbody>").unwrap().1.to_owned();
        let mut places: Vec<_> = all.iter().map(|name| (list.find(name).unwrap(), (*name).to_owned())).collect();
        places.sort();
        (places.into_iter().map(|(_, name)| name).collect::<Vec<_>>(), page.matches("aria-sort").count())
    };
    let hosts = ["a.example", "b.example", "c.example"];
    assert_eq!(order("/hosts", &hosts).await, (vec!["a.example".into(), "b.example".into(), "c.example".into()], 1));
    let by_feeds = order("/hosts?sort=feeds", &hosts).await;
    assert_eq!(by_feeds, (vec!["b.example".into(), "c.example".into(), "a.example".into()], 1));
    let targets = ["a.example/hook", "b.example/hook"];
    assert_eq!(order("/subscriptions", &targets).await.0, ["b.example/hook", "a.example/hook"], "as added");
    assert_eq!(order("/subscriptions?sort=target", &targets).await.0, ["a.example/hook", "b.example/hook"]);
    assert_eq!(order("/subscriptions?sort=target&order=desc", &targets).await.0, ["b.example/hook", "a.example/hook"]);
    let slow = HostRule { gap: Some(Duration::from_secs(60)), ..host_rule("c.example") };
    let fast = HostRule { gap: Some(Duration::from_millis(1)), ..host_rule("a.example") };
    for rule in [slow, fast] {
        ops::hosts::set_rule(&fleet.ops, &rule).await.unwrap();
    }
    ops::hosts::block(&fleet.ops, &HostName::Key(HostKey::new("b.example:443")), Duration::from_secs(60))
        .await
        .unwrap();
    let heads = ["sort=host", "sort=feeds", "sort=pace", "sort=state"];
    for (path, expected) in [
        ("/hosts?order=desc", "cba"),
        ("/hosts?sort=feeds&order=asc", "acb"),
        ("/hosts?sort=pace", "cba"),
        ("/hosts?sort=pace&order=asc", "abc"),
        ("/hosts?sort=state", "bac"),
        ("/hosts?sort=state&order=desc", "cab"),
    ] {
        let (found, sorted) = order(path, &hosts).await;
        let found: String = found.iter().map(|host| &host[..1]).collect();
        assert_eq!((found.as_str(), sorted), (expected, 1), "{path}");
        let page = page(&fleet, path).await.1;
        assert!(heads.iter().all(|head| page.contains(&format!("href=\"hosts?{head}"))), "{path}: {page}");
    }
    for path in [
        "/hosts?sort=size",
        "/hosts?order=up",
        "/hosts?sort=state&after=x",
        "/subscriptions?sort=size",
        "/subscriptions?sort=lag&after=x",
    ] {
        assert_eq!(fleet.call("GET", path, &[], "").await.0, 400, "{path}");
    }
}

fn host_rule(domain: &str) -> HostRule {
    live_rules::from_value(json!({ "match": domain, "reason": "a test" })).unwrap()
}

#[tokio::test]
async fn feeds_are_sorted_by_every_column_in_both_directions_and_entries_are_counted() {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://a.example/1").await;
    fleet.feed("https://a.example/2").await;
    let entry = |n: usize| Entry { id: n.to_string(), title: Some(format!("fog {n}")), ..Entry::default() };
    fleet.polled_with(id, (1..=3).map(entry).collect()).await;
    for (path, first) in [
        ("/feeds", 1),
        ("/feeds?sort=id&order=desc", 2),
        ("/feeds?sort=last_polled", 2),
        ("/feeds?sort=last_polled&order=desc", 1),
        ("/feeds?sort=next_due", 2),
        ("/feeds?sort=next_due&order=desc", 1),
        ("/feeds?sort=category&order=desc", 2),
        ("/feeds?sort=subscribers&order=asc", 2),
    ] {
        let page = page(&fleet, path).await.1;
        let list = page.split_once("<tbody>").unwrap().1;
        let places = [1, 2].map(|id| list.find(&format!("href=\"feeds/{id}\"")).unwrap());
        assert_eq!(places[0] < places[1], first == 1, "{path}");
        assert_eq!(page.matches("aria-sort").count(), 1, "{path}");
        for head in ["id", "category", "subscribers", "last_polled", "next_due"] {
            assert!(page.contains(&format!("href=\"feeds?sort={head}")), "{head} on {path}: {page}");
        }
        assert!(page.contains("title=\"one subscriber, or none\">D<"), "{page}");
    }
    for (path, count) in [
        ("/entries", "3 entries"),
        ("/entries?feed=1", "3 entries"),
        ("/entries?q=fog", "3 entries"),
        ("/entries?q=fog&limit=2", "more than 2 entries"),
        ("/entries?limit=2", "3 entries"),
    ] {
        let page = page(&fleet, path).await.1;
        assert!(page.contains(&format!("id=\"count\">{count}<")), "{path}: {page}");
    }
}
