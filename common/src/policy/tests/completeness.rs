//! Feeds that overflow, and feeds that fall silent.

use super::*;
use crate::entry::Entry;
use crate::policy::Pauses;

/// Returns a 200 with this many entries, all of them new, posted one minute apart until the poll.
fn all_new(entries: u32, until: Timestamp) -> FetchReport {
    let dated = |number| Entry { published: Some(until.before(MINUTE * number)), ..Entry::default() };
    let document = Document {
        entries: (0..entries).map(dated).collect(),
        new_entries: entries,
        all_entries: entries,
        none_known: true,
        validators: validators(),
        ..Document::default()
    };
    FetchReport { started: until, ..report(Outcome::Modified(Box::new(document)), Some(200)) }
}

/// Returns a feed with this interval by its category, which was read at noon.
fn read_at_noon() -> Subject<'static> {
    let known = FetchReport { started: noon(), ..news(3) };
    after(&reader(), &ask(&reader(), &known, &plain()))
}

#[test]
fn an_overflow_is_published_once_and_halves_the_interval_until_documents_overlap() {
    let config = plain();
    let first = ask(&read_at_noon(), &all_new(20, noon().after(HOUR)), &config);
    assert_eq!(first.notices.iter().collect::<Vec<_>>(), [Notice::Overflowed]);
    assert_eq!((first.state.gap_since, delay(&first)), (Some(noon()), 30 * MINUTE), "{:?}", first.terms);
    assert_eq!(rules(&first), [Rule::Category, Rule::Overflow]);

    let again = all_new(20, first.next_due.unwrap());
    let second = ask(&after(&read_at_noon(), &first), &again, &config);
    assert_eq!((second.notices.first(), delay(&second)), (None, 15 * MINUTE), "the floor");
    assert_eq!(second.state.gap_since, Some(noon()), "it began at noon");

    let reports = (0..12).map(|_| unchanged());
    let mut feed = after(&read_at_noon(), &second);
    let mut due = second.next_due.unwrap();
    let calmer: Vec<Duration> = reports
        .map(|report| {
            let decision = ask(&feed, &FetchReport { started: due, ..report }, &config);
            (feed, due) = (after(&feed, &decision), decision.next_due.unwrap());
            delay(&decision)
        })
        .collect();
    assert!(calmer.is_sorted() && calmer[0] < HOUR && calmer[11] == HOUR, "{calmer:?}");
    assert_eq!(feed.state.gap_since, Some(noon()), "nothing was recovered");
    let silent = ask(&feed, &all_new(20, due), &config);
    assert_eq!(silent.notices.first(), None, "no document has overlapped since");
    let overlapping = ask(&feed, &FetchReport { started: due, ..news(3) }, &config);
    let third = ask(&after(&feed, &overlapping), &all_new(20, overlapping.next_due.unwrap()), &config);
    assert_eq!(third.notices.first(), Some(Notice::Overflowed), "a new one");
}

#[test]
fn nothing_is_hurried_that_a_person_set_or_that_renames_its_entries_or_that_has_few() {
    let config = plain();
    let wished = Audience { interval: Some(4 * HOUR), ..Audience::default() };
    let wished = Subject { audience: wished, ..read_at_noon() };
    assert_eq!(delay(&ask(&wished, &all_new(20, noon().after(HOUR)), &config)), 4 * HOUR);
    let few = ask(&read_at_noon(), &all_new(1, noon().after(MINUTE)), &config);
    assert_eq!((few.notices.first(), delay(&few)), (Some(Notice::Overflowed), HOUR), "it may have lost some");

    let mut old = all_new(20, noon().before(DAY));
    let mut feed = read_at_noon();
    for hour in 1..4 {
        old.started = noon().after(HOUR * hour);
        let decision = ask(&feed, &old, &config);
        assert_eq!(delay(&decision), if hour == 1 { 30 * MINUTE } else { HOUR }, "poll {hour}");
        feed = after(&feed, &decision);
    }
}

#[test]
fn a_publishers_floor_stays_above_a_feed_that_overflowed() {
    let hints = FeedHints { ttl: Some(3 * HOUR), ..FeedHints::default() };
    let mut overflowed = all_new(20, noon().after(HOUR));
    if let Outcome::Modified(document) = &mut overflowed.outcome {
        document.hints = hints;
    }
    assert_eq!(delay(&ask(&read_at_noon(), &overflowed, &plain())), 3 * HOUR);
}

#[test]
fn two_polls_at_the_same_moment_limit_the_interval_not_for_ever() {
    let config = plain();
    let overflowed = ask(&read_at_noon(), &all_new(20, noon()), &config);
    assert_eq!(overflowed.state.overflow_cap, Some(MINUTE));
    let stored = PollState { overflow_cap: Some(Duration::ZERO), ..overflowed.state };
    for state in [overflowed.state, stored] {
        let feed = Subject { state, ..read_at_noon() };
        let decisions = live(&feed, again(&unchanged(), 40), &config);
        assert_eq!(decisions[39].state.overflow_cap, None);
        assert_eq!(delay(&decisions[39]), HOUR);
    }
}

/// Returns a feed that posted every day at noon for this many days, the last time now.
fn daily(days: u32) -> Subject<'static> {
    let dated = |number| Entry { published: Some(noon().before(DAY * number)), ..Entry::default() };
    let document = Document {
        entries: (0..days).map(dated).collect(),
        new_entries: days,
        all_entries: days,
        ..Document::default()
    };
    let first = report(Outcome::Modified(Box::new(document)), Some(200));
    after(&reader(), &ask(&reader(), &first, &plain()))
}

/// Polls it every hour without news, for ten days. Returns after how many hours it was published as silent, each time.
fn silences(mut feed: Subject<'static>, config: &PolicyConfig) -> Vec<u32> {
    let hours = (1..=240).filter(|hour| {
        let decision = ask(&feed, &FetchReport { started: noon().after(HOUR * *hour), ..unchanged() }, config);
        feed = after(&feed, &decision);
        decision.notices.iter().any(|notice| notice == Notice::Silent)
    });
    hours.collect()
}

#[test]
fn silence_is_published_once_after_two_and_a_half_of_the_longest_pauses() {
    let config = plain();
    assert_eq!(silences(daily(30), &config), [61]);
    assert_eq!(silences(daily(10), &config), [0; 0], "nine pauses are too few");
    assert_eq!(silences(daily(30), &PolicyConfig { silent_factor: 0.0, ..config }), [0; 0]);
}

#[test]
fn a_post_ends_the_silence_and_a_failure_begins_none() {
    let config = plain();
    let mut feed = daily(30);
    let late = FetchReport { started: noon().after(DAY * 3), ..answered(404) };
    assert!(ask(&feed, &late, &config).notices.iter().all(|notice| notice != Notice::Silent));
    let decision = ask(&feed, &FetchReport { started: noon().after(DAY * 3), ..unchanged() }, &config);
    feed = after(&feed, &decision);
    assert_eq!(feed.state.silent_since, Some(noon()));
    let posted = ask(&feed, &all_new(1, noon().after(DAY * 4)), &config);
    assert_eq!(posted.state.silent_since, None);
    assert_eq!(posted.state.pauses.longest(), Some(DAY * 4));
}

#[test]
fn pauses_between_posts_that_one_poll_found_count() {
    let polled = noon().after(DAY * 9);
    let mut report = all_new(3, polled);
    if let Outcome::Modified(document) = &mut report.outcome {
        for (entry, day) in document.entries.iter_mut().zip([8, 7, 1]) {
            entry.published = Some(noon().after(DAY * day));
        }
    }
    let longest = |report: &FetchReport| ask(&daily(30), report, &plain()).state.pauses.longest().unwrap();
    assert!(longest(&report) > DAY * 5, "six days, which fade a little");
    if let Outcome::Modified(document) = &mut report.outcome {
        document.entries.reverse();
    }
    assert!(longest(&report) > DAY * 5);
}

#[test]
fn pauses_fade_and_come_back_equal_from_json() {
    let posts = (0..400).map(|day| noon().after(DAY * day));
    let vacation = Pauses::default().posted(noon().before(DAY * 40));
    let pauses = posts.fold(vacation, Pauses::posted);
    let longest = pauses.longest().unwrap();
    assert!(longest > DAY * 12 && longest < DAY * 15, "40 days, more than a year later: {longest:?}");
    assert_eq!(serde_json::from_str::<Pauses>(&serde_json::to_string(&pauses).unwrap()).unwrap(), pauses);
}

#[test]
fn a_pause_of_a_feed_that_posts_often_fades_no_faster() {
    let pause = Pauses::default().posted(noon()).posted(noon().after(HOUR * 4));
    // A post every two hours for a month.
    let pauses = (1..=360).fold(pause, |pauses, post| pauses.posted(noon().after(HOUR * (4 + 2 * post))));
    let longest = pauses.longest().unwrap();
    assert!(longest > MINUTE * 210 && longest < MINUTE * 230, "four hours, a month later: {longest:?}");
}

#[test]
fn a_burst_that_is_found_long_after_it_is_an_overflow_and_at_the_next_poll_a_silence() {
    let config = plain();
    let burst = FetchReport { started: noon().after(DAY * 8), ..all_new(20, noon().after(DAY)) };
    let first = ask(&daily(30), &burst, &config);
    assert_eq!(first.notices.iter().collect::<Vec<_>>(), [Notice::Overflowed]);
    let later = FetchReport { started: noon().after(DAY * 8 + HOUR), ..unchanged() };
    let second = ask(&after(&daily(30), &first), &later, &config);
    assert_eq!(second.notices.iter().collect::<Vec<_>>(), [Notice::Silent]);
}

#[test]
fn a_feed_that_renames_its_entries_and_dates_them_in_the_future_is_not_hurried() {
    let config = plain();
    let mut events = all_new(20, noon().after(DAY * 30));
    let mut feed = read_at_noon();
    for hour in 1..4 {
        events.started = noon().after(HOUR * hour);
        let decision = ask(&feed, &events, &config);
        assert_eq!(delay(&decision), if hour == 1 { 30 * MINUTE } else { HOUR }, "poll {hour}");
        feed = after(&feed, &decision);
    }
}

#[test]
fn entries_dated_at_the_last_poll_were_renamed_and_those_dated_later_are_new() {
    let overflowing = Subject { state: PollState { overflowing: true, ..read_at_noon().state }, ..read_at_noon() };
    let cap = |newest: Timestamp| {
        let report = FetchReport { started: noon().after(HOUR), ..all_new(20, newest) };
        ask(&overflowing, &report, &plain()).state.overflow_cap
    };
    assert_eq!([cap(noon()), cap(noon().after(SECOND))], [None, Some(30 * MINUTE)]);
}

#[test]
fn a_limit_after_an_overflow_grows_by_a_quarter_and_ends_at_a_day() {
    let relaxed = |cap: Duration| {
        let state = PollState { overflow_cap: Some(cap), ..PollState::default() };
        ask(&Subject { state, ..reader() }, &unchanged(), &plain()).state.overflow_cap
    };
    assert_eq!([relaxed(DAY / 2), relaxed(DAY * 4 / 5)], [Some(15 * HOUR), None]);
}

#[test]
fn a_document_of_many_entries_that_are_all_new_counts_in_full_the_first_time_alone() {
    let document = |new_entries: u32, all_entries: u32| {
        let document = Document { new_entries, all_entries, validators: validators(), ..Document::default() };
        FetchReport { started: noon().after(HOUR), ..report(Outcome::Modified(Box::new(document)), Some(200)) }
    };
    for (was_all_new, new_entries, all_entries, is_all_new, items) in [
        (false, 5, 5, true, 5.0),
        (true, 5, 5, true, 0.0),
        (true, 1, 20, false, 1.0),
        (false, 19, 20, false, 19.0),
        (false, 4, 4, false, 4.0),
    ] {
        let state = PollState { all_new: was_all_new, ..read_at_noon().state };
        let state = ask(&Subject { state, ..reader() }, &document(new_entries, all_entries), &plain()).state;
        assert_eq!((state.all_new, state.rhythm.items()), (is_all_new, items), "{new_entries} of {all_entries}");
    }
    assert!(!ask(&reader(), &document(5, 5), &plain()).state.all_new, "nothing was known before");
}

#[test]
fn a_condition_was_ignored_only_if_there_was_one_and_the_document_has_nothing_else() {
    let ignored = |conditional: bool, entries: Vec<Entry>, new_entries: u32| {
        let document = Document { entries, new_entries, validators: validators(), ..Document::default() };
        let report = FetchReport { conditional, ..report(Outcome::Modified(Box::new(document)), Some(200)) };
        ask(&reader(), &report, &plain()).state.ignored_conditions
    };
    assert_eq!(ignored(true, Vec::new(), 0), 1);
    assert_eq!(ignored(false, Vec::new(), 0), 0);
    assert_eq!(ignored(true, vec![Entry::default()], 0), 0, "an entry changed");
    assert_eq!(ignored(true, Vec::new(), 1), 0);
}

#[test]
fn a_date_that_is_not_between_two_polls_does_not_count_as_a_post() {
    let polled = noon().after(DAY);
    let newest = |date: Timestamp| {
        let report = FetchReport { started: polled, ..all_new(1, date) };
        ask(&daily(30), &report, &plain()).state.pauses.newest().unwrap()
    };
    for date in [noon().after(MINUTE), polled] {
        assert_eq!(newest(date), date);
    }
    for date in [noon().before(HOUR), noon(), polled.after(HOUR)] {
        assert_eq!(newest(date), polled, "{date}");
    }
}

#[test]
fn posts_less_than_an_hour_apart_are_one_and_nothing_is_known_before_the_first() {
    let seen = |minutes: [u32; 2]| {
        let posts = minutes.map(|minute| Timestamp::EPOCH.after(MINUTE * minute));
        <(u32, u32, u8)>::from(posts.into_iter().fold(Pauses::default(), Pauses::posted))
    };
    assert_eq!([seen([1000, 1059]), seen([1000, 1060])], [(0, 1059, 0), (60, 1060, 1)]);
    let none = Pauses::default();
    assert!(none.is_unknown() && none.newest().is_none());
    let one = none.posted(noon());
    assert!(!one.is_unknown() && one.newest() == Some(noon()));
}
