//! Feeds whose entries are pushed reliably are polled less often, and as before once they are not.

use super::*;

fn pushed(subject: Subject<'static>) -> Subject<'static> {
    Subject { pushed: true, ..subject }
}

#[test]
fn a_reliably_pushed_feed_is_polled_less_often_up_to_the_ceiling() {
    let config = plain();
    for subject in [reader(), readers(2), readers(100)] {
        let before = delay(&ask(&subject, &unchanged(), &config));
        let decision = ask(&pushed(subject), &unchanged(), &config);
        let stretched = before.mul_f64(config.push_factor).min(config.stretch_ceiling);
        assert_eq!(delay(&decision), stretched.max(before));
        assert_eq!(rules(&decision), [Rule::Category, Rule::Pushed]);
        assert!(delay(&decision) >= 10 * before || delay(&decision) == config.stretch_ceiling);
    }
}

#[test]
fn a_pushed_feed_under_an_sla_has_the_interval_of_its_natural_category() {
    let under_sla = |subscribers| {
        let subject = readers(subscribers);
        Subject { audience: Audience { sla: true, ..subject.audience }, ..subject }
    };
    for subscribers in [1, 5, 100] {
        let natural = delay(&ask(&readers(subscribers), &unchanged(), &plain()));
        assert_eq!(delay(&ask(&pushed(under_sla(subscribers)), &unchanged(), &plain())), natural);
        assert!(delay(&ask(&under_sla(subscribers), &unchanged(), &plain())) < natural);
    }
}

#[test]
fn what_a_person_set_stays_and_a_publishers_floor_holds() {
    let hourly = Subject { audience: Audience { interval: Some(HOUR), ..Audience::default() }, ..reader() };
    assert_eq!(delay(&ask(&pushed(hourly), &unchanged(), &plain())), HOUR);
    let of_all = PolicyConfig { interval: HOUR, ..plain() };
    assert_eq!(delay(&ask(&pushed(readers(100)), &unchanged(), &of_all)), HOUR);
    let under_sla = Subject { audience: Audience { sla: true, ..Audience::default() }, ..reader() };
    assert_eq!(delay(&ask(&pushed(under_sla), &unchanged(), &of_all)), HOUR, "what it has without its SLA");
    let fresh = FetchReport { fresh_for: Some(20 * HOUR), ..unchanged() };
    assert!(delay(&ask(&pushed(readers(100)), &fresh, &plain())) >= 20 * HOUR);
}

#[test]
fn a_failure_backs_off_as_without_pushes() {
    let failure = failed(FailureKind::Connect);
    assert!(delay(&ask(&pushed(reader()), &failure, &plain())) <= DAY);
}

#[test]
fn a_feed_that_is_no_longer_pushed_is_planned_again_at_its_old_pace() {
    let config = plain();
    let policy = Policy { config: &config, load: 0.0, price: config.price };
    let decision = ask(&pushed(readers(100)), &unchanged(), &config);
    let before = delay(&ask(&readers(100), &unchanged(), &config));
    let subject = Subject { state: decision.state, ..readers(100) };
    let (due, _) = replan(&subject, decision.next_due.unwrap(), noon(), NO_SALT, &policy).unwrap();
    assert_eq!(due, noon().after(before), "within one unpushed interval of the last poll");
    let late = noon().after(before * 3);
    assert_eq!(replan(&subject, decision.next_due.unwrap(), late, NO_SALT, &policy).unwrap().0, late, "or at once");
}
