//! Poll rate: P15 to P24, P38. (`week.rs` tests P21 over a whole day and many feeds.)

use std::collections::HashSet;
use std::time::Duration;

use common::time::Timestamp;
use load_tests::{Delivery, Feed, Script};
use serde_json::{Value, json};

use super::INTERVAL;
use super::case::{Case, Polled, Subscribed};

fn time(value: &Value) -> Option<Timestamp> {
    serde_json::from_value(value.clone()).ok()
}

/// Returns the time from a poll to the next due time.
fn delay(poll: &Polled) -> Duration {
    poll.next_due.map_or(Duration::ZERO, |due| due.since(poll.at))
}

pub(crate) async fn p15(case: &Case<'_>) {
    let feed = case.feed(Script::feed(Feed::rss())).await;
    let requests = case.requests(&feed.path, 6).await;
    let history = case.remembered(&feed, 6).await;
    for (poll, next) in history.iter().zip(history.iter().skip(1)) {
        case.require("due no sooner than the interval", delay(poll) >= INTERVAL, &delay(poll));
        case.require("polled no sooner than due", Some(next.at) >= poll.next_due, &(next.at, poll.next_due));
    }
    for (poll, next) in history.iter().zip(requests.iter().skip(1)) {
        let due = poll.next_due.unwrap_or_default();
        // The origin uses another of the machine's clocks, in whole milliseconds.
        let arrived = next.wall.after(Duration::from_millis(2));
        case.require("arrived no sooner than due", arrived >= due, &(next.wall, due));
    }
}

pub(crate) async fn p16(case: &Case<'_>) {
    let four = Duration::from_secs(4);
    let feed = || Script::feed(Feed::rss());
    let fresh = [
        ("max-age of 200 and 304", feed().header("Cache-Control", "max-age=4")),
        ("max-age less Age", feed().header("Cache-Control", "public, max-age=10").header("Age", "6")),
        ("Expires less Date", feed().header("Expires", "{date+4}")),
        ("max-age of a 429", Script::status(429).header("Cache-Control", "max-age=4")),
        ("the last answer's", feed().then(feed().header("Cache-Control", "max-age=4"))),
    ];
    for (what, script) in fresh {
        let feed = case.feed(script).await;
        let requests = case.requests(&feed.path, 3).await;
        let from = usize::from(what == "the last answer's");
        case.require_distance(what, four, &requests[from.min(requests.len())..]);
    }
    // These do not apply: fresh only in shared caches, or not at all.
    for value in ["s-maxage=3600", "no-cache, max-age=3600", "max-age=3600, no-store"] {
        let feed = case.feed(feed().header("Cache-Control", value)).await;
        case.requests(&feed.path, 2).await;
    }
}

/// Adds a feed with a shorter interval set by a person, waits for one poll, and checks that it is due no sooner than
/// `least` after it.
async fn due_no_sooner_than(case: &Case<'_>, feed: Feed, least: Duration) -> Subscribed {
    let path = case.path();
    case.stage.origin.set(&path, Script::feed(feed));
    let feed = case.subscribe(case.host(), &path, json!({"interval": 1})).await;
    let history = case.remembered(&feed, 1).await;
    let promised = history.first().map(delay).unwrap_or_default();
    case.require(&format!("due at least {least:?} after the poll"), promised >= least, &promised);
    feed
}

pub(crate) async fn p18(case: &Case<'_>) {
    let feed = due_no_sooner_than(case, Feed::rss().extra("<ttl>1</ttl>"), Duration::from_secs(60)).await;
    due_no_sooner_than(case, Feed::rss().extra("<ttl>90</ttl>"), Duration::from_secs(90 * 60)).await;
    tokio::time::sleep(INTERVAL * 3).await;
    let requests = case.stage.origin.requests(&feed.path);
    case.require_distance(
        "within a minute the person's interval counts for nothing",
        Duration::from_secs(60),
        &requests,
    );
}

pub(crate) async fn p19(case: &Case<'_>) {
    let period = |period: &str, frequency: u32| {
        let text =
            format!("<sy:updatePeriod>{period}</sy:updatePeriod><sy:updateFrequency>{frequency}</sy:updateFrequency>");
        Feed::rss().extra(text)
    };
    let feed = due_no_sooner_than(case, period("hourly", 900), Duration::from_secs(4)).await;
    due_no_sooner_than(case, period("hourly", 1), Duration::from_secs(3600)).await;
    due_no_sooner_than(case, period("daily", 2), Duration::from_secs(12 * 3600)).await;
    let requests = case.requests(&feed.path, 3).await;
    case.require_distance("an hour's 900th part", Duration::from_secs(4), &requests);
}

pub(crate) async fn p20(case: &Case<'_>) {
    const HOUR: i64 = 3_600_000;
    let hour = super::now().millis() / HOUR % 24;
    // This hour and the next: the run may start at the end of an hour.
    let skipped = [hour, (hour + 1) % 24];
    let hours = format!("<skipHours><hour>{}</hour><hour>{}</hour></skipHours>", skipped[0], skipped[1]);
    let feed = case.feed(Script::feed(Feed::rss().extra(hours))).await;
    case.remembered(&feed, 1).await;
    let due = time(&case.view(&feed).await["next_due"]).unwrap_or_default();
    case.require("due in no skipped hour", !skipped.contains(&(due.millis() / HOUR % 24)), &due);

    let names = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];
    let day = |at: Timestamp| names[usize::try_from(at.millis() / (24 * HOUR) % 7).unwrap()];
    let skipped = [day(super::now()), day(super::now().after(Duration::from_secs(24 * 3600)))];
    let days = format!("<skipDays><day>{}</day><day>{}</day></skipDays>", skipped[0], skipped[1]);
    let feed = case.feed(Script::feed(Feed::rss().extra(days))).await;
    case.remembered(&feed, 1).await;
    let due = time(&case.view(&feed).await["next_due"]).unwrap_or_default();
    case.require("due on no skipped day", !skipped.contains(&day(due)), &due);
    case.expect("requests of a feed that skips today", 1, case.stage.origin.requests(&feed.path).len());
}

pub(crate) async fn p21(case: &Case<'_>) {
    let mut feeds = Vec::new();
    for _ in 0..30 {
        feeds.push(case.feed(Script::feed(Feed::rss())).await);
    }
    let mut slots = [0; 5];
    for feed in &feeds {
        let history = case.remembered(feed, 1).await;
        let salt = history.first().map(delay).unwrap_or_default().saturating_sub(INTERVAL).as_millis();
        // Salt is a tenth of the interval; its fifths correspond to the minutes of an hour for a slower fleet.
        slots[usize::try_from(salt / 40).unwrap_or(usize::MAX).min(4)] += 1;
    }
    let share = feeds.len() / slots.len();
    case.require("no fifth of the salt has three times its share", slots.iter().all(|slot| *slot < 3 * share), &slots);
}

pub(crate) async fn p22(case: &Case<'_>) {
    let feed = case.feed(Script::feed(Feed::rss())).await;
    let history = case.remembered(&feed, 6).await;
    let salts: HashSet<Duration> = history.iter().take(6).map(delay).collect();
    case.require("six polls drew at least three salts", salts.len() >= 3, &salts);
}

pub(crate) async fn p23(case: &Case<'_>) {
    for status in [200, 401, 403, 406, 404, 500, 503, 204] {
        let script = if status == 200 { Script::feed(Feed::rss()) } else { Script::status(status) };
        let feed = case.feed(script).await;
        // A second subscription does not add polls.
        let again = case.subscribe(feed.host, &feed.path, json!({"subscribers": 2})).await;
        case.expect("the known feed is answered", feed.id, again.id);
        let requests = case.requests(&feed.path, 2).await;
        case.require_distance(&format!("status {status}: no second request"), INTERVAL, &requests);
        let fields = |number: usize| {
            let request = requests.get(number)?;
            let kept = |name: &String| !name.starts_with("if-") && name != "a-im";
            Some(request.headers().map(|(name, _)| name.to_ascii_lowercase()).filter(kept).collect::<Vec<_>>())
        };
        case.expect("fields of the next try", fields(0), fields(1));
    }
}

/// Returns the failures, to be tested in sequence or one by one.
fn failures() -> Vec<(&'static str, Script)> {
    let feed = || Script::feed(Feed::rss());
    vec![
        ("closed", feed().deliver(Delivery::Close)),
        ("cut", feed().deliver(Delivery::Truncated(50))),
        ("silent", Script::silent()),
        ("503", Script::status(503)),
        ("502", Script::status(502)),
        ("500", Script::status(500)),
        ("404", Script::status(404)),
        ("403", Script::status(403)),
        ("204", Script::status(204)),
        ("page", Script::body("text/plain", "no feed")),
        ("malformed", Script::raw("SSH-2.0-x\r\n")),
        ("loop", Script::redirect(302, "#")),
        ("refused address", Script::redirect(302, "http://169.254.169.254/")),
        ("too large", Script::body("application/rss+xml", "x".repeat(400_000))),
        ("429", Script::status(429)),
    ]
}

pub(crate) async fn p24(case: &Case<'_>) {
    let mut feeds = Vec::new();
    for (what, script) in failures() {
        feeds.push((what, case.feed(script).await));
    }
    let path = case.path();
    case.stage.origin.set(&path, Script::status(404));
    let nowhere = format!("http://nowhere.test:{}{path}", case.stage.origin.address(0).port());
    let id = case.add(&nowhere, json!({})).await;
    feeds.push(("no such name", Subscribed { id, path, host: 0 }));
    for (what, feed) in feeds {
        let history = case.remembered(&feed, 2).await;
        for poll in &history {
            case.require(&format!("{what}: no sooner than a good answer"), delay(poll) >= INTERVAL, &delay(poll));
            case.require(&format!("{what}: is no good answer"), poll.outcome != "modified", &poll.outcome);
        }
        for pair in history.windows(2) {
            case.require(&format!("{what}: not before it is due"), Some(pair[1].at) >= pair[0].next_due, &pair[1]);
        }
    }
}

pub(crate) async fn p38(case: &Case<'_>) {
    // Expensive and cheap kinds of failure in turn, with the minimum delay after each: the cheap ones must not shorten
    // the run's delay.
    let run = [("500", 2000), ("closed", 2000), ("204", 4000), ("502", 4000), ("404", 4000)];
    let script = |(wanted, _)| failures().into_iter().find(|(what, _)| *what == wanted).unwrap().1;
    let feed = case.feed(Script::sequence(run.map(script))).await;
    let history = case.remembered(&feed, run.len()).await;
    for ((what, least), poll) in run.into_iter().zip(&history) {
        let enough = delay(poll) >= Duration::from_millis(least);
        case.require(&format!("{what} in a run of failures: at least {least} ms"), enough, &delay(poll));
    }
    let box_ = case.view(&feed).await["penalty"].clone();
    case.require("the feed is in the penalty box", !box_.is_null(), &box_);
}
