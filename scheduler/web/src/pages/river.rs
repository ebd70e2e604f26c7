//! `/entries`: what the feeds published, the newest first.
//!
//! Images are links: a page that loads nothing from elsewhere does not reveal its readers to publishers, and the
//! scheduler fetches nothing that it could pass on (`docs/decisions/0025-no-images-of-strangers.md`).

use askama::Template;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use common::policy::Category;
use common::time::Timestamp;

use super::frame::{Frame, answer, in_pages};
use super::words::{self, Moment};
use crate::error::ApiError;
use crate::request::Params;
use crate::river::text::first_words;
use crate::river::{self, River, RiverParams};
use crate::state::{Api, State};
use crate::until_sent::until_sent;
use store::StoredEntry;

/// Entries on a page when no `limit` is given.
const USUAL: u32 = 30;
/// Characters of the text.
const WORDS: usize = 280;

#[derive(Template)]
#[template(path = "pages/river.html")]
struct RiverPage {
    frame: Frame,
    asked: RiverParams,
    wrong: Option<String>,
    /// The feed whose entries these are, with its title.
    of_feed: Option<(i64, String)>,
    rows: Vec<Row>,
    /// How many entries match, as far as that is known without counting them.
    count: Option<String>,
    /// Older entries were not looked at yet, though the page is not full.
    searched_to: Option<Moment>,
    /// The conditions as a query string, with the mark before it.
    conditions: String,
    newer: Option<String>,
    older: Option<String>,
}

struct Row {
    title: String,
    link: Option<String>,
    feed: i64,
    feed_name: String,
    published: Moment,
    author: Option<String>,
    words: String,
    image: Option<(String, String)>,
    labels: Vec<String>,
}

impl RiverPage {
    fn given(&self, name: &str) -> &str {
        self.asked.get(name).unwrap_or_default()
    }

    fn is_category(&self, category: &Category) -> bool {
        self.given("category").eq_ignore_ascii_case(category.as_str())
    }
}

/// `GET /entries`
pub(super) async fn page(
    State(api): State<Api>,
    frame: Frame,
    uri: Uri,
    params: Result<Params<RiverParams>, ApiError>,
) -> Result<Response, ApiError> {
    let now = frame.now;
    let Params(asked) = params?;
    let asked = asked.given(&api).await?;
    let (status, wrong, river) = match read(&api, &asked).await {
        Ok(river) => (StatusCode::OK, None, Some(river)),
        Err(error) if error.status().is_client_error() => (error.status(), Some(in_pages(&error.to_string())), None),
        Err(error) => return Err(error),
    };
    let conditions = river::conditions(uri.query().unwrap_or_default());
    let part = |name: &str, seq: i64| match conditions.as_str() {
        "" => format!("?{name}={seq}"),
        conditions => format!("?{conditions}&{name}={seq}"),
    };
    let searched_to = river.as_ref().and_then(|(river, _)| river.searched_to).map(|at| Moment::of(at, now));
    let (older, newer, rows, of_feed, turn) = match river {
        Some((river, of_feed)) => (river.older, river.newer, river.items, of_feed, Some(river.turn)),
        None => (None, None, Vec::new(), None, None),
    };
    let is_first = newer.is_none();
    let shown = words::at_least(rows.len(), is_first, older.is_some(), ("entry", "entries"));
    let count = if wrong.is_none() { count(&api, &conditions, &of_feed, now).await?.or(shown) } else { None };
    let page = RiverPage {
        frame: frame.around("entries"),
        count,
        rows: rows.into_iter().map(|stored| row(stored, now)).collect(),
        newer: newer.map(|seq| part("before", seq)),
        older: older.map(|seq| part("after", seq)),
        conditions: if conditions.is_empty() { conditions } else { format!("?{conditions}") },
        searched_to,
        asked,
        wrong,
        of_feed: of_feed.map(|(id, title, _)| (id, title)),
    };
    Ok(until_sent(answer(status, &page)?, turn))
}

/// The number of all entries, or of those of a feed: what is counted. `None` if there are other conditions.
async fn count(
    api: &Api,
    conditions: &str,
    of_feed: &Option<OfFeed>,
    now: Timestamp,
) -> Result<Option<String>, ApiError> {
    let chooses = |pair: &&str| !pair.starts_with("limit=") && !pair.starts_with("order=");
    let mut chosen = conditions.split('&').filter(|pair| !pair.is_empty()).filter(chooses);
    let entries = match (chosen.next(), chosen.next(), of_feed) {
        // For a caller with labels, what others have is not counted.
        (None, ..) if api.labels().is_empty() => api.ops.store.stats(now).await?.entries,
        (Some(_), None, Some((.., entries))) => *entries,
        _ => return Ok(None),
    };
    Ok(Some(words::counted(entries, "entry", "entries")))
}

/// A feed whose entries are listed: its number, its title, and how many it has.
type OfFeed = (i64, String, u64);

async fn read(api: &Api, asked: &RiverParams) -> Result<(River, Option<OfFeed>), ApiError> {
    let of_feed = match asked.get("feed") {
        None => None,
        Some(feed) => {
            let id = crate::reading::feed_id(api, feed).await?;
            let feed = api.feed(id).await?;
            Some((id.0, feed.title.unwrap_or_else(|| feed.url.to_string()), feed.entries))
        }
    };
    Ok((river::page(api, asked, USUAL).await?, of_feed))
}

fn row(stored: StoredEntry, now: Timestamp) -> Row {
    let words = first_words(&stored.entry, WORDS);
    let entry = &stored.entry;
    let at = entry.published.unwrap_or(stored.seen).min(now);
    Row {
        title: entry.display_title().to_owned(),
        link: entry.url.as_deref().and_then(words::web_link),
        feed: stored.feed_id.0,
        feed_name: words::feed_name(&stored),
        published: Moment::of(at, now),
        author: entry.author.clone(),
        image: image(&stored),
        words,
        labels: stored.feed.marks.labels,
    }
}

/// The picture of an entry: its address, and what it shows.
fn image(stored: &StoredEntry) -> Option<(String, String)> {
    let own = stored.entry.details.as_ref().and_then(|details| details.image.as_deref());
    let is_image = |kind: &Option<String>| kind.as_deref().is_some_and(|kind| kind.starts_with("image"));
    let attached = stored.entry.enclosures.iter().find(|one| is_image(&one.medium) || is_image(&one.media_type));
    let alt = attached.and_then(|enclosure| enclosure.alt.clone()).unwrap_or_default();
    let link = own.or(attached.map(|enclosure| enclosure.url.as_str()))?;
    Some((words::web_link(link)?, alt))
}
