//! What the publisher's page says of a feed in each state, and what happens then: `docs/pages.md` has the table.

use std::time::Duration;

use load_tests::{Feed, Gate, Origin, Script, loopback};
use serde_json::json;
use tokio::time::Instant;

use crate::harness::{Fleet, Home, watch_stalls};

/// A state of a feed, with what its page says.
struct State {
    name: &'static str,
    /// What its server answers until it is fixed.
    before: fn() -> Script,
    verdict: &'static str,
    sentences: &'static [&'static str],
    /// What a ping leads to once the server is fixed.
    rescued: bool,
}

const STATES: [State; 8] = [
    State {
        name: "well",
        before: || Script::feed(Feed::rss().initial(1)),
        verdict: "Yes, it is read.",
        sentences: &[],
        rescued: true,
    },
    State {
        name: "failing",
        before: || Script::status(502),
        verdict: "Yes, but its last poll failed.",
        sentences: &[],
        rescued: true,
    },
    State {
        name: "boxed",
        before: || Script::status(403),
        verdict: "Yes, but it fails.",
        sentences: &[
            "It is in the penalty box: 403 Forbidden.",
            "When it is fixed, send a ping with its address: it is polled within 3 s.",
        ],
        rescued: true,
    },
    State {
        name: "held",
        before: || Script::status(429).header("Retry-After", "3600"),
        verdict: "Yes, but its server asked us to wait.",
        sentences: &["Its server asked us to wait. We do, and nothing polls it, not even a ping. The wait ends"],
        rescued: false,
    },
    State {
        name: "blacklisted",
        before: || Script::status(404),
        verdict: "Not any more: it failed for too long.",
        sentences: &[
            "so it is not polled any more.",
            "When it is fixed, send a ping with its address: it is polled once, within 3 s.",
        ],
        rescued: true,
    },
    State {
        name: "gone",
        before: || Script::status(410),
        verdict: "Not any more: its server said that it is gone.",
        sentences: &["If that was a mistake, send a ping with its address: it is polled once, within 3 s."],
        rescued: true,
    },
    State {
        name: "paused",
        before: || Script::feed(Feed::rss().initial(1)),
        verdict: "Not at present: it is paused.",
        sentences: &["An operator of this fleet paused it. A ping does not change that."],
        rescued: false,
    },
    State {
        name: "quarantined",
        before: || Script::feed(Feed::rss().initial(1)),
        verdict: "Not at present: it is quarantined.",
        sentences: &["A ping does not change that."],
        rescued: false,
    },
];

/// Short times: a 404 is tried again each second and blacklists within two; everything else waits for a day.
const SHORT: &str = "[policy]\nping_spread = \"3s\"\nping_quiet = \"200ms\"\nmin_interval = \"1s\"\nhot_minutes = false\n\
                     blacklist_after = \"2s\"\nsalt = 0.0\n\
                     [policy.penalty]\nnot_found = \"1s\"\nbad_feed = \"1s\"\nserver_error = \"24h\"\nclient_error = \"24h\"\n\
                     transient_first = \"1h\"\n[host]\ngap = \"0s\"\n";

async fn page(fleet: &Fleet, url: &str) -> String {
    let mut address = reqwest::Url::parse(&format!("{}/status", fleet.api)).unwrap();
    address.query_pairs_mut().append_pair("url", url);
    let answer = fleet.client.get(address).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.text().await.unwrap()
}

async fn ping(fleet: &Fleet, url: &str) {
    assert!(ping_is_known(fleet, url).await, "{url}");
}

async fn ping_is_known(fleet: &Fleet, url: &str) -> bool {
    let request = fleet.client.post(format!("{}/ping", fleet.api)).header("content-type", "application/json");
    let answer = request.body(json!({ "url": url }).to_string()).send().await.unwrap();
    let answer: serde_json::Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    answer["known"].as_bool().unwrap()
}

/// Adds a feed; one whose server answers 404 has an interval of a second, so that it is blacklisted soon.
async fn add(fleet: &Fleet, url: &str, hurried: bool) -> i64 {
    let mut body = json!({ "url": url });
    if hurried {
        body["interval"] = 1.into();
    }
    let request = fleet.client.post(format!("{}/api/v1/feeds", fleet.api)).header("content-type", "application/json");
    let answer = request.body(body.to_string()).send().await.unwrap();
    serde_json::from_str::<serde_json::Value>(&answer.text().await.unwrap()).unwrap()["id"].as_i64().unwrap()
}

/// Waits until the feed's page has this verdict.
async fn wait_for_verdict(fleet: &mut Fleet, url: &str, verdict: &str) -> String {
    fleet
        .wait_for(verdict, async |fleet| {
            let page = page(fleet, url).await;
            page.contains(verdict).then_some(page)
        })
        .await
}

async fn set_status(home: &Home, id: i64, status: common::policy::Status) {
    use store::Feeds;
    let store = home.store().await;
    let change = store::FeedChange { status: Some(status), ..store::FeedChange::default() };
    store.change_feed(common::url::FeedId(id), &change, common::time::Timestamp::EPOCH).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_publishers_page_says_of_each_state_is_what_happens() {
    use common::policy::Status;
    let origin = Origin::listen(&loopback(8, 0)).await.unwrap();
    let home = Home::new(&format!("{SHORT}[api]\nstatus_per_minute = 1000000\npings_per_minute = 1000000\n"));
    let mut fleet = home.start(&[]);
    // Each on a separate host: a hold applies to the whole host.
    let place = |name: &str| STATES.iter().position(|state| state.name == name).unwrap();
    let url_of = |name: &str| origin.url_on(place(name), &format!("/{name}"));
    let mut ids = Vec::new();
    for state in &STATES {
        origin.set(&format!("/{}", state.name), (state.before)());
        ids.push(add(&fleet, &url_of(state.name), state.name == "blacklisted").await);
    }
    // Those that only a person or a crash causes are set in the store.
    fleet.wait_for("first polls", async |_| (origin.requests("/quarantined").len() == 1).then_some(())).await;
    fleet.wait_for("first polls", async |_| (origin.requests("/paused").len() == 1).then_some(())).await;
    wait_for_verdict(&mut fleet, &url_of("blacklisted"), "Not any more: it failed for too long.").await;
    fleet.stop();
    set_status(&home, ids[place("paused")], Status::Paused).await;
    set_status(&home, ids[place("quarantined")], Status::Quarantined).await;
    let mut fleet = home.start(&[]);
    // A rest of the spread after the last poll has passed.
    tokio::time::sleep(Duration::from_secs(4)).await;

    for state in &STATES {
        let (path, url) = (format!("/{}", state.name), url_of(state.name));
        let page = wait_for_verdict(&mut fleet, &url, state.verdict).await;
        for sentence in state.sentences {
            assert!(page.contains(sentence), "{}: no \"{sentence}\" in\n{page}", state.name);
        }
        let asked = origin.requests(&path).len();
        origin.set(&path, Script::feed(Feed::rss().initial(3)));
        ping(&fleet, &url).await;
        ping(&fleet, &url).await;
        if state.rescued {
            fleet
                .wait_for(&format!("the poll of the {} feed", state.name), async |_| {
                    (origin.requests(&path).len() > asked).then_some(())
                })
                .await;
            wait_for_verdict(&mut fleet, &url, "Yes, it is read.").await;
        }
    }
    // Twice the spread after the last ping, each pinged feed was polled once, and no other feed.
    tokio::time::sleep(Duration::from_secs(7)).await;
    for state in STATES.iter().filter(|state| !state.rescued) {
        let url = url_of(state.name);
        assert_eq!(origin.requests(&format!("/{}", state.name)).len(), 1, "{}", state.name);
        assert!(page(&fleet, &url).await.contains(state.verdict), "{}", state.name);
    }
    fleet.stop();
}

async fn post(fleet: &Fleet, path: &str, body: serde_json::Value) {
    let request = fleet.client.post(format!("{}/api/v1/{path}", fleet.api)).header("content-type", "application/json");
    let answer = request.body(body.to_string()).send().await.unwrap();
    assert!(answer.status().is_success(), "{path}: {}", answer.text().await.unwrap());
}

/// The states that a person causes: a feed without subscribers, a blocked host, a paused fleet.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_publishers_page_says_while_an_operator_stops_polls_is_what_happens() {
    let origin = Origin::listen(&loopback(3, 0)).await.unwrap();
    let home = Home::new(&format!("{SHORT}[api]\nstatus_per_minute = 1000000\npings_per_minute = 1000000\n"));
    let mut fleet = home.start(&[]);
    let [removed, new, well] = ["/removed", "/new", "/well"];
    let url_of = |host: usize, path: &str| origin.url_on(host, path);
    let urls = [url_of(0, removed), url_of(1, new), url_of(2, well)];
    [removed, new, well].iter().for_each(|path| origin.set(path, Script::feed(Feed::rss().initial(1))));
    let blocked = origin.address(1).to_string();
    post(&fleet, &format!("hosts/{blocked}/block"), json!({ "for": 3600 })).await;
    let id = add(&fleet, &urls[0], false).await;
    add(&fleet, &urls[1], false).await;
    add(&fleet, &urls[2], false).await;
    wait_for_verdict(&mut fleet, &urls[0], "Yes, it is read.").await;
    wait_for_verdict(&mut fleet, &urls[2], "Yes, it is read.").await;
    fleet.stop();
    set_status(&home, id, common::policy::Status::Removed).await;
    let mut fleet = home.start(&[]);
    post(&fleet, "fleet/pause", json!({})).await;
    // A rest of the spread after the last poll has passed.
    tokio::time::sleep(Duration::from_secs(4)).await;

    let paused = "All polling is paused at present: no feed is polled before it is resumed.";
    let says: [(usize, &str, &[&str]); 3] = [
        (0, "Not any more: it was removed.", &["Nobody subscribes to it here any more. A ping does not change that."]),
        (1, "Yes, its first poll is still to come.", &["Nothing is polled on its host at present.", paused]),
        (2, "Yes, it is read.", &[paused]),
    ];
    let asked = [1, 0, 1];
    let counts = || [removed, new, well].map(|path| origin.requests(path).len());
    for (feed, verdict, sentences) in says {
        let page = page(&fleet, &urls[feed]).await;
        assert!(page.contains(verdict), "{verdict}:\n{page}");
        sentences.iter().for_each(|words| assert!(page.contains(words), "{feed}: no \"{words}\" in\n{page}"));
        assert_eq!(ping_is_known(&fleet, &urls[feed]).await, feed > 0, "nobody reads a feed that was removed");
    }
    // Twice the spread after the pings.
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert_eq!(counts(), asked, "nobody is polled while all polling is paused");

    post(&fleet, "fleet/resume", json!({})).await;
    fleet.wait_for("the pinged feed", async |_| (counts()[2] == 2).then_some(())).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(counts(), [1, 0, 2], "the host is still blocked");
    assert!(!page(&fleet, &urls[1]).await.contains(paused));
    post(&fleet, &format!("hosts/{blocked}/unblock"), json!({})).await;
    fleet.wait_for("the new feed", async |_| (counts()[1] == 1).then_some(())).await;
    let new = wait_for_verdict(&mut fleet, &urls[1], "Yes, it is read.").await;
    assert!(!new.contains("Nothing is polled on its host"), "{new}");
    assert_eq!(counts()[0], 1, "nobody subscribes to it");
    fleet.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retired_feed_that_fails_again_waits_twice_as_long_for_the_next_ping_and_its_page_says_so() {
    let origin = Origin::listen(&loopback(1, 0)).await.unwrap();
    let home = Home::new(&format!("{SHORT}[api]\nstatus_per_minute = 1000000\npings_per_minute = 1000000\n"));
    let stalls = watch_stalls(&origin);
    let mut fleet = home.start(&[]);
    fleet.watch(&stalls);
    origin.set("/gone", Script::status(410));
    let url = origin.url("/gone");
    add(&fleet, &url, false).await;
    wait_for_verdict(&mut fleet, &url, "its server said that it is gone").await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    // The try does not end before the page was read.
    let gate = Gate::closed();
    origin.set("/gone", Script::status(410).gate(&gate));
    ping(&fleet, &url).await;
    let pinged = page(&fleet, &url).await;
    gate.open();
    assert!(pinged.contains("A ping came: it is polled once,"), "{pinged}");
    fleet.wait_for("the try", async |_| (origin.requests("/gone").len() == 2).then_some(())).await;
    let words = "because polls after earlier pings found nothing new";
    fleet.wait_for(words, async |fleet| page(fleet, &url).await.contains(words).then_some(())).await;
    for _ in 0..5 {
        ping(&fleet, &url).await;
    }
    fleet.wait_for("the next try", async |_| (origin.requests("/gone").len() == 3).then_some(())).await;
    let tries = origin.requests("/gone");
    // The first of them may have arrived late.
    let apart = tries[2].start - tries[1].start + stalls.seen().near(tries[1].start);
    assert!(apart >= Duration::from_secs(5), "twice the spread of 3 s: {apart:?}");
    fleet.stop();
}

/// NewsGator: fix the feed, send a ping, and its content is there within 60 s. `dev/soak` measures it with the defaults.
#[tokio::test(flavor = "multi_thread")]
async fn a_feed_that_is_fixed_and_pinged_is_stored_within_a_minute() {
    let is_long = std::env::var_os("SOAK").is_some();
    let feeds: u16 = if is_long { 40 } else { 4 };
    let origin = Origin::listen(&loopback(feeds, 0)).await.unwrap();
    let urls: Vec<String> = (0..feeds).map(|feed| origin.url_on(feed.into(), &format!("/feed{feed}"))).collect();
    let kinds = [
        (404, "it failed for too long", "blacklisted"),
        (403, "Yes, but it fails", "boxed by 403"),
        (500, "Yes, but it fails", "boxed by 500"),
        (410, "said that it is gone", "gone"),
    ];
    for feed in 0..urls.len() {
        origin.set(&format!("/feed{feed}"), Script::status(kinds[feed % 4].0));
    }
    // Feeds are retired with short times, and rescued with the defaults.
    let home = Home::new(&format!("{SHORT}[api]\nstatus_per_minute = 1000000\n"));
    let mut fleet = home.start(&[]);
    for (feed, url) in urls.iter().enumerate() {
        add(&fleet, url, feed % 4 == 0).await;
    }
    for (feed, url) in urls.iter().enumerate() {
        wait_for_verdict(&mut fleet, url, kinds[feed % 4].1).await;
    }
    fleet.stop();
    let spread = if is_long { 60 } else { 3 };
    let config = format!("[fetch]\n{}[policy]\nping_spread = \"{spread}s\"\n", crate::harness::OPEN);
    std::fs::write(home.path("config.toml"), config).unwrap();
    tokio::time::sleep(Duration::from_secs(spread)).await;
    let mut fleet = home.start(&[]);
    let mut sent = Vec::new();
    for (feed, url) in urls.iter().enumerate() {
        origin.set(&format!("/feed{feed}"), Script::feed(Feed::rss().initial(1)));
        sent.push(Instant::now());
        ping(&fleet, url).await;
    }
    let mut seen: Vec<Option<Duration>> = vec![None; urls.len()];
    fleet
        .wait_for("the content of every feed", async |fleet| {
            let page = fleet.get("/api/v1/entries?limit=1000").await;
            for entry in page["items"].as_array().unwrap() {
                let feed = usize::try_from(entry["feed_id"].as_i64().unwrap()).unwrap() - 1;
                seen[feed].get_or_insert_with(|| sent[feed].elapsed());
            }
            seen.iter().all(Option::is_some).then_some(())
        })
        .await;
    for (kind, (_, _, name)) in kinds.iter().enumerate() {
        let mut times: Vec<Duration> = seen.iter().skip(kind).step_by(4).flatten().copied().collect();
        times.sort();
        let (p50, most) = (times[times.len() / 2], times[times.len() - 1]);
        println!("{name}: {} feeds, from ping to stored entry p50 {p50:.1?}, most {most:.1?}", times.len());
        assert!(most <= Duration::from_secs(60), "{name}: {times:?}");
    }
    fleet.stop();
}
