//! The way of one fetch: redirects, an actor's outbox, and for a new feed that is a page the places where feeds usually are.

use std::time::Duration;

use common::document::Validators;
use common::host::HostKey;
use common::input;
use common::job::FetchJob;
use common::outcome::FailureKind;
use common::report::Outcome;
use common::time::Timestamp;
use common::url::{FeedUrl, Version};
use tokio::time::{Instant, timeout_at};

use super::fetched::{Fetched, Hops};
use super::shared::Shared;
use crate::body::BodySlot;
use crate::discover::{AnnouncedFeed, usual_places};
use crate::document::{Answer, Read};
use crate::failure::Failure;
use crate::parse::Lead;
use crate::redirect::{About, Chain};
use crate::trace::Exchange;

/// Returns where a fetch begins: at the feed's own URL, or where that one's answer said that the posts are.
pub(super) fn start_of(job: &FetchJob) -> Chain {
    let mut chain = Chain::new(job.url.clone());
    match job.validators.for_url.as_deref().and_then(|url| url.strip_suffix(Validators::POSTS)) {
        Some(posts) => chain.lead_to(posts, About::default()),
        None => ask_as_actor(&mut chain, job),
    };
    chain
}

/// Requests an actor at the feed's own URL, with a signature, where a request without one was refused.
fn ask_as_actor(chain: &mut Chain, job: &FetchJob) -> bool {
    job.signed && chain.lead_to(job.url.as_str(), About::default())
}

/// One fetch in progress.
pub(super) struct Fetch<'a> {
    pub(super) shared: &'a Shared,
    pub(super) job: &'a FetchJob,
    pub(super) hops: &'a Hops<'a>,
    pub(super) started: Instant,
    pub(super) deadline: Instant,
    pub(super) chain: Chain,
    /// When the chain was interrupted first, by an earlier fetch.
    pub(super) interrupted: Option<Timestamp>,
    pub(super) fetched: Fetched,
    pub(super) trace: Option<&'a mut Vec<Exchange>>,
    /// The last body was a page that announces no feed.
    pub(super) is_bare_page: bool,
    /// How long a hop may wait for its host.
    pub(super) patience: Duration,
    /// The host that is searched for a feed: no other host gets a request meanwhile.
    pub(super) search: Option<HostKey>,
}

/// The outcome of one hop.
pub(super) enum Step {
    Ended(Outcome),
    Redirected,
    /// The same URL once more.
    Again,
    Body(Box<Answer>, Option<BodySlot>),
}

impl Fetch<'_> {
    pub(super) async fn run(&mut self) -> Outcome {
        let outcome = self.walk().await;
        let is_new = self.job.version == Version(1) && self.job.content_hash.is_none();
        let page_host = self.fetched.last_host.clone().filter(|host| *host == self.job.host);
        match page_host {
            Some(host) if self.is_bare_page && self.job.search && is_new => self.try_usual_places(outcome, host).await,
            _ => outcome,
        }
    }

    /// Requests one URL after the other until there is no further one.
    async fn walk(&mut self) -> Outcome {
        loop {
            let url = self.chain.current().clone();
            if let Err(refused) = self.shared.guard.check_url(url.as_url()) {
                return Failure::from(refused).into();
            }
            let elsewhere = |host: &HostKey| self.hops.rules.for_url(url.as_url()).key != *host;
            if self.search.as_ref().is_some_and(elsewhere) {
                return Failure::new(FailureKind::Redirects, "a guess that leads to another host").into();
            }
            let permit = match self.admission(&url).await {
                Ok(permit) => permit,
                Err(until) => return self.interrupt(until),
            };
            let step = self.hop(&url).await;
            self.fetched.duration = self.started.elapsed();
            if let Some(permit) = permit {
                self.give_back(&permit).await;
            }
            let (outcome, lead) = match step {
                Step::Ended(outcome) => (outcome, None),
                Step::Redirected | Step::Again => continue,
                Step::Body(answer, place) => {
                    let was_delta = answer.delta;
                    let Read { outcome, lead, bytes, announced, is_page } = self.read(*answer).await;
                    drop(place);
                    self.is_bare_page = is_page && announced.is_empty() && lead.is_none();
                    (self.fetched.body_bytes, self.fetched.announced) = (bytes, self.dialable(announced).await);
                    self.fetched.unusable_delta |= was_delta && outcome.failure().is_some();
                    (outcome, lead)
                }
            };
            if !lead.is_some_and(|lead| self.follow(lead)) && !self.start_anew(&outcome) {
                return outcome;
            }
        }
    }

    /// Leaves out the first announced feeds whose addresses are refused: a misconfigured page announces `http://localhost/feed`
    /// before its real one. The first that may be dialled ends the look, because no more than one is ever taken.
    async fn dialable(&self, mut announced: Vec<AnnouncedFeed>) -> Vec<AnnouncedFeed> {
        let mut refused = 0;
        for feed in &announced {
            let judged = timeout_at(self.deadline, self.shared.client.judge(&self.shared.guard, feed.url.as_url()));
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
    async fn try_usual_places(&mut self, page_outcome: Outcome, host: HostKey) -> Outcome {
        self.search = Some(host);
        self.patience = self.shared.timeout;
        let page = self.fetched.clone();
        let site = self.chain.current().clone();
        if !self.shared.searched().begin(&site, self.hops.clock.now()) {
            return page_outcome;
        }
        for place in usual_places(&site) {
            self.chain = Chain::new(place);
            match self.walk().await {
                Outcome::Modified(document) => {
                    let url = self.chain.settled().clone();
                    let found = AnnouncedFeed { url, media_type: String::new(), title: document.title };
                    return self.back_at(Fetched { announced: vec![found], ..page }, page_outcome);
                }
                // this host got enough requests
                outcome @ Outcome::Throttled { .. } => return outcome,
                Outcome::Deferred { .. } => break,
                _ => {}
            }
        }
        self.back_at(page, page_outcome)
    }

    /// The report is about the page. Of the later requests it says only when they were and how much they took.
    fn back_at(&mut self, page: Fetched, outcome: Outcome) -> Outcome {
        let Fetched { last_host, last_sent, duration, wire_bytes, .. } = self.fetched.clone();
        self.fetched = Fetched { last_host, last_sent, duration, wire_bytes, ..page };
        outcome
    }

    /// Continues where an answer says that the posts are.
    fn follow(&mut self, lead: Lead) -> bool {
        // The feed of an actor's page is the actor's own: the document says who it is.
        let current = self.chain.current();
        let actor = (lead.id.as_deref() == Some(current.as_str())).then(|| current.clone());
        self.chain.lead_to(&lead.url, About { name: lead.name, page: lead.page, actor })
    }

    /// When the posts are no longer where they were last time, they are looked for once more from the feed's own URL on.
    fn start_anew(&mut self, outcome: &Outcome) -> bool {
        let missing =
            matches!(self.fetched.http_status, Some(404 | 410)) || outcome.failure() == Some(FailureKind::NotAFeed);
        let was_remembered = self.chain == start_of(self.job) && !self.chain.is_at_start();
        let mut fresh = Chain::new(self.job.url.clone());
        ask_as_actor(&mut fresh, self.job);
        // A signed feed begins at its own URL in both ways: the same request would follow, without end.
        let anew = was_remembered && missing && outcome.failure().is_some() && fresh != self.chain;
        if anew {
            (self.chain, self.interrupted) = (fresh, None);
            // A fetch that is postponed here would begin at the old place again.
            self.patience = self.shared.timeout;
        }
        anew
    }

    pub(super) fn finish(self, outcome: Outcome) -> Fetched {
        let mut fetched = self.fetched;
        let is_good = matches!(outcome, Outcome::Modified(_) | Outcome::NotModified { .. });
        if is_good {
            fetched.moved_to = self.chain.moved_to().cloned();
        }
        let actor = self.chain.about().actor.clone();
        // A document of another origin may have come by a redirect that is not permanent, or by a stranger's link.
        let is_its_own = |actor: &FeedUrl| *actor != self.job.url && actor.has_origin_of(&self.job.url);
        fetched.permanent_url = actor.filter(|actor| is_good && is_its_own(actor));
        let is_refused =
            matches!(fetched.http_status, Some(401 | 403)) && outcome.failure() == Some(FailureKind::Status);
        let was_unsigned = !self.chain.asks_for_activities() && self.hops.login.is_none();
        // An actor that answered, and one that refused a request without a signature. A feed that refused once and has no
        // activities is an ordinary one.
        let is_wanted = if is_good { fetched.wants_signature } else { is_refused && was_unsigned };
        fetched.wants_signature = is_wanted && self.shared.signer.is_some();
        fetched.outcome = outcome;
        if let Outcome::Modified(document) = &mut fetched.outcome {
            if let Some(url) = document.link.as_deref().and_then(|page| input::permanent_account(&self.job.url, page)) {
                // Validators belong to the URL that sent them, whatever the feed is called from now on.
                if !document.validators.is_empty() {
                    document.validators.for_url.get_or_insert_with(|| self.job.url.to_string());
                }
                fetched.permanent_url = Some(url);
            }
            let About { name, page, .. } = self.chain.about().clone();
            document.title = document.title.take().or(name);
            document.link = document.link.take().or(page);
        }
        fetched
    }
}
