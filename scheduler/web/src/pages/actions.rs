//! The forms of a feed's page, of the list of feeds and of the fleet's page. Each ends in the API's own handler, and then leads
//! back to a page that says what was done.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use common::feed::Feed;
use common::url::FeedId;
use serde_json::{Map, Value, json};
use store::AuditOutcome;

use super::form::{Fields, object};
use super::frame::see_other;
use super::query::without;
use crate::api::audit::{Became, Meant, Subject, Who};
use crate::api::change::run_to_completion;
use crate::api::feeds::{self, FeedBody};
use crate::api::requeue::{RequeueBody, requeue};
use crate::error::ApiError;
use crate::request::{Accepts, Body, PathId, fields};
use crate::state::{Api, State};

/// Something that is done to a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Refresh,
    Pause,
    Resume,
    Forget,
    Requeue,
    Unmove,
    Change,
    Label,
    Unlabel,
    Remove,
}

/// Each with its name in addresses, what a page says afterwards of one feed, and what it calls this for several.
const ACTIONS: [(Action, &str, &str, &str); 10] = [
    (Action::Refresh, "refresh", "It will be polled as soon as its host allows it.", "Polled soon"),
    (Action::Pause, "pause", "It is paused.", "Paused"),
    (Action::Resume, "resume", "It is polled again.", "Resumed"),
    (Action::Forget, "forget", "Its next poll will read it in full.", "Read in full next time"),
    (
        Action::Requeue,
        "requeue",
        "Its penalty is lifted; it will be polled as soon as its host allows it.",
        "Requeued without penalty",
    ),
    (Action::Unmove, "unmove", "The move is undone.", "Moved back"),
    (Action::Change, "change", "The settings are saved.", "Changed"),
    (Action::Label, "label", "The label is added.", "Labelled"),
    (Action::Unlabel, "unlabel", "The label is removed.", "Label removed from"),
    (Action::Remove, "remove", "The feed is removed.", "Removed"),
];

impl Action {
    /// What the page of a feed offers.
    pub(super) const OF_ONE: [Action; 8] = [
        Action::Refresh,
        Action::Pause,
        Action::Resume,
        Action::Forget,
        Action::Requeue,
        Action::Unmove,
        Action::Change,
        Action::Remove,
    ];
    /// What the list of feeds offers.
    pub(super) const OF_SEVERAL: [Action; 7] = [
        Action::Refresh,
        Action::Pause,
        Action::Resume,
        Action::Requeue,
        Action::Label,
        Action::Unlabel,
        Action::Remove,
    ];

    /// The name in addresses.
    pub(super) fn name(self) -> &'static str {
        ACTIONS.iter().find(|(action, ..)| *action == self).map_or("", |(_, name, ..)| name)
    }
}

/// What a page says instead while no feed is polled: of one feed, and of several.
const WHILE_PAUSED: [(&str, &str, &str); 4] = [
    ("added", "The feed is added. Its first poll follows after polling is resumed.", ""),
    ("refresh", "It will be polled after polling is resumed.", "Polled after polling is resumed"),
    ("resume", "It is active again, and will be polled after polling is resumed.", "Resumed"),
    (
        "requeue",
        "Its penalty is lifted; it will be polled after polling is resumed.",
        "Requeued without penalty, polled after polling is resumed",
    ),
];

/// Returns what a page says after an action of this name; `paused` if no feed is polled at present.
pub(super) fn said(done: &str, paused: bool) -> Option<&'static str> {
    if let Some((_, said, _)) = WHILE_PAUSED.iter().find(|(name, ..)| paused && *name == done) {
        return Some(said);
    }
    match done {
        "added" => Some("The feed is added. Its first poll follows soon."),
        "known" => Some("The feed was known already."),
        "paused" => Some("All polling is paused."),
        "resumed" => Some("Polling is resumed."),
        _ => ACTIONS.iter().find(|(_, name, ..)| *name == done).map(|(_, _, said, _)| *said),
    }
}

/// Returns what the list says after an action on several feeds, `paused` if no feed is polled at present: its name, how many it was done to, how many it was refused for, and
/// how many there was no time for.
pub(super) fn said_of_several(done: &str, paused: bool) -> Option<String> {
    let mut parts = done.split('.');
    let (name, changed, refused) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?.parse::<u64>().ok()?);
    let not_yet = parts.next().map_or(Some(0), |part| part.parse::<u64>().ok())?;
    let (.., usual) = ACTIONS.iter().find(|(_, known, ..)| *known == name)?;
    let said = WHILE_PAUSED.iter().find(|(known, ..)| paused && *known == name).map_or(usual, |(.., said)| said);
    let of = |number: u64| super::words::counted(number, "feed", "feeds");
    let left = match refused {
        0 => String::new(),
        1 => " Left as it was: 1 feed.".to_owned(),
        _ => format!(" Left as they were: {}.", of(refused)),
    };
    let not_yet = match not_yet {
        0 => String::new(),
        _ => format!(" There was no time for {}: tick them again.", of(not_yet)),
    };
    Some(format!("{said}: {}.{left}{not_yet}", of(changed)))
}

/// Does something to a feed, as the API does it.
async fn act(api: &Api, who: &Who, action: Action, id: FeedId, sent: &Fields) -> Result<(), ApiError> {
    let (state, path) = (State(api.clone()), PathId(id));
    match action {
        Action::Refresh => feeds::refresh(state, path).await.map(drop),
        Action::Pause => feeds::pause(state, path).await.map(drop),
        Action::Resume => feeds::resume(state, path).await.map(drop),
        Action::Forget => feeds::forget(state, path).await.map(drop),
        Action::Unmove => feeds::unmove(state, path).await.map(drop),
        Action::Remove => feeds::erase(state, path).await.map(drop),
        Action::Requeue => match requeued(api, who, &[id]).await?.0 {
            0 => Err(cannot_be_polled(&api.feed(id).await?)),
            _ => Ok(()),
        },
        Action::Change => change(api, id, settings(sent)?).await,
        Action::Label | Action::Unlabel => {
            let label = sent.get("label").ok_or_else(|| ApiError::bad("label is missing; write the label's name"))?;
            let field = if action == Action::Label { "add_labels" } else { "remove_labels" };
            change(api, id, object([(field, Some(json!([label])))])).await
        }
    }
}

/// Requeues these feeds, which may be penalised, as one requeue; returns how many of them will be polled, and the requeue's number
/// if there are any.
async fn requeued(api: &Api, who: &Who, ids: &[FeedId]) -> Result<(u64, Option<i64>), ApiError> {
    for id in ids {
        api.may_touch(*id).await?;
    }
    let body = json!({ "filter": { "feeds": ids }, "lift_penalties": true });
    let begun = requeue(api, who, read::<RequeueBody>(&body)?).await?;
    Ok((begun.queued, begun.id))
}

fn cannot_be_polled(feed: &Feed) -> ApiError {
    let message = format!("feed {} is {}, and is not polled by a requeue", feed.id, feed.status.as_str());
    ApiError::new(StatusCode::CONFLICT, message)
}

async fn change(api: &Api, id: FeedId, body: Map<String, Value>) -> Result<(), ApiError> {
    let body: FeedBody = fields(body)?;
    feeds::change(State(api.clone()), PathId(id), Body(body)).await.map(drop)
}

fn read<T: Accepts>(body: &Value) -> Result<T, ApiError> {
    fields(body.as_object().cloned().unwrap_or_default())
}

/// The settings of a feed, as its page sends all of them.
fn settings(sent: &Fields) -> Result<Map<String, Value>, ApiError> {
    let whole = |name: &str| {
        let number =
            |text: &str| text.parse::<u32>().map_err(|_| ApiError::bad(format!("{name} must be a whole number")));
        sent.get(name).map(number).transpose()
    };
    let written = sent.get("labels").unwrap_or_default();
    let labels: Vec<&str> = written.split(',').map(str::trim).filter(|label| !label.is_empty()).collect();
    // A label may have a comma: labels that were not edited stay as they are.
    let labels = Some(labels).filter(|_| sent.get("labels_before") != Some(written));
    let (subscribers, active) = (whole("subscribers")?, whole("active_subscribers")?);
    Ok(object([
        ("subscribers", subscribers.map(|number| json!(number))),
        ("active_subscribers", active.map(|number| json!(number))),
        ("sla", Some(json!(sent.is_ticked("sla")))),
        ("important", Some(json!(sent.is_ticked("important")))),
        ("private", Some(json!(sent.is_ticked("private")))),
        ("interval", Some(json!(sent.seconds("interval")?))),
        ("labels", labels.map(|labels| json!(labels))),
        ("external_id", Some(json!(sent.get("external_id")))),
    ]))
}

/// Something that cannot be taken back needs a tick.
fn is_sure(action: Action, sent: &Fields) -> Result<(), ApiError> {
    if action == Action::Remove && !sent.is_ticked("sure") {
        return Err(ApiError::bad(
            "tick the box first: a feed that is removed is erased, with its entries and its history",
        ));
    }
    Ok(())
}

/// `POST /feeds/{id}/..`
pub(super) async fn on_one(api: Api, who: Who, action: Action, id: String, sent: Fields) -> Result<Response, ApiError> {
    let none = |_| ApiError::new(StatusCode::NOT_FOUND, format!("there is no feed {id}"));
    let feed = FeedId(id.parse().map_err(none)?);
    is_sure(action, &sent)?;
    act(&api, &who, action, feed, &sent).await?;
    Ok(see_other(&match action {
        Action::Remove => "../../feeds?done=remove.1.0".to_owned(),
        action => format!("../{feed}?done={}", action.name()),
    }))
}

/// The maximum number of feeds in one form: as many as a page lists.
const MOST: usize = 1_000;

/// How long the feeds of one form are worked on. Well within the time that a response may take.
const AT_MOST: Duration = Duration::from_secs(20);

/// `POST /feeds/..`: on every feed that is ticked in the list.
pub(super) async fn on_several(
    api: Api,
    who: Who,
    meant: Meant,
    action: Action,
    sent: Fields,
) -> Result<Response, ApiError> {
    let read = |id: &str| id.parse().map(FeedId).map_err(|_| ApiError::bad("a feed's id must be a whole number"));
    let mut ids: Vec<FeedId> = sent.all("id").map(read).collect::<Result<_, _>>()?;
    ids.sort_unstable();
    ids.dedup();
    if ids.is_empty() {
        return Err(ApiError::bad("no feed is ticked; tick those in the list that are meant"));
    }
    if ids.len() > MOST {
        return Err(ApiError::bad(format!("at most {MOST} feeds at once")));
    }
    is_sure(action, &sent)?;
    // For the audit, which has one line for the form: what was requested, whatever the outcome.
    meant.is(feeds_named(&ids));
    let back = sent.get("back").filter(|back| back.bytes().all(|byte| byte.is_ascii_graphic())).unwrap_or_default();
    let back = without(back, "done");
    let asked = ids.len() as u64;
    let done = match action {
        Action::Requeue => {
            let (queued, number) = requeued(&api, &who, &ids).await?;
            let subject = number.map(|number| format!("requeue/{number}"));
            Done { changed: queued, refused: asked.saturating_sub(queued), not_yet: 0, subject }
        }
        // To its end, even when the caller hangs up: the audit has its outcome then.
        action => run_to_completion(one_by_one(api, who, action, ids, sent)).await?,
    };
    let Done { changed, refused, not_yet, subject } = done;
    let mark = if back.is_empty() { "" } else { "&" };
    let not_yet = if not_yet == 0 { String::new() } else { format!(".{not_yet}") };
    let to = format!("../feeds?{back}{mark}done={}.{changed}.{refused}{not_yet}", action.name());
    let mut response = see_other(&to);
    if let Some(subject) = subject {
        response.extensions_mut().insert(Subject(subject));
    }
    if changed == 0 {
        response.extensions_mut().insert(Became(AuditOutcome::Refused));
    }
    Ok(response)
}

fn feeds_named(ids: &[FeedId]) -> String {
    let named: Vec<String> = ids.iter().map(ToString::to_string).collect();
    format!("feeds/{}", named.join(","))
}

/// What became of a form for several feeds.
struct Done {
    changed: u64,
    /// Those to which it cannot be done.
    refused: u64,
    /// Those that there was no time for.
    not_yet: u64,
    /// What was changed, for the audit, where anything was.
    subject: Option<String>,
}

/// Does something to each of these feeds, one after the other, until one cannot be changed for a reason of ours.
async fn one_by_one(api: Api, who: Who, action: Action, ids: Vec<FeedId>, sent: Fields) -> Result<Done, ApiError> {
    let (mut changed, mut refused, began) = (Vec::new(), 0_u64, Instant::now());
    for id in &ids {
        if began.elapsed() > AT_MOST {
            break;
        }
        match act(&api, &who, action, *id, &sent).await {
            Ok(()) => changed.push(*id),
            // Nothing was done, so nothing needs to be summed up.
            Err(error) if changed.is_empty() && refused == 0 && error.status() == StatusCode::BAD_REQUEST => {
                return Err(error);
            }
            Err(error) if error.status().is_server_error() => {
                let message =
                    format!("{error}; {} of {} feeds were changed before feed {id}", changed.len(), ids.len());
                return Err(ApiError::new(error.status(), message));
            }
            Err(_) => refused += 1,
        }
    }
    let not_yet = ids.len() as u64 - changed.len() as u64 - refused;
    let subject = Some(feeds_named(&changed)).filter(|_| !changed.is_empty());
    Ok(Done { changed: changed.len() as u64, refused, not_yet, subject })
}

/// The result of a handler.
type Answer = Pin<Box<dyn Future<Output = Result<Response, ApiError>> + Send>>;

/// The handler of a form on a feed's page.
pub(super) fn one(
    action: Action,
) -> impl Fn(State<Api>, Extension<Who>, Path<String>, Fields) -> Answer + Clone + Send + Sync + 'static {
    move |State(api), Extension(who), Path(id), sent| Box::pin(on_one(api, who, action, id, sent))
}

/// The handler of a form on the list of feeds.
pub(super) fn several(
    action: Action,
) -> impl Fn(State<Api>, Extension<Who>, Extension<Meant>, Fields) -> Answer + Clone + Send + Sync + 'static {
    move |State(api), Extension(who), Extension(meant), sent| Box::pin(on_several(api, who, meant, action, sent))
}

/// `POST /fleet/pause`
pub(super) async fn pause_fleet(State(api): State<Api>) -> Result<Response, ApiError> {
    crate::api::fleet::pause(State(api)).await.map(drop)?;
    Ok(see_other("../?done=paused"))
}

/// `POST /fleet/resume`
pub(super) async fn resume_fleet(State(api): State<Api>) -> Result<Response, ApiError> {
    crate::api::fleet::resume(State(api)).await.map(drop)?;
    Ok(see_other("../?done=resumed"))
}
