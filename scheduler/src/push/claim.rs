//! Whether a feed's pushes are reliable, learned from its new entries: one that is older than the push that came with it was not
//! announced, and neither is one that came without a push. The store counts both in the transaction that stores the entries.

use std::time::Duration;

use common::feed::Feed;
use common::policy::Rule;
use common::push::FeedPush;
use common::time::Timestamp;
use store::PushClaim;

/// A push so shortly before a poll, or while it ran, announced what the poll found.
const SHORTLY: Duration = Duration::from_secs(30);
/// How long before its push an entry may be dated, or one interval of its feed if that is longer.
const DATED_WITHIN: Duration = Duration::from_secs(15 * 60);

/// Returns what makes new entries of a poll announced; `None`: they say nothing, because the feed is not subscribed, or was never read
/// before.
pub(crate) fn claim_of_poll(feed: &Feed, started: Timestamp) -> Option<PushClaim> {
    let push = feed.push.as_ref().filter(|_| feed.state.last_success.is_some())?;
    let at = announced_at(push, feed.state.last_polled, started);
    Some(PushClaim { since: at.map(|at| at.before(dated_within(feed))) })
}

/// Returns what makes new entries of a delivery announced: one that is much older was in an earlier delivery that did not arrive.
pub(crate) fn claim_of_delivery(feed: &Feed, came: Timestamp) -> Option<PushClaim> {
    feed.push.as_ref()?;
    Some(PushClaim { since: Some(came.before(dated_within(feed))) })
}

/// Returns the time of the push that announced what a poll found: one that caused a poll since the last one, or any
/// that came just now.
fn announced_at(push: &FeedPush, last_polled: Option<Timestamp>, started: Timestamp) -> Option<Timestamp> {
    let caused = push.light_at.filter(|light| last_polled.is_none_or(|last| *light >= last));
    caused.or_else(|| push.heard_at.filter(|heard| *heard >= started.before(SHORTLY)))
}

/// Returns the feed's interval without pushes: what is found later than that would have been found by a poll.
fn dated_within(feed: &Feed) -> Duration {
    let unpushed = feed.terms.iter().take_while(|term| term.rule != Rule::Pushed).last();
    let interval = unpushed.zip(feed.state.last_polled).map(|(term, polled)| term.due.since(polled));
    interval.unwrap_or_default().max(DATED_WITHIN)
}

#[cfg(test)]
mod tests {
    use common::push::{PushKind, PushState};

    use super::*;

    #[test]
    fn what_came_since_the_last_poll_or_just_now_is_announced() {
        let at = |seconds| Timestamp::from_millis(1_790_000_000_000).after(Duration::from_secs(seconds));
        let push = |heard: Option<u64>, light: Option<u64>| FeedPush {
            kind: PushKind::WebSub,
            hub: "https://hub.example/".into(),
            topic: "https://a.example/".into(),
            state: PushState::Verified,
            lease_until: None,
            announced: 0,
            missed: 0,
            deliveries: 0,
            heard_at: heard.map(at),
            light_at: light.map(at),
        };
        let judged = |heard, light| announced_at(&push(heard, light), Some(at(1000)), at(2000));
        assert_eq!(judged(Some(1500), Some(1400)), Some(at(1400)), "a ping since the last poll");
        assert_eq!(judged(Some(1500), None), None, "a delivery of something else");
        assert_eq!(judged(Some(1980), None), Some(at(1980)), "a delivery that crosses the poll");
        assert_eq!((judged(Some(900), Some(900)), judged(None, None)), (None, None));
    }
}
