//! Feeds: add, list, show, change, erase, pause, resume, refresh, and what one feed did and will do.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use axum::{Extension, Json};
use common::calm::{CalmGroup, calm_subscribers};
use common::feed::Feed;
use common::input;
use common::labels::{LabelEdit, Marks, limited, read_external_id, read_labels, read_title};
use common::policy::{Audience, Status};
use common::secrets::Login;
use common::time::Timestamp;
use common::url::FeedId;
use serde::{Deserialize, Deserializer};

use super::audit::Subject;
use super::change::run_to_completion;
use crate::error::ApiError;
use crate::explain;
use crate::listing::ListParams;
use crate::request::{Accepts, Body, Params, PathId};
use crate::state::{Api, State};
use crate::until_sent::until_sent;
use crate::written::written;
use scheduler::ops::backfill::{self, Backfill};
use scheduler::ops::unmove::{self, TakenBack};
use scheduler::ops::{AddFeed, AudienceEdit, EditFeed};
use scheduler::wire::{AddedView, ExplainView, FeedView, List};
use store::{FeedRef, HistoryEntry};

/// The longest interval of a feed's own: a feed that is polled less often than once a year is in practice not polled, which
/// is what a pause is for.
const LONGEST_INTERVAL: Duration = Duration::from_secs(365 * 24 * 3600);

/// A feed in a request. Everything may be left out but the `url` of a new one.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct FeedBody {
    pub(crate) url: Option<String>,
    subscribers: Option<u32>,
    active_subscribers: Option<u32>,
    sla: Option<bool>,
    important: Option<bool>,
    pub(crate) private: Option<bool>,
    pub(crate) calm: Option<Vec<CalmGroup>>,
    /// Replaces all labels.
    labels: Option<Vec<String>>,
    add_labels: Option<Vec<String>>,
    remove_labels: Option<Vec<String>>,
    /// `null` takes the caller's own id away.
    #[serde(deserialize_with = "given")]
    pub(crate) external_id: Option<Option<String>>,
    /// The caller's name for a new feed, until the feed itself has a title.
    pub(crate) title: Option<String>,
    /// Seconds; `null` takes a person's interval away.
    #[serde(deserialize_with = "given")]
    interval: Option<Option<f64>>,
    /// `null` takes user name and password away.
    #[serde(deserialize_with = "given")]
    username: Option<Option<String>>,
    password: Option<String>,
}

/// Distinguishes a field that is null from one that is absent.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(deserializer).map(Some)
}

impl Accepts for FeedBody {
    fn accepts(field: &str) -> &'static str {
        match field {
            "subscribers" | "active_subscribers" => "a whole number from 0 to 4294967295",
            "sla" | "important" | "private" => "true or false",
            "calm" => "a list of groups such as {\"zone\": \"Europe/Paris\", \"subscribers\": 3}, with IANA names",
            "interval" => "a number of seconds, or null",
            "labels" | "add_labels" | "remove_labels" => "a list of texts",
            "username" | "external_id" => "text, or null",
            _ => "text",
        }
    }
}

/// As many as there are time zones, with room for more.
const MOST_CALM_GROUPS: usize = 1_000;

impl FeedBody {
    /// Returns the login in these fields: absent, `null`, or a pair.
    pub(crate) fn login(&self) -> Result<Option<Option<Login>>, ApiError> {
        match (&self.username, &self.password) {
            (None, None) => Ok(None),
            (Some(None), None) => Ok(Some(None)),
            (Some(Some(username)), password) => {
                let login = Login::new(username, password.as_deref().unwrap_or_default());
                login.map(|login| Some(Some(login))).map_err(|error| ApiError::bad(format!("username: {error}")))
            }
            (None | Some(None), Some(_)) => {
                Err(ApiError::bad("password goes with a username; give both, the username may be empty"))
            }
        }
    }

    /// Returns the audience that results when these fields are laid over `before`, of a feed with these calm groups.
    /// Calm subscribers take the place of the one that a feed without a count is taken to have.
    pub(crate) fn audience(&self, before: Audience, calm_before: &[CalmGroup]) -> Result<Audience, ApiError> {
        if self.calm.as_ref().is_some_and(|calm| calm.len() > MOST_CALM_GROUPS) {
            let message = format!("calm has more than {MOST_CALM_GROUPS} groups; give each time zone once");
            return Err(ApiError::bad(message));
        }
        let is_uncounted = (before.subscribers, before.active_subscribers) == (1, 1) && calm_before.is_empty();
        let is_calm = self.calm.as_ref().is_some_and(|calm| calm_subscribers(calm) > 0);
        let before = match is_uncounted && is_calm && self.subscribers.is_none() && self.active_subscribers.is_none() {
            true => Audience { subscribers: 0, active_subscribers: 0, ..before },
            false => before,
        };
        let subscribers = self.subscribers.unwrap_or(before.subscribers);
        let otherwise_active = self.subscribers.unwrap_or(before.active_subscribers);
        let active_subscribers = self.active_subscribers.unwrap_or(otherwise_active);
        if active_subscribers > subscribers {
            let message = format!("active_subscribers must not be more than subscribers ({subscribers})");
            return Err(ApiError::bad(message));
        }
        let interval = match self.interval {
            None => before.interval,
            Some(None) => None,
            Some(Some(seconds)) => match Duration::try_from_secs_f64(seconds) {
                Ok(interval) if !interval.is_zero() && interval <= LONGEST_INTERVAL => Some(interval),
                _ => {
                    return Err(ApiError::bad(
                        "interval must be longer than 0 s and at most 365 days, or none; in JSON it is a number of \
                         seconds, or null",
                    ));
                }
            },
        };
        let sla = self.sla.unwrap_or(before.sla);
        let important = self.important.unwrap_or(before.important);
        Ok(Audience { subscribers, active_subscribers, sla, important, interval })
    }

    /// Returns the change of labels in these fields.
    pub(crate) fn labels(&self) -> Result<LabelEdit, ApiError> {
        let read = |name: &str, labels: &Option<Vec<String>>| {
            let read = labels.as_deref().map(read_labels).transpose();
            read.map_err(|error| ApiError::bad(format!("{name}: {error}")))
        };
        Ok(LabelEdit {
            set: read("labels", &self.labels)?,
            add: read("add_labels", &self.add_labels)?.unwrap_or_default(),
            remove: read("remove_labels", &self.remove_labels)?.unwrap_or_default(),
        })
    }

    /// Returns the caller's own id in these fields: absent, `null`, or a text.
    pub(crate) fn external_id(&self) -> Result<Option<Option<String>>, ApiError> {
        let read = |id: &Option<String>| id.as_deref().map(read_external_id).transpose().map_err(ApiError::bad);
        self.external_id.as_ref().map(read).transpose()
    }

    /// Returns the feed that these fields add.
    pub(crate) fn new_feed(&self, api: &Api) -> Result<AddFeed, ApiError> {
        let url = self.url.as_deref().ok_or_else(|| ApiError::bad("url is missing; it must be the feed's address"))?;
        let (url, of_url) = input::feed(url, &api.ops.config.fetch.at_service).map_err(ApiError::not_a_url)?;
        let of_fields = self.login()?.flatten();
        if of_url.is_some() && of_fields.is_some() {
            return Err(ApiError::bad("username and password are in the url already; give them once"));
        }
        let (calm, private) = (self.calm.clone().unwrap_or_default(), self.private.unwrap_or(false));
        let audience = self.audience(Audience::default(), &[])?;
        let labels = api.labels_for_new(limited(self.labels()?.over(&[])).map_err(ApiError::bad)?)?;
        let marks = Marks { labels, external_id: self.external_id()?.flatten() };
        let title = self.title.as_deref().map(read_title).transpose().map_err(ApiError::bad)?;
        Ok(AddFeed { url, login: of_fields.or(of_url), audience, calm, private, marks, title })
    }
}

/// `POST /feeds`: 201 when it is new, 200 when it was known.
pub(crate) async fn add(
    State(api): State<Api>,
    Body(body): Body<FeedBody>,
) -> Result<(StatusCode, Extension<Subject>, Json<AddedView>), ApiError> {
    let feed = body.new_feed(&api)?;
    api.may_add(&feed).await?;
    let ops = api.ops.clone();
    let added = run_to_completion(async move { ops.add(&[feed], None).await }).await?;
    let gone = || ApiError::new(StatusCode::CONFLICT, "the feed was erased while it was added; add it again");
    let added = added.into_iter().next().ok_or_else(gone)?;
    let feed = api.ops.feed(&FeedRef::Id(added.id)).await?.ok_or_else(gone)?;
    if !api.shows(&feed.marks) {
        return Err(api.of_others());
    }
    let status = if added.new { StatusCode::CREATED } else { StatusCode::OK };
    let subject = Extension(Subject(format!("feeds/{}", added.id)));
    Ok((status, subject, Json(AddedView { new: added.new, revived: added.revived, feed: api.view(feed) })))
}

/// `GET /feeds`
pub(crate) async fn list(State(api): State<Api>, Params(params): Params<ListParams>) -> Result<Response, ApiError> {
    let query = params.query(&api, 100).await?;
    let turn = api.page_turn().await?;
    let page = api.ops.feeds(&query).await?;
    let items: Vec<_> = page.items.into_iter().map(|feed| api.view(feed)).collect();
    Ok(until_sent(written(List { items, next: page.next }).await?, turn))
}

/// The parameters of `GET /feeds/lookup`.
#[derive(Debug, Deserialize)]
pub(crate) struct LookupParams {
    url: Option<String>,
}

/// `GET /feeds/lookup?url=`
pub(crate) async fn lookup(
    State(api): State<Api>,
    Params(params): Params<LookupParams>,
) -> Result<Json<FeedView>, ApiError> {
    let url = params.url.ok_or_else(|| ApiError::bad("url is missing; it must be a feed's address"))?;
    let url = api.feed_url(&url)?;
    let unknown = || {
        let message =
            format!("no feed has the URL {url}, unless with credentials: GET /api/v1/feeds?q= finds those too");
        ApiError::new(StatusCode::NOT_FOUND, message).coded("unknown_feed")
    };
    let feed = api.find(&FeedRef::Url(url.clone())).await?.ok_or_else(unknown)?;
    Ok(Json(api.view(feed)))
}

/// `GET /feeds/{id}`
pub(crate) async fn show(State(api): State<Api>, PathId(id): PathId) -> Result<Json<FeedView>, ApiError> {
    let feed = api.feed(id).await?;
    Ok(Json(api.view(feed)))
}

/// `PATCH /feeds/{id}`: the fields given replace what was.
pub(crate) async fn change(
    State(api): State<Api>,
    PathId(id): PathId,
    Body(body): Body<FeedBody>,
) -> Result<Json<FeedView>, ApiError> {
    if body.url.is_some() {
        return Err(ApiError::bad("url cannot be changed: add the new one and remove this one"));
    }
    if body.title.is_some() {
        return Err(ApiError::bad(
            "title cannot be changed: it is given with a new feed, and replaced by the feed's own",
        ));
    }
    let before = api.feed(id).await?;
    let (labels, external_id) = (body.labels()?, body.external_id()?);
    let after = limited(labels.over(&before.marks.labels)).map_err(ApiError::bad)?;
    api.may_label(&before.marks.labels, &after)?;
    let (audience, login) = (body.audience(before.audience, &before.calm)?, body.login()?);
    let audience = AudienceEdit::between(before.audience, audience);
    let edited =
        EditFeed { audience, calm: body.calm, private: body.private, labels, external_id, status: None, login };
    edit(&api, id, edited).await
}

/// `DELETE /feeds/{id}`: erases the feed with its entries and history.
pub(crate) async fn erase(State(api): State<Api>, PathId(id): PathId) -> Result<StatusCode, ApiError> {
    api.may_touch(id).await?;
    let erased = run_to_completion(async move { api.ops.erase(id).await }).await?;
    if erased { Ok(StatusCode::NO_CONTENT) } else { Err(ApiError::no_feed(id)) }
}

/// `POST /feeds/{id}/pause`
pub(crate) async fn pause(State(api): State<Api>, PathId(id): PathId) -> Result<Json<FeedView>, ApiError> {
    set_status(&api, id, Status::Paused, "is not polled anyway").await
}

/// `POST /feeds/{id}/resume`: lets a feed out of pause, blacklist or quarantine.
pub(crate) async fn resume(State(api): State<Api>, PathId(id): PathId) -> Result<Json<FeedView>, ApiError> {
    set_status(&api, id, Status::Active, "cannot be resumed; add its URL again to give it one more try").await
}

/// Pauses or resumes a feed, or says why its status does not allow that.
async fn set_status(api: &Api, id: FeedId, status: Status, refusal: &str) -> Result<Json<FeedView>, ApiError> {
    api.may_touch(id).await?;
    let (ops, edit) = (api.ops.clone(), EditFeed { status: Some(status), ..EditFeed::default() });
    let feed = run_to_completion(async move { ops.edit(id, &edit).await }).await?;
    let feed = feed.ok_or_else(|| ApiError::no_feed(id))?;
    if feed.status == status { Ok(Json(api.view(feed))) } else { Err(conflict(&feed, refusal)) }
}

/// `POST /feeds/{id}/refresh`: polled as soon as its host allows it. 202: the poll is still to come.
pub(crate) async fn refresh(
    State(api): State<Api>,
    PathId(id): PathId,
) -> Result<(StatusCode, Json<FeedView>), ApiError> {
    api.may_touch(id).await?;
    let ops = api.ops.clone();
    let woken = run_to_completion(async move { ops.wake(&[id]).await }).await?;
    let feed = api.feed(id).await?;
    if woken == 0 {
        return Err(conflict(&feed, not_polled(&feed)));
    }
    Ok((StatusCode::ACCEPTED, Json(api.view(feed))))
}

/// `POST /feeds/{id}/unmove`: back to where it was before it moved or was merged.
pub(crate) async fn unmove(State(api): State<Api>, PathId(id): PathId) -> Result<Json<FeedView>, ApiError> {
    api.may_touch(id).await?;
    let ops = api.ops.clone();
    let taken = run_to_completion(async move { unmove::unmove(&ops, id).await }).await?;
    match taken.ok_or_else(|| ApiError::no_feed(id))? {
        TakenBack::Done(feed) => Ok(Json(api.view(*feed))),
        TakenBack::NotMoved => Err(conflict(&api.feed(id).await?, "has not moved; nothing is taken back")),
        TakenBack::Taken(other) => {
            let message = format!("the URL that feed {id} had before is feed {other}'s now; remove that one first");
            Err(ApiError::new(StatusCode::CONFLICT, message))
        }
    }
}

/// `POST /feeds/{id}/forget`: drops validators and content hash, so that the next poll reads the feed whole.
pub(crate) async fn forget(State(api): State<Api>, PathId(id): PathId) -> Result<Json<FeedView>, ApiError> {
    api.may_touch(id).await?;
    let ops = api.ops.clone();
    let forgotten = run_to_completion(async move { ops.forget(id).await }).await?;
    Ok(Json(api.view(forgotten.ok_or_else(|| ApiError::no_feed(id))?)))
}

/// The body of a backfill.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct BackfillBody {
    since: Option<Timestamp>,
}

impl Accepts for BackfillBody {
    fn accepts(_: &str) -> &'static str {
        "a time, such as 2026-01-01T00:00:00Z"
    }
}

/// `POST /feeds/{id}/backfill`: reads the older entries that the feed links to. 202: page by page, from now on.
pub(crate) async fn backfill(
    State(api): State<Api>,
    PathId(id): PathId,
    Body(body): Body<BackfillBody>,
) -> Result<(StatusCode, Json<FeedView>), ApiError> {
    api.may_touch(id).await?;
    let since =
        body.since.ok_or_else(|| ApiError::bad("since is missing: the time from which on entries are wanted"))?;
    let ops = api.ops.clone();
    let begun = run_to_completion(async move { backfill::backfill(&ops, id, since).await }).await?;
    match begun.ok_or_else(|| ApiError::no_feed(id))? {
        Backfill::Begun(feed) => Ok((StatusCode::ACCEPTED, Json(api.view(*feed)))),
        Backfill::NotPolled(feed) => Err(conflict(&feed, not_polled(&feed))),
        Backfill::NoArchive(feed) => {
            let none =
                "links to no older entries (rel=\"prev-archive\" or rel=\"next\", next_url): nothing can be read";
            Err(conflict(&feed, none))
        }
        Backfill::Off => Err(ApiError::new(
            StatusCode::CONFLICT,
            "policy.archive_pages is 0: no older entries are read; set it to the number of pages to read",
        )),
    }
}

/// `GET /feeds/{id}/explain`
pub(crate) async fn explain(State(api): State<Api>, PathId(id): PathId) -> Result<Json<ExplainView>, ApiError> {
    let feed = api.feed(id).await?;
    Ok(Json(explain::of(&api, &feed).await?))
}

/// `GET /feeds/{id}/history`: its last polls, newest first, in one part.
pub(crate) async fn history(State(api): State<Api>, PathId(id): PathId) -> Result<Json<List<HistoryEntry>>, ApiError> {
    api.may_touch(id).await?;
    let items = api.ops.store.history(id).await?.ok_or_else(|| ApiError::no_feed(id))?;
    Ok(Json(List { items, next: None }))
}

async fn edit(api: &Api, id: FeedId, edit: EditFeed) -> Result<Json<FeedView>, ApiError> {
    let ops = api.ops.clone();
    let feed = run_to_completion(async move { ops.edit(id, &edit).await }).await?;
    Ok(Json(api.view(feed.ok_or_else(|| ApiError::no_feed(id))?)))
}

/// Returns what helps a feed that is not polled.
fn not_polled(feed: &Feed) -> &'static str {
    match feed.status {
        Status::Gone | Status::Removed => "is not polled; add its URL again to give it one more try",
        Status::Merged => "is polled as the feed that it was merged into; refresh that one",
        _ => "is not polled; resume it first",
    }
}

fn conflict(feed: &Feed, what: &str) -> ApiError {
    ApiError::new(StatusCode::CONFLICT, format!("feed {} is {} and {what}", feed.id, feed.status.as_str()))
}
