//! The way of one fetch: redirects, an actor's outbox, and for a new feed that is a page the places where feeds usually are.

use common::document::Validators;
use common::host::HostKey;
use common::input;
use common::job::FetchJob;
use common::outcome::FailureKind;
use common::report::Outcome;
use common::url::{FeedUrl, Version};
use tokio::time::timeout_at;

use super::ask;
use super::fetched::Fetched;
use super::progress::{Fetch, Step};
use crate::discover::{AnnouncedFeed, usual_places};
use crate::document::Read;
use crate::failure::Failure;
use crate::parse::Lead;
use crate::redirect::{About, Chain};

/// Returns where a fetch begins: at the feed's own URL, or where that one's answer said that the posts are.
pub(super) fn start_of(job: &FetchJob) -> Chain {
    let mut chain = Chain::new(job.url.clone());
    match found_at(job) {
        Some(posts) => chain.lead_to(posts, About::default()),
        None => ask_as_actor(&mut chain, job),
    };
    chain
}

/// Returns where an earlier poll found the posts, if not at the feed's own URL.
fn found_at(job: &FetchJob) -> Option<&str> {
    job.validators.for_url.as_deref()?.strip_suffix(Validators::POSTS)
}

/// Requests an actor at the feed's own URL, with a signature, where a request without one was refused.
fn ask_as_actor(chain: &mut Chain, job: &FetchJob) -> bool {
    job.signed && chain.lead_to(job.url.as_str(), About::default())
}

pub(super) async fn run(fetch: &mut Fetch<'_>) -> Outcome {
    let outcome = walk(fetch).await;
    let is_new = fetch.job.version == Version(1) && fetch.job.content_hash.is_none();
    let page_host = fetch.fetched.last_host.clone().filter(|host| *host == fetch.job.host);
    match page_host {
        Some(host) if fetch.is_bare_page && fetch.job.search && is_new => try_usual_places(fetch, outcome, host).await,
        _ => outcome,
    }
}

/// Requests one URL after the other until none is left.
async fn walk(fetch: &mut Fetch<'_>) -> Outcome {
    loop {
        let url = fetch.chain.current().clone();
        if let Err(refused) = fetch.shared.guard.check_url(url.as_url()) {
            return Failure::from(refused).into();
        }
        let elsewhere = |host: &HostKey| fetch.hops.rules.for_url(url.as_url()).key != *host;
        if fetch.search.as_ref().is_some_and(elsewhere) {
            return Failure::new(FailureKind::Redirects, "a guess that leads to another host").into();
        }
        if let Err(until) = ask::wait_for_server(fetch, &url).await {
            return ask::pause(fetch, until);
        }
        let permit = match ask::admission(fetch, &url).await {
            Ok(permit) => permit,
            Err(until) => return ask::interrupt(fetch, until),
        };
        let step = ask::hop(fetch, &url).await;
        fetch.fetched.duration = fetch.started.elapsed();
        if let Some(permit) = permit {
            let ended = if let Step::Ended(outcome) = &step { Some(outcome) } else { None };
            let rest = fetch.fetched.host_rest(ended);
            ask::give_back(fetch, &permit, rest).await;
        }
        let (outcome, lead) = match step {
            Step::Ended(outcome) => (outcome, None),
            Step::Redirected | Step::Again => continue,
            Step::Body(answer, place) => {
                let was_delta = answer.delta;
                let Read { outcome, lead, bytes, announced, is_page } = ask::read_body(fetch, *answer).await;
                drop(place);
                fetch.is_bare_page = is_page && announced.is_empty() && lead.is_none();
                (fetch.fetched.body_bytes, fetch.fetched.announced) = (bytes, dialable(fetch, announced).await);
                fetch.fetched.unusable_delta |= was_delta && outcome.failure().is_some();
                (outcome, lead)
            }
        };
        let continues = lead.is_some_and(|lead| follow(fetch, lead)) || start_again(fetch, &outcome);
        if !continues {
            return outcome;
        }
    }
}

/// Leaves out the first announced feeds whose addresses are refused: a misconfigured page announces `http://localhost/feed`
/// before its real one. The first that may be dialled ends the look, because no more than one is ever taken.
async fn dialable(fetch: &Fetch<'_>, mut announced: Vec<AnnouncedFeed>) -> Vec<AnnouncedFeed> {
    let mut refused = 0;
    for feed in &announced {
        let judged = timeout_at(fetch.deadline, fetch.shared.client.judge(&fetch.shared.guard, feed.url.as_url()));
        match judged.await {
            Ok(Err(_)) => refused += 1,
            Ok(Ok(())) | Err(_) => break,
        }
    }
    announced.drain(..refused);
    announced
}

/// Searches a page that a person added and that announces no feed: tries the usual paths of feeds, once, on the
/// page's host alone and at its pace. A feed that is found is reported as if the page had announced it.
async fn try_usual_places(fetch: &mut Fetch<'_>, page_outcome: Outcome, host: HostKey) -> Outcome {
    fetch.search = Some(host);
    fetch.patience = fetch.shared.timeout;
    let page = fetch.fetched.clone();
    let site = fetch.chain.current().clone();
    // Before any wait, which would keep the job's slot unnecessarily.
    if !fetch.shared.searched().begin(&site, fetch.hops.clock.now()) {
        return page_outcome;
    }
    for place in usual_places(&site) {
        fetch.chain = Chain::new(place);
        match walk(fetch).await {
            Outcome::Modified(document) => {
                let url = fetch.chain.settled().clone();
                let found = AnnouncedFeed { url, media_type: String::new(), title: document.title };
                return back_at(fetch, Fetched { announced: vec![found], ..page }, page_outcome);
            }
            // The host throttles or blocks: its feeds wait, and the report says why.
            outcome if outcome.rest().is_some() => return outcome,
            Outcome::Deferred { .. } => break,
            outcome if is_unwelcome(fetch, &outcome) => break,
            _ => {}
        }
    }
    back_at(fetch, page, page_outcome)
}

/// Returns whether the host refused the last guess, failed, or did not send a whole response.
fn is_unwelcome(fetch: &Fetch<'_>, outcome: &Outcome) -> bool {
    matches!(fetch.fetched.http_status, None | Some(401 | 403 | 451 | 500..))
        || matches!(outcome.failure(), Some(FailureKind::Timeout | FailureKind::Truncated))
}

/// The report is about the page. Of the later requests it says only when they were, how much they took, and until when the host
/// wants to rest.
fn back_at(fetch: &mut Fetch<'_>, page: Fetched, outcome: Outcome) -> Outcome {
    let last = fetch.fetched.clone();
    fetch.fetched = Fetched {
        last_host: last.last_host,
        last_sent: last.last_sent,
        own_sent: last.own_sent,
        duration: last.duration,
        wire_bytes: last.wire_bytes,
        retry_after: last.retry_after.max(page.retry_after),
        limited_until: last.limited_until.max(page.limited_until),
        ..page
    };
    outcome
}

/// Continues where an answer says that the posts are.
fn follow(fetch: &mut Fetch<'_>, lead: Lead) -> bool {
    // The feed of an actor's page is the actor's own: the document says who it is.
    let current = fetch.chain.current();
    let actor = (lead.id.as_deref() == Some(current.as_str())).then(|| current.clone());
    fetch.chain.lead_to(&lead.url, About { name: lead.name, page: lead.page, actor })
}

/// Starts the search for the posts again at the feed's own URL if they are no longer where an earlier poll found them.
fn start_again(fetch: &mut Fetch<'_>, outcome: &Outcome) -> bool {
    let job = fetch.job;
    let is_missing = match outcome.failure() {
        Some(FailureKind::NotAFeed | FailureKind::Redirects) => true,
        Some(_) => matches!(fetch.fetched.http_status, Some(404 | 410)),
        None => false,
    };
    // The posts may be at a signed feed's own URL.
    let is_same_request = job.signed && *fetch.chain.current() == job.url;
    let is_remembered = found_at(job).is_some_and(|posts| fetch.chain.is_from(posts));
    if !is_missing || !is_remembered || is_same_request {
        return false;
    }
    let mut chain = Chain::restarted_at(job.url.clone());
    ask_as_actor(&mut chain, job);
    // It waits for the host within this fetch, or else continues in the next one.
    (fetch.chain, fetch.interrupted, fetch.patience) = (chain, None, fetch.shared.timeout);
    true
}

pub(super) fn finish(fetch: Fetch<'_>, outcome: Outcome) -> Fetched {
    let mut fetched = fetch.fetched;
    let is_good = matches!(outcome, Outcome::Modified(_) | Outcome::NotModified { .. });
    if is_good {
        fetched.moved_to = fetch.chain.moved_to().cloned();
    }
    let actor = fetch.chain.about().actor.clone();
    // A document of another origin may have come by a redirect that is not permanent, or by a stranger's link.
    let is_its_own = |actor: &FeedUrl| *actor != fetch.job.url && actor.has_origin_of(&fetch.job.url);
    fetched.permanent_url = actor.filter(|actor| is_good && is_its_own(actor));
    let is_refused = matches!(fetched.http_status, Some(401 | 403)) && outcome.failure() == Some(FailureKind::Status);
    let was_unsigned = !fetch.chain.asks_for_activities() && fetch.hops.login.is_none();
    // An actor that answered, and one that refused a request without a signature. A feed that refused once and has no
    // activities is an ordinary one.
    let is_wanted = if is_good { fetched.wants_signature } else { is_refused && was_unsigned };
    fetched.wants_signature = is_wanted && fetch.shared.signer.is_some();
    fetched.outcome = outcome;
    if let Outcome::Modified(document) = &mut fetched.outcome {
        if let Some(url) = document.link.as_deref().and_then(|page| input::permanent_account(&fetch.job.url, page)) {
            // Validators belong to the URL that sent them, whatever the feed is called from now on.
            if !document.validators.is_empty() {
                document.validators.for_url.get_or_insert_with(|| fetch.job.url.to_string());
            }
            fetched.permanent_url = Some(url);
        }
        let About { name, page, .. } = fetch.chain.about().clone();
        document.title = document.title.take().or(name);
        document.link = document.link.take().or(page);
    }
    fetched
}
