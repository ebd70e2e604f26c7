//! Many feeds in one request: a JSON object a line, an answer a line. A line that is refused changes nothing, and stops no
//! other one.
//!
//! Lines are stored in batches, a transaction each. When one fails the whole request does, and what was stored before it
//! stays: sending the same again finds it known.

use std::collections::{HashMap, HashSet};

use axum::extract::Request;
use axum::http::{HeaderName, StatusCode, header};
use common::feed::Feed;
use common::labels::limited;
use common::url::FeedId;
use rand::RngExt;

use super::change::run_to_completion;
use super::feeds::FeedBody;
use crate::error::ApiError;
use crate::request::{body_bytes, fields, media_type, object};
use crate::state::{Api, State};
use scheduler::error::BackendError;
use scheduler::ops::{AddFeed, AudienceEdit, EditFeed};
use scheduler::wire::BulkView;
use store::Added;

/// Bytes of a request: lines of a few hundred bytes each, and their answers, fit into memory for several callers.
pub(crate) const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Lines of a request: they are stored well within the time that an answer may take.
pub(crate) const MAX_LINES: usize = 10_000;
/// Lines that one transaction stores.
const BATCH: usize = 500;
const JSON_LINES: &str = "application/x-ndjson";

/// The request of one line.
struct Wish {
    target: Target,
    body: FeedBody,
}

enum Target {
    /// Add it; of one that is known the fields are set.
    Add(Box<AddFeed>),
    Known(FeedId),
}

type Answers = Vec<Result<BulkView, ApiError>>;

/// `POST /feeds/bulk`: adds feeds, spread as an import, or sets fields of known ones.
pub(crate) async fn bulk(
    State(api): State<Api>,
    request: Request,
) -> Result<([(HeaderName, &'static str); 1], String), ApiError> {
    let accepted = [JSON_LINES, "application/ndjson", "application/jsonl", "application/json"];
    if !accepted.contains(&media_type(&request).as_str()) {
        let message = format!("the Content-Type header must be {JSON_LINES}: a JSON object a line");
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let bytes = body_bytes(request, &(), MAX_BYTES).await?;
    let lines = bytes.split(|byte| *byte == b'\n').enumerate();
    let lines: Vec<_> = lines.filter(|(_, line)| !line.trim_ascii().is_empty()).collect();
    let numbered: Vec<(usize, &[u8])> = lines.into_iter().map(|(index, line)| (index + 1, line)).collect();
    let mut text = String::new();
    for answer in settled(&api, &numbered).await? {
        let line = serde_json::to_string(&answer);
        text.push_str(&line.map_err(|error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?);
        text.push('\n');
    }
    Ok(([(header::CONTENT_TYPE, JSON_LINES)], text))
}

/// Adds feeds, or sets fields of known ones: an answer for each line, in order. Each is a JSON object with its number.
pub(crate) async fn settled(api: &Api, lines: &[(usize, &[u8])]) -> Result<Vec<BulkView>, ApiError> {
    if lines.len() > MAX_LINES {
        let message = format!("these are {} lines; send at most {MAX_LINES} at once", lines.len());
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message));
    }
    let mut all = Vec::with_capacity(lines.len());
    for batch in lines.chunks(BATCH) {
        let mut wishes = Vec::with_capacity(batch.len());
        for (_, line) in batch {
            wishes.push(match wish(api, line) {
                Ok(wish) => admitted(api, wish).await,
                refused => refused,
            });
        }
        let api = api.clone();
        let answers = run_to_completion(async move { settle(&api, wishes).await }).await?;
        for ((line, _), answer) in batch.iter().zip(answers) {
            let answer =
                answer.unwrap_or_else(|error| BulkView { error: Some(error.to_string()), ..BulkView::default() });
            all.push(BulkView { line: *line, ..answer });
        }
    }
    Ok(all)
}

fn wish(api: &Api, line: &[u8]) -> Result<Wish, ApiError> {
    let mut object = object(line)?;
    let id = object.remove("id");
    let body: FeedBody = fields(object)?;
    let target = match id {
        None => {
            let feed = body.new_feed(api)?;
            if let Some(login) = &feed.login {
                // Without a key it is refused, and nothing else.
                api.ops.secrets.seal(login, &feed.url).map_err(|error| ApiError::bad(error.to_string()))?;
            }
            Target::Add(Box::new(feed))
        }
        Some(_) if body.url.is_some() => return Err(ApiError::bad("give url or id, not both")),
        Some(_) if body.title.is_some() => return Err(ApiError::bad("title is given with a new feed's url")),
        Some(_) if body.login()?.is_some() => {
            return Err(ApiError::bad("username and password of a known feed are set by PATCH /feeds/{id}"));
        }
        Some(id) => {
            let id = id.as_i64().ok_or_else(|| ApiError::bad("id must be a whole number"))?;
            Target::Known(FeedId(id))
        }
    };
    Ok(Wish { target, body })
}

/// Refuses to add a feed that others have, for a caller with labels.
async fn admitted(api: &Api, wish: Wish) -> Result<Wish, ApiError> {
    if let Target::Add(feed) = &wish.target {
        api.may_add(feed).await?;
    }
    Ok(wish)
}

/// Adds what is to be added, then sets the fields of what was known.
async fn settle(api: &Api, wishes: Vec<Result<Wish, ApiError>>) -> Result<Answers, BackendError> {
    let to_add = wishes.iter().flatten().filter_map(|wish| match &wish.target {
        Target::Add(feed) => Some((**feed).clone()),
        Target::Known(_) => None,
    });
    let to_add: Vec<AddFeed> = to_add.collect();
    let places: Vec<f64> = to_add.iter().map(|_| rand::rng().random()).collect();
    let mut added = api.ops.add(&to_add, Some(&places)).await?.into_iter();
    let found: Vec<Result<(Added, FeedBody), ApiError>> = wishes
        .into_iter()
        .map(|wish| {
            let Wish { target, body } = wish?;
            let found = match target {
                Target::Add(_) => added.next(),
                Target::Known(id) => Some(Added { id, new: false, revived: false }),
            };
            // The store answers each feed.
            found.map(|found| (found, body)).ok_or_else(|| ApiError::bad("the feed was not added; try again"))
        })
        .collect();
    set_fields(api, found).await
}

async fn set_fields(api: &Api, found: Vec<Result<(Added, FeedBody), ApiError>>) -> Result<Answers, BackendError> {
    let known: HashSet<FeedId> =
        found.iter().flatten().filter(|(added, _)| !added.new).map(|(added, _)| added.id).collect();
    let states = api.ops.store.states_for(&known.into_iter().collect::<Vec<_>>()).await?;
    let mut edits: HashMap<FeedId, (Feed, EditFeed)> = states
        .into_iter()
        .filter(|feed| api.shows(&feed.marks))
        .map(|feed| (feed.id, (feed, EditFeed::default())))
        .collect();
    let answers = found
        .into_iter()
        .map(|found| {
            let (Added { id, new, revived }, body) = found?;
            let changed = match edits.get_mut(&id) {
                _ if new => false,
                Some((before, edit)) => lay_over(api, before, edit, body)?,
                None => return Err(ApiError::no_feed(id)),
            };
            Ok(BulkView { id: Some(id), new, revived, changed, ..BulkView::default() })
        })
        .collect();
    let is_change = |edit: &EditFeed| {
        let marks = !edit.labels.is_empty() || edit.external_id.is_some();
        edit.audience.is_some() || edit.calm.is_some() || edit.private.is_some() || marks
    };
    let edits: Vec<_> =
        edits.into_iter().map(|(id, (_, edit))| (id, edit)).filter(|(_, edit)| is_change(edit)).collect();
    api.ops.edit_all(&edits).await?;
    Ok(answers)
}

/// Adds a line's fields to the requests of earlier lines for the same feed; returns whether they change anything.
fn lay_over(api: &Api, before: &Feed, edit: &mut EditFeed, body: FeedBody) -> Result<bool, ApiError> {
    let so_far = edit.audience.map_or(before.audience, |edit| edit.over(before.audience));
    let calm_so_far = edit.calm.as_deref().unwrap_or(&before.calm);
    let audience = body.audience(so_far, calm_so_far)?;
    let (more, external_id) = (body.labels()?, body.external_id()?);
    let private = body.private.filter(|private| *private != edit.private.unwrap_or(before.private));
    let calm = body.calm.filter(|calm| calm != edit.calm.as_ref().unwrap_or(&before.calm));
    let marks = &before.marks;
    let labels = edit.labels.over(&marks.labels);
    let relabelled = limited(more.over(&labels)).map_err(ApiError::bad)?;
    api.may_label(&labels, &relabelled)?;
    let relabelled = relabelled != labels;
    let id_so_far = edit.external_id.as_ref().unwrap_or(&marks.external_id);
    let external_id = external_id.filter(|id| id != id_so_far);
    let changed = audience != so_far || private.is_some() || calm.is_some() || relabelled || external_id.is_some();
    if relabelled {
        edit.labels.then(more);
    }
    edit.external_id = external_id.or(edit.external_id.take());
    edit.audience = AudienceEdit::between(before.audience, audience);
    edit.private = private.or(edit.private);
    edit.calm = calm.or(edit.calm.take());
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use common::time::Clock;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{Answer, Fleet};
    use store::FeedRef;

    async fn send(fleet: &Fleet, body: String) -> (u16, Vec<Value>) {
        let request =
            Request::post("/api/v1/feeds/bulk").header("host", "127.0.0.1").header("content-type", JSON_LINES);
        let Answer { status, body } = fleet.send(request.body(Body::from(body)).unwrap()).await;
        let lines = |text: &str| text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        // A single line is one JSON document.
        (status, body.as_str().map_or_else(|| vec![body.clone()], lines))
    }

    async fn feed(fleet: &Fleet, id: i64) -> Feed {
        fleet.ops.feed(&FeedRef::Id(FeedId(id))).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn each_line_is_added_set_or_refused_by_itself() {
        let fleet = Fleet::new().await;
        let known = fleet.feed("https://a.example/known").await;
        let lines = [
            json!({ "url": "https://a.example/new", "subscribers": 7, "private": true }).to_string(),
            json!({ "url": "https://a.example/known" }).to_string(),
            String::new(),
            json!({ "url": "ftp://a.example/" }).to_string(),
            json!({ "id": known, "subscribers": 30 }).to_string(),
            json!({ "id": known, "sla": true }).to_string(),
            json!({ "id": 99, "subscribers": 30 }).to_string(),
            json!({ "id": known, "active_subscribers": 31 }).to_string(),
            "{".to_owned(),
            json!({ "url": "https://a.example/new", "subscriber": 1 }).to_string(),
            json!({ "url": "https://a.example/new", "subscribers": 8 }).to_string(),
            json!({ "url": "https://a.example/x", "id": 1 }).to_string(),
            json!({ "url": "https://me:secret@a.example/x" }).to_string(),
        ];
        let (status, answers) = send(&fleet, lines.join("\n")).await;
        assert_eq!((status, answers.len()), (200, 12));
        let numbers: Vec<i64> = answers.iter().map(|answer| answer["line"].as_i64().unwrap()).collect();
        assert_eq!(numbers, [1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
        let flags =
            |index: usize| (&answers[index]["new"], &answers[index]["changed"], answers[index]["error"].is_null());
        let (yes, no) = (&Value::Bool(true), &Value::Bool(false));
        assert_eq!(flags(0), (yes, no, true));
        assert_eq!(flags(1), (no, no, true));
        assert_eq!(flags(3), (no, yes, true));
        assert_eq!(flags(4), (no, yes, true));
        assert_eq!(flags(9), (no, yes, true), "the same URL again sets fields");
        for (index, reason) in [
            (2, "scheme ftp"),
            (5, "no feed 99"),
            (6, "active_subscribers"),
            (7, "not valid JSON"),
            (8, "did you mean subscribers?"),
            (10, "not both"),
            (11, "secrets.key"),
        ] {
            let error = answers[index]["error"].as_str().unwrap();
            assert!(error.contains(reason) && answers[index]["id"].is_null(), "{error}");
        }
        let set = feed(&fleet, known).await.audience;
        assert_eq!((set.subscribers, set.active_subscribers, set.sla), (30, 30, true));
        let new = feed(&fleet, answers[0]["id"].as_i64().unwrap()).await;
        assert_eq!((new.audience.subscribers, new.private), (8, true));
        assert_eq!(fleet.ops.schedule.depth(fleet.clock.now()).await.unwrap().feeds, 2);
    }

    #[tokio::test]
    async fn an_interval_of_more_than_a_year_is_refused_and_changes_nothing() {
        let fleet = Fleet::new().await;
        let known = fleet.feed("https://a.example/known").await;
        for interval in [400.0 * 86_400.0, 1.8e19] {
            let lines = [
                json!({ "url": "https://a.example/new", "interval": interval }),
                json!({ "url": "https://a.example/known", "interval": interval, "sla": true }),
                json!({ "id": known, "interval": interval, "sla": true }),
            ];
            let (status, answers) = send(&fleet, lines.map(|line| line.to_string()).join("\n")).await;
            assert_eq!((status, answers.len()), (200, 3));
            for answer in answers {
                assert!(answer["error"].as_str().unwrap().contains("at most 365 days, or none"), "{answer}");
            }
        }
        let audience = feed(&fleet, known).await.audience;
        assert_eq!((audience.interval, audience.sla), (None, false));
        assert_eq!(fleet.get("/api/v1/feeds").await.body["items"].as_array().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn additions_are_spread_over_the_imports_time() {
        let fleet = Fleet::new().await;
        let lines: Vec<String> =
            (0..1200).map(|n| json!({ "url": format!("https://a.example/{n}") }).to_string()).collect();
        let (_, answers) = send(&fleet, lines.join("\n")).await;
        assert!(answers.len() == 1200 && answers.iter().all(|answer| answer["new"] == true));
        let places = fleet.ops.store.placements(FeedId(0), 2000).await.unwrap();
        let (now, spread) = (fleet.clock.now(), fleet.ops.condition.config.get().policy.import_spread);
        let mut quarters = [0; 4];
        for place in &places {
            // Those at its end may leave a hot minute.
            assert!(place.due >= now && place.due <= now.after(spread + std::time::Duration::from_secs(15 * 60)));
            let quarter = 4 * place.due.since(now).as_millis() / spread.as_millis();
            quarters[usize::try_from(quarter).unwrap().min(3)] += 1;
        }
        // 300 on average, and 15 is a standard deviation; those that leave a hot minute move from a quarter into the next one, so
        // that the first has fewer and the last has more.
        assert!(quarters.iter().all(|count| (220..380).contains(count)), "{quarters:?}");
        let (_, again) = send(&fleet, lines.join("\n")).await;
        assert!(again.iter().all(|answer| answer["new"] == false && answer["changed"] == false));
        assert_eq!(
            fleet.ops.store.placements(FeedId(0), 2000).await.unwrap(),
            places,
            "what is known stays where it is"
        );
    }

    #[tokio::test]
    async fn too_much_at_once_and_other_types_are_refused() {
        let fleet = Fleet::new().await;
        assert_eq!(send(&fleet, "{}\n".repeat(MAX_LINES + 1)).await.0, 413);
        assert_eq!(send(&fleet, " ".repeat(MAX_BYTES + 1)).await.0, 413);
        let request =
            Request::post("/api/v1/feeds/bulk").header("host", "127.0.0.1").header("content-type", "text/csv");
        assert_eq!(fleet.send(request.body(Body::empty()).unwrap()).await.status, 415);
        assert_eq!(send(&fleet, String::new()).await.0, 200);
    }
}
