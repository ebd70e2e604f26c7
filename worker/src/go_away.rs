//! Follows the frames of an HTTP/2 connection, for two things that the HTTP library does not report.
//!
//! A server that receives too many requests says so in GOAWAY (`ENHANCE_YOUR_CALM`) and closes. The library reports to the
//! requests that the server had begun to answer only that the connection broke.
//!
//! A server can send frames without data, such as SETTINGS, PING, WINDOW_UPDATE and interim responses, as fast as it can
//! until the fetch ends. The library reads and answers all of them. Here the connection ends instead: after as many interim responses as
//! over HTTP/1, and after a number of frames in total.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Length of a frame's header (RFC 9113, section 4.1), and of GOAWAY's fixed fields (section 6.8).
const HEADER: usize = 9;
const FIELDS: usize = 8;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;
/// A flag of DATA and HEADERS: the last frame of a request or response.
const END_STREAM: u8 = 1;
/// The HEADERS of a response: its head and its trailers.
const FINAL_HEADERS: usize = 2;
/// What a client sends before its first frame, in bytes (section 3.4).
const PREFACE: usize = 24;
/// The maximum number of frames without data after each request without a body. A response has one or two, some interim
/// responses, and some SETTINGS, PING and WINDOW_UPDATE.
const MOST_FRAMES: usize = 200;
/// The number of sent bytes that allow one more: servers acknowledge what they receive with WINDOW_UPDATE.
const BYTES_PER_FRAME: usize = 1024;

/// Whether the server requested fewer requests; shared with the code that sends them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calm(Arc<AtomicBool>);

impl Calm {
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The server sent more frames without data than any response needs. Inside of an [`io::Error`].
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("more HTTP/2 frames without data than a response needs")]
pub(crate) struct Flood;

/// Follows the frames of a connection in both directions.
#[derive(Debug)]
pub(crate) struct Exchange {
    received: Watch,
    sent: Watch,
    /// The maximum number of interim responses to a request.
    most_interim: usize,
    /// How many requests had been sent when none waited for its response last.
    answered: usize,
}

impl Exchange {
    pub(crate) fn new(most_interim: usize) -> Self {
        let sent = Watch { skip: PREFACE, ..Watch::default() };
        Exchange { received: Watch::default(), sent, most_interim, answered: 0 }
    }

    pub(crate) fn calm(&self) -> Calm {
        self.received.calm.clone()
    }

    /// Takes in what was sent. A request allows the server another response.
    pub(crate) fn sent(&mut self, bytes: &[u8]) {
        let (before, open) = (self.sent.headers, self.open_requests());
        self.sent.passed(bytes);
        if self.sent.headers != before {
            self.received.without_data = 0;
            if open == 0 {
                (self.answered, self.received.headers) = (before, 0);
            }
        }
    }

    /// Returns how many requests wait for the end of their responses.
    fn open_requests(&self) -> usize {
        self.sent.headers.saturating_sub(self.received.ended + self.sent.reset)
    }

    /// Takes in what was received.
    pub(crate) fn received(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.received.passed(bytes);
        let most_headers = self.most_interim + FINAL_HEADERS * (self.sent.headers - self.answered);
        let is_flood = self.received.without_data > MOST_FRAMES + self.sent.data / BYTES_PER_FRAME
            || self.received.headers > most_headers;
        if is_flood { Err(io::Error::new(io::ErrorKind::InvalidData, Flood)) } else { Ok(()) }
    }
}

/// Follows the frames of one direction.
#[derive(Debug, Default)]
struct Watch {
    calm: Calm,
    /// The number of frames that are not DATA, and of those that are HEADERS.
    without_data: usize,
    headers: usize,
    /// The number of streams that ended, and of those among them that were reset.
    ended: usize,
    reset: usize,
    /// Bytes in DATA since the last of these.
    data: usize,
    /// The header, and of a GOAWAY its fields, as far as they have come.
    head: [u8; HEADER + FIELDS],
    read: usize,
    /// Bytes of the frame's payload that are passed over.
    skip: usize,
}

impl Watch {
    fn passed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let passed = self.skip.min(bytes.len());
                self.skip -= passed;
                bytes = &bytes[passed..];
                continue;
            }
            let wanted = if self.read < HEADER { HEADER } else { HEADER + FIELDS };
            let taken = (wanted - self.read).min(bytes.len());
            self.head[self.read..self.read + taken].copy_from_slice(&bytes[..taken]);
            self.read += taken;
            bytes = &bytes[taken..];
            if self.read == wanted {
                self.come_to_an_end_of_fields();
            }
        }
    }

    fn come_to_an_end_of_fields(&mut self) {
        let length = usize::try_from(u32::from_be_bytes([0, self.head[0], self.head[1], self.head[2]])).unwrap_or(0);
        if self.read == HEADER {
            let (kind, flags) = (self.head[3], self.head[4]);
            let is_last = matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0;
            self.ended += usize::from(is_last || kind == RST_STREAM);
            self.reset += usize::from(kind == RST_STREAM);
            self.without_data += usize::from(kind != DATA);
            match kind {
                HEADERS => (self.headers, self.data) = (self.headers + 1, 0),
                DATA => self.data += length,
                _ => {}
            }
            if kind == GOAWAY && length >= FIELDS {
                return;
            }
            self.skip = length;
        } else {
            let [.., a, b, c, d] = self.head;
            if u32::from_be_bytes([a, b, c, d]) == ENHANCE_YOUR_CALM {
                self.calm.0.store(true, Ordering::Relaxed);
            }
            self.skip = length - FIELDS;
        }
        self.read = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST_INTERIM: usize = 16;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, 0, 0, 0, 0, 0], payload].concat()
    }

    fn go_away(reason: u32) -> Vec<u8> {
        frame(GOAWAY, &[&[0, 0, 0, 1][..], &reason.to_be_bytes(), b"why"].concat())
    }

    fn wants_calm(stream: &[u8], piece: usize) -> bool {
        let mut exchange = Exchange::new(MOST_INTERIM);
        stream.chunks(piece).for_each(|bytes| exchange.received(bytes).unwrap());
        exchange.calm().is_wanted()
    }

    /// Returns how many of these frames a server may send before the connection ends.
    fn allowed(exchange: &mut Exchange, frame: &[u8]) -> usize {
        (0..10_000).take_while(|_| exchange.received(frame).is_ok()).count()
    }

    #[test]
    fn armour_frames_without_data_are_limited_after_each_request() {
        let request = frame(HEADERS, &[0x82]);
        for kind in [3, 4, 6, 8, 9] {
            let mut exchange = Exchange::new(MOST_INTERIM);
            exchange.sent(&[&[0; PREFACE][..], &frame(4, &[0; 6]), &request].concat());
            assert_eq!(allowed(&mut exchange, &frame(kind, &[0; 8])), MOST_FRAMES, "of kind {kind}");
            // What a client answers on its own, such as to a ping, allows nothing.
            exchange.sent(&frame(6, &[0; 8]));
            assert_eq!(allowed(&mut exchange, &frame(kind, &[0; 8])), 0, "of kind {kind}");
            exchange.sent(&request);
            assert_eq!(allowed(&mut exchange, &frame(kind, &[0; 8])), MOST_FRAMES, "of kind {kind}");
        }
        // A body that the server acknowledges piece by piece.
        let mut exchange = Exchange::new(MOST_INTERIM);
        exchange.sent(&[&[0; PREFACE][..], &request].concat());
        for _ in 0..300 {
            exchange.sent(&frame(DATA, &[0; 16_000]));
            (0..2).for_each(|_| exchange.received(&frame(8, &[0; 4])).unwrap());
        }
        exchange.sent(&request);
        assert_eq!(allowed(&mut exchange, &frame(8, &[0; 4])), MOST_FRAMES, "what the request before sent is over");
        assert_eq!(
            allowed(&mut Exchange::new(MOST_INTERIM), &frame(DATA, &[0; 8])),
            10_000,
            "data has limits of its own"
        );
    }

    #[test]
    fn armour_a_server_sends_as_many_interim_responses_as_over_http_1() {
        let (request, interim) = (frame(HEADERS, &[0x82]), frame(HEADERS, &[0x08]));
        let last = |kind| [&[0, 0, 1, kind, END_STREAM][..], &[0; 5]].concat();
        let mut exchange = Exchange::new(MOST_INTERIM);
        exchange.sent(&[&[0; PREFACE][..], &request].concat());
        assert_eq!(allowed(&mut exchange, &interim), MOST_INTERIM + FINAL_HEADERS);
        for _ in 0..100 {
            let mut exchange = Exchange::new(MOST_INTERIM);
            exchange.sent(&[&[0; PREFACE][..], &request].concat());
            // Kept connections: each response may have all of them, a head and trailers.
            for _ in 0..50 {
                (0..MOST_INTERIM).for_each(|_| exchange.received(&interim).unwrap());
                exchange.received(&[frame(HEADERS, &[0x88]), frame(DATA, &[0; 9]), last(HEADERS)].concat()).unwrap();
                exchange.sent(&request);
            }
            assert_eq!(allowed(&mut exchange, &interim), MOST_INTERIM + FINAL_HEADERS);
        }
        // Requests at the same time, of which one was given up.
        let mut exchange = Exchange::new(MOST_INTERIM);
        exchange.sent(&[&[0; PREFACE][..], &request.repeat(40)].concat());
        exchange.sent(&frame(RST_STREAM, &[0; 4]));
        for _ in 0..39 {
            exchange.received(&[frame(HEADERS, &[0x88]), last(DATA)].concat()).unwrap();
        }
        exchange.sent(&request);
        assert_eq!(allowed(&mut exchange, &interim), MOST_INTERIM + FINAL_HEADERS);
    }

    #[test]
    fn only_a_goaway_that_asks_for_calm_does_however_it_is_cut() {
        let data = frame(0, &go_away(11));
        let calm = [frame(4, &[0; 6]), data.clone(), frame(1, b""), go_away(11), data.clone()].concat();
        let other = [frame(4, &[0; 6]), data, go_away(0), frame(GOAWAY, &[11; 3]), go_away(2)].concat();
        for piece in 1..60 {
            assert!(wants_calm(&calm, piece), "in pieces of {piece}");
            assert!(!wants_calm(&other, piece), "in pieces of {piece}");
        }
    }
}
