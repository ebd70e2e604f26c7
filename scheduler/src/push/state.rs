//! The life of a push subscription: when it is requested, renewed, retried and given up. Pure.

use std::time::Duration;

use common::push::{PushKind, PushState};
use common::time::Timestamp;
use store::PushSubscription;

/// How long a hub may take to verify a request before it is sent again, and the first delay after a failure.
const FIRST_RETRY: Duration = Duration::from_secs(60);
/// The longest delay between two requests.
const LAST_RETRY: Duration = Duration::from_secs(24 * 60 * 60);
/// The shortest one, while a lease is about to expire.
const SHORTEST_RETRY: Duration = Duration::from_millis(250);
/// A verified subscription counts as lapsed after this many failed renewals: its hub is dead, whatever the lease says.
const DEAD_AFTER: u32 = 3;
/// How often a hub gets the request to unsubscribe. Afterwards its deliveries are answered with 410.
const LEFT_AFTER: u32 = 3;
/// The maximum time that a request waits for its verification: after that it is dropped.
const VERIFIED_WITHIN: Duration = Duration::from_secs(24 * 60 * 60);
/// A subscription that its hub denied is requested again after this time.
const DENIED_FOR: Duration = Duration::from_secs(24 * 60 * 60);
/// rssCloud registrations last 25 hours and are renewed every day.
const CLOUD_LEASE: Duration = Duration::from_secs(25 * 60 * 60);
const CLOUD_RENEWAL: Duration = Duration::from_secs(24 * 60 * 60);
/// A renewal with less of the lease left does not follow the hub to another host. Renewals of short leases are frequent: with them a
/// hub could have us call a third party as often as it likes.
const NEAR_THE_END: Duration = Duration::from_secs(300);
/// A hub that did not get the answer to a verification may repeat it for this long.
const REPEATED_WITHIN: Duration = Duration::from_secs(300);
/// No lease counts for longer.
const LONGEST_LEASE: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// What is to be done with a subscription that is due.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Store this, and then send the request.
    Ask(Box<PushSubscription>),
    /// No further request is sent.
    Remove,
}

/// Returns the step of a subscription that is due. `spread` is a number in [0, 1).
pub(super) fn step(of: &PushSubscription, now: Timestamp, spread: f64) -> Step {
    let mut next = of.clone();
    if of.asked_at.is_some() {
        next.failures = of.failures.saturating_add(1);
        next.reason = Some("it accepted the request and did not verify it".to_owned());
    }
    if of.state == PushState::Unsubscribing && (next.failures >= LEFT_AFTER || of.kind == PushKind::RssCloud) {
        return Step::Remove;
    }
    lapse(&mut next, now);
    next.asked_at = Some(now);
    next.act_at = retry_at(&next, now, spread);
    Step::Ask(Box::new(next))
}

/// Returns the subscription after a request that failed. `not_before`: its hub accepts no request before then.
pub(super) fn failed(
    of: &PushSubscription,
    reason: String,
    not_before: Option<Timestamp>,
    now: Timestamp,
    spread: f64,
) -> PushSubscription {
    let failures = of.failures.saturating_add(1);
    let mut next = PushSubscription { asked_at: None, failures, reason: Some(reason), ..of.clone() };
    lapse(&mut next, now);
    next.act_at = retry_at(&next, now, spread);
    if let Some(until) = not_before {
        next.act_at = next.act_at.max(until.min(now.after(LAST_RETRY)));
    }
    next.act_at = before_the_end(&next, now);
    next
}

/// Returns the subscription after its host's gate was closed until then: nothing was requested, so nothing failed, and an earlier
/// request still waits for its verification.
pub(super) fn put_off(of: &PushSubscription, until: Timestamp, now: Timestamp, spread: f64) -> PushSubscription {
    let mut next = of.clone();
    lapse(&mut next, now);
    let by = FIRST_RETRY.mul_f64(spread);
    next.act_at = until.max(now.after(SHORTEST_RETRY)).after(by.min(until.since(now)));
    next.act_at = before_the_end(&next, now);
    next
}

/// Returns the subscription after a cloud took a registration.
pub(super) fn registered(of: &PushSubscription, now: Timestamp, spread: f64) -> PushSubscription {
    let (lease, renewal) = (CLOUD_LEASE, CLOUD_RENEWAL.mul_f64(1.0 - 0.1 * spread));
    verified_for(of, now.after(lease), now.after(renewal))
}

/// Returns the subscription after a hub verified it, if a request waits for that. The lease is renewed at half of its time or a
/// little earlier, so that renewals spread.
pub(super) fn verified(
    of: &PushSubscription,
    lease: Duration,
    now: Timestamp,
    spread: f64,
) -> Option<PushSubscription> {
    if of.state == PushState::Unsubscribing || !is_pending(of, now) {
        return None;
    }
    let lease = lease.min(LONGEST_LEASE);
    let renewal = lease.mul_f64(0.5 - 0.1 * spread);
    Some(verified_for(of, now.after(lease), now.after(renewal)))
}

/// Returns whether this verification was confirmed a moment ago, with this lease: its answer was lost on the way.
pub(super) fn is_verified_again(of: &PushSubscription, lease: Duration, now: Timestamp) -> bool {
    let lease = lease.min(LONGEST_LEASE);
    let left = of.lease_until.map(|until| until.since(now)).filter(|left| !left.is_zero());
    of.state == PushState::Verified && left.is_some_and(|left| left <= lease && lease - left <= REPEATED_WITHIN)
}

/// Returns whether a redirect to another host may be followed: not in a renewal that is near the end of its lease. When the lease has
/// lapsed, requests are a minute apart at least.
pub(super) fn may_leave_host(of: &PushSubscription, now: Timestamp) -> bool {
    of.state != PushState::Verified || of.lease_until.is_none_or(|until| until.since(now) >= NEAR_THE_END)
}

fn verified_for(of: &PushSubscription, lease_until: Timestamp, act_at: Timestamp) -> PushSubscription {
    PushSubscription {
        state: PushState::Verified,
        asked_at: None,
        lease_until: Some(lease_until),
        act_at,
        failures: 0,
        reason: None,
        ..of.clone()
    }
}

/// Returns the subscription after its hub refused it.
pub(super) fn denied(of: &PushSubscription, reason: String, now: Timestamp, spread: f64) -> PushSubscription {
    PushSubscription {
        state: PushState::Denied,
        asked_at: None,
        lease_until: None,
        act_at: now.after(DENIED_FOR.mul_f64(1.0 + 0.2 * spread)),
        reason: Some(reason),
        ..of.clone()
    }
}

/// Returns whether a request waits for its verification.
pub(super) fn is_pending(of: &PushSubscription, now: Timestamp) -> bool {
    of.asked_at.is_some_and(|asked| now.since(asked) <= VERIFIED_WITHIN)
}

/// Notes that the lease has expired or that the hub is dead.
fn lapse(of: &mut PushSubscription, now: Timestamp) {
    let has_expired = of.lease_until.is_some_and(|until| until <= now);
    if of.state == PushState::Verified && (has_expired || of.failures >= DEAD_AFTER) {
        of.state = PushState::Lapsed;
    }
}

/// Returns the time of the next request if nothing comes of this one: later and later, but several times before a lease
/// expires.
fn retry_at(of: &PushSubscription, now: Timestamp, spread: f64) -> Timestamp {
    let doubled = 1_u32.checked_shl(of.failures).unwrap_or(u32::MAX);
    let delay = FIRST_RETRY.saturating_mul(doubled).min(LAST_RETRY).mul_f64(1.0 + 0.2 * spread);
    let left = of.lease_until.map(|until| until.since(now)).filter(|left| !left.is_zero());
    let delay = left.map_or(delay, |left| delay.min(left / 4)).max(SHORTEST_RETRY);
    before_the_end(&PushSubscription { act_at: now.after(delay), ..of.clone() }, now)
}

/// A verified subscription is looked at when its lease expires at the latest.
fn before_the_end(of: &PushSubscription, now: Timestamp) -> Timestamp {
    let end = of.lease_until.filter(|until| of.state == PushState::Verified && *until > now);
    end.map_or(of.act_at, |end| of.act_at.min(end))
}

#[cfg(test)]
mod tests {
    use common::url::FeedId;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000).after(Duration::from_secs(seconds))
    }

    fn pending() -> PushSubscription {
        PushSubscription {
            id: "ab".into(),
            feed: FeedId(1),
            kind: PushKind::WebSub,
            hub: "https://hub.example/".into(),
            topic: "https://a.example/feed".into(),
            secret: None,
            state: PushState::Pending,
            asked_at: None,
            lease_until: None,
            act_at: at(0),
            failures: 0,
            reason: None,
            revision: 1,
            announced: 0,
            missed: 0,
            deliveries: 0,
            heard_at: None,
            light_at: None,
            created: at(0),
        }
    }

    fn asked(of: &PushSubscription, now: Timestamp) -> PushSubscription {
        match step(of, now, 0.5) {
            Step::Ask(next) => *next,
            Step::Remove => panic!("removed"),
        }
    }

    #[test]
    fn a_lease_is_renewed_before_half_of_its_time_and_never_left_to_expire() {
        for (lease, spread) in [(5, 0.0), (5, 0.99), (864_000, 0.5)] {
            let lease = Duration::from_secs(lease);
            let first = asked(&pending(), at(0));
            let verified = verified(&first, lease, at(1), spread).unwrap();
            assert_eq!((verified.state, verified.lease_until), (PushState::Verified, Some(at(1).after(lease))));
            let renewal = verified.act_at.since(at(1));
            assert!(renewal <= lease / 2 && renewal >= lease.mul_f64(0.4), "{renewal:?} of {lease:?}");
            // Unanswered renewals are repeated several times before the end.
            let (mut of, mut times) = (verified, 0);
            while of.act_at < at(1).after(lease) {
                of = asked(&of, of.act_at);
                times += 1;
            }
            assert!(times >= 3, "{times} requests");
        }
    }

    #[test]
    fn an_unverified_request_counts_as_a_failure_and_waits_longer_and_longer() {
        let mut of = asked(&pending(), at(0));
        let mut last = Duration::ZERO;
        for failures in 0..30 {
            assert_eq!(of.failures, failures);
            let delay = of.act_at.since(of.asked_at.unwrap());
            assert!(delay >= last && delay <= LAST_RETRY.mul_f64(1.2));
            last = delay;
            of = asked(&of, of.act_at);
        }
        assert!(of.reason.unwrap().contains("did not verify"));
    }

    #[test]
    fn only_a_pending_request_is_verified() {
        assert_eq!(verified(&pending(), LAST_RETRY, at(1), 0.0), None);
        let asked = asked(&pending(), at(0));
        let once = verified(&asked, LAST_RETRY, at(1), 0.0).unwrap();
        assert_eq!(verified(&once, LAST_RETRY, at(2), 0.0), None, "a second verification of one request");
        assert!(is_verified_again(&once, LAST_RETRY, at(2)), "its answer may have been lost");
        assert!(!is_verified_again(&once, LAST_RETRY, at(1).after(REPEATED_WITHIN * 2)), "but not hours later");
        assert!(!is_verified_again(&once, LAST_RETRY * 2, at(2)), "nor with another lease");
        assert!(!is_verified_again(&asked, LAST_RETRY, at(2)), "nor before any");
        let left = PushSubscription { state: PushState::Unsubscribing, ..asked.clone() };
        assert_eq!(verified(&left, LAST_RETRY, at(1), 0.0), None);
        assert_eq!(verified(&asked, LAST_RETRY, at(3 * 86_400), 0.0), None, "far too late");
    }

    #[test]
    fn a_hub_that_does_not_renew_is_dead_after_three_failures_and_comes_back() {
        let live = verified(&asked(&pending(), at(0)), Duration::from_secs(864_000), at(1), 0.0).unwrap();
        let mut of = live.clone();
        for failure in 1..=3 {
            assert_eq!(of.state, PushState::Verified);
            of = failed(&of, "no".into(), None, at(1000 * failure), 0.0);
        }
        assert_eq!(of.state, PushState::Lapsed);
        let again = verified(&asked(&of, at(9000)), Duration::from_secs(10), at(9001), 0.0).unwrap();
        assert_eq!((again.state, again.failures), (PushState::Verified, 0));
        let expired = asked(&live, at(864_002));
        assert_eq!(expired.state, PushState::Lapsed);
    }

    #[test]
    fn a_busy_host_is_no_failure() {
        let live = verified(&asked(&pending(), at(0)), Duration::from_secs(864_000), at(1), 0.0).unwrap();
        let renewed = asked(&live, at(2));
        let mut of = renewed.clone();
        for second in [60, 120, 180] {
            of = put_off(&of, at(second), at(second - 59), 0.5);
            assert!(of.act_at >= at(second));
        }
        assert_eq!(
            PushSubscription { act_at: renewed.act_at, ..of.clone() },
            renewed,
            "an earlier request waits as before"
        );
        assert_eq!(put_off(&of, at(900_000), at(864_100), 0.5).state, PushState::Lapsed, "its lease ends all the same");
    }

    #[test]
    fn a_hub_that_says_when_to_retry_still_fails_and_is_asked_later_and_later() {
        let mut of = asked(&pending(), at(0));
        let mut delays = Vec::new();
        for failures in 1..=12 {
            let now = of.act_at;
            of = failed(&of, "503".into(), Some(now.after(Duration::from_secs(1))), now, 0.0);
            assert_eq!(of.failures, failures);
            delays.push(of.act_at.since(now));
        }
        assert!(delays.is_sorted() && delays[0] >= FIRST_RETRY && delays[11] == LAST_RETRY, "{delays:?}");
        let later = failed(&pending(), "503".into(), Some(at(7200)), at(0), 0.0);
        assert_eq!(later.act_at, at(7200), "never before the time that it named");
        let far = failed(&pending(), "503".into(), Some(at(86_400 * 365)), at(0), 0.0);
        assert_eq!(far.act_at, at(86_400));
        let mut left = PushSubscription { state: PushState::Unsubscribing, ..pending() };
        for _ in 0..LEFT_AFTER {
            left = failed(&left, "503".into(), Some(left.act_at.after(LAST_RETRY)), left.act_at, 0.0);
        }
        assert_eq!(step(&left, left.act_at, 0.0), Step::Remove, "it is forgotten all the same");
    }

    #[test]
    fn a_subscription_that_is_left_is_forgotten_after_a_few_tries_and_a_cloud_at_once() {
        let mut of = PushSubscription { state: PushState::Unsubscribing, ..pending() };
        for _ in 0..LEFT_AFTER {
            of = asked(&of, of.act_at);
        }
        assert_eq!(step(&of, of.act_at, 0.0), Step::Remove);
        let cloud = PushSubscription { kind: PushKind::RssCloud, state: PushState::Unsubscribing, ..pending() };
        assert_eq!(step(&cloud, at(0), 0.0), Step::Remove);
    }

    #[test]
    fn a_cloud_is_asked_again_every_day_before_its_registration_ends() {
        for spread in [0.0, 0.99] {
            let of = registered(&pending(), at(0), spread);
            let renewal = of.act_at.since(at(0));
            assert!(renewal <= CLOUD_RENEWAL && renewal > CLOUD_RENEWAL.mul_f64(0.89));
            assert!(of.lease_until.unwrap() > of.act_at);
        }
    }
}
