//! Entries printed as they are stored.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use store::{Store, StoredEntry};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::output::plain;
use crate::terminal::{Ink, paint};
use crate::when;

const LOOK_EVERY: Duration = Duration::from_millis(200);
const PAGE: u32 = 200;

/// Lines that may wait for a slow reader of our output; then reading entries waits as well.
const LINES: usize = 1000;

/// Prints entries with a larger `seq` than `after` until stopped, and once more at the end. Ends when everything is
/// written. A reader that does not read can delay this for ever: the fleet itself does not wait for it.
pub(crate) async fn print_new_entries(store: Arc<dyn Store>, mut after: i64, stop: CancellationToken) {
    let (lines, to_write) = mpsc::channel(LINES);
    let (written, all_written) = oneshot::channel();
    // A separate thread, outside of the runtime: writing blocks for as long as the reader does not read.
    std::thread::spawn(move || {
        write(to_write);
        let _ = written.send(());
    });
    let mut last_round = false;
    loop {
        while let Ok(page) = store.entries(None, after, PAGE).await
            && let Some(last) = page.items.last()
        {
            after = last.seq;
            for entry in &page.items {
                // The reader closed the pipe on purpose; the fleet continues.
                let _ = lines.send(line(entry)).await;
            }
        }
        if last_round {
            drop(lines);
            let _ = all_written.await;
            return;
        }
        last_round = !common::sleep_or_stop(LOOK_EVERY, &stop).await;
    }
}

fn write(mut lines: mpsc::Receiver<String>) {
    let mut out = anstream::stdout();
    while let Some(line) = lines.blocking_recv() {
        if writeln!(out, "{line}").is_err() {
            return;
        }
    }
}

/// One entry as one line: when it was seen, its feed, title, link. Control characters of publishers never reach the terminal.
fn line(entry: &StoredEntry) -> String {
    let link = entry.entry.url.as_deref().unwrap_or(&entry.entry.id);
    let feed = entry.feed.feed_title.as_deref().or(entry.feed.feed_url.as_deref());
    format!(
        "{}  {}  {}  {}",
        when::time_of_day(entry.seen),
        feed.map_or_else(|| format!("feed {}", entry.feed_id), |name| plain(name, 50)),
        paint(Ink::Bold, &plain(entry.entry.display_title(), 200)),
        paint(Ink::Dim, &plain(link, 500))
    )
}
