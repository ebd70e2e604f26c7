//! Operators' settings for hosts, and lists of hosts.

use common::host::HostRule;

use super::*;
use crate::{AcceptedPolicy, HostOrders, HostQuery, HostRow, NewPolicy, RefusedHost};

fn rule(domain: &str) -> HostRule {
    HostRule {
        r#match: domain.into(),
        gap: Some(Duration::from_millis(2500)),
        soft_statuses: vec![404],
        reason: "because".into(),
        ..HostRule::default()
    }
}

async fn orders(store: &dyn Store) -> HostOrders {
    store.host_orders(None).await.unwrap().unwrap()
}

pub(crate) async fn rules_are_kept_replaced_and_taken_back(backend: &dyn Backend) {
    let store = backend.open().await;
    assert_eq!(orders(&*store).await, HostOrders::default());
    assert!(store.set_host_rule(&rule("b.org"), at(1)).await.unwrap());
    assert!(store.set_host_rule(&rule("A.org"), at(2)).await.unwrap());
    let other = HostRule { shared: true, interval: Some(Duration::from_secs(60)), ..rule("a.org") };
    assert!(store.set_host_rule(&other, at(3)).await.unwrap());
    assert_eq!(orders(&*store).await.rules, [other.clone(), rule("b.org")]);
    assert!(store.remove_host_rule("b.org").await.unwrap());
    assert!(!store.remove_host_rule("b.org").await.unwrap());
    drop(store);
    assert_eq!(orders(&*backend.open().await).await.rules, [other]);
}

pub(crate) async fn every_change_of_orders_is_seen_and_nothing_else(backend: &dyn Backend) {
    let store = backend.open().await;
    let mut known = orders(&*store).await.change;
    assert_eq!(store.host_orders(Some(known)).await.unwrap(), None);
    let host = HostKey::new("a.org:443");
    for step in 0..4 {
        match step {
            0 => assert!(store.set_host_rule(&rule("a.org"), at(1)).await.unwrap()),
            1 => store.block_hosts(std::slice::from_ref(&host), Some(at(50))).await.unwrap(),
            2 => store.block_hosts(std::slice::from_ref(&host), None).await.unwrap(),
            _ => assert!(store.remove_host_rule("a.org").await.unwrap()),
        }
        let seen = store.host_orders(Some(known)).await.unwrap().expect("a change is seen");
        assert_eq!(store.host_orders(Some(seen.change)).await.unwrap(), None);
        known = seen.change;
    }
    add(&*store, "https://a.org/feed").await;
    assert_eq!(store.host_orders(Some(known)).await.unwrap(), None);
}

pub(crate) async fn hosts_are_listed_by_the_number_of_their_feeds(backend: &dyn Backend) {
    let store = backend.open().await;
    for (host, feeds) in [("a", 1), ("b", 3), ("c", 2), ("d", 1), ("e", 1), ("f", 2)] {
        for feed in 0..feeds {
            add(&*store, &format!("https://{host}.org/{feed}")).await;
        }
    }
    store.block_hosts(&[HostKey::new("c.org:443")], Some(at(50))).await.unwrap();
    store.fold_counts().await.unwrap();
    assert_eq!(store.count_hosts().await.unwrap(), 6);
    let (mut after, mut found) = (None, Vec::new());
    loop {
        let page = store.hosts(&HostQuery::by_feeds(after, 2), at(1)).await.unwrap();
        found.extend(page.items.iter().map(|row| (row.host.to_string(), row.feeds, row.blocked_until)));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let row = |host: &str, feeds| (format!("{host}.org:443"), feeds, (host == "c").then(|| at(50)));
    assert_eq!(found, [row("b", 3), row("c", 2), row("f", 2), row("a", 1), row("d", 1), row("e", 1)]);
    let (mut after, mut turned) = (None, Vec::new());
    loop {
        let query = HostQuery { reversed: true, ..HostQuery::by_feeds(after, 2) };
        let page = store.hosts(&query, at(1)).await.unwrap();
        turned.extend(page.items.iter().map(|row| (row.host.to_string(), row.feeds, row.blocked_until)));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    found.reverse();
    assert_eq!(turned, found);
    let names = ["c.org:443", "z.org:443"].map(HostKey::new);
    let among = store.hosts_among(&names, at(1)).await.unwrap();
    let blocked = HostRow { host: names[0].clone(), feeds: 2, hold_until: None, blocked_until: Some(at(50)) };
    let unknown = HostRow { host: names[1].clone(), feeds: 0, hold_until: None, blocked_until: None };
    assert_eq!(among, [blocked, unknown]);
    let wrong = HostQuery::by_feeds(Some("AAAA".to_owned()), 2);
    assert!(matches!(store.hosts(&wrong, at(1)).await, Err(StoreError::Cursor(_))));
}

pub(crate) async fn a_block_is_kept_beside_a_hold_and_lifted_without_it(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let mut throttled = verdict(&*store, id, 10, Outcome::Throttled { retry_after: Some(at(900)) }).await;
    throttled.decision.host_hold = Some(at(900));
    apply(&*store, &[throttled], 10).await;
    let hosts = [HostKey::new("a.org:8080"), HostKey::new("a.org:443")];
    store.block_hosts(&hosts, Some(at(5000))).await.unwrap();
    let row = |host: &str, feeds, held: Option<u64>, blocked: Option<u64>| HostRow {
        host: HostKey::new(host),
        feeds,
        hold_until: held.map(at),
        blocked_until: blocked.map(at),
    };
    let of_name = HostQuery::of_name("a.org");
    let seen = store.hosts(&of_name, at(11)).await.unwrap().items;
    assert_eq!(seen, [row("a.org:443", 1, Some(900), Some(5000)), row("a.org:8080", 0, None, Some(5000))]);
    assert_eq!(store.holds(at(11)).await.unwrap(), [(hosts[1].clone(), at(900))], "a block is no hold");
    drop(store);
    let store = backend.open().await;
    assert_eq!(orders(&*store).await.blocks, [(hosts[1].clone(), at(5000)), (hosts[0].clone(), at(5000))]);
    store.block_hosts(&hosts, None).await.unwrap();
    assert_eq!(store.hosts(&of_name, at(12)).await.unwrap().items, [row("a.org:443", 1, Some(900), None)]);
    assert!(orders(&*store).await.blocks.iter().all(|(_, until)| *until == Timestamp::EPOCH));
    assert_eq!(store.hosts(&of_name, at(901)).await.unwrap().items, [row("a.org:443", 1, None, None)]);
}

pub(crate) async fn hosts_are_listed_by_name_in_complete_pages(backend: &dyn Backend) {
    let store = backend.open().await;
    for n in [3, 1, 2] {
        add(&*store, &format!("https://h{n}.example/feed")).await;
    }
    add(&*store, "https://h1.example/other").await;
    store.block_hosts(&[HostKey::new("h2.example:8080")], Some(at(60))).await.unwrap();
    let shared = HostRule { shared: true, ..rule("shared.example") };
    for rule in [rule("only.example"), shared] {
        assert!(store.set_host_rule(&rule, at(1)).await.unwrap());
    }
    let all =
        ["*.shared.example", "h1.example:443", "h2.example:443", "h2.example:8080", "h3.example:443", "only.example"];
    for (limit, reversed) in [1, 2, 5, 6, 100].into_iter().flat_map(|limit| [(limit, false), (limit, true)]) {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let query = HostQuery { reversed, ..HostQuery::all(after, limit) };
            let page = store.hosts(&query, at(2)).await.unwrap();
            assert!(page.items.len() <= limit as usize);
            seen.extend(page.items.iter().map(|row| (row.host.to_string(), row.feeds)));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        if reversed {
            seen.reverse();
        }
        assert_eq!(seen.iter().map(|(host, _)| host.as_str()).collect::<Vec<_>>(), all, "in pages of {limit}");
        assert_eq!(seen.iter().map(|(_, feeds)| feeds).sum::<u64>(), 4);
    }
    let one = store.hosts(&HostQuery::of_key(&HostKey::new("h1.example:443")), at(2)).await.unwrap();
    assert_eq!((one.items.len(), one.items[0].feeds, one.next), (1, 2, None));
    let foreign = store.hosts(&HostQuery::all(Some("?".into()), 5), at(2)).await.unwrap_err();
    assert!(matches!(foreign, StoreError::Cursor(_)));
}

pub(crate) async fn an_offered_policy_counts_once_unless_a_person_decides(backend: &dyn Backend) {
    let store = backend.open().await;
    let offer = |hash: &'static str, decided: bool| NewPolicy { text: "{}", hash, by: "test", decided };
    let accepted = |hash: &'static str, decided: bool, seconds: u64| {
        let store = &store;
        async move {
            let policy = store.accept_policy(&offer(hash, decided), at(seconds)).await.unwrap();
            (policy.version, policy.hash)
        }
    };
    assert_eq!(accepted("a", false, 1).await, (1, "a".to_owned()), "the first one");
    let known = orders(&*store).await.change;
    assert_eq!(accepted("a", false, 2).await, (1, "a".to_owned()));
    assert_eq!(accepted("a", true, 3).await, (1, "a".to_owned()), "it is in force already");
    assert_eq!(store.host_orders(Some(known)).await.unwrap(), None, "nothing changed");
    assert_eq!(accepted("b", false, 4).await, (2, "b".to_owned()), "never seen");
    assert_eq!(accepted("a", false, 5).await, (2, "b".to_owned()), "a restart with an old file");
    assert_eq!(accepted("a", true, 6).await, (3, "a".to_owned()), "a person wants it back");
    drop(store);
    let store = backend.open().await;
    let seen = store.host_orders(Some(known)).await.unwrap().unwrap().policy.unwrap();
    let expected =
        AcceptedPolicy { version: 3, hash: "a".into(), text: "{}".into(), accepted: at(6), by: "test".into() };
    assert_eq!(seen, expected);
}

pub(crate) async fn schedulers_that_offer_at_once_agree_on_one_policy(backend: &dyn Backend) {
    let store = backend.open().await;
    let offered = ["a", "b", "c", "d"].map(|hash| {
        let offer = NewPolicy { text: "{}", hash, by: "test", decided: false };
        let store = &store;
        async move { store.accept_policy(&offer, at(1)).await.unwrap().version }
    });
    let mut versions = futures_util::future::join_all(offered).await;
    versions.sort_unstable();
    assert_eq!(versions, [1, 2, 3, 4]);
    assert_eq!(orders(&*store).await.policy.unwrap().version, 4);
}

pub(crate) async fn a_host_that_refuses_us_is_published_once_and_rests_longer_each_time(backend: &dyn Backend) {
    let store = backend.open().await;
    let id = add(&*store, "https://a.org/feed").await;
    let host = HostKey::new("a.org:443");
    let refused = RefusedHost {
        host: &host,
        feed: id,
        failure: FailureKind::Status,
        status: Some(403),
        first: Duration::from_secs(100),
        ceiling: Duration::from_secs(350),
        is_known: false,
    };
    let known = orders(&*store).await.change;
    let mut rests = Vec::new();
    for now in [10, 20, 110, 310, 660, 1010] {
        let refused = RefusedHost { is_known: now > 10, ..refused };
        let refusal = store.refuse_host(&refused, at(now)).await.unwrap().unwrap();
        rests.push((refusal.until, refusal.tries));
        assert_eq!((refusal.since, refusal.status), (at(10), Some(403)));
    }
    let expected = [(110, 1), (110, 1), (310, 2), (660, 3), (1010, 3 + 1), (1360, 5)];
    assert_eq!(rests, expected.map(|(until, tries)| (at(until), tries)), "twice as long, 350 s at most");
    assert_eq!(store.holds(at(1011)).await.unwrap(), [(host.clone(), at(1360))], "the gate learns of it");
    let seen = store.host_orders(Some(known)).await.unwrap().unwrap().refusals;
    assert_eq!((seen.len(), &seen[0].host), (1, &host));
    assert!(store.host_answers(&host, id, at(1400)).await.unwrap());
    assert!(!store.host_answers(&host, id, at(1401)).await.unwrap());
    let late = RefusedHost { is_known: true, ..refused };
    assert_eq!(store.refuse_host(&late, at(1402)).await.unwrap(), None, "one late report begins nothing");
    assert!(orders(&*store).await.refusals.is_empty());
    let events = store.events(1, 10).await.unwrap().items;
    let published: Vec<_> = events.iter().map(|event| (event.kind.as_str(), event.host.as_deref())).collect();
    assert_eq!(published, [("host.refusing", Some("a.org:443")), ("host.recovered", Some("a.org:443"))]);

    // Holds and blocks that ended long ago are forgotten.
    let hosts = ["b.org:443", "c.org:443"].map(HostKey::new);
    store.keep_holds(&[(hosts[0].clone(), at(60), id), (hosts[1].clone(), at(900), id)]).await.unwrap();
    store.block_hosts(&hosts[..1], Some(at(60))).await.unwrap();
    store.block_hosts(&hosts[1..], Some(at(900))).await.unwrap();
    store.prune(at(100), None).await.unwrap();
    let kept = [(hosts[1].clone(), at(900))];
    assert_eq!(
        store.holds(at(0)).await.unwrap().into_iter().filter(|(host, _)| hosts.contains(host)).collect::<Vec<_>>(),
        kept
    );
    assert_eq!(orders(&*store).await.blocks, kept);

    // A host whose feeds are all gone is forgotten in the end, and every scheduler learns of that too.
    store.refuse_host(&refused, at(2000)).await.unwrap();
    let known = orders(&*store).await.change;
    store.prune(at(2050), None).await.unwrap();
    assert!(store.host_orders(Some(known)).await.unwrap().is_none(), "its rest is not over");
    store.prune(at(9000), None).await.unwrap();
    assert!(store.host_orders(Some(known)).await.unwrap().unwrap().refusals.is_empty());
}
