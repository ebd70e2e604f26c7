//! Feeds that are planned without a poll: they were added, or edited since their last one.

use super::order::hours;
use super::*;

#[test]
fn a_feed_added_by_hand_is_due_at_once_and_an_import_is_spread() {
    let config = plain();
    assert_eq!(first_due(noon(), None, &config), noon());
    assert_eq!(first_due(noon(), Some(0.0), &config), noon());
    assert_eq!(first_due(noon(), Some(0.5), &config), noon().after(HOUR / 2));
    assert!(first_due(noon(), Some(0.999), &config) < noon().after(HOUR));
}

/// Returns a feed with one subscriber that was polled at noon, and its planned due time.
fn polled(report: &FetchReport, config: &PolicyConfig) -> (Subject<'static>, Timestamp) {
    let decision = ask(&reader(), report, config);
    (after(&reader(), &decision), decision.next_due.unwrap())
}

#[test]
fn more_readers_bring_a_feed_forward_and_fewer_do_not_put_it_off() {
    let config = plain();
    let policy = Policy { config: &config, load: 0.0, price: config.price };
    let (subject, due) = polled(&unchanged(), &config);
    let popular = Subject { audience: readers(100).audience, ..subject };
    let now = noon().after(5 * MINUTE);
    let (earlier, terms) = replan(&popular, due, now, NO_SALT, &policy).unwrap();
    assert_eq!(earlier, noon().after(15 * MINUTE));
    assert_eq!(terms.last().unwrap().due, earlier);
    let overdue = noon().after(40 * MINUTE);
    assert_eq!(replan(&popular, due, overdue, NO_SALT, &policy).unwrap().0, overdue, "never in the past");
    let unread = Subject { audience: readers(0).audience, ..subject };
    assert_eq!(replan(&unread, due, now, NO_SALT, &policy), None);
}

#[test]
fn a_change_that_changes_nothing_draws_no_new_salt() {
    let config = plain();
    let policy = Policy { config: &config, load: 0.0, price: config.price };
    let salted = decide(&reader(), &unchanged(), noon(), Draw { salt: 0.9, minute: 0.0 }, &policy);
    let subject = after(&reader(), &salted);
    assert_eq!(replan(&subject, salted.next_due.unwrap(), noon().after(MINUTE), NO_SALT, &policy), None);
}

#[test]
fn a_change_of_audience_passes_no_floor_no_hold_and_no_box() {
    let config = plain();
    let policy = Policy { config: &config, load: 0.0, price: config.price };
    let popular = |subject: Subject<'static>| Subject { audience: readers(100).audience, ..subject };
    let now = noon().after(MINUTE);
    for report in [
        hinted(1, hours(6)),
        FetchReport { fresh_for: Some(6 * HOUR), ..unchanged() },
        throttled(Some(noon().after(6 * HOUR))),
        answered(500),
    ] {
        let (subject, due) = polled(&report, &config);
        assert_eq!(replan(&popular(subject), due, now, NO_SALT, &policy), None, "{:?}", report.outcome);
    }
    assert_eq!(
        replan(&readers(100), noon().after(HOUR), now, NO_SALT, &policy),
        None,
        "never polled: its first due time"
    );
    let (subject, due) = polled(&unchanged(), &config);
    let paused = Subject { status: Status::Paused, ..popular(subject) };
    assert_eq!(replan(&paused, due, now, NO_SALT, &policy), None);
}

#[test]
fn a_feed_whose_host_was_given_an_interval_waits_for_what_is_left_of_it() {
    let config = plain();
    let policy = Policy { config: &config, load: 0.0, price: config.price };
    let state = PollState { last_polled: Some(noon()), ..PollState::default() };
    let ruled = Subject { host_interval: Some(3 * HOUR), state, ..reader() };
    let later = |subject: &Subject<'_>, hours: u32| postponed(subject, noon().after(hours * HOUR), NO_SALT, &policy);
    let (due, terms) = later(&ruled, 1).unwrap();
    assert_eq!((due, terms.len(), terms[0].rule), (noon().after(3 * HOUR), 1, Rule::HostInterval));
    assert_eq!([3, 4].map(|hours| later(&ruled, hours)), [None; 2], "it has passed");
    assert_eq!(later(&Subject { host_interval: None, ..ruled }, 1), None);
    assert_eq!(later(&Subject { state: PollState::default(), ..ruled }, 1), None, "never polled");
}

#[test]
fn a_feed_is_brought_forward_only_by_more_than_the_most_salt() {
    let config = plain();
    let policy = Policy { config: &config, load: 0.0, price: config.price };
    let (subject, _) = polled(&unchanged(), &config);
    let replanned = |planned: Timestamp| replan(&subject, planned, noon(), NO_SALT, &policy).map(|(due, _)| due);
    let most_salt = noon().after(66 * MINUTE);
    assert_eq!(replanned(most_salt), None);
    assert_eq!(replanned(most_salt.after(Duration::from_millis(1))), Some(noon().after(HOUR)));
}

#[test]
fn due_times_reach_as_far_as_the_longest_interval_with_its_salt_and_a_move() {
    let config = PolicyConfig { default_interval: 100 * DAY, salt: 0.5, ..plain() };
    assert_eq!(usual_reach(&config), 150 * DAY + OPEN_REACH);
}
