//! Terms explained in words.

use super::*;
use crate::policy::Category;

fn sentence(category: Category, decision: &Decision) -> String {
    let words = explain(category, decision.state.last_polled.unwrap(), &decision.terms);
    words.into_iter().map(|term| term.text).collect::<Vec<_>>().join("; ")
}

#[test]
fn a_due_time_reads_as_a_sentence() {
    let config = PolicyConfig { hot_minutes: true, ..plain() };
    let report = FetchReport { fresh_for: Some(2 * HOUR), ..unchanged() };
    let draw = Draw { salt: 0.7, minute: 0.25 };
    let decision =
        decide(&readers(5), &report, noon(), draw, &Policy { config: &config, load: 2.0 / 3.0, price: config.price });
    insta::assert_snapshot!(
        sentence(Category::C, &decision),
        @"category C: 1 h 40 min; max-age raised it to 2 h; salt +8 min 24 s; moved off a hot minute +8 min 39 s"
    );
}

#[test]
fn trouble_reads_as_a_sentence() {
    let config = plain();
    let sentences = [
        (Category::D, ask(&reader(), &failed(FailureKind::Timeout), &config)),
        (Category::D, ask(&reader(), &answered(404), &config)),
        (Category::B, ask(&readers(30), &throttled(None), &config)),
        (Category::B, ask(&readers(30), &throttled(Some(Timestamp::MAX)), &config)),
        (Category::D, ask(&reader(), &hinted(1, FeedHints { ttl: Some(9 * DAY), ..FeedHints::default() }), &config)),
        (Category::D, live(&reader(), again(&same_bytes(Validators::default()), 40), &config)[39]),
    ];
    let lines: Vec<_> = sentences.iter().map(|(category, decision)| sentence(*category, decision)).collect();
    insta::assert_snapshot!(lines.join("\n"), @"
    category D: 1 h; back-off after a failure brought it to 15 min
    category D: 1 h; the penalty box raised it to 1 d
    category B: 15 min; earlier throttling raised it to 22 min 30 s; the server throttles without saying for how long, which raised it to 4 h
    category B: 15 min; the server asked to wait until 9999-12-31T23:59:59.999Z; policy.retry_after_ceiling cut it back to 30 d
    category D: 1 h; the feed's ttl raised it to 9 d; policy.hint_ceiling cut it back to 1 d
    category D: 1 h; it cannot be requested conditionally, which raised it to 2 h; the same bytes again and again raised it to 1 d
    ");
}

#[test]
fn a_retry_after_above_its_ceiling_is_named_although_its_end_is_skipped() {
    // Not from midnight to eight, which is when the time ends that the server asked for.
    let hints = FeedHints { skip_hours: 0b1111_1111, ..FeedHints::default() };
    let known = after(&reader(), &ask(&reader(), &hinted(1, hints), &plain()));
    let asked = at("2027-01-01T00:30:00Z");
    let busy = FetchReport { started: noon().after(HOUR), ..throttled(Some(asked)) };
    let decision = ask(&known, &busy, &plain());
    let around: Vec<_> = rules(&decision).into_iter().skip_while(|rule| *rule != Rule::RetryAfter).collect();
    assert_eq!(around[..3], [Rule::RetryAfter, Rule::Skip, Rule::Ceiling]);
    let said = sentence(Category::D, &decision);
    assert!(said.contains("policy.retry_after_ceiling cut it back to 30 d"), "{said}");
    assert!(!said.contains("policy.hint_ceiling"), "{said}");
}

#[test]
fn each_term_says_by_how_much_it_moved_the_due_time() {
    let decision = ask(&reader(), &failed(FailureKind::Dns), &plain());
    let words = explain(Category::D, noon(), &decision.terms);
    let by: Vec<_> = words.iter().map(|term| term.by).collect();
    assert_eq!(by, [3600.0, -2700.0]);
    assert_eq!(words[1].due, decision.next_due.unwrap());
}

#[test]
fn a_feed_that_was_just_added_says_so() {
    let term = |due| [Term { rule: Rule::Added, due }];
    assert_eq!(explain(Category::D, noon(), &term(noon()))[0].text, "just added: at once");
    let spread = &explain(Category::D, noon(), &term(noon().after(90 * SECOND)))[0].text;
    assert_eq!(spread, "just added: at its place in the import's spread, after 1 min 30 s");
}

#[test]
fn a_time_is_rounded_to_the_smaller_of_its_two_units() {
    let said = |millis: u64| {
        let term = Term { rule: Rule::Person, due: noon().after(Duration::from_millis(millis)) };
        explain(Category::D, noon(), &[term])[0].text.clone()
    };
    for (millis, expected) in [
        (0, "0 s"),
        (1, "1 ms"),
        (500, "500 ms"),
        (1000, "1 s"),
        (1001, "1 s 1 ms"),
        (2500, "2 s 500 ms"),
        (5000, "5 s"),
        (59_999, "59 s 999 ms"),
        (60_000, "1 min"),
        (90_499, "1 min 30 s"),
        (90_500, "1 min 31 s"),
        (3_599_900, "1 h"),
    ] {
        assert_eq!(said(millis), format!("an operator set its interval: {expected}"), "{millis} ms");
    }
}

#[test]
fn each_rule_has_a_name_of_its_own() {
    let names: std::collections::BTreeSet<&str> = Rule::ALL.into_iter().map(named).collect();
    assert_eq!(names.len(), Rule::ALL.len());
    assert_eq!((named(Rule::Ttl), named(Rule::HotMinute)), ("ttl", "a busy minute avoided"));
}
