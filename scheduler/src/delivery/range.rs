//! The events of a request that is repeated: the range of numbers that its id names, read again.
//!
//! The first attempt may have taken its events from memory, where a range can be longer than one page of the store. The range is
//! therefore read to its end, however many pages that takes: a request with fewer events would need a different id.

use common::causes::causes;

use crate::events::follow::cut;
use store::subscriptions::MOST_BATCH;
use store::{Event, EventFilter, EventPage, EventQuery, Progress, Store};

/// Bytes of text of a request that is repeated: more than of the first attempt, because entries may have grown since.
const BYTES: usize = 4 << 20;

/// Reads the events from the cursor to the pending number that match now. Returns also whether that is the whole range; if not, there
/// is at least one event, and the others do not fit into a request.
pub(super) async fn read(
    store: &dyn Store,
    filter: &EventFilter,
    progress: &Progress,
) -> Result<(EventPage<Event>, bool), String> {
    let mut page = find(store, filter, progress.cursor).await?;
    loop {
        page.items.retain(|event| event.seq <= progress.pending);
        if cut(&mut page.items, BYTES) {
            return Ok((page, false));
        }
        if !page.more || page.next >= progress.pending {
            return Ok((page, true));
        }
        let further = find(store, filter, page.next).await?;
        if further.epoch != page.epoch {
            return Err("the store was replaced while the events of a request were read".to_owned());
        }
        page.items.extend(further.items);
        (page.next, page.more) = (further.next, further.more);
    }
}

async fn find(store: &dyn Store, filter: &EventFilter, after: i64) -> Result<EventPage<Event>, String> {
    let query = EventQuery { filter: filter.clone(), ..EventQuery::after(after, MOST_BATCH) };
    store.find_events(&query).await.map_err(|error| causes(&error).to_string())
}
