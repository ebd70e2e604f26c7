//! Publishers that consent to polls more often than `min_interval`.

use super::*;
use crate::host::HostRule;

/// Every feed wants to be polled all the time.
fn eager(floor_by_consent: bool) -> PolicyConfig {
    PolicyConfig { mode: PolicyMode::Adaptive, interval: SECOND, floor_by_consent, ..plain() }
}

fn ttl(ttl: Duration) -> FeedHints {
    FeedHints { ttl: Some(ttl), ..FeedHints::default() }
}

#[test]
fn a_publishers_word_counts_below_our_floor_if_the_operator_says_so() {
    let said = hinted(1, ttl(5 * MINUTE));
    assert_eq!(delay(&ask(&reader(), &said, &eager(false))), 15 * MINUTE);
    assert_eq!(delay(&ask(&reader(), &said, &eager(true))), 5 * MINUTE);
    let several = FeedHints { update_period: Some(8 * MINUTE), ..ttl(5 * MINUTE) };
    assert_eq!(delay(&ask(&reader(), &hinted(1, several), &eager(true))), 8 * MINUTE, "the longest counts");
    let fresh = FetchReport { fresh_for: Some(3 * MINUTE), ..unchanged() };
    assert_eq!(delay(&ask(&reader(), &fresh, &eager(true))), 3 * MINUTE);
    assert_eq!(
        delay(&ask(&reader(), &hinted(1, ttl(SECOND)), &eager(true))),
        MINUTE,
        "as often as under an SLA at most"
    );
    assert_eq!(delay(&ask(&reader(), &hinted(1, ttl(2 * HOUR)), &eager(true))), 2 * HOUR);
}

#[test]
fn who_says_nothing_or_fails_does_not_consent() {
    let config = eager(true);
    assert_eq!(delay(&ask(&reader(), &news(1), &config)), 15 * MINUTE);
    let stale = FetchReport { fresh_for: Some(Duration::ZERO), ..unchanged() };
    assert_eq!(delay(&ask(&reader(), &stale, &config)), 15 * MINUTE);
    let hinted_reader = after(&reader(), &ask(&reader(), &hinted(1, ttl(5 * MINUTE)), &config));
    assert!(delay(&ask(&hinted_reader, &failed(FailureKind::Dns), &config)) >= 15 * MINUTE);
}

#[test]
fn a_host_rule_decides_for_its_host() {
    let rule = |floor_by_consent| HostRule { floor_by_consent, ..HostRule::default() };
    let said = hinted(1, ttl(5 * MINUTE));
    for (of_host, of_fleet, expected) in [(Some(true), false, 5), (Some(false), true, 15), (None, true, 5)] {
        let rule = rule(of_host);
        let subject = Subject::new(Audience::default(), Some(&rule));
        assert_eq!(delay(&ask(&subject, &said, &eager(of_fleet))), expected * MINUTE);
    }
}

#[test]
fn a_busy_feed_is_polled_as_often_as_its_publisher_says() {
    // Thousands of readers make a poll worth more than its price at once.
    let config = PolicyConfig { interval: Duration::ZERO, ..eager(true) };
    let subject = readers(1_000_000);
    let decision = ask(&subject, &hinted(20, ttl(5 * MINUTE)), &config);
    assert!((5 * MINUTE..15 * MINUTE).contains(&delay(&decision)), "{decision:?}");
}
