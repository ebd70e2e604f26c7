//! Section 1: which feeds are polled how often.

use super::*;
use crate::host::HostRule;
use crate::policy::Category;

fn interval(subject: &Subject<'_>, load: f64, config: &PolicyConfig) -> Duration {
    delay(&decide(subject, &unchanged(), noon(), NO_SALT, &Policy { config, load, price: config.price }))
}

fn with(audience: Audience) -> Subject<'static> {
    Subject::new(audience, None)
}

#[test]
fn a_category_follows_from_sla_host_rule_importance_and_subscribers_in_this_order() {
    let one = Audience::default();
    assert_eq!(category(&with(one)), Category::D);
    assert_eq!(category(&readers(0)), Category::D);
    assert_eq!(category(&readers(2)), Category::C);
    assert_eq!(category(&readers(20)), Category::C);
    assert_eq!(category(&readers(21)), Category::B);
    assert_eq!(category(&Subject { credentials: true, ..with(one) }), Category::C);
    let important = with(Audience { important: true, ..one });
    assert_eq!(category(&important), Category::B);
    assert_eq!(category(&Subject { host_interval: Some(DAY), ..important }), Category::F);
    let sla = with(Audience { sla: true, ..one });
    assert_eq!(category(&Subject { host_interval: Some(DAY), ..sla }), Category::A);
}

#[test]
fn classes_mode_polls_each_category_at_newsgators_interval() {
    let config = plain();
    let idle = with(Audience { active_subscribers: 0, ..Audience::default() });
    let sla = with(Audience { sla: true, ..Audience::default() });
    for (subject, unloaded, loaded) in [
        (sla, MINUTE, MINUTE),
        (readers(500), 15 * MINUTE, 15 * MINUTE),
        (readers(20), HOUR, 2 * HOUR),
        (Subject { credentials: true, ..readers(1) }, HOUR, 2 * HOUR),
        (readers(1), HOUR, 2 * HOUR),
        (idle, 4 * HOUR, 8 * HOUR),
        (readers(0), DAY, DAY),
        (with(Audience { important: true, ..readers(0).audience }), 15 * MINUTE, 15 * MINUTE),
        (with(Audience { sla: true, ..readers(0).audience }), MINUTE, MINUTE),
        (Subject { host_interval: Some(2 * DAY), ..readers(1) }, 2 * DAY, 2 * DAY),
    ] {
        assert_eq!(interval(&subject, 0.0, &config), unloaded, "{:?}", subject.audience);
        assert_eq!(interval(&subject, 1.0, &config), loaded, "{:?}", subject.audience);
    }
    assert_eq!(interval(&idle, 0.5, &config), 6 * HOUR, "load counts continuously");
    assert_eq!(interval(&idle, f64::NAN, &config), 4 * HOUR, "no load is known");
    assert_eq!(interval(&idle, 7.0, &config), 8 * HOUR);
}

/// Returns a feed that was watched for a long time and posts `per_day` items a day.
fn posting(subject: Subject<'static>, per_day: f32) -> Subject<'static> {
    // In equilibrium the window holds 30 days of watching; the prior adds four with four tenths of an item.
    let rhythm = Rhythm::steady(per_day * 34.0 - 0.4, 30.0, noon());
    Subject { state: PollState { rhythm, ..PollState::default() }, ..subject }
}

#[test]
fn adaptive_mode_follows_the_square_root_rule_inside_the_categorys_bounds() {
    let mut config = PolicyConfig { mode: PolicyMode::Adaptive, ..plain() };
    // At the default price no feed reaches the default bounds.
    (config.category.b.max, config.category.c.max) = (4 * HOUR, 12 * HOUR);
    let minutes = |subject: &Subject<'_>| interval(subject, 0.0, &config).as_secs() / 60;
    assert_eq!(minutes(&posting(readers(1), 1.0)), 131, "sqrt(2 x 0.1 h x 24 h) is 2.19 h");
    assert_eq!(minutes(&posting(readers(1), 4.0)), 65, "four times the posts, half the interval");
    assert_eq!(minutes(&posting(readers(4), 1.0)), 65, "four times the readers as well");
    assert_eq!(minutes(&posting(readers(1), 1000.0)), 15);
    assert_eq!(minutes(&posting(readers(1), 0.0)), 20 * 60 + 11, "an item in 85 days");
    assert_eq!(minutes(&posting(readers(2), 0.0)), 12 * 60, "C's bound");
    assert_eq!(minutes(&posting(readers(21), 0.02)), 202);
    let important = with(Audience { important: true, ..Audience::default() });
    assert_eq!(minutes(&posting(important, 0.01)), 4 * 60, "B's bound");
    let sla = with(Audience { sla: true, ..Audience::default() });
    assert_eq!(minutes(&posting(sla, 0.0)), 1, "category A is the same in both modes");
    assert_eq!(minutes(&posting(readers(0), 100.0)), 24 * 60, "so is a feed without subscribers");
}

#[test]
fn a_host_rules_interval_is_a_floor_for_everybody_and_in_both_modes() {
    let rule = HostRule { interval: Some(3 * HOUR), ..HostRule::default() };
    for mode in [PolicyMode::Classes, PolicyMode::Adaptive] {
        let config = PolicyConfig { mode, ..plain() };
        for audience in [
            Audience { sla: true, ..Audience::default() },
            Audience { subscribers: 900, active_subscribers: 900, ..Audience::default() },
            Audience { interval: Some(MINUTE), ..Audience::default() },
        ] {
            let subject = posting(Subject::new(audience, None), 1000.0);
            let subject = Subject { host_interval: rule.interval, ..subject };
            assert_eq!(interval(&subject, 0.0, &config), 3 * HOUR, "{mode:?} {audience:?}");
        }
    }
}

#[test]
fn a_person_may_ask_for_any_interval_down_to_the_floor() {
    let config = plain();
    let asked = |interval| with(Audience { interval: Some(interval), ..Audience::default() });
    assert_eq!(interval(&asked(7 * DAY), 0.0, &config), 7 * DAY);
    assert_eq!(interval(&asked(20 * MINUTE), 1.0, &config), 20 * MINUTE);
    assert_eq!(interval(&asked(SECOND), 0.0, &config), 15 * MINUTE);
    let sla = with(Audience { sla: true, interval: Some(SECOND), ..Audience::default() });
    assert_eq!(interval(&sla, 0.0, &config), MINUTE, "not even an SLA goes below its own interval");
}

#[test]
fn intervals_may_be_milliseconds() {
    let mut config = PolicyConfig { min_interval: Duration::from_millis(10), ..plain() };
    config.category.d.interval = Duration::from_millis(40);
    config.category.d.interval_max = Duration::from_millis(80);
    assert_eq!(interval(&reader(), 0.0, &config), Duration::from_millis(40));
    assert_eq!(interval(&reader(), 0.5, &config), Duration::from_millis(60));
}

#[test]
fn weight_counts_active_subscribers_full_and_idle_ones_a_tenth() {
    let audience = Audience { subscribers: 30, active_subscribers: 20, ..Audience::default() };
    assert_eq!(weight(&audience), 21.0);
    assert_eq!(weight(&Audience { active_subscribers: 99, ..audience }), 30.0, "no more active ones than there are");
    assert!(weight(&Audience { sla: true, ..audience }) > weight(&Audience { important: true, ..audience }));
    assert!(weight(&Audience { important: true, ..audience }) > weight(&audience));
    assert!(weight(&Audience { subscribers: 0, active_subscribers: 0, ..audience }) > 0.0);
}

#[test]
fn a_crowd_at_a_host_goes_by_weight_and_by_age() {
    let due = noon();
    assert!(rank(due, 1000.0) < rank(due, 1.0));
    assert!(rank(due.before(2 * HOUR), 1.0) < rank(due, 1000.0), "two hours of waiting outrank a thousand readers");
    assert!(rank(due, f64::INFINITY) < rank(due, 1.0));
}

#[test]
fn an_sla_that_a_floor_breaks_is_told() {
    let config = plain();
    let subject = with(Audience { sla: true, ..Audience::default() });
    let unmet = |report: &FetchReport| {
        let decision = ask(&subject, report, &config);
        sla_unmet(&subject.audience, noon(), decision.next_due.unwrap(), &config)
    };
    assert!(!unmet(&unchanged()));
    assert!(unmet(&FetchReport { fresh_for: Some(HOUR), ..unchanged() }));
    assert!(unmet(&answered(500)));
    assert!(!sla_unmet(&Audience::default(), noon(), noon().after(DAY), &config), "no SLA, nothing to break");
}

#[test]
fn a_default_interval_of_a_person_replaces_the_category_s_and_yields_to_a_feed_s_own() {
    let config = PolicyConfig { interval: 4 * HOUR, ..plain() };
    let interval = |audience: Audience| {
        let subject = Subject { audience, ..reader() };
        (delay(&ask(&subject, &unchanged(), &config)), rules(&ask(&subject, &unchanged(), &config))[0])
    };
    let plain_feed = Audience::default();
    assert_eq!(interval(plain_feed), (4 * HOUR, Rule::Person));
    assert_eq!(
        interval(Audience { subscribers: 500, active_subscribers: 500, ..plain_feed }),
        (4 * HOUR, Rule::Person)
    );
    assert_eq!(interval(Audience { interval: Some(HOUR), ..plain_feed }), (HOUR, Rule::Person));
    assert_eq!(interval(Audience { sla: true, ..plain_feed }), (MINUTE, Rule::Category));
    let nobody = Audience { subscribers: 0, active_subscribers: 0, ..plain_feed };
    assert_eq!(interval(nobody), (config.default_interval, Rule::NoSubscribers));
}

#[test]
fn a_rank_is_ten_minutes_earlier_for_each_doubling_of_the_weight_and_one_more() {
    let ranks = [-1.0, 0.0, 1.0, 3.0].map(|weight| rank(noon(), weight));
    assert_eq!(ranks, [0, 0, 10, 20].map(|minutes| noon().millis() - minutes * 60_000));
}

#[test]
fn an_sla_is_met_up_to_the_last_moment_of_its_promise() {
    let audience = Audience { sla: true, ..Audience::default() };
    let unmet = |wait: Duration| sla_unmet(&audience, noon(), noon().after(wait), &plain());
    assert!(!unmet(90 * SECOND), "two minutes, of which half a one is for the fetch");
    assert!(unmet(90 * SECOND + Duration::from_millis(1)));
}
