//! Commands on several feeds at once.

use load_tests::origin::feed::Feed;
use load_tests::origin::script::Script;
use serde_json::Value;

use crate::fleet::Fleet;
use crate::program::run;

async fn fleet_of(count: usize) -> (Fleet, Vec<String>) {
    let fleet = Fleet::start(&[]).await;
    let urls: Vec<String> = (1..=count).map(|number| fleet.origin.url(&format!("/{number}"))).collect();
    for number in 1..=count {
        fleet.origin.set(&format!("/{number}"), Script::feed(Feed::rss().initial(1)));
    }
    let add = ["feed", "add"].into_iter().chain(urls.iter().map(String::as_str)).collect::<Vec<_>>();
    fleet.done(&add);
    (fleet, urls)
}

fn column(out: &str, name: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()[name].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_take_several_feeds_and_one_that_is_unknown_does_not_stop_the_others() {
    let (fleet, urls) = fleet_of(3).await;
    let [a, b, c] = &urls[..] else { unreachable!() };
    assert_eq!(fleet.done(&["feed", "pause", "1", b]), format!("paused 1 {a}\npaused 2 {b}\n"));
    let again = fleet.run(&["feed", "add", a]);
    assert!(
        again.err.contains("1 is paused and not polled; `feedfleet feed resume 1` has it polled again"),
        "{}",
        again.err
    );
    let some = fleet.run(&["feed", "resume", "1", "99", "2"]);
    assert_eq!((some.code, some.out), (Some(1), format!("resumed 1 {a}\nresumed 2 {b}\n")));
    assert_eq!(some.err, "error: there is no feed 99; `feedfleet feed list` lists them\n");
    assert_eq!(fleet.done(&["feed", "forget", "1", "2"]).lines().count(), 2);
    assert_eq!(fleet.done(&["feed", "set", "1", "3", "--important"]).lines().count(), 2);
    let labels = fleet.done(&["feed", "label", "1", c, "+news", "+daily"]);
    assert_eq!(labels, format!("labels of 1 {a}: daily, news\nlabels of 3 {c}: daily, news\n"));
    assert_eq!(column(&fleet.done(&["feed", "list", "--label", "news", "--json"]), "id"), [1, 3]);
    let refreshed = fleet.done(&["feed", "refresh", "1", "2", "3", "--wait=2m"]);
    assert_eq!(refreshed.lines().filter(|line| line.starts_with("refreshing ")).count(), 3);
    assert_eq!(refreshed.lines().filter(|line| line.contains("; next poll ")).count(), 3, "{refreshed}");
    assert_eq!(column(&fleet.done(&["feed", "show", "1", "2", "--json"]), "id"), [1, 2]);
    let mut polled = column(&fleet.done(&["feed", "history", "1", "3", "--json"]), "feed");
    polled.dedup();
    assert_eq!(polled, [1, 3]);
    for wrong in [&["label", "1", "2"][..], &["label", "+a", "+b"]] {
        assert_eq!(fleet.run(&[&["feed"], wrong].concat()).code, Some(2), "{wrong:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_feeds_are_removed_only_with_consent() {
    let (fleet, _) = fleet_of(3).await;
    let refused = fleet.run(&["feed", "remove", "1", "2"]);
    assert_eq!((refused.code, refused.out.as_str()), (Some(2), ""));
    assert_eq!(refused.err, "error: this removes 2 feeds with their entries; give --yes to do so\n");
    let dry = fleet.done(&["feed", "remove", "1", "2", "--dry-run"]);
    assert!(dry.lines().count() == 2 && dry.starts_with("would remove 1 ") && dry.contains("1 entry"), "{dry}");
    for wrong in [&["remove", "1", "abc", "--yes"][..], &["set", "1", "--sla", "true"], &["pause", "1", "abc"]] {
        let refused = fleet.run(&[&["feed"], wrong].concat());
        assert_eq!((refused.code, refused.out.as_str()), (Some(2), ""), "{wrong:?}");
        assert!(refused.err.contains("is neither a feed's id nor a URL"), "{}", refused.err);
    }
    assert_eq!(column(&fleet.done(&["feed", "list", "--json"]), "id"), [1, 2, 3]);
    assert_eq!(fleet.done(&["feed", "remove", "1", "2", "--yes"]), "removed 1\nremoved 2\n");
    assert_eq!(fleet.done(&["feed", "remove", "3"]), "removed 3\n");
    assert_eq!(fleet.done(&["feed", "list"]), "no feeds\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_names_the_command_that_continues_it() {
    let (fleet, _) = fleet_of(3).await;
    let first = fleet.run(&["feed", "list", "--limit", "2", "--status", "active"]);
    let next = first.err.trim().strip_prefix("there are more: feedfleet ").unwrap().to_owned();
    assert!(next.starts_with("feed list --status active --limit 2 --after "), "{next}");
    let second = fleet.done(&next.split(' ').collect::<Vec<_>>());
    assert!(second.lines().count() == 2 && second.contains("/3"), "{second}");
    let elsewhere = run(&["feed", "list", "--limit", "2", "--server", &fleet.server]);
    assert!(elsewhere.err.contains(&format!(" --limit 2 --server {} --after ", fleet.server)), "{}", elsewhere.err);
}
