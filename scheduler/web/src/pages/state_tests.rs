//! The pages of a feed in every state: what they say of its future is one thing, wherever they say it, also while its host is
//! blocked and while all polling is paused.

use std::time::Duration;

use common::document::Validators;
use common::feed::Feed;
use common::outcome::{FailureKind, OutcomeKind};
use common::policy::{Penalty, PollState, Status};
use common::report::Outcome;
use common::time::{Clock, Timestamp};
use common::url::FeedId;
use serde_json::json;

use crate::testing::Fleet;
use store::FeedRef;

const ADDRESS: &str = "https://a.example/feed";
const OTHER: &str = "https://b.example/feed";
/// When the next poll is due, and until when the host is blocked: later.
const DUE: Duration = Duration::from_secs(36_000);
const BLOCK: u64 = 72_000;

/// A state, and what the pages say of it.
struct State {
    name: &'static str,
    bring: fn(&mut PollState, Timestamp) -> Status,
    /// How its last poll ended, with the status.
    ended: fn() -> (Outcome, Option<u16>),
    verdict: &'static str,
    /// What it does next.
    future: Future,
    /// On the feed's page and on the publisher's, in any circumstances.
    said: &'static [&'static str],
    /// On neither of them.
    unsaid: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq)]
enum Future {
    /// It is polled when it is due.
    Polled,
    /// It is polled for a ping.
    Pinged,
    None,
}

fn failed(kind: FailureKind, status: Option<u16>) -> (Outcome, Option<u16>) {
    (Outcome::Failed { failure: kind, detail: "it failed".to_owned() }, status)
}

fn not_found() -> (Outcome, Option<u16>) {
    failed(FailureKind::Status, Some(404))
}

fn well() -> (Outcome, Option<u16>) {
    (Outcome::NotModified { validators: Validators::default() }, Some(304))
}

fn fails(state: &mut PollState, now: Timestamp, times: u32) {
    state.last_outcome = Some(OutcomeKind::Failed);
    state.consecutive_failures = times;
    state.failing_since = Some(now.before(Duration::from_secs(7200)));
}

const STATES: [State; 10] = [
    State {
        name: "active",
        bring: |_, _| Status::Active,
        ended: well,
        verdict: "Yes, it is read.",
        future: Future::Polled,
        said: &[],
        unsaid: &["What to fix", "penalty box", "failed"],
    },
    State {
        name: "failed once",
        bring: |state, now| {
            fails(state, now, 1);
            state.last_status = None;
            Status::Active
        },
        ended: || failed(FailureKind::Timeout, None),
        verdict: "Yes, but its last poll failed.",
        future: Future::Polled,
        said: &["The server takes too long to answer."],
        unsaid: &["Nothing needs fixing", "penalty box"],
    },
    State {
        name: "boxed",
        bring: |state, now| {
            fails(state, now, 3);
            state.last_status = Some(404);
            state.penalty = Some(Penalty { kind: FailureKind::Status, until: now.after(DUE) });
            Status::Active
        },
        ended: not_found,
        verdict: "Yes, but it fails.",
        future: Future::Polled,
        said: &[
            "It is in the penalty box: 404 Not Found. 3 polls in a row failed",
            "There is nothing at the feed",
            "send a ping with its address: it is polled ",
        ],
        unsaid: &["Nothing needs fixing"],
    },
    State {
        name: "held",
        bring: |state, now| {
            state.last_outcome = Some(OutcomeKind::Throttled);
            (state.last_status, state.throttles) = (Some(429), 1);
            state.hold_until = Some(now.after(DUE));
            Status::Active
        },
        ended: || (Outcome::Throttled { retry_after: None }, Some(429)),
        verdict: "Yes, but its server asked us to wait.",
        future: Future::Polled,
        said: &[
            "Its server asked us to wait. We do, and nothing polls it, not even a ping.",
            "its Retry-After header says for how long. We keep to it.",
        ],
        unsaid: &["Nothing needs fixing", "spares both sides the guess"],
    },
    State {
        name: "gone",
        bring: |state, _| {
            state.last_outcome = Some(OutcomeKind::Gone);
            Status::Gone
        },
        ended: || (Outcome::Gone, Some(410)),
        verdict: "Not any more: its server said that it is gone.",
        future: Future::Pinged,
        said: &["Its server answered 410", "If that was a mistake, send a ping with its address: it is polled once, "],
        unsaid: &["Nothing needs fixing", "Resume</button>"],
    },
    State {
        name: "blacklisted",
        bring: |state, now| {
            fails(state, now, 90);
            state.last_status = Some(404);
            state.penalty = Some(Penalty { kind: FailureKind::Status, until: now.after(DUE) });
            Status::Blacklisted
        },
        ended: not_found,
        verdict: "Not any more: it failed for too long.",
        future: Future::Pinged,
        said: &[
            "Every poll failed, the first <time",
            ", so it is not polled any more.",
            "When it is fixed, send a ping with its address: it is polled once, ",
        ],
        unsaid: &["Nothing needs fixing", "in the penalty box"],
    },
    State {
        name: "paused",
        bring: |state, now| {
            fails(state, now, 3);
            state.penalty = Some(Penalty { kind: FailureKind::Status, until: now.after(DUE) });
            Status::Paused
        },
        ended: not_found,
        verdict: "Not at present: it is paused.",
        future: Future::None,
        said: &["An operator of this fleet paused it. A ping does not change that."],
        unsaid: &["Nothing needs fixing", "in the penalty box", "There is nothing at the feed"],
    },
    State {
        name: "quarantined",
        bring: |state, now| {
            fails(state, now, 3);
            Status::Quarantined
        },
        ended: || failed(FailureKind::Crashed, None),
        verdict: "Not at present: it is quarantined.",
        future: Future::None,
        said: &["Our own program crashed on it, which is ours to fix. A ping does not change that."],
        unsaid: &["Nothing needs fixing", "in the penalty box"],
    },
    State {
        name: "quarantined for an hour",
        bring: |state, now| {
            fails(state, now, 3);
            state.last_status = None;
            state.penalty = Some(Penalty { kind: FailureKind::Crashed, until: now.after(DUE) });
            Status::Active
        },
        ended: || failed(FailureKind::Crashed, None),
        verdict: "Yes, but it fails.",
        future: Future::Polled,
        said: &["Our own program crashed on it, which is ours to fix. A ping does not change that."],
        unsaid: &["send a ping"],
    },
    State {
        name: "removed",
        bring: |_, _| Status::Removed,
        ended: well,
        verdict: "Not any more: it was removed.",
        future: Future::None,
        said: &["Nobody subscribes to it here any more. A ping does not change that."],
        unsaid: &["Nothing needs fixing"],
    },
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Circumstances {
    Plain,
    HostBlocked,
    FleetPaused,
}

const CIRCUMSTANCES: [Circumstances; 3] =
    [Circumstances::Plain, Circumstances::HostBlocked, Circumstances::FleetPaused];

impl Circumstances {
    async fn bring(self, fleet: &Fleet) {
        match self {
            Circumstances::Plain => {}
            Circumstances::HostBlocked => {
                for host in ["a.example", "b.example"] {
                    fleet.post(&format!("/api/v1/hosts/{host}/block"), json!({ "for": BLOCK })).await;
                }
            }
            Circumstances::FleetPaused => fleet.ops.set_paused(true).await.unwrap(),
        }
    }

    /// What only other circumstances may have a page say.
    fn unsaid(self) -> &'static [&'static str] {
        match self {
            Circumstances::Plain => &["on its host", "polling is paused", "when resumed", "polling is resumed"],
            Circumstances::HostBlocked => &["polling is paused", "when resumed", "polling is resumed", "within 1 min"],
            Circumstances::FleetPaused => &["on its host", "within 1 min", "polled again <time"],
        }
    }

    /// What the two pages of a feed say of its future; `due` is how they show when it is due.
    fn said(self, future: Future, due: &str) -> Vec<String> {
        let texts: Vec<&str> = match (self, future) {
            (_, Future::None) => vec!["<b>not planned</b> <span>next poll</span>"],
            (Circumstances::Plain, Future::Polled) => {
                return vec![format!(">{due}</time></b> <span>next poll</span>")];
            }
            (Circumstances::Plain, Future::Pinged) => vec!["it is polled once, within 1 min.", "<b>not planned</b>"],
            (Circumstances::HostBlocked, Future::Polled) => {
                vec![">in 20 h</time></b> <span>next poll</span>", "Nothing is polled on its host at present."]
            }
            (Circumstances::HostBlocked, Future::Pinged) => vec![
                "it is polled once, in 20 h, because nothing is polled on its host before that.",
                "Nothing is polled on its host at present.",
                "<b>not planned</b>",
            ],
            (Circumstances::FleetPaused, Future::Polled) => vec![
                "<b>when resumed</b> <span>next poll, due <time",
                "All polling is paused at present: no feed is polled before it is resumed.",
            ],
            (Circumstances::FleetPaused, Future::Pinged) => vec![
                "it is polled once, after polling is resumed.",
                "All polling is paused at present: no feed is polled before it is resumed.",
                "<b>not planned</b>",
            ],
        };
        texts.into_iter().map(str::to_owned).collect()
    }

    /// What the list of feeds shows of the next poll of a feed that is polled.
    fn listed(self, due: &str) -> String {
        match self {
            Circumstances::Plain => format!(">{due}</time><span class=\"soft\"></span></td>"),
            Circumstances::HostBlocked => ">in 20 h</time><span class=\"soft\"></span></td>".to_owned(),
            Circumstances::FleetPaused => "when resumed<span class=\"soft\">, due <time".to_owned(),
        }
    }
}

#[track_caller]
fn says(page: &str, state: &str, said: &[&str], unsaid: &[&str]) {
    for text in said {
        assert!(page.contains(text), "{state}: {text} is missing:\n{page}");
    }
    for text in unsaid {
        assert!(!page.contains(text), "{state}: {text}:\n{page}");
    }
}

async fn get(fleet: &Fleet, path: &str) -> String {
    let (status, _, page) = fleet.call("GET", path, &[], "").await;
    assert_eq!(status, 200, "{path}: {page}");
    page
}

async fn status_of(fleet: &Fleet, url: &str) -> String {
    get(fleet, &format!("/status?url={url}")).await
}

async fn feed(fleet: &Fleet) -> Feed {
    fleet.ops.feed(&FeedRef::Id(FeedId(1))).await.unwrap().unwrap()
}

/// A feed that was polled well an hour ago.
async fn polled() -> Fleet {
    let fleet = Fleet::new().await;
    let id = fleet.feed(ADDRESS).await;
    fleet.polled(id, &["1"]).await;
    fleet.clock.advance(Duration::from_secs(3600));
    fleet
}

/// Has a poll leave the feed in the state.
async fn left(fleet: &Fleet, state: &State) {
    let (feed, now) = (feed(fleet).await, fleet.clock.now());
    let mut left = PollState { last_polled: Some(now.before(Duration::from_secs(3600))), ..feed.state };
    let status = (state.bring)(&mut left, now);
    let next_due = (status == Status::Active).then(|| now.after(DUE));
    let (outcome, http_status) = (state.ended)();
    fleet.store_poll(&Feed { status, next_due, ..feed }, left, outcome, http_status).await;
}

#[tokio::test]
async fn no_state_contradicts_itself_on_any_page_while_its_host_is_blocked_or_all_polling_is_paused() {
    for state in &STATES {
        for circumstances in CIRCUMSTANCES {
            let fleet = polled().await;
            left(&fleet, state).await;
            circumstances.bring(&fleet).await;
            let name = format!("{} {circumstances:?}", state.name);
            let expected = circumstances.said(state.future, "in 10 h");
            let mut said: Vec<&str> = expected.iter().map(String::as_str).chain(state.said.iter().copied()).collect();
            let mut unsaid = [circumstances.unsaid(), state.unsaid].concat();
            if state.future == Future::None {
                unsaid.extend(["on its host at present", "All polling is paused at present", "send a ping"]);
            }
            if state.future != Future::Polled {
                unsaid.extend(["<ol class=\"terms\">", "It is polled again", "Refresh now"]);
            }
            let one = get(&fleet, "/feeds/1").await;
            // The notes of "Why at this time" say of any state that all polling is paused.
            says(&one, &format!("{name}: feed"), &said, &unsaid);
            said.push(state.verdict);
            let public = status_of(&fleet, ADDRESS).await;
            says(&public, &format!("{name}: status"), &said, &unsaid);
            let list = get(&fleet, "/feeds").await;
            let next = match state.future {
                Future::Polled => circumstances.listed("in 10 h"),
                _ => {
                    let status = feed(&fleet).await.status;
                    format!("<span class=\"chip\" title=\"{status}\">{}</span>", super::words::feed_status(status))
                }
            };
            says(&list, &format!("{name}: list"), &[&next], &[]);
            let paused = "<p class=\"alarm warn\">All polling is paused.</p>";
            assert_eq!(list.contains(paused), circumstances == Circumstances::FleetPaused, "{name}: {list}");
        }
    }
}

#[tokio::test]
async fn a_feed_without_a_poll_is_new_on_every_page() {
    for circumstances in CIRCUMSTANCES {
        let fleet = Fleet::new().await;
        fleet.feed(ADDRESS).await;
        circumstances.bring(&fleet).await;
        let said = circumstances.said(Future::Polled, "now");
        let said: Vec<&str> = said.iter().map(String::as_str).collect();
        let unsaid = [circumstances.unsaid(), &["not planned", "Resume", "Nothing needs fixing"]].concat();
        let one = get(&fleet, "/feeds/1").await;
        says(&one, &format!("new {circumstances:?}"), &[&said[..], &["Not polled yet.", "Pause"]].concat(), &unsaid);
        let public = status_of(&fleet, ADDRESS).await;
        let verdict = "Yes, its first poll is still to come.";
        says(&public, &format!("new {circumstances:?}"), &[&said[..], &[verdict]].concat(), &unsaid);
        says(&get(&fleet, "/feeds").await, "new", &[&circumstances.listed("now")], &[]);
    }
}

#[tokio::test]
async fn a_merged_feed_only_leads_to_the_one_that_it_is() {
    for circumstances in CIRCUMSTANCES {
        let fleet = polled().await;
        let other = fleet.feed(OTHER).await;
        left(&fleet, &STATES[2]).await;
        fleet.moved(1, OTHER).await;
        circumstances.bring(&fleet).await;
        let one = get(&fleet, "/feeds/1").await;
        let said = [&format!("It turned out to be <a href=\"{other}\">"), "not planned", "Undo the move"];
        let unsaid = ["It is polled again", "Refresh now", "in the penalty box", "What its publisher could fix"];
        says(&one, "merged", &said, &[&unsaid[..], &["on its host at present", "paused at present"]].concat());
        let said = circumstances.said(Future::Polled, "now");
        let said: Vec<&str> = said.iter().map(String::as_str).collect();
        says(
            &status_of(&fleet, ADDRESS).await,
            "merged",
            &said,
            &["in the penalty box", "There is nothing at the feed"],
        );
        says(
            &get(&fleet, "/feeds").await,
            "merged",
            &["<span class=\"chip\" title=\"merged\">merged into another feed</span>"],
            &[],
        );
    }
}

#[tokio::test]
async fn what_a_page_says_after_an_action_holds_while_all_polling_is_paused() {
    let fleet = polled().await;
    let plain = [("refresh", "It will be polled as soon as its host allows it."), ("resume", "It is polled again.")];
    for (done, said) in plain {
        says(&get(&fleet, &format!("/feeds/1?done={done}")).await, done, &[said], &[]);
    }
    fleet.ops.set_paused(true).await.unwrap();
    for (done, said) in [
        ("refresh", "It will be polled after polling is resumed."),
        ("resume", "It is active again, and will be polled after polling is resumed."),
        ("requeue", "Its penalty is lifted; it will be polled after polling is resumed."),
        ("added", "Its first poll follows after polling is resumed."),
    ] {
        says(&get(&fleet, &format!("/feeds/1?done={done}")).await, done, &[said], &[plain[0].1, plain[1].1]);
    }
    let list = get(&fleet, "/feeds?done=refresh.2.0").await;
    says(&list, "several", &["Polled after polling is resumed: 2 feeds."], &["Polled soon"]);
    let hosts = get(&fleet, "/hosts").await;
    says(
        &hosts,
        "hosts",
        &["<span class=\"soft\">all polling is paused</span>"],
        &["<span class=\"soft\">polled</span>"],
    );
    let live = get(&fleet, "/").await;
    says(&live, "fleet", &["<span class=\"soft\">when polling is resumed</span>"], &[]);
}

#[tokio::test]
async fn a_feed_that_was_woken_is_polled_although_all_polling_is_paused_if_refreshes_are_served() {
    let fleet = Fleet::with(|config| config.scheduler.refresh_while_paused = true).await;
    let id = fleet.feed(ADDRESS).await;
    fleet.polled(id, &["1"]).await;
    fleet.ops.set_paused(true).await.unwrap();
    let waits = get(&fleet, "/feeds/1").await;
    says(&waits, "not woken", &["<b>when resumed</b>", "is polled for a ping or a refresh only"], &[]);
    fleet.post("/api/v1/feeds/1/refresh", json!(null)).await;
    let said = ["It will be polled as soon as its host allows it."];
    says(&get(&fleet, "/feeds/1?done=refresh").await, "woken", &said, &["<b>when resumed</b>"]);
}

#[tokio::test]
async fn the_list_shows_a_penalty_and_a_single_failure_as_badges() {
    for (state, badge) in
        [(&STATES[2], "<span class=\"chip bad\" title"), (&STATES[1], "<span class=\"chip warn\" title")]
    {
        let fleet = polled().await;
        left(&fleet, state).await;
        says(&get(&fleet, "/feeds").await, state.name, &[badge], &[]);
    }
}
