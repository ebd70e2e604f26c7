//! Looks for the reason of HTTP/2's GOAWAY in what a connection receives.
//!
//! A server that gets too many requests says so in that frame (`ENHANCE_YOUR_CALM`) and closes. For the requests that
//! the server had begun to answer, the HTTP library reports only that the connection broke.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Length of a frame's header (RFC 9113, section 4.1), and of GOAWAY's fixed fields (section 6.8).
const HEADER: usize = 9;
const FIELDS: usize = 8;
const GOAWAY: u8 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

/// Whether the server requested fewer requests; shared with the code that sends them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calm(Arc<AtomicBool>);

impl Calm {
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Follows the frames of a connection.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    calm: Calm,
    /// The header, and of a GOAWAY its fields, as far as they have come.
    head: [u8; HEADER + FIELDS],
    read: usize,
    /// Bytes of the frame's payload that are passed over.
    skip: usize,
}

impl Watch {
    pub(crate) fn calm(&self) -> Calm {
        self.calm.clone()
    }

    /// Takes in what was received.
    pub(crate) fn received(&mut self, mut bytes: &[u8]) {
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
            if self.head[3] == GOAWAY && length >= FIELDS {
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

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, 0, 0, 0, 0, 0], payload].concat()
    }

    fn go_away(reason: u32) -> Vec<u8> {
        frame(GOAWAY, &[&[0, 0, 0, 1][..], &reason.to_be_bytes(), b"why"].concat())
    }

    fn wants_calm(stream: &[u8], piece: usize) -> bool {
        let mut watch = Watch::default();
        stream.chunks(piece).for_each(|bytes| watch.received(bytes));
        watch.calm().is_wanted()
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
