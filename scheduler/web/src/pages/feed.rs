//! `/feeds/{id}`: everything about one feed, and forms that change it.

use askama::Template;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use common::document::{FeedAbout, FeedHints};
use common::feed::Feed;
use common::outcome::{FailureKind, OutcomeKind};
use common::policy::{Status, named};
use common::time::Timestamp;
use common::url::FeedId;

use super::frame::{Frame, answer};
use super::lists::{EntryLine, entry_line};
use super::outlook::{self, Outlook};
use super::waits::{Next, Stops, Waits};
use super::words::{self, Moment};
use super::{actions, advice};
use crate::error::ApiError;
use crate::explain;
use crate::request::Params;
use crate::state::{Api, State};
use scheduler::wire::about;
use scheduler::wire::{ExplainView, FeedView};
use serde::Deserialize;
use store::HistoryEntry;

/// Entries that are shown.
const ENTRIES: u32 = 12;
/// Characters that are shown of each thing that a feed says about itself.
const LONGEST_ABOUT: usize = 1_000;

#[derive(Template)]
#[template(path = "pages/feed.html")]
struct FeedPage {
    frame: Frame,
    name: String,
    link: Option<String>,
    feed: FeedView,
    /// A person set it private; a feed with a login is private besides.
    is_set_private: bool,
    explain: ExplainView,
    terms: Vec<TermLine>,
    next: Option<Next>,
    last_polled: Option<Moment>,
    last_changed: Option<Moment>,
    subscribers: String,
    entries: String,
    advice: Vec<&'static str>,
    outlook: Outlook,
    said: Vec<(&'static str, Said)>,
    about: Vec<(String, String)>,
    polls: Vec<PollLine>,
    news: Vec<EntryLine>,
    /// What was done just now.
    done: &'static str,
    interval: String,
}

/// The parameters of `GET /feeds/{id}`.
#[derive(Debug, Deserialize)]
pub(super) struct FeedParams {
    done: Option<String>,
}

struct TermLine {
    text: String,
    due: Moment,
}

/// Words around a time.
struct Said {
    text: String,
    at: Option<Moment>,
}

impl Said {
    fn text(text: String) -> Self {
        Said { text, at: None }
    }

    fn at(at: Timestamp, now: Timestamp) -> Self {
        Said { text: String::new(), at: Some(Moment::of(at, now)) }
    }
}

/// One poll of the timeline.
pub(super) struct PollLine {
    pub(super) class: &'static str,
    pub(super) at: Moment,
    pub(super) outcome: &'static str,
    pub(super) what: String,
    pub(super) next: Option<String>,
    pub(super) reasons: String,
}

impl FeedPage {
    fn is_active(&self) -> bool {
        self.feed.status == Status::Active
    }

    /// What its category means.
    fn about_category(&self) -> &'static str {
        words::category(self.feed.category)
    }

    fn status(&self) -> &'static str {
        words::feed_status(self.feed.status)
    }

    /// What "resume" ends: see the API.
    fn can_resume(&self) -> bool {
        matches!(self.feed.status, Status::Paused | Status::Blacklisted | Status::Quarantined)
    }
}

/// `GET /feeds/{id}`
pub(super) async fn page(
    State(api): State<Api>,
    frame: Frame,
    Path(id): Path<String>,
    Params(params): Params<FeedParams>,
) -> Result<Response, ApiError> {
    let none = || ApiError::new(StatusCode::NOT_FOUND, format!("there is no feed {id}"));
    let feed = api.feed(FeedId(id.parse().map_err(|_| none())?)).await.map_err(|error| match error.status() {
        StatusCode::NOT_FOUND => none(),
        _ => error,
    })?;
    let now = frame.now;
    let waits = Stops::of_host(&api.ops, &feed.host, now).await?.of(&feed);
    let explain = explain::of(&api, &feed).await?;
    let history = api.ops.store.history(feed.id).await?.unwrap_or_default();
    let news = {
        let _turn = api.console_turn().await?;
        let entries = api.ops.store.newest_entries(Some(feed.id), ENTRIES).await?;
        entries.into_iter().map(|entry| entry_line(entry, now)).collect()
    };
    let said = |done| actions::said(done, waits.is_all());
    let done = params.done.as_deref().and_then(said).unwrap_or_default();
    let page = FeedPage { news, done, ..shown(&api, frame, feed, waits, explain, &history) };
    answer(StatusCode::OK, &page)
}

fn shown(
    api: &Api,
    frame: Frame,
    feed: Feed,
    waits: Waits,
    explain: ExplainView,
    history: &[HistoryEntry],
) -> FeedPage {
    let now = frame.now;
    let moment = |at: Timestamp| Moment::of(at, now);
    let terms = explain.terms.iter().map(|term| TermLine { text: term.text.clone(), due: moment(term.due) }).collect();
    let (next, advice) = (waits.next(&feed, now), advice::of(&feed));
    let outlook = outlook::of(&feed, waits, &api.ops.condition.config.get().policy, now);
    let is_set_private = feed.private;
    let view = api.view(feed);
    FeedPage {
        is_set_private,
        frame: frame.around("feed"),
        name: view.title.clone().unwrap_or_else(|| view.url.clone()),
        link: words::web_link(&view.url),
        said: said(&view, now),
        about: about(&view.about),
        terms,
        next,
        last_polled: view.last_polled.map(moment),
        last_changed: view.last_changed.map(moment),
        subscribers: words::count(view.subscribers.into()),
        entries: words::count(view.entries),
        advice,
        outlook,
        polls: history.iter().map(|poll| poll_line(poll, now)).collect(),
        news: Vec::new(),
        done: "",
        interval: view.interval.map(interval).unwrap_or_default(),
        feed: view,
        explain,
    }
}

/// An interval as the form takes it.
fn interval(seconds: f64) -> String {
    let time = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default();
    common::duration::as_text(time)
}

/// One poll in words.
pub(super) fn poll_line(poll: &HistoryEntry, now: Timestamp) -> PollLine {
    let mut what = Vec::new();
    what.extend(poll.failure.filter(|kind| *kind != FailureKind::Status).map(|kind| words::failure(kind).to_owned()));
    what.extend(poll.status.map(words::status));
    what.extend((poll.bytes > 0).then(|| words::bytes(poll.bytes as f64)));
    what.push(words::seconds(poll.duration));
    let interval = |due: Timestamp| format!("{} later", words::duration(due.since(poll.at)));
    PollLine {
        class: outcome_class(poll.outcome),
        at: Moment::of(poll.at, now),
        outcome: words::outcome(poll.outcome),
        what: what.join(", "),
        next: poll.next_due.map(interval),
        reasons: poll.reasons.iter().map(|rule| named(*rule)).collect::<Vec<_>>().join(", "),
    }
}

/// An outcome's colour in the style sheet.
pub(super) fn outcome_class(kind: OutcomeKind) -> &'static str {
    match kind {
        OutcomeKind::NotModified => "good",
        OutcomeKind::Modified => "news",
        OutcomeKind::Throttled | OutcomeKind::Deferred => "warn",
        OutcomeKind::Failed => "bad",
        OutcomeKind::Gone => "gone",
    }
}

/// What the server and the feed say of themselves.
fn said(feed: &FeedView, now: Timestamp) -> Vec<(&'static str, Said)> {
    let said = Said::text;
    let text = |text: &Option<String>| text.clone().map(said);
    let hints = hints(&feed.hints);
    let labels = Some(feed.marks.labels.join(", ")).filter(|labels| !labels.is_empty());
    let all = [
        ("Labels", labels.map(said)),
        ("Caller's id", text(&feed.marks.external_id)),
        ("Last status", feed.last_status.map(words::status).map(said)),
        ("ETag", text(&feed.etag)),
        ("Last-Modified", text(&feed.last_modified)),
        ("Wait that its server asked for ends", feed.hold_until.map(|at| Said::at(at, now))),
        ("When to poll it", (!hints.is_empty()).then_some(hints).map(said)),
        ("Moved from", text(&feed.moved_from)),
        ("Next page", text(&feed.onward.next)),
        ("Archive before it", text(&feed.onward.prev_archive)),
        ("Wants to be read at", text(&feed.onward.new_feed_url)),
        ("Its end", feed.onward.expired.then(|| said("nothing will follow".to_owned()))),
        ("Complete", completeness(feed, now)),
        ("Older entries", feed.archive.as_ref().map(|it| said(format!("being read: {} pages so far", it.pages)))),
        ("Silent since", feed.silent_since.map(|at| Said::at(at, now))),
        ("Content hash", feed.content_hash.map(|hash| said(hash.to_string()))),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Whether entries may be missing; nothing before it was read.
fn completeness(feed: &FeedView, now: Timestamp) -> Option<Said> {
    let gap = |since| Said { text: "entries may be missing since ".to_owned(), at: Some(Moment::of(since, now)) };
    feed.last_success.map(|_| feed.gap_since.map_or_else(|| Said::text("no entry can be missing".to_owned()), gap))
}

/// What the feed says about itself, as the page writes it.
fn about(about: &FeedAbout) -> Vec<(String, String)> {
    let shortened = |value: String| match value.char_indices().nth(LONGEST_ABOUT) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value,
    };
    let capital = |name: &str| format!("{}{}", name[..1].to_uppercase(), &name[1..]);
    about::lines(about).into_iter().map(|(name, value)| (capital(name), shortened(value))).collect()
}

fn hints(hints: &FeedHints) -> String {
    const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    let mut parts = Vec::new();
    parts.extend(hints.ttl.map(|ttl| format!("ttl {}", words::duration(ttl))));
    parts.extend(hints.update_period.map(|period| format!("every {}", words::duration(period))));
    let hours: Vec<String> =
        (0..24).filter(|hour| hints.skip_hours & (1 << hour) != 0).map(|hour| hour.to_string()).collect();
    parts.extend((!hours.is_empty()).then(|| format!("not in the hours {} (GMT)", hours.join(", "))));
    let days = DAYS.iter().enumerate().filter(|(day, _)| hints.skip_days & (1 << day) != 0);
    let days: Vec<&str> = days.map(|(_, name)| *name).collect();
    parts.extend((!days.is_empty()).then(|| format!("not on {} (GMT)", days.join(", "))));
    parts.join("; ")
}
