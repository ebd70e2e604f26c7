//! The river: entries of all feeds, the newest first, which the page `/entries` shows and `/entries.atom` and `/entries.json` serve.

pub(crate) mod text;

use std::time::{Duration, Instant};

use crate::error::ApiError;
use crate::listing::hosts_meant;
use crate::reading::{Chosen, cursor, parameters, seq};
use crate::request::limit;
use crate::state::Api;
use crate::turns::Turn;
use common::time::Timestamp;
use store::{EventPage, EventQuery, StoredEntry};

/// The maximum number of entries on a page.
const MOST: u32 = 200;
/// How long a page looks for entries that fit: pages are answered within 50 ms, searches for words within 100 ms.
const LOOKS: Duration = Duration::from_millis(30);
const SEARCHES: Duration = Duration::from_millis(70);
/// Lines of one look: so few that their feeds are found in milliseconds, also where nothing of them is in memory.
const LOOK: u32 = 400;

parameters! {
    /// The parameters of the river. `after` and `before` continue with older and with newer entries than a number.
    RiverParams { before }
}

impl RiverParams {
    /// Leaves out empty parameters: a form sends each of its fields. A bare name of a host means the one with feeds.
    pub(crate) async fn given(self, api: &Api) -> Result<Self, ApiError> {
        let given = self.filled_in();
        let host = match &given.host {
            Some(host) => match host.parse() {
                Ok(name) => hosts_meant(api, &name).await?.first().map(ToString::to_string),
                // Refused with the other parameters.
                Err(_) => Some(host.clone()),
            },
            None => None,
        };
        Ok(RiverParams { host, ..given })
    }

    fn filled_in(self) -> Self {
        let some = |text: Option<String>| text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        RiverParams {
            after: some(self.after),
            epoch: some(self.epoch),
            limit: some(self.limit),
            order: some(self.order),
            kind: some(self.kind),
            feed: some(self.feed),
            host: some(self.host),
            label: some(self.label),
            category: some(self.category),
            language: some(self.language),
            q: some(self.q),
            since: some(self.since),
            part: some(self.part),
            before: some(self.before),
        }
    }

    /// Returns a parameter of the request, by name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let given = match name {
            "q" => &self.q,
            "feed" => &self.feed,
            "host" => &self.host,
            "label" => &self.label,
            "category" => &self.category,
            "language" => &self.language,
            _ => &None,
        };
        given.as_deref()
    }

    fn conditions(&self) -> Chosen<'_> {
        Chosen { limit: None, order: None, ..self.chosen() }
    }
}

/// Returns the part of a query string that chooses entries, still encoded: without cursors and without what a form left empty.
pub(crate) fn conditions(query: &str) -> String {
    let is_cursor = |name: &str| matches!(name, "after" | "before" | "epoch");
    let chooses = |pair: &&str| pair.split_once('=').is_some_and(|(name, value)| !is_cursor(name) && !value.is_empty());
    query.split('&').filter(chooses).collect::<Vec<_>>().join("&")
}

/// A page of the river.
pub(crate) struct River {
    /// The entries, the newest first.
    pub(crate) items: Vec<StoredEntry>,
    /// The `before` of the page with newer entries; `None` on the first page.
    pub(crate) newer: Option<i64>,
    /// The `after` of the page with older entries; `None` at the end.
    pub(crate) older: Option<i64>,
    /// Entries that are older than this were not looked at, though the page is not full; `None`: all were, or it is full.
    pub(crate) searched_to: Option<Timestamp>,
    /// Changes when the store was restored from a backup.
    pub(crate) epoch: String,
    /// The turn to hold entries in memory: until the response is sent.
    pub(crate) turn: Turn,
}

/// Reads on until the page is full: one look at the store ends after some thousand entries, and of a large fleet few of these fit
/// the conditions. Ends when another look, as long as the longest before it, would take too long: the rest is left to the next page.
async fn filled(api: &Api, query: EventQuery, time: Duration) -> Result<EventPage<StoredEntry>, ApiError> {
    let begun = Instant::now();
    let mut page = api.ops.store.find_entries(&query).await?;
    let (mut looked, mut longest) = (begun.elapsed(), begun.elapsed());
    while page.more && looked + longest <= time {
        let missing = (query.limit as usize).saturating_sub(page.items.len());
        let Some(limit) = u32::try_from(missing).ok().filter(|missing| *missing > 0) else { break };
        let behind = EventQuery { after: page.next, limit, ..query.clone() };
        let further = api.ops.store.find_entries(&behind).await?;
        if further.epoch != page.epoch {
            break;
        }
        page.items.extend(further.items);
        (page.next, page.more) = (further.next, further.more);
        longest = longest.max(begun.elapsed() - looked);
        looked = begun.elapsed();
    }
    Ok(page)
}

/// Reads a page; `usual` entries when no `limit` is given.
pub(crate) async fn page(api: &Api, params: &RiverParams, usual: u32) -> Result<River, ApiError> {
    let time = if params.get("q").is_some() { SEARCHES } else { LOOKS };
    page_within(api, params, usual, time).await
}

/// Reads a page, and looks for entries that fit no longer than this.
async fn page_within(api: &Api, params: &RiverParams, usual: u32, time: Duration) -> Result<River, ApiError> {
    if params.order.as_deref().is_some_and(|order| order != "newest") {
        return Err(ApiError::bad("order must be newest here, or left out; GET /api/v1/entries has both orders"));
    }
    if params.epoch.is_some() {
        return Err(ApiError::bad("epoch is a parameter of GET /api/v1/entries"));
    }
    let (after, before) = (cursor(params.after.as_deref())?, seq("before", params.before.as_deref())?.unwrap_or(0));
    if after > 0 && before > 0 {
        return Err(ApiError::bad("give after or before, not both"));
    }
    let limit = limit(params.limit.as_deref(), usual, MOST)?;
    let filter = params.conditions().filter(api).await?;
    let newest = EventQuery { filter, newest: true, after, limit, look: Some(LOOK) };
    let turn = api.page_turn().await?;
    if before > 0 {
        let page = filled(api, EventQuery { newest: false, after: before, ..newest.clone() }, time).await?;
        // At the top there may be fewer than a page: the first page has them too.
        if page.more {
            let mut items = page.items;
            items.reverse();
            let (older, newer) = (before.saturating_add(1), page.next);
            return Ok(River {
                items,
                newer: Some(newer),
                older: Some(older),
                searched_to: None,
                epoch: page.epoch,
                turn,
            });
        }
    }
    let page = filled(api, EventQuery { after: if before > 0 { 0 } else { after }, ..newest }, time).await?;
    let first = page.items.first().map_or(after.saturating_sub(1), |entry| entry.seq);
    let newer = (after > 0).then_some(first.max(1));
    let gave_up = page.more && page.items.len() < limit as usize;
    let searched_to = if gave_up { stored_before(api, page.next).await? } else { None };
    Ok(River { newer, older: page.more.then_some(page.next), searched_to, epoch: page.epoch, items: page.items, turn })
}

/// Returns when the entry with this number, or the one before it, was stored.
async fn stored_before(api: &Api, seq: i64) -> Result<Option<Timestamp>, ApiError> {
    let query = EventQuery { newest: true, ..EventQuery::after(seq.saturating_add(1), 1) };
    Ok(api.ops.store.find_entries(&query).await?.items.first().map(|entry| entry.stored))
}

#[cfg(test)]
mod tests;
