//! What an answer's header fields say: validators, freshness, when to come back.
//!
//! Pure readers: any bytes may come in, nothing panics, and what makes no sense counts as not said. Nothing here decides
//! what follows; `common::policy` does.

use std::time::{Duration, UNIX_EPOCH};

use chrono::DateTime;
use common::document::Validators;
use common::time::Timestamp;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Bytes that a validator may have. A longer one is dropped: servers refuse requests with such a long field.
pub const MAX_VALIDATOR_BYTES: usize = 8 * 1024;

/// No freshness counts for longer than this, about 68 years (RFC 9111, section 1.2.2).
const MAX_DELTA_SECONDS: u64 = 1 << 31;

/// Returns the validators of an answer (RFC 9110, section 8.8), each as it came. Unsendable ones are left out: empty,
/// over-long, or `*`, which would match whatever the server has.
pub fn validators(headers: &HeaderMap) -> Validators {
    let sendable = |value: &String| !value.is_empty() && value.len() <= MAX_VALIDATOR_BYTES && value != "*";
    let read = |name| headers.get(name).map(to_text).filter(sendable);
    Validators { etag: read(header::ETAG), last_modified: read(header::LAST_MODIFIED), for_url: None }
}

/// Returns a field's bytes as text: one character a byte (ISO-8859-1), so that [`to_value`] returns exactly these
/// bytes.
fn to_text(value: &HeaderValue) -> String {
    match value.to_str() {
        Ok(ascii) => ascii.to_owned(),
        Err(_) => value.as_bytes().iter().copied().map(char::from).collect(),
    }
}

/// Returns the field value with the bytes that [`validators`] read; `None` for a text that no field can hold.
pub fn to_value(text: &str) -> Option<HeaderValue> {
    if text.is_ascii() {
        return HeaderValue::from_str(text).ok();
    }
    let bytes: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(c).ok()).collect();
    HeaderValue::from_bytes(&bytes?).ok()
}

/// Returns how long the answer stays fresh, counted from the start of its request: `Cache-Control: max-age`, or
/// else `Expires` less `Date`, less `Age` (RFC 9111, section 4.2). Zero for an answer that forbids reuse or says it with garbage;
/// `None` when it says nothing. `s-maxage` is for shared caches, which a feed reader is not. With `im`, which only
/// answers to `A-IM` have, `no-store` is meant for caches that do not know that field (RFC 3229, section 10.8.3).
pub fn freshness(headers: &HeaderMap, received: Timestamp) -> Option<Duration> {
    let cache_control = CacheControl::of(headers);
    if cache_control.forbids_reuse {
        return Some(Duration::ZERO);
    }
    if let Some(max_age) = cache_control.max_age {
        return Some(Duration::from_secs(max_age).saturating_sub(age(headers)));
    }
    let expires = headers.get(header::EXPIRES)?;
    let expires = expires.to_str().ok().and_then(http_date).unwrap_or(Timestamp::EPOCH);
    let lifetime = expires.since(sent_at(headers, received)).saturating_sub(age(headers));
    Some(lifetime.min(Duration::from_secs(MAX_DELTA_SECONDS)))
}

/// Returns whether the body of a 226 is the feed with some entries left out, and nothing else that would have to be
/// undone first (RFC 3229, section 10.5.2).
pub fn is_feed_delta(headers: &HeaderMap) -> bool {
    let manipulations: Vec<&[u8]> =
        headers.get_all("im").iter().flat_map(|value| split_outside_quotes(value.as_bytes(), b",")).collect();
    manipulations.len() == 1 && manipulations[0].trim_ascii().eq_ignore_ascii_case(b"feed")
}

/// Returns whether the answer has a `Retry-After` field, readable or not.
pub fn has_retry_after(headers: &HeaderMap) -> bool {
    headers.contains_key(header::RETRY_AFTER)
}

/// Returns when a server accepts the next request (RFC 9110, section 10.2.3): seconds, or an HTTP date, which is read
/// against the server's own `Date` so that a wrong clock over there does no harm. Garbage, zero and the past are
/// `None`; huge values saturate; of several fields the latest time counts.
pub fn retry_after(headers: &HeaderMap, received: Timestamp) -> Option<Timestamp> {
    let values = headers.get_all(header::RETRY_AFTER).iter().filter_map(|value| value.to_str().ok());
    let delays = values.filter_map(|text| match seconds_rounded_up(text) {
        Some(seconds) => Some(Duration::from_secs(seconds)),
        None => Some(http_date(text)?.since(sent_at(headers, received))),
    });
    delays.max().filter(|delay| !delay.is_zero()).map(|delay| received.after(delay))
}

/// Returns when a server takes requests again whose own limit is used up: `RateLimit` (the IETF's draft, in its forms
/// since 2021), `RateLimit-Remaining` with `RateLimit-Reset`, and the same with `X-` before it. Of several limits that
/// are used up, the latest time counts. `None` if none is, or when it cannot be read.
pub fn limited_until(headers: &HeaderMap, received: Timestamp) -> Option<Timestamp> {
    let pairs = LIMIT_FIELDS
        .into_iter()
        .filter_map(|(remaining, reset)| Some((first_text(headers, remaining)?, first_text(headers, reset)?)));
    let listed = headers.get_all(RATE_LIMIT).iter().flat_map(|value| policies(value.as_bytes()));
    let until = |at: Timestamp| at.since(server_time(headers, received));
    let waits = pairs.chain(listed).filter_map(|(remaining, reset)| {
        let left: f64 = remaining.trim().parse().ok()?;
        // Some send a point in time in place of a number of seconds.
        let wait = match (epoch_millis(reset), seconds_rounded_up(reset)) {
            (Some(millis), _) => until(Timestamp::EPOCH.after(Duration::from_millis(millis))),
            (None, Some(seconds)) if seconds < EPOCH_SECONDS => Duration::from_secs(seconds),
            (None, Some(seconds)) => until(Timestamp::EPOCH.after(Duration::from_secs(seconds))),
            (None, None) => until(http_date(reset).or_else(|| rfc_3339(reset))?),
        };
        (left < 1.0 && !wait.is_zero()).then(|| received.after(wait.min(LONGEST_LIMIT)))
    });
    waits.max()
}

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
/// What is left, and when there is more.
const LIMIT_FIELDS: [(HeaderName, HeaderName); 3] = [
    (HeaderName::from_static("ratelimit-remaining"), HeaderName::from_static("ratelimit-reset")),
    (HeaderName::from_static("x-ratelimit-remaining"), HeaderName::from_static("x-ratelimit-reset")),
    (HeaderName::from_static("x-rate-limit-remaining"), HeaderName::from_static("x-rate-limit-reset")),
];
/// A number of seconds as large as this counts from 1970.
const EPOCH_SECONDS: u64 = 1_000_000_000;
/// One as large as this is in milliseconds.
const EPOCH_MILLIS: u64 = 1_000 * EPOCH_SECONDS;
/// No limit is believed to last longer.
const LONGEST_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// Returns what is left, and when there is more, of each policy in `"minute";r=0;t=30, "hour";r=9;t=3600`, or of the
/// only one in `limit=10, remaining=0, reset=30`, the form of earlier drafts.
fn policies(list: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    let items = split_outside_quotes(list, b",").filter_map(|item| parameters(item, ["r", "t"]));
    items.chain(parameters(list, ["remaining", "reset"]))
}

/// Returns the values of two parameters, if both are there.
fn parameters<'l>(list: &'l [u8], [one, other]: [&str; 2]) -> Option<(&'l str, &'l str)> {
    let value = |name: &str| {
        let pairs = split_outside_quotes(list, b",;").map(std::str::from_utf8);
        let mut pairs = pairs.filter_map(|pair| pair.ok()?.split_once('='));
        pairs.find(|(written, _)| written.trim() == name).map(|(_, value)| value.trim())
    };
    Some((value(one)?, value(other)?))
}

/// Seconds, as RFC 9110 has them, or with the fraction that some servers add to it.
fn seconds_rounded_up(text: &str) -> Option<u64> {
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), "0"));
    let seconds = delta_seconds(whole)?;
    let digits = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| seconds + u64::from(fraction.bytes().any(|byte| byte != b'0')))
}

fn epoch_millis(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|number| *number >= EPOCH_MILLIS)
}

/// Returns when the server sent the answer, by its own clock; `received`, which is by ours, if it does not say.
fn sent_at(headers: &HeaderMap, received: Timestamp) -> Timestamp {
    first_text(headers, header::DATE).and_then(http_date).unwrap_or(received)
}

/// Returns what the server's clock showed when the answer was received: a cache may have kept the answer since it was sent.
fn server_time(headers: &HeaderMap, received: Timestamp) -> Timestamp {
    let sent = first_text(headers, header::DATE).and_then(http_date);
    sent.map_or(received, |sent| sent.after(age(headers)))
}

/// Returns how long caches have kept the answer (RFC 9111, section 5.1).
fn age(headers: &HeaderMap) -> Duration {
    Duration::from_secs(first_text(headers, header::AGE).and_then(delta_seconds).unwrap_or(0))
}

fn first_text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Returns an HTTP date in any of its three forms (RFC 9110, section 5.6.7).
fn http_date(text: &str) -> Option<Timestamp> {
    let at = httpdate::parse_http_date(text.trim()).ok()?;
    let since_epoch = at.duration_since(UNIX_EPOCH).ok()?;
    Some(Timestamp::EPOCH.after(since_epoch))
}

/// Returns a date in the form of RFC 3339, which Mastodon sends.
fn rfc_3339(text: &str) -> Option<Timestamp> {
    let at = DateTime::parse_from_rfc3339(text.trim()).ok()?;
    Some(Timestamp::from_chrono(at.to_utc()))
}

/// RFC 9111, section 1.2.2: digits only; more than fits counts as the largest value.
fn delta_seconds(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX).min(MAX_DELTA_SECONDS))
}

/// Returns the seconds that a directive's argument begins with. Servers write `80000; public`, `'80000'` and `80000.0`,
/// and mean it.
fn leading_seconds(argument: &str) -> Option<u64> {
    let argument = argument.trim_start().trim_start_matches(['"', '\'']).trim_start();
    let end = argument.find(|c: char| !c.is_ascii_digit()).unwrap_or(argument.len());
    delta_seconds(&argument[..end])
}

/// The directives that matter to a reader (RFC 9111, section 5.2.2), of all `Cache-Control` fields together.
#[derive(Default)]
struct CacheControl {
    /// `no-cache` (the form without field names), or `no-store` without `im`.
    forbids_reuse: bool,
    no_store: bool,
    im: bool,
    /// The first `max-age`; 0 where it does not begin with a number, because then the answer should count as stale.
    max_age: Option<u64>,
}

impl CacheControl {
    fn of(headers: &HeaderMap) -> Self {
        let mut found = CacheControl::default();
        for value in headers.get_all(header::CACHE_CONTROL) {
            for directive in split_outside_quotes(value.as_bytes(), b",") {
                found.read(&String::from_utf8_lossy(directive));
            }
        }
        found.forbids_reuse |= found.no_store && !found.im;
        found
    }

    fn read(&mut self, directive: &str) {
        let (name, argument) = directive.split_once('=').map_or((directive, None), |(n, a)| (n, Some(a)));
        match (name.trim().to_ascii_lowercase().as_str(), argument) {
            ("no-store", _) => self.no_store = true,
            ("im", None) => self.im = true,
            ("no-cache", None) => self.forbids_reuse = true,
            ("max-age", argument) => {
                let seconds = argument.and_then(leading_seconds);
                self.max_age.get_or_insert(seconds.unwrap_or(0));
            }
            _ => {}
        }
    }
}

/// Returns the parts of a list; separators inside of `"quoted strings"` do not count.
fn split_outside_quotes<'l>(list: &'l [u8], separators: &'static [u8]) -> impl Iterator<Item = &'l [u8]> {
    let mut quoted = false;
    let mut escaped = false;
    list.split(move |byte| {
        let separates = !quoted && separators.contains(byte);
        quoted ^= *byte == b'"' && !escaped;
        escaped = quoted && *byte == b'\\' && !escaped;
        separates
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 2026-09-21T14:13:20Z
    const NOW: i64 = 1_790_000_000_000;

    fn headers(fields: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        fields.iter().map(pair).collect()
    }

    fn fresh_seconds(fields: &[(&str, &str)]) -> Option<u64> {
        freshness(&headers(fields), Timestamp::from_millis(NOW)).map(|fresh| fresh.as_secs())
    }

    fn retry_seconds(fields: &[(&str, &str)]) -> Option<u64> {
        let now = Timestamp::from_millis(NOW);
        retry_after(&headers(fields), now).map(|at| at.since(now).as_secs())
    }

    #[test]
    fn p2_validators_come_back_byte_for_byte() {
        let long = format!("\"{}\"", "x".repeat(MAX_VALIDATOR_BYTES - 2));
        let odd: [&[u8]; 9] = [
            b"\"plain\"",
            b"W/\"weak\"",
            b"unquoted",
            b"\"in \"the\" middle\"",
            b"\"\xc3\xa9\"",
            b"\"\xe9\xff\"",
            b"\"\"",
            b"\"a\", \"b\"",
            long.as_bytes(),
        ];
        for bytes in odd {
            let mut map = HeaderMap::new();
            map.insert(header::ETAG, HeaderValue::from_bytes(bytes).unwrap());
            let etag = validators(&map).etag.expect("sendable");
            assert_eq!(to_value(&etag).unwrap().as_bytes(), bytes);
        }
        let date = "Yesterday, about noon";
        assert_eq!(validators(&headers(&[("last-modified", date)])).last_modified.as_deref(), Some(date));
    }

    #[test]
    fn p3_unsendable_validators_are_dropped_not_repaired() {
        let too_long = "x".repeat(MAX_VALIDATOR_BYTES + 1);
        for value in ["", "*", too_long.as_str()] {
            assert_eq!(validators(&headers(&[("etag", value), ("last-modified", value)])), Validators::default());
        }
        assert_eq!(to_value("line\nfeed"), None);
        assert_eq!(to_value("\u{20ac}"), None);
    }

    #[test]
    fn p16_max_age_less_age_wins_over_expires() {
        assert_eq!(fresh_seconds(&[("cache-control", "max-age=3600")]), Some(3600));
        assert_eq!(fresh_seconds(&[("cache-control", "public, Max-Age = \"3600\""), ("age", "600")]), Some(3000));
        assert_eq!(fresh_seconds(&[("cache-control", "max-age=60"), ("age", "600")]), Some(0));
        assert_eq!(fresh_seconds(&[("cache-control", "max-age=60"), ("age", "old")]), Some(60));
        let expires = ("expires", "Mon, 21 Sep 2026 15:13:20 GMT");
        assert_eq!(fresh_seconds(&[expires, ("cache-control", "max-age=60")]), Some(60));
        assert_eq!(
            fresh_seconds(&[("cache-control", "private"), ("cache-control", "max-age=7")]),
            Some(7),
            "two fields"
        );
        assert_eq!(fresh_seconds(&[("cache-control", "max-age=7, max-age=9")]), Some(7), "the first counts");
        for junk in
            ["max-age=80000; public", "max-age='80000'", "max-age=80000.0", "max-age= \"80000\" ; x", "max-age=80000s"]
        {
            assert_eq!(fresh_seconds(&[("cache-control", junk)]), Some(80000), "{junk}");
        }
        assert_eq!(fresh_seconds(&[("cache-control", "s-maxage=60")]), None, "for shared caches");
        assert_eq!(fresh_seconds(&[("cache-control", "max-age=99999999999999999999999")]), Some(MAX_DELTA_SECONDS));
    }

    #[test]
    fn p16_expires_is_read_against_the_servers_own_clock() {
        let expires = ("expires", "Mon, 21 Sep 2026 15:13:20 GMT");
        assert_eq!(fresh_seconds(&[expires]), Some(3600));
        assert_eq!(fresh_seconds(&[expires, ("date", "Mon, 21 Sep 2026 15:03:20 GMT")]), Some(600));
        assert_eq!(fresh_seconds(&[expires, ("date", "Mon, 21 Sep 2026 14:13:20 GMT"), ("age", "3000")]), Some(600));
        assert_eq!(fresh_seconds(&[expires, ("date", "Tue, 22 Sep 2026 15:03:20 GMT")]), Some(0));
        assert_eq!(fresh_seconds(&[("expires", "0")]), Some(0), "garbage means already stale");
        assert_eq!(fresh_seconds(&[]), None);
    }

    #[test]
    fn p16_an_answer_that_forbids_reuse_is_not_fresh() {
        for directive in
            ["no-cache, max-age=600", "max-age=600, no-store", "NO-CACHE", "max-age=ten", "max-age", "max-age=-1"]
        {
            assert_eq!(fresh_seconds(&[("cache-control", directive)]), Some(0), "{directive}");
        }
        let of_a_delta = fresh_seconds(&[("cache-control", "no-store, im, max-age=600")]);
        assert_eq!(of_a_delta, Some(600), "P42: for caches that do not know deltas");
        let qualified = "no-cache=\"set-cookie, max-age=1\", max-age=600";
        assert_eq!(fresh_seconds(&[("cache-control", qualified)]), Some(600), "speaks of one field only");
    }

    #[test]
    fn p17_retry_after_is_read_in_all_its_forms() {
        let forms =
            ["Mon, 21 Sep 2026 14:15:20 GMT", "Monday, 21-Sep-26 14:15:20 GMT", "Mon Sep 21 14:15:20 2026", "120"];
        for form in forms.into_iter().chain([" 120 ", "119.5", "120.0"]) {
            assert_eq!(retry_seconds(&[("retry-after", form)]), Some(120), "{form}");
        }
        let by_its_clock = [("retry-after", forms[0]), ("date", "Mon, 21 Sep 2026 14:15:10 GMT")];
        assert_eq!(retry_seconds(&by_its_clock), Some(10));
        assert_eq!(retry_seconds(&[("retry-after", "5"), ("retry-after", "60")]), Some(60), "the latest of several");
    }

    #[test]
    fn p17_garbage_zero_and_the_past_are_no_time_and_huge_ones_saturate() {
        let useless =
            ["", "soon", "-5", "0", "0.0", "1e3", "5.", ".5", "Mon, 21 Sep 2020 14:15:20 GMT", "12 Monkeys", "+5"];
        for text in useless {
            assert_eq!(retry_seconds(&[("retry-after", text)]), None, "'{text}'");
        }
        assert_eq!(retry_seconds(&[("retry-after", "99999999999999999999999999")]), Some(MAX_DELTA_SECONDS));
        let late = Timestamp::MAX;
        assert_eq!(retry_after(&headers(&[("retry-after", "100")]), late), Some(late));
    }

    #[test]
    fn p17_a_limit_that_is_used_up_is_a_time_to_wait() {
        let limited = |fields: &[(&str, &str)]| {
            let now = Timestamp::from_millis(NOW);
            limited_until(&headers(fields), now).map(|at| at.since(now).as_secs())
        };
        for used_up in [
            &[("ratelimit", "\"default\";r=0;t=30")][..],
            &[("ratelimit", "limit=100, remaining=0, reset=30")],
            &[("ratelimit", "\"a\";r=5;t=60, \"b\";r=0;t=30")],
            &[("ratelimit", "\"a\";r=0;t=5, \"b\";r=0;t=30, \"c\";r=9;t=3600")],
            &[("ratelimit", "\"a;r=5;t=60, b\"; r=0; t=30")],
            &[("ratelimit-remaining", "0"), ("ratelimit-reset", "30")],
            &[("x-ratelimit-remaining", "0.0"), ("x-ratelimit-reset", "30")],
            &[("x-rate-limit-remaining", "0"), ("x-rate-limit-reset", "1790000030")],
            &[("x-rate-limit-remaining", "0"), ("x-rate-limit-reset", "1790000030000")],
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "2026-09-21T14:13:50.000000Z")],
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "Mon, 21 Sep 2026 14:13:50 GMT")],
            &[
                ("date", "Fri, 20 Nov 2026 14:59:30 GMT"),
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", "2026-11-20T15:00:00.000000Z"),
            ],
            &[
                ("date", "Mon, 21 Sep 2026 13:43:20 GMT"),
                ("age", "1800"),
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", "1790000030"),
            ],
            &[("age", "1800"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1790000030")],
        ] {
            assert_eq!(limited(used_up), Some(30), "{used_up:?}");
        }
        for not in [
            &[("ratelimit", "\"default\";r=5;t=30")][..],
            &[("ratelimit", "r=0")],
            &[("ratelimit", "\"a\";r=0, \"b\";r=9;t=3600")],
            &[("x-ratelimit-remaining", "1"), ("x-ratelimit-reset", "30")],
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "0")],
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "soon")],
            &[("x-ratelimit-remaining", "none"), ("x-ratelimit-reset", "30")],
            &[("x-ratelimit-reset", "30")],
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1600000000")],
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "2020-11-20T15:00:00.000000Z")],
            &[
                ("date", "Mon, 21 Sep 2026 13:43:20 GMT"),
                ("age", "1800"),
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", "2026-09-21T13:53:20Z"),
            ],
        ] {
            assert_eq!(limited(not), None, "{not:?}");
        }
        let by_the_hour = "\"permin\";r=5;t=30, \"perhr\";r=0;t=1800";
        assert_eq!(limited(&[("ratelimit", by_the_hour)]), Some(1800), "each policy has its own time");
        assert_eq!(limited(&[("ratelimit", "r=0;t=99999999")]), Some(24 * 3600), "no limit silences a host for long");
    }

    fn any_field() -> impl Strategy<Value = (HeaderName, HeaderValue)> {
        let read = [
            header::CACHE_CONTROL,
            header::EXPIRES,
            header::DATE,
            header::AGE,
            header::RETRY_AFTER,
            header::ETAG,
            RATE_LIMIT,
        ];
        let limits = LIMIT_FIELDS.into_iter().flat_map(|(remaining, reset)| [remaining, reset]);
        let names: Vec<HeaderName> = read.into_iter().chain(limits).collect();
        let likely = "(max-age|no-cache|s-maxage|[0-9]{0,30}|Mon, 21 Sep 2026 14:15:20 GMT|[=,\"\\\\ .;-])*";
        let limit = "(\"a\";)?r=0;t=[0-9]{1,20}|remaining=0, reset=[0-9]{1,20}";
        let value = prop_oneof![
            likely.prop_map(String::into_bytes),
            limit.prop_map(String::into_bytes),
            proptest::collection::vec(any::<u8>(), 0..200),
        ];
        let valid = value.prop_filter_map("no field value", |bytes| HeaderValue::from_bytes(&bytes).ok());
        (proptest::sample::select(names), valid)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn any_bytes_are_read_without_a_panic(
            fields in proptest::collection::vec(any_field(), 0..12),
            (remaining, reset) in proptest::sample::select(Vec::from(LIMIT_FIELDS)),
            until in "[0-9]{1,20}|[0-9]{4}-09-21T14:15:20Z",
            at in 0..=Timestamp::MAX.millis(),
        ) {
            let received = Timestamp::from_millis(at);
            let mut map = HeaderMap::new();
            for (name, value) in fields {
                map.append(name, value);
            }
            // Any two fields are rarely a limit that is used up.
            map.append(remaining, HeaderValue::from_static("0"));
            map.append(reset, until.parse().unwrap());
            let ceiling = Duration::from_secs(MAX_DELTA_SECONDS + 1);
            prop_assert!(freshness(&map, received).is_none_or(|fresh| fresh <= ceiling));
            prop_assert!(retry_after(&map, received).is_none_or(|at| at >= received));
            let possible = received..=received.after(LONGEST_LIMIT);
            prop_assert!(limited_until(&map, received).is_none_or(|at| possible.contains(&at)));
            let kept = validators(&map);
            if let (Some(etag), Some(sent)) = (&kept.etag, map.get(header::ETAG)) {
                let value = to_value(etag);
                prop_assert_eq!(value.as_ref(), Some(sent));
            }
        }

        #[test]
        fn a_delay_in_seconds_is_never_shortened(seconds in 1u64..1_000_000_000, fraction in 0u32..1000) {
            let text = format!("{seconds}.{fraction:03}");
            prop_assert!(retry_seconds(&[("retry-after", &text)]).is_some_and(|read| read >= seconds));
        }
    }
}
