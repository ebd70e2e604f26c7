//! Follows the servers' log: the requests that ended since the last read, those in flight, and totals.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use load_tests::{Origin, Record};

use super::picture::Requests;

/// How many whole seconds of throughput are kept.
const PACE_SECONDS: usize = 120;

/// What was read so far.
#[derive(Default)]
pub(super) struct Reader {
    next: usize,
    /// Requests in flight, by number.
    pub(super) open: BTreeMap<usize, Record>,
    /// The totals.
    pub(super) sums: Requests,
    /// Body bytes of each path's last full response: what a 304 saves.
    last_full: HashMap<Arc<str>, u64>,
    ended_in: BTreeMap<u64, u32>,
}

impl Reader {
    /// Returns the requests that ended since the last read.
    pub(super) fn read(&mut self, origin: &Origin) -> Vec<Record> {
        let from = self.open.keys().next().map_or(self.next, |oldest| self.next.min(*oldest));
        let mut ended = Vec::new();
        for record in origin.log_from(from) {
            let is_new = record.number >= self.next;
            if !is_new && !self.open.contains_key(&record.number) {
                continue;
            }
            self.next = self.next.max(record.number + 1);
            if record.end.is_some() {
                self.open.remove(&record.number);
                self.count(&record);
                ended.push(record);
            } else {
                self.open.insert(record.number, record);
            }
        }
        ended
    }

    fn count(&mut self, record: &Record) {
        self.sums.count += 1;
        if record.items.is_some() && record.is_complete() {
            self.sums.full += 1;
            self.sums.sent += record.body_bytes;
            self.last_full.insert(Arc::clone(&record.path), record.body_bytes);
        }
        if record.status == Some(304) {
            self.sums.not_modified += 1;
            self.sums.saved += self.last_full.get(&record.path).copied().unwrap_or(0);
        }
        *self.ended_in.entry(record.end.unwrap_or_default().as_secs()).or_default() += 1;
        while self.ended_in.len() > PACE_SECONDS {
            self.ended_in.pop_first();
        }
    }

    /// Returns the number of requests that ended in each whole second before `now`, oldest first.
    pub(super) fn pace(&self, now: Duration) -> Vec<u32> {
        let first = self.ended_in.keys().next().copied().unwrap_or_default();
        (first..now.as_secs()).map(|second| self.ended_in.get(&second).copied().unwrap_or(0)).collect()
    }
}

#[cfg(test)]
mod tests {
    use load_tests::{Feed, Script};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    async fn get(origin: &Origin, path: &str, condition: &str) {
        let mut stream = tokio::net::TcpStream::connect(origin.address(0)).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{condition}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.read_to_end(&mut Vec::new()).await.unwrap();
    }

    #[tokio::test]
    async fn a_304_saves_what_the_path_sent_last_and_each_request_is_counted_once() {
        let origin = Origin::start().await.unwrap();
        let gate = load_tests::Gate::closed();
        origin.set("/feed", Script::feed(Feed::rss()));
        origin.set("/slow", Script::feed(Feed::rss()).gate(&gate));
        let (origin, mut reader) = (Arc::new(origin), Reader::default());
        let slow = {
            let origin = Arc::clone(&origin);
            tokio::spawn(async move { get(&origin, "/slow", "").await })
        };
        origin.wait_for_start("/slow", 1, PATIENCE).await;
        get(&origin, "/feed", "").await;
        let tag = origin.wait_for("/feed", 1, PATIENCE).await[0].answer_header("etag").unwrap();
        get(&origin, "/feed", &format!("If-None-Match: {tag}\r\n")).await;
        origin.wait_for_total(2, PATIENCE).await;
        let mut ended = reader.read(&origin).len();
        assert_eq!((ended, reader.open.len()), (2, 1), "the slow one is under way while later ones ended");
        gate.open();
        slow.await.unwrap();
        origin.wait_for_total(3, PATIENCE).await;
        ended += reader.read(&origin).len() + reader.read(&origin).len();
        assert_eq!((ended, reader.open.len()), (3, 0));
        let Requests { count, not_modified, full, saved, .. } = reader.sums;
        assert_eq!((count, not_modified, full), (3, 1, 2));
        assert_eq!(saved, origin.requests("/feed")[0].body_bytes);
    }
}
