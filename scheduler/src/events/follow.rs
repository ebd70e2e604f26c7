//! Following the events: a reader with a cursor, which waits where there is nothing yet.
//!
//! Everything is read from the store, a page at a time, so that a slow reader costs one page and delays no other.
//! Numbers become visible in their order (`store`), so that a cursor skips nothing. However many followers wait, one
//! query at a time serves all of them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, watch};

use store::{Event, EventFilter, EventPage, EventQuery, Store, StoreError};

/// Between two questions for the newest number.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Events of a page, at most and at first.
const MOST: u32 = 200;
const AT_FIRST: u32 = 20;
/// What a page shall come to, in bytes of JSON: an entry may have a few hundred of them, or millions.
const PAGE_BYTES: usize = 1 << 20;

/// The newest number of a store, for all who wait for a newer one.
pub struct Tail {
    store: Arc<dyn Store>,
    newest: watch::Sender<i64>,
    /// Held by the one who asks.
    asking: Mutex<()>,
}

impl Tail {
    /// Returns the tail of this store; it sends no query without followers.
    pub fn of(store: Arc<dyn Store>) -> Self {
        Tail { store, newest: watch::Sender::new(0), asking: Mutex::default() }
    }

    /// The newest number that was heard of; all up to it can be read.
    fn newest(&self) -> i64 {
        *self.newest.borrow()
    }

    /// Returns when there is a number beyond this one.
    async fn beyond(&self, seq: i64) {
        let mut newest = self.newest.subscribe();
        loop {
            tokio::select! {
                biased;
                _ = newest.wait_for(|newest| *newest > seq) => return,
                () = self.ask() => {}
            }
        }
    }

    /// Asks the store, after a pause. If the store does not answer, a reader that still waits asks again.
    async fn ask(&self) {
        let _turn = self.asking.lock().await;
        tokio::time::sleep(LOOK_EVERY).await;
        if let Ok(seq) = self.store.latest_seq().await {
            self.newest.send_replace(seq);
        }
    }
}

/// A reader of events.
pub struct Follower {
    tail: Arc<Tail>,
    after: i64,
    /// Up to here there is nothing that was not read, also where numbers are missing.
    looked: i64,
    limit: u32,
    /// Bytes of text of a page that is kept, or of its only event.
    bytes: usize,
    filter: EventFilter,
}

impl Follower {
    /// Begins after this number.
    pub fn new(tail: Arc<Tail>, after: i64) -> Self {
        Follower { tail, after, looked: after, limit: AT_FIRST, bytes: usize::MAX, filter: EventFilter::default() }
    }

    /// Keeps at most this many bytes of text of a page: the share of one reader.
    #[must_use]
    pub fn holding(self, bytes: usize) -> Self {
        Follower { bytes, ..self }
    }

    /// Reads only events that match. Each page looks at a bounded number of events, and may be empty.
    #[must_use]
    pub fn only(self, filter: EventFilter) -> Self {
        Follower { filter, ..self }
    }

    /// The number up to which events were read.
    pub fn after(&self) -> i64 {
        self.after
    }

    /// The next events; none when there are none yet. What [missed](Follower::missed) says is to be looked at.
    pub async fn page(&mut self) -> Result<EventPage<Event>, StoreError> {
        // Asked before: what comes while the page is read may or may not be in it.
        let newest = self.tail.newest();
        let query = EventQuery { filter: self.filter.clone(), ..EventQuery::after(self.after, self.limit) };
        let mut page = self.tail.store.find_events(&query).await?;
        if cut(&mut page.items, self.bytes) {
            page.more = true;
            page.next = page.items.last().map_or(self.after, |event| event.seq);
        }
        self.looked = if page.more { page.next } else { newest.max(page.next) };
        self.after = page.next;
        Ok(page)
    }

    /// Goes back to this number, because what was read after it cannot be kept now.
    pub fn rewind(&mut self, after: i64) {
        (self.after, self.looked) = (after, after);
    }

    /// Retention took something between this cursor and the page that was read after it.
    pub fn missed<T>(after: i64, page: &EventPage<T>) -> bool {
        0 < after && after < page.oldest - 1
    }

    /// Takes the number of bytes that a number of events became, so that the next page has a fitting size.
    pub fn note_size(&mut self, events: usize, bytes: usize) {
        let each = (bytes / events.max(1)).max(1);
        self.limit = u32::try_from(PAGE_BYTES / each).unwrap_or(MOST).clamp(1, MOST);
    }

    /// Returns when there may be further events.
    pub async fn news(&self) {
        self.tail.beyond(self.looked).await;
    }
}

/// Leaves the first events, as many as fit and one at least; returns whether some were left out.
pub(crate) fn cut(events: &mut Vec<Event>, bytes: usize) -> bool {
    let mut sum = 0_usize;
    let size = |event: &Event| event.entry.as_ref().map_or(0, |stored| stored.entry.text_bytes());
    let fitting = events.iter().take_while(|event| {
        sum = sum.saturating_add(size(event));
        sum <= bytes
    });
    let kept = fitting.count().max(1);
    let cut = kept < events.len();
    events.truncate(kept);
    cut
}
