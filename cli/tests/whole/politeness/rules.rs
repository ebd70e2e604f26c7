//! Host rules that operators change while the fleet runs.

use std::time::Duration;

use load_tests::{Feed, Record, Script};
use serde_json::json;

use super::case::Case;

/// Replaces the run's own.
const RULED_GAP: Duration = Duration::from_secs(4);
const NAME: &str = "as-agreed/1.0 (+https://fleet.example/bot)";
/// The time until every worker has seen a change, and everything that started before it has ended.
const IN_FORCE: Duration = Duration::from_secs(3);

pub(crate) async fn live(case: &Case<'_>) {
    let host = case.host();
    let feeds =
        [case.feed_at(host, Script::feed(Feed::rss())).await, case.feed_at(host, Script::feed(Feed::rss())).await];
    for feed in &feeds {
        case.requests(&feed.path, 2).await;
    }
    let asked = || {
        let mut requests = case.stage.origin.log();
        requests.retain(|request| feeds.iter().any(|feed| *feed.path == *request.path));
        requests.sort_by_key(|request| request.start);
        requests
    };
    let own = |request: &Record| request.header("user-agent").as_deref() != Some(NAME);

    // Returns the requests that follow once a change has reached every worker.
    let next = async |rule| {
        case.rule(host, rule).await;
        tokio::time::sleep(IN_FORCE).await;
        let from = asked().len();
        for feed in &feeds {
            let before = case.stage.origin.requests(&feed.path).len();
            case.requests(&feed.path, before + 2).await;
        }
        asked().split_off(from)
    };

    let rule = json!({"gap": RULED_GAP.as_secs(), "user_agent": NAME, "reason": "agreed by mail"});
    let ruled = next(Some(rule)).await;
    case.require("asked under the agreed name", !ruled.iter().any(own), &ruled.iter().map(own).collect::<Vec<_>>());
    case.require_distance("at the agreed pace", RULED_GAP, &ruled);

    let free = next(None).await;
    case.require("taken back, the own name again", free.iter().all(own), &free.iter().map(own).collect::<Vec<_>>());
    let sooner = free.windows(2).any(|pair| pair[1].start - pair[0].start < RULED_GAP);
    case.require("and the own pace", sooner, &free.len());
}
