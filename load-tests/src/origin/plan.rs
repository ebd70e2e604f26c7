//! From a request to the response that the script specifies: pure except for the path's own state.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::time::Timestamp;

use super::bodies::Coding;
use super::feed::{Feed, Tag};
use super::items::{FeedState, http_date};
use super::render;
use super::script::{Delivery, Gate, Lasts, Source};
use super::shared::{Route, Shared};

/// The parts of a request that responses depend on.
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    pub(super) target: &'a str,
    pub(super) none_match: Option<&'a [u8]>,
    pub(super) modified_since: Option<&'a [u8]>,
    pub(super) accept_encoding: Cow<'a, str>,
    /// `A-IM: feed`
    pub(super) delta: bool,
}

/// A response, ready to be sent.
pub(super) struct Plan {
    pub(super) path: Arc<str>,
    pub(super) status: u16,
    pub(super) headers: Vec<(String, Vec<u8>)>,
    /// The body for the status: empty for a 304.
    pub(super) body: Bytes,
    /// False for HEAD: the length is sent, the body is not.
    pub(super) send_body: bool,
    pub(super) delivery: Delivery,
    pub(super) delay: Duration,
    pub(super) gate: Option<Gate>,
    pub(super) items: Option<Range<usize>>,
}

impl Shared {
    /// Plays one step of the script that belongs to the target.
    pub(super) fn plan(&self, request: &Request<'_>) -> Plan {
        let elapsed = self.log.now();
        let now = self.log.started_wall().after(elapsed);
        let bare = request.target.split('?').next().unwrap_or_default();
        let mut routes = common::lock(&self.routes);
        let known = [request.target, bare]
            .into_iter()
            .find_map(|path| routes.get_key_value(path).map(|(path, _)| Arc::clone(path)));
        let path = known.unwrap_or_else(|| bare.into());
        if !routes.contains_key(&path)
            && let Some(script) = self.fallback.get().and_then(|make| make(&path))
        {
            let route = Route::new(&path, script, None, self.log.started_wall());
            routes.insert(Arc::clone(&path), route);
        }
        match routes.get_mut(&path) {
            Some(route) => {
                if let Some(feed) = &mut route.feed {
                    feed.advance(elapsed, self.log.started_wall());
                }
                route.play(elapsed);
                route.answer(path, request, now)
            }
            None => plan_of_404(path, request, now),
        }
    }
}

impl Route {
    /// Moves to the step that responds now, and counts this request.
    fn play(&mut self, elapsed: Duration) {
        while self.step + 1 < self.script.steps.len() {
            let over = match self.script.steps[self.step].lasts {
                Lasts::Times(requests) => self.served_in_step >= requests,
                Lasts::Until(time) => elapsed >= time,
            };
            if !over {
                break;
            }
            self.step += 1;
            self.served_in_step = 0;
        }
        self.served_in_step += 1;
    }

    fn answer(&mut self, path: Arc<str>, request: &Request<'_>, now: Timestamp) -> Plan {
        let step = &self.script.steps[self.step];
        let mut headers = vec![("Date".to_owned(), http_date(now).into_bytes())];
        let accepted = || step.offered.iter().copied().find(|coding| coding.accepted_by(&request.accept_encoding));
        let coding = step.forced.or_else(accepted).unwrap_or(Coding::Identity);
        let (status, plain, items) = match (&step.source, &mut self.feed) {
            (Source::Feed(feed), Some(state)) => feed_answer(feed, &path, state, request, coding, &mut headers),
            (Source::Feed(_), None) => (500, Bytes::from_static(b"this path has no items"), None),
            (Source::Fixed { status, content_type, body }, _) => {
                if let Some(content_type) = content_type {
                    headers.push(("Content-Type".to_owned(), content_type.clone().into_bytes()));
                }
                (*status, body.clone(), None)
            }
        };
        if !step.offered.is_empty() {
            headers.push(("Vary".to_owned(), b"Accept-Encoding".to_vec()));
        }
        let is_coded = coding != Coding::Identity && !plain.is_empty();
        if is_coded {
            headers.push(("Content-Encoding".to_owned(), coding.name().into()));
        }
        headers.retain(|(name, _)| !step.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name)));
        headers.extend(step.headers.iter().map(|(name, value)| (name.clone(), with_dates(value, now))));
        let (delivery, delay, gate) = (step.delivery.clone(), step.delay, step.gate.clone());
        let body = if is_coded { self.coded(coding, &plain) } else { plain };
        Plan { path, status, headers, body, send_body: request.method != "HEAD", delivery, delay, gate, items }
    }

    /// Returns the encoded body, cached until the step, the document or the coding changes, because encoding is the
    /// most expensive part.
    fn coded(&mut self, coding: Coding, plain: &Bytes) -> Bytes {
        let key = (self.step, self.feed.as_ref().map_or(0, FeedState::revision), coding);
        match &self.coded {
            Some((kept, body)) if *kept == key => body.clone(),
            _ => {
                let body = coding.encode(plain).map_or_else(|_| plain.clone(), Bytes::from);
                self.coded = Some((key, body.clone()));
                body
            }
        }
    }
}

fn plan_of_404(path: Arc<str>, request: &Request<'_>, now: Timestamp) -> Plan {
    Plan {
        path,
        status: 404,
        headers: vec![("Date".to_owned(), http_date(now).into_bytes())],
        body: Bytes::from_static(b"no script for this path\n"),
        send_body: request.method != "HEAD",
        delivery: Delivery::Whole,
        delay: Duration::ZERO,
        gate: None,
        items: None,
    }
}

type StatusBodyItems = (u16, Bytes, Option<Range<usize>>);

fn feed_answer(
    feed: &Feed,
    path: &str,
    state: &mut FeedState,
    request: &Request<'_>,
    coding: Coding,
    headers: &mut Vec<(String, Vec<u8>)>,
) -> StatusBodyItems {
    let not_modified = state.not_modified(feed, request.none_match, request.modified_since);
    let current = state.current(feed);
    let tag = match &feed.tag {
        Tag::Suffix(suffix) if coding != Coding::Identity => current.tag.map(|tag| with_suffix(&tag, suffix)),
        _ => current.tag,
    };
    headers.extend(tag.map(|tag| ("ETag".to_owned(), tag)));
    headers.extend(current.stamp.map(|stamp| ("Last-Modified".to_owned(), stamp)));
    if not_modified {
        return (304, Bytes::new(), None);
    }
    headers.push(("Content-Type".to_owned(), feed.content_type().into()));
    let visible = state.visible(feed);
    let asked = request.none_match.filter(|_| request.delta && feed.deltas);
    if let Some(known) = asked.and_then(|tag| state.known_until(feed, tag)).filter(|known| *known >= visible.start) {
        headers.push(("IM".to_owned(), b"feed".to_vec()));
        let new = known..visible.end;
        let document = render::document(feed, path, &state.items()[new.clone()], state.modified());
        return (226, document.into(), Some(new));
    }
    let document = render::document(feed, path, &state.items()[visible.clone()], state.modified());
    (200, document.into(), Some(visible))
}

fn with_suffix(tag: &[u8], suffix: &str) -> Vec<u8> {
    match tag.strip_suffix(b"\"") {
        Some(open) => [open, suffix.as_bytes(), b"\""].concat(),
        None => [tag, suffix.as_bytes()].concat(),
    }
}

/// Replaces `{date}`, `{date+N}` and `{date-N}`, and the same with `{date850` and `{asctime`; leaves other text in
/// braces unchanged.
fn with_dates(value: &[u8], now: Timestamp) -> Vec<u8> {
    let replaced = FORMS.into_iter().find_map(|(name, form)| with_date(value, name, form, now));
    replaced.unwrap_or_else(|| value.to_vec())
}

/// Converts an IMF-fixdate to another form.
type Form = fn(&str) -> Option<String>;

/// The three forms of RFC 9110, section 5.6.7; `{date` is a prefix of another one and comes last.
const FORMS: [(&[u8], Form); 3] =
    [(b"{date850", rfc850), (b"{asctime", asctime), (b"{date", |date| Some(date.to_owned()))];

fn with_date(value: &[u8], name: &[u8], form: Form, now: Timestamp) -> Option<Vec<u8>> {
    let open = value.windows(name.len()).position(|part| part == name)?;
    let length = value[open..].iter().position(|byte| *byte == b'}')?;
    let offset = std::str::from_utf8(&value[open + name.len()..open + length]).ok()?;
    let at = match (offset.strip_prefix('+').map(str::parse), offset.strip_prefix('-').map(str::parse)) {
        (Some(Ok(seconds)), _) => now.after(Duration::from_secs(seconds)),
        (_, Some(Ok(seconds))) => now.before(Duration::from_secs(seconds)),
        _ if offset.is_empty() => now,
        _ => return None,
    };
    Some([&value[..open], form(&http_date(at))?.as_bytes(), &value[open + length + 1..]].concat())
}

/// Formats `Sun, 06 Nov 1994 08:49:37 GMT` as `Sunday, 06-Nov-94 08:49:37 GMT`.
fn rfc850(date: &str) -> Option<String> {
    let names = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
    let weekday = names.into_iter().find(|name| name.starts_with(&date[..3]))?;
    let [day, month, year, time] = parts(date)?;
    Some(format!("{weekday}, {day}-{month}-{} {time} GMT", year.get(2..)?))
}

/// Formats the same date as `Sun Nov  6 08:49:37 1994`.
fn asctime(date: &str) -> Option<String> {
    let [day, month, year, time] = parts(date)?;
    Some(format!("{} {month} {:>2} {time} {year}", &date[..3], day.trim_start_matches('0')))
}

fn parts(date: &str) -> Option<[&str; 4]> {
    let mut words = date.split(' ').skip(1);
    Some([words.next()?, words.next()?, words.next()?, words.next()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_put_in_in_all_three_forms() {
        // 1994-11-06T08:49:37Z
        let now = Timestamp::from_millis(784_111_777_000);
        let text = |value: &str| String::from_utf8(with_dates(value.as_bytes(), now)).unwrap();
        assert_eq!(text("<{date}>"), "<Sun, 06 Nov 1994 08:49:37 GMT>");
        assert_eq!(text("{date850+3}"), "Sunday, 06-Nov-94 08:49:40 GMT");
        assert_eq!(text("{asctime-7}"), "Sun Nov  6 08:49:30 1994");
        assert_eq!(text("{date+x} {dates}"), "{date+x} {dates}");
    }
}
