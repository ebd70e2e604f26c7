//! Reads the events once for all subscriptions of a process.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::condition::failure_log::FailureLog;
use crate::events::follow::{Follower, Tail};
use store::{Event, EventPage, Store, StoreError};

/// After a failure of the store.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Bytes of text of a page, unless its only event has more: each subscription with a text filter looks through them.
const PAGE_BYTES: usize = 1 << 20;

/// What the reader for all found.
pub(super) enum News {
    /// It begins here: subscriptions read what was stored before.
    From(i64),
    /// Events after this number.
    Page(i64, EventPage<Event>),
}

/// Waits for news; without a reader there is none.
pub(super) async fn next_news(news: &mut Option<mpsc::Receiver<News>>) -> Option<News> {
    match news {
        Some(news) => news.recv().await,
        None => std::future::pending().await,
    }
}

/// Reads the events for all subscriptions, until the receiver is dropped.
pub(super) async fn read(store: Arc<dyn Store>, sender: mpsc::Sender<News>) {
    let mut reading = FailureLog::new("reading events for subscriptions");
    loop {
        if let Some(()) = reading.note(follow(&store, &sender).await) {
            return;
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

async fn follow(store: &Arc<dyn Store>, sender: &mpsc::Sender<News>) -> Result<(), StoreError> {
    let begin = store.latest_seq().await?;
    let mut follower = Follower::new(Arc::new(Tail::of(Arc::clone(store))), begin).holding(PAGE_BYTES);
    let mut epoch = None;
    if sender.send(News::From(begin)).await.is_err() {
        return Ok(());
    }
    loop {
        let before = follower.after();
        let page = follower.page().await?;
        let news = if epoch.get_or_insert_with(|| page.epoch.clone()) != &page.epoch || Follower::missed(before, &page)
        {
            epoch = Some(page.epoch.clone());
            News::From(store.latest_seq().await?)
        } else if page.items.is_empty() && !page.more {
            follower.news().await;
            continue;
        } else {
            let bytes = |event: &Event| event.entry.as_ref().map_or(0, |stored| stored.entry.text_bytes());
            follower.note_size(page.items.len(), page.items.iter().map(bytes).sum());
            News::Page(before, page)
        };
        if let News::From(begin) = &news {
            follower.rewind(*begin);
        }
        if sender.send(news).await.is_err() {
            return Ok(());
        }
    }
}
