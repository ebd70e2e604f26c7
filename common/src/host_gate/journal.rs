//! Starts without a report so far, on disk: what the embedded gate must remember when a feed kills its process.
//!
//! A file of fixed records, overwritten in place and hardly ever synced: it has to survive the process, not the machine. One
//! record per request in flight, so the file stays as small as the worker's concurrency. A process that ends in order leaves the
//! time of its end, and nothing else.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::time::Timestamp;
use crate::url::{FeedId, Version};

/// Feed, version, starts: two i64 and a u64, little-endian. A feed of zero marks a free record.
const RECORD: usize = 24;

/// The feed of the record that holds the time of an orderly end, in milliseconds, as its version.
const ENDED: FeedId = FeedId(-1);

/// A version of a feed, and how often it was started without a report.
type Starts = (FeedId, Version, u32);

/// What the process before left.
pub(super) struct Left {
    /// Starts without a report.
    pub(super) starts: Vec<Starts>,
    /// When it ended, if it ended in order: it sent no request after that.
    pub(super) ended: Option<Timestamp>,
}

/// The file.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    places: HashMap<FeedId, u64>,
    free: Vec<u64>,
    end: u64,
}

impl Journal {
    /// Opens or makes the file.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Left)> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        let bytes = std::fs::read(path)?;
        let (records, _) = bytes.as_chunks::<RECORD>();
        let mut journal = Journal { file, places: HashMap::new(), free: Vec::new(), end: records.len() as u64 };
        let mut left = Left { starts: Vec::new(), ended: None };
        for (place, record) in (0..).zip(records) {
            match decode(record) {
                Some((ENDED, Version(at), _)) => {
                    left.ended = Some(Timestamp::from_millis(at));
                    journal.free.push(place);
                    // Before any request: if this process is killed, the time must not be that of its end.
                    journal.file.write_all_at(&[0; RECORD], place * RECORD as u64)?;
                    journal.file.sync_data()?;
                }
                Some(start) => {
                    journal.places.insert(start.0, place);
                    left.starts.push(start);
                }
                None => journal.free.push(place),
            }
        }
        Ok((journal, left))
    }

    /// Notes that a version has started so often without a report; zero forgets the feed. What cannot be written is only
    /// not remembered.
    pub(super) fn note(&mut self, feed: FeedId, version: Version, starts: u32) {
        let place = match (self.places.get(&feed), starts) {
            (None, 0) => return,
            (Some(place), 0) => {
                let place = *place;
                self.places.remove(&feed);
                self.free.push(place);
                place
            }
            (Some(place), _) => *place,
            (None, _) => {
                let place = self.free.pop().unwrap_or_else(|| {
                    self.end += 1;
                    self.end - 1
                });
                self.places.insert(feed, place);
                place
            }
        };
        let record = if starts == 0 { [0; RECORD] } else { encode(feed, version, starts) };
        if let Err(error) = self.file.write_all_at(&record, place * RECORD as u64) {
            tracing::debug!(%error, "a start could not be noted");
        }
    }

    /// Forgets everything but the time: the process ends by its own will.
    pub(super) fn close(&mut self, now: Timestamp) {
        self.places.clear();
        self.free.clear();
        self.end = 1;
        let ended = encode(ENDED, Version(now.millis()), 1);
        if let Err(error) = self.file.set_len(0).and_then(|()| self.file.write_all_at(&ended, 0)) {
            tracing::debug!(%error, "the starts could not be forgotten");
        }
    }
}

fn encode(feed: FeedId, version: Version, starts: u32) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[..8].copy_from_slice(&feed.0.to_le_bytes());
    record[8..16].copy_from_slice(&version.0.to_le_bytes());
    record[16..].copy_from_slice(&u64::from(starts).to_le_bytes());
    record
}

fn decode(record: &[u8; RECORD]) -> Option<Starts> {
    let (words, _) = record.as_chunks::<8>();
    let [feed, version, starts] = [words.first()?, words.get(1)?, words.get(2)?].map(|word| i64::from_le_bytes(*word));
    (feed != 0).then(|| (FeedId(feed), Version(version), u32::try_from(starts).unwrap_or(u32::MAX)))
}
