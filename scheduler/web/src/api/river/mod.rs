//! `/entries.atom` and `/entries.json`: the river as a feed, so that any reader can follow a fleet, or a part of it.

mod json_feed;

use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use common::time::Timestamp;
use xxhash_rust::xxh3::xxh3_128;

use super::entries::made_safe;
use crate::conditional;
use crate::error::ApiError;
use crate::request::Params;
use crate::river::{self, RiverParams};
use crate::state::{Api, State};
use crate::turns::Turn;
use crate::until_sent::until_sent;
use scheduler::delivery::documents::{Channel, atom as atom_document};

/// Entries when no `limit` is given.
const USUAL: u32 = 50;

/// `GET /entries.atom`
pub(super) async fn atom(
    State(api): State<Api>,
    uri: Uri,
    headers: HeaderMap,
    Params(params): Params<RiverParams>,
) -> Result<Response, ApiError> {
    let written = |channel: &Channel| Some(atom_document::written(channel));
    serve(&api, &uri, &headers, params, "application/atom+xml; charset=utf-8", written).await
}

/// `GET /entries.json`
pub(super) async fn json(
    State(api): State<Api>,
    uri: Uri,
    headers: HeaderMap,
    Params(params): Params<RiverParams>,
) -> Result<Response, ApiError> {
    serve(&api, &uri, &headers, params, "application/feed+json", json_feed::written).await
}

async fn serve(
    api: &Api,
    uri: &Uri,
    headers: &HeaderMap,
    params: RiverParams,
    media_type: &'static str,
    written: fn(&Channel) -> Option<Vec<u8>>,
) -> Result<Response, ApiError> {
    let (channel, turn) = read_channel(api, uri, headers, params.given(api).await?).await?;
    let failed = || ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the feed could not be written");
    let body = tokio::task::spawn_blocking(move || written(&channel)).await.map_err(|_| failed())?;
    let answer = conditional::answer(headers, media_type, body.ok_or_else(failed)?);
    Ok(until_sent(answer, turn))
}

/// Reads what a feed has, with the turn to hold it in memory.
async fn read_channel(
    api: &Api,
    uri: &Uri,
    headers: &HeaderMap,
    params: RiverParams,
) -> Result<(Channel, Turn), ApiError> {
    let page = river::page(api, &params, USUAL).await?;
    let updated = page.items.iter().map(|entry| entry.stored).max().unwrap_or(Timestamp::EPOCH);
    let (entries, ended) = made_safe(api, page.items).await?;
    let (site, query) = (api.reached_at(headers), uri.query().unwrap_or_default());
    let conditions = river::conditions(query);
    let at = |path: &str, query: &str| {
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{site}{path}{mark}{query}")
    };
    let older = |after: i64| match conditions.as_str() {
        "" => format!("after={after}"),
        conditions => format!("{conditions}&after={after}"),
    };
    // A page that had to end early continues behind its last entry.
    let next = ended.or(page.older);
    let channel = Channel {
        title: title(api, &params).await?,
        id: format!("urn:feedfleet:{}:river:{:032x}", page.epoch, xxh3_128(conditions.as_bytes())),
        home: Some(at("/entries", &conditions)),
        own: at(uri.path(), query),
        next: next.map(|after| at(uri.path(), &older(after))),
        hub: None,
        updated,
        of: None,
        entries,
    };
    Ok((channel, page.turn))
}

/// Names the feed by its conditions.
async fn title(api: &Api, params: &RiverParams) -> Result<String, ApiError> {
    let mut parts = Vec::new();
    if let Some(feed) = params.get("feed") {
        let id = crate::reading::feed_id(api, feed).await?;
        let feed = api.feed(id).await?;
        parts.push(feed.title.unwrap_or_else(|| feed.url.to_string()));
    }
    for name in ["label", "category", "language", "host"] {
        parts.extend(params.get(name).map(|value| format!("{name} {value}")));
    }
    parts.extend(params.get("q").map(|words| format!("“{words}”")));
    Ok(if parts.is_empty() { "feedfleet: all entries".to_owned() } else { format!("feedfleet: {}", parts.join(", ")) })
}

#[cfg(test)]
mod tests;
