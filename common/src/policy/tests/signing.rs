//! Feeds that are requested with a signature.

use super::table::unfloored;
use super::*;

#[test]
fn a_403_is_a_refusal_unless_the_feed_is_asked_with_a_signature_next() {
    let unsigned = FetchReport { wants_signature: true, ..answered(403) };
    assert!(!is_refusal(&unsigned, Signing::Unknown));
    assert!(is_refusal(&unsigned, Signing::Useless(Timestamp::MAX)), "a signature was of no use");
    assert!(is_refusal(&answered(403), Signing::Wanted), "it was signed");
}

#[test]
fn what_is_asked_with_a_signature_next_is_not_boxed_unless_it_was_asked_so_before() {
    let unsigned = FetchReport { wants_signature: true, ..answered(403) };
    let first = ask(&reader(), &unsigned, &unfloored());
    assert_eq!((delay(&first), first.state.penalty), (5 * MINUTE, None));
    let signed = Subject { state: PollState { signing: Signing::Wanted, ..PollState::default() }, ..reader() };
    assert_eq!(delay(&ask(&signed, &unsigned, &unfloored())), DAY);
}

#[test]
fn only_what_answers_a_signed_request_with_activities_is_asked_with_a_signature_further() {
    let subject = |signing| Subject { state: PollState { signing, ..PollState::default() }, ..reader() };
    let after = |report: FetchReport| super::ask(&subject(Signing::Wanted), &report, &plain()).state.signing;
    assert_eq!(after(FetchReport { wants_signature: true, ..news(1) }), Signing::Wanted);
    assert_eq!(after(same_bytes(Validators::default())), Signing::Wanted, "nothing new is known");
    assert_eq!(after(news(1)), Signing::Unknown, "an ordinary feed that was refused once");
}

#[test]
fn what_is_known_about_signatures_follows_from_each_answer() {
    let wants = |report: FetchReport| FetchReport { wants_signature: true, ..report };
    let malformed = FetchReport { http_status: Some(403), ..failed(FailureKind::Malformed) };
    let (standing, ended) = (Signing::Useless(noon().after(SECOND)), Signing::Useless(noon()));
    let useless = Signing::Useless(noon().after(30 * DAY));
    for (before, report, expected) in [
        (Signing::Unknown, wants(answered(403)), Signing::Wanted),
        (Signing::Unknown, answered(403), Signing::Unknown),
        (standing, wants(answered(403)), standing),
        (ended, wants(answered(403)), Signing::Wanted),
        (ended, answered(403), Signing::Unknown),
        (Signing::Wanted, answered(401), useless),
        (Signing::Wanted, answered(403), useless),
        (Signing::Wanted, wants(answered(403)), Signing::Wanted),
        (Signing::Wanted, answered(500), Signing::Wanted),
        (Signing::Wanted, malformed, Signing::Wanted),
    ] {
        assert_eq!(before.after(&report, noon()), expected, "{before:?} {:?}", report.http_status);
        let is_tried = before != Signing::Wanted && expected == Signing::Wanted;
        assert_eq!(before.is_tried_after(&report), is_tried, "{before:?} {:?}", report.http_status);
    }
    assert!(!Signing::Unknown.is_tried_after(&wants(news(1))), "it was not refused");
}

#[test]
fn a_refused_feed_is_tried_again_soon_only_if_the_next_request_is_signed() {
    let wants = || FetchReport { wants_signature: true, ..answered(403) };
    for (signing, report, expected) in [
        (Signing::Unknown, wants(), 15 * MINUTE),
        (Signing::Unknown, answered(403), DAY),
        (Signing::Useless(noon().after(DAY)), wants(), DAY),
        (Signing::Wanted, answered(403), DAY),
    ] {
        let subject = Subject { state: PollState { signing, ..PollState::default() }, ..reader() };
        assert_eq!(delay(&ask(&subject, &report, &plain())), expected, "{signing:?}");
    }
}
