//! Section 3: each step, and their order.

use super::*;
use crate::policy::Category;

pub(super) fn hours(hours: u32) -> FeedHints {
    FeedHints { ttl: Some(hours * HOUR), ..FeedHints::default() }
}

#[test]
fn every_publishers_floor_holds_and_the_highest_wins() {
    let hints = FeedHints { ttl: Some(2 * HOUR), update_period: Some(3 * HOUR), ..FeedHints::default() };
    let report = FetchReport { fresh_for: Some(5 * HOUR), ..hinted(1, hints) };
    let decision = ask(&reader(), &report, &plain());
    assert_eq!(delay(&decision), 5 * HOUR);
    assert_eq!(rules(&decision), [Rule::Category, Rule::Ttl, Rule::UpdatePeriod, Rule::Freshness]);
    let dues: Vec<_> = decision.terms.iter().map(|term| term.due.since(noon()).as_secs() / 3600).collect();
    assert_eq!(dues, [1, 2, 3, 5]);
    let lower = FetchReport { fresh_for: Some(HOUR / 2), ..hinted(1, hints) };
    assert_eq!(rules(&ask(&reader(), &lower, &plain())), [Rule::Category, Rule::Ttl, Rule::UpdatePeriod]);
}

#[test]
fn publishers_floors_hold_against_a_person_and_an_sla() {
    let impatient = Audience { interval: Some(MINUTE), ..Audience::default() };
    let sla = Audience { sla: true, ..Audience::default() };
    for audience in [impatient, sla] {
        let subject = Subject { audience, ..reader() };
        assert_eq!(delay(&ask(&subject, &hinted(1, hours(2)), &plain())), 2 * HOUR);
        let fresh = FetchReport { fresh_for: Some(3 * HOUR), ..unchanged() };
        assert_eq!(delay(&ask(&subject, &fresh, &plain())), 3 * HOUR);
    }
}

#[test]
fn floors_count_up_to_a_day_and_the_ceiling_is_shown() {
    for report in [hinted(1, hours(1000)), FetchReport { fresh_for: Some(365 * DAY), ..unchanged() }] {
        let decision = ask(&reader(), &report, &plain());
        assert_eq!(delay(&decision), DAY);
        assert_eq!(rules(&decision).last(), Some(&Rule::Ceiling));
    }
    let weekly = Subject { audience: Audience { interval: Some(7 * DAY), ..Audience::default() }, ..reader() };
    let decision = ask(&weekly, &hinted(1, hours(1000)), &plain());
    assert_eq!(delay(&decision), 7 * DAY, "the ceiling is the hints' and not the interval's");
}

#[test]
fn a_throttled_refresh_does_not_end_the_freshness_before_it() {
    let fresh = FetchReport { fresh_for: Some(DAY), ..news(1) };
    let known = after(&reader(), &ask(&reader(), &fresh, &plain()));
    let refreshed = noon().after(HOUR);
    let busy = FetchReport { started: refreshed, ..throttled(Some(refreshed.after(MINUTE))) };
    let decision = ask(&known, &busy, &plain());
    assert_eq!((decision.next_due, decision.state.fresh_until), (Some(noon().after(DAY)), Some(noon().after(DAY))));
    let longer = FetchReport { fresh_for: Some(DAY), ..busy };
    assert_eq!(delay(&ask(&known, &longer, &plain())), DAY, "a 429 may state its own");
    let later = FetchReport { started: noon().after(2 * DAY), ..throttled(Some(noon().after(2 * DAY + MINUTE))) };
    assert_eq!(delay(&ask(&known, &later, &plain())), HOUR, "nothing is left of it");
}

#[test]
fn a_304_that_says_nothing_does_not_end_the_freshness_before_it() {
    let fresh = FetchReport { fresh_for: Some(5 * HOUR), ..news(1) };
    let known = after(&reader(), &ask(&reader(), &fresh, &plain()));
    let at_hour = |hour: u32, report: FetchReport| FetchReport { started: noon().after(hour * HOUR), ..report };
    let decision = ask(&known, &at_hour(1, unchanged()), &plain());
    let end = Some(noon().after(5 * HOUR));
    assert_eq!((decision.next_due, decision.state.fresh_until), (end, end), "a refresh in the middle");
    assert_eq!(delay(&ask(&known, &at_hour(5, unchanged()), &plain())), HOUR, "nothing is left of it");
    let at_once = FetchReport { fresh_for: Some(Duration::ZERO), ..at_hour(1, unchanged()) };
    assert_eq!(delay(&ask(&known, &at_once, &plain())), HOUR, "a 304 that says no-cache");
    assert_eq!(delay(&ask(&known, &at_hour(1, same_bytes(validators())), &plain())), HOUR, "a 200 replaces all");
    let ahead = after(&reader(), &ask(&reader(), &FetchReport { started: noon().after(99 * HOUR), ..fresh }, &plain()));
    assert_eq!(delay(&ask(&ahead, &unchanged(), &plain())), HOUR, "said by a clock that was ahead");
}

#[test]
fn hints_of_the_last_document_stand_while_nothing_changes() {
    let hinted_reader = after(&reader(), &ask(&reader(), &hinted(1, hours(6)), &plain()));
    for report in [unchanged(), same_bytes(validators())] {
        let decision = ask(&hinted_reader, &report, &plain());
        assert_eq!((delay(&decision), decision.state.hints), (6 * HOUR, hours(6)));
    }
    assert_eq!(
        delay(&ask(&hinted_reader, &failed(FailureKind::Dns), &plain())),
        6 * HOUR,
        "a failure is no way around them"
    );
    assert_eq!(delay(&ask(&hinted_reader, &news(1), &plain())), HOUR, "a new document replaces them");
}

#[test]
fn freshness_comes_with_any_answer_and_a_failure_does_not_end_it() {
    let fresh_for = Some(5 * HOUR);
    for report in [news(1), unchanged(), throttled(Some(noon().after(SECOND)))] {
        let decision = ask(&reader(), &FetchReport { fresh_for, ..report }, &plain());
        assert_eq!(delay(&decision), 5 * HOUR);
        assert_eq!(decision.state.fresh_until, decision.next_due);
    }
    let ignored = FetchReport { fresh_for, ..answered(502) };
    assert_eq!(delay(&ask(&reader(), &ignored, &plain())), 15 * MINUTE, "an error page's max-age says nothing");

    let fresh = after(&reader(), &ask(&reader(), &FetchReport { fresh_for, ..unchanged() }, &plain()));
    let refreshed = FetchReport { started: noon().after(HOUR), ..failed(FailureKind::Timeout) };
    let decision = ask(&fresh, &refreshed, &plain());
    assert_eq!(decision.next_due, Some(noon().after(5 * HOUR)), "a person's refresh failed: the promise still stands");
}

#[test]
fn skipped_time_is_left_and_shown() {
    let hints = FeedHints { skip_hours: 0b11 << 13, ..FeedHints::default() };
    let decision = ask(&reader(), &hinted(1, hints), &plain());
    assert_eq!(decision.next_due, Some(at("2026-10-07T15:00:00Z")));
    assert_eq!(rules(&decision), [Rule::Category, Rule::Skip]);
    let weekend = FeedHints { skip_days: 1 << 3, skip_hours: 1, ..FeedHints::default() };
    let daily = Subject { audience: Audience { interval: Some(DAY), ..Audience::default() }, ..reader() };
    assert_eq!(ask(&daily, &hinted(1, weekend), &plain()).next_due, Some(at("2026-10-09T01:00:00Z")));
}

#[test]
fn salt_comes_on_top_of_skipped_time() {
    let skipping = after(
        &reader(),
        &ask(&reader(), &hinted(1, FeedHints { skip_hours: 1 << 16, ..FeedHints::default() }), &plain()),
    );
    let config = plain();
    let draw = Draw { salt: 0.5, minute: 0.0 };
    let decision =
        decide(&skipping, &answered(500), noon(), draw, &Policy { config: &config, load: 0.0, price: config.price });
    assert_eq!(rules(&decision), [Rule::Category, Rule::PenaltyBox, Rule::Skip, Rule::Salt]);
    assert_eq!(decision.next_due, Some(at("2026-10-07T17:12:00Z")), "half of a tenth of the four hours");
}

#[test]
fn salt_and_hot_minutes_do_not_lead_into_skipped_time() {
    let hints = FeedHints { skip_hours: 1 << 14, ..FeedHints::default() };
    let subject = Subject { audience: Audience { interval: Some(110 * MINUTE), ..Audience::default() }, ..reader() };
    for hot_minutes in [false, true] {
        let config = PolicyConfig { hot_minutes, ..plain() };
        let draw = Draw { salt: 0.99, minute: 0.99 };
        let policy = Policy { config: &config, load: 0.0, price: config.price };
        let decision = decide(&subject, &hinted(1, hints), noon(), draw, &policy);
        let due = decision.next_due.unwrap();
        assert!(due >= at("2026-10-07T15:00:00Z") && due < at("2026-10-07T15:15:00Z"), "{due}");
        assert_eq!(hot_minutes, rules(&decision).last() == Some(&Rule::HotMinute));
    }
    // Before the skipped hour, in a hot minute from which the move leads into that hour.
    let config = PolicyConfig { hot_minutes: true, ..plain() };
    let subject = Subject { audience: Audience { interval: Some(108 * MINUTE), ..Audience::default() }, ..reader() };
    let draw = Draw { salt: 0.0, minute: 0.99 };
    let decision =
        decide(&subject, &hinted(1, hints), noon(), draw, &Policy { config: &config, load: 0.0, price: config.price });
    assert_eq!(rules(&decision), [Rule::Person, Rule::HotMinute, Rule::Skip, Rule::HotMinute]);
    assert!(decision.next_due.unwrap() > at("2026-10-07T15:04:00Z"));
}

#[test]
fn a_feed_without_validators_costs_twice() {
    let decision = ask(&reader(), &same_bytes(Validators::default()), &plain());
    assert_eq!((delay(&decision), rules(&decision)), (2 * HOUR, vec![Rule::Category, Rule::NoValidators]));
    let failing = ask(&after(&readers(21), &decision), &failed(FailureKind::Malformed), &plain());
    assert_eq!(delay(&failing), HOUR, "twice 15 minutes is below the hour of a bad feed");
}

#[test]
fn the_stretch_applies_to_the_floors_too() {
    let unvalidated = Document { hints: hours(3), ..Document::default() };
    let report = report(Outcome::Modified(Box::new(unvalidated)), Some(200));
    assert_eq!(delay(&ask(&reader(), &report, &plain())), 6 * HOUR);
}

#[test]
fn the_stretch_applies_to_a_bad_feed_with_a_floor_too() {
    let unvalidated = Document { hints: hours(2), ..Document::default() };
    let report = report(Outcome::Modified(Box::new(unvalidated)), Some(200));
    let decisions = live(&reader(), [report, failed(FailureKind::NotAFeed)], &plain());
    assert_eq!(delays(&decisions), [4 * HOUR; 2]);
}

#[test]
fn a_feed_with_a_clock_in_it_costs_like_one_that_never_answers_304() {
    let clockwork = live(&reader(), again(&news(0), 3), &plain());
    assert!(!rules(&clockwork[1]).contains(&Rule::NoValidators));
    assert!(rules(&clockwork[2]).contains(&Rule::NoValidators));
    let posting = live(&reader(), again(&news(1), 9), &plain());
    assert!(
        posting.iter().all(|decision| !rules(decision).contains(&Rule::NoValidators)),
        "each download was worth it"
    );
}

#[test]
fn a_server_that_never_answers_304_costs_twice_until_it_does() {
    let ignoring = live(&reader(), again(&same_bytes(validators()), 3), &plain());
    assert!(!rules(&ignoring[1]).contains(&Rule::NoValidators), "twice may be chance");
    assert!(rules(&ignoring[2]).contains(&Rule::NoValidators));
    let subject = after(&reader(), &ignoring[2]);
    let changed = ask(&subject, &news(1), &plain());
    assert!(rules(&changed).contains(&Rule::NoValidators), "a changed document proves nothing");
    assert_eq!(delay(&ask(&subject, &unchanged(), &plain())), HOUR);
    let unconditional = FetchReport { conditional: false, ..same_bytes(validators()) };
    let decisions = live(&reader(), again(&unconditional, 5), &plain());
    assert!(decisions.iter().all(|decision| !rules(decision).contains(&Rule::NoValidators)), "nobody asked for a 304");
}

#[test]
fn the_same_bytes_again_and_again_stretch_further_up_to_a_day() {
    let unconditional = FetchReport { conditional: false, ..same_bytes(Validators::default()) };
    let decisions = live(&reader(), again(&unconditional, 40), &plain());
    let delays = delays(&decisions);
    assert_eq!((delays[0], delays[1]), (2 * HOUR, 2 * HOUR * 11 / 10));
    assert!(delays.is_sorted());
    assert_eq!(delays[39], DAY);
    assert_eq!(rules(&decisions[39]), [Rule::Category, Rule::NoValidators, Rule::EqualDownloads]);
    let subject = after(&reader(), &decisions[39]);
    assert_eq!(delay(&ask(&subject, &news(1), &plain())), HOUR);
}

#[test]
fn a_slow_feed_is_not_made_faster_by_the_stretchs_ceiling() {
    let rare = Subject { host_interval: Some(2 * DAY), ..reader() };
    assert_eq!(delay(&ask(&rare, &same_bytes(Validators::default()), &plain())), 2 * DAY);
}

#[test]
fn category_a_is_exempt_from_stretching_and_from_hot_minutes() {
    let config = PolicyConfig { hot_minutes: true, ..plain() };
    let sla = Subject { audience: Audience { sla: true, ..Audience::default() }, ..reader() };
    assert_eq!(category(&sla), Category::A);
    let before_a_hot_minute = FetchReport { started: at("2026-10-07T12:59:30Z"), ..same_bytes(Validators::default()) };
    let state = PollState { equal_downloads: 50, ignored_conditions: 50, ..PollState::default() };
    let decision = ask(&Subject { state, ..sla }, &before_a_hot_minute, &config);
    assert_eq!(decision.next_due, Some(at("2026-10-07T13:00:30Z")));
}

#[test]
fn the_penalty_comes_after_floors_and_stretch() {
    let hinted_reader = after(&reader(), &ask(&reader(), &hinted(1, hours(6)), &plain()));
    let decision = ask(&hinted_reader, &answered(500), &plain());
    assert_eq!(
        (delay(&decision), rules(&decision)),
        (6 * HOUR, vec![Rule::Category, Rule::Ttl]),
        "the floor is longer"
    );
    let decision = ask(&hinted_reader, &answered(404), &plain());
    assert_eq!(rules(&decision), [Rule::Category, Rule::Ttl, Rule::PenaltyBox]);
}

#[test]
fn salt_adds_up_to_a_tenth_of_the_whole_interval_after_all_ceilings() {
    let config = plain();
    let policy = Policy { config: &config, load: 0.0, price: config.price };
    let salted = |subject: &Subject<'_>, report: &FetchReport, salt: f64| {
        delay(&decide(subject, report, noon(), Draw { salt, minute: 0.0 }, &policy))
    };
    assert_eq!(salted(&reader(), &unchanged(), 0.5), 63 * MINUTE);
    assert_eq!(
        salted(&reader(), &answered(404), 0.5),
        DAY + 72 * MINUTE,
        "the ceiling of 24 h is passed by salt alone"
    );
    assert_eq!(salted(&reader(), &throttled(Some(noon().after(10 * HOUR))), 0.5), 10 * HOUR + 3 * MINUTE);
    assert_eq!(salted(&reader(), &unchanged(), 0.0), HOUR);
}

#[test]
fn an_slas_salt_fits_into_what_it_leaves() {
    let mut config = PolicyConfig { salt: 1.0, ..plain() };
    let sla = Subject { audience: Audience { sla: true, ..Audience::default() }, ..reader() };
    let draw = Draw { salt: 1.0, minute: 0.0 };
    let salted = |config: &PolicyConfig| {
        delay(&decide(&sla, &unchanged(), noon(), draw, &Policy { config, load: 0.0, price: config.price }))
    };
    assert_eq!(salted(&config), 90 * SECOND, "two minutes less half a minute for the fetch");
    config.category.a.fetch_allowance = 60 * SECOND;
    assert_eq!(salted(&config), 60 * SECOND);
    config.salt = 0.1;
    config.category.a.fetch_allowance = Duration::ZERO;
    assert_eq!(salted(&config), 66 * SECOND);
}

#[test]
fn a_due_time_in_a_hot_minute_moves_into_the_open_minutes_of_the_next_fifteen() {
    let config = PolicyConfig { hot_minutes: true, ..plain() };
    let moved = |started: &str, minute: f64| {
        let report = FetchReport { started: at(started), ..unchanged() };
        let draw = Draw { salt: 0.0, minute };
        decide(&reader(), &report, report.started, draw, &Policy { config: &config, load: 0.0, price: config.price })
            .next_due
            .unwrap()
    };
    assert_eq!(moved("2026-10-07T11:00:00Z", 0.0), at("2026-10-07T12:04:00Z"));
    assert_eq!(moved("2026-10-07T11:03:59.999Z", 0.0), at("2026-10-07T12:04:00Z"));
    assert_eq!(moved("2026-10-07T11:00:00Z", 0.999_999_9), at("2026-10-07T12:14:59.999Z"));
    assert_eq!(moved("2026-10-07T11:20:30Z", 0.0), at("2026-10-07T12:21:00Z"));
    assert_eq!(moved("2026-10-07T11:20:30Z", 0.999_999_9), at("2026-10-07T12:34:59.999Z"));
    assert_eq!(moved("2026-10-07T11:55:00Z", 0.999_999_9), at("2026-10-07T13:09:59.999Z"));
    for open in ["2026-10-07T11:04:00Z", "2026-10-07T11:06:00Z", "2026-10-07T11:59:59.999Z"] {
        assert_eq!(moved(open, 0.5), at(open).after(HOUR));
    }
}

#[test]
fn a_feed_that_is_polled_every_minute_leaves_a_hot_minute_by_the_next_door() {
    let config = PolicyConfig { hot_minutes: true, min_interval: SECOND, ..plain() };
    let subject = Subject { audience: Audience { interval: Some(MINUTE), ..Audience::default() }, ..reader() };
    for (started, door) in
        [("2026-10-07T12:09:30Z", "2026-10-07T12:11:00Z"), ("2026-10-07T12:59:30Z", "2026-10-07T13:04:00Z")]
    {
        let report = FetchReport { started: at(started), ..unchanged() };
        let due = ask(&subject, &report, &config).next_due.unwrap();
        assert_eq!(due, at(door).after(MINUTE / 2), "in the middle of the first open minute");
    }
}

#[test]
fn a_report_that_comes_late_makes_the_feed_due_now_and_not_before() {
    let now = noon().after(3 * HOUR);
    let config = plain();
    let decision =
        decide(&reader(), &unchanged(), now, NO_SALT, &Policy { config: &config, load: 0.0, price: config.price });
    assert_eq!((decision.next_due, rules(&decision)), (Some(now), vec![Rule::Category, Rule::Late]));
}

#[test]
fn a_workers_clock_that_is_ahead_moves_nothing_into_the_future() {
    let report = FetchReport { started: noon().after(DAY), ..unchanged() };
    let config = plain();
    let decision =
        decide(&reader(), &report, noon(), NO_SALT, &Policy { config: &config, load: 0.0, price: config.price });
    assert_eq!((decision.next_due, decision.state.last_polled), (Some(noon().after(HOUR)), Some(noon())));
}

#[test]
fn a_ttl_of_a_week_is_honoured_in_full_where_the_ceiling_allows_it_and_a_failure_is_retried_before() {
    let week = 7 * DAY;
    let hints = FeedHints { ttl: Some(week), ..FeedHints::default() };
    let cut = ask(&reader(), &hinted(1, hints), &plain());
    assert_eq!(delay(&cut), DAY);
    let explained = explain(Category::D, noon(), &cut.terms);
    let expected = "policy.hint_ceiling cut it back to 1 d";
    assert!(explained.iter().any(|term| term.text == expected), "{explained:?}");

    let config = PolicyConfig { hint_ceiling: 30 * DAY, ..plain() };
    let full = ask(&reader(), &hinted(1, hints), &config);
    assert_eq!(delay(&full), week);
    assert!(!rules(&full).contains(&Rule::Ceiling));
    for failure in [failed(FailureKind::Timeout), answered(500), answered(404), failed(FailureKind::NotAFeed)] {
        let failing = ask(&after(&reader(), &full), &failure, &config);
        assert_eq!(delay(&failing), DAY, "a day, as with the usual ceiling: the document of a week ago did not come");
    }
    let mut persists = after(&reader(), &full);
    persists.state.consecutive_failures = 9;
    assert_eq!(delay(&ask(&persists, &failed(FailureKind::Timeout), &config)), DAY);
    let unchanged = ask(&after(&reader(), &full), &unchanged(), &config);
    assert_eq!(delay(&unchanged), week, "and through each 304");
    let fresh = FetchReport { fresh_for: Some(week), ..hinted(1, FeedHints::default()) };
    let fresh = ask(&reader(), &fresh, &config);
    let failing = ask(&after(&reader(), &fresh), &failed(FailureKind::Timeout), &config);
    assert!(delay(&failing) >= week, "what is fresh is not fetched again");
}
