//! The origin's requests and responses: the ground truth for the judge.
//!
//! Records keep the raw heads, so that order, spelling and bytes of headers are preserved, and one request costs two
//! small allocations. The log grows without bound: it belongs to one run.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use common::time::{Clock, SystemClock, Timestamp};
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};
use tokio::sync::watch;

/// Two clocks that are read within this time were read at one moment; so often it is tried.
const CLOSE: Duration = Duration::from_micros(100);
const MAX_READINGS: usize = 10;

/// Which side ended an exchange before the response was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// The origin, as its script says.
    ByUs,
    /// The client, which closed or reset the connection.
    ByPeer,
}

/// One request and its response.
#[derive(Clone, Debug)]
pub struct Record {
    /// Index in the log, from 0; requests are numbered in the order in which their heads were complete.
    pub number: usize,
    /// The connection that carried it; numbered from 0 per origin.
    pub connection: u64,
    /// The address that received it: the host.
    pub local: SocketAddr,
    /// The client's address.
    pub peer: SocketAddr,
    /// The path of the script that responded; if no script matched, the target without its query.
    pub path: Arc<str>,
    /// First byte of the request, since the origin's start.
    pub start: Duration,
    /// The same as wall time.
    pub wall: Timestamp,
    /// Just before the response's last byte was handed to the kernel, or when the exchange was cut; since the origin's
    /// start. `None` while in flight.
    pub end: Option<Duration>,
    /// The status code sent; `None` if there was none (silence, a closed connection, raw bytes).
    pub status: Option<u16>,
    /// Bytes of the body handed to the kernel: coded, without chunk framing.
    pub body_bytes: u64,
    /// Which side cut the exchange, if it was cut.
    pub cut: Option<Cut>,
    /// Which items of the path's [`truth`](crate::Origin::truth) the sent document contained; `None` for anything
    /// except a 200 with a feed.
    pub items: Option<Range<usize>>,
    request: Arc<[u8]>,
    answer: Arc<[u8]>,
}

impl Record {
    /// Returns the request's method.
    pub fn method(&self) -> &str {
        self.request_line(0)
    }

    /// Returns the request's target as sent, including the query.
    pub fn target(&self) -> &str {
        self.request_line(1)
    }

    fn request_line(&self, word: usize) -> &str {
        let line = self.request.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let word = line.split(|byte| *byte == b' ').nth(word).unwrap_or_default();
        std::str::from_utf8(word).unwrap_or("?")
    }

    /// Returns the request's headers in order, with their original spelling.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        header_lines(&self.request)
    }

    /// Returns the request's first header of that name, ignoring case; bytes beyond ASCII are read as Latin-1.
    pub fn header(&self, name: &str) -> Option<String> {
        self.header_bytes(name).map(latin1)
    }

    /// Returns the same as raw bytes.
    pub fn header_bytes(&self, name: &str) -> Option<&[u8]> {
        find(&self.request, name)
    }

    /// Returns the response's headers in order, with their original spelling; empty if no head was sent.
    pub fn answer_headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        header_lines(&self.answer)
    }

    /// Returns the response's first header of that name; bytes beyond ASCII are read as Latin-1.
    pub fn answer_header(&self, name: &str) -> Option<String> {
        self.answer_header_bytes(name).map(latin1)
    }

    /// Returns the same as raw bytes.
    pub fn answer_header_bytes(&self, name: &str) -> Option<&[u8]> {
        find(&self.answer, name)
    }

    /// Returns whether `If-None-Match` or `If-Modified-Since` was sent.
    pub fn is_conditional(&self) -> bool {
        self.header_bytes("if-none-match").is_some() || self.header_bytes("if-modified-since").is_some()
    }

    /// Returns whether the response was sent completely.
    pub fn is_complete(&self) -> bool {
        self.end.is_some() && self.cut.is_none()
    }
}

/// For log files: the essentials, headers as pairs, bytes beyond ASCII read as Latin-1.
impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let pairs = |(name, value): (&str, &[u8])| (name.to_owned(), latin1(value));
        let mut record = serializer.serialize_struct("Record", 13)?;
        record.serialize_field("number", &self.number)?;
        record.serialize_field("connection", &self.connection)?;
        record.serialize_field("host", &self.local)?;
        record.serialize_field("method", self.method())?;
        record.serialize_field("target", self.target())?;
        record.serialize_field("wall", &self.wall)?;
        record.serialize_field("start", &self.start.as_secs_f64())?;
        record.serialize_field("end", &self.end.map(|end| end.as_secs_f64()))?;
        record.serialize_field("status", &self.status)?;
        record.serialize_field("body_bytes", &self.body_bytes)?;
        record.serialize_field("cut", &self.cut)?;
        record.serialize_field("request_headers", &self.headers().map(pairs).collect::<Vec<_>>())?;
        record.serialize_field("answer_headers", &self.answer_headers().map(pairs).collect::<Vec<_>>())?;
        record.end()
    }
}

#[cfg(test)]
impl Record {
    /// Creates a GET that arrived at `at` milliseconds and was in flight for 10; a 200 is a feed. For the judge's own
    /// tests.
    pub(crate) fn made(number: usize, path: &str, at: u64, sent: &[&str], status: u16, given: &[&str]) -> Self {
        let start = Duration::from_millis(at);
        let host = SocketAddr::from(([127, 0, 0, 1], 80));
        let head = |first: String, lines: &[&str]| [&[&*first], lines, &["\r\n"]].concat().join("\r\n").into_bytes();
        Record {
            number,
            connection: 0,
            local: host,
            peer: host,
            path: path.into(),
            start,
            wall: Timestamp::from_millis(1_790_000_000_000).after(start),
            end: Some(start + Duration::from_millis(10)),
            status: Some(status),
            body_bytes: 0,
            cut: None,
            items: (status == 200).then_some(0..1),
            request: head(format!("GET {path} HTTP/1.1"), sent).into(),
            answer: head(format!("HTTP/1.1 {status} Made"), given).into(),
        }
    }

    /// Returns the same with another method.
    pub(crate) fn asked_with(self, method: &str) -> Self {
        let rest = self.request.strip_prefix(b"GET").unwrap_or(&self.request);
        Record { request: [method.as_bytes(), rest].concat().into(), ..self }
    }
}

fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

fn find<'a>(head: &'a [u8], name: &str) -> Option<&'a [u8]> {
    header_lines(head).find(|(candidate, _)| candidate.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// Splits a head that was already validated (or written by us) into its header lines.
fn header_lines(head: &[u8]) -> impl Iterator<Item = (&str, &[u8])> {
    head.split(|byte| *byte == b'\n').skip(1).filter_map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = std::str::from_utf8(&line[..colon]).ok()?;
        Some((name, line[colon + 1..].trim_ascii()))
    })
}

/// The fields known when a request's head is complete.
pub(super) struct Begin {
    pub(super) connection: u64,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    pub(super) path: Arc<str>,
    pub(super) first_byte: Duration,
    pub(super) request: Arc<[u8]>,
}

/// The fields known when an exchange ends.
#[derive(Debug, Default)]
pub(super) struct End {
    pub(super) at: Option<Duration>,
    pub(super) status: Option<u16>,
    pub(super) answer: Vec<u8>,
    pub(super) body_bytes: u64,
    pub(super) cut: Option<Cut>,
    pub(super) items: Option<Range<usize>>,
}

/// All records, and the indexes of each path's records.
#[derive(Default)]
struct Records {
    all: Vec<Record>,
    by_path: HashMap<Arc<str>, Vec<usize>>,
    ended: usize,
}

/// Numbers of requests.
#[derive(Clone, Copy)]
pub(super) struct Counts {
    pub(super) started: usize,
    pub(super) ended: usize,
}

/// The source of time of an origin.
pub(super) enum Time {
    /// The machine's clocks: the monotonic one, counted from this instant.
    Real(Instant),
    /// A clock of the caller.
    Given(Arc<dyn Clock>),
}

/// Reads two clocks at one moment. If the machine pauses between the two, they are read again: the pause would count as a difference.
fn read_together(steady: impl Fn() -> Duration, wall: impl Fn() -> Timestamp) -> (Duration, Timestamp) {
    let mut closest = (Duration::MAX, Duration::ZERO, Timestamp::EPOCH);
    for _ in 0..MAX_READINGS {
        let (before, wall) = (steady(), wall());
        let apart = steady().saturating_sub(before);
        if apart < closest.0 {
            closest = (apart, before, wall);
        }
        if apart < CLOSE {
            break;
        }
    }
    (closest.1, closest.2)
}

/// The log of one origin, and its time base.
pub(super) struct Log {
    time: Time,
    started_wall: Timestamp,
    records: Mutex<Records>,
    changes: watch::Sender<u64>,
}

impl Log {
    pub(super) fn new(time: Time) -> Self {
        let started_wall = match &time {
            Time::Real(_) => SystemClock.now(),
            Time::Given(clock) => clock.now(),
        };
        Log { time, started_wall, records: Mutex::default(), changes: watch::Sender::new(0) }
    }

    pub(super) fn started_wall(&self) -> Timestamp {
        self.started_wall
    }

    /// Returns the time since the start.
    pub(super) fn now(&self) -> Duration {
        match &self.time {
            Time::Real(started) => started.elapsed(),
            Time::Given(clock) => clock.now().since(self.started_wall),
        }
    }

    /// Returns the wall time of a moment since the start, by the clock that other processes of the machine read. Counted from the start
    /// it would drift from theirs, because a wall clock is adjusted while it runs.
    fn wall(&self, since_start: Duration) -> Timestamp {
        match &self.time {
            Time::Real(started) => {
                let (elapsed, wall) = read_together(|| started.elapsed(), || SystemClock.now());
                wall.before(elapsed.saturating_sub(since_start))
            }
            Time::Given(_) => self.started_wall.after(since_start),
        }
    }

    pub(super) fn begin(&self, begin: Begin) -> usize {
        let (start, wall) = (begin.first_byte, self.wall(begin.first_byte));
        let mut records = self.records();
        let number = records.all.len();
        records.by_path.entry(Arc::clone(&begin.path)).or_default().push(number);
        records.all.push(Record {
            number,
            connection: begin.connection,
            local: begin.local,
            peer: begin.peer,
            path: begin.path,
            start,
            wall,
            end: None,
            status: None,
            body_bytes: 0,
            cut: None,
            items: None,
            request: begin.request,
            answer: Arc::default(),
        });
        drop(records);
        self.changes.send_modify(|count| *count += 1);
        number
    }

    pub(super) fn end(&self, number: usize, end: End) {
        let at = end.at.unwrap_or_else(|| self.now());
        let mut records = self.records();
        records.ended += 1;
        if let Some(record) = records.all.get_mut(number) {
            record.end = Some(at);
            record.status = end.status;
            record.answer = end.answer.into();
            record.body_bytes = end.body_bytes;
            record.cut = end.cut;
            record.items = end.items;
        }
        drop(records);
        self.changes.send_modify(|count| *count += 1);
    }

    /// Returns the records from this number on.
    pub(super) fn since(&self, number: usize) -> Vec<Record> {
        self.records().all.get(number..).unwrap_or_default().to_vec()
    }

    pub(super) fn of_path(&self, path: &str) -> Vec<Record> {
        let records = self.records();
        let numbers = records.by_path.get(path).map(Vec::as_slice).unwrap_or_default();
        numbers.iter().map(|number| records.all[*number].clone()).collect()
    }

    /// Returns the number of records of one path, or of all, and how many of them have ended.
    pub(super) fn counts(&self, path: Option<&str>) -> Counts {
        let records = self.records();
        let ended = |numbers: &[usize]| numbers.iter().filter(|number| records.all[**number].end.is_some()).count();
        match path {
            Some(path) => {
                let numbers = records.by_path.get(path).map(Vec::as_slice).unwrap_or_default();
                Counts { started: numbers.len(), ended: ended(numbers) }
            }
            None => Counts { started: records.all.len(), ended: records.ended },
        }
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        common::lock(&self.records)
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_pause_between_reading_two_clocks_moves_no_request() {
        let started = 1_000_000;
        // The milliseconds for which the machine pauses before each reading of a clock.
        let read = |pauses: &[i64]| {
            let (time, readings) = (Cell::new(0), Cell::new(0));
            let next = || {
                time.set(time.get() + pauses.get(readings.replace(readings.get() + 1)).unwrap_or(&0));
                time.get()
            };
            let steady = || Duration::from_millis(next().unsigned_abs());
            let (elapsed, wall) = read_together(steady, || Timestamp::from_millis(started + next()));
            wall.before(elapsed).millis() - started
        };
        for pauses in [[40, 0, 0], [0, 40, 0], [0, 0, 40]] {
            assert_eq!(read(&pauses), 0, "{pauses:?}");
        }
        assert_eq!(read(&[5; 100]), 5, "the clocks cannot be read closer");
    }
}
