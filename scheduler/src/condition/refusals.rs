//! Hosts that refuse us: most of a host's feeds that were well are answered by 403, 451 or a page against robots.
//!
//! One feed that is forbidden is the feed's own matter. When several are refused one after the other, and hardly any is not,
//! it is the host's: the store keeps that ([`store::HostRefusal`]), and all schedulers learn of it with the operators' orders.
//! From then on the host backs off as a whole, no feed of it is penalised, and one good answer ends it.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use common::feed::Feed;
use common::host::HostKey;
use common::outcome::FailureKind;
use common::policy::{Signing, is_refusal};
use common::report::{FetchReport, Outcome};
use common::time::Timestamp;
use common::url::FeedId;
use store::{HostRefusal, RequeueFilter};

/// Refusals that are further apart do not belong together: a feed of one reader is polled every ten hours or so.
const WINDOW: Duration = Duration::from_secs(24 * 60 * 60);
/// What must be seen before the host is to blame: three feeds that a status refuses. A page against robots covers the
/// whole site, and counts twice: two feeds are enough.
const ENOUGH: u32 = 3;
const PAGE_COUNTS: u32 = 2;
/// The maximum number of feeds of a host that are distinguished.
const MOST_FEEDS: usize = 8;
/// No more hosts are suspected at once.
const MOST_HOSTS: usize = 2_000;

/// What this scheduler knows of hosts that refuse us. Shared by all its users.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<RefusingHosts>);

#[derive(Debug, Default)]
struct RefusingHosts {
    refusing: HashMap<HostKey, HostRefusal>,
    suspects: HashMap<HostKey, Suspect>,
    /// Hosts whose refusal was to be ended in the store, which failed and may have ended it.
    unsure: HashSet<HostKey>,
    /// Feeds of hosts that answer again, which are still to be requeued.
    owed: Vec<RequeueFilter>,
}

/// A host some of whose feeds were refused.
#[derive(Debug)]
struct Suspect {
    since: Timestamp,
    /// Feeds that were well before, or new.
    refused: Vec<FeedId>,
    weight: u32,
    answered: u32,
}

/// What a report says about its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// It refuses us, as a whole.
    Refuses,
    /// It refused us before, and answers now.
    Answers,
}

impl Refusals {
    /// Takes in the outcome of a fetch: the feed as it was before, and the report.
    pub(crate) fn hear(&self, feed: &Feed, report: &FetchReport, now: Timestamp) -> Option<Word> {
        // What another host refuses at the end of a redirect is not this one's word. But if all was well there, this one let us pass.
        let host = &feed.host;
        let refused = report.answering_host() == host && is_refusal(report, feed.state.signing);
        let answers = [report.answering_host(), &report.host].contains(&host)
            && matches!(report.outcome, Outcome::Modified(_) | Outcome::NotModified { .. });
        let mut seen = self.seen();
        if let Some(refusal) = seen.refusing.get(host) {
            // An answer to a request from before the rest ended says nothing of today, and would leave the host on hold.
            let answers = answers && report.started >= refusal.until;
            return match (refused, answers) {
                (true, _) => Some(Word::Refuses),
                (_, true) => Some(Word::Answers),
                _ => None,
            };
        }
        if answers {
            seen.answered(host);
        }
        (refused && seen.refused(host, feed, report, now)).then_some(Word::Refuses)
    }

    /// Takes over what the store says.
    pub(crate) fn set(&self, refusals: Vec<HostRefusal>) {
        let mut seen = self.seen();
        seen.refusing = refusals.into_iter().map(|refusal| (refusal.host.clone(), refusal)).collect();
    }

    /// Takes over what the store says of one host.
    pub(crate) fn note(&self, refusal: HostRefusal) {
        let mut seen = self.seen();
        seen.suspects.remove(&refusal.host);
        seen.refusing.insert(refusal.host.clone(), refusal);
    }

    /// The host answers again.
    pub(crate) fn forget(&self, host: &HostKey) {
        self.seen().refusing.remove(host);
    }

    /// Returns whether a host's refusal ended with this call to the store, or with an earlier one that failed. `None`: this one
    /// failed, and is made again.
    pub(crate) fn has_ended(&self, host: &HostKey, ended: Option<bool>) -> bool {
        let mut seen = self.seen();
        let Some(ended) = ended else {
            seen.unsure.insert(host.clone());
            return false;
        };
        seen.unsure.remove(host) || ended
    }

    /// Notes feeds that are to be requeued because their host answers again.
    pub(crate) fn owe_requeue(&self, filter: RequeueFilter) {
        let mut seen = self.seen();
        if !seen.owed.contains(&filter) {
            seen.owed.push(filter);
        }
    }

    /// Returns feeds that are to be requeued, and takes them from the list.
    pub(crate) fn take_owed_requeue(&self) -> Option<RequeueFilter> {
        self.seen().owed.pop()
    }

    /// Returns what is known of a host that refuses us.
    pub fn of(&self, host: &HostKey) -> Option<HostRefusal> {
        self.seen().refusing.get(host).cloned()
    }

    /// Returns the hosts that refuse us, the longest first.
    pub fn list(&self) -> Vec<HostRefusal> {
        let mut list: Vec<HostRefusal> = self.seen().refusing.values().cloned().collect();
        list.sort_by(|left, right| (left.since, &left.host).cmp(&(right.since, &right.host)));
        list
    }

    fn seen(&self) -> MutexGuard<'_, RefusingHosts> {
        common::lock(&self.0)
    }
}

impl RefusingHosts {
    /// Counts a refusal. Returns true if the host is to blame from now on.
    fn refused(&mut self, host: &HostKey, feed: &Feed, report: &FetchReport, now: Timestamp) -> bool {
        // A feed that failed before says nothing new about its host, unless it failed only for lack of a signature.
        if feed.state.consecutive_failures > u32::from(feed.state.signing == Signing::Wanted) {
            return false;
        }
        if self.suspects.len() >= MOST_HOSTS && !self.suspects.contains_key(host) {
            self.suspects.retain(|_, suspect| now.since(suspect.since) < WINDOW);
            if self.suspects.len() >= MOST_HOSTS {
                return false;
            }
        }
        let new = || Suspect { since: now, refused: Vec::new(), weight: 0, answered: 0 };
        let suspect = self.suspects.entry(host.clone()).or_insert_with(new);
        if now.since(suspect.since) >= WINDOW {
            *suspect = new();
        }
        if !suspect.refused.contains(&feed.id) && suspect.refused.len() < MOST_FEEDS {
            suspect.refused.push(feed.id);
            let is_page = report.outcome.failure() == Some(FailureKind::Blocked);
            suspect.weight += if is_page { PAGE_COUNTS } else { 1 };
        }
        let feeds = u32::try_from(suspect.refused.len()).unwrap_or(u32::MAX);
        feeds > 1 && suspect.weight >= ENOUGH && feeds > 2 * suspect.answered
    }

    /// Counts a good answer. A host that answers as much as it refuses is not suspected any more.
    fn answered(&mut self, host: &HostKey) {
        let Some(suspect) = self.suspects.get_mut(host) else { return };
        suspect.answered += 1;
        if suspect.answered as usize >= suspect.refused.len() {
            self.suspects.remove(host);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use common::metrics::Metrics;
    use common::outcome::FailureKind;
    use common::report::Outcome;
    use common::time::{Clock, ManualClock};
    use store::FeedRef;
    use store::sqlite::SqliteStore;

    use super::*;
    use crate::ops::AddFeed;
    use crate::run::{Backends, Scheduler};

    #[tokio::test]
    async fn suspects_beyond_the_most_take_no_memory_and_those_of_a_day_ago_make_room() {
        let backends = Backends::in_memory(Arc::new(SqliteStore::open("sqlite::memory:").await.unwrap()));
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_790_000_000_000)));
        let for_all: Arc<dyn Clock> = clock.clone();
        let config = Arc::new(common::config::defaults());
        let Scheduler { ops, .. } = Scheduler::new(&backends, &config, &Arc::new(Metrics::new()), &for_all);
        let added = AddFeed::of("http://a.example/".parse().unwrap());
        let id = ops.add(&[added], None).await.unwrap()[0].id;
        let feed = ops.feed(&FeedRef::Id(id)).await.unwrap().unwrap();
        let mut seen = RefusingHosts::default();
        let mut refuse = |number: usize, now: Timestamp| {
            let host = HostKey::new(&format!("h{number}.example:443"));
            let outcome = Outcome::Failed { failure: FailureKind::Status, detail: "HTTP 403".into() };
            let report = FetchReport::of(id, feed.version, host.clone(), now, outcome);
            assert!(!seen.refused(&host, &feed, &report, now));
            seen.suspects.len()
        };
        let now = clock.now();
        let last = (0..MOST_HOSTS * 3 / 2).map(|number| refuse(number, now)).last();
        assert_eq!(last, Some(MOST_HOSTS));
        assert_eq!(refuse(9_999, now.after(WINDOW)), 1);
    }
}
