//! The packed ring of a feed's last polls, as both databases keep it in the feed's own row.
//!
//! One poll is [`RECORD`] bytes, little-endian, newest first, at most 20 of them; the databases cut:
//!
//! | bytes | what |
//! |---|---|
//! | 0 | layout: 1 |
//! | 1 | outcome: its position in `OutcomeKind::ALL` |
//! | 2 | failure: its position in `FailureKind::ALL` plus 1; 0: none |
//! | 3 | number of reasons |
//! | 4..6 | HTTP status; 0: none |
//! | 6..10 | duration, ms, saturating |
//! | 10..14 | bytes on the wire, saturating |
//! | 14..20 | start, ms since 1970 |
//! | 20..26 | next due, ms since 1970; 0: none |
//! | 26..42 | reasons: their `Rule::number`s |
//!
//! A record of another layout, length or vocabulary ends the reading: history is shown to people, and no decision
//! depends on it, so that a part of it is better than an error.

use common::outcome::{FailureKind, OutcomeKind};
use common::policy::{Decision, Rule, Terms};
use common::report::FetchReport;
use common::time::Timestamp;

use super::HistoryEntry;

/// Polls that are kept.
const KEPT: i64 = 20;
/// Bytes of one poll.
const RECORD: usize = 26 + Terms::CAPACITY;

/// Bytes of a ring that stay when a further poll comes in front.
pub(crate) const EARLIER: i64 = (KEPT - 1) * RECORD as i64;

const LAYOUT: u8 = 1;

/// Returns the polls in a ring, newest first.
pub(crate) fn read(ring: &[u8]) -> Vec<HistoryEntry> {
    let (records, _) = ring.as_chunks::<RECORD>();
    records.iter().map_while(unpack).collect()
}

/// One poll: the new front of a ring, of which [`EARLIER`] bytes stay behind it.
pub(crate) fn pack(report: &FetchReport, decision: &Decision) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    let duration = u32::try_from(report.duration.as_millis()).unwrap_or(u32::MAX);
    let bytes = u32::try_from(report.wire_bytes).unwrap_or(u32::MAX);
    record[0] = LAYOUT;
    record[1] = position(&OutcomeKind::ALL, &report.outcome.kind());
    record[2] = report.outcome.failure().map_or(0, |failure| position(&FailureKind::ALL, &failure) + 1);
    record[3] = u8::try_from(decision.terms.len()).unwrap_or(0);
    record[4..6].copy_from_slice(&report.http_status.unwrap_or(0).to_le_bytes());
    record[6..10].copy_from_slice(&duration.to_le_bytes());
    record[10..14].copy_from_slice(&bytes.to_le_bytes());
    record[14..20].copy_from_slice(&six_bytes(report.started));
    record[20..26].copy_from_slice(&decision.next_due.map_or([0; 6], six_bytes));
    for (byte, term) in record[26..].iter_mut().zip(decision.terms.iter()) {
        *byte = term.rule.number();
    }
    record
}

fn unpack(record: &[u8; RECORD]) -> Option<HistoryEntry> {
    if record[0] != LAYOUT {
        return None;
    }
    let number = |range: std::ops::Range<usize>| {
        record[range].iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let time = |range| i64::try_from(number(range)).map(Timestamp::from_millis).ok();
    let reasons = record[26..].iter().take(usize::from(record[3]));
    Some(HistoryEntry {
        at: time(14..20)?,
        outcome: *OutcomeKind::ALL.get(usize::from(record[1]))?,
        failure: match record[2] {
            0 => None,
            kind => Some(*FailureKind::ALL.get(usize::from(kind) - 1)?),
        },
        status: Some(u16::from_le_bytes([record[4], record[5]])).filter(|status| *status != 0),
        bytes: number(10..14),
        duration: std::time::Duration::from_millis(number(6..10)).as_secs_f64(),
        next_due: time(20..26).filter(|at| *at != Timestamp::EPOCH),
        reasons: reasons.map(|number| Rule::ALL.get(usize::from(*number)).copied()).collect::<Option<_>>()?,
    })
}

/// Returns the position of `item` in `all`, the list of stored numbers.
fn position<T: PartialEq>(all: &[T], item: &T) -> u8 {
    all.iter().position(|other| other == item).and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)
}

/// Returns a time in 48 bits: `Timestamp::MAX` fits.
fn six_bytes(at: Timestamp) -> [u8; 6] {
    let [a, b, c, d, e, f, _, _] = at.millis().to_le_bytes();
    [a, b, c, d, e, f]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use common::host::HostKey;
    use common::policy::{PollState, Status};
    use common::report::Outcome;
    use common::url::{FeedId, Version};

    use super::*;

    fn poll(started: i64) -> (FetchReport, Decision) {
        let report = FetchReport {
            duration: Duration::from_millis(1234),
            http_status: Some(599),
            conditional: true,
            wire_bytes: 10_000_000_000,
            ..FetchReport::of(
                FeedId(1),
                Version(1),
                HostKey::new("a.org:443"),
                Timestamp::from_millis(started),
                Outcome::Failed { failure: FailureKind::Crashed, detail: String::new() },
            )
        };
        let mut terms = Terms::default();
        for rule in &Rule::ALL[Rule::ALL.len() - Terms::CAPACITY..] {
            terms.push(*rule, Timestamp::MAX);
        }
        let decision = Decision {
            state: PollState::default(),
            status: Status::Active,
            next_due: Some(Timestamp::MAX),
            terms,
            host_hold: None,
            notices: common::policy::Notices::default(),
        };
        (report, decision)
    }

    #[test]
    fn a_poll_comes_back_as_it_was_but_for_saturated_bytes() {
        let (report, decision) = poll(1_790_000_000_007);
        let read = read(&pack(&report, &decision));
        let expected = HistoryEntry {
            at: report.started,
            outcome: OutcomeKind::Failed,
            failure: Some(FailureKind::Crashed),
            status: Some(599),
            bytes: u64::from(u32::MAX),
            duration: 1.234,
            next_due: Some(Timestamp::MAX),
            reasons: Rule::ALL[Rule::ALL.len() - Terms::CAPACITY..].to_vec(),
        };
        assert_eq!(read, [expected]);
    }

    #[test]
    fn what_is_absent_comes_back_absent() {
        let (report, decision) = poll(5);
        let report = FetchReport { outcome: Outcome::Gone, http_status: None, ..report };
        let decision = Decision { next_due: None, terms: Terms::default(), ..decision };
        let read = read(&pack(&report, &decision));
        assert_eq!((read[0].failure, read[0].status, read[0].next_due), (None, None, None));
        assert_eq!(read[0].reasons, []);
    }

    #[test]
    fn bytes_of_an_unknown_layout_end_the_history_without_an_error() {
        let (report, decision) = poll(1);
        let known = pack(&report, &decision).to_vec();
        assert_eq!(read(&[known.clone(), vec![9; RECORD]].concat()).len(), 1);
        assert_eq!(read(&[known, vec![1; 7]].concat()).len(), 1);
        assert_eq!(read(&[1, 200]), []);
    }

    #[test]
    fn the_layout_is_the_one_that_old_databases_hold() {
        let (report, decision) = poll(0x0102_0304_0506);
        let packed = pack(&report, &decision);
        let head = [
            [1, 3, 12, 16].as_slice(),
            &[0x57, 2, 0xd2, 4, 0, 0, 255, 255, 255, 255],
            &[6, 5, 4, 3, 2, 1, 0xff, 0xdb, 0x1f, 0xd2, 0x77, 0xe6],
        ];
        assert_eq!(packed[..26], head.concat());
    }
}
