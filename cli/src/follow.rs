//! Entries printed as they are stored.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use scheduler::store::{Store, StoredEntry};
use tokio_util::sync::CancellationToken;

use crate::output::plain;

const LOOK_EVERY: Duration = Duration::from_millis(200);
const PAGE: u32 = 200;

/// Prints entries with a larger `seq` than `after` until stopped, and once more at the end.
pub(crate) async fn print_new_entries(store: Arc<dyn Store>, mut after: i64, stop: CancellationToken) {
    let mut last_round = false;
    loop {
        while let Ok(page) = store.entries(None, after, PAGE).await
            && let Some(last) = page.items.last()
        {
            after = last.seq;
            let mut out = std::io::stdout().lock();
            // A closed pipe is the reader's wish; the fleet goes on.
            let _ = page.items.iter().try_for_each(|entry| writeln!(out, "{}", line(entry)));
        }
        if last_round {
            return;
        }
        tokio::select! {
            () = stop.cancelled() => last_round = true,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

/// One entry as one line: when it was seen, title, link. Control characters of publishers never reach the terminal.
fn line(entry: &StoredEntry) -> String {
    let title = entry.entry.title.as_deref().unwrap_or("(no title)");
    let link = entry.entry.url.as_deref().unwrap_or(&entry.entry.id);
    format!("{}  {}  {}", entry.seen.to_chrono().format("%H:%M:%S"), plain(title, 200), plain(link, 500))
}
