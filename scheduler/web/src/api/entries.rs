//! Entries, in the order in which they were stored: a reader remembers the last `seq` and requests what came after it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use common::calm::Zone;
use common::url::FeedId;
use serde::Deserialize;

use crate::error::ApiError;
use crate::reading::{cursor, feed_id, parameters, refuse_lost};
use crate::request::{Params, PathId, explained};
use crate::sanitised::sanitised;
use crate::state::{Api, State};
use crate::until_sent::until_sent;
use crate::written::written;
use scheduler::wire::{EntryList, EntryView};
use store::{EntryRef, EventQuery, StoredEntry};

parameters! {
    /// The parameters of lists of entries. `calm`: only what was stored before this zone's last midnight.
    EntryParams { calm, html }
}

/// `GET /entries`
pub(super) async fn all(State(api): State<Api>, Params(params): Params<EntryParams>) -> Result<Response, ApiError> {
    let query = params.chosen().query(&api, cursor(params.after.as_deref())?).await?;
    if let Some(id) = query.filter.feed {
        api.feed(id).await?;
    }
    list(&api, query, &params).await
}

/// `GET /feeds/{id}/entries`
pub(super) async fn of_feed(
    State(api): State<Api>,
    PathId(id): PathId,
    Params(params): Params<EntryParams>,
) -> Result<Response, ApiError> {
    api.feed(id).await?;
    let mut query = params.chosen().query(&api, cursor(params.after.as_deref())?).await?;
    if query.filter.feed.replace(id).is_some_and(|feed| feed != id) {
        return Err(ApiError::bad("feed is in the path already; leave it out"));
    }
    list(&api, query, &params).await
}

async fn list(api: &Api, query: EventQuery, params: &EntryParams) -> Result<Response, ApiError> {
    let zone: Option<Zone> = params.calm.as_deref().map(|zone| explained("calm", zone)).transpose()?;
    let with_html = with_html(params.html.as_deref())?;
    let turn = api.page_turn().await?;
    // Read first: what is stored in between belongs to today.
    let last = match zone {
        Some(zone) => api.ops.store.last_entry_before(zone.last_midnight(api.ops.clock.now())).await?,
        None => i64::MAX,
    };
    let mut page = api.ops.store.find_entries(&query).await?;
    refuse_lost(api, &query, params.epoch.as_deref(), &page).await?;
    if last < i64::MAX {
        page.items.retain(|entry| entry.seq <= last);
        // What belongs to today is read tomorrow.
        (page.next, page.more) = match query.newest {
            true => (page.next, page.more),
            false => (page.next.min(last.max(query.after)), page.more && page.next < last),
        };
    }
    let (items, ended) = views(api, page.items, with_html).await?;
    let (next, more) = ended.map_or((page.next, page.more), |last| (last, true));
    let list = EntryList { epoch: page.epoch, oldest: page.oldest, items, next, more };
    Ok(until_sent(written(list).await?, turn))
}

/// The parameters of one entry.
#[derive(Debug, Deserialize)]
pub(super) struct OneParams {
    html: Option<String>,
}

/// `GET /entries/{seq}`: the entry that was announced by the event with this number, in its newest form.
pub(super) async fn show(
    State(api): State<Api>,
    Path(seq): Path<String>,
    Params(params): Params<OneParams>,
) -> Result<Response, ApiError> {
    let seq = seq.parse().map_err(|_| ApiError::bad("an entry's seq must be a whole number"))?;
    let unknown = || {
        ApiError::new(StatusCode::NOT_FOUND, format!("there is no entry {seq}, or it is no longer kept"))
            .coded("unknown_entry")
    };
    one(&api, &EntryRef::Seq(seq), params.html.as_deref(), unknown).await
}

/// The parameters of `GET /entries/lookup`.
#[derive(Debug, Deserialize)]
pub(super) struct LookupParams {
    feed: Option<String>,
    id: Option<String>,
    html: Option<String>,
}

/// `GET /entries/lookup?feed=&id=`
pub(super) async fn lookup(State(api): State<Api>, Params(params): Params<LookupParams>) -> Result<Response, ApiError> {
    let (Some(feed), Some(id)) = (params.feed, params.id) else {
        return Err(ApiError::bad("give feed, a feed's id or URL, and id, the entry's id in its feed"));
    };
    let feed: FeedId = feed_id(&api, &feed).await?;
    let unknown = || {
        ApiError::new(StatusCode::NOT_FOUND, format!("feed {feed} has no entry {id}, or it is no longer kept"))
            .coded("unknown_entry")
    };
    one(&api, &EntryRef::Id(feed, id.clone()), params.html.as_deref(), unknown).await
}

async fn one(
    api: &Api,
    which: &EntryRef,
    html: Option<&str>,
    unknown: impl Fn() -> ApiError,
) -> Result<Response, ApiError> {
    let with_html = with_html(html)?;
    let turn = api.page_turn().await?;
    let entry = api.ops.store.entry(which).await?.filter(|entry| api.shows(&entry.feed.marks)).ok_or_else(&unknown)?;
    let (mut views, _) = views(api, vec![entry], with_html).await?;
    let view = views.pop().ok_or_else(unknown)?;
    Ok(until_sent(written(view).await?, turn))
}

fn with_html(html: Option<&str>) -> Result<bool, ApiError> {
    match html {
        None => Ok(false),
        Some("sanitised") => Ok(true),
        Some(_) => Err(ApiError::bad("html must be sanitised, or left out")),
    }
}

/// The entries of a page. If it has to end before all of them: the number of the last one, behind which the next page begins.
type Views = (Vec<EntryView>, Option<i64>);

async fn views(api: &Api, entries: Vec<StoredEntry>, with_html: bool) -> Result<Views, ApiError> {
    if with_html { made_safe(api, entries).await } else { Ok((entries.into_iter().map(EntryView::of).collect(), None)) }
}

/// Bytes that the texts of a page may take: as publishers wrote them, as HTML that may be shown, and both as they are sent
/// (SECURITY.md). It ends before an entry that would take more, unless that is its first.
const ROOM: usize = (75 << 20) / 2;

/// Returns what an entry's texts take. Lists are JSON and have all of them; feeds have the HTML alone, and may be XML.
fn room_of(view: &EntryView) -> usize {
    let entry = &view.stored.entry;
    let stored = [&entry.summary, &entry.content].into_iter().flatten();
    let html = [&view.summary_html, &view.content_html].into_iter().flatten();
    stored.map(|text| text.len() + bytes_as_json(text)).sum::<usize>()
        + html.map(|text| text.len() + bytes_as_json(text).max(bytes_as_xml(text))).sum::<usize>()
}

fn bytes_as_json(text: &str) -> usize {
    let bytes = text.bytes().map(|byte| match byte {
        b'"' | b'\\' | b'\t' | b'\n' | b'\r' => 2_usize,
        0..b' ' => 6,
        _ => 1,
    });
    bytes.sum()
}

fn bytes_as_xml(text: &str) -> usize {
    let bytes = text.bytes().map(|byte| match byte {
        b'"' | b'\'' => 6_usize,
        b'&' => 5,
        b'<' | b'>' => 4,
        _ => 1,
    });
    bytes.sum()
}

/// How long the texts of one page may take to be made safe; those left by then are shown without markup.
const SANITISING_TIME: Duration = Duration::from_secs(5);

/// Adds the HTML that may be shown: processor time, so on a thread for such work, of which there are as many as cores.
pub(super) async fn made_safe(api: &Api, entries: Vec<StoredEntry>) -> Result<Views, ApiError> {
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
        fitting(entries.into_iter().map(add))
    });
    work.await.map_err(|_| failed())
}

/// Returns the entries that a page has room for. Those behind them are not made.
fn fitting(made: impl Iterator<Item = EntryView>) -> Views {
    let (mut views, mut taken): (Vec<EntryView>, usize) = (Vec::new(), 0);
    for view in made {
        taken += room_of(&view);
        if let Some(last) = views.last().filter(|_| taken > ROOM) {
            let ended = last.stored.seq;
            return (views, Some(ended));
        }
        views.push(view);
    }
    (views, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_of_a_text_is_no_longer_than_it_is_reckoned() {
        let all: String = (0..0x250_u32).filter_map(char::from_u32).collect();
        for text in ["plain words", "<p class=\"x\">a &amp; b</p>\n", all.as_str()] {
            let sent = serde_json::to_string(text).unwrap().len() - 2;
            assert!(sent <= bytes_as_json(text), "{sent} bytes: {text}");
        }
    }
}
