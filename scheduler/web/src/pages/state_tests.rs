//! A feed's page in every state: what it says of the feed's future is one thing, wherever on the page it says it.

use std::time::Duration;

use common::feed::Feed;
use common::outcome::{FailureKind, OutcomeKind};
use common::policy::{Penalty, PollState, Status};
use common::time::Clock;
use common::url::FeedId;
use serde_json::json;

use crate::testing::Fleet;
use store::FeedRef;

async fn feed(fleet: &Fleet, id: i64) -> Feed {
    fleet.ops.feed(&FeedRef::Id(FeedId(id))).await.unwrap().unwrap()
}

/// The page of a feed that was polled well once, and then came into a state.
async fn page(fleet: &Fleet) -> String {
    let (status, _, page) = fleet.call("GET", "/feeds/1", &[], "").await;
    assert_eq!(status, 200, "{page}");
    page
}

async fn polled() -> Fleet {
    let fleet = Fleet::new().await;
    let id = fleet.feed("https://a.example/feed").await;
    fleet.polled(id, &["1"]).await;
    fleet
}

/// Has the last poll leave the feed with this status and state.
async fn left(fleet: &Fleet, status: Status, change: impl FnOnce(&mut PollState)) {
    let feed = feed(fleet, 1).await;
    let now = fleet.clock.now();
    let mut state = PollState {
        last_outcome: Some(OutcomeKind::Failed),
        last_status: Some(404),
        consecutive_failures: 3,
        failing_since: Some(now.before(Duration::from_secs(7200))),
        ..feed.state
    };
    change(&mut state);
    let next_due = (status == Status::Active).then(|| now.after(Duration::from_secs(36_000)));
    fleet.store_state(&Feed { status, next_due, ..feed }, state).await;
}

fn boxed(state: &mut PollState, fleet: &Fleet) {
    let until = fleet.clock.now().after(Duration::from_secs(36_000));
    state.penalty = Some(Penalty { kind: FailureKind::Status, until });
}

/// What a page may say only of a feed that is polled.
const POLLED: [&str; 4] = ["<ol class=\"terms\">", "It is polled again", "Refresh now", "in the penalty box"];

#[track_caller]
fn says(page: &str, state: &str, said: &[&str], unsaid: &[&str]) {
    for text in said {
        assert!(page.contains(text), "{state}: {text} is missing:\n{page}");
    }
    for text in unsaid {
        assert!(!page.contains(text), "{state}: {text}:\n{page}");
    }
}

#[tokio::test]
async fn an_active_feed_has_a_next_poll_and_its_reasons() {
    let fleet = Fleet::new().await;
    fleet.feed("https://a.example/feed").await;
    says(&page(&fleet).await, "new", &["Refresh now", "Not polled yet.", "Pause"], &["not planned", "Resume"]);
    let fleet = polled().await;
    let unsaid = [
        "not planned",
        "in the penalty box",
        "Resume</button>",
        "What its publisher could fix</h2>\n<ul class=\"advice\"><li>The server asks",
    ];
    says(&page(&fleet).await, "active", &["<ol class=\"terms\">", "Refresh now", ">in 1 h 40 min</time>"], &unsaid);
}

#[tokio::test]
async fn a_feed_in_the_penalty_box_is_polled_later_and_says_why() {
    let fleet = polled().await;
    left(&fleet, Status::Active, |state| boxed(state, &fleet)).await;
    let said = [
        "It is in the penalty box: 404 Not Found.",
        "3 polls in a row failed",
        "Requeue without its penalty",
        "There is nothing at the feed",
    ];
    says(&page(&fleet).await, "boxed", &said, &["not planned", "not polled", "Resume</button>"]);
    let list = fleet.call("GET", "/feeds", &[], "").await.2;
    says(&list, "boxed in the list", &["<span class=\"chip bad\" title=\"\">404 Not Found</span>"], &[]);
}

#[tokio::test]
async fn a_feed_that_failed_once_has_a_badge_and_no_penalty() {
    let fleet = polled().await;
    left(&fleet, Status::Active, |state| (state.last_status, state.consecutive_failures) = (None, 1)).await;
    says(&page(&fleet).await, "transient", &["Refresh now"], &["penalty box", "not planned"]);
    let list = fleet.call("GET", "/feeds", &[], "").await.2;
    says(&list, "transient in the list", &["<span class=\"chip warn\""], &[]);
}

#[tokio::test]
async fn a_server_that_named_a_time_is_not_asked_to_name_one() {
    let fleet = polled().await;
    let until = fleet.clock.now().after(Duration::from_secs(3600));
    left(&fleet, Status::Active, |state| (state.hold_until, state.throttles) = (Some(until), 1)).await;
    let page = page(&fleet).await;
    says(
        &page,
        "held",
        &["Its server asked us to wait.", "its Retry-After header says for how long. We keep to it."],
        &["spares both sides the guess"],
    );
}

#[tokio::test]
async fn a_blocked_host_and_a_paused_fleet_are_said_beside_the_next_poll() {
    let fleet = polled().await;
    fleet.post("/api/v1/hosts/a.example/block", json!({ "for": 7200 })).await;
    fleet.ops.set_paused(true).await.unwrap();
    let said = ["Nothing is polled on its host before", "All polling is paused at present"];
    says(&page(&fleet).await, "blocked", &said, &["not planned"]);
}

#[tokio::test]
async fn a_feed_that_is_not_polled_has_no_next_poll_anywhere() {
    for (status, said) in [
        (Status::Gone, "Its server answered 410"),
        (Status::Blacklisted, "so it is not polled any more"),
        (Status::Quarantined, "Our own program crashed on it"),
    ] {
        let fleet = polled().await;
        left(&fleet, status, |state| {
            if status == Status::Blacklisted {
                boxed(state, &fleet);
            }
        })
        .await;
        let page = page(&fleet).await;
        says(&page, status.as_str(), &[said, "not planned", "No poll is planned."], &POLLED);
        let may_resume = status != Status::Gone;
        assert_eq!(page.contains("Resume</button>"), may_resume, "{status:?}");
    }
    let fleet = polled().await;
    left(&fleet, Status::Active, |state| boxed(state, &fleet)).await;
    fleet.post("/api/v1/feeds/1/pause", json!(null)).await;
    says(
        &page(&fleet).await,
        "paused",
        &["An operator of this fleet paused it", "not planned", "Resume</button>"],
        &POLLED,
    );
}

#[tokio::test]
async fn a_merged_feed_only_leads_to_the_one_that_it_is() {
    let fleet = polled().await;
    let other = fleet.feed("https://b.example/feed").await;
    left(&fleet, Status::Active, |state| boxed(state, &fleet)).await;
    fleet.moved(1, "https://b.example/feed").await;
    let page = page(&fleet).await;
    let said = [&format!("It turned out to be <a href=\"{other}\">"), "not planned", "Undo the move"];
    says(&page, "merged", &said, &POLLED);
    assert!(!page.contains("What its publisher could fix"), "{page}");
}
