//! One path over time: which validators a request had to carry, and when it was allowed at the earliest.
//!
//! The client's possible knowledge about a path is a small set of states, usually one. A response that the client may
//! have accepted or rejected, or that a kill may have undone, leaves two; the next request then only has to match one
//! of them.

use std::time::Duration;

use common::time::Timestamp;

use super::{Fault, Rules, Violation};
use crate::origin::log::Record;

/// The maximum length of a validator that has to be sent back.
const LONGEST_VALIDATOR: usize = 8 * 1024;

/// Suffixes that servers add to the tags of compressed responses; with these, a client may also send the tag without
/// suffix.
const SUFFIXES: [&str; 4] = ["-gzip\"", ";gzip\"", "-br\"", "-zstd\""];

/// What a client may know about a path after some of its responses.
#[derive(Clone, Debug, Default, PartialEq)]
struct Known {
    tag: Option<Vec<u8>>,
    stamp: Option<Vec<u8>>,
    /// The response with the validators.
    given_by: usize,
    /// Since the origin's start; with the reason.
    not_before: Option<(Duration, String)>,
    /// The response with status 410.
    gone: Option<usize>,
    /// The start of a poll whose HEAD was not enough; its floor counts from there.
    began: Option<Duration>,
}

/// Judges all requests of one path, in the order of their starts.
pub(super) fn judge_path(requests: &[&Record], rules: &Rules, violations: &mut Vec<Violation>) {
    let mut states = vec![Known::default()];
    for record in requests {
        let judged: Vec<Vec<Violation>> = states.iter().map(|known| known.judge(record, rules)).collect();
        let fewest = judged.iter().map(Vec::len).min().unwrap_or(0);
        let fitting: Vec<usize> = (0..states.len()).filter(|state| judged[*state].len() == fewest).collect();
        if let Some(best) = fitting.last() {
            violations.extend_from_slice(&judged[*best]);
        }
        let mut next: Vec<Known> = Vec::new();
        for state in fitting {
            let undone = rules.may_be_undone(record).then(|| states[state].clone());
            for known in undone.into_iter().chain(states[state].after(record, rules)) {
                // Without past limits there are few states: they differ in an unread response's validators or its
                // freshness.
                let known = known.without_past(record.start);
                if !next.contains(&known) {
                    next.push(known);
                }
            }
        }
        states = next;
    }
}

impl Known {
    fn judge(&self, record: &Record, rules: &Rules) -> Vec<Violation> {
        let mut violations = Vec::new();
        let mut blame = |fault, why: String| violations.push(Violation::new(fault, record, why));
        let conditions = [
            ("If-None-Match", record.header_bytes("if-none-match"), &self.tag),
            ("If-Modified-Since", record.header_bytes("if-modified-since"), &self.stamp),
        ];
        let must_be_sent = conditions.iter().any(|(_, _, given)| given.as_deref().is_some_and(must_be_sent));
        if must_be_sent && !record.is_conditional() {
            blame(Fault::UnconditionalRepeat, format!("no condition, but answer {} gave validators", self.given_by));
        }
        for (name, sent, given) in conditions {
            match (sent, given.as_deref()) {
                (None, Some(given)) if record.is_conditional() && self::must_be_sent(given) => {
                    let why = format!("no {name}, but answer {} gave {}", self.given_by, text(given));
                    blame(Fault::MissingValidator, why);
                }
                (Some(sent), given) if !given.is_some_and(|given| echoes(sent, given)) => {
                    let given = given.map_or("nothing".into(), text);
                    let why = format!("{name}: {}, but answer {} gave {given}", text(sent), self.given_by);
                    blame(Fault::InventedValidator, why);
                }
                _ => {}
            }
        }
        let early = |time: Duration| time.saturating_sub(record.start);
        if let Some((time, why)) = self.not_before.as_ref().filter(|(time, _)| rules.is_early(record, early(*time))) {
            let early = early(*time).as_secs_f64();
            blame(Fault::EarlyPoll, format!("{early:.3} s early: {why}"));
        }
        if let Some(gone) = self.gone {
            blame(Fault::AfterGone, format!("answer {gone} was 410"));
        }
        violations
    }

    /// Returns the state after a HEAD, which keeps the validators of the last body. It counts as a poll if it showed
    /// that nothing is new; if not, the GET may follow.
    fn after_head(&self, record: &Record, rules: &Rules) -> Known {
        let same = record.answer_header_bytes("etag") == self.tag.as_deref()
            && record.answer_header_bytes("last-modified") == self.stamp.as_deref();
        let is_over = matches!(record.status, Some(304 | 429 | 503)) || (record.status == Some(200) && same);
        let not_before = not_before(record, None, rules).filter(|_| is_over);
        Known { not_before, began: (!is_over).then_some(record.start), ..self.clone() }
    }

    fn without_past(mut self, now: Duration) -> Self {
        self.not_before = self.not_before.filter(|(time, _)| *time > now);
        self
    }

    /// Returns what a client may know after this response; two possibilities if it may have rejected it.
    fn after(&self, record: &Record, rules: &Rules) -> Vec<Known> {
        if !record.is_complete() {
            return vec![self.clone()];
        }
        if record.method() == "HEAD" {
            return vec![self.after_head(record, rules)];
        }
        let (tag, stamp) = (record.answer_header_bytes("etag"), record.answer_header_bytes("last-modified"));
        let mut next = self.clone();
        match record.status {
            Some(200 | 226) => {
                next.tag = tag.map(<[u8]>::to_vec);
                next.stamp = stamp.map(<[u8]>::to_vec);
            }
            // A 304 to an unconditional request is an error of the server; its validators are not the document's.
            Some(304) if record.is_conditional() => {
                next.tag = tag.map(<[u8]>::to_vec).or(next.tag);
                next.stamp = stamp.map(<[u8]>::to_vec).or(next.stamp);
            }
            Some(410) => next.gone = Some(record.number),
            _ => {}
        }
        if (&next.tag, &next.stamp) != (&self.tag, &self.stamp) {
            next.given_by = record.number;
        }
        next.not_before = not_before(record, self.began, rules);
        next.began = None;
        let may_be_refused = matches!(record.status, Some(200 | 226)) && record.items.is_none();
        if may_be_refused { vec![self.clone(), next] } else { vec![next] }
    }
}

/// Returns whether a client must be able to send these bytes back.
fn must_be_sent(validator: &[u8]) -> bool {
    let printable = validator.iter().all(|byte| (0x20..=0x7e).contains(byte));
    // `*` would match any validator.
    printable && !validator.is_empty() && validator != b"*" && validator.len() <= LONGEST_VALIDATOR
}

fn echoes(sent: &[u8], given: &[u8]) -> bool {
    let with_bare = |suffix: &&str| {
        let bare = given.strip_suffix(suffix.as_bytes())?;
        Some([given, b", ", bare, b"\""].concat())
    };
    sent == given || SUFFIXES.iter().filter_map(with_bare).any(|list| sent == list)
}

/// Returns when the path may be polled again after this response, and why not earlier.
fn not_before(record: &Record, began: Option<Duration>, rules: &Rules) -> Option<(Duration, String)> {
    let number = record.number;
    let mut latest: Option<(Duration, String)> = None;
    let mut wait = |time: Duration, why: &str| {
        let until = record.start + time;
        if !time.is_zero() && latest.as_ref().is_none_or(|(latest, _)| until > *latest) {
            latest = Some((until, format!("answer {number} {why} of {:.3} s", time.as_secs_f64())));
        }
    };
    if matches!(record.status, Some(200 | 304)) {
        let since_began = began.map_or(Duration::ZERO, |began| record.start.saturating_sub(began));
        wait(rules.floor_of(&record.path).saturating_sub(since_began), "is followed by a floor");
    }
    if matches!(record.status, Some(200 | 304 | 429)) {
        wait(freshness(record).min(rules.freshness_ceiling), "has a freshness");
    }
    if let Some(time) = retry_after(record) {
        wait(time.min(rules.retry_after_ceiling), "has a Retry-After");
    }
    latest
}

/// Returns `max-age` minus `Age`, else `Expires` minus `Date`; zero if caches must revalidate.
fn freshness(record: &Record) -> Duration {
    let control = record.answer_header("cache-control").unwrap_or_default().to_ascii_lowercase();
    let directives: Vec<&str> = control.split(',').map(str::trim).collect();
    if directives.contains(&"no-cache") || directives.contains(&"no-store") {
        return Duration::ZERO;
    }
    let seconds = |text: &str| text.trim().parse().ok().map(Duration::from_secs);
    let max_age = directives.iter().find_map(|directive| directive.strip_prefix("max-age="));
    if let Some(max_age) = max_age {
        let age = record.answer_header("age").and_then(|age| seconds(&age)).unwrap_or_default();
        return seconds(max_age).unwrap_or_default().saturating_sub(age);
    }
    let date = |name: &str| record.answer_header(name).as_deref().and_then(http_date);
    match (date("expires"), date("date")) {
        (Some(expires), sent) => expires.since(sent.unwrap_or(record.wall)),
        _ => Duration::ZERO,
    }
}

/// Returns the wait that a 429 or 503 requested, from the request's start.
pub(super) fn retry_after(record: &Record) -> Option<Duration> {
    let value = record.answer_header("retry-after").filter(|_| matches!(record.status, Some(429 | 503)))?;
    // Digits only (RFC 9110, section 10.2.3): `+5` is not a number of seconds.
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = value.parse().ok().filter(|_| digits).map(Duration::from_secs);
    seconds.or_else(|| http_date(&value).map(|date| date.since(record.wall))).filter(|time| !time.is_zero())
}

fn http_date(text: &str) -> Option<Timestamp> {
    let since_1970 = httpdate::parse_http_date(text).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(Timestamp::EPOCH.after(since_1970))
}

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEED: &[&str] = &["ETag: \"a\"", "Last-Modified: yesterday"];
    const BOTH: &[&str] = &["If-None-Match: \"a\"", "If-Modified-Since: yesterday"];

    /// Second of the request, its headers, the response's status and headers.
    type Exchange<'a> = (u64, &'a [&'a str], u16, &'a [&'a str]);

    fn log(exchanges: &[Exchange<'_>]) -> Vec<Record> {
        let made = |(number, (at, sent, status, given)): (usize, &Exchange<'_>)| {
            Record::made(number, "/f", at * 1000, sent, *status, given)
        };
        exchanges.iter().enumerate().map(made).collect()
    }

    fn faults_of(log: &[Record], rules: &Rules) -> Vec<(Fault, usize)> {
        let mut violations = Vec::new();
        judge_path(&log.iter().collect::<Vec<_>>(), rules, &mut violations);
        violations.iter().map(|violation| (violation.fault, violation.request)).collect()
    }

    fn faults(exchanges: &[Exchange<'_>]) -> Vec<(Fault, usize)> {
        faults_of(&log(exchanges), &Rules::default())
    }

    #[test]
    fn echoing_both_validators_byte_for_byte_is_polite() {
        assert_eq!(
            faults(&[(0, &[], 200, FEED), (10, BOTH, 304, &[]), (20, BOTH, 500, &[]), (30, BOTH, 304, &[])]),
            []
        );
    }

    #[test]
    fn sending_no_condition_or_only_one_of_two_is_blamed() {
        let left_out = &BOTH[..1];
        let found = faults(&[(0, &[], 200, FEED), (10, &[], 200, FEED), (20, left_out, 304, &[])]);
        assert_eq!(found, [(Fault::UnconditionalRepeat, 1), (Fault::MissingValidator, 2)]);
        assert_eq!(faults(&[(0, &[], 200, &[]), (10, &[], 200, &[])]), []);
    }

    #[test]
    fn a_validator_that_was_never_given_or_is_forgotten_is_invented() {
        let weak: &[&str] = &["If-None-Match: W/\"a\"", "If-Modified-Since: yesterday"];
        assert_eq!(faults(&[(0, &[], 200, FEED), (10, weak, 200, FEED)]), [(Fault::InventedValidator, 1)]);
        assert_eq!(faults(&[(0, &BOTH[..1], 200, FEED)]), [(Fault::InventedValidator, 0)]);
        let only_tag: &[&str] = &["ETag: \"a\""];
        let found = faults(&[(0, &[], 200, FEED), (10, BOTH, 200, only_tag), (20, BOTH, 304, &[])]);
        assert_eq!(found, [(Fault::InventedValidator, 2)]);
    }

    #[test]
    fn a_head_is_a_poll_when_it_told_that_nothing_is_new_and_else_the_get_may_follow() {
        let fresh = &["ETag: \"b\"", "Last-Modified: today"];
        let judged = |headers: &[&str], status: u16, second: u64| {
            let mut log = log(&[(0, &[], 200, FEED), (60, BOTH, status, headers), (second, BOTH, 200, fresh)]);
            log[1] = log[1].clone().asked_with("HEAD");
            faults_of(&log, &Rules { floor: Duration::from_secs(10), ..Rules::default() })
        };
        assert_eq!(judged(fresh, 200, 61), [], "something is new");
        assert_eq!(judged(&[], 405, 61), [], "refused");
        assert_eq!((judged(FEED, 200, 61), judged(FEED, 200, 70)), (vec![(Fault::EarlyPoll, 2)], vec![]));
        assert_eq!(judged(&["Retry-After: 60"], 429, 61), [(Fault::EarlyPoll, 2)]);

        let next = |at: u64| {
            let polls: [Exchange; 4] =
                [(0, &[], 200, FEED), (60, BOTH, 405, &[]), (65, BOTH, 200, FEED), (at, BOTH, 304, &[])];
            let mut log = log(&polls);
            log[1] = log[1].clone().asked_with("HEAD");
            faults_of(&log, &Rules { floor: Duration::from_secs(10), ..Rules::default() })
        };
        assert_eq!((next(69), next(70)), (vec![(Fault::EarlyPoll, 3)], vec![]), "the poll began with the HEAD");
    }

    #[test]
    fn a_304_replaces_each_validator_on_its_own() {
        let fresh: &[&str] = &["ETag: \"b\""];
        let next: &[&str] = &["If-None-Match: \"b\"", "If-Modified-Since: yesterday"];
        assert_eq!(faults(&[(0, &[], 200, FEED), (10, BOTH, 304, fresh), (20, next, 304, &[])]), []);
        let found = faults(&[(0, &[], 200, FEED), (10, BOTH, 304, fresh), (20, BOTH, 304, &[])]);
        assert_eq!(found, [(Fault::InventedValidator, 2)]);
    }

    #[test]
    fn the_validators_of_a_cut_answer_must_not_be_sent_back() {
        let mut cut = log(&[(0, &[], 200, FEED), (10, BOTH, 304, &[])]);
        cut[0].cut = Some(crate::Cut::ByUs);
        assert_eq!(faults_of(&cut, &Rules::default()).len(), 2);
        let mut good = log(&[(0, &[], 200, FEED), (10, &[], 200, FEED)]);
        good[0].cut = Some(crate::Cut::ByPeer);
        assert_eq!(faults_of(&good, &Rules::default()), []);
    }

    #[test]
    fn an_answer_that_is_no_scripted_feed_may_be_taken_or_refused() {
        let page: &[&str] = &["ETag: \"page\""];
        let taken: &[&str] = &["If-None-Match: \"page\""];
        let mut log = log(&[(0, &[], 200, FEED), (10, BOTH, 200, page), (20, BOTH, 200, page), (30, taken, 304, &[])]);
        log[1].items = None;
        log[2].items = None;
        assert_eq!(faults_of(&log, &Rules::default()), []);
        log[1].items = Some(0..1);
        assert_eq!(faults_of(&log, &Rules::default()).len(), 2);
    }

    #[test]
    fn a_bare_tag_may_accompany_one_with_a_codings_suffix_and_the_unsendable_may_stay_away() {
        let coded: &[&str] = &["ETag: \"x-gzip\""];
        assert_eq!(faults(&[(0, &[], 200, coded), (10, &["If-None-Match: \"x-gzip\", \"x\""], 304, &[])]), []);
        assert_eq!(faults(&[(0, &[], 200, coded), (10, &["If-None-Match: \"x\""], 304, &[])]).len(), 1);
        let long = format!("ETag: \"{}\"", "x".repeat(LONGEST_VALIDATOR));
        assert_eq!(faults(&[(0, &[], 200, &[&long]), (10, &[], 200, &[])]), []);
    }

    #[test]
    fn freshness_and_retry_after_and_floors_must_have_passed() {
        let early = |status: u16, given: &[&str], at: u64| {
            let found = faults(&[(0, &[], status, given), (at, &[], 200, &[])]);
            found.iter().filter(|(fault, _)| *fault == Fault::EarlyPoll).count()
        };
        let date = "Date: Mon, 21 Sep 2026 14:13:20 GMT";
        for (status, given) in [
            (200, vec!["Cache-Control: public, max-age=60"]),
            (304, vec!["Cache-Control: max-age=100", "Age: 40"]),
            (200, vec![date, "Expires: Mon, 21 Sep 2026 14:14:20 GMT"]),
            (429, vec!["Retry-After: 60"]),
            (503, vec!["Retry-After: Mon, 21 Sep 2026 14:14:20 GMT"]),
        ] {
            assert_eq!((early(status, &given, 59), early(status, &given, 60)), (1, 0), "{given:?}");
        }
        let fresh = Record::made(0, "/f", 0, &[], 200, &["Cache-Control: max-age=60"]);
        let almost = |at: u64| faults_of(&[fresh.clone(), Record::made(1, "/f", at, &[], 200, &[])], &Rules::default());
        assert_eq!((almost(59_940).len(), almost(59_960).len()), (1, 0), "50 ms are forgiven");
        assert_eq!(early(200, &["Cache-Control: no-cache, max-age=60"], 1), 0);
        assert_eq!(early(500, &["Retry-After: 60"], 1), 0);
        assert_eq!(early(429, &["Retry-After: soon"], 1), 0);
        let rules = Rules { floor: Duration::from_secs(900), ..Rules::default() };
        assert_eq!(faults_of(&log(&[(0, &[], 200, &[]), (899, &[], 200, &[])]), &rules), [(Fault::EarlyPoll, 1)]);
        assert_eq!(faults_of(&log(&[(0, &[], 500, &[]), (300, &[], 200, &[])]), &rules), []);
    }

    #[test]
    fn nothing_is_asked_after_410() {
        assert_eq!(faults(&[(0, &[], 410, &[]), (99_999, &[], 410, &[])]), [(Fault::AfterGone, 1)]);
    }

    #[test]
    fn a_kill_excuses_one_repeat_of_what_it_may_have_undone_and_no_more() {
        let fresh: &[&str] = &["ETag: \"a\"", "Last-Modified: yesterday", "Cache-Control: max-age=60"];
        let repeated = log(&[(0, &[], 200, fresh), (2, &[], 200, fresh)]);
        assert_eq!(faults_of(&repeated, &Rules::default()).len(), 2);
        let kill = |seconds: u64| {
            let kills = vec![repeated[0].wall.after(Duration::from_secs(seconds))];
            Rules { kills, commit_window: Duration::from_millis(1500), ..Rules::default() }
        };
        assert_eq!(faults_of(&repeated, &kill(1)), []);
        assert_eq!(faults_of(&repeated, &kill(2)).len(), 2, "it was committed long before");
        let twice = log(&[(0, &[], 200, fresh), (2, &[], 200, fresh), (4, &[], 200, fresh)]);
        assert_eq!(faults_of(&twice, &kill(1)), [(Fault::UnconditionalRepeat, 2), (Fault::EarlyPoll, 2)]);
    }
}
