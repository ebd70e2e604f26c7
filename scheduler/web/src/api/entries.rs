//! Entries, in the order in which they were stored: a reader remembers the last `seq` and asks for what came after it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use common::calm::Zone;
use common::url::FeedId;
use serde::Deserialize;

use super::sanitised::sanitised;
use crate::error::ApiError;
use crate::request::{Params, PathId, explained, limit, parsed};
use crate::state::Api;
use crate::until_sent::until_sent;
use crate::written::written;
use scheduler::wire::{EntryList, EntryView};
use store::StoredEntry;

/// The parameters of both lists.
#[derive(Debug, Deserialize)]
pub(super) struct EntryParams {
    after: Option<String>,
    /// Only what was stored before this zone's last midnight.
    calm: Option<String>,
    limit: Option<String>,
    html: Option<String>,
}

/// `GET /entries?after=SEQ&calm=ZONE&limit=&html=sanitised`
pub(super) async fn all(State(api): State<Api>, Params(params): Params<EntryParams>) -> Result<Response, ApiError> {
    list(&api, None, &params).await
}

/// `GET /feeds/{id}/entries?after=SEQ&limit=&html=sanitised`
pub(super) async fn of_feed(
    State(api): State<Api>,
    PathId(id): PathId,
    Params(params): Params<EntryParams>,
) -> Result<Response, ApiError> {
    api.feed(id).await?;
    list(&api, Some(id), &params).await
}

async fn list(api: &Api, feed: Option<FeedId>, params: &EntryParams) -> Result<Response, ApiError> {
    let accepted = "a seq: a whole number, 0 for the beginning";
    let after: i64 = parsed("after", params.after.as_deref(), accepted)?.unwrap_or(0);
    let limit = limit(params.limit.as_deref(), 100, 1000)?;
    let zone: Option<Zone> = params.calm.as_deref().map(|zone| explained("calm", zone)).transpose()?;
    // Asked first: what is stored in between belongs to today.
    let last = match zone {
        Some(zone) => api.ops.store.last_entry_before(zone.last_midnight(api.ops.clock.now())).await?,
        None => i64::MAX,
    };
    let with_html = match params.html.as_deref() {
        None => false,
        Some("sanitised") => true,
        Some(_) => return Err(ApiError::bad("html must be sanitised, or left out")),
    };
    let turn = api.page_turn().await?;
    let mut page = api.ops.store.entries(feed, after, limit).await?;
    page.items.retain(|entry| entry.seq <= last);
    if 0 < after && after < page.oldest - 1 {
        let message = format!("after={after} is older than what is kept; go on after {}", page.oldest - 1);
        let refusal = ApiError::new(StatusCode::GONE, message);
        return Err(refusal.with("oldest", page.oldest).with("epoch", page.epoch));
    }
    let next = page.items.last().map_or(after, |entry| entry.seq);
    let items =
        if with_html { made_safe(api, page.items).await? } else { page.items.into_iter().map(EntryView::of).collect() };
    let list = EntryList { epoch: page.epoch, oldest: page.oldest, items, next };
    Ok(until_sent(written(list).await?, turn))
}

/// How long the texts of one page may take to be made safe; those left by then are shown without markup.
const SANITISING_TIME: Duration = Duration::from_secs(5);

/// Adds the HTML that may be shown: processor time, so on a thread for such work, of which there are as many as cores.
async fn made_safe(api: &Api, entries: Vec<StoredEntry>) -> Result<Vec<EntryView>, ApiError> {
    let failed = || ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the sanitiser failed over an entry");
    let permit = Arc::clone(&api.sanitisers).acquire_owned().await.map_err(|_| failed())?;
    let work = tokio::task::spawn_blocking(move || {
        let _until_done = permit;
        let deadline = Instant::now() + SANITISING_TIME;
        let add = |stored: StoredEntry| {
            let said = stored.entry.details.as_ref().and_then(|details| details.base_url.as_deref());
            let base = said.or(stored.entry.url.as_deref());
            let safe = |html: &Option<String>| html.as_deref().map(|html| sanitised(html, base, deadline));
            let (summary_html, content_html) = (safe(&stored.entry.summary), safe(&stored.entry.content));
            EntryView { summary_html, content_html, ..EntryView::of(stored) }
        };
        entries.into_iter().map(add).collect()
    });
    work.await.map_err(|_| failed())
}
