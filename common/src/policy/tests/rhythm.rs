//! When a feed posts: what is learned about it, and how that affects its interval.

use super::*;
use crate::entry::Entry;

fn dated(dates: impl IntoIterator<Item = Timestamp>) -> Document {
    let entries: Vec<Entry> =
        dates.into_iter().map(|date| Entry { published: Some(date), ..Entry::default() }).collect();
    Document { new_entries: u32::try_from(entries.len()).unwrap(), entries, ..Document::default() }
}

fn aged(ages: impl IntoIterator<Item = Duration>) -> Document {
    dated(ages.into_iter().map(|age| noon().before(age)))
}

/// Returns what a feed's first document shows, read at noon.
fn first(document: &Document) -> Rhythm {
    Rhythm::default().observed(document, noon())
}

/// Returns a feed that posts each day at this hour, watched for a hundred days.
fn daily(hour: u32) -> Rhythm {
    let midnight = at("2026-06-29T00:00:00Z");
    let posts = (0..100).map(|day| midnight.after(day * DAY + hour * HOUR + HOUR / 2));
    posts.fold(Rhythm::default().watched(midnight), |rhythm, post| rhythm.observed(&dated([post]), post.after(HOUR)))
}

/// Returns the interval in hours for one subscriber after a poll at this time, at the default price.
fn interval(rhythm: &Rhythm, polled: &str) -> f64 {
    adaptive::interval(rhythm, at(polled), 1.0, 0.1, DAY).as_secs_f64() / 3600.0
}

#[test]
fn the_first_documents_dates_stand_for_the_history_that_was_not_watched() {
    let daily: Vec<_> = (0..30).map(|day| day * DAY).collect();
    let rhythm = first(&aged(daily.clone()));
    assert!((0.6..=1.0).contains(&rhythm.per_day()), "{rhythm:?}");
    let yearly = first(&aged([DAY, 365 * DAY, 730 * DAY])).per_day();
    assert!(yearly < 0.05, "{yearly}");
    let unknown = Rhythm::default().per_day();
    assert!((unknown - 0.1).abs() < 1e-9, "an item in ten days: {unknown}");
    let undated = Document { entries: vec![Entry::default()], new_entries: 1, ..Document::default() };
    assert_eq!(first(&undated).per_day(), unknown);
    assert_eq!(first(&dated([noon().after(DAY)])).per_day(), unknown, "announced for tomorrow");

    let report = report(Outcome::Modified(Box::new(aged(daily))), Some(200));
    assert_eq!(ask(&reader(), &report, &plain()).state.rhythm, rhythm, "and not 30 items at once");
}

#[test]
fn a_date_before_1970_counts_in_its_hour_and_on_its_weekday() {
    // A Wednesday; the last millisecond before 1970 is in the same hour.
    let dates = [at("1969-12-31T23:00:00Z"), Timestamp::from_millis(-1)];
    let (hours, weekdays) = first(&dated(dates)).profile();
    let most = |shares: &[f32]| (0..shares.len()).max_by(|a, b| shares[*a].total_cmp(&shares[*b]));
    assert_eq!((most(&hours), most(&weekdays)), (Some(23), Some(2)));
    for date in [Timestamp::MIN, at("1925-07-20T20:17:00Z"), at("1969-12-31T16:00:00Z")] {
        let rhythm = first(&dated([date]));
        assert!(interval(&rhythm, "2026-07-01T12:00:00Z") > 0.0, "{date}");
    }
}

#[test]
fn the_rate_follows_what_is_seen_and_fades() {
    let mut rhythm = Rhythm::default().watched(noon());
    for day in 1..=120 {
        let four = Document { new_entries: 4, ..Document::default() };
        rhythm = rhythm.observed(&four, noon().after(day * DAY));
    }
    assert!((rhythm.per_day() - 3.6).abs() < 0.1, "four a day, drawn to the prior by a tenth: {rhythm:?}");
    let quiet = rhythm.watched(noon().after(210 * DAY));
    assert!(quiet.per_day() < 0.2, "{quiet:?}");
    assert_eq!(
        rhythm.watched(noon().after(120 * DAY - MINUTE)).to_bytes()[8..16],
        rhythm.to_bytes()[8..16],
        "a clock that is a little behind moves nothing"
    );
}

#[test]
fn the_rate_is_learned_again_once_a_clock_that_was_ahead_is_right() {
    let ahead = Rhythm::steady(30.0, 30.0, noon().after(365 * DAY));
    let quiet = |rhythm: Rhythm| rhythm.watched(noon()).watched(noon().after(60 * DAY)).per_day();
    assert!(quiet(ahead) < 0.5 * ahead.per_day(), "{}", quiet(ahead));
    let renamed = ahead.doubted(&renamed(None), noon());
    assert!(quiet(renamed) < 0.5 * ahead.per_day(), "{}", quiet(renamed));
}

#[test]
fn a_feed_that_posts_in_the_morning_is_polled_just_after_it_and_left_alone_before() {
    let rhythm = daily(8);
    let (after, before) = (interval(&rhythm, "2026-10-07T09:45:00Z"), interval(&rhythm, "2026-10-07T07:45:00Z"));
    assert!(after > 2.0 * before, "{after} h in the quiet of the day, {before} h before the post");
    let even = Rhythm::steady(30.0, 30.0, noon());
    let alike = ["2026-10-07T09:45:00Z", "2026-10-07T07:45:00Z"].map(|polled| interval(&even, polled));
    assert!((alike[0] - alike[1]).abs() < 1e-6, "{alike:?}");
}

#[test]
fn a_feed_that_rests_at_the_weekend_is_left_alone_then() {
    let monday = at("2026-06-29T00:00:00Z");
    let working = (0..100_u32).filter(|day| day % 7 < 5).map(|day| monday.after(day * DAY + 12 * HOUR));
    let rhythm = working
        .fold(Rhythm::default().watched(monday), |rhythm, post| rhythm.observed(&dated([post]), post.after(HOUR)));
    let [saturday, tuesday] = ["2026-10-10T00:30:00Z", "2026-10-06T00:30:00Z"].map(|polled| interval(&rhythm, polled));
    assert!(saturday > 1.2 * tuesday, "{saturday} h on a Saturday, {tuesday} h on a Tuesday");
}

#[test]
fn only_new_entries_teach_an_hour() {
    let start = at("2026-10-07T00:00:00Z");
    let learned =
        |document: &Document| Rhythm::default().watched(start).observed(document, start.after(6 * HOUR)).profile().0;
    let even = Rhythm::default().profile().0;
    assert_ne!(learned(&dated([start.after(HOUR)])), even);
    let changed = Document { new_entries: 0, ..dated([start.after(HOUR)]) };
    assert_eq!(learned(&changed), even, "a changed entry");
    assert_eq!(learned(&dated([start.before(HOUR)])), even, "older than the last look, and no telling when it came");
    let soon = Rhythm::default().watched(start).observed(&dated([start.before(HOUR)]), start.after(2 * HOUR));
    assert!(soon.profile().0[1] > 1.0, "it came between two looks that are close: {:?}", soon.profile().0);
}

#[test]
fn a_feed_that_just_posted_is_polled_sooner_for_some_hours() {
    let posted = |hours: u32| {
        Rhythm::default()
            .watched(noon().before(90 * DAY))
            .observed(&dated([noon()]), noon())
            .watched(noon().after(hours * HOUR))
    };
    let interval = |hours: u32| adaptive::interval(&posted(hours), noon().after(hours * HOUR), 1.0, 0.1, 2 * DAY);
    let [at_once, later, next_day] = [0, 6, 24].map(interval);
    assert!(at_once < later && later < next_day, "{at_once:?} {later:?} {next_day:?}");
    assert_eq!(posted(5).quiet_for(noon().after(6 * HOUR)), Some(6.0));
    let stored = Rhythm::from_bytes(&posted(5).to_bytes());
    assert_eq!(stored.quiet_for(noon().after(30 * HOUR)), Some(30.0), "from the last document on, and in the store");
    assert_eq!(posted(400 * 24).quiet_for(noon().after(401 * DAY)), None, "forgotten after a year");
    assert_eq!(first(&aged([800 * DAY])).quiet_for(noon()), None);
    let mut old = posted(5).to_bytes();
    old[14..16].fill(0);
    assert_eq!(Rhythm::from_bytes(&old).quiet_for(noon()), None, "stored by an older version");
}

/// Two feeds had as many items, and are quiet since. One of them posts many at once.
#[test]
fn a_feed_whose_items_come_in_groups_is_expected_to_post_a_group() {
    let minute = HOUR / 60;
    let quiet = |ages: Vec<Duration>| first(&aged(ages)).watched(noon().after(120 * DAY)).per_day();
    let alone = quiet((0..16).map(|item| item * DAY).collect());
    let together = quiet((0..16).map(|item| 15 * DAY * (item / 8) + item * minute).collect());
    assert!(together > 2.0 * alone && together < 5.0 * alone, "{together} {alone}");
}

#[test]
fn items_within_an_hour_are_one_group_also_with_the_last_one_of_the_document_before() {
    let (start, minute) = (noon(), HOUR / 60);
    let before = first(&aged([30 * minute]));
    let grouped = |dates: [Option<Timestamp>; 8]| {
        let entries = dates.map(|date| Entry { published: date, ..Entry::default() }).to_vec();
        let document = Document { entries, new_entries: 8, ..Document::default() };
        let bytes = before.observed(&document, start.after(DAY)).to_bytes();
        [bytes[47], bytes[48]]
    };
    let after = |waits: fn(u32) -> Duration| {
        grouped(std::array::from_fn(|item| Some(noon().after(waits(u32::try_from(item).unwrap())))))
    };
    assert_eq!(after(|item| item * HOUR / 60), [9, 1], "half an hour after the last one");
    assert_eq!(after(|item| HOUR + item * HOUR / 60), [9, 2], "later");
    assert_eq!(after(|item| item * DAY / 9), [9, 8], "the first of them belongs to the last one");
    assert_eq!(after(|item| DAY - item * DAY / 9), [9, 9], "the other order");
    assert_eq!(grouped([None; 8]), [9, 2], "without dates they are one");
}

#[test]
fn groups_that_an_older_version_did_not_count_are_single_items() {
    let mut bytes = Rhythm::steady(3.0, 30.0, noon()).to_bytes();
    let single = Rhythm::from_bytes(&bytes).per_day();
    assert!((single - 0.1).abs() < 1e-6, "{single}");
    bytes[47..49].copy_from_slice(&[200, 20]);
    let grouped = Rhythm::from_bytes(&bytes).per_day();
    assert!((grouped - (3.0 + 0.4 * 202.0 / 22.0) / 34.0).abs() < 1e-6, "{grouped}");
}

#[test]
fn a_rhythm_comes_back_from_its_bytes_and_foreign_bytes_are_none() {
    for rhythm in [Rhythm::default(), daily(3), Rhythm::steady(3.0, 30.0, Timestamp::MAX)] {
        assert_eq!(Rhythm::from_bytes(&rhythm.to_bytes()), rhythm);
    }
    assert_eq!(Rhythm::from_bytes(&[]), Rhythm::default());
    assert_eq!(Rhythm::from_bytes(&[7; 57]), Rhythm::default());
}

#[test]
fn counts_never_overflow_however_long_a_feed_is_watched() {
    let (mut rhythm, mut now) = (Rhythm::default().watched(noon()), noon());
    for _ in 0..10_000 {
        now = now.after(DAY);
        rhythm = rhythm.observed(&dated(vec![now; 5]), now);
    }
    let (hours, weekdays) = rhythm.profile();
    assert!(hours[12] > 10.0, "{hours:?}");
    assert!((hours.iter().sum::<f32>() - 24.0).abs() < 0.01 && (weekdays.iter().sum::<f32>() - 7.0).abs() < 0.01);
}

/// Returns a document of ten entries, each with its own identity, with these dates.
fn renamed(date: Option<Timestamp>) -> Document {
    let entry = |number: usize| Entry { id: number.to_string(), published: date, ..Entry::default() };
    Document { entries: (0..10).map(entry).collect(), new_entries: 10, all_entries: 10, ..Document::default() }
}

#[test]
fn identities_that_are_all_new_again_do_not_make_polling_faster() {
    let rates = |dated: fn(Timestamp) -> Option<Timestamp>| {
        let (mut state, mut now) = (PollState::default(), noon());
        let mut rates = Vec::new();
        for _ in 0..6 {
            let outcome = Outcome::Modified(Box::new(renamed(dated(now))));
            let subject = Subject { state, ..reader() };
            let report = FetchReport { started: now, ..report(outcome, Some(200)) };
            state = ask(&subject, &report, &plain()).state;
            rates.push(state.rhythm.per_day());
            now = now.after(HOUR);
        }
        rates
    };
    let renamed = rates(|_| None);
    assert!(renamed.windows(2).skip(1).all(|pair| pair[1] <= pair[0] * 1.001), "{renamed:?}");
    let old = rates(|_| Some(noon().before(30 * DAY)));
    assert!(old.windows(2).skip(1).all(|pair| pair[1] <= pair[0] * 1.001), "{old:?}");
    let busy = rates(|now| Some(now.before(MINUTE)));
    assert!(busy[5] > busy[1], "what is dated between the polls is believed: {busy:?}");
}

#[test]
fn polls_for_pings_without_a_new_entry_are_counted_until_one_comes() {
    let mut state = PollState::default();
    let mut polled = |outcome: Outcome, ping: bool| {
        let report = FetchReport { answers_wake: ping.then(noon), ..report(outcome, Some(200)) };
        let subject = Subject { state, ..reader() };
        state = ask(&subject, &report, &plain()).state;
        state.fruitless_wakes
    };
    let unchanged = || Outcome::NotModified { validators: Validators::default() };
    assert_eq!(polled(unchanged(), true), 1);
    assert_eq!(polled(unchanged(), false), 1, "a poll of its own says nothing about pings");
    assert_eq!(polled(Outcome::Modified(Box::default()), true), 2);
    assert_eq!(polled(Outcome::Modified(Box::new(renamed(None))), false), 0);
    assert_eq!(polled(unchanged(), true), 1);
    let corrected = Document { entries: vec![Entry::default()], ..Document::default() };
    assert_eq!(polled(Outcome::Modified(Box::new(corrected)), true), 2, "a changed entry is not a new one");
}

#[test]
fn a_publisher_that_pings_for_a_clock_in_one_entry_is_polled_less_and_less() {
    let config = plain();
    let (mut state, mut now, mut rests) = (PollState::default(), noon(), Vec::new());
    for _ in 0..12 {
        let entry = Entry { id: "clock".to_owned(), title: Some(format!("{now}")), ..Entry::default() };
        let ticked = Document { entries: vec![entry], all_entries: 1, ..Document::default() };
        let report = report(Outcome::Modified(Box::new(ticked)), Some(200));
        let report = FetchReport { started: now, answers_wake: Some(now), ..report };
        state = ask(&Subject { state, ..reader() }, &report, &config).state;
        let rest = pings::rest_after_poll(now, Status::Active, &state, &config);
        rests.push(rest);
        now = now.after(rest);
    }
    assert!(rests.windows(2).all(|pair| pair[1] >= pair[0]), "{rests:?}");
    assert_eq!(rests[11], 60 * config.ping_spread, "{rests:?}");
}

#[test]
fn each_hour_of_the_first_day_counts_by_its_share_and_by_the_burst_after_a_post_and_later_ones_by_the_mean() {
    // A post at nine on each of 40 days; the last one is today's.
    let nine = at("2026-10-07T09:00:00Z");
    let rhythm = first(&dated((0..40).map(|day| nine.before(day * DAY))));
    let minutes =
        |polled: &str, price: f64| adaptive::interval(&rhythm, at(polled), 1.0, price, 4 * DAY).as_secs() / 60;
    assert_eq!(minutes("2026-10-07T09:15:00Z", 6.0), 344);
    assert_eq!(minutes("2026-10-07T20:40:00Z", 12.0), 1615, "longer than a day");
}

#[test]
fn a_steady_feed_is_watched_from_its_time_on() {
    let steady = Rhythm::steady(30.0, 30.0, noon());
    let faded = steady.watched(noon().after(30 * DAY));
    assert!((steady.items() - 30.0).abs() < 1e-6 && (faded.items() - 11.036).abs() < 1e-3, "{faded:?}");
}

#[test]
fn of_identities_that_are_all_new_again_those_dated_after_the_last_poll_count() {
    let known = |at: Timestamp| Rhythm::steady(3.0, 30.0, at);
    let later = noon().after(HOUR);
    assert_eq!(known(noon()).doubted(&renamed(Some(noon())), later), known(later), "dated at the last poll");
    let between = noon().after(HOUR / 2);
    let observed = known(noon()).observed(&dated([between; 10]), later);
    assert_eq!(known(noon()).doubted(&renamed(Some(between)), later), observed);
    assert_eq!(known(later).doubted(&renamed(None), noon()), known(later), "an hour is what two clocks may differ by");
    assert_eq!(known(later.after(SECOND)).doubted(&renamed(None), noon()), known(noon()), "it was set back");
}

#[test]
fn what_has_no_date_came_in_the_middle_between_two_polls_that_are_close() {
    let start = at("2026-10-07T00:00:00Z");
    let seen = |new_entries: u32, gap: Duration| {
        let document = Document { entries: vec![Entry::default()], new_entries, ..Document::default() };
        let rhythm = Rhythm::default().watched(start).observed(&document, start.after(gap));
        (rhythm.quiet_for(start.after(gap)), rhythm.to_bytes()[16..20].to_vec())
    };
    assert_eq!(seen(1, 2 * HOUR), (Some(1.0), vec![1, 3, 1, 0]));
    assert_eq!(seen(0, 2 * HOUR), (None, vec![0; 4]), "a changed entry");
    assert_eq!(seen(1, 4 * HOUR), (None, vec![0; 4]), "nobody knows when it came");
}

#[test]
fn the_newest_item_is_known_for_less_than_a_year() {
    let year = 365 * DAY;
    let quiet = |later: Duration| {
        let at = noon().after(later);
        first(&dated([noon()])).watched(at).quiet_for(at)
    };
    assert_eq!([quiet(year - HOUR / 4), quiet(year)], [Some(8759.75), None]);
    let of_first = |age: Duration| first(&aged([age])).quiet_for(noon());
    assert_eq!([of_first(year - HOUR), of_first(year)], [Some(8759.0), None]);
}

#[test]
fn an_item_counts_in_its_hour_and_less_in_both_beside_it_also_around_midnight() {
    let cases = [
        ("2026-10-07T00:30:00Z", [23, 0, 1]),
        ("2026-10-07T11:30:00Z", [10, 11, 12]),
        ("2026-10-06T23:30:00Z", [22, 23, 0]),
    ];
    for (posted, [before, own, after]) in cases {
        let mut hours = [0_u8; 24];
        (hours[before], hours[own], hours[after]) = (1, 3, 1);
        assert_eq!(first(&dated([at(posted)])).to_bytes()[16..40], hours, "{posted}");
    }
}

#[test]
fn when_a_count_is_full_all_of_them_lose_a_quarter() {
    // After 85 items the counts of these hours are 85, 255 and 85.
    let bytes = first(&dated(vec![noon(); 86])).to_bytes();
    assert_eq!(bytes[27..30], [65_u8, 195, 65]);
}
