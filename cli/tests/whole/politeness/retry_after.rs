//! P17 and P28 in all spellings of Retry-After: the feed and its host wait for exactly the time that a 429 or 503
//! requests; an invalid value leads to our own backoff; nothing overflows.

use std::time::Duration;

use common::time::Timestamp;
use futures_util::future::join_all;
use load_tests::{Feed, Record, Script};
use serde_json::{Value, json};

use super::case::{Case, Subscribed};
use super::{GAP, THROTTLED};

/// The meaning of a spelling.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wait {
    /// This long after the response.
    For(Duration),
    /// This many seconds after the response's own Date, which is in whole seconds.
    Dated(u64),
    /// Longer than this test; at most the ceiling of 30 days, an hour for the host.
    Long,
    /// Not usable: our own backoff.
    Own,
}

const CEILING: Duration = Duration::from_secs(30 * 24 * 3600);

fn spellings() -> Vec<(Vec<Vec<u8>>, Wait)> {
    let seconds = |number: u64| Wait::For(Duration::from_secs(number));
    let one = |text: &str, wait| (vec![text.as_bytes().to_vec()], wait);
    let two = |a: &str, b: &str, wait| (vec![a.as_bytes().to_vec(), b.as_bytes().to_vec()], wait);
    let past = "Sun, 06 Nov 1994 08:49:37 GMT";
    vec![
        one("{date+4}", Wait::Dated(4)),
        one("{date850+4}", Wait::Dated(4)),
        one("{asctime+4}", Wait::Dated(4)),
        two("1", "{date+4}", Wait::Dated(4)),
        two("{asctime+4}", "soon", Wait::Dated(4)),
        one("3", seconds(3)),
        one("  4  ", seconds(4)),
        one("0003", seconds(3)),
        one("3.0", seconds(3)),
        one("2.5", Wait::For(Duration::from_millis(2500))),
        one("2.000001", Wait::For(Duration::from_micros(2_000_001))),
        two("1", "4", seconds(4)),
        two("4", "soon", seconds(4)),
        one("3600", Wait::Long),
        one("86400", Wait::Long),
        one("2147483647", Wait::Long),
        one("2147483648", Wait::Long),
        one("4294967296", Wait::Long),
        one("18446744073709551615", Wait::Long),
        one("18446744073709551616", Wait::Long),
        one("100000000000000000000", Wait::Long),
        one(&"9".repeat(200), Wait::Long),
        one("Fri, 31 Dec 9999 23:59:59 GMT", Wait::Long),
        one("Fri, 01 Jan 2038 00:00:00 GMT", Wait::Long),
        one("0", Wait::Own),
        one("0.0", Wait::Own),
        one("-5", Wait::Own),
        one("-99999999999999999999", Wait::Own),
        one("+5", Wait::Own),
        one("1e3", Wait::Own),
        one("0x10", Wait::Own),
        one("5 s", Wait::Own),
        one("3, 5", Wait::Own),
        one("3,5", Wait::Own),
        one("soon", Wait::Own),
        one("tomorrow at noon", Wait::Own),
        one("", Wait::Own),
        one(past, Wait::Own),
        one("Sunday, 06-Nov-94 08:49:37 GMT", Wait::Own),
        one("Sun Nov  6 08:49:37 1994", Wait::Own),
        one("Tue, 31 Feb 2037 25:61:61 GMT", Wait::Own),
        (vec![b"\xff\xfe\x80".to_vec()], Wait::Own),
    ]
}

fn dated(answer: &Record) -> Timestamp {
    let date = answer.answer_header("date").unwrap();
    Timestamp::from_millis(chrono::DateTime::parse_from_rfc2822(&date).unwrap().timestamp_millis())
}

/// A host whose first feed is throttled at its first poll, with two more feeds.
struct Held {
    what: String,
    wait: Wait,
    throttled: Subscribed,
    others: [Subscribed; 2],
}

pub(crate) async fn p17(case: &Case<'_>) {
    let spellings = spellings();
    println!("{} spellings of Retry-After, with 429 and with 503", spellings.len());
    let throttled = spellings.iter().flat_map(|spelling| [(429, spelling), (503, spelling)]);
    join_all(throttled.map(|(status, (values, wait))| async move {
        let held = held(case, status, values, *wait).await;
        check(case, &held).await;
    }))
    .await;
}

async fn held(case: &Case<'_>, status: u16, values: &[Vec<u8>], wait: Wait) -> Held {
    let host = case.host();
    let feed = || Script::feed(Feed::rss());
    let busy = values.iter().fold(Script::status(status), |script, value| script.header("Retry-After", value.clone()));
    // Polled once and then rarely, so that the many hosts do not load the machine.
    let subscribe = async |script: Script| {
        let path = case.path();
        case.stage.origin.set(&path, script);
        case.subscribe(host, &path, json!({"interval": 4})).await
    };
    let throttled = subscribe(busy.then(feed())).await;
    let others = [subscribe(feed()).await, subscribe(feed()).await];
    let texts: Vec<String> = values.iter().map(|value| value.escape_ascii().to_string()).collect();
    Held { what: format!("{status} with Retry-After {texts:?}"), wait, throttled, others }
}

async fn check(case: &Case<'_>, held: &Held) {
    let Held { what, wait, throttled, others } = held;
    let answers = case.requests(&throttled.path, 1).await;
    let history = case.remembered(throttled, 1).await;
    let Some((answer, poll)) = answers.first().zip(history.first()) else { return };
    case.expect(what, "throttled", poll.outcome.as_str());
    let ended = answer.wall.after(answer.end.unwrap_or_default().saturating_sub(answer.start));
    let allowed = match wait {
        Wait::For(time) => ended.after(*time),
        Wait::Dated(seconds) => dated(answer).after(Duration::from_secs(*seconds)),
        Wait::Long => ended.after(Duration::from_secs(3600)),
        Wait::Own => ended.after(THROTTLED),
    };
    let view = case.view(throttled).await;
    bounded(case, what, &view, if poll.next_due.is_some() { poll.at } else { ended });
    let promised = poll.next_due.unwrap_or_default();
    // Two clocks of one machine, in whole milliseconds.
    let slack = Duration::from_millis(2);
    case.require(
        &format!("{what}: is due no sooner than allowed"),
        promised.after(slack) >= allowed,
        &(promised, allowed),
    );

    if !matches!(wait, Wait::Long) {
        case.requests(&throttled.path, 2).await;
        for other in others {
            let since = case.stage.origin.requests(&other.path).iter().filter(|request| request.wall < allowed).count();
            if !matches!(wait, Wait::Own) {
                case.requests(&other.path, since + 1).await;
            }
        }
    }
    let local = case.stage.origin.address(throttled.host);
    let mut log = case.stage.origin.log();
    log.retain(|request| request.local == local && request.wall > ended.after(slack));
    let early: Vec<&Record> = log.iter().filter(|request| request.wall.after(slack) < allowed).collect();
    let early: Vec<_> = early.iter().map(|request| (&request.path, request.wall)).collect();
    case.require(&format!("{what}: nobody at the host asks before {allowed}"), early.is_empty(), &early);
    log.sort_by_key(|request| request.start);
    case.require_distance(&format!("{what}: the release"), GAP, &log);
}

/// Checks that neither hold nor due time is beyond the ceiling or in the past.
fn bounded(case: &Case<'_>, what: &str, view: &Value, polled: Timestamp) {
    for key in ["hold_until", "next_due"] {
        let Ok(at) = serde_json::from_value::<Timestamp>(view[key].clone()) else { continue };
        let latest = polled.after(CEILING).after(Duration::from_secs(24 * 3600));
        case.require(&format!("{what}: {key} is within the ceiling"), at >= polled && at <= latest, &at);
    }
}
